/* resample_loops.h: the loops of resample.c, in plain C and for AVX2. Both make the same bits. Private to
 * data/images. */
#ifndef CNN_IMAGES_RESAMPLE_LOOPS_H
#define CNN_IMAGES_RESAMPLE_LOOPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A value between a and b is (a (128 - w) + b w + 64) / 128, rounded down, at weight w from 0 to 127. */
#define CNN_RESAMPLE_STEPS 128
/* Bytes after a row, and after a line, that a loop may read or write. */
#define CNN_RESAMPLE_SLACK 32

/* The columns of a view: each lies between pixel `at` of the row and the next, whose weight is 0 where there
 * is none. */
struct cnn_columns {
    uint32_t n;
    const uint32_t *at;
    const uint8_t *weights;
    uint8_t *table; /* [cnn_resample_table_bytes(n)]: of `prepare` */
};

struct cnn_resample_loops {
    const char *isa;
    /* Fills the table for the columns. false: these loops cannot pick them. */
    bool (*prepare)(const struct cnn_columns *columns);
    /* Interpolates n bytes between two rows. */
    void (*blend)(const uint8_t *top, const uint8_t *low, uint8_t weight, size_t n, uint8_t *out);
    /* out [n][3] from a row of pixels. */
    void (*pick)(const uint8_t *row, const struct cnn_columns *columns, uint8_t *out);
};

static inline size_t cnn_resample_table_bytes(uint32_t n)
{
    return ((size_t)n + 3) / 4 * 72;
}

extern const struct cnn_resample_loops cnn_resample_plain;
/* NULL: this machine has no faster ones. */
const struct cnn_resample_loops *cnn_resample_fast(void);

#endif
