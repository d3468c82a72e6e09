/* avgpool.c: average pooling, also global, in the layout of the input. The work is divided by images and
 * blocks of channels. */
#include "nets/onednn/onednn.h"

#include <string.h>

#include "nets/layers/layer.h"

static void forward_block(const struct cnn_dnnl *d, const struct cnn_layer *p, uint32_t channels,
                          const float *in, float *out)
{
    memset(out, 0, (size_t)p->out.h * p->out.w * channels * sizeof *out);
    for (uint32_t oy = 0; oy < p->out.h; oy++)
        for (uint32_t ox = 0; ox < p->out.w; ox++, out += channels) {
            struct cnn_clip c = cnn_window_clip(p, oy, ox);
            for (uint32_t y = c.y0; y < c.y1; y++)
                for (uint32_t x = c.x0; x < c.x1; x++)
                    d->kernels->add_scaled(out, in + ((size_t)y * p->in.w + x) * channels,
                                           1 / (float)c.n_counted, channels);
        }
}

static void backward_block(const struct cnn_dnnl *d, const struct cnn_layer *p, uint32_t channels,
                           const float *dout, float *din)
{
    memset(din, 0, (size_t)p->in.h * p->in.w * channels * sizeof *din);
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
    const struct cnn_layer *p = l->plan;
    uint32_t block = l->in_block;
    size_t n_in = (size_t)p->in.h * p->in.w * block, n_out = (size_t)p->out.h * p->out.w * block;
    size_t n_blocks = d->batch * (p->in.c / block);

    (void)x;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < n_blocks; i++)
        forward_block(d, p, block, l->in[0] + i * n_in, l->out + i * n_out);
    return 0;
}

static int backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g)
{
    const struct cnn_layer *p = l->plan;
    uint32_t block = l->in_block;
    size_t n_in = (size_t)p->in.h * p->in.w * block, n_out = (size_t)p->out.h * p->out.w * block;
    size_t n_blocks = d->batch * (p->in.c / block);

    (void)x, (void)g;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < n_blocks; i++)
        backward_block(d, p, block, l->dout + i * n_out, l->din[0] + i * n_in);
    return 0;
}

static void needs(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct cnn_needs *n)
{
    (void)d, (void)l, (void)n;
}

const struct cnn_dnnl_kind cnn_dnnl_avgpool = {0, needs, NULL, NULL, forward, backward, NULL};
