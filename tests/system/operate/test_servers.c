/* Several servers of one job: the center is the one that a single server makes, bit for bit; one of them, or
 * the head, may be killed and started again while workers go on; parts are merged into one checkpoint. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/system/exchange_workers.h"
#include "tests/support/system/proxy.h"
#include "tests/support/system/raw_client.h"
#include "tests/support/system/servers.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"
#include "tests/system/step_workers.h"

enum {
    ENDLESS = 1000000000,
    FLOATS = 50021,
    MOST = 3,
    WORKERS = 2,
    STEPS = 60,
    MOST_SETTINGS = 16,
    WAIT_S = 60,
    UNSAVED = 7 /* psd's exit code */
};

static void start(struct servers *t, int n, const char *const *settings)
{
    ck_assert_int_eq(servers_prepare(t, n, NULL, settings), 0);
    ck_assert_int_eq(servers_start(t), 0);
}

static void assert_road(const struct daemon *head, const char *road)
{
    char text[32] = "";
    double sent = daemon_number(head, "/workers", "workers.0.sent_bytes");
    ck_assert(daemon_text(head, "/workers", "workers.0.road", text, sizeof text));
    ck_assert_str_eq(text, road);
    ck_assert_msg(sent >= FLOATS * sizeof(float), "%.0f bytes of %d floats' parts", sent, FLOATS);
}

/* The head ends the job, and with it the others. */
static void end(struct servers *t)
{
    ck_assert(servers_end(t, WAIT_S));
}

static void start_workers(const struct daemon *d, struct stepper *w, uint64_t steps, uint32_t nap_us,
                          bool steady)
{
    for (int i = 0; i < WORKERS; i++) {
        struct stepper_task task = {.server = d->endpoint,
                                    .rank = i,
                                    .floats = FLOATS,
                                    .steps = steps,
                                    .samples = 1 + (size_t)i,
                                    .nap_us = nap_us,
                                    .steady = steady};
        stepper_start(&w[i], &task);
    }
}

static void finish_workers(struct stepper *w)
{
    for (int i = 0; i < WORKERS; i++) {
        ck_assert_msg(stepper_finish(&w[i], WAIT_S), "rank %d hangs", i);
        ck_assert_msg(w[i].page->rc == PSC_OK, "rank %d: %s (%s)", i, psc_result_name(w[i].page->rc),
                      w[i].page->error);
    }
}

static const char *const methods[] = {"method=sync-sgd", "method=sync-easgd", "method=diloco"};

/* The center after STEPS of two workers, of n servers; lanes in all: 6. Of three, over shared memory. */
static float *run_sync(int n, const char *method)
{
    struct servers t;
    struct stepper w[WORKERS];
    char lanes[16];
    const char *road = n < MOST ? "transport=tcp" : "transport=shm";
    snprintf(lanes, sizeof lanes, "lanes=%d", 6 / n);
    const char *const settings[] = {
        method, lanes, "workers=2", "chunk_floats=2048", "checkpoint.every_s=0", road, "period=2", NULL};
    const char *const each_step[] = {method, lanes, "workers=2", "chunk_floats=2048", "checkpoint.every_s=0",
                                     road,   NULL};
    start(&t, n, strcmp(method, methods[0]) == 0 ? each_step : settings);
    start_workers(&t.d[0], w, STEPS, 0, true);
    finish_workers(w);
    float *center = stepper_center(&t.d[0], FLOATS);
    end(&t);
    servers_remove(&t);
    return center;
}

START_TEST(the_center_is_that_of_one_server_bit_for_bit)
{
    float *one = run_sync(1, methods[_i]);
    for (int n = 2; n <= MOST; n++) {
        float *several = run_sync(n, methods[_i]);
        ck_assert_msg(memcmp(one, several, FLOATS * sizeof *one) == 0, "%s: %d servers differ from one",
                      methods[_i], n);
        free(several);
    }
    free(one);
}
END_TEST

