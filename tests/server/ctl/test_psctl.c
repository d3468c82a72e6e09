/* psctl as a user runs it, against a status server with canned answers. */
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <pty.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "server/ctl/http_client.h"
#include "server/ctl/top.h"
#include "server/job/record/history.h"
#include "server/status/http.h"
#include "tests/support/unit.h"

#define STATUS(state, checkpoint)                                                                            \
    "{\"name\":\"psd\",\"version\":\"0.1.0\",\"pid\":7,\"state\":\"" state "\",\"uptime_s\":3725.2,"         \
    "\"method\":{\"name\":\"async-easgd\",\"rule\":\"elastic\",\"admission\":\"fcfs\",\"optimizer\":"        \
    "\"sgd\",\"averaging\":\"none\"},\"parameters\":{\"alpha\":0.2,\"rho\":null,\"schedule\":{\"kind\":"     \
    "\"constant\"},\"alpha_now\":0.2},\"generation\":0,\"listen\":\"tcp://127.0.0.1:5555\",\"transport\":"   \
    "\"tcp\",\"lanes\":2,\"chunk_floats\":131072,\"window_chunks\":4,\"model\":{\"floats\":431080,"          \
    "\"tensors\":8,\"manifest\":\"00ff\"},\"center\":{\"version\":123,\"updates_applied\":120,"              \
    "\"updates_rejected\":3,\"replays\":1,\"lost_updates\":0,\"resumed_from\":null},\"workers\":"            \
    "{\"active\":4,\"observers\":1},\"evaluation\":{\"test_accuracy\":null,\"test_loss\":null,"              \
    "\"center_version\":null},\"memory\":{\"total_bytes\":12897484,\"limit_bytes\":17179869184},"            \
    "\"checkpoint\":" checkpoint "}"

#define CHECKPOINT(path, version, error, busy)                                                               \
    "{\"directory\":\"run\",\"last_path\":" path ",\"last_unix_s\":1700000000,\"last_version\":" version     \
    ",\"last_error\":" error ",\"in_progress\":" busy "}"

/* What the server answers; GET /status goes through `statuses` and stays at the last. */
struct script {
    const char *const *statuses;
    const char *_Atomic workers; /* a test may change it meanwhile */
    const char *checkpoint, *drain;
    const char *config, *history, *metrics, *evict, *reload;
    int evict_status, reload_status;
    char evicted[32]; /* what was asked for */
    char set[2048];
    int checkpoint_status;
    size_t asked;
    bool gone; /* drained: stop the server */
};

struct server {
    struct script *script;
    uv_loop_t loop;
    uv_async_t stop;
    struct psd_http *http;
    pthread_t thread;
};

static void say(struct psd_http_answer *a, int status, const char *text)
{
    a->status = status;
    a->body = strdup(text);
    a->len_bytes = strlen(text);
}

static void handle_status(void *arg, const char *query, struct psd_http_answer *a)
{
    struct server *s = arg;
    (void)query;
    say(a, 200, s->script->statuses[s->script->asked]);
    if (s->script->statuses[s->script->asked + 1] != NULL)
        s->script->asked++;
    else if (s->script->gone)
        uv_async_send(&s->stop);
}

static void handle_workers(void *arg, const char *query, struct psd_http_answer *a)
{
    (void)query;
    say(a, 200, ((struct server *)arg)->script->workers);
}

static void handle_checkpoint(void *arg, const char *query, struct psd_http_answer *a)
{
    const struct script *script = ((struct server *)arg)->script;
    (void)query;
    say(a, script->checkpoint_status, script->checkpoint);
}

static void handle_drain(void *arg, const char *query, struct psd_http_answer *a)
{
    (void)query;
    say(a, 202, ((struct server *)arg)->script->drain);
}

static void handle_config(void *arg, const char *query, struct psd_http_answer *a)
{
    (void)query;
    say(a, 200, ((struct server *)arg)->script->config);
}

static void handle_history(void *arg, const char *query, struct psd_http_answer *a)
{
    (void)query;
    say(a, 200, ((struct server *)arg)->script->history);
}

static void handle_metrics(void *arg, const char *query, struct psd_http_answer *a)
{
    (void)query;
    say(a, 200, ((struct server *)arg)->script->metrics);
}

static void handle_evict(void *arg, const char *query, struct psd_http_answer *a)
{
    struct script *script = ((struct server *)arg)->script;
    snprintf(script->evicted, sizeof script->evicted, "%s", query != NULL ? query : "(none)");
    say(a, script->evict_status, script->evict);
}

static void handle_reload(void *arg, const char *query, struct psd_http_answer *a)
{
    const struct script *script = ((struct server *)arg)->script;
    (void)query;
    say(a, script->reload_status, script->reload);
}

static void handle_set(void *arg, const char *query, struct psd_http_answer *a)
{
    struct script *script = ((struct server *)arg)->script;
    snprintf(script->set, sizeof script->set, "%s", query != NULL ? query : "(none)");
    say(a, script->reload_status, script->reload);
}

static const struct psd_http_route routes[] = {
    {"POST", "/reload", handle_reload, NULL},
    {"POST", "/set", handle_set, "lines"},
    {"GET", "/config", handle_config, NULL},
    {"GET", "/history", handle_history, NULL},
    {"GET", "/metrics", handle_metrics, NULL},
    {"POST", "/evict", handle_evict, "rank"},
    {"GET", "/status", handle_status, NULL},
    {"GET", "/workers", handle_workers, NULL},
    {"POST", "/checkpoint", handle_checkpoint, NULL},
    {"POST", "/drain", handle_drain, NULL},
    {.method = NULL},
};

static void on_stop(uv_async_t *async)
{
    struct server *s = async->data;
    if (uv_is_closing((uv_handle_t *)async))
        return;
    psd_http_destroy(s->http);
    uv_close((uv_handle_t *)async, NULL);
}

static void *run_loop(void *arg)
{
    uv_run(arg, UV_RUN_DEFAULT);
    return NULL;
}

