/* A chunk lands once, whatever is lost and sent again: rule sgd, rate 1 and whole numbers make sums exact. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/system/proxy.h"
#include "tests/support/system/raw_client.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"

enum { FLOATS = 100003, WAIT_S = 60 }; /* two lanes of four chunks each */

static const char *const settings[] = {"method=async-sgd",
                                       "parameters.learning_rate=1",
                                       "parameters.schedule.warmup_steps=0",
                                       "chunk_floats=16384",
                                       "lanes=2",
                                       "checkpoint.every_s=0",
                                       NULL};

static void start(struct daemon *d)
{
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
}

static float *message_of(float scale)
{
    float *m = calloc(FLOATS, sizeof *m);
    for (uint64_t i = 0; i < FLOATS; i++)
        m[i] = scale * (float)(1 + i % 1000);
    return m;
}

/* The center is -(wanted times the message of scale 1), every bit of it; over the given chunk of a lane, or
 * over all with lane < 0. */
static void assert_center(struct hand *h, int lane, uint32_t k, float wanted)
{
    float *x = calloc(FLOATS, sizeof *x);
    struct ps_range r = {0, FLOATS};
    ck_assert_int_eq(hand_pass(h, PS_FRAME_PULL, NULL, x), 0);
    if (lane >= 0)
        r = ps_shard_chunk(&h->shard, (uint32_t)lane, k);
    for (uint64_t i = r.begin; i < r.begin + r.count; i++)
        ck_assert_msg(x[i] == -wanted * (float)(1 + i % 1000), "value %lu is %.1f, not %.1f",
                      (unsigned long)i, (double)x[i], (double)(-wanted * (float)(1 + i % 1000)));
    free(x);
}

/* Sends the chunk and does not read the answer; returns when it has landed. */
static void send_and_lose(struct daemon *d, struct hand *h, uint32_t lane, uint32_t k, const float *m)
{
    struct ps_frame f = hand_frame(h, PS_FRAME_EXCHANGE, lane, k);
    double before = daemon_number(d, "/status", "center.replays");
    hand_send(h, lane, &f, m + f.begin, f.count * sizeof *m);
    ck_assert(hand_answer(h, lane, &f, NULL, WAIT_S) == 0); /* landed; as far as the client goes, lost */
    ck_assert_double_eq(daemon_number(d, "/status", "center.replays"), before);
    hand_relink(h, lane);
}

static void send_again(struct hand *h, uint32_t lane, uint32_t k, const float *m, bool landed_before)
{
    struct ps_frame f = hand_frame(h, PS_FRAME_EXCHANGE, lane, k);
    struct ps_range r = ps_shard_chunk(&h->shard, lane, k);
    float *answer = calloc(r.count, sizeof *answer);
    hand_send(h, lane, &f, m + f.begin, f.count * sizeof *m);
    ck_assert_msg(hand_answer(h, lane, &f, answer, WAIT_S) == 0, "%s", h->sentence);
    ck_assert_uint_eq(f.flags & PS_FLAG_REPLAYED, landed_before ? PS_FLAG_REPLAYED : 0);
    for (uint64_t i = 0; i < r.count; i++) /* once, either way */
        ck_assert_float_eq(answer[i], -m[r.begin + i]);
    free(answer);
}

START_TEST(a_lost_answer_moves_the_center_once)
{
    struct daemon d;
    struct hand h;
    float *m = message_of(1);
    start(&d);
    ck_assert_int_eq(hand_join(&h, d.endpoint, FLOATS), 0);
    h.seq++;
    send_and_lose(&d, &h, 0, 1, m);
    for (int i = 0; i < 3; i++)
        send_again(&h, 0, 1, m, true);
    ck_assert_double_eq(daemon_number(&d, "/status", "center.replays"), 3);
    send_again(&h, 1, 0, m, false);
    ck_assert_double_eq(daemon_number(&d, "/status", "center.version"), 0); /* not all chunks have landed */
    assert_center(&h, 0, 1, 1);
    assert_center(&h, 1, 0, 1);
    assert_center(&h, 0, 0, 0);
    hand_close(&h);
    daemon_remove(&d);
    free(m);
}
END_TEST

START_TEST(an_exchange_of_the_past_is_refused)
{
    struct daemon d;
    struct hand h;
    float *m = message_of(1);
    struct ps_frame f;
    start(&d);
    ck_assert_int_eq(hand_join(&h, d.endpoint, FLOATS), 0);
    ck_assert_int_eq(hand_pass(&h, PS_FRAME_EXCHANGE, m, m), 0);
    free(m);
    m = message_of(1);
    ck_assert_int_eq(hand_pass(&h, PS_FRAME_EXCHANGE, m, m), 0);
    free(m);
    m = message_of(1);
    h.seq--;
    f = hand_frame(&h, PS_FRAME_EXCHANGE, 0, 0);
    hand_send(&h, 0, &f, m, f.count * sizeof *m);
    ck_assert_int_eq(hand_answer(&h, 0, &f, NULL, WAIT_S), PS__CODE__SEQ);
    ck_assert_ptr_nonnull(strstr(h.sentence, "is older than the last one"));
    h.seq++;
    assert_center(&h, -1, 0, 2);
    ck_assert_double_eq(daemon_number(&d, "/status", "center.version"), 2);
    hand_close(&h);
    daemon_remove(&d);
    free(m);
}
END_TEST

