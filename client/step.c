/* What the method asks of a worker: the order inside psc_step (DESIGN 3). */
#include <stdlib.h>
#include <string.h>

#include "client/psc.h"

bool psc_look(struct psc *c)
{
    pthread_mutex_lock(&c->shared.lock);
    bool draining = c->shared.draining;
    c->shared.clock = c->clock;
    c->hyper = c->shared.hyper;
    c->save_version = c->shared.save_version;
    pthread_mutex_unlock(&c->shared.lock);
    return draining;
}

int psc_check_worker(struct psc *c, const char *call, const void *a, const void *b)
{
    if (!c->begun)
        return psc_fail(c, PSC_EINVAL, "%s: psc_begin comes first", call);
    if (c->opt.kind != PSC_WORKER)
        return psc_fail(c, PSC_EINVAL, "%s: an observer only pulls", call);
    if (a == NULL || b == NULL)
        return psc_fail(c, PSC_EINVAL, "%s: a vector is missing", call);
    return PSC_OK;
}

/* x <- answer */
void psc_land_all(struct psc *c, struct ps_range r, const float *answer, float rate, float *target)
{
    (void)c;
    (void)rate;
    memcpy(target + r.begin, answer, r.count * sizeof *target);
}

/* The same where the rule moves anything. */
void psc_land_moved(struct psc *c, struct ps_range r, const float *answer, float rate, float *target)
{
    uint64_t scope = c->carriage.scope.begin;
    struct ps_range at = {scope + r.begin, r.count};
    (void)rate;
    for (struct psc_part p = psc_first_part(c->manifest, at); p.range.count > 0; p = psc_next_part(p, at))
        if (p.segment->role != PS_ROLE_FROZEN)
            memcpy(target + (p.range.begin - scope), answer + (p.range.begin - at.begin),
                   p.range.count * sizeof *target);
}

/* x <- x - alpha (x - center): Zhang et al. 2015, eq. 2, with the alpha that the server applied. */
static void land_elastic(struct psc *c, struct ps_range r, const float *answer, float rate, float *x)
{
    for (struct psc_part p = psc_first_part(c->manifest, r); p.range.count > 0; p = psc_next_part(p, r))
        if (p.segment->role != PS_ROLE_FROZEN)
            c->vec->elastic(x + p.range.begin, answer + (p.range.begin - r.begin), rate, p.range.count);
}

/* The same, but for buffers: the caller changes his while this one travels, and the move is made to what they
 * are then. Until then the center's are kept. */
static void land_ahead(struct psc *c, struct ps_range r, const float *answer, float rate, float *x)
{
    for (struct psc_part p = psc_first_part(c->manifest, r); p.range.count > 0; p = psc_next_part(p, r)) {
        const float *center = answer + (p.range.begin - r.begin);
        if (p.segment->role == PS_ROLE_PARAM)
            c->vec->elastic(x + p.range.begin, center, rate, p.range.count);
        else if (p.segment->role == PS_ROLE_BUFFER)
            c->vec->copy(x + p.range.begin, center, p.range.count);
    }
}

static void copy_segment(const struct psc *c, const struct ps_segment *s, float *to, const float *from)
{
    c->vec->copy(to + s->range.begin, from + s->range.begin, s->range.count);
}

static void copy_buffers(const struct psc *c, float *to, const float *from)
{
    for (size_t i = 0; i < c->manifest->n_segments; i++)
        if (c->manifest->segments[i].role == PS_ROLE_BUFFER)
            copy_segment(c, &c->manifest->segments[i], to, from);
}

/* All but the frozen values. */
static void copy_moved(const struct psc *c, float *to, const float *from)
{
    for (size_t i = 0; i < c->manifest->n_segments; i++)
        if (c->manifest->segments[i].role != PS_ROLE_FROZEN)
            copy_segment(c, &c->manifest->segments[i], to, from);
}

static struct psc_transfer exchange_of(const struct psc *c, const float *message, float *target,
                                       size_t n_samples)
{
    return (struct psc_transfer){.kind = PS_FRAME_EXCHANGE,
                                 .send = message,
                                 .name = message == target ? "x" : "the message",
                                 .samples = n_samples > UINT32_MAX ? UINT32_MAX : (uint32_t)n_samples,
                                 .clock = c->clock,
                                 .target = target};
}

