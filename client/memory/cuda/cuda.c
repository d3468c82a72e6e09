/* cuda.c: the memory of an NVIDIA GPU: streams, copies, and what is waited for. */
#include "client/memory/cuda/cuda.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>

#include "client/memory/cuda/launch.h"
#include "client/memory/cuda/module.h"
#include "proto/clock.h"

/* CUDA also keeps each error as the thread's last one, until somebody asks for it. One that is handled here
 * is taken from there: the next who asks, such as PyTorch after a launch, would take it for its own. */
static void forget_last_error(void)
{
    cudaGetLastError();
}

/* A wait polls for so long without sleeping. A nap may last twice its time: the caller's thread takes few,
 * since the GPU has nothing to do meanwhile; the thread that exchanges polls less, since polls delay the
 * caller's launches. */
#define CALLER_POLLS_S 1e-3
#define POLLS_S        1e-4
enum { NAP_US = 50 };

void psc_cuda_enter(struct psc_device *d)
{
    int now = -1;
    if (cudaGetDevice(&now) != cudaSuccess || now != d->index)
        cudaSetDevice(d->index);
}

bool psc_cuda_failed(struct psc_device *d, cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return false;
    forget_last_error();
    pthread_mutex_lock(&d->lock);
    if (!atomic_load_explicit(&d->failed, memory_order_relaxed))
        ps_fail(&d->why, -EIO, "the device has failed (%s): CUDA: %s", what, cudaGetErrorString(e));
    atomic_store_explicit(&d->failed, true, memory_order_release);
    pthread_mutex_unlock(&d->lock);
    return true;
}

int psc_cuda_check(struct psc_device *d, struct ps_error *err)
{
    if (!atomic_load_explicit(&d->failed, memory_order_acquire))
        return 0;
    return ps_fail(err, -EIO, "%s", d->why.text);
}

static int no_device(cudaError_t e, struct ps_error *err)
{
    forget_last_error();
    return ps_fail(err, -ENOTSUP, "options: memory 'cuda': no CUDA device: %s",
                   e != cudaSuccess ? cudaGetErrorString(e) : "none is visible");
}

/* -ENOMEM, or -EIO. */
static int refuse(cudaError_t e, const char *what, size_t bytes, struct ps_error *err)
{
    return ps_fail(err, e == cudaErrorMemoryAllocation ? -ENOMEM : -EIO, "%s %.1f MiB: CUDA: %s", what,
                   (double)bytes / (1024 * 1024), cudaGetErrorString(e));
}

static void finish_queue(struct psc_queue *q)
{
    if (q->end != NULL)
        cudaEventDestroy(q->end);
    if (q->first != NULL)
        cudaFree(q->first);
    if (q->found != NULL)
        cudaFreeHost(q->found);
    if (q->stream != NULL && (q != &q->device->queues[PSC_COMPUTE] || q->device->own_stream))
        cudaStreamDestroy(q->stream);
}

static void wait_for_all(struct psc_device *d)
{
    for (int i = 0; i < PSC_N_QUEUES; i++)
        if (d->queues[i].stream != NULL)
            psc_cuda_failed(d, cudaStreamSynchronize(d->queues[i].stream), "waiting for its work");
}

static void close_device(struct psc_device *d)
{
    psc_cuda_enter(d);
    wait_for_all(d);
    for (size_t i = 0; i < d->n_blocks; i++)
        cudaFree(d->blocks[i]);
    for (int i = 0; i < PSC_N_QUEUES; i++)
        for (int k = 0; k < PSC_N_QUEUES; k++)
            if (d->order[i][k] != NULL)
                cudaEventDestroy(d->order[i][k]);
    for (int i = 0; i < PSC_N_QUEUES; i++)
        if (d->queues[i].device != NULL)
            finish_queue(&d->queues[i]);
    pthread_mutex_destroy(&d->lock);
    free(d->blocks);
    free(d);
}

static cudaError_t open_queue(struct psc_device *d, enum psc_queue_use use, void *stream)
{
    struct psc_queue *q = &d->queues[use];
    cudaError_t e = cudaSuccess;
    q->device = d;
    q->stream = stream;
    if (stream == NULL)
        e = cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking);
    if (e == cudaSuccess)
        e = cudaEventCreateWithFlags(&q->end, cudaEventDisableTiming);
    if (e == cudaSuccess)
        e = cudaMalloc((void **)&q->first, sizeof *q->first);
    if (e == cudaSuccess)
        e = cudaHostAlloc((void **)&q->found, sizeof *q->found, cudaHostAllocDefault);
    for (int k = 0; k < PSC_N_QUEUES && e == cudaSuccess; k++)
        e = cudaEventCreateWithFlags(&d->order[use][k], cudaEventDisableTiming);
    return e;
}

