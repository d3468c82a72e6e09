/* Messages in a codec, from a device's memory: the device encodes, so that the bus carries payloads.
 *
 * When a transfer begins all its pieces are encoded into a room of the device, in PSC_DOWN, in a pass that
 * also looks for values that are not finite. They are copied to the same places of the host's room, a batch
 * of several chunks of a lane at a time, the next batch while the lane works on this one. When a piece is
 * answered, PSC_UP computes what encoding has lost, before the answer is applied to the vector that was sent.
 */
#include <errno.h>

#include "client/internal.h"
#include "client/transfer/internal.h"
#include "proto/codecs/piece.h"

enum { BATCH_CHUNKS = 4, ENCODED_AT_ONCE = 64, MARKS = 2 };

static struct psc_queue *queue_of(const struct psc *c, enum psc_queue_use use)
{
    return c->memory.kind->queue(c->memory.device, use);
}

bool psc_coded_is_for(const struct psc *c, const struct psc_transfer *t)
{
    return c->memory.device != NULL && t->send != NULL && !psc_wire_codec(c, t)->in_place;
}

/* Members of a clique but its leader exchange nothing. */
static bool is_needed(const struct psc *c)
{
    return c->memory.device != NULL && !c->local && !c->group.follows &&
           !c->transfer_state.wire.message.in_place;
}

static int make_marks(struct psc *c, struct ps_error *err)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    for (uint32_t i = 0; i < ts->welcome.n_lanes; i++)
        for (int k = 0; k < MARKS; k++) {
            struct psc_mark **m = &ts->wire.marks[i][k];
            int rc = *m == NULL ? c->memory.kind->mark_create(c->memory.device, m, err) : 0;
            if (rc < 0)
                return psc_device_result(rc);
        }
    return PSC_OK;
}

int psc_coded_prepare(struct psc *c, struct ps_error *err)
{
    const struct ps_codec *codec = &c->transfer_state.wire.message;
    if (!is_needed(c))
        return PSC_OK;
    if (!c->memory.kind->codes(codec))
        return ps_fail(
            err, PSC_EUNSUPPORTED,
            "options: memory '%s' has no codec '%s', which the job uses; allowed: another codec, or "
            "memory 'host'",
            c->memory.kind->name, codec->name);
    return make_marks(c, err);
}

int psc_coded_make_room(struct psc *c, size_t bytes, struct ps_error *err)
{
    const struct psc_memory_kind *kind = c->memory.kind;
    struct psc_wire *w = &c->transfer_state.wire;
    void *room = NULL;
    if (!is_needed(c))
        return PSC_OK;
    int rc = kind->alloc(c->memory.device, bytes, &room, err);
    if (rc == 0 && (rc = kind->pin(c->memory.device, w->room, bytes, err)) < 0)
        kind->free(c->memory.device, room);
    if (rc < 0)
        return psc_device_result(rc);
    w->device_room = room;
    c->memory.kind->order(c->memory.device, PSC_COMPUTE, PSC_DOWN); /* its zeros are there before */
    return PSC_OK;
}

void psc_coded_free_room(struct psc *c)
{
    const struct psc_memory_kind *kind = c->memory.kind;
    struct psc_wire *w = &c->transfer_state.wire;
    if (w->device_room == NULL)
        return;
    kind->unpin(c->memory.device, w->room);
    kind->free(c->memory.device, w->device_room);
    w->device_room = NULL;
}

static struct psc_coding coding_of(const struct psc *c, const struct psc_transfer *t)
{
    const struct psc_wire *w = &c->transfer_state.wire;
    return (struct psc_coding){.codec = &w->message,
                               .message = t->send,
                               .error = c->worker.vectors[PSC_VECTOR_ERROR],
                               .room = w->device_room,
                               .searches = t->name != NULL};
}

static struct psc_coded coded_piece(const struct psc *c, uint32_t lane, uint32_t k, struct ps_range r)
{
    const struct psc_transfer_state *ts = &c->transfer_state;
    return (struct psc_coded){.range = r,
                              .from = r.begin - ts->scope.begin,
                              .to = psc_wire_place(ts, lane, k),
                              .as_floats = !ps_piece_is_coded(&ts->wire.message, c->manifest, r)};
}