int psc_step_prepare(struct psc *c)
{
    uint64_t n = c->shard.n_floats;
    bool own_x = c->optimizer->has_state;
    if (own_x && c->x == NULL) {
        c->x = malloc(n * sizeof *c->x);
        c->v = malloc(n * sizeof *c->v);
        c->fresh = true;
    }
    if (psc_gradient_needs_room(c) && c->gradient == NULL) /* frozen values of a message stay 0 */
        c->gradient = calloc(n, sizeof *c->gradient);
    if (c->hyper.overlap && !own_x && c->ahead.x == NULL)
        c->ahead.x = calloc(n, sizeof *c->ahead.x);
    if ((own_x && (c->x == NULL || c->v == NULL)) || (psc_gradient_needs_room(c) && c->gradient == NULL) ||
        (c->hyper.overlap && !own_x && c->ahead.x == NULL))
        return psc_fail(c, PSC_ENOMEM, "no memory for the method's vectors of %llu floats",
                        (unsigned long long)n);
    return c->hyper.overlap ? psc_mover_start(c) : PSC_OK;
}

void psc_start_over(struct psc *c)
{
    c->fresh = true;
    c->ahead.unwanted = c->ahead.started;
    c->ahead.landed = false;
}

/* Waits for what the step before started. A vector that was not finite was not sent: the exchange is then
 * still due, and says so itself. */
static int settle(struct psc *c)
{
    struct psc_ahead *a = &c->ahead;
    if (!a->started)
        return PSC_OK;
    psc_mover_await(c, a->ticket);
    a->started = false;
    a->landed = a->outcome.rc == PSC_OK && !a->unwanted;
    a->unwanted = false;
    if (a->outcome.rc == PSC_OK || a->outcome.rc == PSC_EVALUE)
        return PSC_OK;
    c->error = a->outcome.error;
    return a->outcome.rc;
}

static void start(struct psc *c, const struct psc_transfer *t)
{
    c->ahead.ticket = psc_mover_put(c, t, &c->ahead.outcome);
    c->ahead.started = true;
}

/* The vector that is exchanged: x itself, which an optimizer that looks ahead keeps apart from the caller's
 * array. */
static float *own_x(struct psc *c, float *at)
{
    if (!c->optimizer->has_state)
        return at;
    if (c->fresh) {
        memcpy(c->x, at, c->shard.n_floats * sizeof *at);
        memset(c->v, 0, c->shard.n_floats * sizeof *at);
        c->fresh = false;
    }
    return c->x;
}

/* Parameters alone are stepped. */
static void local_step(struct psc *c, float *x, const float *g)
{
    double begin = psc_now_s();
    float eta = (float)ps_schedule_rate(&c->hyper.schedule, c->hyper.learning_rate, c->clock);
    for (size_t i = 0; i < c->manifest->n_segments; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        uint64_t at = s->range.begin;
        struct psc_point p = {.at = x + at,
                              .x = c->x != NULL ? c->x + at : NULL,
                              .v = c->v != NULL ? c->v + at : NULL,
                              .g = psc_gradient_to_step(c, s, g) + at,
                              .n = s->range.count};
        if (s->role == PS_ROLE_PARAM)
            c->optimizer->step(c->vec, &p, eta, (float)c->hyper.momentum);
    }
    c->update_s += psc_now_s() - begin;
}

/* The exchange that is due, now. */
static int exchange_now(struct psc *c, float *x, float *own, size_t n_samples)
{
    struct psc_transfer t = exchange_of(c, own, own, n_samples);
    t.landed = land_elastic;
    if (own != x)
        copy_buffers(c, own, x);
    int rc = psc_move(c, &t);
    if (rc == PSC_OK && own != x)
        copy_buffers(c, x, own);
    return rc;
}

