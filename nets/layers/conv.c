/* conv.c: two-dimensional convolution (cross-correlation). With groups, an output channel reads only the
 * input channels of its group. The dilation is the distance of neighbouring rows and columns of the
 * kernel. */
#include "nets/layers/layer.h"

#include <errno.h>

static int plan(struct cnn_layer *l, struct ps_error *err)
{
    const struct cnn_layer_spec *s = l->spec;
    int rc;

    if (l->n_out < 1 || l->n_out > CNN_MAX_SIDE)
        return ps_fail(err, -EINVAL, "layer '%s': %u output channels; allowed are 1 to %d", s->name, l->n_out,
                       CNN_MAX_SIDE);
    if ((rc = cnn_window_plan(l, CNN_MAX_SIDE, CNN_FLOOR, err)) < 0)
        return rc;

    l->groups = s->groups > 0 ? s->groups : 1;
    if (l->in.c % l->groups != 0 || l->n_out % l->groups != 0)
        return ps_fail(err, -EINVAL, "layer '%s': %u groups do not divide %u input and %u output channels",
                       s->name, l->groups, l->in.c, l->n_out);
    uint64_t fan_in = (uint64_t)(l->in.c / l->groups) * l->window.kernel[0] * l->window.kernel[1];
    if (fan_in > UINT32_MAX)
        return ps_fail(err, -EINVAL, "layer '%s': %llu inputs an output; allowed are %u", s->name,
                       (unsigned long long)fan_in, UINT32_MAX);
    l->out.c = l->n_out;
    l->weight_dims = 4;
    l->weight_shape[0] = l->n_out;
    l->weight_shape[1] = l->in.c / l->groups;
    l->weight_shape[2] = l->window.kernel[0];
    l->weight_shape[3] = l->window.kernel[1];
    l->fan_in = (uint32_t)fan_in;
    return 0;
}

static double multiply_adds(const struct cnn_layer *l)
{
    return (double)cnn_shape_count(l->out) * l->fan_in;
}

const struct cnn_layer_type cnn_layer_conv = {"conv", 1, plan, multiply_adds};
