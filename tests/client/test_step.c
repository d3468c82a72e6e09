/* psc_step against the methods' equations, with a real psd. The order within a step is that of
 * docs/METHODS.md. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "client/psclient.h"
#include "tests/support/system/daemon.h"
#include "tests/support/unit.h"

enum { N = 3000, WORKERS = 2, STEPS = 20 };

static struct daemon psd;

static void start_psd(const char *const *settings)
{
    ck_assert_int_eq(daemon_prepare(&psd, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&psd, NULL), 0);
}

static void stop_psd(void)
{
    daemon_remove(&psd);
}

static struct psc *join(float *x)
{
    const struct psc_tensor model = {"model", 0, {N}, 1, PSC_PARAM};
    struct psc_options opt;
    struct psc *c;
    psc_options_init(&opt, sizeof opt);
    opt.server = psd.endpoint;
    opt.retry_ms = 60000; /* nothing is lost: what is sent again is answered with the center of then */
    opt.heartbeat_ms = 10000;
    ck_assert_msg(psc_open(&opt, &c) == PSC_OK, "%s", psc_error(c));
    ck_assert_msg(psc_begin(c, &model, 1, x) == PSC_OK, "%s", psc_error(c));
    return c;
}

static void step_ok(struct psc *c, float *x, const float *g)
{
    int rc = psc_step(c, x, g, 1);
    ck_assert_msg(rc == PSC_OK, "%s", psc_error(c));
}

static void roll(struct dice *d, float *v)
{
    for (int i = 0; i < N; i++)
        v[i] = dice_float(d);
}

/* What both sides of the method compute, in double. */
struct reference {
    double center[N], x[WORKERS][N];
};

static void reference_init(struct reference *ref, const float *start)
{
    for (int i = 0; i < N; i++) {
        ref->center[i] = (double)start[i];
        for (int w = 0; w < WORKERS; w++)
            ref->x[w][i] = (double)start[i];
    }
}

/* Single precision adds at most half an ulp of values below 4 in each of the six operations of a step; errors
 * are passed on by factors below 1. */
static void check_close(const float *found, const double *want, int steps)
{
    for (int i = 0; i < N; i++)
        ck_assert_msg(fabs((double)found[i] - want[i]) <= 6.0 * steps * 0x1p-24 * 8,
                      "[%d] is %.9g; expected %.9g", i, (double)found[i], want[i]);
}

/* Zhang et al. 2015, Algorithm 1: exchange when tau divides t, with x before the gradient is applied. */
static void reference_elastic(struct reference *ref, int w, const float *g, uint64_t t, uint64_t period,
                              double alpha, double eta)
{
    for (int i = 0; i < N; i++) {
        double *x = &ref->x[w][i], *center = &ref->center[i];
        if (t % period == 0) {
            double move = alpha * (*x - *center);
            *x -= move;
            *center += move;
        }
        *x -= eta * (double)g[i];
    }
}

static float start[N], x[WORKERS][N], g[N], center[N];
static struct reference ref;

START_TEST(elastic_steps_follow_algorithm_1)
{
    struct dice dice = {30};
    struct psc *c[WORKERS];
    start_psd((const char *[]){"method=async-easgd", "schedule={kind: constant, warmup_steps: 0}",
                               "alpha=0.25", "learning_rate=0.0625", "period=3", "lanes=2",
                               "chunk_floats=1024", NULL});
    roll(&dice, start);
    reference_init(&ref, start);
    for (int w = 0; w < WORKERS; w++) {
        memcpy(x[w], start, sizeof start);
        c[w] = join(x[w]);
    }
    for (uint64_t t = 0; t < STEPS; t++)
        for (int w = 0; w < WORKERS; w++) {
            roll(&dice, g);
            step_ok(c[w], x[w], g);
            reference_elastic(&ref, w, g, t, 3, 0.25, 0.0625);
            check_close(x[w], ref.x[w], (int)t + 1);
            ck_assert_uint_eq(psc_clock(c[w]), t + 1);
        }
    ck_assert_int_eq(psc_pull(c[0], NULL, center), PSC_OK);
    check_close(center, ref.center, STEPS);
    struct psc_info info = {.size = sizeof info};
    psc_info(c[0], &info);
    ck_assert_uint_eq(info.exchanges, (STEPS + 2) / 3); /* t = 0, 3, 6, ... */
    ck_assert_uint_eq(info.period, 3);
    ck_assert_double_eq(info.alpha, 0.25);
    for (int w = 0; w < WORKERS; w++)
        psc_close(c[w]);
}
END_TEST