/* By it they find the one that all of them have. Lanes go on meanwhile, each server's for itself. */
START_TEST(a_checkpoint_of_a_round_is_of_one_version_at_all_servers)
{
    enum { CHECKPOINTS = 8 };
    const char *const settings[] = {"method=original-easgd", "period=1", "workers=2", "lanes=2",
                                    "checkpoint.every_s=0",  NULL};
    struct servers t;
    struct stepper w[WORKERS];
    start(&t, 2, settings);
    start_workers(&t.d[0], w, ENDLESS, 0, false);
    for (int i = 0; i < WORKERS; i++)
        ck_assert(stepper_reaches(&w[i], 5, WAIT_S));
    for (unsigned k = 1; k <= CHECKPOINTS; k++) {
        double version[2];
        free(daemon_ask(&t.d[0], "POST", "/checkpoint"));
        for (int i = 0; i < 2; i++) {
            double end = test_now_s() + test_slow_s(WAIT_S);
            while (daemon_logged(&t.d[i], "checkpoint.written") < k) {
                ck_assert_msg(test_now_s() < end, "server %d writes no checkpoint", i);
                test_nap_s(0.005);
            }
            version[i] = daemon_number(&t.d[i], "/status", "checkpoint.last_version");
        }
        ck_assert_double_eq(version[1], version[0]);
    }
    for (int i = 0; i < WORKERS; i++)
        stepper_kill(&w[i]);
    servers_kill(&t);
    servers_remove(&t);
}
END_TEST

static const struct {
    const char *method, *workers;
    int victim;
    bool goes_back; /* all servers, to what they have in common */
    const char *road;
} kills[] = {
    {"method=async-sgd", NULL, 1, false, "transport=shm"},
    {"method=async-sgd", NULL, 0, false, "transport=tcp"},
    {"method=sync-sgd", "workers=2", 1, true, "transport=tcp"},
    {"method=sync-sgd", "workers=2", 0, true, "transport=shm"},
    {"method=ssp-sgd", "workers=2", 1, true, "transport=tcp"},
    {"method=original-easgd", "workers=2", 1, true, "transport=tcp"},
    {"method=original-easgd", "workers=2", 0, true, "transport=shm"},
    {"method=quorum-sgd", "workers=2", 1, true, "transport=shm"},
};

/* quorum has no preset of its own. */
static void settings_of(int i, const char **settings)
{
    int k = 0;
    if (strcmp(kills[i].method, "method=quorum-sgd") == 0) {
        settings[k++] = "rule=sgd";
        settings[k++] = "admission=quorum";
        settings[k++] = "optimizer=none";
        settings[k++] = "averaging=none";
        settings[k++] = "parameters.quorum=1";
    } else {
        settings[k++] = kills[i].method;
    }
    if (kills[i].workers != NULL)
        settings[k++] = kills[i].workers;
    settings[k++] = kills[i].road;
    settings[k++] = "lanes=2";
    settings[k++] = "chunk_floats=2048";
    settings[k++] = "learning_rate=0.01";
    settings[k++] = "checkpoint.every_s=1";
    settings[k] = NULL;
}

static void wait_for_checkpoint(const struct servers *t)
{
    for (int i = 0; i < t->n; i++)
        ck_assert_msg(daemon_reaches(&t->d[i], "/status", "checkpoint.last_version", 1, WAIT_S),
                      "server %d has saved nothing", i);
}

