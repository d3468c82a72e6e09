/* Schedule plateau with a real psd: what evaluators and workers report drops the rate of everybody, where the
 * step is made, and a resumed psd knows how often. */
#include <math.h>
#include <signal.h>

#include "tests/client/psd_fixture.h"

enum { N = RIG_N };

static struct daemon psd;
static float x[N], g[N], before[N], seen[N];

static void stop_psd(void)
{
    daemon_remove(&psd);
}

static struct psc *observe(void)
{
    struct psc_options opt;
    struct psc *c;
    psc_options_init(&opt, sizeof opt);
    opt.server = psd.endpoint;
    opt.kind = PSC_OBSERVER;
    assert_ok(c, psc_open(&opt, &c));
    assert_ok(c, psc_begin(c, rig_model, RIG_TENSORS, seen));
    return c;
}

/* With the vector that was scored, a report is waited for: else one that comes soon after takes its place. */
static void report_at(struct psc *o, uint64_t version, double loss)
{
    struct psc_metrics m = {.size = sizeof m,
                            .loss = NAN,
                            .accuracy = NAN,
                            .samples_per_second = NAN,
                            .test_loss = loss,
                            .test_accuracy = 0.5,
                            .center_version = version,
                            .vector = seen};
    assert_ok(o, psc_report(o, &m));
}

/* Of the center after a step by nothing; its version. */
static uint64_t report_test(struct psc *c, struct psc *o, double loss)
{
    struct psc_info info = {.size = sizeof info};
    memset(g, 0, sizeof g);
    assert_ok(c, psc_step(c, x, g, 1));
    psc_info(c, &info);
    report_at(o, info.center_version, loss);
    return info.center_version;
}

/* The worker hears of it by itself; a step then goes over to it. */
static void await_generation(struct psc *c, uint32_t generation)
{
    struct psc_info info = {.size = sizeof info};
    for (double end = unit_now_s() + UNIT_HANG_S; psc_info(c, &info), info.generation < generation;) {
        ck_assert_msg(unit_now_s() < end, "generation is %u", info.generation);
        memset(g, 0, sizeof g);
        assert_ok(c, psc_step(c, x, g, 1));
        unit_nap_ms(5);
    }
}

/* What one step with a gradient of ones comes to. */
static void check_step(struct psc *c, float eta)
{
    for (int i = 0; i < N; i++)
        g[i] = 1;
    memcpy(before, x, sizeof x);
    assert_ok(c, psc_step(c, x, g, 1));
    ck_assert_float_eq(x[0], before[0] - eta);
}

static const char *const at_center[] = {
    "method=async-sgd", "learning_rate=0.5", RIG_CUT,
    "schedule={kind: plateau, patience: 2, factors: \"0.5, 0.25\", warmup_steps: 0}", NULL};
static const char *const at_worker[] = {
    "method=downpour",
    "learning_rate=0.5",
    "period=1",
    RIG_CUT,
    "schedule={kind: plateau, patience: 2, factors: \"0.5, 0.25\", warmup_steps: 0}",
    NULL};
static const char *const *const where[] = {at_center, at_worker};

START_TEST(a_test_loss_that_stagnates_drops_the_rate)
{
    rig_start(&psd, where[_i]);
    struct psc *c = rig_join(&psd, rig_model, RIG_TENSORS, x), *o = observe();
    check_step(c, 0.5f);
    report_test(c, o, 2);
    uint64_t version = report_test(c, o, 1);
    for (int i = 0; i < 5; i++) /* of a center that stands still, nothing is learnt */
        report_at(o, version, 1);
    report_test(c, o, 1);
    report_test(c, o, 1); /* the second that is no better */
    await_generation(c, 1);
    check_step(c, 0.25f);
    report_test(c, o, 0.5); /* better */
    report_test(c, o, 3);
    report_test(c, o, 3);
    await_generation(c, 2);
    check_step(c, 0.0625f);
    for (int i = 0; i < 5; i++)
        report_test(c, o, 3); /* no factor is left */
    report_test(c, o, 0.1);
    ck_assert(daemon_reaches(&psd, "/status", "evaluation.test_loss", 0.1, UNIT_HANG_S));
    check_step(c, 0.0625f);
    struct psc_info info = {.size = sizeof info};
    psc_info(c, &info);
    ck_assert_uint_eq(info.generation, 2);
    psc_close(o);
    psc_close(c);
}
END_TEST

START_TEST(workers_losses_drop_the_rate)
{
    struct psc_metrics m = {.size = sizeof m,
                            .loss = 1,
                            .accuracy = NAN,
                            .samples_per_second = NAN,
                            .test_loss = NAN,
                            .test_accuracy = NAN};
    struct psc_info info = {.size = sizeof info};
    rig_start(&psd, (const char *[]){
                        "method=async-sgd", "learning_rate=0.5", RIG_CUT,
                        "schedule={kind: plateau, watch: train_loss, every_s: 1, patience: 1, factors: "
                        "0.5, warmup_steps: 0}",
                        NULL});
    struct psc *c = rig_join(&psd, rig_model, RIG_TENSORS, x);
    memset(g, 0, sizeof g);
    for (double end = unit_now_s() + UNIT_HANG_S; psc_info(c, &info), info.generation < 1;) {
        ck_assert(unit_now_s() < end);
        assert_ok(c, psc_report(c, &m));
        assert_ok(c, psc_step(c, x, g, 1));
        unit_nap_ms(20);
    }
    check_step(c, 0.25f);
    psc_close(c);
}
END_TEST

/* The rate that has dropped is a resumed psd's too. */
START_TEST(drops_outlive_psd)
{
    rig_start(&psd, at_center);
    struct psc *c = rig_join(&psd, rig_model, RIG_TENSORS, x), *o = observe();
    for (int i = 0; i < 3; i++)
        report_test(c, o, 1);
    await_generation(c, 1);
    psc_close(o);
    psc_close(c);
    ck_assert_int_eq(daemon_stop(&psd, SIGTERM, UNIT_HANG_S), 0);
    ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
    c = rig_join(&psd, rig_model, RIG_TENSORS, x);
    check_step(c, 0.25f);
    o = observe();
    report_test(c, o, 1); /* one more than the best before */
    report_test(c, o, 1);
    await_generation(c, 2);
    check_step(c, 0.0625f);
    psc_close(o);
    psc_close(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-plateau");
    TCase *tc = tcase_create("plateau");
    tcase_add_checked_fixture(tc, NULL, stop_psd);
    tcase_add_loop_test(tc, a_test_loss_that_stagnates_drops_the_rate, 0, ROWS(where));
    tcase_add_test(tc, workers_losses_drop_the_rate);
    tcase_add_test(tc, drops_outlive_psd);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
