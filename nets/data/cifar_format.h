/* cifar_format.h: files of the binary version of CIFAR-10 (https://www.cs.toronto.edu/~kriz/cifar.html).
 *
 * A file is records of 3073 bytes and nothing else: a label, 0 to 9, then 32 x 32 bytes of red, as many of
 * green and of blue, row by row. There is no header: the number of images is the length of the file. */
#ifndef CNN_DATA_CIFAR_FORMAT_H
#define CNN_DATA_CIFAR_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "nets/net.h"

enum {
    CNN_CIFAR_SIDE = 32,
    CNN_CIFAR_CHANNELS = 3,
    CNN_CIFAR_PIXELS = CNN_CIFAR_CHANNELS * CNN_CIFAR_SIDE * CNN_CIFAR_SIDE,
    CNN_CIFAR_RECORD = 1 + CNN_CIFAR_PIXELS,
    CNN_CIFAR_CLASSES = 10,
    CNN_CIFAR_MAX_COUNT = 100000, /* images of a file; the published ones have 10000 */
};

/* Checks the bytes of a whole file, wherever they came from: reads bytes[0 .. len), keeps and prints nothing.
 * name stands in the sentence for the file. *n_images: 1 to CNN_CIFAR_MAX_COUNT; image i is at bytes +
 * i * CNN_CIFAR_RECORD, its label first. -EBADMSG with a sentence that names file, byte, found and allowed.
 */
int cnn_cifar_parse(const char *name, const uint8_t *bytes, size_t len, uint32_t *n_images,
                    struct ps_error *err);

#endif
