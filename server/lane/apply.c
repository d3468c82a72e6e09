/* Applies messages to the center, and tracks which transfers have landed. */
#include "server/lane/rounds.h"

#include <inttypes.h>

/* Whether the counter belongs to a later exchange, or to one of a later session, which has begun then. */
static bool is_later(const struct psd_shared *shared, size_t at, uint64_t counted, uint32_t incarnation,
                     uint64_t name)
{
    if (psd_exchange_is_of(counted, incarnation & 0xffffff))
        return psd_exchange_is_later(counted, name);
    return atomic_load_explicit(&shared->begun[at], memory_order_relaxed) >> 32 > incarnation;
}

/* The counter contains the exchange's name, of whose incarnation it has the low bits, so that an exchange
 * that was abandoned, or interrupted by a restart, does not count towards the next one. A lane that restores
 * late does not reset the count of a newer exchange. */
bool psd_lane_whole(struct psd_lane *lane, uint32_t client, uint32_t track, uint32_t incarnation,
                    uint64_t seq, uint32_t n_lanes)
{
    size_t at = psd_track_at(lane->shared, client, track);
    _Atomic uint64_t *done = &lane->shared->lanes_done[at];
    uint64_t name = psd_exchange_name(incarnation & 0xffffff, seq);
    uint64_t was = atomic_load_explicit(done, memory_order_acquire), now;
    do {
        if (is_later(lane->shared, at, was >> 8, incarnation, name))
            return false;
        now = was >> 8 == name ? was + 1 : name << 8 | 1;
    } while (
        !atomic_compare_exchange_weak_explicit(done, &was, now, memory_order_acq_rel, memory_order_acquire));
    return (now & 0xff) == n_lanes;
}

void psd_lane_remember_whole(struct psd_lane *lane, uint32_t client, uint32_t track, uint32_t incarnation,
                             uint64_t seq)
{
    psd_exchange_remember(&lane->shared->whole[psd_track_at(lane->shared, client, track)],
                          psd_exchange_name(incarnation, seq));
}

void psd_lane_begin(struct psd_lane *lane, uint32_t client, uint32_t track, uint32_t incarnation,
                    uint64_t seq, uint32_t parts)
{
    uint64_t name = psd_exchange_name(incarnation, seq);
    bool later = psd_exchange_remember(&lane->shared->begun[psd_track_at(lane->shared, client, track)], name);
    if (later && lane->center->shard.n_parts > 1)
        atomic_store_explicit(&lane->shared->parts[client], name << 32 | parts, memory_order_release);
}

/* The servers that the transfer goes to, as bits. */
static uint32_t parts_of(const struct psd_lane *lane, const struct ps_frame *f)
{
    const struct psd_center *c = lane->center;
    if (c->shard.n_parts <= 1)
        return 1;
    if ((f->flags & PS_FLAG_FRAGMENT) != 0)
        return lane->fragments[f->code].parts;
    if ((f->flags & PS_FLAG_TENSOR) == 0)
        return f->kind == PS_FRAME_SET ? c->parts_used : c->parts_moving;
    uint32_t parts = 0;
    struct ps_range tensor = ps_tensor_range(&c->manifest->tensors[f->code]);
    for (uint32_t i = 0; i < c->shard.n_parts; i++)
        parts |= ps_range_intersect(tensor, ps_shard_part(&c->shard, i)).count > 0 ? 1u << i : 0;
    return parts;
}

/* Tells the loop, which waits for exchanges that have begun. */
static void report_complete(struct psd_lane *lane, const struct ps_frame *f, bool never)
{
    if (lane->closing)
        psd_queue_push(lane->out, &(struct psd_lane_message){.kind = PSD_LANE_WHOLE,
                                                             .client = f->client,
                                                             .incarnation = f->incarnation,
                                                             .a = psd_exchange_name(f->incarnation, f->seq),
                                                             .b = never});
}

/* Publishes the norms of the exchange for the loop. */
static void publish_norms(struct psd_lane *lane, struct psd_lane_client *c, const struct psd_arrival *a)
{
    atomic_store_explicit(&c->last_squares, c->norms.squares, memory_order_relaxed);
    atomic_store_explicit(&lane->stats.center_squares, c->norms.center_squares, memory_order_relaxed);
    atomic_store_explicit(&c->last_rate, a->rate, memory_order_relaxed);
}

