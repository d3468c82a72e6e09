/* Nesterov's momentum, Zhang et al. 2015 eq. 7-8 and Algorithm 2: v <- delta v - eta g(x + delta v), x <- x +
 * v. The caller's array holds x + delta v, where the next gradient is wanted; x and v are the library's. */
#include "client/optimizers/optimizers.h"

static void step(const struct psc_work *work, const struct psc_optimizer_vectors *p, float eta, float delta)
{
    psc_nesterov(work, p->at, p->x, p->v, p->g, eta, delta, p->n);
}

static void look(const struct psc_work *work, const struct psc_optimizer_vectors *p, float delta)
{
    psc_look(work, p->at, p->x, p->v, delta, p->n);
}

const struct psc_optimizer psc_optimizer_nesterov = {
    .name = "nesterov", .keeps_x = true, .keeps_v = true, .step = step, .lookahead = look};
