/* Gradients that leave chunk by chunk while the rest is computed, with a real psd: the same bits as psc_step,
 * under every admission; what is refused; lost connections, restarts and changes of the method in mid-step.
 */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>

#include "tests/client/psd_fixture.h"
#include "tests/support/system/proxy.h"
#include "tests/support/system/raw_client.h"

enum { N = RIG_N, STEPS = 12, WORKERS = 3, MOST = 8 }; /* settings, and a NULL */

static struct daemon psd;
static float start[N], center[N], seen[N], trace[2][WORKERS][STEPS][N];

#define SETTINGS "schedule={kind: constant, warmup_steps: 0}", "learning_rate=0.0625", RIG_CUT

static void stop_psd(void)
{
    daemon_remove(&psd);
}

struct worker {
    struct psc *c;
    int rank;
    float x[N], g[N];
    int run;     /* row of trace */
    bool leaves; /* when it has made its steps: the others' rounds go on without it */
    int (*step)(struct worker *);
};
static struct worker workers[WORKERS];

static int by_tensors(struct worker *w);

static struct worker *join(int rank)
{
    struct worker *w = &workers[rank];
    struct psc_options opt;
    psc_options_init(&opt, sizeof opt);
    opt.server = psd.endpoint;
    opt.rank = rank;
    opt.retry_ms = rig_retry_ms;
    opt.heartbeat_ms = rig_heartbeat_ms;
    memcpy(w->x, start, sizeof start);
    assert_ok(w->c, psc_open(&opt, &w->c));
    assert_ok(w->c, psc_begin(w->c, rig_model, RIG_TENSORS, w->x));
    w->rank = rank;
    w->step = by_tensors;
    return w;
}

/* A gradient that depends on x, so that a difference would grow; and statistics of its batch. */
static void compute(struct worker *w)
{
    struct dice dice = {1000 * psc_clock(w->c) + (uint64_t)w->rank};
    for (int i = 0; i < N; i++) {
        w->g[i] = 0.5f * w->x[i] + dice_float(&dice);
        if (rig_tensor_at((size_t)i)->role == PSC_BUFFER)
            w->x[i] = dice_float(&dice);
    }
}

static int whole(struct worker *w)
{
    return psc_step(w->c, w->x, w->g, 4);
}

static int begin(struct worker *w)
{
    return psc_step_begin(w->c, w->x, w->g, 4);
}

/* As backpropagation ends them. */
static int by_tensors(struct worker *w)
{
    int rc = begin(w);
    for (int k = RIG_TENSORS - 1; k >= 0 && rc == PSC_OK; k--) {
        uint64_t end = k + 1 < RIG_TENSORS ? rig_model[k + 1].offset : N;
        rc = psc_ready(w->c, rig_model[k].offset, end - rig_model[k].offset);
    }
    return rc == PSC_OK ? psc_step_end(w->c) : rc;
}

/* In parts of a tenth, in another order at each step and worker, with naps in which chunks travel. */
static int in_any_order(struct worker *w)
{
    enum { PARTS = 10 };
    struct dice dice = {psc_clock(w->c) * 8 + (uint64_t)w->rank + 1};
    int order[PARTS], rc = begin(w);
    for (int i = 0; i < PARTS; i++) {
        int k = (int)dice_below(&dice, (uint64_t)(i + 1));
        order[i] = order[k];
        order[k] = i;
    }
    for (int i = 0; i < PARTS && rc == PSC_OK; i++) {
        rc = psc_ready(w->c, (uint64_t)order[i] * (N / PARTS), N / PARTS);
        unit_nap_ms((long)dice_below(&dice, 2));
    }
    return rc == PSC_OK ? psc_step_end(w->c) : rc;
}

/* From both ends, by a few floats. */
static int by_few(struct worker *w)
{
    enum { FEW = 125 };
    int rc = begin(w);
    for (uint64_t k = 0; k < N / FEW / 2 && rc == PSC_OK; k++) {
        rc = psc_ready(w->c, k * FEW, FEW);
        if (rc == PSC_OK)
            rc = psc_ready(w->c, N - (k + 1) * FEW, FEW);
    }
    return rc == PSC_OK ? psc_step_end(w->c) : rc;
}

static int (*const ways[])(struct worker *) = {by_tensors, in_any_order, by_few};

