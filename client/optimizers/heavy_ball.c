/* The heavy ball, You et al. 2017 eq. 5: v <- mu v - eta g, x <- x + v. The caller's array is x; v is the
 * library's. */
#include "client/optimizers/optimizers.h"

static void step(const struct psc_work *work, const struct psc_optimizer_vectors *p, float eta, float mu)
{
    psc_heavy_ball(work, p->at, p->v, p->g, eta, mu, p->n);
}

const struct psc_optimizer psc_optimizer_heavy_ball = {.name = "heavy-ball", .keeps_v = true, .step = step};
