/* layer.h: the kinds of layers, independent of the backend: sizes, parameters, work. Private to nets/. */
#ifndef CNN_LAYER_H
#define CNN_LAYER_H

#include "nets/philox.h"
#include "nets/plan.h"

struct cnn_layer_type {
    const char *kind;
    uint32_t most_inputs; /* 1, or CNN_MAX_INPUTS for a layer of two or more */
    /* Fills l->out, and for a layer with parameters l->weight_shape, weight_dims, fan_in and n_buffers, from
     * l->spec, l->n_out and l->inputs. A layer with parameters has one bias per output (weight_shape[0]),
     * unless the spec has none. -EINVAL with a sentence that names what is allowed. */
    int (*plan)(struct cnn_layer *l, struct ps_error *err);
    /* Multiply-adds of one image in the forward pass; NULL: negligible. */
    double (*multiply_adds)(const struct cnn_layer *l);
};

extern const struct cnn_layer_type cnn_layer_conv, cnn_layer_maxpool, cnn_layer_relu, cnn_layer_fc,
    cnn_layer_softmax_loss, cnn_layer_avgpool, cnn_layer_global_avgpool, cnn_layer_dropout, cnn_layer_lrn,
    cnn_layer_batchnorm, cnn_layer_concat, cnn_layer_add, cnn_layer_global_maxpool, cnn_layer_leaky_relu,
    cnn_layer_relu6, cnn_layer_sigmoid, cnn_layer_tanh;

/* NULL: no such kind. */
const struct cnn_layer_type *cnn_layer_type_of(enum cnn_layer_kind kind);

/* The cross-entropy of one image, -log softmax(z)[label], computed as log(sum exp(z - max)) - (z[label] -
 * max): nothing overflows, and the sum is at least 1. dz: its gradient, softmax(z) minus 1 at the label.
 * smoothing s: the target is s / classes for every class, plus 1 - s at the label (Szegedy et al. 2016), in
 * loss and gradient. rank: how many values are larger than the label's; of equal values the one of smaller
 * index counts as larger. 0 is a correct image, below 5 is in the top five. */
double cnn_softmax_loss_row(uint32_t classes, const double *z, uint32_t label, double smoothing, double *dz,
                            uint32_t *rank);
/* Writes the prediction for image i from its outputs z. p: scratch of the same size. */
void cnn_softmax_predict(uint32_t classes, const double *z, double *p, uint32_t i,
                         const struct cnn_predictions *out);
/* The weight of a loss in the sum of losses. */
double cnn_loss_weight(const struct cnn_layer *l);

/* Fills l->window from the spec, and l->out's height and width from l->in; windows that would start past the
 * input and its padding are dropped, so no window is empty. -EINVAL with a sentence. */
int cnn_window_plan(struct cnn_layer *l, uint32_t max_kernel, enum cnn_rounding rounding,
                    struct ps_error *err);
/* A single window that covers each channel. */
void cnn_window_plan_global(struct cnn_layer *l);

/* The part of a pool's window inside the input, and the divisor of a mean. */
struct cnn_clip {
    uint32_t y0, y1, x0, x1, n_counted;
};
struct cnn_clip cnn_window_clip(const struct cnn_layer *l, uint32_t oy, uint32_t ox);

/* The channels [*from, *to) whose squares are summed for channel c; reversed: the channels whose sums include
 * c. */
void cnn_lrn_neighbours(const struct cnn_layer *l, uint32_t c, bool reversed, uint32_t *from, uint32_t *to);

/* The key of the generator that dropout draws from. */
struct cnn_philox_key cnn_dropout_key(uint64_t seed);
/* An element is dropped when its word is below this. */
uint64_t cnn_dropout_dropped_below(const struct cnn_layer *l);
/* Sets keep[i], i in [0, n): whether element from + i of the batch's input, counted as [N][C][H][W], is
 * kept. */
void cnn_dropout_mask(const struct cnn_layer *l, const struct cnn_draw *draw, size_t from, size_t n,
                      uint8_t *keep);
static inline float cnn_dropout_scale(const struct cnn_layer *l)
{
    return 1 / (1 - l->spec->rate);
}

float cnn_batchnorm_epsilon(const struct cnn_layer *l);
/* How far the running statistics move towards the batch's. */
double cnn_batchnorm_part(const struct cnn_layer *l);
/* Moves channel c of the running statistics in x towards a mean and (biased) variance over `count` values. */
void cnn_batchnorm_move(const struct cnn_layer *l, uint32_t c, double mean, double variance, size_t count,
                        float *x);

#endif
