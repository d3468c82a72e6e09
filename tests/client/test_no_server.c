/* Methods without a server: each step against its equation, the averages, states; and the oracles that
 * compare a server's methods at p = 1 with them. */
#include <math.h>
#include <unistd.h>

#include "tests/client/psd_fixture.h"

enum { N = RIG_N, STEPS = 15 };

static float start[N], g[N], x[N], other[N], z[N];

/* Depends on the point, so that a difference would grow. */
static void gradient(const float *at, uint64_t t)
{
    struct dice dice = {1000 * t};
    for (int i = 0; i < N; i++)
        g[i] = 0.5f * at[i] + dice_float(&dice);
}

static bool is_param(int i)
{
    return rig_tensor_at((size_t)i)->role == PSC_PARAM;
}

static struct psc_local local_of(const char *method)
{
    struct psc_local local;
    psc_local_init(&local, sizeof local, method);
    local.learning_rate = 0.1;
    local.momentum = 0.5;
    local.averaging_rate = 0.25;
    return local;
}

static int open_local(const struct psc_local *local, struct psc **c)
{
    struct psc_options opt;
    psc_options_init(&opt, sizeof opt);
    opt.local = local;
    return psc_open(&opt, c);
}

static struct psc *begin(const struct psc_local *local, float *at)
{
    struct psc *c;
    ck_assert_msg(open_local(local, &c) == PSC_OK, "%s", psc_error(c));
    memcpy(at, start, sizeof start);
    assert_ok(c, psc_begin(c, rig_model, RIG_TENSORS, at));
    ck_assert_mem_eq(at, start, sizeof start);
    return c;
}

/* The worker's x, its velocity and its average, in double. */
struct reference {
    double x[N], v[N], z[N];
};

/* rate: of z, at t. */
static void reference_step(struct reference *ref, double eta, double mu, double rate)
{
    for (int i = 0; i < N; i++) {
        ref->z[i] += rate * (ref->x[i] - ref->z[i]);
        if (!is_param(i))
            continue;
        ref->v[i] = mu * ref->v[i] - eta * (double)g[i];
        ref->x[i] += ref->v[i];
    }
}

static double rate_none(int t)
{
    (void)t;
    return 0;
}

static double rate_mean(int t)
{
    return 1.0 / (t + 1);
}

static double rate_moving(int t)
{
    (void)t;
    return 0.25;
}

static const struct {
    const char *name, *optimizer, *averaging;
    double momentum;
    double (*rate)(int t);
} methods[] = {{"sgd", "sgd", "none", 0, rate_none},
               {"msgd", "nesterov", "none", 0.5, rate_none},
               {"asgd", "sgd", "mean", 0, rate_mean},
               {"mvasgd", "sgd", "moving", 0, rate_moving}};

/* Values are below 8; a step is at most eight roundings of half an ulp there, passed on by factors of at most
 * 1 (the velocity's sum doubles it). */
static void check_close(const char *what, const float *found, const double *want, double ahead,
                        const double *v)
{
    for (int i = 0; i < N; i++)
        if (fabs((double)found[i] - (want[i] + ahead * v[i])) > 2 * 8.0 * STEPS * 0x1p-22)
            ck_abort_msg("%s[%d] is %.9g; expected %.9g", what, i, (double)found[i], want[i] + ahead * v[i]);
}

/* The rate of each step is the schedule's formula. */
START_TEST(rates_follow_the_schedule)
{
    struct psc_local local = local_of("sgd");
    struct psc_info info = {.size = sizeof info};
    local.schedule = _i == 0 ? "cosine" : "multi-step";
    local.total_steps = 8;
    local.floor = 0.25;
    local.gamma = 0.5;
    local.milestones[0] = 3;
    local.milestones[1] = 5;
    local.n_milestones = 2;
    rig_roll(start, N, 110);
    struct psc *c = begin(&local, x);
    for (int t = 0; t < 10; t++) {
        double part = t < 8 ? t / 8.0 : 1, cosine = 0.25 + 0.75 * (1 + cos(M_PI * part)) / 2;
        psc_info(c, &info);
        ck_assert_double_eq_tol(info.learning_rate,
                                0.1 * (_i == 0 ? cosine
                                       : t < 3 ? 1
                                       : t < 5 ? 0.5
                                               : 0.25),
                                1e-15);
        gradient(x, (uint64_t)t);
        assert_ok(c, psc_step(c, x, g, 1));
    }
    psc_close(c);
}
END_TEST

