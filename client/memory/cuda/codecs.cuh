/* codecs.cuh: the codecs of proto/codecs on a GPU: the same payloads and floats, and the error feedback of
 * client/transfer/encode.c. nvcc compiles it with -fmad=false (launch.cu), and tests/cuda for the host.
 *
 * A launch is for several pieces of a message, each cut in tiles of PSC_CODE_TILE values; topk's kernels have
 * a block of threads for each piece. */
#include <stdint.h>
#include <string.h>

#include "client/memory/cuda/codes.h"
#include "proto/codecs/kernels.h"

/* The ids of the codecs, as in codec.h. */
enum kv_form { KV_FLOATS, KV_FP16, KV_BF16, KV_TRUNC16, KV_INT8, KV_INT4, KV_TOPK };

#define KV_SIGN      0x80000000u
#define KV_INF       0x7f800000u
#define KV_QUIET_NAN 0x7fc00000u

__device__ inline uint32_t kv_bits(float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    return bits;
}

__device__ inline float kv_float(uint32_t bits)
{
    float v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

__device__ inline uint64_t kv_least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

__device__ inline uint32_t kv_magnitude(float v)
{
    return kv_bits(v) & ~KV_SIGN;
}

/* The nearest integer, ties to even, at the bottom of the sum. */
__device__ inline uint32_t kv_nearest(float v)
{
    return kv_bits(v + 0x1.8p23f);
}

/* ---- single values */

__device__ inline uint16_t kv_half_of(float v)
{
    const uint32_t largest = 0x477fe000u, least = 0x38800000u, rebias = 0x38000000u;
    uint32_t bits = kv_bits(v), a = bits & ~KV_SIGN;
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t in_range = a < largest ? a : largest;
    uint32_t normal = (in_range - rebias + 0xfffu + (in_range >> 13 & 1)) >> 13;
    uint32_t small = kv_bits(kv_float(in_range) + 0.5f) - kv_bits(0.5f);
    uint32_t finite = a < least ? small : normal;
    uint32_t special = a > KV_INF ? 0x7e00u | (a >> 13 & 0x3ffu) : 0x7c00u;
    return (uint16_t)(sign | (a < KV_INF ? finite : special));
}

__device__ inline float kv_of_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16, a = h & 0x7fffu, fraction = h & 0x3ffu;
    uint32_t normal = (a << 13) + 0x38000000u;
    uint32_t small = kv_bits((float)(int32_t)fraction * 0x1p-24f);
    uint32_t special = KV_INF | fraction << 13 | (fraction != 0 ? 0x400000u : 0);
    uint32_t finite = a < 0x400u ? small : normal;
    return kv_float(sign | (a >= 0x7c00u ? special : finite));
}

__device__ inline uint16_t kv_brain_of(float v)
{
    uint32_t bits = kv_bits(v), a = bits & ~KV_SIGN;
    uint32_t rounded = (a + 0x7fffu + (a >> 16 & 1)) >> 16;
    uint32_t finite = rounded < 0x7f7fu ? rounded : 0x7f7fu;
    uint32_t special = a > KV_INF ? a >> 16 | 0x40u : 0x7f80u;
    return (uint16_t)((bits >> 16 & 0x8000u) | (a < KV_INF ? finite : special));
}

__device__ inline uint16_t kv_upper_of(float v)
{
    uint32_t bits = kv_bits(v);
    return (uint16_t)(bits >> 16 | ((bits & ~KV_SIGN) > KV_INF ? 0x40u : 0));
}

/* int8's scale, and topk's. */
__device__ inline float kv_scale_of(uint32_t largest)
{
    if (largest >= KV_INF)
        return kv_float(KV_QUIET_NAN);
    return largest < kv_bits(PS_INT8_LEAST) ? 0 : kv_float(kv_bits(kv_float(largest) / 127.0f) & ~0xffu);
}

/* int4's, the upper half of a float. */
__device__ inline uint32_t kv_nibble_scale_of(uint32_t largest)
{
    if (largest >= KV_INF)
        return KV_QUIET_NAN >> 16;
    return largest < kv_bits(PS_INT4_LEAST) ? 0 : kv_bits(kv_float(largest) / 7.0f) >> 16;
}

