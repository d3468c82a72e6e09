/* Encoding of an exchange's messages, and the error feedback of lossy codecs.
 *
 * A piece is encoded when it is first sent, into its own place in psc_wire.room, and stays there until the
 * next message: a resent piece has the same bytes, also one that was answered by a server that then came back
 * from a checkpoint without it. With error feedback (Seide et al. 2014) message m is sent as encode(m + e).
 * When the piece is answered for the first time, e becomes what was lost, m + e - decode(encode(m + e)). A
 * piece that does not land, or that was dropped because it came too late for its round, leaves e unchanged.
 * Frozen values are sent as 0, so that they do not affect the scale of their neighbours. Vectors of a device
 * are encoded there, with the same bits: coded.c. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "client/internal.h"
#include "client/transfer/internal.h"
#include "proto/codecs/piece.h"

/* Devices read and write floats at multiples of their size, and pin whole pages. */
enum { PLACE_UNIT = 16, ROOM_UNIT = 4096 };

/* Assigns a place to each chunk of each lane. */
static size_t place_chunks(struct psc_transfer_state *ts)
{
    size_t n = 0;
    for (uint32_t i = 0; i < ts->welcome.n_lanes; i++) {
        ts->progress[i].place = n;
        n += ps_shard_n_chunks(&ts->shard, i);
    }
    return n;
}

/* Of the largest chunk: a part of one takes no more than the whole. */
static size_t place_bytes(const struct psc *c)
{
    const struct psc_transfer_state *ts = &c->transfer_state;
    size_t most = 0;
    for (uint32_t i = 0; i < ts->shard.n_lanes; i++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&ts->shard, i); k++) {
            struct ps_range chunk = ps_shard_piece(&ts->shard, i, ps_shard_whole(&ts->shard), k);
            size_t bytes = ps_piece_bytes(&ts->wire.message, c->manifest, chunk);
            most = bytes > most ? bytes : most;
        }
    return (most + PLACE_UNIT - 1) / PLACE_UNIT * PLACE_UNIT;
}

static void drop_room(struct psc *c)
{
    struct psc_wire *w = &c->transfer_state.wire;
    psc_coded_free_room(c);
    free(w->room);
    w->room = NULL;
    w->room_bytes = 0;
}

/* For the current codec: as much as the largest so far. */
static int make_room(struct psc *c, size_t bytes, struct ps_error *err)
{
    struct psc_wire *w = &c->transfer_state.wire;
    if (bytes <= w->room_bytes)
        return PSC_OK;
    psc_links_close(c); /* links may still read the old room */
    drop_room(c);
    if ((w->room = aligned_alloc(ROOM_UNIT, (bytes + ROOM_UNIT - 1) / ROOM_UNIT * ROOM_UNIT)) == NULL)
        return ps_fail(err, PSC_ENOMEM, "no memory for %zu bytes in codec %s", bytes, w->message.name);
    int rc = psc_coded_make_room(c, bytes, err);
    if (rc == PSC_OK)
        w->room_bytes = bytes;
    return rc;
}

static void drop_known(struct psc *c, float **known)
{
    if (*known != NULL && c->memory.device != NULL)
        c->memory.kind->free(c->memory.device, *known);
    else
        free(*known);
    *known = NULL;
}

static int make_known(struct psc *c, float **known, struct ps_error *err)
{
    const size_t bytes = c->manifest->n_floats * sizeof **known;
    void *zeros = NULL;
    if (c->memory.device == NULL) {
        *known = calloc(1, bytes);
        return *known != NULL
                   ? PSC_OK
                   : ps_fail(err, PSC_ENOMEM, "no memory for %zu bytes of the last answers", bytes);
    }
    int rc = c->memory.kind->alloc(c->memory.device, bytes, &zeros, err);
    if (rc < 0)
        return psc_device_result(rc);
    c->memory.kind->order(c->memory.device, PSC_COMPUTE, PSC_UP); /* its zeros are there before */
    *known = zeros;
    return PSC_OK;
}

void psc_wire_finish(struct psc *c)
{
    struct psc_wire *w = &c->transfer_state.wire;
    drop_room(c);
    drop_known(c, &w->known);
    drop_known(c, &w->sent_known);
}

