/* gradient.h: norms, clipping and sums of gradients, before psc_step. */
#ifndef CNN_TRAINING_GRADIENT_H
#define CNN_TRAINING_GRADIENT_H

#include "nets/net.h"

/* The Euclidean norm of the values of g that training moves (CNN_PARAM), summed in double. Not finite if one
 * of them is not. */
double cnn_gradient_norm(const struct cnn_param *params, size_t n, const float *g);
/* Scales them so that the norm is at most `most`: g <- g most / norm, each rounded once. A norm that is not
 * finite leaves g unchanged: psc_step will refuse it. Returns the norm before. */
double cnn_gradient_clip(const struct cnn_param *params, size_t n, float *g, double most);

/* The mean of the gradients of several batches, each of the mean loss of as many images: that of one batch of
 * all. */
struct cnn_accumulator {
    float *sum; /* [n_floats]; NULL: steps of a single batch */
    size_t n_floats;
    uint32_t wanted, n; /* batches a step; so far */
};
/* -ENOMEM. Finish it whatever came back. */
int cnn_accumulator_init(struct cnn_accumulator *a, size_t n_floats, uint32_t wanted);
void cnn_accumulator_finish(struct cnn_accumulator *a);
/* Adds the next batch's g. Whether it was the last of the step; g then holds the mean. */
bool cnn_accumulator_add(struct cnn_accumulator *a, float *g);
/* Forgets what there is. */
void cnn_accumulator_clear(struct cnn_accumulator *a);

#endif
