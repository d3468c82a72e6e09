/* The pieces of a transfer: sends them to the lanes, a window at a time, and applies the answers. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/internal.h"
#include "client/transfer/internal.h"
#include "proto/clock.h"
#include "proto/codecs/piece.h"

static void drop_tables(struct psc_lane_progress lanes[PS_MAX_LANES])
{
    for (uint32_t i = 0; i < PS_MAX_LANES; i++) {
        struct psc_lane_progress *p = &lanes[i];
        free(p->answered);
        free(p->sent);
        free(p->encoded);
        free(p->fed_back);
        free(p->based);
        free(p->says_based);
        free(p->rates);
        *p = (struct psc_lane_progress){.answered = NULL};
    }
}

/* Returns false without memory. */
static bool make_tables(struct psc_lane_progress *p, uint32_t n_chunks)
{
    if (n_chunks == 0)
        return true;
    p->answered = calloc(n_chunks / 64 + 1, sizeof *p->answered);
    p->sent = calloc(n_chunks / 64 + 1, sizeof *p->sent);
    p->encoded = calloc(n_chunks / 64 + 1, sizeof *p->encoded);
    p->fed_back = calloc(n_chunks / 64 + 1, sizeof *p->fed_back);
    p->based = calloc(n_chunks / 64 + 1, sizeof *p->based);
    p->says_based = calloc(n_chunks / 64 + 1, sizeof *p->says_based);
    p->rates = calloc(n_chunks, sizeof *p->rates);
    return p->answered != NULL && p->sent != NULL && p->encoded != NULL && p->fed_back != NULL &&
           p->based != NULL && p->says_based != NULL && p->rates != NULL;
}

void psc_lanes_finish(struct psc *c)
{
    drop_tables(c->transfer_state.progress);
}

/* Without memory for all tables the lanes stay those of before, so that the next attempt makes them. */
int psc_lanes_prepare(struct psc *c, struct ps_error *err)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_lane_progress made[PS_MAX_LANES] = {{.answered = NULL}};
    const struct psc_welcome *welcome = &ts->welcome;
    struct ps_shard shard = {c->manifest->n_floats, welcome->n_lanes, welcome->chunk_floats, 0, {0}};
    if (!ps_shard_valid(&shard))
        return ps_fail(err, PSC_EUNSUPPORTED,
                       "the server's lane map is not valid: %u lanes in %u parts, chunks of %u floats",
                       welcome->n_lanes, welcome->n_parts, welcome->chunk_floats);
    if (ps_manifest_cut(c->manifest, welcome->n_parts, &shard, err) < 0)
        return PSC_EMANIFEST;
    for (uint32_t i = 0; i < shard.n_lanes; i++)
        if (!make_tables(&made[i], ps_shard_n_chunks(&shard, i))) {
            drop_tables(made);
            return ps_fail(err, PSC_ENOMEM, "no memory for the exchange's tables");
        }
    drop_tables(ts->progress);
    memcpy(ts->progress, made, sizeof made);
    ts->shard = shard;
    ts->tracks = welcome->tracks;
    return psc_wire_prepare(c, err);
}

enum { REASON_S = 1 };

/* Pauses between attempts while the method is about to change: of a transfer that has begun and must finish;
 * of any other. */
#define BEGUN_PAUSE_S   0.0005
#define REFUSED_PAUSE_S 0.02

static bool is_answered(const struct psc_lane_progress *p, uint32_t k)
{
    return p->answered[k / 64] >> (k % 64) & 1;
}

/* Everything unanswered is to be sent (again). */
void psc_pieces_rewind(struct psc *c)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    for (uint32_t i = 0; i < ts->welcome.n_lanes; i++) {
        struct psc_lane_progress *p = &ts->progress[i];
        for (uint32_t k = 0; k < ts->n_flights; k++)
            ts->flights[k].lanes[i].next = ts->flights[k].lanes[i].first;
        p->in_flight = 0;
        p->first_sent = ts->n_flights > 0 ? ts->flights[0].lanes[i].end : 0;
        if (p->sent != NULL)
            memset(p->sent, 0, (ps_shard_n_chunks(&ts->shard, i) / 64 + 1) * sizeof *p->sent);
    }
}

struct ps_range psc_scope_of(const struct psc *c, const struct psc_transfer *t)
{
    if (t->tensor != NULL)
        return ps_tensor_range(t->tensor);
    return t->is_fragment ? t->part : ps_shard_whole(&c->shard);
}

