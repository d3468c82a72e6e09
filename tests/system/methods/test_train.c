/* The main job: psd, four psworkers and an evaluator on `digits`, watched and ended by psctl. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "tests/support/system/daemon.h"
#include "tests/support/suite.h"
#include "tests/system/operate/output_format.h"
#include "tests/system/psworker.h"

enum { WORKERS = 4, WAIT_S = 120, LEARN_S = 240 };

/* configs/methods/async-easgd.yaml's values, with a warm-up fit for few steps. */
static const char *const settings[] = {"method=async-easgd",
                                       "parameters.learning_rate=0.1",
                                       "parameters.alpha=0.2",
                                       "parameters.period=4",
                                       "parameters.schedule.warmup_steps=30",
                                       "checkpoint.every_s=2",
                                       "log_level=debug",
                                       NULL};

/* psctl with --json: exit 0 and an object. */
static json_t *ask_psctl(const struct daemon *d, const char *command)
{
    char line[700], text[20000];
    snprintf(line, sizeof line, "%s --socket %s --timeout 60 %s --json", PSCTL, d->socket, command);
    FILE *pipe = popen(line, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t n = fread(text, 1, sizeof text - 1, pipe);
    text[n] = 0;
    int status = pclose(pipe);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "psctl %s: %s", command, text);
    return pages_json(command, text);
}

static void check_psctl(const struct daemon *d)
{
    json_t *o = ask_psctl(d, "status");
    ck_assert_str_eq(json_string_value(json_object_get(o, "state")), "ready");
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(o, "workers"), "active")), WORKERS);
    ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(o, "model"), "floats")), 431080);
    json_decref(o);
    o = ask_psctl(d, "workers");
    ck_assert_uint_eq(json_array_size(json_object_get(o, "workers")), WORKERS + 1);
    json_decref(o);
    o = ask_psctl(d, "checkpoint");
    ck_assert_str_eq(json_string_value(json_object_get(o, "checkpoint")), "started");
    json_decref(o);
}

static void check_pages(const struct daemon *d)
{
    static const char *const pages[] = {"/healthz", "/readyz", "/config", "/history", "/status", "/workers"};
    static const char *const samples[] = {"psd_updates_applied_total{rule=\"elastic\"} ",
                                          "psd_updates_rejected_total{reason=\"",
                                          "psd_replays_total ",
                                          "psd_update_staleness_bucket{le=\"",
                                          "psd_received_bytes_total{transport=\"tcp\"} ",
                                          "psd_workers{state=\"active\"} 4",
                                          "psd_observers{state=\"active\"} 1",
                                          "psd_center_version ",
                                          "psd_last_checkpoint_timestamp_seconds ",
                                          "psd_lane_longest_stop_seconds{lane=\"0\"} ",
                                          "psd_build_info{"};
    for (size_t i = 0; i < sizeof pages / sizeof *pages; i++) {
        char *text = daemon_ask(d, "GET", pages[i]);
        json_decref(pages_json(pages[i], text));
        free(text);
    }
    ck_assert_double_eq(daemon_number(d, "/config", "parameters.period"), 4);
    ck_assert_double_eq(daemon_number(d, "/status", "roads.tcp"), 5);
    char *metrics = daemon_ask(d, "GET", "/metrics");
    pages_metrics(metrics);
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++)
        ck_assert_msg(pages_has_sample(metrics, samples[i]), "no %s in:\n%s", samples[i], metrics);
    free(metrics);
}

static void check_record(const json_t *line)
{
    double t = json_number_value(json_object_get(line, "t"));
    ck_assert_msg(fabs(t - (double)time(NULL)) < 3600, "t is %.3f", t);
    ck_assert(json_is_integer(json_object_get(line, "center_version")));
    ck_assert(json_is_integer(json_object_get(line, "workers")));
    const json_t *rate = json_object_get(line, "updates_per_s");
    bool event =
        json_is_string(json_object_get(line, "event")); /* too soon after another record for a rate */
    ck_assert(json_is_number(rate) || (event && json_is_null(rate)));
}

