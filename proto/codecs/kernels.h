/* kernels.h: the codecs' loops. kernels.c is compiled once for each instruction set, as proto/vec/kernels.c
 * is, together with int4_loops.c, topk_loops.c, and half_plain.c or half_f16c.c. All rows give the same
 * payloads and the same floats, except that after an add of two NaNs the bits of the NaN may differ. Payloads
 * may be at any address. */
#ifndef PS_CODEC_KERNELS_H
#define PS_CODEC_KERNELS_H

#include <stdbool.h>
#include <stddef.h>

/* int8: each 1,024 values are a block: a float32 scale, then the values as int8. A last block with one value
 * is that value. */
enum { PS_INT8_BLOCK = 1024 };
/* A block whose values are all smaller is stored as zeros. */
#define PS_INT8_LEAST 0x1p-100f

/* int4: every 64 values are a block: a scale (the upper half of a float32), then four bits per value, two
 * values in a byte; the second is half a block behind the first. */
enum {
    PS_INT4_BLOCK = 64,
    PS_INT4_SCALE_BYTES = 2,
    PS_INT4_BLOCK_BYTES = PS_INT4_SCALE_BYTES + PS_INT4_BLOCK / 2
};
#define PS_INT4_LEAST PS_INT8_LEAST
/* The largest scale: the upper half of FLT_MAX / 7. */
#define PS_INT4_MOST 0x7e12

/* topk: values per count; a count is one byte. */
enum { PS_TOPK_BLOCK = 255 };
#define PS_TOPK_MOST (0x1.fffffep127f / 127)

/* The three loops of a codec, as in struct ps_codec. */
struct ps_codec_loops {
    void (*encode)(void *payload, const float *x, size_t n);
    void (*decode)(float *x, const void *payload, size_t n);
    void (*add)(float *x, const void *payload, size_t n);
};

/* topk's: of the k largest, 1 <= k <= n. */
struct ps_codec_topk_loops {
    void (*encode)(void *payload, const float *x, size_t n, size_t k);
    void (*decode)(float *x, const void *payload, size_t n, size_t k);
};

struct ps_codec_kernels {
    const char *name;
    void (*add_raw)(float *x, const void *payload, size_t n);
    const struct ps_codec_loops *fp16, *int4; /* int4 has no add */
    const struct ps_codec_topk_loops *topk;
    struct ps_codec_loops bf16, trunc16, int8;
};

/* topk.c: how many of n values travel. */
struct ps_codec;
size_t ps_topk_kept(const struct ps_codec *c, size_t n);

/* The rows built into this program, the plain one first; *n of them. */
const struct ps_codec_kernels *const *ps_codec_kernels_rows(size_t *n);
/* Whether this CPU can run the row. */
bool ps_codec_kernels_runs_here(const struct ps_codec_kernels *row);
/* The fastest row that runs here. */
const struct ps_codec_kernels *ps_codec_kernels_best(void);

#endif