/* With members, keys of one round count as one exchange. */
static bool ends_round(const struct psd_lane *lane, const struct ps_frame *f)
{
    return lane->rounds == NULL || psd_key_of(f) == PSD_WHOLE_VECTOR ||
           f->code == lane->rounds->last_key_here;
}

void psd_lane_open_norms(const struct psd_lane *lane, struct psd_arrival *a)
{
    const struct psd_lane_track *t = &a->client->tracks[psd_lane_track_of(lane, &a->frame)];
    if (t->n_landed == 0 && !psd_lane_cycle_goes_on(lane, &a->frame))
        a->client->norms = (struct psd_norms){0, 0};
}

void psd_lane_land(struct psd_lane *lane, struct psd_arrival *a)
{
    struct psd_lane_client *c = a->client;
    const struct ps_frame *f = &a->frame;
    uint32_t track = psd_lane_track_of(lane, f);
    bool merged = lane->center->admission->merges && f->kind != PS_FRAME_SET;
    bool by_rule = f->kind == PS_FRAME_EXCHANGE || f->kind == PS_FRAME_PUSH;
    c->landed[a->chunk / 64] |= UINT64_C(1) << (a->chunk % 64);
    a->version = atomic_load_explicit(&lane->shared->version, memory_order_relaxed);
    psd_lane_begin(lane, f->client, track, f->incarnation, f->seq, parts_of(lane, f));
    psd_count(&lane->stats.chunks, 1);
    if (++c->tracks[track].n_landed != a->n_pieces)
        return;
    psd_count(&lane->stats.clock, !merged);
    if (by_rule && (f->flags & PS_FLAG_TENSOR) == 0 && psd_lane_cycle_ends(lane, f))
        publish_norms(lane, c, a);
    if (psd_lane_whole(lane, f->client, track, f->incarnation, f->seq, a->n_lanes)) {
        a->version =
            atomic_fetch_add_explicit(&lane->shared->version, !merged, memory_order_relaxed) + !merged;
        atomic_fetch_add_explicit(&lane->shared->exchanges[f->client], 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&lane->shared->clocks[f->client], by_rule && ends_round(lane, f),
                                  memory_order_relaxed);
        psd_lane_remember_whole(lane, f->client, track, f->incarnation, f->seq);
        report_complete(lane, f, false);
    }
}

float psd_lane_kappa(const struct psd_move *move, double rate)
{
    double sum = 0;
    for (uint32_t i = 0; i < move->n_moves; i++) {
        double pull = rate * (move->pulls != NULL ? move->pulls[i] : move->pull);
        sum += (pull - 1) / (pull + 1);
    }
    return (float)(sum / move->n_moves);
}

struct psd_move psd_lane_move_of(const struct psd_lane *lane, const struct psd_arrival *a)
{
    const struct ps_hyper *h = &lane->center->hyper;
    double eta = a->client->weight * ps_schedule_rate(&h->schedule, h->learning_rate, a->frame.clock);
    double pull = eta * h->rho;
    uint64_t t = psd_lane_moves_before(lane, a);
    float follow = lane->center->z != NULL ? (float)lane->center->averaging->rate(h->averaging_rate, t) : 0;
    return (struct psd_move){.vec = lane->vec,
                             .rule = a->frame.kind == PS_FRAME_ADD ? &psd_rule_add : lane->center->rule,
                             .is_delta = a->frame.kind == PS_FRAME_ADD,
                             .alpha = atomic_load_explicit(&lane->shared->alpha, memory_order_relaxed),
                             .eta = (float)eta,
                             .momentum = (float)h->momentum,
                             .beta2 = (float)h->beta2,
                             .epsilon = (float)h->epsilon,
                             .outer_eta = (float)h->outer_learning_rate,
                             .outer_momentum = (float)h->outer_momentum,
                             .compensation = (float)h->compensation,
                             .delay = h->delay,
                             .share = h->workers > 0 ? 1.0f / (float)h->workers : 1,
                             .kappa = (float)((pull - 1) / (pull + 1)),
                             .pull = pull,
                             .n_moves = 1,
                             .t = t,
                             .follow = follow};
}

/* Called before the center moves. */
void psd_lane_average(const struct psd_lane *lane, const struct psd_move *move, const struct psd_role_run *r)
{
    if (r->z != NULL)
        lane->vec->follow(r->z, r->center, move->follow, r->n);
}

