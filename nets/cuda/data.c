/* data.c: transfers of vectors and gradients between host and device. */
#include "nets/cuda/cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Floats of x per chunk: a chunk is copied to pinned memory while the previous one is transferred. */
#define CHUNK (1u << 20)
/* The least floats of g in a bucket; and the most buckets, which cost a launch each. */
#define BUCKET       (1u << 18)
#define MOST_BUCKETS 12

static cudaError_t up(struct cnn_cuda *d, void *to, const void *from, size_t bytes)
{
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, d->compute);
}

bool cnn_cuda_owns(const void *p)
{
    struct cudaPointerAttributes a;
    if (cudaPointerGetAttributes(&a, p) != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    return a.type == cudaMemoryTypeDevice;
}

int cnn_cuda_send_running(struct cnn_cuda *d, struct ps_error *err)
{
    uint64_t stats_at = 0;
    size_t n = 0;

    for (size_t i = 0; i < d->plan->n_layers; i++) {
        const struct cnn_layer *l = &d->plan->layers[i];
        if (l->spec->kind != CNN_BATCHNORM)
            continue;
        d->host.running[n++] = (struct cnn_cuda_running){.mean_at = l->mean_at,
                                                         .variance_at = l->variance_at,
                                                         .stats_at = stats_at,
                                                         .count = (uint64_t)d->batch * l->in.h * l->in.w,
                                                         .part = cnn_batchnorm_part(l),
                                                         .c = (uint32_t)l->n_buffers};
        stats_at += 2 * l->n_buffers;
    }
    return cnn_cuda_check(up(d, d->running, d->host.running, n * sizeof *d->running),
                          "sending the batch norms", NULL, err);
}

static bool is_usable(const float *p)
{
    return (uintptr_t)p % 256 == 0 && cnn_cuda_owns(p);
}

/* Frozen parameters and buffers have no gradient: their floats are 0, as in the net's own g. A step that was
 * begun with the vectors before runs to its end. */
static int take_vectors(struct cnn_cuda *d, float *x, float *g, struct ps_error *err)
{
    int rc = cnn_cuda_check(cudaStreamSynchronize(d->compute), "a gradient", NULL, err);

    if (rc == 0 && g != d->g && g != d->own_g)
        rc = cnn_cuda_check(cudaMemsetAsync(g, 0, d->plan->n_floats * sizeof *g, d->compute), "clearing g",
                            NULL, err);
    cnn_cuda_drop_graphs(d);
    d->x = x;
    d->g = g;
    for (size_t i = 0; i < d->plan->n_layers && rc == 0; i++)
        if (d->layers[i].kind != NULL && d->layers[i].kind->bind != NULL)
            rc = d->layers[i].kind->bind(d, &d->layers[i], err);
    if (rc < 0)
        d->x = NULL; /* the next call binds them again */
    return rc;
}

int cnn_cuda_use_vectors(struct cnn_cuda *d, const float *x, float *g, struct ps_error *err)
{
    float *use_x = is_usable(x) ? (float *)(uintptr_t)x : d->own_x, *use_g = g == NULL      ? d->g
                                                                             : is_usable(g) ? g
                                                                                            : d->own_g;

    return use_x == d->x && use_g == d->g ? 0 : take_vectors(d, use_x, use_g, err);
}

int cnn_cuda_send_vector(struct cnn_cuda *d, const float *x, struct ps_error *err)
{
    cudaError_t e = cudaSuccess;

    if (x == d->x)
        return 0;
    if (cnn_cuda_owns(x))
        return cnn_cuda_check(
            cudaMemcpyAsync(d->x, x, d->plan->n_floats * sizeof *x, cudaMemcpyDeviceToDevice, d->compute),
            "copying x", NULL, err);
    for (uint64_t at = 0; at < d->plan->n_floats && e == cudaSuccess; at += CHUNK) {
        uint64_t left = d->plan->n_floats - at, n = left < CHUNK ? left : CHUNK;
        memcpy(d->host.x + at, x + at, n * sizeof *x);
        e = up(d, d->x + at, d->host.x + at, n * sizeof *x);
    }
    return cnn_cuda_check(e, "sending x", NULL, err);
}

int cnn_cuda_send_step(struct cnn_cuda *d, const struct cnn_draw *draw, struct ps_error *err)
{
    struct cnn_philox_key key = cnn_dropout_key(draw->seed);
    struct cnn_cuda_step *step = d->begun[d->n_begun % CNN_MOST_BEGUN].step;

    *step = (struct cnn_cuda_step){draw->step, draw->first_image, {key.v[0], key.v[1]}};
    return cnn_cuda_check(up(d, d->step, step, sizeof *step), "sending the step", NULL, err);
}

static uint64_t floats_of(const struct cnn_layer *l)
{
    return l->n_weights + l->n_biases + 2 * l->n_buffers;
}

static uint64_t bucket_floats(const struct cnn_cuda *d, const struct cnn_cuda_bucket *b)
{
    uint64_t n = 0;

    for (size_t i = b->first; i < b->end; i++)
        n += floats_of(&d->plan->layers[i]);
    return n;
}

int cnn_cuda_fetch_bucket(struct cnn_cuda *d, const struct cnn_cuda_bucket *b, float *g, struct ps_error *err)
{
    uint64_t n = bucket_floats(d, b), at = d->plan->layers[b->first].weight_at;
    bool stays = cnn_cuda_owns(g);
    if (g == d->g)
        return cnn_cuda_check(cudaEventRecord(b->arrived, d->compute), "finishing g", NULL, err);
    cudaError_t e = cudaEventRecord(b->ready, d->compute);

    if (e == cudaSuccess)
        e = cudaStreamWaitEvent(d->down, b->ready, 0);
    if (e == cudaSuccess && n > 0)
        e = cudaMemcpyAsync((stays ? g : d->host.g) + at, d->g + at, n * sizeof *d->g,
                            stays ? cudaMemcpyDeviceToDevice : cudaMemcpyDeviceToHost, d->down);
    if (e == cudaSuccess)
        e = cudaEventRecord(b->arrived, d->down);
    return cnn_cuda_check(e, "fetching g", NULL, err);
}

int cnn_cuda_join_buckets(struct cnn_cuda *d, struct ps_error *err)
{
    return cnn_cuda_check(cudaStreamWaitEvent(d->compute, d->buckets[d->n_buckets - 1].arrived, 0),
                          "finishing g", NULL, err);
}

int cnn_cuda_hand_out_bucket(struct cnn_cuda *d, const struct cnn_cuda_bucket *b,
                             const struct cnn_gradient_call *call, struct ps_error *err)
{
    uint64_t at = d->plan->layers[b->first].weight_at;
    int rc = cnn_cuda_check(cudaEventSynchronize(b->arrived), "waiting for g", NULL, err);

    if (rc < 0)
        return rc;
    if (!cnn_cuda_owns(call->g))
        memcpy(call->g + at, d->host.g + at, bucket_floats(d, b) * sizeof *d->g);
    for (size_t i = b->end; i-- > b->first;)
        if (!cnn_is_loss(&d->plan->layers[i]))
            cnn_tell_ready(call, &d->plan->layers[i]);
    return 0;
}

int cnn_cuda_cut_buckets(struct cnn_cuda *d, struct ps_error *err)
{
    const unsigned flags = cudaEventDisableTiming;

    d->buckets = calloc(d->plan->n_layers, sizeof *d->buckets);
    if (d->buckets == NULL)
        return ps_fail(err, -ENOMEM, "no memory for the cuda backend");
    const uint64_t each = d->plan->n_floats / MOST_BUCKETS, least = each > BUCKET ? each : BUCKET;
    size_t n_losses = d->n_losses;
    for (size_t end = d->plan->n_layers; end > 0;) {
        struct cnn_cuda_bucket *b = &d->buckets[d->n_buckets++];
        *b = (struct cnn_cuda_bucket){.first = end, .end = end, .n_losses = n_losses};
        while (b->first > 0 && bucket_floats(d, b) < least)
            n_losses -= cnn_is_loss(&d->plan->layers[--b->first]);
        end = b->first;
        cudaError_t e = cudaEventCreateWithFlags(&b->ready, flags);
        if (e == cudaSuccess)
            e = cudaEventCreateWithFlags(&b->arrived, flags);
        if (e != cudaSuccess)
            return cnn_cuda_check(e, "making events", NULL, err);
    }
    return 0;
}
