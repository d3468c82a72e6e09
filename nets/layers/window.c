/* window.c: the window of a convolution or a pool over its input. */
#include "nets/layers/layer.h"

#include <errno.h>

static const char *const side_names[] = {"high", "wide"};

/* Rows or columns that a window spans. */
static uint64_t span(const struct cnn_window *w, int d)
{
    return (uint64_t)(w->kernel[d] - 1) * w->dilation[d] + 1;
}

static struct cnn_window window_of(const struct cnn_layer_spec *s)
{
    bool four = (s->pads[0] | s->pads[1] | s->pads[2] | s->pads[3]) != 0;
    uint32_t dilation = s->dilation > 0 ? s->dilation : 1;

    return (struct cnn_window){
        .kernel = {s->kernel, s->kernel_w > 0 ? s->kernel_w : s->kernel},
        .stride = {s->stride, s->stride_w > 0 ? s->stride_w : s->stride},
        .dilation = {dilation, dilation},
        .pad = {four ? s->pads[0] : s->pad, four ? s->pads[1] : s->pad},
        .pad_end = {four ? s->pads[2] : s->pad, four ? s->pads[3] : s->pad},
    };
}

static int check_side(const struct cnn_layer *l, const struct cnn_window *w, int d, uint32_t in,
                      uint32_t max_kernel, struct ps_error *err)
{
    const char *name = l->spec->name;

    if (w->kernel[d] < 1 || w->kernel[d] > max_kernel)
        return ps_fail(err, -EINVAL, "layer '%s': kernel %u; allowed are 1 to %u", name, w->kernel[d],
                       max_kernel);
    if (w->stride[d] < 1 || w->stride[d] > CNN_MAX_SIDE || w->dilation[d] > CNN_MAX_SIDE)
        return ps_fail(err, -EINVAL, "layer '%s': stride %u, dilation %u; both are 1 to %d", name,
                       w->stride[d], w->dilation[d], CNN_MAX_SIDE);
    if (w->pad[d] >= span(w, d) || w->pad_end[d] >= span(w, d))
        return ps_fail(err, -EINVAL,
                       "layer '%s': pads %u and %u of a window %llu %s; a pad is smaller than the window",
                       name, w->pad[d], w->pad_end[d], (unsigned long long)span(w, d), side_names[d]);
    if (span(w, d) > (uint64_t)in + w->pad[d] + w->pad_end[d])
        return ps_fail(err, -EINVAL,
                       "layer '%s': its window is %llu %s and larger than its padded input of %llu", name,
                       (unsigned long long)span(w, d), side_names[d],
                       (unsigned long long)in + w->pad[d] + w->pad_end[d]);
    return 0;
}

static uint32_t out_side(const struct cnn_window *w, int d, uint32_t in, enum cnn_rounding rounding)
{
    uint64_t room = in + (uint64_t)w->pad[d] + w->pad_end[d] - span(w, d), stride = w->stride[d];
    uint64_t out = (rounding == CNN_CEIL ? room + stride - 1 : room) / stride + 1;

    return (uint32_t)((out - 1) * stride >= (uint64_t)in + w->pad[d] ? out - 1 : out);
}

int cnn_window_plan(struct cnn_layer *l, uint32_t max_kernel, enum cnn_rounding rounding,
                    struct ps_error *err)
{
    struct cnn_window w = window_of(l->spec);
    int rc;

    if ((rc = check_side(l, &w, 0, l->in.h, max_kernel, err)) < 0 ||
        (rc = check_side(l, &w, 1, l->in.w, max_kernel, err)) < 0)
        return rc;
    l->window = w;
    l->out.h = out_side(&w, 0, l->in.h, rounding);
    l->out.w = out_side(&w, 1, l->in.w, rounding);
    return 0;
}

void cnn_window_plan_global(struct cnn_layer *l)
{
    l->window = (struct cnn_window){.kernel = {l->in.h, l->in.w}, .stride = {1, 1}, .dilation = {1, 1}};
    l->out = (struct cnn_shape){l->in.c, 1, 1};
}

/* Clips the window at `at` to the input: [*from, *to). Returns its length within the input and its
 * padding. */
static uint32_t clip_side(const struct cnn_window *w, int d, uint32_t in, uint32_t at, uint32_t *from,
                          uint32_t *to)
{
    int64_t start = (int64_t)at * w->stride[d] - w->pad[d], end = start + w->kernel[d];
    int64_t padded = (int64_t)in + w->pad_end[d], padded_end = end < padded ? end : padded;

    *from = start < 0 ? 0 : (uint32_t)start;
    *to = end > in ? in : (uint32_t)end;
    return (uint32_t)(padded_end - start);
}

struct cnn_clip cnn_window_clip(const struct cnn_layer *l, uint32_t oy, uint32_t ox)
{
    struct cnn_clip c;
    uint32_t rows = clip_side(&l->window, 0, l->in.h, oy, &c.y0, &c.y1);
    uint32_t columns = clip_side(&l->window, 1, l->in.w, ox, &c.x0, &c.x1);

    c.n_counted = l->spec->skips_padding ? (c.y1 - c.y0) * (c.x1 - c.x0) : rows * columns;
    return c;
}
