/* Stale clocks between processes: exchanges of two workers never part by more than `slack`, also when one of
 * them stands still, is slow, joins late, or psd restarts. Updates are whole numbers: the center says which
 * landed. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"
#include "tests/system/step_workers.h"
#include "tests/system/faults/timelapse.h"

enum {
    FLOATS = 30011,
    WORKERS = 4,
    SLOW = WORKERS - 1,
    SLACK = 3,
    WAIT_S = 120
}; /* two lanes of four chunks */

#define COMMON                                                                                               \
    "method=ssp-sgd", "learning_rate=1", "parameters.schedule.warmup_steps=0", "workers=4",                  \
        "checkpoint.every_s=0", "chunk_floats=4096", "lanes=2", TIMELAPSE_SILENCE

/* Than the slow one. */
static const int others[SLOW] = {0, 1, 2};

static void prepare(struct daemon *d, const char *change)
{
    static const char *settings[] = {COMMON, NULL, NULL};
    settings[ROWS(settings) - 2] = change;
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
}

static void start(struct daemon *d, const char *change)
{
    prepare(d, change);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
}

static struct shim_page *start_under_timelapse(struct daemon *d, const char *change)
{
    prepare(d, change);
    struct shim_page *page = timelapse_prepare(d);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
    return page;
}

static void start_one(const struct daemon *d, struct crew_worker *w, int rank, uint64_t count, double pause_s,
                      uint64_t held_at)
{
    struct crew_task task = {.server = d->endpoint,
                             .rank = rank,
                             .floats = FLOATS,
                             .count = count,
                             .heartbeat_ms = 50,
                             .retry_ms = 500,
                             .salt = (uint32_t)rank,
                             .pause_s = pause_s,
                             .held_at = held_at};
    crew_start(w, &task);
}

