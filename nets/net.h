/* net.h: convolutional nets with flat parameters and gradients.
 *
 * A model is a table of layers, each of which reads outputs of earlier ones: a directed graph without cycles,
 * in an order in which it can be computed. A net is a model made ready for one backend, batch size and thread
 * count. All parameters lie in one flat float32 vector, tensors packed back to back in the order of the
 * table: convolution weights OIHW, fully connected weights (out, in) with the input flattened CHW; each
 * weight is followed by its bias, if it has one; a batch normalisation has scale, shift, running mean and
 * running variance. Gradients have the same layout.
 *
 * The first softmax loss of the table is the model's own: scores are of it. Further ones are auxiliary: they
 * and the layers that only they need are part of the gradient, and left out when scoring. */
#ifndef CNN_NET_H
#define CNN_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

struct cnn_net;

enum cnn_layer_kind {
    CNN_CONV,
    CNN_MAXPOOL,
    CNN_RELU,
    CNN_FC,
    CNN_SOFTMAX_LOSS,
    CNN_AVGPOOL,        /* the mean of each window */
    CNN_GLOBAL_AVGPOOL, /* the mean of each channel */
    CNN_DROPOUT,        /* inverted: what is kept is divided by 1 - rate; nothing is dropped when scoring */
    CNN_LRN,            /* x (k + alpha / size sum x^2)^-beta, over `size` neighbouring channels: size / 2
                           (rounded down) before its own, and those that are left after it */
    CNN_BATCHNORM,      /* per channel, over batch and places; when scoring by the running statistics */
    CNN_CONCAT,         /* of the inputs, along channels */
    CNN_ADD,            /* the sum of the inputs */
    CNN_GLOBAL_MAXPOOL, /* the largest value of each channel */
    CNN_LEAKY_RELU,     /* x above 0, slope x elsewhere */
    CNN_RELU6,          /* min(max(x, 0), 6) */
    CNN_SIGMOID,
    CNN_TANH,
};
enum cnn_filler {
    CNN_FILL_XAVIER,   /* uniform, variance 1 / fan_in */
    CNN_FILL_MSRA,     /* normal, variance 2 / fan_in */
    CNN_FILL_GAUSSIAN, /* normal, standard deviation `fill` */
    CNN_FILL_CONSTANT, /* `fill` */
};
enum cnn_rounding {
    CNN_CEIL, /* sizes of a pool's output are rounded up, as in Caffe; no window starts past input and pad */
    CNN_FLOOR
};

#define CNN_MAX_INPUTS  8
#define CNN_MAX_CLASSES 65536 /* labels are 16 bits wide */
/* As n_out: as many as the model has classes. */
#define CNN_CLASSES UINT32_MAX
/* Of a tensor's name in a manifest: "conv1.weight". */
#define CNN_MAX_NAME 127

/* One row of a model. Fields a kind does not use are 0. */
struct cnn_layer_spec {
    enum cnn_layer_kind kind;
    const char *name; /* unique in the model; "images" is taken */
    /* Names of earlier layers, or "images"; none: the row before, or the images. concat and add have two or
     * more, all others one. Every output but the loss is read by some layer. */
    const char *inputs[CNN_MAX_INPUTS];
    uint32_t n_out; /* conv: output channels; fc: outputs; may be CNN_CLASSES */
    /* conv, maxpool, avgpool: the window, square unless kernel_w is not 0, which then is its width. stride_w:
     * across; 0: as stride. pad: on all sides, unless one of pads is not 0: top, left, bottom, right */
    uint32_t kernel, stride, pad;
    uint32_t kernel_w, stride_w, pads[4];
    uint32_t dilation;          /* conv: from one row or column of the kernel to the next; 0: 1 */
    uint32_t groups;            /* conv: cuts in and out channels in so many independent ones; 0: one */
    enum cnn_rounding rounding; /* pools */
    bool skips_padding; /* avgpool: divides by the values in the input alone. Else what lies in the padding
                           counts as 0, as in Caffe */
    bool has_no_bias;   /* conv, fc */
    bool is_frozen; /* training does not move its parameters: their role is CNN_FROZEN, their gradient 0 */
    enum cnn_filler filler; /* conv, fc: weights */
    float fill, bias_fill;  /* see enum cnn_filler; what biases start at */
    float slope;            /* leaky relu: above 0, at most 1 */
    float weight;           /* softmax loss: what it is multiplied by in the sum of losses; 0: 1 */
    float rate;             /* dropout: what part is dropped, 0 <= rate < 1 */
    uint32_t size;          /* lrn */
    float alpha, beta, k;   /* lrn */
    float epsilon;          /* batchnorm: added to the variance; 0: 1e-5 */
    float momentum;         /* batchnorm: the batch's part of the running statistics, at most 1; 0: 0.1 */
};

