/* Stale clocks between processes: exchanges of two workers never part by more than `slack`, also when one of
 * them stands still, naps, joins late, or psd restarts. Updates are whole numbers: the center says which
 * landed. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/support/crew.h"
#include "tests/support/daemon.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"
#include "tests/system/stepper.h"

enum {
    FLOATS = 30011,
    WORKERS = 4,
    SLOW = WORKERS - 1,
    SLACK = 3,
    SILENCE_S = 4
}; /* two lanes of four chunks */

#define COMMON                                                                                               \
    "method=ssp-sgd", "learning_rate=1", "parameters.schedule.warmup_steps=0", "workers=4",                  \
        "checkpoint.every_s=0", "chunk_floats=4096", "lanes=2", "limits.silence_s=4"

static void start(struct daemon *d, const char *change)
{
    static const char *settings[] = {COMMON, NULL, NULL};
    settings[ROWS(settings) - 2] = change;
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
}

static void start_one(const struct daemon *d, struct crew_worker *w, int rank, uint64_t count, double pause_s)
{
    struct crew_task task = {.server = d->endpoint,
                             .rank = rank,
                             .floats = FLOATS,
                             .count = count,
                             .heartbeat_ms = 300,
                             .retry_ms = 500,
                             .salt = (uint32_t)rank,
                             .pause_s = pause_s};
    crew_start(w, &task);
}

static void assert_go_on(const struct crew_worker *crew, int first, int end, uint64_t exchanges)
{
    uint64_t want[WORKERS + 1];
    for (int i = first; i < end; i++)
        want[i] = crew[i].page->exchanges + exchanges;
    for (int i = first; i < end; i++)
        ck_assert_msg(crew_reaches(&crew[i], want[i], 20), "rank %d stands still: %s (%s)", i,
                      psc_result_name(crew[i].page->rc), crew[i].page->error);
}

static void stop_all(struct crew_worker *crew, int n)
{
    for (int i = 0; i < n; i++)
        crew[i].page->stop = true;
    for (int i = 0; i < n; i++) {
        ck_assert(crew_stop(&crew[i], 20));
        ck_assert_msg(crew[i].page->rc == PSC_OK, "rank %d: %s (%s)", i, psc_result_name(crew[i].page->rc),
                      crew[i].page->error);
    }
}

/* One of them may have been lost on the way: its last message counts where it arrived. -1: none. */
static void assert_sum(const struct daemon *d, const struct crew_worker *crew, int n, int lost)
{
    float *center = stepper_center(d, FLOATS);
    for (uint64_t i = 0; i < FLOATS; i++) {
        double want = 0, last = 0;
        for (int w = 0; w < n; w++)
            want -= crew_sum((uint32_t)w, crew[w].page->exchanges, i);
        if (lost >= 0)
            last = -(double)crew_value((uint32_t)lost, crew[lost].page->exchanges, i);
        if ((double)center[i] != want && (double)center[i] != want + last)
            ck_abort_msg("value %lu is %.1f; the exchanges sum to %.1f (and %.1f)", (unsigned long)i,
                         (double)center[i], want, last);
    }
    free(center);
}