static void run_steps(struct worker *w)
{
    for (int t = 0; t < STEPS; t++) {
        compute(w);
        assert_ok(w->c, w->step(w));
        memset(w->g, 0x7f, sizeof w->g); /* it is the caller's again */
        memcpy(trace[w->run][w->rank][t], w->x, sizeof w->x);
        ck_assert_uint_eq(psc_clock(w->c), (uint64_t)t + 1);
    }
}

static void check_traces(int n)
{
    for (int w = 0; w < n; w++)
        for (int t = 0; t < STEPS; t++)
            for (int i = 0; i < N; i++)
                if (memcmp(&trace[0][w][t][i], &trace[1][w][t][i], sizeof(float)) != 0)
                    ck_abort_msg("worker %d, t = %d, [%d]: %.9g by psc_step, %.9g in parts", w, t, i,
                                 (double)trace[0][w][t][i], (double)trace[1][w][t][i]);
}

static const struct {
    const char *method, *more, *decay, *codec;
} rows[] = {
    {"method=async-sgd", "momentum=preset", "weight_decay=0", "codec={}"},
    {"method=async-msgd", "momentum=0.5", "weight_decay=0.01", "codec={}"},
    {"method=async-sgd", "rule=adam", "weight_decay=0", "codec={}"},
    {"method=async-sgd", "rule=adagrad", "weight_decay=0.01", "codec={message: fp16}"},
    {"method=mdownpour", "momentum=0.5", "weight_decay=0", "codec={message: bf16, answer: fp16}"},
    {"method=dc-asgd", "workers=1", "weight_decay=0", "codec={}"},
    {"method=staleness-sgd", "momentum=preset", "weight_decay=0",
     "codec={message: int8, answer: fp16, error_feedback: true}"},
    {"method=async-sgd", "averaging=mean", "weight_decay=0.01",
     "codec={message: 'topk:0.1', error_feedback: true}"},
    {"method=hogwild-sgd", "momentum=preset", "weight_decay=0.01", "codec={}"},
    {"method=sync-sgd", "momentum=preset", "weight_decay=0.01", "codec={}"},
    {"method=sync-sgd", "rule=momentum", "weight_decay=0",
     "codec={message: int4, answer: int8, error_feedback: true}"},
    {"method=ssp-sgd", "momentum=preset", "weight_decay=0", "codec={}"},
    {"method=async-sgd", "admission=round-robin", "weight_decay=0", "codec={}"},
    /* Where they do not leave early: the same bits all the same. */
    {"method=async-sgd", "overlap=true", "weight_decay=0.01", "codec={}"},
    {"method=backup-sgd", "momentum=preset", "weight_decay=0", "codec={}"},
    {"method=async-easgd", "momentum=preset", "weight_decay=0.01", "codec={}"},
    {"method=downpour", "momentum=preset", "weight_decay=0", "codec={}"},
};

static void start_row(int i)
{
    static const char *settings[8];
    size_t n = 0;
    settings[n++] = rows[i].method;
    settings[n++] = "schedule={kind: constant, warmup_steps: 0}";
    settings[n++] = "learning_rate=0.0625";
    settings[n++] = "lanes=3";
    settings[n++] = "chunk_floats=1024";
    if (strstr(rows[i].more, "=preset") == NULL)
        settings[n++] = rows[i].more;
    settings[n++] = strcmp(rows[i].decay, "weight_decay=0") != 0 ? rows[i].decay : rows[i].codec;
    settings[n] = NULL;
    rig_start(&psd, settings);
}

START_TEST(a_step_in_parts_has_the_bits_of_psc_step)
{
    rig_roll(start, N, 50);
    for (size_t k = 0; k <= ROWS(ways); k++) {
        start_row(_i);
        struct worker *w = join(0);
        w->run = k > 0;
        w->step = k > 0 ? ways[k - 1] : whole;
        run_steps(w);
        psc_close(w->c);
        daemon_remove(&psd);
        if (k > 0)
            check_traces(1);
    }
}
END_TEST

static void *run_thread(void *arg)
{
    struct worker *w = arg;
    run_steps(w);
    if (w->leaves)
        psc_close(w->c);
    return NULL;
}

