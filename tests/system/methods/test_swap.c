/* Live swap with real processes: the method of a running job changes again and again under workers at full
 * speed. Gradients are whole numbers, and where rules sgd and add apply them the center is their sum to the
 * last one: it says whether an update was lost or landed twice. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/system/proxy.h"
#include "tests/support/system/raw_client.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"
#include "tests/system/step_workers.h"

enum { FLOATS = 30011, WORKERS = 4, SWAPS = 60, CUT_SWAPS = 50, WAIT_S = 60 }; /* two lanes of four chunks */

#define COMMON                                                                                               \
    "checkpoint.every_s=1", "chunk_floats=4096", "limits.silence_s=300", "parameters.schedule.warmup_steps=0"

/* Each applies a gradient g as center - g, alone or with others'. */
static const char *const exact[] = {
    "method: async-sgd\nparameters: {learning_rate: 1}\n",
    "method: downpour\nparameters: {learning_rate: 1, period: 3}\n",
    "method: sync-sgd\nparameters: {learning_rate: 4}\n", /* the mean of four */
    "method: ssp-sgd\nparameters: {learning_rate: 1, slack: 2}\n",
    "rule: add\nadmission: sync\noptimizer: sgd\naveraging: mean\nmethod: custom\n"
    "parameters: {learning_rate: 1, period: 2, overlap: true}\n",
    "rule: sgd\nadmission: round-robin\noptimizer: none\naveraging: none\nmethod: custom\n"
    "parameters: {learning_rate: 1, serial: true}\n",
    "method: async-sgd\nparameters: {learning_rate: 1, overlap: true}\n",
    "method: downpour\nparameters: {learning_rate: 1, period: 6, fragments: 3, overlap: true}\n",
    "rule: add\nadmission: sync\noptimizer: sgd\naveraging: none\nmethod: custom\n"
    "parameters: {learning_rate: 1, period: 4, fragments: 2}\n",
    /* Small whole numbers are themselves in these codecs, and answers whole numbers. */
    "method: async-sgd\nparameters: {learning_rate: 1, overlap: true}\n"
    "codec: {message: fp16, answer: bf16, error_feedback: true}\n",
    "method: downpour\nparameters: {learning_rate: 1, period: 3, overlap: true}\n"
    "codec: {message: bf16, answer: fp16}\n",
    "method: sync-sgd\nparameters: {learning_rate: 4}\ncodec: {message: trunc16, error_feedback: true}\n",
    /* The last: nobody's is late, but of a worker that stands still for two seconds in the middle of its
     * exchange. One whose connections are cut may. */
    "rule: sgd\nadmission: quorum\noptimizer: none\naveraging: none\nmethod: custom\n"
    "parameters: {learning_rate: 4, quorum: 4}\n",
};

enum { EXACT = sizeof exact / sizeof *exact, WITHOUT_QUORUM = EXACT - 1 };

/* With one lane nobody races. */
static const char *const with_whole_lanes[] = {
    "method: hogwild-sgd\nparameters: {learning_rate: 1}\n",
    "method: downpour\nparameters: {learning_rate: 1, period: 5, overlap: true}\n",
    "rule: add\nadmission: hogwild\noptimizer: sgd\naveraging: none\nmethod: custom\n"
    "parameters: {learning_rate: 1, period: 2}\n",
    "rule: add\nadmission: hogwild\noptimizer: sgd\naveraging: none\nmethod: custom\n"
    "parameters: {learning_rate: 1, period: 4, fragments: 4}\n",
    "method: hogwild-sgd\nparameters: {learning_rate: 1}\n"
    "codec: {message: fp16, answer: trunc16, error_feedback: true}\n",
    "method: sync-sgd\nparameters: {learning_rate: 4}\n",
};

