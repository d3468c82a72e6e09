/* What is set while the job runs, without a file: psctl set, method and unset. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "tests/support/pause.h"
#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/clock.h"
#include "tests/support/system/raw_client.h"
#include "tests/support/system/servers.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"
#include "tests/system/step_workers.h"

enum { FLOATS = 30011, WORKERS = 2, WAIT_S = 60, USAGE = 2 };

static const char *const settings[] = {"lanes=2", "chunk_floats=4096", "parameters.schedule.warmup_steps=0",
                                       "checkpoint.every_s=0", NULL};

/* psctl's exit status; what it wrote to either stream is in text. */
static int psctl(const struct daemon *d, const char *arguments, char *text, size_t size)
{
    char line[700];
    snprintf(line, sizeof line, "%s --socket %s --timeout 300 %s 2>&1", PSCTL, d->socket, arguments);
    FILE *pipe = popen(line, "r");
    ck_assert_ptr_nonnull(pipe);
    size_t n = fread(text, 1, size - 1, pipe);
    text[n] = 0;
    int status = pclose(pipe);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

/* It ends well, or not, and says this. */
static void ask(const struct daemon *d, const char *arguments, int status, const char *says)
{
    char text[4096];
    int is = psctl(d, arguments, text, sizeof text);
    if (is != status || strstr(text, says) == NULL) {
        daemon_show_log(d);
        ck_abort_msg("psctl %s ended with %d, not %d, and lacks '%s':\n%s", arguments, is, status, says,
                     text);
    }
}

static void start(struct daemon *d, const char *config)
{
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    ck_assert(daemon_write_config(d, config));
    ck_assert_int_eq(daemon_start(d, NULL), 0);
}

static void assert_rate(const struct daemon *d, double rate, double period)
{
    ck_assert_double_eq(daemon_number(d, "/config", "parameters.learning_rate"), rate);
    ck_assert_double_eq(daemon_number(d, "/config", "parameters.period"), period);
}

static bool has_line(const struct daemon *d, const char *text)
{
    char path[200], line[2000];
    bool found = false;
    snprintf(path, sizeof path, "%s/history.jsonl", d->state_dir);
    FILE *f = fopen(path, "re");
    ck_assert_ptr_nonnull(f);
    while (!found && fgets(line, sizeof line, f) != NULL)
        found = strstr(line, text) != NULL;
    fclose(f);
    return found;
}

/* psd writes its history in the background. */
static void await_line(const struct daemon *d, const char *text)
{
    double deadline = test_now_s() + WAIT_S;
    while (!has_line(d, text)) {
        ck_assert_msg(test_now_s() < deadline, "no line with %s in history.jsonl", text);
        test_nap_s(0.01);
    }
}

/* Also by a psd that is killed, before any checkpoint: what psctl has said is kept. */
START_TEST(what_is_set_stands_above_the_file_and_outlives_psd)
{
    struct daemon d;
    start(&d, "method: eamsgd\nparameters: {learning_rate: 0.05, period: 16}\n");
    ask(&d, "set learning_rate=0.01 period=4", 0, "set: method eamsgd");
    assert_rate(&d, 0.01, 4);
    await_line(&d, "\"event\":\"set learning_rate=0.01, period=4\",\"event_kind\":\"method\"");
    ck_assert(daemon_write_config(
        &d, "method: eamsgd\nparameters: {learning_rate: 0.5, period: 32, momentum: 0.5}\n"));
    assert_rate(&d, 0.01, 4);
    ask(&d, "set period=8", 0, "parameters.learning_rate=0.01, parameters.period=8");
    ck_assert_double_eq(daemon_number(&d, "/config", "parameters.momentum"), 0.9); /* not read yet */
    ask(&d, "reload", 0, "settings above the file: parameters.learning_rate=0.01, parameters.period=8");
    assert_rate(&d, 0.01, 8);
    ck_assert_double_eq(daemon_number(&d, "/config", "parameters.momentum"), 0.5);
    daemon_stop(&d, SIGKILL, WAIT_S);
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
    assert_rate(&d, 0.01, 8);
    ask(&d, "unset learning_rate", 0, "settings above the file: parameters.period=8");
    assert_rate(&d, 0.5, 8);
    daemon_stop(&d, SIGKILL, WAIT_S);
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
    assert_rate(&d, 0.5, 8);
    ask(&d, "unset all", 0, "unset: method eamsgd");
    assert_rate(&d, 0.5, 32);
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, WAIT_S), 0);
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
    assert_rate(&d, 0.5, 32);
    daemon_remove(&d);
}
END_TEST

