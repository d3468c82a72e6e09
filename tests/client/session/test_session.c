/* Sessions with a real psd: joining, what is refused and by which sentence, pulling and pushing. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/psclient.h"
#include "tests/client/results.h"
#include "tests/support/system/daemon.h"
#include "tests/support/unit.h"

enum { N = 5000 };

static const char *const settings[] = {"method=async-sgd",
                                       "schedule={kind: constant, warmup_steps: 0}",
                                       "lanes=2",
                                       "chunk_floats=1024",
                                       "learning_rate=1",
                                       "limits.clients=3",
                                       NULL};
static struct daemon psd;
static uint32_t heartbeat_ms = 10000; /* so that a psd that stands still for a while is not taken for lost */
static float x[N], y[N], zeros[N], ones[N];

static void start_psd(void)
{
    ck_assert_int_eq(daemon_prepare(&psd, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&psd, NULL), 0);
    for (int i = 0; i < N; i++) {
        x[i] = (float)(i % 100);
        ones[i] = 1;
    }
}

static void stop_psd(void)
{
    daemon_remove(&psd);
}

static const struct psc_tensor model[] = {{"conv1", 0, {40, 100}, 2, PSC_PARAM},
                                          {"fc1", 4000, {1000}, 1, PSC_PARAM}};

static int join(struct psc **c, int32_t kind, int32_t rank)
{
    struct psc_options opt;
    psc_options_init(&opt, sizeof opt);
    opt.server = psd.endpoint;
    opt.kind = kind;
    opt.rank = rank;
    opt.retry_ms = 60000;
    opt.heartbeat_ms = heartbeat_ms;
    return psc_open(&opt, c);
}

static struct psc *worker(int32_t rank)
{
    struct psc *c;
    assert_ok(c, join(&c, PSC_WORKER, rank));
    assert_ok(c, psc_begin(c, model, 2, x));
    return c;
}

START_TEST(first_x_becomes_the_center_and_the_others_start_from_it)
{
    struct psc *a = worker(-1), *b;
    ck_assert_int_eq(psc_rank(a), 0);
    assert_ok(b, join(&b, PSC_WORKER, -1));
    for (int i = 0; i < N; i++)
        y[i] = 77;
    assert_ok(b, psc_begin(b, model, 2, y));
    ck_assert_int_eq(psc_rank(b), 1);
    ck_assert_int_eq(psc_size(b), 2);
    struct psc_info info = {.size = sizeof info};
    ck_assert_int_eq(psc_info(b, &info), PSC_OK);
    ck_assert_uint_eq(info.workers, 2);
    ck_assert_mem_eq(x, y, sizeof x);
    psc_close(a);
    psc_close(b);
}
END_TEST

START_TEST(arguments_are_checked)
{
    struct psc *c;
    assert_ok(c, join(&c, PSC_WORKER, 2));
    ck_assert_int_eq(psc_rank(c), 2);
    assert_fails(c, psc_step(c, x, ones, 1), PSC_EINVAL, "psc_step: call psc_begin first");
    assert_fails(c, psc_begin(c, model, 2, NULL), PSC_EINVAL, "a vector");
    assert_fails(c, psc_begin(c, NULL, 2, x), PSC_EMANIFEST, "tensors");
    assert_fails(c, psc_begin(c, model, 0, x), PSC_EMANIFEST, "0 tensors");
    assert_ok(c, psc_begin(c, model, 2, x));
    assert_fails(c, psc_begin(c, model, 2, x), PSC_EINVAL, "allowed is one call");
    assert_fails(c, psc_step(c, NULL, ones, 1), PSC_EINVAL, "psc_step: a vector is missing");
    assert_fails(c, psc_step(c, x, NULL, 1), PSC_EINVAL, "psc_step: a vector is missing");
    assert_fails(c, psc_exchange(c, NULL, y, 1), PSC_EINVAL, "psc_exchange: a vector is missing");
    assert_fails(c, psc_exchange(c, x, NULL, 1), PSC_EINVAL, "psc_exchange: a vector is missing");
    assert_fails(c, psc_exchange(c, x, x, 1), PSC_EINVAL, "overlap");
    assert_fails(c, psc_exchange(c, x, x + N - 1, 1), PSC_EINVAL, "overlap");
    assert_fails(c, psc_pull(c, NULL, NULL), PSC_EINVAL, "psc_pull");
    assert_fails(c, psc_init(c, NULL, NULL), PSC_EINVAL, "psc_init: a vector is missing");
    assert_ok(c, psc_step(c, x, ones, 1)); /* and nothing of that hurt */
    psc_close(c);
}
END_TEST

