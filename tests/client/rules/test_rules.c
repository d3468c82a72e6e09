/* The worker's halves of the rules, with a real psd and two workers in turn, against the equations of
 * docs/METHODS.md in double precision; and what is to stay true when a worker diverges, starts over or loses
 * its server. */
#include <math.h>
#include <signal.h>

#include "tests/client/psd_fixture.h"

enum { N = RIG_N, WORKERS = 2, STEPS = 14 };

static struct daemon psd;
static float start[N], x[WORKERS][N], g[N], found[N];

static void stop_psd(void)
{
    daemon_remove(&psd);
}

static struct psc *join(int w)
{
    memcpy(x[w], start, sizeof start);
    return rig_join(&psd, rig_model, RIG_TENSORS, x[w]);
}

static void gradient(const float *at, uint64_t seed)
{
    struct dice dice = {seed};
    for (int i = 0; i < N; i++)
        g[i] = 0.5f * at[i] + dice_float(&dice);
}

/* What both sides of the method compute. */
static struct simulation {
    double center[N];
    struct {
        double at[N], x[N], v[N], start[N], lambda[N], answer[N];
        bool pending;
    } w[WORKERS];
} sim;

enum { ETA = 0, MU = 1, RHO = 2 };
static const double parameters[] = {[ETA] = 0.0625, [MU] = 0.5, [RHO] = 2};
#define ALPHA 0.25

static void sim_init(void)
{
    memset(&sim, 0, sizeof sim);
    for (int i = 0; i < N; i++) {
        sim.center[i] = (double)start[i];
        for (int w = 0; w < WORKERS; w++)
            sim.w[w].at[i] = sim.w[w].x[i] = sim.w[w].start[i] = (double)start[i];
    }
}

static bool is_param(int i)
{
    return rig_tensor_at((size_t)i)->role == PSC_PARAM;
}

static bool is_buffer(int i)
{
    return rig_tensor_at((size_t)i)->role == PSC_BUFFER;
}

static void sim_sgd(int w, int i)
{
    sim.w[w].x[i] -= parameters[ETA] * (double)g[i];
    sim.w[w].at[i] = sim.w[w].x[i];
}

static void sim_heavy_ball(int w, int i)
{
    sim.w[w].v[i] = parameters[MU] * sim.w[w].v[i] - parameters[ETA] * (double)g[i];
    sim.w[w].x[i] += sim.w[w].v[i];
    sim.w[w].at[i] = sim.w[w].x[i];
}

static void sim_nesterov(int w, int i)
{
    sim_heavy_ball(w, i);
    sim.w[w].at[i] += parameters[MU] * sim.w[w].v[i];
}

/* A buffer's mean over two workers, adopted. */
static void sim_buffer(int w, int i)
{
    sim.center[i] += 0.5 * (sim.w[w].x[i] - sim.center[i]);
    sim.w[w].at[i] = sim.w[w].x[i] = sim.center[i];
}

/* You et al. 2017 eq. 5-6, and Zhang et al. 2015 Algorithms 1-2: exchange, then step. */
static void sim_elastic(int w, uint64_t t, uint64_t period, void (*optimizer)(int w, int i))
{
    for (int i = 0; i < N; i++) {
        double move = ALPHA * (sim.w[w].x[i] - sim.center[i]);
        if (t % period == 0 && (is_param(i) || is_buffer(i))) {
            sim.w[w].x[i] -= move;
            sim.center[i] += move;
            sim.w[w].at[i] = sim.w[w].x[i];
        }
        if (is_param(i))
            optimizer(w, i);
    }
}

/* Zhang et al. 2015, Algorithm 3: step, then exchange. */
static void sim_delta(int w, uint64_t t, uint64_t period, void (*optimizer)(int w, int i))
{
    for (int i = 0; i < N; i++) {
        double ahead;
        if (is_param(i))
            optimizer(w, i);
        if ((t + 1) % period != 0)
            continue;
        if (is_buffer(i))
            sim_buffer(w, i);
        if (!is_param(i))
            continue;
        ahead = sim.w[w].at[i] - sim.w[w].x[i];
        sim.center[i] += sim.w[w].x[i] - sim.w[w].start[i];
        sim.w[w].x[i] = sim.w[w].start[i] = sim.center[i];
        sim.w[w].at[i] = sim.w[w].x[i] + ahead;
    }
}

