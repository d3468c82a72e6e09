/* Momentum DOWNPOUR, Zhang, Choromanska, LeCun 2015, Algorithm 5: message g, v <- delta v - eta g, center <-
 * center + delta v, answered with the center after, the point at which Nesterov's next gradient is taken. */
#include "server/rules/rules.h"

static size_t apply(const struct psd_move *move, float *center, float *const *state, float *m, size_t n)
{
    return move->vec->exchange_momentum(center, state[0], m, move->momentum, move->eta, move->momentum, n);
}

static float rate(const struct psd_move *move)
{
    return move->eta;
}

const struct psd_rule psd_rule_mdownpour = {.name = "mdownpour", .n_state = 1, .apply = apply, .rate = rate};
