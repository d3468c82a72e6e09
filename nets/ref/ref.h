/* ref.h: the layers of the ref backend. Private to nets/ref.
 *
 * Plain loops over images [n][C][H][W], everything between x and g in double: what a fast backend differs
 * from it by is that backend's own rounding, and its loss is smooth enough for finite differences. */
#ifndef CNN_REF_H
#define CNN_REF_H

#include "nets/plan.h"

struct cnn_ref_layer {
    /* out [n][out] from in [n][in]; x is the whole flat parameter vector. */
    void (*forward)(const struct cnn_layer *l, uint32_t n, const float *x, const double *in, double *out);
    /* din [n][in] (NULL: not wanted) and the layer's part of the flat g, both overwritten, from dout. */
    void (*backward)(const struct cnn_layer *l, uint32_t n, const float *x, const double *in,
                     const double *dout, double *din, double *g);
};

extern const struct cnn_ref_layer cnn_ref_conv, cnn_ref_maxpool, cnn_ref_relu, cnn_ref_fc;

#endif
