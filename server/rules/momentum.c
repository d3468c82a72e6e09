/* Momentum at the center, You, Buluc, Demmel 2017, eq. 3-4: message g, v <- mu v - eta g,
 * center <- center + v, answered with the center after. */
#include "server/rules/rules.h"

static size_t apply(const struct psd_move *move, float *center, float *const *state, float *m, size_t n)
{
    return move->vec->exchange_momentum(center, state[0], m, move->momentum, move->eta, 1, n);
}

static float rate(const struct psd_move *move)
{
    return move->eta;
}

const struct psd_rule psd_rule_momentum = {.name = "momentum", .n_state = 1, .apply = apply, .rate = rate};
