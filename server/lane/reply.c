/* A lane's answers. */
#include "server/lane/partial_rounds.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/log.h"

/* Logs one line for each refusal, at most a few a second; /metrics counts all of them. */
static void log_refusal(struct psd_lane *lane, const struct ps_frame *f, uint32_t code, const char *sentence)
{
    char where[24];
    snprintf(where, sizeof where, "lane %u", lane->index);
    enum ps_log_level level =
        code == PS__CODE__GENERATION ? PS_LOG_DEBUG : PS_LOG_WARN; /* expected during a method change */
    if (ps_log_writes(level) && ps_log_allows(&lane->log_limit, "data.refused", where))
        ps_log(level, "data.refused", "lane %u, client %u incarnation %u seq %" PRIu64 ": %s (%s)",
               lane->index, f->client, f->incarnation, f->seq, sentence,
               protobuf_c_enum_descriptor_get_value(&ps__code__descriptor, (int)code)->name);
}

/* Answers with a typed error. */
void psd_lane_refuse(struct psd_lane *lane, struct psd_arrival *a, uint32_t code, const char *fmt, ...)
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
    f.codec = 0;
    f.code = (uint16_t)code;
    f.rate = 0;
    if (a->port->transport->message_body(&a->message, strlen(sentence)) < 0) {
        a->port->transport->message_drop(&a->message);
        return;
    }
    memcpy(a->message.body, sentence, strlen(sentence));
    ps_frame_pack(&f, a->message.head);
    a->port->transport->port_reply(a->port->port, &a->message);
}

/* Ends the client's session here and tells the loop, which ends it everywhere. Messages that were staged
 * before may fail, too. */
static void fault(struct psd_lane *lane, const struct ps_frame *f, uint32_t code, uint64_t at)
{
    struct psd_lane_client *c = &lane->clients[f->client];
    if (c->phase == PSD_PHASE_ENDED)
        return;
    c->phase = PSD_PHASE_ENDED;
    c->end_code = code;
    psd_queue_push(
        lane->out,
        &(struct psd_lane_message){
            .kind = PSD_LANE_FAULT, .client = f->client, .incarnation = c->incarnation, .a = code, .b = at});
}

/* In aggregated rounds the chunk's own count, so that every lane gives a round the same version. */
static uint64_t version_of(const struct psd_lane *lane, const struct psd_arrival *a)
{
    if (lane->rounds != NULL && lane->center->admission->merges)
        return lane->rounds->done[a->chunk];
    return lane->rounds == NULL && a->version != UINT64_MAX
               ? a->version
               : atomic_load_explicit(&lane->shared->version, memory_order_relaxed);
}

/* Counts the payload, also of a vector that is updated in place. */
static void count_sent(struct psd_lane *lane, const struct psd_arrival *a)
{
    bool in_place = (a->frame.flags & PS_FLAG_IN_PLACE) != 0;
    uint64_t bytes = in_place ? a->frame.count * sizeof(float) : a->message.body_bytes;
    psd_count(&lane->stats.bytes_out[a->port - lane->ports], bytes);
    psd_count(&a->client->bytes_out, bytes);
}

/* Turns the request, whose body is already the answer or empty, into its answer. */
static void answer_body(struct psd_lane *lane, struct psd_arrival *a, float rate, uint16_t flags)
{
    struct ps_frame f = a->frame;
    f.kind = PS_FRAME_ANSWER;
    f.codec = a->message.body_bytes > 0 ? psd_lane_answer_codec(lane, a)->id : 0;
    f.flags = flags | (a->frame.flags & PS_FLAG_IN_PLACE);
    f.rate = rate;
    f.center_version = version_of(lane, a);
    a->client->others_seen = psd_lane_others(lane, f.client);
    psd_lane_partial_saw(lane, a, f.center_version);
    ps_frame_pack(&f, a->message.head);
    count_sent(lane, a);
    int rc = a->port->transport->port_reply(a->port->port, &a->message);
    if (rc == -EAGAIN) {
        psd_count(&lane->stats.rejected[PS__CODE__EVICTED], 1);
        log_refusal(lane, &a->frame, PS__CODE__EVICTED, "does not read its answers; its session ends");
        fault(lane, &a->frame, PS__CODE__EVICTED, 0);
    }
}

void psd_lane_see(const struct psd_lane *lane, uint32_t client, struct ps_range at, const float *values)
{
    const struct psd_center *c = lane->center;
    if (c->rule->takes_seen && client < c->n_seen)
        lane->vec->copy(c->seen[client] + at.begin, values, at.count);
}

static struct ps_range range_of(const struct psd_arrival *a)
{
    return (struct ps_range){a->frame.begin, a->frame.count};
}

static void refuse_memory(struct psd_lane *lane, struct psd_arrival *a)
{
    psd_lane_refuse(lane, a, PS__CODE__LIMIT, "no memory for an answer of %u floats", a->frame.count);
}

void psd_lane_answer_floats(struct psd_lane *lane, struct psd_arrival *a, float *floats, float rate,
                            uint16_t flags)
{
    if (psd_lane_is_in_place(a))
        psd_lane_answer_nothing(lane, a, rate, flags);
    else if (a->filled)
        answer_body(lane, a, rate, flags);
    else if (psd_lane_fill_body(lane, a, floats) < 0)
        refuse_memory(lane, a);
    else
        answer_body(lane, a, rate, flags);
}

void psd_lane_answer_vector(struct psd_lane *lane, struct psd_arrival *a, const float *vector, float rate,
                            uint16_t flags)
{
    if (psd_lane_is_in_place(a)) { /* the client's x, which was updated, or will be pulled */
        psd_lane_answer_nothing(lane, a, rate, flags);
        return;
    }
    float *room = psd_lane_answer_room(lane, a);
    if (room == NULL) {
        refuse_memory(lane, a);
        return;
    }
    if (vector == lane->center->x)
        psd_lane_see(lane, a->frame.client, range_of(a), vector + a->frame.begin);
    lane->vec->copy(room, vector + a->frame.begin, a->frame.count);
    psd_lane_answer_floats(lane, a, room, rate, flags);
}

void psd_lane_answer_center(struct psd_lane *lane, struct psd_arrival *a, float rate, uint16_t flags)
{
    psd_lane_answer_vector(lane, a, lane->center->x, rate, flags);
}

void psd_lane_answer_nothing(struct psd_lane *lane, struct psd_arrival *a, float rate, uint16_t flags)
{
    if (a->port->transport->message_body(&a->message, 0) < 0)
        a->port->transport->message_drop(&a->message);
    else
        answer_body(lane, a, rate, flags);
}

void psd_lane_refuse_values(struct psd_lane *lane, struct psd_arrival *a, size_t n_bad, uint64_t at)
{
    uint64_t begin = a->frame.begin, end = begin + a->frame.count;
    fault(lane, &a->frame, PS__CODE__VALUE, at);
    psd_lane_refuse(lane, a, PS__CODE__VALUE,
                    "%zu values of floats %" PRIu64 " to %" PRIu64
                    " are not finite or made the center so: none of them was stored; your session ends",
                    n_bad, begin, end - 1);
}