/* The same with overlap, the exchange of a step having ended before anything else happens. */
static void sim_delta_ahead(int w, uint64_t t, uint64_t period, void (*optimizer)(int w, int i))
{
    for (int i = 0; i < N; i++) {
        double ahead;
        if (is_param(i))
            optimizer(w, i);
        if (is_buffer(i) && sim.w[w].pending)
            sim.w[w].at[i] = sim.w[w].x[i] = sim.w[w].answer[i];
        if (is_buffer(i) && (t + 1) % period == 0)
            sim.w[w].answer[i] = sim.center[i] += 0.5 * (sim.w[w].x[i] - sim.center[i]);
        if (!is_param(i))
            continue;
        ahead = sim.w[w].at[i] - sim.w[w].x[i];
        if (sim.w[w].pending) {
            sim.w[w].x[i] += sim.w[w].answer[i] - sim.w[w].start[i];
            sim.w[w].start[i] = sim.w[w].answer[i];
            sim.w[w].at[i] = sim.w[w].x[i] + ahead;
        }
        if ((t + 1) % period == 0) {
            sim.w[w].answer[i] = sim.center[i] += sim.w[w].x[i] - sim.w[w].start[i];
            sim.w[w].start[i] = sim.w[w].x[i];
        }
    }
    sim.w[w].pending = (t + 1) % period == 0;
}

/* Zhang et al. 2015, eq. 9-11 as they stand: three trips of what ours makes one. */
static void sim_admm(int w, uint64_t t, uint64_t period, void (*optimizer)(int w, int i))
{
    const double pull = parameters[ETA] * parameters[RHO];
    (void)t;
    (void)period;
    (void)optimizer;
    for (int i = 0; i < N; i++) {
        double *px = &sim.w[w].x[i], *lambda = &sim.w[w].lambda[i], before = *px - *lambda;
        if (is_buffer(i))
            sim_buffer(w, i);
        if (!is_param(i))
            continue;
        *lambda -= *px - sim.center[i];
        *px = (*px - parameters[ETA] * (double)g[i] + pull * (*lambda + sim.center[i])) / (1 + pull);
        sim.center[i] += (*px - *lambda - before) / WORKERS;
        sim.w[w].at[i] = *px;
    }
}

#define COMMON                                                                                               \
    "method=custom", "admission=fcfs", "averaging=none", "schedule={kind: constant, warmup_steps: 0}",       \
        "learning_rate=0.0625", RIG_CUT
#define ADD(optimizer, ...)                                                                                  \
    {                                                                                                        \
        COMMON, "rule=add", "optimizer=" optimizer, __VA_ARGS__, NULL                                        \
    }
#define ELASTIC(optimizer, ...)                                                                              \
    {                                                                                                        \
        COMMON, "rule=elastic", "alpha=0.25", "optimizer=" optimizer, __VA_ARGS__, NULL                      \
    }

