/* topk's loops. What looks at every value is plain, for the compiler to vectorise; the rest is about the few
 * that are large. PS_TOPK_ROW names the symbol.
 *
 * |x| as bits orders as the values do. The k-th largest is found digit by digit, from a histogram of the bits
 * above `shift` of all that may still be it. */
#include "proto/codecs/bits.h"
#include "proto/codecs/kernels.h"

enum { GROUP = 256, FIRST_SHIFT = 18, NEXT_BITS = 9, BINS = 1 << (31 - FIRST_SHIFT) };
#define ANY_BITS (~SIGN_BIT)

/* Magnitudes from lo to hi, as bits; of those at most, `room` are taken, and all above. */
struct threshold {
    uint32_t lo, hi;
    size_t room;
};

static inline uint32_t magnitude(float v)
{
    return bits_of(v) & ANY_BITS;
}

/* Where the values are whose magnitude is from lo to hi, in ascending order: how many. n <= GROUP. */
static inline size_t find_hits(unsigned char *at, const float *restrict x, size_t n, uint32_t lo, uint32_t hi)
{
    _Alignas(8) unsigned char is_hit[GROUP];
    size_t n_hits = 0, n_words = (n + 7) / 8;
    memset(is_hit + (n_words > 0 ? (n_words - 1) * 8 : 0), 0, 8);
    for (size_t i = 0; i < n; i++)
        is_hit[i] = magnitude(x[i]) - lo <= hi - lo;
    for (size_t w = 0; w < n_words; w++) {
        uint64_t word;
        memcpy(&word, is_hit + 8 * w, sizeof word);
        for (; word != 0; word &= word - 1)
            at[n_hits++] = (unsigned char)(8 * w + (size_t)__builtin_ctzll(word) / 8);
    }
    return n_hits;
}

static inline size_t count_from(const float *restrict x, size_t n, uint32_t lo)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i += GROUP) {
        const size_t end = n - i < GROUP ? n : i + GROUP;
        uint32_t here = 0;
        for (size_t j = i; j < end; j++)
            here += magnitude(x[j]) >= lo;
        count += here;
    }
    return count;
}

/* Narrows t to the bin of 2^shift magnitudes in which its room ends, counted from above. */
static void narrow(struct threshold *t, uint32_t *bins, const float *x, size_t n, uint32_t base,
                   uint32_t shift)
{
    const size_t n_bins = ((size_t)(t->hi - base) >> shift) + 1;
    unsigned char at[GROUP];
    size_t b = n_bins;
    memset(bins, 0, n_bins * sizeof *bins);
    for (size_t i = 0; i < n; i += GROUP) {
        size_t n_hits = find_hits(at, x + i, n - i < GROUP ? n - i : GROUP, t->lo, t->hi);
        for (size_t h = 0; h < n_hits; h++)
            bins[(magnitude(x[i + at[h]]) - base) >> shift]++;
    }
    while (bins[--b] < t->room)
        t->room -= bins[b];
    t->lo = base + ((uint32_t)b << shift);
    t->hi = t->lo + (1u << shift) - 1;
}

/* A magnitude that at least k values reach, and hardly more than twice as many: most values need not be
 * looked at one by one. Guessed from one of each 64, and 0 where the guess fails. */
static uint32_t find_floor(uint32_t *bins, const float *x, size_t n, size_t k)
{
    enum { STRIDE = 64, LEAST = 64 };
    const size_t n_samples = n / STRIDE, want = 2 * k / STRIDE + 8;
    size_t b = BINS, seen = 0;
    if (n_samples < LEAST || want >= n_samples)
        return 0;
    memset(bins, 0, BINS * sizeof *bins);
    for (size_t i = 0; i < n_samples; i++)
        bins[magnitude(x[i * STRIDE + i % STRIDE]) >> FIRST_SHIFT]++;
    while (seen < want)
        seen += bins[--b];
    uint32_t floor = (uint32_t)b << FIRST_SHIFT;
    return count_from(x, n, floor) >= k ? floor : 0;
}

static struct threshold find_threshold(const float *x, size_t n, size_t k)
{
    uint32_t bins[BINS];
    struct threshold t = {.lo = find_floor(bins, x, n, k), .hi = ANY_BITS, .room = k};
    narrow(&t, bins, x, n, 0, FIRST_SHIFT);
    narrow(&t, bins, x, n, t.lo, FIRST_SHIFT - NEXT_BITS);
    narrow(&t, bins, x, n, t.lo, 0);
    return t;
}

/* The scale as int8's. */
static float scale_of(uint32_t largest)
{
    if (largest >= INF_BITS)
        return float_of(QUIET_NAN);
    return largest < bits_of(PS_INT8_LEAST) ? 0 : float_of(bits_of(float_of(largest) / 127.0f) & ~0xffu);
}

static void encode(void *payload, const float *x, size_t n, size_t k)
{
    struct threshold t = find_threshold(x, n, k);
    const float scale = scale_of(largest_bits(x, n));
    const float inverse = scale > 0 ? 1.0f / scale : 0; /* of NaN, too */
    unsigned char *counts = (unsigned char *)payload + sizeof scale, *places, *values, at[GROUP];
    places = counts + (n + PS_TOPK_BLOCK - 1) / PS_TOPK_BLOCK;
    values = places + k;
    memcpy(payload, &scale, sizeof scale);
    for (size_t i = 0; i < n; i += PS_TOPK_BLOCK) {
        size_t n_hits = find_hits(at, x + i, n - i < PS_TOPK_BLOCK ? n - i : PS_TOPK_BLOCK, t.lo, ANY_BITS);
        unsigned char *first = places;
        for (size_t h = 0; h < n_hits; h++) {
            const float v = x[i + at[h]];
            if (magnitude(v) <= t.hi && t.room == 0)
                continue;
            t.room -= magnitude(v) <= t.hi;
            *places++ = at[h];
            *values++ = inverse > 0 ? (unsigned char)nearest_bits(v * inverse) : 0;
        }
        *counts++ = (unsigned char)(places - first);
    }
}

/* The payload may lie where a peer still writes, after it was checked: each byte is read once, and what it
 * says is kept within bounds. */
static void decode(float *x, const void *payload, size_t n, size_t k)
{
    const unsigned char *counts = (const unsigned char *)payload + sizeof(float);
    const unsigned char *places = counts + (n + PS_TOPK_BLOCK - 1) / PS_TOPK_BLOCK;
    const int8_t *values = (const int8_t *)places + k;
    float scale;
    memcpy(&scale, payload, sizeof scale);
    memset(x, 0, n * sizeof *x);
    for (size_t i = 0; i < n; i += PS_TOPK_BLOCK) {
        const size_t room = n - i, here = *(const volatile unsigned char *)counts++;
        size_t hits = here < k ? here : k;
        k -= hits;
        for (; hits > 0; hits--, places++, values++) {
            const size_t at = *(const volatile unsigned char *)places;
            if (at < room)
                x[i + at] = (float)*values * scale;
        }
    }
}

extern const struct ps_codec_topk_loops PS_TOPK_ROW;
const struct ps_codec_topk_loops PS_TOPK_ROW = {encode, decode};