/* Each is refused before anything is sent, and the same handle can begin with a good model afterwards. */
START_TEST(bad_model_can_be_put_right)
{
    static const struct {
        struct psc_tensor second;
        int want;
        const char *says;
    } bad[] = {
        {{"fc1", 4001, {999}, 1, PSC_PARAM}, PSC_EMANIFEST, "tensor 1 'fc1': offset 4001"},
        {{"fc1", 3999, {1001}, 1, PSC_PARAM}, PSC_EMANIFEST, "tensor 1 'fc1': offset 3999"},
        {{"conv1", 4000, {1000}, 1, PSC_PARAM}, PSC_EMANIFEST, "'conv1'"},
        {{NULL, 4000, {1000}, 1, PSC_PARAM}, PSC_EMANIFEST, "tensor 1"},
        {{"fc1", 4000, {0}, 1, PSC_PARAM}, PSC_EMANIFEST, "dimension 0 is 0"},
        {{"fc1", 4000, {1000}, 9, PSC_PARAM}, PSC_EMANIFEST, "9 dimensions"},
        {{"fc1", 4000, {1000}, 0, PSC_PARAM}, PSC_EMANIFEST, "0 dimensions, and a size of 1000"},
        {{"fc1", 4000, {1000}, 1, 7}, PSC_EMANIFEST, "role 7"},
        {{"fc1", 4000, {1000}, 1, PSC_PARAM, 2}, PSC_EMANIFEST, "decay 2"},
    };
    struct psc *c;
    assert_ok(c, join(&c, PSC_WORKER, -1));
    for (size_t i = 0; i < ROWS(bad); i++) {
        struct psc_tensor tensors[] = {model[0], bad[i].second};
        assert_fails(c, psc_begin(c, tensors, 2, x), bad[i].want, bad[i].says);
    }
    x[4321] = NAN;
    assert_fails(c, psc_begin(c, model, 2, x), PSC_EVALUE, "x[4321]");
    x[4321] = 1;
    assert_ok(c, psc_begin(c, model, 2, x));
    assert_ok(c, psc_pull(c, NULL, y));
    ck_assert_mem_eq(x, y, sizeof x);
    psc_close(c);
}
END_TEST

START_TEST(another_model_is_named)
{
    struct psc_tensor other[] = {model[0], model[1]};
    struct psc *a = worker(-1), *b;
    other[1].name = "fc2";
    assert_ok(b, join(&b, PSC_WORKER, -1));
    assert_fails(b, psc_begin(b, other, 2, x), PSC_EMANIFEST,
                 "tensor 1: 'fc2' [1000] here, 'fc1' [1000] in the job; use the job's");
    psc_close(b);
    assert_ok(b, join(&b, PSC_OBSERVER, -1));
    assert_fails(b, psc_begin(b, model, 1, x), PSC_EMANIFEST,
                 "4000 floats in 1 tensors instead of 5000 in 2: 1 tensors here");
    psc_close(b);
    assert_ok(a, psc_step(a, x, ones, 1)); /* the job goes on */
    psc_close(a);
}
END_TEST

START_TEST(ranks_are_given_once)
{
    struct psc *a = worker(1), *b, *c;
    ck_assert_int_eq(psc_rank(a), 1);
    assert_fails(b, join(&b, PSC_WORKER, 1), PSC_ERANK, "rank 1 is taken");
    ck_assert_int_eq(psc_rank(b), -1);
    psc_close(b);
    assert_fails(b, join(&b, PSC_WORKER, 3), PSC_ERANK, "rank 3; allowed are 0 to 2");
    psc_close(b);
    assert_ok(b, join(&b, PSC_WORKER, -1));
    ck_assert_int_eq(psc_rank(b), 0);
    assert_ok(c, join(&c, PSC_WORKER, -1));
    ck_assert_int_eq(psc_rank(c), 2);
    struct psc *d;
    assert_fails(d, join(&d, PSC_WORKER, -1), PSC_EREFUSED, "limits.clients");
    psc_close(d);
    psc_close(b);
    psc_close(c);
    psc_close(a);
    double end = unit_now_s() + UNIT_HANG_S;
    while (join(&b, PSC_WORKER, 1) != PSC_OK) { /* a rank that left is free again */
        ck_assert_msg(unit_now_s() < end, "%s", psc_error(b));
        psc_close(b);
        unit_nap_ms(5);
    }
    ck_assert_int_eq(psc_rank(b), 1);
    psc_close(b);
}
END_TEST

