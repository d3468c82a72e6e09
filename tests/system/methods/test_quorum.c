/* Rounds that do not wait for everybody, between processes: they go on without a worker that was stopped, and
 * take it back. Gradients are whole numbers, of as many samples each, and a round of two or of four divides
 * their sum by that: what the center is made of can be told. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"
#include "tests/system/step_workers.h"

enum {
    FLOATS = 30011,
    WORKERS = 4,
    SLOW = WORKERS - 1,
    SETTINGS = 16,
    WAIT_S = 120
}; /* two lanes of four chunks */

#define COMMON                                                                                               \
    "learning_rate=1", "parameters.schedule.warmup_steps=0", "workers=4", "checkpoint.every_s=0",            \
        "chunk_floats=4096", "lanes=2", "limits.silence_s=300"

static const char *const admissions[][SETTINGS] = {
    {COMMON, "method=backup-sgd", "backup=1"},
    {COMMON, "method=backup-sgd", "backup=2"},
    {COMMON, "method=sync-sgd", "admission=quorum", "quorum=3", "grace_ms=0"},
    {COMMON, "method=sync-sgd", "admission=quorum", "quorum=2", "grace_ms=20"},
    {COMMON, "method=downpour", "admission=quorum", "period=1", "quorum=3", "grace_ms=5"},
    {COMMON, "method=sync-easgd", "admission=backup", "period=1", "alpha=0.125", "backup=1"},
};

static void start(struct daemon *d, const char *const *settings)
{
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
}

static void start_one(const struct daemon *d, struct crew_worker *w, int rank, uint64_t count)
{
    struct crew_task task = {.server = d->endpoint,
                             .rank = rank,
                             .floats = FLOATS,
                             .count = count,
                             .heartbeat_ms = 100,
                             .retry_ms = 500,
                             .salt = (uint32_t)rank,
                             .pause_s = 0.001};
    crew_start(w, &task);
}

static void start_all(const struct daemon *d, struct crew_worker *crew, uint64_t count)
{
    for (int i = 0; i < WORKERS; i++)
        start_one(d, &crew[i], i, count);
}

static void assert_go_on(const struct crew_worker *crew, int first, int end, uint64_t exchanges)
{
    uint64_t want[WORKERS];
    for (int i = first; i < end; i++)
        want[i] = crew[i].page->exchanges + exchanges;
    for (int i = first; i < end; i++)
        ck_assert_msg(crew_reaches(&crew[i], want[i], WAIT_S), "rank %d stands still: %s (%s)", i,
                      psc_result_name(crew[i].page->rc), crew[i].page->error);
}

static void stop_all(struct crew_worker *crew, int n)
{
    for (int i = 0; i < n; i++)
        crew[i].page->stop = true;
    for (int i = 0; i < n; i++) {
        ck_assert(crew_stop(&crew[i], WAIT_S));
        ck_assert_msg(crew[i].page->rc == PSC_OK, "rank %d: %s (%s)", i, psc_result_name(crew[i].page->rc),
                      crew[i].page->error);
    }
}

static double of_worker(const struct daemon *d, int rank, const char *what)
{
    char path[40];
    snprintf(path, sizeof path, "workers.%d.%s", rank, what);
    return daemon_number(d, "/workers", path);
}

/* Nobody is evicted, nobody is sent an error. */
static void assert_quiet(const struct daemon *d)
{
    ck_assert_uint_eq(daemon_logged(d, "session.ended"), 0);
    ck_assert_uint_eq(daemon_logged(d, "data.refused"), 0);
}

static void stop_and_take_back(const char *const *settings)
{
    struct daemon d;
    struct crew_worker crew[WORKERS];
    start(&d, settings);
    start_all(&d, crew, 0);
    assert_go_on(crew, 0, WORKERS, 20);
    for (int again = 0; again < 3; again++) {
        if (again > 0) { /* at first at any moment, in the middle of an exchange perhaps; then between two */
            crew_hold_at(&crew[SLOW], 0);
            ck_assert(crew_is_held(&crew[SLOW], WAIT_S));
        }
        crew_signal(&crew[SLOW], SIGSTOP);
        crew_hold_at(&crew[SLOW], UINT64_MAX);
        assert_go_on(crew, 0, SLOW, 1); /* those that were on their way are over */
        double version = daemon_number(&d, "/status", "center.version");
        assert_go_on(crew, 0, SLOW, 50);
        ck_assert(daemon_reaches(&d, "/status", "center.version", version + 30, WAIT_S));
        crew_signal(&crew[SLOW], SIGCONT);
        double taken = of_worker(&d, SLOW, "exchanges");
        assert_go_on(crew, 0, WORKERS, 20);
        char path[40];
        snprintf(path, sizeof path, "workers.%d.exchanges", SLOW);
        ck_assert_msg(daemon_reaches(&d, "/workers", path, taken + 3, WAIT_S), "%s: it was not taken back",
                      settings[7]);
    }
    assert_quiet(&d);
    ck_assert_double_gt(daemon_number(&d, "/status", "center.updates_dropped"), 0);
    stop_all(crew, WORKERS);
    daemon_remove(&d);
}

