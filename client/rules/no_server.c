/* The worker without a server: the optimizer's step and nothing else; and z, where the method averages:
 * z <- z + rate (x - z), with x before the update. */
#include "client/rules/rules.h"
#include "client/worker/worker.h"

static int step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    float *own = psc_own_x(c, x), *z = c->kept[PSC_KEPT_Z];
    (void)n_samples;
    psc_gradient_decay(c, x, g);
    if (z != NULL)
        c->vec->elastic(z, own, (float)c->averaging->rate(c->hyper.averaging_rate, c->clock),
                        c->shard.n_floats);
    psc_own_step(c, x, g);
    c->clock++;
    return PSC_OK;
}

const struct psc_half psc_half_local = {.step = step};
