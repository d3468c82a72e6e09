/* When a job ends by itself, which checkpoint is kept as the best, and who had the first NaN: over real psds.
 */
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "client/psclient.h"
#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/system/raw_client.h"
#include "tests/support/system/servers.h"
#include "tests/support/suite.h"

enum { FLOATS = 5000, WAIT_S = 60 };

#define COMMON "method=async-sgd", "parameters.learning_rate=1", "checkpoint.every_s=0", "checkpoint.keep=1"

static const struct crew_task task = {.rank = -1, .floats = FLOATS, .pause_s = 0.01};

static void begin_crew(const struct daemon *d, struct crew_worker *w)
{
    struct crew_task t = task;
    t.server = d->endpoint;
    crew_start(w, &t);
    ck_assert(crew_joined(w, WAIT_S));
}

/* A line of history.jsonl names the reason. */
static void check_history(const struct daemon *d, const char *reason)
{
    char path[200], line[2000], last[2000] = "";
    snprintf(path, sizeof path, "%s/history.jsonl", d->state_dir);
    FILE *f = fopen(path, "re");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f) != NULL)
        if (strstr(line, "\"event_kind\":\"drain\"") != NULL)
            strcpy(last, line);
    fclose(f);
    ck_assert_msg(strstr(last, reason) != NULL, "'%s' is not in '%s'", reason, last);
}

static void check_drained(struct daemon *d, const char *reason)
{
    int status = daemon_wait_exit(d, WAIT_S);
    ck_assert_msg(status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0, "status %x",
                  (unsigned)status);
    ck_assert_uint_eq(daemon_logged(d, "job.done"), 1);
    ck_assert_uint_ge(daemon_logged(d, reason), 1);
    ck_assert_uint_eq(daemon_logged(d, "checkpoint.written"), 1);
    check_history(d, reason);
}

static const struct {
    const char *setting, *reason;
} conditions[] = {
    {"stop.updates=25", "stop.updates: version "},
    {"stop.seconds=1", "stop.seconds: the center was ready "},
};

START_TEST(a_condition_drains_the_job)
{
    const char *const settings[] = {COMMON, conditions[_i].setting, NULL};
    struct daemon d;
    struct crew_worker w;
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    begin_crew(&d, &w);
    check_drained(&d, conditions[_i].reason);
    ck_assert(crew_ended(&w, WAIT_S));
    ck_assert_int_eq(w.page->rc, PSC_DRAINED); /* told to stop, in good order */
    ck_assert(crew_stop(&w, WAIT_S));
    if (_i == 0)
        ck_assert_uint_ge(w.page->exchanges, 25);
    daemon_remove(&d);
}
END_TEST

START_TEST(a_value_that_is_not_finite_drains_the_job)
{
    const char *const settings[] = {COMMON, "stop.nonfinite=true", NULL};
    static float x[FLOATS], answer[FLOATS];
    struct daemon d;
    struct hand h;
    char text[100];
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    ck_assert_int_eq(hand_join(&h, d.endpoint, FLOATS), 0);
    ck_assert(!daemon_text(&d, "/status", "nonfinite.name", text, sizeof text));
    x[FLOATS - 1] = NAN;
    ck_assert_int_ne(hand_pass(&h, PS_FRAME_EXCHANGE, x, answer), 0);
    ck_assert(daemon_will_log(&d, "job.nonfinite", WAIT_S));
    check_drained(&d, "stop.nonfinite: rank 0 ");
    hand_close(&h);
    daemon_remove(&d);
}
END_TEST

static struct psc *open_with(const struct daemon *d, enum psc_kind kind, const struct psc_tensor *tensors,
                             size_t n, float *x)
{
    struct psc_options opt;
    struct psc *c;
    psc_options_init(&opt, sizeof opt);
    opt.server = d->endpoint;
    opt.kind = kind;
    ck_assert_msg(psc_open(&opt, &c) == PSC_OK && psc_begin(c, tensors, n, x) == PSC_OK, "%s", psc_error(c));
    return c;
}

