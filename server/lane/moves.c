/* How often the rule has moved the values: counted for each part of a tensor in a chunk, since a message may
 * be of one tensor. Rules and averages that depend on the count see that of their own values. */
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

static uint64_t most(const struct psd_lane *lane, uint32_t first, uint32_t end)
{
    return psd_most(lane->moves + first, end - first);
}

/* Where lanes share the center they count versions, one for each fragment of a cycle that moves. */
static uint64_t moves_of_all(const struct psd_lane *lane)
{
    const struct psd_center *c = lane->center;
    uint64_t versions = atomic_load_explicit(&lane->shared->version, memory_order_relaxed) - c->version,
             n = 0;
    for (uint32_t i = 0; i < lane->n_fragments; i++)
        n += lane->fragments[i].moves;
    return c->moves + (n > 1 ? versions / n : versions);
}

uint64_t psd_lane_moves_before(const struct psd_lane *lane, const struct psd_arrival *a)
{
    uint32_t end, first = first_of(lane, a, &end);
    return lane->whole ? moves_of_all(lane) : most(lane, first, end);
}

void psd_lane_moves_count(struct psd_lane *lane, const struct psd_arrival *a)
{
    uint32_t end, first = first_of(lane, a, &end);
    for (uint32_t i = first; i < end; i++)
        lane->moves[i]++;
}

uint64_t psd_lane_moves_in(const struct psd_lane *lane, uint32_t chunk)
{
    return most(lane, lane->parts[chunk].first, lane->parts[chunk + 1].first);
}

void psd_lane_moves_set(struct psd_lane *lane, uint32_t chunk, uint64_t moves)
{
    for (uint32_t i = lane->parts[chunk].first; i < lane->parts[chunk + 1].first; i++)
        lane->moves[i] = moves;
}

uint64_t psd_lane_moves(const struct psd_lane *lane)
{
    if (lane->center == NULL)
        return 0;
    return lane->whole ? moves_of_all(lane) : most(lane, 0, lane->parts[lane->n_chunks].first);
}