static void start(struct server *s, struct script *script)
{
    struct ps_error err;
    s->script = script;
    ck_assert_int_eq(uv_loop_init(&s->loop), 0);
    ck_assert_int_eq(uv_async_init(&s->loop, &s->stop, on_stop), 0);
    s->stop.data = s;
    ck_assert_msg(psd_http_create(&s->loop, "psd.sock", "none", routes, s, &s->http, &err) == 0, "%s",
                  err.text);
    ck_assert_int_eq(pthread_create(&s->thread, NULL, run_loop, &s->loop), 0);
}

static void stop(struct server *s)
{
    if (!s->script->gone)
        uv_async_send(&s->stop);
    ck_assert_int_eq(pthread_join(s->thread, NULL), 0);
    ck_assert_int_eq(uv_loop_close(&s->loop), 0);
}

/* A shell's line; its exit status. What it wrote is in text. */
static int run_line(const char *line, char *text, size_t size)
{
    FILE *pipe = popen(line, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t n = fread(text, 1, size - 1, pipe);
    text[n] = 0;
    int status = pclose(pipe);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* Runs psctl with these arguments; its exit status. What it wrote, to either stream, is in text. */
static int run_psctl(const char *arguments, char *text, size_t size)
{
    char line[4096];
    snprintf(line, sizeof line, "%s %s 2>&1", PSCTL, arguments);
    return run_line(line, text, size);
}

/* The same against a server with the script. A busy machine may keep the server from answering for longer
 * than psctl waits unless it is told to. */
static int run_with(struct script *script, const char *arguments, char *text, size_t size)
{
    struct server s;
    char patient[3000];
    snprintf(patient, sizeof patient, "--timeout 600 %s", arguments);
    start(&s, script);
    int status = run_psctl(patient, text, size);
    stop(&s);
    return status;
}

static char directory[64];

static void enter_directory(void)
{
    strcpy(directory, "/tmp/psd-test-psctl-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(directory));
    ck_assert_int_eq(chdir(directory), 0);
}

static void leave_directory(void)
{
    ck_assert_int_eq(chdir("/"), 0);
    ck_assert_int_eq(rmdir(directory), 0);
}

static void assert_has(const char *text, const char *part)
{
    ck_assert_msg(strstr(text, part) != NULL, "'%s' is not in '%s'", part, text);
}

static const char *const ready[] = {STATUS("ready", CHECKPOINT("null", "null", "null", "false")), NULL};

START_TEST(status_is_laid_out)
{
    struct script script = {.statuses = ready};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "--socket psd.sock status", text, sizeof text), 0);
    assert_has(text, "psd 0.1.0  pid 7  ready  up 1 h 02 min\n");
    assert_has(text, "method      async-easgd: rule elastic, admission fcfs, optimizer sgd");
    assert_has(text, "parameters  alpha 0.2, schedule.kind constant, alpha_now 0.2\n");
    assert_has(text, "model       431080 values in 8 tensors, manifest 00ff\n");
    assert_has(text, "center      version 123; updates 120 applied, 3 rejected");
    assert_has(text, "workers     4 active, 1 observers\n");
    assert_has(text, "evaluation  none yet\n");
    assert_has(text, "memory      12.3 MiB of 16.0 GiB: center -");
    assert_has(text, "checkpoint  none yet, in run\n");
    ck_assert_ptr_null(strstr(text, "auth"));
}
END_TEST

/* As psrun's line has it for a folder far below others: beyond the bytes of a socket's address. */
START_TEST(a_socket_is_reached_by_a_path_of_any_length)
{
    struct script script = {.statuses = ready};
    char arguments[400] = "--socket ", text[4096];
    for (int i = 0; i < 60; i++)
        strcat(arguments, "././");
    strcat(arguments, "psd.sock status");
    ck_assert_int_eq(run_with(&script, arguments, text, sizeof text), 0);
    assert_has(text, "psd 0.1.0  pid 7  ready");
    *strstr(arguments, "././") = 'x';
    ck_assert_int_eq(run_psctl(arguments, text, sizeof text), 6);
    assert_has(text, "cannot reach psd at x/./");
    assert_has(text, "No such file or directory");
}
END_TEST

/* A status with what a job may have beside: a best checkpoint, a first NaN, a page, an end. */
static const char *const notable[] = {
    "{\"name\":\"psd\",\"auth\":\"curve\",\"encrypted\":true,\"barred\":[\"w1\",\"w2\"],\"state\":"
    "\"draining\",\"checkpoint\":{\"directory\":\"run\",\"best\":{\"path\":"
    "\"run/best.safetensors\",\"version\":125,\"test_accuracy\":0.9914,\"evaluated_version\":120}},"
    "\"nonfinite\":{\"rank\":2,\"name\":\"w\\u001b\",\"clock\":7,\"center_version\":8,\"index\":9,"
    "\"tensor\":\"fc1.weight\",\"sent\":false},\"http\":\"tcp://127.0.0.1:8080\",\"drain_reason\":"
    "\"stop.updates: version 9 reached 9\"}",
    NULL};

START_TEST(what_is_notable_is_shown)
{
    struct script script = {.statuses = notable};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "--socket psd.sock status", text, sizeof text), 0);
    assert_has(text, "auth        curve, encrypted; barred: w1, w2\n");
    assert_has(text, "best        run/best.safetensors, version 125; accuracy 0.9914 at version 120\n");
    assert_has(text, "not finite  first at rank 2 (w?), its step 7, version 8, value 9 of tensor fc1.weight; "
                     "sent: no\n");
    assert_has(text, "page        http://127.0.0.1:8080/\n");
    assert_has(text, "draining    stop.updates: version 9 reached 9\n");
}
END_TEST

