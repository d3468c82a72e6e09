/* A lane's commands from the loop: its slice, its clients, snapshots. */
#include "server/lane/partial_rounds.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/clock.h"
#include "proto/log.h"

static void notify_loop(struct psd_lane *lane, enum psd_lane_message_kind kind)
{
    psd_queue_push(lane->out, &(struct psd_lane_message){.kind = kind});
}

void psd_lane_free_tables(struct psd_lane *lane)
{
    free(lane->bitmaps);
    free(lane->based);
    free(lane->bases);
    free(lane->snap_bitmaps);
    free(lane->snap_replay);
    free(lane->snap.left);
    free(lane->moves);
    free(lane->parts);
    free(lane->offered);
    free(lane->scratch);
    free(lane->fragments);
    lane->fragments = NULL;
    lane->n_fragments = 0;
    lane->bitmaps = lane->based = lane->bases = lane->snap_bitmaps = lane->offered = NULL;
    lane->moves = NULL;
    lane->snap_replay = NULL;
    lane->snap.left = NULL;
    lane->scratch = NULL;
    lane->parts = NULL;
}

/* Also records how often the rule has moved these values, for the next method. */
static void release(struct psd_lane *lane)
{
    while (psd_lane_copy_more(lane)) /* complete the snapshot that has begun */
        ;
    psd_lane_keep_no_more(lane);
    atomic_store_explicit(&lane->stats.moves, psd_lane_moves(lane), memory_order_relaxed);
    for (uint32_t i = 0; i < lane->shared->n_slots; i++)
        lane->clients[i].landed = lane->clients[i].based = NULL;
    psd_rounds_destroy(lane);
    psd_lane_free_tables(lane);
    lane->center = NULL;
    lane->memory.due = false;
    lane->n_chunks = lane->n_offered = 0;
    lane->offer.open = false;
    lane->n_words = 0;
    lane->staging_bytes = 0;
    notify_loop(lane, PSD_LANE_RELEASED);
}

/* The exchange's chunks in the lane: those of its fragment. */
static struct psd_fragment extent_of(const struct psd_lane *lane, const struct psd_replay_entry *e)
{
    bool knows = e->fragment > 0 && e->fragment <= lane->n_fragments;
    return knows ? lane->fragments[e->fragment - 1] : (struct psd_fragment){.end = lane->n_chunks};
}

/* Exchanges that are no fragment's are alone: the newest counts. */
static void restore_entry(struct psd_lane *lane, const struct psd_replay_entry *e)
{
    struct psd_lane_client *c = &lane->clients[e->client];
    struct psd_fragment extent = extent_of(lane, e);
    bool of_fragment = lane->n_tracks > 1 && e->fragment > 0 && e->fragment <= lane->n_fragments;
    uint32_t track = of_fragment ? (e->fragment - 1) % lane->n_tracks : 0;
    struct psd_lane_track *t = &c->tracks[track];
    if (c->incarnation == e->incarnation && t->seq > e->seq)
        return;
    c->incarnation = e->incarnation;
    c->seq = e->seq > c->seq ? e->seq : c->seq;
    *t = (struct psd_lane_track){.seq = e->seq, .fragment = of_fragment ? e->fragment : 0};
    if (!of_fragment)
        memset(c->landed, 0, lane->n_words * sizeof *c->landed);
    c->weight = 1; /* for its remaining chunks: psd was down since, so nothing else has moved the center */
    for (uint32_t k = extent.first; k < extent.end; k++) {
        uint64_t bit = e->landed[k / 64] & UINT64_C(1) << (k % 64);
        c->landed[k / 64] |= bit;
        t->n_landed += bit != 0;
    }
    if (t->n_landed > 0)
        psd_lane_begin(lane, e->client, track, e->incarnation, e->seq, lane->center->parts_moving);
    uint32_t n_lanes = psd_lane_landed_whole(lane, c, track);
    if (n_lanes > 0 && psd_lane_whole(lane, e->client, track, e->incarnation, e->seq, n_lanes))
        psd_lane_remember_whole(lane, e->client, track, e->incarnation, e->seq);
}

/* Restores the last exchanges of each client from the checkpoint, so that their retried chunks are
 * recognised. */
static void restore_replay(struct psd_lane *lane, const struct psd_snapshot *s)
{
    for (size_t i = 0; i < s->n_replay; i++) {
        const struct psd_replay_entry *e = &s->replay[i];
        if (e->lane == lane->index && e->client < lane->shared->n_slots && e->n_words == lane->n_words)
            restore_entry(lane, e);
    }
    if (lane->index >= s->map.lanes)
        return;
    atomic_store(&lane->stats.clock, s->lane_clocks[lane->index]);
    for (uint32_t k = 0; k < lane->n_chunks; k++)
        psd_lane_moves_set(lane, k, psd_lane_moves_at(lane, k, s));
}

/* The method has changed, and with it possibly the chunks. Every exchange that had begun under the previous
 * one is complete. */
