/* The worker makes its own steps and every `period` steps sends its change since the last answer, x - start:
 * DOWNPOUR, Zhang et al. 2015 Algorithm 3. It continues from the center in the answer, x <- mix x + (1 - mix)
 * center, start <- center; mix is 0 unless a part of x is to be kept.
 *
 * With fragments (Streaming DiLoCo, Douillard et al. 2025) the vector is sent in parts, one after the other
 * over the period, each with its own start.
 *
 * With overlap the answer lands at the end of a later step: the changes by the steps until then are kept, as
 * the beginning of the next message. Several fragments may be under way: they have no value in common. */
#include <math.h>
#include <stdatomic.h>

#include "client/internal.h"
#include "client/rules/rules.h"
#include "client/team/team.h"
#include "client/worker/worker.h"
#include "proto/model/fragment.h"
#include "proto/clock.h"

/* The range of the exchange that is due. */
static struct ps_range part_of(const struct psc *c)
{
    uint32_t n = psc_pacing_fragments(c);
    return n > 1 ? ps_fragment(&c->shard, c->manifest, n, c->worker.pacing.fragment)
                 : ps_shard_whole(&c->shard);
}

/* Buffers are sent as values. Frozen values are not sent. */
static void make_message(struct psc *c, const float *x, const float *own, struct ps_range part)
{
    float *message = c->worker.vectors[PSC_VECTOR_MESSAGE], *start = c->worker.vectors[PSC_VECTOR_START];
    psc_passes_begin(&c->work);
    for (struct ps_role_run p = ps_role_run_first(c->manifest, part); p.range.count > 0;
         p = ps_role_run_next(p, part)) {
        uint64_t at = p.range.begin;
        if (p.segment->role == PS_ROLE_PARAM)
            psc_subtract(&c->work, message + at, own + at, start + at, p.range.count);
        else if (p.segment->role == PS_ROLE_BUFFER)
            psc_copy(&c->work, message + at, x + at, p.range.count);
    }
    psc_passes_end(&c->work);
}

/* x <- mix x + (1 - mix) center, computed as a move towards the center. */
static void land_mixed(struct psc *c, struct ps_range r, const float *answer, float rate, float *own)
{
    uint64_t scope = c->transfer_state.scope.begin;
    struct ps_range at = {scope + r.begin, r.count};
    (void)rate;
    for (struct ps_role_run p = ps_role_run_first(c->manifest, at); p.range.count > 0;
         p = ps_role_run_next(p, at)) {
        const float *center = answer + (p.range.begin - at.begin);
        if (p.segment->role == PS_ROLE_PARAM)
            psc_elastic(&c->transfer_state.work, own + (p.range.begin - scope), center,
                        (float)(1 - c->worker.hyper.mix), p.range.count);
        else if (p.segment->role == PS_ROLE_BUFFER)
            psc_copy(&c->transfer_state.work, own + (p.range.begin - scope), center, p.range.count);
    }
}

/* Applied piece by piece: a piece without an answer stays unsent. own: from the beginning of the scope. */
static void land(struct psc *c, struct ps_range r, const float *answer, float rate, float *own)
{
    psc_passes_begin(&c->transfer_state.work);
    (c->worker.hyper.mix > 0 ? land_mixed : psc_land_moved)(c, r, answer, rate, own);
    psc_land_moved(c, r, answer, rate, c->worker.vectors[PSC_VECTOR_START] + c->transfer_state.scope.begin);
    psc_passes_end(&c->transfer_state.work);
}

static void land_restart(struct psc *c, struct ps_range r, const float *answer, float rate, float *x)
{
    psc_land_all(c, r, answer, rate, x);
    psc_land_all(c, r, answer, rate, c->worker.vectors[PSC_VECTOR_START]);
}

/* The step counts, and what was not sent is sent with the steps that follow: also those of a run that
 * resumes. */
static bool stays_unsent(int rc)
{
    return rc == PSC_ABORTED || rc == PSC_DRAINED;
}

static int exchange_now(struct psc *c, const struct psc_transfer *t, float *x, struct ps_range part)
{
    psc_prefetch_forgive(c);
    int rc = psc_move(c, t);
    if (rc == PSC_OK || stays_unsent(rc))
        psc_own_lookahead(c, x, part);
    return rc;
}

/* One pass over x on the host: makes the message and looks at it; for parameters start <- own. */
struct change {
    const struct psc *c;
    const float *x, *own;
    uint64_t begin;
    atomic_bool refused; /* a value is not finite */
};

static void take_change(void *arg, uint64_t begin, uint64_t count)
{
    struct change *k = arg;
    const struct ps_vec *vec = k->c->vec;
    float *message = k->c->worker.vectors[PSC_VECTOR_MESSAGE],
          *start = k->c->worker.vectors[PSC_VECTOR_START];
    struct ps_range r = {k->begin + begin, count};
    for (struct ps_role_run p = ps_role_run_first(k->c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r)) {
        uint64_t at = p.range.begin, n = p.range.count;
        bool refused = false;
        if (p.segment->role == PS_ROLE_PARAM) {
            refused = vec->take_change(message + at, start + at, k->own + at, n) > 0;
        } else if (p.segment->role == PS_ROLE_BUFFER) {
            vec->copy(message + at, k->x + at, n);
            refused = vec->first_nonfinite(message + at, n) < n;
        }
        if (refused)
            atomic_store(&k->refused, true);
    }
}

