/* Elastic averaging, Zhang, Choromanska, LeCun 2015, eq. 6 (asynchronous form: Algorithm 1):
 * message x, center <- center + alpha (x - center), answered with the center before. */
#include "server/rules/rules.h"

static size_t apply(const struct psd_move *move, float *center, float *const *state, float *m, size_t n)
{
    (void)state;
    return move->vec->exchange_elastic(center, m, move->alpha, n);
}

static size_t apply_in_place(const struct psd_move *move, float *center, float *x, size_t n)
{
    return move->vec->elastic_in_place(center, x, move->alpha, n);
}

/* center - (-alpha) sum (x - center): the same operations as above if there is one message. */
static size_t apply_offsets(const struct psd_move *move, float *center, float *offsets, size_t n)
{
    return move->vec->exchange_descend(center, offsets, -move->alpha, n);
}

static float rate(const struct psd_move *move)
{
    return move->alpha;
}

const struct psd_rule psd_rule_elastic = {.name = "elastic",
                                          .merge = PSD_MERGE_OFFSETS,
                                          .apply = apply,
                                          .apply_in_place = apply_in_place,
                                          .apply_offsets = apply_offsets,
                                          .rate = rate};
