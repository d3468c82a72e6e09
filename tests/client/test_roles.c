/* What a step does to values by their role, and weight decay, with a real psd. */
#include <math.h>
#include <signal.h>

#include "proto/model/method.h"
#include "tests/client/psd_fixture.h"

enum { N = RIG_N, WORKERS = 2, STEPS = 12 };

static struct daemon psd;
static float start[N], x[WORKERS][N], g[N], center[N];
static double want_center[N], want_x[WORKERS][N], velocity[WORKERS][N];

static void stop_psd(void)
{
    daemon_remove(&psd);
}

static void join_all(struct psc **c)
{
    struct dice dice = {40};
    for (int i = 0; i < N; i++)
        want_center[i] = (double)(start[i] = dice_float(&dice));
    for (int w = 0; w < WORKERS; w++) {
        memcpy(x[w], start, sizeof start);
        c[w] = rig_join(&psd, rig_model, RIG_TENSORS, x[w]);
        for (int i = 0; i < N; i++) {
            want_x[w][i] = want_center[i];
            velocity[w][i] = 0;
        }
    }
}

/* A gradient whose values must not be read where nothing is stepped; and statistics, as a forward pass leaves
 * them in x. */
static void compute(struct dice *dice, int w)
{
    for (int i = 0; i < N; i++) {
        uint32_t role = rig_tensor_at((size_t)i)->role;
        g[i] = role == PSC_PARAM ? dice_float(dice) : NAN;
        if (role == PSC_BUFFER)
            want_x[w][i] = (double)(x[w][i] = x[w][i] * 0.5f + dice_float(dice));
    }
}

/* As in test_step.c: half an ulp of values below 8 in each of eight operations a step. */
static void check_close(const float *found, const double *want, int steps)
{
    for (int i = 0; i < N; i++)
        if (fabs((double)found[i] - want[i]) > 8.0 * steps * 0x1p-24 * 8)
            ck_abort_msg("'%s'[%d] is %.9g; expected %.9g after %d steps", rig_tensor_at((size_t)i)->name, i,
                         (double)found[i], want[i], steps);
}

static void step_nothing(void *arg, float *at, const float *gradient, double learning_rate)
{
    (void)arg;
    (void)at;
    (void)gradient;
    (void)learning_rate;
}

static void check_frozen(const float *found)
{
    ck_assert_mem_eq(found + 3900, start + 3900, 4100 * sizeof *found);
}

#define ELASTIC_SETTINGS                                                                                     \
    "schedule={kind: constant, warmup_steps: 0}", "alpha=0.25", "learning_rate=0.0625", "period=2",          \
        "weight_decay=0.125", RIG_CUT, NULL

static const char *const easgd[] = {"method=async-easgd", ELASTIC_SETTINGS};
static const char *const eamsgd[] = {"method=eamsgd", "momentum=0.5", ELASTIC_SETTINGS};
static const struct {
    const char *const *settings;
    double momentum;
} elastic[] = {{easgd, 0}, {eamsgd, 0.5}};

/* One step of worker w: Zhang et al. 2015, Algorithms 1 and 2, the gradient with lambda x at the point where
 * it was taken. */
static void reference_elastic(int w, uint64_t t, double momentum)
{
    for (int i = 0; i < N; i++) {
        const struct psc_tensor *tensor = rig_tensor_at((size_t)i);
        double *y = &want_x[w][i], *v = &velocity[w][i], at = *y + momentum * *v;
        if (tensor->role != PSC_FROZEN && t % 2 == 0) {
            double move = 0.25 * (*y - want_center[i]);
            *y -= move;
            want_center[i] += move;
        }
        if (tensor->role != PSC_PARAM)
            continue;
        *v = momentum * *v - 0.0625 * ((double)g[i] + (tensor->decay == PSC_DECAY ? 0.125 * at : 0));
        *y += *v;
    }
}

START_TEST(elastic_steps_treat_values_by_their_role)
{
    static double at[N];
    struct dice dice = {41};
    struct psc *c[WORKERS];
    rig_start(&psd, elastic[_i].settings);
    join_all(c);
    for (int t = 0; t < STEPS; t++)
        for (int w = 0; w < WORKERS; w++) {
            compute(&dice, w);
            assert_ok(c[w], psc_step(c[w], x[w], g, 1));
            reference_elastic(w, (uint64_t)t, elastic[_i].momentum);
            for (int i = 0; i < N; i++)
                at[i] = want_x[w][i] + elastic[_i].momentum * velocity[w][i];
            check_close(x[w], at, t + 1);
            check_frozen(x[w]);
        }
    assert_ok(c[0], psc_pull(c[0], NULL, center));
    check_close(center, want_center, STEPS);
    check_frozen(center);
    for (int w = 0; w < WORKERS; w++)
        psc_close(c[w]);
}
END_TEST