/* A client that says what it is told. */
static struct psc *open_client(const struct daemon *d, enum psc_kind kind)
{
    static float x[FLOATS];
    struct psc_tensor tensor = {.name = "x", .n_dims = 1, .shape = {FLOATS}};
    return open_with(d, kind, &tensor, 1, x);
}

static void report(struct psc *c, double accuracy, uint64_t version)
{
    static const float scored[FLOATS];
    struct psc_metrics m = {sizeof m, NAN, NAN, NAN, 1 - accuracy, accuracy, version, scored};
    ck_assert_int_ge(psc_report(c, &m), 0);
}

static double best(const struct daemon *d)
{
    return daemon_number(d, "/status", "checkpoint.best.test_accuracy");
}

static void report_and_wait(const struct daemon *d, struct psc *c, double accuracy, uint64_t version)
{
    report(c, accuracy, version);
    double deadline = test_now_s() + test_slow_s(WAIT_S);
    while (daemon_number(d, "/status", "evaluation.test_accuracy") != accuracy) {
        ck_assert(test_now_s() < deadline);
        test_nap_s(0.02);
    }
}

static void becomes_best(const struct daemon *d, double accuracy)
{
    double deadline = test_now_s() + test_slow_s(WAIT_S);
    while (best(d) != accuracy) {
        ck_assert_msg(test_now_s() < deadline, "the best is %g, not %g", best(d), accuracy);
        test_nap_s(0.02);
    }
}

static unsigned count_checkpoints(const struct daemon *d, const char *begin)
{
    char path[200];
    unsigned n = 0;
    snprintf(path, sizeof path, "%s/checkpoints", d->state_dir);
    DIR *dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir))
        n += strncmp(e->d_name, begin, strlen(begin)) == 0;
    closedir(dir);
    return n;
}

static void restart(struct daemon *d, const char *extra)
{
    daemon_stop(d, SIGKILL, WAIT_S);
    ck_assert_int_eq(daemon_start(d, extra), 0);
}

START_TEST(the_best_is_kept)
{
    const char *const settings[] = {COMMON, NULL};
    struct daemon d;
    struct crew_worker w;
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    begin_crew(&d, &w);
    ck_assert(crew_reaches(&w, 3, WAIT_S));
    struct psc *c = open_client(&d, PSC_OBSERVER);
    double begin_s = (double)time(NULL);
    report(c, 0.5, 1);
    becomes_best(&d, 0.5);
    ck_assert_double_eq(daemon_number(&d, "/status", "checkpoint.best.evaluated_version"), 1);
    ck_assert_double_ge(daemon_number(&d, "/status", "checkpoint.best.unix_s"), begin_s);
    report_and_wait(&d, c, 0.4, 2);
    ck_assert_double_eq(best(&d), 0.5);
    report(c, 0.75, 3);
    becomes_best(&d, 0.75);
    report_and_wait(&d, c, 0.9, 1000000000); /* of a center that this psd never had */
    report_and_wait(&d, c, 1e9, 3);          /* no share of anything */
    ck_assert_double_eq(best(&d), 0.75);
    for (int i = 0; i < 3; i++) /* keep is 1: rotation takes none but its own */
        ck_assert(daemon_checkpoint(&d, WAIT_S));
    ck_assert_uint_eq(count_checkpoints(&d, "center-"), 1);
    ck_assert_uint_eq(count_checkpoints(&d, "best.safetensors"), 1);
    ck_assert_uint_eq(daemon_logged(&d, "checkpoint.best"), 2); /* 0.5 and 0.75 alone */
    psc_close(c);
    ck_assert(crew_stop(&w, WAIT_S));

    restart(&d, "--resume"); /* the newest, and it knows the best */
    ck_assert_double_eq(best(&d), 0.75);
    char from[400];
    ck_assert(daemon_text(&d, "/status", "center.resumed_from", from, sizeof from));
    ck_assert_ptr_nonnull(strstr(from, "/center-"));
    c = open_client(&d, PSC_OBSERVER);
    report_and_wait(&d, c, 0.6, 1);
    ck_assert_double_eq(best(&d), 0.75);
    psc_close(c);
    daemon_stop(&d, SIGTERM, WAIT_S);
    daemon_remove(&d);
}
END_TEST

