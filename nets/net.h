/* net.h: a net: a model made ready for one backend, batch size and thread count. */
#ifndef CNN_NET_H
#define CNN_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nets/model.h"
#include "proto/error.h"

struct cnn_net;

/* The precision of a backend's computation. x and g are always float32. */
enum cnn_precision { CNN_FLOAT32, CNN_TF32, CNN_BF16, CNN_N_PRECISIONS };
/* The memory that x and g of a net are in. */
enum cnn_memory_kind { CNN_HOST, CNN_DEVICE };

struct cnn_net_options {
    const struct cnn_model *model;
    const char *backend; /* "ref", "onednn", "cuda"; NULL: the fastest but cuda that was built and that this
                            machine can run */
    uint32_t batch;      /* images a call, fixed */
    uint32_t threads;    /* 0: as many as the process may use (taskset, Slurm, container). Nobody is pinned */
    enum cnn_precision precision;
    double label_smoothing; /* of gradients and their loss: 0 to below 1; scores are without */
    uint64_t memory_limit;  /* bytes of net, x and g together; 0: what the machine has to give */
};

/* The images and labels of a call, borrowed until it returns. */
enum cnn_pixels {
    CNN_PIXELS_FLOAT, /* float: what the net sees */
    CNN_PIXELS_BYTE   /* uint8_t: value_of says what a byte is to the net */
};
struct cnn_batch {
    const void *images; /* [n][C][H][W], or with is_hwc [n][H][W][C] */
    enum cnn_pixels pixels;
    bool is_hwc;
    const float (*value_of)[256]; /* [C]; for bytes alone */
    const uint16_t *labels;       /* [n] */
    uint32_t n;
};

/* Called in the thread of the gradient as soon as n floats of g from `offset` on are final, so that they can
 * be sent while the rest is computed. Every float is reported once, from the last layer to the first. It may
 * call cnn_net_update_buffers. */
struct cnn_ready {
    void (*call)(void *arg, uint64_t offset, uint64_t n);
    void *arg;
};

struct cnn_score {
    /* Mean cross-entropy of the images, natural logarithm. Of a gradient: the weighted sum of all losses,
     * which it is the gradient of. */
    double loss;
    uint32_t n_correct;   /* images whose largest output of the model's own loss is the label */
    uint32_t n_correct_5; /* images whose label is among the five largest; the first of equals are larger */
};

/* -EINVAL with a sentence for an unknown backend or sizes that do not fit; -ENOTSUP for what this machine
 * cannot run, with what is missing; -ENOMEM, also for a net that is larger than the limit, with its size and
 * the batch that would fit. */
int cnn_net_create(const struct cnn_net_options *opt, struct cnn_net **out, struct ps_error *err);
void cnn_net_destroy(struct cnn_net *net);

/* The gradient g (n_floats, overwritten; 0 at buffers and what is frozen) of the mean loss over the batch at
 * x, with dropout and by the batch's own statistics. images: [batch][C][H][W], any values; labels: [batch],
 * each < classes (checked: -EINVAL, g and score untouched). -EIO when the library beneath fails. A NaN in x
 * or images makes a loss or gradient that is not finite: no error. So does an infinity, but where a function
 * of the net has a limit there, such as 0, ReLU's of -inf. Ties in a max-pool
 * window go to the first in row order. Each call that succeeds draws dropout anew: see cnn_net_seed. Neither
 * function allocates. One call at a time for a net; any thread. */
int cnn_net_gradient(struct cnn_net *net, const float *x, const float *images, const uint16_t *labels,
                     float *g, struct cnn_score *score);

/* The same for a batch in the loader's format, whose n is the net's batch. ready: NULL, or receives g part by
 * part. */
int cnn_net_gradient_of(struct cnn_net *net, const float *x, const struct cnn_batch *batch, float *g,
                        const struct cnn_ready *ready, struct cnn_score *score);

/* Moves the buffers of x (n_floats) towards the statistics of the batch that cnn_net_gradient saw last:
 * running <- (1 - momentum) running + momentum batch, with the unbiased variance (Ioffe & Szegedy 2015).
 * Touches nothing else of x; does nothing before the first gradient and in a model without buffers. Call it
 * between the gradient and the step. */
void cnn_net_update_buffers(struct cnn_net *net, float *x);

/* Dropout is a function of (seed, step, layer, element of the batch) alone, the same for every backend and
 * number of threads (Philox4x32-10). A net starts at step 0 of seed 0, and each gradient takes one step. This
 * sets both: workers need different seeds, and a resumed run needs its old step. */
void cnn_net_seed(struct cnn_net *net, uint64_t seed, uint64_t step);

/* Forward only, without dropout and by the running statistics, over the first n <= batch images (-EINVAL
 * otherwise). It costs about as much as a whole batch. */
int cnn_net_score(struct cnn_net *net, const float *x, const float *images, const uint16_t *labels,
                  uint32_t n, struct cnn_score *score);

int cnn_net_score_of(struct cnn_net *net, const float *x, const struct cnn_batch *batch,
                     struct cnn_score *score);

/* A net's predictions; either may be NULL. */
struct cnn_predictions {
    uint16_t *classes;    /* [n]: of the largest output of the model's own loss, the first of equals */
    float *probabilities; /* [n][classes of the model]: its softmax */
};
/* cnn_net_score_of that also returns the outputs. */
int cnn_net_predict(struct cnn_net *net, const float *x, const struct cnn_batch *batch,
                    const struct cnn_predictions *out, struct cnn_score *score);

/* Memory of a net, in bytes. */
struct cnn_net_memory {
    uint64_t values;  /* outputs of layers, gradients and what layers keep, laid over each other where they do
                         not live at the same time */
    uint64_t own;     /* the backend's own: weights in other layouts, scratch. An estimate before the net is
                         made */
    uint64_t vectors; /* x and g */
};
/* The plan. Errors as of cnn_net_create, but the limit is not checked. */
int cnn_net_plan_memory(const struct cnn_net_options *opt, struct cnn_net_memory *out, struct ps_error *err);
/* The memory in use. */
void cnn_net_memory_used(const struct cnn_net *net, struct cnn_net_memory *out);
/* The memory that its x and g have to be in. */
enum cnn_memory_kind cnn_net_memory_kind(const struct cnn_net *net);

/* The sentence of the last failed call on this net; "": none has failed. */
const char *cnn_net_error(const struct cnn_net *net);

/* For main, before anything else, of a program that runs nets on several threads. OpenMP threads wait for
 * each other by spinning, and one busy neighbour on the same cores then slows them by a factor of about ten.
 * On free cores spinning is faster (OMP_WAIT_POLICY=active). OpenMP reads its settings when the program is
 * loaded, so this sets OMP_WAIT_POLICY=passive and executes the program again. It returns at once if the
 * policy is set already, or if that fails. */
void cnn_threads_sleep(char **argv);

/* Seconds that all calls so far have spent in kernels of the backend's library; the rest went into the
 * backend's own loops. 0: it uses no library. For benchmarks. */
double cnn_net_library_s(const struct cnn_net *net);

const char *cnn_net_backend(const struct cnn_net *net);
/* Names of the backends in this build, fastest first, and behind "ref" those that are never the default; NULL
 * past the last. */
const char *cnn_backend_name(size_t index);
/* Whether this machine can run it: 0, or -ENOTSUP with a sentence that names what is missing. */
int cnn_backend_probe(size_t index, struct ps_error *err);

#endif
