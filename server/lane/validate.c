/* Checks whether a data message may be served. */
#include "server/lane/internal.h"

#include <inttypes.h>

#include "proto/codecs/piece.h"

/* Whether the request is for the job's method. While that is about to change, only exchanges that have begun
 * are accepted. */
static bool is_in_time(const struct psd_lane *lane, const struct ps_frame *f,
                       const struct psd_request_kind *kind)
{
    if (lane->center == NULL || f->generation != lane->center->generation)
        return false;
    return !lane->closing || !kind->lands ||
           psd_lane_has_begun(lane->shared, f->client, psd_lane_track_of(lane, f), f->incarnation, f->seq);
}

/* Whether the message came on a connection of the identity that owns the session. */
static bool is_own(const struct psd_arrival *a, const struct psd_lane_client *c, struct ps_error *err)
{
    char sender[160];
    const struct ps_transport *t = a->port->transport;
    const struct ps_pass *pass = t->message_pass != NULL ? t->message_pass(&a->message) : NULL;
    bool attached = pass != NULL && pass->client == a->frame.client && pass->incarnation == c->incarnation;
    if (pass != NULL ? attached : c->identity == 0 || t->message_sender(&a->message) == c->identity)
        return true;
    t->message_describe(&a->message, sender, sizeof sender);
    ps_fail(err, 0, "the session of client %u belongs to another identity than %s", a->frame.client, sender);
    return false;
}

/* Whether the client may send data at all. Returns 0 or the code to refuse it with. */
static uint32_t check_client(const struct psd_lane *lane, const struct psd_arrival *a,
                             const struct psd_request_kind *kind, struct ps_error *err)
{
    const struct ps_frame *f = &a->frame;
    if (f->client >= lane->shared->n_slots || lane->clients[f->client].incarnation == 0) {
        ps_fail(err, 0, "client %u has no session", f->client);
        return PS__CODE__NO_SESSION;
    }
    const struct psd_lane_client *c = &lane->clients[f->client];
    if (c->incarnation != f->incarnation) {
        ps_fail(err, 0, "incarnation %u is stale: client %u is at incarnation %u", f->incarnation, f->client,
                c->incarnation);
        return PS__CODE__STALE;
    }
    if (!is_own(a, c, err))
        return PS__CODE__AUTH;
    if (c->phase == PSD_PHASE_ENDED) {
        ps_fail(err, 0, "the session of client %u has ended", f->client);
        return c->end_code;
    }
    bool of_job = f->generation == atomic_load_explicit(&lane->shared->generation, memory_order_relaxed);
    if (c->phase == PSD_PHASE_NONE || (lane->center == NULL && !lane->closing && of_job)) {
        ps_fail(err, 0, "client %u sent data before psd answered its Begin", f->client);
        return PS__CODE__NOT_BEGUN;
    }
    if (!is_in_time(lane, f, kind)) {
        ps_fail(err, 0, "the method changes: of generation %u only exchanges that have begun are taken",
                f->generation);
        return PS__CODE__GENERATION;
    }
    if (lane->whole && f->client % lane->shared->n_lanes != lane->index) {
        ps_fail(err, 0, "client %u is served by lane %u, not by lane %u", f->client,
                f->client % lane->shared->n_lanes, lane->index);
        return PS__CODE__RANGE;
    }
    return 0;
}

static uint32_t find_fragment(const struct psd_lane *lane, struct psd_arrival *a, struct ps_range *scope,
                              struct ps_error *err)
{
    uint32_t i = a->frame.code;
    if (i >= lane->n_fragments) {
        ps_fail(err, 0, "fragment %u; the method has %u (parameters.fragments; none: 0)", i,
                lane->n_fragments);
        return PS__CODE__RANGE;
    }
    *scope = lane->fragments[i].range;
    a->n_pieces = lane->fragments[i].n_pieces;
    a->n_lanes = lane->fragments[i].n_lanes;
    return 0;
}

