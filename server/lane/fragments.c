/* Fragments (proto/model/fragment.h) in one lane, which holds parts of some of them. A client exchanges all
 * fragments in turn; one such cycle corresponds to one exchange of the whole vector. */
#include "server/lane/internal.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/model/fragment.h"

static void measure(const struct psd_lane *lane, struct psd_fragment *f)
{
    const struct psd_center *c = lane->center;
    f->n_pieces = ps_manifest_moving(c->manifest, &c->shard, lane->row, f->range);
    f->end = ps_shard_pieces(&c->shard, lane->row, f->range, &f->first);
    f->end += f->first;
    f->n_lanes = f->parts = 0;
    for (uint32_t i = 0; i < c->shard.n_lanes; i++) {
        bool moves = ps_manifest_moving(c->manifest, &c->shard, i, f->range) > 0;
        f->moves = f->moves || moves;
        f->parts |= moves ? 1u << psd_center_part(c, i) : 0;
        f->n_lanes += moves && i >= c->first_lane && i < c->first_lane + c->own_lanes;
    }
}

int psd_lane_fragments_create(struct psd_lane *lane)
{
    const struct psd_center *c = lane->center;
    uint32_t n = c->hyper.fragments;
    lane->n_fragments = lane->first_fragment = lane->last_fragment = 0;
    if (n <= 1)
        return 0;
    struct ps_range *ranges = calloc(n, sizeof *ranges);
    lane->fragments = calloc(n, sizeof *lane->fragments);
    if (ranges == NULL || lane->fragments == NULL) {
        free(ranges);
        return -ENOMEM;
    }
    ps_fragments(&c->shard, c->manifest, n, ranges);
    lane->first_fragment = n;
    for (uint32_t i = 0; i < n; i++) {
        lane->fragments[i].range = ranges[i];
        measure(lane, &lane->fragments[i]);
        if (lane->fragments[i].n_pieces == 0)
            continue;
        lane->last_fragment = i;
        lane->first_fragment = lane->first_fragment < i ? lane->first_fragment : i;
    }
    lane->n_fragments = n;
    free(ranges);
    return 0;
}

bool psd_lane_cycle_goes_on(const struct psd_lane *lane, const struct ps_frame *f)
{
    return (f->flags & PS_FLAG_FRAGMENT) != 0 && f->code != lane->first_fragment;
}

bool psd_lane_cycle_ends(const struct psd_lane *lane, const struct ps_frame *f)
{
    return (f->flags & PS_FLAG_FRAGMENT) == 0 || f->code == lane->last_fragment;
}

/* The fragment that contains the chunk. */
static const struct psd_fragment *fragment_of(const struct psd_lane *lane, uint32_t chunk)
{
    uint64_t at = ps_shard_chunk(&lane->center->shard, lane->row, chunk).begin;
    const struct psd_fragment *f = lane->fragments;
    while (at >= f->range.begin + f->range.count)
        f++;
    return f;
}

/* Whether a frozen chunk has landed: of a vector that is set, which has all chunks. */
static bool has_frozen(const struct psd_lane *lane, const struct psd_lane_client *c)
{
    const struct psd_center *center = lane->center;
    for (uint32_t k = 0; k < lane->n_chunks && lane->n_moving < lane->n_chunks; k++)
        if ((c->landed[k / 64] >> (k % 64) & 1) != 0 &&
            ps_manifest_is_frozen(center->manifest, ps_shard_chunk(&center->shard, lane->row, k)))
            return true;
    return false;
}

