#include "nets/data/images/tar.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "proto/file.h"

/* Offsets of the header's fields. */
enum {
    NAME_AT = 0,
    NAME_BYTES = 100,
    SIZE_AT = 124,
    SIZE_BYTES = 12,
    SUM_AT = 148,
    SUM_BYTES = 8,
    KIND_AT = 156,
    LINK_AT = 157,
    LINK_BYTES = 100,
    MAGIC_AT = 257,
    PREFIX_AT = 345,
    PREFIX_BYTES = 155,
};

static int fail_at(uint64_t at, struct ps_error *err, const char *what)
{
    return ps_fail(err, -EBADMSG, "byte %llu: %s", (unsigned long long)at, what);
}

static int read_at(const struct cnn_tar *t, uint64_t at, void *to, size_t len, struct ps_error *err)
{
    size_t have;
    int rc = ps_file_read(t->fd, at, to, len, &have);
    if (rc == 0)
        return 0;
    return fail_at(at + have, err, rc == -ENODATA ? "the archive ends here, within a member" : strerror(-rc));
}

int cnn_tar_open(struct cnn_tar *t, int fd, struct ps_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return ps_fail(err, -errno, "cannot be read: %s", strerror(errno));
    if (!S_ISREG(st.st_mode))
        return ps_fail(err, -EINVAL, "not a regular file");
    *t = (struct cnn_tar){.fd = fd, .size = (uint64_t)st.st_size};
    return 0;
}

/* Reads a number: octal digits between blanks or, if the top bit is set, big-endian binary. */
static bool read_number(const uint8_t *field, size_t len, uint64_t *out)
{
    uint64_t v = 0;
    size_t i = 0;
    if (field[0] & 0x80) {
        v = field[0] & 0x7f;
        for (i = 1; i < len; i++) {
            if (v >> 55 != 0)
                return false;
            v = v << 8 | field[i];
        }
        *out = v;
        return true;
    }
    while (i < len && field[i] == ' ')
        i++;
    for (; i < len && field[i] >= '0' && field[i] <= '7'; i++)
        v = v << 3 | (field[i] - '0'); /* twelve digits at most: 36 bits */
    *out = v;
    return i == len || field[i] == ' ' || field[i] == '\0';
}

/* Checks the sum of the header's bytes, with the checksum field taken as blanks. Old programs summed signed
 * bytes. */
static bool is_sum_right(const uint8_t *header)
{
    uint64_t found;
    int64_t plain = 0, with_signs = 0;
    for (int i = 0; i < CNN_TAR_BLOCK; i++) {
        uint8_t b = i >= SUM_AT && i < SUM_AT + SUM_BYTES ? ' ' : header[i];
        plain += b;
        with_signs += (int8_t)b;
    }
    return read_number(header + SUM_AT, SUM_BYTES, &found) &&
           ((int64_t)found == plain || (int64_t)found == with_signs);
}

static bool is_zero(const uint8_t *header)
{
    for (int i = 0; i < CNN_TAR_BLOCK; i++)
        if (header[i] != 0)
            return false;
    return true;
}

/* ustar has a prefix field for long names; GNU tar uses it for other data. */
static void take_name(struct cnn_tar *t, const uint8_t *header)
{
    size_t n = 0;
    if (memcmp(header + MAGIC_AT, "ustar\0", 6) == 0 && header[PREFIX_AT] != '\0') {
        n = strnlen((const char *)header + PREFIX_AT, PREFIX_BYTES);
        memcpy(t->name, header + PREFIX_AT, n);
        t->name[n++] = '/';
    }
    size_t len = strnlen((const char *)header + NAME_AT, NAME_BYTES);
    memcpy(t->name + n, header + NAME_AT, len);
    t->name[n + len] = '\0';
}

static bool take_path(char *to, bool *has, const char *value, size_t n)
{
    if (n == 0 || n > CNN_TAR_MAX_NAME || memchr(value, '\0', n) != NULL)
        return false;
    memcpy(to, value, n);
    to[n] = '\0';
    return *has = true;
}

static void take_link(struct cnn_tar *t, const uint8_t *header)
{
    size_t n = strnlen((const char *)header + LINK_AT, LINK_BYTES);
    memcpy(t->link, header + LINK_AT, n);
    t->link[n] = '\0';
}

/* Parses one record of a pax header, "LENGTH KEY=VALUE\n", at text. Returns its length, 0 if it is
 * invalid. */