START_TEST(observer_pulls_and_nothing_else)
{
    struct psc *a = worker(-1), *o;
    assert_ok(o, join(&o, PSC_OBSERVER, -1));
    ck_assert_int_eq(psc_rank(o), -1);
    y[7] = NAN; /* only written */
    assert_ok(o, psc_begin(o, model, 2, y));
    ck_assert_mem_eq(x, y, sizeof x);
    assert_fails(o, psc_step(o, y, ones, 1), PSC_EINVAL, "psc_step: an observer can only pull");
    assert_fails(o, psc_exchange(o, ones, y, 1), PSC_EINVAL, "psc_exchange: an observer can only pull");
    assert_fails(o, psc_init(o, NULL, y), PSC_EINVAL, "psc_init: an observer can only pull");
    assert_ok(a, psc_step(a, x, ones, 1));
    assert_ok(o, psc_pull(o, NULL, y));
    ck_assert_mem_eq(x, y, sizeof x);
    ck_assert_int_eq(psc_size(o), 1);
    psc_close(o);
    psc_close(a);
}
END_TEST

START_TEST(values_that_are_not_finite_are_never_sent)
{
    static const size_t places[] = {0, 3999, 4000, N - 1};
    static const float bad[] = {NAN, INFINITY, -INFINITY, NAN};
    struct psc *c = worker(-1);
    struct psc_info info = {.size = sizeof info};
    for (size_t i = 0; i < ROWS(places); i++) {
        char says[64];
        snprintf(says, sizeof says, "[%zu], in tensor '%s'", places[i], places[i] < 4000 ? "conv1" : "fc1");
        zeros[places[i]] = bad[i];
        memcpy(y, x, sizeof y);
        assert_fails(c, psc_step(c, y, zeros, 1), PSC_EVALUE, says);
        assert_fails(c, psc_exchange(c, zeros, y, 1), PSC_EVALUE, says);
        assert_fails(c, psc_init(c, NULL, zeros), PSC_EVALUE, says);
        zeros[places[i]] = 0;
    }
    ck_assert_uint_eq(psc_clock(c), 0);
    assert_ok(c, psc_pull(c, NULL, y));
    ck_assert_mem_eq(x, y, sizeof x);
    assert_ok(c, psc_step(c, y, ones, 1)); /* the session lives */
    ck_assert_uint_eq(psc_clock(c), 1);
    ck_assert_float_eq(y[3], x[3] - 1);
    ck_assert_int_eq(psc_info(c, &info), PSC_OK);
    ck_assert_uint_eq(info.exchanges, 1);
    ck_assert_uint_eq(info.reconnects, 0);
    psc_close(c);
}
END_TEST

START_TEST(push_sets_what_others_pull)
{
    struct psc *a = worker(-1), *b = worker(-1);
    for (int i = 0; i < N; i++)
        y[i] = (float)i * 3;
    assert_ok(a, psc_init(a, NULL, y));
    assert_ok(b, psc_pull(b, NULL, x));
    ck_assert_mem_eq(x, y, sizeof x);
    psc_close(a);
    psc_close(b);
}
END_TEST

START_TEST(info_tells_what_happened)
{
    struct psc *c = worker(-1);
    struct psc_info info = {.size = sizeof info};
    for (int i = 0; i < 3; i++)
        assert_ok(c, psc_step(c, x, ones, 32));
    ck_assert_int_eq(psc_info(c, &info), PSC_OK);
    ck_assert_uint_eq(info.n_floats, N);
    ck_assert_uint_eq(info.exchanges, 3);
    ck_assert_uint_eq(info.center_version, 3);
    ck_assert_uint_eq(info.bytes_sent, 4 * sizeof x); /* the offer and three gradients */
    ck_assert_uint_eq(info.bytes_received, 3 * sizeof x);
    ck_assert_uint_eq(info.retries, 0);
    ck_assert_double_eq(info.learning_rate, 1);
    ck_assert_double_eq(info.alpha, 0);
    ck_assert_uint_eq(info.period, 1);
    ck_assert_str_eq(info.method, "async-sgd");
    ck_assert_str_eq(info.optimizer, "none");
    ck_assert_str_eq(info.transport, "tcp");
    psc_close(c);
}
END_TEST

