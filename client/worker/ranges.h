/* ranges.h: the parts of a vector that were reported, in any order. */
#ifndef PSC_WORKER_RANGES_H
#define PSC_WORKER_RANGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/model/shard.h"

/* Disjoint and apart from each other, in ascending order. Ranges that touch are one. */
struct psc_ranges {
    struct ps_range *at; /* [room] */
    size_t n, room;
};

/* Allocates room for `room` ranges. False: no memory. */
bool psc_ranges_make(struct psc_ranges *s, size_t room);
void psc_ranges_free(struct psc_ranges *s);
void psc_ranges_clear(struct psc_ranges *s);

enum psc_ranges_result { PSC_RANGES_ADDED, PSC_RANGES_OVERLAP, PSC_RANGES_FULL };
/* Adds r, which is not empty. Overlap: *other is the range that has a part of it. Full: it would be one range
 * more than there is room for. In both cases nothing changes. */
enum psc_ranges_result psc_ranges_add(struct psc_ranges *s, struct ps_range r, struct ps_range *other);
/* The range that has all of r, which was added. */
struct ps_range psc_ranges_around(const struct psc_ranges *s, struct ps_range r);
/* Where the range begins that ends at `end`; `end` itself if none does. */
uint64_t psc_ranges_tail(const struct psc_ranges *s, uint64_t end);
/* The first part of [0, end) that no range covers; empty: there is none. */
struct ps_range psc_ranges_hole(const struct psc_ranges *s, uint64_t end);

#endif
