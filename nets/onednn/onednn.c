/* onednn.c: the backend for CPUs. create allocates all buffers and creates all primitives; a step only runs
 * them.
 *
 * Threads: an OpenMP team per net, of the size it was created with. OpenMP keeps the size per calling thread,
 * so it is set on entry and restored on return. Threads are not pinned, because several processes may share
 * the machine. */
#include "nets/onednn/onednn.h"

#include <errno.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "nets/backend.h"
#include "nets/layers/layer.h"

/* The most objects of one layer: a convolution has 10 primitives with a scratchpad each and 15 tensors. */
#define MAX_PRIMITIVES 12
#define MAX_MEMORIES   32

static const struct cnn_dnnl_kind *const kinds[] = {
    [CNN_CONV] = &cnn_dnnl_conv,
    [CNN_MAXPOOL] = &cnn_dnnl_maxpool,
    [CNN_RELU] = &cnn_dnnl_relu,
    [CNN_FC] = &cnn_dnnl_fc,
    [CNN_AVGPOOL] = &cnn_dnnl_avgpool,
    [CNN_GLOBAL_AVGPOOL] = &cnn_dnnl_avgpool,
    [CNN_DROPOUT] = &cnn_dnnl_dropout,
    [CNN_LRN] = &cnn_dnnl_lrn,
    [CNN_BATCHNORM] = &cnn_dnnl_batchnorm,
    [CNN_CONCAT] = &cnn_dnnl_concat,
    [CNN_ADD] = &cnn_dnnl_add,
    [CNN_GLOBAL_MAXPOOL] = &cnn_dnnl_maxpool,
    [CNN_LEAKY_RELU] = &cnn_dnnl_activation,
    [CNN_RELU6] = &cnn_dnnl_activation,
    [CNN_SIGMOID] = &cnn_dnnl_activation,
    [CNN_TANH] = &cnn_dnnl_activation,
};

static int probe(enum cnn_precision precision, struct ps_error *err)
{
    if (precision != CNN_BF16 || cnn_kernels_bf16() != NULL)
        return 0;
    return ps_fail(err, -ENOTSUP,
                   "backend 'onednn' computes in bf16 by AVX512_BF16 or AMX, and the CPU has neither, or "
                   "ONEDNN_MAX_CPU_ISA forbids them");
}

static size_t value_bytes(enum cnn_precision precision)
{
    return precision == CNN_BF16 ? sizeof(uint16_t) : sizeof(float);
}

static void destroy(void *state)
{
    struct cnn_dnnl *d = state;

    for (size_t i = 0; i < d->n_primitives; i++)
        dnnl_primitive_destroy(d->primitives[i]);
    for (size_t i = 0; i < d->n_descs; i++)
        dnnl_primitive_desc_destroy(d->descs[i]);
    for (size_t i = 0; i < d->n_memories; i++)
        dnnl_memory_destroy(d->memories[i]);
    for (size_t i = 0; d->layers != NULL && i < d->plan->n_layers; i++) {
        struct cnn_dnnl_layer *l = &d->layers[i];
        if (l->state != NULL && l->kind->destroy != NULL)
            l->kind->destroy(l);
        free(l->state);
    }
    if (d->attr != NULL)
        dnnl_primitive_attr_destroy(d->attr);
    if (d->stream != NULL)
        dnnl_stream_destroy(d->stream);
    if (d->engine != NULL)
        dnnl_engine_destroy(d->engine);
    free(d->arena);
    free(d->layout);
    free(d->images);
    free(d->z);
    free(d->row_loss);
    free(d->row_rank);
    free(d->primitives);
    free(d->descs);
    free(d->memories);
    free(d->scratch.memories);
    free(d->scratch.data);
    free(d->weights.memories);
    free(d->weights.data);
    for (int k = 0; k < 2; k++) {
        free(d->sides[k].memories);
        free(d->sides[k].data);
    }
    free(d->layers);
    free(d);
}

static int create_engine(struct cnn_dnnl *d, struct ps_error *err)
{
    dnnl_status_t st = dnnl_engine_create(&d->engine, dnnl_cpu, 0);

    if (st == dnnl_success)
        st = dnnl_primitive_attr_create(&d->attr);
    if (st == dnnl_success)
        st = dnnl_primitive_attr_set_scratchpad_mode(d->attr, dnnl_scratchpad_mode_user);
    return cnn_dnnl_check(st, "start", NULL, err);
}

