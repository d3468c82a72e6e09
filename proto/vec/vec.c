#include "proto/vec/vec.h"

extern const struct ps_vec ps_vec_scalar, ps_vec_racing_scalar;
#ifdef __x86_64__
extern const struct ps_vec ps_vec_avx2, ps_vec_avx512, ps_vec_racing_avx2, ps_vec_racing_avx512;
static const struct ps_vec *const rows[] = {&ps_vec_scalar, &ps_vec_avx2, &ps_vec_avx512};
static const struct ps_vec *const racing[] = {&ps_vec_racing_scalar, &ps_vec_racing_avx2,
                                              &ps_vec_racing_avx512};
#else
static const struct ps_vec *const rows[] = {&ps_vec_scalar};
static const struct ps_vec *const racing[] = {&ps_vec_racing_scalar};
#endif
#define N_ROWS (sizeof rows / sizeof *rows)

const struct ps_vec *const *ps_vec_rows(size_t *n)
{
    *n = N_ROWS;
    return rows;
}

#ifdef __x86_64__
bool ps_vec_runs_here(const struct ps_vec *row)
{
    if (row == &ps_vec_avx2)
        return __builtin_cpu_supports("avx2");
    if (row == &ps_vec_avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    return true;
}
#else
bool ps_vec_runs_here(const struct ps_vec *row)
{
    return row == &ps_vec_scalar;
}
#endif

static size_t best(void)
{
    size_t k = N_ROWS - 1;
    while (k > 0 && !ps_vec_runs_here(rows[k]))
        k--;
    return k;
}

const struct ps_vec *ps_vec_best(void)
{
    return rows[best()];
}

const struct ps_vec *ps_vec_best_racing(void)
{
    return racing[best()];
}