/* Rule sgd: parameters descend, statistics follow the mean: center <- center + (x - center) / p. */
START_TEST(sgd_steps_treat_values_by_their_role)
{
    struct dice dice = {42};
    struct psc *c[WORKERS];
    rig_start(&psd, (const char *[]){"method=async-sgd", "learning_rate=0.0625", "weight_decay=0.125",
                                     "schedule={kind: constant, warmup_steps: 0}", RIG_CUT, NULL});
    join_all(c);
    for (int t = 0; t < STEPS; t++)
        for (int w = 0; w < WORKERS; w++) {
            compute(&dice, w);
            for (int i = 0; i < N; i++) {
                const struct psc_tensor *tensor = rig_tensor_at((size_t)i);
                double decayed = tensor->decay == PSC_DECAY ? 0.125 * (double)x[w][i] : 0;
                if (tensor->role == PSC_PARAM)
                    want_center[i] -= 0.0625 * ((double)g[i] + decayed);
                else if (tensor->role == PSC_BUFFER)
                    want_center[i] += (want_x[w][i] - want_center[i]) / WORKERS;
            }
            assert_ok(c[w], psc_step(c[w], x[w], g, 1));
            check_close(x[w], want_center, WORKERS * (t + 1));
            check_frozen(x[w]);
        }
    for (int w = 0; w < WORKERS; w++)
        psc_close(c[w]);
}
END_TEST

/* Chunks that hold frozen values alone stay at home; those at either end of a frozen tensor travel whole. */
START_TEST(frozen_chunks_do_not_travel)
{
    struct psc *c;
    rig_start(&psd, easgd);
    memset(g, 0, sizeof g);
    c = rig_join(&psd, rig_model, RIG_TENSORS, x[0]);
    uint64_t before = rig_sent(c);
    ck_assert_uint_eq(before, N * sizeof(float)); /* the offer is whole */
    assert_ok(c, psc_step(c, x[0], g, 1));
    uint64_t sent = rig_sent(c) - before;
    ck_assert_uint_ge(sent, (N - 4100) * sizeof(float));            /* all that moves */
    ck_assert_uint_lt(sent, (N - 4100 + 2 * 1024) * sizeof(float)); /* and at most a chunk at either end */
    assert_fails(c, psc_push(c, "embedding", g, 1), PSC_EINVAL, "tensor 'embedding' is frozen");
    assert_ok(c, psc_pull(c, "embedding", g));
    ck_assert_mem_eq(g, x[0] + 3900, 4100 * sizeof *g);
    psc_close(c);
}
END_TEST

/* Statistics that are not finite are a worker's own fault as parameters are; frozen ones are not looked at.
 */
START_TEST(values_that_travel_are_checked)
{
    struct psc *c;
    rig_start(&psd, easgd);
    c = rig_join(&psd, rig_model, RIG_TENSORS, x[0]);
    memset(g, 0, sizeof g);
    x[0][4000] = NAN; /* frozen */
    assert_ok(c, psc_step(c, x[0], g, 1));
    assert_ok(c, psc_step(c, x[0], g, 1));
    x[0][9950] = INFINITY;
    assert_fails(c, psc_step(c, x[0], g, 1), PSC_EVALUE, "x[9950], in tensor 'fc.running'");
    ck_assert(daemon_reaches(&psd, "/status", "nonfinite.index", 9950, UNIT_HANG_S));
    ck_assert_double_eq(daemon_number(&psd, "/status", "nonfinite.clock"), 2);
    psc_close(c);
}
END_TEST

/* Every method of the table, gradients with what must not be read where nothing is stepped: the center's
 * frozen values are those that were offered, bit for bit. */
START_TEST(no_method_moves_what_is_frozen)
{
    const struct ps_method *m = &ps_methods[_i];
    char method[48];
    struct dice dice = {43};
    struct psc *c;
    if (m->rule == NULL)
        return;
    const struct ps_admission_info *admission = ps_admission_find(m->admission);
    bool counts = (admission->uses & PS_USES_WORKERS) != 0 || ps_rule_find(m->rule)->uses & PS_USES_WORKERS;
    bool backs_up = (admission->uses & PS_USES_BACKUP) != 0;
    snprintf(method, sizeof method, "method=%s", m->name);
    rig_start(&psd, (const char *[]){method, "weight_decay=0.125", RIG_CUT, counts ? "workers=1" : NULL,
                                     backs_up ? "backup=0" : NULL, NULL});
    for (int i = 0; i < N; i++)
        start[i] = dice_float(&dice);
    memcpy(x[0], start, sizeof start);
    c = rig_join(&psd, rig_model, RIG_TENSORS, x[0]);
    for (int t = 0; t < 2 * STEPS; t++) {
        compute(&dice, 0);
        assert_ok(c, psc_step(c, x[0], g, 1));
        check_frozen(x[0]);
    }
    assert_ok(c, psc_wait(c, PSC_ALL));
    assert_ok(c, psc_pull(c, NULL, center));
    check_frozen(center);
    psc_close(c);
}
END_TEST

