/* net.h: a net: a model made ready for one backend, batch size and thread count. */
#ifndef CNN_NET_H
#define CNN_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nets/model.h"
#include "proto/error.h"

struct cnn_net;

/* The precision of a backend's computation. x and g are always float32, and so are sums, batch-norm's
 * statistics and losses. At CNN_BF16 activations, their gradients and the weights of products are bf16. */
enum cnn_precision { CNN_FLOAT32, CNN_TF32, CNN_BF16, CNN_N_PRECISIONS };
const char *cnn_precision_name(enum cnn_precision precision);

struct cnn_net_options {
    const struct cnn_model *model;
    const char *backend; /* "ref", "onednn", "cuda"; NULL: the fastest that can run here, never cuda */
    uint32_t batch;      /* images a call, fixed */
    uint32_t threads;    /* 0: as many as the process may use (taskset, Slurm, container). Not pinned */
    enum cnn_precision precision;
    /* Whether the backend may use algorithms whose sums have another order each time: a step that is computed
     * again then has other last bits. Refused by backends that have none. */
    bool any_order;
    double label_smoothing; /* of gradients and their loss: 0 to below 1; scores do not use it */
    uint64_t memory_limit;  /* bytes of net, x and g together; 0: the available memory */
    uint32_t
        first_image; /* start of this net's part in a larger batch that several nets share, for dropout */
};

/* Measures gradients in bf16 and in float32 for about a second, and chooses the faster, or the one that fits
 * into memory; float32 if the backend does not compute in bf16 here. opt->precision is not read. Errors as of
 * cnn_net_create; -ENOMEM if neither fits. */
struct cnn_precision_choice {
    enum cnn_precision precision;
    char why[256];
};
int cnn_precision_choose(const struct cnn_net_options *opt, struct cnn_precision_choice *out,
                         struct ps_error *err);

/* The images and labels of a call, borrowed until it returns, also by a call that only begins a gradient. */
enum cnn_pixels {
    CNN_PIXELS_FLOAT, /* float: the input of the net */
    CNN_PIXELS_BYTE   /* uint8_t: value_of maps each byte to the net's input */
};
/* Which part of a stored image is a net's input. What lies outside of the stored image is black, byte 0. */
struct cnn_cut {
    int32_t top, left; /* where the part begins in the stored image */
    uint32_t mirrored; /* 1: its columns are taken from the right to the left */
};
struct cnn_batch {
    const void *images; /* [n][C][H][W], or with is_hwc [n][H][W][C] */
    enum cnn_pixels pixels;
    bool is_hwc;
    const float (*value_of)[256]; /* [C]; only for bytes */
    const uint16_t *labels;       /* [n] */
    uint32_t n;
    /* NULL: H x W is the net's input. Otherwise, only for bytes and where cnn_net_cuts: H x W is
     * stored_height x stored_width, and the net cuts its input from each image. */
    const struct cnn_cut *cuts; /* [n] */
    uint32_t stored_height, stored_width;
};

/* Called in the thread of the gradient as soon as n floats of g from `offset` on are final, so that they can
 * be sent while the rest is computed. Each float is reported once, from the last layer to the first. The call
 * may use cnn_net_update_buffers. */
struct cnn_ready {
    void (*call)(void *arg, uint64_t offset, uint64_t n);
    void *arg;
};

struct cnn_score {
    /* Mean cross-entropy of the images, with the natural logarithm. For a gradient: the weighted sum of all
     * losses, the function that is differentiated. */
    double loss;
    uint32_t n_correct;   /* images whose largest output of the main loss is the label */
    uint32_t n_correct_5; /* images whose label is among the five largest; of equal outputs the first counts
                             as larger, and NaN as larger than any */
};

/* Makes a device of the backend the calling thread's, for all nets that it creates and uses from now on.
 * -ENOTSUP with a sentence: there is no such device; -EINVAL: the backend has none, or is unknown. */
int cnn_use_device(const char *backend, uint32_t device, struct ps_error *err);

/* Bytes that are free in the backend's own memory. -ENOTSUP: it computes in memory of the host, or cannot
 * run; -EIO: the device fails. */
int cnn_free_bytes(const char *backend, uint64_t *out, struct ps_error *err);

/* -EINVAL with a sentence for an unknown backend or invalid sizes; -ENOTSUP if this machine cannot run it,
 * with a sentence that names the missing part; -ENOMEM, also for a net that is larger than the limit, with
 * its size and the batch that would fit; -EIO: the device fails. */
int cnn_net_create(const struct cnn_net_options *opt, struct cnn_net **out, struct ps_error *err);
void cnn_net_destroy(struct cnn_net *net);

/* Computes the gradient g (n_floats, overwritten; 0 for buffers and frozen parameters) of the mean loss over
 * the batch at x, with dropout and the batch's own statistics. images: [batch][C][H][W], any values; labels:
 * [batch], each < classes (checked: -EINVAL, g and score unchanged). -EIO if the backend's library fails. A
 * NaN in x or images is not an error: loss or gradient is not finite. The same holds for an infinity, unless
 * a function of the net has a finite limit there, as ReLU at -inf. Ties in a max-pool window go to the first
 * in row order. Each successful call draws a new dropout mask: see cnn_net_seed. Neither function allocates.
 * One call at a time for a net; any thread. */
int cnn_net_gradient(struct cnn_net *net, const float *x, const float *images, const uint16_t *labels,
                     float *g, struct cnn_score *score);

/* The same for a batch in the loader's format, whose n is the net's batch. ready: called for each final part
 * of g; may be NULL. */
int cnn_net_gradient_of(struct cnn_net *net, const float *x, const struct cnn_batch *batch, float *g,
                        const struct cnn_ready *ready, struct cnn_score *score);

