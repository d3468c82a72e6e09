#include "nets/onednn/kernels.h"

extern const struct cnn_kernels cnn_kernels_avx512, cnn_kernels_avx2, cnn_kernels_base;

/* Widest first; base is usable everywhere. */
static const struct cnn_kernels *const sets[] = {
#ifdef __x86_64__
    &cnn_kernels_avx512,
    &cnn_kernels_avx2,
#endif
    &cnn_kernels_base,
};

const struct cnn_kernels *cnn_kernels_pick(void)
{
    size_t i = 0;
    while (!sets[i]->is_usable())
        i++;
    return sets[i];
}
