/* cifar10:DIR, the small colour images of Krizhevsky, Nair and Hinton, in the six files of the binary
 * version. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nets/data/cifar_format.h"
#include "nets/data/dataset.h"

enum { N_TRAIN_FILES = 5, N_FILES = 6, TEST_FILE = 5 };

static const char *const names[N_FILES] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                           "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};

struct cifar10 {
    uint8_t *bytes[N_FILES];
    uint32_t n_images; /* of every file */
};

/* The files have no header, so a file truncated between two images shows only by its number of images. */
static int read_files(struct cifar10 *c, const char *dir, struct ps_error *err)
{
    for (int f = 0; f < N_FILES; f++) {
        uint32_t n = 0;
        int rc = cnn_cifar_read(&cnn_cifar_10, dir, names[f], &c->bytes[f], &n, err);
        if (rc != 0)
            return rc;
        if (f == 0)
            c->n_images = n;
        if (n != c->n_images)
            return ps_fail(
                err, -EBADMSG,
                "%.120s/%s: byte %zu: the file ends after %u images, %s after %u; allowed: as many in each",
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

const struct cnn_data_type cnn_data_cifar10 = {
    .name = "cifar10",
    .usage = "cifar10:DIR",
    .mean = {0.4914f, 0.4822f, 0.4465f}, /* red, green, blue of the 50,000 training images */
    .deviation = {0.2470f, 0.2435f, 0.2616f},
    .views = cnn_cifar_views,
    .n_views = CNN_CIFAR_VIEWS,
    .is_held = true,
    .open = cifar10_open,
    .close = cifar10_close,
    .image = cifar10_image,
};
