/* lrn.c: local response normalisation across channels (Krizhevsky, Sutskever, Hinton 2012, section 3.3), with
 * alpha divided by the size as cuda-convnet and Caffe have it:
 * y[c] = x[c] s[c]^-beta, s[c] = k + alpha / size * sum of x[j]^2 over |j - c| <= size / 2. */
#include "nets/layers/layer.h"

#include <errno.h>
#include <math.h>

#define MAX_SIZE 255

static int plan(struct cnn_layer *l, struct ps_error *err)
{
    const struct cnn_layer_spec *s = l->spec;

    if (s->size % 2 != 1 || s->size > MAX_SIZE)
        return ps_fail(err, -EINVAL, "layer '%s': size %u; allowed are odd numbers of channels to %d",
                       s->name, s->size, MAX_SIZE);
    if (!(s->k > 0 && isfinite(s->k)) || !(s->alpha >= 0 && isfinite(s->alpha)) || !isfinite(s->beta))
        return ps_fail(err, -EINVAL,
                       "layer '%s': alpha %g, beta %g, k %g; they are finite, alpha at least 0 and k above 0",
                       s->name, (double)s->alpha, (double)s->beta, (double)s->k);
    l->out = l->in;
    return 0;
}

const struct cnn_layer_type cnn_layer_lrn = {"lrn", 1, plan, NULL};
