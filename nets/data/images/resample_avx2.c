/* resample_avx2.c: the loops of resample_loops.h for AVX2. An instruction multiplies bytes by signed bytes
 * and adds pairs: the two pixels of a column with 128 - w and w.
 *
 * Four columns are picked at a time, two from 16 bytes of the row each. Their table has the two first pixels,
 * a shuffle of bytes and the weights. */
#include <immintrin.h>
#include <string.h>

#include "nets/data/images/resample_loops.h"

enum { GROUP = 4, BYTES = 32 };

struct group {
    uint32_t first[2]; /* pixels of the row */
    uint8_t shuffle[BYTES];
    int8_t weights[BYTES];
};

/* four columns have 12 bytes of the 32 that a table is for */
_Static_assert(sizeof(struct group) * CNN_RESAMPLE_PICKED / 3 / GROUP <= CNN_RESAMPLE_TABLE &&
                   sizeof(struct group) <= CNN_RESAMPLE_TABLE,
               "cnn_resample_table_bytes");

/* Columns x and x + 1, or x twice if it is the last. false: they are not within 16 bytes. */
static bool prepare_pair(const struct cnn_columns *c, uint32_t x, struct group *g, int half)
{
    uint32_t last = x + 1 < c->n ? x + 1 : x;
    uint32_t first = c->at[x] < c->at[last] ? c->at[x] : c->at[last];
    uint64_t parts[2][2] = {
        {cnn_resample_shuffle(c->at[x] - first, c->weights[x]), cnn_resample_weights(c->weights[x])},
        {cnn_resample_shuffle(c->at[last] - first, c->weights[last]),
         cnn_resample_weights(c->weights[last])}};

    if (c->at[x] - first > 3 || c->at[last] - first > 3)
        return false;
    g->first[half] = first;
    for (int k = 0; k < 2; k++) {
        memcpy(g->shuffle + 16 * half + 6 * k, &parts[k][0], sizeof parts[k][0]);
        memcpy(g->weights + 16 * half + 6 * k, &parts[k][1], sizeof parts[k][1]);
    }
    return true;
}

static bool prepare(const struct cnn_columns *c)
{
    for (uint32_t x = 0; x < c->n; x += GROUP) {
        struct group g = {0};
        for (int half = 0; half < 2; half++) {
            uint32_t at = x + 2 * (uint32_t)half;
            if (!prepare_pair(c, at < c->n ? at : c->n - 1, &g, half))
                return false;
        }
        memcpy(c->table + x / GROUP * sizeof g, &g, sizeof g);
    }
    return true;
}

/* Sums of products, divided by 128 and rounded: the instruction is (256 sum + 2^14) / 2^15. */
static __m256i weigh(__m256i pairs, __m256i weights)
{
    return _mm256_mulhrs_epi16(_mm256_maddubs_epi16(pairs, weights), _mm256_set1_epi16(256));
}

static void blend_vector(const uint8_t *top, const uint8_t *low, __m256i weights, uint8_t *out)
{
    __m256i a = _mm256_loadu_si256((const void *)top), b = _mm256_loadu_si256((const void *)low);
    __m256i left = weigh(_mm256_unpacklo_epi8(a, b), weights);
    __m256i right = weigh(_mm256_unpackhi_epi8(a, b), weights);
    _mm256_storeu_si256((void *)out, _mm256_packus_epi16(left, right));
}

/* The last vector is moved back to end at n, and writes some bytes twice. */
static void blend(const uint8_t *top, const uint8_t *low, uint8_t weight, size_t n, uint8_t *out)
{
    __m256i weights = _mm256_set1_epi16((short)(weight << 8 | (CNN_RESAMPLE_STEPS - weight)));

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

static __m256i load(const void *from)
{
    return _mm256_loadu_si256(from);
}

/* The table is read where it lies: parts of a copy, which was just written in other parts, would be slow. */
static void pick_group(const uint8_t *row, const uint8_t *g, uint8_t *out)
{
    uint32_t first[2];
    memcpy(first, g + offsetof(struct group, first), sizeof first);
    __m128i low = _mm_loadu_si128((const void *)(row + 3 * (size_t)first[0]));
    __m128i high = _mm_loadu_si128((const void *)(row + 3 * (size_t)first[1]));
    __m256i pixels =
        _mm256_shuffle_epi8(_mm256_set_m128i(high, low), load(g + offsetof(struct group, shuffle)));
    __m256i sums = weigh(pixels, load(g + offsetof(struct group, weights)));
    __m256i packed = _mm256_packus_epi16(sums, sums);
    _mm_storel_epi64((void *)out, _mm256_castsi256_si128(packed));
    _mm_storel_epi64((void *)(out + 6), _mm256_extracti128_si256(packed, 1));
}

/* A group writes 14 bytes, of which the next one replaces the last two. */
static void pick(const uint8_t *const rows[2], const struct cnn_columns *c, uint8_t *const out[2])
{
    uint32_t n_whole = (c->n - 1) / GROUP * GROUP;
    const uint8_t *g = c->table;
    uint8_t last[2][BYTES];

    for (uint32_t x = 0; x < n_whole; x += GROUP, g += sizeof(struct group)) {
        pick_group(rows[0], g, out[0] + 3 * (size_t)x);
        pick_group(rows[1], g, out[1] + 3 * (size_t)x);
    }
    for (int i = 0; i < 2; i++) {
        pick_group(rows[i], g, last[i]);
        memcpy(out[i] + 3 * (size_t)n_whole, last[i], 3 * (size_t)(c->n - n_whole));
    }
}

extern const struct cnn_resample_loops cnn_resample_avx2;
const struct cnn_resample_loops cnn_resample_avx2 = {"avx2", prepare, blend, pick, NULL};
