/* The answers of a merged round: every message of a chunk is answered with the same center, which is encoded
 * once. In a codec for moves an answer depends on what its client has: clients whose last answers had the
 * same bytes, and so have the same, share one. */
#include "server/lane/internal.h"

#include <string.h>

static struct ps_range piece_of(const struct psd_arrival *a)
{
    return (struct ps_range){a->frame.begin, a->frame.count};
}

/* Whether b's answer has the same bytes as a's, which is not filled yet. */
static bool is_alike(const struct psd_lane *lane, const struct psd_arrival *a, const struct psd_arrival *b)
{
    if (b->filled || b->frame.kind != PS_FRAME_EXCHANGE || b->answers_moves != a->answers_moves ||
        b->frame.begin != a->frame.begin || b->frame.count != a->frame.count)
        return false;
    return !a->answers_moves || *psd_lane_base_of(lane, a) == *psd_lane_base_of(lane, b);
}

/* Gives b the body of a, which is also at `payload`, and the same knowledge of its client. False: no memory;
 * nothing was changed. */
static bool share(const struct psd_lane *lane, const struct psd_arrival *a, const void *payload,
                  struct psd_arrival *b)
{
    const struct ps_range r = piece_of(a);
    float **seen = lane->center->seen;
    if (b->message.body_bytes != a->message.body_bytes &&
        b->port->transport->message_body(&b->message, a->message.body_bytes) < 0)
        return false;
    memcpy(b->message.body, payload, a->message.body_bytes);
    if (a->answers_moves) {
        lane->vec->copy(seen[b->frame.client] + r.begin, seen[a->frame.client] + r.begin, r.count);
        *psd_lane_base_of(lane, b) = *psd_lane_base_of(lane, a);
    }
    b->filled = true;
    return true;
}

/* What cannot be encoded here is encoded when it is answered. */
void psd_lane_fill_round(struct psd_lane *lane, struct psd_arrival *const *arrivals, uint32_t n)
{
    bool shares[PSD_MOST_SHARES];
    for (uint32_t i = 0; i < n; i++) {
        struct psd_arrival *a = arrivals[i];
        uint32_t n_shares = 0;
        if (a->filled || a->frame.kind != PS_FRAME_EXCHANGE || psd_lane_answer_codec(lane, a)->in_place ||
            lane->center->rule->takes_seen)
            continue;
        /* before a's answer changes what its client has */
        for (uint32_t k = i + 1; k < n && k - i - 1 < PSD_MOST_SHARES; k++)
            n_shares += shares[k - i - 1] = is_alike(lane, a, arrivals[k]);
        if (n_shares == 0)
            continue;
        float *floats = psd_lane_room_of(lane, a);
        a->filled = psd_lane_fill_body(lane, a, floats) == 0;
        const void *payload = psd_lane_payload_of(lane, a, floats);
        for (uint32_t k = i + 1; a->filled && k < n && k - i - 1 < PSD_MOST_SHARES; k++)
            if (shares[k - i - 1])
                share(lane, a, payload, arrivals[k]);
    }
}
