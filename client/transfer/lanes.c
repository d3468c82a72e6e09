/* How the vector is cut on the road that the server gave. */
#include <stdlib.h>

#include "client/transfer/transfer.h"

int psc_lanes_prepare(struct psc *c, struct ps_error *err)
{
    struct psc_carriage *carry = &c->carriage;
    const struct psc_road *road = &carry->road;
    struct ps_shard shard = {c->manifest->n_floats, road->n_lanes, road->chunk_floats, 0, {0}};
    if (!ps_shard_valid(&shard))
        return ps_fail(err, PSC_EUNSUPPORTED,
                       "the server's lane map is not possible: %u lanes in %u parts, chunks of %u floats",
                       road->n_lanes, road->n_parts, road->chunk_floats);
    if (ps_manifest_cut(c->manifest, road->n_parts, &shard, err) < 0)
        return PSC_EMANIFEST;
    carry->shard = shard;
    for (uint32_t i = 0; i < PS_MAX_LANES; i++) {
        struct psc_lane_progress *p = &carry->progress[i];
        uint32_t n_chunks = i < shard.n_lanes ? ps_shard_n_chunks(&shard, i) : 0;
        free(p->answered);
        free(p->encoded);
        *p = (struct psc_lane_progress){.answered = NULL};
        if (n_chunks == 0)
            continue;
        p->answered = calloc(n_chunks / 64 + 1, sizeof *p->answered);
        p->encoded = calloc(n_chunks / 64 + 1, sizeof *p->encoded);
        if (p->answered == NULL || p->encoded == NULL)
            return ps_fail(err, PSC_ENOMEM, "no memory for the exchange's tables");
    }
    return psc_wire_prepare(c, err);
}
