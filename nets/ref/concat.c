#include "nets/ref/ref.h"

#include <string.h>

static void forward(const struct cnn_ref_pass *p)
{
    double *out = p->out;

    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = 0; k < p->plan->n_inputs; k++) {
            size_t n = cnn_shape_count(p->plan->inputs[k].shape);
            memcpy(out, p->in[k] + i * n, n * sizeof *out);
            out += n;
        }
}

static void backward(const struct cnn_ref_pass *p, const double *dout, double *const *din, double *g)
{
    (void)g;
    for (uint32_t i = 0; i < p->n; i++)
        for (uint32_t k = 0; k < p->plan->n_inputs; k++) {
            size_t n = cnn_shape_count(p->plan->inputs[k].shape);
            if (din[k] != NULL)
                memcpy(din[k] + i * n, dout, n * sizeof *dout);
            dout += n;
        }
}

const struct cnn_ref_layer cnn_ref_concat = {forward, backward};
