/* place.c: how many partitions, and which cores each has. */
#include "proto/topology/topology.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* Of the cores, that `auto` leaves idle at most. */
#define IDLE_PART 8
#define MIB       (1024.0 * 1024.0)

static const char *const names[PS_N_NEARS] = {"last-level cache", "MCDRAM or HBM", "NUMA node"};

const char *ps_near_name(enum ps_near near)
{
    return names[near];
}

uint32_t ps_topology_share(const struct ps_topology *t, enum ps_near near, uint32_t i, uint32_t n)
{
    return t->cores[(uint64_t)t->n_cores * i / n].group[near];
}

/* How many partitions of `threads` threads the groups have room for. */
static uint32_t room_for(const struct ps_topology *t, enum ps_near near, uint32_t threads)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < t->n_groups[near]; g++)
        n += t->groups[near][g].n_cores / threads;
    return n;
}

/* Threads of each of n partitions that lie in one group each; 0: they do not. */
static uint32_t most_threads(const struct ps_topology *t, enum ps_near near, uint32_t n, uint32_t wanted)
{
    uint32_t threads = wanted > 0 ? wanted : t->n_cores / n;
    for (; threads > 0 && room_for(t, near, threads) < n; threads--)
        if (wanted > 0)
            return 0;
    return threads;
}

/* Each goes to the group with the fewest that still has room. n_in: [groups], zeroed. */
static void deal(const struct ps_topology *t, enum ps_near near, struct ps_placement *p, uint32_t *n_in)
{
    const struct ps_near_group *groups = t->groups[near];
    uint32_t at = 0;
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t best = UINT32_MAX;
        for (uint32_t g = 0; g < t->n_groups[near]; g++)
            if ((n_in[g] + 1) * p->threads <= groups[g].n_cores &&
                (best == UINT32_MAX || n_in[g] < n_in[best]))
                best = g;
        n_in[best]++;
    }
    for (uint32_t g = 0; g < t->n_groups[near]; g++)
        for (uint32_t k = 0; k < n_in[g]; k++)
            p->parts[at++] = (struct ps_partition){groups[g].first_core + k * p->threads, groups[g].node};
}

static uint64_t bytes_of(const struct ps_need *need, uint32_t n)
{
    return need->fixed_bytes + need->image_bytes * (need->batch / n);
}

/* n partitions, each in one group of the kind. false: they do not lie so, or there is no memory (p->parts
 * NULL).
 */
static bool lay_in_groups(const struct ps_topology *t, enum ps_near near, uint32_t n, uint32_t wanted,
                          const struct ps_need *need, struct ps_placement *p)
{
    uint32_t groups = t->n_groups[near];
    uint32_t threads = n >= groups && groups > 0 ? most_threads(t, near, n, wanted) : 0;
    if (threads == 0)
        return false;
    *p = (struct ps_placement){
        .n = n, .threads = threads, .near = near, .fits = true, .bytes = bytes_of(need, n)};
    p->n_idle = t->n_cores - n * threads;
    p->parts = calloc(n, sizeof *p->parts);
    uint32_t *n_in = calloc(groups, sizeof *n_in);
    if (p->parts != NULL && n_in != NULL) {
        deal(t, near, p, n_in);
        for (uint32_t g = 0; g < groups; g++)
            p->fits = p->fits && n_in[g] * p->bytes <= t->groups[near][g].bytes;
    } else {
        ps_placement_finish(p);
    }
    free(n_in);
    return p->parts != NULL;
}

/* n partitions of neighbouring cores, whatever groups those are of. */
static bool lay_across(const struct ps_topology *t, uint32_t n, uint32_t wanted, const struct ps_need *need,
                       struct ps_placement *p)
{
    uint32_t threads = wanted > 0 ? wanted : t->n_cores / n;
    *p = (struct ps_placement){.n = n,
                               .threads = threads,
                               .near = PS_NEAR_NODE,
                               .fits = true,
                               .spans = true,
                               .bytes = bytes_of(need, n)};
    p->n_idle = t->n_cores - n * threads;
    p->parts = calloc(n, sizeof *p->parts);
    for (uint32_t i = 0; p->parts != NULL && i < n; i++)
        p->parts[i] = (struct ps_partition){(uint32_t)((uint64_t)t->n_cores * i / n), -1};
    return p->parts != NULL;
}

/* What keeps `auto` from n partitions in that memory; NULL: nothing, and *p is laid out. */
static const char *try_near(const struct ps_topology *t, enum ps_near near, uint32_t n, uint32_t threads,
                            const struct ps_need *need, struct ps_placement *p)
{
    const char *no = NULL;
    p->parts = NULL;
    if (need->batch % n != 0)
        return "they would not divide the batch";
    if (n > 1 && need->batch / n < need->least_images)
        return "their parts of the batch would be too small";
    if (need->limit_bytes > 0 && n * bytes_of(need, n) > need->limit_bytes)
        return "their copies would exceed what the process may take";
    if (!lay_in_groups(t, near, n, threads, need, p))
        return "they would not lie in one group of cores each";
    if (p->n_idle * IDLE_PART > t->n_cores && threads == 0)
        no = "they would leave too many cores idle";
    else if (!p->fits)
        no = "their copies would not fit";
    if (no != NULL)
        ps_placement_finish(p);
    return no;
}

