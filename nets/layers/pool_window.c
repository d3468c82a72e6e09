/* pool_window.c: how the window of a pool walks over its input. */
#include "nets/layers/layer.h"

#include <errno.h>

static uint32_t out_side(const struct cnn_layer_spec *s, uint32_t in)
{
    uint32_t out = (in + 2 * s->pad - s->kernel + s->stride - 1) / s->stride + 1;
    return (out - 1) * s->stride >= in + s->pad ? out - 1 : out;
}

int cnn_window_plan(struct cnn_layer *l, uint32_t max_kernel, struct ps_error *err)
{
    const struct cnn_layer_spec *s = l->spec;

    if (s->kernel < 1 || s->kernel > max_kernel || s->stride < 1 || s->stride > CNN_MAX_SIDE ||
        s->pad >= s->kernel)
        return ps_fail(err, -EINVAL,
                       "layer '%s': kernel %u, stride %u, pad %u; the kernel is 1 to %u, the stride at least "
                       "1 and the pad smaller than the kernel",
                       s->name, s->kernel, s->stride, s->pad, max_kernel);
    if (s->kernel > l->in.h + 2 * s->pad || s->kernel > l->in.w + 2 * s->pad)
        return ps_fail(err, -EINVAL, "layer '%s': window %u is larger than its padded input of %u x %u",
                       s->name, s->kernel, l->in.h + 2 * s->pad, l->in.w + 2 * s->pad);
    l->window = (struct cnn_window){s->kernel, s->stride, s->pad};
    l->out = (struct cnn_shape){l->in.c, out_side(s, l->in.h), out_side(s, l->in.w)};
    return 0;
}

/* From `at` in an endless input: [*from, *to) inside the input; returns what lies inside or in the pad. */
static uint32_t clip_side(const struct cnn_window *w, uint32_t in, uint32_t at, uint32_t *from, uint32_t *to)
{
    int64_t start = (int64_t)at * w->stride - w->pad, end = start + w->kernel;
    int64_t padded_end = end < (int64_t)in + w->pad ? end : (int64_t)in + w->pad;

    *from = start < 0 ? 0 : (uint32_t)start;
    *to = end > in ? in : (uint32_t)end;
    return (uint32_t)(padded_end - start);
}

struct cnn_clip cnn_window_clip(const struct cnn_window *w, struct cnn_shape in, uint32_t oy, uint32_t ox)
{
    struct cnn_clip c;
    uint32_t rows = clip_side(w, in.h, oy, &c.y0, &c.y1), columns = clip_side(w, in.w, ox, &c.x0, &c.x1);
    c.n_covered = rows * columns;
    return c;
}
