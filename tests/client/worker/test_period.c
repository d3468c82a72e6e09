/* Periods that the server sets for each worker: when they take effect, what a saved state has of them, and
 * how a worker measures itself. What Alive would bring is put where it puts it. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include "client/internal.h"
#include "client/save_format.h"
#include "tests/client/psd_fixture.h"
#include "tests/support/clock.h"

enum { N = RIG_N, PERIOD = 6 };

static struct daemon psd;
static float start[N], g[N], x[N], straight[64][N];
static char path[160];

static const char *const dynamic[] = {
    "method=downpour", "dynamic_period=true",   "period=6", "learning_rate=0.0625",
    "warmup_steps=0",  "limits.silence_s=3600", RIG_CUT,    NULL};
static const char *const fixed[] = {
    "method=downpour", "period=6", "learning_rate=0.0625", "warmup_steps=0", "limits.silence_s=3600",
    RIG_CUT,           NULL};

static void stop_psd(void)
{
    daemon_remove(&psd);
}

static void start_psd(const char *const *settings)
{
    rig_roll(start, N, 90);
    rig_start(&psd, settings);
    snprintf(path, sizeof path, "%s/worker.state", psd.dir);
}

/* Every heartbeat has been answered, and the next one is an hour away: psd says no more of the period. */
static void await_silence(struct psc *c)
{
    double end_s = test_now_s() + TEST_HANG_S;
    for (bool answered = false; !answered; test_nap_s(1e-3)) {
        pthread_mutex_lock(&c->session.shared.lock);
        answered = !c->session.shared.beat_now && c->session.shared.beats > 0 &&
                   c->session.shared.heard - c->session.shared.epoch == c->session.shared.beats;
        c->session.shared.period = 0;
        pthread_mutex_unlock(&c->session.shared.lock);
        ck_assert(test_now_s() < end_s);
    }
}

static struct psc *join(void)
{
    struct psc_options opt;
    struct psc *c;
    psc_options_init(&opt, sizeof opt);
    opt.server = psd.endpoint;
    opt.heartbeat_ms = 3600000;
    opt.timeout_ms = 60000;
    memcpy(x, start, sizeof x);
    ck_assert_msg(psc_open(&opt, &c) == PSC_OK && psc_begin(c, rig_model, RIG_TENSORS, x) == PSC_OK, "%s",
                  psc_error(c));
    await_silence(c);
    return c;
}

static void send_period(struct psc *c, uint32_t period)
{
    pthread_mutex_lock(&c->session.shared.lock);
    c->session.shared.period = period;
    pthread_mutex_unlock(&c->session.shared.lock);
}

static uint64_t exchanges(const struct psc *c)
{
    struct psc_info info = {.size = sizeof info};
    psc_info(c, &info);
    return info.exchanges;
}

static uint32_t period(const struct psc *c)
{
    struct psc_info info = {.size = sizeof info};
    psc_info(c, &info);
    return info.period;
}

/* Whether it exchanged. */
static bool step_once(struct psc *c)
{
    uint64_t before = exchanges(c);
    struct dice dice = {1000 * psc_clock(c)};
    for (int i = 0; i < N; i++)
        g[i] = 0.5f * x[i] + dice_float(&dice);
    assert_ok(c, psc_step(c, x, g, 1));
    return exchanges(c) > before;
}

/* The steps until it exchanges. */
static unsigned steps(struct psc *c)
{
    unsigned n = 1;
    while (!step_once(c))
        n++;
    return n;
}

START_TEST(a_new_period_begins_with_an_exchange)
{
    start_psd(dynamic);
    struct psc *c = join();
    ck_assert_uint_eq(period(c), PERIOD); /* nobody has said anything */
    step_once(c);
    step_once(c);
    send_period(c, 2); /* what is under way has the steps that were planned */
    ck_assert_uint_eq(steps(c), PERIOD - 2);
    ck_assert_uint_eq(period(c), 2);
    ck_assert_uint_eq(steps(c), 2);
    step_once(c);
    send_period(c, 5);
    ck_assert_uint_eq(steps(c), 1);
    ck_assert_uint_eq(steps(c), 5);
    send_period(c, 1000); /* no more than the method's */
    ck_assert_uint_eq(steps(c), 5);
    ck_assert_uint_eq(steps(c), PERIOD);
    send_period(c, 1);
    ck_assert_uint_eq(steps(c), PERIOD);
    ck_assert_uint_eq(steps(c), 1);
    ck_assert_uint_eq(steps(c), 1);
    send_period(c, 0);
    ck_assert_uint_eq(steps(c), 1);
    ck_assert_uint_eq(steps(c), PERIOD);
    psc_close(c);
}
END_TEST