/* All kinds: any to any. */
static const char *const all[] = {
    "method: eamsgd\n",
    "method: sync-sgd\n",
    "method: hogwild-easgd\n",
    "method: downpour\n",
    "method: admm\nworkers: 4\n",
    "method: diloco\nparameters: {period: 5}\n",
    "method: hogwild-sgd\n",
    "method: sync-easgd\nparameters: {overlap: true}\n",
    "method: async-local-sgd\nparameters: {period: 4}\n",
    "method: dc-asgd\nworkers: 4\n",
    "method: original-easgd\n",
    "method: ssp-sgd\n",
    "method: async-msgd\n",
    "method: backup-sgd\n",
    "rule: outer-nesterov\nadmission: quorum\noptimizer: sgd\naveraging: none\nmethod: custom\n"
    "parameters: {period: 3, quorum: 2, grace_ms: 1}\n",
    "method: mvadownpour\n",
    "method: async-measgd\n",
    "rule: adam\noptimizer: none\n",
    "method: eamsgd\ncodec: {message: int8, answer: int8, error_feedback: true}\n",
};

static void start(struct daemon *d, const char *const *settings, const char *config)
{
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    ck_assert(daemon_write_config(d, config));
    ck_assert_int_eq(daemon_start(d, NULL), 0);
}

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

static void assert_go_on(const struct daemon *d, const struct crew_worker *crew, int n, const char *method)
{
    uint64_t want[WORKERS];
    for (int i = 0; i < n; i++)
        want[i] = crew[i].page->exchanges + 12;
    for (int i = 0; i < n; i++)
        if (!crew_reaches(&crew[i], want[i], WAIT_S)) {
            daemon_show_log(d);
            ck_abort_msg("rank %d stands still at %lu: %s (%s), under\n%s", i,
                         (unsigned long)crew[i].page->exchanges, psc_result_name(crew[i].page->rc),
                         crew[i].page->error, method);
        }
}

/* Its answer has to say this. */
static void reload(const struct daemon *d, const char *config, const char *says)
{
    ck_assert(daemon_write_config(d, config));
    char *answer = daemon_ask(d, "POST", "/reload");
    ck_assert_ptr_nonnull(answer);
    assert_says(answer, says);
    free(answer);
}

