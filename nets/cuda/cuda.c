/* cuda.c: creates a net on the device. */
#include "nets/cuda/cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nets/cuda/module.h"

static const struct cnn_cuda_kind *const kinds[] = {
    [CNN_CONV] = &cnn_cuda_conv,
    [CNN_MAXPOOL] = &cnn_cuda_maxpool,
    [CNN_RELU] = &cnn_cuda_activation,
    [CNN_FC] = &cnn_cuda_fc,
    [CNN_AVGPOOL] = &cnn_cuda_avgpool,
    [CNN_GLOBAL_AVGPOOL] = &cnn_cuda_avgpool,
    [CNN_DROPOUT] = &cnn_cuda_dropout,
    [CNN_LRN] = &cnn_cuda_lrn,
    [CNN_BATCHNORM] = &cnn_cuda_batchnorm,
    [CNN_CONCAT] = &cnn_cuda_concat,
    [CNN_ADD] = &cnn_cuda_add,
    [CNN_GLOBAL_MAXPOOL] = &cnn_cuda_maxpool,
    [CNN_LEAKY_RELU] = &cnn_cuda_activation,
    [CNN_RELU6] = &cnn_cuda_activation,
    [CNN_SIGMOID] = &cnn_cuda_activation,
    [CNN_TANH] = &cnn_cuda_activation,
};

/* The first compute capability with tf32 and bf16. */
#define TENSOR_MAJOR 8

static int use_device(uint32_t device, struct ps_error *err)
{
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);

    if (e == cudaSuccess && device >= (uint32_t)n)
        return ps_fail(err, -ENOTSUP, "backend 'cuda': no device %u; allowed here are 0 to %d", device,
                       n - 1);
    if (e == cudaSuccess)
        e = cudaSetDevice((int)device);
    return e == cudaSuccess
               ? 0
               : ps_fail(err, -ENOTSUP, "backend 'cuda': device %u: CUDA: %s", device, cudaGetErrorString(e));
}

static int probe(enum cnn_precision precision, struct ps_error *err)
{
    int n = 0, major = 0, device = 0;
    cudaError_t e = cudaGetDeviceCount(&n);

    if (e != cudaSuccess || n == 0)
        return ps_fail(err, -ENOTSUP, "backend 'cuda': no CUDA device: %s",
                       e != cudaSuccess ? cudaGetErrorString(e) : "none is visible");
    if (precision == CNN_FLOAT32)
        return 0;
    e = cudaGetDevice(&device);
    if (e == cudaSuccess)
        e = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
    if (e != cudaSuccess)
        return ps_fail(err, -ENOTSUP, "backend 'cuda': CUDA: %s", cudaGetErrorString(e));
    if (major < TENSOR_MAJOR)
        return ps_fail(err, -ENOTSUP,
                       "backend 'cuda': the GPU has compute capability %d; %s needs %d or newer", major,
                       precision == CNN_TF32 ? "tf32" : "bf16", TENSOR_MAJOR);
    return 0;
}

static int memory_limit(uint64_t *out, struct ps_error *err)
{
    size_t left = 0, all = 0;
    int rc = cnn_cuda_check(cudaMemGetInfo(&left, &all), "asking for the GPU's free memory", NULL, err);
    *out = left;
    return rc;
}

bool cnn_cuda_is_wide(const struct cnn_plan *p, const struct cnn_layer *l)
{
    size_t value = cnn_is_loss(l) ? l->inputs[0].value : l->index + 1;

    if (value == 0 || p->layers[value - 1].spec->kind != CNN_FC)
        return false;
    for (size_t i = value; i < p->n_layers; i++)
        for (uint32_t k = 0; k < p->layers[i].n_inputs; k++)
            if (p->layers[i].inputs[k].value == value && !cnn_is_loss(&p->layers[i]))
                return false;
    return true;
}

/* Sizes of the buffers outside the arena, computed from the plan. */
struct sizes {
    size_t copies, gradient_copies, part, tiles, stats, norms, losses, state, workspace;
};

static struct sizes sizes_of(const struct cnn_plan *p, uint32_t batch, enum cnn_precision precision)
{
    const size_t each = cnn_cuda_value_bytes(precision);
    struct sizes s = {0};