static const struct {
    const char *settings[20];
    void (*step)(int w, uint64_t t, uint64_t period, void (*optimizer)(int w, int i));
    void (*optimizer)(int w, int i);
    uint64_t period;
    bool overlap;
    float decay;
} rows[] = {
    {ELASTIC("heavy-ball", "momentum=0.5", "period=1"), sim_elastic, sim_heavy_ball, 1, false},
    {ELASTIC("heavy-ball", "momentum=0.5", "period=3"), sim_elastic, sim_heavy_ball, 3, false},
    {ADD("sgd", "period=1"), sim_delta, sim_sgd, 1, false},
    {ADD("sgd", "period=3"), sim_delta, sim_sgd, 3, false},
    {ADD("heavy-ball", "momentum=0.5", "period=1"), sim_delta, sim_heavy_ball, 1, false},
    {ADD("heavy-ball", "momentum=0.5", "period=3"), sim_delta, sim_heavy_ball, 3, false},
    {ADD("nesterov", "momentum=0.5", "period=1"), sim_delta, sim_nesterov, 1, false},
    {ADD("nesterov", "momentum=0.5", "period=3"), sim_delta, sim_nesterov, 3, false},
    {ADD("sgd", "period=1", "overlap=true"), sim_delta_ahead, sim_sgd, 1, true},
    {ADD("sgd", "period=3", "overlap=true"), sim_delta_ahead, sim_sgd, 3, true},
    {ADD("heavy-ball", "momentum=0.5", "period=3", "overlap=true"), sim_delta_ahead, sim_heavy_ball, 3, true},
    {ADD("nesterov", "momentum=0.5", "period=1", "overlap=true"), sim_delta_ahead, sim_nesterov, 1, true},
    {ADD("nesterov", "momentum=0.5", "period=3", "overlap=true"), sim_delta_ahead, sim_nesterov, 3, true},
    {{COMMON, "rule=admm", "optimizer=none", "rho=2", "workers=2", NULL}, sim_admm, NULL, 1, false},
    {ADD("heavy-ball", "momentum=0.5", "period=2", "weight_decay=0.25"), sim_delta, sim_heavy_ball, 2, false,
     0.25f},
    {ELASTIC("heavy-ball", "momentum=0.5", "period=2", "weight_decay=0.25"), sim_elastic, sim_heavy_ball, 2,
     false, 0.25f},
    {{COMMON, "rule=admm", "optimizer=none", "rho=2", "workers=2", "weight_decay=0.25", NULL},
     sim_admm,
     NULL,
     1,
     false,
     0.25f},
};
enum { ADMM_ROW = ROWS(rows) - 4, ADD_EACH_STEP_ROW = 2, ADD_ROW = 3, ADD_AHEAD_ROW = 9, NESTEROV_ROW = 7 };

/* Values are below 8 in size, where an ulp is 2^-21; a step and its exchange are at most ten roundings of
 * half that, and what they leave is passed on by factors of at most 1, but for the velocity, whose sum
 * doubles it. */
static void check_close(const char *what, const float *values, const double *want, int steps)
{
    for (int i = 0; i < N; i++)
        if (fabs((double)values[i] - want[i]) > 2 * 10.0 * steps * 0x1p-22)
            ck_abort_msg("%s[%d], after %d steps, is %.9g; expected %.9g", what, i, steps, (double)values[i],
                         want[i]);
}

static void step_worker(int row, struct psc *c, int w)
{
    uint64_t t = psc_clock(c);
    gradient(x[w], 100 * t + (uint64_t)w);
    memcpy(found, x[w], sizeof found);
    assert_ok(c, psc_step(c, x[w], g, 1));
    for (int i = 0; i < N; i++)
        g[i] += rig_tensor_at((size_t)i)->decay == PSC_DECAY ? rows[row].decay * found[i] : 0;
    if (rows[row].overlap)
        assert_ok(c, psc_wait(c, PSC_ALL));
    rows[row].step(w, t, rows[row].period, rows[row].optimizer);
    check_close("x", x[w], sim.w[w].at, 2 * (int)t + 2);
}

START_TEST(steps_follow_their_equations)
{
    struct psc *c[WORKERS];
    rig_roll(start, N, 90);
    rig_start(&psd, rows[_i].settings);
    sim_init();
    for (int w = 0; w < WORKERS; w++)
        c[w] = join(w);
    for (int t = 0; t < STEPS; t++)
        for (int w = 0; w < WORKERS; w++) {
            step_worker(_i, c[w], w);
            assert_ok(c[w], psc_point(c[w], found));
            check_close("own x", found, sim.w[w].x, 2 * t + 2);
        }
    assert_ok(c[0], psc_pull(c[0], NULL, found));
    check_close("center", found, sim.center, 2 * STEPS);
    for (int w = 0; w < WORKERS; w++) {
        ck_assert_uint_eq(psc_clock(c[w]), STEPS);
        psc_close(c[w]);
    }
}
END_TEST

#define LOCAL_STEPS                                                                                          \
    "method=custom", "averaging=none", "schedule={kind: constant, warmup_steps: 0}", "learning_rate=0.0625", \
        RIG_CUT
#define OUTER  LOCAL_STEPS, "optimizer=sgd", "period=4", "outer_learning_rate=0.5", "outer_momentum=0.5"
#define ROUNDS "admission=sync", "workers=2"