/* Zhang et al. 2015, Algorithm 2: as Algorithm 1, with Nesterov's momentum; psc_step's x is x + delta v. */
START_TEST(eamsgd_steps_follow_algorithm_2)
{
    static double velocity[WORKERS][N], at[N];
    struct dice dice = {35};
    struct psc *c[WORKERS];
    start_psd((const char *[]){"method=eamsgd", "schedule={kind: constant, warmup_steps: 0}", "alpha=0.25",
                               "learning_rate=0.0625", "momentum=0.5", "period=3", "lanes=2",
                               "chunk_floats=1024", NULL});
    roll(&dice, start);
    reference_init(&ref, start);
    for (int w = 0; w < WORKERS; w++) {
        memcpy(x[w], start, sizeof start);
        c[w] = join(x[w]);
    }
    for (uint64_t t = 0; t < STEPS; t++)
        for (int w = 0; w < WORKERS; w++) {
            roll(&dice, g);
            step_ok(c[w], x[w], g);
            reference_elastic(&ref, w, g, t, 3, 0.25, 0);
            for (int i = 0; i < N; i++) {
                velocity[w][i] = 0.5 * velocity[w][i] - 0.0625 * (double)g[i];
                ref.x[w][i] += velocity[w][i];
                at[i] = ref.x[w][i] + 0.5 * velocity[w][i];
            }
            check_close(x[w], at, (int)t + 1);
        }
    ck_assert_int_eq(psc_pull(c[0], NULL, center), PSC_OK);
    check_close(center, ref.center, STEPS);
    for (int w = 0; w < WORKERS; w++)
        psc_close(c[w]);
}
END_TEST

/* beta is shared by the live workers: alpha = beta / (p period), as they come and go. */
START_TEST(elastic_alpha_follows_live_workers)
{
    struct psc_info info = {.size = sizeof info};
    struct psc *a, *b;
    start_psd((const char *[]){"method=async-easgd", "schedule={kind: constant, warmup_steps: 0}", "beta=0.5",
                               "learning_rate=0.0625", "period=1", NULL});
    a = join(x[0]);
    step_ok(a, x[0], g);
    psc_info(a, &info);
    ck_assert_double_eq(info.alpha, 0.5);
    b = join(x[1]);
    step_ok(a, x[0], g);
    psc_info(a, &info);
    ck_assert_double_eq(info.alpha, 0.25);
    psc_close(b);
    for (double end = unit_now_s() + UNIT_HANG_S; info.alpha != 0.5 && unit_now_s() < end;) {
        unit_nap_ms(5);
        step_ok(a, x[0], g);
        psc_info(a, &info);
    }
    ck_assert_double_eq(info.alpha, 0.5);
    psc_close(a);
}
END_TEST

/* Each gradient moves the center at the rate of its own step; x is the center after it. */
START_TEST(sgd_steps_move_the_center)
{
    struct dice dice = {31};
    struct psc *c[WORKERS];
    start_psd((const char *[]){"method=async-sgd", "learning_rate=0.5",
                               "schedule={kind: step, gamma: 0.5, step_steps: 4, warmup_steps: 0}", "lanes=2",
                               "chunk_floats=1024", NULL});
    roll(&dice, start);
    reference_init(&ref, start);
    for (int w = 0; w < WORKERS; w++) {
        memcpy(x[w], start, sizeof start);
        c[w] = join(x[w]);
    }
    for (uint64_t t = 0; t < STEPS; t++)
        for (int w = 0; w < WORKERS; w++) {
            roll(&dice, g);
            step_ok(c[w], x[w], g);
            for (int i = 0; i < N; i++)
                ref.center[i] -= ldexp(0.5, -(int)(t / 4)) * (double)g[i];
            check_close(x[w], ref.center, 2 * (int)t + 2);
        }
    struct psc_info info = {.size = sizeof info};
    psc_info(c[0], &info);
    ck_assert_uint_eq(info.exchanges, STEPS);
    ck_assert_double_eq(info.learning_rate, ldexp(0.5, -STEPS / 4));
    for (int w = 0; w < WORKERS; w++)
        psc_close(c[w]);
}
END_TEST