/* A state directory may have a path of 255 bytes, and the cause is at the end. */
START_TEST(a_long_path_and_its_cause_are_shown_whole)
{
    char text[4096], deep[241], status[4096], line[600];
    const char *const statuses[] = {status, NULL};
    struct script script = {.statuses = statuses};
    memset(deep, 'd', sizeof deep - 1);
    deep[sizeof deep - 1] = 0;
    snprintf(
        status, sizeof status,
        "{\"checkpoint\":{\"last_path\":\"/%s/checkpoints/9\",\"last_error\":\"/%s/checkpoints: cannot open "
        "it: No such file or directory\"}}",
        deep, deep);
    ck_assert_int_eq(run_with(&script, "--socket psd.sock status", text, sizeof text), 0);
    snprintf(line, sizeof line, "checkpoint  /%s/checkpoints/9, version -", deep);
    assert_has(text, line);
    snprintf(line, sizeof line, "failed: /%s/checkpoints: cannot open it: No such file or directory\n", deep);
    assert_has(text, line);
}
END_TEST

START_TEST(json_is_as_it_came)
{
    struct script script = {.statuses = ready};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "status --json --socket psd.sock", text, sizeof text), 0);
    ck_assert_int_eq(strncmp(text, ready[0], strlen(ready[0])), 0);
    ck_assert_str_eq(text + strlen(ready[0]), "\n");
}
END_TEST

START_TEST(workers_are_a_table)
{
    struct script script = {
        .workers = "{\"workers\":[{\"client\":0,\"rank\":0,\"kind\":\"worker\",\"name\":\"a\\u001b[2J\","
                   "\"members\":4,\"state\":\"active\",\"clock\":12,\"last_seen_s\":0.25,\"loss\":null},"
                   "{\"client\":10,\"rank\":null,\"kind\":\"observer\"}]}"};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "--socket psd.sock workers", text, sizeof text), 0);
    assert_has(text, "client  rank  members  kind      name   state   clock");
    assert_has(text, "     0     0        4  worker    a?[2J  active     12   -    0.25");
    assert_has(text, "    10     -        -  observer  -      -           -   -");
    ck_assert_ptr_null(strchr(text, 0x1b));
    script.workers = "{\"workers\":[]}";
    ck_assert_int_eq(run_with(&script, "--socket psd.sock workers", text, sizeof text), 0);
    ck_assert_str_eq(text, "no workers\n");
}
END_TEST

START_TEST(checkpoint_waits_for_the_file)
{
    static const char *const statuses[] = {
        STATUS("ready", CHECKPOINT("\"run/old\"", "90", "\"an old failure\"", "true")),
        STATUS("ready", CHECKPOINT("\"run/old\"", "90", "null", "true")),
        STATUS("ready", CHECKPOINT("\"run/new\"", "123", "null", "false")),
        NULL,
    };
    struct script script = {.statuses = statuses,
                            .checkpoint = "{\"checkpoint\":\"started\",\"version\":123}",
                            .checkpoint_status = 202};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "--socket psd.sock checkpoint", text, sizeof text), 0);
    ck_assert_str_eq(text, "run/new\n");
    script.asked = 0;
    ck_assert_int_eq(run_with(&script, "--socket psd.sock checkpoint --json", text, sizeof text), 0);
    ck_assert_str_eq(text, "{\"checkpoint\":\"started\",\"version\":123}\n");
}
END_TEST

START_TEST(failed_checkpoint_is_said)
{
    static const char *const failed[] = {
        STATUS("ready", CHECKPOINT("\"run/old\"", "90", "\"No space left\"", "false")), NULL};
    struct script script = {.statuses = failed,
                            .checkpoint = "{\"checkpoint\":\"started\",\"version\":123}",
                            .checkpoint_status = 202};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "--socket psd.sock checkpoint", text, sizeof text), 1);
    assert_has(text, "psctl: the checkpoint failed: No space left");
    script.checkpoint = "{\"error\":\"a checkpoint is being written\"}";
    script.checkpoint_status = 409;
    ck_assert_int_eq(run_with(&script, "--socket psd.sock checkpoint", text, sizeof text), 1);
    assert_has(text, "psctl: psd answered 409 to checkpoint: a checkpoint is being written");
}
END_TEST

START_TEST(drain_waits_until_psd_is_gone)
{
    static const char *const statuses[] = {
        STATUS("draining", CHECKPOINT("null", "null", "null", "false")),
        STATUS("stopping", CHECKPOINT("null", "null", "null", "false")),
        NULL,
    };
    struct script script = {.statuses = statuses, .drain = "{\"drain\":\"started\"}", .gone = true};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "--socket psd.sock drain", text, sizeof text), 0);
    ck_assert_str_eq(text, "drained\n");
}
END_TEST

/* Both at once, a second each. Its second may also end before the server's thread came to run: then once
 * more, as that tells nothing. */
START_TEST(waiting_ends_with_the_timeout)
{
    static const char *const stuck[] = {STATUS("draining", CHECKPOINT("null", "null", "null", "true")), NULL};
    static const char both[] = "exec 2>&1; " PSCTL " --socket psd.sock --timeout 1 checkpoint & " PSCTL
                               " --socket psd.sock --timeout 1 drain; echo \"drain: $?\"; wait $!; "
                               "echo \"checkpoint: $?\"";
    struct script script = {.statuses = stuck,
                            .checkpoint = "{\"checkpoint\":\"started\",\"version\":123}",
                            .checkpoint_status = 202,
                            .drain = "{\"drain\":\"started\"}"};
    struct server s;
    char text[4096];
    double deadline = unit_now_s() + 60;
    start(&s, &script);
    do
        ck_assert_int_eq(run_line(both, text, sizeof text), 0);
    while ((strstr(text, "cannot reach psd") != NULL || strstr(text, "has not answered") != NULL) &&
           unit_now_s() < deadline);
    stop(&s);
    assert_has(text, "the checkpoint was not written within 1 s");
    assert_has(text, "checkpoint: 1\n");
    assert_has(text, "psd is still draining after 1 s");
    assert_has(text, "drain: 1\n");
}
END_TEST