/* A new job has nothing set, in the same directory too. */
START_TEST(a_new_job_begins_as_its_file_says)
{
    struct daemon d;
    start(&d, "method: eamsgd\nparameters: {learning_rate: 0.05, period: 16}\n");
    ask(&d, "set learning_rate=0.01", 0, "set: ");
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, WAIT_S), 0);
    ck_assert_int_eq(daemon_start(&d, "--fresh"), 0);
    assert_rate(&d, 0.05, 16);
    daemon_remove(&d);
}
END_TEST

/* The file was changed so that what was set does not go with it. */
START_TEST(a_resume_that_contradicts_itself_says_what_to_do)
{
    struct daemon d;
    start(&d, "method: eamsgd\n");
    ask(&d, "set momentum=0.5", 0, "set: ");
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, WAIT_S), 0);
    ck_assert(daemon_write_config(&d, "method: async-sgd\n"));
    ck_assert_int_eq(daemon_run(&d, "--resume", WAIT_S), USAGE);
    ck_assert_uint_gt(daemon_logged(&d, "the settings made while it ran (parameters.momentum=0.5)"), 0);
    ck_assert_uint_gt(daemon_logged(&d, "or --unset to drop them"), 0);
    ck_assert(daemon_write_config(&d, "method: eamsgd\n"));
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
    ck_assert_double_eq(daemon_number(&d, "/config", "parameters.momentum"), 0.5);
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, WAIT_S), 0);
    ck_assert(daemon_write_config(&d, "method: async-sgd\n"));
    ck_assert_int_eq(daemon_start(&d, "--unset"), 0);
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, WAIT_S), 0);
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0); /* it is gone for good */
    daemon_remove(&d);
}
END_TEST

/* A file like the output of psctl config, which names the parts too: they would hold the method. */
START_TEST(a_method_by_name_is_that_method_or_refused)
{
    struct daemon d;
    start(&d, "method: async-sgd\nrule: sgd\nadmission: fcfs\noptimizer: none\naveraging: none\n");
    ask(&d, "method adownpour", 1,
        "method: found adownpour; rule sgd, optimizer none, averaging none of the file, the options or an "
        "earlier set would override it; allowed is a method with rule=preset, optimizer=preset, "
        "averaging=preset");
    ask(&d, "method adownpour rule=preset optimizer=sgd", 1, "allowed is a method with averaging=preset");
    ck_assert_double_eq(daemon_number(&d, "/status", "generation"), 0);
    ask(&d, "method async-sgd", 0, "unchanged: method async-sgd");
    ask(&d, "method downpour rule=preset optimizer=preset", 0, "set: method downpour");
    ask(&d, "method adownpour averaging=moving", 0, "set: method custom"); /* as it says */
    ask(&d, "set averaging=mean", 0, "set: method adownpour");
    ask(&d, "method downpour", 1, "allowed is a method with averaging=preset");
    daemon_remove(&d);
}
END_TEST

static const struct {
    const char *arguments;
    int status;
    const char *says;
} refused[] = {
    {"set lr=3", 1, "did you mean parameters.learning_rate"},
    {"set learning_rate=fast", 1, "set: parameters.learning_rate: found fast; allowed is"},
    {"set window_chunks=9", 1, "window_chunks: changed, and a change takes effect only at a start of psd"},
    {"set slack=3", 1, "parameters.slack: rule sgd, admission fcfs"},
    {"method async-sdg", 1, "did you mean async-sgd"},
    {"method easgd", 1, "did you mean async-easgd"},
    {"method d-sync", 1, "one clique moves its values without psd"},
    {"method dc-asgd workers=1", 1, "rank 1 is in the job"},
    {"method eamsgd period", 2, "method: found 'period'; allowed is KEY=VALUE"},
    {"method period=4", 2, "allowed is the name of a method first"},
    {"set period", 2, "set: found 'period'; allowed is KEY=VALUE"},
    {"set", 2, "set needs KEY=VALUE"},
    {"unset period", 1, "period is not set while the job runs; nothing is"},
};