START_TEST(steps_follow_their_equations)
{
    static struct reference ref;
    struct psc_local local = local_of(methods[_i].name);
    struct psc_info info = {.size = sizeof info};
    local.schedule = "step";
    local.gamma = 0.5;
    local.step_steps = 4;
    local.warmup_steps = 2;
    rig_roll(start, N, 110);
    struct psc *c = begin(&local, x);
    memset(&ref, 0, sizeof ref);
    for (int i = 0; i < N; i++)
        ref.x[i] = ref.z[i] = (double)start[i];
    for (int t = 0; t < STEPS; t++) {
        double eta = ldexp(0.1, -(t / 4)) * (t == 0 ? 0.5 : 1);
        psc_info(c, &info);
        ck_assert_double_eq_tol(info.learning_rate, eta, 1e-15);
        gradient(x, (uint64_t)t);
        assert_ok(c, psc_step(c, x, g, 1));
        reference_step(&ref, eta, methods[_i].momentum, methods[_i].rate(t));
        check_close("x", x, ref.x, methods[_i].momentum, ref.v);
        assert_ok(c, psc_point(c, other));
        check_close("own x", other, ref.x, 0, ref.v);
    }
    psc_info(c, &info);
    ck_assert_str_eq(info.method, methods[_i].name);
    ck_assert_str_eq(info.optimizer, methods[_i].optimizer);
    ck_assert_str_eq(info.averaging, methods[_i].averaging);
    ck_assert_uint_eq(info.center_version, STEPS);
    ck_assert_uint_eq(info.exchanges, 0);
    ck_assert_int_eq(psc_rank(c), 0);
    ck_assert_int_eq(psc_size(c), 1);
    if (strcmp(methods[_i].averaging, "none") != 0) {
        assert_ok(c, psc_pull_average(c, NULL, z));
        check_close("z", z, ref.z, 0, ref.v);
        assert_ok(c, psc_pull_average(c, "bn.scale", other)); /* floats 3200 to 3899 */
        ck_assert_mem_eq(other, z + 3200, 700 * sizeof *z);
    } else {
        assert_fails(c, psc_pull_average(c, NULL, z), PSC_EINVAL, "keeps no average");
    }
    psc_close(c);
}
END_TEST

/* Saving, loading and going on is going on, z included. */
START_TEST(going_on_from_a_file_is_going_on)
{
    char path[] = "/tmp/psd-local-XXXXXX";
    const struct psc_local local = local_of(methods[_i].name);
    static float want[N], want_z[N];
    bool averages = strcmp(methods[_i].averaging, "none") != 0;
    int fd = mkstemp(path);
    rig_roll(start, N, 110);
    ck_assert_int_ge(fd, 0);
    close(fd);
    struct psc *c = begin(&local, x);
    for (int t = 0; t < STEPS; t++) {
        if (t == 7)
            assert_ok(c, psc_save(c, path, x, NULL, 0));
        gradient(x, (uint64_t)t);
        assert_ok(c, psc_step(c, x, g, 1));
    }
    memcpy(want, x, sizeof x);
    if (averages)
        assert_ok(c, psc_pull_average(c, NULL, want_z));
    psc_close(c);

    c = begin(&local, x);
    assert_ok(c, psc_load(c, path, x, NULL, 0, NULL));
    for (uint64_t t; (t = psc_clock(c)) < STEPS;) {
        gradient(x, t);
        assert_ok(c, psc_step(c, x, g, 1));
    }
    ck_assert_mem_eq(x, want, sizeof x);
    if (averages) {
        assert_ok(c, psc_pull_average(c, NULL, z));
        ck_assert_mem_eq(z, want_z, sizeof z);
    }
    psc_close(c);

    const struct psc_local next = local_of(methods[(_i + 1) % 4].name);
    c = begin(&next, x);
    assert_fails(c, psc_load(c, path, x, NULL, 0, NULL), PSC_EINVAL, methods[_i].name);
    psc_close(c);
    unlink(path);
}
END_TEST

