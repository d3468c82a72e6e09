/* cifar_format.h: files of the binary versions of CIFAR-10 and CIFAR-100
 * (https://www.cs.toronto.edu/~kriz/cifar.html).
 *
 * A file is records and nothing else: a label, 0 to 9, or of CIFAR-100 a coarse label and a fine one, 0 to
 * 99, then 32 x 32 bytes of red, as many of green and of blue, row by row. There is no header: the number of
 * images is the length of the file. */
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
    const char *files; /* for the sentence of one that is missing */
};

extern const struct cnn_cifar_layout cnn_cifar_10, cnn_cifar_100;

static inline size_t cnn_cifar_record(const struct cnn_cifar_layout *layout)
{
    return layout->labels + (size_t)CNN_CIFAR_PIXELS;
}

/* Checks the bytes of a whole file, wherever they came from: reads bytes[0 .. len), keeps and prints nothing.
 * name stands in the sentence for the file. *n_images: 1 to CNN_CIFAR_MAX_COUNT; image i is at bytes +
 * i * cnn_cifar_record(layout), its labels first. -EBADMSG with a sentence that names file, byte, found and
 * allowed. */
int cnn_cifar_parse(const struct cnn_cifar_layout *layout, const char *name, const uint8_t *bytes, size_t len,
                    uint32_t *n_images, struct ps_error *err);

/* Reads and checks DIR/name. *bytes: freed by the caller, also after an error. Errors name the file. */
int cnn_cifar_read(const struct cnn_cifar_layout *layout, const char *dir, const char *name, uint8_t **bytes,
                   uint32_t *n_images, struct ps_error *err);

/* Crops of 32 x 32 and 28 x 28, for training images of both. */
enum { CNN_CIFAR_VIEWS = 2 };
extern const struct cnn_view cnn_cifar_views[CNN_CIFAR_VIEWS];

#endif