/* Of a scale that is 0, or NaN: 0. */
__device__ inline float kv_inverse_of(float scale)
{
    return scale > 0 ? 1.0f / scale : 0;
}

__device__ inline float kv_decoded_int8(const unsigned char *payload, uint64_t n, uint64_t i)
{
    const uint64_t block = i / PS_INT8_BLOCK;
    const unsigned char *p = payload + block * (PS_INT8_BLOCK + sizeof(float));
    const float scale = *(const float *)p;
    if (n - block * PS_INT8_BLOCK == 1)
        return scale;
    return (float)(int8_t)p[sizeof(float) + i % PS_INT8_BLOCK] * scale;
}

__device__ inline float kv_decoded_int4(const unsigned char *payload, uint64_t n, uint64_t i)
{
    const uint64_t block = i / PS_INT4_BLOCK, at = i % PS_INT4_BLOCK, left = n - block * PS_INT4_BLOCK;
    const uint64_t low = (kv_least(left, PS_INT4_BLOCK) + 1) / 2;
    const unsigned char *p = payload + block * PS_INT4_BLOCK_BYTES, *q = p + PS_INT4_SCALE_BYTES;
    const float scale = kv_float((uint32_t)(p[0] | p[1] << 8) << 16);
    const unsigned char top = (unsigned char)(at < low ? q[at] << 4 : q[at - low]);
    return (float)((int8_t)top >> 4) * scale;
}

/* Value i of a payload of n; of topk's as if it did not travel. */
__device__ inline float kv_decoded(uint32_t form, const unsigned char *payload, uint64_t n, uint64_t i)
{
    switch (form) {
    case KV_FLOATS:
        return ((const float *)payload)[i];
    case KV_FP16:
        return kv_of_half(((const uint16_t *)payload)[i]);
    case KV_BF16:
    case KV_TRUNC16:
        return kv_float((uint32_t)((const uint16_t *)payload)[i] << 16);
    case KV_INT8:
        return kv_decoded_int8(payload, n, i);
    case KV_INT4:
        return kv_decoded_int4(payload, n, i);
    default:
        return 0;
    }
}

/* ---- the values of a piece */