/* The common part of needs and create: sets the kind, layout and fusion of all layers. */
static int begin(const struct cnn_setup *setup, struct cnn_dnnl **out, struct ps_error *err)
{
    struct cnn_dnnl *d = calloc(1, sizeof *d);

    if (d == NULL)
        return ps_fail(err, -ENOMEM, "no memory for the onednn backend");
    *out = d;
    d->plan = setup->plan;
    d->floats = cnn_kernels_pick();
    d->kernels = setup->precision == CNN_BF16 ? cnn_kernels_bf16() : d->floats;
    d->type = setup->precision == CNN_BF16 ? dnnl_bf16 : dnnl_f32;
    d->value_bytes = value_bytes(setup->precision);
    d->batch = setup->batch;
    d->threads = setup->threads;
    d->layers = calloc(d->plan->n_layers, sizeof *d->layers);
    for (size_t i = 0; d->layers != NULL && i < d->plan->n_layers; i++) {
        d->layers[i].plan = &d->plan->layers[i];
        d->layers[i].kind = kinds[d->plan->layers[i].spec->kind];
    }
    int rc = create_engine(d, err);
    if (rc == 0 && (d->layers == NULL || cnn_dnnl_choose(d) < 0))
        rc = ps_fail(err, -ENOMEM, "no memory for the onednn backend");
    if (rc < 0)
        destroy(d);
    return rc;
}

/* Bytes of the code that the library generates for the primitives, measured with 4 to 500 of them, on
 * processors with AVX-512 and without. */
static size_t code_bytes(const struct cnn_dnnl *d)
{
    bool is_wide = (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core) == dnnl_cpu_isa_avx512_core;

    return d->n_primitives * (is_wide ? 64 : 32) * 1024;
}

static int create_library_parts(struct cnn_dnnl *d, struct ps_error *err)
{
    size_t n = d->plan->n_layers;
    dnnl_status_t st = dnnl_stream_create(&d->stream, d->engine, dnnl_stream_default_flags);

    d->primitives = calloc(n * MAX_PRIMITIVES, sizeof(dnnl_primitive_t));
    d->descs = calloc(n * MAX_PRIMITIVES, sizeof(dnnl_primitive_desc_t));
    d->memories = calloc(n * MAX_MEMORIES, sizeof(dnnl_memory_t));
    d->scratch.memories = calloc(n * MAX_PRIMITIVES, sizeof(dnnl_memory_t));
    d->weights.memories = calloc(n * MAX_PRIMITIVES, sizeof(dnnl_memory_t));
    d->sides[0].memories = calloc(n * MAX_PRIMITIVES, sizeof(dnnl_memory_t));
    d->sides[1].memories = calloc(n * MAX_PRIMITIVES, sizeof(dnnl_memory_t));
    if (d->primitives == NULL || d->descs == NULL || d->memories == NULL || d->scratch.memories == NULL ||
        d->weights.memories == NULL || d->sides[0].memories == NULL || d->sides[1].memories == NULL)
        st = dnnl_out_of_memory;
    return cnn_dnnl_check(st, "start", NULL, err);
}

/* The layers whose sizes are the library's choice, by processor, shape and number of threads. */
static bool has_primitives(const struct cnn_layer *l)
{
    return l->spec->kind == CNN_CONV || l->spec->kind == CNN_FC;
}

static int create_layer(struct cnn_dnnl *d, struct cnn_dnnl_layer *l, struct ps_error *err)
{
    if (l->kind->state_bytes > 0 && (l->state = calloc(1, l->kind->state_bytes)) == NULL)
        return ps_fail(err, -ENOMEM, "no memory for layer '%s'", l->plan->spec->name);
    return l->kind->create != NULL ? l->kind->create(d, l, err) : 0;
}