/* Bit for bit: p = 1 and alpha = 0 is plain SGD, and the center stays. */
START_TEST(elastic_with_alpha_zero_is_plain_sgd)
{
    struct dice dice = {32};
    float *plain = malloc(sizeof start);
    start_psd((const char *[]){"method=async-easgd", "schedule={kind: constant, warmup_steps: 0}", "alpha=0",
                               "learning_rate=0.1", "period=1", NULL});
    roll(&dice, start);
    memcpy(x[0], start, sizeof start);
    memcpy(plain, start, sizeof start);
    struct psc *c = join(x[0]);
    for (int t = 0; t < STEPS; t++) {
        roll(&dice, g);
        step_ok(c, x[0], g);
        for (int i = 0; i < N; i++)
            plain[i] += -0.1f * g[i];
        ck_assert_mem_eq(x[0], plain, sizeof start);
    }
    ck_assert_int_eq(psc_pull(c, NULL, center), PSC_OK);
    ck_assert_mem_eq(center, start, sizeof start);
    psc_close(c);
    free(plain);
}
END_TEST

/* The same with rule sgd and one worker: the center does what the worker would have done. */
START_TEST(sgd_with_one_worker_is_plain_sgd)
{
    struct dice dice = {33};
    float *plain = malloc(sizeof start);
    start_psd((const char *[]){"method=async-sgd", "schedule={kind: constant, warmup_steps: 0}",
                               "learning_rate=0.1", NULL});
    roll(&dice, start);
    memcpy(x[0], start, sizeof start);
    memcpy(plain, start, sizeof start);
    struct psc *c = join(x[0]);
    for (int t = 0; t < STEPS; t++) {
        roll(&dice, g);
        step_ok(c, x[0], g);
        for (int i = 0; i < N; i++)
            plain[i] -= 0.1f * g[i];
        ck_assert_mem_eq(x[0], plain, sizeof start);
    }
    psc_close(c);
    free(plain);
}
END_TEST

START_TEST(exchange_by_hand_gives_what_the_rule_answers)
{
    struct dice dice = {34};
    start_psd((const char *[]){"method=async-easgd", "schedule={kind: constant, warmup_steps: 0}",
                               "alpha=0.5", "learning_rate=1", "period=1000", NULL});
    for (int i = 0; i < N; i++)
        start[i] = (float)(i % 64);
    memcpy(x[0], start, sizeof start);
    struct psc *c = join(x[0]);
    for (int i = 0; i < N; i++)
        g[i] = (float)(int)dice_below(&dice, 64);
    ck_assert_int_eq(psc_exchange(c, g, x[1], 1), PSC_OK);
    ck_assert_mem_eq(x[1], start, sizeof start); /* the center before */
    ck_assert_uint_eq(psc_clock(c), 0);
    ck_assert_int_eq(psc_pull(c, NULL, center), PSC_OK);
    for (int i = 0; i < N; i++) /* halves of small integers are exact */
        ck_assert_float_eq(center[i], start[i] + 0.5f * (g[i] - start[i]));
    psc_close(c);
}
END_TEST

/* A diverged worker under elastic: nothing is sent, x is its own, and it may take the center and go on. */
START_TEST(diverged_worker_may_take_the_center_anew)
{
    start_psd((const char *[]){"method=async-easgd", "schedule={kind: constant, warmup_steps: 0}",
                               "alpha=0.5", "learning_rate=1", "period=2", NULL});
    for (int i = 0; i < N; i++)
        start[i] = 1;
    memcpy(x[0], start, sizeof start);
    struct psc *c = join(x[0]);
    memset(g, 0, sizeof g);
    g[5] = INFINITY;
    step_ok(c, x[0], g); /* exchanges the good x, then steps off the cliff */
    step_ok(c, x[0], start);
    ck_assert_int_eq(psc_step(c, x[0], start, 1), PSC_EVALUE);
    assert_says(psc_error(c), "x[5], in tensor 'model'");
    ck_assert(isinf(x[0][5]));
    ck_assert_uint_eq(psc_clock(c), 2);
    ck_assert_int_eq(psc_pull(c, NULL, x[0]), PSC_OK);
    ck_assert_mem_eq(x[0], start, sizeof start);
    step_ok(c, x[0], start);
    ck_assert_uint_eq(psc_clock(c), 3);
    psc_close(c);
}
END_TEST