/* When the method has changed, the rest of a fragment is pulled from the whole vector. */
struct ps_range psc_cover_of(const struct psc *c, const struct psc_transfer *t)
{
    return t->is_fragment && t->kind == PS_FRAME_PULL ? ps_shard_whole(&c->shard) : psc_scope_of(c, t);
}

/* Whether the transfer has nothing to do with the piece. */
static bool is_idle(const struct psc *c, const struct psc_flight *f, uint32_t lane, uint32_t k,
                    struct ps_range piece)
{
    bool moves = psc_transfer_spares_frozen(&f->t);
    return (moves && ps_manifest_is_frozen(c->manifest, piece)) ||
           ps_range_intersect(piece, f->scope).count == 0 ||
           (f->t.kind == PS_FRAME_KNOWN && !psc_wire_is_known(&c->transfer_state, lane, k));
}

/* Marks the pieces of the scope as unanswered; of an exchange, those that move. */
static void mark_unanswered(struct psc *c, struct psc_flight *f, bool is_new)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    psc_stage_begin(c);
    f->scope = psc_scope_of(c, &f->t);
    f->cover = psc_cover_of(c, &f->t);
    f->unmarked = false;
    psc_flight_take_up(ts, f);
    for (uint32_t i = 0; i < ts->welcome.n_lanes; i++) {
        uint64_t *answered = ts->progress[i].answered;
        struct psc_flight_lane *l = &f->lanes[i];
        uint32_t n = ps_shard_pieces(&ts->shard, i, f->cover, &l->first);
        l->end = l->first + n;
        l->n_left = 0;
        l->next = l->last = l->first;
        for (uint32_t k = l->first; k < l->end; k++) {
            struct ps_range piece = ps_shard_piece(&ts->shard, i, f->cover, k);
            bool idle = is_idle(c, f, i, k, piece);
            uint64_t bit = UINT64_C(1) << (k % 64);
            answered[k / 64] = idle ? answered[k / 64] | bit : answered[k / 64] & ~bit;
            ts->progress[i].rates[k] = NAN;
            l->n_left += !idle;
            l->last = idle ? l->last : k;
            if (is_new)
                psc_wire_renew(c, i, k);
            psc_wire_expect(c, &f->t, i, k, piece);
        }
    }
}

void psc_pieces_start(struct psc *c, struct psc_flight *f)
{
    mark_unanswered(c, f, true);
    psc_coded_begin(c, &f->t);
}

void psc_pieces_start_again(struct psc *c, struct psc_flight *f)
{
    mark_unanswered(c, f, false);
}

/* Over the lanes that it was sent to: a newer Welcome may have fewer. */
bool psc_pieces_are_answered(const struct psc *c, const struct psc_flight *f)
{
    for (uint32_t i = 0; i < c->transfer_state.shard.n_lanes; i++)
        if (f->lanes[i].n_left > 0)
            return false;
    return !f->unmarked;
}

bool psc_pieces_all_answered(const struct psc *c)
{
    const struct psc_transfer_state *ts = &c->transfer_state;
    for (uint32_t i = 0; i < ts->n_flights; i++)
        if (!ts->flights[i].over && !psc_pieces_are_answered(c, &ts->flights[i]))
            return false;
    return true;
}

static unsigned scope_flag(const struct psc_transfer *t)
{
    bool is_fragment = t->is_fragment && psc_transfer_moves(t);
    return t->tensor != NULL ? PS_FLAG_TENSOR : is_fragment ? PS_FLAG_FRAGMENT : 0;
}

/* Whether the bytes lie in one buffer that the lanes have mapped: links know no buffer that came later. */
static bool is_shared(const struct psc *c, const void *begin, size_t bytes)
{
    unsigned registered = psc_links_registered(c);
    uintptr_t at = (uintptr_t)begin;
    for (uint32_t i = 0; i < PS_MAX_BUFFERS; i++) {
        const struct ps_buffer *b = &c->buffers[i];
        if ((registered >> i & 1) != 0 && b->kind == PS_BUFFER_SHARED && at >= (uintptr_t)b->base &&
            at + bytes <= (uintptr_t)b->base + b->bytes)
            return true;
    }
    return false;
}

