/* bytes.h: numbers as little-endian bytes at any address, as files and messages have them. */
#ifndef PS_BYTES_H
#define PS_BYTES_H

#include <endian.h>
#include <stdint.h>
#include <string.h>

static inline void ps_put32(unsigned char *to, uint32_t v)
{
    v = htole32(v);
    memcpy(to, &v, sizeof v);
}

static inline void ps_put64(unsigned char *to, uint64_t v)
{
    v = htole64(v);
    memcpy(to, &v, sizeof v);
}

static inline uint32_t ps_get32(const unsigned char *from)
{
    uint32_t v;
    memcpy(&v, from, sizeof v);
    return le32toh(v);
}

static inline uint64_t ps_get64(const unsigned char *from)
{
    uint64_t v;
    memcpy(&v, from, sizeof v);
    return le64toh(v);
}

#endif
