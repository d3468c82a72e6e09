/* plan.c: computes the layout of a model's parameters and their initial values. */
#include "nets/layers/layer.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A larger model is taken for a mistake in its table. */
#define MAX_FLOATS (UINT64_C(1) << 40)

static int shape_fits(struct cnn_shape s)
{
    return s.c >= 1 && s.h >= 1 && s.w >= 1 && s.c <= CNN_MAX_SIDE && s.h <= CNN_MAX_SIDE &&
           s.w <= CNN_MAX_SIDE;
}

static int plan_params(struct cnn_plan *p, struct cnn_layer *l, struct ps_error *err)
{
    l->n_weights = l->weight_dims > 0 ? 1 : 0;
    for (uint32_t d = 0; d < l->weight_dims; d++)
        if (__builtin_mul_overflow(l->n_weights, l->weight_shape[d], &l->n_weights))
            l->n_weights = MAX_FLOATS;
    l->n_biases = l->weight_dims > 0 && !l->spec->has_no_bias ? l->weight_shape[0] : 0;
    l->trains = l->weight_dims > 0 && !l->spec->is_frozen;
    l->weight_at = p->n_floats;
    l->bias_at = p->n_floats + l->n_weights;
    l->mean_at = l->bias_at + l->n_biases;
    l->variance_at = l->mean_at + l->n_buffers;
    p->n_floats = l->variance_at + l->n_buffers;
    size_t suffix = l->n_buffers > 0 ? strlen(".running_variance") : strlen(".weight");
    if (l->weight_dims > 0 && strlen(l->spec->name) + suffix > CNN_MAX_NAME)
        return ps_fail(err, -EINVAL, "layer '%s': its tensors' names are longer than %d bytes", l->spec->name,
                       CNN_MAX_NAME);
    if (l->n_weights >= MAX_FLOATS || p->n_floats > MAX_FLOATS)
        return ps_fail(err, -EINVAL, "model '%s': more than %llu parameters at layer '%s'", p->model->name,
                       (unsigned long long)MAX_FLOATS, l->spec->name);
    return 0;
}

static int check_name(const struct cnn_plan *p, size_t i, struct ps_error *err)
{
    const char *name = p->model->layers[i].name;

    if (name == NULL || name[0] == 0 || strlen(name) > CNN_MAX_NAME)
        return ps_fail(err, -EINVAL, "model '%s': layer %zu needs a name of 1 to %d bytes", p->model->name, i,
                       CNN_MAX_NAME);
    if (strcmp(name, "images") == 0)
        return ps_fail(err, -EINVAL, "model '%s': layer %zu is named 'images', which is the net's input",
                       p->model->name, i);
    for (size_t k = 0; k < i; k++)
        if (strcmp(name, p->model->layers[k].name) == 0)
            return ps_fail(err, -EINVAL, "model '%s': layers %zu and %zu are both named '%s'", p->model->name,
                           k, i, name);
    return 0;
}

/* The number of the value with that name before layer i; SIZE_MAX if there is none. */
static size_t value_named(const struct cnn_plan *p, size_t i, const char *name)
{
    if (strcmp(name, "images") == 0)
        return 0;
    for (size_t k = 0; k < i; k++)
        if (strcmp(name, p->layers[k].spec->name) == 0)
            return k + 1;
    return SIZE_MAX;
}