int psc_wire_prepare(struct psc *c, struct ps_error *err)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_wire *w = &ts->wire;
    w->message = ts->welcome.message;
    w->answer = ts->welcome.answer;
    bool needed = !w->message.in_place && c->opt.kind == PSC_WORKER;
    w->place_bytes = needed ? place_bytes(c) : 0;
    size_t want = needed ? place_chunks(ts) * w->place_bytes : 0;
    psc_wire_begin(c);
    drop_known(c, &w->known);
    drop_known(c, &w->sent_known);
    bool keeps = w->answer.for_moves && c->opt.kind == PSC_WORKER,
         twice = keeps && ts->welcome.hyper.overlap > 0;
    int rc = keeps ? make_known(c, &w->known, err) : PSC_OK;
    if (rc == PSC_OK && twice)
        rc = make_known(c, &w->sent_known, err);
    if (rc == PSC_OK)
        rc = psc_coded_prepare(c, err);
    return rc == PSC_OK ? make_room(c, want, err) : rc;
}

void psc_wire_begin(struct psc *c)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    for (uint32_t i = 0; i < ts->shard.n_lanes; i++) {
        struct psc_lane_progress *p = &ts->progress[i];
        size_t n_words = ps_shard_n_chunks(&ts->shard, i) / 64 + 1;
        if (p->encoded == NULL) /* no chunk is in its slice */
            continue;
        memset(p->encoded, 0, n_words * sizeof *p->encoded);
        memset(p->fed_back, 0, n_words * sizeof *p->fed_back);
    }
}

void psc_wire_renew(struct psc *c, uint32_t lane, uint32_t k)
{
    struct psc_lane_progress *p = &c->transfer_state.progress[lane];
    p->encoded[k / 64] &= ~(UINT64_C(1) << (k % 64));
    p->fed_back[k / 64] &= ~(UINT64_C(1) << (k % 64));
}

const struct ps_codec *psc_wire_codec(const struct psc *c, const struct psc_transfer *t)
{
    return psc_transfer_moves(t) ? &c->transfer_state.wire.message : ps_codec_find(0);
}

const struct ps_codec *psc_wire_answer_codec(const struct psc *c, const struct psc_transfer *t)
{
    return t->kind == PS_FRAME_EXCHANGE ? &c->transfer_state.wire.answer : ps_codec_find(0);
}

/* m + e; a value that is not finite then is sent without e. */
static void add_error(const struct psc *c, float *at, const float *m, const float *e, size_t n)
{
    c->vec->axpy(at, e, 1, n);
    for (size_t i = c->vec->first_nonfinite(at, n); i < n; i++)
        at[i] = isfinite(at[i]) ? at[i] : m[i];
}

/* m + e, with frozen values 0. */
static void make_message(struct psc *c, const struct psc_transfer *t, struct ps_range r, float *out)
{
    const float *m = psc_stage_message(c, t, c->transfer_state.scope, r.begin),
                *e = c->worker.vectors[PSC_VECTOR_ERROR];
    memcpy(out, m, r.count * sizeof *out);
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r)) {
        float *at = out + (p.range.begin - r.begin);
        if (p.segment->role == PS_ROLE_FROZEN) {
            memset(at, 0, p.range.count * sizeof *at);
            continue;
        }
        if (e != NULL)
            add_error(c, at, m + (p.range.begin - r.begin), e + p.range.begin, p.range.count);
    }
}

static bool needs_making(const struct psc *c, struct ps_range r)
{
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r))
        if (p.segment->role == PS_ROLE_FROZEN)
            return true;
    return c->worker.vectors[PSC_VECTOR_ERROR] != NULL ||
           ps_piece_has_buffers(&c->transfer_state.wire.message, c->manifest, r);
}

size_t psc_wire_place(const struct psc_transfer_state *ts, uint32_t lane, uint32_t k)
{
    return (ts->progress[lane].place + k) * ts->wire.place_bytes;
}

static unsigned char *place_of(struct psc_transfer_state *ts, uint32_t lane, uint32_t k)
{
    return ts->wire.room + psc_wire_place(ts, lane, k);
}

const void *psc_wire_body(struct psc *c, const struct psc_transfer *t, uint32_t lane, uint32_t k,
                          struct ps_range r)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    uint64_t *word = &ts->progress[lane].encoded[k / 64], bit = UINT64_C(1) << (k % 64);
    const float *m = psc_stage_message(c, t, ts->scope, r.begin);
    if (psc_wire_codec(c, t)->in_place)
        return m;
    if ((*word & bit) == 0) { /* a device has encoded all of them */
        if (needs_making(c, r)) {
            make_message(c, t, r, ts->scratch);
            ps_piece_encode(&ts->wire.message, c->manifest, r, place_of(ts, lane, k), ts->scratch);
        } else {
            ts->wire.message.encode(&ts->wire.message, place_of(ts, lane, k), m, r.count);
        }
        *word |= bit;
    }
    return place_of(ts, lane, k);
}

