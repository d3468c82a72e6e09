/* relu.c: in place, in either direction: no layer needs its own output to go backward, and the sign that ReLU
 * needs survives in its output. */
#include "nets/onednn/onednn.h"

static int forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x)
{
    size_t n = cnn_shape_count(l->plan->in);

    (void)x;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (uint32_t i = 0; i < d->batch; i++)
        d->kernels->relu(l->out + i * n, n);
    return 0;
}

static int backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g)
{
    size_t n = cnn_shape_count(l->plan->in);

    (void)x, (void)g;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (uint32_t i = 0; i < d->batch; i++)
        d->kernels->relu_back(l->din + i * n, l->out + i * n, n);
    return 0;
}

const struct cnn_dnnl_kind cnn_dnnl_relu = {0, NULL, NULL, forward, backward};
