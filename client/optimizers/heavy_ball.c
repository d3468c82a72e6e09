/* The heavy ball, You et al. 2017 eq. 5: v <- mu v - eta g, x <- x + v. The caller's array is x; v is the
 * library's. */
#include "client/optimizers/optimizers.h"

static void step(const struct ps_vec *vec, const struct psc_optimizer_vectors *p, float eta, float mu)
{
    vec->heavy_ball(p->at, p->v, p->g, eta, mu, p->n);
}

const struct psc_optimizer psc_optimizer_heavy_ball = {.name = "heavy-ball", .keeps_v = true, .step = step};