/* The initial x likewise: the answer to its last chunk is lost, after which the lane serves exchanges. */
START_TEST(a_lost_answer_to_the_offer_is_given_again)
{
    struct daemon d;
    struct hand h;
    struct ps_frame f;
    float *m = message_of(1), *zeros = calloc(FLOATS, sizeof *zeros);
    start(&d);
    ck_assert_int_eq(hand_join(&h, d.endpoint, FLOATS), 0);
    f = hand_frame(&h, PS_FRAME_OFFER, 0, 3);
    hand_send(&h, 0, &f, zeros + f.begin, f.count * sizeof *m);
    ck_assert_msg(hand_answer(&h, 0, &f, NULL, WAIT_S) == 0, "%s", h.sentence);
    ck_assert_uint_eq(f.flags & PS_FLAG_REPLAYED, PS_FLAG_REPLAYED);
    uint64_t offer = h.seq;
    ck_assert_int_eq(hand_pass(&h, PS_FRAME_EXCHANGE, m, m), 0);
    f = hand_frame(&h, PS_FRAME_OFFER, 0, 3);
    f.seq = offer; /* a copy that was long on its way does not set the center back */
    hand_send(&h, 0, &f, zeros + f.begin, f.count * sizeof *m);
    hand_answer(&h, 0, &f, NULL, WAIT_S);
    assert_center(&h, -1, 0, 1);
    hand_close(&h);
    daemon_remove(&d);
    free(m);
    free(zeros);
}
END_TEST

START_TEST(a_restart_from_the_checkpoint_still_knows_what_landed)
{
    struct daemon d;
    struct hand h, again;
    float *m = message_of(1);
    Ps__Hello hello = PS__HELLO__INIT;
    start(&d);
    ck_assert_int_eq(hand_join(&h, d.endpoint, FLOATS), 0);
    h.seq++;
    for (uint32_t k = 0; k < ps_shard_n_chunks(&h.shard, 0); k++) /* all of lane 0, one chunk of lane 1 */
        send_and_lose(&d, &h, 0, k, m);
    send_and_lose(&d, &h, 1, 1, m);
    ck_assert(daemon_checkpoint(&d, WAIT_S));
    send_and_lose(&d, &h, 1, 2, m); /* after the checkpoint: this one is lost with psd */
    daemon_stop(&d, SIGKILL, WAIT_S);
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0);

    hand_open(&again, d.endpoint);
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.name = (char *)"hand";
    hello.client = h.client;
    hello.incarnation = h.incarnation;
    hello.manifest_hash = h.manifest_hash;
    ck_assert_msg(hand_hello(&again, &hello) == 0, "%s", again.sentence);
    ck_assert(again.resumed);
    ck_assert_uint_eq(again.incarnation, h.incarnation);
    again.shard = h.shard;
    again.seq = h.seq;
    send_again(&again, 0, 0, m, true);
    send_again(&again, 1, 1, m, true);
    send_again(&again, 1, 2, m, false);
    send_again(&again, 1, 0, m, false);
    ck_assert_double_eq(daemon_number(&d, "/status", "center.version"), 0);
    send_again(&again, 1, 3, m, false);
    ck_assert_double_eq(daemon_number(&d, "/status", "center.version"), 1); /* now it is whole */
    assert_center(&again, -1, 0, 1);
    ck_assert_int_eq(hand_pass(&again, PS_FRAME_EXCHANGE, m, m), 0);
    ck_assert_double_eq(daemon_number(&d, "/status", "center.version"), 2);
    assert_center(&again, -1, 0, 2);
    hand_close(&again);
    hand_close(&h);
    daemon_remove(&d);
    free(m);
}
END_TEST

/* Says Hello as the session of a hand that psd's death has cut off. */
static int come_back(struct hand *again, const struct daemon *d, const struct hand *h)
{
    Ps__Hello hello = PS__HELLO__INIT;
    hand_open(again, d->endpoint);
    hello.protocol = PS_PROTOCOL_VERSION;
    hello.name = (char *)"hand";
    hello.client = h->client;
    hello.incarnation = h->incarnation;
    hello.manifest_hash = h->manifest_hash;
    int rc = hand_hello(again, &hello);
    again->shard = h->shard;
    again->seq = h->seq;
    return rc;
}

