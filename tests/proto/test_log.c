/* The log's level while other threads log. */
#include "proto/log.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/support/unit.h"

enum { CHANGES = 1000 };

static atomic_bool over;

static void *log_on(void *lines)
{
    while (!atomic_load(&over))
        for (int i = 0; i < CHANGES; i++)
            ps_log(PS_LOG_DEBUG, "test.line", "nobody sees this");
    return lines;
}

/* psd changes it on a reload, while its lanes log. For the thread sanitizer. */
START_TEST(the_level_may_change_while_others_log)
{
    pthread_t thread;
    ps_log_setup("test", PS_LOG_ERROR);
    ck_assert_int_eq(pthread_create(&thread, NULL, log_on, NULL), 0);
    for (int i = 0; i < CHANGES; i++)
        ps_log_set_lowest(i % 2 == 0 ? PS_LOG_WARN : PS_LOG_INFO);
    atomic_store(&over, true);
    pthread_join(thread, NULL);
}
END_TEST

static long bytes_of(FILE *f)
{
    fseek(f, 0, SEEK_END);
    return ftell(f);
}

START_TEST(a_line_below_the_level_is_not_written)
{
    FILE *f = tmpfile();
    ck_assert_ptr_nonnull(f);
    ck_assert_int_ge(dup2(fileno(f), STDERR_FILENO), 0);
    ps_log_setup("test", PS_LOG_ERROR);
    ps_log(PS_LOG_WARN, "test.line", "no");
    ck_assert_int_eq(bytes_of(f), 0);
    ps_log_set_lowest(PS_LOG_WARN);
    ps_log(PS_LOG_WARN, "test.line", "yes");
    long one = bytes_of(f);
    ck_assert_int_gt(one, 0);
    ps_log_set_lowest(PS_LOG_ERROR);
    ps_log(PS_LOG_WARN, "test.line", "no");
    ck_assert_int_eq(bytes_of(f), one);
    fclose(f);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-log");
    TCase *tc = tcase_create("log");
    tcase_add_test(tc, the_level_may_change_while_others_log);
    tcase_add_test(tc, a_line_below_the_level_is_not_written);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
