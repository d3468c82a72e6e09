/* fc.c: fully connected; weights (out, in), the input flattened CHW. */
#include "nets/layers/layer.h"

#include <errno.h>

static int plan(struct cnn_layer *l, struct ps_error *err)
{
    const struct cnn_layer_spec *s = l->spec;
    size_t n_in = cnn_shape_count(l->in);

    if (l->n_out < 1 || l->n_out > CNN_MAX_SIDE)
        return ps_fail(err, -EINVAL, "layer '%s': %u outputs; allowed are 1 to %d", s->name, l->n_out,
                       CNN_MAX_SIDE);
    if (n_in > INT32_MAX)
        return ps_fail(err, -EINVAL, "layer '%s': %zu inputs; allowed are %d", s->name, n_in, INT32_MAX);
    l->out = (struct cnn_shape){l->n_out, 1, 1};
    l->weight_dims = 2;
    l->weight_shape[0] = l->n_out;
    l->weight_shape[1] = n_in;
    l->fan_in = (uint32_t)n_in;
    return 0;
}

static double multiply_adds(const struct cnn_layer *l)
{
    return (double)l->fan_in * l->out.c;
}

const struct cnn_layer_type cnn_layer_fc = {"fc", 1, plan, multiply_adds};