/* A psd that is stopped: nobody knows whether it has heard. */
START_TEST(a_drain_without_an_answer_is_not_said_to_be_one)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX, .sun_path = "psd.sock"};
    char text[4096];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fd, (struct sockaddr *)&at, sizeof at), 0);
    ck_assert_int_eq(listen(fd, 8), 0);
    ck_assert_int_eq(
        run_line("exec 2>&1; " PSCTL " --socket psd.sock --timeout 1 drain; echo \"$?\"", text, sizeof text),
        0);
    assert_has(text, "psd has not answered within 1 s (--timeout): it may not know that it is to drain\n6\n");
    close(fd);
    unlink("psd.sock");
}
END_TEST

START_TEST(config_is_yaml)
{
    struct script script = {.config =
                                "{\"method\":\"async-easgd\",\"parameters\":{\"alpha\":null,\"beta\":0.9,"
                                "\"schedule\":{\"kind\":\"constant\"}},\"listen\":\"tcp://[::1]:0\","
                                "\"advertise\":\"\",\"insecure\":false,\"lanes\":2}"};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "--socket psd.sock config", text, sizeof text), 0);
    ck_assert_str_eq(text, "method: async-easgd\n"
                           "parameters:\n"
                           "  alpha: none\n"
                           "  beta: 0.9\n"
                           "  schedule:\n"
                           "    kind: constant\n"
                           "listen: \"tcp://[::1]:0\"\n"
                           "advertise: \"\"\n"
                           "insecure: false\n"
                           "lanes: 2\n");
    ck_assert_int_eq(run_with(&script, "--socket psd.sock config --json", text, sizeof text), 0);
    ck_assert_int_eq(strncmp(text, script.config, strlen(script.config)), 0);
}
END_TEST

START_TEST(history_is_a_table)
{
    struct script script = {
        .history = "{\"history\":[{\"t\":86400.5,\"center_version\":7,\"workers\":2,\"updates_per_s\":1.25,"
                   "\"loss\":null,\"test_loss\":0.5,\"test_accuracy\":0.875}]}"};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "--socket psd.sock history", text, sizeof text), 0);
    assert_has(text, "time                 version  workers  updates/s  loss  test_loss  test_accuracy\n");
    assert_has(text, "        7        2       1.25     -        0.5          0.875\n");
    assert_has(text, "1970-01-0");
    script.history = "{\"history\":[]}";
    ck_assert_int_eq(run_with(&script, "--socket psd.sock history", text, sizeof text), 0);
    assert_has(text, "no history yet");
}
END_TEST

/* RFC 4180, every column of psd's records, whatever their texts hold. */
START_TEST(history_comes_as_csv)
{
    struct psd_record r = {.t_s = 1700000000.125,
                           .version = 7,
                           .workers = 2,
                           .updates_per_s = 1.25,
                           .staleness = NAN,
                           .loss = 1.0 / 3,
                           .test_loss = NAN,
                           .test_accuracy = NAN,
                           .center_norm = 2,
                           .distance = 0.5,
                           .kind = PSD_EVENT_JOIN,
                           .event = "a, \"b\" joined"};
    json_t *record = psd_json_record(&r), *value;
    json_t *answer = json_pack("{s:[o, {s:f, s:n, s:s}]}", "history", record, "t", 1.5, "loss", "event", "");
    struct script script = {.history = json_dumps(answer, JSON_COMPACT)};
    char text[4096];
    const char *key, *first = "t,center_version,workers,updates_per_s,staleness,loss,test_loss,"
                              "test_accuracy,center_norm,distance,event_kind,event\r\n";
    ck_assert_int_eq(run_with(&script, "--socket psd.sock history --csv", text, sizeof text), 0);
    ck_assert_int_eq(strncmp(text, first, strlen(first)), 0);
    ck_assert_str_eq(text + strlen(first), "1700000000.125,7,2,1.25,,0.333333333333333,,,2.0,0.5,join,"
                                           "\"a, \"\"b\"\" joined\"\r\n1.5,,,,,,,,,,,\"\"\r\n");
    json_object_foreach(record, key, value)
    {
        char column[40];
        snprintf(column, sizeof column, "%s%s", strcmp(key, "t") == 0 ? "" : ",", key);
        ck_assert_msg(strstr(first, column) != NULL, "%s is no column", key);
    }
    free((char *)script.history);
    script.history = "{\"history\":[]}";
    ck_assert_int_eq(run_with(&script, "--socket psd.sock history --csv", text, sizeof text), 0);
    ck_assert_str_eq(text, first);
    json_decref(answer);
}
END_TEST

START_TEST(metrics_come_as_they_are)
{
    struct script script = {.metrics = "# HELP psd_up Up.\npsd_up 1\n"};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "--socket psd.sock metrics", text, sizeof text), 0);
    ck_assert_str_eq(text, script.metrics);
}
END_TEST

START_TEST(reload_waits_for_the_method)
{
    static const char *const soon[] = {"{\"generation\":2,\"reload\":{\"last_error\":null}}",
                                       "{\"generation\":3,\"reload\":{\"last_error\":null}}", NULL};
    static const char *const never[] = {"{\"generation\":2,\"reload\":{\"refusal\":{\"first\":7,\"last\":7,"
                                        "\"error\":\"too large\"}}}",
                                        NULL};
    struct script script = {.reload = "{\"reload\":\"started\",\"request\":7,\"method\":\"sync-sgd\","
                                      "\"generation\":3}",
                            .reload_status = 202,
                            .statuses = soon};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "--socket psd.sock reload", text, sizeof text), 0);
    ck_assert_str_eq(text, "reloaded: method sync-sgd, generation 3\n");
    script.statuses = never;
    script.asked = 0;
    ck_assert_int_eq(run_with(&script, "--socket psd.sock reload", text, sizeof text), 1);
    assert_has(text, "psctl: the method has not changed: too large");
    script.reload = "{\"error\":\"psd.yaml:1: method: 'x'\"}";
    script.reload_status = 409;
    ck_assert_int_eq(run_with(&script, "--socket psd.sock reload", text, sizeof text), 1);
    assert_has(text, "psctl: psd answered 409 to reload: psd.yaml:1: method: 'x'");
}
END_TEST

