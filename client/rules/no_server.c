/* A worker without a server: the optimizer's step, and the average z where the method has one: z <- z + rate
 * (x - z), with x before the update. */
#include "client/internal.h"
#include "client/rules/rules.h"
#include "client/worker/worker.h"

struct average {
    const struct psc *c;
    float *z;
    const float *x;
};

static void average_piece(void *arg, uint64_t begin, uint64_t count)
{
    const struct average *w = arg;
    const struct psc *c = w->c;
    psc_elastic(&c->work, w->z + begin, w->x + begin,
                (float)c->averaging->rate(c->worker.hyper.averaging_rate, c->worker.clock), count);
}

static int step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    float *own = psc_own_x(c, x), *z = c->worker.vectors[PSC_VECTOR_Z];
    (void)n_samples;
    psc_gradient_decay(c, x, g);
    if (z != NULL)
        psc_team_run(c->team, c->shard.n_floats, average_piece, &(struct average){c, z, own});
    psc_own_step(c, x, g);
    c->worker.clock++;
    return PSC_OK;
}

const struct psc_rule psc_rule_local = {.step = step};
