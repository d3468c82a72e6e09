/* memory.h: where a worker's vectors lie, and who computes on them: the host, or a device such as a GPU. One
 * row for each kind of memory. The device's row is in a module (cuda/module.h), which is loaded when a
 * program asks for it, so that this library does not depend on CUDA.
 *
 * Computing on a device is asynchronous. Work in a queue is done in its order; queues are independent, unless
 * one is told to wait for another. A handle has three:
 *
 *     PSC_COMPUTE  the optimizer and the rule's client side; the caller's stream. For the caller's thread
 *     PSC_DOWN     copies of a message to the host. For whoever runs transfers, as is
 *     PSC_UP       copies of answers to the device, and their application
 *
 * The kernels of all rows give the same bits: the same operations in the same order, none of them contracted.
 * Functions of a device that return nothing cannot fail at once. A device keeps its first failure, and
 * `check` and `wait` tell it. */
#ifndef PSC_MEMORY_MEMORY_H
#define PSC_MEMORY_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/codecs/codec.h"
#include "proto/error.h"
#include "proto/model/manifest.h"
#include "proto/vec/vec.h"

enum psc_queue_use { PSC_COMPUTE, PSC_DOWN, PSC_UP, PSC_N_QUEUES };

struct psc_queue;  /* of the host: its kernels, a struct ps_vec */
struct psc_device; /* NULL: the host */
struct psc_mark;   /* a place in a queue */

/* The kernels; vectors are [n] in the memory of the row. They are those of vec.h, which has their equations,
 * or several of these in one pass. */
struct psc_kernels {
    /* Between begin and end, which may be nested, a device gathers passes and makes many of them in one
     * launch: none may write what another one there reads or writes. Nothing else is enqueued meanwhile, but
     * zero likewise. */
    void (*begin)(struct psc_queue *q);
    void (*end)(struct psc_queue *q);
    void (*axpy)(struct psc_queue *q, float *y, const float *x, float a, size_t n);
    void (*scale)(struct psc_queue *q, float *x, float a, size_t n);
    void (*copy)(struct psc_queue *q, float *to, const float *from, size_t n);
    void (*zero)(struct psc_queue *q, float *x, size_t n);
    void (*subtract)(struct psc_queue *q, float *out, const float *x, const float *y, size_t n);
    void (*decay)(struct psc_queue *q, float *out, const float *g, const float *x, float lambda, size_t n);
    void (*elastic)(struct psc_queue *q, float *x, const float *center, float a, size_t n);
    /* out <- a (center - x) */
    void (*approach)(struct psc_queue *q, float *out, const float *center, const float *x, float a, size_t n);
    void (*rebase)(struct psc_queue *q, float *x, float *start, const float *center, size_t n);
    /* x <- x + a center - a start; start <- center */
    void (*rebase_mixed)(struct psc_queue *q, float *x, float *start, const float *center, float a, size_t n);
    void (*heavy_ball)(struct psc_queue *q, float *x, float *v, const float *g, float eta, float mu,
                       size_t n);
    void (*nesterov)(struct psc_queue *q, float *at, float *x, float *v, const float *g, float eta,
                     float delta, size_t n);
    /* at <- x + delta v */
    void (*look)(struct psc_queue *q, float *at, const float *x, const float *v, float delta, size_t n);
    void (*admm_message)(struct psc_queue *q, float *m, const float *x, const float *lambda, const float *g,
                         float eta, float pull, float scale, size_t n);
    void (*admm_land)(struct psc_queue *q, float *x, float *lambda, const float *center, const float *g,
                      float eta, float pull, float scale, size_t n);
    /* lambda <- lambda + center - x, or 0 where that is not finite; x <- center */
    void (*admm_restart)(struct psc_queue *q, float *x, float *lambda, const float *center, size_t n);
};

/* Who computes on the vectors of a call. */
struct psc_work {
    const struct psc_kernels *kernels;
    struct psc_queue *queue;
};

/* A piece of a message that travels in a codec, in a payload that begins at a multiple of 16 bytes. */
struct psc_coded {
    struct ps_range range; /* of the vector */
    uint64_t from;         /* where its values begin in the message */
    uint64_t to;           /* where its payload begins in the room */
    bool as_floats;        /* ps_piece_is_coded says no */
};