/* Whatever the value is made of; it waits for the method, and until psd has recorded what was set. */
START_TEST(set_carries_every_line)
{
    static const char *const soon[] = {
        "{\"generation\":2,\"reload\":{\"last_error\":null,\"set_recorded\":true}}",
        "{\"generation\":3,\"reload\":{\"last_error\":null,\"set_recorded\":false}}",
        "{\"generation\":3,\"reload\":{\"last_error\":null,\"set_recorded\":true}}", NULL};
    struct script script = {.reload = "{\"set\":\"started\",\"method\":\"diloco\",\"generation\":3,"
                                      "\"set_above_file\":\"method=diloco\"}",
                            .reload_status = 202,
                            .statuses = soon};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "--socket psd.sock method diloco 'schedule={kind: step}' 'a&b=%+'",
                              text, sizeof text),
                     0);
    ck_assert_str_eq(text, "set: method diloco, generation 3\nsettings above the file: method=diloco\n");
    ck_assert_str_eq(script.set, "method=diloco\nschedule={kind: step}\na&b=%+");
    ck_assert_uint_eq(script.asked, 2);
}
END_TEST

/* Requests 4 and 5 were refused together, after they were accepted. The newest error is of another client's
 * request, which is no business of any of these. */
START_TEST(a_refusal_is_of_its_own_request)
{
    static const char *const status[] = {
        "{\"generation\":3,\"reload\":{\"last_error\":\"found nan\",\"set_recorded\":true,\"refusal\":"
        "{\"first\":4,\"last\":5,\"error\":\"server 1 was lost\"}}}",
        NULL};
    static const char *const answers[] = {
        "{\"set\":\"started\",\"request\":3,\"method\":\"diloco\",\"generation\":3}",
        "{\"set\":\"started\",\"request\":4,\"method\":\"diloco\",\"generation\":3}",
        "{\"set\":\"started\",\"request\":5,\"method\":\"diloco\",\"generation\":4}",
        "{\"set\":\"started\",\"request\":6,\"method\":\"diloco\",\"generation\":3}"};
    struct script script = {.reload_status = 202, .statuses = status};
    char text[4096];
    for (size_t i = 0; i < ROWS(answers); i++) {
        bool fails = i == 1 || i == 2;
        script.reload = answers[i];
        ck_assert_int_eq(run_with(&script, "--socket psd.sock set period=4", text, sizeof text), fails);
        ck_assert_str_eq(text, fails ? "psctl: nothing has changed: server 1 was lost\n"
                                     : "set: method diloco, generation 3\n");
    }
}
END_TEST

/* A reload has nothing to save: the file has it. */
START_TEST(what_is_set_but_not_saved_is_no_success)
{
    static const char *const fails[] = {
        "{\"generation\":3,\"reload\":{\"last_error\":null,\"set_recorded\":false,\"record_error\":null}}",
        "{\"generation\":3,\"reload\":{\"last_error\":null,\"set_recorded\":false,\"record_error\":\"Full\"}"
        "}",
        NULL};
    struct script script = {.reload = "{\"set\":\"started\",\"method\":\"diloco\",\"generation\":3}",
                            .reload_status = 202,
                            .statuses = fails};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "--socket psd.sock set period=4", text, sizeof text), 1);
    ck_assert_str_eq(text, "psctl: in force, but not saved in the state directory: Full\n");
    script.reload = "{\"reload\":\"started\",\"method\":\"diloco\",\"generation\":3}";
    ck_assert_int_eq(run_with(&script, "--socket psd.sock reload", text, sizeof text), 0);
    ck_assert_str_eq(text, "reloaded: method diloco, generation 3\n");
}
END_TEST

/* Requests whose URL is longer than 255 bytes, up to the longest that psctl allows: 2047 bytes of settings,
 * each of which takes three in a URL. */
START_TEST(long_requests_arrive_whole)
{
    static const char *const soon[] = {
        "{\"generation\":3,\"reload\":{\"last_error\":null,\"set_recorded\":true}}", NULL};
    struct script script = {.reload = "{\"set\":\"started\",\"method\":\"diloco\",\"generation\":3}",
                            .reload_status = 202,
                            .statuses = soon};
    char text[4096], arguments[2400] = "--socket psd.sock set", lines[2048] = "";
    for (size_t i = 0, used = strlen(arguments), n = 0; i < 12; i++) {
        int len = snprintf(lines + n, sizeof lines - n, "%slimits.silence_s_%02zu=300", n > 0 ? "\n" : "", i);
        used += (size_t)snprintf(arguments + used, sizeof arguments - used, " %s", lines + n + (n > 0));
        n += (size_t)len;
    }
    ck_assert_int_eq(run_with(&script, arguments, text, sizeof text), 0);
    ck_assert_str_eq(script.set, lines);

    strcpy(lines, "x=");
    memset(lines + 2, '+', sizeof lines - 3);
    lines[sizeof lines - 1] = 0;
    snprintf(arguments, sizeof arguments, "--socket psd.sock set '%s'", lines);
    ck_assert_int_eq(run_with(&script, arguments, text, sizeof text), 0);
    ck_assert_str_eq(script.set, lines);

    snprintf(arguments, sizeof arguments, "--socket psd.sock set '%s+'", lines);
    ck_assert_int_eq(run_psctl(arguments, text, sizeof text), 2);
    assert_has(text, "psctl: set: the arguments are too long; allowed are 2047 bytes in total");
}
END_TEST

START_TEST(evict_names_the_rank)
{
    struct script script = {.evict = "{\"evicted\":12,\"name\":\"node:7\",\"incarnation\":3}",
                            .evict_status = 200};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "--socket psd.sock evict 12", text, sizeof text), 0);
    ck_assert_str_eq(text, "evicted 12 (node:7, incarnation 3)\n");
    ck_assert_str_eq(script.evicted, "12");
    script.evict = "{\"error\":\"there is no rank 5 in the job\"}";
    script.evict_status = 404;
    ck_assert_int_eq(run_with(&script, "--socket psd.sock evict 5", text, sizeof text), 1);
    assert_has(text, "psctl: psd answered 404 to evict: there is no rank 5 in the job");
}
END_TEST

