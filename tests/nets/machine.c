/* What the machine leaves a process. sched_getaffinity is the test's own here. */
#include <check.h>
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>

#include "nets/machine.h"
#include "tests/support/unit.h"

static int kernel_cpus, allowed_cpus; /* the kernel's set has room for so many; the process may use these */

int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set)
{
    (void)pid;
    if (size * 8 < (size_t)kernel_cpus) {
        errno = EINVAL;
        return -1;
    }
    CPU_ZERO_S(size, set);
    for (int i = 0; i < allowed_cpus; i++)
        CPU_SET_S((size_t)(kernel_cpus - 1 - i), size, set);
    return 0;
}

START_TEST(cores_are_counted_on_machines_of_any_size)
{
    uint32_t quota;
    kernel_cpus = 64;
    allowed_cpus = 64;
    quota = cnn_machine_cores(); /* 64, or what the test's own container leaves */
    static const int sizes[][2] = {{2048, 64}, {8192, 64}, {4096, 1}, {64, 1}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        kernel_cpus = sizes[i][0];
        allowed_cpus = sizes[i][1];
        ck_assert_uint_eq(cnn_machine_cores(), allowed_cpus == 1 ? 1 : quota);
    }
    kernel_cpus = allowed_cpus = 4096;
    ck_assert_uint_le(cnn_machine_cores(), CNN_MOST_CORES);
}
END_TEST

START_TEST(a_quota_leaves_what_it_says)
{
    static const struct {
        const char *text;
        uint32_t cores;
    } rows[] = {{"max 100000\n", UINT32_MAX}, {"", UINT32_MAX},        {"150000 100000\n", 2},
                {"200000 100000", 2},         {"10000 100000", 1},     {"0 100000", 1},
                {"5 0", UINT32_MAX},          {"nonsense", UINT32_MAX}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ck_assert_uint_eq(cnn_quota_cores(rows[i].text), rows[i].cores);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("nets-machine");
    TCase *tc = tcase_create("machine");
    tcase_add_test(tc, cores_are_counted_on_machines_of_any_size);
    tcase_add_test(tc, a_quota_leaves_what_it_says);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
