/* layout.c: chooses the layouts of values and the layers to fuse.
 *
 * Most values are [H][W][C]. A value that only fully connected layers read is [C][H][W], the order of their
 * weights. Winograd's algorithm (conv.c) is 1.2 to 2.4 times as fast, but the library has it only for blocks
 * of 16 channels, [C / 16][H][W][16]. In a net with such convolutions every value that can use that layout
 * does: layers that keep their input's layout agree on it, and a convolution that cannot use it reorders its
 * input or output. */
#include "nets/onednn/onednn.h"

#include <errno.h>
#include <stdlib.h>

bool cnn_dnnl_is_same_either_way(struct cnn_shape s)
{
    return s.c == 1 || (s.h == 1 && s.w == 1);
}

/* Whether a layer of that kind is elementwise and keeps the layout of its input. */
static bool is_elementwise(enum cnn_layer_kind kind)
{
    return kind == CNN_RELU || kind == CNN_DROPOUT || kind == CNN_LEAKY_RELU || kind == CNN_RELU6 ||
           kind == CNN_SIGMOID || kind == CNN_TANH;
}

static struct cnn_shape shape_of(const struct cnn_plan *p, size_t value)
{
    return value == 0 ? cnn_image_shape(p) : p->layers[value - 1].out;
}

/* Whether all readers of a value, apart from elementwise layers, want [C*H*W]. */
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

/* The library writes [H][W][C]; our max-pool writes the layout that its readers want. */
static void find_flat(struct cnn_dnnl *d)
{
    const struct cnn_plan *p = d->plan;

    for (size_t v = 0; v < p->n_values; v++) {
        const struct cnn_layer *l = v > 0 ? &p->layers[v - 1] : NULL;
        bool flat =
            cnn_dnnl_is_same_either_way(shape_of(p, v)) ||
            ((l == NULL || l->spec->kind == CNN_MAXPOOL) && wants_flat(p, v)) ||
            (l != NULL && is_elementwise(l->spec->kind) && d->layout[l->inputs[0].value] == CNN_DNNL_FLAT);
        d->layout[v] = flat ? CNN_DNNL_FLAT : CNN_DNNL_HWC;
    }
}

static bool keeps_layout(enum cnn_layer_kind kind)
{
    return kind != CNN_CONV && kind != CNN_FC && kind != CNN_LRN && kind != CNN_SOFTMAX_LOSS;
}

/* Grouped convolutions, those fused with their pool, and LRN need [H][W][C] for input and output. */
static void refuse_blocks(const struct cnn_dnnl *d, bool *blocked)
{
    for (size_t i = 0; i < d->plan->n_layers; i++) {
        const struct cnn_dnnl_layer *l = &d->layers[i];
        enum cnn_layer_kind kind = l->plan->spec->kind;
        if ((kind == CNN_CONV && (l->plan->groups > 1 || l->pool != NULL)) || kind == CNN_LRN)
            blocked[i + 1] = blocked[l->plan->inputs[0].value] = false;
    }
}

/* One pass: the values that a layer reads and writes in the same layout are all blocked or none is. */
static bool agree(const struct cnn_dnnl *d, bool *blocked)
{
    bool changed = false;

    for (size_t i = 0; i < d->plan->n_layers; i++) {
        const struct cnn_layer *l = &d->plan->layers[i];
        bool all = d->layout[i + 1] == CNN_DNNL_FLAT || blocked[i + 1];
        if (!keeps_layout(l->spec->kind))
            continue;
        for (uint32_t k = 0; k < l->n_inputs; k++)
            all = all && (d->layout[l->inputs[k].value] == CNN_DNNL_FLAT || blocked[l->inputs[k].value]);
        if (all)
            continue;
        for (uint32_t k = 0; k < l->n_inputs; k++) {
            changed = changed || blocked[l->inputs[k].value];
            blocked[l->inputs[k].value] = false;
        }
        changed = changed || blocked[i + 1];
        blocked[i + 1] = false;
    }
    return changed;
}

/* A convolution that writes blocks reads images of few channels as [C][H][W]. */
static bool takes_planes(const struct cnn_dnnl *d)
{
    const struct cnn_plan *p = d->plan;

    for (size_t i = 0; i < p->n_layers; i++)
        for (uint32_t k = 0; k < p->layers[i].n_inputs; k++)
            if (p->layers[i].inputs[k].value == 0 &&
                (p->layers[i].spec->kind != CNN_CONV || d->layout[i + 1] != CNN_DNNL_BLOCKED))
                return false;
    return p->model->channels <= 3;
}

