/* Aggregates one round of one chunk: the gathered messages become one update (sync EASGD: You, Buluc, Demmel
 * 2017, eq. 2; sync SGD: the mean of the gradients, weighted by samples). Messages are summed in a fixed tree
 * over ranks, whatever order they arrived in, so that the same messages give the same center, bit for bit.
 *
 * For rules that take a mean of the messages, `merge` may select another aggregate of the values of role
 * PARAM:
 *
 * clip_norm: message i is scaled by min(1, c_k / |m_i|). |m_i| is the norm of its part in this chunk, and c_k
 * = clip sqrt(n_k / n), where n_k of the model's n values of role PARAM are in the chunk. psd never holds a
 * whole message, only a window of its chunks, so each chunk has its share of the allowed norm. A scaled
 * message thus has a norm of at most `clip`, whatever its sender sends. A chunk with more than its share is
 * scaled even if the norm of the whole message is below `clip`; a chunk whose sum of squares overflows
 * float32 is scaled to zero.
 *
 * trimmed_mean: for each value, leaves out the `trim` highest and the `trim` lowest, and takes the mean of
 * the others with equal weights for all workers (Yin, Chen, Ramchandran, Bartlett 2018, definition 2). With n
 * <= 2 trim messages it leaves out (n - 1) / 2 on each side: the result is their median, or the mean of the
 * middle two. */
#include "server/lane/rounds.h"

#include "proto/log.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

enum { BLOCK = 4096 };

/* The messages of a round of one chunk. Each is replaced in place by its answer. */
struct round_messages {
    struct psd_lane *lane;
    struct psd_arrival **arrivals; /* [n], by rank */
    float **m;                     /* [n]: their floats from the block's start, in private memory */
    uint32_t n;
    struct psd_move move;
    uint64_t samples;   /* sum over the messages */
    bool equal_samples; /* all messages have the same number of samples */
    bool clips;         /* at least one scale is below 1 */
    double *scales;     /* [n]: scale of each message, under clip_norm */
};

/* m[0] <- the sum. Adds m[i] += m[i + stride] for strides 1, 2, 4, ...; overwrites the other messages. */
static void add_up(const struct round_messages *p, size_t n)
{
    for (uint32_t stride = 1; stride < p->n; stride *= 2)
        for (uint32_t i = 0; i + stride < p->n; i += 2 * stride)
            p->move.vec->axpy(p->m[i], p->m[i + stride], 1, n);
}

static void average(const struct round_messages *p, size_t n)
{
    for (uint32_t i = 0; i < p->n && !p->equal_samples; i++)
        p->move.vec->scale(p->m[i], (float)((double)p->arrivals[i]->frame.samples / (double)p->samples), n);
    add_up(p, n);
    if (p->equal_samples && p->n > 1)
        p->move.vec->scale(p->m[0], 1.0f / (float)p->n, n);
}

/* If no message is scaled the result equals the mean, bit for bit. */
static void average_clipped(const struct round_messages *p, size_t n)
{
    if (!p->clips) {
        average(p, n);
        return;
    }
    for (uint32_t i = 0; i < p->n; i++)
        p->move.vec->scale(
            p->m[i], (float)(p->scales[i] * (double)p->arrivals[i]->frame.samples / (double)p->samples), n);
    add_up(p, n);
}

/* Sorts each value among the members by compare-exchange of neighbours, so that each pass runs over whole
 * vectors. */
static void average_trimmed(const struct round_messages *p, size_t n)
{
    uint32_t most = (p->n - 1) / 2, trim = p->lane->center->hyper.trim;
    trim = trim < most ? trim : most;
    for (uint32_t pass = 0; pass < p->n && trim > 0; pass++)
        for (uint32_t i = pass % 2; i + 1 < p->n; i += 2)
            p->move.vec->order(p->m[i], p->m[i + 1], n);
    struct round_messages rest = {.lane = p->lane, .m = p->m + trim, .n = p->n - 2 * trim, .move = p->move};
    add_up(&rest, n);
    if (rest.n > 1)
        p->move.vec->scale(rest.m[0], 1.0f / (float)rest.n, n);
    if (trim > 0)
        p->move.vec->copy(p->m[0], rest.m[0], n);
}

static void (*const means[])(const struct round_messages *p, size_t n) = {
    [PS_MERGE_MEAN] = average,
    [PS_MERGE_CLIP_NORM] = average_clipped,
    [PS_MERGE_TRIMMED_MEAN] = average_trimmed,
};

static void measure(const struct round_messages *p, const float *center, size_t n)
{
    bool takes_x = p->lane->center->info->message == PS_MESSAGE_X;
    for (uint32_t i = 0; i < p->n; i++)
        p->arrivals[i]->client->norms.squares +=
            takes_x ? p->move.vec->squared_distance(p->m[i], center, n) : p->move.vec->squares(p->m[i], n);
}

static void spread(const struct round_messages *p, size_t n)
{
    for (uint32_t i = 1; i < p->n; i++)
        p->move.vec->copy(p->m[i], p->m[0], n);
}

/* All moves use the same center, which is also the answer to each message. */
static size_t move_offsets(const struct round_messages *p, float *center, float *scratch, size_t n)
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

/* Moves one block of values of one role. The norms of an aggregated message belong to no client, so none are
 * stored. */
static size_t move_block(const struct round_messages *p, struct psd_role_run r, struct psd_norms *norms)
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

static size_t move_round(struct round_messages *p, struct ps_range piece, uint64_t *at)
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