static int plan_inputs(struct cnn_plan *p, size_t i, struct ps_error *err)
{
    struct cnn_layer *l = &p->layers[i];
    const struct cnn_model *m = p->model;
    const char *const *names = l->spec->inputs;

    for (l->n_inputs = 0; l->n_inputs < CNN_MAX_INPUTS && names[l->n_inputs] != NULL; l->n_inputs++) {
        l->inputs[l->n_inputs].value = value_named(p, i, names[l->n_inputs]);
        if (l->inputs[l->n_inputs].value == SIZE_MAX)
            return ps_fail(
                err, -EINVAL,
                "layer '%s': input '%.127s' is not a layer before it; those and 'images' are allowed",
                l->spec->name, names[l->n_inputs]);
    }
    if (l->n_inputs == 0)
        l->inputs[l->n_inputs++].value = i;
    if ((l->n_inputs > 1) != (l->type->most_inputs > 1))
        return ps_fail(err, -EINVAL, "layer '%s': %u inputs; a layer of kind %s has %s", l->spec->name,
                       l->n_inputs, l->type->kind, l->type->most_inputs > 1 ? "two to eight" : "one");
    for (uint32_t k = 0; k < l->n_inputs; k++) {
        struct cnn_input *in = &l->inputs[k];
        const struct cnn_layer *from = in->value > 0 ? &p->layers[in->value - 1] : NULL;
        if (from != NULL && cnn_is_loss(from))
            return ps_fail(err, -EINVAL, "layer '%s': input '%s' is a softmax loss, which no layer reads",
                           l->spec->name, from->spec->name);
        in->shape = from != NULL ? from->out : (struct cnn_shape){m->channels, m->height, m->width};
        in->wants_grad = from != NULL && (from->wants_din || from->trains);
        l->wants_din = l->wants_din || in->wants_grad;
        p->n_readers[in->value]++;
    }
    l->in = l->inputs[0].shape;
    return 0;
}

static int plan_layer(struct cnn_plan *p, size_t i, struct ps_error *err)
{
    struct cnn_layer *l = &p->layers[i];
    const struct cnn_model *m = p->model;
    int rc;

    l->spec = &m->layers[i];
    l->type = cnn_layer_type_of(l->spec->kind);
    l->index = i;
    if (l->type == NULL)
        return ps_fail(err, -EINVAL, "model '%s': layer %zu is of kind %d, which is not known", m->name, i,
                       (int)l->spec->kind);
    if ((rc = check_name(p, i, err)) < 0)
        return rc;
    if (i + 1 == m->n_layers && !cnn_is_loss(l))
        return ps_fail(err, -EINVAL, "model '%s': the last layer is not a softmax loss", m->name);
    if (l->spec->is_frozen && (l->spec->kind != CNN_CONV && l->spec->kind != CNN_FC))
        return ps_fail(err, -EINVAL, "layer '%s': a %s cannot be frozen; conv and fc can", l->spec->name,
                       l->type->kind);
    l->n_out = l->spec->n_out == CNN_CLASSES ? m->classes : l->spec->n_out;
    if ((rc = plan_inputs(p, i, err)) < 0)
        return rc;
    for (uint32_t k = 0; k < l->n_inputs; k++) {
        struct cnn_shape s = l->inputs[k].shape;
        if (!shape_fits(s))
            return ps_fail(err, -EINVAL,
                           "model '%s': layer '%s' has an input of %u x %u x %u; sides are 1 to %d", m->name,
                           l->spec->name, s.c, s.h, s.w, CNN_MAX_SIDE);
    }
    if ((rc = l->type->plan(l, err)) < 0)
        return rc;
    if (l->fan_in > 0 &&
        (l->spec->filler > CNN_FILL_CONSTANT || !isfinite(l->spec->fill) || !isfinite(l->spec->bias_fill)))
        return ps_fail(err, -EINVAL, "layer '%s': filler %d with %g, biases %g; see enum cnn_filler",
                       l->spec->name, (int)l->spec->filler, (double)l->spec->fill,
                       (double)l->spec->bias_fill);
    return plan_params(p, l, err);
}

/* A loss may have nothing to train before it, as an auxiliary one of a net whose last layer alone is trained.
 * What is trained is before some loss, because each layer is read. */
static int check_whole(const struct cnn_plan *p, struct ps_error *err)
{
    const struct cnn_model *m = p->model;
    bool trains = false;

    for (size_t i = 0; i < p->n_layers; i++) {
        const struct cnn_layer *l = &p->layers[i];
        trains = trains || l->trains;
        if (!cnn_is_loss(l) && p->n_readers[i + 1] == 0)
            return ps_fail(err, -EINVAL, "model '%s': no layer reads layer '%s'", m->name, l->spec->name);
        if (cnn_is_loss(l) && l->in.c != m->classes)
            return ps_fail(err, -EINVAL, "model '%s' has %u classes but its last layer %u outputs", m->name,
                           m->classes, l->in.c);
    }
    return trains ? 0 : ps_fail(err, -EINVAL, "model '%s' has no parameters to train", m->name);
}

