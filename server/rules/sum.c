/* The sum of a round's messages, Mamidala et al. 2018, figure 6: center <- message, answered with the center
 * after. Outside rounds the sum is the last message. The worker makes the step with it. */
#include "server/rules/rules.h"

static size_t apply(const struct psd_move *move, float *center, float *const *state, float *m, size_t n)
{
    (void)state;
    size_t n_bad = move->vec->copy_finite(center, m, n);
    if (n_bad > 0)
        move->vec->copy(m, center, n);
    return n_bad;
}

static float rate(const struct psd_move *move)
{
    return move->eta;
}

const struct psd_rule psd_rule_sum = {
    .name = "sum", .n_state = 0, .merge = PSD_MERGE_SUM, .apply = apply, .rate = rate};