void psd_lane_skip(const struct psd_lane *lane, struct psd_role_run *r, size_t n)
{
    r->at += n;
    r->center += n;
    r->m += n;
    r->z = r->z != NULL ? r->z + n : NULL;
    for (uint32_t i = 0; i < lane->center->rule->n_state + lane->center->rule->takes_seen; i++)
        r->state[i] += n;
    r->n -= n;
}

/* The move with the tensor's own learning rate. */
static struct psd_move at_rate(const struct psd_move *move, uint32_t rate_ppm)
{
    struct psd_move own = *move;
    double rate = ps_rate_of(rate_ppm);
    if (rate_ppm == 0)
        return own;
    own.eta = (float)((double)move->eta * rate);
    own.kappa = psd_lane_kappa(move, rate);
    return own;
}

/* Applies the rule block by block, so that measured values are still in the L1 cache when they are moved: one
 * pass over memory. */
static size_t move_params(struct psd_lane *lane, struct psd_norms *norms, const struct psd_move *move,
                          struct psd_role_run r)
{
    enum { BLOCK = 4096 };
    bool takes_x = lane->center->info->message == PS_MESSAGE_X && !move->is_delta;
    const struct psd_move own = at_rate(move, r.rate_ppm);
    size_t n_bad = 0;
    while (r.n > 0) {
        struct psd_role_run block = r;
        block.n = r.n < BLOCK ? r.n : BLOCK;
        norms->squares +=
            takes_x ? lane->vec->squared_distance(r.m, r.center, block.n) : lane->vec->squares(r.m, block.n);
        norms->center_squares += lane->vec->squares(r.center, block.n);
        psd_lane_average(lane, move, &block);
        n_bad += own.rule->apply(&own, r.center, r.state, r.m, block.n);
        psd_lane_skip(lane, &r, block.n);
    }
    return n_bad;
}

/* Buffers follow the workers: by the rule's rate where the worker keeps part of its own x, else as a running
 * mean. */
static size_t move_buffers(struct psd_lane *lane, struct psd_norms *norms, const struct psd_move *move,
                           struct psd_role_run r)
{
    (void)norms;
    psd_lane_average(lane, move, &r);
    if (lane->center->info->half == PS_HALF_ELASTIC && !move->is_delta)
        return lane->vec->exchange_elastic(r.center, r.m, move->alpha, r.n);
    float rate = lane->center->admission->merges && !move->is_delta /* m is the workers' mean */
                     ? 1
                     : atomic_load_explicit(&lane->shared->mean_rate, memory_order_relaxed);
    return lane->vec->exchange_mean(r.center, r.m, rate, r.n);
}

static size_t keep_frozen(struct psd_lane *lane, struct psd_norms *norms, const struct psd_move *move,
                          struct psd_role_run r)
{
    (void)norms;
    (void)move;
    lane->vec->copy(r.m, r.center, r.n);
    return 0;
}

size_t psd_lane_move_run(struct psd_lane *lane, struct psd_norms *norms, const struct psd_move *move,
                         struct psd_role_run r)
{
    static size_t (*const movers[])(struct psd_lane * lane, struct psd_norms * norms,
                                    const struct psd_move *move, struct psd_role_run r) = {
        [PS_ROLE_PARAM] = move_params,
        [PS_ROLE_BUFFER] = move_buffers,
        [PS_ROLE_FROZEN] = keep_frozen,
    };
    return movers[r.role](lane, norms, move, r);
}

static struct psd_role_run run_of(const struct psd_lane *lane, const struct ps_segment *s,
                                  struct ps_range piece, float *m)
{
    const struct psd_center *center = lane->center;
    struct ps_range part = ps_range_intersect(s->range, piece);
    struct psd_role_run r = {.role = (uint8_t)s->role,
                             .rate_ppm = s->rate_ppm,
                             .at = part.begin,
                             .center = center->x + part.begin,
                             .m = m,
                             .n = part.count};
    for (uint32_t i = 0; i < center->rule->n_state; i++)
        r.state[i] = center->state[i] + part.begin;
    r.z = center->z != NULL ? center->z + part.begin : NULL;
    return r;
}

struct psd_role_run psd_lane_first_run(const struct psd_lane *lane, struct ps_range piece, float *m)
{
    return run_of(lane, ps_manifest_segment(lane->center->manifest, piece.begin), piece, m);
}