static void restore_whole(struct psd_lane *lane)
{
    for (uint32_t i = 0; i < lane->shared->n_slots; i++) {
        struct psd_lane_client *c = &lane->clients[i];
        uint64_t newest = 0;
        for (uint32_t k = 0; k < PS_MAX_TRACKS; k++) {
            _Atomic uint64_t *whole = &lane->shared->whole[psd_track_at(lane->shared, i, k)];
            uint64_t seq =
                psd_exchange_seq(atomic_load_explicit(whole, memory_order_acquire), c->incarnation, c->seq);
            newest = seq > newest ? seq : newest;
        }
        c->seq = c->floor = newest;
        for (uint32_t k = 0; k < PS_MAX_TRACKS; k++)
            c->tracks[k] = (struct psd_lane_track){.seq = newest, .n_landed = lane->n_chunks};
        c->others_seen = psd_lane_others(lane, i);
        memset(c->landed, 0xff, lane->n_words * sizeof *c->landed);
        atomic_store_explicit(&c->last_squares, NAN, memory_order_relaxed);
    }
    for (uint32_t k = 0; k < lane->n_chunks; k++)
        psd_lane_moves_set(lane, k, lane->center->moves);
}

/* Setup of a job, the only place where a lane's thread allocates. Without memory the slice is not served, and
 * the loop learns of it because the lane refuses data. The tables are small compared with the center, which
 * was allocated before. */
static void take_slice(struct psd_lane *lane, struct psd_center *center)
{
    uint32_t n_slots = lane->shared->n_slots;

    lane->closing = false;
    lane->row = psd_center_row(center, lane->index);
    lane->whole = center->whole_lanes;
    lane->vec = lane->whole ? ps_vec_best_racing() : ps_vec_best();
    lane->slice = ps_shard_slice(&center->shard, lane->row);
    lane->n_chunks = ps_shard_n_chunks(&center->shard, lane->row);
    lane->n_moving =
        ps_manifest_moving(center->manifest, &center->shard, lane->row, ps_shard_whole(&center->shard));
    lane->n_words = (lane->n_chunks + 63) / 64;
    lane->n_tracks = psd_tracks_of(&center->hyper, center->shard.n_parts);
    if (lane->n_chunks == 0)
        return;
    size_t n_exchanges = (size_t)n_slots * lane->n_tracks;
    psd_lane_memory_start(lane, center);
    lane->bitmaps = calloc((size_t)n_slots * lane->n_words, sizeof(uint64_t));
    if (center->answer_codec.for_moves) {
        lane->based = calloc((size_t)n_slots * lane->n_words, sizeof(uint64_t));
        lane->bases = calloc((size_t)center->n_seen * lane->n_chunks + 1, sizeof(uint64_t));
    }
    lane->snap_bitmaps = calloc(n_exchanges * lane->n_words, sizeof(uint64_t));
    lane->snap_replay = calloc(n_exchanges, sizeof *lane->snap_replay);
    lane->snap.left = calloc(lane->n_words, sizeof *lane->snap.left);
    lane->offered = calloc(lane->n_words, sizeof(uint64_t));
    lane->scratch = aligned_alloc(64, center->shard.chunk_floats * sizeof(float));
    lane->center = center;
    int rc = psd_lane_moves_create(lane);
    rc = rc == 0 ? psd_lane_fragments_create(lane) : rc;
    if (rc == 0 && center->admission->members)
        lane->rounds = psd_rounds_create(lane, center->version);
    if (!lane->bitmaps || !lane->snap_bitmaps || !lane->snap_replay || !lane->snap.left || !lane->offered ||
        !lane->scratch || (center->answer_codec.for_moves && (!lane->based || !lane->bases)) || rc < 0 ||
        (center->admission->members && lane->rounds == NULL)) {
        ps_log(PS_LOG_ERROR, "lane.memory", "lane %u: no memory for its tables; it refuses data",
               lane->index);
        psd_rounds_destroy(lane);
        psd_lane_free_tables(lane);
        lane->center = NULL;
        lane->n_chunks = 0;
        return;
    }
    psd_lane_memory_begin(lane);
    for (uint32_t i = 0; i < n_slots; i++) {
        lane->clients[i].landed = lane->bitmaps + (size_t)i * lane->n_words;
        lane->clients[i].based = lane->based != NULL ? lane->based + (size_t)i * lane->n_words : NULL;
    }
    if (lane->rounds != NULL)
        lane->staging_bytes = (uint64_t)n_slots * lane->rounds->window * sizeof *lane->rounds->staged;
    atomic_store_explicit(&lane->stats.center_squares, NAN, memory_order_relaxed);
    if (center->resumed != NULL)
        restore_replay(lane, center->resumed);
    else
        restore_whole(lane);
}

static void change_slice(struct psd_lane *lane, struct psd_center *center)
{
    uint64_t begin_ns = ps_now_ns();
    if (center != NULL)
        take_slice(lane, center);
    else
        release(lane);
    psd_lane_note_stop(lane, begin_ns);
}

