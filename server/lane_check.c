/* Whether a data message may be served. */
#include "server/lane_inside.h"

#include <inttypes.h>

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
    if (lane->whole && f->client % lane->shared->n_lanes != lane->index) {
        ps_fail(err, 0, "client %u is served by lane %u, not by lane %u", f->client,
                f->client % lane->shared->n_lanes, lane->index);
        return PS__CODE__RANGE;
    }
    return 0;
}

/* What the transfer covers; in how many pieces here, and in how many lanes. */
static uint32_t find_scope(const struct psd_lane *lane, struct psd_arrival *a,
                           const struct psd_request_kind *kind, struct ps_range *scope, struct ps_error *err)
{
    const struct psd_center *center = lane->center;
    const struct ps_frame *f = &a->frame;
    uint32_t first;

    *scope = ps_shard_whole(&center->shard);
    a->n_pieces = kind->moves ? lane->n_moving : lane->n_chunks;
    a->n_lanes = kind->moves ? center->lanes_moving : center->lanes_used;
    if ((f->flags & ~(PS_FLAG_TENSOR | (kind->averages ? PS_FLAG_AVERAGE : 0))) != 0) {
        ps_fail(err, 0, "flags %04x; a request may have %04x (one tensor), a pull also %04x (the average)",
                f->flags, PS_FLAG_TENSOR, PS_FLAG_AVERAGE);
        return PS__CODE__MALFORMED;
    }
    if ((f->flags & PS_FLAG_AVERAGE) != 0 && center->z == NULL) {
        ps_fail(err, 0, "a pull of the average; averaging is %s, so the job has none",
                center->averaging->name);
        return PS__CODE__RANGE;
    }
    if ((f->flags & PS_FLAG_TENSOR) == 0)
        return 0;
    if (kind->moves && center->admission->members) {
        ps_fail(err, 0, "tensor %u alone: admission %s takes exchanges of the whole vector", f->code,
                center->admission->name);
        return PS__CODE__RANGE;
    }
    if (!kind->one_tensor || f->code >= center->manifest->n_tensors) {
        ps_fail(err, 0, "a frame of kind %u for tensor %u alone; the model has %zu tensors", f->kind, f->code,
                center->manifest->n_tensors);
        return PS__CODE__RANGE;
    }
    *scope = ps_tensor_range(&center->manifest->tensors[f->code]);
    a->n_pieces = ps_shard_pieces(&center->shard, lane->row, *scope, &first);
    a->n_lanes = ps_shard_lanes_met(&center->shard, *scope);
    return 0;
}

static uint32_t check_piece(const struct psd_lane *lane, struct psd_arrival *a,
                            const struct psd_request_kind *kind, struct ps_error *err)
{
    const struct psd_center *center = lane->center;
    const struct ps_frame *f = &a->frame;
    struct ps_range r = {f->begin, f->count}, scope;
    uint32_t code = find_scope(lane, a, kind, &scope, err);
    if (code != 0)
        return code;
    int64_t chunk = ps_shard_find(&center->shard, lane->row, scope, r);
    if (chunk < 0) {
        ps_fail(err, 0,
                "floats %" PRIu64 " +%u are not a chunk of lane %u, which holds floats %" PRIu64 " +%" PRIu64
                " in %u chunks%s",
                f->begin, f->count, lane->index, lane->slice.begin, lane->slice.count, lane->n_chunks,
                (f->flags & PS_FLAG_TENSOR) != 0 ? ", within the tensor named" : "");
        return PS__CODE__RANGE;
    }
    if (kind->moves && ps_manifest_is_frozen(center->manifest, r)) {
        ps_fail(err, 0, "floats %" PRIu64 " +%u are frozen: no exchange moves them", f->begin, f->count);
        return PS__CODE__RANGE;
    }
    a->chunk = (uint32_t)chunk;
    return 0;
}

uint32_t psd_lane_check(struct psd_lane *lane, struct psd_arrival *a, const struct psd_request_kind *kind,
                        struct ps_error *err)
{
    const struct ps_frame *f = &a->frame;
    const struct ps_codec *codec = ps_codec_find(f->codec);
    uint32_t code = check_client(lane, f, err);
    if (code != 0)
        return code;
    a->client = &lane->clients[f->client];
    if ((kind->phases & 1u << a->client->phase) == 0) {
        ps_fail(err, 0, "a frame of kind %u is not allowed to client %u %s", f->kind, f->client,
                a->client->phase == PSD_PHASE_OBSERVING  ? "because it is an observer"
                : a->client->phase == PSD_PHASE_OFFERING ? "before its offer is complete"
                                                         : "after the job has begun");
        return kind->code;
    }
    if (f->generation != atomic_load_explicit(&lane->shared->generation, memory_order_relaxed)) {
        ps_fail(err, 0, "generation %u is not the job's", f->generation);
        return PS__CODE__GENERATION;
    }
    if ((code = check_piece(lane, a, kind, err)) != 0)
        return code;
    if (codec == NULL) {
        ps_fail(err, 0, "codec %u is not known; allowed: 0 (raw)", f->codec);
        return PS__CODE__CODEC;
    }
    size_t want = kind->has_payload ? codec->payload_bytes(f->count) : 0;
    if (a->message.body_bytes != want) {
        ps_fail(err, 0, "a body of %zu bytes; %u floats in codec %s take %zu", a->message.body_bytes,
                f->count, codec->name, want);
        return PS__CODE__MALFORMED;
    }
    return 0;
}
