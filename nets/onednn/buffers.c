/* buffers.c: in which layout values lie, and which layers work as one; where the arena has them; how images
 * get in. */
#include "nets/onednn/onednn.h"

#include <errno.h>
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

bool cnn_dnnl_is_elementwise(enum cnn_layer_kind kind)
{
    return kind == CNN_RELU || kind == CNN_DROPOUT || kind == CNN_LEAKY_RELU || kind == CNN_RELU6 ||
           kind == CNN_SIGMOID || kind == CNN_TANH;
}

/* Whether all that read a value, elementwise layers aside, want it as [C*H*W]. */
static bool wants_flat(const struct cnn_plan *p, size_t value)
{
    for (size_t i = value; i < p->n_layers; i++) {
        enum cnn_layer_kind kind = p->layers[i].spec->kind;
        for (uint32_t k = 0; k < p->layers[i].n_inputs; k++)
            if (p->layers[i].inputs[k].value == value && kind != CNN_FC && kind != CNN_SOFTMAX_LOSS &&
                !(cnn_dnnl_is_elementwise(kind) && wants_flat(p, i + 1)))
                return false;
    }
    return true;
}

static bool is_same_either_way(struct cnn_shape s)
{
    return s.c == 1 || (s.h == 1 && s.w == 1);
}

/* The library writes [H][W][C]; a max-pool, our own code, writes what its readers want. */
static void lay_out(struct cnn_dnnl *d)
{
    const struct cnn_plan *p = d->plan;

    d->is_flat[0] = is_same_either_way(cnn_image_shape(p)) || wants_flat(p, 0);
    for (size_t i = 0; i < p->n_layers; i++) {
        enum cnn_layer_kind kind = p->layers[i].spec->kind;
        bool in_is_flat = d->is_flat[p->layers[i].inputs[0].value];
        bool flat = is_same_either_way(p->layers[i].out) || (cnn_dnnl_is_elementwise(kind) && in_is_flat) ||
                    (kind == CNN_MAXPOOL && wants_flat(p, i + 1));
        d->layers[i].in_is_flat = in_is_flat;
        d->layers[i].out_is_flat = d->is_flat[i + 1] = flat;
    }
}

/* The one layer that reads the output of layer i; NULL: there are several, or it is a loss. */
static struct cnn_dnnl_layer *only_reader(struct cnn_dnnl *d, size_t i)
{
    if (d->plan->n_readers[i + 1] != 1)
        return NULL;
    for (size_t k = i + 1; k < d->plan->n_layers; k++)
        for (uint32_t in = 0; in < d->plan->layers[k].n_inputs; in++)
            if (d->plan->layers[k].inputs[in].value == i + 1)
                return cnn_is_loss(&d->plan->layers[k]) ? NULL : &d->layers[k];
    return NULL;
}

/* What a ReLU reads is a layer's output that nobody else reads. */
static bool can_defer(const struct cnn_dnnl *d, const struct cnn_layer *l)
{
    size_t value = l->inputs[0].value;
    return l->spec->kind == CNN_RELU && value > 0 && d->plan->n_readers[value] == 1;
}

/* A ReLU before a max-pool is left to it: on fewer values, and the pool follows its convolution at once. */
static void pair_with_pools(struct cnn_dnnl *d)
{
    for (size_t i = d->plan->n_layers; i-- > 0;) {
        struct cnn_dnnl_layer *l = &d->layers[i], *next = only_reader(d, i);
        if (next != NULL && next->is_deferred)
            next = only_reader(d, next->plan->index);
        if (next == NULL || next->plan->spec->kind != CNN_MAXPOOL)
            continue;
        if (can_defer(d, l->plan))
            l->is_deferred = next->has_relu = true;
        else if (cnn_dnnl_can_pool(d, l->plan, next->plan)) {
            l->pool = next;
            next->is_pooled = true;
        }
    }
}

/* A ReLU of what a batchnorm or an add alone hands to it is done by these, image by image. */
static void pair_with_producers(struct cnn_dnnl *d)
{
    for (size_t i = 0; i < d->plan->n_layers; i++) {
        struct cnn_dnnl_layer *l = &d->layers[i];
        if (l->is_deferred || !can_defer(d, l->plan))
            continue;
        struct cnn_dnnl_layer *from = &d->layers[l->plan->inputs[0].value - 1];
        enum cnn_layer_kind kind = from->plan->spec->kind;
        if (kind == CNN_BATCHNORM || kind == CNN_ADD)
            l->is_deferred = from->has_relu = true;
    }
}

int cnn_dnnl_choose(struct cnn_dnnl *d)
{
    d->is_flat = calloc(d->plan->n_values, sizeof *d->is_flat);
    if (d->is_flat == NULL)
        return -ENOMEM;
    lay_out(d);
    pair_with_pools(d);
    pair_with_producers(d);
    return 0;
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

/* Whether the images must lie in our own buffer: what reads past its end may not be let at the caller's. */
static bool needs_copy(const struct cnn_dnnl *d)
{
    for (size_t i = 0; i < d->plan->n_layers; i++)
        if (d->layers[i].pool != NULL && d->plan->layers[i].inputs[0].value == 0)
            return true;
    return false;
}

/* Image i of bytes, or of floats that lie otherwise than the first layer wants them. */
static void turn_image(const struct cnn_dnnl *d, const struct cnn_batch *b, size_t i)
{
    struct cnn_shape s = cnn_image_shape(d->plan);
    size_t n = cnn_shape_count(s), places = (size_t)s.h * s.w;
    bool as_hwc = !d->is_flat[0];
    float *out = d->input + i * n;

    if (b->pixels == CNN_PIXELS_FLOAT && as_hwc && !b->is_hwc) {
        d->kernels->transpose((const float *)b->images + i * n, out, s.c, places);
        return;
    }
    for (size_t c = 0; c < s.c; c++)
        for (size_t at = 0; at < places; at++)
            out[as_hwc ? at * s.c + c : c * places + at] = cnn_batch_value(b, s, i, c, at);
}

void cnn_dnnl_place_images(struct cnn_dnnl *d, const struct cnn_batch *b)
{
    struct cnn_shape s = cnn_image_shape(d->plan);
    size_t n_in = cnn_shape_count(s);
    bool lies_right = b->pixels == CNN_PIXELS_FLOAT && (is_same_either_way(s) || b->is_hwc == !d->is_flat[0]);
    const float *placed = d->input;

    if (lies_right && b->n == d->batch && !needs_copy(d)) {
        placed = b->images;
    } else {
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
        for (uint32_t i = 0; i < d->batch; i++)
            if (i >= b->n) /* whatever the arena held there */
                memset(d->input + i * n_in, 0, n_in * sizeof *d->input);
            else if (lies_right)
                memcpy(d->input + i * n_in, (const float *)b->images + i * n_in, n_in * sizeof *d->input);
            else
                turn_image(d, b, i);
    }
    for (size_t i = 0; i < d->plan->n_layers; i++)
        for (uint32_t k = 0; k < d->plan->layers[i].n_inputs; k++)
            if (d->plan->layers[i].inputs[k].value == 0)
                d->layers[i].in[k] = placed;
}
