/* The log: nobody who logs waits for its reader or dies with it, and what is dropped is counted. */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "proto/log.h"
#include "tests/support/unit.h"

/* More than the pipe and the queue hold. */
enum { MANY = 40000, LONG_BYTES = 100 };

/* stderr becomes a pipe; the end to read. */
static int take_stderr(void)
{
    int ends[2];
    ck_assert_int_eq(pipe(ends), 0);
    ck_assert_int_ge(dup2(ends[1], STDERR_FILENO), 0);
    close(ends[1]);
    return ends[0];
}

static void log_many(unsigned n)
{
    char text[LONG_BYTES];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = 0;
    for (unsigned i = 0; i < n; i++)
        ps_log(PS_LOG_INFO, "test.line", "%u %s", i, text);
}

/* Reads whole lines until each text was in one, or to the end; other may be NULL. Adds up those of test.line,
 * which are in order. */
static bool read_until_both(FILE *from, const char *text, const char *other, uint64_t *lines)
{
    char *line = NULL;
    size_t room = 0;
    long last = -1;
    bool found = false, found_other = other == NULL;
    while (!(found && found_other) && getline(&line, &room, from) > 0) {
        const char *message = strstr(line, "\"msg\":\"");
        ck_assert_msg(message != NULL && strcmp(line + strlen(line) - 3, "\"}\n") == 0, "half a line: %s",
                      line);
        found = found || strstr(line, text) != NULL;
        found_other = found_other || strstr(line, other) != NULL;
        if (strstr(line, "test.line") == NULL)
            continue;
        ck_assert_int_gt(atol(message + strlen("\"msg\":\"")), last);
        last = atol(message + strlen("\"msg\":\""));
        ++*lines;
    }
    free(line);
    return found && found_other;
}

static bool read_until(FILE *from, const char *text, uint64_t *lines)
{
    return read_until_both(from, text, NULL, lines);
}

START_TEST(a_reader_that_stands_still_keeps_nobody_waiting)
{
    uint64_t read = 0;
    FILE *from = fdopen(take_stderr(), "r");
    ps_log_setup("test", PS_LOG_INFO);
    log_many(MANY); /* with a writer that waits this ends never */
    struct ps_log_counts counts = ps_log_count();
    ck_assert_uint_gt(counts.dropped, 0);
    ck_assert_uint_gt(counts.waiting, 0);
    ck_assert(read_until(from, "log.dropped", &read));
    ck_assert_uint_eq(read + counts.dropped, MANY);
    ps_log(PS_LOG_INFO, "test.after", "it goes on");
    ck_assert(read_until(from, "it goes on", &read));
    fclose(from);
}
END_TEST

/* The report of what was dropped comes before or after the new line: the writer tries to report each time the
 * queue is empty, and stderr may be the new pipe by then. */
START_TEST(a_reader_that_dies_costs_lines_alone)
{
    uint64_t read = 0;
    close(take_stderr());
    ps_log_setup("test", PS_LOG_INFO);
    log_many(10);
    while (ps_log_count().dropped < 10)
        unit_nap_ms(1);
    FILE *from = fdopen(take_stderr(), "r");
    ps_log(PS_LOG_INFO, "test.after", "it goes on");
    ck_assert(read_until_both(from, "it goes on", "10 lines of this log were dropped", &read));
    fclose(from);
}
END_TEST

static int end_of(pid_t child)
{
    int status;
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Lines by lines: by its thread, then at exit. */
START_TEST(the_last_lines_are_written_at_exit)
{
    uint64_t read = 0;
    int to_read = take_stderr();
    pid_t child = fork();
    if (child == 0) {
        ps_log_setup("test", PS_LOG_INFO);
        log_many(200);
        exit(7);
    }
    close(STDERR_FILENO);
    ck_assert_int_eq(end_of(child), 7);
    ck_assert(!read_until(fdopen(to_read, "r"), "no such text", &read));
    ck_assert_uint_eq(read, 200);
}
END_TEST

START_TEST(an_exit_waits_for_no_reader)
{
    int to_read = take_stderr();
    pid_t child = fork();
    if (child == 0) {
        ps_log_setup("test", PS_LOG_INFO);
        log_many(MANY);
        exit(7);
    }
    ck_assert_int_eq(end_of(child), 7);
    close(to_read);
}
END_TEST

/* There is no thread in it. The parent's thread has started before: the address sanitizer has locks while a
 * thread starts, and a fork would leave them locked in the child. */
START_TEST(a_child_of_fork_writes_its_own)
{
    uint64_t read = 0;
    FILE *from = fdopen(take_stderr(), "r");
    ps_log_setup("test", PS_LOG_INFO);
    ps_log(PS_LOG_INFO, "test.before", "the first");
    ck_assert(read_until(from, "the first", &read));
    ps_log(PS_LOG_INFO, "test.before", "of the parent");
    pid_t child = fork();
    if (child == 0) {
        ps_log(PS_LOG_INFO, "test.child", "of the child");
        _exit(0);
    }
    ck_assert_int_eq(end_of(child), 0);
    ps_log(PS_LOG_INFO, "test.after", "of the parent again");
    ck_assert(read_until(from, "of the child", &read));
    ck_assert(read_until(from, "of the parent again", &read));
    fclose(from);
}
END_TEST

START_TEST(a_level_changes_while_others_log)
{
    uint64_t read = 0;
    FILE *from = fdopen(take_stderr(), "r");
    ps_log_setup("test", PS_LOG_ERROR);
    log_many(5);
    ps_log_set_lowest(PS_LOG_INFO);
    log_many(3);
    ps_log(PS_LOG_INFO, "test.after", "the end");
    ck_assert(read_until(from, "the end", &read));
    ck_assert_uint_eq(read, 3);
    fclose(from);
}
END_TEST

/* The calling thread's own level holds for it alone. */
static void *log_one(void *arg)
{
    ps_log(PS_LOG_INFO, "test.other", "%s", (const char *)arg);
    return NULL;
}

START_TEST(a_thread_may_keep_silent)
{
    pthread_t thread;
    uint64_t read = 0;
    FILE *from = fdopen(take_stderr(), "r");
    ps_log_setup("test", PS_LOG_INFO);
    ps_log_set_thread_lowest(PS_LOG_WARN);
    log_many(5);
    ck_assert_int_eq(pthread_create(&thread, NULL, log_one, "of another thread"), 0);
    pthread_join(thread, NULL);
    ps_log_set_thread_lowest(PS_LOG_DEBUG);
    ps_log(PS_LOG_INFO, "test.after", "the end");
    ck_assert(read_until(from, "of another thread", &read));
    ck_assert(read_until(from, "the end", &read));
    ck_assert_uint_eq(read, 0);
    fclose(from);
}
END_TEST

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

int main(void)
{
    Suite *suite = suite_create("log");
    TCase *tcase = tcase_create("log");
    tcase_add_test(tcase, a_reader_that_stands_still_keeps_nobody_waiting);
    tcase_add_test(tcase, a_reader_that_dies_costs_lines_alone);
    tcase_add_test(tcase, a_thread_may_keep_silent);
    tcase_add_test(tcase, the_last_lines_are_written_at_exit);
    tcase_add_test(tcase, an_exit_waits_for_no_reader);
    tcase_add_test(tcase, a_child_of_fork_writes_its_own);
    tcase_add_test(tcase, a_level_changes_while_others_log);
    tcase_add_test(tcase, the_level_may_change_while_others_log);
    suite_add_tcase(suite, tcase);
    return unit_run(suite);
}
