#include "nets/layers/layer.h"
#include "nets/ref/ref.h"

#include <string.h>

static void forward(const struct cnn_ref_pass *p)
{
    const struct cnn_layer *l = p->plan;
    const double *in = p->in[0];
    double *out = p->out;

    for (size_t i = 0; i < (size_t)p->n * l->in.c; i++, in += (size_t)l->in.h * l->in.w)
        for (uint32_t oy = 0; oy < l->out.h; oy++)
            for (uint32_t ox = 0; ox < l->out.w; ox++) {
                struct cnn_clip c = cnn_window_clip(l, oy, ox);
                double sum = 0;
                for (uint32_t y = c.y0; y < c.y1; y++)
                    for (uint32_t x = c.x0; x < c.x1; x++)
                        sum += in[(size_t)y * l->in.w + x];
                *out++ = sum / c.n_counted;
            }
}

static void backward(const struct cnn_ref_pass *p, const double *dout, double *const *dins, double *g)
{
    const struct cnn_layer *l = p->plan;
    double *din = dins[0];

    (void)g;
    if (din == NULL)
        return;
    memset(din, 0, p->n * cnn_shape_count(l->in) * sizeof *din);
    for (size_t i = 0; i < (size_t)p->n * l->in.c; i++, din += (size_t)l->in.h * l->in.w)
        for (uint32_t oy = 0; oy < l->out.h; oy++)
            for (uint32_t ox = 0; ox < l->out.w; ox++, dout++) {
                struct cnn_clip c = cnn_window_clip(l, oy, ox);
                for (uint32_t y = c.y0; y < c.y1; y++)
                    for (uint32_t x = c.x0; x < c.x1; x++)
                        din[(size_t)y * l->in.w + x] += *dout / c.n_counted;
            }
}

const struct cnn_ref_layer cnn_ref_avgpool = {forward, backward};