/* Tells the transports which client may attach with which token. */
static void admit_to_transports(struct psd_lane *lane, const struct psd_lane_message *msg)
{
    struct ps_pass pass = {.client = msg->client, .incarnation = msg->incarnation, .identity = msg->identity};
    memcpy(pass.token, msg->pass, sizeof pass.token);
    for (uint32_t i = 0; i < lane->n_ports && msg->attaches; i++)
        if (lane->ports[i].transport->port_admit != NULL)
            lane->ports[i].transport->port_admit(lane->ports[i].port, &pass);
}

static void expel_from_transports(struct psd_lane *lane, uint32_t client)
{
    for (uint32_t i = 0; i < lane->n_ports; i++)
        if (lane->ports[i].transport->port_expel != NULL)
            lane->ports[i].transport->port_expel(lane->ports[i].port, client);
}

static void forget_exchanges(struct psd_lane_client *c)
{
    c->seq = c->floor = 0;
    memset(c->tracks, 0, sizeof c->tracks);
}

static void end(struct psd_lane *lane, const struct psd_lane_message *msg)
{
    struct psd_lane_client *c = &lane->clients[msg->client];
    c->phase = PSD_PHASE_ENDED;
    c->end_code = (uint32_t)msg->a;
    if (msg->a == PS__CODE__NO_SESSION)
        forget_exchanges(c); /* it left: it will retry nothing */
    if (lane->offer.open && msg->client == lane->offer.client) {
        lane->offer.open = false;
        notify_loop(lane, PSD_LANE_UNFILLED);
    }
    psd_rounds_forget(lane, msg->client);
    expel_from_transports(lane, msg->client);
}

static void admit(struct psd_lane *lane, const struct psd_lane_message *msg)
{
    struct psd_lane_client *c = &lane->clients[msg->client];
    bool keep = msg->b == 1 && c->incarnation == msg->incarnation;
    if (!keep && c->landed != NULL) {
        memset(c->landed, 0, lane->n_words * sizeof *c->landed);
        forget_exchanges(c);
    }
    if (!keep)
        psd_lane_partial_forget(lane, msg->client);
    if (msg->b == 1)
        psd_rounds_revive(lane, msg->client);
    c->incarnation = msg->incarnation;
    c->identity = msg->identity;
    c->phase = (enum psd_phase)msg->a;
    if (c->phase == PSD_PHASE_OFFERING) {
        lane->offer.open = true;
        lane->offer.client = msg->client;
        lane->offer.incarnation = msg->incarnation;
    }
    c->others_seen = psd_lane_others(lane, msg->client);
    if (!keep && lane->center != NULL && psd_lane_serves(lane, lane->center, msg->client))
        psd_lane_see(lane, msg->client, lane->slice, lane->center->x + lane->slice.begin);
    if (!keep) {
        c->weight = 1;
        atomic_store_explicit(&c->clock, 0, memory_order_relaxed);
        atomic_store_explicit(&c->staleness, 0, memory_order_relaxed);
        atomic_store_explicit(&c->last_squares, NAN, memory_order_relaxed);
        atomic_store_explicit(&c->bytes_in, 0, memory_order_relaxed);
        atomic_store_explicit(&c->bytes_out, 0, memory_order_relaxed);
    }
    admit_to_transports(lane, msg);
}

void psd_lane_take_commands(struct psd_lane *lane)
{
    struct psd_lane_message msg;
    psd_queue_calm(lane->in);
    while (psd_queue_take(lane->in, &msg)) {
        switch (msg.kind) {
        case PSD_COMMAND_SLICE:
            change_slice(lane, msg.p);
            break;
        case PSD_COMMAND_ADMIT:
            admit(lane, &msg);
            break;
        case PSD_COMMAND_END:
            end(lane, &msg);
            break;
        case PSD_COMMAND_SNAPSHOT:
            psd_rounds_snapshot(lane, msg.p, msg.a);
            break;
        case PSD_COMMAND_KEEP:
            if (msg.p != NULL)
                psd_lane_keep(lane, msg.p, msg.client, msg.incarnation);
            else
                psd_lane_keep_no_more(lane);
            break;
        case PSD_COMMAND_HOLD:
            if (msg.a == 1)
                psd_rounds_halt(lane);
            else
                psd_rounds_hold(lane);
            break;
        case PSD_COMMAND_MEMBERS:
            psd_rounds_take_members(lane, msg.p);
            break;
        case PSD_COMMAND_GO:
            psd_rounds_go(lane);
            break;
        case PSD_COMMAND_CLOSE_ROUND:
            psd_lane_partial_take(lane, msg.p);
            break;
        case PSD_COMMAND_LATE:
            psd_lane_partial_late(lane, msg.client, msg.a, msg.b);
            break;
        case PSD_COMMAND_CLOSE:
            lane->closing = true;
            psd_rounds_close(lane);
            psd_queue_push(lane->out, &(struct psd_lane_message){.kind = PSD_LANE_CLOSED, .a = msg.a});
            break;
        case PSD_COMMAND_OPEN:
            lane->closing = false;
            break;
        default:
            lane->stop = true;
            break;
        }
    }
}
