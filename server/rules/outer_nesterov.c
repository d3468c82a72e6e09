/* The outer step of DiLoCo, Douillard et al. 2023, Algorithm 1 with Nesterov momentum: message x - start, in
 * rounds their mean. With d = -message: m <- beta m + d, center <- center - eta (d + beta m). Answered with
 * the center after. */
#include "server/rules/rules.h"

static size_t apply(const struct psd_move *move, float *center, float *const *state, float *m, size_t n)
{
    return move->vec->exchange_outer(center, state[0], m, move->outer_eta, move->outer_momentum, n);
}

static float rate(const struct psd_move *move)
{
    return move->outer_eta;
}

const struct psd_rule psd_rule_outer_nesterov = {
    .name = "outer-nesterov", .n_state = 1, .apply = apply, .rate = rate};
