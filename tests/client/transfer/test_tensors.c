/* Transfers by tensor, now and in the background, with a real psd: rule sgd at a rate of 1 and whole numbers
 * make every sum exact. */
#include <math.h>
#include <signal.h>
#include <sys/wait.h>

#include "tests/client/psd_fixture.h"
#include "tests/support/pause.h"
#include "tests/support/system/proxy.h"
#include "tests/support/system/raw_client.h"

enum { N = RIG_N };

static const char *const settings[] = {"method=async-sgd", "learning_rate=1", RIG_CUT,
                                       "schedule={kind: constant, warmup_steps: 0}", NULL};
static const char *const behind_proxy[] = {"method=async-sgd",
                                           "learning_rate=1",
                                           "advertise=127.0.0.2",
                                           "schedule={kind: constant, warmup_steps: 0}",
                                           RIG_CUT,
                                           NULL};
/* Whole numbers up to 256 are themselves in both. */
static const char *const behind_proxy_coded[] = {"method=async-sgd",
                                                 "learning_rate=1",
                                                 "advertise=127.0.0.2",
                                                 "schedule={kind: constant, warmup_steps: 0}",
                                                 "codec={message: bf16, answer: fp16, error_feedback: true}",
                                                 RIG_CUT,
                                                 NULL};
static struct daemon psd;
static float start[N], x[N], m[N], y[N];
static double want[N];

static void stop_psd(void)
{
    daemon_remove(&psd);
}

static void roll_start(void)
{
    for (int i = 0; i < N; i++)
        want[i] = (double)(start[i] = (float)(i % 50));
}

static struct psc *join(void)
{
    memcpy(x, start, sizeof x);
    return rig_join(&psd, rig_model, RIG_TENSORS, x);
}

static struct psc *begin(void)
{
    roll_start();
    rig_start(&psd, settings);
    return join();
}

static size_t count_of(const struct psc_tensor *t)
{
    return (t + 1 < rig_model + RIG_TENSORS ? t[1].offset : N) - t->offset;
}

static void check_center(struct psc *c)
{
    assert_ok(c, psc_pull(c, NULL, y));
    for (int i = 0; i < N; i++)
        if ((double)y[i] != want[i])
            ck_abort_msg("'%s'[%d] is %.9g, expected %.9g", rig_tensor_at((size_t)i)->name, i, (double)y[i],
                         want[i]);
}

/* What one worker's message of value v does to the tensor. */
static void move_want(const struct psc_tensor *t, float v)
{
    for (size_t i = t->offset; i < t->offset + count_of(t); i++)
        want[i] = t->role == PSC_BUFFER ? (double)v : want[i] - (double)v;
}

static void fill(float *a, size_t n, float v)
{
    for (size_t i = 0; i < n; i++)
        a[i] = v;
}

START_TEST(each_call_moves_one_tensor)
{
    struct psc *c = begin();
    for (int k = 0; k < RIG_TENSORS; k++) {
        const struct psc_tensor *t = &rig_model[k];
        size_t n = count_of(t), at = t->offset;
        float guard = y[n] = 77;
        if (t->role != PSC_FROZEN) {
            fill(m, n, (float)k + 1);
            assert_ok(c, psc_push(c, t->name, m, 1));
            move_want(t, (float)k + 1);
            check_center(c);
            fill(m, n, 3);
            y[n] = guard;
            assert_ok(c, psc_pushpull(c, t->name, m, y, 1));
            move_want(t, 3);
            for (size_t i = 0; i < n; i++)
                assert_quick((double)y[i] == want[at + i]); /* sgd answers with the center after */
            ck_assert_float_eq(y[n], n < N ? guard : y[n]);
        }
        for (size_t i = 0; i < n; i++)
            want[at + i] = (double)(m[i] = (float)(i % 9) - 4);
        assert_ok(c, psc_init(c, t->name, m));
        check_center(c);
        assert_ok(c, psc_pull(c, t->name, y));
        ck_assert_mem_eq(y, m, n * sizeof *m);
    }
    psc_close(c);
}
END_TEST