struct psd_role_run psd_lane_next_run(const struct psd_lane *lane, struct ps_range piece,
                                      struct psd_role_run r)
{
    uint64_t at = r.at + r.n;
    if (at == piece.begin + piece.count)
        return (struct psd_role_run){.n = 0};
    return run_of(lane, ps_manifest_segment(lane->center->manifest, at), piece, r.m + r.n);
}

/* The same for an exchange in place: r.m is the worker's own x, in memory that both processes map. Applies
 * both sides of the exchange, the worker's as client/rules/elastic.c does. */
static size_t move_in_place(struct psd_lane *lane, struct psd_norms *norms, const struct psd_move *move,
                            struct psd_role_run r)
{
    enum { BLOCK = 4096 };
    size_t n_bad = 0;
    while (r.n > 0 && r.role != PS_ROLE_FROZEN) {
        struct psd_role_run block = r;
        block.n = r.n < BLOCK ? r.n : BLOCK;
        if (r.role == PS_ROLE_PARAM) {
            norms->squares += lane->vec->squared_distance(r.m, r.center, block.n);
            norms->center_squares += lane->vec->squares(r.center, block.n);
        }
        psd_lane_average(lane, move, &block);
        n_bad += move->rule->apply_in_place(move, r.center, r.m, block.n);
        psd_lane_skip(lane, &r, block.n);
    }
    return n_bad;
}

/* Other chunks of the exchange may have landed, but it will never complete: nothing waits for it any more. */
static void abandon(struct psd_lane *lane, const struct ps_frame *f)
{
    psd_lane_remember_whole(lane, f->client, psd_lane_track_of(lane, f), f->incarnation, f->seq);
    report_complete(lane, f, true);
}

/* For an exchange in place the lane checks for non-finite values, in the pass that applies it, instead of the
 * library. The worker's session goes on. */
static void refuse_in_place(struct psd_lane *lane, struct psd_arrival *a, size_t n_bad)
{
    psd_lane_refuse(lane, a, PS__CODE__VALUE,
                    "%zu values of floats %" PRIu64 " +%u are not finite: none of them was exchanged", n_bad,
                    a->frame.begin, a->frame.count);
    abandon(lane, &a->frame);
}

bool psd_lane_claim(struct psd_arrival *a)
{
    if (!psd_lane_is_in_place(a) || a->port->transport->message_begin(&a->message))
        return true;
    a->port->transport->message_drop(&a->message);
    return false;
}

bool psd_lane_move(struct psd_lane *lane, struct psd_arrival *a)
{
    struct psd_move move = psd_lane_move_of(lane, a);
    struct ps_range piece = {a->frame.begin, a->frame.count};
    uint64_t at = 0; /* index near the first refused value */
    size_t n_bad = 0;

    psd_lane_before_move(lane, a->chunk);
    psd_lane_open_norms(lane, a);
    for (struct psd_role_run r = psd_lane_first_run(lane, piece, psd_lane_floats_of(lane, a)); r.n > 0;
         r = psd_lane_next_run(lane, piece, r)) {
        if (lane->center->rule->takes_seen)
            r.state[lane->center->rule->n_state] = lane->center->seen[a->frame.client] + r.at;
        size_t more =
            (psd_lane_is_in_place(a) ? move_in_place : psd_lane_move_run)(lane, &a->client->norms, &move, r);
        if (n_bad == 0 && more > 0)
            at = r.at;
        n_bad += more;
    }
    if (n_bad > 0 && psd_lane_is_in_place(a))
        refuse_in_place(lane, a, n_bad);
    else if (n_bad > 0)
        psd_lane_refuse_values(lane, a, n_bad, at);
    if (n_bad > 0)
        return false;
    if (a->frame.kind != PS_FRAME_PUSH)
        psd_lane_see(lane, a->frame.client, piece, psd_lane_center_of(lane, a));
    if (!move.is_delta)
        psd_lane_moves_count(lane, a);
    a->rate = move.rule->rate(&move);
    psd_lane_land(lane, a);
    return true;
}

void psd_lane_answer_moved(struct psd_lane *lane, struct psd_arrival *a, uint16_t flags)
{
    if (a->frame.kind != PS_FRAME_PUSH)
        psd_lane_answer_floats(lane, a, psd_lane_room_of(lane, a), a->rate, flags);
    else
        psd_lane_answer_nothing(lane, a, a->rate, flags);
}

void psd_lane_apply(struct psd_lane *lane, struct psd_arrival *a)
{
    if (psd_lane_claim(a) && psd_lane_move(lane, a))
        psd_lane_answer_moved(lane, a, 0);
}