/* What create will allocate outside the arena: of primitives as their descriptors say. */
static int plan_own(struct cnn_dnnl *d, size_t *own, struct ps_error *err)
{
    int rc = create_library_parts(d, err);

    d->only_plans = true;
    *own = 0;
    for (size_t i = 0; i < d->plan->n_layers && rc == 0; i++) {
        const struct cnn_layer *l = &d->plan->layers[i];
        if (has_primitives(l))
            rc = create_layer(d, &d->layers[i], err);
        if (l->spec->kind == CNN_BATCHNORM)
            *own += (size_t)l->in.c * (9 + 2 * (size_t)d->batch) * sizeof(float);
    }
    *own += d->scratch.bytes + d->weights.bytes + d->sides[0].bytes + d->sides[1].bytes + code_bytes(d);
    return rc;
}

static int needs(const struct cnn_setup *setup, struct cnn_needs *out, size_t *own_bytes,
                 struct ps_error *err)
{
    struct cnn_dnnl *d;
    int team = omp_get_max_threads();

    omp_set_num_threads((int)setup->threads); /* scratch depends on the number of threads */
    int rc = begin(setup, &d, err);
    if (rc == 0) {
        for (size_t i = 0; i < d->plan->n_layers; i++)
            if (!cnn_is_loss(&d->plan->layers[i]))
                d->layers[i].kind->needs(d, &d->layers[i], &out[i]);
        rc = plan_own(d, own_bytes, err);
        destroy(d);
    }
    omp_set_num_threads(team);
    return rc;
}

static size_t own_bytes(const void *state)
{
    const struct cnn_dnnl *d = state;
    return d->own_bytes + code_bytes(d);
}

/* OpenMP keeps the threads of a team, and their numbers, for the next team of the same size. */
static uint32_t each_thread(void *state, void (*call)(void *arg, uint32_t index), void *arg)
{
    const struct cnn_dnnl *d = state;

#pragma omp parallel num_threads(d->threads)
    call(arg, (uint32_t)omp_get_thread_num());
    return d->threads;
}

static double library_s(const void *state)
{
    return ((const struct cnn_dnnl *)state)->library_s;
}

static int bind_shared(struct cnn_dnnl *d, struct cnn_dnnl_shared *s, struct ps_error *err)
{
    if (s->bytes > 0 && (s->data = cnn_dnnl_buffer(d, s->bytes)) == NULL)
        return ps_fail(err, -ENOMEM, "no memory for %zu bytes of oneDNN scratch", s->bytes);
    for (size_t i = 0; i < s->n; i++)
        cnn_dnnl_bind(s->memories[i], s->data);
    return 0;
}

static int create_layers(struct cnn_dnnl *d, struct ps_error *err)
{
    int rc = 0;

    for (size_t i = 0; i < d->plan->n_layers && rc == 0; i++) {
        struct cnn_dnnl_layer *l = &d->layers[i];
        if (cnn_is_loss(l->plan))
            continue;
        rc = create_layer(d, l, err);
    }
    if (rc == 0)
        rc = bind_shared(d, &d->scratch, err);
    for (int k = 0; k < 2 && rc == 0; k++)
        rc = bind_shared(d, &d->sides[k], err);
    return rc == 0 ? bind_shared(d, &d->weights, err) : rc;
}

/* What images and the rows of a loss pass through. */
static bool create_rows(struct cnn_dnnl *d)
{
    size_t z_bytes = 2 * (size_t)d->plan->model->classes * sizeof *d->z;

    if (d->type != dnnl_f32) {
        size_t image_bytes = cnn_shape_count(cnn_image_shape(d->plan)) * sizeof *d->images;
        d->images = cnn_dnnl_buffer(d, d->threads * image_bytes);
        if (d->images == NULL)
            return false;
    }
    d->z = cnn_dnnl_buffer(d, d->threads * z_bytes);
    d->row_loss = cnn_dnnl_buffer(d, d->batch * sizeof *d->row_loss);
    d->row_rank = cnn_dnnl_buffer(d, d->batch * sizeof *d->row_rank);
    return d->z != NULL && d->row_loss != NULL && d->row_rank != NULL;
}

static int create(const struct cnn_setup *setup, const struct cnn_memory *memory, void **state,
                  struct ps_error *err)
{
    struct cnn_dnnl *d;
    int team = omp_get_max_threads();