struct cnn_model {
    const char *name;
    uint32_t channels, height, width, classes;
    const struct cnn_layer_spec *layers; /* the last is a CNN_SOFTMAX_LOSS */
    size_t n_layers;
    const char *source;
};

/* The table of models; ends with a row whose name is NULL. */
extern const struct cnn_model *const cnn_models[];
const struct cnn_model *cnn_model_find(const char *name); /* NULL: no such model */

/* Reads "NAME" or "NAME:KEY=VALUE,…", such as "resnet18:classes=10,size=128". Keys: classes (2 to
 * CNN_MAX_CLASSES) and size (SIDE or HEIGHTxWIDTH, 1 to 4096). *out is a row of the table with these in place
 * of its own; it lives as long as the program. -EINVAL with a sentence: for what cannot be read, and for a
 * model that makes no sense at that size, with the layer. */
int cnn_model_read(const char *spec, struct cnn_model *out, struct ps_error *err);

/* Values are those of enum psc_role and enum psc_decay. */
enum cnn_role {
    CNN_PARAM = 0,
    CNN_BUFFER = 1, /* running statistics of a batchnorm: written by cnn_net_update_buffers, never stepped */
    CNN_FROZEN = 2  /* of a layer that is_frozen: never moved */
};
enum cnn_decay {
    CNN_DECAY = 0,
    CNN_NO_DECAY = 1 /* biases and normalisation: weight decay leaves them alone */
};

/* A named tensor of the flat parameter vector. */
struct cnn_param {
    char name[CNN_MAX_NAME + 1]; /* "conv1.weight" */
    uint64_t offset;
    uint64_t shape[4];
    uint32_t n_dims;
    uint32_t fan_in;        /* inputs per output of a weight; 0 for all else */
    enum cnn_filler filler; /* of a weight */
    enum cnn_role role;
    enum cnn_decay decay;
};

/* How a backend computes. x and g are float32 whatever it is. */
enum cnn_precision { CNN_FLOAT32, CNN_TF32, CNN_BF16, CNN_N_PRECISIONS };
/* Where x and g of a net lie. */
enum cnn_memory_kind { CNN_HOST, CNN_DEVICE };

struct cnn_net_options {
    const struct cnn_model *model;
    const char *backend; /* "ref", "onednn"; NULL: the fastest that was built and that this machine can run */
    uint32_t batch;      /* images a call, fixed */
    uint32_t threads;    /* 0: as many as the process may use (taskset, Slurm, container). Nobody is pinned */
    enum cnn_precision precision;
    double label_smoothing; /* of gradients and their loss: 0 to below 1; scores are without */
    uint64_t memory_limit;  /* bytes of net, x and g together; 0: what the machine has to give */
};

/* The images and labels of a call, lent until it returns. */
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
 * be sent while the rest is computed: every float once, from the last layer to the first. */
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

/* Facts of the model alone. n_floats: 0 for a model that makes no sense. params: *n rows, owned by the caller
 * (free). */
size_t cnn_model_n_floats(const struct cnn_model *model);
int cnn_model_params(const struct cnn_model *model, struct cnn_param **out, size_t *n, struct ps_error *err);
/* One layer of a model as it is planned. Names belong to the model. */
struct cnn_layer_row {
    const char *name, *kind;
    uint32_t n_inputs;
    const char *inputs[CNN_MAX_INPUTS]; /* layers, or "images" */
    uint32_t channels, height, width;   /* of its output */
    uint64_t n_params;                  /* floats of weights and biases */
    uint64_t n_buffers;                 /* floats of running statistics */
    /* Of one image, 2 a multiply-add; 0 for layers without a product worth counting. Backward is a product
     * for the weights, unless they are frozen, and one for an input that wants it. */
    double forward_flops, backward_flops;
};
/* *n rows in the model's order, the loss last; owned by the caller (free). -EINVAL for a model that makes no
 * sense, -ENOMEM. */
int cnn_model_describe(const struct cnn_model *model, struct cnn_layer_row **out, size_t *n,
                       struct ps_error *err);
/* Multiply-add FLOPs (2 per multiply-add) of one image, forward + backward (3x forward; the first layer 2x;
 * without the products that frozen layers spare). */
double cnn_model_train_flops(const struct cnn_model *model);

/* Fills x (n_floats) from the seed alone: Xavier uniform +-sqrt(3 / fan_in) (Glorot & Bengio 2010, Caffe's
 * variant), MSRA with variance 2 / fan_in (He et al. 2015; normal as a sum of 12 uniforms, so no value lies
 * beyond 6 sigma), Gaussian likewise, constants, biases as the layer says, running means 0, scales and
 * running variances 1. Same bits on every machine. */
