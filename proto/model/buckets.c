#include "proto/model/buckets.h"

#include <math.h>

static const double close = 1.001; /* times within 0.1 % count as equal */

/* What a sum takes once, and what its bytes take. */
static double once_s(const struct ps_iteration *it)
{
    return it->members < 2 ? 0 : 2 * (it->members - 1.0) * it->alpha_s + it->sync_s;
}

static double bytes_s(const struct ps_iteration *it)
{
    double p = it->members;
    return it->members < 2 ? 0 : (p - 1) / p * it->n_bytes * (2 * it->beta_s + it->gamma_s);
}

double ps_comm_s(const struct ps_iteration *it, uint32_t n_buckets)
{
    return n_buckets * once_s(it) + bytes_s(it);
}

static double compute_s(const struct ps_iteration *it)
{
    return it->update_s + it->forward_s + it->backward_s;
}

double ps_unlimited_s(const struct ps_iteration *it, uint32_t pipeline)
{
    return (compute_s(it) + ps_comm_s(it, 1)) / pipeline;
}

double ps_pipelined_s(const struct ps_iteration *it)
{
    return fmax(compute_s(it), ps_comm_s(it, 1));
}

double ps_segments_s(const struct ps_iteration *it, uint32_t n_buckets)
{
    return fmax(it->update_s + it->forward_s + it->backward_s / n_buckets, ps_comm_s(it, n_buckets));
}

double ps_bucketed_s(const struct ps_iteration *it, uint32_t n_buckets)
{
    double comm = ps_comm_s(it, n_buckets), first = it->backward_s / n_buckets;
    return it->update_s + it->forward_s + fmax(it->backward_s + comm / n_buckets, first + comm);
}

uint32_t ps_best_buckets(const struct ps_iteration *it, bool pipelined, uint32_t most)
{
    double (*time_of)(const struct ps_iteration *, uint32_t) = pipelined ? ps_segments_s : ps_bucketed_s;
    double best = time_of(it, 1);
    uint32_t n = 1;
    if (pipelined && ps_comm_s(it, 1) >= compute_s(it))
        return 1;
    for (uint32_t l = 2; l <= most; l++)
        best = fmin(best, time_of(it, l));
    while (n < most && time_of(it, n) > close * best)
        n++;
    return n;
}

double ps_profiled_s(const struct ps_iteration *it, const struct ps_profile *p, uint64_t bucket_floats)
{
    double end = 0, once = once_s(it), float_s = bytes_s(it) / (double)p->n_floats;
    size_t k = 0;
    for (uint64_t left = p->n_floats, begin; left > 0; left = begin) {
        begin = (left - 1) / bucket_floats * bucket_floats;
        while (k + 1 < p->n_points && p->points[k].begin > begin)
            k++;
        end = fmax(end, p->points[k].at_s) + once + (double)(left - begin) * float_s;
    }
    return it->update_s + fmax(end, p->points[p->n_points - 1].at_s);
}

uint64_t ps_bucket_floats(uint64_t n_floats, uint32_t n_buckets, uint64_t unit)
{
    uint64_t wanted = (n_floats + n_buckets - 1) / n_buckets;
    return (wanted + unit - 1) / unit * unit;
}

uint32_t ps_best_profiled(const struct ps_iteration *it, const struct ps_profile *p, bool pipelined,
                          uint64_t unit, uint32_t most)
{
    struct ps_iteration timed = *it;
    double best = INFINITY;
    uint32_t n = 1;
    if (pipelined) {
        timed.forward_s = p->points[0].at_s;
        timed.backward_s = p->points[p->n_points - 1].at_s - timed.forward_s;
        return ps_best_buckets(&timed, true, most);
    }
    for (uint32_t l = 1; l <= most; l++)
        best = fmin(best, ps_profiled_s(it, p, ps_bucket_floats(p->n_floats, l, unit)));
    while (n < most && ps_profiled_s(it, p, ps_bucket_floats(p->n_floats, n, unit)) > close * best)
        n++;
    return n;
}
