/* relu.c: in place, in either direction, wherever it alone reads its input: no layer needs its own output to
 * go backward, and the sign that ReLU needs survives in its output, also when dropout scales that in place.
 */
#include "nets/onednn/onednn.h"

#include <string.h>

static int forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x)
{
    size_t n = cnn_shape_count(l->plan->in);

    (void)x;
    if (l->is_deferred)
        return 0;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (uint32_t i = 0; i < d->batch; i++) {
        if (l->out != l->in[0])
            memcpy(l->out + i * n, l->in[0] + i * n, n * sizeof *l->out);
        d->kernels->relu(l->out + i * n, n);
    }
    return 0;
}

static int backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g)
{
    size_t n = cnn_shape_count(l->plan->in);

    (void)x, (void)g;
    if (l->is_deferred)
        return 0;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (uint32_t i = 0; i < d->batch; i++) {
        if (l->din[0] != l->dout)
            memcpy(l->din[0] + i * n, l->dout + i * n, n * sizeof *l->dout);
        d->kernels->relu_back(l->din[0] + i * n, l->out + i * n, n);
    }
    return 0;
}

const struct cnn_dnnl_kind cnn_dnnl_relu = {0, NULL, NULL, forward, backward, NULL};
