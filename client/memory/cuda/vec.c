/* vec.c: the row's kernels, enqueued: as rows of a table, which one launch makes. */
#include <assert.h>

#include "client/memory/cuda/cuda.h"
#include "client/memory/cuda/launch.h"

/* Launches the passes that were gathered. */
static void launch_passes(struct psc_queue *q)
{
    struct psc_passes *t = &q->passes;
    if (t->n == 0)
        return;
    t->first = q->first;
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, psc_cuda_passes(q->stream, t), "a pass over vectors");
    t->n = t->n_tiles = 0;
}

static bool is_watched(const struct psc_queue *q, const float *to)
{
    return (uintptr_t)to >= (uintptr_t)q->watched &&
           (uintptr_t)to < (uintptr_t)q->watched + q->n_watched * sizeof *to;
}

/* Adds a pass; alone, it is launched at once. */
static void add(struct psc_queue *q, struct psc_pass pass)
{
    struct psc_passes *t = &q->passes;
    if (pass.n == 0)
        return;
    pass.is_watched = is_watched(q, pass.to);
    pass.at = pass.is_watched ? q->watched_at + (uint64_t)(pass.to - q->watched) : 0;
    pass.first_tile = t->n_tiles;
    t->at[t->n++] = pass;
    t->n_tiles += (uint32_t)((pass.n + PSC_PASS_TILE - 1) / PSC_PASS_TILE);
    if (q->open == 0 || t->n == PSC_PASSES)
        launch_passes(q);
}

static void begin(struct psc_queue *q)
{
    q->open++;
}

static void end(struct psc_queue *q)
{
    assert(q->open > 0);
    if (--q->open == 0)
        launch_passes(q);
}

static void axpy(struct psc_queue *q, float *y, const float *x, float a, size_t n)
{
    add(q, (struct psc_pass){.kind = PSC_PASS_AXPY, .n = n, .to = y, .in = {x}, .a = a});
}

static void scale(struct psc_queue *q, float *x, float a, size_t n)
{
    add(q, (struct psc_pass){.kind = PSC_PASS_SCALE, .n = n, .to = x, .a = a});
}

static void copy(struct psc_queue *q, float *to, const float *from, size_t n)
{
    add(q, (struct psc_pass){.kind = PSC_PASS_COPY, .n = n, .to = to, .in = {from}});
}

static void zero(struct psc_queue *q, float *x, size_t n)
{
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, cudaMemsetAsync(x, 0, n * sizeof *x, q->stream), "zero");
}

static void subtract(struct psc_queue *q, float *out, const float *x, const float *y, size_t n)
{
    add(q, (struct psc_pass){.kind = PSC_PASS_SUBTRACT, .n = n, .to = out, .in = {x, y}});
}

static void decay(struct psc_queue *q, float *out, const float *g, const float *x, float lambda, size_t n)
{
    add(q, (struct psc_pass){.kind = PSC_PASS_DECAY, .n = n, .to = out, .in = {g, x}, .a = lambda});
}

static void elastic(struct psc_queue *q, float *x, const float *center, float a, size_t n)
{
    add(q, (struct psc_pass){.kind = PSC_PASS_ELASTIC, .n = n, .to = x, .in = {center}, .a = a});
}

static void approach(struct psc_queue *q, float *out, const float *center, const float *x, float a, size_t n)
{
    add(q, (struct psc_pass){.kind = PSC_PASS_APPROACH, .n = n, .to = out, .in = {center, x}, .a = a});
}

static void rebase(struct psc_queue *q, float *x, float *start, const float *center, size_t n)
{
    add(q, (struct psc_pass){.kind = PSC_PASS_REBASE, .n = n, .to = x, .also = start, .in = {center}});
}

static void rebase_mixed(struct psc_queue *q, float *x, float *start, const float *center, float a, size_t n)
{
    add(q, (struct psc_pass){
               .kind = PSC_PASS_REBASE_MIXED, .n = n, .to = x, .also = start, .in = {center}, .a = a});
}

static void heavy_ball(struct psc_queue *q, float *x, float *v, const float *g, float eta, float mu, size_t n)
{
    add(q, (struct psc_pass){
               .kind = PSC_PASS_HEAVY_BALL, .n = n, .to = x, .also = v, .in = {g}, .a = eta, .b = mu});
}

static void nesterov(struct psc_queue *q, float *at, float *x, float *v, const float *g, float eta,
                     float delta, size_t n)
{
    add(q, (struct psc_pass){
               .kind = PSC_PASS_NESTEROV, .n = n, .to = x, .also = v, .in = {g, at}, .a = eta, .b = delta});
}

static void look(struct psc_queue *q, float *at, const float *x, const float *v, float delta, size_t n)
{
    add(q, (struct psc_pass){.kind = PSC_PASS_LOOK, .n = n, .to = at, .in = {x, v}, .a = delta});
}

static void admm_message(struct psc_queue *q, float *m, const float *x, const float *lambda, const float *g,
                         float eta, float pull, float by, size_t n)
{
    add(q, (struct psc_pass){.kind = PSC_PASS_ADMM_MESSAGE,
                             .n = n,
                             .to = m,
                             .in = {x, lambda, g},
                             .a = eta,
                             .b = pull,
                             .c = by});
}

static void admm_land(struct psc_queue *q, float *x, float *lambda, const float *center, const float *g,
                      float eta, float pull, float by, size_t n)
{
    add(q, (struct psc_pass){.kind = PSC_PASS_ADMM_LAND,
                             .n = n,
                             .to = x,
                             .also = lambda,
                             .in = {center, g},
                             .a = eta,
                             .b = pull,
                             .c = by});
}

static void admm_restart(struct psc_queue *q, float *x, float *lambda, const float *center, size_t n)
{
    add(q, (struct psc_pass){.kind = PSC_PASS_ADMM_RESTART, .n = n, .to = x, .also = lambda, .in = {center}});
}

const struct psc_kernels psc_cuda_kernels = {.begin = begin,
                                             .end = end,
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
