/* Gradient descent at the center: message g, center <- center - eta g, answered with the center after. */
#include "server/rules/rules.h"

static size_t apply(const struct psd_move *move, float *center, float *const *state, float *m, size_t n)
{
    (void)state;
    return move->vec->exchange_descend(center, m, move->eta, n);
}

static float rate(const struct psd_move *move)
{
    return move->eta;
}

const struct psd_rule psd_rule_sgd = {.name = "sgd", .n_state = 0, .apply = apply, .rate = rate};
