/* softmax_loss.c: softmax and the cross-entropy of the label, averaged over the images and weighted. */
#include "nets/layers/layer.h"

#include <errno.h>
#include <math.h>

static int plan(struct cnn_layer *l, struct ps_error *err)
{
    if (l->in.h != 1 || l->in.w != 1 || l->in.c < 2 || l->in.c > CNN_MAX_CLASSES)
        return ps_fail(err, -EINVAL,
                       "layer '%s': input of %u x %u x %u; allowed are 2 to %d values in one place",
                       l->spec->name, l->in.c, l->in.h, l->in.w, CNN_MAX_CLASSES);
    if (!(l->spec->weight >= 0 && isfinite(l->spec->weight)))
        return ps_fail(err, -EINVAL, "layer '%s': weight %g; allowed are finite ones from 0 (which is 1)",
                       l->spec->name, (double)l->spec->weight);
    l->out = l->in;
    return 0;
}

const struct cnn_layer_type cnn_layer_softmax_loss = {"softmax-loss", 1, plan, NULL};

double cnn_loss_weight(const struct cnn_layer *l)
{
    return l->spec->weight > 0 ? (double)l->spec->weight : 1;
}

/* How many values rank before the label's: the larger ones, and equal ones of smaller index. NaN ranks before
 * all, and before itself: an image whose outputs are not numbers is not classified correctly. */
static uint32_t rank_of(uint32_t classes, const double *z, uint32_t label)
{
    uint32_t rank = 0;

    for (uint32_t k = 0; k < classes; k++)
        rank += k < label ? !(z[k] < z[label]) : !(z[k] <= z[label]);
    return rank;
}

/* p <- softmax(z), of which *best is the largest; returns log sum exp(z - z[best]). */
static double softmax(uint32_t classes, const double *z, double *p, uint32_t *best)
{
    double sum = 0;

    *best = 0;
    for (uint32_t k = 1; k < classes; k++)
        if (z[k] > z[*best])
            *best = k;
    for (uint32_t k = 0; k < classes; k++) {
        p[k] = exp(z[k] - z[*best]);
        sum += p[k];
    }
    for (uint32_t k = 0; k < classes; k++)
        p[k] /= sum;
    return log(sum);
}

/* CNN_NO_CLASS if no label would be correct: see rank_of. */
static uint16_t class_of(uint32_t classes, const double *z, uint32_t best)
{
    for (uint32_t k = 0; k < classes; k++)
        if (isnan(z[k]))
            return CNN_NO_CLASS;
    return (uint16_t)best;
}

void cnn_softmax_predict(uint32_t classes, const double *z, double *p, uint32_t i,
                         const struct cnn_predictions *out)
{
    uint32_t best;

    if (out->classes == NULL && out->probabilities == NULL)
        return;
    softmax(classes, z, p, &best);
    if (out->classes != NULL)
        out->classes[i] = class_of(classes, z, best);
    for (uint32_t k = 0; out->probabilities != NULL && k < classes; k++)
        out->probabilities[(size_t)i * classes + k] = (float)p[k];
}

double cnn_softmax_loss_row(uint32_t classes, const double *z, uint32_t label, double smoothing, double *dz,
                            uint32_t *rank)
{
    uint32_t best;
    double log_sum = softmax(classes, z, dz, &best), each = smoothing / classes, others = 0;

    dz[label] -= 1 - smoothing;
    for (uint32_t k = 0; smoothing > 0 && k < classes; k++) {
        dz[k] -= each;
        others += each * (z[k] - z[best]);
    }
    *rank = rank_of(classes, z, label);
    return smoothing > 0 ? log_sum - ((1 - smoothing) * (z[label] - z[best]) + others)
                         : log_sum - (z[label] - z[best]);
}
