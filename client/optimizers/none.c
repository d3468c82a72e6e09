/* The worker makes no step of its own; only the center makes steps. */
#include "client/optimizers/optimizers.h"

static void step(const struct psc_work *work, const struct psc_optimizer_vectors *p, float eta, float delta)
{
    (void)work;
    (void)p;
    (void)eta;
    (void)delta;
}

const struct psc_optimizer psc_optimizer_none = {.name = "none", .step = step};