START_TEST(top_prints_a_frame)
{
    struct script script = {
        .statuses = ready,
        .workers =
            "{\"workers\":["
            "{\"client\":0,\"rank\":0,\"kind\":\"worker\",\"name\":\"a\\u001b[2J\",\"state\":\"active\","
            "\"clock\":12,\"last_seen_s\":0.25,\"exchanges\":3,\"staleness\":2,\"loss\":0.5,"
            "\"samples_per_s\":812.4,\"distance\":1.5,\"update_norm\":0.25,\"incarnation\":9},"
            "{\"client\":10,\"rank\":null,\"kind\":\"observer\",\"name\":\"eye\"}]}"};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "--socket psd.sock top --once", text, sizeof text), 0);
    assert_has(text, "psd 0.1.0   ready   up 1 h 02 min   pid 7   tcp://127.0.0.1:5555\n");
    assert_has(text, "method      async-easgd   version 123   0.0 updates/s   staleness 2.0\n");
    assert_has(text, "checkpoint  none yet\n");
    assert_has(text, "workers     4 active, 1 observers   sorted by rank\n");
    assert_has(text,
               "   0  a?[2J  active  12        0.0      2  0.5000       812       1.5      0.25  0.2 s\n");
    assert_has(text,
               " obs  eye    -        -          -      -       -         -         -         -      -\n");
    ck_assert_ptr_null(strchr(text, 0x1b));
}
END_TEST

/* In a container it has the same pid, and a psd of several restarts in its process. */
START_TEST(top_compares_nothing_with_a_psd_before_a_restart)
{
    static const char *const statuses[] = {"{\"pid\":7,\"uptime_s\":9.5,\"center\":{\"version\":123}}",
                                           "{\"pid\":7,\"uptime_s\":1.5,\"center\":{\"version\":100}}", NULL};
    struct script script = {.statuses = statuses, .workers = "{\"workers\":[]}"};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "--socket psd.sock top --once", text, sizeof text), 0);
    assert_has(text, "version 100   - updates/s");
}
END_TEST

/* psctl top --once on a terminal of so many columns, against the script. What it wrote is in text. */
static void run_top(struct script *script, unsigned short columns, char *text, size_t size)
{
    const struct winsize window = {.ws_row = 24, .ws_col = columns};
    struct server s;
    int fd, status;
    size_t n = 0;
    start(&s, script);
    pid_t pid = forkpty(&fd, NULL, NULL, &window);
    if (pid == 0) {
        execl(PSCTL, PSCTL, "--timeout", "600", "--socket", "psd.sock", "top", "--once", NULL);
        _exit(127);
    }
    for (ssize_t got = 1; got > 0 && n<size - 1; n += got> 0 ? (size_t)got : 0)
        got = read(fd, text + n, size - 1 - n);
    text[n] = 0;
    close(fd);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    stop(&s);
}

/* Lines end with \r\n there. Bytes that go on a character are no column. */
static void assert_no_line_beyond(const char *text, int columns)
{
    int width = 0;
    for (; *text != 0; text++) {
        width = *text == '\n' ? 0 : width + (*text != '\r' && ((unsigned char)*text & 0xc0) != 0x80);
        ck_assert_int_le(width, columns);
    }
}

#define WORKER(rank, name, state, more)                                                                      \
    "{\"client\":" rank ",\"rank\":" rank ",\"kind\":\"worker\",\"name\":\"" name "\",\"state\":\"" state    \
    "\",\"exchanges\":3,\"staleness\":2,\"loss\":0.5,\"samples_per_s\":812.4,\"distance\":1.5,"              \
    "\"update_norm\":0.25,\"incarnation\":9,\"last_seen_s\":0.25," more "}"

static const char *const trained[] = {
    "{\"version\":\"0.1.0\",\"pid\":7,\"state\":\"ready\",\"uptime_s\":3725.2,\"method\":{\"name\":"
    "\"async-easgd\"},\"parameters\":{\"learning_rate_now\":0.05,\"period\":10},\"training\":{\"nets\":["
    "\"lenet\"],\"data\":[\"digits\",\"mnist:\\u001b[2J\"],\"steps_done\":1999,\"steps_wanted\":4000},"
    "\"listen\":\"tcp://127.0.0.1:5555\",\"center\":{\"version\":123},\"workers\":{\"active\":1,\"silent\":1,"
    "\"observers\":0},\"evaluation\":{\"test_accuracy\":0.9914,\"test_loss\":0.03,\"center_version\":100},"
    "\"center_norm\":24.75,\"checkpoint\":{}}",
    NULL};

START_TEST(who_is_missing_in_the_first_round_is_told)
{
    static const char *const statuses[] = {
        "{\"workers\":{\"active\":1,\"silent\":1,\"awaited\":3,\"observers\":0}}", NULL};
    struct script script = {.statuses = statuses};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "--socket psd.sock status", text, sizeof text), 0);
    assert_has(text, "\nworkers     1 active of 3 that the first round waits for, 1 silent, 0 observers\n");
}
END_TEST

START_TEST(what_is_trained_is_laid_out)
{
    struct script script = {.statuses = trained};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "--socket psd.sock status", text, sizeof text), 0);
    assert_has(text, "\ntraining    lenet on digits, mnist:?[2J; 1999 of 4000 steps\n");
    assert_has(text, "\nworkers     1 active, 1 silent, 0 observers\n");
    script.workers = "{\"workers\":[" WORKER("0", "a", "active",
                                             "\"clock\":999,\"steps\":2000,\"net\":\"lenet\",\"data\":"
                                             "\"digits\"") "]}";
    ck_assert_int_eq(run_with(&script, "--socket psd.sock workers", text, sizeof text), 0);
    assert_has(text, "clock    of  seen_s");
    assert_has(text, "  999  2000    0.25");
    assert_has(text, "lenet  digits    9  -\n");
}
END_TEST

