/* Descriptors 0, 1 and 2 are open after ps_standard_files_open, and those that were open are what they were.
 */
#include <fcntl.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/standard_files.h"
#include "tests/support/unit.h"

static bool is_same(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* _i: bits of those that the parent has closed. Results are taken before check prints. */
START_TEST(closed_ones_become_dev_null)
{
    struct stat before[3], after[3], null;
    int open_after[3], kept[3];
    ck_assert_int_eq(stat("/dev/null", &null), 0);
    for (int fd = 0; fd < 3; fd++) {
        kept[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 10);
        ck_assert_int_eq(fstat(fd, &before[fd]), 0);
    }
    for (int fd = 0; fd < 3; fd++)
        if ((_i >> fd & 1) != 0)
            close(fd);
    ps_standard_files_open();
    int next = dup(kept[0]);
    for (int fd = 0; fd < 3; fd++) {
        open_after[fd] = fstat(fd, &after[fd]);
        dup2(kept[fd], fd);
    }
    ck_assert_int_gt(next, 2);
    for (int fd = 0; fd < 3; fd++) {
        ck_assert_int_eq(open_after[fd], 0);
        ck_assert(is_same(&after[fd], (_i >> fd & 1) != 0 ? &null : &before[fd]));
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-standard_files");
    TCase *tc = tcase_create("standard_files");
    tcase_add_loop_test(tc, closed_ones_become_dev_null, 0, 8);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
