/* Sync: a round has one message of every member, and is one update (sync EASGD: You, Buluc, Demmel 2017, eq.
 * 2; sync SGD: the mean of the gradients, weighted by samples). Messages are added in a fixed tree over
 * ranks, whatever order they came in, so that the same messages give the same center, bit for bit. */
#include "proto/log.h"
#include "server/lane_rounds.h"

#include <inttypes.h>
#include <stdio.h>

enum { BLOCK = 4096 };

/* A round of one chunk: member i's message, in place, becomes its answer. */
struct party {
    struct psd_lane *lane;
    struct psd_arrival **arrivals; /* [n], by rank */
    float **m;                     /* [n]: their floats from the block's first on */
    uint32_t n;
    struct psd_move move;
};

/* Whether all have come; then they are in rounds->party. */
static bool gather(struct psd_lane *lane, const struct psd_members *members, uint32_t chunk)
{
    for (uint32_t i = 0; i < members->n; i++) {
        struct psd_staged *s = psd_rounds_find(lane, members->ranks[i], chunk);
        if (s == NULL)
            return false;
        lane->rounds->party[i] = &s->arrival;
    }
    return true;
}

/* m[0] <- the sum, m[i] += m[i + stride] for strides 1, 2, 4, ...; the others are spent. */
static void add_up(const struct party *p, size_t n)
{
    for (uint32_t stride = 1; stride < p->n; stride *= 2)
        for (uint32_t i = 0; i + stride < p->n; i += 2 * stride)
            p->move.vec->axpy(p->m[i], p->m[i + stride], 1, n);
}

static void average(const struct party *p, size_t n)
{
    uint64_t samples = 0;
    bool alike = true;
    for (uint32_t i = 0; i < p->n; i++) {
        samples += p->arrivals[i]->frame.samples;
        alike = alike && p->arrivals[i]->frame.samples == p->arrivals[0]->frame.samples;
    }
    for (uint32_t i = 0; i < p->n && !alike; i++)
        p->move.vec->scale(p->m[i], (float)((double)p->arrivals[i]->frame.samples / (double)samples), n);
    add_up(p, n);
    if (alike && p->n > 1)
        p->move.vec->scale(p->m[0], 1.0f / (float)p->n, n);
}

static void measure(const struct party *p, const float *center, size_t n)
{
    bool takes_x = p->lane->center->info->message == PS_MESSAGE_X;
    for (uint32_t i = 0; i < p->n; i++)
        p->arrivals[i]->client->norms.squares +=
            takes_x ? p->move.vec->squared_distance(p->m[i], center, n) : p->move.vec->squares(p->m[i], n);
}

static void spread(const struct party *p, size_t n)
{
    for (uint32_t i = 1; i < p->n; i++)
        p->move.vec->copy(p->m[i], p->m[0], n);
}

/* All against the same center, which each is answered with. */
static size_t move_offsets(const struct party *p, float *center, float *scratch, size_t n)
{
    const struct ps_vec *vec = p->move.vec;
    for (uint32_t i = 0; i < p->n; i++)
        vec->axpy(p->m[i], center, -1, n);
    add_up(p, n);
    vec->copy(scratch, p->m[0], n);
    vec->copy(p->m[0], center, n);
    spread(p, n);
    return p->lane->center->rule->apply_offsets(&p->move, center, scratch, n);
}

/* One block of values of one role: norms of the merged message are nobody's. */
static size_t move_block(const struct party *p, struct psd_run r, struct psd_norms *norms)
{
    enum psd_merge merge = p->lane->center->rule->merge;
    if (r.role == PS_ROLE_PARAM)
        measure(p, r.center, r.n);
    if (r.role != PS_ROLE_FROZEN && merge == PSD_MERGE_OFFSETS) {
        norms->center_squares += r.role == PS_ROLE_PARAM ? p->move.vec->squares(r.center, r.n) : 0;
        psd_lane_follow(p->lane, &p->move, &r);
        return move_offsets(p, r.center, p->lane->scratch, r.n);
    }
    if (r.role == PS_ROLE_BUFFER || (r.role == PS_ROLE_PARAM && merge == PSD_MERGE_MEAN))
        average(p, r.n);
    else if (r.role == PS_ROLE_PARAM)
        add_up(p, r.n);
    r.m = p->m[0];
    size_t n_bad = psd_lane_move_run(p->lane, norms, &p->move, r);
    spread(p, r.n);
    return n_bad;
}

