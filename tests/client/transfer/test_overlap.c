/* Exchanges that travel while the worker computes, with a real psd: the same bits as without under elastic
 * rules, one step staler under rules that send gradients. */
#include <math.h>
#include <signal.h>

#include "tests/client/psd_fixture.h"

enum { N = RIG_N, STEPS = 15 };

static struct daemon psd;
static float start[N], g[N], center[N], x[2][N], trace[2][2][STEPS][N]; /* [overlap][worker][t] */

static void stop_psd(void)
{
    daemon_remove(&psd);
}

/* A gradient that depends on x, so that a difference would grow. */
static void gradient(const float *at, int worker, uint64_t t)
{
    struct dice dice = {1000 * t + (uint64_t)worker};
    for (int i = 0; i < N; i++)
        g[i] = 0.5f * at[i] + dice_float(&dice);
}

static void step_overlapped(struct psc *c, int overlap, int worker)
{
    uint64_t t = psc_clock(c);
    gradient(x[worker], worker, t);
    assert_ok(c, psc_step(c, x[worker], g, 1));
    memset(g, 0x7f, sizeof g); /* it is the caller's again */
    memcpy(trace[overlap][worker][t], x[worker], sizeof x[worker]);
}

static struct psc *join(int worker)
{
    memcpy(x[worker], start, sizeof start);
    return rig_join(&psd, rig_model, RIG_TENSORS, x[worker]);
}

/* Without checkpoints: a request to save changes where an overlapped exchange begins. */
#define SETTINGS                                                                                             \
    "schedule={kind: constant, warmup_steps: 0}", "learning_rate=0.0625", "checkpoint.every_s=0", RIG_CUT

static const struct {
    const char *method, *period, *alpha, *decay, *codec;
} elastic[] = {
    {"method=async-easgd", "period=1", "alpha=0.3", "weight_decay=0", "codec={}"},
    {"method=async-easgd", "period=3", "alpha=0.7", "weight_decay=0.01", "codec={}"},
    {"method=eamsgd", "period=1", "alpha=0.3", "weight_decay=0", "codec={}"},
    {"method=eamsgd", "period=2", "alpha=0.7", "weight_decay=0.01", "codec={}"},
    {"method=async-easgd", "period=2", "alpha=0.3", "weight_decay=0",
     "codec={message: int8, answer: fp16, error_feedback: true}"},
    {"method=eamsgd", "period=1", "alpha=0.3", "weight_decay=0.01",
     "codec={message: trunc16, answer: int8, error_feedback: true}"},
};

/* address: of psd, NULL: any. */
static void start_elastic_at(const char *address, int row, int overlap)
{
    static const char *settings[] = {NULL, NULL,     NULL, NULL, NULL,
                                     NULL, SETTINGS, NULL, NULL}; /* also for a restart */
    settings[0] = elastic[row].method;
    settings[1] = elastic[row].period;
    settings[2] = elastic[row].alpha;
    settings[3] = elastic[row].decay;
    settings[5] = elastic[row].codec;
    settings[4] = overlap ? "overlap=true" : "overlap=false";
    settings[ROWS(settings) - 2] = address;
    rig_start(&psd, settings);
}

static void start_elastic(int row, int overlap)
{
    start_elastic_at(NULL, row, overlap);
}

static void check_traces(int n_workers)
{
    for (int w = 0; w < n_workers; w++)
        for (int t = 0; t < STEPS; t++)
            for (int i = 0; i < N; i++)
                if (memcmp(&trace[0][w][t][i], &trace[1][w][t][i], sizeof(float)) != 0)
                    ck_abort_msg("worker %d, t = %d, [%d]: %.9g without overlap, %.9g with", w, t, i,
                                 (double)trace[0][w][t][i], (double)trace[1][w][t][i]);
}

START_TEST(elastic_overlap_changes_no_bit_for_one_worker)
{
    rig_roll(start, N, 50);
    for (int overlap = 0; overlap < 2; overlap++) {
        start_elastic(_i, overlap);
        struct psc *c = join(0);
        for (int t = 0; t < STEPS; t++)
            step_overlapped(c, overlap, 0);
        psc_close(c);
        daemon_remove(&psd);
    }
    check_traces(1);
}
END_TEST

static void change_rate(struct psc *c)
{
    struct psc_info info = {.size = sizeof info};
    double end_s = unit_now_s() + UNIT_HANG_S;
    assert_ok(c, psc_wait(c, PSC_ALL)); /* what has begun has landed */
    free(daemon_ask(&psd, "POST", "/set?lines=learning_rate%3D0.03125"));
    for (; info.generation < 1; unit_nap_ms(5)) {
        ck_assert(unit_now_s() < end_s);
        psc_info(c, &info);
    }
}

