/* A job whose workers bring a step of their own. The oracle: a step that is sgd's gives, bit for bit, what
 * optimizer sgd gives, whatever the rule does around it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/client/psd_fixture.h"

enum { STEPS = 12 };

static struct daemon psd;
static float start[RIG_N], x[RIG_N], g[RIG_N], center[RIG_N];

static void stop_psd(void)
{
    daemon_remove(&psd);
}

/* What the own step sees. */
struct seen {
    int calls;
    const float *x, *g;
    double learning_rate;
};

static void sgd(void *arg, float *at, const float *gradient, double learning_rate)
{
    struct seen *seen = arg;
    *seen = (struct seen){seen->calls + 1, at, gradient, learning_rate};
    for (size_t i = 0; i < RIG_N; i++)
        if (rig_tensor_at(i)->role == PSC_PARAM)
            at[i] += -(float)learning_rate * gradient[i];
}

static int open_external(struct seen *seen, struct psc **c)
{
    struct psc_options opt;
    psc_options_init(&opt, sizeof opt);
    opt.server = psd.endpoint;
    opt.retry_ms = RIG_RETRY_MS;
    opt.heartbeat_ms = RIG_HEARTBEAT_MS;
    opt.own_step = seen != NULL ? sgd : NULL;
    opt.own_step_arg = seen;
    return psc_open(&opt, c);
}

/* x and the center after so many steps; buffers are the caller's to change. */
static void train(const char *const *settings, struct seen *seen)
{
    struct dice dice = {40};
    struct psc *c;
    rig_start(&psd, settings);
    for (size_t i = 0; i < RIG_N; i++)
        start[i] = x[i] = dice_float(&dice);
    ck_assert_int_eq(open_external(seen, &c), PSC_OK);
    assert_ok(c, psc_begin(c, rig_model, RIG_TENSORS, x));
    for (int t = 0; t < STEPS; t++) {
        for (size_t i = 0; i < RIG_N; i++)
            g[i] = dice_float(&dice);
        x[2600] = (float)t;
        assert_ok(c, psc_step(c, x, g, 1));
    }
    assert_ok(c, psc_wait(c, PSC_ALL));
    assert_ok(c, psc_pull(c, NULL, center));
    psc_close(c);
    daemon_remove(&psd);
}

/* Without checkpoints: a request to save changes where an overlapped exchange begins. */
#define WARM                                                                                                 \
    "schedule={kind: inv-sqrt, gamma: 0.25, warmup_steps: 0}", RIG_CUT, "learning_rate=0.0625",              \
        "checkpoint.every_s=0"
static const char *const jobs[][12] = {
    {"method=async-easgd", WARM, "alpha=0.25", "period=3"},
    {"method=async-easgd", WARM, "alpha=0.25", "period=3", "overlap=true"},
    {"method=downpour", WARM, "period=4"},
    {"method=downpour", WARM, "period=4", "overlap=true"},
    {"method=diloco", WARM, "period=4", "fragments=2"},
    {"method=d-sync", WARM},
};

START_TEST(an_external_sgd_is_sgd)
{
    static float sgd_x[RIG_N], sgd_center[RIG_N];
    const char *settings[16] = {NULL};
    struct seen seen = {0};
    size_t n = 0;
    while (jobs[_i][n] != NULL) {
        settings[n] = jobs[_i][n];
        n++;
    }
    settings[n] = "optimizer=sgd";
    train(settings, NULL);
    memcpy(sgd_x, x, sizeof x);
    memcpy(sgd_center, center, sizeof center);
    settings[n] = "optimizer=external";
    train(settings, &seen);
    ck_assert_int_eq(seen.calls, STEPS);
    ck_assert_ptr_eq(seen.x, x);
    ck_assert_mem_eq(x, sgd_x, sizeof x);
    ck_assert_mem_eq(center, sgd_center, sizeof center);
}
END_TEST

/* Before it could offer anything. */
START_TEST(a_worker_without_a_step_is_refused)
{
    struct seen seen = {0};
    struct psc *c;
    rig_start(&psd, (const char *[]){"method=downpour", "optimizer=external", NULL});
    ck_assert_int_eq(open_external(NULL, &c), PSC_OK);
    ck_assert_int_eq(psc_begin(c, rig_model, RIG_TENSORS, x), PSC_EUNSUPPORTED);
    assert_says(psc_error(c), "optimizer is external");
    assert_says(psc_error(c), "own_step");
    psc_close(c);
    ck_assert_int_eq(open_external(&seen, &c), PSC_OK);
    assert_ok(c, psc_begin(c, rig_model, RIG_TENSORS, x));
    psc_close(c);
}
END_TEST

/* Where the job makes the step, or has an optimizer, the worker's own is left alone. */
START_TEST(it_is_the_job_that_asks_for_it)
{
    struct seen seen = {0};
    train((const char *[]){"method=async-sgd", NULL}, &seen);
    train((const char *[]){"method=eamsgd", NULL}, &seen);
    ck_assert_int_eq(seen.calls, 0);
}
END_TEST

/* Until the worker has been told. */
static void change_method(struct psc *c, const char *config)
{
    struct psc_info info = {.size = sizeof info};
    psc_info(c, &info);
    uint32_t before = info.generation;
    ck_assert(daemon_write_config(&psd, config));
    free(daemon_ask(&psd, "POST", "/reload"));
    for (double end = unit_now_s() + UNIT_HANG_S; info.generation == before; psc_info(c, &info)) {
        ck_assert(unit_now_s() < end);
        unit_nap_ms(5);
    }
}

#define EXTERNAL                                                                                             \
    "method: downpour\noptimizer: external\nparameters: {period: 100, learning_rate: 0.5, " CONSTANT