static size_t move_round(struct party *p, struct ps_range piece, uint64_t *at)
{
    struct psd_norms norms = {0, 0};
    size_t n_bad = 0;
    for (struct psd_run r = psd_lane_first_run(p->lane, piece, p->m[0]); r.n > 0;) {
        struct psd_run block = r;
        block.n = r.n < BLOCK ? r.n : BLOCK;
        size_t more = move_block(p, block, &norms);
        if (n_bad == 0 && more > 0)
            *at = block.at;
        n_bad += more;
        for (uint32_t i = 0; i < p->n; i++)
            p->m[i] += block.n;
        if (block.n == r.n) {
            r = psd_lane_next_run(p->lane, piece, r);
            continue;
        }
        psd_lane_skip(p->lane, &r, block.n);
    }
    for (uint32_t i = 0; i < p->n; i++)
        p->arrivals[i]->client->norms.center_squares += norms.center_squares;
    return n_bad;
}

/* Each message was finite, so that no single one is to blame: nothing of these values is stored. */
static void note_overflow(struct psd_lane *lane, uint64_t round, size_t n_bad, uint64_t at)
{
    char where[24];
    snprintf(where, sizeof where, "lane %u", lane->index);
    psd_count(&lane->stats.rejected[PS__CODE__VALUE], 1);
    if (psd_log_allows(&lane->log_limit, "round.not_finite", where))
        ps_log(PS_LOG_WARN, "round.not_finite",
               "lane %u, round %" PRIu64 ": %zu values from float %" PRIu64
               " on would not be finite; the center keeps what it had there",
               lane->index, round, n_bad, at);
}

static struct psd_move move_of(const struct psd_lane *lane, const struct psd_arrival *first, uint32_t n)
{
    const struct psd_center *c = lane->center;
    struct psd_move move = psd_lane_move_of(lane, first);
    move.n_moves = n;
    if (c->info->uses & PS_USES_RATE)
        move.alpha = (float)ps_hyper_alpha(&c->hyper, n, true);
    return move;
}

static void land_and_answer(struct psd_lane *lane, const struct psd_members *members, uint32_t chunk,
                            float rate)
{
    uint32_t n = members->n;
    uint16_t flags = psd_rounds_flags(lane, chunk);
    for (uint32_t i = 0; i < n; i++)
        psd_lane_land(lane, lane->rounds->party[i]);
    /* The set may be another one once the round is over; its members' messages are still here. */
    psd_rounds_finish(lane, chunk);
    for (uint32_t i = 0; i < n; i++) {
        struct psd_staged *s = psd_rounds_find(lane, lane->rounds->party[i]->frame.client, chunk);
        s->flags = flags;
        psd_rounds_answer(lane, s, rate);
    }
}

static bool advance(struct psd_lane *lane, uint32_t chunk)
{
    struct psd_rounds *r = lane->rounds;
    const struct psd_members *members = psd_rounds_members(lane, chunk);
    uint64_t at = 0;
    if (!gather(lane, members, chunk))
        return false;
    struct party p = {.lane = lane,
                      .arrivals = r->party,
                      .m = r->bodies,
                      .n = members->n,
                      .move = move_of(lane, r->party[0], members->n)};
    for (uint32_t i = 0; i < p.n; i++)
        p.m[i] = psd_lane_floats_of(lane, p.arrivals[i]);
    struct ps_range piece = {p.arrivals[0]->frame.begin, p.arrivals[0]->frame.count};
    size_t n_bad = move_round(&p, piece, &at);
    lane->moves[chunk]++;
    if (n_bad > 0)
        note_overflow(lane, r->done[chunk], n_bad, at);
    land_and_answer(lane, members, chunk, lane->center->rule->rate(&p.move));
    return true;
}

const struct psd_admission psd_admission_sync = {.name = "sync",
                                                 .members = true,
                                                 .rounds = true,
                                                 .merges = true,
                                                 .arrive = psd_rounds_arrive,
                                                 .advance = advance};
