/* Prepares the caller's gradient for a step or a message. Weight decay makes it g + lambda x, the gradient of
 * the loss + lambda/2 |x|^2 at the point x where g was taken, for parameters that decay. In a message,
 * buffers carry the values of x, and frozen values are 0. */

#include "client/internal.h"

bool psc_gradient_decays(const struct psc *c, const struct ps_segment *s)
{
    return c->worker.hyper.weight_decay > 0 && s->role == PS_ROLE_PARAM && s->decay == PS_DECAY;
}

/* Whether the message differs from g. */
static bool differs(const struct psc *c)
{
    for (size_t i = 0; i < c->manifest->n_segments; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        if (psc_gradient_decays(c, s) || (c->rule->sends_gradient && s->role != PS_ROLE_PARAM))
            return true;
    }
    return false;
}

bool psc_gradient_needs_room(const struct psc *c)
{
    return (c->rule->begin == NULL && differs(c)) || (c->worker.hyper.overlap > 0 && c->rule->sends_gradient);
}

const float *psc_gradient_to_step(struct psc *c, const struct ps_segment *s, const float *g)
{
    return psc_gradient_decays(c, s) && c->rule->begin == NULL ? c->worker.vectors[PSC_VECTOR_GRADIENT] : g;
}

/* One pass over the gradient and the point where it was taken. */
struct decay_pass {
    struct psc *c;
    const float *x, *g;
    bool sends;     /* also the parts of a message that are not gradients */
    uint64_t begin; /* of what it is over */
};

static void decay_piece(void *arg, uint64_t begin, uint64_t count)
{
    const struct decay_pass *w = arg;
    struct psc *c = w->c;
    float *to = c->worker.vectors[PSC_VECTOR_GRADIENT];
    struct ps_range r = {w->begin + begin, count};
    psc_passes_begin(&c->work);
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r)) {
        const struct ps_segment *s = p.segment;
        uint64_t at = p.range.begin;
        if (psc_gradient_decays(c, s))
            psc_decay(&c->work, to + at, w->g + at, w->x + at, (float)c->worker.hyper.weight_decay,
                      p.range.count);
        else if (w->sends && s->role != PS_ROLE_FROZEN)
            psc_copy(&c->work, to + at, (s->role == PS_ROLE_BUFFER ? w->x : w->g) + at, p.range.count);
    }
    psc_passes_end(&c->work);
}

void psc_gradient_decay(struct psc *c, const float *x, const float *g)
{
    struct decay_pass w = {.c = c, .x = x, .g = g};
    if (c->worker.hyper.weight_decay > 0)
        psc_team_run(c->team, c->shard.n_floats, decay_piece, &w);
}

const float *psc_gradient_message(const struct psc *c, const float *g)
{
    return psc_gradient_needs_room(c) ? c->worker.vectors[PSC_VECTOR_GRADIENT] : g;
}

void psc_gradient_put(struct psc *c, const float *x, const float *g, struct ps_range r)
{
    struct decay_pass w = {.c = c, .x = x, .g = g, .sends = true, .begin = r.begin};
    if (psc_gradient_needs_room(c))
        psc_team_run(c->team, r.count, decay_piece, &w);
}

const float *psc_gradient_to_send(struct psc *c, const float *x, const float *g)
{
    psc_gradient_put(c, x, g, ps_shard_whole(&c->shard));
    return psc_gradient_message(c, g);
}
