/* The worker makes no step of its own; only the center makes steps. */
#include "client/optimizers/optimizers.h"

static void step(const struct ps_vec *vec, const struct psc_optimizer_vectors *p, float eta, float delta)
{
    (void)vec;
    (void)p;
    (void)eta;
    (void)delta;
}

const struct psc_optimizer psc_optimizer_none = {.name = "none", .step = step};