static int open_device(const struct psc_device_options *opt, struct psc_device **out, struct ps_error *err)
{
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e != cudaSuccess || n == 0)
        return no_device(e, err);
    struct psc_device *d = calloc(1, sizeof *d);
    if (d == NULL)
        return ps_fail(err, -ENOMEM, "options: memory 'cuda': no memory");
    pthread_mutex_init(&d->lock, NULL);
    d->timeout_ms = opt->timeout_ms;
    d->own_stream = opt->stream == NULL;
    e = cudaGetDevice(&d->index);
    for (int i = 0; i < PSC_N_QUEUES && e == cudaSuccess; i++)
        e = open_queue(d, (enum psc_queue_use)i, i == PSC_COMPUTE ? opt->stream : NULL);
    if (e == cudaSuccess) {
        *out = d;
        return 0;
    }
    forget_last_error();
    close_device(d);
    return ps_fail(err, -EIO, "options: memory 'cuda': CUDA: %s", cudaGetErrorString(e));
}

static struct psc_queue *queue(struct psc_device *d, enum psc_queue_use use)
{
    return &d->queues[use];
}

/* With the lock held. */
static bool has_room(struct psc_device *d)
{
    if (d->n_blocks < d->most_blocks)
        return true;
    size_t most = d->most_blocks > 0 ? 2 * d->most_blocks : 16;
    void **more = realloc(d->blocks, most * sizeof *more);
    if (more == NULL)
        return false;
    d->blocks = more;
    d->most_blocks = most;
    return true;
}

int psc_cuda_alloc(struct psc_device *d, size_t bytes, void **out, struct ps_error *err)
{
    void *p = NULL;
    psc_cuda_enter(d);
    cudaError_t e = cudaMalloc(&p, bytes > 0 ? bytes : 1);
    if (e == cudaSuccess)
        e = cudaMemsetAsync(p, 0, bytes, d->queues[PSC_COMPUTE].stream);
    if (e != cudaSuccess) {
        cudaFree(p);
        forget_last_error();
        return refuse(e, "the device has no memory of", bytes, err);
    }
    pthread_mutex_lock(&d->lock);
    bool kept = has_room(d);
    if (kept)
        d->blocks[d->n_blocks++] = p;
    pthread_mutex_unlock(&d->lock);
    if (!kept) {
        wait_for_all(d);
        cudaFree(p);
        return ps_fail(err, -ENOMEM, "no memory for a vector of the device");
    }
    *out = p;
    return 0;
}

static void free_block(struct psc_device *d, void *p)
{
    psc_cuda_enter(d);
    wait_for_all(d);
    pthread_mutex_lock(&d->lock);
    for (size_t i = 0; i < d->n_blocks; i++)
        if (d->blocks[i] == p) {
            d->blocks[i] = d->blocks[--d->n_blocks];
            break;
        }
    pthread_mutex_unlock(&d->lock);
    psc_cuda_failed(d, cudaFree(p), "freeing memory");
}

static bool owns(struct psc_device *d, const void *p)
{
    struct cudaPointerAttributes a;
    psc_cuda_enter(d);
    if (cudaPointerGetAttributes(&a, p) != cudaSuccess) {
        forget_last_error();
        return false;
    }
    return (a.type == cudaMemoryTypeDevice && a.device == d->index) || a.type == cudaMemoryTypeManaged;
}

static int pin(struct psc_device *d, void *p, size_t bytes, struct ps_error *err)
{
    psc_cuda_enter(d);
    cudaError_t e = cudaHostRegister(p, bytes, cudaHostRegisterDefault);
    if (e == cudaSuccess)
        return 0;
    forget_last_error();
    return refuse(e, "cannot pin", bytes, err);
}

static void unpin_idle(struct psc_device *d, void *p)
{
    psc_cuda_enter(d);
    psc_cuda_failed(d, cudaHostUnregister(p), "releasing pinned memory");
}

static void unpin(struct psc_device *d, void *p)
{
    psc_cuda_enter(d);
    wait_for_all(d);
    unpin_idle(d, p);
}

static void order(struct psc_device *d, enum psc_queue_use first, enum psc_queue_use later)
{
    cudaEvent_t event = d->order[first][later];
    psc_cuda_enter(d);
    if (!psc_cuda_failed(d, cudaEventRecord(event, d->queues[first].stream), "recording an event"))
        psc_cuda_failed(d, cudaStreamWaitEvent(d->queues[later].stream, event, 0), "waiting for an event");
}

static void down(struct psc_queue *q, void *host, const void *device, size_t bytes)
{
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, q->stream),
                    "a copy to the host");
}

static void up(struct psc_queue *q, void *device, const void *host, size_t bytes)
{
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, q->stream),
                    "a copy to the device");
}

