#include "tests/nets/data/tar_bytes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 512 };

static uint8_t *extend(struct tar_bytes *t, size_t n)
{
    t->bytes = realloc(t->bytes, t->len + n);
    if (t->bytes == NULL)
        abort();
    memset(t->bytes + t->len, 0, n);
    t->len += n;
    return t->bytes + t->len - n;
}

void tar_sum(struct tar_bytes *t, size_t at)
{
    unsigned sum = 0;
    memset(t->bytes + at + 148, ' ', 8);
    for (size_t i = 0; i < BLOCK; i++)
        sum += t->bytes[at + i];
    snprintf((char *)t->bytes + at + 148, 8, "%06o", sum);
}

void tar_header(struct tar_bytes *t, char kind, const char *prefix, const char *name, uint64_t bytes)
{
    char *h = (char *)extend(t, BLOCK);
    memcpy(h, name, strnlen(name, 100));
    memcpy(h + 100, "0000644", 8);
    snprintf(h + 124, 12, "%011llo", (unsigned long long)bytes);
    h[156] = kind;
    memcpy(h + 257,
           "ustar\0"
           "00",
           8);
    memcpy(h + 345, prefix, strnlen(prefix, 155));
    tar_sum(t, t->len - BLOCK);
}

void tar_link(struct tar_bytes *t, char kind, const char *name, const char *target)
{
    tar_header(t, kind, "", name, 0);
    memcpy(t->bytes + t->len - BLOCK + 157, target, strnlen(target, 100));
    tar_sum(t, t->len - BLOCK);
}

void tar_body(struct tar_bytes *t, const void *bytes, size_t len)
{
    if (len > 0)
        memcpy(extend(t, (len + BLOCK - 1) / BLOCK * BLOCK), bytes, len);
}

void tar_file(struct tar_bytes *t, const char *name, const void *bytes, size_t len)
{
    tar_header(t, '0', "", name, len);
    tar_body(t, bytes, len);
}

void tar_end(struct tar_bytes *t)
{
    extend(t, 2 * BLOCK);
}
