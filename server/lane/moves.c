/* How often the rule has moved the values: counted for each part of a tensor in a chunk, since a message may
 * be of one tensor. Rules and averages that depend on the count see that of their own values. Lanes that
 * share the center share the counts, which begin at 0 there: center.moves are before them. */
#include "server/lane/internal.h"

#include <errno.h>
#include <stdlib.h>

static uint32_t tensor_at(const struct psd_lane *lane, uint64_t at)
{
    const struct ps_manifest *m = lane->center->manifest;
    return (uint32_t)(ps_manifest_tensor(m, at) - m->tensors);
}

int psd_lane_moves_create(struct psd_lane *lane)
{
    const struct psd_center *c = lane->center;
    uint32_t n = 0;
    lane->parts = calloc((size_t)lane->n_chunks + 1, sizeof *lane->parts);
    for (uint32_t k = 0; lane->parts != NULL && k < lane->n_chunks; k++) {
        struct ps_range r = ps_shard_chunk(&c->shard, lane->row, k);
        lane->parts[k] = (struct psd_tensor_parts){n, tensor_at(lane, r.begin)};
        n += tensor_at(lane, r.begin + r.count - 1) - lane->parts[k].tensor + 1;
    }
    if (lane->parts != NULL)
        lane->parts[lane->n_chunks].first = n;
    lane->moves = calloc((size_t)n + 1, sizeof *lane->moves);
    return lane->parts != NULL && lane->moves != NULL ? 0 : -ENOMEM;
}

/* The parts that the message moves, up to *end. */
static uint32_t first_of(const struct psd_lane *lane, const struct psd_arrival *a, uint32_t *end)
{
    const struct psd_tensor_parts *p = &lane->parts[a->chunk];
    bool of_one = (a->frame.flags & PS_FLAG_TENSOR) != 0;
    uint32_t first = of_one ? p[0].first + a->frame.code - p[0].tensor : p[0].first;
    *end = of_one ? first + 1 : p[1].first;
    return first;
}

static _Atomic uint64_t *counts_of(const struct psd_lane *lane)
{
    return lane->whole ? lane->center->moved : lane->moves;
}

static uint64_t most(const struct psd_lane *lane, uint32_t first, uint32_t end)
{
    uint64_t most = 0;
    for (uint32_t i = first; i < end; i++) {
        uint64_t n = atomic_load_explicit(&counts_of(lane)[i], memory_order_relaxed);
        most = n > most ? n : most;
    }
    return most + (lane->whole ? lane->center->moves : 0);
}

uint64_t psd_lane_moves_before(const struct psd_lane *lane, const struct psd_arrival *a)
{
    uint32_t end, first = first_of(lane, a, &end);
    return most(lane, first, end);
}

void psd_lane_moves_count(struct psd_lane *lane, const struct psd_arrival *a)
{
    uint32_t end, first = first_of(lane, a, &end);
    for (uint32_t i = first; i < end; i++)
        atomic_fetch_add_explicit(&counts_of(lane)[i], 1, memory_order_relaxed);
}

uint64_t psd_lane_moves_in(const struct psd_lane *lane, uint32_t chunk)
{
    return most(lane, lane->parts[chunk].first, lane->parts[chunk + 1].first);
}

void psd_lane_moves_set(struct psd_lane *lane, uint32_t chunk, uint64_t moves)
{
    for (uint32_t i = lane->parts[chunk].first; i < lane->parts[chunk + 1].first; i++)
        atomic_store_explicit(&lane->moves[i], moves, memory_order_relaxed);
}

uint64_t psd_lane_moves(const struct psd_lane *lane)
{
    if (lane->center == NULL)
        return 0;
    return most(lane, 0, lane->parts[lane->n_chunks].first);
}