/* Where the message is finite start was moved to own, and is what it was but for a rounding again. */
static void undo_change(const struct psc *c, struct ps_range part, const float *own)
{
    const float *message = c->worker.vectors[PSC_VECTOR_MESSAGE];
    float *start = c->worker.vectors[PSC_VECTOR_START];
    for (struct ps_role_run p = ps_role_run_first(c->manifest, part); p.range.count > 0;
         p = ps_role_run_next(p, part))
        for (uint64_t i = p.range.begin;
             p.segment->role == PS_ROLE_PARAM && i < p.range.begin + p.range.count; i++)
            start[i] = isfinite(message[i]) ? own[i] - message[i] : start[i];
}

static void move_start(struct psc *c, const float *own, struct ps_range part, bool parameters)
{
    float *start = c->worker.vectors[PSC_VECTOR_START];
    psc_passes_begin(&c->work);
    for (struct ps_role_run p = ps_role_run_first(c->manifest, part); p.range.count > 0;
         p = ps_role_run_next(p, part))
        if (p.segment->role == PS_ROLE_BUFFER || (parameters && p.segment->role == PS_ROLE_PARAM))
            psc_copy(&c->work, start + p.range.begin, own + p.range.begin, p.range.count);
    psc_passes_end(&c->work);
}

/* Makes the message; from then on x - start counts from the x that is sent. The caller waits meanwhile, so
 * the host makes one pass of it. */
static int begin_message(struct psc *c, struct psc_transfer *t, const float *x, const float *own,
                         struct ps_range part)
{
    struct change k = {.c = c, .x = x, .own = own, .begin = part.begin};
    bool on_host = c->memory.device == NULL;
    int rc = PSC_OK;
    if (on_host) {
        psc_team_run(c->team, part.count, take_change, &k);
        if (k.refused) {
            undo_change(c, part, own);
            rc = psc_transfer_check(c, t, &c->error);
        }
    } else {
        t->watched = psc_watch(c, c->worker.vectors[PSC_VECTOR_MESSAGE], part);
        make_message(c, x, own, part);
        rc = psc_transfer_check(c, t, &c->error);
    }
    if (rc == PSC_OK)
        move_start(c, own, part, !on_host);
    return rc;
}

static int exchange_later(struct psc *c, struct psc_transfer *t, const float *x, const float *own,
                          struct ps_range part)
{
    int rc = begin_message(c, t, x, own, part);
    if (rc != PSC_OK)
        return rc;
    t->name = NULL;
    t->watched = false;
    t->landed = psc_land_moved;
    t->target = c->worker.vectors[PSC_VECTOR_PREFETCHED] + part.begin;
    psc_prefetch_exchange(c, t, c->worker.clock + 1, psc_overlap_defers(c));
    return PSC_OK;
}

/* Mixed x is moved towards the center; with overlap only the answer lands, and x takes it later. */
static unsigned keeps_moved(const struct psc *c)
{
    return c->worker.hyper.mix > 0 && c->worker.hyper.overlap == 0 ? PSC_VECTOR_BIT(PSC_VECTOR_KEPT_X) : 0;
}

/* The transfer of a part of the message. */
static struct psc_transfer transfer_of(const struct psc *c, uint32_t fragment, struct ps_range part,
                                       float *target, size_t n_samples)
{
    const float *message = c->worker.vectors[PSC_VECTOR_MESSAGE];
    struct psc_transfer t = psc_exchange_of(c, message + part.begin, target + part.begin, n_samples);
    t.is_owed = true;
    t.is_fragment = psc_pacing_fragments(c) > 1;
    t.fragment = (uint16_t)fragment;
    t.part = part;
    return t;
}

static struct psc_transfer again(struct psc *c, const struct psc_prefetch *a)
{
    struct psc_transfer t =
        transfer_of(c, a->fragment, a->part, c->worker.vectors[PSC_VECTOR_PREFETCHED], a->samples);
    t.name = NULL;
    t.landed = psc_land_moved;
    t.clock = a->first - 1;
    return t;
}

/* The answer is the center at the time when x was sent. x becomes the value of a worker that had started from
 * there, mixed by mix. */
static void rebase(struct psc *c, float *own, float *start, const float *answer, size_t n)
{
    if (c->worker.hyper.mix > 0)
        psc_rebase_mixed(&c->work, own, start, answer, (float)(1 - c->worker.hyper.mix), n);
    else
        psc_rebase(&c->work, own, start, answer, n);
}

struct landing {
    struct psc *c;
    float *own;
    uint64_t begin;
};

