/* Processes that die or stop while exchanges run: only they notice. psd's clock is the tests': silence is
 * what they let pass. */
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/pause.h"
#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/system/libc_faults.h"
#include "tests/support/suite.h"

#define FLOATS 1000003 /* 4 MB: an exchange takes milliseconds, so that a kill lands inside one */

/* SILENCE_S of psd's time, longer than any stall of a shared machine. */
enum { SILENCE_S = 60, HEARTBEAT_MS = 100 };

static const char *const settings[] = {"method=async-sgd",
                                       "parameters.learning_rate=1",
                                       "parameters.schedule.warmup_steps=0",
                                       "limits.silence_s=60",
                                       "checkpoint.every_s=0",
                                       "chunk_floats=65536",
                                       NULL};

static struct shim_page *start(struct daemon *d)
{
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    struct shim_page *page = shim_set(PSD_SHIM, d->dir);
    ck_assert_ptr_nonnull(page);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
    shim_unset();
    return page;
}

static void start_crew(const struct daemon *d, struct crew_worker *crew, int n)
{
    for (int i = 0; i < n; i++) {
        struct crew_task task = {.server = d->endpoint,
                                 .rank = i,
                                 .floats = FLOATS,
                                 .heartbeat_ms = HEARTBEAT_MS,
                                 .salt = (uint32_t)i};
        crew_start(&crew[i], &task);
    }
    for (int i = 0; i < n; i++)
        ck_assert_msg(crew_reaches(&crew[i], 3, TEST_HANG_S), "worker %d: %s", i, crew[i].page->error);
}

/* Goes on from where it is now, without an error. */
static void assert_goes_on(const struct crew_worker *w)
{
    ck_assert_msg(crew_reaches(w, w->page->exchanges + 5, TEST_HANG_S),
                  "rank %d ended or stands still: %s (%s)", w->page->rank, psc_result_name(w->page->rc),
                  w->page->error);
}

static void assert_ends_well(struct crew_worker *w)
{
    ck_assert(crew_stop(w, TEST_HANG_S));
    ck_assert_msg(w->page->rc == PSC_OK, "rank %d: %s (%s)", w->page->rank, psc_result_name(w->page->rc),
                  w->page->error);
}

/* An exchange that waited for the one that is silent would wait until it is given up: they go on while it is
 * a member still, and until then. */
static void assert_given_up_behind_their_backs(const struct daemon *d, struct shim_page *page,
                                               const struct crew_worker *const *awake, const int *ranks,
                                               size_t n)
{
    for (int half = 0; half < 2; half++) {
        for (size_t i = 0; i < n; i++)
            assert_goes_on(awake[i]);
        ck_assert_uint_eq(daemon_logged(d, "session.ended"), 0);
        ck_assert_double_eq(daemon_workers(d), (double)n + 1);
        if (half == 0)
            ck_assert(shim_pass(page, d, SILENCE_S / 2, ranks, n));
    }
    ck_assert(shim_pass_until(page, d, "session.ended", 1, ranks, n));
    ck_assert_double_eq(daemon_workers(d), (double)n);
    for (size_t i = 0; i < n; i++)
        assert_goes_on(awake[i]);
}

START_TEST(a_killed_worker_disturbs_nobody)
{
    struct daemon d;
    struct crew_worker crew[3], heir;
    struct shim_page *page = start(&d);
    start_crew(&d, crew, 3);
    ck_assert_double_eq(daemon_workers(&d), 3);

    crew_kill(&crew[1]);
    assert_given_up_behind_their_backs(&d, page, (const struct crew_worker *const[]){&crew[0], &crew[2]},
                                       (const int[]){0, 2}, 2);
    ck_assert_uint_eq(daemon_logged(&d, "rank 1, incarnation"), 1);
    ck_assert_uint_ge(daemon_logged(&d, "silent for"), 1);

    struct crew_task task = {.server = d.endpoint, .rank = 1, .floats = FLOATS};
    crew_start(&heir, &task);
    ck_assert_msg(crew_joined(&heir, TEST_HANG_S), "%s", heir.page->error);
    ck_assert_int_eq(heir.page->rank, 1);
    assert_goes_on(&heir);
    assert_goes_on(&crew[0]);
    assert_goes_on(&crew[2]);
    assert_ends_well(&heir);
    assert_ends_well(&crew[0]);
    assert_ends_well(&crew[2]);
    daemon_remove(&d);
}
END_TEST

START_TEST(a_rank_is_taken_while_its_worker_lives)
{
    struct daemon d;
    struct crew_worker crew[1], thief;
    start(&d);
    start_crew(&d, crew, 1);
    struct crew_task task = {.server = d.endpoint, .rank = 0, .floats = FLOATS};
    crew_start(&thief, &task);
    ck_assert(crew_ended(&thief, TEST_HANG_S));
    ck_assert_int_eq(thief.page->rc, PSC_ERANK);
    ck_assert_ptr_nonnull(strstr(thief.page->error, "rank 0 is taken by"));
    ck_assert_ptr_nonnull(strstr(thief.page->error, "the rank is free after "));
    ck_assert_ptr_nonnull(strstr(thief.page->error, " s of silence (limits.silence_s)"));
    crew_stop(&thief, TEST_HANG_S);
    assert_goes_on(&crew[0]);
    assert_ends_well(&crew[0]);
    daemon_remove(&d);
}
END_TEST

