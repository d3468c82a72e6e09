#include "nets/data/cifar_format.h"

#include <errno.h>

int cnn_cifar_parse(const char *name, const uint8_t *bytes, size_t len, uint32_t *n_images,
                    struct ps_error *err)
{
    size_t n = len / CNN_CIFAR_RECORD, rest = len % CNN_CIFAR_RECORD;

    if (len == 0)
        return ps_fail(err, -EBADMSG, "%.160s: byte 0: the file is empty; allowed: images of %d bytes", name,
                       CNN_CIFAR_RECORD);
    if (n > CNN_CIFAR_MAX_COUNT || (n == CNN_CIFAR_MAX_COUNT && rest > 0))
        return ps_fail(err, -EBADMSG, "%.160s: byte %zu: more bytes follow; allowed: at most %d images", name,
                       (size_t)CNN_CIFAR_MAX_COUNT * CNN_CIFAR_RECORD, CNN_CIFAR_MAX_COUNT);
    if (rest != 0)
        return ps_fail(err, -EBADMSG,
                       "%.160s: byte %zu: the file ends %zu bytes into image %zu; allowed: whole images of "
                       "%d bytes",
                       name, len, rest, n, CNN_CIFAR_RECORD);
    for (size_t i = 0; i < n; i++)
        if (bytes[i * CNN_CIFAR_RECORD] >= CNN_CIFAR_CLASSES)
            return ps_fail(err, -EBADMSG, "%.160s: byte %zu: label %u of image %zu; allowed: 0 to %d", name,
                           i * CNN_CIFAR_RECORD, bytes[i * CNN_CIFAR_RECORD], i, CNN_CIFAR_CLASSES - 1);
    *n_images = (uint32_t)n;
    return 0;
}
