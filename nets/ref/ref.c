/* ref.c: the reference backend: simple code that the other backends are tested against. One thread. */
#include "nets/backend.h"
#include "nets/layers/layer.h"
#include "nets/ref/ref.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>

static const struct cnn_ref_layer *const layers[] = {
    [CNN_CONV] = &cnn_ref_conv,
    [CNN_MAXPOOL] = &cnn_ref_maxpool,
    [CNN_RELU] = &cnn_ref_activation,
    [CNN_FC] = &cnn_ref_fc,
    [CNN_AVGPOOL] = &cnn_ref_avgpool,
    [CNN_GLOBAL_AVGPOOL] = &cnn_ref_avgpool,
    [CNN_DROPOUT] = &cnn_ref_dropout,
    [CNN_LRN] = &cnn_ref_lrn,
    [CNN_BATCHNORM] = &cnn_ref_batchnorm,
    [CNN_CONCAT] = &cnn_ref_concat,
    [CNN_ADD] = &cnn_ref_add,
    [CNN_GLOBAL_MAXPOOL] = &cnn_ref_maxpool,
    [CNN_LEAKY_RELU] = &cnn_ref_activation,
    [CNN_RELU6] = &cnn_ref_activation,
    [CNN_SIGMOID] = &cnn_ref_activation,
    [CNN_TANH] = &cnn_ref_activation,
};

struct ref {
    const struct cnn_plan *plan;
    const struct cnn_memory *memory;
    uint32_t batch;
    char *arena;   /* values are double, [batch][C][H][W] */
    double *g;     /* [n_floats] */
    double *z;     /* [classes], the gradient of a loss for one image */
    double *stats; /* 2 n_buffers for each batchnorm; valid until the next gradient */
    size_t n_stats;
};

static size_t value_bytes(enum cnn_precision precision)
{
    (void)precision;
    return sizeof(double);
}

static enum cnn_reads back_reads_in(const struct cnn_layer *l)
{
    switch (l->spec->kind) {
    case CNN_AVGPOOL:
    case CNN_GLOBAL_AVGPOOL:
    case CNN_DROPOUT:
    case CNN_CONCAT:
    case CNN_ADD:
        return CNN_READS_NOTHING;
    default:
        return CNN_READS_VALUE;
    }
}

/* No two values share memory, so that each layer can be read on its own. */
static int needs(const struct cnn_setup *setup, struct cnn_needs *out, size_t *own_bytes,
                 struct ps_error *err)
{
    (void)err;
    *own_bytes = setup->plan->n_floats * sizeof(double);
    for (size_t i = 0; i < setup->plan->n_layers; i++) {
        const struct cnn_layer *l = &setup->plan->layers[i];
        out[i] = (struct cnn_needs){
            .back_reads_in = back_reads_in(l),
            .back_reads_out =
                layers[l->spec->kind] == &cnn_ref_activation ? CNN_READS_VALUE : CNN_READS_NOTHING,
            .kept_bytes = l->spec->kind == CNN_DROPOUT ? cnn_shape_count(l->in) * setup->batch : 0,
        };
    }
    return 0;
}

static void destroy(void *state)
{
    struct ref *r = state;

    free(r->arena);
    free(r->g);
    free(r->z);
    free(r->stats);
    free(r);
}

static size_t own_bytes(const void *state)
{
    const struct ref *r = state;
    return (r->plan->n_floats + r->plan->model->classes + r->n_stats) * sizeof(double);
}

static int create(const struct cnn_setup *setup, const struct cnn_memory *memory, void **state,
                  struct ps_error *err)
{
    struct ref *r = calloc(1, sizeof *r);