static void go_on(const struct stepper *w, uint64_t steps)
{
    uint64_t want[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        want[i] = w[i].page->steps + steps;
    for (int i = 0; i < WORKERS; i++)
        ck_assert_msg(stepper_reaches(&w[i], want[i], WAIT_S), "rank %d: %s, %s", i,
                      psc_result_name(w[i].page->rc), w[i].page->error);
}

START_TEST(a_server_that_is_killed_comes_back_and_the_run_finishes)
{
    struct servers t;
    struct stepper w[WORKERS];
    const char *settings[MOST_SETTINGS];
    int victim = kills[_i].victim;
    settings_of(_i, settings);
    start(&t, 2, settings);
    start_workers(&t.d[0], w, ENDLESS, 4000, false);
    wait_for_checkpoint(&t);
    go_on(w, 50);
    assert_road(&t.d[0], strchr(kills[_i].road, '=') + 1);
    daemon_stop(&t.d[victim], SIGKILL, WAIT_S);
    ck_assert_int_eq(daemon_start(&t.d[victim], "--resume"), 0);
    go_on(w, 50);
    assert_road(&t.d[0], strchr(kills[_i].road, '=') + 1);
    uint64_t last = w[0].page->steps + 50;
    for (int i = 0; i < WORKERS; i++)
        stepper_end_at(&w[i], last);
    finish_workers(w);
    ck_assert_double_eq(daemon_number(&t.d[0], "/status", "servers.list.1.lost"),
                        victim == 1 && !kills[_i].goes_back);
    ck_assert_uint_eq(daemon_logged(&t.d[0], "server.back"), kills[_i].goes_back);
    end(&t);
    servers_remove(&t);
}
END_TEST

/* Whole numbers: each exchange of the crew lands once in every part. */
START_TEST(parts_merge_into_one_checkpoint_that_one_psd_goes_on_from)
{
    static const char *const settings[] = {"method=async-sgd",
                                           "learning_rate=1",
                                           "parameters.schedule.warmup_steps=0",
                                           "lanes=2",
                                           "chunk_floats=2048",
                                           "checkpoint.every_s=0",
                                           NULL};
    static const char *const alone[] = {"method=async-sgd", "learning_rate=1",
                                        "parameters.schedule.warmup_steps=0", NULL};
    struct servers t;
    struct crew_worker crew[WORKERS];
    struct daemon one;
    char command[900];
    start(&t, MOST, settings);
    for (int i = 0; i < WORKERS; i++) {
        struct crew_task task = {.server =
                                     t.d[i].endpoint, /* rank 1 comes to another server, and is sent on */
                                 .rank = i,
                                 .floats = FLOATS,
                                 .count = 40,
                                 .heartbeat_ms = 300,
                                 .retry_ms = 500,
                                 .salt = (uint32_t)i};
        crew_start(&crew[i], &task);
    }
    for (int i = 0; i < WORKERS; i++)
        ck_assert_msg(crew_stop(&crew[i], WAIT_S) && crew[i].page->rc == PSC_OK, "rank %d: %s", i,
                      crew[i].page->error);
    end(&t);

    ck_assert_int_eq(daemon_prepare(&one, NULL, alone), 0);
    snprintf(command, sizeof command, "%s merge %s %s %s %s >/dev/null", PSCTL, one.state_dir,
             t.d[2].state_dir, t.d[0].state_dir, t.d[1].state_dir);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(WEXITSTATUS(system(command)), 1); /* it holds a checkpoint now */
    snprintf(command, sizeof command, "%s merge %s/x %s %s 2>&1 | grep -q 'one is needed for each part'",
             PSCTL, one.state_dir, t.d[0].state_dir, t.d[1].state_dir);
    ck_assert_int_eq(system(command), 0);
    ck_assert_int_eq(daemon_start(&one, "--resume"), 0);
    float *center = stepper_center(&one, FLOATS);
    for (uint64_t i = 0; i < FLOATS; i++) {
        double want = 0;
        for (int k = 0; k < WORKERS; k++)
            want -= crew_sum((uint32_t)k, crew[k].page->exchanges, i);
        ck_assert_msg((double)center[i] == want, "value %lu is %.1f, not %.1f", (unsigned long)i,
                      (double)center[i], want);
    }
    free(center);
    ck_assert_int_eq(daemon_stop(&one, SIGTERM, WAIT_S), 0);
    daemon_remove(&one);
    servers_remove(&t);
}
END_TEST

/* Row 0: the head knows that the server is lost; row 1: it finds out while it drains. */
START_TEST(a_job_under_rounds_ends_without_a_server_that_is_lost)
{
    static const char *const settings[] = {"method=sync-sgd",
                                           "workers=2",
                                           "lanes=2",
                                           "chunk_floats=2048",
                                           "checkpoint.every_s=1",
                                           "checkpoint.keep=1",
                                           "limits.silence_s=4",
                                           "limits.drain_s=1",
                                           NULL};
    struct servers t;
    struct stepper w[WORKERS];
    start(&t, 2, settings);
    start_workers(&t.d[0], w, ENDLESS, 4000, false);
    wait_for_checkpoint(&t);
    daemon_stop(&t.d[1], SIGKILL, WAIT_S);
    if (_i == 0)
        ck_assert(daemon_will_log(&t.d[0], "server.lost", WAIT_S));
    int status = daemon_stop(&t.d[0], SIGTERM, WAIT_S); /* its own part is saved, the other's is not */
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == UNSAVED, "the head ended with %x", status);
    ck_assert_uint_gt(daemon_logged(&t.d[0], "checkpoint.written"), 0);
    for (int i = 0; i < WORKERS; i++)
        ck_assert(stepper_finish(&w[i], WAIT_S));
    for (int i = 0; i < 2; i++) /* what all of them have was not removed */
        ck_assert_int_eq(daemon_start(&t.d[i], "--resume"), 0);
    ck_assert(daemon_reaches(&t.d[0], "/status", "center.version", 1, WAIT_S));
    start_workers(&t.d[0], w, 10, 0, false);
    finish_workers(w);
    end(&t);
    servers_remove(&t);
}
END_TEST

