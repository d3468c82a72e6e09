/* Gradient descent: x <- x - eta g. */
#include "client/optimizers/optimizers.h"

static void step(const struct psc_work *work, const struct psc_optimizer_vectors *p, float eta, float delta)
{
    (void)delta;
    psc_axpy(work, p->at, p->g, -eta, p->n);
}

const struct psc_optimizer psc_optimizer_sgd = {.name = "sgd", .step = step};
