/* Delay compensation, Zheng et al. 2017 (DC-ASGD): message g, the gradient at `seen`, the center that the
 * client last saw; center <- center - eta (g + lambda g^2 (center - seen)), answered with the center after.
 * g^2 approximates the diagonal of the Hessian, so that the step approximates one with the gradient at the
 * current center. */
#include "server/rules/rules.h"

static size_t apply(const struct psd_move *move, float *center, float *const *state, float *m, size_t n)
{
    return move->vec->exchange_compensate(center, state[0], m, move->eta, move->compensation, n);
}

static float rate(const struct psd_move *move)
{
    return move->eta;
}

const struct psd_rule psd_rule_dc_asgd = {
    .name = "dc-asgd", .n_state = 0, .takes_seen = true, .apply = apply, .rate = rate};
