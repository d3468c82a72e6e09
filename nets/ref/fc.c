#include "nets/ref/ref.h"

#include <string.h>

static void forward(const struct cnn_ref_pass *p)
{
    const struct cnn_layer *l = p->plan;
    const double *in = p->in[0];
    double *out = p->out;
    const float *bias = p->x + l->bias_at;

    for (uint32_t i = 0; i < p->n; i++, in += l->fan_in) {
        const float *weight = p->x + l->weight_at;
        for (uint32_t o = 0; o < l->out.c; o++, weight += l->fan_in) {
            double sum = l->n_biases > 0 ? (double)bias[o] : 0;
            for (uint32_t k = 0; k < l->fan_in; k++)
                sum += (double)weight[k] * in[k];
            *out++ = sum;
        }
    }
}

static void backward(const struct cnn_ref_pass *p, const double *dout, double *const *dins, double *g)
{
    const struct cnn_layer *l = p->plan;
    const double *in = p->in[0];
    double *din = dins[0];
    memset(g + l->weight_at, 0, l->n_weights * sizeof *g);
    memset(g + l->bias_at, 0, l->n_biases * sizeof *g);
    if (din != NULL)
        memset(din, 0, (size_t)p->n * l->fan_in * sizeof *din);
    for (uint32_t i = 0; i < p->n; i++, in += l->fan_in, din = din != NULL ? din + l->fan_in : NULL)
        for (uint32_t o = 0; o < l->out.c; o++, dout++) {
            const float *weight = p->x + l->weight_at + (size_t)o * l->fan_in;
            double *dweight = g + l->weight_at + (size_t)o * l->fan_in;
            if (l->n_biases > 0)
                g[l->bias_at + o] += *dout;
            for (uint32_t k = 0; k < l->fan_in; k++)
                dweight[k] += *dout * in[k];
            if (din != NULL)
                for (uint32_t k = 0; k < l->fan_in; k++)
                    din[k] += *dout * (double)weight[k];
        }
}

const struct cnn_ref_layer cnn_ref_fc = {forward, backward};