static uint32_t check_flags(const struct psd_lane *lane, const struct ps_frame *f,
                            const struct psd_request_kind *kind, struct ps_error *err)
{
    const struct psd_center *center = lane->center;
    uint16_t scopes = f->flags & (PS_FLAG_TENSOR | PS_FLAG_FRAGMENT);
    uint16_t allowed =
        (uint16_t)(PS_FLAG_TENSOR | (kind->averages ? PS_FLAG_AVERAGE : 0) |
                   (kind->by_rule ? PS_FLAG_FRAGMENT : 0) |
                   ((f->flags & PS_FLAG_FRAGMENT) != 0 && lane->n_tracks > 1 ? PS_MOST_BEHIND * PS_FLAG_BEHIND
                                                                             : 0) |
                   (f->kind == PS_FRAME_EXCHANGE ? PS_FLAG_IN_PLACE : 0) |
                   (f->kind == PS_FRAME_EXCHANGE && center->answer_codec.for_moves ? PS_FLAG_BASED : 0));
    if ((f->flags & ~allowed) != 0 || scopes == (PS_FLAG_TENSOR | PS_FLAG_FRAGMENT)) {
        ps_fail(
            err, 0,
            "flags %04x; a request may have %04x (one tensor), a pull also %04x (the average), an exchange "
            "or a push instead %04x (one fragment)",
            f->flags, PS_FLAG_TENSOR, PS_FLAG_AVERAGE, PS_FLAG_FRAGMENT);
        return PS__CODE__MALFORMED;
    }
    uint64_t behind = ps_flags_behind(f->flags);
    if (behind > 0 && (behind > lane->n_tracks || behind >= f->seq)) {
        ps_fail(err, 0,
                "flags %04x: %" PRIu64 " exchanges before number %" PRIu64
                " may be under way; allowed are up to %u, and fewer than the number",
                f->flags, behind, f->seq, lane->n_tracks);
        return PS__CODE__MALFORMED;
    }
    if ((f->flags & PS_FLAG_AVERAGE) != 0 && center->z == NULL) {
        ps_fail(err, 0, "a pull of the average; averaging is %s, so the job has none",
                center->averaging->name);
        return PS__CODE__RANGE;
    }
    return 0;
}

/* Members send exactly the transfers that the method defines: whole vectors or keys, or fragments. */
static uint32_t check_members(const struct psd_lane *lane, const struct ps_frame *f,
                              const struct psd_request_kind *kind, struct ps_error *err)
{
    const struct psd_center *center = lane->center;
    if (!kind->by_rule || !center->admission->members || (f->flags & PS_FLAG_FRAGMENT) != 0)
        return 0;
    if (lane->n_fragments > 0)
        ps_fail(err, 0, "admission %s takes exchanges of a fragment each (parameters.fragments: %u)",
                center->admission->name, lane->n_fragments);
    else if ((f->flags & PS_FLAG_TENSOR) != 0 && center->hyper.serial)
        ps_fail(err, 0, "tensor %u alone: parameters.serial takes exchanges of the whole vector", f->code);
    else if ((f->flags & PS_FLAG_TENSOR) != 0 && !ps_admission_find(center->admission->name)->keys)
        ps_fail(err, 0, "tensor %u alone: admission %s takes exchanges of the whole vector", f->code,
                center->admission->name);
    else
        return 0;
    return PS__CODE__RANGE;
}

/* Whether the round's mean weights messages by their samples. */
static bool weights_samples(const struct psd_center *center)
{
    return center->admission->merges && center->rule->merge == PSD_MERGE_MEAN &&
           center->hyper.merge != PS_MERGE_TRIMMED_MEAN;
}

/* A message of 0 samples would silently have no effect. */
static uint32_t check_samples(const struct psd_lane *lane, const struct ps_frame *f,
                              const struct psd_request_kind *kind, struct ps_error *err)
{
    if (!kind->by_rule || f->samples > 0 || !weights_samples(lane->center))
        return 0;
    ps_fail(err, 0,
            "a message of 0 samples: admission %s weights messages by their samples, so that it would have "
            "no effect; allowed is 1 or more (n_samples)",
            lane->center->admission->name);
    return PS__CODE__RANGE;
}

/* Finds the extent of the transfer: its pieces in this lane, and its number of lanes. */
static uint32_t find_scope(const struct psd_lane *lane, struct psd_arrival *a,
                           const struct psd_request_kind *kind, struct ps_range *scope, struct ps_error *err)
{
    const struct psd_center *center = lane->center;
    const struct ps_frame *f = &a->frame;
    uint32_t first, code;

    *scope = ps_shard_whole(&center->shard);
    a->n_pieces = kind->moves ? lane->n_moving : lane->n_chunks;
    a->n_lanes = kind->moves ? center->own_moving : center->own_used;
    if ((code = check_flags(lane, f, kind, err)) != 0 || (code = check_members(lane, f, kind, err)) != 0 ||
        (code = check_samples(lane, f, kind, err)) != 0)
        return code;
    if ((f->flags & PS_FLAG_FRAGMENT) != 0)
        return find_fragment(lane, a, scope, err);
    if ((f->flags & PS_FLAG_TENSOR) == 0)
        return 0;
    if (!kind->one_tensor || f->code >= center->manifest->n_tensors) {
        ps_fail(err, 0, "a frame of kind %u for tensor %u alone; the model has %zu tensors", f->kind, f->code,
                center->manifest->n_tensors);
        return PS__CODE__RANGE;
    }
    *scope = ps_tensor_range(&center->manifest->tensors[f->code]);
    a->n_pieces = ps_shard_pieces(&center->shard, lane->row, *scope, &first);
    a->n_lanes = ps_shard_lanes_met(&center->shard, ps_range_intersect(*scope, center->own));
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
                (f->flags & PS_FLAG_TENSOR) != 0     ? ", within the tensor named"
                : (f->flags & PS_FLAG_FRAGMENT) != 0 ? ", within the fragment named"
                                                     : "");
        return PS__CODE__RANGE;
    }
    if (kind->moves && ps_manifest_is_frozen(center->manifest, r)) {
        ps_fail(err, 0, "floats %" PRIu64 " +%u are frozen: no exchange moves them", f->begin, f->count);
        return PS__CODE__RANGE;
    }
    a->chunk = (uint32_t)chunk;
    return 0;
}

