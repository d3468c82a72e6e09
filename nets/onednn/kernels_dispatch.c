/* kernels_dispatch.c: chooses the widest instruction set that the library would use, so that
 * ONEDNN_MAX_CPU_ISA limits both. */
#include "nets/onednn/kernels.h"

#include <oneapi/dnnl/dnnl.h>

struct row {
    unsigned needs; /* bits of dnnl_cpu_isa_t; a wider set includes those of a narrower one */
    const struct cnn_kernels *kernels;
};

extern const struct cnn_kernels cnn_kernels_avx512, cnn_kernels_avx2, cnn_kernels_base, cnn_kernels_half;

/* Widest first; base runs everywhere. */
static const struct row rows[] = {
#ifdef __x86_64__
    {dnnl_cpu_isa_avx512_core, &cnn_kernels_avx512},
    {dnnl_cpu_isa_avx2, &cnn_kernels_avx2},
#endif
    {0, &cnn_kernels_base},
};

const struct cnn_kernels *cnn_kernels_pick(void)
{
    unsigned has = dnnl_get_effective_cpu_isa();
    size_t i = 0;

    while ((has & rows[i].needs) != rows[i].needs)
        i++;
    return rows[i].kernels;
}

/* The library's set with AMX includes AVX512_BF16. */
const struct cnn_kernels *cnn_kernels_bf16(void)
{
#ifdef __x86_64__
    unsigned needs = dnnl_cpu_isa_avx512_core_bf16;
    if ((dnnl_get_effective_cpu_isa() & needs) == needs)
        return &cnn_kernels_half;
#endif
    return NULL;
}