/* What the pieces of a message have in common. All vectors are the device's. */
struct psc_coding {
    const struct ps_codec *codec;
    const float *message;
    float *error; /* [floats of the vector], the error feedback; NULL: none. Of take: what is known */
    void *room;
    bool searches; /* values that are not finite are noted, as by search */
};

struct psc_device_options {
    void *stream; /* the caller's, for PSC_COMPUTE; NULL: a stream of its own */
    uint32_t timeout_ms;
};

/* A kind of memory. The host's has a name and kernels alone. All functions but those of one queue may be
 * called by any thread. */
struct psc_memory_kind {
    const char *name; /* as in psc_options.memory */
    const struct psc_kernels *kernels;
    /* -ENOTSUP with a sentence: this machine has no such device. */
    int (*open)(const struct psc_device_options *opt, struct psc_device **out, struct ps_error *err);
    /* Waits for all work, and frees everything. */
    void (*close)(struct psc_device *d);
    struct psc_queue *(*queue)(struct psc_device *d, enum psc_queue_use use);
    /* Zeroed memory. free waits for all work first. -ENOMEM, -EIO with a sentence. */
    int (*alloc)(struct psc_device *d, size_t bytes, void **out, struct ps_error *err);
    void (*free)(struct psc_device *d, void *p);
    /* Whether p is memory of the device. */
    bool (*owns)(struct psc_device *d, const void *p);
    /* Lets copies reach memory of the host. unpin waits for all work first; unpin_idle does not, and is for
     * memory that no work accesses any more. -EIO with a sentence. */
    int (*pin)(struct psc_device *d, void *p, size_t bytes, struct ps_error *err);
    void (*unpin)(struct psc_device *d, void *p);
    void (*unpin_idle)(struct psc_device *d, void *p);
    /* Everything in queue `later` from now on waits for what is in `first` now. */
    void (*order)(struct psc_device *d, enum psc_queue_use first, enum psc_queue_use later);
    /* Copies between the device and pinned memory. */
    void (*down)(struct psc_queue *q, void *host, const void *device, size_t bytes);
    void (*up)(struct psc_queue *q, void *device, const void *host, size_t bytes);
    /* Marks: put at the end of a queue, as often as wanted; wait: until the queue has passed it. A wait ends
     * after options.timeout_ms at the latest. 0; -EIO with the sentence of the device's first failure. */
    int (*mark_create)(struct psc_device *d, struct psc_mark **out, struct ps_error *err);
    void (*mark_destroy)(struct psc_device *d, struct psc_mark *m);
    void (*mark)(struct psc_queue *q, struct psc_mark *m);
    int (*wait)(struct psc_device *d, struct psc_mark *m, struct ps_error *err);
    /* Looks for values that are not finite: begin, then each part with the index of its first value, then
     * end, which waits: *at is the index of the first, UINT64_MAX if there is none. One search a queue at a
     * time. Errors as of wait. watch is a begin after which passes look at what they write to x[n], of which
     * the first has the index `at`. */
    void (*search_begin)(struct psc_queue *q);
    void (*watch)(struct psc_queue *q, const float *x, size_t n, uint64_t at);
    void (*search)(struct psc_queue *q, const float *x, size_t n, uint64_t at);
    int (*search_end)(struct psc_queue *q, uint64_t *at, struct ps_error *err);
    /* The codecs, with the payloads of proto/codecs, byte for byte. codes: whether the device has this one.
     * learn: the roles of the vector's parts, before the first message. encode: the pieces' payloads of m +
     * e, of m alone where that is not finite, and of 0 where it is frozen. feed_back: e <- m + e - what the
     * payloads decode to. decode: of a codec that is not for moves, at a multiple of 16 bytes. take: a piece
     * in a codec for moves, whose payload was checked, is added to coding.error, but for buffers, which are
     * replaced, and what is frozen. */
    bool (*codes)(const struct ps_codec *codec);
    int (*learn)(struct psc_device *d, const struct ps_manifest *m, struct ps_error *err);
    void (*encode)(struct psc_queue *q, const struct psc_coding *coding, const struct psc_coded *pieces,
                   size_t n);
    void (*feed_back)(struct psc_queue *q, const struct psc_coding *coding, const struct psc_coded *pieces,
                      size_t n);
    void (*decode)(struct psc_queue *q, const struct ps_codec *codec, float *x, const void *payload,
                   size_t n);
    void (*take)(struct psc_queue *q, const struct psc_coding *coding, const struct psc_coded *piece);
    /* Waits for the queue; a device's first failure otherwise, without waiting. Errors as of wait. */
    int (*finish)(struct psc_queue *q, struct ps_error *err);
    int (*check)(struct psc_device *d, struct ps_error *err);
};