uint32_t psd_lane_landed_whole(const struct psd_lane *lane, const struct psd_lane_client *c, uint32_t track)
{
    const struct psd_lane_track *t = &c->tracks[track];
    bool undivided = t->fragment == 0 && lane->n_tracks > 1; /* made before the method had fragments */
    if (lane->n_fragments == 0 || undivided)
        return t->n_landed == lane->n_chunks ||
                       (t->n_landed > 0 && t->n_landed == lane->n_moving && !has_frozen(lane, c))
                   ? lane->center->own_moving
                   : 0;
    if (t->fragment > 0)
        return t->n_landed == lane->fragments[t->fragment - 1].n_pieces
                   ? lane->fragments[t->fragment - 1].n_lanes
                   : 0;
    for (uint32_t k = 0; k < lane->n_chunks; k++)
        if ((c->landed[k / 64] >> (k % 64) & 1) != 0) {
            const struct psd_fragment *f = fragment_of(lane, k);
            return t->n_landed == f->n_pieces ? f->n_lanes : 0;
        }
    return 0;
}

void psd_lane_forget_fragment(const struct psd_lane *lane, struct psd_lane_client *c, uint32_t fragment)
{
    const struct psd_fragment *f = &lane->fragments[fragment];
    for (uint32_t k = f->first; k < f->end; k++)
        c->landed[k / 64] &= ~(UINT64_C(1) << (k % 64));
}

void psd_lane_copy_landed(const struct psd_lane *lane, const struct psd_lane_client *c, uint32_t track,
                          uint64_t *landed)
{
    uint32_t fragment = c->tracks[track].fragment;
    memcpy(landed, c->landed, lane->n_words * sizeof *landed);
    for (uint32_t k = 0; k < lane->n_chunks && fragment > 0; k++)
        if (k < lane->fragments[fragment - 1].first || k >= lane->fragments[fragment - 1].end)
            landed[k / 64] &= ~(UINT64_C(1) << (k % 64));
}

/* Moves of the fragment's chunks in this lane, but for those that are frozen. */
static uint64_t moves_in(const struct psd_lane *lane, const struct psd_fragment *f)
{
    uint64_t most = 0;
    for (uint32_t k = 0; k < lane->n_chunks; k++)
        if (fragment_of(lane, k) == f && psd_lane_moves_in(lane, k) > most)
            most = psd_lane_moves_in(lane, k);
    return most;
}

static uint64_t fragment_moves(const struct psd_lane *lane)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < lane->n_fragments; i++)
        sum += moves_in(lane, &lane->fragments[i]);
    return sum;
}

void psd_lane_fragment_moves(const struct psd_lane *lane, uint64_t *out)
{
    for (uint32_t i = 0; i < lane->n_fragments; i++)
        out[i] = moves_in(lane, &lane->fragments[i]);
}

uint64_t psd_lane_moves_to_save(const struct psd_lane *lane)
{
    bool in_fragments = lane->n_fragments > 0 && !lane->whole && !lane->center->admission->merges;
    return in_fragments ? fragment_moves(lane) : psd_lane_moves(lane);
}

uint64_t psd_lane_moves_at(const struct psd_lane *lane, uint32_t chunk, const struct psd_snapshot *s)
{
    uint64_t moves = s->lane_moves[lane->index], here = 0, before = 0;
    if (s->fragment_moves != NULL) {
        const uint64_t *of = s->fragment_moves + (size_t)lane->index * s->fragments;
        return s->fragments == lane->n_fragments ? of[fragment_of(lane, chunk) - lane->fragments]
                                                 : psd_most(of, s->fragments);
    }
    if (lane->n_fragments == 0 || lane->center->admission->merges)
        return moves;
    const struct psd_fragment *own = fragment_of(lane, chunk);
    for (const struct psd_fragment *f = lane->fragments; f < lane->fragments + lane->n_fragments; f++) {
        here += f->n_pieces > 0;
        before += f->n_pieces > 0 && f < own;
    }
    return here > 0 ? (moves + here - 1 - before) / here : moves;
}

uint64_t psd_lane_closing(const struct psd_lane *lane)
{
    for (uint32_t i = lane->n_fragments; i-- > 0;)
        if (lane->fragments[i].moves)
            return lane->fragments[i].range.begin;
    return 0;
}
