#include "proto/codecs/kernels.h"

extern const struct ps_codec_kernels ps_codec_kernels_scalar;
#ifdef __x86_64__
extern const struct ps_codec_kernels ps_codec_kernels_avx2, ps_codec_kernels_avx512;
static const struct ps_codec_kernels *const rows[] = {&ps_codec_kernels_scalar, &ps_codec_kernels_avx2,
                                                      &ps_codec_kernels_avx512};

/* Not every compiler can query F16C. It is part of x86-64-v3 with AVX2 and FMA: every CPU with these two has
 * it. */
bool ps_codec_kernels_runs_here(const struct ps_codec_kernels *row)
{
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (row == &ps_codec_kernels_avx2)
        return avx2;
    if (row == &ps_codec_kernels_avx512)
        return avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return true;
}
#else
static const struct ps_codec_kernels *const rows[] = {&ps_codec_kernels_scalar};

bool ps_codec_kernels_runs_here(const struct ps_codec_kernels *row)
{
    return row == &ps_codec_kernels_scalar;
}
#endif
#define N_ROWS (sizeof rows / sizeof *rows)

const struct ps_codec_kernels *const *ps_codec_kernels_rows(size_t *n)
{
    *n = N_ROWS;
    return rows;
}

const struct ps_codec_kernels *ps_codec_kernels_best(void)
{
    size_t k = N_ROWS - 1;
    while (k > 0 && !ps_codec_kernels_runs_here(rows[k]))
        k--;
    return rows[k];
}
