/* The stage: memory of the host between a device's vectors and the lanes.
 *
 * A message in floats (others: coded.c) is copied to the mirror, where each float has its place in the
 * vector: a block of several chunks at a time in PSC_DOWN, the next block while the lanes work on this one.
 * Chunks are sent from there. The mirror is memory that a server on this machine can map, so that lanes may
 * make an elastic exchange in place; what they leave is copied back to the device as it is.
 *
 * Any other answer is copied to a slot, and from there to a slot of the device in PSC_UP, where it is decoded
 * and psc_landed applies it; one that waits for the others (lands_at_end), to its place in the target. Where
 * a link's memory is pinned (links.c), the device copies it from the message itself, which is held meanwhile.
 * A slot is used again when the device has passed its mark. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/internal.h"
#include "client/transfer/internal.h"
#include "client/worker/worker.h"
#include "proto/codecs/piece.h"

/* Chunks of a block: copies of a few MB cost the bus nothing. */
enum { BLOCK_CHUNKS = 4 };
enum block_state { IS_MISSING, IS_COMING, IS_THERE };

static struct psc_queue *queue_of(const struct psc *c, enum psc_queue_use use)
{
    return c->memory.kind->queue(c->memory.device, use);
}

int psc_device_result(int rc)
{
    return rc == -ENOMEM ? PSC_ENOMEM : rc < 0 ? PSC_EDEVICE : PSC_OK;
}

static int make_mirror(struct psc *c, struct ps_error *err)
{
    struct ps_buffer *b = &c->buffers[PSC_BUFFER_OWN];
    size_t bytes = c->shard.n_floats * sizeof(float);
    if (psc_buffer_make(c, PSC_BUFFER_OWN, bytes, err) < 0)
        return PSC_ENOMEM;
    int rc = c->memory.kind->pin(c->memory.device, b->base, bytes, err);
    if (rc == 0)
        c->transfer_state.stage.mirror = b->base;
    return psc_device_result(rc);
}

static int make_slots(struct psc *c, struct ps_error *err)
{
    const struct psc_memory_kind *kind = c->memory.kind;
    struct psc_stage *s = &c->transfer_state.stage;
    size_t bytes = PSC_STAGE_SLOTS * (size_t)c->shard.chunk_floats * sizeof(float);
    void *slots, *payloads;
    if (ps_buffer_alloc(bytes, &s->slots, err) < 0)
        return PSC_ENOMEM;
    int rc = kind->pin(c->memory.device, s->slots.base, bytes, err);
    s->pinned = rc == 0;
    if (rc == 0 && (rc = kind->alloc(c->memory.device, bytes, &slots, err)) == 0)
        s->device_slots = slots;
    if (rc == 0 && (rc = kind->alloc(c->memory.device, bytes, &payloads, err)) == 0)
        s->payloads = payloads;
    for (uint32_t i = 0; i < PSC_STAGE_SLOTS && rc == 0; i++)
        rc = kind->mark_create(c->memory.device, &s->slot_marks[i], err);
    return psc_device_result(rc);
}

static int make_blocks(struct psc *c, struct ps_error *err)
{
    struct psc_stage *s = &c->transfer_state.stage;
    s->block_floats = BLOCK_CHUNKS * (uint64_t)c->shard.chunk_floats;
    uint64_t n = (c->shard.n_floats + s->block_floats - 1) / s->block_floats;
    s->states = calloc(n, sizeof *s->states);
    s->marks = calloc(n, sizeof(struct psc_mark *));
    if (s->states == NULL || s->marks == NULL)
        return ps_fail(err, PSC_ENOMEM, "no memory for the exchange's tables");
    for (int rc = 0; s->n_blocks < n; s->n_blocks++)
        if ((rc = c->memory.kind->mark_create(c->memory.device, &s->marks[s->n_blocks], err)) < 0)
            return psc_device_result(rc);
    return PSC_OK;
}