/* Wrapped at its width; of the table, what is needed most. */
START_TEST(top_fits_the_terminal)
{
    struct script script = {
        .statuses = trained,
        .workers = "{\"workers\":[" WORKER(
            "0", "w\303\266rker-of-a-node-with-a-long-name", "active",
            "\"clock\":999,\"steps\":2000,\"period\":10") "," WORKER("1", "b", "silent",
                                                                     "\"clock\":1000,\"steps\":2000,"
                                                                     "\"period\":10") "]}"};
    char text[8192];
    run_top(&script, 60, text, sizeof text);
    assert_no_line_beyond(text, 60);
    assert_has(text, "psd 0.1.0   ready   up 1 h 02 min   pid 7\r\ntcp://127.0.0.1:5555\r\n");
    assert_has(text,
               "method      async-easgd   version 123   0.0 updates/s\r\n            staleness 2.0\r\n");
    assert_has(text, "training    lenet on digits, mnist:?[2J\r\n            1999 of 4000 steps, 49 %   "
                     "learning rate 0.05\r\n            period 10\r\n");
    assert_has(text,
               "center      accuracy 0.9914   loss 0.03   at version 100\r\n            norm 24.75\r\n");
    assert_has(text, "workers     1 active, 1 silent, 0 observers   sorted by rank\r\n");
    assert_has(text, "rank  name              state           t  updates/s    loss\r\n");
    assert_has(text, "   0  w\303\266rker-of-a-nod\342\200\246  active   999/2000        0.0  0.5000\r\n");
    assert_has(text, "   1  b                 silent  1000/2000          -  0.5000\r\n");

    script.asked = 0;
    run_top(&script, 110, text, sizeof text);
    assert_no_line_beyond(text, 110);
    assert_has(text, "psd 0.1.0   ready   up 1 h 02 min   pid 7   tcp://127.0.0.1:5555\r\n");
    assert_has(text,
               "training    lenet on digits, mnist:?[2J   1999 of 4000 steps, 49 %   learning rate 0.05   "
               "period 10\r\n");
    assert_has(text, "updates/s  stale    loss  images/s  distance  |update|   seen\r\n");
    assert_has(text, "   1  b");
    ck_assert_ptr_null(strstr(text, "\033"));

    script.asked = 0; /* to a pipe: as wide as it is */
    ck_assert_int_eq(run_with(&script, "--socket psd.sock top --once", text, sizeof text), 0);
    assert_has(text, "   0  w\303\266rker-of-a-node-with-a-long-name  active");
}
END_TEST

static bool frame_has(struct ctl_top *top, const char *part)
{
    const struct ctl_frame *f = ctl_top_frame(top, 0, 0);
    bool has = false;
    ck_assert_ptr_nonnull(f);
    for (int i = 0; i < f->n; i++)
        has = has || strstr(f->lines[i].text, part) != NULL;
    return has;
}

/* Scrolled to the last of three, of whom two leave. */
START_TEST(top_shows_workers_when_those_below_leave)
{
    static const char all[] = "{\"workers\":[" WORKER("0", "anna", "active", "\"clock\":1") "," WORKER(
        "1", "bert", "active", "\"clock\":1") "," WORKER("2", "carl", "active", "\"clock\":1") "]}";
    struct script script = {.statuses = trained, .workers = all};
    struct server s;
    struct ctl_client *client;
    struct ctl_top *top;
    struct ps_error err;
    start(&s, &script);
    ck_assert_int_eq(ctl_client_create("psd.sock", &client, &err), 0);
    ck_assert_int_eq(ctl_top_create(client, 600000, &top, &err), 0);
    ck_assert_msg(ctl_top_look(top, &err) == 0, "%s", err.text);
    ctl_top_scroll(top, 10);
    ck_assert(frame_has(top, "carl") && !frame_has(top, "bert"));
    script.workers = "{\"workers\":[" WORKER("0", "anna", "active", "\"clock\":1") "]}";
    ck_assert_msg(ctl_top_look(top, &err) == 0, "%s", err.text);
    ck_assert(frame_has(top, "anna"));
    script.workers = "{\"workers\":[]}";
    ck_assert_msg(ctl_top_look(top, &err) == 0, "%s", err.text);
    script.workers = all;
    ck_assert_msg(ctl_top_look(top, &err) == 0, "%s", err.text);
    ck_assert(frame_has(top, "anna") && frame_has(top, "carl"));
    ctl_top_destroy(top);
    ctl_client_destroy(client);
    stop(&s);
}
END_TEST

START_TEST(workers_that_others_wait_for_are_named)
{
    struct script script = {.workers =
                                "{\"workers\":["
                                "{\"client\":0,\"name\":\"a\",\"state\":\"waits\",\"awaited_s\":0.0},"
                                "{\"client\":1,\"name\":\"b\",\"state\":\"stalled\",\"awaited_s\":63.2}]}"};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "--socket psd.sock workers", text, sizeof text), 0);
    assert_has(text, "\nclient 1 (b) has taken no step for 1 min 03 s while others wait for it\n");
    ck_assert_ptr_null(strstr(text, "client 0 (a)"));
}
END_TEST

START_TEST(other_answers_are_refused)
{
    struct script script = {.workers = "hello"};
    char text[4096];
    ck_assert_int_eq(run_with(&script, "--socket psd.sock workers", text, sizeof text), 1);
    assert_has(text, "not a JSON object");
}
END_TEST

