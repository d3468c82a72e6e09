/* dropout.c: inverted dropout (Srivastava et al. 2014): in training each element is dropped with probability
 * `rate` and the others are divided by 1 - rate, so that scoring needs no scaling. */
#include "nets/layers/layer.h"

#include <errno.h>
#include <math.h>

static int plan(struct cnn_layer *l, struct ps_error *err)
{
    if (!(l->spec->rate >= 0 && l->spec->rate < 1))
        return ps_fail(err, -EINVAL, "layer '%s': rate %g; allowed are 0 to below 1", l->spec->name,
                       (double)l->spec->rate);
    l->out = l->in;
    return 0;
}

/* Data streams use the plain seed as their key; this key makes dropout independent of them. */
struct cnn_philox_key cnn_dropout_key(uint64_t seed)
{
    const struct cnn_philox_block name = {{0x64726f70, 0x6f757400, 0, 0}}; /* "dropout" */
    struct cnn_philox_block b = cnn_philox(name, cnn_philox_key_of(seed));
    return (struct cnn_philox_key){{b.v[0], b.v[1]}};
}

uint64_t cnn_dropout_dropped_below(const struct cnn_layer *l)
{
    return (uint64_t)ceil((double)l->spec->rate * 0x1p32);
}

/* Word e % 4 of block (e / 4, layer, step) decides element e. */
void cnn_dropout_mask(const struct cnn_layer *l, const struct cnn_draw *draw, size_t from, size_t n,
                      uint8_t *keep)
{
    struct cnn_philox_key key = cnn_dropout_key(draw->seed);
    struct cnn_philox_block at = {
        {0, (uint32_t)l->index, (uint32_t)draw->step, (uint32_t)(draw->step >> 32)}};
    uint64_t dropped_below = cnn_dropout_dropped_below(l);
    size_t e = from + draw->first_image * cnn_shape_count(l->in), end = e + n;

    while (e < end) {
        at.v[0] = (uint32_t)(e / 4);
        struct cnn_philox_block b = cnn_philox(at, key);
        do
            *keep++ = b.v[e % 4] >= dropped_below;
        while (++e % 4 != 0 && e < end);
    }
}

const struct cnn_layer_type cnn_layer_dropout = {"dropout", 1, plan, NULL};
