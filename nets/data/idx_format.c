#include "nets/data/idx_format.h"

#include <assert.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

struct reader {
    gzFile file;
    char path[PATH_MAX];
    uint64_t place; /* bytes read so far, after decompression */
    struct ps_error *err;
};

static int open_either(struct reader *r, const char *dir, const char *name)
{
    static const char *const endings[] = {"", ".gz"};
    for (int i = 0; i < 2; i++) {
        int len = snprintf(r->path, sizeof r->path, "%s/%s%s", dir, name, endings[i]);
        if (len >= (int)sizeof r->path)
            return ps_fail(r->err, -ENAMETOOLONG, "the path of %s is longer than %d bytes", name,
                           PATH_MAX - 1);
        errno = 0;
        r->file = gzopen(r->path, "rb"); /* reads plain files too */
        if (r->file != NULL)
            return 0;
        if (errno == 0)
            return ps_fail(r->err, -ENOMEM, "%.200s: no memory to open it", r->path);
        if (errno != ENOENT)
            return ps_fail(r->err, -errno, "%.200s: cannot be opened: %s", r->path, strerror(errno));
    }
    return ps_fail(r->err, -ENOENT, "%.160s/%s: no such file, nor one with .gz", dir, name);
}

/* zlib's error after a failed read; NULL at the end of the file. */
static const char *stop_reason(struct reader *r)
{
    int code;
    const char *text = gzerror(r->file, &code);
    if (code == Z_OK || code == Z_STREAM_END)
        return NULL;
    return code == Z_ERRNO ? strerror(errno) : text;
}

/* Reads exactly len bytes. */
static int read_exactly(struct reader *r, void *to, size_t len, const char *what)
{
    size_t got = 0;
    while (got < len) {
        size_t part = len - got < 1 << 20 ? len - got : 1 << 20;
        int n = gzread(r->file, (uint8_t *)to + got, (unsigned)part);
        if (n <= 0) {
            const char *reason = stop_reason(r);
            if (reason != NULL)
                return ps_fail(r->err, -EIO, "%.160s: byte %llu: cannot be read: %.80s", r->path,
                               (unsigned long long)r->place, reason);
            return ps_fail(r->err, -EBADMSG,
                           "%.160s: byte %llu: the file ends within %s, %zu bytes too early", r->path,
                           (unsigned long long)r->place, what, len - got);
        }
        got += (size_t)n;
        r->place += (size_t)n;
    }
    return 0;
}

static uint32_t big_endian(const uint8_t b[4])
{
    return (uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 | (uint32_t)b[2] << 8 | b[3];
}

static int read_header(struct reader *r, const uint32_t *shape, uint32_t n_dims, struct cnn_idx *idx)
{
    uint8_t word[4];
    int rc = read_exactly(r, word, 4, "the magic number");
    if (rc != 0)
        return rc;
    if (big_endian(word) != (0x800 | n_dims))
        return ps_fail(r->err, -EBADMSG, "%.200s: byte 0: magic number 0x%08x; allowed: 0x%08x", r->path,
                       big_endian(word), 0x800 | n_dims);
    idx->n_bytes = 1;
    for (uint32_t d = 0; d < n_dims; d++) {
        uint64_t place = r->place;
        rc = read_exactly(r, word, 4, "the dimensions");
        if (rc != 0)
            return rc;
        uint32_t found = idx->shape[d] = big_endian(word);
        if (shape[d] != 0 && found != shape[d])
            return ps_fail(r->err, -EBADMSG, "%.200s: byte %llu: dimension %u is %u; allowed: %u", r->path,
                           (unsigned long long)place, d, found, shape[d]);
        if (found == 0 || found > CNN_IDX_MAX_COUNT)
            return ps_fail(r->err, -EBADMSG, "%.200s: byte %llu: dimension %u is %u; allowed: 1 to %d",
                           r->path, (unsigned long long)place, d, found, CNN_IDX_MAX_COUNT);
        idx->n_bytes *= found;
    }
    return 0;
}

/* The header is not trusted: the buffer grows with the bytes read. */
static int read_values(struct reader *r, struct cnn_idx *idx)
{
    size_t have = 0, room = 4 << 20;
    while (have < idx->n_bytes) {
        if (room > idx->n_bytes)
            room = idx->n_bytes;
        uint8_t *grown = realloc(idx->bytes, room);
        if (grown == NULL)
            return ps_fail(r->err, -ENOMEM, "%.200s: no memory for its %zu bytes", r->path, idx->n_bytes);
        idx->bytes = grown;
        int rc = read_exactly(r, grown + have, room - have, "the values");
        if (rc != 0)
            return rc;
        have = room;
        room *= 2;
    }
    return 0;
}

/* Reading past the last value also makes zlib verify the checksum of a .gz file. */
static int expect_end(struct reader *r)
{
    uint8_t byte;
    int n = gzread(r->file, &byte, 1);
    const char *reason = n <= 0 ? stop_reason(r) : NULL;
    if (n > 0)
        return ps_fail(r->err, -EBADMSG,
                       "%.160s: byte %llu: more bytes follow; allowed: none after the last value", r->path,
                       (unsigned long long)r->place);
    if (reason != NULL)
        return ps_fail(r->err, -EIO, "%.160s: byte %llu: cannot be read: %.80s", r->path,
                       (unsigned long long)r->place, reason);
    return 0;
}

int cnn_idx_read(const char *dir, const char *name, const uint32_t *shape, uint32_t n_dims,
                 struct cnn_idx *out, struct ps_error *err)
{
    assert(n_dims >= 1 && n_dims <= CNN_IDX_MAX_DIMS);
    struct reader r = {.err = err};
    struct cnn_idx idx = {0};
    int rc = open_either(&r, dir, name);
    if (rc != 0)
        return rc;
    rc = read_header(&r, shape, n_dims, &idx);
    if (rc == 0)
        rc = read_values(&r, &idx);
    if (rc == 0)
        rc = expect_end(&r);
    gzclose_r(r.file);
    if (rc != 0)
        free(idx.bytes);
    else
        *out = idx;
    return rc;
}
