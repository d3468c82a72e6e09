/* Duchi, Hazan, Singer 2011 (diagonal): message g, s <- s + g^2, center <- center - eta g / (sqrt(s) +
 * epsilon), answered with the center after. */
#include "server/rules/rules.h"

static size_t apply(const struct psd_move *move, float *center, float *const *state, float *m, size_t n)
{
    return move->vec->exchange_adagrad(center, state[0], m, move->eta, move->epsilon, n);
}

static float rate(const struct psd_move *move)
{
    return move->eta;
}

const struct psd_rule psd_rule_adagrad = {.name = "adagrad", .n_state = 1, .apply = apply, .rate = rate};
