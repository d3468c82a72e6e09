/* codecs.h: the rows of codecs.c's table. */
#ifndef PS_CODECS_H
#define PS_CODECS_H

#include "proto/codecs/codec.h"

extern const struct ps_codec ps_codec_raw, ps_codec_fp16, ps_codec_bf16, ps_codec_trunc16, ps_codec_int8;

#endif