static void start_crew(const struct daemon *d, struct crew_worker *crew)
{
    for (int i = 0; i < WORKERS; i++)
        crew_start(&crew[i], &(struct crew_task){.server = d->endpoint,
                                                 .rank = i,
                                                 .floats = FLOATS,
                                                 .heartbeat_ms = 200,
                                                 .retry_ms = 200,
                                                 .salt = (uint32_t)i,
                                                 .steps = true});
    for (int i = 0; i < WORKERS; i++)
        ck_assert_msg(crew_reaches(&crew[i], 5, WAIT_S), "rank %d does not begin: %s", i,
                      crew[i].page->error);
}

static void assert_go_on(const struct daemon *d, const struct crew_worker *crew, const char *after)
{
    uint64_t want[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        want[i] = crew[i].page->exchanges + 12;
    for (int i = 0; i < WORKERS; i++)
        if (!crew_reaches(&crew[i], want[i], WAIT_S)) {
            daemon_show_log(d);
            ck_abort_msg("rank %d stands still at %lu after %s: %s (%s)", i,
                         (unsigned long)crew[i].page->exchanges, after, psc_result_name(crew[i].page->rc),
                         crew[i].page->error);
        }
}

static void stop_all(struct crew_worker *crew)
{
    for (int i = 0; i < WORKERS; i++)
        crew[i].page->stop = true;
    for (int i = 0; i < WORKERS; i++) {
        ck_assert(crew_stop(&crew[i], WAIT_S));
        ck_assert_msg(crew[i].page->rc == PSC_OK, "rank %d: %s (%s)", i, psc_result_name(crew[i].page->rc),
                      crew[i].page->error);
    }
}

static void assert_sum(const struct daemon *d, const struct crew_worker *crew)
{
    float *center = stepper_center(d, FLOATS);
    for (uint64_t i = 0; i < FLOATS; i++) {
        double want = 0;
        for (int w = 0; w < WORKERS; w++)
            want -= crew_sum((uint32_t)w, crew[w].page->exchanges, i);
        if ((double)center[i] != want)
            ck_abort_msg("value %lu is %.1f; the gradients sum to %.1f", (unsigned long)i, (double)center[i],
                         want);
    }
    free(center);
}

START_TEST(what_is_refused_is_refused_by_name_and_changes_nothing)
{
    struct daemon d;
    struct crew_worker crew[WORKERS];
    start(&d, "method: async-sgd\nparameters: {learning_rate: 1}\n");
    start_crew(&d, crew);
    for (size_t i = 0; i < ROWS(refused); i++)
        ask(&d, refused[i].arguments, refused[i].status, refused[i].says);
    ck_assert_double_eq(daemon_number(&d, "/status", "generation"), 0);
    assert_go_on(&d, crew, "what was refused");
    stop_all(crew);
    assert_sum(&d, crew);
    daemon_remove(&d);
}
END_TEST

/* Each applies a gradient g as center - g, alone or with the other's. */
static const char *const exact[] = {
    "method downpour learning_rate=1 period=3",
    "set period=5",
    "set period=6 fragments=3 overlap=true", /* of which one may be all at one server */
    "method sync-sgd learning_rate=2 period=preset fragments=preset overlap=false",
    "method ssp-sgd learning_rate=1 slack=2",
    "method async-sgd slack=preset",
    "set codec.message=fp16 codec.answer=bf16",
    "set checkpoint.every_s=1",
    "unset all",
    "method async-sgd learning_rate=1",
};

START_TEST(no_update_is_lost_by_what_is_set)
{
    struct daemon d;
    struct crew_worker crew[WORKERS];
    start(&d, "method: async-sgd\nparameters: {learning_rate: 1}\n");
    start_crew(&d, crew);
    for (size_t i = 0; i < 3 * ROWS(exact); i++) {
        ask(&d, exact[i % ROWS(exact)], 0, ": method ");
        assert_go_on(&d, crew, exact[i % ROWS(exact)]);
    }
    stop_all(crew);
    assert_sum(&d, crew);
    ck_assert_uint_eq(daemon_logged(&d, "ERROR"), 0);
    daemon_remove(&d);
}
END_TEST

/* The center is then of the generation that workers are told. */
START_TEST(what_is_set_before_a_worker_comes_is_what_it_finds)
{
    struct daemon d;
    struct crew_worker crew[WORKERS];
    start(&d, "method: eamsgd\n");
    ask(&d, "method async-sgd learning_rate=1", 0, "set: method async-sgd, generation 1");
    start_crew(&d, crew);
    assert_go_on(&d, crew, "what was set before");
    stop_all(crew);
    assert_sum(&d, crew);
    daemon_remove(&d);
}
END_TEST

/* What /metrics says of the rule; -1: it has no line. */
static double applied(const struct daemon *d, const char *rule)
{
    char sample[80];
    snprintf(sample, sizeof sample, "\npsd_updates_applied_total{rule=\"%s\"} ", rule);
    char *text = daemon_ask(d, "GET", "/metrics");
    ck_assert_ptr_nonnull(text);
    const char *at = strstr(text, sample);
    double n = at != NULL ? strtod(at + strlen(sample), NULL) : -1;
    free(text);
    return n;
}

/* A counter never falls: updates of another rule are not the present one's. A restart begins with 0. */
START_TEST(applied_updates_stay_with_their_rule)
{
    struct daemon d;
    struct crew_worker crew[WORKERS];
    start(&d, "method: async-sgd\nparameters: {learning_rate: 1}\n");
    start_crew(&d, crew);
    ask(&d, "method downpour learning_rate=1 period=2", 0, "set: method downpour");
    double sgd = applied(&d, "sgd");
    ck_assert_double_ge(sgd, 2 * WORKERS);
    assert_go_on(&d, crew, "downpour");
    ck_assert_double_eq(applied(&d, "sgd"), sgd);
    ask(&d, "method async-sgd learning_rate=1 period=preset", 0, "set: method async-sgd");
    double add = applied(&d, "add");
    ck_assert_double_gt(add, 0);
    assert_go_on(&d, crew, "async-sgd again");
    stop_all(crew);
    ck_assert_double_gt(applied(&d, "sgd"), sgd);
    ck_assert_double_eq(applied(&d, "add"), add);
    ck_assert_double_eq(applied(&d, "elastic"), -1);
    ck_assert_double_eq(applied(&d, "sgd") + add, daemon_number(&d, "/status", "center.updates_applied"));
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, WAIT_S), 0);
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
    ck_assert_double_eq(applied(&d, "sgd"), 0);
    ck_assert_double_eq(applied(&d, "add"), -1);
    daemon_remove(&d);
}
END_TEST