static size_t take_record(struct cnn_tar *t, const char *text, size_t len)
{
    char *end;
    unsigned long n = strtoul(text, &end, 10); /* stays within text, which is NUL-terminated */
    if (*text < '1' || *text > '9' || *end != ' ' || n > len || text + n < end + 3 || text[n - 1] != '\n')
        return 0;
    const char *key = end + 1, *last = text + n - 1;
    const char *value = memchr(key, '=', (size_t)(last - key));
    if (value == NULL)
        return 0;
    size_t n_key = (size_t)(value - key), n_value = (size_t)(last - value - 1);
    value++;
    if (n_key == 4 && memcmp(key, "path", 4) == 0 && !take_path(t->name, &t->has_name, value, n_value))
        return 0;
    if (n_key == 8 && memcmp(key, "linkpath", 8) == 0 && !take_path(t->link, &t->has_link, value, n_value))
        return 0;
    if (n_key == 4 && memcmp(key, "size", 4) == 0) {
        t->next_size = strtoull(value, &end, 10);
        if (*value < '0' || *value > '9' || end != last)
            return 0;
        t->has_size = true;
    }
    return n;
}

/* Parses the extension header of `bytes` bytes at `at`. kind: 'L' or 'K', GNU's long name
 * of a member or of a link's target, or 'x', pax. */
static int take_extension(struct cnn_tar *t, char kind, uint64_t at, uint64_t bytes, struct ps_error *err)
{
    enum { MOST = 1 << 16 };
    char text[MOST + 1];
    if (bytes == 0 || bytes > (kind == 'x' ? MOST : CNN_TAR_MAX_NAME + 1))
        return fail_at(at, err, "an extension header that is empty or too long");
    int rc = read_at(t, at, text, (size_t)bytes, err);
    if (rc != 0)
        return rc;
    text[bytes] = '\0';
    if (kind != 'x') {
        bool is_right = kind == 'L' ? take_path(t->name, &t->has_name, text, strlen(text))
                                    : take_path(t->link, &t->has_link, text, strlen(text));
        return is_right ? 0 : fail_at(at, err, "a long name that is empty or too long");
    }
    for (size_t done = 0, n; done < bytes; done += n) {
        n = take_record(t, text + done, (size_t)bytes - done);
        if (n == 0)
            return fail_at(at + done, err, "a pax record that cannot be read");
    }
    return 0;
}

/* Reads the header at t->at and advances past its member. *kind: 0 at the end. */
static int read_header(struct cnn_tar *t, uint8_t *header, char *kind, uint64_t *bytes, struct ps_error *err)
{
    uint64_t at = t->at;
    *kind = 0;
    if (at == t->size)
        return 0;
    if (t->size - at < CNN_TAR_BLOCK)
        return fail_at(at, err, "the archive ends within a header");
    int rc = read_at(t, at, header, CNN_TAR_BLOCK, err);
    if (rc != 0 || is_zero(header))
        return rc;
    if (!is_sum_right(header))
        return fail_at(at, err,
                       at == 0 ? "not a tar file: the header's checksum is wrong; allowed: tar without "
                                 "compression"
                               : "the header's checksum is wrong");
    if (!read_number(header + SIZE_AT, SIZE_BYTES, bytes))
        return fail_at(at, err, "a member's size that cannot be read");
    *kind = header[KIND_AT] == '\0' || header[KIND_AT] == '7' ? '0' : (char)header[KIND_AT];
    if (*kind == '0' && t->has_size)
        *bytes = t->next_size;
    if (*kind >= '1' && *kind <= '6') /* links, devices, folders: no data follows, whatever the size field
                                         says */
        *bytes = 0;
    if (*kind == 'S')
        return fail_at(at, err, "a sparse member; allowed: whole files");
    if (*bytes > t->size - at - CNN_TAR_BLOCK)
        return fail_at(at, err, "a member extends past the end of the archive");
    uint64_t blocks = (*bytes + CNN_TAR_BLOCK - 1) / CNN_TAR_BLOCK;
    uint64_t next = at + CNN_TAR_BLOCK + blocks * CNN_TAR_BLOCK;
    t->at = next < t->size ? next : t->size; /* the last block may lack its padding */
    return 0;
}

int cnn_tar_next(struct cnn_tar *t, struct cnn_tar_member *out, struct ps_error *err)
{
    uint8_t header[CNN_TAR_BLOCK];
    for (;;) {
        char kind;
        uint64_t at = t->at + CNN_TAR_BLOCK, bytes = 0;
        int rc = read_header(t, header, &kind, &bytes, err);
        if (rc != 0 || kind == 0)
            return rc;
        if (kind == 'L' || kind == 'K' || kind == 'x') {
            rc = take_extension(t, kind, at, bytes, err);
            if (rc != 0)
                return rc;
            continue;
        }
        if (kind == 'g') /* global pax headers are not used */
            continue;
        bool has_name = t->has_name, has_link = t->has_link, is_link = kind == '1' || kind == '2';
        t->has_name = t->has_link = t->has_size = false;
        if (kind != '0' && !is_link)
            continue;
        if (!has_name)
            take_name(t, header);
        if (is_link && !has_link)
            take_link(t, header);
        *out = (struct cnn_tar_member){t->name, at, bytes, is_link ? t->link : NULL, kind == '2'};
        return 1;
    }
}
