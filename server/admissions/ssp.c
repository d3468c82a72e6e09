/* Stale synchronous parallel (Ho et al. 2013, "More effective distributed ML via a stale synchronous parallel
 * parameter server"): messages are applied as they arrive, each as one update, but no worker runs more than
 * `slack` clocks ahead of the slowest member.
 *
 * Clock. The clock of member i for a chunk, c(i), is the number of its exchanges of which this chunk has
 * arrived here, including staged ones, plus the clock at which it became a member. The number of a message is
 * its sender's clock after its arrival. A message of number n is applied and answered as soon as n <= min c +
 * slack; until then it is staged.
 *
 * Keys. Exchanges of one tensor each count together: a member's clock increases with the last tensor of its
 * round, and for the values of a tensor as soon as its exchange of that tensor has arrived. Tensors go in the
 * manifest's order, so the member's last exchange here says which of them have arrived. Of several servers
 * each counts the rounds of the tensors that it has values of.
 *
 * Bound. min c never decreases: a new member starts no lower than the slowest member in any chunk of any
 * lane. After this chunk was advanced, all numbers up to min(c(j), min c + slack) of member j are applied. So
 * every member has at least min c updates applied and none has more than min c + slack: in a chunk the
 * members' updates never differ by more than slack, and neither do complete exchanges.
 *
 * Answers. A worker computes its message n + 1 with the answer to its message n. That answer is sent after
 * all members have sent n - slack, and after all of these have been applied: lower numbers go first, and
 * nothing is answered before every message that may be applied was applied. This is the condition of Ho et
 * al., whose clock counts from 0. With slack 0 no worker begins exchange n + 1 before every member's exchange
 * n was applied to the chunk: bulk synchronous. Rules that answer with the center before the message show one
 * exchange less.
 *
 * Shares. Workers of a rule with a fixed number of them must all begin at one center. A worker that has not
 * sent its first message may still be reading it, so until all have sent theirs the slack is 0.
 *
 * Abandoned exchanges do not count: the exchange that replaces one has its number.
 *
 * Resume. After a resume all members start at the same clock. The first message of a worker may be the rest
 * of an exchange of which the previous psd has answered some chunks, or whole lanes. Those will not be sent
 * again, so a worker that waited for them would wait forever. The first exchange of each worker in each lane
 * therefore waits for no other, which relaxes the bound by one exchange for a while.
 *
 * No deadlock. Exchanges have the same numbers in all lanes: they count the exchanges that were complete in
 * every lane (shared clocks), plus offsets that the loop published. Assume that every member has an exchange
 * under way; otherwise the others wait for a worker that computes. Take the members with the lowest number n,
 * and in one lane the first chunk that is not answered to all of them. Clients send a lane's chunks in order,
 * so each of these members has sent it. All others have completed exchange n. So no message of number n waits
 * there. */
#include "server/lane/rounds.h"

/* Whether the member's last exchange here was the last of a round at this server: of the whole vector, or of
 * the last key. */
static bool was_last(const struct psd_lane *lane, const struct psd_member_clock *p)
{
    return p->key == PSD_WHOLE_VECTOR || p->key == lane->rounds->last_key_here;
}

