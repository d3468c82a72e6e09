/* Processes that die or stop while exchanges run: only they notice. */
#include <signal.h>
#include <string.h>

#include "tests/support/crew.h"
#include "tests/support/daemon.h"
#include "tests/support/suite.h"

#define FLOATS 1000003 /* 4 MB: an exchange takes milliseconds, so that a kill lands inside one */

/* The silence after which psd gives a worker up: where the others' exchanges are timed, longer than any stall
 * of a shared machine. */
#define SILENCE     "limits.silence_s=2"
#define LONG_S      6
#define LONG        "limits.silence_s=6"
#define HEARTBEAT_S 0.3

static void start_with(struct daemon *d, const char *silence)
{
    const char *const settings[] = {"method=async-sgd",
                                    "parameters.learning_rate=1",
                                    "parameters.schedule.warmup_steps=0",
                                    silence,
                                    "checkpoint.every_s=0",
                                    "chunk_floats=65536",
                                    NULL};
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
}

static void start(struct daemon *d)
{
    start_with(d, SILENCE);
}

static void start_crew(const struct daemon *d, struct crew_worker *crew, int n)
{
    for (int i = 0; i < n; i++) {
        struct crew_task task = {
            .server = d->endpoint, .rank = i, .floats = FLOATS, .heartbeat_ms = 300, .salt = (uint32_t)i};
        crew_start(&crew[i], &task);
    }
    for (int i = 0; i < n; i++)
        ck_assert_msg(crew_reaches(&crew[i], 3, 20), "worker %d: %s", i, crew[i].page->error);
}

/* Goes on from where it is now, without an error. */
static void assert_goes_on(const struct crew_worker *w)
{
    ck_assert_msg(crew_reaches(w, w->page->exchanges + 5, 20), "rank %d ended or stands still: %s (%s)",
                  w->page->rank, psc_result_name(w->page->rc), w->page->error);
}

static void assert_ends_well(struct crew_worker *w)
{
    ck_assert(crew_stop(w, 20));
    ck_assert_msg(w->page->rc == PSC_OK, "rank %d: %s (%s)", w->page->rank, psc_result_name(w->page->rc),
                  w->page->error);
}

/* An exchange that waited for the dead one would wait until it is given up. */
static void assert_never_blocked(const struct crew_worker *w)
{
    ck_assert_msg(w->page->longest_s < LONG_S - 2 * HEARTBEAT_S, "an exchange of rank %d took %.3f s",
                  w->page->rank, w->page->longest_s);
}

START_TEST(a_killed_worker_disturbs_nobody)
{
    struct daemon d;
    struct crew_worker crew[3], heir;
    start_with(&d, LONG);
    start_crew(&d, crew, 3);
    ck_assert_double_eq(daemon_number(&d, "/status", "workers.active"), 3);

    crew_kill(&crew[1]);
    double killed = test_now_s();
    while (daemon_logged(&d, "session.ended") == 0) {
        ck_assert_msg(test_now_s() - killed < LONG_S + test_slow_s(10),
                      "the dead worker's session does not end");
        assert_goes_on(&crew[0]);
        assert_goes_on(&crew[2]);
    }
    ck_assert_double_ge(test_now_s() - killed, LONG_S - 2 * HEARTBEAT_S);
    ck_assert_uint_eq(daemon_logged(&d, "rank 1, incarnation"), 1);
    ck_assert_uint_ge(daemon_logged(&d, "silent for"), 1);
    ck_assert_double_eq(daemon_number(&d, "/status", "workers.active"), 2);

    struct crew_task task = {.server = d.endpoint, .rank = 1, .floats = FLOATS};
    crew_start(&heir, &task);
    ck_assert_msg(crew_joined(&heir, 10), "%s", heir.page->error);
    ck_assert_int_eq(heir.page->rank, 1);
    assert_goes_on(&heir);
    assert_goes_on(&crew[0]);
    assert_goes_on(&crew[2]);
    assert_ends_well(&heir);
    assert_ends_well(&crew[0]);
    assert_ends_well(&crew[2]);
    assert_never_blocked(&crew[0]);
    assert_never_blocked(&crew[2]);
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
    ck_assert(crew_ended(&thief, 10));
    ck_assert_int_eq(thief.page->rc, PSC_ERANK);
    ck_assert_ptr_nonnull(strstr(thief.page->error, "rank 0 is taken by"));
    crew_stop(&thief, 5);
    assert_goes_on(&crew[0]);
    assert_ends_well(&crew[0]);
    daemon_remove(&d);
}
END_TEST