static void land_piece(void *arg, uint64_t begin, uint64_t count)
{
    struct landing *l = arg;
    struct psc *c = l->c;
    float *start = c->worker.vectors[PSC_VECTOR_START];
    const float *answer = c->worker.vectors[PSC_VECTOR_PREFETCHED];
    struct ps_range r = {l->begin + begin, count};
    psc_passes_begin(&c->work);
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r)) {
        uint64_t at = p.range.begin;
        if (p.segment->role == PS_ROLE_PARAM)
            rebase(c, l->own + at, start + at, answer + at, p.range.count);
        else if (p.segment->role == PS_ROLE_BUFFER)
            psc_copy(&c->work, l->own + at, answer + at, p.range.count);
    }
    psc_passes_end(&c->work);
}

/* x <- answer + (x - start), start <- answer. Buffers take the answer as it is, because the caller may keep
 * them above a bound. */
static void take_over(struct psc *c, float *x, struct psc_prefetch *a)
{
    struct landing l = {c, psc_own_x(c, x), a->part.begin};
    double begin = ps_now_s();
    psc_team_run(c->team, a->part.count, land_piece, &l);
    a->landed = false;
    c->pulled = true;
    c->worker.update_s += ps_now_s() - begin;
    psc_own_lookahead(c, x, a->part);
}

/* start is the x that was sent. */
static void take_back(struct psc *c, const struct psc_prefetch *a)
{
    float *start = c->worker.vectors[PSC_VECTOR_START];
    const float *message = c->worker.vectors[PSC_VECTOR_MESSAGE];
    struct ps_range part = a->part;
    psc_passes_begin(&c->work);
    for (struct ps_role_run p = ps_role_run_first(c->manifest, part); p.range.count > 0;
         p = ps_role_run_next(p, part))
        if (p.segment->role == PS_ROLE_PARAM)
            psc_axpy(&c->work, start + p.range.begin, message + p.range.begin, -1, p.range.count);
    psc_passes_end(&c->work);
}

static int exchange(struct psc *c, float *x, float *own, size_t n_samples)
{
    struct ps_range part = part_of(c);
    struct psc_transfer t = transfer_of(c, c->worker.pacing.fragment, part, own, n_samples);
    if (c->worker.hyper.overlap > 0)
        return exchange_later(c, &t, x, own, part);
    t.watched = psc_watch(c, c->worker.vectors[PSC_VECTOR_MESSAGE], part);
    make_message(c, x, own, part);
    t.landed = land;
    if (keeps_moved(c) != 0 && c->worker.vectors[PSC_VECTOR_KEPT_X] != NULL)
        t.moved[0] = (struct psc_moved){t.target, c->worker.vectors[PSC_VECTOR_KEPT_X] + part.begin};
    return exchange_now(c, &t, x, part);
}

static int step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    float *own = psc_own_x(c, x);
    bool due = psc_pacing_is_due(c);
    int rc = PSC_OK;
    psc_gradient_decay(c, x, g);
    psc_own_step(c, x, g);
    for (uint32_t i = 0; i < c->worker.n_prefetches; i++)
        if (psc_prefetch_lands(c, &c->worker.prefetch[i]))
            take_over(c, x, &c->worker.prefetch[i]);
    if (due)
        rc = exchange(c, x, own, n_samples);
    if (rc == PSC_EVALUE)
        c->worker.restart = true; /* diverged: restart from where the caller continues */
    if (rc != PSC_OK && !stays_unsent(rc))
        return rc;
    c->worker.clock++;
    if (stays_unsent(rc)) {
        psc_pacing_restart(c);
    } else if (due) {
        psc_pacing_exchanged(c);
    } else {
        psc_pacing_stepped(c);
    }
    if (rc == PSC_ABORTED)
        c->error.text[0] = 0;
    return rc == PSC_ABORTED ? PSC_OK : rc;
}

/* The steps that the last answers do not include, and messages that were in flight. */
static float *unsent(struct psc *c, float *x)
{
    for (uint32_t i = 0; i < c->worker.n_prefetches; i++)
        if (c->worker.prefetch[i].lost)
            take_back(c, &c->worker.prefetch[i]);
    make_message(c, x, psc_own_x(c, x), ps_shard_whole(&c->shard));
    return c->worker.vectors[PSC_VECTOR_MESSAGE];
}

static bool begins_next(const struct psc *c, struct ps_range part)
{
    return psc_pacing_is_due(c) && ps_range_intersect(part_of(c), part).count > 0;
}

const struct psc_rule psc_rule_delta = {.keeps = PSC_VECTOR_BIT(PSC_VECTOR_START) |
                                                 PSC_VECTOR_BIT(PSC_VECTOR_MESSAGE),
                                        .overlaps = true,
                                        .defers = true,
                                        .staler = true,
                                        .steps_first = true,
                                        .finishes = true,
                                        .step = step,
                                        .begins_next = begins_next,
                                        .again = again,
                                        .keeps_moved = keeps_moved,
                                        .take_over = take_over,
                                        .unsent = unsent,
                                        .take_back = take_back,
                                        .land_restart = land_restart};