    omp_set_num_threads((int)setup->threads); /* a primitive keeps the number of threads at its creation */
    int rc = begin(setup, &d, err);
    if (rc < 0) {
        omp_set_num_threads(team);
        return rc;
    }
    d->arena = cnn_dnnl_buffer(d, memory->arena_bytes);
    d->own_bytes = 0;
    if (d->arena == NULL || !create_rows(d)) {
        rc = ps_fail(err, -ENOMEM, "no memory for the activations of a batch of %u", d->batch);
    } else {
        cnn_dnnl_bind_places(d, memory);
        if ((rc = create_library_parts(d, err)) == 0)
            rc = create_layers(d, err);
    }
    omp_set_num_threads(team);
    if (rc < 0)
        destroy(d);
    else
        *state = d;
    return rc;
}

/* draw NULL: scoring. */
static int forward(struct cnn_dnnl *d, const struct cnn_draw *draw, const float *x,
                   const struct cnn_batch *batch, struct ps_error *err)
{
    d->is_training = draw != NULL;
    d->draw = draw;
    cnn_dnnl_place_images(d, batch);
    for (size_t i = 0; i < d->plan->n_layers; i++) {
        struct cnn_dnnl_layer *l = &d->layers[i];
        if (cnn_is_loss(l->plan) || (draw == NULL && !l->plan->is_scored))
            continue;
        if (l->kind->forward(d, l, x) < 0)
            return ps_fail(err, -EIO, "layer '%s': oneDNN failed forward", l->plan->spec->name);
    }
    return 0;
}

/* Fewer logits than this take less time than a second thread needs to begin. */
#define MANY_LOGITS 4096

/* The logits of image i, in the calling thread's part of d->z. */
static double *logits_of(const struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, uint32_t i)
{
    size_t classes = d->plan->model->classes;
    double *z = d->z + 2 * classes * (size_t)omp_get_thread_num();

    if (l->is_wide)
        d->floats->to_doubles((const float *)l->in[0] + i * classes, z, classes);
    else
        d->kernels->to_doubles(cnn_dnnl_in(d, l->in[0], i * classes), z, classes);
    return z;
}

/* Loss and rank of image i. dlogits: of the whole batch, or NULL. */
static void loss_row(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l, const struct cnn_batch *batch,
                     uint32_t i, void *dlogits, bool adds, double smoothing)
{
    uint32_t classes = d->plan->model->classes;
    double *z = logits_of(d, l, i), *dz = z + classes, weight = cnn_loss_weight(l->plan);

    d->row_loss[i] = cnn_softmax_loss_row(classes, z, batch->labels[i], smoothing, dz, &d->row_rank[i]);
    if (dlogits == NULL)
        return;
    for (uint32_t k = 0; k < classes; k++)
        dz[k] = weight * dz[k] / batch->n;
    d->kernels->from_doubles(dz, cnn_dnnl_at(d, dlogits, i * (size_t)classes), adds, classes);
}

/* One loss: its weighted mean and the counts of correct images. dlogits: its gradient, written or added;
 * NULL: not wanted. */
static struct cnn_score loss(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l,
                             const struct cnn_batch *batch, void *dlogits, bool adds, double smoothing)
{
    bool is_large = (size_t)batch->n * d->plan->model->classes >= MANY_LOGITS;
    struct cnn_score s = {0};
    double sum = 0;

#pragma omp parallel for num_threads(d->threads) if (d->threads > 1 && is_large)
    for (uint32_t i = 0; i < batch->n; i++)
        loss_row(d, l, batch, i, dlogits, adds, smoothing);
    for (uint32_t i = 0; i < batch->n; i++) {
        sum += d->row_loss[i];
        s.n_correct += d->row_rank[i] == 0;
        s.n_correct_5 += d->row_rank[i] < 5;
    }
    s.loss = cnn_loss_weight(l->plan) * (sum / batch->n);
    return s;
}

static void add_parts(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l)
{
    for (uint32_t k = 0; k < l->plan->n_inputs; k++) {
        size_t n = d->batch * cnn_shape_count(l->plan->inputs[k].shape), pieces = cnn_dnnl_n_pieces(n);
        if (l->sum[k] == NULL)
            continue;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
        for (size_t i = 0; i < pieces; i++)
            d->kernels->add(cnn_dnnl_at(d, l->sum[k], i * CNN_DNNL_PIECE),
                            cnn_dnnl_at(d, l->sum[k], i * CNN_DNNL_PIECE),
                            cnn_dnnl_at(d, l->din[k], i * CNN_DNNL_PIECE), false, cnn_dnnl_piece(n, i));
    }
}

