/* ADMM with one message and one answer, Zhang, Choromanska, LeCun 2015, eq. 9-11: message m = A - (x -
 * lambda) with A as in proto/model/method.h, center <- center + (m + kappa center) / p, answered with the
 * center before. Inserting eq. 9-10 into x' - lambda' gives A + kappa center. So p times the center of eq. 11
 * changes by A + kappa center - (x - lambda) = m + kappa center for each message. */
#include "server/rules/rules.h"

static size_t apply(const struct psd_move *move, float *center, float *const *state, float *m, size_t n)
{
    (void)state;
    float pull = (float)move->n_moves * move->kappa;
    return move->vec->exchange_admm(center, m, move->share, pull, n);
}

static float rate(const struct psd_move *move)
{
    return move->eta;
}

const struct psd_rule psd_rule_admm = {
    .name = "admm", .n_state = 0, .merge = PSD_MERGE_SUM, .apply = apply, .rate = rate};