static void swap_to(const struct daemon *d, const char *config)
{
    double generation = daemon_number(d, "/status", "generation");
    reload(d, config, "started");
    if (!daemon_reaches(d, "/status", "generation", generation + 1, WAIT_S)) {
        daemon_show_log(d);
        ck_abort_msg("the method does not change to\n%s", config);
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

/* Where a sum is off, and by what: value i of exchange k of rank w is 1 + w + k % 2 + i % 5, so that a
 * difference names who and which. */
static void show_differences(const struct crew_worker *crew, const float *center, const double *want)
{
    double before = 0;
    for (int w = 0; w < WORKERS; w++)
        fprintf(stderr, "rank %d: %lu exchanges\n", w, (unsigned long)crew[w].page->exchanges);
    for (uint64_t i = 0; i < FLOATS; i++) {
        double off = (double)center[i] - want[i];
        if (off != before && i % 5 == 0) {
            fprintf(stderr, "from value %lu on: %+.1f, %+.1f at the next\n", (unsigned long)i, off,
                    i + 1 < FLOATS ? (double)center[i + 1] - want[i + 1] : 0);
            before = off;
        }
    }
}

static void assert_sum(const struct daemon *d, const struct crew_worker *crew)
{
    float *center = stepper_center(d, FLOATS);
    double *want = calloc(FLOATS, sizeof *want);
    uint64_t wrong = 0;
    for (uint64_t i = 0; i < FLOATS; i++) {
        for (int w = 0; w < WORKERS; w++)
            want[i] -= crew_sum((uint32_t)w, crew[w].page->exchanges, i);
        wrong += (double)center[i] != want[i];
    }
    if (wrong > 0) {
        show_differences(crew, center, want);
        daemon_show_log(d);
        ck_abort_msg("%lu values are not what the gradients sum to", (unsigned long)wrong);
    }
    free(want);
    free(center);
}

/* Swaps at random moments, pause_s apart on average, through all of the list and at random; then ends under
 * `last`, which sends every step. */
static void swap_through(const struct daemon *d, const struct crew_worker *crew, const char *const *list,
                         size_t n, int swaps, double pause_s, const char *last)
{
    struct dice dice = {7};
    size_t now = 0;
    for (int k = 1; k <= swaps; k++) {
        size_t next = k < (int)n ? (size_t)k : dice_below(&dice, n);
        next = next == now ? (now + 1) % n : next;
        swap_to(d, list[next]);
        assert_go_on(d, crew, WORKERS, list[next]);
        test_nap_s(pause_s * 2e-3 * (double)dice_below(&dice, 1000));
        now = next;
    }
    if (list[now] != last)
        swap_to(d, last);
    assert_go_on(d, crew, WORKERS, last);
}

START_TEST(no_update_is_lost_over_many_swaps)
{
    static const char *settings[] = {COMMON, "lanes=2", NULL};
    struct daemon d;
    struct crew_worker crew[WORKERS];
    start(&d, settings, exact[0]);
    start_crew(&d, crew);
    swap_through(&d, crew, exact, EXACT, SWAPS, 0.1, exact[0]);
    stop_all(crew);
    if (daemon_number(&d, "/status", "center.updates_dropped") == 0)
        assert_sum(&d, crew);
    else
        puts("psd has dropped what a worker that stood still had begun: the sum says nothing");
    ck_assert_double_eq(daemon_number(&d, "/status", "reload.refused"), 0);
    ck_assert_uint_eq(daemon_logged(&d, "ERROR"), 0);
    daemon_remove(&d);
}
END_TEST

START_TEST(no_update_is_lost_when_lanes_become_whole_and_back)
{
    static const char *settings[] = {COMMON, "lanes=1", NULL};
    struct daemon d;
    struct crew_worker crew[WORKERS];
    start(&d, settings, exact[0]);
    start_crew(&d, crew);
    swap_through(&d, crew, with_whole_lanes, ROWS(with_whole_lanes), 12, 0.1, exact[0]);
    stop_all(crew);
    assert_sum(&d, crew);
    daemon_remove(&d);
}
END_TEST

/* With eight lanes, of which the last holds nothing: slices of 4096 floats at least. */
START_TEST(every_method_follows_every_other)
{
    static const char *settings[] = {COMMON, "lanes=8", "chunk_floats=16384", "learning_rate=0.001", NULL};
    struct daemon d;
    struct crew_worker crew[WORKERS];
    start(&d, settings, all[0]);
    start_crew(&d, crew);
    swap_through(&d, crew, all, ROWS(all), 40, 0.05, all[0]);
    stop_all(crew);
    float *center = stepper_center(&d, FLOATS);
    for (uint64_t i = 0; i < FLOATS; i++)
        ck_assert_msg(isfinite(center[i]), "value %lu is not finite", (unsigned long)i);
    free(center);
    daemon_remove(&d);
}
END_TEST

/* psd is killed after a swap, before or after it was saved, and comes back with what the file says now: under
 * another rule than the checkpoint's, whose memory is dropped. Workers that were on the new method go on. */
START_TEST(a_swapped_job_outlives_psd)
{
    static const char *settings[] = {COMMON, "lanes=2", "learning_rate=0.001", NULL};
    static const char *const pairs[][2] = {
        {"method: async-msgd\n", "method: sync-sgd\n"},
        {"method: sync-easgd\n", "method: diloco\nparameters: {period: 3}\n"},
        {"method: async-sgd\n", "method: hogwild-easgd\n"}};
    for (size_t i = 0; i < 2 * ROWS(pairs); i++) {
        const char *const *pair = pairs[i / 2];
        struct daemon d;
        struct crew_worker crew[WORKERS];
        start(&d, settings, pair[0]);
        start_crew(&d, crew);
        if (i % 2 == 0)
            ck_assert(daemon_checkpoint(&d, WAIT_S));
        swap_to(&d, pair[1]);
        assert_go_on(&d, crew, WORKERS, pair[1]);
        if (i % 2 != 0)
            ck_assert(daemon_checkpoint(&d, WAIT_S));
        assert_go_on(&d, crew, WORKERS, pair[1]);
        daemon_stop(&d, SIGKILL, WAIT_S);
        ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
        assert_go_on(&d, crew, WORKERS, pair[1]);
        swap_to(&d, pair[0]);
        assert_go_on(&d, crew, WORKERS, pair[0]);
        stop_all(crew);
        daemon_remove(&d);
    }
}
END_TEST

/* The file has changed, and psd is killed before anybody has heard of it: the generation that the checkpoint
 * has is of the method before. */
START_TEST(workers_take_the_method_that_psd_comes_back_with)
{
    static const char *settings[] = {COMMON, "lanes=2", "learning_rate=0.001", NULL};
    static const char *const pairs[][2] = {{"method: async-sgd\n", "method: hogwild-sgd\n"},
                                           {"method: hogwild-easgd\n", "method: async-easgd\n"},
                                           {"method: async-msgd\n", "method: downpour\n"}};
    for (size_t i = 0; i < ROWS(pairs); i++) {
        const char *const *pair = pairs[i];
        struct daemon d;
        struct crew_worker crew[WORKERS];
        start(&d, settings, pair[0]);
        start_crew(&d, crew);
        assert_go_on(&d, crew, WORKERS, pair[0]);
        ck_assert(daemon_checkpoint(&d, WAIT_S));
        ck_assert(daemon_write_config(&d, pair[1]));
        for (int restart = 0; restart < 2; restart++) { /* the second without a checkpoint of it */
            daemon_stop(&d, SIGKILL, WAIT_S);
            ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
            assert_go_on(&d, crew, WORKERS, pair[1]);
            ck_assert_double_eq(daemon_number(&d, "/status", "generation"), 1);
        }
        stop_all(crew);
        daemon_remove(&d);
    }
}
END_TEST

/* Connections, control socket included, are reset again and again while methods change: what was on its way
 * is lost, in the middle of the exchange that a swap waits for, or behind it. */
static void cut_through(const struct daemon *d, const struct crew_worker *crew, struct proxy *proxy)
{
    struct dice dice = {11};
    for (int k = 1; k <= CUT_SWAPS; k++) {
        const char *config = exact[k % WITHOUT_QUORUM];
        ck_assert(daemon_write_config(d, config));
        if (dice_below(&dice, 2) == 0)
            proxy_cut(proxy);
        kill(d->pid, SIGHUP);
        for (uint64_t partial_rounds = dice_below(&dice, 4); partial_rounds > 0; partial_rounds--) {
            test_nap_s(1e-3 * (double)dice_below(&dice, 8));
            proxy_cut(proxy);
        }
        ck_assert_msg(daemon_reaches(d, "/status", "generation", k, WAIT_S), "no change to\n%s", config);
        if (k % 4 == 0)
            assert_go_on(d, crew, WORKERS, config);
    }
}

START_TEST(no_update_is_lost_when_connections_are_cut_meanwhile)
{
    static const char *settings[] = {COMMON, "lanes=2", "advertise=127.0.0.2", NULL};
    struct daemon d;
    struct proxy proxy;
    struct crew_worker crew[WORKERS];
    uint16_t ports[3];
    uint64_t reconnects = 0;
    char url[200];
    start(&d, settings, exact[0]);
    ck_assert(daemon_text(&d, "/status", "listen", url, sizeof url));
    ck_assert(hand_survey(url, ports, 3));
    ck_assert_int_eq(proxy_start(&proxy, ports, 3), 0);
    start_crew(&d, crew);
    cut_through(&d, crew, &proxy);
    swap_to(&d, exact[0]);
    assert_go_on(&d, crew, WORKERS, exact[0]);
    stop_all(crew);
    for (int i = 0; i < WORKERS; i++)
        reconnects += crew[i].page->info.reconnects;
    ck_assert_uint_gt(reconnects, 0);
    assert_sum(&d, crew);
    proxy_stop(&proxy);
    daemon_remove(&d);
}
END_TEST

/* Between its exchanges a worker that is stopped holds up nobody: the others change over without it. One that
 * is stopped at any moment takes the method when it is back. */
START_TEST(a_stopped_worker_takes_the_method_when_it_is_back)
{
    static const char *settings[] = {COMMON, "lanes=2", NULL};
    struct daemon d;
    struct crew_worker crew[WORKERS];
    start(&d, settings, exact[0]);
    start_crew(&d, crew);
    for (int k = 0; k < 6; k++) {
        bool between = k < 3;
        if (between) {
            crew_hold_at(&crew[3], 0);
            ck_assert(crew_is_held(&crew[3], WAIT_S));
        }
        crew_signal(&crew[3], SIGSTOP);
        reload(&d, exact[k % 2 == 0 ? 1 : 0], "started"); /* fcfs both: the others need not wait for it */
        if (between) {
            ck_assert(daemon_reaches(&d, "/status", "generation", k + 1, WAIT_S));
            assert_go_on(&d, crew, 3, "downpour or async-sgd");
            crew_hold_at(&crew[3], UINT64_MAX);
        }
        crew_signal(&crew[3], SIGCONT);
        ck_assert(daemon_reaches(&d, "/status", "generation", k + 1, WAIT_S));
        assert_go_on(&d, crew, WORKERS, "downpour or async-sgd");
    }
    stop_all(crew);
    assert_sum(&d, crew);
    daemon_remove(&d);
}
END_TEST

/* In place a lane refuses a value that is not finite when others of the exchange have landed: that one will
 * never be whole, and nobody waits for it. */
START_TEST(an_exchange_refused_in_the_middle_holds_nothing_up)
{
    static const char *settings[] = {COMMON, "lanes=2", "transport=shm", NULL};
    static float zeros[FLOATS];
    const struct psc_tensor tensor = {.name = "x", .n_dims = 1, .shape = {FLOATS}};
    struct psc_options opt;
    struct daemon d;
    struct psc *c;
    float *x;
    start(&d, settings, "method: async-easgd\nparameters: {alpha: 0.5, period: 1}\n");
    psc_options_init(&opt, sizeof opt);
    opt.server = d.endpoint;
    opt.transport = "shm";
    opt.heartbeat_ms = 50;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_OK);
    ck_assert_int_eq(psc_alloc(c, FLOATS, &x), PSC_OK);
    ck_assert_msg(psc_begin(c, &tensor, 1, x) == PSC_OK, "%s", psc_error(c));
    ck_assert_int_eq(psc_step(c, x, zeros, 1), PSC_OK);
    x[FLOATS - 1] = NAN;
    ck_assert_int_eq(psc_step(c, x, zeros, 1), PSC_EVALUE);
    reload(&d, exact[0], "started");
    ck_assert(daemon_reaches(&d, "/status", "generation", 1, WAIT_S));
    ck_assert_int_eq(psc_pull(c, NULL, x), PSC_OK);
    ck_assert_int_eq(psc_step(c, x, zeros, 1), PSC_OK);
    ck_assert_float_eq(x[FLOATS - 1], 0);
    psc_close(c);
    daemon_remove(&d);
}
END_TEST

/* Of a worker that computes, an exchange landed in part before the checkpoint, and in whole behind it. To the
 * psd that comes back it is open, and the worker sends no more of it. */
START_TEST(an_exchange_that_the_checkpoint_cut_holds_nothing_up)
{
    static const char *settings[] = {COMMON, "lanes=2", NULL};
    static float message[FLOATS], answer[FLOATS];
    struct daemon d;
    struct hand h;
    Ps__Hello hello = PS__HELLO__INIT;
    Ps__Heartbeat beat = PS__HEARTBEAT__INIT;
    start(&d, settings, exact[0]);
    ck_assert_int_eq(hand_join(&h, d.endpoint, FLOATS), 0);
    h.seq++;
    struct ps_frame f = hand_frame(&h, PS_FRAME_EXCHANGE, 0, 0);
    hand_send(&h, 0, &f, message, f.count * sizeof *message);
    ck_assert_int_eq(hand_answer(&h, 0, &f, answer, TEST_HANG_S), 0);
    ck_assert(daemon_checkpoint(&d, WAIT_S));
    daemon_stop(&d, SIGKILL, WAIT_S);
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0);

    struct hand again;
    hand_open(&again, d.endpoint);
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.name = (char *)"hand";
    hello.client = h.client;
    hello.incarnation = beat.incarnation = h.incarnation;
    hello.manifest_hash = h.manifest_hash;
    ck_assert_int_eq(hand_hello(&again, &hello), 0);
    reload(&d, exact[1], "started");
    ck_assert_double_eq(daemon_number(&d, "/status", "generation"), 0);
    beat.client = h.client;
    beat.ended = h.seq;
    hand_tell(&again, PS__TO_SERVER__WHAT_HEARTBEAT, &beat);
    ck_assert(daemon_reaches(&d, "/status", "generation", 1, WAIT_S));
    ck_assert_uint_eq(daemon_logged(&d, "session.ended"), 0);
    hand_close(&again);
    hand_close(&h);
    daemon_remove(&d);
}
END_TEST

