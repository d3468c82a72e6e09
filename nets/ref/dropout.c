#include "nets/layers/layer.h"
#include "nets/ref/ref.h"

#include <string.h>

static void forward(const struct cnn_ref_pass *p)
{
    size_t n = p->n * cnn_shape_count(p->plan->in);
    double scale = (double)cnn_dropout_scale(p->plan);

    if (!p->is_training) {
        memcpy(p->out, p->in[0], n * sizeof *p->out);
        return;
    }
    cnn_dropout_mask(p->plan, p->draw, 0, n, p->keep);
    for (size_t i = 0; i < n; i++)
        p->out[i] = p->keep[i] ? p->in[0][i] * scale : 0;
}

static void backward(const struct cnn_ref_pass *p, const double *dout, double *const *din, double *g)
{
    double scale = (double)cnn_dropout_scale(p->plan);

    (void)g;
    if (din[0] == NULL)
        return;
    for (size_t i = 0; i < p->n * cnn_shape_count(p->plan->in); i++)
        din[0][i] = p->keep[i] ? dout[i] * scale : 0;
}

const struct cnn_ref_layer cnn_ref_dropout = {forward, backward};
