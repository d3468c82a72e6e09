/* samples.h: order statistics of measured times. */
#ifndef BENCH_SAMPLES_H
#define BENCH_SAMPLES_H

#include <stddef.h>
#include <stdlib.h>

static inline int bench_by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* In ascending order. */
static inline void bench_sort(double *v, size_t n)
{
    qsort(v, n, sizeof *v, bench_by_value);
}

/* Sorts the values. Of an even number of them the upper one of the two in the middle. */
static inline double bench_median(double *v, size_t n)
{
    bench_sort(v, n);
    return v[n / 2];
}

#endif
