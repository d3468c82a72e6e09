#include "nets/data/cifar_format.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/file.h"

const struct cnn_cifar_layout cnn_cifar_10 = {1, 10,
                                              "data_batch_1.bin to data_batch_5.bin and test_batch.bin"};
const struct cnn_cifar_layout cnn_cifar_100 = {2, 100, "train.bin and test.bin"};

/* 32: a crop of the image padded by 4 pixels on each side (He et al. 2015, "Deep Residual Learning", 4.2).
 * 28: a crop of the image itself (Zhang, Choromanska, LeCun 2015, 5.1). */
const struct cnn_view cnn_cifar_views[CNN_CIFAR_VIEWS] = {
    {.height = 32, .width = 32, .pad = 4, .flips = true},
    {.height = 28, .width = 28, .pad = 0, .flips = true},
};

int cnn_cifar_parse(const struct cnn_cifar_layout *layout, const char *name, const uint8_t *bytes, size_t len,
                    uint32_t *n_images, struct ps_error *err)
{
    size_t record = cnn_cifar_record(layout), n = len / record, rest = len % record;

    if (len == 0)
        return ps_fail(err, -EBADMSG, "%.160s: byte 0: the file is empty; allowed: images of %zu bytes", name,
                       record);
    if (n > CNN_CIFAR_MAX_COUNT || (n == CNN_CIFAR_MAX_COUNT && rest > 0))
        return ps_fail(err, -EBADMSG, "%.160s: byte %zu: more bytes follow; allowed: at most %d images", name,
                       CNN_CIFAR_MAX_COUNT * record, CNN_CIFAR_MAX_COUNT);
    if (rest != 0)
        return ps_fail(err, -EBADMSG,
                       "%.160s: byte %zu: the file ends %zu bytes into image %zu; allowed: whole images of "
                       "%zu bytes",
                       name, len, rest, n, record);
    for (size_t i = 0; i < n; i++) {
        size_t at = i * record + layout->labels - 1;
        if (bytes[at] >= layout->classes)
            return ps_fail(err, -EBADMSG, "%.160s: byte %zu: label %u of image %zu; allowed: 0 to %u", name,
                           at, bytes[at], i, layout->classes - 1);
    }
    *n_images = (uint32_t)n;
    return 0;
}

/* Reads a whole file, at most `most` bytes of it. */
static int read_all(int fd, const char *path, size_t most, uint8_t **bytes, size_t *len, struct ps_error *err)
{
    struct stat st;
    if (fstat(fd, &st) != 0)
        return ps_fail(err, -errno, "%.200s: cannot be read: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return ps_fail(err, -EINVAL, "%.200s: %s; allowed: a regular file", path,
                       S_ISDIR(st.st_mode) ? "a folder" : "a pipe, a socket or a device");
    size_t room = (size_t)st.st_size < most ? (size_t)st.st_size : most, have;
    uint8_t *buffer = malloc(room > 0 ? room : 1);
    if (buffer == NULL)
        return ps_fail(err, -ENOMEM, "%.200s: no memory for its %zu bytes", path, room);
    int rc = ps_file_read(fd, 0, buffer, room, &have);
    if (rc < 0 && rc != -ENODATA) { /* where the file shrank after fstat the parser reports its end */
        rc = ps_fail(err, -EIO, "%.160s: byte %zu: cannot be read: %s", path, have, strerror(-rc));
        free(buffer);
        return rc;
    }
    *bytes = buffer;
    *len = have;
    return 0;
}

int cnn_cifar_read(const struct cnn_cifar_layout *layout, const char *dir, const char *name, uint8_t **bytes,
                   uint32_t *n_images, struct ps_error *err)
{
    char path[PATH_MAX];
    size_t len = 0;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return ps_fail(err, -ENAMETOOLONG, "the path of %s is longer than %d bytes", name, PATH_MAX - 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* opening a pipe must not block */
    if (fd < 0 && errno == ENOENT)
        return ps_fail(err, -ENOENT, "%.160s: no such file; allowed: a folder with %s", path, layout->files);
    if (fd < 0)
        return ps_fail(err, -errno, "%.200s: cannot be opened: %s", path, strerror(errno));
    /* one byte more than the largest allowed file, so that the parser can refuse larger ones */
    int rc = read_all(fd, path, CNN_CIFAR_MAX_COUNT * cnn_cifar_record(layout) + 1, bytes, &len, err);
    close(fd);
    return rc != 0 ? rc : cnn_cifar_parse(layout, path, *bytes, len, n_images, err);
}
