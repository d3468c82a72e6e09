/* ref.h: the layers of the ref backend. Private to nets/ref.
 *
 * Plain loops over images [n][C][H][W]. Everything between x and g is double, so that differences from a fast
 * backend are that backend's rounding, and the loss is accurate enough for finite differences. */
#ifndef CNN_REF_H
#define CNN_REF_H

#include "nets/plan.h"

/* One layer's pass over n images. */
struct cnn_ref_pass {
    const struct cnn_layer *plan;
    uint32_t n;
    bool is_training;
    const struct cnn_draw *draw; /* of dropout; training only */
    const float *x;              /* the whole flat vector */
    const double *in[CNN_MAX_INPUTS];
    double *out;
    double *stats; /* batchnorm: the batch's mean [C] and variance [C]; written by forward in training */
    uint8_t *keep; /* dropout: the mask; written by forward in training */
};

struct cnn_ref_layer {
    void (*forward)(const struct cnn_ref_pass *p);
    /* Computes, from dout, din[k], the gradient of input k, and the layer's part of the flat g; all are
     * overwritten. din[k] NULL: not wanted. */
    void (*backward)(const struct cnn_ref_pass *p, const double *dout, double *const *din, double *g);
};

extern const struct cnn_ref_layer cnn_ref_conv, cnn_ref_maxpool, cnn_ref_activation, cnn_ref_fc,
    cnn_ref_avgpool, cnn_ref_dropout, cnn_ref_lrn, cnn_ref_batchnorm, cnn_ref_concat, cnn_ref_add;

#endif