static const struct {
    const char *arguments;
    int status;
    const char *says;
} usages[] = {
    {"", 2,
     "no command; allowed are status, workers, config, metrics, history, checkpoint, drain, reload, set, "
     "method, unset, evict, allow, keygen, merge, "
     "top"},
    {"--socket x fly", 2, "'fly' is not a command; allowed are status"},
    {"--socket x status twice", 2, "'twice' after status"},
    {"status", 2, "--socket is missing"},
    {"--socket '' status", 2, "--socket: found an empty path"},
    {"--socket x --timeout 0 status", 2, "--timeout: found '0'"},
    {"--socket x --timeout 1h status", 2, "--timeout: found '1h'"},
    {"--socket x --timeout 86401 status", 2, "--timeout: found '86401'"},
    {"--socket x evict", 2, "evict needs RANK"},
    {"--socket x set", 2, "set needs KEY=VALUE"},
    {"--socket x set period", 2, "set: found 'period'; allowed is KEY=VALUE"},
    {"--socket x set period=4 x", 2, "set: found 'x'; allowed is KEY=VALUE"},
    {"--socket x method", 2, "method needs NAME"},
    {"--socket x method period=4", 2, "allowed is the name of a method first"},
    {"--socket x unset", 2, "unset needs KEY"},
    {"--socket x unset period=4", 2, "allowed is the name of a key that is set"},
    {"--socket x allow", 2, "allow needs NAME"},
    {"--socket x allow a/b", 2, "found 'a/b'; allowed is a name in the allow-list"},
    {"allow w0", 2, "--socket is missing"},
    {"keygen", 2, "keygen needs FILE"},
    {"keygen a b", 2, "'b' after keygen"},
    {"keygen no/such/dir", 1, "key file 'no/such/dir': No such file or directory"},
    {"keygen x --name a/b", 1, "'a/b' is not a valid name of an identity"},
    {"--socket x evict 0 --name w", 2, "--name is for keygen"},
    {"--socket x evict -1", 2, "psctl"},
    {"--socket x evict one", 2, "evict: found 'one'; allowed is a rank"},
    {"--socket x evict 1 2", 2, "'2' after evict"},
    {"--socket x metrics --json", 2, "metrics has no --json"},
    {"--socket x top --json", 2, "top has no --json"},
    {"--socket x status --csv", 2, "status has no --csv; allowed with history"},
    {"--socket x history --csv --json", 2, "--json and --csv: allowed is one of them"},
    {"--socket x status --once", 2, "--once is for top"},
    {"--socket x top --interval 0", 2, "--interval: found '0'; allowed are 0.1 to 3600"},
    {"--socket x top --interval 1s", 2, "--interval: found '1s'"},
    {"--socket nobody.sock top --once", 6, "cannot reach psd at nobody.sock"},
    {"--fast", 2, "--fast"},
    {"--socket", 2, "socket"},
    {"--help", 0, "usage: psctl [--socket PATH] COMMAND"},
    {"--version", 0, "psctl 0."},
    {"--socket nobody.sock status", 6, "cannot reach psd at nobody.sock: No such file or directory"},
    {"--socket nobody.sock drain", 6, "cannot reach psd at nobody.sock"},
};

START_TEST(usage_is_checked)
{
    char text[4096];
    ck_assert_int_eq(run_psctl(usages[_i].arguments, text, sizeof text), usages[_i].status);
    assert_has(text, usages[_i].says);
}
END_TEST

/* The default state directory's, then the environment's. */
START_TEST(a_socket_is_found)
{
    char text[4096];
    setenv("PSD_SOCKET", "elsewhere.sock", 1);
    ck_assert_int_eq(run_psctl("status", text, sizeof text), 6);
    assert_has(text, "cannot reach psd at elsewhere.sock");
    ck_assert_int_eq(mkdir("psd-state", 0700), 0);
    ck_assert_int_eq(close(open("psd-state/psd.sock", O_CREAT | O_WRONLY | O_CLOEXEC, 0600)), 0);
    ck_assert_int_eq(run_psctl("status", text, sizeof text), 6);
    assert_has(text, "cannot reach psd at psd-state/psd.sock");
    ck_assert_int_eq(run_psctl("--socket given.sock status", text, sizeof text), 6);
    assert_has(text, "cannot reach psd at given.sock");
    unlink("psd-state/psd.sock");
    rmdir("psd-state");
    unsetenv("PSD_SOCKET");
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-psctl");
    TCase *tc = tcase_create("psctl");
    tcase_add_checked_fixture(tc, enter_directory, leave_directory);
    tcase_add_test(tc, status_is_laid_out);
    tcase_add_test(tc, a_socket_is_reached_by_a_path_of_any_length);
    tcase_add_test(tc, what_is_notable_is_shown);
    tcase_add_test(tc, a_long_path_and_its_cause_are_shown_whole);
    tcase_add_test(tc, json_is_as_it_came);
    tcase_add_test(tc, workers_are_a_table);
    tcase_add_test(tc, checkpoint_waits_for_the_file);
    tcase_add_test(tc, failed_checkpoint_is_said);
    tcase_add_test(tc, drain_waits_until_psd_is_gone);
    tcase_add_test(tc, waiting_ends_with_the_timeout);
    tcase_add_test(tc, a_drain_without_an_answer_is_not_said_to_be_one);
    tcase_add_test(tc, config_is_yaml);
    tcase_add_test(tc, history_is_a_table);
    tcase_add_test(tc, history_comes_as_csv);
    tcase_add_test(tc, metrics_come_as_they_are);
    tcase_add_test(tc, reload_waits_for_the_method);
    tcase_add_test(tc, set_carries_every_line);
    tcase_add_test(tc, a_refusal_is_of_its_own_request);
    tcase_add_test(tc, what_is_set_but_not_saved_is_no_success);
    tcase_add_test(tc, long_requests_arrive_whole);
    tcase_add_test(tc, evict_names_the_rank);
    tcase_add_test(tc, top_prints_a_frame);
    tcase_add_test(tc, top_compares_nothing_with_a_psd_before_a_restart);
    tcase_add_test(tc, top_fits_the_terminal);
    tcase_add_test(tc, top_shows_workers_when_those_below_leave);
    tcase_add_test(tc, who_is_missing_in_the_first_round_is_told);
    tcase_add_test(tc, what_is_trained_is_laid_out);
    tcase_add_test(tc, workers_that_others_wait_for_are_named);
    tcase_add_test(tc, other_answers_are_refused);
    tcase_add_test(tc, a_socket_is_found);
    tcase_add_loop_test(tc, usage_is_checked, 0, (int)(sizeof usages / sizeof *usages));
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