/* What a worker has not sent moves the center as far as its rule would have without its momentum. */
static const struct {
    const char *settings[20];
    double share;
    bool in_flight; /* a gradient, whose round has not begun */
} unsent_rows[] = {
    {{LOCAL_STEPS, "optimizer=sgd", "period=4", "rule=add", ROUNDS, NULL}, 1, false},
    {{OUTER, "rule=outer-nesterov", ROUNDS, NULL}, 0.25, false},
    {{OUTER, "rule=outer-nesterov", "admission=fcfs", NULL}, 0.5, false},
    {{OUTER, "rule=delayed-nesterov", "admission=fcfs", "delay=4", NULL}, 0.125, false},
    {{LOCAL_STEPS, "optimizer=none", "rule=sgd", ROUNDS, "overlap=true", NULL}, 0.5, true},
};

static void await_change(struct psc *c)
{
    struct psc_info info = {.size = sizeof info};
    for (double end = unit_now_s() + UNIT_HANG_S; psc_info(c, &info), info.generation < 1;) {
        ck_assert_msg(unit_now_s() < end, "the method does not change");
        unit_nap_ms(2);
    }
}

START_TEST(unsent_steps_move_the_center_as_their_rule_would)
{
    const bool in_flight = unsent_rows[_i].in_flight;
    struct psc *c[WORKERS];
    rig_roll(start, N, 90);
    rig_start(&psd, unsent_rows[_i].settings);
    sim_init();
    for (int w = 0; w < WORKERS; w++)
        c[w] = join(w);
    for (int w = 0; w < (in_flight ? 1 : WORKERS); w++) {
        gradient(start, (uint64_t)w);
        assert_ok(c[w], psc_step(c[w], x[w], g, 1));
        for (int i = 0; i < N; i++)
            sim.center[i] -= is_param(i) ? unsent_rows[_i].share * parameters[ETA] * (double)g[i] : 0;
    }
    free(daemon_ask(&psd, "POST", "/set?lines=learning_rate%3D0.125"));
    memset(g, 0, sizeof g);
    for (int w = 0; w < WORKERS; w++) {
        await_change(c[w]);
        assert_ok(c[w], psc_step(c[w], x[w], g, 1));
    }
    for (int w = 0; w < WORKERS && in_flight; w++)
        assert_ok(c[w], psc_wait(c[w], PSC_ALL));
    assert_ok(c[0], psc_pull(c[0], NULL, found));
    for (int i = 0; i < N; i++)
        found[i] = is_param(i) ? found[i] : (float)sim.center[i];
    check_close("center", found, sim.center, 2);
    for (int w = 0; w < WORKERS; w++)
        psc_close(c[w]);
}
END_TEST

/* A worker that takes the center anew owes nothing, and what others did is not taken for its own. */
START_TEST(pull_into_x_starts_over_from_the_center)
{
    static const int from[] = {ADD_ROW, NESTEROV_ROW, ADMM_ROW};
    struct psc *c[WORKERS];
    int row = from[_i];
    rig_roll(start, N, 90);
    rig_start(&psd, rows[row].settings);
    sim_init();
    for (int w = 0; w < WORKERS; w++)
        c[w] = join(w);
    for (int t = 0; t < 5; t++) /* the last are on the way to the next exchange */
        for (int w = 0; w < WORKERS; w++)
            step_worker(row, c[w], w);
    assert_ok(c[0], psc_pull(c[0], NULL, x[0]));
    for (int i = 0; i < N; i++) {
        sim.w[0].lambda[i] += is_param(i) ? sim.center[i] - sim.w[0].x[i] : 0; /* x - lambda stays */
        sim.w[0].at[i] = sim.w[0].x[i] = sim.w[0].start[i] = sim.center[i];
        sim.w[0].v[i] = 0;
    }
    check_close("x", x[0], sim.w[0].at, 10);
    for (int t = 5; t < STEPS; t++)
        for (int w = 0; w < WORKERS; w++)
            step_worker(row, c[w], w);
    assert_ok(c[0], psc_pull(c[0], NULL, found));
    check_close("center", found, sim.center, 2 * STEPS);
    for (int w = 0; w < WORKERS; w++)
        psc_close(c[w]);
}
END_TEST

