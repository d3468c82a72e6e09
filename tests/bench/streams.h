/* streams.h: plain loops over vectors, as a measure of memory bandwidth. */
#ifndef BENCH_STREAMS_H
#define BENCH_STREAMS_H

#include <stddef.h>

enum { BENCH_MAX_STREAMS = 4 };

/* One for each row of ps_vec_rows, compiled with its flags. run[k]: x[j] += c for each of the first k
 * vectors, in one loop; NULL for k below 2. */
struct bench_streams {
    const char *row;
    void (*run[BENCH_MAX_STREAMS + 1])(float *const *x, float c, size_t n);
    /* d = alpha (x - y); y += d; x -= d: both halves of an elastic exchange. */
    void (*elastic)(float *restrict x, float *restrict y, float alpha, size_t n);
};

extern const struct bench_streams bench_streams_scalar;
#ifdef __x86_64__
extern const struct bench_streams bench_streams_avx2, bench_streams_avx512;
#endif

/* The best row that this machine can run. */
const struct bench_streams *bench_streams_best(void);

#endif
