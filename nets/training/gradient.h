/* gradient.h: norms, clipping and sums of gradients, before psc_step. */
#ifndef CNN_TRAINING_GRADIENT_H
#define CNN_TRAINING_GRADIENT_H

#include "nets/net.h"

/* The Euclidean norm of the trained values of g (CNN_PARAM), summed in double. Not finite if one of the
 * values is not. */
double cnn_gradient_norm(const struct cnn_param *params, size_t n, const float *g);
/* Scales these values so that the norm is at most `most`: g <- g most / norm, each rounded once. If the norm
 * is not finite, g is unchanged: psc_step refuses it. Returns the norm before scaling. */
double cnn_gradient_clip(const struct cnn_param *params, size_t n, float *g, double most);

/* The mean of the gradients of several batches of the same size. It equals the gradient of one batch of all
 * their images. */
struct cnn_accumulator {
    float *sum; /* [n_floats]; NULL: one batch per step */
    size_t n_floats;
    uint32_t wanted, n; /* batches per step; batches so far */
};
/* -ENOMEM. Must be finished even after an error. */
int cnn_accumulator_init(struct cnn_accumulator *a, size_t n_floats, uint32_t wanted);
void cnn_accumulator_finish(struct cnn_accumulator *a);
/* Adds the next batch's g. Returns whether it was the last of the step; g then holds the mean. */
bool cnn_accumulator_add(struct cnn_accumulator *a, float *g);
/* Discards the batches so far. */
void cnn_accumulator_clear(struct cnn_accumulator *a);

#endif