/* The exchange that belongs before the step was made under the method before: it is not made again. Weight
 * decay without a lookahead is not compared: a change adds it where the exchange has moved x. */
START_TEST(a_change_of_the_method_repeats_no_exchange)
{
    static const int rows[] = {0, 2, 3, 4, 5};
    rig_roll(start, N, 50);
    for (int overlap = 0; overlap < 2; overlap++) {
        start_elastic(rows[_i], overlap);
        struct psc *c = join(0);
        for (int t = 0; t < STEPS; t++) {
            if (t == 6)
                change_rate(c);
            step_overlapped(c, overlap, 0);
        }
        psc_close(c);
        daemon_remove(&psd);
    }
    check_traces(1);
}
END_TEST

/* Values of the center that differ from `from`, and those that differ from it now and not in `then`. */
static int count_moved(const float *now, const float *from, const float *then)
{
    int n = 0;
    for (int i = 0; i < N; i++)
        n += now[i] != from[i] && (then == NULL || then[i] == from[i]);
    return n;
}

/* Where one worker computes at a time, most of x travels while it does; what ends its turn does not. */
START_TEST(a_worker_in_turn_sends_all_but_the_end)
{
    static const char *const settings[] = {
        "method=original-easgd", "serial=true", "overlap=true", "period=1", "alpha=0.3", SETTINGS, NULL};
    static float before[N], during[N], after[N];
    struct psc *observer;
    struct psc_options opt;
    double end_s;
    rig_roll(start, N, 50);
    rig_start(&psd, settings);
    struct psc *c = join(0);
    psc_options_init(&opt, sizeof opt);
    opt.server = psd.endpoint;
    opt.kind = PSC_OBSERVER;
    ck_assert_int_eq(psc_open(&opt, &observer), PSC_OK);
    assert_ok(observer, psc_begin(observer, rig_model, RIG_TENSORS, before));
    memcpy(during, before, sizeof during);
    step_overlapped(c, 1, 0); /* x is the center: nothing moves. Then x differs, and is on its way */
    for (end_s = unit_now_s() + UNIT_HANG_S; count_moved(during, before, NULL) == 0;) {
        ck_assert_msg(unit_now_s() < end_s, "nothing has travelled while the worker computes");
        assert_ok(observer, psc_pull(observer, NULL, during));
    }
    for (int k = 0; k < 20; k++) /* its end never does, however long the worker computes */
        assert_ok(observer, psc_pull(observer, NULL, during));
    step_overlapped(c, 1, 0);
    assert_ok(observer, psc_pull(observer, NULL, after));
    int ends = count_moved(after, before, during);
    ck_assert_msg(ends >= 1 && ends <= 3 * 1024, "%d values were kept to the end of the turn", ends);
    assert_ok(c, psc_wait(c, PSC_ALL)); /* gives the turn up */
    psc_close(observer);
    psc_close(c);
    daemon_remove(&psd);
}
END_TEST

/* With overlap worker A's exchange of step 1 is made at the end of its step 0. The order of the exchanges, A0
 * A1 B0 B1 A2 B2 ..., is kept in both runs. */
START_TEST(elastic_overlap_changes_no_bit_for_two_workers_in_lockstep)
{
    static const char *const settings[] = {"method=async-easgd", "period=1", "alpha=0.3", SETTINGS, NULL};
    static const char *const overlapped[] = {"method=async-easgd", "period=1", "alpha=0.3",
                                             "overlap=true",       SETTINGS,   NULL};
    struct psc *c[2];
    rig_roll(start, N, 50);
    rig_start(&psd, settings);
    for (int w = 0; w < 2; w++)
        c[w] = join(w);
    for (int w = 0; w < 2; w++) {
        step_overlapped(c[w], 0, w);
        step_overlapped(c[w], 0, w);
    }
    for (int t = 2; t < STEPS; t++)
        for (int w = 0; w < 2; w++)
            step_overlapped(c[w], 0, w);
    psc_close(c[0]);
    psc_close(c[1]);
    daemon_remove(&psd);
    rig_start(&psd, overlapped);
    for (int w = 0; w < 2; w++)
        c[w] = join(w);
    for (int t = 0; t < STEPS; t++)
        for (int w = 0; w < 2; w++) {
            step_overlapped(c[w], 1, w);
            assert_ok(c[w], psc_wait(c[w], PSC_ALL));
        }
    psc_close(c[0]);
    psc_close(c[1]);
    check_traces(2);
}
END_TEST

/* The exchange travels with nobody in the library: psd has it before the next call. */
START_TEST(exchange_travels_while_the_caller_computes)
{
    rig_roll(start, N, 50);
    start_elastic(0, 1);
    struct psc *c = join(0);
    step_overlapped(c, 1, 0); /* exchanges 0, and starts 1 */
    ck_assert(daemon_reaches(&psd, "/status", "center.version", 2, UNIT_HANG_S));
    ck_assert_uint_eq(psc_clock(c), 1);
    psc_close(c);
}
END_TEST