static void start_servers(struct servers *t, int n, const char *const *with)
{
    ck_assert_int_eq(servers_prepare(t, n, NULL, with), 0);
    ck_assert_int_eq(servers_start(t), 0);
    ck_assert(daemon_will_log(&t->d[0], "server.complete", WAIT_S));
}

static const char *const of_servers[] = {"method=async-sgd",
                                         "learning_rate=1",
                                         "lanes=2",
                                         "chunk_floats=2048",
                                         "parameters.schedule.warmup_steps=0",
                                         "checkpoint.every_s=1",
                                         "limits.silence_s=300",
                                         NULL};

/* Of every server: the same generation, method and keys. */
static void assert_alike(const struct servers *t)
{
    char method[64], other[64];
    double period = daemon_number(&t->d[0], "/config", "parameters.period");
    ck_assert(daemon_text(&t->d[0], "/config", "method", method, sizeof method));
    for (int i = 1; i < t->n; i++) {
        ck_assert(daemon_reaches(&t->d[i], "/status", "generation",
                                 daemon_number(&t->d[0], "/status", "generation"), WAIT_S));
        ck_assert(daemon_text(&t->d[i], "/config", "method", other, sizeof other));
        ck_assert_str_eq(method, other);
        ck_assert_double_eq(daemon_number(&t->d[i], "/config", "parameters.period"), period);
    }
}

