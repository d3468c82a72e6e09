/* The elastic rule, Zhang et al. 2015 Algorithms 1-2: every `period` steps x is sent to the server and moves
 * towards the center in the answer; then the worker makes its own step with g, taken at the point before the
 * exchange.
 *
 * With overlap the exchange of a step starts at the end of the step before: x is the same then, so the result
 * is the same, bit for bit. If one worker computes at a time (serial), its turn ends with the last piece for
 * each lane, which is sent when the gradient is complete. All other pieces are sent meanwhile, as in the
 * Original EASGD of You et al. 2017, Table 3. */
#include "client/internal.h"
#include "client/rules/rules.h"
#include "client/worker/worker.h"
#include "proto/clock.h"

/* x <- x - alpha (x - center): Zhang et al. 2015, eq. 5, with the alpha that the server applied. */
static void land(struct psc *c, struct ps_range r, const float *answer, float rate, float *x)
{
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r))
        if (p.segment->role != PS_ROLE_FROZEN)
            c->vec->elastic(x + p.range.begin, answer + (p.range.begin - r.begin), rate, p.range.count);
}

/* The same for an overlapped exchange, but for buffers: the caller changes them during the exchange, so the
 * center's values are kept and applied to the buffers as they are afterwards. */
static void land_prefetched(struct psc *c, struct ps_range r, const float *answer, float rate, float *x)
{
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r)) {
        const float *center = answer + (p.range.begin - r.begin);
        if (p.segment->role == PS_ROLE_PARAM)
            c->vec->elastic(x + p.range.begin, center, rate, p.range.count);
        else if (p.segment->role == PS_ROLE_BUFFER)
            c->vec->copy(x + p.range.begin, center, p.range.count);
    }
}

/* Makes the exchange that is due. */
static int exchange_now(struct psc *c, float *x, float *own, size_t n_samples)
{
    struct psc_transfer t = psc_exchange_of(c, own, own, n_samples);
    t.landed = land;
    t.may_be_in_place = true;
    if (own != x)
        psc_copy_buffers(c, own, x);
    int rc = psc_move(c, &t);
    if (rc == PSC_OK && own != x)
        psc_copy_buffers(c, x, own);
    return rc;
}

/* The vector that a prefetched exchange is applied to. */
static float *brought_to(const struct psc *c)
{
    return c->worker.vectors[PSC_VECTOR_X] != NULL ? c->worker.vectors[PSC_VECTOR_X]
                                                   : c->worker.vectors[PSC_VECTOR_PREFETCHED];
}

/* Starts the next step's exchange, which runs while the caller computes. */
static void exchange_ahead(struct psc *c, float *x, size_t n_samples)
{
    float *own = brought_to(c);
    struct psc_transfer t = psc_exchange_of(c, own, own, n_samples);
    t.landed = land_prefetched;
    t.keeps_turn = c->worker.hyper.serial;
    if (own == c->worker.vectors[PSC_VECTOR_X])
        psc_copy_buffers(c, own, x);
    else
        psc_copy_moved(c, own, x);
    psc_prefetch_exchange(c, &t);
}

/* Its answer. */
static void take_over(struct psc *c, float *x)
{
    const float *brought = brought_to(c);
    double begin = ps_now_s();
    for (size_t i = 0; i < c->manifest->n_segments; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        uint64_t at = s->range.begin;
        if (s->role == PS_ROLE_BUFFER)
            c->vec->elastic(x + at, brought + at, c->worker.prefetch.outcome.rate, s->range.count);
        else if (s->role == PS_ROLE_PARAM && brought != c->worker.vectors[PSC_VECTOR_X])
            c->vec->copy(x + at, brought + at, s->range.count);
    }
    c->worker.prefetch.landed = false;
    c->pulled = true;
    c->worker.update_s += ps_now_s() - begin;
}

static bool exchange_is_due(const struct psc *c)
{
    return c->worker.clock % c->worker.hyper.period == 0;
}

static int step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    float *own = psc_own_x(c, x);
    uint64_t save_version = c->worker.save_version;
    int rc = PSC_OK;
    psc_gradient_decay(c, x, g);
    if (c->worker.prefetch.landed)
        take_over(c, x);
    else if (exchange_is_due(c))
        rc = exchange_now(c, x, own, n_samples);
    if (rc == PSC_EVALUE)
        c->worker.restart = true; /* diverged: restart from where the caller continues */
    if (rc != PSC_OK)
        return rc;
    psc_own_step(c, x, g);
    c->worker.clock++;
    /* If the server has asked to save, the next exchange is not started: the state must match the center. */
    if (c->worker.hyper.overlap && exchange_is_due(c) && !psc_refresh(c) &&
        c->worker.save_version == save_version)
        exchange_ahead(c, x, n_samples);
    return PSC_OK;
}

const struct psc_rule psc_rule_elastic = {
    .overlaps = true, .lands_in_x = true, .step = step, .take_over = take_over};
