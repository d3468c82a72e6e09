/* best.safetensors holds the very vector that was scored, bit for bit, whatever workers have done to the
 * center since, on however many servers. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/psclient.h"
#include "server/checkpoint/checkpoint.h"
#include "tests/support/clock.h"
#include "tests/support/system/raw_client.h"
#include "tests/support/system/servers.h"
#include "tests/support/unit.h"
#include "tests/system/step_workers.h"

enum { FLOATS = 50021, WORKERS = 2, ENDLESS = 1000000000, SINCE = 20 };

static struct psc *open_observer(const struct daemon *d, float *x)
{
    struct psc_tensor tensor = {.name = "x", .n_dims = 1, .shape = {FLOATS}};
    struct psc_options opt;
    struct psc *c;
    psc_options_init(&opt, sizeof opt);
    opt.server = d->endpoint;
    opt.kind = PSC_OBSERVER;
    ck_assert_msg(psc_open(&opt, &c) == PSC_OK && psc_begin(c, &tensor, 1, x) == PSC_OK, "%s", psc_error(c));
    return c;
}

static uint64_t version_of(struct psc *c)
{
    struct psc_info info = {.size = sizeof info};
    ck_assert_int_eq(psc_info(c, &info), PSC_OK);
    return info.center_version;
}

/* Takes the center; the workers go on; then it turns out to be this good. */
static uint64_t score(const struct daemon *d, struct psc *c, float *x, double accuracy)
{
    ck_assert_int_eq(psc_pull(c, NULL, x), PSC_OK);
    struct psc_metrics m = {.size = sizeof m,
                            .loss = NAN,
                            .accuracy = NAN,
                            .samples_per_second = NAN,
                            .test_loss = 1 - accuracy,
                            .test_accuracy = accuracy,
                            .center_version = version_of(c),
                            .vector = x};
    ck_assert(
        daemon_reaches(d, "/status", "center.version", (double)(m.center_version + SINCE), TEST_HANG_S));
    ck_assert_msg(psc_report(c, &m) == PSC_OK, "%s", psc_error(c));
    return m.center_version;
}

static void assert_kept(const struct servers *t, const float *x, double accuracy, uint64_t version)
{
    struct ps_error err = {""};
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    for (int i = 0; i < t->n; i++) {
        struct psd_snapshot s = {.manifest = NULL};
        char path[300];
        int rc = -1;
        snprintf(path, sizeof path, "%s/checkpoints/best.safetensors", t->d[i].state_dir);
        while ((rc = psd_checkpoint_read(path, FLOATS, &s, &err)) < 0 || s.test_accuracy != accuracy) {
            ck_assert_msg(test_now_s() < deadline, "%s: %s, accuracy %g", path, err.text, s.test_accuracy);
            if (rc == 0)
                psd_snapshot_finish(&s);
            test_nap_s(0.02);
        }
        ck_assert_uint_eq(s.evaluated_version, version);
        ck_assert_uint_eq(s.version, version);
        ck_assert_uint_gt(s.range.count, 0);
        ck_assert_msg(memcmp(s.center + s.range.begin, x + s.range.begin, s.range.count * sizeof *x) == 0,
                      "%s is another vector than was scored", path);
        psd_snapshot_finish(&s);
    }
}

static const struct {
    const char *method, *more;
    int servers;
} jobs[] = {
    {"method=async-sgd", NULL, 1},
    {"method=async-sgd", NULL, 2},
    {"method=eamsgd", NULL, 2},
    {"method=hogwild-sgd", NULL, 1},
    {"method=sync-easgd", "workers=2", 2},
    {"method=ssp-sgd", "workers=2", 1},
};