/* The method changes between two steps, which psc_set_method has waited for: the step's exchange is the first
 * transfer to learn of the lanes and the codec. Under hogwild each lane has the whole center. */
static const char *const changes[] = {"method=hogwild-sgd", "codec.message=fp16",
                                      "method=hogwild-sgd\ncodec.message=fp16"};

START_TEST(the_first_step_of_a_changed_method_moves_the_center)
{
    start_psd((const char *[]){"method=async-sgd", "schedule={kind: constant, warmup_steps: 0}",
                               "learning_rate=0.5", "lanes=2", "chunk_floats=1024", NULL});
    for (int i = 0; i < N; i++) {
        x[0][i] = (float)(i % 100);
        g[i] = (float)(i % 3);
    }
    struct psc *c = join(x[0]);
    step_ok(c, x[0], g);
    ck_assert_msg(psc_set_method(c, changes[_i]) == PSC_OK, "%s", psc_error(c));
    for (int step = 2; step <= 3; step++) {
        step_ok(c, x[0], g);
        for (int i = 0; i < N; i++)
            assert_quick(x[0][i] == (float)(i % 100) - 0.5f * (float)step * (float)(i % 3));
    }
    ck_assert_int_eq(psc_pull(c, NULL, center), PSC_OK);
    ck_assert_mem_eq(center, x[0], sizeof center);
    psc_close(c);
}
END_TEST

/* The multipliers are of a center that was the mean of two workers' shares; or of one that another method may
 * have moved, of which this worker has not heard. */
static const char *const anew[][2] = {
    {"workers%3D1"},
    {"method%3Dasync-easgd%0Aworkers%3Dpreset", "method%3Dadmm%0Aadmission%3Dfcfs%0Aworkers%3D2"},
};

static void change_unseen(const char *const *requests, struct psc *c)
{
    struct psc_info info = {.size = sizeof info};
    char request[80];
    uint32_t n = 0;
    for (; n < 2 && requests[n] != NULL; n++) {
        snprintf(request, sizeof request, "/set?lines=%s", requests[n]);
        free(daemon_ask(&psd, "POST", request));
        ck_assert(daemon_reaches(&psd, "/status", "generation", n + 1, UNIT_HANG_S));
    }
    for (double end = unit_now_s() + UNIT_HANG_S; psc_info(c, &info), info.generation < n;) {
        ck_assert_msg(unit_now_s() < end, "the method does not change");
        unit_nap_ms(2);
    }
}

START_TEST(admm_begins_anew_at_another_center)
{
    start_psd((const char *[]){"method=admm", "admission=fcfs", "workers=2", "rho=1", "learning_rate=0.5",
                               "schedule={kind: constant, warmup_steps: 0}", NULL});
    for (int i = 0; i < N; i++) {
        x[0][i] = (float)(i % 100);
        g[i] = (float)(i % 3);
    }
    struct psc *c = join(x[0]);
    for (int step = 0; step < 3; step++)
        step_ok(c, x[0], g);
    ck_assert_int_eq(psc_pull(c, NULL, center), PSC_OK);
    change_unseen(anew[_i], c);
    step_ok(c, x[0], g);
    for (int i = 0; i < N; i++) /* the center - eta g / (1 + eta rho): a few roundings of values below 128 */
        assert_quick(fabs((double)center[i] - (double)g[i] / 3 - (double)x[0][i]) <= 4 * 0x1p-17);
    psc_close(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-step");
    TCase *tc = tcase_create("step");
    tcase_add_checked_fixture(tc, NULL, stop_psd);
    tcase_add_test(tc, elastic_steps_follow_algorithm_1);
    tcase_add_test(tc, eamsgd_steps_follow_algorithm_2);
    tcase_add_test(tc, elastic_alpha_follows_live_workers);
    tcase_add_test(tc, sgd_steps_move_the_center);
    tcase_add_test(tc, elastic_with_alpha_zero_is_plain_sgd);
    tcase_add_test(tc, sgd_with_one_worker_is_plain_sgd);
    tcase_add_test(tc, exchange_by_hand_gives_what_the_rule_answers);
    tcase_add_test(tc, diverged_worker_may_take_the_center_anew);
    tcase_add_loop_test(tc, the_first_step_of_a_changed_method_moves_the_center, 0, (int)ROWS(changes));
    tcase_add_loop_test(tc, admm_begins_anew_at_another_center, 0, (int)ROWS(anew));
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
