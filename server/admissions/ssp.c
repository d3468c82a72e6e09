/* Stale synchronous parallel (Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel
 * parameter server"): messages are applied as they come, each one update, but nobody runs more than `slack`
 * clocks ahead of the slowest member.
 *
 * The clock of member i for a chunk, c(i): its exchanges of which this chunk has come here, staged ones
 * included, counted from where it began to take part. The number of a message is c of its sender once it has
 * come. A message of number n is applied and answered as soon as n <= min c + slack; until then it is staged.
 *
 * The bound. min c never falls: who is new starts no lower than the slowest in any chunk of any lane. Of
 * member j all numbers up to min(c(j), min c + slack) are applied once this chunk was advanced, so that j has
 * at least min c of them and nobody more than min c + slack: updates of members never part by more than slack
 * in a chunk, and so neither do exchanges that are whole.
 *
 * What an answer has seen. The answer to a worker's message n is what it computes its message n + 1 with. It
 * is given when all have sent n - slack, and after all of these have been applied: lower numbers go first,
 * and nothing is answered before all that may be applied has been. That is Ho et al.'s condition (their clock
 * counts from 0). With slack 0 nobody begins exchange n + 1 before every member's exchange n has been applied
 * to the chunk: bulk synchronous. Rules that answer with the center before the message show one exchange
 * less.
 *
 * An exchange that was given up on the way is none: what comes in its place has its number.
 *
 * After a resume all start level. What a worker then sends first may be the rest of an exchange of which the
 * psd before has answered some chunks, or whole lanes, that will not come again: nobody could go on who
 * waited for them with what those chunks wait for. So each one's first exchange in each lane waits for
 * nobody, and by that one the bound is wider for a while.
 *
 * No deadlock. Exchanges are numbered alike in all lanes: by those that were whole in every lane (shared
 * clocks), and by offsets that the loop published. Say that everybody has an exchange under way; else
 * somebody who computes is waited for. Of those with the lowest number n take, in one lane, the first chunk
 * that is not answered to all: clients send a lane's chunks in order, so that it has come from each of these.
 * All others have finished exchange n. So nothing of number n waits there. */
#include "server/lane/rounds.h"

/* The exchange begins here. Where the one before it was not whole, clocks are not what they were. */
static void begin(struct psd_lane *lane, const struct ps_frame *f)
{
    struct psd_pace *p = &lane->rounds->pace[f->client];
    uint64_t landed = atomic_load_explicit(&lane->shared->clocks[f->client], memory_order_relaxed);
    if (p->seq == f->seq)
        return;
    lane->rounds->wake |= p->seq == 0 || landed != p->before + 1;
    p->free = p->free && p->seq == 0;
    p->seq = f->seq;
    p->before = landed;
}

static void arrive(struct psd_lane *lane, struct psd_arrival *a)
{
    begin(lane, &a->frame);
    psd_rounds_arrive(lane, a);
}

static bool has_landed(const struct psd_lane_client *c, uint32_t chunk)
{
    return (c->landed[chunk / 64] >> (chunk % 64) & 1) != 0;
}

/* What came last here need not be an exchange: values may have been set. */
static uint64_t clock_of(const struct psd_lane *lane, uint32_t client, uint32_t chunk)
{
    const struct psd_pace *p = &lane->rounds->pace[client];
    const struct psd_lane_client *c = &lane->clients[client];
    if (p->seq != c->seq)
        return p->offset + atomic_load_explicit(&lane->shared->clocks[client], memory_order_relaxed);
    return p->offset + p->before + (has_landed(c, chunk) || psd_rounds_find(lane, client, chunk) != NULL);
}

static uint64_t slowest_of(const struct psd_lane *lane, const struct psd_members *members, uint32_t chunk)
{
    uint64_t lowest = UINT64_MAX;
    for (uint32_t i = 0; i < members->n; i++) {
        uint64_t clock = clock_of(lane, members->ranks[i], chunk);
        lowest = clock < lowest ? clock : lowest;
    }
    return lowest;
}

/* What may be applied next: the lowest number, of these the lowest rank. */
static struct psd_staged *next_of(const struct psd_lane *lane, const struct psd_members *members,
                                  uint32_t chunk, uint64_t most)
{
    struct psd_staged *next = NULL;
    uint64_t lowest = UINT64_MAX;
    for (uint32_t i = 0; i < members->n; i++) {
        uint32_t client = members->ranks[i];
        struct psd_staged *s = psd_rounds_find(lane, client, chunk);
        uint64_t number = s != NULL ? clock_of(lane, client, chunk) : 0;
        if (s == NULL || s->moved || (number > most && !lane->rounds->pace[client].free) || number >= lowest)
            continue;
        next = s;
        lowest = number;
    }
    return next;
}

/* All that were moved. Where workers adopt the answer, it is the center after all of these. */
static void answer_all(struct psd_lane *lane, const struct psd_members *members, uint32_t chunk,
                       uint32_t n_moved)
{
    bool adopt = n_moved > 1 && lane->center->info->half == PS_HALF_ADOPT;
    for (uint32_t i = 0; i < members->n && n_moved > 0; i++) {
        struct psd_staged *s = psd_rounds_find(lane, members->ranks[i], chunk);
        if (s == NULL || !s->moved)
            continue;
        struct psd_move move = psd_lane_move_of(lane, &s->arrival);
        float rate = lane->center->rule->rate(&move);
        if (adopt && s->arrival.frame.kind == PS_FRAME_EXCHANGE)
            psd_rounds_answer_center(lane, s, rate);
        else
            psd_rounds_answer(lane, s, rate);
        n_moved--;
    }
}

static bool advance(struct psd_lane *lane, uint32_t chunk)
{
    const struct psd_members *members = psd_rounds_members(lane, chunk);
    uint64_t most = slowest_of(lane, members, chunk) + lane->center->hyper.slack;
    uint32_t n_moved = 0;
    for (struct psd_staged *s; (s = next_of(lane, members, chunk, most)) != NULL;) {
        s->flags = 0;
        s->moved = psd_lane_claim(&s->arrival) && psd_lane_move(lane, &s->arrival);
        if (s->moved)
            n_moved++;
        else
            psd_rounds_clear(lane, s);
    }
    answer_all(lane, members, chunk, n_moved);
    return false; /* clocks count what has come, so that this changed none */
}

/* Of the chunk where that is furthest: who starts there is behind nobody's slowest. */
static uint64_t slowest(const struct psd_lane *lane)
{
    const struct psd_members *members = &lane->rounds->now;
    uint64_t furthest = 0;
    for (uint32_t k = 0; k < lane->n_chunks && members->n > 0; k++) {
        uint64_t clock = slowest_of(lane, members, k);
        furthest = clock > furthest ? clock : furthest;
    }
    return furthest;
}

const struct psd_admission psd_admission_ssp = {
    .name = "ssp", .members = true, .arrive = arrive, .advance = advance, .slowest = slowest};
