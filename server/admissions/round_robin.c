/* Round-robin (Original EASGD: You, Buluc, Demmel 2017, Algorithm 1): exchanges are applied in order of rank,
 * one of each worker a round, on every chunk.
 *
 * With `serial` an answer waits until its worker's turn has come again, so that one worker at a time computes,
 * as in the baseline of their Table 3. It is the last chunk's that waits: the exchange ends with it, and the
 * others have gone. */
#include "server/lane_rounds.h"

static bool answer_waits(const struct psd_lane *lane, uint32_t chunk)
{
    return lane->center->hyper.serial && chunk == lane->rounds->last;
}

static bool advance(struct psd_lane *lane, uint32_t chunk)
{
    struct psd_rounds *r = lane->rounds;
    const struct psd_members *members = psd_rounds_members(lane, chunk);
    struct psd_staged *s = psd_rounds_find(lane, members->ranks[r->turn[chunk]], chunk);
    if (s == NULL)
        return false;
    struct psd_move move = psd_lane_move_of(lane, &s->arrival.frame);
    float rate = lane->center->rule->rate(&move);
    if (s->moved) { /* its turn has come again */
        psd_rounds_answer(lane, s, rate);
        return true;
    }
    s->flags = psd_rounds_flags(lane, chunk);
    s->moved = psd_lane_move(lane, &s->arrival);
    if (!s->moved)
        psd_rounds_clear(lane, s);
    else if (!answer_waits(lane, chunk))
        psd_rounds_answer(lane, s, rate);
    if (++r->turn[chunk] == members->n)
        psd_rounds_finish(lane, chunk);
    return true;
}

const struct psd_admission psd_admission_round_robin = {
    .name = "round-robin", .rounds = true, .arrive = psd_rounds_arrive, .advance = advance};
