/* cifar10:DIR, the small colour images of Krizhevsky, Nair and Hinton, in the six files of their binary
 * version. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nets/data/cifar_format.h"
#include "nets/data/dataset.h"

enum { N_TRAIN_FILES = 5, N_FILES = 6, TEST_FILE = 5 };

static const char *const names[N_FILES] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                           "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

struct cifar10 {
    uint8_t *bytes[N_FILES];
    uint32_t n_images; /* of every file */
};

/* Reads a whole file, but no more than one byte beyond the largest that is allowed. */
static int read_all(int fd, const char *path, uint8_t **bytes, size_t *len, struct ps_error *err)
{
    const size_t most = (size_t)CNN_CIFAR_MAX_COUNT * CNN_CIFAR_RECORD + 1;
    struct stat st;
    if (fstat(fd, &st) != 0)
        return ps_fail(err, -errno, "%.200s: cannot be read: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return ps_fail(err, -EINVAL, "%.200s: %s; allowed: a regular file", path,
                       S_ISDIR(st.st_mode) ? "a folder" : "a pipe, a socket or a device");
    size_t room = (size_t)st.st_size < most ? (size_t)st.st_size : most, have = 0;
    uint8_t *buffer = malloc(room > 0 ? room : 1);
    if (buffer == NULL)
        return ps_fail(err, -ENOMEM, "%.200s: no memory for its %zu bytes", path, room);
    while (have < room) {
        ssize_t n = read(fd, buffer + have, room - have);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) {
            int rc = ps_fail(err, -EIO, "%.160s: byte %zu: cannot be read: %s", path, have, strerror(errno));
            free(buffer);
            return rc;
        }
        if (n == 0) /* became shorter since fstat: the parser says where it ends */
            break;
        have += (size_t)n;
    }
    *bytes = buffer;
    *len = have;
    return 0;
}

static int read_file(const char *dir, const char *name, uint8_t **bytes, uint32_t *n_images,
                     struct ps_error *err)
{
    char path[PATH_MAX];
    size_t len = 0;
    if (snprintf(path, sizeof path, "%s/%s", dir, name) >= (int)sizeof path)
        return ps_fail(err, -ENAMETOOLONG, "the path of %s is longer than %d bytes", name, PATH_MAX - 1);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY); /* a pipe must not hold us here */
    if (fd < 0 && errno == ENOENT)
        return ps_fail(
            err, -ENOENT,
            "%.160s: no such file; allowed: a folder with data_batch_1.bin to data_batch_5.bin and "
            "test_batch.bin",
            path);
    if (fd < 0)
        return ps_fail(err, -errno, "%.200s: cannot be opened: %s", path, strerror(errno));
    int rc = read_all(fd, path, bytes, &len, err);
    close(fd);
    return rc != 0 ? rc : cnn_cifar_parse(path, *bytes, len, n_images, err);
}

/* Without a header, a file cut between two images only differs from a whole one by its number of images. */
static int read_files(struct cifar10 *c, const char *dir, struct ps_error *err)
{
    for (int f = 0; f < N_FILES; f++) {
        uint32_t n = 0;
        int rc = read_file(dir, names[f], &c->bytes[f], &n, err);
        if (rc != 0)
            return rc;
        if (f == 0)
            c->n_images = n;
        if (n != c->n_images)
            return ps_fail(
                err, -EBADMSG,
                "%.120s/%s: byte %zu: the file ends after %u images, %s after %u; allowed: as many "
                "in each",
                dir, names[f], (size_t)n * CNN_CIFAR_RECORD, n, names[0], c->n_images);
    }
    return 0;
}

static void cifar10_close(void *self)
{
    struct cifar10 *c = self;
    for (int f = 0; f < N_FILES; f++)
        free(c->bytes[f]);
    free(c);
}

static int cifar10_open(const char *arg, const struct cnn_data_options *opt, struct cnn_data_info *info,
                        void **self, struct ps_error *err)
{
    (void)opt;
    if (arg == NULL || *arg == '\0')
        return ps_fail(err, -EINVAL, "data set cifar10: no folder given; allowed: cifar10:DIR");
    struct cifar10 *c = calloc(1, sizeof *c);
    if (c == NULL)
        return ps_fail(err, -ENOMEM, "no memory for data set cifar10");
    int rc = read_files(c, arg, err);
    if (rc != 0) {
        cifar10_close(c);
        return rc;
    }
    *info = (struct cnn_data_info){.name = "cifar10",
                                   .channels = CNN_CIFAR_CHANNELS,
                                   .height = CNN_CIFAR_SIDE,
                                   .width = CNN_CIFAR_SIDE,
                                   .classes = CNN_CIFAR_CLASSES,
                                   .n_train = (uint64_t)c->n_images * N_TRAIN_FILES,
                                   .n_test = c->n_images};
    *self = c;
    return 0;
}

static int cifar10_image(const void *self, const struct cnn_image_id *id, uint8_t *pixels, uint16_t *label,
                         struct ps_error *err)
{
    const struct cifar10 *c = self;
    uint32_t file = id->split == CNN_TEST ? TEST_FILE : id->index / c->n_images;
    const uint8_t *record = c->bytes[file] + (size_t)(id->index % c->n_images) * CNN_CIFAR_RECORD;
    (void)err;
    *label = record[0];
    memcpy(pixels, record + 1, CNN_CIFAR_PIXELS);
    return 0;
}

/* 32: a crop of the image with 4 pixels more on each side (He et al. 2015, "Deep Residual Learning", 4.2).
 * 28: a crop of the image itself (Zhang, Choromanska, LeCun 2015, 5.1). */
static const struct cnn_view views[] = {
    {.height = 32, .width = 32, .pad = 4, .flips = true},
    {.height = 28, .width = 28, .pad = 0, .flips = true},
};

const struct cnn_data_type cnn_data_cifar10 = {
    .name = "cifar10",
    .usage = "cifar10:DIR",
    .mean = {0.4914f, 0.4822f, 0.4465f}, /* red, green, blue of the 50,000 training images */
    .deviation = {0.2470f, 0.2435f, 0.2616f},
    .views = views,
    .n_views = sizeof views / sizeof *views,
    .open = cifar10_open,
    .close = cifar10_close,
    .image = cifar10_image,
};
