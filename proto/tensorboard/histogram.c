#include "proto/tensorboard/histogram.h"

#include <math.h>
#include <string.h>

void ps_histogram_init(struct ps_histogram *h, double lowest, double highest, double growth)
{
    *h = (struct ps_histogram){.n_buckets = 1, .limits = {lowest}};
    while (h->limits[h->n_buckets - 1] < highest && h->n_buckets < PS_HISTOGRAM_BUCKETS) {
        h->limits[h->n_buckets] = h->limits[h->n_buckets - 1] * growth;
        h->n_buckets++;
    }
}

/* The first whose limit is above the value. */
static size_t bucket_of(const struct ps_histogram *h, double value)
{
    size_t low = 0, high = h->n_buckets - 1;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (value < h->limits[middle])
            high = middle;
        else
            low = middle + 1;
    }
    return low;
}

void ps_histogram_add(struct ps_histogram *h, double value)
{
    if (!isfinite(value))
        return;
    h->counts[bucket_of(h, value)]++;
    h->min = h->n == 0 ? value : fmin(h->min, value);
    h->max = h->n == 0 ? value : fmax(h->max, value);
    h->sum += value;
    h->sum_squares += value * value;
    h->n++;
}

void ps_histogram_clear(struct ps_histogram *h)
{
    memset(h->counts, 0, sizeof h->counts);
    h->n = 0;
    h->min = h->max = h->sum = h->sum_squares = 0;
}
