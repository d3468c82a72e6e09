/* One row of kernels. Meson compiles this file once for each instruction set, with PS_VEC_ROW as the symbol
 * and PS_VEC_NAME as the name of the row. The loops are plain, so that the compiler vectorises each of them
 * with the same order of operations. */
#include "proto/vec/vec.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

/* All loops below are branch-free, so finiteness is decided by a bit test. */
static inline uint32_t nonfinite(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return (bits & 0x7f800000u) == 0x7f800000u;
}

static size_t first_nonfinite(const float *x, size_t n)
{
    enum { BLOCK = 4096 };
    for (size_t begin = 0; begin < n; begin += BLOCK) {
        size_t end = n - begin < BLOCK ? n : begin + BLOCK;
        uint32_t bad = 0;
        for (size_t i = begin; i < end; i++)
            bad |= nonfinite(x[i]);
        for (size_t i = begin; bad && i < end; i++)
            if (nonfinite(x[i]))
                return i;
    }
    return n;
}

static void axpy(float *restrict y, const float *restrict x, float a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        y[i] += a * x[i];
}

static void elastic(float *restrict x, const float *restrict center, float a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] -= a * (x[i] - center[i]);
}

static void nesterov(float *restrict at, float *restrict x, float *restrict v, const float *restrict g,
                     float eta, float delta, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float speed = delta * v[i] - eta * g[i];
        float point = x[i] + speed;
        v[i] = speed;
        x[i] = point;
        at[i] = point + delta * speed;
    }
}

static size_t exchange_elastic(float *restrict center, float *restrict m, float a, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        float before = center[i];
        float after = before + a * (m[i] - before);
        uint32_t refuse = nonfinite(after);
        bad += refuse;
        m[i] = before;
        center[i] = refuse ? before : after;
    }
    return bad;
}

static size_t elastic_in_place(float *restrict center, float *restrict x, float a, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        float before = center[i], own = x[i];
        float after = before + a * (own - before);
        uint32_t refuse = nonfinite(after);
        bad += refuse;
        center[i] = refuse ? before : after;
        x[i] = own - a * (own - before);
    }
    return bad;
}

static size_t exchange_descend(float *restrict center, float *restrict m, float eta, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        float before = center[i];
        float after = before - eta * m[i];
        uint32_t refuse = nonfinite(after);
        bad += refuse;
        after = refuse ? before : after;
        m[i] = after;
        center[i] = after;
    }
    return bad;
}

static size_t exchange_compensate(float *restrict center, const float *restrict seen, float *restrict m,
                                  float eta, float lambda, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        float before = center[i], g = m[i];
        float after = before - eta * (g + lambda * (g * g) * (before - seen[i]));
        uint32_t refuse = nonfinite(after);
        bad += refuse;
        after = refuse ? before : after;
        m[i] = after;
        center[i] = after;
    }
    return bad;
}

static size_t exchange_mean(float *restrict center, float *restrict m, float a, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        float before = center[i];
        float after = before + a * (m[i] - before);
        uint32_t refuse = nonfinite(after);
        bad += refuse;
        after = refuse ? before : after;
        m[i] = after;
        center[i] = after;
    }
    return bad;
}

/* v is only non-finite where the center is: pull times a non-finite value is not finite. */
static size_t exchange_momentum(float *restrict center, float *restrict v, float *restrict m, float mu,
                                float eta, float pull, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        float before = center[i], v_before = v[i];
        float speed = mu * v_before - eta * m[i];
        float after = before + pull * speed;
        uint32_t refuse = nonfinite(after);
        bad += refuse;
        after = refuse ? before : after;
        v[i] = refuse ? v_before : speed;
        m[i] = after;
        center[i] = after;
    }
    return bad;
}

/* A sum that overflows divides to a finite center, so both are checked. */
static size_t exchange_adagrad(float *restrict center, float *restrict s, float *restrict m, float eta,
                               float epsilon, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        float before = center[i], s_before = s[i], g = m[i];
        float sum = s_before + g * g;
        float after = before - eta * g / (sqrtf(sum) + epsilon);
        uint32_t refuse = nonfinite(after) | nonfinite(sum);
        bad += refuse;
        after = refuse ? before : after;
        s[i] = refuse ? s_before : sum;
        m[i] = after;
        center[i] = after;
    }
    return bad;
}