/* cnn_net_gradient_of in two halves, so that a device need not wait between two steps: the next gradient may
 * begin before this one has ended. At most CNN_MOST_BEGUN are begun and not ended. begin puts the gradient
 * into the net's stream and returns when the device has read the batch. Work in cnn_net_stream behind it sees
 * g and may move x; the memory of x and g stays until the end. Without a device, with x or g in memory of the
 * host, or with `ready`, begin computes all of g. end waits for the oldest that was begun and tells its
 * score.
 *
 * -EINVAL with a sentence: a third begin, an end without a begin, and, while one is begun, cnn_net_gradient,
 * cnn_net_score and what is like them; then what was begun goes on. Another failure, which either half may
 * tell, ends all that was begun: no work is pending then. cnn_net_destroy waits for what was begun. */
#define CNN_MOST_BEGUN 2
int cnn_net_gradient_begin(struct cnn_net *net, const float *x, const struct cnn_batch *batch, float *g,
                           const struct cnn_ready *ready);
int cnn_net_gradient_end(struct cnn_net *net, struct cnn_score *score);

/* Whether the net cuts its input from stored images of that size (struct cnn_cut). */
bool cnn_net_cuts(const struct cnn_net *net, uint32_t stored_height, uint32_t stored_width);

/* With backend cuda the cudaStream_t in which the net works: a program that updates x there need not wait for
 * it before the next gradient. It ends with the net. Other backends: NULL. */
void *cnn_net_stream(const struct cnn_net *net);

/* Memory for batches, until cnn_net_free, before the net is destroyed. A device reads it without a copy by
 * the host. NULL: out of memory. */
void *cnn_net_alloc(struct cnn_net *net, size_t bytes);
void cnn_net_free(struct cnn_net *net, void *p);

/* Announces the batch of the gradient after the coming one: a device uploads it while that one computes, if
 * images, labels and cuts are in memory of cnn_net_alloc. It must stay as it is until its own gradient has
 * returned, or its begin. The next gradient may be of another batch: then it was announced in vain. NULL: no
 * gradient will follow; returns when what was announced is not read any more. Other backends do nothing. -EIO
 * if the device fails. */
int cnn_net_announce(struct cnn_net *net, const struct cnn_batch *batch);

/* Moves the buffers of x (n_floats) towards the statistics of the batch that cnn_net_gradient saw last:
 * running <- (1 - momentum) running + momentum batch, with the unbiased variance (Ioffe & Szegedy 2015).
 * Touches nothing else of x; does nothing before the first gradient and in a model without buffers. Call it
 * between the gradient and the step. While a gradient is begun that a device computes, an x in its memory is
 * moved in cnn_net_stream: the call does not wait, and x stays until the next gradient has ended. */
void cnn_net_update_buffers(struct cnn_net *net, float *x);

/* Sets the seed and step of dropout: workers need different seeds, and a resumed run needs its old step. The
 * mask is a function of (seed, step, layer, element of the batch) only, the same for every backend and number
 * of threads (Philox4x32-10). A net starts at step 0 of seed 0, and each gradient takes one step when it
 * begins. */
void cnn_net_seed(struct cnn_net *net, uint64_t seed, uint64_t step);

/* Forward pass only, without dropout and with the running statistics, over the first n <= batch images
 * (-EINVAL otherwise). It costs about as much as a whole batch. */
int cnn_net_score(struct cnn_net *net, const float *x, const float *images, const uint16_t *labels,
                  uint32_t n, struct cnn_score *score);

int cnn_net_score_of(struct cnn_net *net, const float *x, const struct cnn_batch *batch,
                     struct cnn_score *score);

#define CNN_NO_CLASS UINT16_MAX /* also the last of 65536 classes: their probabilities are numbers */

/* A net's predictions; either may be NULL. */
struct cnn_predictions {
    uint16_t *classes;    /* [n]: class of the largest output of the main loss, the first of equals;
                             CNN_NO_CLASS where an output is NaN */
    float *probabilities; /* [n][classes of the model]: its softmax */
};
/* cnn_net_score_of that also returns the outputs. */
int cnn_net_predict(struct cnn_net *net, const float *x, const struct cnn_batch *batch,
                    const struct cnn_predictions *out, struct cnn_score *score);

/* Calls call(arg, index) in each thread that the net computes with, all at once: index 0 in the calling one,
 * whose calls of the net the others serve. To bind them. Returns how many there are. */
uint32_t cnn_net_each_thread(struct cnn_net *net, void (*call)(void *arg, uint32_t index), void *arg);

/* Memory of a net, in bytes. */
struct cnn_net_memory {
    uint64_t values;  /* outputs of layers, gradients and kept data; they share memory if their lifetimes do
                         not overlap */
    uint64_t own;     /* the backend's own: weights in other layouts, scratch. Estimated before create */
    uint64_t vectors; /* x and g */
};
/* The planned memory. Errors as of cnn_net_create, but the limit is not checked. */
int cnn_net_plan_memory(const struct cnn_net_options *opt, struct cnn_net_memory *out, struct ps_error *err);
/* The memory in use. */
void cnn_net_memory_used(const struct cnn_net *net, struct cnn_net_memory *out);

/* The sentence of the last failed call on this net; "" if none has failed. */
const char *cnn_net_error(const struct cnn_net *net);

/* Seconds that all calls so far have spent in kernels of the backend's library; the rest was spent in the
 * backend's own loops. 0: it uses no library. For benchmarks. */
double cnn_net_library_s(const struct cnn_net *net);

const char *cnn_net_backend(const struct cnn_net *net);
/* Names of the backends in this build, fastest first; those after "ref" are never the default. NULL past the
 * last. */
const char *cnn_backend_name(size_t index);

#endif