/* The segment of value `at` of the vector. */
__device__ inline uint32_t kv_segment_of(const struct psc_code &c, uint64_t at)
{
    uint32_t low = 0, high = c.n_segments;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (c.segments[middle].begin <= at)
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* The vector's buffers before its value `at`, which is in segment s. */
__device__ inline uint64_t kv_buffers_before(const struct psc_code &c, uint64_t at, uint32_t s)
{
    return c.segments[s].buffers + (c.segments[s].is_buffer ? at - c.segments[s].begin : 0);
}

/* Where the vector's value `at`, a buffer in segment s, lies behind the payload: at any address. */
__device__ inline unsigned char *kv_tail_of(const struct psc_code &c, const struct psc_code_piece &p,
                                            uint64_t at, uint32_t s)
{
    const uint64_t first = kv_buffers_before(c, p.begin, kv_segment_of(c, p.begin));
    return c.room + p.to + p.tail + (kv_buffers_before(c, at, s) - first) * sizeof(float);
}

__device__ inline float kv_tail(const struct psc_code &c, const struct psc_code_piece &p, uint64_t at,
                                uint32_t s)
{
    const unsigned char *from = kv_tail_of(c, p, at, s);
    return kv_float((uint32_t)from[0] | (uint32_t)from[1] << 8 | (uint32_t)from[2] << 16 |
                    (uint32_t)from[3] << 24);
}

/* Value i of the piece as it is to be sent: m + e, or m alone where that is not finite, and 0 where it is
 * frozen. *s: the segment of a value that is not behind it; then its own. */
__device__ inline float kv_message(const struct psc_code &c, const struct psc_code_piece &p, uint32_t i,
                                   uint32_t *s)
{
    const uint64_t at = p.begin + i;
    while (*s + 1 < c.n_segments && c.segments[*s + 1].begin <= at)
        ++*s;
    if (c.segments[*s].is_frozen)
        return 0;
    const float m = c.message[p.from + i];
    if (c.error == nullptr)
        return m;
    const float sum = m + c.error[at];
    return sum - sum == 0 ? sum : m;
}

/* The same as it is to be encoded: in a codec for moves buffers are 0. */
__device__ inline float kv_move(const struct psc_code &c, const struct psc_code_piece &p, uint32_t i,
                                uint32_t *s)
{
    const float v = kv_message(c, p, i, s);
    return c.has_tail && c.segments[*s].is_buffer ? 0 : v;
}

/* The same, for the first look at it: a value that is not finite is noted, and a buffer of a codec for moves
 * is put behind the payload. */
__device__ inline float kv_take(const struct psc_code &c, const struct psc_code_piece &p, uint32_t i,
                                uint32_t *s)
{
    const float v = kv_message(c, p, i, s);
    const uint64_t at = p.begin + i;
    if (c.first != nullptr && !(v - v == 0))
        atomicMin(c.first, (unsigned long long)at);
    if (!c.has_tail || !c.segments[*s].is_buffer)
        return v;
    unsigned char *to = kv_tail_of(c, p, at, *s);
    for (uint32_t k = 0; k < sizeof v; k++)
        to[k] = (unsigned char)(kv_bits(v) >> 8 * k);
    return 0;
}

__device__ inline const struct psc_code_piece &kv_piece_of(const struct psc_code &c, uint32_t tile)
{
    uint32_t k = 0;
    while (k + 1 < c.n && c.at[k + 1].first_tile <= tile)
        k++;
    return c.at[k];
}

#define EACH_TILE(tile, c) for (uint32_t tile = blockIdx.x; tile < (c).n_tiles; tile += gridDim.x)

/* The largest of all threads' values. most: room for PSC_CODE_THREADS + 16. */
__device__ inline uint32_t kv_largest(uint32_t *most, uint32_t mine)
{
    uint32_t largest = 0;
    __syncthreads(); /* everybody has read what was here */
    most[threadIdx.x] = mine;
    __syncthreads();
    for (uint32_t k = 0; threadIdx.x < 16 && k < 16; k++)
        largest = most[16 * threadIdx.x + k] > largest ? most[16 * threadIdx.x + k] : largest;
    if (threadIdx.x < 16)
        most[PSC_CODE_THREADS + threadIdx.x] = largest;
    __syncthreads();
    for (uint32_t k = 0; k < 16; k++)
        largest = most[PSC_CODE_THREADS + k] > largest ? most[PSC_CODE_THREADS + k] : largest;
    return largest;
}

/* ---- encoding */

/* The codecs in which each value stands by itself. */
KERNEL kv_encode(const __grid_constant__ struct psc_code c)
{
    EACH_TILE(tile, c)
    {
        const struct psc_code_piece &p = kv_piece_of(c, tile);
        const uint32_t begin = (tile - p.first_tile) * PSC_CODE_TILE;
        const uint32_t end = (uint32_t)kv_least(p.count, begin + PSC_CODE_TILE);
        uint32_t s = kv_segment_of(c, p.begin + begin);
        for (uint32_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
            const float v = kv_take(c, p, i, &s);
            uint16_t *half = (uint16_t *)(c.room + p.to);
            if (c.form == KV_FLOATS)
                ((float *)(c.room + p.to))[i] = v;
            else
                half[i] = c.form == KV_FP16   ? kv_half_of(v)
                          : c.form == KV_BF16 ? kv_brain_of(v)
                                              : kv_upper_of(v);
        }
    }
}

/* A tile is a block of the codec. */
KERNEL kv_encode_int8(const __grid_constant__ struct psc_code c)
{
    enum { EACH_HAS = PSC_CODE_TILE / PSC_CODE_THREADS };
    __shared__ uint32_t most[PSC_CODE_THREADS + 16];
    EACH_TILE(tile, c)
    {
        const struct psc_code_piece &p = kv_piece_of(c, tile);
        const uint32_t block = tile - p.first_tile, begin = block * PSC_CODE_TILE;
        const uint32_t n = (uint32_t)kv_least(p.count - begin, PSC_CODE_TILE);
        unsigned char *to = c.room + p.to + (uint64_t)block * (PS_INT8_BLOCK + sizeof(float));
        uint32_t s = kv_segment_of(c, p.begin + begin), largest = 0;
        float v[EACH_HAS];
        for (uint32_t k = 0; k < EACH_HAS; k++) {
            const uint32_t i = k * PSC_CODE_THREADS + threadIdx.x;
            v[k] = i < n ? kv_take(c, p, begin + i, &s) : 0;
            largest = kv_magnitude(v[k]) > largest ? kv_magnitude(v[k]) : largest;
        }
        const float scale = kv_scale_of(kv_largest(most, largest)), inverse = kv_inverse_of(scale);
        if (threadIdx.x == 0)
            *(float *)to = n == 1 ? v[0] : scale;
        for (uint32_t k = 0; n > 1 && k < EACH_HAS; k++) {
            const uint32_t i = k * PSC_CODE_THREADS + threadIdx.x;
            if (i < n)
                to[sizeof(float) + i] = inverse > 0 ? (unsigned char)kv_nearest(v[k] * inverse) : 0;
        }
    }
}

/* Sixteen threads make a block of the codec, two bytes each: four values. */
KERNEL kv_encode_int4(const __grid_constant__ struct psc_code c)
{
    enum { TEAM = 16 };
    __shared__ uint32_t most[PSC_CODE_THREADS];
    const uint32_t team = threadIdx.x / TEAM, first = 2 * (threadIdx.x % TEAM);
    EACH_TILE(tile, c)
    {
        const struct psc_code_piece &p = kv_piece_of(c, tile);
        const uint32_t block = (tile - p.first_tile) * (PSC_CODE_TILE / PS_INT4_BLOCK) + team;
        const uint32_t begin = block * PS_INT4_BLOCK, left = begin < p.count ? p.count - begin : 0;
        const uint32_t n = (uint32_t)kv_least(left, PS_INT4_BLOCK), low = (n + 1) / 2, high = n / 2;
        unsigned char *to = c.room + p.to + (uint64_t)block * PS_INT4_BLOCK_BYTES;
        uint32_t s = kv_segment_of(c, p.begin + (n > 0 ? begin : 0)), largest = 0;
        float v[4];
        for (uint32_t k = 0; k < 4; k++) {
            const uint32_t byte = first + k % 2, i = k < 2 ? byte : low + byte;
            v[k] = byte < (k < 2 ? low : high) ? kv_take(c, p, begin + i, &s) : 0;
            largest = kv_magnitude(v[k]) > largest ? kv_magnitude(v[k]) : largest;
        }
        __syncthreads(); /* everybody has read those of the tile before */
        most[threadIdx.x] = largest;
        __syncthreads();
        for (uint32_t k = 0; k < TEAM; k++)
            largest = most[team * TEAM + k] > largest ? most[team * TEAM + k] : largest;
        const uint32_t scale = kv_nibble_scale_of(largest);
        const float inverse = kv_inverse_of(kv_float(scale << 16));
        if (n > 0 && first == 0) {
            to[0] = (unsigned char)scale;
            to[1] = (unsigned char)(scale >> 8);
        }
        for (uint32_t k = 0; k < 2; k++)
            if (first + k < low)
                to[PS_INT4_SCALE_BYTES + first + k] =
                    inverse > 0 ? (unsigned char)((kv_nearest(v[k] * inverse) & 0xfu) |
                                                  kv_nearest(v[k + 2] * inverse) << 4)
                                : 0;
    }
}

/* The k-th largest magnitude of the piece, digit by digit; *room: how many of the values that have it
 * travel; *largest: the largest of all. */
__device__ inline uint32_t kv_threshold(const struct psc_code &c, const struct psc_code_piece &p,
                                        uint32_t *bins, uint32_t *most, uint32_t *room, uint32_t *largest)
{
    uint32_t found = 0, mine = 0, left = p.kept;
    for (int shift = 24; shift >= 0; shift -= 8) {
        uint32_t s = kv_segment_of(c, p.begin), b = PSC_CODE_THREADS;
        bins[threadIdx.x] = 0;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < p.count; i += blockDim.x) {
            const float v = shift == 24 ? kv_take(c, p, i, &s) : kv_move(c, p, i, &s);
            const uint32_t magnitude = kv_magnitude(v);
            mine = magnitude > mine ? magnitude : mine;
            if (shift == 24 || magnitude >> (shift + 8) == found)
                atomicAdd(&bins[magnitude >> shift & 0xffu], 1u);
        }
        __syncthreads();
        while (bins[--b] < left)
            left -= bins[b];
        found = found << 8 | b;
        __syncthreads(); /* everybody has read the bins */
    }
    *room = left;
    *largest = kv_largest(most, mine);
    return found;
}