/* Where steps are linear in the learning rate a tensor at rate r moves as one whose gradient is r times as
 * large; under adagrad and adam as in a job with that learning rate. One worker, every method and both rules
 * without a preset. */
static const char *const more_rules[] = {"rule=adagrad", "rule=adam"};

static void run_at_rate(const char *const *settings, double rate, float scale, float *end)
{
    static float own[N], ones[N];
    struct psc_tensor model[RIG_TENSORS];
    struct dice dice = {44};
    memcpy(model, rig_model, sizeof model);
    model[4].rate = rate; /* fc.weight */
    rig_start(&psd, settings);
    for (int i = 0; i < N; i++)
        own[i] = dice_float(&dice);
    struct psc *c = rig_join(&psd, model, RIG_TENSORS, own);
    for (int t = 0; t < STEPS; t++) {
        for (int i = 0; i < N; i++)
            ones[i] = dice_float(&dice) * (i >= 8000 && i < 9900 ? scale : 1);
        assert_ok(c, psc_step(c, own, ones, 1));
    }
    assert_ok(c, psc_wait(c, PSC_ALL));
    assert_ok(c, psc_pull(c, NULL, end));
    psc_close(c);
    daemon_remove(&psd);
}

static void check_same(const char *what, const float *a, const float *b, int begin, int count)
{
    for (int i = begin; i < begin + count; i++)
        if (fabs((double)a[i] - (double)b[i]) > 1e-5) /* some roundings of values below 8 a step */
            ck_abort_msg("%s: [%d] is %.9g and %.9g", what, i, (double)a[i], (double)b[i]);
}

START_TEST(rates_hold_wherever_the_step_is_made)
{
    static float with_rate[N], with_scale[N], plain[N];
    const struct ps_method *m = &ps_methods[_i];
    char method[48];
    /* dc-asgd squares the gradient, and admm divides by 1 + eta rho: below */
    if (m->rule == NULL || strcmp(m->rule, "dc-asgd") == 0 || strcmp(m->rule, "admm") == 0)
        return;
    const struct ps_admission_info *admission = ps_admission_find(m->admission);
    bool counts = (admission->uses & PS_USES_WORKERS) != 0 || ps_rule_find(m->rule)->uses & PS_USES_WORKERS;
    bool backs_up = (admission->uses & PS_USES_BACKUP) != 0;
    bool has_period = (ps_rule_find(m->rule)->uses & PS_USES_PERIOD) != 0;
    snprintf(method, sizeof method, "method=%s", m->name);
    const char *const settings[] = {method,
                                    has_period ? "period=1" : "weight_decay=0",
                                    "learning_rate=0.0625",
                                    "schedule={kind: constant, warmup_steps: 0}",
                                    RIG_CUT,
                                    counts ? "workers=1" : NULL,
                                    backs_up ? "backup=0" : NULL,
                                    NULL};
    run_at_rate(settings, 0.25, 1, with_rate);
    run_at_rate(settings, 0, 0.25f, with_scale);
    check_same(m->name, with_rate, with_scale, 0, N);
    run_at_rate(settings, 0, 1, plain);
    double moved = 0;
    for (int i = 8000; i < 9900; i++)
        moved = fmax(moved, fabs((double)with_rate[i] - (double)plain[i]));
    ck_assert_msg(moved > 1e-3, "%s: the rate does nothing", m->name);
}
END_TEST

/* Rules that are not linear in g: the tensor is what it is in a job of that learning rate. */
START_TEST(rates_are_learning_rates)
{
    static float with_rate[N], slow[N];
    const char *const kinds[][2] = {{"method=async-sgd", more_rules[0]},
                                    {"method=async-sgd", more_rules[1]},
                                    {"method=dc-asgd", "workers=1"},
                                    {"method=admm", "workers=1"}};
    const char *const settings[] = {
        kinds[_i][0], "learning_rate=0.5", "schedule={kind: constant, warmup_steps: 0}",
        RIG_CUT,      kinds[_i][1],        NULL};
    const char *const at_rate[] = {
        kinds[_i][0], "learning_rate=0.125", "schedule={kind: constant, warmup_steps: 0}",
        RIG_CUT,      kinds[_i][1],          NULL};
    run_at_rate(settings, 0.25, 1, with_rate);
    run_at_rate(at_rate, 0, 1, slow);
    check_same(kinds[_i][1], with_rate, slow, 8000, 1900);
    ck_assert(fabs((double)with_rate[0] - (double)slow[0]) > 1e-3);
}
END_TEST

