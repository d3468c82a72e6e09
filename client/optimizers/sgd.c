/* Gradient descent: x <- x - eta g. */
#include "client/optimizers/optimizers.h"

static void step(const struct ps_vec *vec, const struct psc_optimizer_vectors *p, float eta, float delta)
{
    (void)delta;
    vec->axpy(p->at, p->g, -eta, p->n);
}

const struct psc_optimizer psc_optimizer_sgd = {.name = "sgd", .step = step};