START_TEST(a_signal_to_any_server_ends_the_job_at_all)
{
    static const char *const settings[] = {"method=async-sgd", "checkpoint.every_s=0", NULL};
    struct servers t;
    struct stepper w[WORKERS];
    start(&t, 2, settings);
    start_workers(&t.d[0], w, ENDLESS, 1000, false);
    for (int i = 0; i < WORKERS; i++)
        ck_assert(stepper_reaches(&w[i], 20, WAIT_S));
    ck_assert_int_eq(daemon_stop(&t.d[1], SIGTERM, WAIT_S), 0);
    ck_assert_int_eq(daemon_wait_exit(&t.d[0], WAIT_S), 0);
    for (int i = 0; i < WORKERS; i++) {
        ck_assert(stepper_finish(&w[i], WAIT_S));
        ck_assert_msg(w[i].page->rc == PSC_DRAINED, "rank %d: %s", i, psc_result_name(w[i].page->rc));
    }
    for (int i = 0; i < 2; i++)
        ck_assert_uint_eq(daemon_logged(&t.d[i], "checkpoint.written"), 1);
    servers_remove(&t);
}
END_TEST

static void wait_for_log(const struct daemon *d, const char *says, unsigned times)
{
    double end = test_now_s() + test_slow_s(WAIT_S);
    while (daemon_logged(d, says) < times) {
        ck_assert_msg(test_now_s() < end, "not %u times: %s", times, says);
        test_nap_s(0.005);
    }
}

/* Rows: the server whose disk fails, and whether after the checkpoint of version 0. */
static const struct {
    int failing;
    bool after_first;
} keeps[] = {{0, false}, {1, false}, {1, true}};

/* While a server's disk fails, the others go on writing and deleting, but not what it still has. */
START_TEST(servers_keep_a_checkpoint_that_all_of_them_have)
{
    enum { KEEP = 2 };
    const char *const settings[] = {
        "method=sync-sgd", "workers=2", "checkpoint.keep=2",
        keeps[_i].after_first ? "checkpoint.every_s=3600" : "checkpoint.every_s=0", NULL};
    struct servers t;
    struct stepper w[WORKERS];
    char own[200], away[220];
    int failing = keeps[_i].failing, well = 1 - failing;
    start(&t, 2, settings);
    start_workers(&t.d[0], w, ENDLESS, 0, false);
    for (int i = 0; i < WORKERS; i++)
        ck_assert(stepper_reaches(&w[i], 5, WAIT_S));
    if (!keeps[_i].after_first)
        free(daemon_ask(&t.d[0], "POST", "/checkpoint"));
    for (int i = 0; i < 2; i++)
        wait_for_log(&t.d[i], "checkpoint.written", 1);
    snprintf(own, sizeof own, "%s/checkpoints", t.d[failing].state_dir);
    snprintf(away, sizeof away, "%s.away", own);
    ck_assert(rename(own, away) == 0 && mknod(own, S_IFREG | 0600, 0) == 0);
    for (unsigned i = 1; i <= KEEP + 1; i++) {
        free(daemon_ask(&t.d[0], "POST", "/checkpoint"));
        wait_for_log(&t.d[well], "checkpoint.written", 1 + i);
        wait_for_log(&t.d[failing], "checkpoint.failed", i);
    }
    servers_kill(&t);
    for (int i = 0; i < WORKERS; i++)
        stepper_kill(&w[i]);
    ck_assert(unlink(own) == 0 && rename(away, own) == 0);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(daemon_start(&t.d[i], "--resume"), 0);
    ck_assert(keeps[_i].after_first || daemon_reaches(&t.d[0], "/status", "center.version", 1, WAIT_S));
    start_workers(&t.d[0], w, 10, 0, false);
    finish_workers(w);
    end(&t);
    servers_remove(&t);
}
END_TEST