START_TEST(started_transfers_take_effect_in_order)
{
    static float back[3][N];
    uint64_t tickets[3];
    struct psc *c = begin();
    fill(m, N, 2);
    fill(x, N, 5);
    assert_ok(c, psc_init_start(c, NULL, x, NULL));
    assert_ok(c, psc_pull_start(c, NULL, back[0], &tickets[0]));
    assert_ok(c, psc_exchange_start(c, m, back[1], 1, &tickets[1]));
    assert_ok(c, psc_push_start(c, "fc.weight", m, 1, NULL));
    assert_ok(c, psc_pushpull_start(c, "fc.weight", m, back[2], 1, &tickets[2]));
    assert_ok(c, psc_pull(c, "fc.weight", y)); /* waits for them all */
    ck_assert_uint_lt(tickets[0], tickets[1]);
    ck_assert_uint_lt(tickets[1], tickets[2]);
    for (int i = 2; i >= 0; i--)
        assert_ok(c, psc_wait(c, tickets[i]));
    for (int i = 0; i < N; i++) {
        uint32_t role = rig_tensor_at((size_t)i)->role;
        assert_quick(back[0][i] == 5);
        assert_quick(back[1][i] == (role == PSC_PARAM ? 3 : role == PSC_BUFFER ? 2 : 0));
    }
    for (size_t i = 0; i < 1900; i++) {
        assert_quick(back[2][i] == -1);
        assert_quick(y[i] == -1);
    }
    assert_ok(c, psc_wait(c, PSC_ALL));
    assert_ok(c, psc_wait(c, tickets[1])); /* as often as one likes */
    psc_close(c);
}
END_TEST

/* Pushes to random tensors; messages[v] has v everywhere. */
static void start_many(struct psc *c, int n, const float *messages)
{
    struct dice dice = {60};
    for (int k = 0; k < n; k++) {
        const struct psc_tensor *t = &rig_model[dice_below(&dice, RIG_TENSORS)];
        if (t->role != PSC_PARAM)
            continue;
        float v = (float)dice_below(&dice, 5);
        assert_ok(c, psc_push_start(c, t->name, messages + (size_t)v * N, 1, NULL));
        move_want(t, v);
    }
}

static float *five_messages(void)
{
    float *messages = malloc(5 * N * sizeof *messages);
    for (int v = 0; v < 5; v++)
        fill(messages + (size_t)v * N, N, (float)v);
    return messages;
}

START_TEST(more_can_be_started_than_there_is_room_for)
{
    struct psc *c = begin();
    float *messages = five_messages();
    start_many(c, 3 * PSC_MAX_STARTED, messages);
    assert_ok(c, psc_wait(c, PSC_ALL));
    free(messages);
    check_center(c);
    psc_close(c);
}
END_TEST

START_TEST(refused_values_are_told_when_waited_for)
{
    struct psc *c = begin();
    uint64_t bad, worse, good;
    float *spoilt = malloc(sizeof x);
    memcpy(spoilt, m, sizeof x);
    spoilt[99] = NAN;
    assert_ok(c, psc_push_start(c, "fc.weight", spoilt, 1, &bad));
    assert_ok(c, psc_init_start(c, NULL, spoilt, &worse));
    assert_ok(c, psc_pull_start(c, "bn.scale", y, &good));
    assert_ok(c, psc_wait(c, good));
    assert_fails(c, psc_wait(c, worse), PSC_EVALUE, "x[99], in tensor 'conv.weight', is not finite");
    assert_fails(c, psc_wait(c, bad), PSC_EVALUE, "the message[99], in tensor 'fc.weight', is not finite");
    assert_fails(c, psc_wait(c, PSC_ALL), PSC_EVALUE, "the message[99], in tensor 'fc.weight'");
    assert_ok(c, psc_wait(c, PSC_ALL)); /* told once */
    free(spoilt);
    ck_assert(daemon_reaches(&psd, "/status", "nonfinite.index", 8099, UNIT_HANG_S));
    check_center(c);
    assert_fails(c, psc_wait(c, good + 2), PSC_EINVAL, "was never issued");
    psc_close(c);
}
END_TEST

/* The failure of one whose result is no longer kept is not taken for success. */
START_TEST(old_failures_are_not_forgotten)
{
    uint64_t before, bad, after;
    struct psc *c = begin();
    fill(m, N, 0);
    x[5] = INFINITY;
    assert_ok(c, psc_push_start(c, "conv.weight", m, 1, &before));
    assert_ok(c, psc_push_start(c, "conv.weight", x, 1, &bad));
    assert_ok(c, psc_push_start(c, "conv.weight", m, 1, &after));
    for (int i = 0; i < PSC_MAX_STARTED; i++)
        assert_ok(c, psc_push_start(c, "bn.scale", m, 1, NULL));
    assert_ok(c, psc_wait(c, before));
    assert_fails(c, psc_wait(c, bad), PSC_EVALUE, "the message[5]");
    assert_fails(c, psc_wait(c, PSC_ALL), PSC_EVALUE, "the message[5]");
    psc_close(c);
}
END_TEST