    for (size_t i = 0; i < p->n_layers; i++) {
        const struct cnn_layer *l = &p->layers[i];
        uint64_t rows = (uint64_t)batch * l->out.h * l->out.w;
        size_t part = (size_t)cnn_cuda_slices(cnn_cuda_type_of(precision), rows, l->out.c) * 2 * l->out.c *
                      sizeof(double);
        size_t copy_bytes = (cnn_cuda_copy_room(l->n_weights) + cnn_cuda_copy_room(l->n_biases)) * each;
        s.losses += cnn_is_loss(l);
        s.stats += 2 * l->n_buffers;
        if (l->weight_dims > 0) {
            const size_t tiles = cnn_cuda_tiles(cnn_cuda_type_of(precision), l->out.c) * sizeof(uint32_t);
            s.part = part > s.part ? part : s.part;
            s.tiles = tiles > s.tiles ? tiles : s.tiles;
        }
        if (l->spec->kind == CNN_FC) {
            s.workspace = s.workspace > CNN_CUDA_BLAS_WORKSPACE ? s.workspace : CNN_CUDA_BLAS_WORKSPACE;
            s.copies += precision == CNN_BF16 ? copy_bytes : 0;
        }
        if (l->spec->kind == CNN_BATCHNORM) {
            s.norms++;
            s.state += 7 * l->in.c * sizeof(float) + sizeof(struct cnn_cuda_running);
        }
        if (l->spec->kind != CNN_CONV)
            continue;
        s.workspace = CNN_CUDA_WORKSPACE;
        s.copies += copy_bytes;
        s.gradient_copies += cnn_cuda_copy_room(l->n_weights) * each;
    }
    return s;
}

static int needs(const struct cnn_setup *setup, struct cnn_needs *out, size_t *own_bytes,
                 struct ps_error *err)
{
    const struct cnn_plan *p = setup->plan;
    struct sizes s = sizes_of(p, setup->batch, setup->precision);

    (void)err;
    for (size_t i = 0; i < p->n_layers; i++)
        if (!cnn_is_loss(&p->layers[i]))
            kinds[p->layers[i].spec->kind]->needs(setup, &p->layers[i], &out[i]);
    *own_bytes =
        s.copies + s.gradient_copies + s.workspace + s.part + s.tiles + s.stats * sizeof(double) + s.state +
        cnn_shape_count(cnn_image_shape(p)) * setup->batch * sizeof(float) +
        (s.losses * sizeof(struct cnn_cuda_row) + 2 * sizeof(uint16_t) + sizeof(struct cnn_cuda_cut)) *
            setup->batch +
        p->model->channels * 256 * sizeof(float);
    return 0;
}

void cnn_cuda_wait_for_all(struct cnn_cuda *d)
{
    if (d->compute != NULL)
        cudaStreamSynchronize(d->compute);
    if (d->down != NULL)
        cudaStreamSynchronize(d->down);
    if (d->up != NULL)
        cudaStreamSynchronize(d->up);
}

/* Those that are not of a bucket. */
enum { N_EVENTS = 3 + CNN_MOST_BEGUN };
static void events_of(struct cnn_cuda *d, cudaEvent_t *out[N_EVENTS])
{
    *out++ = &d->uploads.landed[0];
    *out++ = &d->uploads.landed[1];
    *out++ = &d->uploads.placed;
    for (size_t i = 0; i < CNN_MOST_BEGUN; i++)
        *out++ = &d->begun[i].done;
}

static void destroy(void *state)
{
    struct cnn_cuda *d = state;

    cnn_cuda_wait_for_all(d);
    for (size_t i = 0; d->layers != NULL && i < d->plan->n_layers; i++) {
        struct cnn_cuda_layer *l = &d->layers[i];
        if (l->state != NULL && l->kind->destroy != NULL)
            l->kind->destroy(l);
        free(l->state);
    }
    cnn_cuda_drop_graphs(d);
    for (size_t i = 0; i < d->n_buckets; i++) {
        if (d->buckets[i].ready != NULL)
            cudaEventDestroy(d->buckets[i].ready);
        if (d->buckets[i].arrived != NULL)
            cudaEventDestroy(d->buckets[i].arrived);
    }
    if (d->dnn != NULL)
        cudnnDestroy(d->dnn);
    if (d->blas != NULL)
        cublasLtDestroy(d->blas);
    for (size_t i = 0; i < d->n_blocks; i++)
        d->blocks[i].is_pinned ? cudaFreeHost(d->blocks[i].at) : cudaFree(d->blocks[i].at);
    cudaEvent_t *events[N_EVENTS];
    events_of(d, events);
    for (size_t i = 0; i < N_EVENTS; i++)
        if (*events[i] != NULL)
            cudaEventDestroy(*events[i]);
    if (d->up != NULL)
        cudaStreamDestroy(d->up);
    if (d->down != NULL)
        cudaStreamDestroy(d->down);
    if (d->compute != NULL)
        cudaStreamDestroy(d->compute);
    free(d->blocks);
    free(d->buckets);
    free(d->layers);
    free(d->z);
    free(d);
}

