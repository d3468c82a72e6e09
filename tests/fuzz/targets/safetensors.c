/* A safetensors file of --init, as whoever wrote it left it: 8 bytes of length, the header, the data. What
 * the header says of a tensor lies within the data. The whole way is a file's: what fits is read, into no
 * more floats than it has bytes for. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nets/training/init.h"
#include "nets/training/safetensors.h"
#include "tests/fuzz/fuzz.h"

static const struct cnn_param params[] = {
    {.name = "a", .offset = 0, .shape = {2, 2}, .n_dims = 2},
    {.name = "b", .offset = 4, .shape = {3}, .n_dims = 1},
};

static void read_header(const uint8_t *bytes, size_t len)
{
    struct cnn_safetensors *st = NULL;
    struct ps_error err = {""};
    uint64_t said;
    if (len < sizeof said)
        return;
    memcpy(&said, bytes, sizeof said);
    size_t header = said < len - sizeof said ? (size_t)said : len - sizeof said,
           rest = len - sizeof said - header;
    if (cnn_safetensors_parse("FILE", (const char *)bytes + sizeof said, header, rest, &st, &err) < 0) {
        promise(strncmp(err.text, "FILE", 4) == 0);
        return;
    }
    for (size_t i = 0; i < cnn_safetensors_count(st); i++) {
        const struct cnn_st_tensor *t = cnn_safetensors_tensor(st, i);
        promise(t->begin_at <= rest && t->n_dims <= CNN_ST_MAX_DIMS);
        promise(t->type == CNN_ST_OTHER || t->n <= (rest - t->begin_at) / 2); /* no float is narrower */
        promise(cnn_safetensors_find(st, t->name) == t);
    }
    cnn_safetensors_close(st);
}

static void load_file(const uint8_t *bytes, size_t len)
{
    struct cnn_init_report report;
    struct ps_error err = {""};
    char path[64];
    float x[7];
    int fd = memfd_create("init", MFD_CLOEXEC);
    promise(fd >= 0 && write(fd, bytes, len) == (ssize_t)len);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    for (int i = 0; i < 7; i++)
        x[i] = 1;
    if (cnn_init_load(path, NULL, params, 2, x, &report, &err) < 0)
        promise(strncmp(err.text, path, strlen(path)) == 0);
    else
        for (int i = 0; i < 7; i++)
            promise(__builtin_isfinite(x[i]));
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    read_header(bytes, len);
    load_file(bytes, len);
    return 0;
}