int psc_stage_prepare(struct psc *c, struct ps_error *err)
{
    if (c->memory.device == NULL || c->local || c->group.follows) /* those that exchange nothing */
        return PSC_OK;
    int rc = psc_device_result(c->memory.kind->learn(c->memory.device, c->manifest, err));
    if (rc == PSC_OK)
        rc = make_mirror(c, err);
    if (rc == PSC_OK)
        rc = make_slots(c, err);
    return rc == PSC_OK ? make_blocks(c, err) : rc;
}

void psc_stage_finish(struct psc *c)
{
    const struct psc_memory_kind *kind = c->memory.kind;
    struct psc_stage *s = &c->transfer_state.stage;
    for (uint32_t i = 0; i < s->n_blocks; i++)
        kind->mark_destroy(c->memory.device, s->marks[i]);
    for (uint32_t i = 0; i < PS_MAX_LANES; i++)
        for (int k = 0; k < 2; k++)
            if (c->transfer_state.wire.marks[i][k] != NULL)
                kind->mark_destroy(c->memory.device, c->transfer_state.wire.marks[i][k]);
    for (uint32_t i = 0; i < PSC_STAGE_SLOTS; i++)
        if (s->slot_marks[i] != NULL)
            kind->mark_destroy(c->memory.device, s->slot_marks[i]);
    if (s->pinned)
        kind->unpin(c->memory.device, s->slots.base);
    if (s->mirror != NULL)
        kind->unpin(c->memory.device, s->mirror);
    if (s->slots.base != NULL)
        ps_buffer_free(&s->slots);
    free(s->states);
    free(s->marks);
    *s = (struct psc_stage){.mirror = NULL};
}

int psc_stage_renew(struct psc *c, struct ps_buffer *b, struct ps_error *err)
{
    const struct psc_memory_kind *kind = c->memory.kind;
    bool pinned = c->transfer_state.stage.mirror != NULL && c->transfer_state.stage.mirror == b->base;
    struct ps_error why;
    if (pinned)
        kind->unpin(c->memory.device, b->base);
    int rc = ps_buffer_renew(b, err);
    if (pinned && kind->pin(c->memory.device, b->base, b->bytes, &why) < 0) {
        c->transfer_state.stage.mirror = NULL; /* the next message fails */
        *err = why;
        return -EIO;
    }
    return rc;
}

void psc_stage_begin(struct psc *c)
{
    struct psc_stage *s = &c->transfer_state.stage;
    if (s->states == NULL)
        return;
    memset(s->states, IS_MISSING, s->n_blocks * sizeof *s->states);
    c->memory.kind->order(c->memory.device, PSC_UP, PSC_DOWN);
}

const float *psc_stage_message(const struct psc *c, const struct psc_transfer *t, struct ps_range scope,
                               uint64_t at)
{
    const float *mirror = c->transfer_state.stage.mirror;
    if (c->memory.device == NULL)
        return t->send + (at - scope.begin);
    return mirror != NULL ? mirror + at : NULL;
}

static struct ps_range block_at(const struct psc *c, uint64_t k)
{
    const struct psc_stage *s = &c->transfer_state.stage;
    struct ps_range block = {k * s->block_floats, s->block_floats};
    return ps_range_intersect(block, c->transfer_state.scope);
}

static void start_block(struct psc *c, const struct psc_transfer *t, uint64_t k)
{
    struct psc_stage *s = &c->transfer_state.stage;
    struct ps_range block = k < s->n_blocks ? block_at(c, k) : (struct ps_range){0, 0};
    if (block.count == 0 || s->states[k] != IS_MISSING)
        return;
    c->memory.kind->down(queue_of(c, PSC_DOWN), s->mirror + block.begin,
                         t->send + (block.begin - c->transfer_state.scope.begin),
                         block.count * sizeof(float));
    c->memory.kind->mark(queue_of(c, PSC_DOWN), s->marks[k]);
    s->states[k] = IS_COMING;
}

