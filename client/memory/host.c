/* The host's memory: the kernels of vec.h, at once and in the calling thread. */
#include "client/memory/memory.h"

#include <math.h>
#include <string.h>

static const struct ps_vec *vec_of(struct psc_queue *q)
{
    return (const struct ps_vec *)(const void *)q;
}

/* Each pass is made at once. */
static void begin_or_end(struct psc_queue *q)
{
    (void)q;
}

static void axpy(struct psc_queue *q, float *y, const float *x, float a, size_t n)
{
    vec_of(q)->axpy(y, x, a, n);
}

static void scale(struct psc_queue *q, float *x, float a, size_t n)
{
    vec_of(q)->scale(x, a, n);
}

static void copy(struct psc_queue *q, float *to, const float *from, size_t n)
{
    vec_of(q)->copy(to, from, n);
}

static void zero(struct psc_queue *q, float *x, size_t n)
{
    (void)q;
    memset(x, 0, n * sizeof *x);
}

static void subtract(struct psc_queue *q, float *out, const float *x, const float *y, size_t n)
{
    vec_of(q)->subtract(out, x, y, n);
}

static void decay(struct psc_queue *q, float *out, const float *g, const float *x, float lambda, size_t n)
{
    vec_of(q)->decay(out, g, x, lambda, n);
}

static void elastic(struct psc_queue *q, float *x, const float *center, float a, size_t n)
{
    vec_of(q)->elastic(x, center, a, n);
}

static void approach(struct psc_queue *q, float *out, const float *center, const float *x, float a, size_t n)
{
    subtract(q, out, center, x, n);
    scale(q, out, a, n);
}

static void rebase(struct psc_queue *q, float *x, float *start, const float *center, size_t n)
{
    vec_of(q)->rebase(x, start, center, n);
}

static void rebase_mixed(struct psc_queue *q, float *x, float *start, const float *center, float a, size_t n)
{
    axpy(q, x, center, a, n);
    axpy(q, x, start, -a, n);
    copy(q, start, center, n);
}

static void heavy_ball(struct psc_queue *q, float *x, float *v, const float *g, float eta, float mu, size_t n)
{
    vec_of(q)->heavy_ball(x, v, g, eta, mu, n);
}

static void nesterov(struct psc_queue *q, float *at, float *x, float *v, const float *g, float eta,
                     float delta, size_t n)
{
    vec_of(q)->nesterov(at, x, v, g, eta, delta, n);
}

static void look(struct psc_queue *q, float *at, const float *x, const float *v, float delta, size_t n)
{
    copy(q, at, x, n);
    axpy(q, at, v, delta, n);
}

static void admm_message(struct psc_queue *q, float *m, const float *x, const float *lambda, const float *g,
                         float eta, float pull, float by, size_t n)
{
    vec_of(q)->admm_message(m, x, lambda, g, eta, pull, by, n);
}

static void admm_land(struct psc_queue *q, float *x, float *lambda, const float *center, const float *g,
                      float eta, float pull, float by, size_t n)
{
    vec_of(q)->admm_land(x, lambda, center, g, eta, pull, by, n);
}

static void admm_restart(struct psc_queue *q, float *x, float *lambda, const float *center, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        lambda[i] += center[i] - x[i];
        lambda[i] = isfinite(lambda[i]) ? lambda[i] : 0;
    }
    copy(q, x, center, n);
}

static const struct psc_kernels kernels = {.begin = begin_or_end,
                                           .end = begin_or_end,
                                           .axpy = axpy,
                                           .scale = scale,
                                           .copy = copy,
                                           .zero = zero,
                                           .subtract = subtract,
                                           .decay = decay,
                                           .elastic = elastic,
                                           .approach = approach,
                                           .rebase = rebase,
                                           .rebase_mixed = rebase_mixed,
                                           .heavy_ball = heavy_ball,
                                           .nesterov = nesterov,
                                           .look = look,
                                           .admm_message = admm_message,
                                           .admm_land = admm_land,
                                           .admm_restart = admm_restart};

const struct psc_memory_kind psc_memory_host = {.name = "host", .kernels = &kernels};

struct psc_work psc_work_of(const struct psc_memory_of *m, enum psc_queue_use use)
{
    if (m->device != NULL)
        return (struct psc_work){m->kind->kernels, m->kind->queue(m->device, use)};
    return (struct psc_work){m->kind->kernels, (struct psc_queue *)(uintptr_t)ps_vec_best()};
}
