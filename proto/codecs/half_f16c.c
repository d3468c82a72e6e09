/* IEEE 754 half precision by F16C's instructions, eight values at a time. */
#include <immintrin.h>

#include "proto/codecs/bits.h"
#include "proto/codecs/kernels.h"

enum { WIDE = 8 };

/* Clamps finite values to 65504: the instruction alone would make larger ones infinite. */
static inline __m256 saturated(__m256 v)
{
    const __m256 sign = _mm256_set1_ps(-0.0f), largest = _mm256_set1_ps(65504.0f);
    __m256 a = _mm256_andnot_ps(sign, v);
    __m256 beyond =
        _mm256_and_ps(_mm256_cmp_ps(a, largest, _CMP_GT_OQ),
                      _mm256_cmp_ps(a, _mm256_castsi256_ps(_mm256_set1_epi32(INF_BITS)), _CMP_LT_OQ));
    return _mm256_blendv_ps(v, _mm256_or_ps(_mm256_and_ps(sign, v), largest), beyond);
}

static inline __m128i halves_of(const float *x)
{
    return _mm256_cvtps_ph(saturated(_mm256_loadu_ps(x)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

static inline __m256 floats_of(const unsigned char *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}

static void encode(void *payload, const float *x, size_t n)
{
    unsigned char *p = payload;
    size_t i = 0;
    for (; i + WIDE <= n; i += WIDE)
        _mm_storeu_si128((__m128i *)(void *)(p + 2 * i), halves_of(x + i));
    if (i < n) {
        float rest[WIDE] = {0};
        __m128i halves;
        memcpy(rest, x + i, (n - i) * sizeof *x);
        halves = halves_of(rest);
        memcpy(p + 2 * i, &halves, 2 * (n - i));
    }
}

/* The last values, fewer than eight. */
static inline void decode_rest(float *rest, const unsigned char *p, size_t n)
{
    unsigned char halves[2 * WIDE] = {0};
    memcpy(halves, p, 2 * n);
    _mm256_storeu_ps(rest, floats_of(halves));
}

static void decode(float *x, const void *payload, size_t n)
{
    const unsigned char *p = payload;
    size_t i = 0;
    for (; i + WIDE <= n; i += WIDE)
        _mm256_storeu_ps(x + i, floats_of(p + 2 * i));
    if (i < n) {
        float rest[WIDE];
        decode_rest(rest, p + 2 * i, n - i);
        memcpy(x + i, rest, (n - i) * sizeof *x);
    }
}

static void add(float *x, const void *payload, size_t n)
{
    const unsigned char *p = payload;
    size_t i = 0;
    for (; i + WIDE <= n; i += WIDE)
        _mm256_storeu_ps(x + i, _mm256_add_ps(_mm256_loadu_ps(x + i), floats_of(p + 2 * i)));
    if (i < n) {
        float rest[WIDE];
        decode_rest(rest, p + 2 * i, n - i);
        for (size_t k = 0; i + k < n; k++)
            x[i + k] += rest[k];
    }
}

extern const struct ps_codec_loops PS_HALF_ROW;
const struct ps_codec_loops PS_HALF_ROW = {encode, decode, add};