static void explain(const struct ps_topology *t, struct ps_placement *p, const char *more, const char *no)
{
    uint64_t bytes = t->n_groups[p->near] > 0 ? t->groups[p->near][0].bytes : 0;
    int n = snprintf(p->why, sizeof p->why, "%u partition%s of %u core%s: %s%.1f MiB %s%s (%u of %.1f MiB)",
                     p->n, p->n == 1 ? "" : "s", p->threads, p->threads == 1 ? "" : "s",
                     p->n == 1 ? "its " : "copies of ", (double)p->bytes / MIB,
                     p->spans  ? "lie across memories, each a "
                     : p->fits ? "fit the "
                               : "do not fit the ",
                     names[p->near], t->n_groups[p->near], (double)bytes / MIB);
    if (no != NULL)
        snprintf(p->why + n, sizeof p->why - (size_t)n, "; not %s: %s", more, no);
}

/* The largest number that nothing keeps from the memory; false: none, *p as before. */
static bool choose_in(const struct ps_topology *t, enum ps_near near, uint32_t threads,
                      const struct ps_need *need, struct ps_placement *p)
{
    const char *no = NULL;
    char more[16] = "";
    for (uint32_t n = t->n_cores; n > 0; n--) {
        if (need->batch % n != 0)
            continue;
        struct ps_placement found = {0};
        const char *now = try_near(t, near, n, threads, need, &found);
        if (now == NULL) {
            *p = found;
            explain(t, p, more, no);
            return true;
        }
        no = now;
        snprintf(more, sizeof more, "%u", n);
    }
    return false;
}

static int choose(const struct ps_topology *t, uint32_t threads, const struct ps_need *need,
                  struct ps_placement *out, struct ps_error *err)
{
    for (enum ps_near near = 0; near < PS_N_NEARS; near++)
        if (choose_in(t, near, threads, need, out))
            return 0;
    if (!lay_across(t, 1, threads, need, out))
        return ps_fail(err, -ENOMEM, "no memory for a placement");
    explain(t, out, "more", "no memory that is near to some cores alone holds a copy for each part");
    return 0;
}

/* Places n partitions in the fastest memory that holds them all; else by groups of a node; else across
 * groups. */
static int place_given(const struct ps_topology *t, uint32_t n, uint32_t threads, const struct ps_need *need,
                       struct ps_placement *out, struct ps_error *err)
{
    for (enum ps_near near = 0; near < PS_N_NEARS; near++) {
        struct ps_placement p;
        if (!lay_in_groups(t, near, n, threads, need, &p))
            continue;
        if (p.fits || near == PS_NEAR_NODE) {
            *out = p;
            explain(t, out, NULL, NULL);
            return 0;
        }
        ps_placement_finish(&p);
    }
    if (!lay_across(t, n, threads, need, out))
        return ps_fail(err, -ENOMEM, "no memory for a placement");
    explain(t, out, NULL, NULL);
    return 0;
}

/* "1, 2, 4": the numbers up to `most` that divide the batch, as far as there is room to say them. */
static const char *divisors(uint32_t batch, uint32_t most, char *text, size_t size)
{
    size_t used = 0;
    for (uint32_t n = 1; n <= most && used + 16 < size; n++)
        if (batch % n == 0)
            used += (size_t)snprintf(text + used, size - used, "%s%u", n > 1 ? ", " : "", n);
    return text;
}

int ps_place(const struct ps_topology *t, uint32_t partitions, uint32_t threads, const struct ps_need *need,
             struct ps_placement *out, struct ps_error *err)
{
    uint32_t n = partitions > 0 ? partitions : 1, each = threads > 0 ? threads : 1;
    char text[128] = "";

    if ((uint64_t)n * each > t->n_cores)
        return ps_fail(err, -EINVAL,
                       "%u partitions of %u threads; this process may use %u cores, one thread of each", n,
                       each, t->n_cores);
    if (need->batch % n != 0)
        return ps_fail(err, -EINVAL, "%u partitions cannot divide a batch of %u images; allowed: %s", n,
                       need->batch, divisors(need->batch, t->n_cores / each, text, sizeof text));
    return partitions == 0 ? choose(t, threads, need, out, err) : place_given(t, n, threads, need, out, err);
}

void ps_placement_finish(struct ps_placement *p)
{
    free(p->parts);
    p->parts = NULL;
}
