/* avgpool.c: means of windows, [H][W][C] to [H][W][C], of whole channels too. */
#include "nets/onednn/onednn.h"

#include <string.h>

#include "nets/layers/layer.h"

static void forward_image(const struct cnn_dnnl *d, const struct cnn_layer *p, const float *in, float *out)
{
    uint32_t channels = p->in.c;

    memset(out, 0, cnn_shape_count(p->out) * sizeof *out);
    for (uint32_t oy = 0; oy < p->out.h; oy++)
        for (uint32_t ox = 0; ox < p->out.w; ox++, out += channels) {
            struct cnn_clip c = cnn_window_clip(p, oy, ox);
            for (uint32_t y = c.y0; y < c.y1; y++)
                for (uint32_t x = c.x0; x < c.x1; x++)
                    d->kernels->add_scaled(out, in + ((size_t)y * p->in.w + x) * channels,
                                           1 / (float)c.n_counted, channels);
        }
}

static void backward_image(const struct cnn_dnnl *d, const struct cnn_layer *p, const float *dout, float *din)
{
    uint32_t channels = p->in.c;

    memset(din, 0, cnn_shape_count(p->in) * sizeof *din);
    for (uint32_t oy = 0; oy < p->out.h; oy++)
        for (uint32_t ox = 0; ox < p->out.w; ox++, dout += channels) {
            struct cnn_clip c = cnn_window_clip(p, oy, ox);
            for (uint32_t y = c.y0; y < c.y1; y++)
                for (uint32_t x = c.x0; x < c.x1; x++)
                    d->kernels->add_scaled(din + ((size_t)y * p->in.w + x) * channels, dout,
                                           1 / (float)c.n_counted, channels);
        }
}

static int forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x)
{
    size_t n_in = cnn_shape_count(l->plan->in), n_out = cnn_shape_count(l->plan->out);

    (void)x;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (uint32_t i = 0; i < d->batch; i++)
        forward_image(d, l->plan, l->in[0] + i * n_in, l->out + i * n_out);
    return 0;
}

static int backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g)
{
    size_t n_in = cnn_shape_count(l->plan->in), n_out = cnn_shape_count(l->plan->out);

    (void)x, (void)g;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (uint32_t i = 0; i < d->batch; i++)
        backward_image(d, l->plan, l->dout + i * n_out, l->din[0] + i * n_in);
    return 0;
}

static void needs(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct cnn_needs *n)
{
    (void)d, (void)l, (void)n;
}

const struct cnn_dnnl_kind cnn_dnnl_avgpool = {0, needs, NULL, NULL, forward, backward, NULL};
