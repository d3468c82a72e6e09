#include "nets/training/safetensors.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/file.h"

#define PIECE 65536 /* values read at a time */

struct cnn_safetensors {
    int fd; /* -1: no data (cnn_safetensors_parse) */
    uint64_t data_at, data_bytes;
    char *path;
    json_t *root; /* owns names */
    struct cnn_st_tensor *tensors;
    size_t n;
};

static const struct {
    const char *name;
    size_t bytes;
} types[] = {[CNN_ST_F32] = {"F32", 4},
             [CNN_ST_F64] = {"F64", 8},
             [CNN_ST_F16] = {"F16", 2},
             [CNN_ST_BF16] = {"BF16", 2}};

/* Values of other types are not read: only their size is checked. */
static const struct {
    const char *name;
    size_t bytes;
} others[] = {{"I8", 1},  {"U8", 1},  {"BOOL", 1}, {"I16", 2},     {"U16", 2},    {"I32", 4},
              {"U32", 4}, {"I64", 8}, {"U64", 8},  {"F8_E4M3", 1}, {"F8_E5M2", 1}};

/* Bytes of a value; 0 for an unknown type. */
static size_t type_of(const char *name, enum cnn_st_type *out)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].name, name) == 0) {
            *out = (enum cnn_st_type)i;
            return types[i].bytes;
        }
    *out = CNN_ST_OTHER;
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i].name, name) == 0)
            return others[i].bytes;
    return 0;
}

static bool is_count(const json_t *json, uint64_t *out)
{
    if (!json_is_integer(json) || json_integer_value(json) < 0)
        return false;
    *out = (uint64_t)json_integer_value(json);
    return true;
}

static int parse_shape(const char *path, struct cnn_st_tensor *t, const json_t *shape, struct ps_error *err)
{
    t->n = 1;
    t->n_dims = (uint32_t)json_array_size(shape);
    if (!json_is_array(shape) || json_array_size(shape) > CNN_ST_MAX_DIMS)
        return ps_fail(err, -EBADMSG, "%s: tensor '%.60s': shape: allowed is a list of at most %d sizes",
                       path, t->name, CNN_ST_MAX_DIMS);
    for (uint32_t k = 0; k < t->n_dims; k++)
        if (!is_count(json_array_get(shape, k), &t->shape[k]) ||
            __builtin_mul_overflow(t->n, t->shape[k], &t->n))
            return ps_fail(err, -EBADMSG,
                           "%s: tensor '%.60s': size %u of its shape is not a count, or too large", path,
                           t->name, k);
    return 0;
}

static int parse_tensor(const struct cnn_safetensors *st, struct cnn_st_tensor *t, const json_t *entry,
                        struct ps_error *err)
{
    const json_t *offsets = json_object_get(entry, "data_offsets");
    uint64_t end, bytes;
    t->dtype = json_string_value(json_object_get(entry, "dtype"));
    if (t->dtype == NULL || json_array_size(offsets) != 2 ||
        !is_count(json_array_get(offsets, 0), &t->begin_at) || !is_count(json_array_get(offsets, 1), &end))
        return ps_fail(err, -EBADMSG,
                       "%s: tensor '%.60s': allowed is an object of dtype, shape and two data_offsets",
                       st->path, t->name);
    int rc = parse_shape(st->path, t, json_object_get(entry, "shape"), err);
    if (rc < 0)
        return rc;
    size_t each = type_of(t->dtype, &t->type);
    if (end < t->begin_at || end > st->data_bytes)
        return ps_fail(err, -EBADMSG,
                       "%s: tensor '%.60s' is bytes %" PRIu64 " to %" PRIu64
                       " of the data; the file has %" PRIu64 " (is it truncated?)",
                       st->path, t->name, t->begin_at, end, st->data_bytes);
    if (each > 0 && (__builtin_mul_overflow(t->n, each, &bytes) || bytes != end - t->begin_at))
        return ps_fail(err, -EBADMSG,
                       "%s: tensor '%.60s': its %s values do not fill its %" PRIu64 " bytes of data",
                       st->path, t->name, t->dtype, end - t->begin_at);
    return 0;
}

