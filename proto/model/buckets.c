#include "proto/model/buckets.h"

#include <math.h>

static const double close = 1.001; /* times within 0.1 % count as equal */

double ps_comm_s(const struct ps_iteration *it, uint32_t n_buckets)
{
    double p = it->members, share = (p - 1) / p;
    if (it->members < 2)
        return 0;
    return n_buckets * (2 * (p - 1) * it->alpha_s + it->sync_s) +
           share * it->n_bytes * (2 * it->beta_s + it->gamma_s);
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