static void change_method(const struct daemon *d)
{
    char *answer = daemon_ask(d, "POST", "/set?lines=averaging%3Dmean");
    ck_assert_ptr_nonnull(answer);
    assert_says(answer, "started");
    free(answer);
}

/* The checkpoint has a part of an exchange, and psd is to change its method before the worker is back. */
START_TEST(what_landed_in_part_is_not_forgotten_over_a_change_after_a_restart)
{
    struct daemon d;
    struct hand h, again;
    float *m = message_of(1);
    start(&d);
    ck_assert_int_eq(hand_join(&h, d.endpoint, FLOATS), 0);
    h.seq++;
    send_and_lose(&d, &h, 1, 1, m);
    ck_assert(daemon_checkpoint(&d, WAIT_S));
    daemon_stop(&d, SIGKILL, WAIT_S);
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
    change_method(&d);
    ck_assert_int_eq(come_back(&again, &d, &h), 0);
    for (uint32_t lane = 0; lane < 2; lane++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&h.shard, lane); k++)
            send_again(&again, lane, k, m, lane == 1 && k == 1);
    ck_assert(daemon_reaches(&d, "/status", "generation", 1, WAIT_S));
    hand_close(&again);
    hand_close(&h);
    daemon_remove(&d);
    free(m);
}
END_TEST

static const char *const changed[] = {"method=async-sgd",
                                      "parameters.learning_rate=1",
                                      "parameters.schedule.warmup_steps=0",
                                      "averaging=mean",
                                      "chunk_floats=16384",
                                      "lanes=2",
                                      "checkpoint.every_s=0",
                                      NULL};

/* psd is back with another method: what the worker adds in place of its exchange has that one's number. */
START_TEST(what_landed_in_part_is_not_added_under_another_method)
{
    struct daemon d;
    struct hand h, again;
    float *m = message_of(1), *added = message_of(-1), *x = message_of(0);
    start(&d);
    ck_assert_int_eq(hand_join(&h, d.endpoint, FLOATS), 0);
    h.seq++;
    send_and_lose(&d, &h, 1, 1, m);
    ck_assert(daemon_checkpoint(&d, WAIT_S));
    daemon_stop(&d, SIGKILL, WAIT_S);
    d.settings = changed;
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
    ck_assert_int_eq(come_back(&again, &d, &h), 0);
    for (uint32_t lane = 0; lane < 2; lane++)
        for (uint32_t k = 0; k < ps_shard_n_chunks(&h.shard, lane); k++) {
            struct ps_frame f = hand_frame(&again, PS_FRAME_ADD, lane, k);
            f.generation = 1;
            hand_send(&again, lane, &f, added + f.begin, f.count * sizeof *added);
            ck_assert_msg(hand_answer(&again, lane, &f, x + f.begin, WAIT_S) == 0, "%s", again.sentence);
            ck_assert_int_eq((f.flags & PS_FLAG_REPLAYED) != 0, lane == 1 && k == 1);
        }
    ck_assert_mem_eq(x, added, FLOATS * sizeof *x);
    ck_assert_double_eq(daemon_number(&d, "/status", "center.version"), 1);
    hand_close(&again);
    hand_close(&h);
    daemon_remove(&d);
    free(m);
    free(added);
    free(x);
}
END_TEST

static const char *const hasty[] = {"method=async-sgd",
                                    "parameters.learning_rate=1",
                                    "parameters.schedule.warmup_steps=0",
                                    "chunk_floats=16384",
                                    "lanes=2",
                                    "checkpoint.every_s=0",
                                    "limits.silence_s=1",
                                    NULL};

/* The change waits for it no longer than silence_s; it is told then that its session has ended. */
START_TEST(who_is_late_for_a_change_after_a_restart_lands_nothing_again)
{
    struct daemon d;
    struct hand h, again;
    float *m = message_of(1);
    start(&d);
    ck_assert_int_eq(hand_join(&h, d.endpoint, FLOATS), 0);
    h.seq++;
    send_and_lose(&d, &h, 1, 1, m);
    ck_assert(daemon_checkpoint(&d, WAIT_S));
    daemon_stop(&d, SIGKILL, WAIT_S);
    d.settings = hasty;
    ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
    change_method(&d);
    ck_assert(daemon_reaches(&d, "/status", "generation", 1, WAIT_S));
    ck_assert_int_eq(come_back(&again, &d, &h), PS__CODE__EVICTED);
    hand_close(&again);
    hand_close(&h);
    daemon_remove(&d);
    free(m);
}
END_TEST

/* psd behind a proxy that resets every connection, control socket included, again and again. */
enum { CUT_WORKERS = 3, CUTS = 60, CUT_REPLAYS = 5, CUT_EVERY_MS = 40, CUT_MOST = 5000 };