/* The exchange begins here. If the one before was not complete, its clock is corrected. */
static void begin(struct psd_lane *lane, const struct ps_frame *f)
{
    struct psd_member_clock *p = &lane->rounds->clocks[f->client];
    uint64_t landed = atomic_load_explicit(&lane->shared->clocks[f->client], memory_order_relaxed);
    if (p->seq == f->seq)
        return;
    lane->rounds->wake |= p->seq == 0 || landed != p->before + was_last(lane, p);
    p->free = p->free && p->seq == 0;
    p->seq = f->seq;
    p->key = psd_key_of(f);
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

/* The client's clock for the values of the tensor in the chunk. The last transfer here need not be an
 * exchange: it may have set values. */
static uint64_t clock_of(const struct psd_lane *lane, uint32_t client, uint32_t chunk, uint32_t tensor)
{
    const struct psd_member_clock *p = &lane->rounds->clocks[client];
    const struct psd_lane_client *c = &lane->clients[client];
    uint64_t landed = atomic_load_explicit(&lane->shared->clocks[client], memory_order_relaxed);
    if (p->seq != c->seq)
        return p->offset + landed + (p->seq != 0 && !was_last(lane, p) && p->key >= tensor);
    if (p->key != PSD_WHOLE_VECTOR && p->key != tensor)
        return p->offset + p->before + (p->key > tensor);
    return p->offset + p->before + (has_landed(c, chunk) || psd_rounds_find(lane, client, chunk) != NULL);
}

/* The tensor that the float belongs to. */
static uint32_t tensor_at(const struct psd_lane *lane, uint64_t at)
{
    const struct ps_manifest *m = lane->center->manifest;
    return (uint32_t)(ps_manifest_tensor(m, at) - m->tensors);
}

static uint64_t slowest_of(const struct psd_lane *lane, const struct psd_members *members, uint32_t chunk,
                           uint32_t tensor)
{
    uint64_t lowest = UINT64_MAX;
    for (uint32_t i = 0; i < members->n; i++) {
        uint64_t clock = clock_of(lane, members->ranks[i], chunk, tensor);
        lowest = clock < lowest ? clock : lowest;
    }
    return lowest;
}

/* The highest number that may be applied to the values of a tensor in the chunk, as last computed. */
struct limit {
    bool known;
    uint32_t tensor;
    uint64_t most;
};

static uint64_t limit_of(const struct psd_lane *lane, const struct psd_members *members, uint32_t chunk,
                         uint32_t tensor, struct limit *l)
{
    if (!l->known || l->tensor != tensor) {
        uint64_t slowest = slowest_of(lane, members, chunk, tensor);
        bool together = lane->center->info->fixed_workers && slowest == 0;
        *l = (struct limit){true, tensor, slowest + (together ? 0 : lane->center->hyper.slack)};
    }
    return l->most;
}

/* The next message to apply: the lowest number, and the lowest rank among equals. */
static struct psd_staged *next_of(const struct psd_lane *lane, const struct psd_members *members,
                                  uint32_t chunk, struct limit *l)
{
    struct psd_staged *next = NULL;
    uint64_t lowest = UINT64_MAX;
    for (uint32_t i = 0; i < members->n; i++) {
        uint32_t client = members->ranks[i];
        struct psd_staged *s = psd_rounds_find(lane, client, chunk);
        if (s == NULL || s->moved)
            continue;
        uint32_t tensor = tensor_at(lane, s->arrival.frame.begin);
        uint64_t number = clock_of(lane, client, chunk, tensor);
        if ((number > limit_of(lane, members, chunk, tensor, l) && !lane->rounds->clocks[client].free) ||
            number >= lowest)
            continue;
        next = s;
        lowest = number;
    }
    return next;
}

/* Answers all applied messages. Workers that adopt the answer get the center after all of these. */
static void answer_all(struct psd_lane *lane, const struct psd_members *members, uint32_t chunk,
                       uint32_t n_moved)
{
    bool adopt = n_moved > 1 && lane->center->info->half == PS_HALF_ADOPT;
    for (uint32_t i = 0; i < members->n && n_moved > 0; i++) {
        struct psd_staged *s = psd_rounds_find(lane, members->ranks[i], chunk);
        if (s == NULL || !s->moved)
            continue;
        if (adopt && s->arrival.frame.kind == PS_FRAME_EXCHANGE)
            psd_rounds_answer_center(lane, s);
        else
            psd_rounds_answer(lane, s);
        n_moved--;
    }
}

static bool advance(struct psd_lane *lane, uint32_t chunk)
{
    const struct psd_members *members = psd_rounds_members(lane, chunk);
    struct limit limit = {.known = false};
    uint32_t n_moved = 0;
    for (struct psd_staged *s; (s = next_of(lane, members, chunk, &limit)) != NULL;) {
        s->flags = 0;
        s->moved = psd_lane_claim(&s->arrival) && psd_lane_move(lane, &s->arrival);
        if (s->moved)
            n_moved++;
        else
            psd_rounds_clear(lane, s);
    }
    answer_all(lane, members, chunk, n_moved);
    return false; /* clocks count arrived messages, so applying one changes no clock */
}

/* The furthest of the chunks' slowest clocks: a new member that starts there is behind no other lane's
 * slowest. */
static uint64_t slowest(const struct psd_lane *lane)
{
    const struct psd_members *members = &lane->rounds->now;
    uint64_t furthest = 0;
    for (uint32_t k = 0; k < lane->n_chunks && members->n > 0; k++) {
        uint64_t begin = ps_shard_chunk(&lane->center->shard, lane->row, k).begin;
        uint64_t clock = slowest_of(lane, members, k, tensor_at(lane, begin));
        furthest = clock > furthest ? clock : furthest;
    }
    return furthest;
}

const struct psd_admission psd_admission_ssp = {
    .name = "ssp", .members = true, .arrive = arrive, .advance = advance, .slowest = slowest};