/* A thread has some of the piece's blocks of PS_TOPK_BLOCK values, one behind the other. */
__device__ inline uint32_t kv_first_block(const struct psc_code_piece &p, uint32_t thread)
{
    const uint64_t n_blocks = (p.count + PS_TOPK_BLOCK - 1) / PS_TOPK_BLOCK;
    return (uint32_t)(n_blocks * thread / PSC_CODE_THREADS);
}

__device__ inline uint32_t kv_block_end(const struct psc_code_piece &p, uint32_t block)
{
    return (uint32_t)kv_least(p.count, (block + 1) * PS_TOPK_BLOCK);
}

/* The sum of what the threads before this one have put into `counts`. */
__device__ inline uint32_t kv_before(const uint32_t *counts)
{
    uint32_t sum = 0;
    for (uint32_t k = 0; k < threadIdx.x; k++)
        sum += counts[k];
    return sum;
}

__device__ inline void kv_put_topk(const struct psc_code &c, const struct psc_code_piece &p,
                                   uint32_t threshold, uint32_t room, uint32_t first, float inverse)
{
    const uint32_t begin = kv_first_block(p, threadIdx.x), end = kv_first_block(p, threadIdx.x + 1);
    unsigned char *counts = c.room + p.to + sizeof(float);
    unsigned char *places = counts + (p.count + PS_TOPK_BLOCK - 1) / PS_TOPK_BLOCK, *values = places + p.kept;
    uint32_t s = kv_segment_of(c, p.begin + (begin < end ? begin * PS_TOPK_BLOCK : 0)), at = first;
    for (uint32_t b = begin; b < end; b++) {
        const uint32_t before = at;
        for (uint32_t i = b * PS_TOPK_BLOCK; i < kv_block_end(p, b); i++) {
            const float v = kv_move(c, p, i, &s);
            const uint32_t magnitude = kv_magnitude(v);
            if (magnitude < threshold || (magnitude == threshold && room == 0))
                continue;
            room -= magnitude == threshold;
            places[at] = (unsigned char)(i - b * PS_TOPK_BLOCK);
            values[at++] = inverse > 0 ? (unsigned char)kv_nearest(v * inverse) : 0;
        }
        counts[b] = (unsigned char)(at - before);
    }
}

