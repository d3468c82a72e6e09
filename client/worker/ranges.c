#include "client/worker/ranges.h"

#include <stdlib.h>
#include <string.h>

bool psc_ranges_make(struct psc_ranges *s, size_t room)
{
    s->at = calloc(room, sizeof *s->at);
    s->n = 0;
    s->room = s->at != NULL ? room : 0;
    return s->at != NULL;
}

void psc_ranges_free(struct psc_ranges *s)
{
    free(s->at);
    *s = (struct psc_ranges){0};
}

void psc_ranges_clear(struct psc_ranges *s)
{
    s->n = 0;
}

static uint64_t end_of(struct ps_range r)
{
    return r.begin + r.count;
}

/* The first range that ends after `begin`; n: none does. */
static size_t find(const struct psc_ranges *s, uint64_t begin)
{
    size_t low = 0, high = s->n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (end_of(s->at[middle]) > begin)
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

static void replace(struct psc_ranges *s, size_t first, size_t n, struct ps_range r)
{
    memmove(&s->at[first + 1], &s->at[first + n], (s->n - first - n) * sizeof *s->at);
    s->at[first] = r;
    s->n = s->n + 1 - n;
}

enum psc_ranges_result psc_ranges_add(struct psc_ranges *s, struct ps_range r, struct ps_range *other)
{
    size_t k = find(s, r.begin);
    if (k < s->n && s->at[k].begin < end_of(r)) {
        *other = s->at[k];
        return PSC_RANGES_OVERLAP;
    }
    bool after = k > 0 && end_of(s->at[k - 1]) == r.begin, before = k < s->n && s->at[k].begin == end_of(r);
    if (!after && !before && s->n == s->room)
        return PSC_RANGES_FULL;
    if (after) {
        r.begin = s->at[k - 1].begin;
        r.count += s->at[k - 1].count;
    }
    if (before)
        r.count += s->at[k].count;
    replace(s, k - after, (size_t)after + before, r);
    return PSC_RANGES_ADDED;
}

struct ps_range psc_ranges_around(const struct psc_ranges *s, struct ps_range r)
{
    return s->at[find(s, r.begin)];
}

uint64_t psc_ranges_tail(const struct psc_ranges *s, uint64_t end)
{
    return s->n > 0 && end_of(s->at[s->n - 1]) == end ? s->at[s->n - 1].begin : end;
}

struct ps_range psc_ranges_hole(const struct psc_ranges *s, uint64_t end)
{
    bool first = s->n > 0 && s->at[0].begin == 0;
    uint64_t begin = first ? end_of(s->at[0]) : 0;
    size_t next = first ? 1 : 0;
    uint64_t until = next < s->n ? s->at[next].begin : end;
    return (struct ps_range){begin, until - begin};
}