/* Marks the layers that the first loss depends on. */
static void mark_scored(struct cnn_plan *p)
{
    p->main_loss = 0;
    while (!cnn_is_loss(&p->layers[p->main_loss]))
        p->main_loss++;
    p->layers[p->main_loss].is_scored = true;
    for (size_t i = p->main_loss + 1; i-- > 0;)
        for (uint32_t k = 0; p->layers[i].is_scored && k < p->layers[i].n_inputs; k++)
            if (p->layers[i].inputs[k].value > 0)
                p->layers[p->layers[i].inputs[k].value - 1].is_scored = true;
}

int cnn_plan_create(const struct cnn_model *model, struct cnn_plan **out, struct ps_error *err)
{
    if (model == NULL || model->n_layers < 2)
        return ps_fail(err, -EINVAL, "a model has at least two layers, one with parameters and the loss");

    struct cnn_plan *p = calloc(1, sizeof *p + model->n_layers * sizeof p->layers[0]);
    if (p == NULL || (p->n_readers = calloc(model->n_layers + 1, sizeof *p->n_readers)) == NULL) {
        free(p);
        return ps_fail(err, -ENOMEM, "no memory for model '%s'", model->name);
    }
    p->model = model;
    p->n_layers = model->n_layers;
    p->n_values = model->n_layers + 1;
    int rc = 0;
    for (size_t i = 0; i < p->n_layers && rc == 0; i++)
        rc = plan_layer(p, i, err);
    if (rc == 0)
        rc = check_whole(p, err);
    if (rc < 0) {
        cnn_plan_destroy(p);
        return rc;
    }
    mark_scored(p);
    *out = p;
    return 0;
}

void cnn_plan_destroy(struct cnn_plan *plan)
{
    if (plan == NULL)
        return;
    free(plan->n_readers);
    free(plan);
}

size_t cnn_model_n_floats(const struct cnn_model *model)
{
    struct cnn_plan *p;
    size_t n = 0;

    if (cnn_plan_create(model, &p, NULL) == 0) {
        n = p->n_floats;
        cnn_plan_destroy(p);
    }
    return n;
}

#define MAX_ROWS_A_LAYER 4

static struct cnn_param *add_row(struct cnn_param *row, const struct cnn_layer *l, const char *what,
                                 uint64_t offset, uint64_t n)
{
    snprintf(row->name, sizeof row->name, "%s.%s", l->spec->name, what);
    row->role = l->spec->is_frozen ? CNN_FROZEN : CNN_PARAM;
    row->offset = offset;
    row->shape[0] = n;
    row->n_dims = 1;
    row->decay = CNN_NO_DECAY;
    return row;
}

/* Returns the number of rows written. */
static size_t describe(const struct cnn_layer *l, struct cnn_param rows[MAX_ROWS_A_LAYER])
{
    if (l->weight_dims == 0)
        return 0;
    struct cnn_param *weight = add_row(&rows[0], l, "weight", l->weight_at, l->n_weights);
    memcpy(weight->shape, l->weight_shape, l->weight_dims * sizeof l->weight_shape[0]);
    weight->n_dims = l->weight_dims;
    weight->fan_in = l->fan_in;
    weight->filler = l->spec->filler;
    weight->decay = l->fan_in > 0 ? CNN_DECAY : CNN_NO_DECAY;
    if (l->n_biases == 0)
        return 1;
    add_row(&rows[1], l, "bias", l->bias_at, l->n_biases);
    if (l->n_buffers == 0)
        return 2;
    add_row(&rows[2], l, "running_mean", l->mean_at, l->n_buffers)->role = CNN_BUFFER;
    add_row(&rows[3], l, "running_variance", l->variance_at, l->n_buffers)->role = CNN_BUFFER;
    return 4;
}

int cnn_model_params(const struct cnn_model *model, struct cnn_param **out, size_t *n, struct ps_error *err)
{
    struct cnn_plan *p;
    int rc = cnn_plan_create(model, &p, err);
    if (rc < 0)
        return rc;

    struct cnn_param *rows = calloc(MAX_ROWS_A_LAYER * p->n_layers, sizeof *rows);
    if (rows == NULL) {
        rc = ps_fail(err, -ENOMEM, "no memory for the parameters of model '%s'", model->name);
        goto destroy_plan;
    }
    size_t n_rows = 0;
    for (size_t i = 0; i < p->n_layers; i++)
        n_rows += describe(&p->layers[i], &rows[n_rows]);
    *out = rows;
    *n = n_rows;

destroy_plan:
    cnn_plan_destroy(p);
    return rc;
}