/* Of equal values those travel that come first: each thread knows how many come before its own. */
KERNEL kv_encode_topk(const __grid_constant__ struct psc_code c)
{
    __shared__ uint32_t bins[PSC_CODE_THREADS], most[PSC_CODE_THREADS + 16];
    for (uint32_t k = blockIdx.x; k < c.n; k += gridDim.x) {
        const struct psc_code_piece &p = c.at[k];
        const uint32_t begin = kv_first_block(p, threadIdx.x), end = kv_first_block(p, threadIdx.x + 1);
        uint32_t room, largest, above = 0, equal = 0;
        const uint32_t threshold = kv_threshold(c, p, bins, most, &room, &largest);
        uint32_t s = kv_segment_of(c, p.begin + (begin < end ? begin * PS_TOPK_BLOCK : 0));
        for (uint32_t b = begin; b < end; b++)
            for (uint32_t i = b * PS_TOPK_BLOCK; i < kv_block_end(p, b); i++) {
                const uint32_t magnitude = kv_magnitude(kv_move(c, p, i, &s));
                above += magnitude > threshold;
                equal += magnitude == threshold;
            }
        __syncthreads(); /* everybody has read the largest */
        bins[threadIdx.x] = above;
        most[threadIdx.x] = equal;
        __syncthreads();
        const uint32_t equal_before = kv_before(most), taken = equal_before < room ? equal_before : room;
        const float scale = kv_scale_of(largest);
        if (threadIdx.x == 0)
            *(float *)(c.room + p.to) = scale;
        kv_put_topk(c, p, threshold, room - taken, kv_before(bins) + taken, kv_inverse_of(scale));
        __syncthreads(); /* everybody has read the counts */
    }
}

/* ---- error feedback, and decoding */