static void assert_go_on(const struct crew_worker *crew, int first, int end, uint64_t exchanges)
{
    uint64_t want[WORKERS + 1];
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

static void assert_sum(const struct daemon *d, const struct crew_worker *crew, int n)
{
    float *center = stepper_center(d, FLOATS);
    for (uint64_t i = 0; i < FLOATS; i++) {
        double want = 0;
        for (int w = 0; w < n; w++)
            want -= crew_sum((uint32_t)w, crew[w].page->exchanges, i);
        if ((double)center[i] != want)
            ck_abort_msg("value %lu is %.1f; the exchanges sum to %.1f", (unsigned long)i, (double)center[i],
                         want);
    }
    free(center);
}

static bool is_in_state(const struct daemon *d, int rank, const char *state)
{
    char path[32], now[32] = "";
    snprintf(path, sizeof path, "workers.%d.state", rank);
    return daemon_text(d, "/workers", path, now, sizeof now) && strcmp(now, state) == 0;
}

static bool is_told_to_wait(const struct daemon *d, int rank)
{
    return is_in_state(d, rank, "waits");
}

/* NAN when it is not there. */
static double clock_of(const struct daemon *d, int rank)
{
    char path[40];
    snprintf(path, sizeof path, "workers.%d.rank", rank);
    if (daemon_number(d, "/workers", path) != rank)
        return NAN;
    snprintf(path, sizeof path, "workers.%d.exchanges", rank);
    return daemon_number(d, "/workers", path);
}

/* Until each of the first `n` waits for the slow one, `ahead` exchanges ahead of it. */
static void assert_stand(const struct daemon *d, const struct crew_worker *crew, int n, double slow,
                         unsigned ahead)
{
    for (int i = 0; i < n; i++) {
        double deadline = test_now_s() + test_slow_s(WAIT_S);
        while (!(clock_of(d, i) == slow + ahead && is_told_to_wait(d, i))) {
            ck_assert_msg(crew[i].page->exchanges <= slow + ahead && test_now_s() < deadline,
                          "rank %d at %lu, the slow one at %.0f; %u apart are allowed", i,
                          (unsigned long)crew[i].page->exchanges, slow, ahead);
            test_nap_s(0.002);
        }
    }
    for (int i = 0; i < n; i++) /* by their own count, too, which the answers make */
        ck_assert_uint_le(crew[i].page->exchanges, (uint64_t)slow + ahead);
}

START_TEST(a_stopped_worker_is_left_behind_by_slack_until_it_is_given_up)
{
    struct daemon d;
    struct crew_worker crew[WORKERS];
    struct shim_page *page = start_under_timelapse(&d, "slack=3");
    for (int i = 0; i < WORKERS; i++)
        start_one(&d, &crew[i], i, 0, 0.001, 0);
    assert_go_on(crew, 0, WORKERS, 30);
    crew_hold_at(&crew[SLOW], 0); /* so that it is known where it stands */
    ck_assert(crew_is_held(&crew[SLOW], WAIT_S));
    crew_signal(&crew[SLOW], SIGSTOP);
    assert_stand(&d, crew, SLOW, (double)crew[SLOW].page->exchanges, SLACK); /* as far as they may */
    ck_assert_uint_eq(daemon_logged(&d, "session.ended"), 0);

    timelapse_until_given_up(&d, page, others, SLOW);
    assert_go_on(crew, 0, SLOW, 2 * SLACK + 20);
    ck_assert_uint_eq(daemon_logged(&d, "session.ended"), 1);
    crew_hold_at(&crew[SLOW], UINT64_MAX);
    crew_signal(&crew[SLOW], SIGCONT);
    ck_assert_msg(crew_ended(&crew[SLOW], WAIT_S), "the evicted rank goes on");
    ck_assert_msg(crew[SLOW].page->rc == PSC_EEVICTED, "%s: %s", psc_result_name(crew[SLOW].page->rc),
                  crew[SLOW].page->error);
    crew_kill(&crew[SLOW]);
    stop_all(crew, SLOW);
    assert_sum(&d, crew, WORKERS);
    daemon_remove(&d);
}
END_TEST

/* Its training thread hangs and its heart beats: it is shown as stalled, then it is evicted, and the others
 * go on. Under each admission that waits for everybody. */
START_TEST(a_hung_worker_is_given_up_after_step_s)
{
    static const char *const changes[] = {"slack=3", "admission=sync", "admission=round-robin"};
    static const int all[WORKERS] = {0, 1, 2, SLOW};
    for (size_t k = 0; k < ROWS(changes); k++) {
        struct daemon d;
        struct crew_worker crew[WORKERS];
        static const char *settings[] = {COMMON, "limits.step_s=60", NULL, NULL};
        settings[ROWS(settings) - 2] = changes[k];
        ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
        struct shim_page *page = timelapse_prepare(&d);
        ck_assert_int_eq(daemon_start(&d, NULL), 0);
        for (int i = 0; i < WORKERS; i++)
            start_one(&d, &crew[i], i, 0, 0.001, 0);
        assert_go_on(crew, 0, WORKERS, 10);
        crew_hold_at(&crew[SLOW], 0);
        ck_assert(crew_is_held(&crew[SLOW], WAIT_S));
        while (!is_in_state(&d, SLOW, "stalled")) {
            ck_assert_msg(daemon_logged(&d, "session.ended") == 0, "it has ended and was not stalled before");
            ck_assert(shim_pass(page, &d, 1, all, WORKERS));
        }
        while (daemon_logged(&d, "session.ended") == 0) /* false when it is gone */
            ck_assert(shim_pass(page, &d, 1, all, WORKERS) || daemon_logged(&d, "session.ended") > 0);
        ck_assert_uint_eq(daemon_logged(&d, "no step for "), 1);
        assert_go_on(crew, 0, SLOW, 30);
        crew_hold_at(&crew[SLOW], UINT64_MAX);
        ck_assert_msg(crew_ended(&crew[SLOW], WAIT_S), "the evicted rank goes on");
        ck_assert_msg(crew[SLOW].page->rc == PSC_EEVICTED, "%s: %s", psc_result_name(crew[SLOW].page->rc),
                      crew[SLOW].page->error);
        crew_kill(&crew[SLOW]);
        stop_all(crew, SLOW);
        daemon_remove(&d);
        shim_unset();
    }
}
END_TEST

/* The slow one makes an exchange when the test says so: the others are never more than slack ahead of it, and
 * go as far as that. */
static void hold_back(const char *setting, unsigned slack)
{
    enum { COUNT = 60 };
    struct daemon d;
    struct crew_worker crew[WORKERS];
    start(&d, setting);
    for (int i = 0; i < WORKERS; i++)
        start_one(&d, &crew[i], i, COUNT, 0, i == SLOW ? 1 : 0);
    for (uint64_t k = 1; k + slack < COUNT; k++) {
        ck_assert_msg(crew_reaches(&crew[SLOW], k, WAIT_S), "%s", crew[SLOW].page->error);
        assert_stand(&d, crew, SLOW, (double)k, slack);
        crew_hold_at(&crew[SLOW], k + 1);
    }
    crew_hold_at(&crew[SLOW], UINT64_MAX);
    for (int i = 0; i < WORKERS; i++) {
        ck_assert_msg(crew_ended(&crew[i], WAIT_S), "rank %d stands still after %lu", i,
                      (unsigned long)crew[i].page->exchanges);
        ck_assert(crew_stop(&crew[i], WAIT_S));
        ck_assert_msg(crew[i].page->rc == PSC_OK, "rank %d: %s", i, crew[i].page->error);
        ck_assert_uint_eq(crew[i].page->exchanges, COUNT);
    }
    assert_sum(&d, crew, WORKERS);
    daemon_remove(&d);
}

START_TEST(a_slow_worker_is_waited_for)
{
    hold_back("slack=3", 3);
    hold_back("slack=0", 0);
    hold_back("slack=1", 1);
}
END_TEST

START_TEST(who_joins_late_is_level)
{
    struct daemon d;
    struct crew_worker crew[WORKERS + 1];
    start(&d, "slack=1");
    for (int i = 0; i < WORKERS; i++)
        start_one(&d, &crew[i], i, 0, 0.001, 0);
    assert_go_on(crew, 0, WORKERS, 50);
    start_one(&d, &crew[WORKERS], WORKERS, 0, 0.001, 0);
    ck_assert_msg(crew_reaches(&crew[WORKERS], 20, WAIT_S), "%s", crew[WORKERS].page->error);
    assert_go_on(crew, 0, WORKERS + 1, 50);
    uint64_t late = crew[WORKERS].page->exchanges, first = crew[0].page->exchanges;
    ck_assert_uint_le(late + 40, first);
    stop_all(crew, WORKERS + 1);
    assert_sum(&d, crew, WORKERS + 1);
    daemon_remove(&d);
}
END_TEST

/* Lanes copy at different moments, of everyone's exchange some chunks, and answers to others are out that the
 * psd which comes back knows nothing of: nobody waits for what will not come. Under rounds too. */
START_TEST(all_go_on_after_a_restart_of_psd)
{
    static const char *const changes[] = {"slack=0", "slack=2", "admission=sync", "admission=round-robin"};
    for (size_t k = 0; k < ROWS(changes); k++) {
        struct daemon d;
        struct crew_worker crew[WORKERS];
        start(&d, changes[k]);
        for (int i = 0; i < WORKERS; i++)
            start_one(&d, &crew[i], i, 0, 0.0005, 0);
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

/* A few exchanges each: more than may have been answered before psd died. */
static void pass_time_until_all_go_on(const struct daemon *d, struct shim_page *page,
                                      const struct crew_worker *crew, int n)
{
    uint64_t want[WORKERS];
    double deadline = test_now_s() + test_slow_s(WAIT_S);
    for (int i = 0; i < n; i++)
        want[i] = crew[i].page->exchanges + 5;
    for (int i = 0; i < n; i++)
        while (crew[i].page->exchanges < want[i]) {
            ck_assert_msg(test_now_s() < deadline, "rank %d waits for one that is dead", i);
            ck_assert(shim_pass(page, d, 1, others, (size_t)n));
        }
}

/* `workers` is for the beginning: who dies together with psd is not waited for beyond silence. */
START_TEST(who_died_with_psd_is_not_waited_for)
{
    static const char *const changes[] = {"slack=0", "admission=sync"};
    for (size_t k = 0; k < ROWS(changes); k++) {
        struct daemon d;
        struct crew_worker crew[WORKERS];
        struct shim_page *page = start_under_timelapse(&d, changes[k]);
        for (int i = 0; i < WORKERS; i++)
            start_one(&d, &crew[i], i, 0, 0.0005, 0);
        assert_go_on(crew, 0, WORKERS, 30);
        ck_assert(daemon_checkpoint(&d, WAIT_S));
        daemon_stop(&d, SIGKILL, WAIT_S);
        crew_kill(&crew[SLOW]);
        ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
        ck_assert(daemon_reaches(&d, "/status", "workers.active", SLOW, WAIT_S));
        pass_time_until_all_go_on(&d, page, crew, SLOW);
        assert_go_on(crew, 0, SLOW, 30);
        stop_all(crew, SLOW);
        daemon_remove(&d);
    }
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        a_stopped_worker_is_left_behind_by_slack_until_it_is_given_up,
        a_hung_worker_is_given_up_after_step_s,
        a_slow_worker_is_waited_for,
        who_joins_late_is_level,
        all_go_on_after_a_restart_of_psd,
        who_died_with_psd_is_not_waited_for,
    };
    return suite_run("ssp", tests, sizeof tests / sizeof *tests, 500);
}
