/* philox.h: Philox4x32-10, a counter-based generator (Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers:
 * As Easy as 1, 2, 3", SC 2011).
 *
 * A block of four random words is a pure function of (counter, key). Streams with different keys or counters
 * are independent, a stream can start at any position, and the bits are the same on every machine. */
#ifndef CNN_PHILOX_H
#define CNN_PHILOX_H

#include <stdint.h>

struct cnn_philox_key {
    uint32_t v[2];
};

struct cnn_philox_block {
    uint32_t v[4];
};

static inline struct cnn_philox_block cnn_philox(struct cnn_philox_block counter, struct cnn_philox_key key)
{
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53 * counter.v[0];
        uint64_t p1 = (uint64_t)0xCD9E8D57 * counter.v[2];
        counter = (struct cnn_philox_block){{
            (uint32_t)(p1 >> 32) ^ counter.v[1] ^ key.v[0],
            (uint32_t)p1,
            (uint32_t)(p0 >> 32) ^ counter.v[3] ^ key.v[1],
            (uint32_t)p0,
        }};
        key.v[0] += 0x9E3779B9;
        key.v[1] += 0xBB67AE85;
    }
    return counter;
}

static inline struct cnn_philox_key cnn_philox_key_of(uint64_t seed)
{
    return (struct cnn_philox_key){{(uint32_t)seed, (uint32_t)(seed >> 32)}};
}

/* A generator that increments the first word of the counter; the other three words name the stream. */
struct cnn_random {
    struct cnn_philox_key key;
    struct cnn_philox_block counter; /* of the next block */
    struct cnn_philox_block block;
    unsigned left; /* words of block not yet returned */
};

static inline struct cnn_random cnn_random_start(struct cnn_philox_key key, uint32_t c1, uint32_t c2,
                                                 uint32_t c3)
{
    return (struct cnn_random){.key = key, .counter = {{0, c1, c2, c3}}};
}

static inline uint32_t cnn_random_word(struct cnn_random *r)
{
    if (r->left == 0) {
        r->block = cnn_philox(r->counter, r->key);
        r->counter.v[0]++;
        r->left = 4;
    }
    return r->block.v[4 - r->left--];
}

/* Uniform in [lo, hi). 24 bits, so that the conversion to float is exact. */
static inline float cnn_random_float(struct cnn_random *r, float lo, float hi)
{
    return lo + (hi - lo) * ((float)(cnn_random_word(r) >> 8) * 0x1p-24f);
}

/* Uniform in [0, n), n > 0, without bias (Lemire, "Fast Random Integer Generation in an Interval", 2019). */
static inline uint32_t cnn_random_below(struct cnn_random *r, uint32_t n)
{
    uint64_t m = (uint64_t)cnn_random_word(r) * n;
    if ((uint32_t)m < n) {
        uint32_t floor = -n % n;
        while ((uint32_t)m < floor)
            m = (uint64_t)cnn_random_word(r) * n;
    }
    return (uint32_t)(m >> 32);
}

#endif
