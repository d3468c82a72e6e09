/* buckets.h: the time of an iteration whose gradients are summed over a ring, by the equations of Li et al.
 * (Pipe-SGD, NeurIPS 2018), and the number of buckets that makes it shortest. All arithmetic; units are
 * seconds and bytes. Equal inputs give equal results at all members. */
#ifndef PS_MODEL_BUCKETS_H
#define PS_MODEL_BUCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct ps_iteration {
    double update_s, forward_s, backward_s; /* l_up, l_for, l_back of an iteration */
    double n_bytes;                         /* of the gradient, as it travels */
    double alpha_s, beta_s, gamma_s;        /* a message's latency; a byte on the link; adding a byte */
    double sync_s;                          /* S, once for each sum */
    uint32_t members;                       /* p */
};

/* l_comm of equation 6, a sum in n_buckets segments; with one bucket that of equation 5:
 *   2 (p - 1) L alpha + 2 ((p - 1)/p) n beta + ((p - 1)/p) n gamma + L S. 0 for one member. */
double ps_comm_s(const struct ps_iteration *it, uint32_t n_buckets);
/* Equation 3, unlimited resources: (l_up + l_comp + l_comm)/K. */
double ps_unlimited_s(const struct ps_iteration *it, uint32_t pipeline);
/* Equation 4, limited resources and K >= 2: max(l_up + l_comp, l_comm). */
double ps_pipelined_s(const struct ps_iteration *it);
/* Equation 5, one segment: the same as equation 4 with its l_comm. Equation 6, L segments:
 * max(l_up + l_for + l_b, l_comm), where l_b = l_back/L is the backward time of the first segment. */
double ps_segments_s(const struct ps_iteration *it, uint32_t n_buckets);
/* Equation 2 with the sum in buckets that leave during backward, as d-sync does it: the longer of computing
 * and then the last bucket's sum, and of the first bucket's computing and then all sums. */
double ps_bucketed_s(const struct ps_iteration *it, uint32_t n_buckets);

/* The fewest buckets, 1 to `most`, whose iteration takes no longer than 0.1 % above the shortest: by
 * ps_segments_s if `pipelined`, where one segment is taken wherever communication is the bound; otherwise by
 * ps_bucketed_s. */
uint32_t ps_best_buckets(const struct ps_iteration *it, bool pipelined, uint32_t most);

/* Backward as it was measured: from `begin` to its end the gradient is ready at_s after the step began. In
 * order of time, which is that of falling begins; the last begin is 0, and computing ends with it. */
struct ps_ready_point {
    uint64_t begin;
    double at_s;
};
struct ps_profile {
    const struct ps_ready_point *points; /* [n_points], at least 1 */
    size_t n_points;
    uint64_t n_floats; /* of the gradient */
};

/* ps_bucketed_s for layers of unequal sizes and times. Buckets begin at multiples of bucket_floats. A
 * bucket's sum begins when all of it is ready and the bucket behind it has been summed; the iteration ends
 * with the first bucket's. The times of forward and backward are the profile's. */
double ps_profiled_s(const struct ps_iteration *it, const struct ps_profile *p, uint64_t bucket_floats);
/* Floats of a bucket if the gradient is cut into n_buckets of whole units. */
uint64_t ps_bucket_floats(uint64_t n_floats, uint32_t n_buckets, uint64_t unit);
/* ps_best_buckets with a profile: by ps_profiled_s, or, if `pipelined`, by equation 6 with its times. */
uint32_t ps_best_profiled(const struct ps_iteration *it, const struct ps_profile *p, bool pipelined,
                          uint64_t unit, uint32_t most);

#endif