static int create_streams(struct cnn_cuda *d, struct ps_error *err)
{
    cudaStream_t *const streams[] = {&d->compute, &d->down, &d->up};
    cudaEvent_t *events[N_EVENTS];
    cudaError_t e = cudaSuccess;

    events_of(d, events);
    for (size_t i = 0; i < sizeof streams / sizeof *streams && e == cudaSuccess; i++)
        e = cudaStreamCreateWithFlags(streams[i], cudaStreamNonBlocking);
    for (size_t i = 0; i < N_EVENTS && e == cudaSuccess; i++)
        e = cudaEventCreateWithFlags(events[i], cudaEventDisableTiming);
    return cnn_cuda_check(e, "making a stream", NULL, err);
}

static int create_libraries(struct cnn_cuda *d, struct ps_error *err)
{
    int rc = create_streams(d, err);

    if (rc == 0)
        rc = cnn_cuda_check_dnn(cudnnCreate(&d->dnn), "starting", NULL, err);
    if (rc == 0)
        rc = cnn_cuda_check_dnn(cudnnSetStream(d->dnn, d->compute), "starting", NULL, err);
    return rc == 0 ? cnn_cuda_check_blas(cublasLtCreate(&d->blas), "starting", NULL, err) : rc;
}

static int create_memory(struct cnn_cuda *d, const struct cnn_memory *memory, struct ps_error *err)
{
    const struct cnn_plan *p = d->plan;
    struct sizes s = sizes_of(p, d->batch, d->precision);
    size_t vector = p->n_floats * sizeof(float), labels = d->batch * sizeof(uint16_t);
    size_t images = cnn_shape_count(cnn_image_shape(p)) * d->batch * sizeof(float);
    size_t rows = s.losses * d->batch * sizeof(struct cnn_cuda_row),
           table = p->model->channels * 256 * sizeof(float);
    const struct {
        void *device, *host; /* where the pointer is stored; NULL: not needed */
        size_t bytes;
    } all[] = {
        {&d->arena, NULL, memory->arena_bytes},
        {&d->own_x, &d->host.x, vector},
        {&d->own_g, &d->host.g, vector},
        {&d->copies, NULL, s.copies},
        {&d->gradient_copies, NULL, s.gradient_copies},
        {&d->sums.part, NULL, s.part},
        {&d->sums.ended, NULL, s.tiles},
        {&d->stats, &d->host.stats, s.stats * sizeof(double)},
        {&d->running, &d->host.running, s.norms * sizeof(struct cnn_cuda_running)},
        {&d->uploads.images, &d->host.images, images},
        {&d->uploads.labels, &d->host.labels, labels},
        {&d->uploads.cuts, &d->host.cuts, d->batch * sizeof(struct cnn_cuda_cut)},
        {&d->value_of, &d->host.value_of, table},
        {&d->labels, NULL, labels},
        {&d->step, NULL, sizeof *d->step},
        {NULL, &d->begun[0].step, sizeof *d->step},
        {NULL, &d->begun[1].step, sizeof *d->step},
        {&d->rows, NULL, rows},
        {NULL, &d->begun[0].rows, rows},
        {NULL, &d->begun[1].rows, rows},
        {NULL, &d->host.logits, (size_t)d->batch * p->model->classes * sizeof(float)},
    };
    int rc = 0;

    d->n_losses = s.losses;
    d->n_stats = s.stats;
    d->n_norms = s.norms;
    d->uploads.image_bytes = images;
    for (size_t i = 0; i < sizeof all / sizeof all[0] && rc == 0; i++) {
        if (all[i].device != NULL)
            rc = cnn_cuda_alloc(d, all[i].bytes, all[i].device, err);
        if (rc == 0 && all[i].host != NULL)
            rc = cnn_cuda_alloc_pinned(d, all[i].bytes, all[i].host, err);
    }
    d->x = d->own_x;
    d->g = d->own_g;
    if (rc == 0)
        rc = cnn_cuda_send_running(d, err);
    if (rc == 0)
        d->own_bytes -= memory->arena_bytes + 2 * vector; /* they are counted elsewhere */
    if (rc == 0)
        rc = cnn_cuda_check(cudaMemsetAsync(d->sums.ended, 0, s.tiles, d->compute), "clearing sums", NULL,
                            err);
    /* Buffers and frozen parameters have no gradient; these floats are not written again. */
    return rc == 0 ? cnn_cuda_check(cudaMemsetAsync(d->g, 0, vector, d->compute), "clearing g", NULL, err)
                   : rc;
}

