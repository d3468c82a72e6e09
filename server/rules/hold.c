/* The center is the last copy that was sent: the workers are one clique, which moves x by itself and stores
 * copies here for checkpoints and evaluators. Answered with the center after. */
#include "server/rules/rules.h"

static size_t apply(const struct psd_move *move, float *center, float *const *state, float *m, size_t n)
{
    size_t n_bad = move->vec->copy_finite(center, m, n);
    (void)state;
    move->vec->copy(m, center, n);
    return n_bad;
}

static float rate(const struct psd_move *move)
{
    return move->eta;
}

const struct psd_rule psd_rule_hold = {
    .name = "hold", .n_state = 0, .merge = PSD_MERGE_MEAN, .apply = apply, .rate = rate};