void psc_pieces_choose(struct psc *c, const struct psc_transfer *t)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    const struct ps_admission_info *admission = ps_admission_find(ts->welcome.admission);
    struct ps_range scope = psc_scope_of(c, t);
    const float *message = t->may_be_in_place ? psc_stage_message(c, t, scope, scope.begin) : NULL;
    bool was_in_place = ts->in_place;
    ts->in_place = t->may_be_in_place && !ts->resent && ts->links.transport != NULL &&
                   ts->links.transport->link_send_in_place != NULL && admission != NULL &&
                   (admission->uses & PS_USES_MERGE) == 0 && ts->wire.message.in_place &&
                   ts->wire.answer.in_place && is_shared(c, message, scope.count * sizeof(float));
    if (ts->in_place)
        ts->registered = message;
    else if (was_in_place)
        psc_stage_begin(c); /* lanes have changed the mirror, not the device's vector */
}

bool psc_keeps_turn(const struct psc *c, const struct psc_transfer *t)
{
    return t->keeps_turn && !atomic_load_explicit(&c->transfer_state.awaited, memory_order_acquire);
}

static int send_piece(struct psc *c, uint32_t lane, const void *head, const void *body, size_t len_bytes,
                      bool in_place)
{
    const struct psc_links *l = &c->transfer_state.links;
    if (in_place)
        return l->transport->link_send_in_place(l->link[lane], head, (void *)(uintptr_t)body, len_bytes);
    return l->transport->link_send(l->link[lane], head, body, len_bytes);
}

/* A message that has become a pull needs none. */
static const struct psc_gate *gate_of(const struct psc_transfer *t)
{
    return t->send != NULL ? t->gate : NULL;
}

/* The chunks from 64 word on that the lane has open and not answered, as bits. */
static uint64_t open_pieces(const struct psc_lane_progress *p, const struct psc_gate *gate, uint32_t lane,
                            uint32_t word)
{
    return psc_gate_word(gate, lane, word) & ~p->answered[word];
}

bool psc_pieces_are_held(const struct psc *c, const struct psc_transfer *t)
{
    const struct psc_transfer_state *ts = &c->transfer_state;
    const struct psc_gate *gate = gate_of(t);
    for (uint32_t i = 0; gate != NULL && i < ts->shard.n_lanes; i++)
        for (uint32_t w = 0; w * 64 < ts->flights[0].lanes[i].end; w++)
            if (open_pieces(&ts->progress[i], gate, i, w) != 0)
                return false;
    return gate != NULL;
}

/* The last piece that is open and not sent; end: there is none. */
static uint32_t last_open(const struct psc_lane_progress *p, const struct psc_gate *gate, uint32_t lane,
                          uint32_t end)
{
    for (uint32_t w = end / 64 + 1; w-- > 0;) {
        uint64_t bits = w * 64 < end ? open_pieces(p, gate, lane, w) & ~p->sent[w] : 0;
        if (bits != 0)
            return w * 64 + 63 - (uint32_t)__builtin_clzll(bits);
    }
    return end;
}

static bool is_sent(const struct psc_lane_progress *p, uint32_t k)
{
    return p->sent[k / 64] >> (k % 64) & 1;
}

static bool is_in_flight(const struct psc_lane_progress *p, uint32_t k, uint32_t end)
{
    return k < end && is_sent(p, k) && !is_answered(p, k);
}

/* The last piece that is open: backpropagation ends with the first. Where exchanges wait for those of others,
 * one place of the window is kept for the first piece that is not sent. So of all who have ended their step,
 * in whatever order they computed, the first piece that any of them waits for is under way, and no two wait
 * for each other. */
static uint32_t next_through(struct psc *c, struct psc_flight_lane *l, const struct psc_gate *gate,
                             uint32_t lane)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_lane_progress *p = &ts->progress[lane];
    bool kept = psc_among_members(c), taken = is_in_flight(p, p->first_sent, l->end);
    if (!kept || p->in_flight - taken + 1 < ts->links.window_chunks)
        return last_open(p, gate, lane, l->end);
    while (l->next < l->end && (is_answered(p, l->next) || is_sent(p, l->next)))
        l->next++;
    if (taken || l->next == l->end || (psc_gate_word(gate, lane, l->next / 64) >> (l->next % 64) & 1) == 0)
        return l->end;
    p->first_sent = l->next;
    return l->next;
}

