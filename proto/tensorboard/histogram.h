/* histogram.h: counts of values by buckets, as TensorBoard shows them. One thread. */
#ifndef PS_TENSORBOARD_HISTOGRAM_H
#define PS_TENSORBOARD_HISTOGRAM_H

#include <stddef.h>
#include <stdint.h>

enum { PS_HISTOGRAM_BUCKETS = 256 };

/* Bucket k holds values below limits[k] that no bucket before it holds; the last has whatever is left. */
struct ps_histogram {
    size_t n_buckets; /* 1 to PS_HISTOGRAM_BUCKETS */
    double limits[PS_HISTOGRAM_BUCKETS];
    uint64_t counts[PS_HISTOGRAM_BUCKETS];
    uint64_t n;
    double min, max, sum, sum_squares; /* of the values; undefined while n is 0 */
};

/* Empty, for values from 0 on: the first limit is `lowest`, each is `growth` times the one before, and the
 * last is the first that is `highest` or more. lowest > 0, growth > 1; too many buckets end it sooner. */
void ps_histogram_init(struct ps_histogram *h, double lowest, double highest, double growth);
/* Values that are not finite are left out. */
void ps_histogram_add(struct ps_histogram *h, double value);
/* Empty again, with the same buckets. */
void ps_histogram_clear(struct ps_histogram *h);

#endif