static const char *const advertised[] = {"method=async-sgd",
                                         "parameters.learning_rate=1",
                                         "parameters.schedule.warmup_steps=0",
                                         "chunk_floats=16384",
                                         "lanes=2",
                                         "checkpoint.every_s=0",
                                         "advertise=127.0.0.2",
                                         "limits.drain_s=1", /* a cut may take a worker's Leave with it */
                                         NULL};

/* From the checkpoint of the drain: the proxy and its troubles are over. */
static void assert_sum_saved(struct daemon *d, const struct crew_worker *crew)
{
    struct hand h;
    float *x = calloc(FLOATS, sizeof *x);
    ck_assert_int_eq(daemon_stop(d, SIGTERM, WAIT_S), 0);
    d->settings = settings;
    ck_assert_int_eq(daemon_start(d, "--resume"), 0);
    ck_assert_int_eq(hand_join(&h, d->endpoint, FLOATS), 0);
    ck_assert_int_eq(hand_pass(&h, PS_FRAME_PULL, NULL, x), 0);
    for (uint64_t i = 0; i < FLOATS; i++) {
        double want = 0;
        for (uint32_t k = 0; k < CUT_WORKERS; k++)
            want -= crew_sum(k, crew[k].page->exchanges, i);
        ck_assert_msg((double)x[i] == want, "value %lu is %.1f; the exchanges sum to %.1f", (unsigned long)i,
                      (double)x[i], want);
    }
    hand_close(&h);
    free(x);
}

static void cut_through(const struct daemon *d, struct proxy *proxy, const struct crew_worker *crew)
{
    double replays = 0;
    for (unsigned cut = 1; cut <= CUTS || replays < CUT_REPLAYS; cut++) {
        ck_assert_msg(cut < CUT_MOST, "%.0f replays: the cuts prove nothing", replays);
        test_nap_s(CUT_EVERY_MS * 1e-3);
        proxy_cut(proxy);
        for (int i = 0; cut % 5 == 0 && i < CUT_WORKERS; i++)
            ck_assert_msg(crew_reaches(&crew[i], crew[i].page->exchanges + 3, WAIT_S), "rank %d: %s", i,
                          crew[i].page->error);
        replays = daemon_number(d, "/status", "center.replays");
    }
}

START_TEST(cut_connections_change_no_sum)
{
    struct daemon d;
    struct proxy proxy;
    struct crew_worker crew[CUT_WORKERS];
    uint16_t ports[3];
    char url[200];
    uint64_t retries = 0, reconnects = 0;
    ck_assert_int_eq(daemon_prepare(&d, NULL, advertised), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    ck_assert(daemon_text(&d, "/status", "listen", url, sizeof url));
    ck_assert(hand_survey(url, ports, 3));
    ck_assert_int_eq(proxy_start(&proxy, ports, 3), 0);
    for (uint32_t i = 0; i < CUT_WORKERS; i++) {
        struct crew_task task = {.server = d.endpoint,
                                 .rank = (int32_t)i,
                                 .floats = FLOATS,
                                 .heartbeat_ms = 40, /* so that the control socket is in use at every cut */
                                 .retry_ms = 50,
                                 .salt = i};
        crew_start(&crew[i], &task);
    }
    for (int i = 0; i < CUT_WORKERS; i++)
        ck_assert_msg(crew_reaches(&crew[i], 3, WAIT_S), "rank %d: %s", i, crew[i].page->error);
    cut_through(&d, &proxy, crew);
    for (int i = 0; i < CUT_WORKERS; i++) {
        ck_assert(crew_stop(&crew[i], WAIT_S));
        ck_assert_msg(crew[i].page->rc == PSC_OK, "rank %d: %s after %lu exchanges: %s", i,
                      psc_result_name(crew[i].page->rc), (unsigned long)crew[i].page->exchanges,
                      crew[i].page->error);
        retries += crew[i].page->info.retries;
        reconnects += crew[i].page->info.reconnects;
    }
    ck_assert_uint_gt(retries, 0);
    ck_assert_uint_gt(reconnects, 0);
    proxy_stop(&proxy);
    assert_sum_saved(&d, crew);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        a_lost_answer_moves_the_center_once,
        an_exchange_of_the_past_is_refused,
        a_lost_answer_to_the_offer_is_given_again,
        a_restart_from_the_checkpoint_still_knows_what_landed,
        what_landed_in_part_is_not_forgotten_over_a_change_after_a_restart,
        what_landed_in_part_is_not_added_under_another_method,
        who_is_late_for_a_change_after_a_restart_lands_nothing_again,
        cut_connections_change_no_sum,
    };
    return suite_run("replay", tests, sizeof tests / sizeof *tests, 500);
}
