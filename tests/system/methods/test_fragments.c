/* Rounds of fragments: what they compute, and that nobody waits for a fragment that will not come, whoever
 * comes, goes, or stood elsewhere in the cycle. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "proto/model/fragment.h"
#include "tests/support/pause.h"
#include "tests/support/system/libc_faults.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"
#include "tests/system/step_workers.h"

enum { FLOATS = 30011, WORKERS = 3, FRAGMENTS = 4, PERIOD = 6, STEPS = 41 }; /* two lanes of four chunks */

#define ETA 0.125f
#define COMMON                                                                                               \
    "method=diloco", "optimizer=sgd", "schedule={kind: constant, warmup_steps: 0}", "checkpoint.every_s=0",  \
        "chunk_floats=4096", "lanes=2", "learning_rate=0.125", "outer_learning_rate=1", "outer_momentum=0",  \
        "period=6", "fragments=4", "limits.silence_s=60"

static struct daemon psd;
static struct stepper team[WORKERS + 1];

/* What silence is passes by psd's clock: see shim_pass. */
static struct shim_page *start(const char *const *settings)
{
    ck_assert_int_eq(daemon_prepare(&psd, NULL, settings), 0);
    struct shim_page *page = shim_set(PSD_SHIM, psd.dir);
    ck_assert_ptr_nonnull(page);
    ck_assert_int_eq(daemon_start(&psd, NULL), 0);
    shim_unset();
    return page;
}

static void start_worker(int i, int rank, uint64_t steps, uint32_t nap_us, bool load)
{
    struct stepper_task task = {.server = psd.endpoint,
                                .rank = rank,
                                .floats = FLOATS,
                                .steps = steps,
                                .samples = 1,
                                .nap_us = nap_us,
                                .save_last = true,
                                .load = load};
    snprintf(task.save, sizeof task.save, "%s/rank%d.state", psd.dir, rank);
    stepper_start(&team[i], &task);
}

static void assert_ends(int i)
{
    ck_assert_msg(stepper_finish(&team[i], TEST_HANG_S), "worker %d stands still at step %lu", i,
                  (unsigned long)team[i].page->steps);
    ck_assert_msg(team[i].page->rc == PSC_OK, "worker %d: %s (%s)", i, psc_result_name(team[i].page->rc),
                  team[i].page->error);
}

static void assert_goes_on(int i, uint64_t steps)
{
    uint64_t t = team[i].page->steps;
    ck_assert_msg(stepper_reaches(&team[i], t + steps, TEST_HANG_S), "worker %d stands still at step %lu: %s",
                  i, (unsigned long)team[i].page->steps, team[i].page->error);
}

/* As the stepper draws them. */
static struct dice dice_of(uint64_t seed, uint64_t rank, uint64_t t)
{
    struct dice d = {seed};
    d.state = dice_bits(&d) ^ rank;
    d.state = dice_bits(&d) ^ t;
    return d;
}

/* Local SGD by hand: each fragment becomes the mean of the workers, each at its own step of the period. */
static void refer(const struct ps_range *fragments, double x[WORKERS][FLOATS], double *center)
{
    struct dice d = dice_of(1, 0, 0);
    for (int i = 0; i < FLOATS; i++)
        x[0][i] = x[1][i] = x[2][i] = center[i] = (double)dice_float(&d);
    for (uint64_t t = 0; t < STEPS; t++) {
        for (uint64_t w = 0; w < WORKERS; w++) {
            d = dice_of(2, w, t);
            for (int i = 0; i < FLOATS; i++)
                x[w][i] -= (double)ETA * (0.5 * x[w][i] + (double)dice_float(&d));
        }
        for (int f = 0; f < FRAGMENTS; f++) {
            if ((int)(t % PERIOD) + 1 != ((f + 1) * PERIOD + FRAGMENTS - 1) / FRAGMENTS)
                continue;
            for (uint64_t i = fragments[f].begin; i < fragments[f].begin + fragments[f].count; i++)
                x[0][i] = x[1][i] = x[2][i] = center[i] = (x[0][i] + x[1][i] + x[2][i]) / 3;
        }
    }
}

START_TEST(each_fragment_is_the_mean_at_its_own_step)
{
    static const char *const settings[] = {COMMON, "workers=3", NULL};
    static double x[WORKERS][FLOATS], want[FLOATS];
    const struct ps_shard shard = {FLOATS, 2, 4096};
    const struct ps_tensor tensor = {"x", 0, {FLOATS}, 1, PS_ROLE_PARAM, PS_DECAY};
    struct ps_range fragments[FRAGMENTS];
    struct ps_manifest *m = NULL;
    struct ps_error err;
    ck_assert_int_eq(ps_manifest_create(&tensor, 1, FLOATS, &m, &err), 0);
    ps_fragments(&shard, m, FRAGMENTS, fragments);
    ps_manifest_destroy(m);
    refer(fragments, x, want);

    start(settings);
    for (int i = 0; i < WORKERS; i++)
        start_worker(i, i, STEPS, 2000, false);
    for (int i = 0; i < WORKERS; i++)
        assert_ends(i);
    float *center = stepper_center(&psd, FLOATS);
    for (int i = 0; i < FLOATS; i++)
        if (fabs((double)center[i] - want[i]) > 1e-5) /* 41 steps of a few roundings of values below 8 */
            ck_abort_msg("center[%d] is %.9g, not %.9g", i, (double)center[i], want[i]);
    /* A version is a cycle: 6 whole ones. */
    ck_assert_double_eq(daemon_number(&psd, "/status", "center.version"), STEPS / PERIOD);
    free(center);
    daemon_remove(&psd);
}
END_TEST