/* Its session is in the checkpoint, and it was not back when the method was asked for. */
START_TEST(a_rank_beyond_workers_ends_with_the_change)
{
    enum { HANDS = 3 };
    static const char *settings[] = {COMMON, "lanes=2", NULL};
    struct daemon d;
    struct hand h[HANDS];
    Ps__Hello hello = PS__HELLO__INIT;
    start(&d, settings, exact[0]);
    for (int i = 0; i < HANDS; i++)
        ck_assert_int_eq(hand_join(&h[i], d.endpoint, FLOATS), 0);
    ck_assert(daemon_checkpoint(&d, WAIT_S));
    daemon_stop(&d, SIGKILL, WAIT_S);
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
    reload(&d, "method: dc-asgd\nworkers: 2\n", "started");
    ck_assert_double_eq(daemon_number(&d, "/status", "generation"), 0);
    for (int i = 0; i < HANDS; i++) {
        struct hand again;
        hand_open(&again, d.endpoint);
        hello.protocol = PS_PROTOCOL_VERSION;
        hello.name = (char *)"hand";
        hello.client = h[i].client;
        hello.incarnation = h[i].incarnation;
        hello.manifest_hash = h[i].manifest_hash;
        ck_assert_int_eq(hand_hello(&again, &hello), 0);
        hand_close(&h[i]);
        h[i] = again;
    }
    ck_assert(daemon_reaches(&d, "/status", "generation", 1, WAIT_S));
    ck_assert_uint_eq(daemon_logged(&d, "session.ended"), 1);
    for (int i = 0; i < HANDS; i++)
        hand_close(&h[i]);
    daemon_remove(&d);
}
END_TEST