/* Before, each server's checkpoints are of its own version. */
START_TEST(a_change_to_rounds_has_a_checkpoint_at_once)
{
    static const char *const settings[] = {"method=async-sgd", "checkpoint.every_s=3600", NULL};
    struct servers t;
    struct stepper w[WORKERS];
    start(&t, 2, settings);
    start_workers(&t.d[0], w, ENDLESS, 0, false);
    for (int i = 0; i < WORKERS; i++)
        ck_assert(stepper_reaches(&w[i], 50, WAIT_S));
    for (int i = 0; i < 2; i++)
        wait_for_log(&t.d[i], "checkpoint.written", 1);
    double least = daemon_number(&t.d[0], "/status", "center.version");
    free(daemon_ask(&t.d[0], "POST", "/set?lines=admission%3Dsync"));
    for (int i = 0; i < 2; i++)
        wait_for_log(&t.d[i], "checkpoint.written", 2);
    servers_kill(&t);
    for (int i = 0; i < WORKERS; i++)
        stepper_kill(&w[i]);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(daemon_start(&t.d[i], "--resume"), 0);
    ck_assert(daemon_reaches(&t.d[0], "/status", "center.resumed_version", least, WAIT_S));
    start_workers(&t.d[0], w, 10, 0, false);
    finish_workers(w);
    end(&t);
    servers_remove(&t);
}
END_TEST

/* A lane at each of them, as where a machine has few processors. */
START_TEST(workers_go_on_through_a_change_of_the_method_at_servers_of_one_lane)
{
    static const char *const settings[] = {"method=async-sgd", "lanes=1", NULL};
    struct servers t;
    struct stepper w[WORKERS];
    start(&t, 2, settings);
    start_workers(&t.d[0], w, ENDLESS, 0, false);
    for (int i = 0; i < WORKERS; i++)
        ck_assert(stepper_reaches(&w[i], 20, WAIT_S));
    double generation = daemon_number(&t.d[0], "/status", "generation");
    free(daemon_ask(&t.d[0], "POST", "/set?lines=parameters.learning_rate%3D0.001"));
    ck_assert(daemon_reaches(&t.d[0], "/status", "generation", generation + 1, WAIT_S));
    for (int i = 0; i < WORKERS; i++)
        ck_assert_msg(stepper_reaches(&w[i], w[i].page->steps + 50, WAIT_S), "worker %d has ended", i);
    for (int i = 0; i < WORKERS; i++)
        stepper_kill(&w[i]);
    servers_kill(&t);
    servers_remove(&t);
}
END_TEST

/* Flips a bit of the newest checkpoint's last value; all checkpoints have names of one length. */
static void damage_newest(const struct daemon *d)
{
    char command[400];
    snprintf(command, sizeof command,
             "f=$(ls -t %s/checkpoints/center-* | head -n 1) && truncate -s -1 \"$f\" && printf '\\125' >> "
             "\"$f\"",
             d->state_dir);
    ck_assert_int_eq(system(command), 0);
}

/* Its header is sound, so its server has it as far as the others know. */
START_TEST(servers_go_on_from_the_common_checkpoint_before_a_damaged_one)
{
    static const char *const settings[] = {"method=sync-sgd", "workers=2", "checkpoint.every_s=0", NULL};
    struct servers t;
    struct stepper w[WORKERS];
    start(&t, 2, settings);
    start_workers(&t.d[0], w, ENDLESS, 0, false);
    for (unsigned k = 1; k <= 2; k++) {
        for (int i = 0; i < WORKERS; i++)
            ck_assert(stepper_reaches(&w[i], 10 * k, WAIT_S));
        free(daemon_ask(&t.d[0], "POST", "/checkpoint"));
        for (int i = 0; i < 2; i++)
            wait_for_log(&t.d[i], "checkpoint.written", k);
    }
    servers_kill(&t);
    for (int i = 0; i < WORKERS; i++)
        stepper_kill(&w[i]);
    damage_newest(&t.d[_i]);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(daemon_start(&t.d[i], "--resume"), 0);
    wait_for_log(&t.d[_i], "checkpoint.damaged", 2);
    start_workers(&t.d[0], w, 10, 0, false);
    finish_workers(w);
    end(&t);
    servers_remove(&t);
}
END_TEST