/* Rates, periods and methods, at full speed: what has begun at one server is finished at all of them. */
START_TEST(no_update_is_lost_by_what_is_set_at_several_servers)
{
    struct servers t;
    struct crew_worker crew[WORKERS];
    start_servers(&t, _i, of_servers);
    start_crew(&t.d[0], crew);
    for (size_t i = 0; i < 4 * ROWS(exact); i++) {
        ask(&t.d[0], exact[i % ROWS(exact)], 0, ": method ");
        assert_go_on(&t.d[0], crew, exact[i % ROWS(exact)]);
    }
    assert_alike(&t);
    stop_all(crew);
    assert_sum(&t.d[0], crew);
    for (int i = 0; i < t.n; i++) {
        double sgd = applied(&t.d[i], "sgd"), add = applied(&t.d[i], "add");
        ck_assert_msg(sgd > 0 && add > 0, "server %d has applied %g and %g", i, sgd, add);
        ck_assert_double_eq(sgd + add, daemon_number(&t.d[i], "/status", "center.updates_applied"));
        ck_assert_uint_eq(daemon_logged(&t.d[i], "ERROR"), 0);
    }
    ck_assert(servers_end(&t, WAIT_S));
    servers_remove(&t);
}
END_TEST

/* Each server's part is on disk. */
static void save_all(const struct servers *t)
{
    ck_assert(daemon_checkpoint(&t->d[0], WAIT_S));
    for (int i = 1; i < t->n; i++)
        ck_assert(daemon_will_log(&t->d[i], "checkpoint.written", WAIT_S));
}

static void wait_for_swap(const struct daemon *d, const char *phase)
{
    char is[32] = "";
    double end = test_now_s() + TEST_HANG_S;
    while (strcmp(is, phase) != 0 && test_now_s() < end) {
        test_nap_s(0.005);
        ck_assert(daemon_text(d, "/status", "reload.swap", is, sizeof is));
    }
    if (strcmp(is, phase) != 0)
        daemon_show_log(d);
    ck_assert_str_eq(is, phase);
}

static void post(const struct daemon *d, const char *path, const char *says)
{
    char *answer = daemon_ask(d, "POST", path);
    ck_assert_ptr_nonnull(answer);
    assert_says(answer, says);
    free(answer);
}

static float message[FLOATS], answer[FLOATS];

/* Chunk k of the lane, of the hand's exchange: how it is answered. */
static int send_chunk(struct hand *h, uint32_t lane, uint32_t k)
{
    struct ps_frame f = hand_frame(h, PS_FRAME_EXCHANGE, lane, k);
    hand_send(h, lane, &f, message + f.begin, f.count * sizeof *message);
    return hand_answer(h, lane, &f, answer, TEST_HANG_S);
}

/* Until it is taken: refused while the servers do not know of each other's. */
static void send_until_taken(struct hand *h, uint32_t lane, uint32_t k)
{
    double end = test_now_s() + TEST_HANG_S;
    int code;
    while ((code = send_chunk(h, lane, k)) == PS__CODE__GENERATION && test_now_s() < end)
        test_nap_s(0.005);
    ck_assert_msg(code == 0, "%d: %s", code, h->sentence);
}

/* No chunk begins there: before the lane closes it is refused for its range instead. */
static void await_closed(struct hand *idle, uint32_t lane)
{
    double end = test_now_s() + TEST_HANG_S;
    int code = 0;
    while (code != PS__CODE__GENERATION && test_now_s() < end) {
        struct ps_frame f = hand_frame(idle, PS_FRAME_EXCHANGE, lane, 0);
        f.begin++;
        hand_send(idle, lane, &f, message, f.count * sizeof *message);
        code = hand_answer(idle, lane, &f, answer, TEST_HANG_S);
        ck_assert_msg(code == PS__CODE__RANGE || code == PS__CODE__GENERATION, "%d: %s", code,
                      idle->sentence);
    }
    ck_assert_int_eq(code, PS__CODE__GENERATION);
}

/* Two clients: one has begun an exchange, in one chunk at the head; the other has not. Then a method is set,
 * for which all lanes close. */
static void begin_and_close(struct servers *t, struct hand *begun, struct hand *idle)
{
    ck_assert_int_eq(hand_join(begun, t->d[0].endpoint, FLOATS), 0);
    ck_assert_int_eq(hand_join(idle, t->d[0].endpoint, FLOATS), 0);
    save_all(t);
    begun->seq++;
    idle->seq++;
    ck_assert_int_eq(send_chunk(begun, 0, 0), 0);
    post(&t->d[0], "/set?lines=method%3Ddownpour%0Alearning_rate%3D1", "started");
    wait_for_swap(&t->d[0], "closing");
    for (uint32_t lane = 0; lane < idle->n_lanes; lane++)
        await_closed(idle, lane);
}

