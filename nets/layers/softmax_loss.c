/* softmax_loss.c: softmax and the cross-entropy of the label, averaged over the images. */
#include "nets/layers/layer.h"

#include <errno.h>
#include <math.h>

static int plan(struct cnn_layer *l, struct ps_error *err)
{
    if (l->in.h != 1 || l->in.w != 1 || l->in.c < 2 || l->in.c > CNN_MAX_CLASSES)
        return ps_fail(err, -EINVAL,
                       "layer '%s': input of %u x %u x %u; allowed are 2 to %d values in one place",
                       l->spec->name, l->in.c, l->in.h, l->in.w, CNN_MAX_CLASSES);
    l->out = l->in;
    return 0;
}

const struct cnn_layer_type cnn_layer_softmax_loss = {"softmax-loss", 1, plan, NULL};

double cnn_softmax_loss_row(uint32_t classes, const double *z, uint32_t label, double *dz, bool *is_correct)
{
    uint32_t best = 0;
    double sum = 0;

    for (uint32_t k = 1; k < classes; k++)
        if (z[k] > z[best])
            best = k;
    for (uint32_t k = 0; k < classes; k++) {
        dz[k] = exp(z[k] - z[best]);
        sum += dz[k];
    }
    for (uint32_t k = 0; k < classes; k++)
        dz[k] = dz[k] / sum - (k == label ? 1 : 0);
    *is_correct = best == label;
    return log(sum) - (z[label] - z[best]);
}