/* e <- m + e - what was sent */
void psc_wire_landed(struct psc *c, const struct psc_transfer *t, uint32_t lane, uint32_t k,
                     struct ps_range r)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    float *e = c->worker.vectors[PSC_VECTOR_ERROR], *sent = ts->scratch + ts->shard.chunk_floats;
    struct psc_lane_progress *p = &ts->progress[lane];
    const uint64_t bit = UINT64_C(1) << (k % 64);
    if (e == NULL || (p->encoded[k / 64] & bit & ~p->fed_back[k / 64]) == 0 || !psc_transfer_moves(t))
        return;
    p->fed_back[k / 64] |= bit;
    if (c->memory.device != NULL) {
        psc_coded_feed_back(c, t, lane, k, r);
        return;
    }
    make_message(c, t, r, ts->scratch);
    ps_piece_decode(&ts->wire.message, c->manifest, r, sent, place_of(ts, lane, k));
    c->vec->subtract(e + r.begin, ts->scratch, sent, r.count);
}

/* The rest of an exchange has landed too, although it was not answered. */
void psc_wire_landed_whole(struct psc *c, const struct psc_flight *f)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    psc_flight_take_up(ts, f);
    for (uint32_t i = 0; i < ts->shard.n_lanes; i++)
        for (uint32_t k = f->lanes[i].first; k < f->lanes[i].end; k++)
            if ((ts->progress[i].answered[k / 64] >> (k % 64) & 1) == 0)
                psc_wire_landed(c, &f->t, i, k, ps_shard_piece(&ts->shard, i, f->cover, k));
}

/* An answer in a codec for moves is the change since the last one. It is added to `known`, which is then the
 * answer.
 */
const float *psc_wire_floats(struct psc *c, const struct ps_codec *codec, const struct ps_message *m,
                             struct ps_range r)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    float *known = ts->wire.known != NULL ? ts->wire.known + r.begin : NULL;
    if (codec->for_moves) {
        ps_piece_decode(codec, c->manifest, r, ts->scratch, m->body);
        ps_piece_take(codec, c->manifest, r, known, ts->scratch);
        return known;
    }
    if (codec->in_place && (uintptr_t)m->body % sizeof(float) == 0)
        return (const float *)(const void *)m->body;
    codec->decode(codec, ts->scratch, m->body, r.count);
    return ts->scratch;
}

/* Parts of a chunk are answered as floats, and change nothing here. */
static bool is_kept(const struct psc_transfer_state *ts, const struct psc_transfer *t, uint32_t lane,
                    uint32_t k, struct ps_range r)
{
    return ts->wire.known != NULL && t->kind == PS_FRAME_EXCHANGE &&
           r.count == ps_shard_chunk(&ts->shard, lane, k).count;
}

void psc_wire_expect(struct psc *c, const struct psc_transfer *t, uint32_t lane, uint32_t k,
                     struct ps_range r)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_lane_progress *p = &ts->progress[lane];
    const uint64_t bit = UINT64_C(1) << (k % 64);
    p->says_based[k / 64] &= ~bit;
    if (!is_kept(ts, t, lane, k, r))
        return;
    p->says_based[k / 64] |= p->based[k / 64] & bit;
    if (ts->wire.sent_known != NULL && (p->based[k / 64] & bit) != 0)
        psc_copy(&ts->work, ts->wire.sent_known + r.begin, ts->wire.known + r.begin, r.count);
    p->based[k / 64] &= ~bit;
}

void psc_wire_withdraw(struct psc *c)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    for (uint32_t i = 0; i < ts->welcome.n_lanes; i++) {
        struct psc_lane_progress *p = &ts->progress[i];
        for (uint32_t k = ts->flights[0].lanes[i].first; k < ts->flights[0].lanes[i].end; k++)
            p->based[k / 64] |= p->says_based[k / 64] & UINT64_C(1) << (k % 64);
    }
}

bool psc_wire_is_known(const struct psc_transfer_state *ts, uint32_t lane, uint32_t k)
{
    return (ts->progress[lane].based[k / 64] >> (k % 64) & 1) != 0;
}

bool psc_wire_is_based(const struct psc_transfer_state *ts, uint32_t lane, uint32_t k)
{
    return (ts->progress[lane].says_based[k / 64] >> (k % 64) & 1) != 0;
}

void psc_wire_know(struct psc *c, const struct psc_transfer *t, uint32_t lane, uint32_t k, struct ps_range r,
                   const float *floats)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    if (!is_kept(ts, t, lane, k, r))
        return;
    if (floats != ts->wire.known + r.begin)
        psc_copy(&ts->work, ts->wire.known + r.begin, floats, r.count);
    ts->progress[lane].based[k / 64] |= UINT64_C(1) << (k % 64);
}
