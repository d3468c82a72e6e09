/* Adds the change that the worker's steps made to x since it last saw the center, Zhang, Choromanska, LeCun
 * 2015, Algorithm 3 (DOWNPOUR): message x - start, center <- center + message, answered with the center
 * after. */
#include "server/rules/rules.h"

static size_t apply(const struct psd_move *move, float *center, float *const *state, float *m, size_t n)
{
    (void)state;
    /* Gives the same bits as center + m. */
    return move->vec->exchange_descend(center, m, -1, n);
}

static float rate(const struct psd_move *move)
{
    return move->eta;
}

const struct psd_rule psd_rule_add = {
    .name = "add", .n_state = 0, .merge = PSD_MERGE_SUM, .apply = apply, .rate = rate};