START_TEST(a_fixed_period_heeds_nobody)
{
    start_psd(fixed);
    struct psc *c = join();
    send_period(c, 2);
    ck_assert_uint_eq(steps(c), PERIOD);
    ck_assert_uint_eq(steps(c), PERIOD);
    ck_assert_uint_eq(period(c), PERIOD);
    psc_close(c);
}
END_TEST

/* What the server says over the run: by t. */
static uint32_t word_at(uint64_t t)
{
    return t < 5 ? 4 : t < 12 ? 3 : 5;
}

static void run_until(struct psc *c, uint64_t until, bool compare)
{
    for (uint64_t t; (t = psc_clock(c)) < until;) {
        send_period(c, word_at(t));
        step_once(c);
        if (!compare)
            memcpy(straight[t], x, sizeof x);
        else if (memcmp(straight[t], x, sizeof x) != 0)
            ck_abort_msg("t = %d: x differs from that of a run without a save", (int)t);
    }
}

/* Exchanges after steps 6, 10, 13, 16, 21: saved after any of the first 12. */
START_TEST(a_state_has_the_plan)
{
    enum { STEPS = 22 };
    start_psd(dynamic);
    struct psc *c = join();
    run_until(c, STEPS, false);
    psc_close(c);
    daemon_remove(&psd);

    start_psd(dynamic);
    c = join();
    run_until(c, (uint64_t)_i, true);
    assert_ok(c, psc_save(c, path, x, NULL, 0));
    psc_close(c);
    c = join();
    assert_ok(c, psc_load(c, path, x, NULL, 0, NULL));
    run_until(c, STEPS, true);
    psc_close(c);
}
END_TEST

