/* layer.h: what a kind of layer is, whatever computes it: sizes, parameters, work. Private to nets/. */
#ifndef CNN_LAYER_H
#define CNN_LAYER_H

#include "nets/plan.h"

struct cnn_layer_type {
    const char *kind;
    /* Fills l->out, and for a layer with parameters l->weight_shape, weight_dims and fan_in, from l->spec and
     * l->in. One bias an output (weight_shape[0]) is understood. -EINVAL names what is allowed. */
    int (*plan)(struct cnn_layer *l, struct cnn_error *err);
    /* Multiply-adds of one image, forward; NULL: none worth counting. */
    double (*multiply_adds)(const struct cnn_layer *l);
};

extern const struct cnn_layer_type cnn_layer_conv, cnn_layer_maxpool, cnn_layer_relu, cnn_layer_fc,
    cnn_layer_softmax_loss;

/* NULL: no such kind. */
const struct cnn_layer_type *cnn_layer_type_of(enum cnn_layer_kind kind);

/* The cross-entropy of one image, -log softmax(z)[label], computed as log(sum exp(z - max)) - (z[label] -
 * max): nothing overflows, and the sum is at least 1. dz: its gradient, softmax(z) less 1 at the label.
 * Correct is an image whose largest value, the first among equals, is at the label. */
double cnn_softmax_loss_row(uint32_t classes, const double *z, uint32_t label, double *dz, bool *is_correct);

#endif
