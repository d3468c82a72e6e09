/* Exchanges of 1, 8 and 64 steps on their way while psd dies, a worker dies, or the method changes: each
 * lands once or not at all. Gradients are whole numbers and rule add sums them, so that the center says it.
 */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/support/pause.h"
#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"
#include "tests/system/step_workers.h"

enum { FLOATS = 30011, WORKERS = 4, WAIT_S = 120 }; /* two lanes of four chunks */

/* An exchange is answered before the next one of its values begins: the period is longer than what it may
 * take. One begins after every `between` steps; in the last row up to four are on their way. */
static const struct {
    uint64_t steps, period, between;
    const char *method;
} rows[] = {
    {1, 2, 2, "method: downpour\nparameters: {learning_rate: 1, period: 2, overlap: true}\n"},
    {8, 12, 12, "method: downpour\nparameters: {learning_rate: 1, period: 12, overlap: 8}\n"},
    {64, 72, 72, "method: downpour\nparameters: {learning_rate: 1, period: 72, overlap: 64}\n"},
    {64, 72, 18, "method: downpour\nparameters: {learning_rate: 1, period: 72, fragments: 4, overlap: 64}\n"},
};

/* What a worker owes is sent when the method changes; then every step is. */
static const char at_every_step[] = "method: async-sgd\nparameters: {learning_rate: 1}\n";

static const char *const swapped[] = {
    "method: downpour\nparameters: {learning_rate: 1, period: 64, overlap: 64}\n",
    "method: async-sgd\nparameters: {learning_rate: 1, overlap: true}\n",
    "method: downpour\nparameters: {learning_rate: 1, period: 12, overlap: 8}\n",
    "rule: add\nadmission: sync\noptimizer: sgd\naveraging: none\nmethod: custom\n"
    "parameters: {learning_rate: 1, period: 8, overlap: 8}\n",
    "method: downpour\nparameters: {learning_rate: 1, period: 16, overlap: auto}\n",
    "method: downpour\nparameters: {learning_rate: 1, period: 12, fragments: 3, overlap: 11}\n",
    "method: downpour\nparameters: {learning_rate: 1, period: 5, overlap: 3}\n"
    "codec: {message: bf16, answer: fp16}\n",
    "rule: add\nadmission: sync\noptimizer: sgd\naveraging: none\nmethod: custom\n"
    "parameters: {learning_rate: 1, period: 12, overlap: auto}\n",
};

/* A change of the method waits for the exchange that a dead worker has begun until its session ends. */
static const char endless[] = "limits.silence_s=300", short_silence[] = "limits.silence_s=30";

static struct daemon psd;
static struct crew_worker crew[WORKERS];

static void start(const char *method, const char *silence, uint64_t held_at)
{
    static const char *settings[] = {"checkpoint.every_s=0",
                                     "chunk_floats=4096",
                                     "lanes=2",
                                     "parameters.schedule.warmup_steps=0",
                                     "listen=ipc://control",
                                     NULL,
                                     NULL};
    settings[ROWS(settings) - 2] = silence;
    ck_assert_int_eq(daemon_prepare(&psd, NULL, settings), 0);
    ck_assert(daemon_write_config(&psd, method));
    ck_assert_int_eq(daemon_start(&psd, NULL), 0);
    for (int i = 0; i < WORKERS; i++)
        crew_start(&crew[i], &(struct crew_task){.server = psd.endpoint,
                                                 .rank = i,
                                                 .floats = FLOATS,
                                                 .heartbeat_ms = 200,
                                                 .retry_ms = 200,
                                                 .salt = (uint32_t)i,
                                                 .steps = true,
                                                 .held_at = held_at});
}

static void hold_all_at(int n, uint64_t steps)
{
    for (int i = 0; i < n; i++)
        crew_hold_at(&crew[i], steps);
    for (int i = 0; i < n; i++)
        if (!crew_is_held(&crew[i], WAIT_S)) {
            daemon_show_log(&psd);
            ck_abort_msg("rank %d stands still at step %lu of %lu: %s", i,
                         (unsigned long)crew[i].page->exchanges, (unsigned long)steps, crew[i].page->error);
        }
}

