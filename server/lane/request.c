/* Serves a data message in a lane: validates it (validate.c), finds its exchange, applies it (apply.c) and
 * answers it (reply.c). */
#include "server/lane/partial_rounds.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

/* Counts the exchanges of other clients since this client saw the center; 0 in aggregated rounds. */
static void note_staleness(struct psd_lane *lane, struct psd_lane_client *c, uint32_t client)
{
    int64_t passed = psd_lane_others(lane, client) - c->others_seen;
    uint64_t staleness = passed > 0 && !lane->center->admission->merges ? (uint64_t)passed : 0;
    int bucket = staleness == 0 ? 0 : 64 - __builtin_clzll(staleness);
    psd_count(&lane->stats.staleness[bucket < PSD_STALENESS_BUCKETS ? bucket : PSD_STALENESS_BUCKETS - 1], 1);
    psd_count(&lane->stats.staleness_sum, staleness);
    atomic_store_explicit(&c->staleness, staleness, memory_order_relaxed);
    c->weight = ps_weight(lane->center->hyper.weight, lane->center->hyper.weight_power, staleness);
}

/* The exchange begins on its track. Where others may be under way, only what has landed of its own fragment
 * is forgotten: also if it arrives after a later one, which a refusal during a change of the method can
 * cause. */
static void begin_exchange(struct psd_lane *lane, struct psd_arrival *a)
{
    struct psd_lane_client *c = a->client;
    const struct ps_frame *f = &a->frame;
    bool of_fragment = (f->flags & PS_FLAG_FRAGMENT) != 0 && lane->n_tracks > 1;
    uint64_t oldest = f->seq - ps_flags_behind(f->flags);
    if (of_fragment)
        psd_lane_forget_fragment(lane, c, f->code);
    else
        memset(c->landed, 0, lane->n_words * sizeof *c->landed);
    c->tracks[psd_lane_track_of(lane, f)] =
        (struct psd_lane_track){.seq = f->seq, .fragment = of_fragment ? f->code + 1u : 0};
    c->seq = f->seq > c->seq ? f->seq : c->seq;
    c->floor = oldest > c->floor ? oldest : c->floor;
    psd_exchange_remember(&lane->shared->over[f->client], psd_exchange_name(f->incarnation, oldest));
    note_staleness(lane, c, f->client);
    atomic_store_explicit(&c->clock, f->clock, memory_order_relaxed);
}

/* Opens the exchange that the chunk belongs to. Returns false if the chunk was answered: as a replay, or
 * refused. */
static bool open_exchange(struct psd_lane *lane, struct psd_arrival *a)
{
    struct psd_lane_client *c = a->client;
    uint64_t last = c->tracks[psd_lane_track_of(lane, &a->frame)].seq;
    struct psd_move move;

    if (a->frame.seq < last || a->frame.seq < c->floor) {
        psd_lane_refuse(lane, a, PS__CODE__SEQ, "exchange %" PRIu64 " is older than the last one, %" PRIu64,
                        a->frame.seq, last > c->floor ? last : c->floor);
        return false;
    }
    if (a->frame.seq > last) {
        begin_exchange(lane, a);
        return true;
    }
    if ((c->landed[a->chunk / 64] >> (a->chunk % 64) & 1) == 0)
        return true;
    psd_count(&lane->stats.replays, 1);
    if (a->frame.kind == PS_FRAME_EXCHANGE || a->frame.kind == PS_FRAME_PUSH)
        psd_lane_partial_begin(lane, &a->frame);
    psd_lane_forget_base(a); /* and not what this answer is: the client may take it or the one before */
    move = psd_lane_move_of(lane, a);
    if (a->frame.kind == PS_FRAME_EXCHANGE || a->frame.kind == PS_FRAME_ADD)
        psd_lane_answer_center(lane, a, move.rule->rate(&move), PS_FLAG_REPLAYED);
    else
        psd_lane_answer_nothing(lane, a, move.rule->rate(&move), PS_FLAG_REPLAYED);
    psd_lane_forget_base(a);
    return false;
}

/* Serves exchanges and pushes. */
static void serve_move(struct psd_lane *lane, struct psd_arrival *a)
{
    if (open_exchange(lane, a))
        lane->center->admission->arrive(lane, a);
}

