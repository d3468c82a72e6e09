/* CIFAR files, of ten classes (an even first byte) or a hundred: what is accepted is whole records, and no
 * fewer, whose labels are classes. */
#include <string.h>

#include "nets/data/cifar_format.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct ps_error err = {""};
    uint32_t n = 0;

    if (len == 0)
        return 0;
    const struct cnn_cifar_layout *layout = bytes[0] % 2 == 0 ? &cnn_cifar_10 : &cnn_cifar_100;
    size_t record = cnn_cifar_record(layout);
    bytes++, len--;
    if (cnn_cifar_parse(layout, "FILE", bytes, len, &n, &err) < 0) {
        promise(strstr(err.text, "FILE") != NULL);
        return 0;
    }
    promise(n >= 1 && n <= CNN_CIFAR_MAX_COUNT && n * record == len);
    for (uint32_t i = 0; i < n; i++)
        promise(bytes[i * record + layout->labels - 1] < layout->classes);
    return 0;
}
