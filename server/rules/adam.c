/* Kingma, Ba 2015, Algorithm 1: message g, v <- beta1 v + (1 - beta1) g, s <- beta2 s + (1 - beta2) g^2,
 * center <- center - eta (v / (1 - beta1^t)) / (sqrt(s / (1 - beta2^t)) + epsilon), t counted from 1;
 * answered with the center after. */
#include "server/rules/rules.h"

#include <math.h>

/* In float arithmetic 1 - beta^t loses all its digits for beta near 1. */
static struct ps_adam constants(const struct psd_move *move)
{
    double beta1 = (double)move->momentum, beta2 = (double)move->beta2, t = (double)move->t + 1;
    return (struct ps_adam){.beta1 = move->momentum,
                            .rest1 = (float)(1 - beta1),
                            .beta2 = move->beta2,
                            .rest2 = (float)(1 - beta2),
                            .rate = (float)((double)move->eta / (1 - pow(beta1, t))),
                            .root = (float)(1 / sqrt(1 - pow(beta2, t))),
                            .epsilon = move->epsilon};
}

static size_t apply(const struct psd_move *move, float *center, float *const *state, float *m, size_t n)
{
    const struct ps_adam k = constants(move);
    return move->vec->exchange_adam(center, state[0], state[1], m, &k, n);
}

static float rate(const struct psd_move *move)
{
    return move->eta;
}

const struct psd_rule psd_rule_adam = {.name = "adam", .n_state = 2, .apply = apply, .rate = rate};