/* Pieces of which no payload is wanted count as answered. */
static size_t encode_lane(struct psc *c, const struct psc_coding *coding, uint32_t lane,
                          struct psc_coded *pieces, size_t n)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_lane_progress *p = &ts->progress[lane];
    const struct psc_flight_lane *l = &ts->flights[0].lanes[lane]; /* it is alone */
    p->fetching = p->fetched = 0;
    for (uint32_t k = l->first; k < l->end; k++) {
        const uint64_t bit = UINT64_C(1) << (k % 64);
        if ((p->answered[k / 64] & bit) != 0)
            continue;
        pieces[n++] = coded_piece(c, lane, k, ps_shard_piece(&ts->shard, lane, ts->cover, k));
        p->encoded[k / 64] |= bit;
        if (n < ENCODED_AT_ONCE)
            continue;
        c->memory.kind->encode(queue_of(c, PSC_DOWN), coding, pieces, n);
        n = 0;
    }
    return n;
}

void psc_coded_begin(struct psc *c, const struct psc_transfer *t)
{
    struct psc_coded pieces[ENCODED_AT_ONCE];
    size_t n = 0;
    if (!psc_coded_is_for(c, t))
        return;
    const struct psc_coding coding = coding_of(c, t);
    if (coding.searches)
        c->memory.kind->search_begin(queue_of(c, PSC_DOWN));
    for (uint32_t i = 0; i < c->transfer_state.welcome.n_lanes; i++)
        n = encode_lane(c, &coding, i, pieces, n);
    c->memory.kind->encode(queue_of(c, PSC_DOWN), &coding, pieces, n);
}

int psc_coded_searched(struct psc *c, uint64_t *bad, struct ps_error *err)
{
    return psc_device_result(c->memory.kind->search_end(queue_of(c, PSC_DOWN), bad, err));
}

static void copy(struct psc *c, size_t from, size_t to)
{
    const struct psc_wire *w = &c->transfer_state.wire;
    if (from < to)
        c->memory.kind->down(queue_of(c, PSC_DOWN), w->room + from, w->device_room + from, to - from);
}

/* Payloads that follow each other, but for the rest of a place, are one copy. */
static void start_batch(struct psc *c, uint32_t lane, uint32_t batch)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    const struct psc_lane_progress *p = &ts->progress[lane];
    const struct psc_flight_lane *l = &ts->flights[0].lanes[lane];
    const uint32_t first = l->first + batch * BATCH_CHUNKS;
    size_t from = 0, to = 0;
    for (uint32_t k = first; k < l->end && k < first + BATCH_CHUNKS; k++) {
        if ((p->encoded[k / 64] >> (k % 64) & 1) == 0)
            continue;
        const size_t at = psc_wire_place(ts, lane, k);
        if (at >= to + 16) {
            copy(c, from, to);
            from = at;
        }
        to = at +
             ps_piece_bytes(&ts->wire.message, c->manifest, ps_shard_piece(&ts->shard, lane, ts->cover, k));
    }
    copy(c, from, to);
    c->memory.kind->mark(queue_of(c, PSC_DOWN), ts->wire.marks[lane][batch % MARKS]);
}

int psc_coded_fetch(struct psc *c, uint32_t lane, uint32_t k)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_lane_progress *p = &ts->progress[lane];
    const struct psc_flight_lane *l = &ts->flights[0].lanes[lane];
    const uint32_t batch = (k - l->first) / BATCH_CHUNKS,
                   n_batches = (l->end - l->first + BATCH_CHUNKS - 1) / BATCH_CHUNKS;
    for (; p->fetched <= batch; p->fetched++) {
        while (p->fetching < n_batches && p->fetching < p->fetched + MARKS)
            start_batch(c, lane, p->fetching++);
        if (c->memory.kind->wait(c->memory.device, ts->wire.marks[lane][p->fetched % MARKS], &ts->error) < 0)
            return PSC_EDEVICE;
    }
    return PSC_OK;
}

void psc_coded_feed_back(struct psc *c, const struct psc_transfer *t, uint32_t lane, uint32_t k,
                         struct ps_range r)
{
    const struct psc_coding coding = coding_of(c, t);
    const struct psc_coded piece = coded_piece(c, lane, k, r);
    c->memory.kind->feed_back(queue_of(c, PSC_UP), &coding, &piece, 1);
}
