/* One round of one chunk: the messages in rounds->party become one update (sync EASGD: You, Buluc, Demmel
 * 2017, eq. 2; sync SGD: the mean of the gradients, weighted by samples). Messages are added in a fixed tree
 * over ranks, whatever order they came in, so that the same messages give the same center, bit for bit.
 *
 * Where the rule takes a mean of the messages, `merge` may have it be another one, of the values of role
 * PARAM:
 *
 * clip_norm: message i counts by min(1, c_k / |m_i|), |m_i| the norm of what of it lies in this chunk, c_k =
 * clip sqrt(n_k / n), n_k of the model's n values of role PARAM lying in the chunk. That whole messages are
 * never whole at psd (no more than a window of each has room here) is why each chunk has its part of the norm
 * allowed; what is left of a message is at most `clip` long, whatever its sender says or does. A chunk that
 * is longer than its part is cut though the whole may not be; one whose squares sum beyond float32 counts
 * nothing.
 *
 * trimmed_mean: of each value the `trim` highest and the `trim` lowest are left out, and the others' mean is
 * taken, each worker counting alike (Yin, Chen, Ramchandran, Bartlett 2018, definition 2). Of n <= 2 trim
 * messages it is (n - 1) / 2 that are left out on each side: their median, or the mean of the middle two. */
#include "server/lane/rounds.h"

#include "proto/log.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { BLOCK = 4096 };

/* A round of one chunk: member i's message, in place, becomes its answer. */
struct party {
    struct psd_lane *lane;
    struct psd_arrival **arrivals; /* [n], by rank */
    float **m;                     /* [n]: their floats from the block's first on, in private memory */
    uint32_t n;
    struct psd_move move;
    uint64_t samples; /* of all */
    bool alike;       /* all of as many samples */
    bool clips;       /* some of keeps are below 1 */
    double *keeps;    /* [n]: what is left of each message, under clip_norm */
};

/* m[0] <- the sum, m[i] += m[i + stride] for strides 1, 2, 4, ...; the others are spent. */
static void add_up(const struct party *p, size_t n)
{
    for (uint32_t stride = 1; stride < p->n; stride *= 2)
        for (uint32_t i = 0; i + stride < p->n; i += 2 * stride)
            p->move.vec->axpy(p->m[i], p->m[i + stride], 1, n);
}

static void average(const struct party *p, size_t n)
{
    for (uint32_t i = 0; i < p->n && !p->alike; i++)
        p->move.vec->scale(p->m[i], (float)((double)p->arrivals[i]->frame.samples / (double)p->samples), n);
    add_up(p, n);
    if (p->alike && p->n > 1)
        p->move.vec->scale(p->m[0], 1.0f / (float)p->n, n);
}

/* Where nothing is cut it is the mean, bit for bit. */
static void average_clipped(const struct party *p, size_t n)
{
    if (!p->clips) {
        average(p, n);
        return;
    }
    for (uint32_t i = 0; i < p->n; i++)
        p->move.vec->scale(
            p->m[i], (float)(p->keeps[i] * (double)p->arrivals[i]->frame.samples / (double)p->samples), n);
    add_up(p, n);
}

/* Values are put in order among the members by exchanges of neighbours, so that each pass is over vectors. */
static void average_trimmed(const struct party *p, size_t n)
{
    uint32_t most = (p->n - 1) / 2, trim = p->lane->center->hyper.trim;
    trim = trim < most ? trim : most;
    for (uint32_t pass = 0; pass < p->n && trim > 0; pass++)
        for (uint32_t i = pass % 2; i + 1 < p->n; i += 2)
            p->move.vec->order(p->m[i], p->m[i + 1], n);
    struct party rest = {.lane = p->lane, .m = p->m + trim, .n = p->n - 2 * trim, .move = p->move};
    add_up(&rest, n);
    if (rest.n > 1)
        p->move.vec->scale(rest.m[0], 1.0f / (float)rest.n, n);
    if (trim > 0)
        p->move.vec->copy(p->m[0], rest.m[0], n);
}