START_TEST(report_reaches_the_status_page)
{
    struct psc *c = worker(-1);
    struct psc_metrics m = {.size = offsetof(struct psc_metrics, samples_per_second),
                            .loss = 0.5,
                            .accuracy = 0.25,
                            .samples_per_second = 9}; /* an older program's: the last is not read */
    double loss = NAN;
    assert_ok(c, psc_report(c, &m));
    for (double end = unit_now_s() + UNIT_HANG_S; isnan(loss) && unit_now_s() < end;) {
        unit_nap_ms(5);
        loss = daemon_number(&psd, "/workers", "workers.0.loss");
    }
    ck_assert_double_eq(loss, 0.5);
    ck_assert_double_eq(daemon_number(&psd, "/workers", "workers.0.accuracy"), 0.25);
    psc_close(c);
}
END_TEST

/* What a worker says of itself is text of a bounded length, whatever bytes it has sent. */
START_TEST(what_is_trained_is_told)
{
    char net[300], text[300], expected[200];
    struct psc_options opt;
    struct psc *c;
    memset(net, 'n', sizeof net - 1);
    net[sizeof net - 1] = 0;
    memcpy(net, "a\033[2J\n\"<b>\xff", 11);
    psc_options_init(&opt, sizeof opt);
    opt.server = psd.endpoint;
    opt.net = net;
    opt.data = "digits";
    opt.steps = 4;
    opt.retry_ms = 60000;
    opt.heartbeat_ms = heartbeat_ms;
    assert_ok(c, psc_open(&opt, &c));
    memset(net, 'x', sizeof net - 1); /* it was copied */
    assert_ok(c, psc_begin(c, model, 2, x));
    memset(expected, 'n', sizeof expected);
    memcpy(expected, "a?[2J?\"<b>?", 11);
    expected[63] = 0;
    ck_assert(daemon_text(&psd, "/workers", "workers.0.net", text, sizeof text));
    ck_assert_str_eq(text, expected);
    ck_assert(daemon_text(&psd, "/status", "training.nets.0", text, sizeof text));
    ck_assert_str_eq(text, expected);
    ck_assert(daemon_text(&psd, "/workers", "workers.0.data", text, sizeof text));
    ck_assert_str_eq(text, "digits");
    ck_assert_double_eq(daemon_number(&psd, "/workers", "workers.0.steps"), 4);
    ck_assert_double_eq(daemon_number(&psd, "/workers", "workers.0.learning_rate"), 1);
    ck_assert_double_eq(daemon_number(&psd, "/status", "parameters.learning_rate_now"), 1);
    for (int i = 0; i < 3; i++)
        assert_ok(c, psc_step(c, y, zeros, 1));
    ck_assert_double_eq(daemon_number(&psd, "/status", "training.steps_wanted"), 4);
    struct psc_metrics m = {.size = sizeof m, .test_loss = NAN, .test_accuracy = NAN, .steps = 5};
    assert_ok(c, psc_report(c, &m));
    ck_assert(daemon_reaches(&psd, "/status", "training.steps_wanted", 5, UNIT_HANG_S));
    m.steps = 0; /* not told: it stays */
    m.loss = 0.25;
    assert_ok(c, psc_report(c, &m));
    ck_assert(daemon_reaches(&psd, "/workers", "workers.0.loss", 0.25, UNIT_HANG_S));
    psc_close(c); /* its last words have the last step */
    ck_assert(daemon_workers_become(&psd, 0));
    ck_assert_double_eq(daemon_number(&psd, "/workers", "ended.0.clock"), 3);
    ck_assert_double_eq(daemon_number(&psd, "/status", "training.steps_done"), 3);
    ck_assert_double_eq(daemon_number(&psd, "/status", "training.steps_wanted"), 5);

    opt.net = opt.data = NULL;
    opt.steps = UINT64_MAX; /* more than anybody takes: as good as not told */
    assert_ok(c, psc_open(&opt, &c));
    assert_ok(c, psc_begin(c, model, 2, x));
    ck_assert(isnan(daemon_number(&psd, "/workers", "workers.0.steps")));
    ck_assert(isnan(daemon_number(&psd, "/status", "training.steps_wanted")));
    ck_assert(!daemon_text(&psd, "/workers", "workers.0.net", text, sizeof text));
    psc_close(c);
}
END_TEST

