/* What is written beside a file and renamed replaces the file, not a link to it. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "proto/file.h"
#include "tests/support/unit.h"

static char dir[] = "/tmp/psd-test-file-XXXXXX";

static void assert_leads(const char *path, const char *expected)
{
    char found[PATH_MAX];
    ck_assert_int_eq(ps_file_resolve(path, found, sizeof found), 0);
    ck_assert_str_eq(found, expected);
}

START_TEST(links_are_followed_to_their_end)
{
    char absolute[64], found[PATH_MAX];
    ck_assert_ptr_nonnull(mkdtemp(dir));
    ck_assert_int_eq(chdir(dir), 0);
    snprintf(absolute, sizeof absolute, "%s/missing", dir);
    ck_assert_int_eq(mkdir("sub", 0700), 0);
    ck_assert_int_eq(symlink("../other", "sub/link"), 0);
    ck_assert_int_eq(symlink("sub/link", "first"), 0);
    ck_assert_int_eq(symlink(absolute, "other"), 0);
    ck_assert_int_eq(symlink("circle", "circle"), 0);
    assert_leads("no link", "no link");
    assert_leads("other", absolute);
    assert_leads("sub/../other", absolute);
    assert_leads("first", absolute);
    ck_assert_int_eq(ps_file_resolve("circle", found, sizeof found), -ELOOP);
    ck_assert_int_eq(ps_file_resolve("other", found, strlen(absolute)), -ENAMETOOLONG);
    ck_assert_int_eq(ps_file_resolve("other", found, 5), -ENAMETOOLONG);
    const char *const made[] = {"sub/link", "first", "other", "circle"};
    for (size_t i = 0; i < sizeof made / sizeof *made; i++)
        ck_assert_int_eq(unlink(made[i]), 0);
    ck_assert_int_eq(rmdir("sub"), 0);
    ck_assert_int_eq(rmdir(dir), 0);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-file");
    TCase *tc = tcase_create("file");
    tcase_add_test(tc, links_are_followed_to_their_end);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
