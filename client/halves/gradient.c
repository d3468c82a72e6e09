/* The worker that sends g at every step and goes on from the center that comes back. With overlap the answer
 * is adopted by the next step: the gradient after this one is taken at a point that lacks it. */
#include "client/halves/halves.h"

static void take_over(struct psc *c, float *x)
{
    psc_copy_moved(c, psc_own_x(c, x), c->kept[PSC_KEPT_AHEAD]);
    c->ahead.landed = false;
    psc_own_look(c, x);
}

/* The own step first; then the message, at the rate of the step it belongs to. */
static int step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    int rc;
    float *own = psc_own_x(c, x);
    const float *message = psc_gradient_to_send(c, x, g);
    psc_own_step(c, x, g);
    if (c->ahead.landed)
        take_over(c, x);
    struct psc_transfer t =
        psc_exchange_of(c, message, c->hyper.overlap ? c->kept[PSC_KEPT_AHEAD] : own, n_samples);
    t.landed = psc_land_moved;
    if (!c->hyper.overlap) {
        if ((rc = psc_move(c, &t)) == PSC_OK)
            psc_own_look(c, x);
    } else if ((rc = psc_transfer_check(c, &t, &c->error)) == PSC_OK) {
        t.name = NULL;
        psc_exchange_ahead(c, &t);
    }
    if (rc == PSC_OK)
        c->clock++;
    return rc;
}

const struct psc_half psc_half_gradient = {
    .sends_gradient = true, .overlaps = true, .staler = true, .step = step, .finish = take_over};
