/* Delayed Nesterov, Liu et al. 2024 (Asynchronous Local-SGD): message x - start. With d = -message: center <-
 * center - eta d / N, s <- s + d; every N-th move of these values also m <- beta m + s / N, center <- center
 * - eta beta m, s <- 0. Answered with the center after. Momentum applied at every arrival would accumulate
 * over workers that do not know of each other; here it is applied once for N arrivals. */
#include "server/rules/rules.h"

static size_t apply(const struct psd_move *move, float *center, float *const *state, float *m, size_t n)
{
    const struct ps_vec *vec = move->vec;
    float rate = move->outer_eta / (float)move->delay;
    if ((move->t + 1) % move->delay != 0)
        return vec->exchange_gather(center, state[1], m, rate, n);
    const struct ps_settle k = {.rate = rate,
                                .beta = move->outer_momentum,
                                .share = 1 / (float)move->delay,
                                .pull = move->outer_eta * move->outer_momentum};
    return vec->exchange_settle(center, state[0], state[1], m, &k, n);
}

static float rate(const struct psd_move *move)
{
    return move->outer_eta;
}

const struct psd_rule psd_rule_delayed_nesterov = {
    .name = "delayed-nesterov", .n_state = 2, .apply = apply, .rate = rate};
