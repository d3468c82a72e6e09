/* int8.h: what int8.c and its loops agree on. Every 1,024 values are a block: a float32 scale, then the
 * values as int8. A last block of one value is that value. */
#ifndef PS_CODEC_INT8_H
#define PS_CODEC_INT8_H

enum { PS_INT8_BLOCK = 1024 };
/* A block without a larger value is zeros. */
#define PS_INT8_LEAST 0x1p-100f

#endif