START_TEST(what_has_begun_at_one_server_is_finished_at_all)
{
    struct servers t;
    struct hand begun, idle;
    start_servers(&t, 2, of_servers);
    for (uint64_t i = 0; i < FLOATS; i++)
        message[i] = 1;
    begin_and_close(&t, &begun, &idle);
    for (uint32_t lane = 0; lane < begun.n_lanes; lane++) {
        ck_assert_int_eq(send_chunk(&idle, lane, 0), PS__CODE__GENERATION);
        for (uint32_t k = 0; k < ps_shard_n_chunks(&begun.shard, lane); k++)
            if (lane > 0 || k > 0)
                send_until_taken(&begun, lane, k);
    }
    ck_assert(daemon_reaches(&t.d[0], "/status", "generation", 1, WAIT_S));
    assert_alike(&t);
    float *center = stepper_center(&t.d[0], FLOATS);
    for (uint64_t i = 0; i < FLOATS; i++)
        ck_assert_msg((double)center[i] == -1, "value %lu is %f", (unsigned long)i, (double)center[i]);
    free(center);
    hand_close(&begun);
    hand_close(&idle);
    ck_assert(servers_end(&t, WAIT_S));
    servers_remove(&t);
}
END_TEST

static void restart(struct servers *t, int i)
{
    daemon_stop(&t->d[i], SIGKILL, WAIT_S);
    ck_assert_int_eq(daemon_start(&t->d[i], "--resume"), 0);
}

/* As the head sees them. */
static void wait_until_all_are_here(const struct servers *t)
{
    double end = test_now_s() + TEST_HANG_S;
    for (int i = 1; i < t->n; i++) {
        char path[60], state[32] = "";
        snprintf(path, sizeof path, "servers.list.%d.state", i);
        while (strcmp(state, "here") != 0 && test_now_s() < end) {
            test_nap_s(0.005);
            daemon_text(&t->d[0], "/status", path, state,
                        sizeof state); /* a head that begins anew has none */
        }
        ck_assert_str_eq(state, "here");
    }
}

/* A new crew at all servers, and one more change. */
static void go_on(struct servers *t)
{
    struct crew_worker crew[WORKERS];
    wait_until_all_are_here(t);
    start_crew(&t->d[0], crew);
    ask(&t->d[0], "set codec.message=bf16", 0, "set: method ");
    assert_go_on(&t->d[0], crew, "what was lost");
    assert_alike(t);
    stop_all(crew);
    ck_assert(servers_end(t, WAIT_S));
    servers_remove(t);
}

/* It cannot try what is set: nothing of both requests is set. A request that is not valid changes nothing of
 * this. */
START_TEST(a_server_lost_while_it_is_asked_has_it_refused)
{
    struct servers t;
    start_servers(&t, 2, of_servers);
    pause_child(t.d[1].pid);
    post(&t.d[0], "/set?lines=method%3Ddownpour", "\"request\": 1");
    post(&t.d[0], "/set?lines=period%3D3", "\"request\": 2");
    wait_for_swap(&t.d[0], "asking");
    restart(&t, 1);
    wait_for_swap(&t.d[0], "done");
    post(&t.d[0], "/set?lines=period%3Dnan", "found nan");
    ck_assert_double_eq(daemon_number(&t.d[0], "/status", "reload.refusal.first"), 1);
    ck_assert_double_eq(daemon_number(&t.d[0], "/status", "reload.refusal.last"), 2);
    ck_assert_uint_gt(daemon_logged(&t.d[0], "was lost during the change of the configuration"), 0);
    ck_assert_double_eq(daemon_number(&t.d[0], "/status", "generation"), 0);
    go_on(&t);
}
END_TEST