START_TEST(rounds_go_on_without_a_stopped_worker_and_take_it_back)
{
    for (size_t i = 0; i < ROWS(admissions); i++)
        stop_and_take_back(admissions[i]);
}
END_TEST

/* What psd has counted. */
struct counts {
    double taken[WORKERS], dropped[WORKERS];
    double all_dropped, version;
};

static struct counts count(const struct daemon *d)
{
    struct counts c;
    for (int i = 0; i < WORKERS; i++) {
        c.taken[i] = of_worker(d, i, "exchanges");
        c.dropped[i] = of_worker(d, i, "dropped");
    }
    c.all_dropped = daemon_number(d, "/status", "center.updates_dropped");
    c.version = daemon_number(d, "/status", "center.version");
    return c;
}

static double sum(const double *values)
{
    double s = 0;
    for (int i = 0; i < WORKERS; i++)
        s += values[i];
    return s;
}

static double completed(const struct crew_worker *crew)
{
    double s = 0;
    for (int i = 0; i < WORKERS; i++)
        s += (double)crew[i].page->exchanges;
    return s;
}

/* Every answer is counted, as taken or as dropped, and three that were taken make a round. */
static bool adds_up(const struct counts *c, const struct crew_worker *crew)
{
    return sum(c->taken) + sum(c->dropped) == completed(crew) && sum(c->dropped) == c->all_dropped &&
           sum(c->taken) == 3 * c->version;
}

/* What was answered was either taken or dropped, and what was taken is in the center. Under rule add a
 * round's messages are summed. All are held between two exchanges, but for those that wait in a round that
 * lacks others: when all that was on its way has come, it adds up. */
START_TEST(every_exchange_is_taken_or_dropped)
{
    static const char *const settings[] = {COMMON,     "method=downpour", "admission=backup",
                                           "period=1", "backup=1",        NULL};
    enum { COUNT = 150 };
    struct daemon d;
    struct crew_worker crew[WORKERS];
    double most = 0, least = 0, deadline;
    start(&d, settings);
    start_all(&d, crew, 0);
    assert_go_on(crew, 0, WORKERS, COUNT);
    ck_assert(daemon_reaches(&d, "/status", "center.updates_dropped", 1, WAIT_S));
    for (int i = 0; i < WORKERS; i++)
        crew_hold_at(&crew[i], 0);
    struct counts c = count(&d);
    for (deadline = test_now_s() + test_slow_s(WAIT_S); !adds_up(&c, crew); c = count(&d))
        ck_assert_msg(test_now_s() < deadline,
                      "%.0f taken, %.0f dropped (of all: %.0f), %.0f answered, version %.0f", sum(c.taken),
                      sum(c.dropped), c.all_dropped, completed(crew), c.version);
    for (int i = 0; i < WORKERS; i++) {
        most += c.taken[i] * (2 + i % 4 + 4); /* the largest and the smallest that crew_value is */
        least += c.taken[i] * (1 + i % 4);
    }
    float *center = stepper_center(&d, FLOATS);
    for (int i = 0; i < FLOATS; i++) {
        ck_assert_double_le((double)center[i], most);
        ck_assert_double_ge((double)center[i], least);
    }
    free(center);
    for (int i = 0; i < WORKERS; i++)
        crew_hold_at(&crew[i], UINT64_MAX);
    assert_go_on(crew, 0, WORKERS, 10);
    stop_all(crew, WORKERS);
    daemon_remove(&d);
}
END_TEST