/* Each message was finite, so no single sender is to blame. The affected values of the center keep their
 * previous state. */
static void note_overflow(struct psd_lane *lane, uint64_t round, size_t n_bad, uint64_t at)
{
    char where[24];
    snprintf(where, sizeof where, "lane %u", lane->index);
    psd_count(&lane->stats.rejected[PS__CODE__VALUE], 1);
    if (ps_log_allows(&lane->log_limit, "round.not_finite", where))
        ps_log(PS_LOG_WARN, "round.not_finite",
               "lane %u, round %" PRIu64 ": %zu values from float %" PRIu64
               " would not be finite; the center scales their previous values",
               lane->index, round, n_bad, at);
}

/* Under admm each message is of its worker's own rate. */
static void take_pulls(const struct psd_lane *lane, struct psd_arrival *const *arrivals,
                       struct psd_move *move)
{
    for (uint32_t i = 0; i < move->n_moves; i++)
        lane->rounds->pulls[i] = psd_lane_move_of(lane, arrivals[i]).pull;
    move->pulls = lane->rounds->pulls;
    move->kappa = psd_lane_kappa(move, 1);
}

/* The learning rate is that of the worker that has made the most steps: one that has joined later, or was
 * away, does not set the schedule back for all. */
static struct psd_move move_of(const struct psd_lane *lane, struct psd_arrival *const *arrivals, uint32_t n)
{
    const struct psd_center *c = lane->center;
    const struct psd_arrival *furthest = arrivals[0];
    for (uint32_t i = 1; i < n; i++)
        if (arrivals[i]->frame.clock > furthest->frame.clock)
            furthest = arrivals[i];
    struct psd_move move = psd_lane_move_of(lane, furthest);
    move.n_moves = n;
    if (c->info->uses & PS_USES_RATE)
        move.alpha = (float)ps_hyper_alpha(&c->hyper, n, true);
    if (c->info->uses & PS_USES_RHO)
        take_pulls(lane, arrivals, &move);
    return move;
}

static void land_and_answer(struct psd_lane *lane, uint32_t chunk, uint32_t n, float rate)
{
    uint16_t flags = psd_rounds_flags(lane, lane->rounds->gathered[0]);
    uint64_t end = psd_end_of(lane->rounds->gathered[0]);
    for (uint32_t i = 0; i < n; i++) {
        lane->rounds->gathered[i]->rate = rate;
        psd_lane_land(lane, lane->rounds->gathered[i]);
    }
    /* The set of members may change once the round is over, so their staged messages are cleared after
     * this. */
    psd_rounds_pass(lane, chunk, end);
    lane->whole_base = ++lane->last_base;
    psd_lane_fill_round(lane, lane->rounds->gathered, n);
    for (uint32_t i = 0; i < n; i++) {
        struct psd_staged *s = psd_rounds_find(lane, lane->rounds->gathered[i]->frame.client, chunk);
        s->flags = flags;
        psd_rounds_answer(lane, s);
    }
    lane->whole_base = 0;
}

static void weigh(struct round_messages *p)
{
    p->equal_samples = true; /* also if all have 0 samples: buffers under a rule that sums */
    for (uint32_t i = 0; i < p->n; i++) {
        p->samples += p->arrivals[i]->frame.samples;
        p->equal_samples = p->equal_samples && p->arrivals[i]->frame.samples == p->arrivals[0]->frame.samples;
    }
}

/* Returns the sum of squares of the message's PARAM values in the piece; counts them in *n_params. */
static double measure_piece(const struct round_messages *p, struct ps_range piece, float *m,
                            uint64_t *n_params)
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

static void clip(struct round_messages *p, struct ps_range piece)
{
    const struct psd_center *c = p->lane->center;
    if (c->rule->merge != PSD_MERGE_MEAN || c->hyper.merge != PS_MERGE_CLIP_NORM)
        return;
    for (uint32_t i = 0; i < p->n; i++) {
        uint64_t here;
        double norm = sqrt(measure_piece(p, piece, p->m[i], &here));
        double most = c->hyper.clip * sqrt((double)here / (double)p->lane->rounds->n_params);
        p->scales[i] = norm > most ? most / norm : 1;
        p->clips = p->clips || norm > most;
    }
}

void psd_merge_round(struct psd_lane *lane, uint32_t chunk, uint32_t n)
{
    struct psd_rounds *r = lane->rounds;
    uint64_t at = 0;
    struct round_messages p = {.lane = lane,
                               .arrivals = r->gathered,
                               .m = r->bodies,
                               .n = n,
                               .move = move_of(lane, r->gathered, n),
                               .scales = r->scales};
    for (uint32_t i = 0; i < n; i++) {
        assert(psd_lane_is_private(p.arrivals[i]));
        p.m[i] = psd_lane_floats_of(lane, p.arrivals[i]);
    }
    struct ps_range piece = {p.arrivals[0]->frame.begin, p.arrivals[0]->frame.count};
    weigh(&p);
    clip(&p, piece);
    psd_lane_before_move(lane, chunk);
    for (uint32_t i = 0; i < n; i++)
        psd_lane_open_norms(lane, p.arrivals[i]);
    size_t n_bad = move_round(&p, piece, &at);
    psd_lane_moves_count(lane, p.arrivals[0]);
    if (n_bad > 0)
        note_overflow(lane, r->done[chunk], n_bad, at);
    land_and_answer(lane, chunk, n, lane->center->rule->rate(&p.move));
}