/* The end of its pieces: nothing may be sent now. */
static uint32_t next_piece(struct psc *c, struct psc_flight *f, uint32_t lane)
{
    const struct psc_lane_progress *p = &c->transfer_state.progress[lane];
    struct psc_flight_lane *l = &f->lanes[lane];
    if (gate_of(&f->t) != NULL)
        return next_through(c, l, gate_of(&f->t), lane);
    while (l->next < l->end && is_answered(p, l->next))
        l->next++;
    return l->next == l->last && psc_keeps_turn(c, &f->t) ? l->end : l->next;
}

/* The oldest flight that has something to send to the lane, and its piece *k; NULL: there is none. */
static struct psc_flight *oldest_to_send(struct psc *c, uint32_t lane, uint32_t *k)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    for (uint32_t i = 0; i < ts->n_flights; i++) {
        struct psc_flight *f = &ts->flights[i];
        if (f->over || (f->lanes[lane].refused && !ts->one_by_one))
            continue;
        if (f->unmarked)
            return NULL;
        *k = next_piece(c, f, lane);
        if (*k < f->lanes[lane].end)
            return f;
        if (ts->one_by_one && !psc_pieces_are_answered(c, f))
            return NULL;
    }
    return NULL;
}

/* While the method is about to change, lanes refuse exchanges that have not begun, again and again, and wait
 * for those that have, which may be behind them. So one that was refused gives way to the others in this
 * lane. */
static struct psc_flight *next_flight(struct psc *c, uint32_t lane, uint32_t *k)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_flight *f = oldest_to_send(c, lane, k);
    if (f != NULL)
        return f;
    for (uint32_t i = 0; i < ts->n_flights; i++)
        ts->flights[i].lanes[lane].refused = false;
    return oldest_to_send(c, lane, k);
}

/* How many transfers before this one may be under way, for the frame's flags. */
static uint16_t behind_flags(struct psc_transfer_state *ts, const struct psc_flight *f)
{
    uint64_t behind = psc_transfer_moves(&f->t) ? f->seq - psc_flight_oldest(ts)->seq : 0;
    return (uint16_t)(behind * PS_FLAG_BEHIND);
}

/* Brings what is to be sent of a piece to the host. PSC_EDEVICE. */
static int fetch(struct psc *c, const struct psc_transfer *t, uint32_t lane, uint32_t k, struct ps_range r)
{
    if (t->send == NULL)
        return PSC_OK;
    return psc_coded_is_for(c, t) ? psc_coded_fetch(c, lane, k)
                                  : psc_stage_fetch(c, t, ps_range_intersect(r, c->transfer_state.scope));
}

/* *sent: false if the transport has less room than the window. PSC_EDEVICE. */
static int send_chunk(struct psc *c, const struct psc_flight *flight, uint32_t lane, uint32_t k, bool *sent)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    const struct psc_transfer *t = &flight->t;
    const struct ps_codec *codec = psc_wire_codec(c, t);
    unsigned char head[PS_FRAME_BYTES];
    psc_flight_take_up(ts, flight);
    struct ps_range r = ps_shard_piece(&ts->shard, lane, ts->cover, k);
    struct ps_frame f = {.kind = t->kind,
                         .codec = codec->id,
                         .client = ts->welcome.client,
                         .incarnation = ts->welcome.incarnation,
                         .generation = ts->welcome.generation,
                         .seq = flight->seq,
                         .begin = r.begin,
                         .count = (uint32_t)r.count,
                         .samples = t->samples,
                         .clock = t->clock,
                         .flags = (uint16_t)(t->flags | scope_flag(t)),
                         .code = t->tensor != NULL       ? (uint16_t)(t->tensor - c->manifest->tensors)
                                 : psc_transfer_moves(t) ? t->fragment
                                                         : 0,
                         .center_version = ts->counts.center_version};
    int rc = fetch(c, t, lane, k, r);
    if (rc != PSC_OK)
        return rc;
    const void *body = t->send != NULL ? psc_wire_body(c, t, lane, k, r) : NULL;
    size_t len_bytes = body != NULL ? ps_piece_bytes(codec, c->manifest, r) : 0;
    f.flags |= ts->in_place ? PS_FLAG_IN_PLACE : 0;
    f.flags |= t->kind == PS_FRAME_EXCHANGE && psc_wire_is_based(ts, lane, k) ? PS_FLAG_BASED : 0;
    f.flags |= behind_flags(ts, flight);
    if (ts->in_place && c->memory.device == NULL) /* the lane moves x itself */
        psc_moved_keep(c, t, (struct ps_range){r.begin - ts->scope.begin, r.count});
    ps_frame_pack(&f, head);
    *sent = send_piece(c, lane, head, body, len_bytes, ts->in_place) == 0;
    ts->counts.bytes_sent += *sent ? len_bytes : 0;
    return PSC_OK;
}