/* So does one that pulls before its first step. */
START_TEST(pull_before_the_first_step_is_no_move)
{
    struct psc *c[WORKERS];
    rig_roll(start, N, 90);
    rig_start(&psd, rows[ADD_ROW].settings);
    for (int w = 0; w < WORKERS; w++)
        c[w] = join(w);
    for (int i = 0; i < N; i++)
        g[i] = is_param(i) ? 0.25f : start[i];
    assert_ok(c[1], psc_push(c[1], NULL, g, 1));
    assert_ok(c[0], psc_pull(c[0], NULL, x[0]));
    memcpy(found, x[0], sizeof found);
    memset(g, 0, sizeof g);
    for (int t = 0; t < 3; t++)
        assert_ok(c[0], psc_step(c[0], x[0], g, 1));
    ck_assert_mem_eq(x[0], found, sizeof found);
    for (int w = 0; w < WORKERS; w++)
        psc_close(c[w]);
}
END_TEST

/* By hand the message is the caller's move. */
START_TEST(exchange_by_hand_adds_the_move)
{
    rig_roll(start, N, 90);
    rig_start(&psd, rows[ADD_ROW].settings);
    struct psc *c = join(0);
    for (int i = 0; i < N; i++)
        g[i] = is_param(i) ? 0.25f : start[i];
    memcpy(found, start, sizeof found);
    assert_ok(c, psc_exchange(c, g, found, 1));
    assert_ok(c, psc_push(c, NULL, g, 1));
    for (int i = 0; i < N; i++)
        ck_assert_float_eq(found[i], is_param(i) ? start[i] + 0.25f : start[i]);
    assert_ok(c, psc_pull(c, NULL, found));
    for (int i = 0; i < N; i++)
        ck_assert_float_eq(found[i], is_param(i) ? start[i] + 0.25f + 0.25f : start[i]);
    psc_close(c);
}
END_TEST

/* Nothing of a vector that is not finite is sent; the worker takes the center and goes on. */
START_TEST(diverged_worker_may_take_the_center_anew)
{
    static const int from[] = {ADD_ROW, NESTEROV_ROW, ADD_AHEAD_ROW, ADMM_ROW};
    int row = from[_i], rc = PSC_OK, steps = 0;
    rig_roll(start, N, 90);
    rig_start(&psd, rows[row].settings);
    struct psc *c = join(0);
    for (; steps < 6 && rc == PSC_OK; steps++) {
        gradient(start, (uint64_t)steps);
        g[5] = steps == 4 ? INFINITY : g[5];
        rc = psc_step(c, x[0], g, 1);
    }
    ck_assert_msg(rc == PSC_EVALUE, "%s after %d steps", psc_result_name(rc), steps);
    assert_says(psc_error(c), "the message[5], in tensor 'conv.weight', is not finite: nothing was sent");
    ck_assert_uint_eq(psc_clock(c), (uint64_t)steps - 1);
    assert_ok(c, psc_pull(c, NULL, x[0]));
    for (int t = 0; t < 7; t++) {
        gradient(x[0], (uint64_t)t);
        assert_ok(c, psc_step(c, x[0], g, 1));
        for (int i = 0; i < N; i++)
            assert_quick(isfinite(x[0][i]));
    }
    psc_close(c);
}
END_TEST

/* psd is killed between two exchanges and comes back from its checkpoint. */
START_TEST(restart_of_psd_changes_nothing)
{
    static const int from[] = {ADD_ROW, NESTEROV_ROW, ADD_AHEAD_ROW, ADMM_ROW};
    static float trace[STEPS][N];
    const char *settings[22] = {RIG_SAME_ADDRESS};
    int row = from[_i];
    for (size_t i = 0; i < ROWS(rows[row].settings); i++)
        settings[1 + i] = row == ADMM_ROW && i == 10 ? "workers=1" : rows[row].settings[i];
    rig_roll(start, N, 90);
    for (int restart = 0; restart < 2; restart++) {
        rig_start(&psd, settings);
        struct psc *c = join(0);
        for (int t = 0; t < STEPS; t++) {
            gradient(x[0], (uint64_t)t);
            assert_ok(c, psc_step(c, x[0], g, 1));
            if (restart && t == STEPS / 2) {
                assert_ok(c, psc_wait(c, PSC_ALL));
                ck_assert(daemon_checkpoint(&psd, UNIT_HANG_S));
                daemon_stop(&psd, SIGKILL, UNIT_HANG_S);
                ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
                rig_meet_again(c);
            }
            if (restart)
                ck_assert_msg(memcmp(trace[t], x[0], sizeof x[0]) == 0, "t = %d: another x", t);
            memcpy(trace[t], x[0], sizeof x[0]);
        }
        psc_close(c);
        daemon_remove(&psd);
    }
}
END_TEST