/* psd stands still: closing does not wait for it, and reads none of the arrays any more. */
START_TEST(closing_gives_up_what_was_started)
{
    struct psc *c = begin();
    float *mine = calloc(N, sizeof *mine);
    pause_child(psd.pid);
    for (int i = 0; i < 20; i++)
        assert_ok(c, psc_pushpull_start(c, "conv.weight", mine, mine + 2500, 1, NULL));
    unit_nap_ms(20); /* the first are on their way by now, or else there is less to give up */
    psc_close(c);
    free(mine);
    kill(psd.pid, SIGCONT);
}
END_TEST

START_TEST(silence_fails_what_was_started)
{
    int rc = PSC_OK;
    roll_start();
    rig_start(&psd, settings);
    char says[32];
    struct psc *c = rig_join_hasty(&psd, rig_model, RIG_TENSORS, x, says);
    pause_child(psd.pid);
    fill(m, N, 1);
    for (int i = 0; i < PSC_MAX_STARTED + 10 && rc == PSC_OK; i++) /* the last ones wait for room */
        rc = psc_push_start(c, "conv.weight", m, 1, NULL);
    ck_assert_int_eq(rc, PSC_OK);
    assert_fails(c, psc_wait(c, PSC_ALL), PSC_EGONE, says);
    ck_assert_int_eq(psc_push(c, "conv.weight", m, 1), PSC_EGONE);
    psc_close(c);
    kill(psd.pid, SIGCONT);
}
END_TEST

START_TEST(draining_is_told_when_waited_for)
{
    struct psc *c = begin();
    int rc = PSC_OK;
    kill(psd.pid, SIGTERM);
    for (double end = unit_now_s() + UNIT_HANG_S; rc == PSC_OK && unit_now_s() < end;) {
        uint64_t ticket;
        assert_ok(c, psc_push_start(c, "bn.scale", m, 1, &ticket));
        rc = psc_wait(c, ticket);
    }
    ck_assert_msg(rc == PSC_DRAINED, "%s: %s", psc_result_name(rc), psc_error(c));
    psc_close(c);
    ck_assert_int_eq(daemon_stop(&psd, 0, UNIT_HANG_S), 0);
}
END_TEST

START_TEST(server_that_forgot_the_worker_is_told_when_waited_for)
{
    rig_lose_messages();
    struct psc *c = begin();
    daemon_stop(&psd, SIGKILL, UNIT_HANG_S);
    assert_ok(c, psc_push_start(c, "bn.scale", m, 1, NULL));
    ck_assert_int_eq(daemon_start(&psd, "--fresh"), 0); /* a new job: it knows nobody */
    int rc = psc_wait(c, PSC_ALL);
    ck_assert_msg(rc == PSC_EEVICTED || rc == PSC_EREFUSED, "%s: %s", psc_result_name(rc), psc_error(c));
    psc_close(c);
}
END_TEST

/* psd stands still with its checkpoint written, is killed, and comes back: what was on its way lands once. */
START_TEST(started_transfers_survive_a_restart)
{
    rig_lose_messages();
    struct psc *c = begin();
    float *messages = five_messages();
    start_many(c, 50, messages);
    assert_ok(c, psc_wait(c, PSC_ALL));
    ck_assert(daemon_checkpoint(&psd, UNIT_HANG_S));
    pause_child(psd.pid);
    start_many(c, 100, messages);
    unit_nap_ms(30); /* some are on their way by now, or else all of them still wait */
    daemon_stop(&psd, SIGKILL, UNIT_HANG_S);
    ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
    assert_ok(c, psc_wait(c, PSC_ALL));
    check_center(c);
    free(messages);
    psc_close(c);
}
END_TEST