/* The exchange of the next step, which travels while the caller computes. */
static void exchange_ahead(struct psc *c, float *x, size_t n_samples)
{
    float *own = c->optimizer->has_state ? c->x : c->ahead.x;
    struct psc_transfer t = exchange_of(c, own, own, n_samples);
    t.landed = land_ahead;
    if (own == c->x)
        copy_buffers(c, own, x);
    else
        copy_moved(c, own, x);
    start(c, &t);
}

/* Its answer. */
static void take_over(struct psc *c, float *x)
{
    const float *brought = c->optimizer->has_state ? c->x : c->ahead.x;
    double begin = psc_now_s();
    for (size_t i = 0; i < c->manifest->n_segments; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        uint64_t at = s->range.begin;
        if (s->role == PS_ROLE_BUFFER)
            c->vec->elastic(x + at, brought + at, c->ahead.outcome.rate, s->range.count);
        else if (s->role == PS_ROLE_PARAM && brought != c->x)
            copy_segment(c, s, x, brought);
    }
    c->ahead.landed = false;
    c->update_s += psc_now_s() - begin;
}

static bool exchange_is_due(const struct psc *c)
{
    return c->clock % c->hyper.period == 0;
}

/* Exchange first, with the x that g was taken at; then the own step. */
static int step_elastic(struct psc *c, float *x, const float *g, size_t n_samples)
{
    float *own = own_x(c, x);
    uint64_t save_version = c->save_version;
    int rc = PSC_OK;
    psc_gradient_decay(c, x, g);
    if (c->ahead.landed)
        take_over(c, x);
    else if (exchange_is_due(c))
        rc = exchange_now(c, x, own, n_samples);
    if (rc == PSC_EVALUE)
        c->fresh = true; /* diverged: from wherever the caller goes on */
    if (rc != PSC_OK)
        return rc;
    local_step(c, x, g);
    c->clock++;
    /* Whoever is to save now saves what the center knows: the next exchange is not begun yet. */
    if (c->hyper.overlap && exchange_is_due(c) && !psc_look(c) && c->save_version == save_version)
        exchange_ahead(c, x, n_samples);
    return PSC_OK;
}

/* The own step first; then the message, at the rate of the step it belongs to. With overlap its answer is
 * adopted by the next step: the gradient after this one is taken at a point that lacks it. */
static int step_adopt(struct psc *c, float *x, const float *g, size_t n_samples)
{
    int rc;
    const float *message = psc_gradient_to_send(c, x, g);
    local_step(c, x, g);
    if (c->ahead.landed)
        copy_moved(c, x, c->ahead.x);
    c->ahead.landed = false;
    struct psc_transfer t = exchange_of(c, message, c->hyper.overlap ? c->ahead.x : x, n_samples);
    t.landed = psc_land_moved;
    if (!c->hyper.overlap) {
        rc = psc_move(c, &t);
    } else if ((rc = psc_transfer_check(c, &t, &c->error)) == PSC_OK) {
        t.name = NULL;
        start(c, &t);
    }
    if (rc == PSC_OK)
        c->clock++;
    return rc;
}

static int (*const steps[])(struct psc *c, float *x, const float *g, size_t n_samples) = {
    [PS_HALF_ELASTIC] = step_elastic,
    [PS_HALF_ADOPT] = step_adopt,
};

/* A draining server waits for what is open: nothing stays behind. */
static int finish_drained(struct psc *c, float *x)
{
    int rc = settle(c);
    if (rc == PSC_OK && c->ahead.landed && c->rule->half == PS_HALF_ADOPT) {
        copy_moved(c, x, c->ahead.x);
        c->ahead.landed = false;
    }
    return rc == PSC_OK ? PSC_DRAINED : rc;
}

int psc_step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    int rc = psc_check_worker(c, "psc_step", x, g);
    if (rc != PSC_OK)
        return rc;
    c->error.text[0] = 0;
    c->caller_x = x;
    if ((rc = settle(c)) != PSC_OK || (rc = psc_step_prepare(c)) != PSC_OK ||
        (rc = steps[c->rule->half](c, x, g, n_samples)) != PSC_OK)
        return rc;
    return psc_look(c) ? finish_drained(c, x) : PSC_OK;
}