/* Lanes of the others open again, and what has begun goes on. */
START_TEST(a_server_lost_while_lanes_close_has_it_dropped)
{
    struct servers t;
    struct hand begun, idle;
    start_servers(&t, 2, of_servers);
    begin_and_close(&t, &begun, &idle);
    restart(&t, 1);
    wait_for_swap(&t.d[0], "done");
    ck_assert_uint_gt(daemon_logged(&t.d[0], "was lost during the change of the configuration"), 0);
    ck_assert_double_eq(daemon_number(&t.d[0], "/status", "generation"), 0);
    ck_assert_int_eq(send_chunk(&idle, 0, 0), 0);
    ck_assert_int_eq(send_chunk(&begun, 0, 1), 0);
    hand_leave(&idle);
    hand_leave(&begun);
    ck_assert(daemon_workers_become(&t.d[0], 0));
    hand_close(&begun);
    hand_close(&idle);
    go_on(&t);
}
END_TEST

/* The change is made without it, and it takes it from the head when it is back. */
START_TEST(a_server_lost_while_lanes_let_go_takes_it_later)
{
    struct servers t;
    struct hand begun, idle;
    char path[60];
    start_servers(&t, 2, of_servers);
    begin_and_close(&t, &begun, &idle);
    send_until_taken(&begun, begun.n_lanes - 1, 0);
    pause_child(t.d[1].pid);
    snprintf(path, sizeof path, "/evict?rank=%u", begun.client);
    post(&t.d[0], path, "evicted");
    wait_for_swap(&t.d[0], "changing");
    restart(&t, 1);
    ck_assert(daemon_reaches(&t.d[0], "/status", "generation", 1, WAIT_S));
    ck_assert(daemon_will_log(&t.d[1], "server.settings", WAIT_S));
    ck_assert(daemon_will_log(&t.d[0], "is back at version", WAIT_S));
    assert_alike(&t);
    hand_leave(&idle);
    ck_assert(daemon_workers_become(&t.d[0], 0));
    hand_close(&begun);
    hand_close(&idle);
    go_on(&t);
}
END_TEST

/* Its own options say what no other's do, and another method uses it. */
START_TEST(what_one_server_cannot_is_refused_with_its_sentence)
{
    struct servers t;
    int k = 0;
    ck_assert_int_eq(servers_prepare(&t, 2, NULL, of_servers), 0);
    while (t.settings[1][k] != NULL)
        k++;
    t.settings[1][k] = "period=1";
    t.settings[1][k + 1] = NULL;
    ck_assert_int_eq(servers_start(&t), 0);
    ck_assert(daemon_will_log(&t.d[0], "server.complete", WAIT_S));
    ask(&t.d[0], "method diloco", 1, "parameters.period: found 1; the head has 50");
    ask(&t.d[0], "method diloco", 1, "nothing has changed: server 1 (");
    ask(&t.d[1], "method downpour", 1, "this is server 1 of 2: ask server 0");
    ck_assert_double_eq(daemon_number(&t.d[0], "/status", "generation"), 0);
    ask(&t.d[0], "set checkpoint.keep=5", 0, "set: method async-sgd, generation 0");
    for (int i = 0; i < 2; i++)
        ck_assert_double_eq(daemon_number(&t.d[i], "/config", "checkpoint.keep"), 5);
    go_on(&t);
}
END_TEST

/* By the head alone, by another alone, by all; and nothing is set where a server is missing. */
START_TEST(several_servers_keep_what_is_set)
{
    struct servers t;
    start_servers(&t, 2, of_servers);
    ask(&t.d[0], "method downpour period=3", 0, "set: method downpour, generation 1");
    for (int i = 0; i < 2; i++) {
        restart(&t, i);
        if (i > 0) /* until the head has seen that it is another process, it looks as if it were here */
            ck_assert(daemon_will_log(&t.d[0], "server.lost", WAIT_S));
        wait_until_all_are_here(&t);
        assert_alike(&t);
        ck_assert_double_eq(daemon_number(&t.d[i], "/config", "parameters.period"), 3);
    }
    ask(&t.d[0], "set period=5", 0, "set: method downpour");
    ck_assert(servers_end(&t, WAIT_S));
    ck_assert_int_eq(daemon_start(&t.d[0], "--resume"), 0);
    ask(&t.d[0], "set period=6", 1, "server 1 of 2 is not connected");
    ck_assert_int_eq(daemon_start(&t.d[1], "--resume"), 0);
    wait_until_all_are_here(&t);
    assert_alike(&t);
    ck_assert_double_eq(daemon_number(&t.d[1], "/config", "parameters.period"), 5);
    go_on(&t);
}
END_TEST

