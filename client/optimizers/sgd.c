/* Gradient descent: x <- x - eta g. */
#include "client/psc.h"

static void step(const struct ps_vec *vec, float *x, const float *g, float eta, size_t n)
{
    vec->axpy(x, g, -eta, n);
}

const struct psc_optimizer psc_optimizer_sgd = {.name = "sgd", .step = step};
