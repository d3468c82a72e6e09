/* What becomes of the caller's gradient before it is stepped with or sent: weight decay, g + lambda x, the
 * gradient of the loss + lambda/2 |x|^2 at the point x where g was taken, for parameters that decay; and in a
 * message, x's values where the tensor is a buffer, 0 where it is frozen. */
#include <string.h>

#include "client/internal.h"

static bool decays(const struct psc *c, const struct ps_segment *s)
{
    return c->hyper.weight_decay > 0 && s->role == PS_ROLE_PARAM && s->decay == PS_DECAY;
}

/* Whether the message is not g itself. */
static bool differs(const struct psc *c)
{
    for (size_t i = 0; i < c->manifest->n_segments; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        if (decays(c, s) || (c->half->sends_gradient && s->role != PS_ROLE_PARAM))
            return true;
    }
    return false;
}

bool psc_gradient_needs_room(const struct psc *c)
{
    return differs(c) || (c->hyper.overlap && c->half->sends_gradient);
}

const float *psc_gradient_to_step(struct psc *c, const struct ps_segment *s, const float *g)
{
    return decays(c, s) && g != c->kept[PSC_KEPT_AHEAD] ? c->kept[PSC_KEPT_GRADIENT] : g;
}

static void decay(struct psc *c, const struct ps_segment *s, const float *x, const float *g)
{
    uint64_t at = s->range.begin;
    c->vec->decay(c->kept[PSC_KEPT_GRADIENT] + at, g + at, x + at, (float)c->hyper.weight_decay,
                  s->range.count);
}

void psc_gradient_decay(struct psc *c, const float *x, const float *g)
{
    for (size_t i = 0; i < c->manifest->n_segments; i++)
        if (decays(c, &c->manifest->segments[i]))
            decay(c, &c->manifest->segments[i], x, g);
}

const float *psc_gradient_to_send(struct psc *c, const float *x, const float *g)
{
    if (!psc_gradient_needs_room(c))
        return g;
    for (size_t i = 0; i < c->manifest->n_segments; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        uint64_t at = s->range.begin;
        if (decays(c, s))
            decay(c, s, x, g);
        else if (s->role != PS_ROLE_FROZEN)
            c->vec->copy(c->kept[PSC_KEPT_GRADIENT] + at, (s->role == PS_ROLE_BUFFER ? x : g) + at,
                         s->range.count);
    }
    return c->kept[PSC_KEPT_GRADIENT];
}
