/* What the halves have in common. */
#include "client/rules/rules.h"

#include <string.h>

#include "proto/clock.h"

const struct psc_half *psc_half_of(const struct ps_rule_info *rule, enum ps_clique_mode mode)
{
    static const struct psc_half *const halves[] = {
        [PS_MESSAGE_X] = &psc_half_elastic,
        [PS_MESSAGE_GRADIENT] = &psc_half_gradient,
        [PS_MESSAGE_DELTA] = &psc_half_delta,
        [PS_MESSAGE_ADMM] = &psc_half_admm,
    };
    if (rule == NULL)
        return &psc_half_local;
    if (rule->in_clique)
        return &psc_half_clique;
    return mode == PS_CLIQUE_VECTORS ? &psc_half_vectors : halves[rule->message];
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

static void copy_segment(const struct psc *c, const struct ps_segment *s, float *to, const float *from)
{
    c->vec->copy(to + s->range.begin, from + s->range.begin, s->range.count);
}

void psc_copy_buffers(const struct psc *c, float *to, const float *from)
{
    for (size_t i = 0; i < c->manifest->n_segments; i++)
        if (c->manifest->segments[i].role == PS_ROLE_BUFFER)
            copy_segment(c, &c->manifest->segments[i], to, from);
}

void psc_copy_moved(const struct psc *c, float *to, const float *from)
{
    for (size_t i = 0; i < c->manifest->n_segments; i++)
        if (c->manifest->segments[i].role != PS_ROLE_FROZEN)
            copy_segment(c, &c->manifest->segments[i], to, from);
}

float *psc_own_x(struct psc *c, float *at)
{
    float *x = c->kept[PSC_KEPT_X], *v = c->kept[PSC_KEPT_V];
    if (c->fresh && x != NULL)
        memcpy(x, at, c->shard.n_floats * sizeof *at);
    if (c->fresh && v != NULL)
        memset(v, 0, c->shard.n_floats * sizeof *at);
    c->fresh = false;
    return x != NULL ? x : at;
}

static struct psc_point point_of(struct psc *c, struct ps_range r, float *at)
{
    float *x = c->kept[PSC_KEPT_X], *v = c->kept[PSC_KEPT_V];
    uint64_t begin = r.begin;
    return (struct psc_point){
        .at = at + begin, .x = x != NULL ? x + begin : NULL, .v = v != NULL ? v + begin : NULL, .n = r.count};
}

void psc_own_step(struct psc *c, float *at, const float *g)
{
    double begin = ps_now_s();
    float eta = (float)psc_rate(c);
    for (size_t i = 0; i < c->manifest->n_segments; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        struct psc_point p = point_of(c, s->range, at);
        p.g = psc_gradient_to_step(c, s, g) + s->range.begin;
        if (s->role == PS_ROLE_PARAM)
            c->optimizer->step(c->vec, &p, eta, (float)c->hyper.momentum);
    }
    c->update_s += ps_now_s() - begin;
}

void psc_own_look(struct psc *c, float *at, struct ps_range r)
{
    const float *own = c->kept[PSC_KEPT_X];
    if (own == NULL)
        return;
    double begin = ps_now_s();
    for (struct psc_part p = psc_first_part(c->manifest, r); p.range.count > 0; p = psc_next_part(p, r)) {
        struct psc_point point = point_of(c, p.range, at);
        if (p.segment->role == PS_ROLE_PARAM)
            c->optimizer->look(c->vec, &point, (float)c->hyper.momentum);
        else if (p.segment->role == PS_ROLE_BUFFER)
            c->vec->copy(at + p.range.begin, own + p.range.begin, p.range.count);
    }
    c->update_s += ps_now_s() - begin;
}

double psc_rate(const struct psc *c)
{
    return ps_schedule_rate(&c->hyper.schedule, c->hyper.learning_rate, c->clock);
}

struct psc_transfer psc_exchange_of(const struct psc *c, const float *message, float *target,
                                    size_t n_samples)
{
    return (struct psc_transfer){.kind = PS_FRAME_EXCHANGE,
                                 .send = message,
                                 .name = message == target ? "x" : "the message",
                                 .samples = n_samples > UINT32_MAX ? UINT32_MAX : (uint32_t)n_samples,
                                 .clock = c->clock,
                                 .generation = c->generation,
                                 .target = target};
}

void psc_exchange_ahead(struct psc *c, const struct psc_transfer *t)
{
    c->ahead.ticket = psc_mover_put(c, t, &c->ahead.outcome);
    c->ahead.started = true;
}