/* psd does not hear it, so the caller is told. */
START_TEST(an_evaluation_is_an_observers_that_has_begun)
{
    struct psc *a = worker(-1), *b;
    struct psc_metrics m = {.size = sizeof m, .loss = 0.5, .test_loss = NAN, .test_accuracy = 1};
    ck_assert_int_eq(psc_report(a, &m), PSC_EINVAL);
    assert_says(psc_error(a), "psc_report: only observers");
    m.test_accuracy = NAN;
    assert_ok(a, psc_report(a, &m));
    assert_ok(a, psc_report(a, &(struct psc_metrics){.size = sizeof m, .loss = 0.25}));
    for (double end = unit_now_s() + UNIT_HANG_S;
         daemon_number(&psd, "/workers", "workers.0.loss") != 0.25;) {
        ck_assert_msg(unit_now_s() < end, "a worker's report does not come");
        unit_nap_ms(5);
    }
    ck_assert_uint_eq(daemon_logged(&psd, "it is ignored"), 0);
    m.test_accuracy = 0.75;
    assert_ok(b, join(&b, PSC_OBSERVER, -1));
    ck_assert_int_eq(psc_report(b, &m), PSC_EINVAL);
    assert_says(psc_error(b), "are allowed after psc_begin");
    assert_ok(b, psc_begin(b, model, 2, y));
    m.test_loss = 0.125;
    assert_ok(b, psc_report(b, &m));
    for (double end = unit_now_s() + UNIT_HANG_S;
         daemon_number(&psd, "/status", "evaluation.test_accuracy") != 0.75;) {
        ck_assert_msg(unit_now_s() < end, "an observer's report does not come");
        unit_nap_ms(5);
    }
    psc_close(b);
    psc_close(a);
}
END_TEST

START_TEST(draining_is_told_and_no_error)
{
    struct psc *c = worker(-1), *late;
    int rc = PSC_OK;
    kill(psd.pid, SIGTERM);
    for (double end = unit_now_s() + UNIT_HANG_S; rc == PSC_OK && unit_now_s() < end;)
        rc = psc_step(c, x, ones, 1);
    ck_assert_msg(rc == PSC_DRAINED, "%s: %s", psc_result_name(rc), psc_error(c));
    rc = join(&late, PSC_WORKER, -1);
    ck_assert_msg(rc == PSC_DRAINED, "%s: %s", psc_result_name(rc), psc_error(late));
    psc_close(late);
    psc_close(c);
    ck_assert_int_eq(daemon_stop(&psd, 0, UNIT_HANG_S), 0);
}
END_TEST

/* The worker's half of one rule is not another's: x would be taken for a gradient. Nor are payloads what
 * another codec would make. So it goes over as in a change while psd runs. */
START_TEST(server_that_comes_back_with_another_method_is_followed)
{
    static const char *const others[][6] = {
        {"method=async-easgd", "alpha=0.5", "period=1", "lanes=2", "chunk_floats=1024", NULL},
        {"method=async-sgd", "codec.message=int8", "lanes=2", "chunk_floats=1024", NULL}};
    static const char *const methods[] = {"async-easgd", "async-sgd"};
    struct psc_info info = {.size = sizeof info};
    heartbeat_ms = 100;
    struct psc *c = worker(-1);
    assert_ok(c, psc_step(c, x, ones, 1));
    ck_assert(daemon_checkpoint(&psd, UNIT_HANG_S));
    daemon_stop(&psd, SIGKILL, UNIT_HANG_S);
    psd.settings = others[_i];
    ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
    for (int t = 0; t < 3; t++)
        assert_ok(c, psc_step(c, x, ones, 1));
    psc_info(c, &info);
    ck_assert_str_eq(info.method, methods[_i]);
    ck_assert_uint_eq(info.generation, 1);
    psc_close(c);
    psd.settings = settings;
}
END_TEST