START_TEST(a_stopped_worker_is_evicted_and_told)
{
    struct daemon d;
    struct crew_worker crew[2];
    start_with(&d, LONG);
    start_crew(&d, crew, 2);
    crew_signal(&crew[0], SIGSTOP);
    double stopped = test_now_s();
    while (daemon_logged(&d, "session.ended") == 0) {
        ck_assert_msg(test_now_s() - stopped < LONG_S + test_slow_s(10),
                      "the stopped worker's session does not end");
        assert_goes_on(&crew[1]);
    }
    crew_signal(&crew[0], SIGCONT);
    ck_assert(crew_ended(&crew[0], 20));
    ck_assert_msg(crew[0].page->rc == PSC_EEVICTED, "%s (%s)", psc_result_name(crew[0].page->rc),
                  crew[0].page->error);
    ck_assert_uint_gt(strlen(crew[0].page->error), 20);
    crew_stop(&crew[0], 5);
    assert_goes_on(&crew[1]);
    assert_ends_well(&crew[1]);
    assert_never_blocked(&crew[1]);
    daemon_remove(&d);
}
END_TEST

/* Stopped for longer than its own timeout_ms: the clock ran, but the server was never silent. */
START_TEST(a_worker_stopped_beyond_its_timeout_is_told_the_truth)
{
    struct daemon d;
    struct crew_worker w;
    start(&d);
    struct crew_task task = {
        .server = d.endpoint, .rank = 0, .floats = FLOATS, .heartbeat_ms = 300, .timeout_ms = 1500};
    crew_start(&w, &task);
    ck_assert(crew_reaches(&w, 3, 20));
    crew_signal(&w, SIGSTOP);
    ck_assert(daemon_will_log(&d, "session.ended", 10));
    test_nap_s(1);
    crew_signal(&w, SIGCONT);
    ck_assert(crew_ended(&w, 20));
    ck_assert_msg(w.page->rc == PSC_EEVICTED, "%s (%s)", psc_result_name(w.page->rc), w.page->error);
    crew_stop(&w, 5);
    daemon_remove(&d);
}
END_TEST

/* psd stood still longer than silence_s: its workers were not silent, it did not listen. */
START_TEST(workers_survive_a_stopped_psd)
{
    struct daemon d;
    struct crew_worker crew[2];
    start(&d);
    start_crew(&d, crew, 2);
    kill(d.pid, SIGSTOP);
    test_nap_s(3);
    uint64_t before[2] = {crew[0].page->exchanges, crew[1].page->exchanges};
    kill(d.pid, SIGCONT);
    for (int i = 0; i < 2; i++)
        ck_assert_msg(crew_reaches(&crew[i], before[i] + 10, 30), "rank %d ended or stands still: %s (%s)", i,
                      psc_result_name(crew[i].page->rc), crew[i].page->error);
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
    kill(d.pid, SIGSTOP);
    struct crew_task task = {.server = d.endpoint, .rank = 0, .floats = FLOATS, .heartbeat_ms = 300};
    crew_start(&w, &task);
    test_nap_s(2.5); /* the library asks every second */
    kill(d.pid, SIGCONT);
    ck_assert_msg(crew_reaches(&w, 3, 20), "%s (%s)", psc_result_name(w.page->rc), w.page->error);
    ck_assert_double_eq(daemon_number(&d, "/status", "workers.active"), 1);
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
    return suite_run("faults", tests, sizeof tests / sizeof *tests, 60);
}