/* The server ends the job while x - start travels: it lands, and is adopted. */
START_TEST(draining_lands_what_travels)
{
    int rc = PSC_OK;
    rig_roll(start, N, 90);
    rig_start(&psd, rows[ADD_AHEAD_ROW].settings);
    struct psc *c = join(0);
    kill(psd.pid, SIGTERM);
    memset(g, 0, sizeof g);
    g[0] = 0.0625f; /* eta g is 2^-8: sums are exact */
    for (double end = unit_now_s() + UNIT_HANG_S; rc == PSC_OK && unit_now_s() < end;)
        rc = psc_step(c, x[0], g, 1);
    ck_assert_msg(rc == PSC_DRAINED && psc_error(c)[0] == 0, "%s: %s", psc_result_name(rc), psc_error(c));
    ck_assert_double_le(fabs((double)x[0][0] - ((double)start[0] - ldexp((double)psc_clock(c), -8))),
                        0x1p-22 * (double)psc_clock(c));
    psc_close(c);
    ck_assert_int_eq(daemon_stop(&psd, 0, UNIT_HANG_S), 0);
}
END_TEST

/* psd ends before it has the message of a step that x has made already: the step counts, and psd gets it with
 * the next one, from a worker that resumes. */
START_TEST(a_drain_that_cuts_off_a_delta_leaves_it_for_the_next_run)
{
    char path[200];
    rig_roll(start, N, 90);
    rig_start(&psd, rows[ADD_EACH_STEP_ROW].settings);
    struct psc *c = join(0);
    memset(g, 0, sizeof g);
    g[0] = 1; /* eta is 2^-4: sums are exact */
    assert_ok(c, psc_step(c, x[0], g, 1));
    kill(psd.pid, SIGTERM);
    ck_assert(daemon_will_log(&psd, "job.draining", UNIT_HANG_S));
    daemon_stop(&psd, SIGTERM, UNIT_HANG_S);
    int rc = psc_step(c, x[0], g, 1);
    ck_assert_msg(rc == PSC_DRAINED && psc_error(c)[0] != 0, "%s: %s", psc_result_name(rc), psc_error(c));
    ck_assert_uint_eq(psc_clock(c), 2);
    ck_assert_float_eq_tol(x[0][0], start[0] - 2 * 0.0625f, 1e-6f);
    snprintf(path, sizeof path, "%s/worker", psd.dir);
    assert_ok(c, psc_save(c, path, x[0], NULL, 0));
    psc_close(c);

    ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
    c = join(0);
    assert_ok(c, psc_load(c, path, x[0], NULL, 0, &(size_t){0}));
    assert_ok(c, psc_step(c, x[0], g, 1));
    ck_assert_uint_eq(psc_clock(c), 3);
    assert_ok(c, psc_pull(c, NULL, found));
    ck_assert_float_eq_tol(found[0], start[0] - 3 * 0.0625f, 1e-6f);
    psc_close(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-halves");
    TCase *tc = tcase_create("halves");
    tcase_add_checked_fixture(tc, NULL, stop_psd);
    tcase_add_loop_test(tc, steps_follow_their_equations, 0, ROWS(rows));
    tcase_add_loop_test(tc, unsent_steps_move_the_center_as_their_rule_would, 0, ROWS(unsent_rows));
    tcase_add_loop_test(tc, pull_into_x_starts_over_from_the_center, 0, 3);
    tcase_add_test(tc, pull_before_the_first_step_is_no_move);
    tcase_add_test(tc, exchange_by_hand_adds_the_move);
    tcase_add_loop_test(tc, diverged_worker_may_take_the_center_anew, 0, 4);
    tcase_add_loop_test(tc, restart_of_psd_changes_nothing, 0, 4);
    tcase_add_test(tc, draining_lands_what_travels);
    tcase_add_test(tc, a_drain_that_cuts_off_a_delta_leaves_it_for_the_next_run);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