#define BY_RULE  "method: async-sgd\nparameters: {learning_rate: 0.5, " CONSTANT
#define CONSTANT "schedule: {kind: constant, warmup_steps: 0}}\n"

/* All powers of two: each gradient moves x by 1, whoever makes the step, and none is lost. */
START_TEST(a_change_of_the_method_takes_the_step_and_gives_it_back)
{
    struct seen seen = {0};
    struct psc *c;
    static const char *const settings[] = {NULL};
    ck_assert_int_eq(daemon_prepare(&psd, NULL, settings), 0);
    ck_assert(daemon_write_config(&psd, EXTERNAL));
    ck_assert_int_eq(daemon_start(&psd, NULL), 0);
    memset(x, 0, sizeof x);
    for (size_t i = 0; i < RIG_N; i++)
        g[i] = -2;
    ck_assert_int_eq(open_external(&seen, &c), PSC_OK);
    assert_ok(c, psc_begin(c, rig_model, RIG_TENSORS, x));
    for (int t = 1; t <= 6; t++) {
        if (t == 3)
            change_method(c, BY_RULE);
        if (t == 5)
            change_method(c, EXTERNAL);
        assert_ok(c, psc_step(c, x, g, 1));
        ck_assert_float_eq(x[0], (float)t);
        ck_assert_int_eq(seen.calls, t <= 2 ? t : t <= 4 ? 2 : t - 2);
    }
    assert_ok(c, psc_pull(c, NULL, center));
    ck_assert_float_eq(center[0], 4); /* what came before the last change */
    psc_close(c);
}
END_TEST

/* And goes on when the job is one again that it can be in. */
START_TEST(a_change_that_wants_a_step_of_a_worker_without_is_refused)
{
    struct psc *c;
    ck_assert_int_eq(daemon_prepare(&psd, NULL, NULL), 0);
    ck_assert(daemon_write_config(&psd, BY_RULE));
    ck_assert_int_eq(daemon_start(&psd, NULL), 0);
    ck_assert_int_eq(open_external(NULL, &c), PSC_OK);
    assert_ok(c, psc_begin(c, rig_model, RIG_TENSORS, x));
    assert_ok(c, psc_step(c, x, g, 1));
    change_method(c, EXTERNAL);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(psc_step(c, x, g, 1), PSC_EUNSUPPORTED);
        assert_says(psc_error(c), "own_step");
        assert_ok(c, psc_pull(c, NULL, x));
    }
    ck_assert_uint_eq(psc_clock(c), 1);
    change_method(c, BY_RULE);
    assert_ok(c, psc_step(c, x, g, 1));
    ck_assert_uint_eq(psc_clock(c), 2);
    psc_close(c);
}
END_TEST

#define DOWNPOUR "method: downpour\nparameters: {period: 100, learning_rate: 0.5, " CONSTANT

/* The change sends the steps that were not sent, once, however often it fails afterwards. What it has left of
 * the worker is of no method: the state that was saved before stays. */
START_TEST(a_change_that_fails_sends_the_unsent_steps_once)
{
    char path[200];
    struct psc *c;
    ck_assert_int_eq(daemon_prepare(&psd, NULL, NULL), 0);
    ck_assert(daemon_write_config(&psd, DOWNPOUR));
    ck_assert_int_eq(daemon_start(&psd, NULL), 0);
    snprintf(path, sizeof path, "%s/worker.state", psd.dir);
    memset(x, 0, sizeof x);
    for (size_t i = 0; i < RIG_N; i++)
        g[i] = -2;
    ck_assert_int_eq(open_external(NULL, &c), PSC_OK);
    assert_ok(c, psc_begin(c, rig_model, RIG_TENSORS, x));
    for (int t = 0; t < 2; t++)
        assert_ok(c, psc_step(c, x, g, 1));
    assert_ok(c, psc_save(c, path, x, NULL, 0));
    change_method(c, EXTERNAL);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(psc_step(c, x, g, 1), PSC_EUNSUPPORTED);
        assert_says(psc_error(c), "own_step");
        ck_assert_int_eq(psc_save(c, path, x, NULL, 0), PSC_EUNSUPPORTED);
        assert_says(psc_error(c), "psc_save: ");
        assert_ok(c, psc_pull(c, NULL, center));
        ck_assert_float_eq(center[0], 2);
    }
    change_method(c, DOWNPOUR);
    assert_ok(c, psc_step(c, x, g, 1));
    ck_assert_float_eq(x[0], 3);
    ck_assert_uint_eq(psc_clock(c), 3);
    psc_close(c);
    ck_assert_int_eq(open_external(NULL, &c), PSC_OK);
    assert_ok(c, psc_begin(c, rig_model, RIG_TENSORS, x));
    assert_ok(c, psc_load(c, path, x, NULL, 0, NULL));
    ck_assert_float_eq(x[0], 2);
    ck_assert_uint_eq(psc_clock(c), 2);
    psc_close(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-external");
    TCase *tc = tcase_create("external");
    tcase_add_checked_fixture(tc, NULL, stop_psd);
    tcase_add_loop_test(tc, an_external_sgd_is_sgd, 0, sizeof jobs / sizeof *jobs);
    tcase_add_test(tc, a_worker_without_a_step_is_refused);
    tcase_add_test(tc, it_is_the_job_that_asks_for_it);
    tcase_add_test(tc, a_change_of_the_method_takes_the_step_and_gives_it_back);
    tcase_add_test(tc, a_change_that_wants_a_step_of_a_worker_without_is_refused);
    tcase_add_test(tc, a_change_that_fails_sends_the_unsent_steps_once);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
