/* codec.h: how the floats of a chunk travel. One file and one row each, in codecs/. */
#ifndef PS_CODEC_H
#define PS_CODEC_H

#include <stddef.h>
#include <stdint.h>

struct ps_codec {
    uint8_t id; /* on the wire */
    const char *name;
    /* Bytes of a payload of n floats: exactly this many, or the frame is refused. */
    size_t (*payload_bytes)(uint32_t n);
    /* The payload is the floats themselves, so that a rule may work in place, where it is aligned. */
    int in_place;
    void (*encode)(void *payload, const float *x, uint32_t n);
    void (*decode)(float *x, const void *payload, uint32_t n);
};

/* NULL: no such codec. */
const struct ps_codec *ps_codec_find(uint8_t id);

#endif