/* Workers of one job, each in a way of its own. */
static void run_workers(const char *const *settings, int run, int shift, bool leave)
{
    pthread_t threads[WORKERS];
    rig_start(&psd, settings);
    for (int r = 0; r < WORKERS; r++) {
        struct worker *w = join(r);
        w->leaves = leave;
        w->run = run;
        w->step = run == 0 || (r + shift) % WORKERS == 0 ? whole : ways[(r + shift) % (int)ROWS(ways)];
    }
    for (int r = 0; r < WORKERS; r++)
        ck_assert_int_eq(pthread_create(&threads[r], NULL, run_thread, &workers[r]), 0);
    for (int r = 0; r < WORKERS; r++)
        ck_assert_int_eq(pthread_join(threads[r], NULL), 0);
    for (int r = 0; r < WORKERS && !leave; r++)
        psc_close(workers[r].c);
    daemon_remove(&psd);
}

static const char *const ordered[][MOST] = {
    {"method=sync-sgd", SETTINGS, "workers=3", NULL},
    {"method=async-msgd", "admission=round-robin", SETTINGS, "workers=3"},
};

START_TEST(workers_that_wait_for_each_other_may_report_in_any_order)
{
    rig_roll(start, N, 50);
    run_workers(ordered[_i], 0, 0, false);
    for (int shift = 0; shift < WORKERS; shift++) {
        run_workers(ordered[_i], 1, shift, false);
        check_traces(WORKERS);
    }
}
END_TEST

static const char *const unordered[][MOST] = {
    {"method=ssp-sgd", "slack=0", SETTINGS, "workers=3"},
    {"method=async-sgd", SETTINGS, NULL},
    {"method=hogwild-sgd", SETTINGS, NULL},
    {"method=backup-sgd", SETTINGS, "workers=3", NULL},
};

START_TEST(and_none_waits_for_ever)
{
    rig_roll(start, N, 50);
    for (int shift = 0; shift < WORKERS; shift++)
        run_workers(unordered[_i], 1, shift, true);
}
END_TEST

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

/* Parameters of the center within the range that differ from the start. */
static int count_moved(struct psc *observer, int first, int end)
{
    int n = 0;
    assert_ok(observer, psc_pull(observer, NULL, seen));
    for (int i = first; i < end; i++)
        n += rig_tensor_at((size_t)i)->role == PSC_PARAM && seen[i] != start[i];
    return n;
}

/* fc.weight is at 8000 to 9899; the last chunks of lane 2 lie behind 8700, the first of lane 0 before 960. */
enum { LATE = 8000, LATE_END = 9900, EARLY_END = 900 };

/* A step has begun, and what of it is ready has moved the center. */
static void send_late_part(struct worker *w, struct psc *observer)
{
    double end_s = unit_now_s() + UNIT_HANG_S;
    assert_ok(w->c, begin(w));
    assert_ok(w->c, psc_ready(w->c, LATE, N - LATE));
    while (count_moved(observer, LATE, LATE_END) < 700)
        ck_assert_msg(unit_now_s() < end_s, "nothing has left while the step is open");
}

static uint32_t is_early(const struct psc *c)
{
    struct psc_info info = {.size = sizeof info};
    psc_info(c, &info);
    return info.early;
}

static const char *const early[][MOST] = {
    {"method=async-sgd", SETTINGS, NULL},
    {"method=async-sgd", "codec={message: int8, error_feedback: true}", SETTINGS, NULL},
    {"method=sync-sgd", SETTINGS, NULL},
    {"method=async-msgd", "admission=round-robin", SETTINGS, NULL},
    {"method=hogwild-sgd", SETTINGS, NULL},
};

START_TEST(chunks_that_are_ready_move_the_center)
{
    rig_roll(start, N, 50);
    rig_start(&psd, early[_i]);
    struct worker *w = join(0);
    struct psc *observer = observe();
    ck_assert_uint_eq(is_early(w->c), 1);
    ck_assert_uint_eq(is_early(observer), 0);
    compute(w);
    send_late_part(w, observer);
    ck_assert_int_eq(count_moved(observer, 0, LATE - 1100), 0); /* the rest is not ready */
    ck_assert_double_eq(daemon_number(&psd, "/status", "center.version"), 0);
    assert_ok(w->c, psc_ready(w->c, 0, LATE));
    assert_ok(w->c, psc_step_end(w->c));
    ck_assert_int_gt(count_moved(observer, 0, EARLY_END), 800);
    ck_assert_double_eq(daemon_number(&psd, "/status", "center.version"), 1);
    psc_close(observer);
    psc_close(w->c);
}
END_TEST