double cnn_model_train_flops(const struct cnn_model *model)
{
    struct cnn_plan *p;
    double flops = 0;

    if (cnn_plan_create(model, &p, NULL) < 0)
        return 0;
    for (size_t i = 0; i < p->n_layers; i++) {
        const struct cnn_layer *l = &p->layers[i];
        if (l->type->multiply_adds != NULL)
            flops += 2 * (1 + l->wants_din + l->trains) * l->type->multiply_adds(l);
    }
    cnn_plan_destroy(p);
    return flops;
}

/* The finalizer of SplitMix64 (Steele et al. 2014): a bijection that scatters every bit. */
static uint64_t scatter(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* Draw number `draw` (below 16) for the float at `at`: 24 bits, a function of the three numbers only. */
static int32_t draw_24_bits(uint64_t seed, uint64_t at, uint32_t draw)
{
    uint64_t key = scatter(seed + UINT64_C(0x9e3779b97f4a7c15));
    return (int32_t)(scatter(key + (at * 16 + draw) * UINT64_C(0x9e3779b97f4a7c15)) >> 40);
}

/* Uses only integers, sqrt and one product, each exact or correctly rounded: the bits are the same on every
 * machine. Uniform over the midpoints of 2^24 equal cells of (-1, 1). */
static float xavier(uint64_t seed, uint64_t at, float scale)
{
    int32_t u = 2 * draw_24_bits(seed, at, 0) + 1 - (1 << 24);
    return (float)u * 0x1p-24f * scale;
}

/* Normal: the sum of 12 uniforms of (0, 1) less 6 has mean 0 and variance 1 (Irwin and Hall), without the
 * logarithm and cosine of Box and Muller, whose last bit depends on the library. No value exceeds 6 sigma. */
static float normal(uint64_t seed, uint64_t at, float scale)
{
    int32_t sum = -6 * (1 << 24) + 6;
    for (uint32_t k = 0; k < 12; k++)
        sum += draw_24_bits(seed, at, k);
    return (float)sum * 0x1p-24f * scale;
}

static void fill_all(float *x, uint64_t n, float value)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = value;
}

static void fill_weights(const struct cnn_layer *l, uint64_t seed, float *x)
{
    uint64_t end = l->weight_at + l->n_weights;

    switch (l->spec->filler) {
    case CNN_FILL_CONSTANT:
        fill_all(x + l->weight_at, l->n_weights, l->spec->fill);
        return;
    case CNN_FILL_XAVIER:
        for (uint64_t at = l->weight_at; at < end; at++)
            x[at] = xavier(seed, at, (float)sqrt(3.0 / l->fan_in));
        return;
    case CNN_FILL_MSRA:
        for (uint64_t at = l->weight_at; at < end; at++)
            x[at] = normal(seed, at, (float)sqrt(2.0 / l->fan_in));
        return;
    case CNN_FILL_GAUSSIAN:
        for (uint64_t at = l->weight_at; at < end; at++)
            x[at] = normal(seed, at, l->spec->fill);
        return;
    }
}

static void fill_layer(const struct cnn_layer *l, uint64_t seed, float *x)
{
    if (l->fan_in == 0)
        fill_all(x + l->weight_at, l->n_weights, 1);
    else
        fill_weights(l, seed, x);
    fill_all(x + l->bias_at, l->n_biases, l->spec->bias_fill);
    fill_all(x + l->mean_at, l->n_buffers, 0);
    fill_all(x + l->variance_at, l->n_buffers, 1);
}

int cnn_model_fill(const struct cnn_model *model, uint64_t seed, float *x)
{
    struct cnn_plan *p;
    int rc = cnn_plan_create(model, &p, NULL);
    if (rc < 0)
        return rc;
    for (size_t i = 0; i < p->n_layers; i++)
        if (p->layers[i].weight_dims > 0)
            fill_layer(&p->layers[i], seed, x);
    cnn_plan_destroy(p);
    return 0;
}
