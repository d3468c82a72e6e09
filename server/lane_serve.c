/* The life of a data message in a lane: validate, find the chunk, apply, answer. Nothing here allocates,
 * locks or logs unless a peer misbehaves. */
#include "server/lane.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/codec.h"
#include "proto/log.h"

/* One line a refusal, and no more than a few a second whatever a peer does; /metrics counts them all. */
static void log_refusal(struct psd_lane *lane, const struct ps_frame *f, uint32_t code, const char *sentence)
{
    char where[24];
    snprintf(where, sizeof where, "lane %u", lane->index);
    if (psd_log_allows(&lane->log_limit, "data.refused", where))
        ps_log(PS_LOG_WARN, "data.refused", "lane %u, client %u incarnation %u seq %" PRIu64 ": %s (%s)",
               lane->index, f->client, f->incarnation, f->seq, sentence,
               protobuf_c_enum_descriptor_get_value(&ps__code__descriptor, (int)code)->name);
}

static void refuse(struct psd_lane *lane, struct psd_arrival *a, uint32_t code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* Answers with a typed error and consumes the message. */
static void refuse(struct psd_lane *lane, struct psd_arrival *a, uint32_t code, const char *fmt, ...)
{
    char sentence[PS_MAX_SENTENCE];
    struct ps_frame f = a->frame;
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    psd_count(&lane->stats.rejected[code], 1);
    log_refusal(lane, &a->frame, code, sentence);
    f.kind = PS_FRAME_ERROR;
    f.code = (uint16_t)code;
    f.rate = 0;
    if (lane->transport->message_body(&a->message, strlen(sentence)) < 0) {
        lane->transport->message_drop(&a->message);
        return;
    }
    memcpy(a->message.body, sentence, strlen(sentence));
    ps_frame_pack(&f, a->message.head);
    lane->transport->port_reply(lane->port, &a->message);
}

/* Ends the client's session here and tells the loop, which ends it everywhere. */
static void fault(struct psd_lane *lane, const struct ps_frame *f, uint32_t code)
{
    struct psd_lane_client *c = &lane->clients[f->client];
    c->phase = PSD_PHASE_ENDED;
    c->end_code = code;
    psd_ring_push(lane->out,
                  &(struct psd_note){
                      .kind = PSD_NOTE_FAULT, .client = f->client, .incarnation = c->incarnation, .a = code});
}

/* Turns the request into its answer, sends it and consumes m. */
static void answer(struct psd_lane *lane, struct psd_arrival *a, float rate, uint16_t flags)
{
    struct ps_frame f = a->frame;
    f.kind = PS_FRAME_ANSWER;
    f.flags = flags;
    f.rate = rate;
    f.center_version = atomic_load_explicit(&lane->shared->version, memory_order_relaxed);
    a->client->version_seen = f.center_version;
    ps_frame_pack(&f, a->message.head);
    psd_count(&lane->stats.bytes_out, a->message.body_bytes);
    int rc = lane->transport->port_reply(lane->port, &a->message);
    if (rc == -EAGAIN) {
        psd_count(&lane->stats.rejected[PS__CODE__EVICTED], 1);
        log_refusal(lane, &a->frame, PS__CODE__EVICTED, "does not read its answers: its session ends");
        fault(lane, &a->frame, PS__CODE__EVICTED);
    }
}

static float *center_of(const struct psd_lane *lane, const struct psd_arrival *a)
{
    return lane->center->x + a->frame.begin;
}

/* Answers with the center as it is now. */
static void answer_center(struct psd_lane *lane, struct psd_arrival *a, float rate, uint16_t flags)
{
    size_t len_bytes = a->frame.count * sizeof(float);
    if (a->message.body_bytes != len_bytes && lane->transport->message_body(&a->message, len_bytes) < 0) {
        refuse(lane, a, PS__CODE__LIMIT, "no memory for an answer of %zu bytes", len_bytes);
        return;
    }
    memcpy(a->message.body, center_of(lane, a), len_bytes);
    answer(lane, a, rate, flags);
}

static void answer_nothing(struct psd_lane *lane, struct psd_arrival *a, uint16_t flags)
{
    if (lane->transport->message_body(&a->message, 0) < 0)
        lane->transport->message_drop(&a->message);
    else
        answer(lane, a, 0, flags);
}

/* The count carries the exchange's name (low bits of incarnation and seq), so that one that was given up, or
 * that a restart cut in two, leaves nothing behind that the next would inherit. A lane that restores late
 * does not take back what another has counted since. */
bool psd_lane_whole(struct psd_lane *lane, uint32_t client, uint32_t incarnation, uint64_t seq)
{
    _Atomic uint64_t *done = &lane->shared->lanes_done[client];
    uint64_t name = (uint64_t)incarnation << 48 | (seq & UINT64_C(0xffffffffff)) << 8;
    uint64_t was = atomic_load_explicit(done, memory_order_relaxed), now;
    do {
        if (was >> 48 == name >> 48 && was >> 8 > name >> 8)
            return false;
        now = (was & ~UINT64_C(0xff)) == name ? was + 1 : name + 1;
    } while (
        !atomic_compare_exchange_weak_explicit(done, &was, now, memory_order_relaxed, memory_order_relaxed));
    return (now & 0xff) == lane->center->lanes_used;
}

/* The chunk has landed: note it, and when it was the last of the exchange here, let the clocks go on. */
static void land(struct psd_lane *lane, struct psd_arrival *a)
{
    struct psd_lane_client *c = a->client;
    c->landed[a->chunk / 64] |= UINT64_C(1) << (a->chunk % 64);
    psd_count(&lane->stats.chunks, 1);
    if (++c->n_landed < lane->n_chunks)
        return;
    psd_count(&lane->stats.clock, 1);
    psd_count(&c->exchanges, 1);
    if (psd_lane_whole(lane, a->frame.client, a->frame.incarnation, a->frame.seq))
        atomic_fetch_add_explicit(&lane->shared->version, 1, memory_order_relaxed);
}

static struct psd_move move_of(const struct psd_lane *lane, const struct ps_frame *f)
{
    const struct ps_hyper *h = &lane->center->hyper;
    return (struct psd_move){.vec = lane->vec,
                             .alpha = atomic_load_explicit(&lane->shared->alpha, memory_order_relaxed),
                             .eta = (float)ps_schedule_rate(&h->schedule, h->learning_rate, f->clock)};
}

static void refuse_values(struct psd_lane *lane, struct psd_arrival *a, size_t n_bad)
{
    uint64_t begin = a->frame.begin, end = begin + a->frame.count;
    fault(lane, &a->frame, PS__CODE__VALUE);
    refuse(lane, a, PS__CODE__VALUE,
           "%zu values of floats %" PRIu64 " to %" PRIu64
           " are not finite or made the center so: none of these was stored, "
           "your session ends",
           n_bad, begin, end - 1);
}

/* The floats of a body, in place where it may hold floats; else in the lane's scratch. */
static float *floats_of(struct psd_lane *lane, const struct psd_arrival *a)
{
    const struct ps_codec *codec = ps_codec_find(a->frame.codec);
    if (codec->in_place && (uintptr_t)a->message.body % sizeof(float) == 0)
        return (float *)(void *)a->message.body;
    if (codec->in_place)
        memcpy(lane->scratch, a->message.body, a->message.body_bytes);
    else
        codec->decode(lane->scratch, a->message.body, a->frame.count);
    return lane->scratch;
}

static void floats_back(struct psd_lane *lane, const struct psd_arrival *a)
{
    const struct ps_codec *codec = ps_codec_find(a->frame.codec);
    if (codec->in_place && (uintptr_t)a->message.body % sizeof(float) != 0)
        memcpy(a->message.body, lane->scratch, a->message.body_bytes);
    else if (!codec->in_place)
        codec->encode(a->message.body, lane->scratch, a->frame.count);
}

void psd_lane_apply(struct psd_lane *lane, struct psd_arrival *a)
{
    const struct psd_center *center = lane->center;
    struct psd_move move = move_of(lane, &a->frame);
    float *state[PSD_MAX_STATE] = {NULL};
    float *m = floats_of(lane, a);

    for (uint32_t i = 0; i < center->rule->n_state; i++)
        state[i] = center->state[i] + a->frame.begin;
    size_t n_bad = center->rule->apply(&move, center_of(lane, a), state, m, a->frame.count);
    if (n_bad > 0) {
        refuse_values(lane, a, n_bad);
        return;
    }
    floats_back(lane, a);
    land(lane, a);
    answer(lane, a, center->rule->rate(&move), 0);
}

static void note_staleness(struct psd_lane *lane, struct psd_lane_client *c)
{
    uint64_t now = atomic_load_explicit(&lane->shared->version, memory_order_relaxed);
    uint64_t staleness = now > c->version_seen ? now - c->version_seen : 0;
    int bucket = staleness == 0 ? 0 : 64 - __builtin_clzll(staleness);
    psd_count(&lane->stats.staleness[bucket < PSD_STALENESS_BUCKETS ? bucket : PSD_STALENESS_BUCKETS - 1], 1);
    psd_count(&lane->stats.staleness_sum, staleness);
    atomic_store_explicit(&c->staleness, staleness, memory_order_relaxed);
}

/* Opens the exchange the chunk belongs to. Returns false when the chunk was answered already: as a replay, or
 * refused. */
static bool open_exchange(struct psd_lane *lane, struct psd_arrival *a)
{
    struct psd_lane_client *c = a->client;
    struct psd_move move;

    if (a->frame.seq > c->seq) {
        memset(c->landed, 0, lane->n_words * sizeof *c->landed);
        c->seq = a->frame.seq;
        c->n_landed = 0;
        note_staleness(lane, c);
        atomic_store_explicit(&c->clock, a->frame.clock, memory_order_relaxed);
        return true;
    }
    if (a->frame.seq < c->seq) {
        refuse(lane, a, PS__CODE__SEQ, "exchange %" PRIu64 " is older than the last one, %" PRIu64,
               a->frame.seq, c->seq);
        return false;
    }
    if ((c->landed[a->chunk / 64] >> (a->chunk % 64) & 1) == 0)
        return true;
    psd_count(&lane->stats.replays, 1);
    if (a->frame.kind == PS_FRAME_PUSH) {
        answer_nothing(lane, a, PS_FLAG_REPLAYED);
        return false;
    }
    move = move_of(lane, &a->frame);
    answer_center(lane, a, lane->center->rule->rate(&move), PS_FLAG_REPLAYED);
    return false;
}

static void serve_exchange(struct psd_lane *lane, struct psd_arrival *a)
{
    if (open_exchange(lane, a))
        lane->admission->arrive(lane, a);
}

static void serve_pull(struct psd_lane *lane, struct psd_arrival *a)
{
    psd_count(&lane->stats.pulled, 1);
    answer_center(lane, a, 0, 0);
}

/* Copies the body into the center. Returns false when it was refused. */
static bool overwrite(struct psd_lane *lane, struct psd_arrival *a)
{
    size_t n_bad = lane->vec->copy_finite(center_of(lane, a), floats_of(lane, a), a->frame.count);
    if (n_bad > 0)
        refuse_values(lane, a, n_bad);
    return n_bad == 0;
}

static void serve_push(struct psd_lane *lane, struct psd_arrival *a)
{
    if (!open_exchange(lane, a) || !overwrite(lane, a))
        return;
    land(lane, a);
    psd_count(&lane->stats.pushed, 1);
    answer_nothing(lane, a, 0);
}

/* The lane has the whole offer and has gone on; the answer to this chunk of it was lost. */
static void serve_late_offer(struct psd_lane *lane, struct psd_arrival *a)
{
    const struct ps_frame *f = &a->frame;
    if (f->client != lane->offer.client || f->incarnation != lane->offer.incarnation ||
        f->seq != lane->offer.seq) {
        refuse(lane, a, PS__CODE__NOT_BEGUN, "an offer from client %u after the job has begun", f->client);
        return;
    }
    psd_count(&lane->stats.replays, 1);
    answer_nothing(lane, a, PS_FLAG_REPLAYED);
}

static void serve_offer(struct psd_lane *lane, struct psd_arrival *a)
{
    uint64_t bit = UINT64_C(1) << (a->chunk % 64);
    if (a->client->phase != PSD_PHASE_OFFERING) {
        serve_late_offer(lane, a);
        return;
    }
    lane->offer.client = a->frame.client;
    lane->offer.incarnation = a->frame.incarnation;
    lane->offer.seq = a->frame.seq;
    if (!overwrite(lane, a))
        return;
    if ((lane->offered[a->chunk / 64] & bit) == 0) {
        lane->offered[a->chunk / 64] |= bit;
        if (++lane->n_offered == lane->n_chunks) {
            a->client->phase = PSD_PHASE_ACTIVE; /* it may go on before the loop has heard */
            psd_ring_push(lane->out, &(struct psd_note){.kind = PSD_NOTE_FILLED});
        }
    }
    answer_nothing(lane, a, 0);
}

/* What each kind of request needs. */
static const struct {
    void (*serve)(struct psd_lane *lane, struct psd_arrival *a);
    bool has_payload;
    unsigned phases; /* bits of enum psd_phase in which it is allowed */
    uint32_t code;   /* when it is not */
} kinds[] = {
    [PS_FRAME_EXCHANGE] = {serve_exchange, true, 1u << PSD_PHASE_ACTIVE, PS__CODE__KIND},
    [PS_FRAME_PULL] = {serve_pull, false, 1u << PSD_PHASE_ACTIVE | 1u << PSD_PHASE_OBSERVING,
                       PS__CODE__NOT_BEGUN},
    [PS_FRAME_PUSH] = {serve_push, true, 1u << PSD_PHASE_ACTIVE, PS__CODE__KIND},
    [PS_FRAME_OFFER] = {serve_offer, true, 1u << PSD_PHASE_OFFERING | 1u << PSD_PHASE_ACTIVE,
                        PS__CODE__NOT_BEGUN},
};

/* Whether the client may speak at all. 0 or the code to refuse with. */
static uint32_t check_client(const struct psd_lane *lane, const struct ps_frame *f, struct ps_error *err)
{
    if (f->client >= lane->shared->n_slots || lane->clients[f->client].incarnation == 0) {
        ps_fail(err, 0, "client %u has no session", f->client);
        return PS__CODE__NO_SESSION;
    }
    const struct psd_lane_client *c = &lane->clients[f->client];
    if (c->incarnation != f->incarnation) {
        ps_fail(err, 0, "incarnation %u is stale: client %u is in its incarnation %u", f->incarnation,
                f->client, c->incarnation);
        return PS__CODE__STALE;
    }
    if (c->phase == PSD_PHASE_ENDED) {
        ps_fail(err, 0, "the session of client %u has ended", f->client);
        return c->end_code;
    }
    if (c->phase == PSD_PHASE_NONE || lane->center == NULL) {
        ps_fail(err, 0, "client %u sent data before psd answered its Begin", f->client);
        return PS__CODE__NOT_BEGUN;
    }
    return 0;
}

/* Whether the frame fits its kind, client and lane; finds the chunk. 0 or the code to refuse with. */
static uint32_t check_request(struct psd_lane *lane, struct psd_arrival *a, struct ps_error *err)
{
    const struct ps_frame *f = &a->frame;
    const struct ps_codec *codec = ps_codec_find(f->codec);
    uint32_t code = check_client(lane, f, err);
    if (code != 0)
        return code;
    a->client = &lane->clients[f->client];
    if ((kinds[f->kind].phases & 1u << a->client->phase) == 0) {
        ps_fail(err, 0, "a frame of kind %u is not allowed to client %u %s", f->kind, f->client,
                a->client->phase == PSD_PHASE_OBSERVING  ? "because it is an observer"
                : a->client->phase == PSD_PHASE_OFFERING ? "before its offer is complete"
                                                         : "after the job has begun");
        return kinds[f->kind].code;
    }
    if (f->generation != atomic_load_explicit(&lane->shared->generation, memory_order_relaxed)) {
        ps_fail(err, 0, "generation %u is not the job's", f->generation);
        return PS__CODE__GENERATION;
    }
    int64_t chunk = ps_shard_find(&lane->center->shard, lane->index, (struct ps_range){f->begin, f->count});
    if (chunk < 0) {
        ps_fail(err, 0,
                "floats %" PRIu64 " +%u are not a chunk of lane %u, which holds floats %" PRIu64 " +%" PRIu64
                " in %u chunks",
                f->begin, f->count, lane->index, lane->slice.begin, lane->slice.count, lane->n_chunks);
        return PS__CODE__RANGE;
    }
    a->chunk = (uint32_t)chunk;
    if (codec == NULL) {
        ps_fail(err, 0, "codec %u is not known; allowed: 0 (raw)", f->codec);
        return PS__CODE__CODEC;
    }
    size_t want = kinds[f->kind].has_payload ? codec->payload_bytes(f->count) : 0;
    if (a->message.body_bytes != want) {
        ps_fail(err, 0, "a body of %zu bytes; %u floats in codec %s take %zu", a->message.body_bytes,
                f->count, codec->name, want);
        return PS__CODE__MALFORMED;
    }
    return 0;
}

void psd_lane_serve(struct psd_lane *lane, struct psd_arrival *a, int rc)
{
    struct ps_error err = {"a data message has two parts, header and body"};
    uint32_t code = 0;

    a->frame = (struct ps_frame){0};
    psd_count(&lane->stats.bytes_in, a->message.body_bytes);
    if (rc == 0)
        rc = ps_frame_parse(&a->frame, a->message.head, a->message.head_bytes, &err);
    if (rc == 0 && (a->frame.kind == PS_FRAME_ANSWER || a->frame.kind == PS_FRAME_ERROR))
        rc = ps_fail(&err, -EPROTO, "frame kind %u is an answer; a lane takes requests", a->frame.kind);
    if (rc != 0)
        code = rc == -EPROTONOSUPPORT ? PS__CODE__VERSION : PS__CODE__MALFORMED;
    else if ((code = check_request(lane, a, &err)) != 0) {
        /* What the loop has decided meanwhile may allow it. */
        psd_lane_take_notes(lane);
        code = check_request(lane, a, &err);
    }
    if (code != 0)
        refuse(lane, a, code, "%s", err.text);
    else
        kinds[a->frame.kind].serve(lane, a);
}