/* Fills the lane's window, in the order in which the transfers began. PSC_EDEVICE. */
static int send_lane(struct psc *c, uint32_t lane)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_lane_progress *p = &ts->progress[lane];
    bool sent = true;

    if (ts->refused && ps_now_s() < ts->refused_end_s)
        return PSC_OK;
    ts->refused = false;
    while (p->in_flight < ts->links.window_chunks) {
        uint32_t k;
        struct psc_flight *f = next_flight(c, lane, &k);
        int rc = f != NULL ? send_chunk(c, f, lane, k, &sent) : PSC_OK;
        if (rc != PSC_OK || f == NULL || !sent)
            return rc; /* without room the rest is sent later */
        p->in_flight++;
        p->sent[k / 64] |= UINT64_C(1) << (k % 64);
        f->lanes[lane].next += k == f->lanes[lane].next;
    }
    return PSC_OK;
}

/* The reason for the end of a session comes on the control socket, perhaps a moment after the lanes'
 * refusals. */
static bool is_told_why(struct psc *c)
{
    struct psc_shared *s = &c->session.shared;
    uint64_t end_ns = ps_ns_after(REASON_S);
    int rc = 0;
    pthread_mutex_lock(&s->lock);
    while (rc == 0 && s->state != PSC_STATE_ENDED)
        rc = ps_cond_wait_until(&s->changed, &s->lock, end_ns);
    bool told = s->state == PSC_STATE_ENDED;
    pthread_mutex_unlock(&s->lock);
    return told;
}

/* The method is about to change, and the server finishes only exchanges that have begun. If this one has an
 * answer already, the refused piece is sent again; else the transfer waits for the Welcome with the new
 * method. */
static int take_refusal(struct psc *c, struct psc_flight *flight, uint32_t lane, const struct ps_frame *f)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_lane_progress *p = &ts->progress[lane];
    struct psc_flight_lane *l = &flight->lanes[lane];
    int64_t k = ps_shard_find(&ts->shard, lane, flight->cover, (struct ps_range){f->begin, f->count});
    if (k < 0 || is_answered(p, (uint32_t)k))
        return PSC_OK;
    p->in_flight -= p->in_flight > 0;
    l->next = (uint32_t)k < l->next ? (uint32_t)k : l->next;
    p->sent[k / 64] &= ~(UINT64_C(1) << (k % 64));
    p->first_sent = (uint32_t)k == p->first_sent ? l->end : p->first_sent;
    l->refused = true;
    ts->refused = true;
    ts->refused_end_s = ps_now_s() + (ts->begun ? BEGUN_PAUSE_S : REFUSED_PAUSE_S);
    return PSC_OK;
}

/* Handles an error frame. After NO_SESSION and the like the transfer waits: the server
 * has restarted, or a server of another job has its address, and the service thread learns on the control
 * connection whether the session is over. */
static int take_error(struct psc *c, struct psc_flight *flight, uint32_t lane, const struct ps_frame *f,
                      const struct ps_message *m)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    const struct psc_transfer *t = &flight->t;
    if (f->code == PS__CODE__GENERATION)
        return take_refusal(c, flight, lane, f);
    if (f->code == PS__CODE__NO_SESSION || f->code == PS__CODE__NOT_BEGUN || f->code == PS__CODE__STALE ||
        (f->code == PS__CODE__EVICTED && is_told_why(c)))
        return PSC_OK;
    struct ps_range r = {f->begin, f->count};
    if (f->code == PS__CODE__VALUE && ts->in_place &&
        ps_shard_find(&ts->shard, lane, flight->cover, r) >= 0 &&
        psc_transfer_find_bad(c, t, r, "it was not exchanged, others may have been", &ts->error) < 0)
        return PSC_EVALUE;
    return ps_fail(&ts->error, psc_result_of_code(f->code), "the server refused floats %" PRIu64 " +%u: %.*s",
                   f->begin, f->count,
                   (int)(m->body_bytes < PS_MAX_SENTENCE ? m->body_bytes : PS_MAX_SENTENCE),
                   (const char *)m->body);
}