static void bind_places(struct cnn_cuda *d, const struct cnn_memory *memory)
{
    d->seen = cnn_place(d->arena, memory->value_at[0]);
    for (size_t i = 0; i < d->plan->n_layers; i++) {
        struct cnn_cuda_layer *l = &d->layers[i];
        const struct cnn_layer_places *at = &memory->layers[i];
        l->plan = &d->plan->layers[i];
        l->kind = cnn_is_loss(l->plan) ? NULL : kinds[l->plan->spec->kind];
        l->is_wide = cnn_cuda_is_wide(d->plan, l->plan);
        l->out = cnn_place(d->arena, memory->value_at[i + 1]);
        l->dout = cnn_place(d->arena, memory->gradient_at[i + 1]);
        l->kept = cnn_place(d->arena, at->kept_at);
        l->work = cnn_place(d->arena, at->work_at);
        l->back_work = cnn_place(d->arena, at->back_work_at);
        l->part = cnn_place(d->arena, at->part_at);
        for (uint32_t k = 0; k < l->plan->n_inputs; k++) {
            l->in[k] = cnn_place(d->arena, memory->value_at[l->plan->inputs[k].value]);
            l->din[k] = cnn_place(d->arena, at->din_at[k]);
            l->sum[k] = cnn_place(d->arena, at->sum_at[k]);
        }
    }
}

static int create_layers(struct cnn_cuda *d, struct ps_error *err)
{
    int rc = 0;

    for (size_t i = 0; i < d->plan->n_layers && rc == 0; i++) {
        struct cnn_cuda_layer *l = &d->layers[i];
        if (l->kind == NULL)
            continue;
        if (l->kind->state_bytes > 0 && (l->state = calloc(1, l->kind->state_bytes)) == NULL)
            return ps_fail(err, -ENOMEM, "no memory for layer '%s'", l->plan->spec->name);
        rc = l->kind->create != NULL ? l->kind->create(d, l, err) : 0;
    }
    if (rc == 0)
        rc = cnn_cuda_alloc(d, d->workspace_bytes, &d->workspace, err);
    cnn_cuda_search_begin(d);
    for (size_t i = 0; i < d->plan->n_layers && rc == 0; i++)
        if (d->layers[i].kind != NULL && d->layers[i].kind->choose != NULL)
            rc = d->layers[i].kind->choose(d, &d->layers[i], err);
    cnn_cuda_search_end(d);
    if (rc == 0)
        rc = cnn_cuda_check(cudaStreamSynchronize(d->compute), "starting", NULL, err);
    return rc;
}

static int create(const struct cnn_setup *setup, const struct cnn_memory *memory, void **state,
                  struct ps_error *err)
{
    struct cnn_cuda *d = calloc(1, sizeof *d);
    int rc;

    if (d == NULL)
        return ps_fail(err, -ENOMEM, "no memory for the cuda backend");
    d->plan = setup->plan;
    d->batch = setup->batch;
    d->precision = setup->precision;
    d->any_order = setup->any_order;
    d->type = cnn_cuda_type_of(d->precision);
    d->value_bytes = cnn_cuda_value_bytes(d->precision);
    d->layers = calloc(d->plan->n_layers, sizeof *d->layers);
    d->z = calloc(2 * (size_t)d->plan->model->classes, sizeof *d->z);
    if (d->layers == NULL || d->z == NULL)
        rc = ps_fail(err, -ENOMEM, "no memory for the cuda backend");
    else
        rc = create_libraries(d, err);
    if (rc == 0)
        rc = create_memory(d, memory, err);
    if (rc == 0) {
        bind_places(d, memory);
        rc = create_layers(d, err);
    }
    if (rc == 0)
        rc = cnn_cuda_cut_buckets(d, err);
    if (rc < 0)
        destroy(d);
    else
        *state = d;
    return rc;
}

static size_t own_bytes(const void *state)
{
    return ((const struct cnn_cuda *)state)->own_bytes;
}

static void *stream(const void *state)
{
    return ((const struct cnn_cuda *)state)->compute;
}

const struct cnn_cuda_module cnn_cuda_module = {
    PSD_VERSION,
    sizeof(struct cnn_backend),
    {
        .name = "cuda",
        .precisions = 1 << CNN_FLOAT32 | 1 << CNN_TF32 | 1 << CNN_BF16,
        .has_any_order = true,
        .probe = probe,
        .use_device = use_device,
        .memory_limit = memory_limit,
        .value_bytes = cnn_cuda_value_bytes,
        .needs = needs,
        .create = create,
        .destroy = destroy,
        .own_bytes = own_bytes,
        .score = cnn_cuda_score,
        .begin = cnn_cuda_begin,
        .end = cnn_cuda_end,
        .cuts = cnn_cuda_cuts,
        .stream = stream,
        .alloc = cnn_cuda_alloc_batch,
        .free = cnn_cuda_free_batch,
        .announce = cnn_cuda_announce,
        .update_buffers = cnn_cuda_update_buffers,
    },
};