static double wall_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* No two records share a time, and all are of the time since psd was started. */
static void check_history(const struct daemon *d, double started_s)
{
    char path[200];
    snprintf(path, sizeof path, "%s/history.jsonl", d->state_dir);
    ck_assert_uint_ge(pages_json_lines(path, check_record), 2);
    double first = daemon_number(d, "/history", "history.0.t"),
           second = daemon_number(d, "/history", "history.1.t");
    ck_assert_msg(second > first && first > started_s && second < wall_s(),
                  "%.3f and %.3f, from %.3f to %.3f", first, second, started_s, wall_s());
}

static void check_log_line(const json_t *line)
{
    static const char *const texts[] = {"level", "prog", "event", "msg"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        ck_assert(json_is_string(json_object_get(line, texts[i])));
    ck_assert(json_is_number(json_object_get(line, "ts")));
}

/* Of the 0.9 that the last look wants, some is left to what the last exchanges do. */
#define LEARNT 0.95

static double last_accuracy;

static void take_accuracy(const json_t *line)
{
    json_t *v = json_object_get(line, "test_accuracy");
    if (json_is_number(v))
        last_accuracy = json_number_value(v);
}

/* Workers train until the evaluator has seen what is wanted, however their exchanges follow one another. */
START_TEST(digits_are_learnt_and_everything_can_be_read)
{
    struct daemon d;
    pid_t workers[WORKERS], watcher;
    char path[200], name[8];
    const char *const train[] = {"--steps", "1000000", "--batch", "32", NULL};
    const char *const watch[] = {"--evaluate", "--every", "1", NULL};
    const char *const look[] = {"--evaluate", "--once", NULL};
    double started_s = wall_s();
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    for (int i = 0; i < WORKERS; i++) {
        snprintf(name, sizeof name, "w%d", i);
        workers[i] = psworker_start(&d, name, train);
    }
    watcher = psworker_start(&d, "watch", watch);
    ck_assert(daemon_reaches(&d, "/status", "workers.observers", 1, WAIT_S));
    ck_assert(daemon_reaches(&d, "/status", "workers.active", WORKERS, WAIT_S));
    ck_assert(daemon_reaches(&d, "/status", "center.version", 20, WAIT_S));
    ck_assert(daemon_reaches(&d, "/status", "checkpoint.last_version", 1, WAIT_S));
    check_psctl(&d);
    check_pages(&d);

    ck_assert_msg(daemon_reaches(&d, "/status", "evaluation.test_accuracy", LEARNT, LEARN_S),
                  "accuracy %.4f at version %.0f", daemon_number(&d, "/status", "evaluation.test_accuracy"),
                  daemon_number(&d, "/status", "center.version"));
    ck_assert(daemon_reaches(&d, "/history", "history.1.t", 1, WAIT_S));
    for (int i = 0; i < WORKERS; i++)
        kill(workers[i], SIGTERM);
    for (int i = 0; i < WORKERS; i++) {
        int code = psworker_wait(workers[i], WAIT_S);
        ck_assert_msg(code == 0, "psworker %d ended with %d", i, code);
        snprintf(path, sizeof path, "%s/w%d", d.dir, i);
        ck_assert_uint_ge(pages_json_lines(path, NULL), 1);
    }
    ck_assert_int_eq(psworker_wait(psworker_start(&d, "look", look), WAIT_S), 0);
    snprintf(path, sizeof path, "%s/look", d.dir);
    ck_assert_uint_eq(pages_json_lines(path, take_accuracy), 1);
    ck_assert_msg(last_accuracy > 0.9, "accuracy %.4f at the end", last_accuracy);
    check_history(&d, started_s);

    json_decref(ask_psctl(&d, "drain"));
    int status = daemon_wait_exit(&d, WAIT_S);
    ck_assert(status >= 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert_int_eq(psworker_wait(watcher, WAIT_S), 0); /* drained, too */
    snprintf(path, sizeof path, "%s/watch", d.dir);
    ck_assert_uint_ge(pages_json_lines(path, NULL), 2);
    ck_assert_uint_ge(pages_json_lines(d.log, check_log_line), 10);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {digits_are_learnt_and_everything_can_be_read};
    return suite_run("train", tests, 1, 550);
}