/* Whether its answers wait for the others, those in floats. */
static bool waits_for_others(const struct psc *c, const struct psc_transfer *t, const struct ps_codec *codec)
{
    return t->lands_at_end && c->memory.device != NULL && codec->in_place;
}

/* Decodes an answer, or has the device decode it. One in a codec for moves is added to what is known. */
static int take_floats(struct psc *c, const struct psc_transfer *t, uint32_t lane, uint32_t k,
                       const struct ps_frame *f, const struct ps_codec *codec, const struct ps_message *m,
                       const float **floats)
{
    struct ps_range r = {f->begin, f->count};
    float *place =
        waits_for_others(c, t, codec) ? t->target + (r.begin - c->transfer_state.scope.begin) : NULL;
    int rc = PSC_OK;
    if (c->memory.device == NULL)
        *floats = psc_wire_floats(c, codec, m, r);
    else if (codec->for_moves)
        rc = psc_stage_moves(c, codec, m->body, m->body_bytes, r, floats);
    else
        rc = psc_stage_answer(c, lane, codec, m, r.count, place, floats);
    if (rc == PSC_OK && (f->flags & PS_FLAG_REPLAYED) == 0)
        psc_wire_know(c, t, lane, k, r, *floats);
    return rc;
}

static int take_answer(struct psc *c, uint32_t lane, const struct ps_frame *head, const struct ps_message *m)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_lane_progress *p = &ts->progress[lane];
    struct ps_frame f = *head;
    struct psc_flight *flight = psc_flight_find(ts, f.seq);
    if (flight == NULL)
        return PSC_OK; /* of an earlier transfer that was abandoned */
    if (f.kind == PS_FRAME_ERROR)
        return take_error(c, flight, lane, &f, m);
    const struct psc_transfer *t = &flight->t;
    psc_flight_take_up(ts, flight);
    struct ps_range r = {f.begin, f.count};
    int64_t k = ps_shard_find(&ts->shard, lane, ts->cover, r);
    bool in_place = (f.flags & PS_FLAG_IN_PLACE) != 0 && ts->in_place,
         has_body = t->landed != NULL && !in_place;
    const struct ps_codec *codec = has_body ? psc_wire_answer_codec(c, t) : ps_codec_find(0);
    if (codec->for_moves && (f.codec == 0 || k < 0 || !psc_wire_is_based(ts, lane, (uint32_t)k)))
        codec = ps_codec_find(0);
    size_t want = has_body ? ps_piece_bytes(codec, c->manifest, r) : 0;
    if (f.kind != PS_FRAME_ANSWER || k < 0 || m->body_bytes != want || f.codec != codec->id)
        return ps_fail(&ts->error, PSC_EUNSUPPORTED,
                       "lane %u answered floats %" PRIu64
                       " +%u with %zu bytes in codec %u; expected %zu in %u (%s)",
                       lane, f.begin, f.count, m->body_bytes, f.codec, want, codec->id, codec->name);
    const char *wrong = has_body ? ps_piece_check(codec, c->manifest, r, m->body) : NULL;
    if (wrong != NULL)
        return ps_fail(&ts->error, PSC_EUNSUPPORTED,
                       "lane %u answered floats %" PRIu64 " +%u in codec %s: %s", lane, f.begin, f.count,
                       codec->name, wrong);
    if (is_answered(p, (uint32_t)k))
        return PSC_OK;
    struct ps_range in = ps_range_intersect(r, ts->scope);
    if ((f.flags & PS_FLAG_DROPPED) == 0)
        psc_wire_landed(c, t, lane, (uint32_t)k, r);
    if (has_body) {
        const float *floats;
        int rc = take_floats(c, t, lane, (uint32_t)k, &f, codec, m, &floats);
        if (rc != PSC_OK)
            return rc;
        struct ps_range at = {in.begin - ts->scope.begin, in.count};
        psc_moved_keep(c, t, at);
        if (waits_for_others(c, t, codec))
            p->rates[k] = f.rate;
        else
            t->landed(c, at, floats + (in.begin - r.begin), f.rate, t->target);
        psc_stage_answered(c);
    } else if (in_place) {
        if (c->memory.device != NULL)
            psc_moved_keep(c, t, (struct ps_range){in.begin - ts->scope.begin, in.count});
        psc_stage_take_back(c, t, r);
    }
    ts->begun = true;
    p->answered[k / 64] |= UINT64_C(1) << (k % 64);
    flight->lanes[lane].n_left--;
    p->in_flight -= p->in_flight > 0;
    flight->version = f.center_version > flight->version ? f.center_version : flight->version;
    flight->run = ts->welcome.run;
    if (f.center_version >= ts->transfer_version) /* lanes answer in any order */
        ts->transfer_version = ts->counts.center_version = f.center_version;
    uint64_t *part = &ts->part_versions[lane * ts->shard.n_parts / ts->shard.n_lanes];
    *part = f.center_version > *part ? f.center_version : *part;
    if (psc_transfer_moves(t))
        flight->rate = ts->counts.rate = f.rate;
    if ((f.flags & PS_FLAG_SAVE) && f.center_version > ts->save_version)
        ts->save_version = f.center_version; /* from the lane that ended the round last */
    ts->counts.bytes_received += in_place ? f.count * sizeof(float) : m->body_bytes;
    return PSC_OK;
}