static size_t exchange_adam(float *restrict center, float *restrict v, float *restrict s, float *restrict m,
                            const struct ps_adam *k, size_t n)
{
    const struct ps_adam a = *k;
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        float before = center[i], v_before = v[i], s_before = s[i], g = m[i];
        float first = a.beta1 * v_before + a.rest1 * g;
        float second = a.beta2 * s_before + a.rest2 * (g * g);
        float after = before - a.rate * first / (a.root * sqrtf(second) + a.epsilon);
        uint32_t refuse = nonfinite(after) | nonfinite(second);
        bad += refuse;
        after = refuse ? before : after;
        v[i] = refuse ? v_before : first;
        s[i] = refuse ? s_before : second;
        m[i] = after;
        center[i] = after;
    }
    return bad;
}

/* v is only non-finite where the center is. */
static size_t exchange_outer(float *restrict center, float *restrict v, float *restrict m, float eta,
                             float beta, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        float before = center[i], v_before = v[i], d = -m[i];
        float speed = beta * v_before + d;
        float after = before - eta * (d + beta * speed);
        uint32_t refuse = nonfinite(after);
        bad += refuse;
        after = refuse ? before : after;
        v[i] = refuse ? v_before : speed;
        m[i] = after;
        center[i] = after;
    }
    return bad;
}

/* A sum may overflow where the center does not, so both are checked. */
static size_t exchange_gather(float *restrict center, float *restrict s, float *restrict m, float rate,
                              size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        float before = center[i], s_before = s[i], d = -m[i];
        float sum = s_before + d;
        float after = before - rate * d;
        uint32_t refuse = nonfinite(after) | nonfinite(sum);
        bad += refuse;
        after = refuse ? before : after;
        s[i] = refuse ? s_before : sum;
        m[i] = after;
        center[i] = after;
    }
    return bad;
}

static size_t exchange_settle(float *restrict center, float *restrict v, float *restrict s, float *restrict m,
                              const struct ps_settle *k, size_t n)
{
    const struct ps_settle a = *k;
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        float before = center[i], v_before = v[i], s_before = s[i], d = -m[i];
        float speed = a.beta * v_before + a.share * (s_before + d);
        float after = before - a.rate * d - a.pull * speed;
        uint32_t refuse = nonfinite(after) | nonfinite(speed);
        bad += refuse;
        after = refuse ? before : after;
        v[i] = refuse ? v_before : speed;
        s[i] = refuse ? s_before : 0;
        m[i] = after;
        center[i] = after;
    }
    return bad;
}

static size_t exchange_admm(float *restrict center, float *restrict m, float share, float pull, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        float before = center[i];
        float after = before + share * (m[i] + pull * before);
        uint32_t refuse = nonfinite(after);
        bad += refuse;
        m[i] = before;
        center[i] = refuse ? before : after;
    }
    return bad;
}

static size_t follow(float *restrict z, const float *restrict center, float a, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        float before = z[i];
        float after = before + a * (center[i] - before);
        uint32_t refuse = nonfinite(after);
        bad += refuse;
        z[i] = refuse ? before : after;
    }
    return bad;
}

/* Sixteen parallel sums, so that every row adds in the same order, in as many registers as they need: a
 * single vector type for all of them would be kept in memory where registers are narrower. */
#if defined(__AVX512F__)
enum { REGISTER_BYTES = 64 };
#elif defined(__AVX2__)
enum { REGISTER_BYTES = 32 };
#else
enum { REGISTER_BYTES = 16 };
#endif
typedef float in_register __attribute__((vector_size(REGISTER_BYTES)));
typedef float in_memory __attribute__((vector_size(REGISTER_BYTES), aligned(4), may_alias));
enum { WIDE = 16, EACH = REGISTER_BYTES / 4, PARTS = WIDE / EACH, ROUND = 128 };

/* The end of a block of float sums that begins at i, after which they are added up as doubles. */
static inline size_t round_end(size_t i, size_t n)
{
    size_t whole = (n - i) / WIDE;
    return i + WIDE * (whole < ROUND ? whole : ROUND);
}

static inline double sum_of(const in_register *parts)
{
    double sum = 0;
    for (int j = 0; j < WIDE; j++)
        sum += (double)parts[j / EACH][j % EACH];
    return sum;
}

static double squares(const float *x, size_t n)
{
    double sum = 0;
    size_t i = 0;
    while (i + WIDE <= n) {
        in_register parts[PARTS] = {{0}};
        for (size_t end = round_end(i, n); i < end; i += WIDE)
#pragma GCC unroll 4
            for (int k = 0; k < PARTS; k++) {
                in_register v = ((const in_memory *)(x + i))[k];
                parts[k] += v * v;
            }
        sum += sum_of(parts);
    }
    for (; i < n; i++)
        sum += (double)x[i] * (double)x[i];
    return sum;
}