static void *begin_second(void *hand)
{
    bool offer;
    return hand_begin(hand, FLOATS, &offer) == 0 && !offer ? hand : NULL;
}

static bool has_one_parked(const struct daemon *d)
{
    char *body = daemon_ask(d, "GET", "/metrics");
    bool has_one = body != NULL && strstr(body, "psd_workers{state=\"parked\"} 1\n") != NULL;
    free(body);
    return has_one;
}

static void await_one_parked(const struct daemon *d)
{
    double deadline = test_now_s() + test_slow_s(WAIT_S);
    while (!has_one_parked(d)) {
        if (test_now_s() > deadline) {
            daemon_show_log(d);
            ck_abort_msg("nobody waits for the change");
        }
        test_nap_s(0.01);
    }
}

/* The change waits for an exchange that has landed in part, and the new worker for the change. The lanes have
 * the members of the next method first; then it joins them between two rounds, like any other. Without
 * checkpoints: a change does not begin while one is being written, and who comes before it begins joins at
 * once. */
START_TEST(who_joins_during_a_change_joins_the_members_of_the_next_method)
{
    static const char *settings[] = {"chunk_floats=4096", "checkpoint.every_s=0", "limits.silence_s=300",
                                     "lanes=2", NULL};
    static float message[FLOATS], answer[FLOATS];
    struct daemon d;
    struct hand first, second;
    struct ps_frame f;
    pthread_t thread;
    void *joined;
    Ps__Hello hello = PS__HELLO__INIT;
    start(&d, settings, exact[2]);
    ck_assert_int_eq(hand_join(&first, d.endpoint, FLOATS), 0);
    hand_open(&second, d.endpoint);
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.name = (char *)"second";
    hello.any_rank = true;
    ck_assert_int_eq(hand_hello(&second, &hello), 0);
    first.seq++;
    for (uint32_t lane = 0; lane < 2; lane++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&first.shard, lane); k++) {
            f = hand_frame(&first, PS_FRAME_EXCHANGE, lane, k);
            hand_send(&first, lane, &f, message, f.count * sizeof *message);
            ck_assert_int_eq(hand_answer(&first, lane, &f, answer, WAIT_S), 0);
            if (lane > 0 || k > 0)
                continue;
            reload(&d, "method: sync-sgd\nparameters: {learning_rate: 1}\n", "started");
            ck_assert_int_eq(pthread_create(&thread, NULL, begin_second, &second), 0);
            await_one_parked(&d);
        }
    pthread_join(thread, &joined);
    ck_assert_ptr_nonnull(joined);
    ck_assert_uint_eq(daemon_logged(&d, "job.swapped"), 1);
    ck_assert_uint_eq(daemon_logged(&d, "1 workers take part from round 0"), 2);
    hand_close(&first);
    hand_close(&second);
    daemon_remove(&d);
}
END_TEST

