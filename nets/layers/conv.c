/* conv.c: two-dimensional convolution (cross-correlation) with bias. With groups, output channel o sees only
 * the input channels of its own group. */
#include "nets/layers/layer.h"

#include <errno.h>

static uint32_t out_side(const struct cnn_layer_spec *s, uint32_t in)
{
    return (in + 2 * s->pad - s->kernel) / s->stride + 1;
}

static int plan(struct cnn_layer *l, struct ps_error *err)
{
    const struct cnn_layer_spec *s = l->spec;

    if (s->n_out < 1 || s->n_out > CNN_MAX_SIDE)
        return ps_fail(err, -EINVAL, "layer '%s': %u output channels; allowed are 1 to %d", s->name, s->n_out,
                       CNN_MAX_SIDE);
    if (s->kernel < 1 || s->kernel > CNN_MAX_SIDE || s->stride < 1 || s->pad >= s->kernel)
        return ps_fail(err, -EINVAL,
                       "layer '%s': kernel %u, stride %u, pad %u; kernel and stride are at least 1 and the "
                       "pad is smaller than the kernel",
                       s->name, s->kernel, s->stride, s->pad);
    if (s->kernel > l->in.h + 2 * s->pad || s->kernel > l->in.w + 2 * s->pad)
        return ps_fail(err, -EINVAL, "layer '%s': kernel %u is larger than its padded input of %u x %u",
                       s->name, s->kernel, l->in.h + 2 * s->pad, l->in.w + 2 * s->pad);

    l->groups = s->groups > 0 ? s->groups : 1;
    if (l->in.c % l->groups != 0 || s->n_out % l->groups != 0)
        return ps_fail(err, -EINVAL, "layer '%s': %u groups do not divide %u input and %u output channels",
                       s->name, l->groups, l->in.c, s->n_out);
    uint64_t fan_in = (uint64_t)(l->in.c / l->groups) * s->kernel * s->kernel;
    if (fan_in > UINT32_MAX)
        return ps_fail(err, -EINVAL, "layer '%s': %llu inputs an output; allowed are %u", s->name,
                       (unsigned long long)fan_in, UINT32_MAX);
    l->out = (struct cnn_shape){s->n_out, out_side(s, l->in.h), out_side(s, l->in.w)};
    l->weight_dims = 4;
    l->weight_shape[0] = s->n_out;
    l->weight_shape[1] = l->in.c / l->groups;
    l->weight_shape[2] = l->weight_shape[3] = s->kernel;
    l->fan_in = (uint32_t)fan_in;
    return 0;
}

static double multiply_adds(const struct cnn_layer *l)
{
    return (double)cnn_shape_count(l->out) * l->fan_in;
}

const struct cnn_layer_type cnn_layer_conv = {"conv", 1, plan, multiply_adds};