/* e <- m + e - what was sent. Of topk's values as if none had been. */
KERNEL kv_feed_back(const __grid_constant__ struct psc_code c)
{
    EACH_TILE(tile, c)
    {
        const struct psc_code_piece &p = kv_piece_of(c, tile);
        const uint32_t begin = (tile - p.first_tile) * PSC_CODE_TILE;
        const uint32_t end = (uint32_t)kv_least(p.count, begin + PSC_CODE_TILE);
        uint32_t s = kv_segment_of(c, p.begin + begin);
        for (uint32_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
            const float v = kv_message(c, p, i, &s);
            const bool is_exact = c.has_tail && c.segments[s].is_buffer;
            c.error[p.begin + i] = v - (is_exact ? v : kv_decoded(c.form, c.room + p.to, p.count, i));
        }
    }
}

/* Adds what travels of topk's pieces, times `sign`, to c.error; buffers and what is frozen are left out. sums:
 * room for PSC_CODE_THREADS. */
__device__ inline void kv_add_topk(const struct psc_code &c, float sign, uint32_t *sums)
{
    for (uint32_t k = blockIdx.x; k < c.n; k += gridDim.x) {
        const struct psc_code_piece &p = c.at[k];
        const uint32_t begin = kv_first_block(p, threadIdx.x), end = kv_first_block(p, threadIdx.x + 1);
        const unsigned char *counts = c.room + p.to + sizeof(float);
        const unsigned char *places = counts + (p.count + PS_TOPK_BLOCK - 1) / PS_TOPK_BLOCK;
        const int8_t *values = (const int8_t *)places + p.kept;
        const float scale = *(const float *)(c.room + p.to);
        uint32_t sum = 0, s = kv_segment_of(c, p.begin + (begin < end ? begin * PS_TOPK_BLOCK : 0));
        for (uint32_t b = begin; b < end; b++)
            sum += counts[b];
        sums[threadIdx.x] = sum;
        __syncthreads();
        uint32_t at = kv_before(sums);
        for (uint32_t b = begin; b < end; b++)
            for (uint32_t last = at + counts[b]; at < last; at++) {
                const uint64_t i = p.begin + b * PS_TOPK_BLOCK + places[at];
                while (s + 1 < c.n_segments && c.segments[s + 1].begin <= i)
                    s++;
                if (!c.segments[s].is_frozen && !c.segments[s].is_buffer)
                    c.error[i] += sign * ((float)values[at] * scale);
            }
        __syncthreads(); /* everybody has read the sums */
    }
}

/* The rest of the error feedback for topk: those that were sent. */
KERNEL kv_feed_back_topk(const __grid_constant__ struct psc_code c)
{
    __shared__ uint32_t sums[PSC_CODE_THREADS];
    kv_add_topk(c, -1.0f, sums);
}

/* What is known of a center, c.error, takes an answer that is a move. Of topk's values as if none traveled. */
KERNEL kv_take_moves(const __grid_constant__ struct psc_code c)
{
    EACH_TILE(tile, c)
    {
        const struct psc_code_piece &p = kv_piece_of(c, tile);
        const uint32_t begin = (tile - p.first_tile) * PSC_CODE_TILE;
        const uint32_t end = (uint32_t)kv_least(p.count, begin + PSC_CODE_TILE);
        uint32_t s = kv_segment_of(c, p.begin + begin);
        for (uint32_t i = begin + threadIdx.x; i < end; i += blockDim.x) {
            const uint64_t at = p.begin + i;
            while (s + 1 < c.n_segments && c.segments[s + 1].begin <= at)
                s++;
            if (c.segments[s].is_frozen)
                continue;
            if (c.has_tail && c.segments[s].is_buffer)
                c.error[at] = kv_tail(c, p, at, s);
            else if (c.segments[s].is_buffer)
                c.error[at] = kv_decoded(c.form, c.room + p.to, p.count, i);
            else
                c.error[at] += kv_decoded(c.form, c.room + p.to, p.count, i);
        }
    }
}

/* The rest of it for topk. */
KERNEL kv_take_topk(const __grid_constant__ struct psc_code c)
{
    __shared__ uint32_t sums[PSC_CODE_THREADS];
    kv_add_topk(c, 1.0f, sums);
}

KERNEL kv_decode(uint64_t n, float *x, const unsigned char *payload, uint32_t form)
{
    EACH(i, n)
    {
        x[i] = kv_decoded(form, payload, n, i);
    }
}