START_TEST(best_is_the_very_vector_that_was_scored)
{
    const char *const settings[] = {
        jobs[_i].method, "lanes=2", "chunk_floats=2048", "period=1", "checkpoint.every_s=1",
        jobs[_i].more,   NULL};
    const char *const each_step[] = {jobs[_i].method,        "lanes=2",     "chunk_floats=2048",
                                     "checkpoint.every_s=1", jobs[_i].more, NULL};
    bool periodic = strstr(jobs[_i].method, "eamsgd") != NULL || strstr(jobs[_i].method, "easgd") != NULL;
    static float x[FLOATS], y[FLOATS];
    struct servers t;
    struct stepper w[WORKERS];
    ck_assert_int_eq(servers_prepare(&t, jobs[_i].servers, NULL, periodic ? settings : each_step), 0);
    ck_assert_int_eq(servers_start(&t), 0);
    for (int i = 0; i < WORKERS; i++) {
        struct stepper_task task = {.server = t.d[0].endpoint,
                                    .rank = i,
                                    .floats = FLOATS,
                                    .steps = ENDLESS,
                                    .samples = 1,
                                    .nap_us = 500};
        stepper_start(&w[i], &task);
    }
    ck_assert(stepper_reaches(&w[0], 3, TEST_HANG_S));
    struct psc *c = open_observer(&t.d[0], x);
    for (int k = 1; k <= 4; k++) {
        uint64_t version = score(&t.d[0], c, x, k / 8.0);
        assert_kept(&t, x, k / 8.0, version);
        score(&t.d[0], c, y, k / 16.0); /* no better: it is not */
        assert_kept(&t, x, k / 8.0, version);
    }
    psc_close(c);
    ck_assert(servers_end(&t, TEST_HANG_S));
    for (int i = 0; i < WORKERS; i++)
        ck_assert(stepper_finish(&w[i], TEST_HANG_S));
    for (int i = 0; i < t.n; i++) /* a resume is from a whole checkpoint */
        ck_assert_int_eq(daemon_start(&t.d[i], "--resume"), 0);
    ck_assert(daemon_reaches(&t.d[0], "/status", "center.version", SINCE, TEST_HANG_S));
    ck_assert_double_eq(daemon_number(&t.d[0], "/status", "checkpoint.best.test_accuracy"), 0.5);
    servers_kill(&t);
    servers_remove(&t);
}
END_TEST

/* An observer that offers a vector and sends none of it, or a chunk, and is gone. */
START_TEST(a_vector_that_does_not_come_keeps_nobody_waiting)
{
    static const char *const settings[] = {"method=async-sgd",     "lanes=2",
                                           "chunk_floats=2048",    "limits.silence_s=2",
                                           "checkpoint.every_s=0", NULL};
    static float g[FLOATS];
    struct daemon d;
    struct hand worker, observer;
    bool offer;
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    ck_assert_int_eq(hand_join(&worker, d.endpoint, FLOATS), 0);
    ck_assert_int_eq(hand_pass(&worker, PS_FRAME_EXCHANGE, g, g), 0);
    hand_open(&observer, d.endpoint);
    Ps__Hello hello = PS__HELLO__INIT;
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.name = (char *)(uintptr_t) "observer";
    hello.observer = true;
    hello.token = 77;
    ck_assert_int_eq(hand_hello(&observer, &hello), 0);
    ck_assert_int_eq(hand_begin(&observer, FLOATS, &offer), 0);
    Ps__Report report = PS__REPORT__INIT;
    report.client = observer.client;
    report.incarnation = observer.incarnation;
    report.test_loss = 0.5;
    report.test_accuracy = 0.5;
    report.offer = 1;
    hand_tell(&observer, PS__TO_SERVER__WHAT_REPORT, &report);
    ck_assert(daemon_reaches(&d, "/status", "evaluation.test_accuracy", 0.5, TEST_HANG_S));
    if (_i == 1) {
        struct ps_frame f = hand_frame(&observer, PS_FRAME_KEEP, 0, 0);
        hand_send(&observer, 0, &f, g, f.count * sizeof *g);
        ck_assert_int_eq(hand_answer(&observer, 0, &f, NULL, TEST_HANG_S), 0);
    }
    hand_close(&observer);
    ck_assert(daemon_checkpoint(&d, TEST_HANG_S));
    ck_assert_uint_eq(daemon_logged(&d, "did not arrive completely"), 1);
    ck_assert(isnan(daemon_number(&d, "/status", "checkpoint.best.test_accuracy")));
    hand_close(&worker);
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, TEST_HANG_S), 0);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("best");
    TCase *c = tcase_create("best");
    tcase_set_timeout(c, test_slow_s(10 * TEST_HANG_S));
    tcase_add_loop_test(c, best_is_the_very_vector_that_was_scored, 0, ROWS(jobs));
    suite_add_tcase(suite, c);
    c = tcase_create("lost");
    tcase_set_timeout(c, test_slow_s(10 * TEST_HANG_S));
    tcase_add_loop_test(c, a_vector_that_does_not_come_keeps_nobody_waiting, 0, 2);
    suite_add_tcase(suite, c);
    return unit_run(suite);
}