static cudaEvent_t event_of(struct psc_mark *m)
{
    return (cudaEvent_t)(void *)m;
}

static int mark_create(struct psc_device *d, struct psc_mark **out, struct ps_error *err)
{
    cudaEvent_t event;
    psc_cuda_enter(d);
    cudaError_t e = cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
    if (e != cudaSuccess) {
        forget_last_error();
        return ps_fail(err, -EIO, "the device makes no events: CUDA: %s", cudaGetErrorString(e));
    }
    *out = (struct psc_mark *)(void *)event;
    return 0;
}

static void mark_destroy(struct psc_device *d, struct psc_mark *m)
{
    psc_cuda_enter(d);
    cudaEventDestroy(event_of(m));
}

static void mark(struct psc_queue *q, struct psc_mark *m)
{
    assert(q->passes.n == 0);
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, cudaEventRecord(event_of(m), q->stream), "recording an event");
}

/* Polls, since a wait for a GPU that hangs would have no end. */
static int wait_for(struct psc_device *d, cudaEvent_t event, double polls_s, struct ps_error *err)
{
    const double begin_s = ps_now_s(), end_s = begin_s + d->timeout_ms / 1e3;
    cudaError_t e;
    psc_cuda_enter(d);
    while ((e = cudaEventQuery(event)) == cudaErrorNotReady) {
        if (cudaPeekAtLastError() == e) /* by CUDA's guide it is none; PyTorch clears it all the same */
            forget_last_error();
        double now_s = ps_now_s();
        if (now_s >= end_s)
            return ps_fail(err, -EIO, "the device has not finished its work in %.1f s (timeout_ms: %u)",
                           d->timeout_ms / 1e3, d->timeout_ms);
        if (now_s < begin_s + polls_s)
            sched_yield();
        else
            ps_sleep_us(NAP_US);
    }
    psc_cuda_failed(d, e, "waiting for its work");
    return psc_cuda_check(d, err);
}

static int wait(struct psc_device *d, struct psc_mark *m, struct ps_error *err)
{
    return wait_for(d, event_of(m), POLLS_S, err);
}

int psc_cuda_finish(struct psc_queue *q, struct ps_error *err)
{
    assert(q->passes.n == 0);
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, cudaEventRecord(q->end, q->stream), "recording an event");
    return wait_for(q->device, q->end, q == &q->device->queues[PSC_COMPUTE] ? CALLER_POLLS_S : POLLS_S, err);
}

static void search_begin(struct psc_queue *q)
{
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, cudaMemsetAsync(q->first, 0xff, sizeof *q->first, q->stream), "a search");
    q->watched = NULL;
    q->n_watched = 0;
}

static void watch(struct psc_queue *q, const float *x, size_t n, uint64_t at)
{
    search_begin(q);
    q->watched = x;
    q->n_watched = n;
    q->watched_at = at;
}

static void search(struct psc_queue *q, const float *x, size_t n, uint64_t at)
{
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, psc_cuda_search(q->stream, n, x, at, q->first), "a search");
}

static int search_end(struct psc_queue *q, uint64_t *at, struct ps_error *err)
{
    q->watched = NULL;
    q->n_watched = 0;
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device,
                    cudaMemcpyAsync(q->found, q->first, sizeof *q->first, cudaMemcpyDeviceToHost, q->stream),
                    "a search");
    int rc = psc_cuda_finish(q, err);
    if (rc == 0)
        *at = *q->found;
    return rc;
}

const struct psc_cuda_module psc_cuda_module = {PSD_VERSION,
                                                sizeof(struct psc_memory_kind),
                                                {.name = "cuda",
                                                 .kernels = &psc_cuda_kernels,
                                                 .open = open_device,
                                                 .close = close_device,
                                                 .queue = queue,
                                                 .alloc = psc_cuda_alloc,
                                                 .free = free_block,
                                                 .owns = owns,
                                                 .pin = pin,
                                                 .unpin = unpin,
                                                 .unpin_idle = unpin_idle,
                                                 .order = order,
                                                 .down = down,
                                                 .up = up,
                                                 .mark_create = mark_create,
                                                 .mark_destroy = mark_destroy,
                                                 .mark = mark,
                                                 .wait = wait,
                                                 .search_begin = search_begin,
                                                 .watch = watch,
                                                 .search = search,
                                                 .search_end = search_end,
                                                 .codes = psc_cuda_codes,
                                                 .learn = psc_cuda_learn,
                                                 .encode = psc_cuda_encode_pieces,
                                                 .feed_back = psc_cuda_feed_back_pieces,
                                                 .decode = psc_cuda_decode_floats,
                                                 .take = psc_cuda_take_piece,
                                                 .finish = psc_cuda_finish,
                                                 .check = psc_cuda_check}};
