/* dropout.c: the mask has one byte per element. It is drawn in the order of [C][H][W] for every layout, so
 * that all backends drop the same elements. When scoring, the input is passed on. */
#include "nets/onednn/onednn.h"

#include <string.h>

#include "nets/layers/layer.h"

struct dropout_op {
    uint8_t *keep;  /* [batch] in the layout of the input */
    uint8_t *drawn; /* [batch][C][H][W]; equal to keep if the layouts are equal */
};

static void needs(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, struct cnn_needs *n)
{
    n->kept_bytes = cnn_shape_count(l->plan->in) * d->batch;
    n->work_bytes = l->in_layout == CNN_DNNL_FLAT ? 0 : n->kept_bytes;
    n->can_overwrite = n->keeps_sign = n->can_overwrite_back = true;
}

static int create(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, struct ps_error *err)
{
    struct dropout_op *s = l->state;

    (void)d, (void)err;
    s->keep = l->kept;
    s->drawn = l->in_layout == CNN_DNNL_FLAT ? s->keep : l->work;
    return 0;
}

static void draw_mask(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, uint32_t image)
{
    const struct dropout_op *s = l->state;
    struct cnn_shape in = l->plan->in;
    size_t n = cnn_shape_count(in), places = (size_t)in.h * in.w;
    const uint8_t *drawn = s->drawn + image * n;

    cnn_dropout_mask(l->plan, d->draw, image * n, n, s->drawn + image * n);
    if (s->drawn == s->keep)
        return;
    for (size_t c = 0; c < in.c; c++) {
        uint8_t *keep = s->keep + image * n + c / l->in_block * l->in_block * places + c % l->in_block;
        for (size_t at = 0; at < places; at++)
            keep[at * l->in_block] = *drawn++;
    }
}

static int forward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x)
{
    const struct dropout_op *s = l->state;
    size_t n = cnn_shape_count(l->plan->in);

    (void)x;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (uint32_t i = 0; i < d->batch; i++) {
        if (d->is_training) {
            draw_mask(d, l, i);
            d->kernels->dropout(cnn_dnnl_in(d, l->in[0], i * n), cnn_dnnl_at(d, l->out, i * n),
                                s->keep + i * n, cnn_dropout_scale(l->plan), n);
        } else if (l->out != l->in[0]) {
            memcpy(cnn_dnnl_at(d, l->out, i * n), cnn_dnnl_in(d, l->in[0], i * n), n * d->value_bytes);
        }
    }
    return 0;
}

static int backward(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, const float *x, float *g)
{
    const struct dropout_op *s = l->state;
    size_t n = d->batch * cnn_shape_count(l->plan->in), pieces = cnn_dnnl_n_pieces(n);

    (void)x, (void)g;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (size_t i = 0; i < pieces; i++) {
        size_t at = i * CNN_DNNL_PIECE;
        d->kernels->dropout(cnn_dnnl_at(d, l->dout, at), cnn_dnnl_at(d, l->din[0], at), s->keep + at,
                            cnn_dropout_scale(l->plan), cnn_dnnl_piece(n, i));
    }
    return 0;
}

const struct cnn_dnnl_kind cnn_dnnl_dropout = {
    sizeof(struct dropout_op), needs, create, NULL, forward, backward, NULL};