static const char *const late[][MOST] = {
    {"method=backup-sgd", SETTINGS, NULL},
    {"method=sync-sgd", "admission=quorum", "quorum=1", SETTINGS, NULL},
    {"method=async-sgd", "overlap=true", SETTINGS, NULL},
    {"method=async-sgd", "admission=round-robin", "serial=true", SETTINGS},
    {"method=async-easgd", SETTINGS, NULL},
    {"method=downpour", "period=1", SETTINGS, NULL},
};

START_TEST(where_all_of_g_comes_first_nothing_does)
{
    rig_roll(start, N, 50);
    rig_start(&psd, late[_i]);
    struct worker *w = join(0);
    struct psc *observer = observe();
    ck_assert_uint_eq(is_early(w->c), 0);
    compute(w);
    assert_ok(w->c, begin(w));
    assert_ok(w->c, psc_ready(w->c, 1000, N - 1000));
    for (int k = 0; k < 20; k++)
        ck_assert_int_eq(count_moved(observer, 0, N), 0);
    assert_ok(w->c, psc_ready(w->c, 0, 1000));
    assert_ok(w->c, psc_step_end(w->c));
    ck_assert_uint_eq(psc_clock(w->c), 1);
    psc_close(observer);
    psc_close(w->c);
}
END_TEST

static const char *const plain[] = {"method=async-sgd", "checkpoint.every_s=0", SETTINGS, NULL};

/* What is refused takes no chunk along, before and after some have left. */
static int with_mistakes(struct worker *w)
{
    static struct psc *observer;
    struct psc *c = w->c;
    if (psc_clock(c) != 0)
        return by_tensors(w);
    observer = observe();
    send_late_part(w, observer);
    ck_assert_int_eq(psc_ready(c, LATE - 500, 600), PSC_EINVAL);
    assert_says(psc_error(c), "of these 100 from 8000 on were reported before");
    ck_assert_int_eq(psc_ready(c, N - 1, 2), PSC_EINVAL);
    ck_assert_int_eq(psc_ready(c, LATE, N - LATE), PSC_EINVAL);
    ck_assert_int_eq(psc_step_end(c), PSC_EINVAL);
    assert_says(psc_error(c), "8000 floats from 0 on, of tensor 'conv.weight', were not reported");
    ck_assert_int_eq(psc_pull(c, NULL, center), PSC_EINVAL);
    ck_assert_int_eq(psc_step(c, w->x, w->g, 4), PSC_EINVAL);
    assert_ok(c, psc_ready(c, 1000, 7000));
    ck_assert_int_eq(psc_step_end(c), PSC_EINVAL);
    assert_says(psc_error(c), "1000 floats from 0 on");
    for (int k = 0; k < 5; k++)
        ck_assert_int_eq(count_moved(observer, 0, EARLY_END), 0);
    assert_ok(c, psc_ready(c, 0, 1000));
    psc_close(observer);
    return psc_step_end(c);
}

START_TEST(mistakes_are_named_and_the_step_goes_on)
{
    rig_roll(start, N, 50);
    for (int run = 0; run < 2; run++) {
        rig_start(&psd, plain);
        struct worker *w = join(0);
        w->run = run;
        w->step = run == 0 ? whole : with_mistakes;
        run_steps(w);
        psc_close(w->c);
        daemon_remove(&psd);
    }
    check_traces(1);
}
END_TEST

/* In the first part that would leave: as in psc_step. */
START_TEST(a_value_that_is_not_finite_stops_all_where_nothing_has_left)
{
    rig_roll(start, N, 50);
    rig_start(&psd, plain);
    struct worker *w = join(0);
    compute(w);
    w->g[9000] = NAN;
    assert_ok(w->c, begin(w));
    assert_ok(w->c, psc_ready(w->c, 9950, 50)); /* no whole chunk */
    assert_ok(w->c, psc_ready(w->c, 8000, 1950));
    assert_ok(w->c, psc_ready(w->c, 0, 8000));
    ck_assert_int_eq(psc_step_end(w->c), PSC_EVALUE);
    assert_says(psc_error(w->c), "the message[9000], in tensor 'fc.weight', is not finite: nothing was sent");
    ck_assert_uint_eq(psc_clock(w->c), 0);
    assert_ok(w->c, psc_pull(w->c, NULL, w->x));
    ck_assert_mem_eq(w->x, start, sizeof start);
    compute(w);
    assert_ok(w->c, by_tensors(w));
    ck_assert_uint_eq(psc_clock(w->c), 1);
    psc_close(w->c);
}
END_TEST

