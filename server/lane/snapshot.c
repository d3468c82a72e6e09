/* Copies a lane's slice for a checkpoint. The snapshot has the state at the moment at which it begins. The
 * lane continues to serve: it copies each chunk before its next move, and the others between two batches of
 * messages, so that no message waits for more than one or two chunks. */
#include "server/lane/rounds.h"

#include <assert.h>
#include <string.h>

#include "proto/clock.h"

enum { A_TURN = 131072 }; /* values copied between two batches, or one chunk */

/* Copies the range of the center, of the rule's state and of the average. Returns how many values. */
static uint64_t copy_range(const struct psd_lane *lane, struct psd_snapshot *s, struct ps_range r)
{
    const struct psd_center *center = lane->center;
    lane->vec->copy(s->center + r.begin, center->x + r.begin, r.count);
    for (uint32_t k = 0; k < center->rule->n_state; k++)
        lane->vec->copy(s->state[k] + r.begin, center->state[k] + r.begin, r.count);
    if (s->has_average)
        lane->vec->copy(s->average + r.begin, center->z + r.begin, r.count);
    return r.count * (1 + center->rule->n_state + s->has_average);
}

static void report_snapped(struct psd_lane *lane, bool lacks)
{
    psd_queue_push(lane->out, &(struct psd_lane_message){.kind = PSD_LANE_SNAPPED, .a = lacks});
}

/* The chunk is in the snapshot. */
static void chunk_copied(struct psd_lane *lane, uint32_t chunk)
{
    lane->snap.left[chunk / 64] &= ~(UINT64_C(1) << (chunk % 64));
    if (--lane->snap.n_left > 0)
        return;
    lane->snap.to = NULL;
    report_snapped(lane, false);
}

static uint64_t copy_chunk(struct psd_lane *lane, uint32_t chunk)
{
    uint64_t bit = UINT64_C(1) << (chunk % 64);
    if ((lane->snap.left[chunk / 64] & bit) == 0)
        return 0;
    uint64_t n = copy_range(lane, lane->snap.to, ps_shard_chunk(&lane->center->shard, lane->row, chunk));
    chunk_copied(lane, chunk);
    return n;
}

void psd_lane_note_stop(struct psd_lane *lane, uint64_t begin_ns)
{
    lane->stop_ns += ps_now_ns() - begin_ns;
    if (lane->stop_ns > atomic_load_explicit(&lane->stats.longest_stop_ns, memory_order_relaxed))
        atomic_store_explicit(&lane->stats.longest_stop_ns, lane->stop_ns, memory_order_relaxed);
}

void psd_lane_before_move(struct psd_lane *lane, uint32_t chunk)
{
    if (lane->snap.to == NULL || lane->snap.receives)
        return;
    uint64_t begin_ns = ps_now_ns();
    copy_chunk(lane, chunk);
    psd_lane_note_stop(lane, begin_ns);
}

bool psd_lane_copy_more(struct psd_lane *lane)
{
    if (lane->snap.receives)
        return false;
    for (uint64_t n = 0; lane->snap.to != NULL && n < A_TURN; lane->snap.next++)
        n += copy_chunk(lane, lane->snap.next);
    return lane->snap.to != NULL;
}

/* The last exchanges of each client, with their chunks that are in the snapshot. Those that are over are left
 * out. */
static void copy_replay(struct psd_lane *lane)
{
    size_t n = 0;
    for (uint32_t i = 0; i < lane->shared->n_slots && lane->center != NULL; i++) {
        const struct psd_lane_client *c = &lane->clients[i];
        for (uint32_t k = 0; k < lane->n_tracks; k++) {
            const struct psd_lane_track *t = &c->tracks[k];
            uint64_t *landed = lane->snap_bitmaps + n * lane->n_words;
            if (t->seq == 0 || t->seq < c->floor)
                continue;
            psd_lane_copy_landed(lane, c, k, landed);
            lane->snap_replay[n++] = (struct psd_replay_entry){.client = i,
                                                               .incarnation = c->incarnation,
                                                               .lane = lane->index,
                                                               .seq = t->seq,
                                                               .landed = landed,
                                                               .n_words = lane->n_words,
                                                               .fragment = t->fragment};
        }
    }
    lane->n_snap_replay = n;
}

/* Under whole lanes all lanes copy together while none of them serves, so that the replay tables match every
 * slice. */
static void copy_together(struct psd_lane *lane, struct psd_snapshot *s)
{
    pthread_barrier_wait(&lane->shared->snapshot);
    copy_replay(lane);
    if (lane->center != NULL)
        copy_range(lane, s, ps_shard_slice(&lane->center->cut, lane->index));
    pthread_barrier_wait(&lane->shared->snapshot);
    report_snapped(lane, false);
}

static void begin(struct psd_lane *lane, struct psd_snapshot *s, bool receives)
{
    memset(lane->snap.left, 0xff, lane->n_words * sizeof *lane->snap.left);
    lane->snap.to = s;
    lane->snap.n_left = lane->n_chunks;
    lane->snap.next = 0;
    lane->snap.receives = receives;
}

void psd_lane_snapshot(struct psd_lane *lane, struct psd_snapshot *s)
{
    assert(lane->snap.to == NULL);
    uint64_t begin_ns = ps_now_ns();
    lane->stop_ns = 0;
    atomic_store_explicit(&lane->stats.longest_stop_ns, 0, memory_order_relaxed);
    s->lane_clocks[lane->index] = atomic_load_explicit(&lane->stats.clock, memory_order_relaxed);
    s->lane_moves[lane->index] = psd_lane_moves_to_save(lane);
    psd_rounds_span(lane, &lane->snap_least, &lane->snap_most);
    if (s->fragment_moves != NULL)
        psd_lane_fragment_moves(lane, s->fragment_moves + (size_t)lane->index * s->fragments);
    if (lane->whole) {
        copy_together(lane, s);
    } else {
        copy_replay(lane);
        if (lane->n_chunks == 0)
            report_snapped(lane, false);
        else
            begin(lane, s, false);
    }
    psd_lane_note_stop(lane, begin_ns);
}

void psd_lane_keep(struct psd_lane *lane, struct psd_snapshot *s, uint32_t client, uint32_t incarnation)
{
    assert(lane->snap.to == NULL);
    lane->snap.client = client;
    lane->snap.incarnation = incarnation;
    if (lane->center != NULL && lane->n_chunks > 0 && psd_lane_serves(lane, lane->center, client))
        begin(lane, s, true);
    else
        report_snapped(lane, false);
}

void psd_lane_keep_no_more(struct psd_lane *lane)
{
    if (lane->snap.to == NULL || !lane->snap.receives)
        return;
    lane->snap.to = NULL;
    lane->snap.receives = false;
    report_snapped(lane, true);
}

size_t psd_lane_keep_chunk(struct psd_lane *lane, struct psd_arrival *a)
{
    const struct ps_frame *f = &a->frame;
    uint64_t bit = UINT64_C(1) << (a->chunk % 64);
    if (lane->snap.to == NULL || !lane->snap.receives || f->client != lane->snap.client ||
        f->incarnation != lane->snap.incarnation || (lane->snap.left[a->chunk / 64] & bit) == 0)
        return 0;
    size_t n_bad =
        lane->vec->copy_finite(lane->snap.to->center + f->begin, psd_lane_floats_of(lane, a), f->count);
    if (n_bad == 0)
        chunk_copied(lane, a->chunk);
    return n_bad;
}