#define COSINE                                                                                               \
    "learning_rate=1", "schedule={kind: cosine, total_steps: 10, floor: 0.125, warmup_steps: 2}",            \
        "period=1", "lanes=2"

static const char *const easgd[] = {"method=async-easgd", "alpha=0.5", COSINE, NULL};
static const char *const downpour[] = {"method=downpour", COSINE, NULL};
static const char *const gradients[] = {"method=async-sgd", COSINE, NULL};
static const char *const bounded[] = {"method=ssp-sgd", "slack=1", COSINE, NULL};
static const char *const in_rounds[] = {"method=sync-easgd", "alpha=0.5", COSINE, NULL};
static const char *const one_clique[] = {"method=d-sync", COSINE, NULL};
static const char *const *const late_rows[] = {easgd, downpour, gradients, bounded, in_rounds, one_clique};

static void start_late(const char *const *rows)
{
    ck_assert_int_eq(daemon_prepare(&psd, NULL, rows), 0);
    ck_assert_int_eq(daemon_start(&psd, NULL), 0);
}

static void make_steps(struct psc *c, int n)
{
    for (int t = 0; t < n; t++)
        assert_ok(c, psc_step(c, x, zeros, 1));
}

static double rate_of(const struct psc *c)
{
    struct psc_info info = {.size = sizeof info};
    ck_assert_int_eq(psc_info(c, &info), PSC_OK);
    return info.learning_rate;
}

static void leave(struct psc *c)
{
    psc_close(c);
    ck_assert(daemon_workers_become(&psd, 0));
}

/* The step is that long: whoever makes it, the worker or psd. */
static void check_late(struct psc *c, uint64_t from, uint64_t to)
{
    uint64_t t = psc_clock(c);
    ck_assert_msg(t >= from && t <= to, "it begins at %d", (int)t);
    ck_assert_double_lt(rate_of(c), 0.15);
    for (int i = 0; i < N; i++)
        ones[i] = 1;
    float before = x[0];
    double rate = rate_of(c);
    assert_ok(c, psc_step(c, x, ones, 1));
    assert_ok(c, psc_wait(c, PSC_ALL));
    ck_assert_double_eq_tol((double)(before - x[0]), rate, 1e-5);
    ck_assert_uint_eq(psc_clock(c), t + 1);
}

/* Whether the first has left, and said at which step, or was lost, when psd knows its last message: the new
 * one does not begin with the high rate of the first steps. */
START_TEST(who_comes_after_another_has_the_running_rate)
{
    start_late(late_rows[_i]);
    bool is_lost = _i % 2 == 0;
    struct psc *a = worker(-1);
    ck_assert_double_eq(rate_of(a), 0.5);
    make_steps(a, 10);
    if (is_lost) {
        free(daemon_ask(&psd, "POST", "/evict?rank=0"));
        ck_assert(daemon_workers_become(&psd, 0));
    } else {
        leave(a);
    }
    struct psc *b = worker(-1);
    check_late(b, is_lost ? 9 : 10, 10);
    ck_assert_uint_eq(daemon_logged(&psd, "session.late"), 1);
    if (late_rows[_i] != one_clique) {
        struct psc *c = worker(2); /* a rank that nobody has had */
        ck_assert_uint_ge(psc_clock(c), is_lost ? 9 : 10);
        psc_close(c);
    }
    psc_close(b);
    if (is_lost)
        psc_close(a);
}
END_TEST

static const char *const a_second[] = {"method=async-easgd", "alpha=0.5", COSINE, NULL};
static const char *const second_of_two[] = {"method=dc-asgd", "workers=2", COSINE, NULL};
static const char *const second_of_one[] = {"method=sync-easgd", "alpha=0.5", "workers=1", COSINE, NULL};
static const struct {
    const char *const *settings;
    bool is_late;
} seconds[] = {{a_second, false}, {second_of_two, false}, {second_of_one, true}};

/* Nobody has left: whoever only starts later than the first begins as that did. */
START_TEST(the_first_workers_begin_at_the_first_step)
{
    start_late(seconds[_i].settings);
    struct psc *a = worker(-1);
    make_steps(a, 10);
    struct psc *b = worker(-1);
    ck_assert_uint_ge(psc_clock(b), seconds[_i].is_late ? 9 : 0);
    ck_assert_uint_le(psc_clock(b), seconds[_i].is_late ? 10 : 0);
    ck_assert_int_eq(rate_of(b) < 0.15, seconds[_i].is_late);
    psc_close(b);
    psc_close(a);
}
END_TEST

