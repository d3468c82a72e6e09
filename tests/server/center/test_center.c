/* A center's vectors take no memory and no time until somebody touches them. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server/center/center.h"
#include "tests/support/unit.h"

static uint64_t resident_bytes(void)
{
    unsigned long long size = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "re");
    ck_assert(f != NULL && fscanf(f, "%llu %llu", &size, &resident) == 2);
    fclose(f);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

START_TEST(a_vector_takes_no_memory_until_it_is_touched)
{
    const uint64_t n = UINT64_C(1) << 28; /* 1 GiB */
    uint64_t before = resident_bytes();
    float *v = psd_vector_create(n, (struct ps_range){0, n});
    ck_assert_ptr_nonnull(v);
    ck_assert_uint_lt(resident_bytes() - before, n * sizeof *v / 8);
    ck_assert(v[0] == 0 && v[n - 1] == 0);
    free(v);
}
END_TEST

/* Small ones lie where malloc has had others. */
START_TEST(a_vector_is_zeros_where_others_have_been)
{
    const uint64_t n = 1000003;
    for (int k = 0; k < 8; k++) {
        float *v = psd_vector_create(n, (struct ps_range){0, n});
        ck_assert_ptr_nonnull(v);
        for (uint64_t i = 0; i < n; i++)
            assert_quick(v[i] == 0);
        memset(v, 0x7f, n * sizeof *v);
        free(v);
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("center");
    TCase *tcase = tcase_create("center");
    tcase_add_test(tcase, a_vector_takes_no_memory_until_it_is_touched);
    tcase_add_test(tcase, a_vector_is_zeros_where_others_have_been);
    suite_add_tcase(suite, tcase);
    return unit_run(suite);
}