static int find_blocked(struct cnn_dnnl *d)
{
    const struct cnn_plan *p = d->plan;
    bool *blocked = calloc(p->n_layers + 1, sizeof *blocked), any = false;

    if (blocked == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < p->n_layers; i++) {
        any = any || d->layers[i].is_winograd;
        blocked[i + 1] = p->layers[i].out.c % CNN_DNNL_BLOCK == 0 && d->layout[i + 1] != CNN_DNNL_FLAT;
    }
    refuse_blocks(d, blocked);
    while (agree(d, blocked))
        ;
    for (size_t v = 1; any && v < p->n_values; v++)
        if (blocked[v])
            d->layout[v] = CNN_DNNL_BLOCKED;
    if (any && takes_planes(d))
        d->layout[0] = CNN_DNNL_FLAT;
    free(blocked);
    return 0;
}

/* Contiguous channels of a value. */
static uint32_t block_of(const struct cnn_dnnl *d, size_t value)
{
    struct cnn_shape s = shape_of(d->plan, value);

    switch (d->layout[value]) {
    case CNN_DNNL_BLOCKED:
        return CNN_DNNL_BLOCK;
    case CNN_DNNL_FLAT:
        return cnn_dnnl_is_same_either_way(s) ? s.c : 1;
    default:
        return s.c;
    }
}

static void tell_layers(struct cnn_dnnl *d)
{
    for (size_t i = 0; i < d->plan->n_layers; i++) {
        struct cnn_dnnl_layer *l = &d->layers[i];
        size_t in = l->plan->inputs[0].value;
        l->in_layout = d->layout[in];
        l->out_layout = d->layout[i + 1];
        l->in_block = block_of(d, in);
        l->out_block = block_of(d, i + 1);
        /* For a value of one position both layouts are equal; a pool with several outputs treats it as the
         * layout of its output. */
        if (cnn_dnnl_is_same_either_way(l->plan->in) && l->out_layout != CNN_DNNL_FLAT)
            l->in_block = l->out_block;
    }
}

/* The only layer that reads the output of layer i; NULL if there are several, or if it is a loss. */
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

/* Whether the ReLU is the only reader of its input, and that input is a layer's output. */
static bool can_defer(const struct cnn_dnnl *d, const struct cnn_layer *l)
{
    size_t value = l->inputs[0].value;
    return l->spec->kind == CNN_RELU && value > 0 && d->plan->n_readers[value] == 1;
}

/* Fuses a ReLU into the max-pool after it: it then runs on fewer values, and the pool directly follows its
 * convolution. */
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

/* Fuses a ReLU into the batchnorm or add before it if it is the only reader. */
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

/* Logits stay float32 where a fully connected layer writes them for losses alone. */
static void widen_logits(struct cnn_dnnl *d)
{
    const struct cnn_plan *p = d->plan;

    for (size_t i = 0; i < p->n_layers; i++)
        d->layers[i].is_wide = p->layers[i].spec->kind == CNN_FC;
    for (size_t i = 0; i < p->n_layers; i++)
        for (uint32_t k = 0; k < p->layers[i].n_inputs; k++)
            if (p->layers[i].inputs[k].value > 0 && !cnn_is_loss(&p->layers[i]))
                d->layers[p->layers[i].inputs[k].value - 1].is_wide = false;
    for (size_t i = 0; i < p->n_layers; i++)
        if (cnn_is_loss(&p->layers[i]))
            d->layers[i].is_wide =
                p->layers[i].inputs[0].value > 0 && d->layers[p->layers[i].inputs[0].value - 1].is_wide;
}

int cnn_dnnl_choose(struct cnn_dnnl *d)
{
    d->layout = calloc(d->plan->n_values, sizeof *d->layout);
    if (d->layout == NULL)
        return -ENOMEM;
    pair_with_pools(d);
    pair_with_producers(d);
    widen_logits(d);
    for (size_t i = 0; i < d->plan->n_layers; i++)
        if (d->layers[i].pool == NULL)
            d->layers[i].is_winograd = cnn_dnnl_can_winograd(d, &d->layers[i]);
    find_flat(d);
    if (find_blocked(d) < 0)
        return -ENOMEM;
    tell_layers(d);
    return 0;
}