/* Serves a worker's unsent delta after a method change. It is applied without waiting for other members. */
static void serve_add(struct psd_lane *lane, struct psd_arrival *a)
{
    if (open_exchange(lane, a))
        psd_lane_apply(lane, a);
}

static void serve_pull(struct psd_lane *lane, struct psd_arrival *a)
{
    psd_count(&lane->stats.pulled, 1);
    const struct psd_center *c = lane->center;
    psd_lane_answer_vector(lane, a, (a->frame.flags & PS_FLAG_AVERAGE) != 0 ? c->z : c->x, 0, 0);
}

/* The average starts at the center, and equals it for frozen values. */
static void overwrite_average(struct psd_lane *lane, const struct ps_frame *f)
{
    const struct psd_center *center = lane->center;
    struct ps_range piece = {f->begin, f->count};
    const struct ps_segment *s = ps_manifest_segment(center->manifest, piece.begin);

    for (uint64_t done = 0; center->z != NULL && done < piece.count; s++) {
        struct ps_range part = ps_range_intersect(s->range, piece);
        if (f->kind == PS_FRAME_OFFER || s->role == PS_ROLE_FROZEN)
            lane->vec->copy(center->z + part.begin, center->x + part.begin, part.count);
        done += part.count;
    }
}

/* Copies the body into the center. Returns false if it was refused. */
static bool overwrite(struct psd_lane *lane, struct psd_arrival *a)
{
    psd_lane_before_move(lane, a->chunk);
    size_t n_bad =
        lane->vec->copy_finite(psd_lane_center_of(lane, a), psd_lane_floats_of(lane, a), a->frame.count);
    if (n_bad > 0)
        psd_lane_refuse_values(lane, a, n_bad, a->frame.begin);
    overwrite_average(lane, &a->frame);
    psd_lane_see(lane, a->frame.client, (struct ps_range){a->frame.begin, a->frame.count},
                 psd_lane_center_of(lane, a));
    return n_bad == 0;
}

static void serve_set(struct psd_lane *lane, struct psd_arrival *a)
{
    if (!open_exchange(lane, a) || !overwrite(lane, a))
        return;
    psd_lane_land(lane, a);
    psd_count(&lane->stats.set, 1);
    psd_lane_answer_nothing(lane, a, 0, 0);
}

/* Serves the vector of an evaluation, for the best checkpoint. */
static void serve_keep(struct psd_lane *lane, struct psd_arrival *a)
{
    size_t n_bad = psd_lane_keep_chunk(lane, a);
    if (n_bad > 0)
        psd_lane_refuse_values(lane, a, n_bad, a->frame.begin);
    else
        psd_lane_answer_nothing(lane, a, 0, 0);
}

/* A resumed worker says what it has of the center. Under another method psd keeps none of it. */
static void serve_known(struct psd_lane *lane, struct psd_arrival *a)
{
    size_t n_bad = psd_lane_take_known(lane, a);
    if (n_bad > 0)
        psd_lane_refuse_values(lane, a, n_bad, a->frame.begin);
    else
        psd_lane_answer_nothing(lane, a, 0, 0);
}

/* The lane has the complete offer; the answer to this chunk of it was lost. */
static void serve_late_offer(struct psd_lane *lane, struct psd_arrival *a)
{
    const struct ps_frame *f = &a->frame;
    if (f->client != lane->offer.client || f->incarnation != lane->offer.incarnation ||
        f->seq != lane->offer.seq) {
        psd_lane_refuse(lane, a, PS__CODE__NOT_BEGUN, "an offer from client %u after the job has begun",
                        f->client);
        return;
    }
    psd_count(&lane->stats.replays, 1);
    psd_lane_answer_nothing(lane, a, 0, PS_FLAG_REPLAYED);
}