    if (r == NULL)
        return ps_fail(err, -ENOMEM, "no memory for the ref backend");
    r->plan = setup->plan;
    r->memory = memory;
    r->batch = setup->batch;
    for (size_t i = 0; i < r->plan->n_layers; i++)
        r->n_stats += 2 * r->plan->layers[i].n_buffers;
    r->arena = calloc(1, memory->arena_bytes);
    r->g = calloc(r->plan->n_floats, sizeof *r->g);
    r->z = calloc(r->plan->model->classes, sizeof *r->z);
    r->stats = calloc(r->n_stats + 1, sizeof *r->stats);
    if (r->arena == NULL || r->g == NULL || r->z == NULL || r->stats == NULL) {
        destroy(r);
        return ps_fail(err, -ENOMEM, "no memory for a batch of %u in the ref backend", setup->batch);
    }
    *state = r;
    return 0;
}

static double *value(const struct ref *r, size_t v)
{
    return cnn_place(r->arena, r->memory->value_at[v]);
}

/* The batch statistics of layer i. */
static double *stats_of(const struct ref *r, size_t i)
{
    double *at = r->stats;
    for (size_t k = 0; k < i; k++)
        at += 2 * r->plan->layers[k].n_buffers;
    return at;
}

static struct cnn_ref_pass pass_of(struct ref *r, size_t i, uint32_t n, const struct cnn_draw *draw,
                                   const float *x)
{
    const struct cnn_layer *l = &r->plan->layers[i];
    struct cnn_ref_pass p = {.plan = l,
                             .n = n,
                             .is_training = draw != NULL,
                             .draw = draw,
                             .x = x,
                             .out = value(r, i + 1),
                             .stats = stats_of(r, i),
                             .keep = cnn_place(r->arena, r->memory->layers[i].kept_at)};

    for (uint32_t k = 0; k < l->n_inputs; k++)
        p.in[k] = value(r, l->inputs[k].value);
    return p;
}

static void place_images(struct ref *r, const struct cnn_batch *batch)
{
    struct cnn_shape s = cnn_image_shape(r->plan);
    double *out = value(r, 0);

    assert(out != NULL); /* every plan has memory for the images */
    for (uint32_t i = 0; i < batch->n; i++)
        for (size_t c = 0; c < s.c; c++)
            for (size_t place = 0; place < (size_t)s.h * s.w; place++)
                *out++ = (double)(batch->cuts != NULL ? cnn_cut_value(batch, s, i, c, place)
                                                      : cnn_batch_value(batch, s, i, c, place));
}

/* draw NULL: scoring. */
static void forward(struct ref *r, const struct cnn_draw *draw, const float *x, const struct cnn_batch *batch)
{
    const struct cnn_plan *p = r->plan;

    place_images(r, batch);
    for (size_t i = 0; i < p->n_layers; i++) {
        if (cnn_is_loss(&p->layers[i]) || (draw == NULL && !p->layers[i].is_scored))
            continue;
        struct cnn_ref_pass pass = pass_of(r, i, batch->n, draw, x);
        layers[p->layers[i].spec->kind]->forward(&pass);
    }
}

/* One loss: its weighted mean and the counts of correct images. dlogits: its gradient, written or added;
 * NULL: not wanted. */
static struct cnn_score loss(struct ref *r, size_t layer, const struct cnn_batch *batch, double *dlogits,
                             bool adds, double smoothing)
{
    const struct cnn_layer *l = &r->plan->layers[layer];
    uint32_t classes = r->plan->model->classes, rank;
    const double *z = value(r, l->inputs[0].value);
    double weight = cnn_loss_weight(l), sum = 0;
    struct cnn_score s = {0};

    for (uint32_t i = 0; i < batch->n; i++, z += classes) {
        sum += cnn_softmax_loss_row(classes, z, batch->labels[i], smoothing, r->z, &rank);
        s.n_correct += rank == 0;
        s.n_correct_5 += rank < 5;
        for (size_t k = 0; dlogits != NULL && k < classes; k++) {
            double d = weight * r->z[k] / batch->n, *to = &dlogits[i * (size_t)classes + k];
            *to = adds ? *to + d : d;
        }
    }
    s.loss = weight * (sum / batch->n);
    return s;
}

