/* model.h: a model: a table of layers, each of which reads the outputs of earlier ones. The table is a
 * directed acyclic graph in topological order.
 *
 * All parameters are in one flat float32 vector, tensors packed back to back in the order of the table.
 * Convolution weights are OIHW, fully connected weights (out, in) with the input flattened CHW. Each weight
 * is followed by its bias, if it has one. A batch normalisation has scale, shift, running mean and running
 * variance. Gradients have the same layout.
 *
 * The first softmax loss of the table is the main loss, which scores are computed from. Further losses are
 * auxiliary: they, and the layers that only they need, count in the gradient but not in scores. */
#ifndef CNN_MODEL_H
#define CNN_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

enum cnn_layer_kind {
    CNN_CONV,
    CNN_MAXPOOL,
    CNN_RELU,
    CNN_FC,
    CNN_SOFTMAX_LOSS,
    CNN_AVGPOOL,        /* the mean of each window */
    CNN_GLOBAL_AVGPOOL, /* the mean of each channel */
    CNN_DROPOUT,        /* inverted: kept elements are divided by 1 - rate; nothing is dropped when scoring */
    CNN_LRN, /* x (k + alpha / size sum x^2)^-beta, over `size` neighbouring channels, size / 2 (rounded down)
                of them before its own */
    CNN_BATCHNORM,      /* per channel, over batch and positions; with the running statistics when scoring */
    CNN_CONCAT,         /* the inputs, along channels */
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
    CNN_CEIL, /* output sizes of a pool are rounded up, as in Caffe; no window starts past input and padding
               */
    CNN_FLOOR
};

#define CNN_MAX_INPUTS  8
#define CNN_MAX_CLASSES 65536 /* labels are 16 bits wide */
/* As n_out: the number of classes of the model. */
#define CNN_CLASSES UINT32_MAX
/* Bytes of a tensor's name in a manifest, such as "conv1.weight". */
#define CNN_MAX_NAME 127

/* One row of a model. Fields that a kind does not use are 0. */
struct cnn_layer_spec {
    enum cnn_layer_kind kind;
    const char *name; /* unique in the model; "images" is reserved */
    /* Names of earlier layers, or "images"; none: the previous row, or the images. concat and add have two or
     * more inputs, all others one. Every output except those of losses is read by a layer. */
    const char *inputs[CNN_MAX_INPUTS];
    uint32_t n_out; /* conv: output channels; fc: outputs; may be CNN_CLASSES */
    /* conv, maxpool, avgpool: the window, square if kernel_w is 0, otherwise kernel_w wide. stride_w:
     * horizontal; 0: as stride. pad: on all sides, unless one of pads is not 0: top, left, bottom, right */
    uint32_t kernel, stride, pad;
    uint32_t kernel_w, stride_w, pads[4];
    uint32_t dilation;          /* conv: distance of neighbouring rows and columns of the kernel; 0: 1 */
    uint32_t groups;            /* conv: number of independent groups of input and output channels; 0: one */
    enum cnn_rounding rounding; /* pools */
    bool skips_padding; /* avgpool: divides by the number of values inside the input. Otherwise padding counts
                           as 0, as in Caffe */
    bool has_no_bias;   /* conv, fc */
    bool is_frozen;     /* its parameters are not trained: their role is CNN_FROZEN, their gradient 0 */
    enum cnn_filler filler; /* conv, fc: weights */
    float fill, bias_fill;  /* see enum cnn_filler; the initial value of biases */
    float slope;            /* leaky relu: above 0, at most 1 */
    float weight;           /* softmax loss: its weight in the sum of losses; 0: 1 */
    float rate;             /* dropout: probability of dropping an element, 0 <= rate < 1 */
    uint32_t size;          /* lrn */
    float alpha, beta, k;   /* lrn */
    float epsilon;          /* batchnorm: added to the variance; 0: 1e-5 */
    float momentum; /* batchnorm: the weight of the batch in the running statistics, at most 1; 0: 0.1 */
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
 * CNN_MAX_CLASSES) and size (SIDE or HEIGHTxWIDTH, 1 to 4096). *out is a row of the table with these values
 * instead of its own; it is valid until the program exits. -EINVAL with a sentence for a spec that cannot be
 * read, and for a model that is invalid at that size, with the layer. */
int cnn_model_read(const char *spec, struct cnn_model *out, struct ps_error *err);

/* Values are those of enum psc_role and enum psc_decay. */
enum cnn_role {
    CNN_PARAM = 0,
    CNN_BUFFER = 1, /* running statistics of a batchnorm: written by cnn_net_update_buffers, not by steps */
    CNN_FROZEN = 2  /* of a layer that is_frozen: never changed */
};
enum cnn_decay {
    CNN_DECAY = 0,
    CNN_NO_DECAY = 1 /* biases and normalisation: weight decay does not apply */
};

/* A named tensor of the flat parameter vector. */
struct cnn_param {
    char name[CNN_MAX_NAME + 1]; /* "conv1.weight" */
    uint64_t offset;
    uint64_t shape[4];
    uint32_t n_dims;
    uint32_t fan_in;        /* inputs per output of a weight; 0 for other tensors */
    enum cnn_filler filler; /* of a weight */
    enum cnn_role role;
    enum cnn_decay decay;
};

/* The values of the tensor. */
static inline uint64_t cnn_param_count(const struct cnn_param *p)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < p->n_dims; d++)
        n *= p->shape[d];
    return n;
}

/* Properties of the model. n_floats: 0 for an invalid model. params: *n rows, owned by the caller (free). */
size_t cnn_model_n_floats(const struct cnn_model *model);
int cnn_model_params(const struct cnn_model *model, struct cnn_param **out, size_t *n, struct ps_error *err);
/* One layer of the planned model. Names belong to the model. */
struct cnn_layer_row {
    const char *name, *kind;
    uint32_t n_inputs;
    const char *inputs[CNN_MAX_INPUTS]; /* layers, or "images" */
    uint32_t channels, height, width;   /* of its output */
    uint64_t n_params;                  /* floats of weights and biases */
    uint64_t n_buffers;                 /* floats of running statistics */
    /* FLOPs of one image, 2 per multiply-add; only convolutions and fully connected layers count. Backward:
     * one product for the weights, unless they are frozen, and one for an input that needs a gradient. */
    double forward_flops, backward_flops;
};
/* *n rows in the model's order, the loss last; owned by the caller (free). -EINVAL for an invalid model,
 * -ENOMEM. */
int cnn_model_describe(const struct cnn_model *model, struct cnn_layer_row **out, size_t *n,
                       struct ps_error *err);
/* Multiply-add FLOPs (2 per multiply-add) of one image, forward + backward (3x forward; the first layer 2x;
 * less for frozen layers). */
double cnn_model_train_flops(const struct cnn_model *model);

/* Fills x (n_floats) from the seed alone: Xavier uniform +-sqrt(3 / fan_in) (Glorot & Bengio 2010, Caffe's
 * variant), MSRA with variance 2 / fan_in (He et al. 2015; normal as a sum of 12 uniforms, so no value lies
 * beyond 6 sigma), Gaussian likewise, constants, biases from the layer's row, running means 0, scales and
 * running variances 1. The bits are the same on every machine. */
int cnn_model_fill(const struct cnn_model *model, uint64_t seed, float *x);

#endif