int cnn_model_fill(const struct cnn_model *model, uint64_t seed, float *x);

/* The gradient g (n_floats, overwritten; 0 at buffers and what is frozen) of the mean loss over the batch at
 * x, with dropout and by the batch's own statistics. images: [batch][C][H][W], any values; labels: [batch],
 * each < classes (checked: -EINVAL, g and score untouched). -EIO when the library beneath fails. A NaN in x
 * or images makes a loss or gradient that is not finite: no error. So does an infinity, but where a function
 * of the net has a limit there, such as 0, ReLU's of -inf. Ties in a max-pool
 * window go to the first in row order. Each call that succeeds draws dropout anew: see cnn_net_seed. Neither
 * function allocates. One call at a time for a net; any thread. */
int cnn_net_gradient(struct cnn_net *net, const float *x, const float *images, const uint16_t *labels,
                     float *g, struct cnn_score *score);

/* The same for a batch as the loader has it, whose n is the net's batch. ready: NULL, or told of g part by
 * part. */
int cnn_net_gradient_of(struct cnn_net *net, const float *x, const struct cnn_batch *batch, float *g,
                        const struct cnn_ready *ready, struct cnn_score *score);

/* Moves the buffers of x (n_floats) towards the statistics of the batch that cnn_net_gradient saw last:
 * running <- (1 - momentum) running + momentum batch, with the unbiased variance (Ioffe & Szegedy 2015).
 * Touches nothing else of x; does nothing before the first gradient and in a model without buffers. Call it
 * between the gradient and the step. */
void cnn_net_update_buffers(struct cnn_net *net, float *x);

/* What dropout drops is a function of (seed, step, layer, element of the batch) alone, the same for every
 * backend and number of threads (Philox4x32-10). A net starts at step 0 of seed 0; each gradient takes
 * one step. This sets both: workers want different seeds, a run that goes on its old step. */
void cnn_net_seed(struct cnn_net *net, uint64_t seed, uint64_t step);

/* Forward only, without dropout and by the running statistics, over the first n <= batch images (-EINVAL
 * otherwise). It costs about as much as a whole batch. */
int cnn_net_score(struct cnn_net *net, const float *x, const float *images, const uint16_t *labels,
                  uint32_t n, struct cnn_score *score);

int cnn_net_score_of(struct cnn_net *net, const float *x, const struct cnn_batch *batch,
                     struct cnn_score *score);

/* What a net makes of images; either may be NULL. */
struct cnn_predictions {
    uint16_t *classes;    /* [n]: of the largest output of the model's own loss, the first of equals */
    float *probabilities; /* [n][classes of the model]: its softmax */
};
/* cnn_net_score_of that tells its outputs too. */
int cnn_net_predict(struct cnn_net *net, const float *x, const struct cnn_batch *batch,
                    const struct cnn_predictions *out, struct cnn_score *score);

/* Bytes that a net takes, or would take. */
struct cnn_net_memory {
    uint64_t values;  /* outputs of layers, gradients and what layers keep, laid over each other where they do
                         not live at the same time */
    uint64_t own;     /* the backend's own: weights in other layouts, scratch. An estimate before the net is
                         made */
    uint64_t vectors; /* x and g */
};
/* As planned. The errors of cnn_net_create but for the limit, which is not looked at. */
int cnn_net_plan_memory(const struct cnn_net_options *opt, struct cnn_net_memory *out, struct ps_error *err);
/* As made. */
void cnn_net_memory_used(const struct cnn_net *net, struct cnn_net_memory *out);
/* Where its x and g are to lie. */
enum cnn_memory_kind cnn_net_memory_kind(const struct cnn_net *net);

/* The sentence of the last call on this net that failed; "" before one does. */
const char *cnn_net_error(const struct cnn_net *net);

/* For main, before anything else, of a program that runs nets on more than one thread. OpenMP's threads wait
 * for each other by spinning, and one busy neighbour on the same cores then costs a factor of about ten. On
 * free cores spinning is faster (OMP_WAIT_POLICY=active). OpenMP reads its settings as the program is loaded,
 * so this sets OMP_WAIT_POLICY=passive and starts the program anew; it returns at once where the user (or the
 * first start) has set the policy, or where that fails. */
void cnn_threads_sleep(char **argv);

/* Seconds of all calls so far that went into kernels of the backend's library, for benchmarks: the rest are
 * its own loops. 0: it uses none. */
double cnn_net_library_s(const struct cnn_net *net);

const char *cnn_net_backend(const struct cnn_net *net);
/* Names of the backends in this build, fastest first; NULL past the last. */
const char *cnn_backend_name(size_t index);
/* Whether this machine can run it: 0, or -ENOTSUP with a sentence that says what is missing. */
int cnn_backend_probe(size_t index, struct ps_error *err);

#endif