int psc_stage_fetch(struct psc *c, const struct psc_transfer *t, struct ps_range r)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_stage *s = &ts->stage;
    if (c->memory.device == NULL)
        return PSC_OK;
    if (s->mirror == NULL)
        return ps_fail(&ts->error, PSC_EDEVICE, "the memory between the device and the lanes is not pinned");
    uint64_t first = r.begin / s->block_floats, last = (r.begin + r.count - 1) / s->block_floats;
    for (uint64_t k = first; k <= last + 1; k++)
        start_block(c, t, k);
    for (uint64_t k = first; k <= last; k++) {
        if (s->states[k] == IS_THERE)
            continue;
        if (c->memory.kind->wait(c->memory.device, s->marks[k], &ts->error) < 0)
            return PSC_EDEVICE;
        s->states[k] = IS_THERE;
    }
    return PSC_OK;
}

static void drop_answer(struct psc *c, uint32_t slot)
{
    struct psc_stage *s = &c->transfer_state.stage;
    if (!s->holds[slot])
        return;
    s->holds[slot] = false;
    s->n_held[s->lanes[slot]]--;
    c->transfer_state.links.transport->message_drop(&s->answers[slot]);
}

/* Waits until the device has passed the slot. */
static int pass_slot(struct psc *c, uint32_t slot, struct ps_error *err)
{
    struct psc_stage *s = &c->transfer_state.stage;
    if (s->slot_used[slot] && c->memory.kind->wait(c->memory.device, s->slot_marks[slot], err) < 0)
        return PSC_EDEVICE;
    s->slot_used[slot] = false;
    drop_answer(c, slot);
    return PSC_OK;
}

/* *at: where the next slot begins, which is free. Before the first of a round the device has passed all: its
 * copy engine serves one stream as long as that has copies, and the next batch of images waits for a pause.
 */
static int find_slot(struct psc *c, size_t *at)
{
    struct psc_stage *s = &c->transfer_state.stage;
    uint32_t last = s->slot == 0 ? PSC_STAGE_SLOTS - 1 : s->slot;
    *at = (size_t)s->slot * c->shard.chunk_floats;
    int rc = pass_slot(c, last, &c->transfer_state.error);
    return rc == PSC_OK ? pass_slot(c, s->slot, &c->transfer_state.error) : rc;
}

/* Before a message of the lane is held: there is room for it beside the window. The oldest are dropped first,
 * which the device has passed first. */
static int make_room(struct psc *c, uint32_t lane)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    int rc = PSC_OK;
    for (uint32_t i = 1;
         i < PSC_STAGE_SLOTS && rc == PSC_OK && ts->stage.n_held[lane] >= ts->links.transport->spare; i++)
        rc = pass_slot(c, (ts->stage.slot + i) % PSC_STAGE_SLOTS, &ts->error);
    return rc;
}

bool psc_stage_keeps(struct psc *c, uint32_t lane, struct ps_message *m)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_stage *s = &ts->stage;
    uint32_t slot = (s->slot + PSC_STAGE_SLOTS - 1) % PSC_STAGE_SLOTS; /* psc_stage_answered has gone on */
    bool keeps = s->reads_answer;
    s->reads_answer = false;
    if (keeps) {
        ts->links.transport->message_move(&s->answers[slot], m);
        s->lanes[slot] = lane;
        s->holds[slot] = true;
        s->n_held[lane]++;
    }
    return keeps;
}

void psc_stage_let_go(struct psc *c)
{
    struct ps_error err;
    bool works = true;
    for (uint32_t i = 0; i < PSC_STAGE_SLOTS; i++) {
        if (c->transfer_state.stage.holds[i] && works)
            works = pass_slot(c, i, &err) == PSC_OK;
        drop_answer(c, i); /* of a device that has failed, too */
    }
}

/* Where the device finds the answer, if the bytes at `slot` are the host's copy of it. PSC_EDEVICE. */
static int pinned_answer(struct psc *c, uint32_t lane, const struct ps_message *m, void *slot,
                         const void **host)
{
    int rc = PSC_OK;
    *host = slot;
    if (c->transfer_state.links.pinned[lane] == NULL) {
        memcpy(slot, m->body, m->body_bytes);
    } else if ((rc = make_room(c, lane)) == PSC_OK) {
        *host = m->body;
        c->transfer_state.stage.reads_answer = true;
    }
    return rc;
}

