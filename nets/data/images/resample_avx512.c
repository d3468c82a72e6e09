/* resample_avx512.c: the loops of resample_loops.h for AVX-512 with VBMI. As in resample_avx2.c, an
 * instruction multiplies the two pixels of a column by 128 - w and w and adds them.
 *
 * 32 bytes of the view are picked at a time, from 64 bytes of the row. Their table has a shuffle of bytes,
 * the weights and the first pixel. The view's columns, of three bytes, may begin in one group and end in the
 * next. */
#include <immintrin.h>
#include <stddef.h>
#include <string.h>

#include "nets/data/images/resample_loops.h"

enum { PICKED = 32, BYTES = 64, REACH = (BYTES - 6) / 3, SPILL = 8 };

/* A column is written to `shuffle` and `weights` as eight bytes, of which some may lie before or after them.
 */
struct group {
    uint8_t after_weights[SPILL]; /* of the group before */
    uint32_t first;               /* pixel of the row */
    uint8_t unused[BYTES - 2 * SPILL - sizeof(uint32_t)];
    uint8_t before_shuffle[SPILL];
    uint8_t shuffle[BYTES];
    uint8_t around[BYTES];
    uint8_t weights[BYTES];
};

_Static_assert(sizeof(struct group) == CNN_RESAMPLE_TABLE && PICKED == CNN_RESAMPLE_PICKED &&
                   SPILL <= CNN_RESAMPLE_TABLE_END,
               "cnn_resample_table_bytes");
_Static_assert(BYTES <= CNN_RESAMPLE_SLACK, "a load may begin at the last pixel");

/* Bytes `at` to end - 1 of the view's row. false: their pixels are not within 64 bytes. */
static bool prepare_group(const struct cnn_columns *c, uint32_t at, uint32_t end, struct group *g)
{
    uint32_t x = at / 3, last = (end - 1) / 3;
    uint32_t left = c->at[x] < c->at[last] ? c->at[x] : c->at[last];
    size_t to = offsetof(struct group, shuffle) - 2 * (size_t)(at - 3 * x);

    g->first = left;
    for (; x <= last; x++, to += 6) {
        uint32_t skip = c->at[x] - left;
        uint64_t shuffle = cnn_resample_shuffle(skip, c->weights[x]);
        uint64_t weights = cnn_resample_weights(c->weights[x]);
        if (skip > REACH)
            return false;
        memcpy((uint8_t *)g + to, &shuffle, sizeof shuffle);
        memcpy((uint8_t *)g + to + 2 * BYTES, &weights, sizeof weights);
    }
    return true;
}

static bool prepare(const struct cnn_columns *c)
{
    struct group *g = (void *)c->table;
    uint32_t n = 3 * c->n;

    for (uint32_t at = 0; at < n; at += PICKED, g++)
        if (!prepare_group(c, at, at + PICKED < n ? at + PICKED : n, g))
            return false;
    return true;
}

/* Sums of products, divided by 128 and rounded: the instruction is (256 sum + 2^14) / 2^15. */
static __m512i weigh(__m512i pairs, __m512i weights)
{
    return _mm512_mulhrs_epi16(_mm512_maddubs_epi16(pairs, weights), _mm512_set1_epi16(256));
}

static __m512i load(const void *from)
{
    return _mm512_loadu_si512(from);
}

static void blend_vector(const uint8_t *top, const uint8_t *low, __m512i weights, uint8_t *out)
{
    __m512i a = load(top), b = load(low);
    __m512i left = weigh(_mm512_unpacklo_epi8(a, b), weights);
    __m512i right = weigh(_mm512_unpackhi_epi8(a, b), weights);
    _mm512_storeu_si512(out, _mm512_packus_epi16(left, right));
}

/* The last vector is moved back to end at n, and writes some bytes twice. */
static void blend(const uint8_t *top, const uint8_t *low, uint8_t weight, size_t n, uint8_t *out)
{
    __m512i weights = _mm512_set1_epi16((short)(weight << 8 | (CNN_RESAMPLE_STEPS - weight)));

    if (weight == 0) {
        memcpy(out, top, n);
        return;
    }
    if (n < BYTES) {
        cnn_resample_plain.blend(top, low, weight, n, out);
        return;
    }
    for (size_t i = 0; i + BYTES <= n; i += BYTES)
        blend_vector(top + i, low + i, weights, out + i);
    blend_vector(top + n - BYTES, low + n - BYTES, weights, out + n - BYTES);
}

/* A group of two rows, one in each half. */
static __m512i pick_group(const uint8_t *top, const uint8_t *low, const struct group *g)
{
    __m512i shuffle = load(g->shuffle), weights = load(g->weights);
    size_t at = 3 * (size_t)g->first;
    __m512i a = weigh(_mm512_permutexvar_epi8(shuffle, load(top + at)), weights);
    __m512i b = weigh(_mm512_permutexvar_epi8(shuffle, load(low + at)), weights);
    return _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), _mm512_packus_epi16(a, b));
}

/* Around the caches, to multiples of 32 bytes. */
static void pick_streaming(const uint8_t *top, const uint8_t *low, const struct group *g, size_t n,
                           uint8_t *left, uint8_t *right)
{
    for (size_t at = 0; at < n; at += PICKED, g++) {
        __m512i both = pick_group(top, low, g);
        _mm256_stream_si256((void *)(left + at), _mm512_castsi512_si256(both));
        _mm256_stream_si256((void *)(right + at), _mm512_extracti64x4_epi64(both, 1));
    }
}

static void pick(const uint8_t *const rows[2], const struct cnn_columns *c, uint8_t *const out[2])
{
    const struct group *g = (const void *)c->table;
    const uint8_t *top = rows[0], *low = rows[1];
    uint8_t *left = out[0], *right = out[1];
    size_t n = 3 * (size_t)c->n, at = 0;

    if (c->streams) {
        pick_streaming(top, low, g, n, left, right);
        return;
    }
    for (; at + PICKED <= n; at += PICKED, g++) {
        __m512i both = pick_group(top, low, g);
        _mm256_storeu_si256((void *)(left + at), _mm512_castsi512_si256(both));
        _mm256_storeu_si256((void *)(right + at), _mm512_extracti64x4_epi64(both, 1));
    }
    if (at < n) {
        __mmask32 rest = (__mmask32)((UINT64_C(1) << (n - at)) - 1);
        __m512i both = pick_group(top, low, g);
        _mm256_mask_storeu_epi8(left + at, rest, _mm512_castsi512_si256(both));
        _mm256_mask_storeu_epi8(right + at, rest, _mm512_extracti64x4_epi64(both, 1));
    }
}

static void flush(void)
{
    _mm_sfence();
}

extern const struct cnn_resample_loops cnn_resample_avx512;
const struct cnn_resample_loops cnn_resample_avx512 = {"avx512", prepare, blend, pick, flush};
