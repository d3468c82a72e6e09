/* jpegs.h: what libjpeg-turbo alone decodes of a set of photographs, one after the other. */
#ifndef TEST_BENCH_DATA_JPEGS_H
#define TEST_BENCH_DATA_JPEGS_H

#include <stdint.h>

#include "nets/data/data.h"

struct bench_jpegs;

/* Reads up to 4096 of the training images into memory. *out is NULL where there are no JPEG files. side: of
 * the views whose scale of decoding is taken. */
int bench_jpegs_open(const struct cnn_data *data, uint32_t side, struct bench_jpegs **out,
                     struct ps_error *err);
void bench_jpegs_close(struct bench_jpegs *b);

/* Decodes the next one. */
void bench_jpegs_decode(struct bench_jpegs *b);

#endif