/* Also when psd knows it from its checkpoint alone. Without the record of the job the checkpoint begins
 * another one, whose schedule is its own, also when that is resumed from the same file. */
START_TEST(who_joins_a_resumed_job_has_the_running_rate)
{
    char record[120];
    start_late(easgd);
    snprintf(record, sizeof record, "%s/job", psd.state_dir);
    struct psc *a = worker(-1), *b;
    make_steps(a, 10);
    leave(a);
    ck_assert_int_eq(daemon_stop(&psd, SIGTERM, UNIT_HANG_S), 0);
    ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
    ck_assert_double_lt(daemon_number(&psd, "/status", "parameters.learning_rate_now"), 0.15);
    b = worker(1);
    check_late(b, 10, 10);
    psc_close(b);
    daemon_stop(&psd, SIGKILL, UNIT_HANG_S);
    ck_assert_int_eq(unlink(record), 0);
    for (int life = 0; life < 2; life++) {
        ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
        b = worker(-1);
        ck_assert_uint_eq(psc_clock(b), 0);
        ck_assert_double_eq(rate_of(b), 0.5);
        psc_close(b);
        daemon_stop(&psd, SIGKILL, UNIT_HANG_S);
    }
}
END_TEST

/* The file's clock is the worker's, also that of a worker that was late. */
START_TEST(a_state_has_its_own_clock)
{
    char path[160], late[160];
    start_late(easgd);
    snprintf(path, sizeof path, "%s/early.state", psd.dir);
    snprintf(late, sizeof late, "%s/late.state", psd.dir);
    struct psc *c = worker(-1);
    make_steps(c, 1);
    assert_ok(c, psc_save(c, path, x, NULL, 0));
    make_steps(c, 9);
    leave(c);
    c = worker(-1);
    make_steps(c, 2);
    assert_ok(c, psc_save(c, late, x, NULL, 0));
    leave(c);
    c = worker(-1);
    assert_ok(c, psc_load(c, path, x, NULL, 0, NULL));
    ck_assert_uint_eq(psc_clock(c), 1);
    ck_assert_double_gt(rate_of(c), 0.9);
    leave(c);
    c = worker(-1);
    assert_ok(c, psc_load(c, late, x, NULL, 0, NULL));
    ck_assert_uint_eq(psc_clock(c), 12);
    ck_assert_double_eq(rate_of(c), 0.125);
    psc_close(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-session");
    TCase *tc = tcase_create("session"), *late = tcase_create("late");
    tcase_add_checked_fixture(tc, start_psd, stop_psd);
    tcase_add_test(tc, first_x_becomes_the_center_and_the_others_start_from_it);
    tcase_add_test(tc, arguments_are_checked);
    tcase_add_test(tc, bad_model_can_be_put_right);
    tcase_add_test(tc, another_model_is_named);
    tcase_add_test(tc, ranks_are_given_once);
    tcase_add_test(tc, observer_pulls_and_nothing_else);
    tcase_add_test(tc, values_that_are_not_finite_are_never_sent);
    tcase_add_test(tc, push_sets_what_others_pull);
    tcase_add_test(tc, info_tells_what_happened);
    tcase_add_test(tc, report_reaches_the_status_page);
    tcase_add_test(tc, what_is_trained_is_told);
    tcase_add_test(tc, an_evaluation_is_an_observers_that_has_begun);
    tcase_add_loop_test(tc, server_that_comes_back_with_another_method_is_followed, 0, 2);
    tcase_add_test(tc, draining_is_told_and_no_error);
    suite_add_tcase(suite, tc);
    tcase_add_checked_fixture(late, NULL, stop_psd);
    tcase_add_loop_test(late, who_comes_after_another_has_the_running_rate, 0, ROWS(late_rows));
    tcase_add_loop_test(late, the_first_workers_begin_at_the_first_step, 0, ROWS(seconds));
    tcase_add_test(late, who_joins_a_resumed_job_has_the_running_rate);
    tcase_add_test(late, a_state_has_its_own_clock);
    suite_add_tcase(suite, late);
    return unit_run(suite);
}
