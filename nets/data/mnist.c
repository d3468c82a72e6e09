/* mnist:DIR, the handwritten digits of LeCun, Cortes and Burges, and other data sets in the same four
 * files. */
#include "nets/data/dataset.h"
#include "nets/data/idx_format.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, CLASSES = 10 };

struct mnist {
    struct cnn_idx images[2], labels[2]; /* by enum cnn_split */
};

static const struct {
    const char *images, *labels;
} files[] = {
    [CNN_TRAIN] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"},
    [CNN_TEST] = {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"},
};

static int read_split(struct mnist *m, enum cnn_split split, const char *dir, struct ps_error *err)
{
    static const uint32_t image_shape[] = {0, SIDE, SIDE}, label_shape[] = {0};
    struct cnn_idx *images = &m->images[split], *labels = &m->labels[split];

    int rc = cnn_idx_read(dir, files[split].images, image_shape, 3, images, err);
    if (rc == 0)
        rc = cnn_idx_read(dir, files[split].labels, label_shape, 1, labels, err);
    if (rc != 0)
        return rc;
    if (images->shape[0] != labels->shape[0])
        return ps_fail(err, -EBADMSG, "%.120s: %s has %u images, %s has %u labels; allowed: equal numbers",
                       dir, files[split].images, images->shape[0], files[split].labels, labels->shape[0]);
    for (uint32_t i = 0; i < labels->shape[0]; i++)
        if (labels->bytes[i] >= CLASSES)
            return ps_fail(err, -EBADMSG, "%.120s/%s: byte %u: label %u; allowed: 0 to %d", dir,
                           files[split].labels, 8 + i, labels->bytes[i], CLASSES - 1);
    return 0;
}

static void mnist_close(void *self)
{
    struct mnist *m = self;
    for (int split = 0; split < 2; split++) {
        free(m->images[split].bytes);
        free(m->labels[split].bytes);
    }
    free(m);
}

static int mnist_open(const char *arg, const struct cnn_data_options *opt, struct cnn_data_info *info,
                      void **self, struct ps_error *err)
{
    (void)opt;
    if (arg == NULL || *arg == '\0')
        return ps_fail(err, -EINVAL, "data set mnist: no folder given; allowed: mnist:DIR");
    struct mnist *m = calloc(1, sizeof *m);
    if (m == NULL)
        return ps_fail(err, -ENOMEM, "no memory for data set mnist");
    int rc = read_split(m, CNN_TRAIN, arg, err);
    if (rc == 0)
        rc = read_split(m, CNN_TEST, arg, err);
    if (rc != 0) {
        mnist_close(m);
        return rc;
    }
    *info = (struct cnn_data_info){.name = "mnist",
                                   .channels = 1,
                                   .height = SIDE,
                                   .width = SIDE,
                                   .classes = CLASSES,
                                   .n_train = m->images[CNN_TRAIN].shape[0],
                                   .n_test = m->images[CNN_TEST].shape[0]};
    *self = m;
    return 0;
}

static int mnist_image(const void *self, const struct cnn_image_id *id, uint8_t *pixels, uint16_t *label,
                       struct ps_error *err)
{
    (void)err;
    const struct mnist *m = self;
    memcpy(pixels, m->images[id->split].bytes + (size_t)id->index * PIXELS, PIXELS);
    *label = m->labels[id->split].bytes[id->index];
    return 0;
}

const struct cnn_data_type cnn_data_mnist = {
    .name = "mnist",
    .usage = "mnist:DIR",
    .mean = {0.1307f},
    .deviation = {0.3081f},
    .is_held = true,
    .open = mnist_open,
    .close = mnist_close,
    .image = mnist_image,
};
