/* The gate of a message that leaves while it is computed. */
#include <stdlib.h>
#include <string.h>

#include "client/transfer/transfer.h"

static uint32_t words_of(const struct ps_shard *s, uint32_t lane)
{
    return ps_shard_n_chunks(s, lane) / 64 + 1;
}

bool psc_gate_make(struct psc_gate *gate, const struct ps_shard *shard)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < shard->n_lanes; i++) {
        gate->at[i] = n;
        n += words_of(shard, i);
    }
    if (n > gate->n_words) {
        psc_gate_free(gate);
        if ((gate->open = calloc(n, sizeof *gate->open)) == NULL)
            return false;
        gate->n_words = n;
    }
    gate->shard = *shard;
    for (uint32_t i = 0; i < gate->n_words; i++)
        atomic_store_explicit(&gate->open[i], 0, memory_order_relaxed);
    atomic_store_explicit(&gate->withdrawn, false, memory_order_relaxed);
    return true;
}

void psc_gate_free(struct psc_gate *gate)
{
    free(gate->open);
    gate->open = NULL;
    gate->n_words = 0;
}

bool psc_gate_open(struct psc_gate *gate, struct ps_range whole, struct ps_range r)
{
    bool any = false;
    for (uint32_t i = 0; i < gate->shard.n_lanes; i++) {
        uint32_t first, n = ps_shard_pieces(&gate->shard, i, r, &first);
        for (uint32_t k = first; k < first + n; k++) {
            struct ps_range chunk = ps_shard_chunk(&gate->shard, i, k);
            if (ps_range_intersect(chunk, whole).count < chunk.count)
                continue;
            atomic_fetch_or_explicit(&gate->open[gate->at[i] + k / 64], UINT64_C(1) << (k % 64),
                                     memory_order_release);
            any = true;
        }
    }
    return any;
}
