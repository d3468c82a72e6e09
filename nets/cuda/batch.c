/* batch.c: batches. Images, labels and cuts are copied to the device as the caller has them, and converted to
 * the net's input there: normalised, cropped and mirrored.
 *
 * The batch of a gradient is uploaded in d->compute. One that was announced is uploaded in d->up, beside the
 * step before it, and its own step waits for it. There is one place on the device for an upload: it is free
 * as soon as the batch before it is converted, at the beginning of a step. So:
 *
 *   d->compute   wait for landed | convert batch k | placed | layers of step k ...      | wait for landed |
 * ... d->up                                    wait for placed | upload batch k + 1 | landed
 *
 * The caller's memory of batch k + 1 is read until `landed`, which the gradient of batch k + 1 waits for as
 * it begins, and so does an announcement of NULL. That of a batch which was not announced is read until
 * `placed`. */
#include "nets/cuda/cuda.h"

#include <stdlib.h>
#include <string.h>

_Static_assert(sizeof(struct cnn_cut) == sizeof(struct cnn_cuda_cut) &&
                   offsetof(struct cnn_cut, left) == offsetof(struct cnn_cuda_cut, left) &&
                   offsetof(struct cnn_cut, mirrored) == offsetof(struct cnn_cuda_cut, mirrored),
               "cuts are copied as they are");

static bool is_pinned(const void *p)
{
    struct cudaPointerAttributes a;
    if (cudaPointerGetAttributes(&a, p) == cudaSuccess)
        return a.type == cudaMemoryTypeHost;
    cudaGetLastError();
    return false;
}

/* Where the system locks no more memory, batches are copied to the net's own. */
void *cnn_cuda_alloc_batch(size_t bytes)
{
    void *p = NULL;
    if (cudaHostAlloc(&p, bytes > 0 ? bytes : 1, cudaHostAllocDefault) == cudaSuccess)
        return p;
    cudaGetLastError();
    return malloc(bytes > 0 ? bytes : 1);
}

void cnn_cuda_free_batch(void *p)
{
    if (p != NULL && is_pinned(p))
        cudaFreeHost(p);
    else
        free(p);
}

static size_t image_bytes(const struct cnn_cuda *d, const struct cnn_batch *b)
{
    struct cnn_shape s = cnn_image_shape(d->plan);
    size_t pixels = b->cuts != NULL ? (size_t)s.c * b->stored_height * b->stored_width : cnn_shape_count(s);
    return pixels * (b->pixels == CNN_PIXELS_BYTE ? 1 : sizeof(float));
}

bool cnn_cuda_cuts(const void *state, uint32_t stored_height, uint32_t stored_width)
{
    const struct cnn_cuda *d = state;
    const struct cnn_batch b = {.pixels = CNN_PIXELS_BYTE,
                                .cuts = &(const struct cnn_cut){0},
                                .stored_height = stored_height,
                                .stored_width = stored_width};
    return image_bytes(d, &b) <= d->uploads.image_bytes / d->batch;
}

static cudaError_t copy_up(cudaStream_t s, void *to, const void *from, size_t bytes)
{
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, s);
}

/* Enqueues the copies of a batch in pinned memory. */
static cudaError_t upload(struct cnn_cuda *d, cudaStream_t s, const struct cnn_batch *b)
{
    cudaError_t e = copy_up(s, d->uploads.images, b->images, image_bytes(d, b) * b->n);

    if (e == cudaSuccess)
        e = copy_up(s, d->uploads.labels, b->labels, b->n * sizeof *b->labels);
    if (e == cudaSuccess && b->cuts != NULL)
        e = copy_up(s, d->uploads.cuts, b->cuts, b->n * sizeof *b->cuts);
    return e;
}

/* The same batch in pinned memory: in the caller's, or copied to the net's, which no copy reads now: the
 * batch before has left it. */
static struct cnn_batch pin(struct cnn_cuda *d, const struct cnn_batch *batch)
{
    struct cnn_batch b = *batch;

    if (!is_pinned(b.images))
        b.images = memcpy(d->host.images, b.images, image_bytes(d, &b) * b.n);
    if (!is_pinned(b.labels))
        b.labels = memcpy(d->host.labels, b.labels, b.n * sizeof *b.labels);
    if (b.cuts != NULL && !is_pinned(b.cuts)) {
        memcpy(d->host.cuts, b.cuts, b.n * sizeof *b.cuts);
        b.cuts = (const struct cnn_cut *)(const void *)d->host.cuts;
    }
    return b;
}

/* The table of a stream is always the same: it is sent when it changes, and when the one before has left the
 * host. */
static cudaError_t send_table(struct cnn_cuda *d, const struct cnn_batch *b)
{
    size_t bytes = d->plan->model->channels * sizeof b->value_of[0];

    if (d->uploads.has_table && memcmp(d->host.value_of, b->value_of, bytes) == 0)
        return cudaSuccess;
    cudaError_t e = cudaEventSynchronize(d->uploads.placed);
    if (e != cudaSuccess)
        return e;
    d->uploads.has_table = true;
    memcpy(d->host.value_of, b->value_of, bytes);
    return copy_up(d->compute, d->value_of, d->host.value_of, bytes);
}