/* Changes the file, and its checksum with it. */
static void rewrite(void (*change)(unsigned char *bytes, size_t at), size_t at)
{
    static unsigned char bytes[1 << 20];
    FILE *f = fopen(path, "rb");
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    change(bytes, at);
    uint64_t hash = XXH3_64bits(bytes, n - 8);
    memcpy(bytes + n - 8, &hash, sizeof hash);
    f = fopen(path, "wb");
    ck_assert_uint_eq(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* As the version before wrote it, that had no plan in it. */
static void to_old(unsigned char *bytes, size_t spoil_at)
{
    bytes[8] = 2;
    memset(bytes + 168, 0, PSC_STATE_SHORT_BYTES - 168);
    bytes[spoil_at] ^= spoil_at > 0;
}

static void make_old(size_t spoil_at)
{
    rewrite(to_old, spoil_at);
}

static void invert(unsigned char *bytes, size_t at)
{
    bytes[at] ^= 0xff;
}

/* The method's period was longer when the state was saved. */
START_TEST(a_period_of_a_state_is_at_most_the_methods)
{
    start_psd(dynamic);
    struct psc *c = join();
    for (int i = 0; i < PERIOD + 2; i++)
        step_once(c);
    assert_ok(c, psc_save(c, path, x, NULL, 0));
    psc_close(c);
    rewrite(invert, 177); /* of the period */
    c = join();
    assert_ok(c, psc_load(c, path, x, NULL, 0, NULL));
    ck_assert_uint_eq(period(c), PERIOD);
    ck_assert_uint_eq(steps(c), PERIOD - 2);
    psc_close(c);
}
END_TEST

static void add_landed(unsigned char *bytes, size_t at)
{
    bytes[at] |= PSC_STATE_LANDED;
}

/* Under this rule an answer is never in x. */
START_TEST(a_state_with_an_answer_that_it_does_not_have_is_refused)
{
    static const char *const nesterov[] = {
        "method=downpour", "optimizer=nesterov", "momentum=0.5", "period=6", RIG_CUT, NULL};
    start_psd(nesterov);
    struct psc *c = join();
    step_once(c);
    assert_ok(c, psc_save(c, path, x, NULL, 0));
    psc_close(c);
    rewrite(add_landed, 12);
    c = join();
    ck_assert_int_eq(psc_load(c, path, x, NULL, 0, NULL), PSC_EDAMAGED);
    step_once(c);
    psc_close(c);
}
END_TEST

START_TEST(a_state_of_the_version_before_goes_on)
{
    start_psd(dynamic);
    struct psc *c = join();
    for (int i = 0; i < PERIOD + 2; i++)
        step_once(c);
    assert_ok(c, psc_save(c, path, x, NULL, 0));
    psc_close(c);
    make_old(0);
    c = join();
    assert_ok(c, psc_load(c, path, x, NULL, 0, NULL));
    ck_assert_uint_eq(psc_clock(c), PERIOD + 2);
    ck_assert_uint_eq(steps(c), PERIOD - 2);
    ck_assert_uint_eq(steps(c), PERIOD);
    psc_close(c);

    make_old(170); /* it has zeros there */
    c = join();
    ck_assert_int_eq(psc_load(c, path, x, NULL, 0, NULL), PSC_EDAMAGED);
    psc_close(c);
}
END_TEST

/* Times are put where they were measured: what comes of them is arithmetic. */
START_TEST(a_speed_is_of_computing_alone)
{
    struct psc *c = calloc(1, sizeof *c);
    struct psc_pacing *t = &c->worker.pacing;
    psc_pacing_measure(c); /* the first step: since when, nobody knows */
    ck_assert_uint_eq(t->n_took, 0);
    t->ended_s -= 10000;
    c->worker.exchange_s += 9999;
    psc_pacing_measure(c);
    ck_assert_double_ge(t->took_s[0], 1); /* 1 s, and what this took */
    ck_assert_double_lt(t->took_s[0], 5000);
    ck_assert(t->steps_per_second == 0); /* a few steps first */

    for (int i = 0; i < 7; i++)
        t->took_s[i] = 0.01;
    t->n_took = 7;
    t->ended_s -= 3600; /* the process was stopped */
    psc_pacing_measure(c);
    ck_assert_double_eq_tol(t->steps_per_second, 8 / 0.15, 1e-9); /* it counts as 8 steps */

    for (int i = 0; i < PSC_PACING_STEPS; i++)
        t->took_s[i] = 0;
    t->n_took = 15;
    t->ended_s += 3600; /* a clock that goes back */
    psc_pacing_measure(c);
    ck_assert(isfinite(t->steps_per_second) && t->steps_per_second >= 0);
    free(c);
}
END_TEST

/* The server learns it, and shows it. */
START_TEST(psd_is_told_the_speed)
{
    start_psd(dynamic);
    memcpy(x, start, sizeof x);
    rig_heartbeat_ms = 200; /* which carries it */
    struct psc *c = rig_join(&psd, rig_model, RIG_TENSORS, x);
    ck_assert(isnan(daemon_number(&psd, "/workers", "workers.0.steps_per_s")));
    for (int i = 0; i < 20; i++)
        step_once(c);
    ck_assert(daemon_reaches(&psd, "/workers", "workers.0.steps_per_s", 1e-3, test_slow_s(60)));
    ck_assert(daemon_reaches(&psd, "/workers", "workers.0.period", PERIOD, test_slow_s(60)));
    psc_close(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-tempo");
    TCase *tc = tcase_create("tempo");
    tcase_add_checked_fixture(tc, NULL, stop_psd);
    tcase_set_timeout(tc, test_slow_s(120));
    tcase_add_test(tc, a_new_period_begins_with_an_exchange);
    tcase_add_test(tc, a_fixed_period_heeds_nobody);
    tcase_add_loop_test(tc, a_state_has_the_plan, 1, 13);
    tcase_add_test(tc, a_state_of_the_version_before_goes_on);
    tcase_add_test(tc, a_period_of_a_state_is_at_most_the_methods);
    tcase_add_test(tc, a_state_with_an_answer_that_it_does_not_have_is_refused);
    tcase_add_test(tc, a_speed_is_of_computing_alone);
    tcase_add_test(tc, psd_is_told_the_speed);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
