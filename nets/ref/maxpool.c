#include "nets/ref/ref.h"

#include <string.h>

/* Index of the largest value, or of a NaN, in a window of one channel; the first in row order among
 * equals. */
static size_t argmax(const struct cnn_layer *l, const double *in, uint32_t oy, uint32_t ox)
{
    const struct cnn_window *w = &l->window;
    int64_t y0 = (int64_t)oy * w->stride[0] - w->pad[0], x0 = (int64_t)ox * w->stride[1] - w->pad[1];
    int64_t y1 = y0 + w->kernel[0], x1 = x0 + w->kernel[1];

    y0 = y0 < 0 ? 0 : y0;
    x0 = x0 < 0 ? 0 : x0;
    y1 = y1 > l->in.h ? l->in.h : y1;
    x1 = x1 > l->in.w ? l->in.w : x1;
    size_t best = (size_t)(y0 * l->in.w + x0);
    for (int64_t y = y0; y < y1; y++)
        for (int64_t x = x0; x < x1; x++) {
            size_t at = (size_t)(y * l->in.w + x);
            if (in[at] > in[best] || in[at] != in[at]) /* a NaN wins */
                best = at;
        }
    return best;
}

static void forward(const struct cnn_ref_pass *p)
{
    const struct cnn_layer *l = p->plan;
    const double *in = p->in[0];
    double *out = p->out;

    for (size_t i = 0; i < (size_t)p->n * l->in.c; i++, in += (size_t)l->in.h * l->in.w)
        for (uint32_t oy = 0; oy < l->out.h; oy++)
            for (uint32_t ox = 0; ox < l->out.w; ox++)
                *out++ = in[argmax(l, in, oy, ox)];
}

static void backward(const struct cnn_ref_pass *p, const double *dout, double *const *dins, double *g)
{
    const struct cnn_layer *l = p->plan;
    const double *in = p->in[0];
    double *din = dins[0];
    size_t plane = (size_t)l->in.h * l->in.w;

    (void)g;
    if (din == NULL)
        return;
    memset(din, 0, p->n * cnn_shape_count(l->in) * sizeof *din);
    for (size_t i = 0; i < (size_t)p->n * l->in.c; i++, in += plane, din += plane)
        for (uint32_t oy = 0; oy < l->out.h; oy++)
            for (uint32_t ox = 0; ox < l->out.w; ox++)
                din[argmax(l, in, oy, ox)] += *dout++;
}

const struct cnn_ref_layer cnn_ref_maxpool = {forward, backward};
