/* vec.c: the row's kernels, enqueued. */
#include "client/memory/cuda/cuda.h"
#include "client/memory/cuda/launch.h"

static void axpy(struct psc_queue *q, float *y, const float *x, float a, size_t n)
{
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, psc_cuda_axpy(q->stream, n, y, x, a), "axpy");
}

static void scale(struct psc_queue *q, float *x, float a, size_t n)
{
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, psc_cuda_scale(q->stream, n, x, a), "scale");
}

static void copy(struct psc_queue *q, float *to, const float *from, size_t n)
{
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, psc_cuda_copy(q->stream, n, to, from), "copy");
}

static void zero(struct psc_queue *q, float *x, size_t n)
{
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, cudaMemsetAsync(x, 0, n * sizeof *x, q->stream), "zero");
}

static void subtract(struct psc_queue *q, float *out, const float *x, const float *y, size_t n)
{
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, psc_cuda_subtract(q->stream, n, out, x, y), "subtract");
}

static void decay(struct psc_queue *q, float *out, const float *g, const float *x, float lambda, size_t n)
{
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, psc_cuda_decay(q->stream, n, out, g, x, lambda), "decay");
}

static void elastic(struct psc_queue *q, float *x, const float *center, float a, size_t n)
{
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, psc_cuda_elastic(q->stream, n, x, center, a), "elastic");
}

static void rebase(struct psc_queue *q, float *x, float *start, const float *center, size_t n)
{
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, psc_cuda_rebase(q->stream, n, x, start, center), "rebase");
}

static void heavy_ball(struct psc_queue *q, float *x, float *v, const float *g, float eta, float mu, size_t n)
{
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, psc_cuda_heavy_ball(q->stream, n, x, v, g, eta, mu), "heavy_ball");
}

static void nesterov(struct psc_queue *q, float *at, float *x, float *v, const float *g, float eta,
                     float delta, size_t n)
{
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, psc_cuda_nesterov(q->stream, n, at, x, v, g, eta, delta), "nesterov");
}

static void admm_message(struct psc_queue *q, float *m, const float *x, const float *lambda, const float *g,
                         float eta, float pull, float by, size_t n)
{
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, psc_cuda_admm_message(q->stream, n, m, x, lambda, g, eta, pull, by),
                    "admm_message");
}

static void admm_land(struct psc_queue *q, float *x, float *lambda, const float *center, const float *g,
                      float eta, float pull, float by, size_t n)
{
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, psc_cuda_admm_land(q->stream, n, x, lambda, center, g, eta, pull, by),
                    "admm_land");
}

static void admm_restart(struct psc_queue *q, float *x, float *lambda, const float *center, size_t n)
{
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, psc_cuda_admm_restart(q->stream, n, x, lambda, center), "admm_restart");
}

const struct psc_kernels psc_cuda_kernels = {.axpy = axpy,
                                             .scale = scale,
                                             .copy = copy,
                                             .zero = zero,
                                             .subtract = subtract,
                                             .decay = decay,
                                             .elastic = elastic,
                                             .rebase = rebase,
                                             .heavy_ball = heavy_ball,
                                             .nesterov = nesterov,
                                             .admm_message = admm_message,
                                             .admm_land = admm_land,
                                             .admm_restart = admm_restart};
