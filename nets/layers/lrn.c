/* lrn.c: local response normalisation across channels (Krizhevsky, Sutskever, Hinton 2012, section 3.3), with
 * alpha divided by the size as in cuda-convnet and Caffe: y[c] = x[c] s[c]^-beta, s[c] = k + alpha / size *
 * sum of x[j]^2 over `size` channels j, size / 2 (rounded down) of them before c. */
#include "nets/layers/layer.h"

#include <errno.h>
#include <math.h>

static int plan(struct cnn_layer *l, struct ps_error *err)
{
    const struct cnn_layer_spec *s = l->spec;

    if (s->size < 1 || s->size > CNN_MAX_SIDE)
        return ps_fail(err, -EINVAL, "layer '%s': size %u; allowed are 1 to %d channels", s->name, s->size,
                       CNN_MAX_SIDE);
    if (!(s->k > 0 && isfinite(s->k)) || !(s->alpha >= 0 && isfinite(s->alpha)) || !isfinite(s->beta))
        return ps_fail(err, -EINVAL,
                       "layer '%s': alpha %g, beta %g, k %g; they are finite, alpha at least 0 and k above 0",
                       s->name, (double)s->alpha, (double)s->beta, (double)s->k);
    l->out = l->in;
    return 0;
}

void cnn_lrn_neighbours(const struct cnn_layer *l, uint32_t c, bool reversed, uint32_t *from, uint32_t *to)
{
    uint32_t half = l->spec->size / 2, rest = (l->spec->size - 1) / 2;
    uint32_t before = reversed ? rest : half, after = reversed ? half : rest;

    *from = c < before ? 0 : c - before;
    *to = after < l->in.c - c ? c + after + 1 : l->in.c;
}

const struct cnn_layer_type cnn_layer_lrn = {"lrn", 1, plan, NULL};