/* psd behind a proxy that cuts its connections. */
static void start_behind(struct proxy *proxy, const char *const *behind)
{
    char url[200] = "";
    uint16_t ports[4];
    rig_lose_messages();
    roll_start();
    rig_start(&psd, behind);
    ck_assert(daemon_text(&psd, "/status", "listen", url, sizeof url));
    ck_assert(hand_survey(url, ports, ROWS(ports)));
    ck_assert_int_eq(proxy_start(proxy, ports, ROWS(ports)), 0);
}

static uint64_t retries_of(struct psc *c)
{
    struct psc_info info = {.size = sizeof info};
    psc_info(c, &info);
    return info.retries;
}

/* Connections are cut over and over while transfers by tensor are on their way: each lands once, and what is
 * sent again is what was sent. */
START_TEST(cut_connections_change_no_sum)
{
    struct proxy proxy;
    float *messages = five_messages();
    start_behind(&proxy, _i == 0 ? behind_proxy : behind_proxy_coded);
    struct psc *c = join();
    /* Until one has hit something. In 90 rounds no value leaves the whole numbers of both codecs. */
    for (int cuts = 0; cuts < 12 || (retries_of(c) == 0 && cuts < 90); cuts++) {
        start_many(c, 60, messages);
        unit_nap_ms(cuts % 4);
        proxy_cut(&proxy);
    }
    assert_ok(c, psc_wait(c, PSC_ALL));
    check_center(c);
    ck_assert_uint_gt(retries_of(c), 0); /* else the cuts proved nothing */
    psc_close(c);
    proxy_stop(&proxy);
    free(messages);
}
END_TEST

/* The same for the exchanges that steps make while the caller computes: every gradient lands once, and x is
 * the center without the last one. */
START_TEST(overlapped_steps_survive_cuts)
{
    static const char *settings_overlap[ROWS(behind_proxy) + 1];
    struct psc_info info = {.size = sizeof info};
    struct proxy proxy;
    uint64_t t = 0;
    memcpy(settings_overlap, behind_proxy, sizeof behind_proxy);
    settings_overlap[ROWS(behind_proxy) - 1] = "overlap=true";
    start_behind(&proxy, settings_overlap);
    struct psc *c = join();
    for (; t < 40 || (retries_of(c) == 0 && t < 4000); t++) { /* until a cut has hit something */
        float v = (float)(t % 5);
        fill(m, N, v);
        assert_ok(c, psc_step(c, x, m, 1));
        for (int i = 0; i < N; i++) /* the center of the step before */
            if (rig_tensor_at((size_t)i)->role == PSC_PARAM && (double)x[i] != want[i])
                ck_abort_msg("[%d] is %.9g after step %d, expected %.9g", i, (double)x[i], (int)t, want[i]);
        for (size_t k = 0; k < RIG_TENSORS; k++)
            if (rig_model[k].role == PSC_PARAM)
                move_want(&rig_model[k], v);
        unit_nap_ms((long)(t % 3));
        if (t % 3 == 0)
            proxy_cut(&proxy);
    }
    assert_ok(c, psc_wait(c, PSC_ALL));
    assert_ok(c, psc_pull(c, NULL, y));
    for (int i = 0; i < N; i++)
        if (rig_tensor_at((size_t)i)->role == PSC_PARAM)
            assert_quick((double)y[i] == want[i]);
    psc_info(c, &info);
    ck_assert_uint_gt(info.retries, 0);
    ck_assert_uint_eq(info.exchanges, t);
    psc_close(c);
    proxy_stop(&proxy);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-tensors");
    TCase *tc = tcase_create("tensors");
    tcase_add_checked_fixture(tc, NULL, stop_psd);
    tcase_add_test(tc, each_call_moves_one_tensor);
    tcase_add_test(tc, started_transfers_take_effect_in_order);
    tcase_add_test(tc, more_can_be_started_than_there_is_room_for);
    tcase_add_test(tc, refused_values_are_told_when_waited_for);
    tcase_add_test(tc, old_failures_are_not_forgotten);
    tcase_add_test(tc, closing_gives_up_what_was_started);
    tcase_add_test(tc, silence_fails_what_was_started);
    tcase_add_test(tc, draining_is_told_when_waited_for);
    tcase_add_test(tc, server_that_forgot_the_worker_is_told_when_waited_for);
    tcase_add_test(tc, started_transfers_survive_a_restart);
    tcase_add_loop_test(tc, cut_connections_change_no_sum, 0, 2);
    tcase_add_test(tc, overlapped_steps_survive_cuts);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