/* As psctl checkpoint is. */
START_TEST(a_signal_for_a_checkpoint_is_the_heads)
{
    static const char *const settings[] = {"method=sync-sgd", "workers=2", "checkpoint.every_s=0", NULL};
    struct servers t;
    struct stepper w[WORKERS];
    start(&t, 2, settings);
    start_workers(&t.d[0], w, ENDLESS, 0, false);
    for (int i = 0; i < WORKERS; i++)
        ck_assert(stepper_reaches(&w[i], 5, WAIT_S));
    ck_assert_int_eq(kill(t.d[1].pid, SIGUSR1), 0);
    ck_assert(daemon_will_log(&t.d[1], "SIGUSR1: this is server 1 of 2: signal server 0", WAIT_S));
    go_on(w, 20);
    ck_assert_int_eq(kill(t.d[0].pid, SIGUSR1), 0);
    for (int i = 0; i < 2; i++)
        ck_assert(daemon_will_log(&t.d[i], "checkpoint.written", WAIT_S));
    end(&t);
    for (int i = 0; i < WORKERS; i++)
        ck_assert(stepper_finish(&w[i], WAIT_S));
    servers_remove(&t);
}
END_TEST

/* Started beside a head of two servers: each ends by itself with that code, and says why. */
static const struct {
    const char *setting; /* of the server that is not as it should be */
    int code;
    const char *says;
    const char *wait; /* servers.wait_s of it, where the head cannot be found */
} misfits[] = {
    {"learning_rate=0.5", 2, "parameters.learning_rate: found 0.5; the head has 0.1"},
    {"lanes=3", 2, "3 lanes over tcp; the head has 2"},
    {"servers.count=3", 2, "servers.count: found 3; the head has 2"},
    {"servers.index=2", 2, "servers.index: found 2; with servers.count 2 allowed is 0 to 1"},
    {"servers.head='@/tmp/no/such/endpoint'", 6, "/tmp/no/such/endpoint", "servers.wait_s=1"},
    {"servers.head=none", 2, "servers.head: found none; allowed is the URL of server 0"},
    {"method=hogwild-sgd", 2, "races over the whole center in one process"},
};

/* Two servers; what the other and the head say to each other goes through the proxy. */
static void start_far_from_the_head(struct servers *t, struct proxy *proxy)
{
    char url[100], path[100];
    FILE *file;
    ck_assert_int_eq(daemon_start(&t->d[0], NULL), 0);
    ck_assert(daemon_text(&t->d[0], "/status", "listen", url, sizeof url));
    uint16_t port = proxy_port(url);
    ck_assert_int_eq(proxy_start(proxy, &port, 1), 0);
    snprintf(path, sizeof path, "%s/far", t->d[1].dir);
    ck_assert_ptr_nonnull(file = fopen(path, "w"));
    fprintf(file, "tcp://127.0.0.2:%u\n", port);
    fclose(file);
    snprintf(t->own[1][2], sizeof t->own[1][2], "servers.head='@%s'", path);
    ck_assert_int_eq(daemon_start(&t->d[1], NULL), 0);
}

/* The head may hear of the end from the worker before it hears from the other server that all is there. */
START_TEST(a_first_worker_that_leaves_at_once_leaves_its_center)
{
    static const char *const settings[] = {"listen=tcp://127.0.0.1:0", /* as the proxy has it */
                                           "method=async-sgd",         "lanes=1", "chunk_floats=2048",
                                           "checkpoint.every_s=0",     NULL};
    struct servers t;
    struct stepper w;
    struct proxy proxy;
    ck_assert_int_eq(servers_prepare(&t, 2, NULL, settings), 0);
    start_far_from_the_head(&t, &proxy);
    proxy_slow(&proxy, 30);
    stepper_start(&w, &(struct stepper_task){.server = t.d[0].endpoint, .floats = FLOATS, .samples = 1});
    ck_assert(stepper_finish(&w, WAIT_S));
    ck_assert_msg(w.page->rc == PSC_OK, "%s (%s)", psc_result_name(w.page->rc), w.page->error);
    float *center = stepper_center(&t.d[0], FLOATS), *first = calloc(FLOATS, sizeof *first);
    stepper_first_point(first, FLOATS);
    ck_assert_mem_eq(center, first, FLOATS * sizeof *first);
    free(center);
    free(first);
    end(&t);
    proxy_stop(&proxy);
    servers_remove(&t);
}
END_TEST

