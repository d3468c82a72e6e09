/* Elastic averaging, Zhang, Choromanska, LeCun 2015, eq. 3 (asynchronous form: Algorithm 1):
 * message x, center <- center + alpha (x - center), answered with the center before. */
#include "server/rules/rules.h"

static size_t apply(const struct psd_move *move, float *center, float *const *state, float *m, size_t n)
{
    (void)state;
    return move->vec->exchange_elastic(center, m, move->alpha, n);
}

static float rate(const struct psd_move *move)
{
    return move->alpha;
}

const struct psd_rule psd_rule_elastic = {.name = "elastic", .n_state = 0, .apply = apply, .rate = rate};
