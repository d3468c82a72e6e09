/* buffers.c: the addresses of values in the arena, and the input of images. */
#include "nets/onednn/onednn.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

void *cnn_dnnl_buffer(struct cnn_dnnl *d, size_t bytes)
{
    size_t rounded = (bytes + 63) / 64 * 64 + 64;
    void *p = aligned_alloc(64, rounded);

    if (p == NULL)
        return NULL;
    d->own_bytes += rounded;
    return memset(p, 0, rounded);
}

void cnn_dnnl_bind_places(struct cnn_dnnl *d, const struct cnn_memory *m)
{
    d->input = cnn_place(d->arena, m->value_at[0]);
    for (size_t i = 0; i < d->plan->n_layers; i++) {
        struct cnn_dnnl_layer *l = &d->layers[i];
        const struct cnn_layer_places *at = &m->layers[i];
        l->out = cnn_place(d->arena, m->value_at[i + 1]);
        l->dout = cnn_place(d->arena, m->gradient_at[i + 1]);
        l->kept = cnn_place(d->arena, at->kept_at);
        l->work = cnn_place(d->arena, at->work_at);
        for (uint32_t k = 0; k < l->plan->n_inputs; k++) {
            l->in[k] = cnn_place(d->arena, m->value_at[l->plan->inputs[k].value]);
            l->din[k] = cnn_place(d->arena, at->din_at[k]);
            l->sum[k] = cnn_place(d->arena, at->sum_at[k]);
        }
    }
}

/* Whether the images must be copied to our own buffer: some kernels read past the end of their input. */
static bool needs_copy(const struct cnn_dnnl *d)
{
    for (size_t i = 0; i < d->plan->n_layers; i++)
        if (d->layers[i].pool != NULL && d->plan->layers[i].inputs[0].value == 0)
            return true;
    return false;
}

/* Maps n bytes of a channel, `in_step` apart, to floats `out_step` apart. */
static void look_up(const float value_of[256], const uint8_t *in, size_t in_step, float *out, size_t out_step,
                    size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i * out_step] = value_of[in[i * in_step]];
}

/* Converts image i from bytes, or from floats in another layout than the first layer's. */
static void turn_image(const struct cnn_dnnl *d, const struct cnn_batch *b, size_t i, float *out)
{
    struct cnn_shape s = cnn_image_shape(d->plan);
    size_t n = cnn_shape_count(s), places = (size_t)s.h * s.w;
    bool as_hwc = d->layout[0] != CNN_DNNL_FLAT;

    if (b->pixels == CNN_PIXELS_FLOAT && as_hwc && !b->is_hwc) {
        d->floats->transpose((const float *)b->images + i * n, out, s.c, places);
        return;
    }
    for (size_t c = 0; c < s.c; c++) {
        float *to = as_hwc ? out + c : out + c * places;
        if (b->pixels == CNN_PIXELS_BYTE) {
            const uint8_t *from = (const uint8_t *)b->images + i * n + (b->is_hwc ? c : c * places);
            look_up(b->value_of[c], from, b->is_hwc ? s.c : 1, to, as_hwc ? s.c : 1, places);
            continue;
        }
        for (size_t at = 0; at < places; at++)
            to[as_hwc ? at * s.c : at] = cnn_batch_value(b, s, i, c, at);
    }
}

/* Writes image i to d->input. lies_right: it is floats in the first layer's layout. */
static void place_image(const struct cnn_dnnl *d, const struct cnn_batch *b, size_t i, bool lies_right)
{
    size_t n = cnn_shape_count(cnn_image_shape(d->plan));
    void *to = cnn_dnnl_at(d, d->input, i * n);
    float *turned = d->images != NULL ? d->images + (size_t)omp_get_thread_num() * n : to;
    const float *given = lies_right && i < b->n ? (const float *)b->images + i * n : turned;

    if (i >= b->n) { /* the rest of the batch: any values will do */
        memset(to, 0, n * d->value_bytes);
        return;
    }
    if (!lies_right)
        turn_image(d, b, i, turned);
    if (given != to)
        d->kernels->from_floats(given, to, n);
}

void cnn_dnnl_place_images(struct cnn_dnnl *d, const struct cnn_batch *b)
{
    struct cnn_shape s = cnn_image_shape(d->plan);
    bool lies_right = b->pixels == CNN_PIXELS_FLOAT &&
                      (cnn_dnnl_is_same_either_way(s) || b->is_hwc == (d->layout[0] != CNN_DNNL_FLAT));
    const void *placed = d->input;

    if (lies_right && b->n == d->batch && d->type == dnnl_f32 && !needs_copy(d)) {
        placed = b->images;
    } else {
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
        for (uint32_t i = 0; i < d->batch; i++)
            place_image(d, b, i, lies_right);
    }
    for (size_t i = 0; i < d->plan->n_layers; i++)
        for (uint32_t k = 0; k < d->plan->layers[i].n_inputs; k++)
            if (d->plan->layers[i].inputs[k].value == 0)
                d->layers[i].in[k] = placed;
}