START_TEST(another_job_leaves_the_best_alone)
{
    const char *const settings[] = {COMMON, NULL};
    struct daemon d;
    struct crew_worker workers[2];
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    begin_crew(&d, &workers[0]);
    struct psc *c = open_client(&d, PSC_OBSERVER);
    report(c, 0.75, 0);
    becomes_best(&d, 0.75);
    psc_close(c);
    ck_assert(crew_stop(&workers[0], WAIT_S));
    char aside[400], path[450];
    restart(&d, "--fresh");
    ck_assert(daemon_text(&d, "/status", "checkpoint.set_aside", aside, sizeof aside));
    snprintf(path, sizeof path, "%s/best.safetensors", aside);
    ck_assert_int_eq(access(path, F_OK), 0);
    ck_assert(isnan(best(&d)));
    begin_crew(&d, &workers[1]);
    c = open_client(&d, PSC_OBSERVER);
    report(c, 0.25, 0);
    becomes_best(&d, 0.25);
    ck_assert_uint_eq(count_checkpoints(&d, "best.safetensors"), 1);
    ck_assert_int_eq(access(path, F_OK), 0); /* the first job's */
    psc_close(c);
    ck_assert(crew_stop(&workers[1], WAIT_S));
    daemon_stop(&d, SIGTERM, WAIT_S);
    daemon_remove(&d);
}
END_TEST

START_TEST(an_accuracy_drains_the_job)
{
    const char *const settings[] = {COMMON, "stop.accuracy=0.9", NULL};
    struct daemon d;
    struct crew_worker w;
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    begin_crew(&d, &w);
    struct psc *c = open_client(&d, PSC_OBSERVER);
    report_and_wait(&d, c, 0.89, 0);
    ck_assert_uint_eq(daemon_logged(&d, "job.done"), 0);
    report(c, 0.9, 0);
    ck_assert(daemon_will_log(&d, "job.done", WAIT_S)); /* it leaves when it has been heard */
    psc_close(c);
    check_drained(&d, "stop.accuracy: test accuracy 0.9 ");
    ck_assert_uint_ge(daemon_logged(&d, "checkpoint.best"), 1); /* what ended the job is kept, too */
    ck_assert(crew_stop(&w, WAIT_S));
    daemon_remove(&d);
}
END_TEST

/* Two keys, at one server each: the head's part does not move. The job's version is that of the part that
 * does. */
START_TEST(exchanges_at_another_server_count)
{
    enum { PUSHES = 5 };
    static const char *const conditions_of_two[][2] = {
        {"stop.updates=5", "stop.updates: version 5 "},
        {"stop.accuracy=0.5", "stop.accuracy: test accuracy 0.5 at version 5 "},
    };
    const char *const settings[] = {COMMON, "lanes=2", conditions_of_two[_i][0], NULL};
    static float x[FLOATS], g[FLOATS / 2];
    const struct psc_tensor keys[] = {
        {.name = "near", .n_dims = 1, .shape = {FLOATS / 2}},
        {.name = "far", .n_dims = 1, .shape = {FLOATS / 2}, .offset = FLOATS / 2}};
    struct servers t;
    ck_assert_int_eq(servers_prepare(&t, 2, NULL, settings), 0);
    ck_assert_int_eq(servers_start(&t), 0);
    struct psc *c = open_with(&t.d[0], PSC_WORKER, keys, 2, x), *o = NULL;
    if (_i == 1)
        o = open_with(&t.d[0], PSC_OBSERVER, keys, 2, x);
    for (int i = 0; i < PUSHES; i++)
        ck_assert_msg(psc_push(c, "far", g, 1) >= 0, "%s", psc_error(c));
    ck_assert(daemon_reaches(&t.d[0], "/status", "center.version", PUSHES, WAIT_S));
    if (_i == 1)
        report(o, 0.5, PUSHES);
    ck_assert(daemon_will_log(&t.d[0], "job.done", WAIT_S));
    psc_close(c);
    psc_close(o);
    check_drained(&t.d[0], conditions_of_two[_i][1]);
    servers_remove(&t);
}
END_TEST