START_TEST(a_server_that_does_not_fit_is_refused_by_name)
{
    static const char *const settings[] = {"method=async-sgd", "learning_rate=0.1", "lanes=2",
                                           "servers.wait_s=600", NULL};
    struct servers t;
    int k = 0;
    ck_assert_int_eq(servers_prepare(&t, 2, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&t.d[0], NULL), 0);
    while (t.settings[1][k] != NULL)
        k++;
    t.settings[1][k] = misfits[_i].setting;
    t.settings[1][k + 1] = misfits[_i].wait;
    t.settings[1][k + 2] = NULL;
    ck_assert_int_eq(daemon_run(&t.d[1], NULL, WAIT_S), misfits[_i].code);
    ck_assert_uint_gt(daemon_logged(&t.d[1], misfits[_i].says), 0);
    ck_assert_uint_eq(daemon_logged(&t.d[0], "server.complete"), 0); /* it is no server of the job */
    servers_remove(&t);
}
END_TEST

/* Servers share their configuration, and with it the endpoint file, by which the others find the head. */
START_TEST(the_heads_endpoint_file_is_the_heads)
{
    static const char *const settings[] = {"method=async-sgd", "servers.wait_s=600", NULL};
    struct servers t;
    char url[100], found[100] = "";
    ck_assert_int_eq(servers_prepare(&t, 2, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&t.d[0], NULL), 0);
    ck_assert(daemon_text(&t.d[0], "/status", "listen", url, sizeof url));
    snprintf(t.d[1].endpoint, sizeof t.d[1].endpoint, _i == 0 ? "@%s/endpoint" : "@%s/./endpoint",
             t.d[0].dir);
    daemon_spawn(&t.d[1], NULL);
    ck_assert(daemon_will_log(&t.d[0], "server.complete", WAIT_S));
    FILE *file = fopen(t.d[0].endpoint + 1, "re");
    ck_assert(file != NULL && fgets(found, sizeof found, file) != NULL);
    fclose(file);
    found[strcspn(found, "\n")] = 0;
    ck_assert_str_eq(found, url);
    end(&t);
    servers_remove(&t);
}
END_TEST

START_TEST(a_head_waits_for_others_as_long_as_it_says)
{
    static const char *const settings[] = {"method=async-sgd", "servers.wait_s=1", NULL};
    struct servers t;
    ck_assert_int_eq(servers_prepare(&t, 2, NULL, settings), 0);
    ck_assert_int_eq(daemon_run(&t.d[0], NULL, WAIT_S), 6);
    ck_assert_uint_gt(daemon_logged(&t.d[0], "have not registered within 1 s (servers.wait_s): 1"), 0);
    servers_remove(&t);
}
END_TEST

/* It says so once, and waits. */
START_TEST(a_hello_that_comes_early_is_answered_when_all_servers_are_here)
{
    static const char *const settings[] = {"method=async-sgd", "learning_rate=0.1", NULL};
    struct servers t;
    struct hand early[3], late;
    ck_assert_int_eq(servers_prepare(&t, 2, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&t.d[0], NULL), 0);
    Ps__Hello hello = PS__HELLO__INIT;
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.any_rank = true;
    for (uint64_t i = 0; i < 3; i++) {
        hello.token = i < 2 ? 7 : 8; /* the first has gone, and comes again on another connection */
        hand_open(&early[i], t.d[0].endpoint);
        hand_tell(&early[i], PS__TO_SERVER__WHAT_HELLO, &hello);
        if (i == 0) {
            ck_assert_ptr_null(hand_hear(&early[0], 0.2));
            hand_close(&early[0]);
        }
    }
    ck_assert_ptr_null(hand_hear(&early[2], 0.2));
    ck_assert_int_eq(daemon_start(&t.d[1], NULL), 0);
    for (int i = 1; i < 3; i++) {
        Ps__ToClient *m = hand_hear(&early[i], WAIT_S);
        ck_assert_ptr_nonnull(m);
        ck_assert_int_eq(m->what_case, PS__TO_CLIENT__WHAT_WELCOME);
        ps_control_free_to_client(m);
    }
    hello.token = 9;
    hand_open(&late, t.d[0].endpoint);
    ck_assert_int_eq(hand_hello(&late, &hello), 0);
    ck_assert_uint_eq(late.client, 2);
    hand_close(&late);
    for (int i = 1; i < 3; i++)
        hand_close(&early[i]);
    ck_assert(servers_end(&t, WAIT_S));
    servers_remove(&t);
}
END_TEST