static void serve_offer(struct psd_lane *lane, struct psd_arrival *a)
{
    uint64_t bit = UINT64_C(1) << (a->chunk % 64);
    if (a->client->phase != PSD_PHASE_OFFERING) {
        serve_late_offer(lane, a);
        return;
    }
    lane->offer.seq = a->frame.seq;
    if (!overwrite(lane, a))
        return;
    if ((lane->offered[a->chunk / 64] & bit) == 0) {
        lane->offered[a->chunk / 64] |= bit;
        if (++lane->n_offered == lane->n_chunks) {
            a->client->phase = PSD_PHASE_ACTIVE; /* it may exchange before the loop knows */
            lane->offer.open = false;
            psd_queue_push(lane->out, &(struct psd_lane_message){.kind = PSD_LANE_FILLED});
        }
    }
    psd_lane_answer_nothing(lane, a, 0, 0);
}

static const struct psd_request_kind kinds[] = {
    [PS_FRAME_EXCHANGE] = {serve_move, .has_payload = true, .moves = true, .by_rule = true,
                           .one_tensor = true, .lands = true, .says = PSD_MESSAGE_EXCHANGE,
                           .code = PS__CODE__KIND},
    [PS_FRAME_PUSH] = {serve_move, .has_payload = true, .moves = true, .by_rule = true, .one_tensor = true,
                       .lands = true, .says = PSD_MESSAGE_PUSH, .code = PS__CODE__KIND},
    [PS_FRAME_PULL] = {serve_pull, .one_tensor = true, .averages = true, .says = PSD_MESSAGE_PULL,
                       .code = PS__CODE__NOT_BEGUN},
    [PS_FRAME_SET] = {serve_set, .has_payload = true, .one_tensor = true, .lands = true,
                      .says = PSD_MESSAGE_SET, .code = PS__CODE__KIND},
    [PS_FRAME_ADD] = {serve_add, .has_payload = true, .moves = true, .lands = true, .says = PSD_MESSAGE_ADD,
                      .code = PS__CODE__KIND},
    [PS_FRAME_KEEP] = {serve_keep, .has_payload = true, .says = PSD_MESSAGE_KEEP, .code = PS__CODE__KIND},
    [PS_FRAME_KNOWN] = {serve_known, .has_payload = true, .says = PSD_MESSAGE_KNOWN, .code = PS__CODE__KIND},
    [PS_FRAME_OFFER] = {serve_offer, .has_payload = true, .says = PSD_MESSAGE_OFFER,
                        .code = PS__CODE__NOT_BEGUN},
};

void psd_lane_serve(struct psd_lane *lane, struct psd_arrival *a, int rc)
{
    struct ps_error err = {"a data message has two parts, header and body"};
    uint32_t code = 0;

    lane->stop_ns = 0;
    a->frame = (struct ps_frame){0};
    a->room = NULL;
    a->answers_moves = a->filled = false;
    a->version = UINT64_MAX;
    psd_count(&lane->stats.bytes_in[a->port - lane->ports], a->message.body_bytes);
    if (rc == 0)
        rc = ps_frame_parse(&a->frame, a->message.head, a->message.head_bytes, &err);
    if (rc == 0 && (a->frame.kind == PS_FRAME_ANSWER || a->frame.kind == PS_FRAME_ERROR))
        rc = ps_fail(&err, -EPROTO, "frame kind %u is an answer; a lane takes requests", a->frame.kind);
    if (rc == 0 && a->frame.kind == PS_FRAME_KEEP)
        psd_lane_take_commands(lane); /* the loop sent the command before it asked the client */
    if (rc != 0)
        code = rc == -EPROTONOSUPPORT ? PS__CODE__VERSION : PS__CODE__MALFORMED;
    else if ((code = psd_lane_check(lane, a, &kinds[a->frame.kind], &err)) != 0) {
        /* A command of the loop may have arrived meanwhile that allows the request. */
        psd_lane_take_commands(lane);
        code = psd_lane_check(lane, a, &kinds[a->frame.kind], &err);
    }
    if (code != 0)
        psd_lane_refuse(lane, a, code, "%s", err.text);
    else {
        psd_count(&a->client->bytes_in, a->message.body_bytes);
        a->answers_moves = psd_lane_is_based(lane, a);
        atomic_store_explicit(&a->client->port, (uint32_t)(a->port - lane->ports), memory_order_relaxed);
        kinds[a->frame.kind].serve(lane, a);
    }
}
