#include "proto/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* The length of the UTF-8 character at p; 0: not valid UTF-8, or a control character. */
static size_t character_bytes(const unsigned char *p)
{
    size_t n = p[0] < 0x80 ? 1 : p[0] >> 5 == 0x6 ? 2 : p[0] >> 4 == 0xe ? 3 : p[0] >> 3 == 0x1e ? 4 : 0;
    uint32_t c = n < 2 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (p[i] >> 6 != 2)
            return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    bool too_long = (n == 2 && c < 0x80) || (n == 3 && c < 0x800) || (n == 4 && c < 0x10000);
    bool allowed = c >= 0x20 && (c < 0x7f || c >= 0xa0) && c <= 0x10ffff && !(c >= 0xd800 && c < 0xe000);
    return allowed && !too_long ? n : 0;
}

void ps_text_copy(char *to, size_t size, const char *from)
{
    size_t used = 0;
    while (*from != 0) {
        size_t n = character_bytes((const unsigned char *)from), step = n > 0 ? n : 1;
        if (used + step >= size)
            break;
        memcpy(to + used, n > 0 ? from : "?", step);
        used += step;
        from += step;
    }
    to[used] = 0;
}

void ps_text_join(char *text, size_t size, const char *between, const char *word)
{
    size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s", used > 0 ? between : "", word);
}
