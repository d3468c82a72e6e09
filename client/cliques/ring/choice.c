#include "client/cliques/ring/choice.h"

#include <math.h>

const size_t psc_probe_bytes[PSC_N_PROBES] = {1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20};

/* Short sums are repeated, at most `calls` of them in a measure. A size is measured only if at the size
 * before the tree took less than `far` times as long as the ring, because long sums take time. */
static const struct {
    uint32_t calls;
    double far;
} rows[PSC_N_PROBES] = {
    {PSC_PROBE_CALLS, 0}, {PSC_PROBE_CALLS, 8}, {PSC_PROBE_CALLS, 8}, {2, 8}, {1, 2}, {1, 1}};

/* The fewest rounds that count; more are made while time is left. A size next to the limit is measured in at
 * least CERTAIN_ROUNDS, unless that takes too long. */
enum { LEAST_ROUNDS = 3, CERTAIN_ROUNDS = 5 };
static const double half = 0.5;       /* of the ring's time: a call with parts */
static const double enough_s = 0.1;   /* for rounds */
static const double plenty_s = 3;     /* for all pairs */
static const double batch_s = 0.5e-3; /* of a measure: a shorter one shows scheduling only */
static const double far_times = 16;   /* the last size: the line is not continued further */
static const double most = 4;         /* the largest ratio that counts for a size */

/* The logarithm of the tree's time divided by the ring's. */
static double ratio_of(const struct psc_choice *c, uint32_t i)
{
    return log(c->tree_s[i] / c->ring_s[i]);
}

static bool is_wanted(const struct psc_choice *c, uint32_t i)
{
    return i == 0 || (i < PSC_N_PROBES && ratio_of(c, i - 1) < log(rows[i].far));
}

static bool is_enough(const struct psc_choice *c)
{
    uint32_t counted = c->round - 1; /* the first one warms up */
    return c->round > 0 &&
           (counted >= PSC_PROBE_ROUNDS || (counted >= LEAST_ROUNDS && c->spent_s > enough_s));
}

static uint32_t calls_of(const struct psc_choice *c, uint32_t i)
{
    double calls = c->pairs[i] > 0 ? ceil(batch_s / c->ring_s[i]) : 1;
    return calls < rows[i].calls ? (uint32_t)calls : rows[i].calls;
}

/* The number of sizes that were measured. */
static uint32_t measured(const struct psc_choice *c)
{
    uint32_t n = 0;
    while (n < PSC_N_PROBES && c->pairs[n] > 0)
        n++;
    return n;
}

/* The index of the first size for the ring: the sum of the losses below it is the least. loss: the logarithm
 * of the tree's time by the ring's, at each size. part: as in psc_choice_limit. */
static uint32_t cut_of(const struct psc_choice *c, double part, double loss[PSC_N_PROBES])
{
    double sum = 0, least = 0;
    uint32_t n = measured(c), k = 0;
    for (uint32_t i = 0; i < n; i++) {
        loss[i] = ratio_of(c, i) - log(part);
        sum += fmax(-log(most), fmin(log(most), loss[i]));
        k = sum < least ? i + 1 : k;
        least = fmin(least, sum);
    }
    return k;
}

/* A size next to a limit that was measured in too few rounds. PSC_N_PROBES: there is none. */
static uint32_t uncertain(const struct psc_choice *c)
{
    for (int twice = 0; twice < 2 && c->spent_s < plenty_s; twice++) {
        double loss[PSC_N_PROBES];
        uint32_t k = cut_of(c, twice ? half : 1, loss), i = k > 0 ? k - 1 : 0;
        for (; i <= k && i < PSC_N_PROBES; i++)
            if (c->pairs[i] > 0 && c->pairs[i] <= CERTAIN_ROUNDS)
                return i;
    }
    return PSC_N_PROBES;
}

bool psc_choice_next(struct psc_choice *c, struct psc_probe *out)
{
    if (!is_wanted(c, c->at)) {
        c->at = 0;
        c->round++;
    }
    uint32_t i = is_enough(c) ? uncertain(c) : c->at;
    if (i == PSC_N_PROBES)
        return false;
    *out = (struct psc_probe){i, calls_of(c, i), c->pairs[i] % 2};
    return true;
}

static void keep_shorter(double *kept, double s, bool first)
{
    s = fmax(s, 1e-9);
    *kept = first || s < *kept ? s : *kept;
}

void psc_choice_note(struct psc_choice *c, const struct psc_probe *p, double ring_s, double tree_s)
{
    uint32_t i = p->index, before = c->pairs[i]++;
    keep_shorter(&c->ring_s[i], ring_s, before <= 1);
    keep_shorter(&c->tree_s[i], tree_s, before <= 1);
    c->spent_s += p->calls * (ring_s + tree_s);
    c->at = i + 1;
}

/* The bytes at which the straight line through the losses of sizes a and a + 1 is 0. Sizes are logarithms. */
static double crossing(const double loss[PSC_N_PROBES], uint32_t a)
{
    return (double)psc_probe_bytes[a] * pow((double)psc_probe_bytes[a + 1] / (double)psc_probe_bytes[a],
                                            loss[a] / (loss[a] - loss[a + 1]));
}

uint64_t psc_choice_limit(const struct psc_choice *c, double part, uint64_t beyond)
{
    double loss[PSC_N_PROBES] = {0};
    uint32_t n = measured(c), k = cut_of(c, part, loss);
    if (k == 0)
        return 0;
    if (k < n) /* the loss is below 0 at size k - 1 and not at size k: else the cut would be another */
        return (uint64_t)crossing(loss, k - 1);
    double last = (double)psc_probe_bytes[n - 1];
    if (n > 1 && loss[n - 1] > loss[n - 2])
        return (uint64_t)fmin(far_times * last, fmax(last + 1, crossing(loss, n - 2)));
    return beyond > last ? beyond : (uint64_t)last + 1;
}

void psc_choice_longest(const struct psc_choice *c, double *bytes, double *seconds)
{
    uint32_t n = measured(c);
    *bytes = n > 0 ? (double)psc_probe_bytes[n - 1] : 0;
    *seconds = n > 0 ? c->ring_s[n - 1] : 0;
}
