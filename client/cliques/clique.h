/* clique.h: the interface between the kinds of cliques and the rest of the library.
 *
 * A kind runs one collective at a time, to its end, in the thread that calls it. clique.c serves all kinds:
 * it queues the started collectives, and a communication thread runs them in order. If the queue is empty and
 * the kind allows it, a call runs in the caller's thread without waking another thread. The first failure
 * breaks a clique: it runs nothing afterwards. */
#ifndef PSC_CLIQUES_CLIQUE_H
#define PSC_CLIQUES_CLIQUE_H

#include <stdbool.h>

#include "client/cliques/values.h"
#include "proto/codecs/codec.h"
#include "proto/error.h"

/* What a kind runs. The calls in place and out of place are the same to it: clique.c copies. */
struct psc_collective {
    enum psc_collective_kind kind;
    /* The values, which the result replaces. [n]; with parts (psc_call_has_parts) [members * n], of which the
     * rank-th n are this member's. */
    void *data;
    size_t n;                     /* may be 0, or less than the number of members */
    int root;                     /* of REDUCE and BROADCAST, else 0 */
    uint8_t type, operation;      /* enum psc_type; enum psc_operation, of which PSC_MEAN is a sum here */
    const struct ps_codec *codec; /* of sums of float32, else NULL */
    /* Moves no values: it only finds out whether all members make this call. Afterwards `compared` is set in
     * the same call. */
    bool compares, compared;
    double until_s; /* by ps_now_s: it fails then at every member. 0: the kind's own limits only */
    /* `data` is memory of a GPU. `await`, which may be NULL, waits until the values are there: PSC_OK, or
     * PSC_EDEVICE with a sentence. It is called by the thread that runs the call. */
    bool on_device;
    int (*await)(void *arg, struct ps_error *err);
    void *await_arg;
    bool is_waited_for; /* the caller's own thread runs it: it does not compute meanwhile */
};

struct psc_clique_ops {
    size_t size; /* sizeof (struct psc_clique_ops), in the library that has the kind */
    const char *name;
    bool any_thread; /* run may be called by the caller's thread while the communication thread is idle */
    /* Runs the collective to its end: PSC_OK, or PSC_ECLIQUE (PSC_ENOMEM, PSC_ESYSTEM) with a sentence.
     * Never called with fewer than two members. */
    int (*run)(void *state, const struct psc_collective *op, struct ps_error *err);
    /* Floats in a stripe. If a vector is summed by several calls and each begins at a multiple of a stripe,
     * the result has the same bits as that of one call. NULL: the kind does not promise that. */
    size_t (*stripe)(const void *state);
    bool raw_varies; /* raw floats are excepted from that promise */
    /* Uses this enum psc_algorithm_kind for sums from now on. All members call it with the same value. A
     * failure breaks the clique. NULL: the kind has its own algorithm. */
    int (*use)(void *state, uint8_t algorithm, struct ps_error *err);
    /* After a failure: forms the clique anew of the members that call it before the deadline, as of
     * psc_clique_shrink, and sets rank and members. PSC_ECLIQUE, PSC_EINVAL (the clique was not opened for
     * it) with a sentence; it may be called again. NULL: the kind cannot. */
    int (*shrink)(void *state, uint64_t step, uint32_t timeout_ms, struct psc_shrunk *out, int *rank,
                  int *members, struct ps_error *err);
    /* Whether it can run the collective of a device's vector: PSC_OK, or PSC_EINVAL, PSC_EUNSUPPORTED with a
     * sentence; nothing has begun then. NULL: the kind has vectors of the host only. */
    int (*check_device)(void *state, const struct psc_collective *op, struct ps_error *err);
    /* While the members wait for each other outside of the kind, in `op`: whether all are still there, as far
     * as is known without waiting. `failed`: what has failed there at this member, which tells the others;
     * NULL: nothing. PSC_OK, or PSC_ECLIQUE with a sentence. NULL: the kind cannot know. */
    int (*look)(void *state, const struct psc_collective *op, const char *failed, struct ps_error *err);
    /* How long a member's process may be silent, in ms, of a clique that was opened for `shrink`; 0: it was
     * not. NULL where `shrink` is. */
    uint32_t (*patience_ms)(const void *state);
    /* Any thread: makes a collective in progress fail soon, and all later ones. Called before destroy, once
     * or more often. */
    void (*give_up)(void *state);
    void (*destroy)(void *state);
};

/* Takes ownership of `state`, also on failure: PSC_ENOMEM; PSC_EUNSUPPORTED: the kind is of another version.
 */
int psc_clique_create(const struct psc_clique_ops *kind, void *state, int rank, int members,
                      struct psc_clique **out);
/* The kind's stripe; 1: it has none, or there is one member. */
size_t psc_clique_stripe(const struct psc_clique *q);
/* Whether the kind promises the same bits for a vector that is cut at stripes. codec: a name. */
bool psc_clique_keeps_bits(const struct psc_clique *q, const char *codec);
/* Calls struct psc_clique_ops.use while no collective is in progress. PSC_EUNSUPPORTED: the kind has its own
 * algorithm, and the name is not "ring". */
int psc_clique_use(struct psc_clique *q, const char *algorithm);
/* Calls struct psc_clique_ops.look, which the kind has, while no collective is in progress. A failure breaks
 * the clique. */
int psc_clique_look(struct psc_clique *q, const struct psc_collective *op, const char *failed);
/* Whether the clique's sums are of vectors of a GPU. */
bool psc_clique_is_on_device(const struct psc_clique *q);
/* struct psc_clique_ops.patience_ms; 0: the clique ends with the loss of a member. */
uint32_t psc_clique_patience_ms(const struct psc_clique *q);
/* Any thread: makes the collective in progress fail soon, and all later ones. The handle stays to be closed.
 */
void psc_clique_give_up(struct psc_clique *q);
/* For calls.c. A collective and the arrays of its caller. */
struct psc_task {
    struct psc_collective op;
    bool compare;    /* first, that all members make this call */
    const void *in;  /* NULL: the values are in op.data already */
    void *out;       /* receives this member's part of the result; NULL: it stays in op.data */
    bool needs_copy; /* op.data is memory of the clique, which has yet to be found */
    uint32_t timeout_ms;
    size_t memory_bytes; /* of that memory; 0: there is none */
};
int psc_clique_run(struct psc_clique *q, struct psc_task *t);
/* Of a device's vector, in place; calls struct psc_clique_ops.check_device first. */
int psc_device_start(struct psc_clique *q, const struct psc_collective *op, uint64_t *ticket);
/* The check alone. */
int psc_clique_check_device(struct psc_clique *q, const struct psc_collective *op);
int psc_clique_start(struct psc_clique *q, struct psc_task *t, uint64_t *ticket);
/* Sets the sentence and returns rc. */
int psc_clique_refuse(struct psc_clique *q, int rc, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* Whether calls may have a root: the clique is open. */
bool psc_clique_is_open(const struct psc_clique *q);

/* A handle that only carries an error; NULL: no memory. */
struct psc_clique *psc_clique_failed(const struct ps_error *err);

#endif
