/* codecs.h: the rows of codec.c's table. */
#ifndef PS_CODECS_H
#define PS_CODECS_H

#include "proto/codec.h"

extern const struct ps_codec ps_codec_raw;

#endif
