/* The elastic rule, Zhang et al. 2015 Algorithms 1-2: every `period` steps x is sent to the server and moves
 * towards the center in the answer; then the worker makes its own step with g, taken at the point before the
 * exchange.
 *
 * With overlap the exchange of a step starts at the end of the step before: x is the same then, so the result
 * is the same, bit for bit; only buffers that the caller changes meanwhile are sent as they were before. With
 * an overlap of more than one step x moves on meanwhile, and the answer's move of x as sent is applied. If
 * one worker computes at a time (serial), its turn ends with the last piece for each lane, which is sent when
 * the gradient is complete. All other pieces are sent meanwhile, as in the Original EASGD of You et al. 2017,
 * Table 3. */
#include "client/internal.h"
#include "client/rules/rules.h"
#include "client/worker/worker.h"
#include "proto/clock.h"

/* x <- x - alpha (x - center): Zhang et al. 2015, eq. 5, with the alpha that the server applied. */
static void land(struct psc *c, struct ps_range r, const float *answer, float rate, float *x)
{
    psc_passes_begin(&c->transfer_state.work);
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r))
        if (p.segment->role != PS_ROLE_FROZEN)
            psc_elastic(&c->transfer_state.work, x + p.range.begin, answer + (p.range.begin - r.begin), rate,
                        p.range.count);
    psc_passes_end(&c->transfer_state.work);
}

/* The same for an overlapped exchange, but for buffers: the caller changes them during the exchange, so the
 * center's values are kept and applied to the buffers as they are afterwards. */
static void land_prefetched(struct psc *c, struct ps_range r, const float *answer, float rate, float *x)
{
    psc_passes_begin(&c->transfer_state.work);
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r)) {
        const float *center = answer + (p.range.begin - r.begin);
        if (p.segment->role == PS_ROLE_PARAM)
            psc_elastic(&c->transfer_state.work, x + p.range.begin, center, rate, p.range.count);
        else if (p.segment->role == PS_ROLE_BUFFER)
            psc_copy(&c->transfer_state.work, x + p.range.begin, center, p.range.count);
    }
    psc_passes_end(&c->transfer_state.work);
}

/* For an exchange that takes many steps: the move of x as it was sent, -alpha (x - center). */
static void land_move(struct psc *c, struct ps_range r, const float *answer, float rate, float *move)
{
    const float *sent = c->worker.vectors[PSC_VECTOR_MESSAGE];
    psc_passes_begin(&c->transfer_state.work);
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r)) {
        const float *center = answer + (p.range.begin - r.begin);
        uint64_t at = p.range.begin;
        if (p.segment->role == PS_ROLE_PARAM)
            psc_approach(&c->transfer_state.work, move + at, center, sent + at, rate, p.range.count);
        else if (p.segment->role == PS_ROLE_BUFFER)
            psc_copy(&c->transfer_state.work, move + at, center, p.range.count);
    }
    psc_passes_end(&c->transfer_state.work);
}

/* What the answer to the transfer moves. */
static struct psc_moved moved(const struct psc *c, float *own)
{
    return (struct psc_moved){own, c->worker.vectors[PSC_VECTOR_KEPT_X]};
}

/* One that takes many steps moves nothing: its answer is computed from x as it was sent. */
static unsigned keeps_moved(const struct psc *c)
{
    return psc_overlap_defers(c) ? 0 : PSC_VECTOR_BIT(PSC_VECTOR_KEPT_X);
}

/* Makes the exchange that is due. */
static int exchange_now(struct psc *c, float *x, float *own, size_t n_samples)
{
    struct psc_transfer t = psc_exchange_of(c, own, own, n_samples);
    t.landed = land;
    t.moved[0] = moved(c, own);
    t.may_be_in_place = true;
    if (own != x)
        psc_copy_buffers(c, own, x);
    int rc = psc_move(c, &t);
    if (rc == PSC_OK && own != x)
        psc_copy_buffers(c, x, own);
    return rc;
}

/* The vector that a prefetched exchange is applied to. */
static float *brought_to(const struct psc *c, bool deferred)
{
    return c->worker.vectors[PSC_VECTOR_X] != NULL && !deferred ? c->worker.vectors[PSC_VECTOR_X]
                                                                : c->worker.vectors[PSC_VECTOR_PREFETCHED];
}

/* Starts the next step's exchange, which runs while the caller computes. */
static void exchange_ahead(struct psc *c, float *x, size_t n_samples)
{
    float *own = brought_to(c, false);
    struct psc_transfer t = psc_exchange_of(c, own, own, n_samples);
    t.landed = land_prefetched;
    t.moved[0] = moved(c, own);
    t.keeps_turn = c->worker.hyper.serial;
    if (own == c->worker.vectors[PSC_VECTOR_X])
        psc_copy_buffers(c, own, x);
    else
        psc_copy_moved(c, own, x);
    psc_prefetch_exchange(c, &t, c->worker.clock, false);
}

/* The transfer of x as it was sent. */
static struct psc_transfer deferred_exchange(struct psc *c, size_t n_samples)
{
    struct psc_transfer t = psc_exchange_of(c, c->worker.vectors[PSC_VECTOR_MESSAGE],
                                            c->worker.vectors[PSC_VECTOR_PREFETCHED], n_samples);
    t.name = "x";
    t.landed = land_move;
    t.lands_at_end = true;
    return t;
}

static struct psc_transfer again(struct psc *c, const struct psc_prefetch *a)
{
    struct psc_transfer t = deferred_exchange(c, a->samples);
    t.name = NULL;
    t.clock = a->first;
    return t;
}

struct sent {
    const struct psc *c;
    const float *x, *own;
};

