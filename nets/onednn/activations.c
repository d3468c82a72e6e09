/* activations.c: where activations and their gradients lie, and in which layout; all of it is decided once.
 */
#include "nets/onednn/onednn.h"

#include <stdlib.h>
#include <string.h>

void *cnn_dnnl_buffer(size_t bytes)
{
    size_t rounded = (bytes + 63) / 64 * 64 + 64;
    void *p = aligned_alloc(64, rounded);
    return p != NULL ? memset(p, 0, rounded) : NULL;
}

/* Layers before the loss. */
static size_t n_computed(const struct cnn_dnnl *d)
{
    return d->plan->n_layers - 1;
}

/* Neither changes where a value lies. */
static bool is_elementwise(enum cnn_layer_kind kind)
{
    return kind == CNN_RELU || kind == CNN_DROPOUT;
}

/* Whether all that read a value, elementwise layers aside, want it as [C*H*W]. */
static bool wants_flat(const struct cnn_plan *p, size_t value)
{
    for (size_t i = value; i < p->n_layers; i++) {
        enum cnn_layer_kind kind = p->layers[i].spec->kind;
        for (uint32_t k = 0; k < p->layers[i].n_inputs; k++)
            if (p->layers[i].inputs[k].value == value && kind != CNN_FC && kind != CNN_SOFTMAX_LOSS &&
                !(is_elementwise(kind) && wants_flat(p, i + 1)))
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

    d->is_flat[0] = is_same_either_way(p->layers[0].in) || wants_flat(p, 0);
    for (size_t i = 0; i < n_computed(d); i++) {
        enum cnn_layer_kind kind = p->layers[i].spec->kind;
        bool in_is_flat = d->is_flat[p->layers[i].inputs[0].value];
        bool flat = is_same_either_way(p->layers[i].out) || (is_elementwise(kind) && in_is_flat) ||
                    (kind == CNN_MAXPOOL && wants_flat(p, i + 1));
        d->layers[i].in_is_flat = in_is_flat;
        d->layers[i].out_is_flat = d->is_flat[i + 1] = flat;
    }
}

/* The one layer that reads the output of layer i; NULL: there are several, or it is the loss. */
static struct cnn_dnnl_layer *only_reader(struct cnn_dnnl *d, size_t i)
{
    if (d->plan->n_readers[i + 1] != 1)
        return NULL;
    for (size_t k = i + 1; k < n_computed(d); k++)
        for (uint32_t in = 0; in < d->plan->layers[k].n_inputs; in++)
            if (d->plan->layers[k].inputs[in].value == i + 1)
                return &d->layers[k];
    return NULL;
}

/* Forward: nobody else reads what it overwrites. */
static bool is_in_place(const struct cnn_dnnl *d, const struct cnn_layer *l)
{
    return is_elementwise(l->spec->kind) && d->plan->n_readers[l->inputs[0].value] == 1;
}

/* A ReLU before a max-pool is left to it: on fewer values, and the pool follows its convolution at once. */
static void pair_with_pools(struct cnn_dnnl *d)
{
    for (size_t i = n_computed(d); i-- > 0;) {
        struct cnn_dnnl_layer *l = &d->layers[i], *next = only_reader(d, i);
        enum cnn_layer_kind kind = l->plan->spec->kind;
        if (next != NULL && next->is_deferred)
            next = only_reader(d, next->plan->index);
        if (next == NULL || next->plan->spec->kind != CNN_MAXPOOL)
            continue;
        if (kind == CNN_RELU && is_in_place(d, l->plan))
            l->is_deferred = next->has_relu = true;
        else if (cnn_dnnl_can_pool(d, l->plan, next->plan)) {
            l->pool = next;
            next->is_pooled = true;
        }
    }
}

static bool create_activations(struct cnn_dnnl *d)
{
    d->act[0] = d->input;
    for (size_t i = 0; i < n_computed(d); i++) {
        const struct cnn_layer *l = &d->plan->layers[i];
        size_t bytes = cnn_shape_count(l->out) * d->batch * sizeof(float);
        for (uint32_t k = 0; k < l->n_inputs; k++)
            d->layers[i].in[k] = d->act[l->inputs[k].value];
        d->act[i + 1] = is_in_place(d, l) ? d->act[l->inputs[0].value] : cnn_dnnl_buffer(bytes);
        d->layers[i].out = d->act[i + 1];
        if (d->act[i + 1] == NULL)
            return false;
        d->gradient_bytes = bytes > d->gradient_bytes ? bytes : d->gradient_bytes;
    }
    return true;
}

/* A stack of the gradient buffers that hold nothing now. */
struct pool {
    struct cnn_dnnl *d;
    float **idle; /* [values + CNN_MAX_INPUTS] */
    size_t n_idle;
    bool failed;
};

static float *take(struct pool *p)
{
    if (p->n_idle > 0)
        return p->idle[--p->n_idle];
    float *made = cnn_dnnl_buffer(p->d->gradient_bytes);
    if (made == NULL)
        p->failed = true;
    else
        p->d->gradients[p->d->n_gradients++] = made;
    return made;
}

static void give(struct pool *p, float *buffer)
{
    if (buffer != NULL)
        p->idle[p->n_idle++] = buffer;
}

/* Backward: what may write the gradient of its first input over that of its output, which nobody needs then.
 */
static bool goes_back_in_place(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l)
{
    enum cnn_layer_kind kind = l->plan->spec->kind;

    return (is_elementwise(kind) || kind == CNN_ADD || l->is_pooled) && l->plan->inputs[0].wants_grad &&
           d->plan->n_readers[l->plan->inputs[0].value] == 1;
}

/* Layers go backward last to first. A value's gradient is whole when its producer's turn comes: the first of
 * its readers to go backward wrote it, the others added theirs. */
static void assign_gradients_of(struct pool *p, struct cnn_dnnl_layer *l, float **of_value)
{
    size_t value = l->plan->index + 1;
    bool in_place = goes_back_in_place(p->d, l);

    l->dout = of_value[value];
    for (uint32_t k = 0; k < l->plan->n_inputs; k++) {
        const struct cnn_input *in = &l->plan->inputs[k];
        if (!in->wants_grad)
            continue;
        l->sum[k] = of_value[in->value];
        l->din[k] = k == 0 && in_place ? l->dout : take(p);
        if (l->sum[k] == NULL)
            of_value[in->value] = l->din[k];
    }
    for (uint32_t k = 0; k < l->plan->n_inputs; k++)
        if (l->sum[k] != NULL)
            give(p, l->din[k]);
    if (!in_place)
        give(p, l->dout);
}

static bool create_gradients(struct cnn_dnnl *d)
{
    size_t n_values = d->plan->n_layers, logits = d->plan->layers[n_values - 1].inputs[0].value;
    float **of_value = calloc(n_values, sizeof *of_value);
    struct pool p = {.d = d, .idle = calloc(n_values + CNN_MAX_INPUTS, sizeof *p.idle)};

    d->gradients = calloc(n_values + CNN_MAX_INPUTS, sizeof *d->gradients);
    p.failed = of_value == NULL || p.idle == NULL || d->gradients == NULL;
    if (!p.failed)
        d->dlogits = of_value[logits] = take(&p);
    for (size_t i = n_computed(d); i-- > 0 && !p.failed;)
        assign_gradients_of(&p, &d->layers[i], of_value);
    free(p.idle);
    free(of_value);
    return !p.failed;
}

bool cnn_dnnl_create_buffers(struct cnn_dnnl *d)
{
    size_t n_values = d->plan->n_layers;

    d->act = calloc(n_values, sizeof *d->act);
    d->is_flat = calloc(n_values, sizeof *d->is_flat);
    d->input = cnn_dnnl_buffer(cnn_shape_count(d->plan->layers[0].in) * d->batch * sizeof(float));
    if (d->act == NULL || d->is_flat == NULL || d->input == NULL)
        return false;
    lay_out(d);
    pair_with_pools(d);
    return create_activations(d) && create_gradients(d);
}

void cnn_dnnl_destroy_buffers(struct cnn_dnnl *d)
{
    for (size_t i = 0; d->act != NULL && i < n_computed(d); i++)
        if (!is_in_place(d, &d->plan->layers[i]))
            free(d->act[i + 1]);
    for (size_t i = 0; d->gradients != NULL && i < d->n_gradients; i++)
        free(d->gradients[i]);
    free(d->gradients);
    free(d->input);
    free(d->act);
    free(d->is_flat);
}

/* Whether the images must lie in our own buffer: what writes over its input or reads past its end may not be
 * let at the caller's. */
static bool needs_copy(const struct cnn_dnnl *d)
{
    for (size_t i = 0; i < n_computed(d); i++)
        for (uint32_t k = 0; k < d->plan->layers[i].n_inputs; k++)
            if (d->plan->layers[i].inputs[k].value == 0 &&
                (d->layers[i].pool != NULL || is_in_place(d, &d->plan->layers[i])))
                return true;
    return false;
}

void cnn_dnnl_place_images(struct cnn_dnnl *d, const float *images, uint32_t n)
{
    struct cnn_shape s = d->plan->layers[0].in;
    size_t n_in = cnn_shape_count(s), places = (size_t)s.h * s.w;
    const float *placed = d->input;

    if (!d->is_flat[0])
        for (uint32_t i = 0; i < n; i++)
            d->kernels->transpose(images + i * n_in, d->input + i * n_in, s.c, places);
    else if (n < d->batch || needs_copy(d))
        memcpy(d->input, images, n * n_in * sizeof *images);
    else
        placed = images;
    for (size_t i = 0; i < n_computed(d); i++)
        for (uint32_t k = 0; k < d->plan->layers[i].n_inputs; k++)
            if (d->plan->layers[i].inputs[k].value == 0)
                d->layers[i].in[k] = placed;
}
