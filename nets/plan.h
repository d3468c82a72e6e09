/* plan.h: a model with every size worked out; what backends are built from. Private to nets/. */
#ifndef CNN_PLAN_H
#define CNN_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "nets/net.h"

#define CNN_MAX_SIDE    65536 /* of one dimension of a layer's input or output */
#define CNN_MAX_CLASSES 256   /* labels are bytes */

struct cnn_layer_type;

struct cnn_shape {
    uint32_t c, h, w;
};

/* A pool's window, as it is run. */
struct cnn_window {
    uint32_t kernel, stride, pad;
};

/* What a layer reads. Values are numbered: 0 are the images, i + 1 is the output of layer i. */
struct cnn_input {
    size_t value;
    struct cnn_shape shape;
    bool wants_grad; /* parameters lie before it */
};

/* One layer with its sizes and where its parameters lie in the flat vector. */
struct cnn_layer {
    const struct cnn_layer_spec *spec;
    const struct cnn_layer_type *type;
    size_t index;
    uint32_t n_inputs;
    struct cnn_input inputs[CNN_MAX_INPUTS];
    struct cnn_shape in, out;                         /* in: of the first input */
    struct cnn_window window;                         /* pools */
    uint32_t groups;                                  /* conv */
    uint64_t weight_shape[4];                         /* batchnorm: the scale */
    uint32_t weight_dims;                             /* 0: the layer has no parameters */
    uint32_t fan_in;                                  /* 0: the weights are not filled at random but with 1 */
    uint64_t weight_at, n_weights, bias_at, n_biases; /* floats */
    uint64_t mean_at, variance_at, n_buffers;         /* floats; n_buffers each */
    bool wants_din; /* a layer before it has parameters, so the gradient of an input is needed */
};

struct cnn_plan {
    const struct cnn_model *model;
    uint64_t n_floats;
    size_t n_layers;     /* the last is the loss; its input are the logits */
    uint32_t *n_readers; /* [n_layers]: how many inputs each value is */
    struct cnn_layer layers[];
};

/* Which draws of a net's generator a gradient takes. */
struct cnn_draw {
    uint64_t seed, step;
};

static inline size_t cnn_shape_count(struct cnn_shape s)
{
    return (size_t)s.c * s.h * s.w;
}

/* -EINVAL names the layer and what is allowed; -ENOMEM. */
int cnn_plan_create(const struct cnn_model *model, struct cnn_plan **out, struct ps_error *err);
void cnn_plan_destroy(struct cnn_plan *plan);

#endif
