/* A signal to a psworker that has not joined yet: it waits for a server, or for somebody else, and ends in
 * good order at the first one. */
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/support/system/daemon.h"
#include "tests/support/suite.h"
#include "tests/system/psworker.h"

#define SENTENCE "a signal asked to stop: this process had not joined yet"

enum { TRIES = 10 };

static const char *const settings[] = {"method=async-easgd", NULL};

/* Whether the worker's log has the text, now or within the limit. */
static bool will_say(const struct daemon *d, const char *name, const char *text)
{
    char path[200], said[8192];
    snprintf(path, sizeof path, "%s/%s.err", d->dir, name);
    for (double end = test_now_s() + test_slow_s(TEST_HANG_S); test_now_s() < end; test_nap_s(0.02)) {
        FILE *f = fopen(path, "re");
        size_t n = f != NULL ? fread(said, 1, sizeof said - 1, f) : 0;
        if (f != NULL)
            fclose(f);
        said[n] = 0;
        if (strstr(said, text) != NULL)
            return true;
    }
    return false;
}

static void check_good_end(const struct daemon *d, const char *name, pid_t pid, int signal_number)
{
    kill(pid, signal_number);
    ck_assert_int_eq(psworker_wait(pid, TEST_HANG_S), 0);
    ck_assert(will_say(d, name, SENTENCE));
}

START_TEST(a_worker_that_waits_for_a_server_ends_at_the_first_signal)
{
    struct daemon d;
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    pid_t pid = psworker_start(&d, "early", (const char *const[]){"--net", "linear", NULL});
    ck_assert(will_say(&d, "early", "waiting for at most"));
    check_good_end(&d, "early", pid, SIGTERM);
    daemon_remove(&d);
}
END_TEST

/* It has a session, which ends with it. */
START_TEST(an_evaluator_that_waits_for_a_model_ends_at_the_first_signal)
{
    struct daemon d;
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    pid_t pid = psworker_start(&d, "eye", (const char *const[]){"--net", "linear", "--evaluate", NULL});
    ck_assert(will_say(&d, "eye", "no worker has offered a model yet"));
    check_good_end(&d, "eye", pid, SIGINT);
    char end[100] = "";
    for (double until = test_now_s() + test_slow_s(TEST_HANG_S); end[0] == 0 && test_now_s() < until;)
        daemon_text(&d, "/workers", "ended.0.end", end, sizeof end);
    ck_assert_str_eq(end, "left");
    daemon_remove(&d);
}
END_TEST

/* The library does not interrupt that wait: its end, for want of the others, is a good one then. */
START_TEST(a_member_that_waits_for_its_clique_ends_well_after_a_signal)
{
    struct daemon d;
    char meet[120], where[100], file[110];
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    snprintf(where, sizeof where, "%s/meet", d.dir);
    snprintf(file, sizeof file, "%s.0", where);
    snprintf(meet, sizeof meet, "file:%s", where);
    int code = -1;
    for (int i = 0; i < TRIES && code != 0; i++) { /* the signal may come after the wait's end, of a second */
        unlink(file);
        pid_t pid =
            psworker_start(&d, "first",
                           (const char *const[]){"--net", "linear", "--clique", "ring", "--members", "2",
                                                 "--rendezvous", meet, "--clique-timeout", "1", NULL});
        for (double end = test_now_s() + test_slow_s(TEST_HANG_S); access(file, F_OK) != 0; test_nap_s(0.005))
            ck_assert_msg(test_now_s() < end, "it does not wait at %s", file);
        kill(pid, SIGTERM);
        code = psworker_wait(pid, TEST_HANG_S);
    }
    ck_assert_int_eq(code, 0);
    ck_assert(will_say(&d, "first", SENTENCE));
    daemon_remove(&d);
}
END_TEST

/* The first round waits for a second worker, and who looks is told so. */
START_TEST(a_worker_that_waits_for_another_ends_after_a_signal)
{
    struct daemon d;
    static const char *const of_two[] = {"method=sync-easgd", "workers=2", NULL};
    ck_assert_int_eq(daemon_prepare(&d, NULL, of_two), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    pid_t pid = psworker_start(&d, "one", (const char *const[]){"--net", "linear", NULL});
    ck_assert(will_say(&d, "one", "it waits for those of other workers"));
    ck_assert(daemon_will_log(&d, "1 of 2 workers are there", TEST_HANG_S));
    ck_assert(daemon_reaches(&d, "/status", "workers.awaited", 2, TEST_HANG_S));
    kill(pid, SIGTERM);
    ck_assert_int_eq(psworker_wait(pid, TEST_HANG_S), 0);
    ck_assert(will_say(&d, "one", "a signal asked to stop: stopped after 0 steps"));
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {a_worker_that_waits_for_a_server_ends_at_the_first_signal,
                                  an_evaluator_that_waits_for_a_model_ends_at_the_first_signal,
                                  a_member_that_waits_for_its_clique_ends_well_after_a_signal,
                                  a_worker_that_waits_for_another_ends_after_a_signal};
    return suite_run("joining", tests, sizeof tests / sizeof *tests, 4 * TEST_HANG_S);
}
