/* CIFAR-10 files: what is accepted is whole records, and no fewer, whose labels are classes. */
#include <string.h>

#include "nets/data/cifar_format.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct ps_error err = {""};
    uint32_t n = 0;

    if (cnn_cifar_parse("FILE", bytes, len, &n, &err) < 0) {
        promise(strstr(err.text, "FILE") != NULL);
        return 0;
    }
    promise(n >= 1 && n <= CNN_CIFAR_MAX_COUNT && (size_t)n * CNN_CIFAR_RECORD == len);
    for (uint32_t i = 0; i < n; i++)
        promise(bytes[(size_t)i * CNN_CIFAR_RECORD] < CNN_CIFAR_CLASSES);
    return 0;
}