static int parse(struct cnn_safetensors *st, struct ps_error *err)
{
    const char *name;
    json_t *entry;
    if (!json_is_object(st->root))
        return ps_fail(err, -EBADMSG, "%s: the header is not a JSON object", st->path);
    st->tensors = calloc(json_object_size(st->root) + 1, sizeof *st->tensors);
    if (st->tensors == NULL)
        return ps_fail(err, -ENOMEM, "%s: no memory for %zu tensors", st->path, json_object_size(st->root));
    json_object_foreach(st->root, name, entry)
    {
        if (strcmp(name, "__metadata__") == 0)
            continue;
        struct cnn_st_tensor *t = &st->tensors[st->n++];
        t->name = name;
        int rc = parse_tensor(st, t, entry, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int cnn_safetensors_parse(const char *path, const char *text, size_t len, uint64_t data_bytes,
                          struct cnn_safetensors **out, struct ps_error *err)
{
    struct cnn_safetensors *st = calloc(1, sizeof *st);
    json_error_t why;
    int rc;
    if (st == NULL || (st->path = strdup(path)) == NULL) {
        free(st);
        return ps_fail(err, -ENOMEM, "%s: no memory for its header", path);
    }
    st->fd = -1;
    st->data_bytes = data_bytes;
    st->root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    if (st->root == NULL)
        rc = ps_fail(err, -EBADMSG, "%s: the header is not JSON: %.80s at byte %d", path, why.text,
                     why.position);
    else
        rc = parse(st, err);
    if (rc < 0)
        cnn_safetensors_close(st);
    else
        *out = st;
    return rc;
}

static int read_header(const char *path, int fd, uint64_t size, struct cnn_safetensors **out,
                       struct ps_error *err)
{
    uint64_t len;
    if (size < sizeof len || ps_file_read(fd, 0, &len, sizeof len, NULL) < 0)
        return ps_fail(err, -EBADMSG,
                       "%s: %" PRIu64 " bytes; a safetensors file starts with 8 bytes of length", path, size);
    len = le64toh(len);
    if (len < 2 || len > CNN_ST_MAX_HEADER || len > size - sizeof len)
        return ps_fail(err, -EBADMSG,
                       "%s: byte 0 announces a header of %" PRIu64
                       " bytes; allowed are 2 to %d, within the file's %" PRIu64
                       " bytes: the file is truncated, or not a safetensors file",
                       path, len, CNN_ST_MAX_HEADER, size);
    char *text = malloc((size_t)len);
    int rc;
    if (text == NULL)
        rc = ps_fail(err, -ENOMEM, "%s: no memory for a header of %" PRIu64 " bytes", path, len);
    else if (ps_file_read(fd, sizeof len, text, (size_t)len, NULL) < 0)
        rc = ps_fail(err, -EBADMSG, "%s: cannot read the header's %" PRIu64 " bytes", path, len);
    else if ((rc = cnn_safetensors_parse(path, text, (size_t)len, size - sizeof len - len, out, err)) == 0)
        (*out)->data_at = sizeof len + len;
    free(text);
    return rc;
}

int cnn_safetensors_open(const char *path, struct cnn_safetensors **out, struct ps_error *err)
{
    struct stat st;
    int rc, fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return ps_fail(err, -errno, "%s: cannot be opened: %s", path, strerror(errno));
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        rc = ps_fail(err, S_ISDIR(st.st_mode) ? -EISDIR : -EINVAL, "%s: %s; allowed is a safetensors file",
                     path, S_ISDIR(st.st_mode) ? "a directory" : "not a regular file");
    else
        rc = read_header(path, fd, (uint64_t)st.st_size, out, err);
    if (rc < 0)
        close(fd);
    else
        (*out)->fd = fd;
    return rc;
}

void cnn_safetensors_close(struct cnn_safetensors *st)
{
    if (st == NULL)
        return;
    if (st->fd >= 0)
        close(st->fd);
    json_decref(st->root);
    free(st->tensors);
    free(st->path);
    free(st);
}

size_t cnn_safetensors_count(const struct cnn_safetensors *st)
{
    return st->n;
}

const struct cnn_st_tensor *cnn_safetensors_tensor(const struct cnn_safetensors *st, size_t i)
{
    return &st->tensors[i];
}

const struct cnn_st_tensor *cnn_safetensors_find(const struct cnn_safetensors *st, const char *name)
{
    for (size_t i = 0; i < st->n; i++)
        if (strcmp(st->tensors[i].name, name) == 0)
            return &st->tensors[i];
    return NULL;
}

static float of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* A subnormal half is its mantissa times 2^-24. */
static float of_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = h & 0x7fff;
    if (rest >= 0x7c00)
        return of_bits(sign | 0x7f800000 | (rest & 0x3ff) << 13);
    if (rest < 0x400)
        return copysignf((float)rest * 0x1p-24f, of_bits(sign));
    return of_bits(sign | ((rest << 13) + ((127 - 15) << 23)));
}

static float value_of(enum cnn_st_type type, const unsigned char *at)
{
    uint64_t wide;
    uint32_t bits;
    uint16_t half;
    double d;
    switch (type) {
    case CNN_ST_F64:
        memcpy(&wide, at, sizeof wide);
        wide = le64toh(wide);
        memcpy(&d, &wide, sizeof d);
        return (float)d;
    case CNN_ST_F16:
    case CNN_ST_BF16:
        memcpy(&half, at, sizeof half);
        half = le16toh(half);
        return type == CNN_ST_F16 ? of_half(half) : of_bits((uint32_t)half << 16);
    default:
        memcpy(&bits, at, sizeof bits);
        return of_bits(le32toh(bits));
    }
}

int cnn_safetensors_read(struct cnn_safetensors *st, const struct cnn_st_tensor *t, float *out,
                         struct ps_error *err)
{
    if (t->type == CNN_ST_OTHER)
        return ps_fail(err, -EINVAL, "%s: tensor '%.60s' is of type %.20s; allowed: F32, F64, F16, BF16",
                       st->path, t->name, t->dtype);
    size_t each = types[t->type].bytes;
    unsigned char *piece = malloc(PIECE * each);
    int rc =
        piece != NULL ? 0 : ps_fail(err, -ENOMEM, "%s: no memory to read tensor '%.60s'", st->path, t->name);
    for (uint64_t i = 0; rc == 0 && i < t->n; i += PIECE) {
        size_t n = t->n - i < PIECE ? (size_t)(t->n - i) : PIECE;
        if (ps_file_read(st->fd, st->data_at + t->begin_at + i * each, piece, n * each, NULL) < 0)
            rc = ps_fail(err, -EBADMSG, "%s: the file ends within tensor '%.60s'", st->path, t->name);
        for (size_t k = 0; rc == 0 && k < n; k++) {
            out[i + k] = value_of(t->type, piece + k * each);
            if (!isfinite(out[i + k]))
                rc =
                    ps_fail(err, -EBADMSG, "%s: tensor '%.60s': value %" PRIu64 " is not finite as a float32",
                            st->path, t->name, i + k);
        }
    }
    free(piece);
    return rc;
}