static int score(void *state, const float *x, const struct cnn_batch *batch,
                 const struct cnn_predictions *out, struct cnn_score *score, struct ps_error *err)
{
    struct ref *r = state;
    uint32_t classes = r->plan->model->classes;

    (void)err;
    forward(r, NULL, x, batch);
    *score = loss(r, r->plan->main_loss, batch, NULL, false, 0);
    const double *z = value(r, r->plan->layers[r->plan->main_loss].inputs[0].value);
    for (uint32_t i = 0; i < batch->n; i++)
        cnn_softmax_predict(classes, z + (size_t)i * classes, r->z, i, out);
    return 0;
}

static void back_loss(struct ref *r, size_t i, const struct cnn_gradient_call *call, struct cnn_score *out)
{
    const struct cnn_layer_places *at = &r->memory->layers[i];
    struct cnn_score s = loss(r, i, call->batch, cnn_place(r->arena, at->din_at[0]),
                              at->sum_at[0] != CNN_NOWHERE, call->label_smoothing);

    out->loss += s.loss;
    if (i == r->plan->main_loss) {
        out->n_correct = s.n_correct;
        out->n_correct_5 = s.n_correct_5;
    }
}

static void back_layer(struct ref *r, size_t i, const struct cnn_gradient_call *call)
{
    const struct cnn_layer *l = &r->plan->layers[i];
    const struct cnn_layer_places *at = &r->memory->layers[i];
    struct cnn_ref_pass pass = pass_of(r, i, r->batch, call->draw, call->x);
    double *din[CNN_MAX_INPUTS];

    for (uint32_t k = 0; k < l->n_inputs; k++)
        din[k] = cnn_place(r->arena, at->din_at[k]);
    layers[l->spec->kind]->backward(&pass, cnn_place(r->arena, r->memory->gradient_at[i + 1]), din, r->g);
    for (uint32_t k = 0; k < l->n_inputs; k++) {
        double *sum = cnn_place(r->arena, at->sum_at[k]);
        size_t n = cnn_shape_count(l->inputs[k].shape) * r->batch;
        for (size_t e = 0; sum != NULL && e < n; e++)
            sum[e] += din[k][e];
    }
}

static int gradient(void *state, const struct cnn_gradient_call *call, struct cnn_score *out,
                    struct ps_error *err)
{
    struct ref *r = state;
    const struct cnn_plan *p = r->plan;

    (void)err;
    *out = (struct cnn_score){0};
    forward(r, call->draw, call->x, call->batch);
    for (size_t i = p->n_layers; i-- > 0;) {
        const struct cnn_layer *l = &p->layers[i];
        uint64_t end = l->weight_at + l->n_weights + l->n_biases + 2 * l->n_buffers;
        if (cnn_is_loss(l))
            back_loss(r, i, call, out);
        if (cnn_goes_back(l))
            back_layer(r, i, call);
        for (uint64_t k = l->weight_at; k < end; k++)
            call->g[k] = l->trains ? (float)r->g[k] : 0;
        cnn_tell_ready(call, l);
    }
    return 0;
}

static void update_buffers(void *state, float *x)
{
    const struct ref *r = state;

    for (size_t i = 0; i < r->plan->n_layers; i++) {
        const struct cnn_layer *l = &r->plan->layers[i];
        const double *stats = stats_of(r, i);
        for (uint32_t c = 0; c < l->n_buffers; c++)
            cnn_batchnorm_move(l, c, stats[c], stats[l->in.c + c], (size_t)r->batch * l->in.h * l->in.w, x);
    }
}

static bool cuts(const void *state, uint32_t stored_height, uint32_t stored_width)
{
    (void)state;
    (void)stored_height;
    (void)stored_width;
    return true;
}

const struct cnn_backend cnn_backend_ref = {
    .name = "ref",
    .precisions = 1 << CNN_FLOAT32,
    .value_bytes = value_bytes,
    .needs = needs,
    .create = create,
    .destroy = destroy,
    .own_bytes = own_bytes,
    .score = score,
    .gradient = gradient,
    .cuts = cuts,
    .update_buffers = update_buffers,
};