void psc_pieces_land(struct psc *c, const struct psc_flight *f)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct ps_range run = {0, 0};
    float rate = NAN;
    psc_passes_begin(&ts->work);
    for (uint32_t i = 0; i < ts->shard.n_lanes; i++)
        for (uint32_t k = f->lanes[i].first; k < f->lanes[i].end; k++) {
            struct ps_range piece = ps_shard_piece(&ts->shard, i, f->cover, k);
            if (isnan(ts->progress[i].rates[k]))
                continue;
            piece.begin -= f->scope.begin;
            if (run.count > 0 && run.begin + run.count == piece.begin && ts->progress[i].rates[k] == rate) {
                run.count += piece.count;
                continue;
            }
            if (run.count > 0)
                f->t.landed(c, run, f->t.target + run.begin, rate, f->t.target);
            run = piece;
            rate = ts->progress[i].rates[k];
        }
    if (run.count > 0)
        f->t.landed(c, run, f->t.target + run.begin, rate, f->t.target);
    psc_passes_end(&ts->work);
}

/* After a psd was killed, the system may give a lane's port to another process, and ZeroMQ reconnects to it
 * by itself. A peer that does not answer as a lane makes the link lost. */
static void leave_stranger(struct psc *c, uint32_t lane, const struct ps_error *why)
{
    struct psc_links *l = &c->transfer_state.links;
    char sentence[300];
    if (!l->lost) {
        snprintf(sentence, sizeof sentence,
                 "lane %u: the peer does not answer as a lane (%.160s): reconnecting", lane, why->text);
        psc_session_say(&c->session, sentence);
    }
    l->lost = true;
}

/* Takes one answer of the lane, if there is one: *got. */
static int take_one(struct psc *c, uint32_t lane, bool *got)
{
    struct psc_links *l = &c->transfer_state.links;
    struct ps_message m;
    int rc = l->transport->link_recv(l->link[lane], &m);
    l->lost = l->lost || rc == -ECONNRESET;
    *got = rc == 0 || rc == -EBADMSG;
    if (!*got)
        return PSC_OK;
    struct ps_frame f;
    struct ps_error why;
    int result = PSC_OK;
    *got = ps_frame_parse(&f, m.head, m.head_bytes, &why) == 0;
    if (*got)
        result = take_answer(c, lane, &f, &m);
    else
        leave_stranger(c, lane, &why);
    if (!psc_stage_keeps(c, lane, &m))
        l->transport->message_drop(&m);
    return result;
}

/* Covers all open links: ts->welcome may be a newer one. */
int psc_pieces_take(struct psc *c)
{
    int rc = PSC_OK;
    for (uint32_t lane = 0; lane < PS_MAX_LANES; lane++)
        for (bool got = c->transfer_state.links.link[lane] != NULL; got && rc == PSC_OK;)
            rc = take_one(c, lane, &got);
    return rc;
}

/* Takes what lanes have answered and refills their windows. *progress: whether there was anything. */
int psc_pieces_pump(struct psc *c, bool *progress)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    for (uint32_t lane = 0; lane < ts->welcome.n_lanes; lane++) {
        for (bool got = ts->links.link[lane] != NULL; got;) {
            int result = take_one(c, lane, &got);
            if (result != PSC_OK)
                return result;
            *progress = *progress || (got && !ts->refused);
            if ((result = send_lane(c, lane)) != PSC_OK)
                return result;
        }
    }
    return PSC_OK;
}