static void *make_a_step(void *arg)
{
    struct worker *w = arg;
    compute(w);
    assert_ok(w->c, w->step(w));
    return NULL;
}

static void spoil(struct worker *w)
{
    w->g[100] = INFINITY;
    assert_ok(w->c, psc_ready(w->c, 0, LATE));
    ck_assert_int_eq(psc_step_end(w->c), PSC_EVALUE);
    assert_says(psc_error(w->c), "the message[100], in tensor 'conv.weight', is not finite: parts of the "
                                 "gradient that were ready before have been sent, and the session ends");
    compute(w);
    ck_assert_int_eq(whole(w), PSC_EVALUE);
    assert_says(psc_error(w->c), "the message[100]");
    ck_assert_int_eq(by_tensors(w), PSC_EVALUE);
    ck_assert_int_eq(psc_pull(w->c, NULL, w->x), PSC_EVALUE);
}

/* Behind chunks that have left: the message cannot be completed, and the worker leaves. */
START_TEST(else_the_session_ends)
{
    rig_roll(start, N, 50);
    rig_start(&psd, plain);
    struct worker *w = join(0);
    struct psc *observer = observe();
    compute(w);
    send_late_part(w, observer);
    spoil(w);
    ck_assert(daemon_workers_become(&psd, 0));
    ck_assert_double_eq(daemon_number(&psd, "/status", "center.version"), 0); /* it was no exchange */
    ck_assert_int_eq(count_moved(observer, 0, EARLY_END), 0);
    psc_close(w->c);
    w = join(0);
    compute(w);
    assert_ok(w->c, by_tensors(w));
    ck_assert_double_eq(daemon_number(&psd, "/status", "center.version"), 1);
    psc_close(observer);
    psc_close(w->c);
}
END_TEST

static _Atomic bool has_moved;

/* The late part, and when it has moved the center the rest. */
static int late_part_first(struct worker *w)
{
    if (psc_clock(w->c) > 0)
        return by_tensors(w);
    int rc = begin(w);
    if (rc == PSC_OK)
        rc = psc_ready(w->c, LATE, N - LATE);
    while (!atomic_load(&has_moved))
        unit_nap_ms(1);
    if (rc == PSC_OK)
        rc = psc_ready(w->c, 0, LATE);
    return rc == PSC_OK ? psc_step_end(w->c) : rc;
}

/* The others' round goes on without it, and counts once. */
static void lose_a_member(void (*lose)(struct worker *))
{
    static const char *const settings[] = {"method=sync-sgd", "workers=2", SETTINGS, NULL};
    pthread_t thread;
    rig_roll(start, N, 50);
    rig_start(&psd, settings);
    for (int r = 0; r < 2; r++)
        join(r)->step = late_part_first;
    ck_assert_int_eq(pthread_create(&thread, NULL, make_a_step, &workers[1]), 0);
    struct psc *observer = observe();
    compute(&workers[0]);
    send_late_part(&workers[0], observer);
    atomic_store(&has_moved, true);
    lose(&workers[0]);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    ck_assert_double_eq(daemon_number(&psd, "/status", "center.version"), 1);
    for (int k = 0; k < 3; k++)
        make_a_step(&workers[1]);
    ck_assert_double_eq(daemon_number(&psd, "/status", "center.version"), 4);
    psc_close(observer);
    psc_close(workers[1].c);
}

static void close_it(struct worker *w)
{
    psc_close(w->c);
}

static void spoil_and_close(struct worker *w)
{
    spoil(w);
    psc_close(w->c);
}

START_TEST(a_member_that_leaves_in_mid_step_stops_no_round)
{
    lose_a_member(_i == 0 ? close_it : spoil_and_close);
}
END_TEST

