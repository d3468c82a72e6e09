/* concat_add.c: the layers with several inputs: concat and add. */
#include "nets/onednn/onednn.h"

#include <string.h>

/* Copies [rows][C] pieces between the inputs and the output, whose rows concatenate those of the inputs. A
 * row is a position, or a whole image in a blocked layout. */
static void concat_image(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, uint32_t image, char *out,
                         const void *const *in, void *const *din)
{
    const struct cnn_layer *p = l->plan;
    size_t places = (size_t)p->out.h * p->out.w, at = 0;
    size_t each = d->value_bytes;
    size_t rows = l->out_layout == CNN_DNNL_BLOCKED ? 1 : places, row = places / rows * p->out.c * each;

    for (uint32_t k = 0; k < p->n_inputs; k++) {
        size_t n = places / rows * p->inputs[k].shape.c * each, from = image * rows * n;
        for (size_t i = 0; i < rows; i++)
            if (in != NULL)
                memcpy(out + i * row + at, (const char *)in[k] + from + i * n, n);
            else if (din[k] != NULL)
                memcpy((char *)din[k] + from + i * n, out + i * row + at, n);
        at += n;
    }
}

static int concat_forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x)
{
    size_t n = cnn_shape_count(l->plan->out);

    (void)x;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (uint32_t i = 0; i < d->batch; i++)
        concat_image(d, l, i, cnn_dnnl_at(d, l->out, i * n), l->in, NULL);
    return 0;
}

static int concat_backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g)
{
    size_t n = cnn_shape_count(l->plan->out);

    (void)x, (void)g;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (uint32_t i = 0; i < d->batch; i++)
        concat_image(d, l, i, cnn_dnnl_at(d, l->dout, i * n), NULL, l->din);
    return 0;
}

static int add_forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x)
{
    size_t n = d->batch * cnn_shape_count(l->plan->out), pieces = cnn_dnnl_n_pieces(n);

    (void)x;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < pieces; i++) {
        size_t at = i * CNN_DNNL_PIECE;
        const void *sum = cnn_dnnl_in(d, l->in[0], at);
        void *out = cnn_dnnl_at(d, l->out, at);
        for (uint32_t k = 1; k < l->plan->n_inputs; k++, sum = out)
            d->kernels->add(out, sum, cnn_dnnl_in(d, l->in[k], at), l->has_relu && k + 1 == l->plan->n_inputs,
                            cnn_dnnl_piece(n, i));
    }
    return 0;
}

static int add_backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g)
{
    size_t n = d->batch * cnn_shape_count(l->plan->out), pieces = cnn_dnnl_n_pieces(n);

    (void)x, (void)g;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < pieces; i++) {
        size_t at = i * CNN_DNNL_PIECE, size = cnn_dnnl_piece(n, i);
        if (l->has_relu)
            d->kernels->relu_back(cnn_dnnl_at(d, l->dout, at), cnn_dnnl_at(d, l->out, at), size);
        for (uint32_t k = 0; k < l->plan->n_inputs; k++)
            if (l->din[k] != NULL && l->din[k] != l->dout)
                memcpy(cnn_dnnl_at(d, l->din[k], at), cnn_dnnl_at(d, l->dout, at), size * d->value_bytes);
    }
    return 0;
}

static void concat_needs(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct cnn_needs *n)
{
    (void)d, (void)l, (void)n;
}

static void add_needs(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct cnn_needs *n)
{
    (void)d;
    n->can_overwrite = n->can_overwrite_back = true;
    n->back_reads_out = l->has_relu ? CNN_READS_SIGN : CNN_READS_NOTHING;
}

const struct cnn_dnnl_kind cnn_dnnl_concat = {0,   concat_needs, NULL, NULL, concat_forward, concat_backward,
                                              NULL};
const struct cnn_dnnl_kind cnn_dnnl_add = {0, add_needs, NULL, NULL, add_forward, add_backward, NULL};
