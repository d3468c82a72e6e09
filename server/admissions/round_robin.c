/* Round-robin (Original EASGD: You, Buluc, Demmel 2017, Algorithm 1): exchanges are applied in order of rank,
 * one of each worker a round, on every chunk.
 *
 * With `serial` an answer is held back until its worker's next turn, so that one worker at a time computes,
 * as in the baseline of their Table 3. Only the answer to the last chunk is held back, since it ends the
 * exchange. */
#include "server/lane/rounds.h"

static bool answer_waits(const struct psd_lane *lane, uint32_t chunk)
{
    return lane->center->hyper.serial && !lane->closing && chunk == lane->rounds->last;
}

/* In a job's first round nothing moves until all messages have arrived. A worker that has not sent its first
 * message may still be reading the center, and all must start from the same one. */
static bool may_move(const struct psd_lane *lane, const struct psd_members *members, uint32_t chunk)
{
    bool first = lane->rounds->done[chunk] == lane->rounds->begin && lane->rounds->turn[chunk] == 0;
    for (uint32_t i = 0; i < members->n && first; i++)
        if (psd_rounds_find(lane, members->ranks[i], chunk) == NULL)
            return false;
    return true;
}

static bool advance(struct psd_lane *lane, uint32_t chunk)
{
    struct psd_rounds *r = lane->rounds;
    const struct psd_members *members = psd_rounds_members(lane, chunk);
    if (r->turn[chunk] == members->n) { /* also when the last member has left */
        psd_rounds_pass(lane, chunk, r->keys[chunk].end);
        return true;
    }
    uint32_t client = members->ranks[r->turn[chunk]];
    struct psd_staged *s = psd_rounds_find(lane, client, chunk);
    if (s == NULL || !may_move(lane, members, chunk))
        return false;
    if (s->moved) { /* its next turn has come */
        psd_rounds_answer(lane, s);
        return true;
    }
    if (psd_rounds_due(lane, client, chunk) == NULL)
        return false; /* it was refused */
    if (!psd_lane_claim(&s->arrival)) {
        psd_rounds_clear(lane, s);
        return false; /* its turn comes when the message is sent again */
    }
    s->flags = psd_rounds_flags(lane, &s->arrival);
    s->moved = psd_lane_move(lane, &s->arrival);
    if (!s->moved)
        psd_rounds_clear(lane, s);
    else if (!answer_waits(lane, chunk))
        psd_rounds_answer(lane, s);
    r->turn[chunk]++;
    return true;
}

const struct psd_admission psd_admission_round_robin = {
    .name = "round-robin", .members = true, .rounds = true, .arrive = psd_rounds_arrive, .advance = advance};
