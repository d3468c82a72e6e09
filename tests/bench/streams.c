/* streams.c: Meson compiles this file once for each row of kernels, with BENCH_STREAMS naming the symbol and
 * BENCH_ROW the row. */
#include "tests/bench/streams.h"

static void run2(float *const *x, float c, size_t n)
{
    float *restrict a = x[0], *restrict b = x[1];
    for (size_t i = 0; i < n; i++) {
        a[i] += c;
        b[i] += c;
    }
}

static void run3(float *const *x, float c, size_t n)
{
    float *restrict a = x[0], *restrict b = x[1], *restrict d = x[2];
    for (size_t i = 0; i < n; i++) {
        a[i] += c;
        b[i] += c;
        d[i] += c;
    }
}

static void run4(float *const *x, float c, size_t n)
{
    float *restrict a = x[0], *restrict b = x[1], *restrict d = x[2], *restrict e = x[3];
    for (size_t i = 0; i < n; i++) {
        a[i] += c;
        b[i] += c;
        d[i] += c;
        e[i] += c;
    }
}

static void elastic(float *restrict x, float *restrict y, float alpha, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float d = alpha * (x[i] - y[i]);
        y[i] += d;
        x[i] -= d;
    }
}

const struct bench_streams BENCH_STREAMS = {BENCH_ROW, {NULL, NULL, run2, run3, run4}, elastic};