/* Fewer workers than a round needs: it is made of those that are there. */
START_TEST(rounds_go_on_when_workers_leave)
{
    static const char *const rows[][SETTINGS] = {
        {COMMON, "method=backup-sgd", "backup=3"},
        {COMMON, "method=sync-sgd", "admission=quorum", "quorum=4", "grace_ms=5"},
    };
    for (size_t i = 0; i < ROWS(rows); i++) {
        struct daemon d;
        struct crew_worker crew[WORKERS];
        start(&d, rows[i]);
        for (int k = 0; k < WORKERS; k++)
            start_one(&d, &crew[k], k, 0);
        assert_go_on(crew, 0, WORKERS, 20);
        for (int left = WORKERS - 1; left > 0; left--) {
            stop_all(crew + left, 1);
            assert_go_on(crew, 0, left, 30);
        }
        stop_all(crew, 1);
        daemon_remove(&d);
    }
}
END_TEST

START_TEST(quorums_go_on_after_a_restart_of_psd)
{
    for (size_t i = 0; i < ROWS(admissions); i++) {
        struct daemon d;
        struct crew_worker crew[WORKERS];
        start(&d, admissions[i]);
        start_all(&d, crew, 0);
        for (int restart = 0; restart < 3; restart++) {
            assert_go_on(crew, 0, WORKERS, 30);
            ck_assert(daemon_checkpoint(&d, WAIT_S));
            daemon_stop(&d, SIGKILL, WAIT_S);
            ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
        }
        assert_go_on(crew, 0, WORKERS, 50);
        stop_all(crew, WORKERS);
        daemon_remove(&d);
    }
}
END_TEST

/* Messages are above 0 and summed (rule add), so that a center that has all of an earlier one in it is
 * nowhere below it. Those of one psd that the next has not seen are sent again or lost with it, as it says.
 */
START_TEST(what_was_saved_is_there_after_a_restart)
{
    static const char *const settings[] = {COMMON,     "method=downpour", "admission=backup",
                                           "period=1", "backup=1",        NULL};
    struct daemon d;
    struct crew_worker crew[WORKERS];
    start(&d, settings);
    start_all(&d, crew, 0);
    for (int restart = 0; restart < 3; restart++) {
        assert_go_on(crew, 0, WORKERS, 30);
        ck_assert(daemon_checkpoint(&d, WAIT_S));
        double saved = daemon_number(&d, "/status", "checkpoint.last_version");
        for (int i = 0; i < WORKERS; i++)
            crew_signal(&crew[i], SIGSTOP);
        daemon_stop(&d, SIGKILL, WAIT_S);
        ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
        ck_assert_double_eq(daemon_number(&d, "/status", "center.version"), saved);
        float *before = stepper_center(&d, FLOATS);
        for (int i = 0; i < WORKERS; i++)
            crew_signal(&crew[i], SIGCONT);
        assert_go_on(crew, 0, WORKERS, 30);
        float *after = stepper_center(&d, FLOATS);
        double version = daemon_number(&d, "/status", "center.version");
        for (int i = 0; i < FLOATS; i++) {
            double moved = (double)after[i] - (double)before[i];
            ck_assert_double_ge((double)before[i], 3 * saved - 3 * WORKERS); /* each message is 1 at least, */
            ck_assert_double_gt(moved, 0);
            ck_assert_double_le(moved, 3 * 9 * (version - saved)); /* and 9 at most */
        }
        free(before);
        free(after);
    }
    stop_all(crew, WORKERS);
    daemon_remove(&d);
}
END_TEST

/* SIGTERM while one is stopped: the others stop, and the last center is written. */
START_TEST(a_drain_does_not_wait_for_rounds)
{
    struct daemon d;
    struct crew_worker crew[WORKERS];
    static const char *const settings[] = {COMMON, "method=backup-sgd", "backup=1", "limits.drain_s=3", NULL};
    start(&d, settings);
    start_all(&d, crew, 0);
    assert_go_on(crew, 0, WORKERS, 20);
    crew_signal(&crew[SLOW], SIGSTOP);
    assert_go_on(crew, 0, SLOW, 20);
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, WAIT_S), 0);
    for (int i = 0; i < SLOW; i++) {
        ck_assert_msg(crew_ended(&crew[i], WAIT_S), "rank %d goes on", i);
        ck_assert_int_eq(crew[i].page->rc, PSC_DRAINED);
    }
    for (int i = 0; i < WORKERS; i++)
        crew_kill(&crew[i]);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        rounds_go_on_without_a_stopped_worker_and_take_it_back,
        every_exchange_is_taken_or_dropped,
        rounds_go_on_when_workers_leave,
        quorums_go_on_after_a_restart_of_psd,
        what_was_saved_is_there_after_a_restart,
        a_drain_does_not_wait_for_rounds,
    };
    return suite_run("quorum", tests, sizeof tests / sizeof *tests, 550);
}
