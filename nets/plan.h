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

/* One layer with its sizes and where its parameters lie in the flat vector. */
struct cnn_layer {
    const struct cnn_layer_spec *spec;
    const struct cnn_layer_type *type;
    struct cnn_shape in, out;
    uint64_t weight_shape[4];
    uint32_t weight_dims; /* 0: the layer has no parameters */
    uint32_t fan_in;
    uint64_t weight_at, n_weights, bias_at, n_biases; /* floats */
    bool wants_din; /* a layer before it has parameters, so the gradient of its input is needed */
};

struct cnn_plan {
    const struct cnn_model *model;
    uint64_t n_floats;
    size_t n_layers; /* the last is the loss; its input are the logits */
    struct cnn_layer layers[];
};

static inline size_t cnn_shape_count(struct cnn_shape s)
{
    return (size_t)s.c * s.h * s.w;
}

/* -EINVAL names the layer and what is allowed; -ENOMEM. */
int cnn_plan_create(const struct cnn_model *model, struct cnn_plan **out, struct cnn_error *err);
void cnn_plan_destroy(struct cnn_plan *plan);

#endif
