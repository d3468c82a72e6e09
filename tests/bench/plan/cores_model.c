/* cores_model.c: a step of P partitions with t threads each, C = P t cores.
 *
 *   compute = (fixed + b image) (serial + (1 - serial)/t), b = batch/P
 *   sum     = max(2 n 4 B / core, 2 P n 4 B / machine), 0 for P = 1: a member reads an n/P-th part of P
 * vectors and writes the sum to them (client/cliques/threads) update  = max(5 n 4 B / (t core), 5 P n 4 B /
 * machine): each has its own x and momentum
 *
 * Partitions make the steps of one net with the whole batch, so times to equal loss have the ratios of steps.
 */
#include <math.h>

#include "tests/bench/plan/cores.h"

enum {
    SUM_BYTES = 2 * 4,
    UPDATE_BYTES = 5 * 4
}; /* a value: read and written; x and v read and written, g read */

void cores_predict(const struct cores_costs *c, double n_floats, uint32_t cores, uint32_t batch,
                   uint32_t partitions, struct cores_step *out)
{
    double parts = partitions, threads = cores / partitions, images = batch / parts;
    double alone = c->fixed_s + images * c->image_s;

    *out = (struct cores_step){.partitions = partitions, .threads = cores / partitions};
    out->compute_s = alone * (c->serial + (1 - c->serial) / threads);
    if (partitions > 1)
        out->sum_s = SUM_BYTES * n_floats * fmax(1 / c->core_bytes_s, parts / c->bytes_s);
    out->update_s = UPDATE_BYTES * n_floats * fmax(1 / (threads * c->core_bytes_s), parts / c->bytes_s);
    out->step_s = out->compute_s + out->sum_s + out->update_s;
}