START_TEST(a_place_is_one_servers)
{
    static const char *const settings[] = {"method=async-sgd", NULL};
    struct servers t;
    struct daemon second;
    int k = 0;
    start(&t, 2, settings);
    ck_assert(daemon_will_log(&t.d[0], "server.complete", WAIT_S));
    while (t.settings[1][k] != NULL)
        k++;
    t.settings[1][k] = "servers.wait_s=2";
    t.settings[1][k + 1] = NULL;
    ck_assert_int_eq(daemon_prepare(&second, NULL, t.settings[1]), 0);
    ck_assert_int_eq(daemon_run(&second, NULL, WAIT_S), 6);
    ck_assert_uint_gt(daemon_logged(&t.d[0], "server.taken"), 0);
    ck_assert_uint_eq(daemon_logged(&t.d[0], "server.lost"), 0);
    end(&t);
    daemon_remove(&second);
    servers_remove(&t);
}
END_TEST

START_TEST(the_method_stays_and_a_tiny_model_is_refused)
{
    static const char *const settings[] = {"method=async-sgd", "checkpoint.every_s=0", NULL};
    struct servers t;
    struct stepper w;
    struct stepper_task task = {.floats = 40, .rank = 0, .steps = 10, .samples = 1};
    start(&t, 2, settings);
    task.server = t.d[0].endpoint;
    stepper_start(&w, &task);
    ck_assert(stepper_finish(&w, WAIT_S));
    ck_assert_int_ne(w.page->rc, PSC_OK);
    assert_says(w.page->error, "too small for 2 servers");
    char *answer = daemon_ask(&t.d[1], "POST", "/drain");
    ck_assert_ptr_nonnull(answer);
    assert_says(answer, "ask server 0");
    free(answer);
    end(&t);
    servers_remove(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("system-servers");
    TCase *c = tcase_create("servers");
    tcase_set_timeout(c, test_slow_s(500));
    tcase_add_loop_test(c, the_center_is_that_of_one_server_bit_for_bit, 0, ROWS(methods));
    tcase_add_loop_test(c, a_server_that_is_killed_comes_back_and_the_run_finishes, 0, ROWS(kills));
    tcase_add_test(c, parts_merge_into_one_checkpoint_that_one_psd_goes_on_from);
    tcase_add_test(c, a_signal_to_any_server_ends_the_job_at_all);
    tcase_add_loop_test(c, a_server_that_does_not_fit_is_refused_by_name, 0, ROWS(misfits));
    tcase_add_loop_test(c, the_heads_endpoint_file_is_the_heads, 0, 2);
    tcase_add_test(c, a_head_waits_for_others_as_long_as_it_says);
    tcase_add_test(c, a_hello_that_comes_early_is_answered_when_all_servers_are_here);
    tcase_add_test(c, a_place_is_one_servers);
    tcase_add_test(c, the_method_stays_and_a_tiny_model_is_refused);
    suite_add_tcase(suite, c);
    c = tcase_create("lost");
    tcase_set_timeout(c, test_slow_s(500));
    tcase_add_loop_test(c, a_job_under_rounds_ends_without_a_server_that_is_lost, 0, 2);
    suite_add_tcase(suite, c);
    c = tcase_create("saves");
    tcase_set_timeout(c, test_slow_s(500));
    tcase_add_test(c, a_checkpoint_of_a_round_is_of_one_version_at_all_servers);
    tcase_add_test(c, a_signal_for_a_checkpoint_is_the_heads);
    tcase_add_loop_test(c, servers_keep_a_checkpoint_that_all_of_them_have, 0, ROWS(keeps));
    tcase_add_test(c, a_change_to_rounds_has_a_checkpoint_at_once);
    tcase_add_test(c, workers_go_on_through_a_change_of_the_method_at_servers_of_one_lane);
    tcase_add_loop_test(c, servers_go_on_from_the_common_checkpoint_before_a_damaged_one, 0, 2);
    suite_add_tcase(suite, c);
    c = tcase_create("far");
    tcase_set_timeout(c, test_slow_s(500));
    tcase_add_test(c, a_first_worker_that_leaves_at_once_leaves_its_center);
    suite_add_tcase(suite, c);
    return unit_run(suite);
}