START_TEST(a_stopped_worker_is_evicted_and_told)
{
    struct daemon d;
    struct crew_worker crew[2];
    struct shim_page *page = start(&d);
    start_crew(&d, crew, 2);
    crew_signal(&crew[0], SIGSTOP);
    assert_given_up_behind_their_backs(&d, page, (const struct crew_worker *const[]){&crew[1]},
                                       (const int[]){1}, 1);
    crew_signal(&crew[0], SIGCONT);
    ck_assert(crew_ended(&crew[0], TEST_HANG_S));
    ck_assert_msg(crew[0].page->rc == PSC_EEVICTED, "%s (%s)", psc_result_name(crew[0].page->rc),
                  crew[0].page->error);
    ck_assert_uint_gt(strlen(crew[0].page->error), 20);
    crew_stop(&crew[0], TEST_HANG_S);
    assert_goes_on(&crew[1]);
    assert_ends_well(&crew[1]);
    daemon_remove(&d);
}
END_TEST

/* What a worker ends with that is evicted while it is stopped for timeout_ms and a little more. */
static int end_of_one_stopped_for(uint32_t timeout_ms, char *error, size_t size)
{
    struct daemon d;
    struct crew_worker w;
    struct shim_page *page = start(&d);
    struct crew_task task = {.server = d.endpoint,
                             .rank = 0,
                             .floats = FLOATS,
                             .heartbeat_ms = HEARTBEAT_MS,
                             .timeout_ms = timeout_ms};
    crew_start(&w, &task);
    if (crew_reaches(&w, 3, TEST_HANG_S)) {
        crew_signal(&w, SIGSTOP);
        double stopped = test_now_s();
        ck_assert(shim_pass_until(page, &d, "session.ended", 1, NULL, 0));
        while (test_now_s() < stopped + timeout_ms * 1.1e-3)
            test_nap_s(0.01);
        crew_signal(&w, SIGCONT);
        ck_assert(crew_ended(&w, TEST_HANG_S));
    }
    int rc = w.page->rc;
    snprintf(error, size, "%s", w.page->error);
    crew_stop(&w, TEST_HANG_S);
    daemon_remove(&d);
    return rc;
}

/* Stopped for longer than its own timeout_ms: the clock ran, but the server was never silent. A machine so
 * slow that the server was silent for that long makes the worker be asked to bear more. */
START_TEST(a_worker_stopped_beyond_its_timeout_is_told_the_truth)
{
    int rc = PSC_EGONE;
    char error[600] = "";
    for (uint32_t timeout_ms = 500; rc == PSC_EGONE && timeout_ms <= 16000; timeout_ms *= 2)
        rc = end_of_one_stopped_for(timeout_ms, error, sizeof error);
    ck_assert_msg(rc == PSC_EEVICTED, "%s (%s)", psc_result_name(rc), error);
}
END_TEST

static void await_said(const struct crew_worker *w, const char *sentence)
{
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    while (strstr(w->page->said, sentence) == NULL) {
        ck_assert_msg(test_now_s() < deadline && !w->page->ended, "rank %d said '%s'", w->page->rank,
                      w->page->said);
        test_nap_s(0.005);
    }
}

/* psd stood still longer than silence_s: its workers were not silent, it did not listen. */
START_TEST(workers_survive_a_stopped_psd)
{
    struct daemon d;
    struct crew_worker crew[2];
    struct shim_page *page = start(&d);
    start_crew(&d, crew, 2);
    pause_child(d.pid);
    for (int i = 0; i < 2; i++)
        await_said(&crew[i], "the server is silent");
    atomic_fetch_add(&page->ahead_ms, 2 * SILENCE_S * 1000);
    uint64_t before[2] = {crew[0].page->exchanges, crew[1].page->exchanges};
    kill(d.pid, SIGCONT);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(crew_reaches(&crew[i], before[i] + 10, TEST_HANG_S),
                      "rank %d ended or stands still: %s (%s)", i, psc_result_name(crew[i].page->rc),
                      crew[i].page->error);
    ck_assert(daemon_will_log(&d, "psd was paused", TEST_HANG_S));
    ck_assert_uint_eq(daemon_logged(&d, "session.ended"), 0);
    assert_ends_well(&crew[0]);
    assert_ends_well(&crew[1]);
    daemon_remove(&d);
}
END_TEST

/* The first Hello waits in a stopped psd's socket; the library says it again. It joins once. */
START_TEST(a_hello_said_twice_joins_once)
{
    struct daemon d;
    struct crew_worker w;
    start(&d);
    pause_child(d.pid);
    struct crew_task task = {.server = d.endpoint, .rank = 0, .floats = FLOATS, .heartbeat_ms = HEARTBEAT_MS};
    crew_start(&w, &task);
    test_nap_s(1.3); /* the library asks every second; a slow machine's may have asked once only */
    kill(d.pid, SIGCONT);
    ck_assert_msg(crew_reaches(&w, 3, TEST_HANG_S), "%s (%s)", psc_result_name(w.page->rc), w.page->error);
    ck_assert_double_eq(daemon_workers(&d), 1);
    assert_ends_well(&w);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        a_killed_worker_disturbs_nobody,      a_rank_is_taken_while_its_worker_lives,
        a_stopped_worker_is_evicted_and_told, a_worker_stopped_beyond_its_timeout_is_told_the_truth,
        workers_survive_a_stopped_psd,        a_hello_said_twice_joins_once,
    };
    return suite_run("faults", tests, sizeof tests / sizeof *tests, 10 * TEST_HANG_S);
}