START_TEST(what_needs_a_server_is_refused)
{
    const struct psc_local local = local_of("sgd");
    struct psc_metrics m = {.size = sizeof m};
    rig_roll(start, N, 110);
    struct psc *c = begin(&local, x);
    assert_fails(c, psc_pull(c, NULL, x), PSC_EUNSUPPORTED, "psc_pull: method 'sgd' has no server");
    assert_fails(c, psc_exchange(c, start, x, 1), PSC_EUNSUPPORTED,
                 "psc_exchange: method 'sgd' has no server");
    assert_fails(c, psc_pull_start(c, NULL, x, NULL), PSC_EUNSUPPORTED, "no server");
    assert_fails(c, psc_push_start(c, NULL, start, 1, NULL), PSC_EUNSUPPORTED, "no server");
    ck_assert_mem_eq(x, start, sizeof x);
    assert_ok(c, psc_wait(c, PSC_ALL));
    assert_ok(c, psc_report(c, &m)); /* nobody listens */
    assert_fails(c, psc_begin(c, rig_model, RIG_TENSORS, x), PSC_EINVAL, "allowed is one call");
    psc_close(c);
}
END_TEST

/* Also where a wait for all applies what the method has not applied yet. */
START_TEST(a_wait_for_all_tells_of_what_was_started)
{
    struct psc_local local;
    uint64_t ticket;
    static float message[N], sum[N];
    rig_roll(start, N, 110);
    psc_local_init(&local, sizeof local, "d-sync");
    struct psc *c = begin(&local, x);
    assert_ok(c, psc_step(c, x, start, 1));
    message[0] = NAN;
    assert_ok(c, psc_pushpull_start(c, NULL, message, sum, 1, &ticket));
    assert_fails(c, psc_wait(c, PSC_ALL), PSC_EVALUE, "is not finite");
    assert_ok(c, psc_wait(c, PSC_ALL));
    psc_close(c);
}
END_TEST

static void fail_open(const struct psc_local *local, const char *says)
{
    struct psc *c;
    ck_assert_int_eq(open_local(local, &c), PSC_EINVAL);
    assert_says(psc_error(c), says);
    psc_close(c);
}

START_TEST(options_out_of_range_are_refused)
{
    struct psc_local local = local_of("downpour");
    struct psc_options opt;
    struct psc *c;
    fail_open(
        &local,
        "method 'downpour' needs a server; allowed without one: d-sync, pipe-sgd, sgd, msgd, asgd, mvasgd");
    local = local_of("adam-w");
    fail_open(&local, "method 'adam-w'");
    local = local_of(NULL);
    fail_open(&local, "method ''");
#define REFUSED(member, value, says)                                                                         \
    local = local_of("msgd");                                                                                \
    local.member = value;                                                                                    \
    fail_open(&local, says)
    REFUSED(learning_rate, 0, "learning_rate 0; allowed: above 0, at most 1000");
    REFUSED(learning_rate, NAN, "learning_rate");
    REFUSED(momentum, 1, "momentum 1; allowed: 0 to below 1");
    REFUSED(averaging_rate, 0, "averaging_rate 0");
    REFUSED(weight_decay, -1, "weight_decay -1");
    REFUSED(schedule, "triangle",
            "schedule 'triangle'; allowed: constant, step, inv-sqrt, cosine, multi-step");
    REFUSED(schedule, "plateau", "schedule 'plateau' needs a server");
    REFUSED(schedule, "multi-step", "schedule multi-step; allowed: milestones");
    REFUSED(n_milestones, 17, "n_milestones 17; allowed: at most 16");
    REFUSED(step_steps, 0, "step_steps 0; allowed: at least 1");
    REFUSED(size, 3, "psc_local_init first");
    local = local_of("sgd");
    psc_options_init(&opt, sizeof opt);
    opt.local = &local;
    opt.server = "tcp://127.0.0.1:1";
    ck_assert_int_eq(psc_open(&opt, &c), PSC_EINVAL);
    assert_says(psc_error(c), "local is allowed only for a worker");
    psc_close(c);
    opt.server = NULL;
    opt.kind = PSC_OBSERVER;
    ck_assert_int_eq(psc_open(&opt, &c), PSC_EINVAL);
    psc_close(c);
}
END_TEST

