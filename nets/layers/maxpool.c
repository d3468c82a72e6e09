/* maxpool.c: the largest value of each square window, output sizes rounded up as Caffe does. */
#include "nets/layers/layer.h"

#include <errno.h>

/* The place of the maximum within its window is kept in a byte. */
#define MAX_KERNEL 16

/* Windows that would start past the input and its left pad are dropped, so no window is empty. */
static uint32_t out_side(const struct cnn_layer_spec *s, uint32_t in)
{
    uint32_t out = (in + 2 * s->pad - s->kernel + s->stride - 1) / s->stride + 1;
    return (out - 1) * s->stride >= in + s->pad ? out - 1 : out;
}

static int plan(struct cnn_layer *l, struct cnn_error *err)
{
    const struct cnn_layer_spec *s = l->spec;

    if (s->kernel < 1 || s->kernel > MAX_KERNEL || s->stride < 1 || s->stride > CNN_MAX_SIDE ||
        s->pad >= s->kernel)
        return cnn_fail(
            err, -EINVAL,
            "layer '%s': kernel %u, stride %u, pad %u; the kernel is 1 to %d, the stride at least "
            "1 and the pad smaller than the kernel",
            s->name, s->kernel, s->stride, s->pad, MAX_KERNEL);
    if (s->kernel > l->in.h + 2 * s->pad || s->kernel > l->in.w + 2 * s->pad)
        return cnn_fail(err, -EINVAL, "layer '%s': window %u is larger than its padded input of %u x %u",
                        s->name, s->kernel, l->in.h + 2 * s->pad, l->in.w + 2 * s->pad);
    l->out = (struct cnn_shape){l->in.c, out_side(s, l->in.h), out_side(s, l->in.w)};
    return 0;
}

const struct cnn_layer_type cnn_layer_maxpool = {"maxpool", plan, NULL};
