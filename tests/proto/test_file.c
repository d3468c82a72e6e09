/* What is written beside a file and renamed replaces the file, not a link to it; lines in part are cut. */
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

START_TEST(a_line_in_part_is_cut_if_it_is_one_of_ours)
{
    static const struct {
        const char *text, *begins, *left;
    } rows[] = {{"", "", ""},
                {"a\n", "", "a\n"},
                {"a\nb", "", "a\n"},
                {"b", "", ""},
                {"a\n{\"t\":5,\"x", "{\"t\":", "a\n"},
                {"a\n{\"", "{\"t\":", "a\n"},
                {"a\nnotes", "{\"t\":", "a\nnotes"}};
    char path[] = "/tmp/psd-test-file-XXXXXX", found[64];
    close(mkstemp(path));
    for (size_t i = 0; i < ROWS(rows); i++) {
        FILE *f = fopen(path, "we");
        ck_assert(fputs(rows[i].text, f) >= 0 && fclose(f) == 0);
        ck_assert_int_eq(ps_file_cut_torn_line(path, rows[i].begins), 0);
        f = fopen(path, "re");
        found[fread(found, 1, sizeof found - 1, f)] = 0;
        fclose(f);
        ck_assert_str_eq(found, rows[i].left);
    }
    unlink(path);
    ck_assert_int_eq(ps_file_cut_torn_line(path, ""), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0); /* is left alone, with its reader */
    ck_assert_int_eq(ps_file_cut_torn_line(path, ""), 0);
    unlink(path);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-file");
    TCase *tc = tcase_create("file");
    tcase_add_test(tc, links_are_followed_to_their_end);
    tcase_add_test(tc, a_line_in_part_is_cut_if_it_is_one_of_ours);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
