/* resample_loops.h: the loops of resample.c, in plain C, for AVX2 and for AVX-512. All make the same bits.
 * Private to data/images. */
#ifndef CNN_IMAGES_RESAMPLE_LOOPS_H
#define CNN_IMAGES_RESAMPLE_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A value between a and b is (a (128 - w) + b w + 64) / 128, rounded down, at weight w from 0 to 127. */
#define CNN_RESAMPLE_STEPS 128
/* Bytes after a row that a loop may read. */
#define CNN_RESAMPLE_SLACK 64
/* Bytes of a table, of any loops, for 32 bytes of the view, and after the last; where rows and table begin:
 * at a multiple of 64 bytes. */
#define CNN_RESAMPLE_TABLE     256
#define CNN_RESAMPLE_PICKED    32
#define CNN_RESAMPLE_TABLE_END 64
#define CNN_RESAMPLE_ALIGN     64

/* The columns of a view: each lies between pixel `at` of the row and the next, whose weight is 0 where there
 * is none. */
struct cnn_columns {
    uint32_t n;
    const uint32_t *at;
    const uint8_t *weights;
    uint8_t *table; /* [cnn_resample_table_bytes(n)]: of `prepare` */
    bool streams;   /* the view's rows are at multiples of 32 bytes, and are not read soon */
};

struct cnn_resample_loops {
    const char *isa;
    /* Fills the table for the columns. false: these loops cannot pick them. */
    bool (*prepare)(const struct cnn_columns *columns);
    /* Interpolates n bytes between two rows. */
    void (*blend)(const uint8_t *top, const uint8_t *low, uint8_t weight, size_t n, uint8_t *out);
    /* out[i] [n][3] from rows[i] of pixels. Two rows, because the table is read once for both. */
    void (*pick)(const uint8_t *const rows[2], const struct cnn_columns *columns, uint8_t *const out[2]);
    /* NULL, or called after the last `pick` of a view that `streams`, before another thread may read it. */
    void (*flush)(void);
};

static inline size_t cnn_resample_table_bytes(uint32_t n)
{
    size_t groups = (3 * (size_t)n + CNN_RESAMPLE_PICKED - 1) / CNN_RESAMPLE_PICKED;
    return groups * CNN_RESAMPLE_TABLE + CNN_RESAMPLE_TABLE_END;
}

/* The shuffle of a column's six bytes: red, green and blue of both pixels, `skip` pixels from the first; and
 * their weights. 128 is no signed byte, so at weight 0 a pixel is taken twice, with 127 and 1. */
static inline uint64_t cnn_resample_shuffle(uint32_t skip, uint8_t weight)
{
    const uint64_t both = UINT64_C(0x050204010300), same = UINT64_C(0x020201010000);
    return (weight > 0 ? both : same) + 3 * skip * UINT64_C(0x010101010101);
}

static inline uint64_t cnn_resample_weights(uint8_t weight)
{
    unsigned w = weight > 0 ? weight : 1;
    return (CNN_RESAMPLE_STEPS - w) * UINT64_C(0x000100010001) + w * UINT64_C(0x010001000100);
}

extern const struct cnn_resample_loops cnn_resample_plain;
/* The loops that this machine has, from the fastest, i = 0, to those in plain C; then NULL. */
const struct cnn_resample_loops *cnn_resample_loops(uint32_t i);

#endif
