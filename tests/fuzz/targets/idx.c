/* IDX files, plain or gzipped: labels (an even first byte) or images (odd). What is accepted has the shape
 * that was asked for and, of a plain file, exactly the file's bytes. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "nets/data/idx_format.h"
#include "tests/fuzz/fuzz.h"

enum { HEADER_BYTES = 4 };

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const uint32_t shapes[2][3] = {{0}, {0, 4, 3}};
    static int fd = -1;
    static char name[16];
    struct ps_error err = {""};
    struct cnn_idx idx;
    size_t n_values = 1;

    if (len == 0)
        return 0;
    uint32_t n_dims = bytes[0] % 2 == 0 ? 1 : 3, header = HEADER_BYTES * (1 + n_dims);
    bytes++, len--;
    if (fd < 0) {
        fd = memfd_create("idx", MFD_CLOEXEC);
        snprintf(name, sizeof name, "%d", fd);
    }
    promise(ftruncate(fd, 0) == 0 && pwrite(fd, bytes, len, 0) == (ssize_t)len);
    if (cnn_idx_read("/proc/self/fd", name, shapes[n_dims > 1], n_dims, &idx, &err) < 0) {
        promise(strstr(err.text, name) != NULL);
        return 0;
    }
    for (uint32_t d = 0; d < n_dims; d++) {
        promise(idx.shape[d] >= 1 && idx.shape[d] <= CNN_IDX_MAX_COUNT);
        promise(d == 0 || idx.shape[d] == shapes[1][d]);
        n_values *= idx.shape[d];
    }
    promise(idx.n_bytes == n_values);
    if (bytes[0] == 0) /* gzip starts with 1f 8b */
        promise(len == header + n_values && memcmp(idx.bytes, bytes + header, n_values) == 0);
    free(idx.bytes);
    return 0;
}