int psc_stage_answer(struct psc *c, uint32_t lane, const struct ps_codec *codec, const struct ps_message *m,
                     size_t n, float *place, const float **floats)
{
    struct psc_stage *s = &c->transfer_state.stage;
    size_t at = 0;
    const void *host;
    int rc = find_slot(c, &at);
    if (rc == PSC_OK)
        rc = pinned_answer(c, lane, m, (float *)s->slots.base + at, &host);
    if (rc != PSC_OK)
        return rc;
    float *to = place != NULL ? place : s->device_slots + at;
    unsigned char *payload = s->payloads + at * sizeof *to;
    c->memory.kind->up(queue_of(c, PSC_UP), codec->in_place ? (void *)to : payload, host, m->body_bytes);
    if (!codec->in_place)
        c->memory.kind->decode(queue_of(c, PSC_UP), codec, to, payload, n);
    *floats = to;
    return PSC_OK;
}

int psc_stage_moves(struct psc *c, const struct ps_codec *codec, const void *body, size_t bytes,
                    struct ps_range r, const float **floats)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    size_t at = 0;
    int rc = find_slot(c, &at);
    if (rc != PSC_OK)
        return rc;
    float *host = (float *)ts->stage.slots.base + at;
    unsigned char *payload = ts->stage.payloads + at * sizeof *host;
    const struct psc_coding coding = {.codec = codec, .error = ts->wire.known, .room = payload};
    const struct psc_coded piece = {.range = r, .as_floats = !ps_piece_is_coded(codec, c->manifest, r)};
    memcpy(host, body, bytes);
    const char *wrong =
        ps_piece_check(codec, c->manifest, r, host); /* a peer may have changed the body since */
    if (wrong != NULL)
        return ps_fail(&ts->error, PSC_EUNSUPPORTED, "an answer in codec %s: %s", codec->name, wrong);
    c->memory.kind->up(queue_of(c, PSC_UP), payload, host, bytes);
    c->memory.kind->take(queue_of(c, PSC_UP), &coding, &piece);
    *floats = ts->wire.known + r.begin;
    return PSC_OK;
}

void psc_stage_answered(struct psc *c)
{
    struct psc_stage *s = &c->transfer_state.stage;
    if (c->memory.device == NULL)
        return;
    c->memory.kind->mark(queue_of(c, PSC_UP), s->slot_marks[s->slot]);
    s->slot_used[s->slot] = true;
    s->slot = (s->slot + 1) % PSC_STAGE_SLOTS;
}

void psc_stage_take_back(struct psc *c, const struct psc_transfer *t, struct ps_range r)
{
    const struct psc_transfer_state *ts = &c->transfer_state;
    if (c->memory.device != NULL)
        c->memory.kind->up(queue_of(c, PSC_UP), t->target + (r.begin - ts->scope.begin),
                           ts->stage.mirror + r.begin, r.count * sizeof(float));
}

void psc_work_goes(struct psc *c)
{
    if (c->memory.device == NULL)
        return;
    c->memory.kind->order(c->memory.device, PSC_COMPUTE, PSC_DOWN);
    c->memory.kind->order(c->memory.device, PSC_COMPUTE, PSC_UP);
}

void psc_work_returns(struct psc *c)
{
    if (c->memory.device != NULL)
        c->memory.kind->order(c->memory.device, PSC_UP, PSC_COMPUTE);
}

int psc_work_end(struct psc *c, int rc)
{
    struct ps_error why;
    if (c->memory.device == NULL)
        return rc;
    int ended = c->memory.own_stream ? c->memory.kind->finish(queue_of(c, PSC_COMPUTE), &why)
                                     : c->memory.kind->check(c->memory.device, &why);
    if (ended == 0 || rc < 0)
        return rc;
    c->error = why;
    return PSC_EDEVICE;
}