static cudaError_t convert_bytes(struct cnn_cuda *d, const struct cnn_batch *b)
{
    struct cnn_shape s = cnn_image_shape(d->plan);
    const struct cnn_cuda_stored stored = {b->stored_height, b->stored_width, b->is_hwc, s.c, s.h, s.w};
    const struct cnn_cuda_uploads *u = &d->uploads;
    size_t n = cnn_shape_count(s) * b->n;
    cudaError_t e = send_table(d, b);

    if (e != cudaSuccess)
        return e;
    if (b->cuts != NULL)
        return cu_cut_bytes(d->compute, d->type, n, stored, u->images, u->cuts, d->value_of, d->seen);
    return cu_bytes(d->compute, d->type, n, s.c, s.h * s.w, b->is_hwc, u->images, d->value_of, d->seen);
}

/* Enqueues the conversion of the batch that was uploaded. */
static cudaError_t convert(struct cnn_cuda *d, const struct cnn_batch *b)
{
    struct cnn_shape s = cnn_image_shape(d->plan);
    cudaError_t e = b->pixels == CNN_PIXELS_BYTE
                        ? convert_bytes(d, b)
                        : cu_turn_in(d->compute, d->type, cnn_shape_count(s) * b->n, b->is_hwc ? 1 : s.c,
                                     s.h * s.w, d->uploads.images, d->seen);
    if (e == cudaSuccess)
        e = cudaMemcpyAsync(d->labels, d->uploads.labels, b->n * sizeof *b->labels, cudaMemcpyDeviceToDevice,
                            d->compute);
    return e == cudaSuccess ? cudaEventRecord(d->uploads.placed, d->compute) : e;
}

static bool is_same(const struct cnn_batch *a, const struct cnn_batch *b)
{
    return a->images == b->images && a->labels == b->labels && a->cuts == b->cuts && a->n == b->n &&
           a->pixels == b->pixels && a->stored_height == b->stored_height &&
           a->stored_width == b->stored_width;
}

int cnn_cuda_send_batch(struct cnn_cuda *d, const struct cnn_batch *batch, struct ps_error *err)
{
    struct cnn_cuda_uploads *u = &d->uploads;
    cudaError_t e = cudaSuccess;
    bool is_sent = u->sent.images != NULL && is_same(&u->sent, batch);

    if (u->sent.images != NULL) /* of another batch: its place is written again after it */
        e = cudaStreamWaitEvent(d->compute, u->landed[u->turn], 0);
    u->sent.images = NULL;
    u->left = is_sent ? u->landed[u->turn] : u->placed;
    if (e == cudaSuccess && !is_sent) {
        const struct cnn_batch b = pin(d, batch);
        e = upload(d, d->compute, &b);
    }
    if (e == cudaSuccess)
        e = convert(d, batch);
    return cnn_cuda_check(e, "sending a batch", NULL, err);
}

int cnn_cuda_send_ahead(struct cnn_cuda *d, struct ps_error *err)
{
    struct cnn_cuda_uploads *u = &d->uploads;

    if (u->announced.images == NULL)
        return 0;
    cudaError_t e = cudaStreamWaitEvent(d->up, u->placed, 0);
    if (e == cudaSuccess)
        e = upload(d, d->up, &u->announced);
    if (e == cudaSuccess)
        e = cudaEventRecord(u->landed[u->turn ^= 1], d->up);
    u->sent = u->announced;
    u->announced.images = NULL;
    return cnn_cuda_check(e, "sending the next batch", NULL, err);
}

int cnn_cuda_leave_batch(struct cnn_cuda *d, struct ps_error *err)
{
    return cnn_cuda_check(cudaEventSynchronize(d->uploads.left), "waiting for a batch", NULL, err);
}

void cnn_cuda_forget_batches(struct cnn_cuda *d)
{
    d->uploads.announced.images = d->uploads.sent.images = NULL;
    d->uploads.has_table = false;
}

int cnn_cuda_announce(void *state, const struct cnn_batch *batch, struct ps_error *err)
{
    struct cnn_cuda *d = state;
    struct cnn_cuda_uploads *u = &d->uploads;

    u->announced.images = NULL;
    if (batch == NULL) {
        cudaError_t e = u->sent.images != NULL ? cudaEventSynchronize(u->landed[u->turn]) : cudaSuccess;
        u->sent.images = NULL;
        return cnn_cuda_check(e, "waiting for a batch", NULL, err);
    }
    if (is_pinned(batch->images) && is_pinned(batch->labels) &&
        (batch->cuts == NULL || is_pinned(batch->cuts)))
        u->announced = *batch;
    return 0;
}