/* The loop ends the sessions of other ranks, but its commands to the lanes of another server may be late. */
static uint32_t check_rank(const struct psd_lane *lane, const struct ps_frame *f,
                           const struct psd_request_kind *kind, struct ps_error *err)
{
    const struct psd_center *center = lane->center;
    if (!kind->moves || !center->rule->takes_seen || f->client < center->n_seen)
        return 0;
    ps_fail(err, 0, "rank %u: rule %s has a fixed number of %u workers (workers: %u)", f->client,
            center->rule->name, center->n_seen, center->n_seen);
    return PS__CODE__RANK_RANGE;
}

/* In an exchange in place the lane also applies the worker's side. That requires an admission that applies
 * messages as they arrive, and the message to be x itself. */
static uint32_t check_in_place(const struct psd_lane *lane, const struct psd_arrival *a, struct ps_error *err)
{
    const struct psd_center *center = lane->center;
    bool asked = (a->frame.flags & PS_FLAG_IN_PLACE) != 0;
    if (asked != psd_lane_is_in_place(a)) {
        ps_fail(err, 0, "flag %04x states that the body is %sthe worker's own memory, but it is %s",
                a->frame.flags, asked ? "" : "not ", asked ? "not" : "it");
        return PS__CODE__MALFORMED;
    }
    if (!asked || (center->rule->apply_in_place != NULL && !center->admission->merges &&
                   center->message_codec.in_place && center->answer_codec.in_place))
        return 0;
    ps_fail(err, 0,
            "flag %04x: an exchange in place; rule %s, admission %s and codecs %s, %s do not allow it",
            a->frame.flags, center->rule->name, center->admission->name, center->message_codec.name,
            center->answer_codec.name);
    return PS__CODE__KIND;
}

static uint32_t check_body(const struct psd_lane *lane, const struct psd_arrival *a,
                           const struct psd_request_kind *kind, struct ps_error *err)
{
    const struct ps_frame *f = &a->frame;
    const struct psd_center *center = lane->center;
    char text[PS_CODEC_TEXT];
    const struct ps_codec *codec = ps_codec_find(f->codec), *allowed = psd_lane_request_codec(lane, f);
    if (codec == NULL || codec->id != allowed->id) {
        ps_fail(err, 0, "codec %u (%s); allowed in a frame of kind %u is %u (%s%s)", f->codec,
                codec != NULL ? codec->name : "not known", f->kind, allowed->id, allowed->name,
                kind->by_rule ? ", codec.message" : "");
        return PS__CODE__CODEC;
    }
    struct ps_range piece = {f->begin, f->count};
    size_t want = kind->has_payload ? ps_piece_bytes(allowed, center->manifest, piece) : 0;
    const char *wrong = NULL;
    if (a->message.body_bytes != want)
        ps_fail(err, 0, "a body of %zu bytes; %u floats in codec %s take %zu", a->message.body_bytes,
                f->count, ps_codec_text(allowed, text), want);
    else if (want > 0 && (wrong = ps_piece_check(allowed, center->manifest, piece, a->message.body)) != NULL)
        ps_fail(err, 0, "floats %" PRIu64 " +%u in codec %s: %s; nothing of them was taken", f->begin,
                f->count, ps_codec_text(allowed, text), wrong);
    else
        return 0;
    return PS__CODE__MALFORMED;
}

uint32_t psd_lane_check(struct psd_lane *lane, struct psd_arrival *a, const struct psd_request_kind *kind,
                        struct ps_error *err)
{
    const struct ps_frame *f = &a->frame;
    uint32_t code = check_client(lane, a, kind, err);
    if (code != 0)
        return code;
    a->client = &lane->clients[f->client];
    if (!psd_may_send(kind->says, a->client->phase == PSD_PHASE_OBSERVING,
                      a->client->phase == PSD_PHASE_OFFERING ? PSD_STAGE_OFFERING : PSD_STAGE_ACTIVE)) {
        ps_fail(err, 0, "a frame of kind %u is not allowed to client %u %s", f->kind, f->client,
                a->client->phase == PSD_PHASE_OBSERVING  ? "because it is an observer"
                : a->client->phase == PSD_PHASE_OFFERING ? "before its offer is complete"
                                                         : "after the job has begun");
        return kind->code;
    }
    if ((code = check_rank(lane, f, kind, err)) != 0 || (code = check_piece(lane, a, kind, err)) != 0 ||
        (code = check_body(lane, a, kind, err)) != 0)
        return code;
    return check_in_place(lane, a, err);
}