#define SERVED                                                                                               \
    "method=custom", "admission=fcfs", "averaging=none", "schedule={kind: constant, warmup_steps: 0}",       \
        "learning_rate=0.1", RIG_CUT

/* Known answers at p = 1, against the same method without a server. tolerance 0: bit for bit.
 * DOWNPOUR's x goes by way of x - start and back to the center, which rounds twice more a step, at half an
 * ulp of 8. */
static const struct {
    const char *local;
    const char *settings[18];
    double tolerance;
} oracles[] = {
    {"sgd", {SERVED, "rule=elastic", "alpha=0", "optimizer=sgd", "period=1", NULL}, 0},
    {"sgd", {SERVED, "rule=elastic", "alpha=0", "optimizer=sgd", "period=3", "overlap=true", NULL}, 0},
    {"msgd", {SERVED, "rule=elastic", "alpha=0", "optimizer=nesterov", "momentum=0.5", "period=1", NULL}, 0},
    {"sgd", {SERVED, "rule=sgd", "optimizer=none", NULL}, 0},
    {"sgd", {SERVED, "rule=add", "optimizer=sgd", "period=1", NULL}, 2 * STEPS * 0x1p-22},
    {"sgd", {SERVED, "rule=add", "optimizer=sgd", "period=4", NULL}, 2 * STEPS * 0x1p-22},
    {"sgd", {SERVED, "rule=add", "optimizer=sgd", "period=2", "overlap=true", NULL}, 4 * STEPS * 0x1p-22},
    {"msgd",
     {SERVED, "rule=add", "optimizer=nesterov", "momentum=0.5", "period=4", NULL},
     4 * STEPS * 0x1p-22},
};

START_TEST(one_worker_of_a_server_is_a_local_one)
{
    struct daemon psd;
    const struct psc_local local = local_of(oracles[_i].local);
    rig_roll(start, N, 110);
    rig_start(&psd, oracles[_i].settings);
    struct psc *alone = begin(&local, x);
    memcpy(other, start, sizeof start);
    struct psc *served = rig_join(&psd, rig_model, RIG_TENSORS, other);
    for (int t = 0; t < STEPS; t++) {
        gradient(x, (uint64_t)t);
        assert_ok(alone, psc_step(alone, x, g, 1));
        assert_ok(served, psc_step(served, other, g, 1));
        for (int i = 0; i < N; i++)
            if (!(fabs((double)x[i] - (double)other[i]) <= oracles[_i].tolerance))
                ck_abort_msg("t = %d, [%d]: %.9g alone, %.9g served", t, i, (double)x[i], (double)other[i]);
        if (oracles[_i].tolerance == 0)
            ck_assert_mem_eq(x, other, sizeof x);
    }
    psc_close(served);
    psc_close(alone);
    daemon_remove(&psd);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-local");
    TCase *tc = tcase_create("local");
    tcase_add_loop_test(tc, steps_follow_their_equations, 0, ROWS(methods));
    tcase_add_loop_test(tc, rates_follow_the_schedule, 0, 2);
    tcase_add_loop_test(tc, going_on_from_a_file_is_going_on, 0, ROWS(methods));
    tcase_add_test(tc, what_needs_a_server_is_refused);
    tcase_add_test(tc, a_wait_for_all_tells_of_what_was_started);
    tcase_add_test(tc, options_out_of_range_are_refused);
    tcase_add_loop_test(tc, one_worker_of_a_server_is_a_local_one, 0, ROWS(oracles));
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