static double squared_distance(const float *x, const float *y, size_t n)
{
    double sum = 0;
    size_t i = 0;
    while (i + WIDE <= n) {
        in_register parts[PARTS] = {{0}};
        for (size_t end = round_end(i, n); i < end; i += WIDE)
#pragma GCC unroll 4
            for (int k = 0; k < PARTS; k++) {
                in_register d = ((const in_memory *)(x + i))[k] - ((const in_memory *)(y + i))[k];
                parts[k] += d * d;
            }
        sum += sum_of(parts);
    }
    for (; i < n; i++)
        sum += (double)(x[i] - y[i]) * (double)(x[i] - y[i]);
    return sum;
}

static void decay(float *restrict out, const float *restrict g, const float *restrict x, float lambda,
                  size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = g[i] + lambda * x[i];
}

static void scale(float *x, float a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] *= a;
}

static void copy(float *restrict dst, const float *restrict src, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = src[i];
}

static void order(float *restrict low, float *restrict high, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float a = low[i], b = high[i];
        low[i] = b < a ? b : a;
        high[i] = b < a ? a : b;
    }
}

static size_t copy_finite(float *restrict dst, const float *restrict src, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        float v = src[i];
        uint32_t refuse = nonfinite(v);
        bad += refuse;
        dst[i] = refuse ? dst[i] : v;
    }
    return bad;
}

static void heavy_ball(float *restrict x, float *restrict v, const float *restrict g, float eta, float mu,
                       size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float speed = mu * v[i] - eta * g[i];
        v[i] = speed;
        x[i] += speed;
    }
}

static void add(float *restrict out, const float *restrict x, const float *restrict y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] + y[i];
}

static void subtract(float *restrict out, const float *restrict x, const float *restrict y, size_t n)
{
    for (size_t i = 0; i < n; i++)
        out[i] = x[i] - y[i];
}

static size_t take_change(float *restrict change, float *restrict start, const float *restrict x, size_t n)
{
    uint32_t bad = 0;
    for (size_t i = 0; i < n; i++) {
        float now = x[i], before = start[i], by = now - before;
        uint32_t refuse = nonfinite(by);
        bad += refuse;
        change[i] = by;
        start[i] = refuse ? before : now;
    }
    return bad;
}

static void rebase(float *restrict x, float *restrict start, const float *restrict center, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        x[i] = center[i] + (x[i] - start[i]);
        start[i] = center[i];
    }
}

static void admm_message(float *restrict m, const float *restrict x, const float *restrict lambda,
                         const float *restrict g, float eta, float pull, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++)
        m[i] = scale * (x[i] - eta * g[i] + pull * (lambda[i] - x[i]));
}

static void admm_land(float *restrict x, float *restrict lambda, const float *restrict center,
                      const float *restrict g, float eta, float pull, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float multiplier = lambda[i] - (x[i] - center[i]);
        lambda[i] = multiplier;
        x[i] = scale * (x[i] - eta * g[i] + pull * (multiplier + center[i]));
    }
}

extern const struct ps_vec PS_VEC_ROW;
const struct ps_vec PS_VEC_ROW = {
    .name = PS_VEC_NAME,
    .first_nonfinite = first_nonfinite,
    .axpy = axpy,
    .elastic = elastic,
    .nesterov = nesterov,
    .exchange_elastic = exchange_elastic,
    .elastic_in_place = elastic_in_place,
    .exchange_descend = exchange_descend,
    .exchange_compensate = exchange_compensate,
    .exchange_mean = exchange_mean,
    .exchange_momentum = exchange_momentum,
    .exchange_adagrad = exchange_adagrad,
    .exchange_adam = exchange_adam,
    .exchange_outer = exchange_outer,
    .exchange_gather = exchange_gather,
    .exchange_settle = exchange_settle,
    .exchange_admm = exchange_admm,
    .follow = follow,
    .squares = squares,
    .squared_distance = squared_distance,
    .decay = decay,
    .scale = scale,
    .copy = copy,
    .copy_finite = copy_finite,
    .order = order,
    .heavy_ball = heavy_ball,
    .add = add,
    .subtract = subtract,
    .take_change = take_change,
    .rebase = rebase,
    .admm_message = admm_message,
    .admm_land = admm_land,
};
