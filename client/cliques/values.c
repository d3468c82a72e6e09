/* Loops over the values of collectives. A minimum of +0 and -0 is -0 and a maximum +0, and what contains NaN
 * is the same NaN: the result does not depend on which side a value stands, so all members may compute it. */
#include "client/cliques/values.h"

#include <math.h>

#include "proto/codecs/codec.h"

#define ADD(x, y) ((x) + (y))
/* Integers wrap. */
#define WRAP32(x, y)     ((int32_t)((uint32_t)(x) + (uint32_t)(y)))
#define WRAP64(x, y)     ((int64_t)((uint64_t)(x) + (uint64_t)(y)))
#define LESS(x, y)       ((y) < (x) ? (y) : (x))
#define MORE(x, y)       ((y) > (x) ? (y) : (x))
#define EITHER_NAN(x, y) ((x) != (x) || (y) != (y))
#define FLOAT_LESS(x, y) (EITHER_NAN(x, y) ? NAN : (y) < (x) || ((y) == (x) && signbit(y) != 0) ? (y) : (x))
#define FLOAT_MORE(x, y) (EITHER_NAN(x, y) ? NAN : (y) > (x) || ((y) == (x) && signbit(y) == 0) ? (y) : (x))

#define FOLD(name, type, of)                                                                                 \
    static void name(void *restrict to, const void *restrict from, size_t n)                                 \
    {                                                                                                        \
        type *restrict x = to;                                                                               \
        const type *restrict y = from;                                                                       \
        for (size_t i = 0; i < n; i++)                                                                       \
            x[i] = (type)of(x[i], y[i]);                                                                     \
    }

#define DIVIDE(name, type)                                                                                   \
    static void name(void *of, size_t n, int by)                                                             \
    {                                                                                                        \
        type *x = of;                                                                                        \
        for (size_t i = 0; i < n; i++)                                                                       \
            x[i] /= (type)by;                                                                                \
    }

FOLD(add_float32, float, ADD)
FOLD(min_float32, float, FLOAT_LESS)
FOLD(max_float32, float, FLOAT_MORE)
DIVIDE(divide_float32, float)
FOLD(add_float64, double, ADD)
FOLD(min_float64, double, FLOAT_LESS)
FOLD(max_float64, double, FLOAT_MORE)
DIVIDE(divide_float64, double)
FOLD(add_int32, int32_t, WRAP32)
FOLD(min_int32, int32_t, LESS)
FOLD(max_int32, int32_t, MORE)
DIVIDE(divide_int32, int32_t)
FOLD(add_int64, int64_t, WRAP64)
FOLD(min_int64, int64_t, LESS)
FOLD(max_int64, int64_t, MORE)
DIVIDE(divide_int64, int64_t)

/* Half types are computed in float32, in blocks that stay in the cache, and rounded by their codec. */
enum { HALF_BLOCK = 1024 };

static void fold_half(const struct ps_codec *half, void (*fold)(void *restrict, const void *restrict, size_t),
                      uint16_t *x, const uint16_t *y, size_t n)
{
    float a[HALF_BLOCK], b[HALF_BLOCK];
    for (size_t at = 0, k; at < n; at += k) {
        k = n - at < HALF_BLOCK ? n - at : HALF_BLOCK;
        half->decode(half, a, x + at, k);
        half->decode(half, b, y + at, k);
        fold(a, b, k);
        half->encode(half, x + at, a, k);
    }
}

static void divide_half(const struct ps_codec *half, uint16_t *x, size_t n, int by)
{
    float a[HALF_BLOCK];
    for (size_t at = 0, k; at < n; at += k) {
        k = n - at < HALF_BLOCK ? n - at : HALF_BLOCK;
        half->decode(half, a, x + at, k);
        divide_float32(a, k, by);
        half->encode(half, x + at, a, k);
    }
}

#define HALF(type, codec)                                                                                    \
    static void add_##type(void *restrict x, const void *restrict y, size_t n)                               \
    {                                                                                                        \
        fold_half(&(codec), add_float32, x, y, n);                                                           \
    }                                                                                                        \
    static void min_##type(void *restrict x, const void *restrict y, size_t n)                               \
    {                                                                                                        \
        fold_half(&(codec), min_float32, x, y, n);                                                           \
    }                                                                                                        \
    static void max_##type(void *restrict x, const void *restrict y, size_t n)                               \
    {                                                                                                        \
        fold_half(&(codec), max_float32, x, y, n);                                                           \
    }                                                                                                        \
    static void divide_##type(void *x, size_t n, int by)                                                     \
    {                                                                                                        \
        divide_half(&(codec), x, n, by);                                                                     \
    }

HALF(float16, ps_codec_fp16)
HALF(bfloat16, ps_codec_bf16)

enum {
    BYTES_float32 = 4,
    BYTES_float64 = 8,
    BYTES_int32 = 4,
    BYTES_int64 = 8,
    BYTES_float16 = 2,
    BYTES_bfloat16 = 2
};

#define ROW(type, text)                                                                                      \
    {                                                                                                        \
        .name = #type, .units = text, .bytes = BYTES_##type,                                                 \
        .fold = {[PSC_SUM] = add_##type,                                                                     \
                 [PSC_MEAN] = add_##type,                                                                    \
                 [PSC_MIN] = min_##type,                                                                     \
                 [PSC_MAX] = max_##type},                                                                    \
        .divide = divide_##type                                                                              \
    }

static const struct psc_values rows[PSC_N_TYPES] = {
    [PSC_FLOAT32] = ROW(float32, "floats"),
    [PSC_FLOAT64] = ROW(float64, "float64s"),
    [PSC_INT32] = ROW(int32, "int32s"),
    [PSC_INT64] = ROW(int64, "int64s"),
    [PSC_FLOAT16] = ROW(float16, "float16s"),
    [PSC_BFLOAT16] = ROW(bfloat16, "bfloat16s"),
    [PSC_BYTES] = {.name = "bytes", .units = "bytes", .bytes = 1}};

const struct psc_values *psc_values_of(uint32_t type)
{
    return type < PSC_N_TYPES ? &rows[type] : NULL;
}

const char *psc_operation_name(uint32_t operation)
{
    static const char *const names[PSC_N_OPERATIONS] = {
        [PSC_SUM] = "sum", [PSC_MEAN] = "mean", [PSC_MIN] = "min", [PSC_MAX] = "max"};
    return operation < PSC_N_OPERATIONS ? names[operation] : "unknown operation";
}

static const struct {
    const char *name;
    bool reduces, has_parts;
} calls[PSC_N_COLLECTIVES] = {
    [PSC_ALLREDUCE] = {"allreduce", true, false},          [PSC_REDUCE] = {"reduce", true, false},
    [PSC_BROADCAST] = {"broadcast", false, false},         [PSC_BARRIER] = {"barrier", false, false},
    [PSC_REDUCE_SCATTER] = {"reduce-scatter", true, true}, [PSC_ALLGATHER] = {"allgather", false, true}};

const char *psc_call_name(uint32_t kind)
{
    return kind < PSC_N_COLLECTIVES ? calls[kind].name : "unknown call";
}

bool psc_call_reduces(uint32_t kind)
{
    return kind < PSC_N_COLLECTIVES && calls[kind].reduces;
}

bool psc_call_has_parts(uint32_t kind)
{
    return kind < PSC_N_COLLECTIVES && calls[kind].has_parts;
}

void psc_fold_bits(void *restrict to, const void *restrict from, size_t n)
{
    unsigned char *restrict x = to;
    const unsigned char *restrict y = from;
    for (size_t i = 0; i < n; i++)
        x[i] |= y[i];
}
