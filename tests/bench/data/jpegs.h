/* jpegs.h: decodes the photographs of a set with libjpeg-turbo alone. */
#ifndef TEST_BENCH_DATA_JPEGS_H
#define TEST_BENCH_DATA_JPEGS_H

#include <stdint.h>

#include "nets/data/data.h"

struct bench_jpegs;

/* Reads up to 4096 of the training images into memory. *out is NULL if there are no JPEG files. side: size of
 * the views, which determines the scale of decoding. */
int bench_jpegs_open(const struct cnn_data *data, uint32_t side, struct bench_jpegs **out,
                     struct ps_error *err);
void bench_jpegs_close(struct bench_jpegs *b);

/* Decodes the next one. */
void bench_jpegs_decode(struct bench_jpegs *b);

#endif