static void (*const means[])(const struct party *p, size_t n) = {
    [PS_MERGE_MEAN] = average,
    [PS_MERGE_CLIP_NORM] = average_clipped,
    [PS_MERGE_TRIMMED_MEAN] = average_trimmed,
};

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
static size_t move_block(const struct party *p, struct psd_role_run r, struct psd_norms *norms)
{
    enum psd_merge merge = p->lane->center->rule->merge;
    if (r.role == PS_ROLE_PARAM)
        measure(p, r.center, r.n);
    if (r.role != PS_ROLE_FROZEN && merge == PSD_MERGE_OFFSETS) {
        norms->center_squares += r.role == PS_ROLE_PARAM ? p->move.vec->squares(r.center, r.n) : 0;
        psd_lane_average(p->lane, &p->move, &r);
        return move_offsets(p, r.center, p->lane->scratch, r.n);
    }
    if (r.role == PS_ROLE_BUFFER)
        average(p, r.n);
    else if (r.role == PS_ROLE_PARAM && merge == PSD_MERGE_MEAN)
        means[p->lane->center->hyper.merge](p, r.n);
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
    for (struct psd_role_run r = psd_lane_first_run(p->lane, piece, p->m[0]); r.n > 0;) {
        struct psd_role_run block = r;
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
    if (ps_log_allows(&lane->log_limit, "round.not_finite", where))
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

static void land_and_answer(struct psd_lane *lane, uint32_t chunk, uint32_t n, float rate)
{
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

static void weigh(struct party *p)
{
    p->alike = true; /* also where all are of 0: buffers beside a rule that sums */
    for (uint32_t i = 0; i < p->n; i++) {
        p->samples += p->arrivals[i]->frame.samples;
        p->alike = p->alike && p->arrivals[i]->frame.samples == p->arrivals[0]->frame.samples;
    }
}

/* The squares of the message's PARAM values in the piece, and how many there are. */
static double measure_piece(const struct party *p, struct ps_range piece, float *m, uint64_t *n_params)
{
    double squares = 0;
    *n_params = 0;
    for (struct psd_role_run r = psd_lane_first_run(p->lane, piece, m); r.n > 0;
         r = psd_lane_next_run(p->lane, piece, r))
        if (r.role == PS_ROLE_PARAM) {
            squares += p->move.vec->squares(r.m, r.n);
            *n_params += r.n;
        }
    return squares;
}

static void clip(struct party *p, struct ps_range piece)
{
    const struct psd_center *c = p->lane->center;
    if (c->rule->merge != PSD_MERGE_MEAN || c->hyper.merge != PS_MERGE_CLIP_NORM)
        return;
    for (uint32_t i = 0; i < p->n; i++) {
        uint64_t here;
        double norm = sqrt(measure_piece(p, piece, p->m[i], &here));
        double most = c->hyper.clip * sqrt((double)here / (double)p->lane->rounds->n_params);
        p->keeps[i] = norm > most ? most / norm : 1;
        p->clips = p->clips || norm > most;
    }
}

void psd_merge_round(struct psd_lane *lane, uint32_t chunk, uint32_t n)
{
    struct psd_rounds *r = lane->rounds;
    uint64_t at = 0;
    struct party p = {.lane = lane,
                      .arrivals = r->party,
                      .m = r->bodies,
                      .n = n,
                      .move = move_of(lane, r->party[0], n),
                      .keeps = r->keeps};
    for (uint32_t i = 0; i < n; i++) {
        assert(psd_lane_is_private(p.arrivals[i]));
        p.m[i] = psd_lane_floats_of(lane, p.arrivals[i]);
    }
    struct ps_range piece = {p.arrivals[0]->frame.begin, p.arrivals[0]->frame.count};
    weigh(&p);
    clip(&p, piece);
    psd_lane_before_move(lane, chunk);
    size_t n_bad = move_round(&p, piece, &at);
    lane->moves[chunk]++;
    if (n_bad > 0)
        note_overflow(lane, r->done[chunk], n_bad, at);
    land_and_answer(lane, chunk, n, lane->center->rule->rate(&p.move));
}