/* Chunks that have left do not say that their worker waits: it hangs, and the other waits for it. */
START_TEST(a_worker_that_hangs_in_mid_step_is_given_up)
{
    static const char *const settings[] = {"method=sync-sgd", "workers=2", "limits.step_s=1", SETTINGS, NULL};
    pthread_t thread;
    rig_roll(start, N, 50);
    rig_start(&psd, settings);
    join(0);
    join(1)->step = whole;
    compute(&workers[0]);
    assert_ok(workers[0].c, begin(&workers[0]));
    assert_ok(workers[0].c, psc_ready(workers[0].c, 1000, N - 1000));
    ck_assert_int_eq(pthread_create(&thread, NULL, make_a_step, &workers[1]), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0); /* it ends: the round goes on without the other */
    ck_assert(daemon_workers_become(&psd, 1));
    assert_ok(workers[0].c, psc_ready(workers[0].c, 0, 1000));
    ck_assert_int_eq(psc_step_end(workers[0].c), PSC_EEVICTED);
    assert_says(psc_error(workers[0].c), "no step for");
    for (int r = 0; r < 2; r++)
        psc_close(workers[r].c);
}
END_TEST

/* psd behind a proxy that cuts its connections, while the step is open and when it ends. */
static struct proxy proxy;
static bool cuts;

static int cut_in_mid_step(struct worker *w)
{
    int rc = begin(w);
    for (int k = 9; k >= 0 && rc == PSC_OK; k--) {
        if (cuts && k % 3 == (int)(psc_clock(w->c) % 3))
            proxy_cut(&proxy);
        rc = psc_ready(w->c, (uint64_t)k * (N / 10), N / 10);
    }
    return rc == PSC_OK ? psc_step_end(w->c) : rc;
}

START_TEST(connections_may_be_lost_in_mid_step)
{
    static const char *const behind[][MOST] = {
        {"method=async-msgd", "advertise=127.0.0.2", SETTINGS, NULL},
        {"method=sync-sgd", "advertise=127.0.0.2", SETTINGS, NULL},
        {"method=async-sgd", "advertise=127.0.0.2", "codec={message: int8, error_feedback: true}", SETTINGS}};
    char url[200] = "";
    uint16_t ports[4];
    rig_roll(start, N, 50);
    rig_lose_messages();
    for (int run = 0; run < 2; run++) {
        rig_start(&psd, behind[_i]);
        ck_assert(daemon_text(&psd, "/status", "listen", url, sizeof url));
        ck_assert(hand_survey(url, ports, ROWS(ports)));
        ck_assert_int_eq(proxy_start(&proxy, ports, ROWS(ports)), 0);
        struct worker *w = join(0);
        cuts = run > 0;
        w->run = run;
        w->step = cut_in_mid_step;
        run_steps(w);
        psc_close(w->c);
        proxy_stop(&proxy);
        daemon_remove(&psd);
    }
    check_traces(1);
}
END_TEST

/* psd is killed in the middle of step 2, after it has a checkpoint: under rounds that of the round before;
 * else one that has the chunks that had landed. */
static void kill_and_resume(void)
{
    ck_assert_int_ge(daemon_stop(&psd, SIGKILL, UNIT_HANG_S), 0);
    ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
}

static bool in_rounds;

static int through_a_restart(struct worker *w)
{
    if (in_rounds && psc_clock(w->c) == 1) /* it is made when the round has ended */
        free(daemon_ask(&psd, "POST", "/checkpoint"));
    if (psc_clock(w->c) != 2)
        return by_tensors(w);
    struct psc *observer = observe();
    if (in_rounds)
        ck_assert(daemon_reaches(&psd, "/status", "checkpoint.last_version", 2, UNIT_HANG_S));
    memcpy(start, w->x, sizeof start); /* the center */
    send_late_part(w, observer);
    if (!in_rounds)
        ck_assert(daemon_checkpoint(&psd, UNIT_HANG_S));
    psc_close(observer);
    kill_and_resume();
    assert_ok(w->c, psc_ready(w->c, 5000, 3000));
    unit_nap_ms(20);
    assert_ok(w->c, psc_ready(w->c, 0, 5000));
    return psc_step_end(w->c);
}

START_TEST(psd_may_be_killed_in_mid_step)
{
    static const char *const settings[][MOST] = {
        {"method=async-msgd", "checkpoint.every_s=0", RIG_SAME_ADDRESS, SETTINGS},
        {"method=sync-sgd", "checkpoint.every_s=0", RIG_SAME_ADDRESS, SETTINGS}};
    in_rounds = _i == 1;
    for (int run = 0; run < 2; run++) {
        rig_roll(start, N, 50);
        rig_lose_messages();
        rig_start(&psd, settings[_i]);
        struct worker *w = join(0);
        w->run = run;
        w->step = run == 0 ? whole : through_a_restart;
        run_steps(w);
        psc_close(w->c);
        daemon_remove(&psd);
    }
    check_traces(1);
}
END_TEST