/* The same, with nothing on its way. */
static void settle_all_at(int n, uint64_t steps)
{
    for (int i = 0; i < n; i++)
        crew[i].page->settles = true;
    hold_all_at(n, steps);
    for (int i = 0; i < n; i++)
        crew[i].page->settles = false;
}

static void assert_go_on(int n, uint64_t steps)
{
    uint64_t want[WORKERS];
    for (int i = 0; i < n; i++)
        want[i] = crew[i].page->exchanges + steps;
    for (int i = 0; i < n; i++) {
        crew_hold_at(&crew[i], UINT64_MAX);
        if (!crew_reaches(&crew[i], want[i], WAIT_S)) {
            daemon_show_log(&psd);
            ck_abort_msg("rank %d stands still at step %lu: %s", i, (unsigned long)crew[i].page->exchanges,
                         crew[i].page->error);
        }
    }
}

static void swap_to(const char *method)
{
    double generation = daemon_number(&psd, "/status", "generation");
    ck_assert(daemon_write_config(&psd, method));
    char *answer = daemon_ask(&psd, "POST", "/reload");
    ck_assert_ptr_nonnull(answer);
    assert_says(answer, "started");
    free(answer);
    if (!daemon_reaches(&psd, "/status", "generation", generation + 1, WAIT_S)) {
        daemon_show_log(&psd);
        ck_abort_msg("the method does not change to\n%s", method);
    }
}

/* Everything is sent, and the workers end. */
static void settle(int n)
{
    swap_to(at_every_step);
    const uint64_t generation = (uint64_t)daemon_number(&psd, "/status", "generation");
    for (int i = 0; i < n; i++) {
        crew_hold_at(&crew[i], UINT64_MAX);
        ck_assert_msg(crew_has_generation(&crew[i], generation, WAIT_S), "rank %d: %s", i,
                      crew[i].page->error);
    }
    for (int i = 0; i < n; i++)
        crew[i].page->stop = true;
    for (int i = 0; i < n; i++) {
        ck_assert(crew_stop(&crew[i], WAIT_S));
        ck_assert_msg(crew[i].page->rc == PSC_OK, "rank %d: %s (%s)", i, psc_result_name(crew[i].page->rc),
                      crew[i].page->error);
    }
}

/* The center without what the first n workers have sent. malloc'ed. */
static double *center_without(int n)
{
    float *center = stepper_center(&psd, FLOATS);
    double *rest = calloc(FLOATS, sizeof *rest);
    ck_assert_ptr_nonnull(rest);
    for (uint64_t i = 0; i < FLOATS; i++) {
        rest[i] = (double)center[i];
        for (int w = 0; w < n; w++)
            rest[i] += crew_sum((uint32_t)w, crew[w].page->exchanges, i);
    }
    free(center);
    return rest;
}

static void assert_sum(void)
{
    double *rest = center_without(WORKERS);
    for (uint64_t i = 0; i < FLOATS; i++)
        if (fabs(rest[i]) > 0) {
            daemon_show_log(&psd);
            ck_abort_msg("center[%lu] is off by %+.1f from the sum of the gradients", (unsigned long)i,
                         rest[i]);
        }
    free(rest);
}

/* psd stands still when the exchange begins, so that nothing of it is heard until psd is killed: the psd that
 * comes back from its checkpoint gets it from the workers. */
static void kill_psd(size_t row)
{
    const uint64_t period = rows[row].period, steps = rows[row].steps;
    start(rows[row].method, endless, 2 * period + steps);
    settle_all_at(WORKERS, 2 * period + steps); /* those of the second period have landed */
    ck_assert(daemon_checkpoint(&psd, WAIT_S));
    pause_child(psd.pid);
    hold_all_at(WORKERS, 3 * period + steps - 1);
    daemon_stop(&psd, SIGKILL, WAIT_S);
    ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
    assert_go_on(WORKERS, 2 * period);
    settle(WORKERS);
    assert_sum();
    daemon_remove(&psd);
}

