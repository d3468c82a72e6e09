/* Who reads psd's log, or psctl's words, dies or stands still: the job goes on. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/suite.h"

static const char *const settings[] = {"method=async-sgd",     "parameters.learning_rate=1",
                                       "log_level=debug",      "checkpoint.every_s=0",
                                       "limits.silence_s=600", NULL};

/* psd's log goes into a pipe that holds *bytes, or, afterwards, more; the end to read. */
static int start_into_pipe(struct daemon *d, int *bytes)
{
    int ends[2];
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    ck_assert(pipe2(ends, O_CLOEXEC) == 0 && (*bytes = fcntl(ends[1], F_SETPIPE_SZ, *bytes)) > 0);
    d->log_fd = ends[1];
    ck_assert_int_eq(daemon_start(d, NULL), 0);
    close(ends[1]);
    return ends[0];
}

/* Each comes, exchanges and leaves: lines of the log. */
static void assert_takes_workers(struct daemon *d, int n)
{
    for (int i = 0; i < n; i++) {
        struct crew_worker w;
        const struct crew_task task = {
            .server = d->endpoint, .rank = 0, .floats = 1000, .count = 5, .heartbeat_ms = 10000};
        crew_start(&w, &task);
        ck_assert_msg(crew_ended(&w, TEST_HANG_S), "worker %d: %s", i, w.page->error);
        ck_assert_int_eq(w.page->rc, PSC_OK);
        ck_assert(crew_stop(&w, TEST_HANG_S) && daemon_workers_become(d, 0));
    }
}

static void assert_ends_well(struct daemon *d)
{
    int status = daemon_stop(d, SIGTERM, TEST_HANG_S);
    ck_assert_msg(status >= 0 && WIFEXITED(status), "psd did not end by itself: %d", status);
    ck_assert_int_eq(WEXITSTATUS(status), 0);
    daemon_remove(d);
}

START_TEST(a_reader_of_the_log_that_dies_stops_nobody)
{
    struct daemon d;
    int room = 65536, log = start_into_pipe(&d, &room);
    assert_takes_workers(&d, 1);
    close(log);
    assert_takes_workers(&d, 3);
    ck_assert(daemon_reaches(&d, "/status", "log.dropped", 3, TEST_HANG_S));
    char *metrics = daemon_ask(&d, "GET", "/metrics");
    ck_assert_ptr_nonnull(strstr(metrics, "\npsd_log_lines_dropped_total "));
    free(metrics);
    assert_ends_well(&d);
}
END_TEST

/* Nobody ever reads. When more waits than the pipe has room for, some waits for ever. */
START_TEST(a_reader_of_the_log_that_stands_still_stops_nobody)
{
    struct daemon d;
    int room = 4096, log = start_into_pipe(&d, &room);
    while (!(daemon_number(&d, "/status", "log.waiting_bytes") > room))
        assert_takes_workers(&d, 1);
    assert_takes_workers(&d, 3);
    ck_assert_double_gt(daemon_number(&d, "/status", "log.waiting_bytes"), 0);
    assert_ends_well(&d);
    close(log);
}
END_TEST

/* A program whose output nobody reads; its exit status. */
static int run_unread(const char *const *words)
{
    int ends[2], status;
    ck_assert_int_eq(pipe(ends), 0);
    close(ends[0]);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDOUT_FILENO);
        dup2(ends[1], STDERR_FILENO);
        execv(words[0], (char *const *)(uintptr_t)words);
        _exit(127);
    }
    close(ends[1]);
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFEXITED(status), "%s died of signal %d", words[0], WTERMSIG(status));
    return WEXITSTATUS(status);
}

static int run_psctl(const struct daemon *d, const char *command)
{
    return run_unread((const char *[]){PSCTL, "--socket", d->socket, command, NULL});
}

START_TEST(psworker_trains_on_when_nobody_reads_its_lines)
{
    ck_assert_int_eq(run_unread((const char *[]){PSWORKER, "--method", "sgd", "--net", "linear", "--data",
                                                 "digits", "--batch", "10", "--steps", "20", NULL}),
                     0);
}
END_TEST

START_TEST(psctl_does_its_work_and_says_that_nobody_heard)
{
    struct daemon d;
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    ck_assert_int_eq(run_psctl(&d, "status"), 1);
    ck_assert_int_eq(run_psctl(&d, "drain"), 1);
    ck_assert_int_eq(daemon_wait_exit(&d, TEST_HANG_S), 0);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        a_reader_of_the_log_that_dies_stops_nobody, a_reader_of_the_log_that_stands_still_stops_nobody,
        psctl_does_its_work_and_says_that_nobody_heard, psworker_trains_on_when_nobody_reads_its_lines};
    return suite_run("log", tests, sizeof tests / sizeof *tests, 10 * TEST_HANG_S);
}
