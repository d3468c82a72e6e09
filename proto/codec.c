#include "proto/codecs/codecs.h"

static const struct ps_codec *const codecs[] = {&ps_codec_raw};

const struct ps_codec *ps_codec_find(uint8_t id)
{
    for (size_t i = 0; i < sizeof codecs / sizeof *codecs; i++)
        if (codecs[i]->id == id)
            return codecs[i];
    return NULL;
}