START_TEST(psd_dies_with_exchanges_on_their_way)
{
    for (size_t row = 0; row < ROWS(rows); row++)
        kill_psd(row);
}
END_TEST

/* The last exchange of the dead one that has the value; 0: the value is of none. */
static uint64_t last_of(double rest, uint64_t i, size_t row, uint32_t dead)
{
    uint64_t first = 2 * rows[row].period, end = 3 * rows[row].period + rows[row].steps;
    for (uint64_t step = first; step < end; step += rows[row].between)
        if (fabs(rest + crew_sum(dead, step, i)) <= 0)
            return step;
    return 0;
}

/* Each chunk has whole exchanges of the dead one: those that had landed, or more. */
static void kill_worker(size_t row)
{
    const uint64_t period = rows[row].period, steps = rows[row].steps;
    enum { LIVE = WORKERS - 1 };
    start(rows[row].method, short_silence, 2 * period + steps);
    settle_all_at(WORKERS, 2 * period + steps);
    crew_hold_at(&crew[LIVE], 3 * period + steps - 1);
    ck_assert(crew_is_held(&crew[LIVE], WAIT_S));
    crew_kill(&crew[LIVE]);
    assert_go_on(LIVE, 2 * period);
    settle(LIVE);
    double *rest = center_without(LIVE);
    for (uint64_t i = 0; i < FLOATS; i++) {
        ck_assert_msg(last_of(rest[i], i, row, LIVE) > 0,
                      "center[%lu] has %.1f of the dead worker: not a number of whole exchanges",
                      (unsigned long)i, -rest[i]);
    }
    free(rest);
    daemon_remove(&psd);
}

START_TEST(a_worker_dies_with_an_exchange_on_its_way)
{
    for (size_t row = 0; row < ROWS(rows); row++)
        kill_worker(row);
}
END_TEST

/* Here the method changes while an exchange is certain to be on its way, of which psd has heard or not. */
static void change_method(size_t row)
{
    const uint64_t period = rows[row].period, steps = rows[row].steps;
    for (int heard = 0; heard < 2; heard++) {
        start(rows[row].method, endless, 2 * period + steps);
        settle_all_at(WORKERS, 2 * period + steps);
        if (!heard)
            pause_child(psd.pid);
        hold_all_at(WORKERS, 3 * period + steps - 1);
        if (!heard)
            kill(psd.pid, SIGCONT);
        settle(WORKERS);
        assert_sum();
        daemon_remove(&psd);
    }
}

START_TEST(the_method_changes_with_exchanges_on_their_way)
{
    for (size_t row = 0; row < ROWS(rows); row++)
        change_method(row);
}
END_TEST

START_TEST(no_long_exchange_is_lost_over_many_swaps)
{
    struct dice dice = {11};
    size_t now = 0;
    start(swapped[0], endless, 0);
    for (int k = 1; k <= 24; k++) {
        size_t next = k < (int)ROWS(swapped) ? (size_t)k : dice_below(&dice, ROWS(swapped));
        next = next == now ? (now + 1) % ROWS(swapped) : next;
        assert_go_on(WORKERS, 12 + dice_below(&dice, 40));
        swap_to(swapped[next]);
        now = next;
    }
    settle(WORKERS);
    ck_assert_double_eq(daemon_number(&psd, "/status", "center.updates_dropped"), 0);
    assert_sum();
    daemon_remove(&psd);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        psd_dies_with_exchanges_on_their_way,
        a_worker_dies_with_an_exchange_on_its_way,
        the_method_changes_with_exchanges_on_their_way,
        no_long_exchange_is_lost_over_many_swaps,
    };
    return suite_run("overlap", tests, sizeof tests / sizeof *tests, 500);
}
