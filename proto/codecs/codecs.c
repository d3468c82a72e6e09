#include "proto/codecs/codec.h"

#include <stdio.h>
#include <string.h>

#include "proto/text.h"

static const struct ps_codec *const codecs[] = {&ps_codec_raw,     &ps_codec_fp16, &ps_codec_bf16,
                                                &ps_codec_trunc16, &ps_codec_int8, &ps_codec_int4,
                                                &ps_codec_topk};
#define N_CODECS (sizeof codecs / sizeof *codecs)

const struct ps_codec *const *ps_codec_rows(size_t *n)
{
    *n = N_CODECS;
    return codecs;
}

const struct ps_codec *const *ps_codec_value_rows(size_t *n)
{
    for (*n = 0; *n < N_CODECS && !codecs[*n]->for_moves; ++*n)
        ;
    return codecs;
}

void ps_codec_list_for_values(char *text, size_t size)
{
    text[0] = 0;
    for (size_t i = 0; i < N_CODECS && !codecs[i]->for_moves; i++)
        ps_text_join(text, size, ", ", codecs[i]->name);
}

const struct ps_codec *ps_codec_find(uint8_t id)
{
    for (size_t i = 0; i < N_CODECS; i++)
        if (codecs[i]->id == id)
            return codecs[i];
    return NULL;
}

const struct ps_codec *ps_codec_named(const char *name)
{
    for (size_t i = 0; i < N_CODECS; i++)
        if (strcmp(codecs[i]->name, name) == 0)
            return codecs[i];
    return NULL;
}

const struct ps_codec *ps_codec_named_for_values(const char *name)
{
    const struct ps_codec *c = ps_codec_named(name);
    return c == NULL || c->for_moves ? NULL : c;
}

bool ps_codec_is(const char *name, const char *row)
{
    size_t len = strlen(row);
    return strncmp(name, row, len) == 0 && (name[len] == 0 || name[len] == ':');
}

bool ps_codec_same(const struct ps_codec *a, const struct ps_codec *b)
{
    return a->id == b->id && a->fraction_ppm == b->fraction_ppm;
}

const char *ps_codec_text(const struct ps_codec *c, char text[PS_CODEC_TEXT])
{
    const unsigned whole = c->fraction_ppm / 1000000, rest = c->fraction_ppm % 1000000;
    int len = snprintf(text, PS_CODEC_TEXT, "%.8s", c->name);
    if (c->fraction_ppm > 0)
        len +=
            snprintf(text + len, (size_t)(PS_CODEC_TEXT - len), rest > 0 ? ":%u.%06u" : ":%u", whole, rest);
    while (rest > 0 && text[len - 1] == '0')
        text[--len] = 0;
    return text;
}

/* In integers: both ends are to come to the same count, whatever their locale. 0: it is none of 0.000001
 * to 1. */
static uint32_t parse_fraction(const char *text)
{
    uint32_t ppm = 0, unit = 1000000;
    const char *at = text;
    if (*at != '0' && *at != '1')
        return 0;
    ppm = (uint32_t)(*at++ - '0') * unit;
    if (*at == '.')
        for (at++, unit /= 10; *at >= '0' && *at <= '9' && unit > 0; at++, unit /= 10)
            ppm += (uint32_t)(*at - '0') * unit;
    return *at == 0 && ppm <= 1000000 ? ppm : 0;
}

const char *ps_codec_of(const char *name, struct ps_codec *out)
{
    for (size_t i = 0; i < N_CODECS; i++) {
        const struct ps_codec *row = codecs[i];
        size_t len = strlen(row->name);
        if (!ps_codec_is(name, row->name))
            continue;
        if (name[len] == ':' && row->fraction_ppm == 0)
            return "this codec has no parameter";
        uint32_t ppm = name[len] == ':' ? parse_fraction(name + len + 1) : 0;
        if (row->fraction_ppm > 0 && ppm == 0)
            return "the codec needs the part of the values that travels, as in topk:0.01: above 0, at most "
                   "1, in at "
                   "most six decimals";
        *out = *row;
        out->fraction_ppm = ppm;
        return NULL;
    }
    return "no such codec";
}