static bool is_told_to_wait(const struct daemon *d, int rank)
{
    char path[32], state[32] = "";
    snprintf(path, sizeof path, "workers.%d.state", rank);
    return daemon_text(d, "/workers", path, state, sizeof state) && strcmp(state, "waits") == 0;
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

/* A lane lands the exchanges of several one after the other, and the machine may let it wait in between. */
static double clock_when_landed(const struct daemon *d, int rank)
{
    test_nap_s(test_slow_s(0.005));
    return clock_of(d, rank);
}

/* Looks at everybody's clock, the slow one's last: it can only have gone on meanwhile, so that no look shows
 * more than there was. By how much the first is ahead of the slow one; -1 when not all are there. */
static int look(const struct daemon *d, int slack)
{
    double clock[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        if (isnan(clock[i] = clock_of(d, i)))
            return -1;
    for (int i = 0; i < WORKERS; i++)
        for (int k = i + 1; k < WORKERS; k++) {
            if (clock[i] - clock[k] > slack)
                clock[k] = clock_when_landed(d, k);
            ck_assert_msg(isnan(clock[k]) || clock[i] - clock[k] <= slack,
                          "rank %d at %.0f, rank %d at %.0f: more than %d apart", i, clock[i], k, clock[k],
                          slack);
        }
    return (int)(clock[0] - clock[SLOW]);
}

START_TEST(a_stopped_worker_is_left_behind_by_slack_until_it_is_given_up)
{
    struct daemon d;
    struct crew_worker crew[WORKERS];
    start(&d, "slack=3");
    for (int i = 0; i < WORKERS; i++)
        start_one(&d, &crew[i], i, 0, 0.001);
    assert_go_on(crew, 0, WORKERS, 30);
    crew_signal(&crew[SLOW], SIGSTOP);
    double stopped_s = test_now_s();
    unsigned at_the_end = 0;
    while (test_now_s() < stopped_s + SILENCE_S - 1) /* it is not given up before a heartbeat's time less */
        at_the_end += look(&d, SLACK) == SLACK;
    ck_assert_uint_gt(at_the_end, 0); /* as far as they may */
    for (int i = 0; i < SLOW; i++)
        ck_assert_msg(is_told_to_wait(&d, i), "rank %d does not wait", i);
    ck_assert_uint_eq(daemon_logged(&d, "session.ended"), 0);

    assert_go_on(crew, 0, SLOW, 2 * SLACK + 20);
    ck_assert_double_ge(test_now_s() - stopped_s, SILENCE_S - 0.5); /* silence_s less a heartbeat */
    ck_assert_uint_eq(daemon_logged(&d, "session.ended"), 1);
    crew_signal(&crew[SLOW], SIGCONT);
    ck_assert_msg(crew_ended(&crew[SLOW], 20), "the evicted rank goes on");
    ck_assert_msg(crew[SLOW].page->rc == PSC_EEVICTED, "%s: %s", psc_result_name(crew[SLOW].page->rc),
                  crew[SLOW].page->error);
    crew_kill(&crew[SLOW]);
    stop_all(crew, SLOW);
    assert_sum(&d, crew, WORKERS, SLOW);
    daemon_remove(&d);
}
END_TEST

/* The slow one's nap sets the pace: the others cannot be done before it has napped count - slack times. */
static void nap(const char *setting, int slack)
{
    enum { COUNT = 120 };
    const double nap_s = 0.02;
    struct daemon d;
    struct crew_worker crew[WORKERS];
    unsigned looks = 0, furthest = 0;
    start(&d, setting);
    double began_s = test_now_s();
    for (int i = 0; i < WORKERS; i++)
        start_one(&d, &crew[i], i, COUNT, i == SLOW ? nap_s : 0);
    while (!crew[0].page->ended && test_now_s() < began_s + test_slow_s(60)) {
        int ahead = look(&d, slack);
        looks += ahead >= 0;
        furthest += ahead == slack;
    }
    ck_assert_double_ge(test_now_s() - began_s, nap_s * (COUNT - slack - 1));
    for (int i = 0; i < WORKERS; i++) {
        ck_assert_msg(crew_ended(&crew[i], 60), "rank %d stands still after %lu", i,
                      (unsigned long)crew[i].page->exchanges);
        ck_assert(crew_stop(&crew[i], 20));
        ck_assert_msg(crew[i].page->rc == PSC_OK, "rank %d: %s", i, crew[i].page->error);
        ck_assert_uint_eq(crew[i].page->exchanges, COUNT);
    }
    ck_assert_uint_gt(looks, 10);
    ck_assert_uint_gt(furthest, 0);
    assert_sum(&d, crew, WORKERS, -1);
    daemon_remove(&d);
}

START_TEST(a_napping_worker_is_waited_for)
{
    nap("slack=3", 3);
    nap("slack=0", 0);
    nap("slack=1", 1);
}
END_TEST

START_TEST(who_joins_late_is_level)
{
    struct daemon d;
    struct crew_worker crew[WORKERS + 1];
    start(&d, "slack=1");
    for (int i = 0; i < WORKERS; i++)
        start_one(&d, &crew[i], i, 0, 0.001);
    assert_go_on(crew, 0, WORKERS, 50);
    start_one(&d, &crew[WORKERS], WORKERS, 0, 0.001);
    ck_assert_msg(crew_reaches(&crew[WORKERS], 20, 20), "%s", crew[WORKERS].page->error);
    assert_go_on(crew, 0, WORKERS + 1, 50);
    stop_all(crew, WORKERS + 1);
    ck_assert_uint_le(crew[WORKERS].page->exchanges + 40, crew[0].page->exchanges);
    assert_sum(&d, crew, WORKERS + 1, -1);
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
            start_one(&d, &crew[i], i, 0, 0.0005);
        for (int restart = 0; restart < 3; restart++) {
            assert_go_on(crew, 0, WORKERS, 30);
            ck_assert(daemon_checkpoint(&d, 20));
            daemon_stop(&d, SIGKILL, 5);
            ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
        }
        assert_go_on(crew, 0, WORKERS, 50);
        stop_all(crew, WORKERS);
        daemon_remove(&d);
    }
}
END_TEST

/* `workers` is for the beginning: who dies together with psd is not waited for beyond silence. */
START_TEST(who_died_with_psd_is_not_waited_for)
{
    static const char *const changes[] = {"slack=0", "admission=sync"};
    for (size_t k = 0; k < ROWS(changes); k++) {
        struct daemon d;
        struct crew_worker crew[WORKERS];
        start(&d, changes[k]);
        for (int i = 0; i < WORKERS; i++)
            start_one(&d, &crew[i], i, 0, 0.0005);
        assert_go_on(crew, 0, WORKERS, 30);
        ck_assert(daemon_checkpoint(&d, 20));
        daemon_stop(&d, SIGKILL, 5);
        crew_kill(&crew[SLOW]);
        ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
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
        a_napping_worker_is_waited_for,
        who_joins_late_is_level,
        all_go_on_after_a_restart_of_psd,
        who_died_with_psd_is_not_waited_for,
    };
    return suite_run("ssp", tests, sizeof tests / sizeof *tests, 120);
}
