#include "proto/codecs/codec.h"

#include <string.h>

static const struct ps_codec *const codecs[] = {&ps_codec_raw, &ps_codec_fp16, &ps_codec_bf16,
                                                &ps_codec_trunc16, &ps_codec_int8};

const struct ps_codec *const *ps_codec_rows(size_t *n)
{
    *n = sizeof codecs / sizeof *codecs;
    return codecs;
}

const struct ps_codec *ps_codec_find(uint8_t id)
{
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        if (codecs[i]->id == id)
            return codecs[i];
    return NULL;
}

const struct ps_codec *ps_codec_named(const char *name)
{
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        if (strcmp(codecs[i]->name, name) == 0)
            return codecs[i];
    return NULL;
}