static void back_loss(struct cnn_dnnl *d, const struct cnn_dnnl_layer *l,
                      const struct cnn_gradient_call *call, struct cnn_score *out)
{
    struct cnn_score s = loss(d, l, call->batch, l->din[0], l->sum[0] != NULL, call->label_smoothing);

    out->loss += s.loss;
    if (l->plan->index == d->plan->main_loss) {
        out->n_correct = s.n_correct;
        out->n_correct_5 = s.n_correct_5;
    }
}

static int backward(struct cnn_dnnl *d, const struct cnn_gradient_call *call, struct cnn_score *out,
                    struct ps_error *err)
{
    for (size_t i = d->plan->n_layers; i-- > 0;) {
        struct cnn_dnnl_layer *l = &d->layers[i];
        const struct cnn_layer *p = l->plan;
        if (cnn_is_loss(p)) {
            back_loss(d, l, call, out);
            continue;
        }
        if (!p->trains)
            memset(call->g + p->weight_at, 0, (p->n_weights + p->n_biases) * sizeof *call->g);
        if (cnn_goes_back(p)) {
            if (l->kind->backward(d, l, call->x, call->g) < 0)
                return ps_fail(err, -EIO, "layer '%s': oneDNN failed backward", p->spec->name);
            add_parts(d, l);
        }
        cnn_tell_ready(call, p);
    }
    return 0;
}

static void predict(struct cnn_dnnl *d, const struct cnn_batch *batch, const struct cnn_predictions *out)
{
    uint32_t classes = d->plan->model->classes;
    const struct cnn_dnnl_layer *l = &d->layers[d->plan->main_loss];

    if (out->classes == NULL && out->probabilities == NULL)
        return;
#pragma omp parallel for num_threads(d->threads) if (d->threads > 1)
    for (uint32_t i = 0; i < batch->n; i++) {
        double *z = logits_of(d, l, i);
        cnn_softmax_predict(classes, z, z + classes, i, out);
    }
}

static int score(void *state, const float *x, const struct cnn_batch *batch,
                 const struct cnn_predictions *out, struct cnn_score *score, struct ps_error *err)
{
    struct cnn_dnnl *d = state;
    int team = omp_get_max_threads();

    omp_set_num_threads((int)d->threads);
    int rc = forward(d, NULL, x, batch, err);
    if (rc == 0) {
        *score = loss(d, &d->layers[d->plan->main_loss], batch, NULL, false, 0);
        predict(d, batch, out);
    }
    omp_set_num_threads(team);
    return rc;
}

static int gradient(void *state, const struct cnn_gradient_call *call, struct cnn_score *out,
                    struct ps_error *err)
{
    struct cnn_dnnl *d = state;
    struct cnn_score sum = {0};
    int team = omp_get_max_threads();

    omp_set_num_threads((int)d->threads);
    int rc = forward(d, call->draw, call->x, call->batch, err);
    if (rc == 0)
        rc = backward(d, call, &sum, err);
    omp_set_num_threads(team);
    if (rc == 0)
        *out = sum;
    return rc;
}

static void update_buffers(void *state, float *x)
{
    const struct cnn_dnnl *d = state;

    for (size_t i = 0; i < d->plan->n_layers; i++)
        if (!cnn_is_loss(&d->plan->layers[i]) && d->layers[i].kind->update_buffers != NULL)
            d->layers[i].kind->update_buffers(d, &d->layers[i], x);
}

const struct cnn_backend cnn_backend_onednn = {
    .name = "onednn",
    .precisions = 1 << CNN_FLOAT32 | 1 << CNN_BF16,
    .probe = probe,
    .value_bytes = value_bytes,
    .needs = needs,
    .create = create,
    .destroy = destroy,
    .own_bytes = own_bytes,
    .each_thread = each_thread,
    .library_s = library_s,
    .score = score,
    .gradient = gradient,
    .update_buffers = update_buffers,
};