/* The kind of memory of a handle. */
struct psc_memory_of {
    const struct psc_memory_kind *kind;
    struct psc_device *device; /* NULL: the host */
    bool own_stream;           /* the caller does not know PSC_COMPUTE: each call ends when it is done */
};

extern const struct psc_memory_kind psc_memory_host;
/* loader.c. The row of a name; loads its module. *out is only written on success: PSC_EINVAL names what is
 * allowed, PSC_EUNSUPPORTED what is missing. */
int psc_memory_find(const char *name, const struct psc_memory_kind **out, struct ps_error *err);

/* loader.c. Loads a module of this library, from its own folder, that folder's psd, or the loader's path; it
 * is never unloaded. NULL: dlerror tells why. */
void *psc_module_load(const char *library);

/* host.c. The work of a queue. */
struct psc_work psc_work_of(const struct psc_memory_of *m, enum psc_queue_use use);

#define PSC_KERNEL(name, arguments, ...)                                                                     \
    static inline void psc_##name arguments                                                                  \
    {                                                                                                        \
        w->kernels->name(w->queue, __VA_ARGS__);                                                             \
    }
static inline void psc_passes_begin(const struct psc_work *w)
{
    w->kernels->begin(w->queue);
}

static inline void psc_passes_end(const struct psc_work *w)
{
    w->kernels->end(w->queue);
}

PSC_KERNEL(axpy, (const struct psc_work *w, float *y, const float *x, float a, size_t n), y, x, a, n)
PSC_KERNEL(scale, (const struct psc_work *w, float *x, float a, size_t n), x, a, n)
PSC_KERNEL(copy, (const struct psc_work *w, float *to, const float *from, size_t n), to, from, n)
PSC_KERNEL(zero, (const struct psc_work *w, float *x, size_t n), x, n)
PSC_KERNEL(subtract, (const struct psc_work *w, float *out, const float *x, const float *y, size_t n), out, x,
           y, n)
PSC_KERNEL(decay,
           (const struct psc_work *w, float *out, const float *g, const float *x, float lambda, size_t n),
           out, g, x, lambda, n)
PSC_KERNEL(elastic, (const struct psc_work *w, float *x, const float *center, float a, size_t n), x, center,
           a, n)
PSC_KERNEL(approach,
           (const struct psc_work *w, float *out, const float *center, const float *x, float a, size_t n),
           out, center, x, a, n)
PSC_KERNEL(rebase, (const struct psc_work *w, float *x, float *start, const float *center, size_t n), x,
           start, center, n)
PSC_KERNEL(rebase_mixed,
           (const struct psc_work *w, float *x, float *start, const float *center, float a, size_t n), x,
           start, center, a, n)
PSC_KERNEL(heavy_ball,
           (const struct psc_work *w, float *x, float *v, const float *g, float eta, float mu, size_t n), x,
           v, g, eta, mu, n)
PSC_KERNEL(nesterov,
           (const struct psc_work *w, float *at, float *x, float *v, const float *g, float eta, float delta,
            size_t n),
           at, x, v, g, eta, delta, n)
PSC_KERNEL(look, (const struct psc_work *w, float *at, const float *x, const float *v, float delta, size_t n),
           at, x, v, delta, n)
PSC_KERNEL(admm_message,
           (const struct psc_work *w, float *m, const float *x, const float *lambda, const float *g,
            float eta, float pull, float scale, size_t n),
           m, x, lambda, g, eta, pull, scale, n)
PSC_KERNEL(admm_land,
           (const struct psc_work *w, float *x, float *lambda, const float *center, const float *g, float eta,
            float pull, float scale, size_t n),
           x, lambda, center, g, eta, pull, scale, n)
PSC_KERNEL(admm_restart, (const struct psc_work *w, float *x, float *lambda, const float *center, size_t n),
           x, lambda, center, n)
#undef PSC_KERNEL

#endif
