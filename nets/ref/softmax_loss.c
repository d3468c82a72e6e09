#include "nets/ref/ref.h"

#include <math.h>

/* -log softmax(z)[label] = log(sum exp(z - max)) - (z[label] - max): no term can overflow, and the sum is at
 * least 1. */
static double row_loss(uint32_t classes, const double *z, uint32_t label, double *dz, double dz_scale,
                       uint32_t *best)
{
    double sum = 0, max;

    *best = 0;
    for (uint32_t k = 1; k < classes; k++)
        if (z[k] > z[*best])
            *best = k;
    max = z[*best];
    for (uint32_t k = 0; k < classes; k++)
        sum += exp(z[k] - max);
    if (dz != NULL)
        for (uint32_t k = 0; k < classes; k++)
            dz[k] = (exp(z[k] - max) / sum - (k == label ? 1 : 0)) * dz_scale;
    return log(sum) - (z[label] - max);
}

void cnn_ref_softmax_loss(uint32_t n, uint32_t classes, const double *logits, const uint8_t *labels,
                          double *dlogits, struct cnn_score *score)
{
    double loss = 0;
    uint32_t n_correct = 0, best;

    for (uint32_t i = 0; i < n; i++, logits += classes) {
        double *dz = dlogits != NULL ? dlogits + (size_t)i * classes : NULL;
        loss += row_loss(classes, logits, labels[i], dz, 1.0 / n, &best);
        n_correct += best == labels[i];
    }
    *score = (struct cnn_score){.loss = loss / n, .n_correct = n_correct};
}
