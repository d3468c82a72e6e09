/* cifar_format.h: files of the binary versions of CIFAR-10 and CIFAR-100
 * (https://www.cs.toronto.edu/~kriz/cifar.html).
 *
 * A file is a sequence of records: a label, 0 to 9 (CIFAR-100: a coarse label and a fine label, 0 to 99),
 * then 32 x 32 bytes each of red, green and blue, row by row. There is no header: the length of the file
 * gives the number of images. */
#ifndef CNN_DATA_CIFAR_FORMAT_H
#define CNN_DATA_CIFAR_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "nets/data/dataset.h"

enum {
    CNN_CIFAR_SIDE = 32,
    CNN_CIFAR_CHANNELS = 3,
    CNN_CIFAR_PIXELS = CNN_CIFAR_CHANNELS * CNN_CIFAR_SIDE * CNN_CIFAR_SIDE,
    CNN_CIFAR_RECORD = 1 + CNN_CIFAR_PIXELS,
    CNN_CIFAR_CLASSES = 10,
    CNN_CIFAR_MAX_COUNT = 100000, /* images of a file; the published ones have 10000 */
};

struct cnn_cifar_layout {
    uint32_t labels; /* bytes before the pixels; the last is the class */
    uint32_t classes;
    const char *files; /* for the error message about a missing file */
};

extern const struct cnn_cifar_layout cnn_cifar_10, cnn_cifar_100;

static inline size_t cnn_cifar_record(const struct cnn_cifar_layout *layout)
{
    return layout->labels + (size_t)CNN_CIFAR_PIXELS;
}

/* Checks the bytes[0 .. len) of a whole file. name: the file, for messages. *n_images: 1 to
 * CNN_CIFAR_MAX_COUNT; image i is at bytes + i * cnn_cifar_record(layout), its labels first. -EBADMSG with a
 * sentence that names file, byte, found and allowed. */
int cnn_cifar_parse(const struct cnn_cifar_layout *layout, const char *name, const uint8_t *bytes, size_t len,
                    uint32_t *n_images, struct ps_error *err);

/* Reads and checks DIR/name. *bytes is to be freed by the caller, even after an error. Errors name the
 * file. */
int cnn_cifar_read(const struct cnn_cifar_layout *layout, const char *dir, const char *name, uint8_t **bytes,
                   uint32_t *n_images, struct ps_error *err);

/* Crops of 32 x 32 and 28 x 28 for training images of both data sets. */
enum { CNN_CIFAR_VIEWS = 2 };
extern const struct cnn_view cnn_cifar_views[CNN_CIFAR_VIEWS];

#endif
