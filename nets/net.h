/* net.h: convolutional nets with flat parameters and gradients.
 *
 * A model is a table of layers, each of which reads outputs of earlier ones; a net is a model made ready for
 * one backend, batch size and thread count. All parameters lie in one flat float32 vector, tensors packed
 * back to back: convolution weights OIHW, fully connected weights (out, in) with the input flattened CHW;
 * each weight is followed by its bias; a batch normalisation has scale, shift, running mean and running
 * variance. Gradients have the same layout. */
#ifndef CNN_NET_H
#define CNN_NET_H

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
    CNN_AVGPOOL,        /* the mean of each window; what lies in the padding counts as 0, as in Caffe */
    CNN_GLOBAL_AVGPOOL, /* the mean of each channel */
    CNN_DROPOUT,        /* inverted: what is kept is divided by 1 - rate; nothing is dropped when scoring */
    CNN_LRN,            /* x (k + alpha / size sum x^2)^-beta, over `size` neighbouring channels */
    CNN_BATCHNORM,      /* per channel, over batch and places; when scoring by the running statistics */
    CNN_CONCAT,         /* of the inputs, along channels */
    CNN_ADD,            /* the sum of the inputs */
};
enum cnn_filler { CNN_FILL_XAVIER, CNN_FILL_MSRA };

#define CNN_MAX_INPUTS 8

/* One row of a model. Fields a kind does not use are 0. */
struct cnn_layer_spec {
    enum cnn_layer_kind kind;
    const char *name; /* unique in the model; "images" is taken */
    /* Names of earlier layers, or "images"; none: the row before, or the images. concat and add have two or
     * more, all others one. Every output but the loss is read by some layer. */
    const char *inputs[CNN_MAX_INPUTS];
    uint32_t n_out; /* conv: output channels; fc: outputs */
    /* conv, maxpool, avgpool: square window. Pools round output sizes up, as Caffe does */
    uint32_t kernel, stride, pad;
    uint32_t groups;        /* conv: cuts in and out channels in so many independent convolutions; 0: one */
    enum cnn_filler filler; /* conv, fc: weights; biases start at 0 */
    float rate;             /* dropout: what part is dropped, 0 <= rate < 1 */
    uint32_t size;          /* lrn: odd */
    float alpha, beta, k;   /* lrn */
    float epsilon;          /* batchnorm: added to the variance; 0: 1e-5 */
    float momentum;         /* batchnorm: the batch's part of the running statistics, at most 1; 0: 0.1 */
};

struct cnn_model {
    const char *name;
    uint32_t channels, height, width, classes;
    const struct cnn_layer_spec *layers; /* the last is CNN_SOFTMAX_LOSS */
    size_t n_layers;
    const char *source;
};

/* The table of models; ends with a row whose name is NULL. */
extern const struct cnn_model *const cnn_models[];
const struct cnn_model *cnn_model_find(const char *name); /* NULL: no such model */

/* Values are those of enum psc_role and enum psc_decay. */
enum cnn_role {
    CNN_PARAM = 0,
    CNN_BUFFER = 1 /* running statistics of a batchnorm: written by cnn_net_update_buffers, never stepped */
};
enum cnn_decay {
    CNN_DECAY = 0,
    CNN_NO_DECAY = 1 /* biases and normalisation: weight decay leaves them alone */
};

/* A named tensor of the flat parameter vector. */
struct cnn_param {
    char name[64]; /* "conv1.weight" */
    uint64_t offset;
    uint64_t shape[4];
    uint32_t n_dims;
    uint32_t fan_in; /* inputs per output of a weight; 0 for all else */
    enum cnn_filler filler;
    enum cnn_role role;
    enum cnn_decay decay;
};

struct cnn_net_options {
    const struct cnn_model *model;
    const char *backend; /* "ref", "onednn"; NULL: the fastest that was built */
    uint32_t batch;      /* images a call, fixed */
    uint32_t threads;    /* 0: as many as the process may use (taskset, Slurm, container). Nobody is pinned */
};

struct cnn_score {
    double loss;        /* mean cross-entropy of the images, natural logarithm */
    uint32_t n_correct; /* images whose largest output is the label */
};

/* -EINVAL with a sentence for an unknown backend or sizes that do not fit; -ENOMEM. */
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
    uint64_t n_params;                  /* floats that training steps */
    uint64_t n_buffers;                 /* floats of running statistics */
    /* Of one image, 2 a multiply-add; 0 for layers without a product worth counting. Backward is a product
     * for the weights and, but for the first layer, one for the input. */
    double forward_flops, backward_flops;
};
/* *n rows in the model's order, the loss last; owned by the caller (free). -EINVAL for a model that makes no
 * sense, -ENOMEM. */
int cnn_model_describe(const struct cnn_model *model, struct cnn_layer_row **out, size_t *n,
                       struct ps_error *err);
/* Multiply-add FLOPs (2 per multiply-add) of one image, forward + backward (3x forward; the first layer 2x).
 */
double cnn_model_train_flops(const struct cnn_model *model);

/* Fills x (n_floats) from the seed alone: Xavier uniform +-sqrt(3 / fan_in) (Glorot & Bengio 2010, Caffe's
 * variant), MSRA with variance 2 / fan_in (He et al. 2015; normal as a sum of 12 uniforms, so no value lies
 * beyond 6 sigma), biases and running means 0, scales and running variances 1. Same bits on every machine. */
int cnn_model_fill(const struct cnn_model *model, uint64_t seed, float *x);

/* The gradient g (n_floats, overwritten; 0 at buffers) of the mean loss over the batch at x, with dropout and
 * by the batch's own statistics. images: [batch][C][H][W], any values; labels: [batch], each < classes
 * (checked: -EINVAL, g and score untouched). -EIO when the library beneath fails. A value that is not finite
 * in x or images makes a loss or gradient that is not finite: no error. Ties in a max-pool window go to the
 * first in row order. Each call that succeeds draws dropout anew: see cnn_net_seed. Neither function
 * allocates. One call at a time for a net; any thread. */
int cnn_net_gradient(struct cnn_net *net, const float *x, const float *images, const uint8_t *labels,
                     float *g, struct cnn_score *score);

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
int cnn_net_score(struct cnn_net *net, const float *x, const float *images, const uint8_t *labels, uint32_t n,
                  struct cnn_score *score);

/* The sentence of the last call on this net that failed; "" before one does. */
const char *cnn_net_error(const struct cnn_net *net);

/* For main, before anything else, of a program that runs nets on more than one thread. OpenMP's threads wait
 * for each other by spinning, and one busy neighbour on the same cores then costs a factor of about ten. On
 * free cores spinning is faster (OMP_WAIT_POLICY=active). OpenMP reads its settings as the program is loaded,
 * so this sets OMP_WAIT_POLICY=passive and starts the program anew; it returns at once where the user (or the
 * first start) has set the policy, or where that fails. */
void cnn_threads_sleep(char **argv);

const char *cnn_net_backend(const struct cnn_net *net);
/* Names of the backends in this build, fastest first; NULL past the last. */
const char *cnn_backend_name(size_t index);

#endif