START_TEST(rates_of_nobodys_step_are_refused)
{
    struct psc_tensor model[RIG_TENSORS];
    struct psc_options opt;
    struct psc *c;
    const double bad[] = {-1, 1e-7, 1001, NAN};
    memcpy(model, rig_model, sizeof model);
    rig_start(&psd, (const char *[]){"method=downpour", "optimizer=external", NULL});
    for (size_t i = 0; i < ROWS(bad); i++) {
        model[4].rate = bad[i];
        c = rig_open(&psd, NULL, NULL);
        assert_fails(c, psc_begin(c, model, RIG_TENSORS, x[0]), PSC_EINVAL, "'fc.weight': rate");
        psc_close(c);
    }
    model[4].rate = 0.5;
    psc_options_init(&opt, sizeof opt);
    opt.server = psd.endpoint;
    opt.own_step = step_nothing;
    assert_ok(c, psc_open(&opt, &c));
    assert_fails(c, psc_begin(c, model, RIG_TENSORS, x[0]), PSC_EUNSUPPORTED,
                 "tensor 'fc.weight' has 0.5 of the learning rate");
    psc_close(c);
}
END_TEST

/* All workers say the same, and a checkpoint knows. */
START_TEST(rates_are_a_part_of_the_model)
{
    struct psc_tensor model[RIG_TENSORS];
    memcpy(model, rig_model, sizeof model);
    model[4].rate = 0.5;
    rig_start(&psd, easgd);
    struct psc *c = rig_join(&psd, model, RIG_TENSORS, x[0]), *other = rig_open(&psd, NULL, NULL);
    assert_fails(other, psc_begin(other, rig_model, RIG_TENSORS, x[1]), PSC_EMANIFEST,
                 "at rate 0.5 in the job");
    assert_fails(other, psc_begin(other, model, RIG_TENSORS, x[1]), PSC_EINVAL,
                 "or could not join; allowed is one call: for another, close it and open a new one");
    psc_close(other);
    psc_close(c);
    ck_assert_int_eq(daemon_stop(&psd, SIGTERM, UNIT_HANG_S), 0);
    ck_assert_int_eq(daemon_start(&psd, "--resume"), 0);
    c = rig_open(&psd, NULL, NULL);
    assert_fails(c, psc_begin(c, rig_model, RIG_TENSORS, x[0]), PSC_EMANIFEST, "at rate 0.5 in the job");
    psc_close(c);
    c = rig_join(&psd, model, RIG_TENSORS, x[0]);
    psc_close(c);
}
END_TEST

static char said[2000];

static void hear(void *arg, const char *sentence)
{
    (void)arg;
    size_t used = strlen(said);
    snprintf(said + used, sizeof said - used, "%s\n", sentence);
}

START_TEST(decay_that_does_nothing_is_told)
{
    const struct psc_tensor model[] = {{"bias", 0, {5}, 1, PSC_PARAM, PSC_NO_DECAY},
                                       {"mean", 5, {5}, 1, PSC_BUFFER, PSC_DECAY}};
    struct psc *c;
    rig_start(&psd, easgd);
    c = rig_open(&psd, hear, NULL);
    assert_ok(c, psc_begin(c, model, 2, x[0]));
    assert_says(said, "no tensor of this model decays");
    memset(g, 0, sizeof g);
    memcpy(center, x[0], sizeof center);
    assert_ok(c, psc_step(c, x[0], g, 1));
    ck_assert_mem_eq(x[0], center, 10 * sizeof *center);
    psc_close(c);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-roles");
    TCase *tc = tcase_create("roles");
    int n_methods = 0;
    while (ps_methods[n_methods].name != NULL)
        n_methods++;
    tcase_add_checked_fixture(tc, NULL, stop_psd);
    tcase_add_loop_test(tc, elastic_steps_treat_values_by_their_role, 0, ROWS(elastic));
    tcase_add_test(tc, sgd_steps_treat_values_by_their_role);
    tcase_add_loop_test(tc, no_method_moves_what_is_frozen, 0, n_methods);
    tcase_add_loop_test(tc, rates_hold_wherever_the_step_is_made, 0, n_methods);
    tcase_add_loop_test(tc, rates_are_learning_rates, 0, 4);
    tcase_add_test(tc, rates_of_nobodys_step_are_refused);
    tcase_add_test(tc, rates_are_a_part_of_the_model);
    tcase_add_test(tc, frozen_chunks_do_not_travel);
    tcase_add_test(tc, values_that_travel_are_checked);
    tcase_add_test(tc, decay_that_does_nothing_is_told);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