/* What the caller does to a buffer while the exchange travels is kept: x <- x - alpha (x - center). */
START_TEST(buffers_may_change_while_they_travel)
{
    rig_roll(start, N, 50);
    start_elastic(0, 1);
    struct psc *c = join(0);
    step_overlapped(c, 1, 0);
    assert_ok(c, psc_wait(c, PSC_ALL));
    for (int i = 2500; i < 3200; i++) /* bn.mean; it and the center's are still the offer's */
        x[0][i] = start[i] + 1;
    step_overlapped(c, 1, 0);
    for (int i = 2500; i < 3200; i++)
        ck_assert_double_le(fabs((double)x[0][i] - ((double)start[i] + 0.7)), 8 * 0x1p-22);
    psc_close(c);
}
END_TEST

static char said[4000];

static void hear(void *arg, const char *sentence)
{
    (void)arg;
    size_t used = strlen(said);
    snprintf(said + used, sizeof said - used, "%s\n", sentence);
}

static void start_sgd(void)
{
    rig_start(&psd, (const char *[]){"method=async-sgd", "overlap=true", SETTINGS, NULL});
}

/* x after step t lacks the gradient of step t, and no other; the log says so, once. */
START_TEST(gradients_are_one_step_staler)
{
    const struct psc_tensor model = {"model", 0, {N}, 1, PSC_PARAM};
    static float want[N], before[N];
    rig_roll(start, N, 50);
    start_sgd();
    struct psc *c = rig_open(&psd, hear, NULL);
    memcpy(x[0], start, sizeof start);
    assert_ok(c, psc_begin(c, &model, 1, x[0]));
    memcpy(want, start, sizeof start);
    for (uint64_t t = 0; t < STEPS; t++) {
        memcpy(before, want, sizeof want);
        gradient(x[0], 0, t);
        for (int i = 0; i < N; i++)
            want[i] -= 0.0625f * g[i];
        assert_ok(c, psc_step(c, x[0], g, 1));
        memset(g, 0x7f, sizeof g);
        ck_assert_mem_eq(x[0], before, sizeof before);
    }
    assert_ok(c, psc_wait(c, PSC_ALL));
    assert_ok(c, psc_pull(c, NULL, center));
    ck_assert_mem_eq(center, want, sizeof want);
    char *first = strstr(said, "one step staler");
    ck_assert_ptr_nonnull(first);
    ck_assert_ptr_null(strstr(first + 1, "one step staler"));
    psc_close(c);
}
END_TEST

/* Nothing of a vector that is not finite is sent, and pulling the center starts over. */
START_TEST(diverged_worker_is_told_and_may_start_over)
{
    rig_roll(start, N, 50);
    start_elastic(_i, 1);
    struct psc *c = join(0);
    step_overlapped(c, 1, 0);
    assert_ok(c, psc_wait(c, PSC_ALL));
    gradient(x[0], 0, 1);
    g[5] = INFINITY;
    int rc = psc_step(c, x[0], g, 1);
    for (int t = 0; t < 3 && rc == PSC_OK; t++) {
        gradient(start, 0, 1);
        rc = psc_step(c, x[0], g, 1);
    }
    ck_assert_int_eq(rc, PSC_EVALUE);
    assert_says(psc_error(c), "x[5], in tensor 'conv.weight'");
    assert_ok(c, psc_pull(c, NULL, x[0]));
    for (int i = 0; i < N; i++)
        ck_assert(isfinite(x[0][i]));
    for (int t = 0; t < 5; t++) {
        gradient(x[0], 0, 7);
        assert_ok(c, psc_step(c, x[0], g, 1));
        for (int i = 0; i < N; i++)
            assert_quick(isfinite(x[0][i]));
    }
    psc_close(c);
}
END_TEST

START_TEST(gradient_that_is_not_finite_is_refused_at_once)
{
    rig_roll(start, N, 50);
    start_sgd();
    struct psc *c = join(0);
    step_overlapped(c, 1, 0);
    gradient(x[0], 0, 1);
    g[2600] = NAN; /* a buffer's is not read */
    assert_ok(c, psc_step(c, x[0], g, 1));
    g[3300] = NAN;
    assert_fails(c, psc_step(c, x[0], g, 1), PSC_EVALUE, "the message[3300], in tensor 'bn.scale'");
    ck_assert_uint_eq(psc_clock(c), 2);
    step_overlapped(c, 1, 0);
    psc_close(c);
}
END_TEST