START_TEST(a_broken_configuration_changes_nothing_and_is_counted)
{
    static const char *settings[] = {COMMON, "lanes=2", NULL};
    static const struct {
        const char *config, *says;
    } rows[] = {
        {"method: async-sdg\n", "psd.yaml:1: method: 'async-sdg'"},
        {"", "found no keys"}, /* as an editor leaves it for a moment */
        {"# method: eamsgd\n", "found no keys"},
        {"{}\n", "found no keys"},
        {"method: [\n", "psd.yaml:"},
        {"method: async-sgd\nparameters: {period: 4}\n", "parameters.period"},
        {"method: async-sgd\nparameters: {learning_rate: 1}\nwindow_chunks: 5\n",
         "psd.yaml:3: window_chunks: changed"},
        {"method: dc-asgd\nworkers: 2\n", "rank 2 is in the job"},
        {"method: d-sync\n", "one clique moves its values without psd"},
        {"method: async-sgd\nparameters: {learning_rate: 1}\nclique: {publish: 3}\n", "clique.publish"},
        {"method: async-sgd\nstatus: {http: \"tcp://127.0.0.1:0\"}\n", "status.http"},
    };
    struct daemon d;
    struct crew_worker crew[WORKERS];
    start(&d, settings, exact[0]);
    start_crew(&d, crew);
    for (size_t i = 0; i < ROWS(rows); i++) {
        reload(&d, rows[i].config, rows[i].says);
        ck_assert_double_eq(daemon_number(&d, "/status", "reload.refused"), (double)i + 1);
    }
    ck_assert_double_eq(daemon_number(&d, "/status", "generation"), 0);
    assert_go_on(&d, crew, WORKERS, "async-sgd");
    ck_assert(daemon_write_config(&d, exact[0]));
    kill(d.pid, SIGHUP);
    ck_assert(daemon_reaches(&d, "/status", "reload.unchanged", 1, WAIT_S));
    ck_assert(daemon_write_config(&d, exact[1]));
    kill(d.pid, SIGHUP);
    ck_assert(daemon_reaches(&d, "/status", "generation", 1, WAIT_S));
    swap_to(&d, exact[0]);
    assert_go_on(&d, crew, WORKERS, "async-sgd");
    stop_all(crew);
    assert_sum(&d, crew);
    daemon_remove(&d);
}
END_TEST

