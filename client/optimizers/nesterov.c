/* Nesterov's momentum, Zhang et al. 2015 eq. 7-8 and Algorithm 2: v <- delta v - eta g(x + delta v), x <- x +
 * v. The caller's array holds x + delta v, where the next gradient is wanted; x and v are the library's. */
#include "client/optimizers/optimizers.h"

static void step(const struct ps_vec *vec, const struct psc_optimizer_vectors *p, float eta, float delta)
{
    vec->nesterov(p->at, p->x, p->v, p->g, eta, delta, p->n);
}

static void look(const struct ps_vec *vec, const struct psc_optimizer_vectors *p, float delta)
{
    vec->copy(p->at, p->x, p->n);
    vec->axpy(p->at, p->v, delta, p->n);
}

const struct psc_optimizer psc_optimizer_nesterov = {
    .name = "nesterov", .keeps_x = true, .keeps_v = true, .step = step, .lookahead = look};