/* The server is gone for good: what waits for the worker's own computing is no silence, what waits for psd
 * is. */
START_TEST(a_server_that_is_gone_is_told_at_the_end)
{
    static char says[32];
    static struct worker *w = &workers[0];
    rig_roll(start, N, 50);
    rig_start(&psd, plain);
    memcpy(w->x, start, sizeof start);
    w->c = rig_join_hasty(&psd, rig_model, RIG_TENSORS, w->x, says);
    compute(w);
    assert_ok(w->c, begin(w));
    assert_ok(w->c, psc_ready(w->c, LATE, N - LATE));
    ck_assert_int_ge(daemon_stop(&psd, SIGKILL, UNIT_HANG_S), 0);
    assert_ok(w->c, psc_ready(w->c, 0, LATE));
    ck_assert_int_eq(psc_step_end(w->c), PSC_EGONE);
    psc_close(w->c);
}
END_TEST

/* The method changes in mid-step. What has begun is finished under the old one, and the next step is of the
 * new one; where no chunk has left the step is made under the new one. */
START_TEST(the_method_may_change_in_mid_step)
{
    rig_roll(start, N, 50);
    ck_assert_int_eq(daemon_prepare(&psd, NULL, plain), 0);
    ck_assert(daemon_write_config(&psd, ""));
    ck_assert_int_eq(daemon_start(&psd, NULL), 0);
    struct worker *w = join(0);
    struct psc *observer = observe();
    compute(w);
    if (_i == 0)
        send_late_part(w, observer);
    else
        assert_ok(w->c, begin(w));
    ck_assert(daemon_write_config(&psd, "codec: {message: fp16}\n"));
    free(daemon_ask(&psd, "POST", "/reload"));
    if (_i == 1) /* nothing has begun */
        ck_assert(daemon_reaches(&psd, "/status", "generation", 1, UNIT_HANG_S));
    assert_ok(w->c, psc_ready(w->c, _i == 0 ? 0 : LATE, _i == 0 ? LATE : N - LATE));
    if (_i == 1)
        assert_ok(w->c, psc_ready(w->c, 0, LATE));
    assert_ok(w->c, psc_step_end(w->c));
    ck_assert(daemon_reaches(&psd, "/status", "generation", 1, UNIT_HANG_S));
    for (int i = 0; i < N; i++) {
        float want = start[i] - 0.0625f * w->g[i];
        if (rig_tensor_at((size_t)i)->role == PSC_PARAM && _i == 0)
            ck_assert_float_eq(w->x[i], want);
        else if (rig_tensor_at((size_t)i)->role == PSC_PARAM)
            ck_assert_float_eq_tol(w->x[i], want, 1e-3f);
    }
    for (int k = 0; k < 3; k++)
        make_a_step(w);
    psc_close(observer);
    psc_close(w->c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-early");
    TCase *tc = tcase_create("early");
    tcase_add_checked_fixture(tc, NULL, stop_psd);
    tcase_add_loop_test(tc, a_step_in_parts_has_the_bits_of_psc_step, 0, ROWS(rows));
    tcase_add_loop_test(tc, workers_that_wait_for_each_other_may_report_in_any_order, 0, ROWS(ordered));
    tcase_add_loop_test(tc, and_none_waits_for_ever, 0, ROWS(unordered));
    tcase_add_loop_test(tc, chunks_that_are_ready_move_the_center, 0, ROWS(early));
    tcase_add_loop_test(tc, where_all_of_g_comes_first_nothing_does, 0, ROWS(late));
    tcase_add_test(tc, mistakes_are_named_and_the_step_goes_on);
    tcase_add_test(tc, a_value_that_is_not_finite_stops_all_where_nothing_has_left);
    tcase_add_test(tc, else_the_session_ends);
    tcase_add_loop_test(tc, a_member_that_leaves_in_mid_step_stops_no_round, 0, 2);
    tcase_add_test(tc, a_worker_that_hangs_in_mid_step_is_given_up);
    tcase_add_loop_test(tc, connections_may_be_lost_in_mid_step, 0, 3);
    tcase_add_loop_test(tc, psd_may_be_killed_in_mid_step, 0, 2);
    tcase_add_test(tc, a_server_that_is_gone_is_told_at_the_end);
    tcase_add_loop_test(tc, the_method_may_change_in_mid_step, 0, 2);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