START_TEST(history_can_be_asked_for_its_end)
{
    const char *const settings[] = {COMMON, NULL};
    const char *const bad[] = {"-1", "x", "1e5", "nan", "1.2.3", "9999999999999", "", "%00", "1%0a"};
    struct daemon d;
    struct crew_worker w;
    char path[100], *body;
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    begin_crew(&d, &w);
    ck_assert(daemon_reaches(&d, "/history", "history.1.t", 1, WAIT_S));
    double first = daemon_number(&d, "/history", "history.0.t");
    double second = daemon_number(&d, "/history", "history.1.t");
    ck_assert_double_gt(daemon_number(&d, "/history", "history.1.staleness"), -1);
    snprintf(path, sizeof path, "/history?since=%.3f", first);
    ck_assert_double_eq(daemon_number(&d, path, "history.0.t"), second); /* the same number, there and back */
    snprintf(path, sizeof path, "/history?since=%.3f", second + 1000);
    ck_assert(isnan(daemon_number(&d, path, "history.0.t")));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(path, sizeof path, "/history?since=%s", bad[i]);
        body = daemon_ask(&d, "GET", path);
        ck_assert_msg(body != NULL && strstr(body, "since: allowed are unix seconds") != NULL, "%s: %s", path,
                      body);
        free(body);
    }
    ck_assert(crew_stop(&w, WAIT_S));
    ck_assert(daemon_will_log(&d, "session.ended", WAIT_S));
    body = daemon_ask(&d, "GET", "/workers");
    ck_assert_ptr_nonnull(strstr(body, "\"state\": \"ended\""));
    free(body);
    daemon_stop(&d, SIGTERM, WAIT_S);
    check_history(&d, "SIGTERM");
    daemon_remove(&d);
}
END_TEST

START_TEST(a_worker_says_nothing_of_the_center)
{
    static const char *const ends[] = {"method=async-sgd", "stop.accuracy=0.5", NULL};
    struct daemon d;
    char state[32];
    ck_assert_int_eq(daemon_prepare(&d, NULL, ends), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    struct hand worker; /* the library would refuse */
    ck_assert_int_eq(hand_join(&worker, d.endpoint, FLOATS), 0);
    Ps__Report claim = PS__REPORT__INIT;
    claim.client = worker.client;
    claim.incarnation = worker.incarnation;
    claim.test_accuracy = 1;
    hand_tell(&worker, PS__TO_SERVER__WHAT_REPORT, &claim);
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    while (daemon_logged(&d, "it is ignored") == 0 &&
           isnan(daemon_number(&d, "/status", "evaluation.test_accuracy"))) {
        ck_assert_msg(test_now_s() < deadline, "the worker's report does not come");
        test_nap_s(0.02);
    }
    ck_assert(daemon_text(&d, "/status", "state", state, sizeof state));
    ck_assert_str_eq(state, "ready");
    ck_assert(isnan(daemon_number(&d, "/status", "evaluation.test_accuracy")) && isnan(best(&d)));
    struct psc *observer = open_client(&d, PSC_OBSERVER);
    report(observer, 0.75, 0);
    ck_assert_int_eq(daemon_wait_exit(&d, TEST_HANG_S), 0);
    psc_close(observer);
    hand_close(&worker);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("stop");
    TCase *tcase = tcase_create("stop");
    tcase_set_timeout(tcase, test_slow_s(500));
    tcase_add_loop_test(tcase, a_condition_drains_the_job, 0, 2);
    tcase_add_test(tcase, a_value_that_is_not_finite_drains_the_job);
    tcase_add_test(tcase, an_accuracy_drains_the_job);
    tcase_add_loop_test(tcase, exchanges_at_another_server_count, 0, 2);
    tcase_add_test(tcase, the_best_is_kept);
    tcase_add_test(tcase, a_worker_says_nothing_of_the_center);
    tcase_add_test(tcase, another_job_leaves_the_best_alone);
    tcase_add_test(tcase, history_can_be_asked_for_its_end);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