/* A pull into the array that psc_step moves starts over from there, whatever was on its way. */
START_TEST(pull_into_x_starts_over)
{
    static float zeros[N];
    rig_roll(start, N, 50);
    start_elastic(_i, 1);
    struct psc *c = join(0);
    for (int t = 0; t < 4; t++)
        step_overlapped(c, 1, 0);
    assert_ok(c, psc_init(c, NULL, zeros));
    assert_ok(c, psc_pull(c, NULL, x[0]));
    ck_assert_mem_eq(x[0], zeros, sizeof zeros);
    memset(g, 0, sizeof g);
    for (int t = 0; t < 4; t++)
        assert_ok(c, psc_step(c, x[0], g, 1));
    ck_assert_mem_eq(x[0], zeros, 2500 * sizeof *zeros); /* without momentum */
    psc_close(c);
}
END_TEST

/* psd is killed and comes back from its checkpoint: the worker goes on as if nothing had been. */
START_TEST(restart_of_psd_changes_nothing)
{
    rig_roll(start, N, 50);
    for (int overlap = 0; overlap < 2; overlap++) {
        start_elastic_at(RIG_SAME_ADDRESS, _i, overlap);
        struct psc *c = join(0);
        for (int t = 0; t < STEPS; t++) {
            step_overlapped(c, overlap, 0);
            if (overlap && t == STEPS / 2) {
                assert_ok(c, psc_wait(c, PSC_ALL));
                ck_assert(daemon_checkpoint(&psd, UNIT_HANG_S));
                daemon_stop(&psd, SIGKILL, UNIT_HANG_S);
                ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
                rig_meet_again(c);
            }
        }
        psc_close(c);
        daemon_remove(&psd);
    }
    check_traces(1);
}
END_TEST

/* The server ends the job while a gradient travels: it lands, and is adopted. */
START_TEST(draining_waits_for_what_travels)
{
    int rc = PSC_OK;
    uint64_t steps = 0;
    rig_roll(start, N, 50);
    start_sgd();
    struct psc *c = join(0);
    kill(psd.pid, SIGTERM);
    for (double end = unit_now_s() + UNIT_HANG_S; rc == PSC_OK && unit_now_s() < end; steps += rc >= 0) {
        gradient(start, 0, 0);
        rc = psc_step(c, x[0], g, 1);
    }
    ck_assert_msg(rc == PSC_DRAINED && psc_error(c)[0] == 0, "%s: %s", psc_result_name(rc), psc_error(c));
    ck_assert_double_eq(daemon_number(&psd, "/status", "center.version"), (double)steps);
    psc_close(c);
    ck_assert_int_eq(daemon_stop(&psd, 0, UNIT_HANG_S), 0);
}
END_TEST

START_TEST(server_that_is_gone_is_told_by_the_next_step)
{
    rig_roll(start, N, 50);
    start_elastic(_i, 1);
    memcpy(x[0], start, sizeof start);
    char says[32];
    struct psc *c = rig_join_hasty(&psd, rig_model, RIG_TENSORS, x[0], says);
    daemon_stop(&psd, SIGKILL, UNIT_HANG_S);
    int rc = PSC_OK;
    for (int t = 0; t < 4 && rc == PSC_OK; t++) {
        gradient(start, 0, 0);
        rc = psc_step(c, x[0], g, 1);
    }
    ck_assert_msg(rc == PSC_EGONE, "%s: %s", psc_result_name(rc), psc_error(c));
    assert_says(psc_error(c), says);
    ck_assert_int_eq(psc_step(c, x[0], g, 1), PSC_EGONE);
    psc_close(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-overlap");
    TCase *tc = tcase_create("overlap");
    tcase_add_checked_fixture(tc, NULL, stop_psd);
    tcase_add_loop_test(tc, elastic_overlap_changes_no_bit_for_one_worker, 0, ROWS(elastic));
    tcase_add_loop_test(tc, a_change_of_the_method_repeats_no_exchange, 0, 5);
    tcase_add_test(tc, a_worker_in_turn_sends_all_but_the_end);
    tcase_add_test(tc, elastic_overlap_changes_no_bit_for_two_workers_in_lockstep);
    tcase_add_test(tc, exchange_travels_while_the_caller_computes);
    tcase_add_test(tc, buffers_may_change_while_they_travel);
    tcase_add_test(tc, gradients_are_one_step_staler);
    tcase_add_loop_test(tc, diverged_worker_is_told_and_may_start_over, 0, ROWS(elastic));
    tcase_add_test(tc, gradient_that_is_not_finite_is_refused_at_once);
    tcase_add_loop_test(tc, pull_into_x_starts_over, 0, ROWS(elastic));
    tcase_add_loop_test(tc, restart_of_psd_changes_nothing, 0, ROWS(elastic));
    tcase_add_test(tc, draining_waits_for_what_travels);
    tcase_add_loop_test(tc, server_that_is_gone_is_told_by_the_next_step, 0, ROWS(elastic));
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
