/* plan.h: a model with all sizes computed, as backends take it. Private to nets/. */
#ifndef CNN_PLAN_H
#define CNN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nets/net.h"

#define CNN_MAX_SIDE   65536 /* of a layer's input or output */
#define CNN_MAX_KERNEL 4096  /* of one side of a window */

struct cnn_layer_type;

struct cnn_shape {
    uint32_t c, h, w;
};

/* The window of a convolution or a pool: [0] vertical, [1] horizontal. */
struct cnn_window {
    uint32_t kernel[2], stride[2], dilation[2];
    uint32_t pad[2], pad_end[2]; /* before and after the input */
};

/* An input of a layer. Value 0 is the images, value i + 1 the output of layer i. */
struct cnn_input {
    size_t value;
    struct cnn_shape shape;
    bool wants_grad; /* trainable parameters precede it */
};

/* One layer with its sizes and the offsets of its parameters in the flat vector. */
struct cnn_layer {
    const struct cnn_layer_spec *spec;
    const struct cnn_layer_type *type;
    size_t index;
    uint32_t n_inputs;
    struct cnn_input inputs[CNN_MAX_INPUTS];
    struct cnn_shape in, out;                         /* in: of the first input */
    struct cnn_window window;                         /* conv, pools */
    uint32_t n_out, groups;                           /* conv, fc: outputs; conv */
    uint64_t weight_shape[4];                         /* batchnorm: the scale */
    uint32_t weight_dims;                             /* 0: the layer has no parameters */
    uint32_t fan_in;                                  /* 0: the weights are filled with 1, not at random */
    uint64_t weight_at, n_weights, bias_at, n_biases; /* floats */
    uint64_t mean_at, variance_at, n_buffers;         /* floats; n_buffers each */
    bool wants_din; /* trainable parameters precede it, so the gradient of its input is needed */
    bool trains;    /* it has trainable parameters */
    bool is_scored; /* the main loss depends on it; other layers are not run for scores */
};

struct cnn_plan {
    const struct cnn_model *model;
    uint64_t n_floats;
    size_t n_layers;
    size_t n_values;     /* n_layers + 1; the values of losses are never read */
    size_t main_loss;    /* the first loss, which scores are computed from */
    uint32_t *n_readers; /* [n_values]: how many inputs read each value */
    struct cnn_layer layers[];
};

/* The random numbers that a gradient uses. */
struct cnn_draw {
    uint64_t seed, step;
    uint32_t first_image; /* the number of the batch's first, where several nets share a larger one */
};

static inline bool cnn_is_loss(const struct cnn_layer *l)
{
    return l->spec->kind == CNN_SOFTMAX_LOSS;
}

static inline struct cnn_shape cnn_image_shape(const struct cnn_plan *p)
{
    return (struct cnn_shape){p->model->channels, p->model->height, p->model->width};
}

/* Whether a layer has a backward pass: the layer, or one before it, is trained. A loss computes its gradient
 * itself. */
static inline bool cnn_goes_back(const struct cnn_layer *l)
{
    return !cnn_is_loss(l) && (l->wants_din || l->trains);
}

static inline size_t cnn_shape_count(struct cnn_shape s)
{
    return (size_t)s.c * s.h * s.w;
}

/* -EINVAL with a sentence that names the layer and what is allowed; -ENOMEM. */
int cnn_plan_create(const struct cnn_model *model, struct cnn_plan **out, struct ps_error *err);
void cnn_plan_destroy(struct cnn_plan *plan);

#endif