/* The worker's own parameters, and the caller's buffers. */
static void copy_sent(void *arg, uint64_t begin, uint64_t count)
{
    const struct sent *s = arg;
    const struct psc *c = s->c;
    struct ps_range r = {begin, count};
    psc_passes_begin(&c->work);
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r))
        if (p.segment->role != PS_ROLE_FROZEN)
            psc_copy(&c->work, c->worker.vectors[PSC_VECTOR_MESSAGE] + p.range.begin,
                     (p.segment->role == PS_ROLE_BUFFER ? s->x : s->own) + p.range.begin, p.range.count);
    psc_passes_end(&c->work);
}

/* Starts an exchange that may take many steps. */
static int exchange_deferred(struct psc *c, const float *x, const float *own, size_t n_samples)
{
    struct sent s = {c, x, own};
    bool watched = psc_watch(c, c->worker.vectors[PSC_VECTOR_MESSAGE], ps_shard_whole(&c->shard));
    psc_team_run(c->team, c->shard.n_floats, copy_sent, &s);
    struct psc_transfer t = deferred_exchange(c, n_samples);
    t.watched = watched;
    int rc = psc_transfer_check(c, &t, &c->error);
    if (rc != PSC_OK)
        return rc;
    t.name = NULL;
    t.watched = false;
    psc_prefetch_exchange(c, &t, c->worker.clock, true);
    return PSC_OK;
}

/* Applies its answer. True: the worker's own x has moved, and x, which is ahead of it, has not. */
static bool apply_answer(struct psc *c, float *x, struct psc_prefetch *a)
{
    bool deferred = a->deferred;
    const float *brought = brought_to(c, deferred);
    float *own = psc_own_x(c, x);
    double begin = ps_now_s();
    psc_passes_begin(&c->work);
    for (size_t i = 0; i < c->manifest->n_segments; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        uint64_t at = s->range.begin;
        if (s->role == PS_ROLE_BUFFER)
            psc_elastic(&c->work, x + at, brought + at, a->outcome.rate, s->range.count);
        else if (s->role == PS_ROLE_PARAM && deferred)
            psc_axpy(&c->work, own + at, brought + at, 1, s->range.count);
        else if (s->role == PS_ROLE_PARAM && brought != c->worker.vectors[PSC_VECTOR_X])
            psc_copy(&c->work, x + at, brought + at, s->range.count);
    }
    psc_passes_end(&c->work);
    a->landed = false;
    c->pulled = true;
    c->worker.update_s += ps_now_s() - begin;
    if (own == x)
        return false;
    psc_copy_buffers(c, own, x);
    return deferred;
}

static void take_over(struct psc *c, float *x, struct psc_prefetch *a)
{
    if (apply_answer(c, x, a))
        psc_own_lookahead(c, x, ps_shard_whole(&c->shard));
}

static bool exchange_is_due(const struct psc *c)
{
    return c->worker.clock % c->worker.hyper.period == 0;
}

/* With overlap an exchange begins at the end of a step. */
static bool begins_next(const struct psc *c, struct ps_range part)
{
    (void)part;
    return (c->worker.clock + 1) % c->worker.hyper.period == 0;
}

/* The exchange that belongs before this step, unless the step before has started it. The optimizer's step
 * then also writes the x that is ahead. */
static int exchange_before(struct psc *c, float *x, float *own, size_t n_samples, bool defers)
{
    struct psc_prefetch *a = c->worker.prefetch;
    bool is_behind = psc_prefetch_lands(c, a) && apply_answer(c, x, a);
    if (!exchange_is_due(c) || a->first == c->worker.clock)
        return PSC_OK;
    int rc = defers ? exchange_deferred(c, x, own, n_samples) : exchange_now(c, x, own, n_samples);
    if (rc != PSC_OK && is_behind)
        psc_own_lookahead(c, x, ps_shard_whole(&c->shard));
    return rc;
}

/* A vector that is not finite is not sent: the exchange is still due, and the next step reports it. */
static void exchange_after(struct psc *c, float *x, float *own, size_t n_samples, bool defers)
{
    if (!defers)
        exchange_ahead(c, x, n_samples);
    else if (exchange_deferred(c, x, own, n_samples) != PSC_OK)
        c->error.text[0] = 0;
}

/* Whether the other members of a clique get x after this step, which an exchange that has begun would move
 * meanwhile. */
static bool is_sent_after(const struct psc *c, bool defers)
{
    return c->group.size > 1 && c->pulled && brought_to(c, defers) == c->worker.vectors[PSC_VECTOR_X];
}

static int step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    float *own = psc_own_x(c, x);
    uint64_t save_version = c->worker.save_version;
    bool defers = psc_overlap_defers(c);
    psc_gradient_decay(c, x, g);
    int rc = exchange_before(c, x, own, n_samples, defers);
    if (rc == PSC_EVALUE)
        c->worker.restart = true; /* diverged: restart from where the caller continues */
    if (rc != PSC_OK)
        return rc;
    psc_own_step(c, x, g);
    c->worker.clock++;
    /* If the server has asked to save, the next exchange is not started: the state must match the center. One
     * that takes many steps is part of the state. */
    if (c->worker.hyper.overlap > 0 && exchange_is_due(c) && !psc_refresh(c) &&
        (defers || c->worker.save_version == save_version) && !is_sent_after(c, defers))
        exchange_after(c, x, own, n_samples, defers);
    return PSC_OK;
}

const struct psc_rule psc_rule_elastic = {.overlaps = true,
                                          .lands_in_x = true,
                                          .defers = true,
                                          .step = step,
                                          .begins_next = begins_next,
                                          .again = again,
                                          .keeps_moved = keeps_moved,
                                          .take_over = take_over};