/* A client whose exchange has landed in one chunk holds the change of the method open. */
static void end_during_a_swap(const char *drain, int signals)
{
    const char *const settings[] = {COMMON, "lanes=2", drain, NULL};
    static float message[FLOATS], answer[FLOATS];
    struct daemon d;
    struct hand h;
    start(&d, settings, exact[0]);
    ck_assert_int_eq(hand_join(&h, d.endpoint, FLOATS), 0);
    ck_assert_int_eq(hand_pass(&h, PS_FRAME_PULL, NULL, answer), 0);
    h.seq++;
    struct ps_frame f = hand_frame(&h, PS_FRAME_EXCHANGE, 0, 0);
    hand_send(&h, 0, &f, message, f.count * sizeof *message);
    ck_assert_int_eq(hand_answer(&h, 0, &f, answer, TEST_HANG_S), 0);
    ck_assert(daemon_will_log(&d, "checkpoint.written", WAIT_S)); /* of the center as it began */
    unsigned written = daemon_logged(&d, "checkpoint.written");
    reload(&d, exact[1], "started");
    ck_assert_double_eq(daemon_number(&d, "/status", "generation"), 0);
    if (signals > 1) {
        kill(d.pid, SIGTERM);
        ck_assert(daemon_will_log(&d, "job.draining", TEST_HANG_S));
    }
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, TEST_HANG_S), 0);
    ck_assert_uint_eq(daemon_logged(&d, "checkpoint.written"), written + 1);
    hand_close(&h);
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
    ck_assert(daemon_reaches(&d, "/status", "model.floats", FLOATS, WAIT_S));
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, TEST_HANG_S), 0);
    daemon_remove(&d);
}

START_TEST(a_second_sigterm_during_a_swap_saves_what_landed)
{
    end_during_a_swap("limits.drain_s=7200", 2);
}
END_TEST

START_TEST(a_drain_shorter_than_a_swap_saves_what_landed)
{
    end_during_a_swap("limits.drain_s=1", 1);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        no_update_is_lost_over_many_swaps,
        no_update_is_lost_when_lanes_become_whole_and_back,
        every_method_follows_every_other,
        a_swapped_job_outlives_psd,
        workers_take_the_method_that_psd_comes_back_with,
        no_update_is_lost_when_connections_are_cut_meanwhile,
        a_stopped_worker_takes_the_method_when_it_is_back,
        an_exchange_refused_in_the_middle_holds_nothing_up,
        an_exchange_that_the_checkpoint_cut_holds_nothing_up,
        a_rank_beyond_workers_ends_with_the_change,
        who_joins_during_a_change_joins_the_members_of_the_next_method,
        a_second_sigterm_during_a_swap_saves_what_landed,
        a_drain_shorter_than_a_swap_saves_what_landed,
        a_broken_configuration_changes_nothing_and_is_counted,
    };
    return suite_run("swap", tests, sizeof tests / sizeof *tests, 500);
}