/* Under rounds all of them go back to the checkpoint that they have in common, and keep what is set. */
START_TEST(what_is_set_stays_when_all_servers_go_back)
{
    struct servers t;
    struct crew_worker crew[WORKERS];
    char method[64];
    start_servers(&t, 2, of_servers);
    start_crew(&t.d[0], crew);
    ask(&t.d[0], "method sync-sgd learning_rate=0.01", 0, "set: method sync-sgd, generation 1");
    save_all(&t);
    restart(&t, 1);
    ck_assert(daemon_will_log(&t.d[0], "server.back", WAIT_S));
    wait_until_all_are_here(&t);
    assert_go_on(&t.d[0], crew, "a return to the checkpoint");
    ck_assert(daemon_text(&t.d[0], "/config", "method", method, sizeof method));
    ck_assert_str_eq(method, "sync-sgd");
    assert_alike(&t);
    ask(&t.d[0], "unset all", 0, "unset: method async-sgd, generation 2");
    assert_go_on(&t.d[0], crew, "unset all");
    stop_all(crew);
    ck_assert(servers_end(&t, WAIT_S));
    servers_remove(&t);
}
END_TEST

/* Its file says another method when it is resumed: workers that lived on take it, as they do with one psd. */
START_TEST(workers_take_the_method_that_several_servers_come_back_with)
{
    struct servers t;
    struct crew_worker crew[WORKERS];
    ck_assert_int_eq(servers_prepare(&t, 2, NULL, of_servers + 2), 0);
    for (int i = 0; i < 2; i++)
        ck_assert(daemon_write_config(&t.d[i], "method: async-sgd\nparameters: {learning_rate: 0.01}\n"));
    ck_assert_int_eq(servers_start(&t), 0);
    start_crew(&t.d[0], crew);
    save_all(&t);
    servers_kill(&t);
    for (int i = 0; i < 2; i++) {
        ck_assert(
            daemon_write_config(&t.d[i], "method: downpour\nparameters: {learning_rate: 0.01, period: 3}\n"));
        ck_assert_int_eq(daemon_start(&t.d[i], "--resume"), 0);
    }
    assert_go_on(&t.d[0], crew, "downpour");
    ck_assert_double_eq(daemon_number(&t.d[0], "/status", "generation"), 1);
    assert_alike(&t);
    stop_all(crew);
    ck_assert(servers_end(&t, WAIT_S));
    servers_remove(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("system-set");
    TCase *c = tcase_create("set");
    tcase_set_timeout(c, test_slow_s(500));
    tcase_add_test(c, what_is_set_stands_above_the_file_and_outlives_psd);
    tcase_add_test(c, a_new_job_begins_as_its_file_says);
    tcase_add_test(c, a_resume_that_contradicts_itself_says_what_to_do);
    tcase_add_test(c, a_method_by_name_is_that_method_or_refused);
    tcase_add_test(c, what_is_refused_is_refused_by_name_and_changes_nothing);
    tcase_add_test(c, no_update_is_lost_by_what_is_set);
    tcase_add_test(c, what_is_set_before_a_worker_comes_is_what_it_finds);
    tcase_add_test(c, applied_updates_stay_with_their_rule);
    suite_add_tcase(suite, c);
    c = tcase_create("servers");
    tcase_set_timeout(c, test_slow_s(500));
    tcase_add_loop_test(c, no_update_is_lost_by_what_is_set_at_several_servers, 2, 4);
    tcase_add_test(c, what_has_begun_at_one_server_is_finished_at_all);
    tcase_add_test(c, a_server_lost_while_it_is_asked_has_it_refused);
    tcase_add_test(c, a_server_lost_while_lanes_close_has_it_dropped);
    tcase_add_test(c, a_server_lost_while_lanes_let_go_takes_it_later);
    tcase_add_test(c, what_one_server_cannot_is_refused_with_its_sentence);
    tcase_add_test(c, several_servers_keep_what_is_set);
    tcase_add_test(c, what_is_set_stays_when_all_servers_go_back);
    tcase_add_test(c, workers_take_the_method_that_several_servers_come_back_with);
    suite_add_tcase(suite, c);
    return unit_run(suite);
}