/* psd is killed again and again, wherever its workers are, and comes back from a checkpoint some cycles old.
 * They live on. With overlap what travelled is owed again. */
START_TEST(workers_outlive_psd_wherever_they_are)
{
    static const char *const plain[] = {COMMON, "workers=3", NULL};
    static const char *const overlapped[] = {COMMON, "workers=3", "overlap=true", NULL};
    for (int k = 0; k < 2; k++) {
        struct dice dice = {77};
        start(k == 0 ? plain : overlapped);
        for (int i = 0; i < WORKERS; i++)
            start_worker(i, i, UINT64_MAX, 4000, false);
        for (int i = 0; i < WORKERS; i++)
            assert_goes_on(i, 20);
        ck_assert(daemon_checkpoint(&psd, TEST_HANG_S));
        for (int times = 0; times < 6; times++) {
            for (int i = 0; i < WORKERS; i++)
                assert_goes_on(i, 3 + dice_below(&dice, 2 * PERIOD));
            test_nap_s(1e-4 * (double)dice_below(&dice, 100));
            daemon_stop(&psd, SIGKILL, TEST_HANG_S);
            ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
        }
        for (int i = 0; i < WORKERS; i++)
            assert_goes_on(i, 4 * PERIOD);
        for (int i = 0; i < WORKERS; i++)
            stepper_kill(&team[i]);
        daemon_remove(&psd);
    }
}
END_TEST

/* Until the worker's exchange waits at psd for others. */
static bool waits(int rank)
{
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    char state[32];
    while (test_now_s() < deadline) {
        daemon_text(&psd, "/workers", rank == 0 ? "workers.0.state" : "workers.1.state", state, sizeof state);
        if (strcmp(state, "waits") == 0)
            return true;
        test_nap_s(0.002);
    }
    return false;
}

/* Worker 1 is stopped while its fragment waits, and psd killed once worker 0 waits with the next one. */
START_TEST(psd_dies_while_one_is_stopped)
{
    static const char *const plain[] = {COMMON, "workers=2", NULL};
    static const char *const overlapped[] = {COMMON, "workers=2", "overlap=true", NULL};
    for (int k = 0; k < 2; k++) {
        start(k == 0 ? plain : overlapped);
        start_worker(0, 0, UINT64_MAX, 60000, false);
        start_worker(1, 1, UINT64_MAX, 0, false);
        for (int i = 0; i < 2; i++)
            assert_goes_on(i, 2);
        ck_assert(daemon_checkpoint(&psd, TEST_HANG_S));
        for (int times = 0; times < 4; times++) {
            assert_goes_on(0, (uint64_t)(1 + times));
            ck_assert(waits(1));
            pause_child(team[1].pid);
            ck_assert(waits(0));
            daemon_stop(&psd, SIGKILL, TEST_HANG_S);
            ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
            kill(team[1].pid, SIGCONT);
            for (int i = 0; i < 2; i++)
                assert_goes_on(i, 2 * PERIOD);
        }
        for (int i = 0; i < 2; i++)
            stepper_kill(&team[i]);
        daemon_remove(&psd);
    }
}
END_TEST

/* One dies within a cycle, another comes, a third comes back with a state that it saved within one. */
START_TEST(workers_come_and_go_within_a_cycle)
{
    static const char *const settings[] = {COMMON, NULL};
    static const int living[] = {0, 2};
    struct shim_page *page = start(settings);
    for (int i = 0; i < WORKERS; i++)
        start_worker(i, i, UINT64_MAX, 3000, false);
    for (int i = 0; i < WORKERS; i++)
        assert_goes_on(i, 3 * PERIOD);
    for (int times = 0; times < 3; times++) {
        stepper_kill(&team[1]);
        ck_assert(shim_pass_until(page, &psd, "silent for", (unsigned)times + 1, living, ROWS(living)));
        assert_goes_on(0, 2 * PERIOD + 1);
        assert_goes_on(2, 2 * PERIOD);
        start_worker(1, 1, UINT64_MAX, 3000, false);
        ck_assert_msg(stepper_reaches(&team[1], 3 * PERIOD, TEST_HANG_S), "the new one stands still: %s",
                      team[1].page->error);
        assert_goes_on(0, PERIOD);
    }
    for (int i = 0; i < WORKERS; i++)
        stepper_kill(&team[i]);
    daemon_remove(&psd);
}
END_TEST

/* A worker ends 1 to 5 steps into a cycle, and goes on from what it saved there while the other is elsewhere.
 */
START_TEST(a_state_within_a_cycle_begins_a_new_one)
{
    static const char *const settings[] = {COMMON, NULL};
    start(settings);
    start_worker(0, 0, UINT64_MAX, 3000, false);
    assert_goes_on(0, 2 * PERIOD);
    for (uint64_t into = 1; into < PERIOD; into++) {
        start_worker(1, 1, (into > 1 ? team[1].page->steps : 0) + 2 * PERIOD + into, 3000, into > 1);
        ck_assert_msg(stepper_joined(&team[1], TEST_HANG_S), "%s", team[1].page->error);
        assert_ends(1);
        ck_assert(daemon_workers_become(&psd, 1));
        assert_goes_on(0, 3);
    }
    stepper_kill(&team[0]);
    daemon_remove(&psd);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        each_fragment_is_the_mean_at_its_own_step,
        workers_outlive_psd_wherever_they_are,
        psd_dies_while_one_is_stopped,
        workers_come_and_go_within_a_cycle,
        a_state_within_a_cycle_begins_a_new_one,
    };
    return suite_run("fragments", tests, sizeof tests / sizeof *tests, 10 * TEST_HANG_S);
}
