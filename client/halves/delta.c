/* The worker that steps on its own and every `period` steps sends what became of the point that it last
 * adopted, x - start: DOWNPOUR, Zhang et al. 2015 Algorithm 3. It goes on from the center that comes back.
 *
 * With overlap the answer lands at the end of the next step: what that one did meanwhile is kept, as the
 * beginning of the next message. */
#include "client/halves/halves.h"

/* Buffers travel by their values. Frozen ones are not sent. */
static void make_message(struct psc *c, const float *x, const float *own)
{
    float *message = c->kept[PSC_KEPT_MESSAGE], *start = c->kept[PSC_KEPT_START];
    for (size_t i = 0; i < c->manifest->n_segments; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        uint64_t at = s->range.begin;
        if (s->role == PS_ROLE_PARAM)
            c->vec->subtract(message + at, own + at, start + at, s->range.count);
        else if (s->role == PS_ROLE_BUFFER)
            c->vec->copy(message + at, x + at, s->range.count);
    }
}

/* Piece by piece: whatever stays unanswered is still owed. */
static void land(struct psc *c, struct ps_range r, const float *answer, float rate, float *own)
{
    psc_land_moved(c, r, answer, rate, own);
    psc_land_moved(c, r, answer, rate, c->kept[PSC_KEPT_START]);
}

static void land_anew(struct psc *c, struct ps_range r, const float *answer, float rate, float *x)
{
    psc_land_all(c, r, answer, rate, x);
    psc_land_all(c, r, answer, rate, c->kept[PSC_KEPT_START]);
}

static int exchange_now(struct psc *c, const struct psc_transfer *t, float *x)
{
    int rc = psc_move(c, t);
    if (rc == PSC_OK)
        psc_own_look(c, x);
    return rc;
}

/* From now on x counts from what it is, until the answer says where that was. */
static int exchange_later(struct psc *c, struct psc_transfer *t, const float *own)
{
    int rc = psc_transfer_check(c, t, &c->error);
    if (rc != PSC_OK)
        return rc;
    psc_copy_moved(c, c->kept[PSC_KEPT_START], own);
    t->name = NULL;
    t->landed = psc_land_moved;
    t->target = c->kept[PSC_KEPT_AHEAD];
    psc_exchange_ahead(c, t);
    return PSC_OK;
}

/* x <- answer + (x - start), start <- answer. Buffers, which the caller may keep above some bound, are the
 * answer's. */
static void take_over(struct psc *c, float *x)
{
    float *own = psc_own_x(c, x), *start = c->kept[PSC_KEPT_START];
    const float *answer = c->kept[PSC_KEPT_AHEAD];
    double begin = psc_now_s();
    for (size_t i = 0; i < c->manifest->n_segments; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        uint64_t at = s->range.begin;
        if (s->role == PS_ROLE_PARAM)
            c->vec->rebase(own + at, start + at, answer + at, s->range.count);
        else if (s->role == PS_ROLE_BUFFER)
            c->vec->copy(own + at, answer + at, s->range.count);
    }
    c->ahead.landed = false;
    c->update_s += psc_now_s() - begin;
    psc_own_look(c, x);
}

static int step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    float *own = psc_own_x(c, x);
    int rc = PSC_OK;
    psc_gradient_decay(c, x, g);
    psc_own_step(c, x, g);
    if (c->ahead.landed)
        take_over(c, x);
    if ((c->clock + 1) % c->hyper.period == 0) {
        make_message(c, x, own);
        struct psc_transfer t = psc_exchange_of(c, c->kept[PSC_KEPT_MESSAGE], own, n_samples);
        t.landed = land;
        rc = c->hyper.overlap ? exchange_later(c, &t, own) : exchange_now(c, &t, x);
    }
    if (rc == PSC_EVALUE)
        c->fresh = true; /* diverged: from wherever the caller goes on */
    if (rc == PSC_OK)
        c->clock++;
    return rc;
}

const struct psc_half psc_half_delta = {.keeps = PSC_KEPT(PSC_KEPT_START) | PSC_KEPT(PSC_KEPT_MESSAGE),
                                        .overlaps = true,
                                        .staler = true,
                                        .step = step,
                                        .finish = take_over,
                                        .land_anew = land_anew};
