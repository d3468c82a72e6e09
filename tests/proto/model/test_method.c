/* Methods, schedules and the moving rate. */
#include "proto/model/method.h"

#include <errno.h>
#include <math.h>

#include "tests/support/unit.h"

/* Rates are one or two double operations away from the closed form: 4 ulp. */
static void assert_close(double found, double expected)
{
    ck_assert_msg(fabs(found - expected) <= 4 * 0x1p-52 * fabs(expected), "%.17g; expected %.17g", found,
                  expected);
}

static const uint64_t times[] = {0, 1, 2, 9, 10, 11, 99, 100, 101, 1000, 123456, UINT64_C(1) << 40};

START_TEST(constant_schedule)
{
    const struct ps_schedule s = {.kind = PS_SCHEDULE_CONSTANT, .gamma = 0.5, .step_steps = 10};
    for (size_t i = 0; i < ROWS(times); i++)
        ck_assert_double_eq(ps_schedule_rate(&s, 0.1, times[i]), 0.1);
}
END_TEST

START_TEST(step_schedule)
{
    const struct ps_schedule s = {.kind = PS_SCHEDULE_STEP, .gamma = 0.5, .step_steps = 10};
    double want = 0.1;
    for (uint64_t t = 0; t < 200; t++) {
        if (t > 0 && t % 10 == 0)
            want *= 0.5; /* exact */
        assert_close(ps_schedule_rate(&s, 0.1, t), want);
    }
    const struct ps_schedule tenth = {.kind = PS_SCHEDULE_STEP, .gamma = 0.1, .step_steps = 30};
    assert_close(ps_schedule_rate(&tenth, 0.1, 29), 0.1);
    assert_close(ps_schedule_rate(&tenth, 0.1, 30), 0.1 * 0.1);
    assert_close(ps_schedule_rate(&tenth, 0.1, 89), 0.1 * 0.1 * 0.1);
    ck_assert(isfinite(ps_schedule_rate(&tenth, 0.1, UINT64_MAX)));
}
END_TEST

START_TEST(inverse_square_root_schedule)
{
    const struct ps_schedule s = {.kind = PS_SCHEDULE_INV_SQRT, .gamma = 3.0};
    ck_assert_double_eq(ps_schedule_rate(&s, 0.8, 0), 0.8);
    ck_assert_double_eq(ps_schedule_rate(&s, 0.8, 1), 0.4);  /* 1 + 3 * 1 = 2^2 */
    ck_assert_double_eq(ps_schedule_rate(&s, 0.8, 5), 0.2);  /* 16 */
    ck_assert_double_eq(ps_schedule_rate(&s, 0.8, 21), 0.1); /* 64 */
}
END_TEST

/* eta (floor + (1 - floor) (1 + cos(pi t / T)) / 2), and eta floor from T on. */
START_TEST(cosine_schedule) /* a few roundings of numbers below 1: 1e-15 */
{
    const struct ps_schedule s = {.kind = PS_SCHEDULE_COSINE, .total_steps = 200, .floor = 0.1};
    for (uint64_t t = 0; t <= 200; t++)
        ck_assert_double_eq_tol(ps_schedule_rate(&s, 0.5, t),
                                0.5 * (0.1 + 0.9 * (1 + cos(M_PI * (double)t / 200)) / 2), 1e-15);
    ck_assert_double_eq(ps_schedule_rate(&s, 0.5, 0), 0.5);
    assert_close(ps_schedule_rate(&s, 0.5, 100), 0.275);
    for (uint64_t t = 200; t < 210; t++)
        assert_close(ps_schedule_rate(&s, 0.5, t), 0.05);
    assert_close(ps_schedule_rate(&s, 0.5, UINT64_MAX), 0.05);
    const struct ps_schedule to_nothing = {.kind = PS_SCHEDULE_COSINE, .total_steps = 7};
    ck_assert_double_eq_tol(ps_schedule_rate(&to_nothing, 1, 7), 0, 1e-15);
    for (uint64_t t = 0; t < 7; t++)
        ck_assert(ps_schedule_rate(&to_nothing, 1, t) > ps_schedule_rate(&to_nothing, 1, t + 1));
}
END_TEST

/* Zhang et al.'s ImageNet rates: divided by 5, then by 2. */
START_TEST(multi_step_schedule)
{
    struct ps_schedule s = {.kind = PS_SCHEDULE_MULTI_STEP,
                            .milestones = {10, 25, 26},
                            .n_milestones = 3,
                            .factors = {0.2, 0.5},
                            .n_factors = 2};
    for (uint64_t t = 0; t < 40; t++)
        assert_close(ps_schedule_rate(&s, 0.1, t), t < 10 ? 0.1 : t < 25 ? 0.02 : t < 26 ? 0.01 : 0.005);
    s.n_factors = 1; /* for all of them */
    assert_close(ps_schedule_rate(&s, 0.1, UINT64_MAX), 0.1 * 0.2 * 0.2 * 0.2);
}
END_TEST

START_TEST(plateau_schedule)
{
    struct ps_schedule s = {.kind = PS_SCHEDULE_PLATEAU, .factors = {0.2, 0.5}, .n_factors = 2};
    const double wanted[] = {0.1, 0.02, 0.01};
    for (s.drops = 0; s.drops < 3; s.drops++)
        for (uint64_t t = 0; t < 5; t++)
            assert_close(ps_schedule_rate(&s, 0.1, t), wanted[s.drops]);
}
END_TEST

static const struct {
    struct ps_schedule s;
    const char *wants; /* the beginning; NULL: fine */
} sensible[] = {
    {{.kind = PS_SCHEDULE_CONSTANT}, NULL},
    {{.kind = PS_SCHEDULE_COSINE, .total_steps = 1, .floor = 1}, NULL},
    {{.kind = PS_SCHEDULE_COSINE}, "total_steps"},
    {{.kind = PS_SCHEDULE_COSINE, .total_steps = 1, .floor = 1.5}, "total_steps"},
    {{.kind = PS_SCHEDULE_COSINE, .total_steps = 1, .floor = NAN}, "total_steps"},
    {{.kind = PS_SCHEDULE_MULTI_STEP, .milestones = {5}, .n_milestones = 1, .factors = {0.5}, .n_factors = 1},
     NULL},
    {{.kind = PS_SCHEDULE_MULTI_STEP, .factors = {0.5}, .n_factors = 1}, "milestones"},
    {{.kind = PS_SCHEDULE_MULTI_STEP, .milestones = {0}, .n_milestones = 1, .factors = {0.5}, .n_factors = 1},
     "milestones"},
    {{.kind = PS_SCHEDULE_MULTI_STEP,
      .milestones = {5, 5},
      .n_milestones = 2,
      .factors = {0.5},
      .n_factors = 1},
     "milestones"},
    {{.kind = PS_SCHEDULE_MULTI_STEP,
      .milestones = {5},
      .n_milestones = 1,
      .factors = {0.5, 0.5},
      .n_factors = 2},
     "factors"},
    {{.kind = PS_SCHEDULE_MULTI_STEP, .milestones = {5}, .n_milestones = 1, .factors = {0}, .n_factors = 1},
     "factors"},
    {{.kind = PS_SCHEDULE_PLATEAU, .factors = {NAN}, .n_factors = 1}, "factors"},
    {{.kind = PS_SCHEDULE_PLATEAU}, "factors"},
};

START_TEST(schedules_make_sense)
{
    const char *wants = ps_schedule_wants(&sensible[_i].s);
    if (sensible[_i].wants == NULL)
        ck_assert_ptr_null(wants);
    else
        ck_assert(wants != NULL && strncmp(wants, sensible[_i].wants, strlen(sensible[_i].wants)) == 0);
}
END_TEST

START_TEST(warmup_rises_linearly_and_ends)
{
    for (int kind = 0; kind < PS_N_SCHEDULES; kind++) {
        struct ps_schedule plain = {.kind = (enum ps_schedule_kind)kind,
                                    .gamma = 0.5,
                                    .step_steps = 4,
                                    .total_steps = 20,
                                    .milestones = {3, 12},
                                    .n_milestones = 2,
                                    .factors = {0.2, 0.5},
                                    .n_factors = 2,
                                    .drops = 1},
                           s = plain;
        s.warmup_steps = 8;
        for (uint64_t t = 0; t < 8; t++)
            assert_close(ps_schedule_rate(&s, 0.1, t),
                         ps_schedule_rate(&plain, 0.1, t) * (double)(t + 1) / 8);
        for (uint64_t t = 8; t < 30; t++)
            ck_assert_double_eq(ps_schedule_rate(&s, 0.1, t), ps_schedule_rate(&plain, 0.1, t));
    }
}
END_TEST

START_TEST(schedules_are_found_by_name)
{
    static const char *const names[] = {"constant", "step", "inv-sqrt", "cosine", "multi-step", "plateau"};
    ck_assert_uint_eq(ROWS(names), PS_N_SCHEDULES);
    for (int kind = 0; kind < (int)ROWS(names); kind++)
        ck_assert_int_eq(ps_schedule_parse(names[kind]), kind);
    ck_assert_int_eq(ps_schedule_parse("triangle"), -EINVAL);
    ck_assert_int_eq(ps_schedule_parse(""), -EINVAL);
}
END_TEST

/* Nothing before the second version that passed. Powers of two: exact. */
START_TEST(staleness_weighs_by_its_kind)
{
    static const uint64_t ages[] = {0, 1, 2, 4, 64, UINT64_C(1) << 40};
    for (size_t i = 0; i < ROWS(ages); i++) {
        double age = ages[i] > 1 ? (double)ages[i] : 1;
        ck_assert_double_eq(ps_weight(PS_WEIGHT_CONST, 2, ages[i]), 1);
        ck_assert_double_eq(ps_weight(PS_WEIGHT_INVERSE, 2, ages[i]), 1 / age);
        ck_assert_double_eq(ps_weight(PS_WEIGHT_POWER, 0, ages[i]), 1);
        ck_assert_double_eq(ps_weight(PS_WEIGHT_POWER, 1, ages[i]), 1 / age);
        ck_assert_double_eq(ps_weight(PS_WEIGHT_POWER, 2, ages[i]), 1 / age / age);
        assert_close(ps_weight(PS_WEIGHT_POWER, 0.5, ages[i]), 1 / sqrt(age));
    }
}
END_TEST

static const struct {
    double alpha, rho, beta, eta;
    uint32_t period, p;
    double want;
} rates[] = {
    {0.25, NAN, NAN, 0.1, 10, 4, 0.25},
    {0, NAN, NAN, 0.1, 10, 4, 0},
    {0.25, NAN, NAN, 0.1, 10, 0, 0.25},
    {NAN, 2.5, NAN, 0.1, 10, 4, 0.25},
    {NAN, 2.5, NAN, 0.1, 10, 400, 0.25},
    {NAN, NAN, 0.9, 0.1, 1, 1, 0.9},
    {NAN, NAN, 0.9, 0.1, 10, 1, 0.09},
    {NAN, NAN, 0.9, 0.1, 10, 4, 0.0225},
    {NAN, NAN, 0.9, 0.1, 10, 3, 0.03},
    {NAN, NAN, 0.9, 0.1, 10, 0, 0.09},
    {NAN, NAN, 0.9, 0.1, 1000000, 1024, 0.9 / 1.024e9},
};

/* alpha; eta rho with the initial eta, whatever the schedule; beta / (p period) with the live p. */
START_TEST(moving_rate_follows_its_formula)
{
    struct ps_hyper h = {
        .learning_rate = rates[_i].eta,
        .alpha = rates[_i].alpha,
        .rho = rates[_i].rho,
        .beta = rates[_i].beta,
        .period = rates[_i].period,
        .schedule = {.kind = PS_SCHEDULE_STEP, .gamma = 0.1, .step_steps = 1, .warmup_steps = 100}};
    assert_close(ps_hyper_alpha(&h, rates[_i].p, false), rates[_i].want);
}
END_TEST

/* Under rounds of all workers a round is one pull of each: beta / p, whatever the period (Zhang et al. 2015,
 * section 3.1). What was given directly stays. */
START_TEST(rounds_share_beta_by_workers_alone)
{
    struct ps_hyper h = {.learning_rate = 0.1, .alpha = NAN, .rho = NAN, .beta = 0.9, .period = 4};
    for (uint32_t p = 1; p <= 64; p++)
        assert_close(ps_hyper_alpha(&h, p, true), 0.9 / p);
    ck_assert_double_eq(ps_hyper_alpha(&h, 0, true), 0.9);
    h.rho = 2.5;
    assert_close(ps_hyper_alpha(&h, 8, true), 0.25);
    h.alpha = 0.125;
    ck_assert_double_eq(ps_hyper_alpha(&h, 8, true), 0.125);
}
END_TEST

/* The mean of what the center was before each update: 1, then halves, thirds; by itself it is the mean. */
START_TEST(averages_follow_at_their_rates)
{
    const struct ps_averaging *mean = ps_averaging_find("mean"), *moving = ps_averaging_find("moving");
    double z = 77, sum = 0;
    for (uint64_t t = 0; t < 50; t++) {
        double x = sin((double)t);
        sum += x;
        z += mean->rate(0.001, t) * (x - z);
        ck_assert_double_le(fabs(z - sum / (double)(t + 1)), 50 * 0x1p-52); /* a rounding each step */
        ck_assert_double_eq(moving->rate(0.001, t), 0.001);
    }
    ck_assert(ps_averaging_find("none")->rate == NULL);
    ck_assert(moving->uses & PS_USES_AVERAGING_RATE);
    ck_assert_uint_eq(mean->uses & PS_USES_AVERAGING_RATE, 0);
    ck_assert_ptr_null(ps_averaging_find("median"));
}
END_TEST

/* The total pull of all workers over a period stays beta, as p changes. */
START_TEST(beta_is_shared_by_live_workers)
{
    const struct ps_hyper h = {.learning_rate = 0.1, .alpha = NAN, .rho = NAN, .beta = 0.9, .period = 4};
    for (uint32_t p = 1; p <= 1024; p *= 2)
        ck_assert_double_eq(ps_hyper_alpha(&h, p, false) * p * 4, 0.9); /* powers of two divide exactly */
}
END_TEST

/* Every row is found by its name, so names are unique. */
START_TEST(rules_are_consistent)
{
    for (const struct ps_rule_info *r = ps_rules; r->name != NULL; r++) {
        ck_assert_ptr_eq(ps_rule_find(r->name), r);
        if (r->message == PS_MESSAGE_GRADIENT)
            ck_assert_uint_eq(r->uses & PS_USES_PERIOD, 0);
        ck_assert_int_eq(r->message == PS_MESSAGE_GRADIENT || r->message == PS_MESSAGE_ADMM,
                         !r->worker_steps);
        ck_assert_int_eq(r->message == PS_MESSAGE_GRADIENT && r->half != PS_HALF_CALLER,
                         (r->uses & PS_USES_WEIGHT) != 0);
        ck_assert_int_eq(r->half == PS_HALF_ELASTIC, (r->uses & PS_USES_RATE) != 0);
        ck_assert_int_eq(r->fixed_workers || r->keeps_seen, (r->uses & PS_USES_WORKERS) != 0);
    }
    ck_assert_ptr_null(ps_rule_find(""));
    ck_assert_ptr_null(ps_rule_find("elasti"));
}
END_TEST

START_TEST(the_other_tables_are_consistent)
{
    for (const struct ps_optimizer_info *o = ps_optimizers; o->name != NULL; o++)
        ck_assert_ptr_eq(ps_optimizer_find(o->name), o);
    for (const struct ps_averaging *a = ps_averagings; a->name != NULL; a++)
        ck_assert_ptr_eq(ps_averaging_find(a->name), a);
    for (const struct ps_admission_info *a = ps_admissions; a->name != NULL; a++) {
        ck_assert_ptr_eq(ps_admission_find(a->name), a);
        ck_assert_int_eq(a->members, (a->uses & PS_USES_WORKERS) != 0);
    }
    ck_assert_ptr_null(ps_optimizer_find("adam"));
    ck_assert_ptr_null(ps_admission_find("lifo"));
}
END_TEST

/* In float32, and however many updates a job has made. */
START_TEST(a_mean_follows_after_any_number_of_updates)
{
    const struct ps_averaging *mean = ps_averaging_find("mean");
    const uint64_t half = 1 << 23;
    float z = 0;
    for (uint64_t t = 0; t < 8191; t++)
        ck_assert_double_eq(mean->rate(0, t), 1 / (double)(t + 1));
    for (uint64_t t = 0; t < 2 * half; t++)
        z += (float)mean->rate(0, t) * ((t < half ? 1 : 1.25f) - z);
    ck_assert_double_eq_tol((double)z, 1.125, 1e-3); /* it has rounded 8,192 times at most since it moves */
}
END_TEST

/* Methods of one worker have neither rule nor admission. */
START_TEST(methods_name_rows_that_fit)
{
    size_t n_local = 0;
    for (const struct ps_method *m = ps_methods; m->name != NULL; m++) {
        ck_assert_ptr_eq(ps_method_find(m->name), m);
        ck_assert_int_eq(m->rule == NULL, m->admission == NULL);
        n_local += m->rule == NULL;
        ck_assert_msg(m->rule == NULL || (ps_rule_find(m->rule) && ps_admission_find(m->admission)), "%s",
                      m->name);
        ck_assert_ptr_nonnull(ps_optimizer_find(m->optimizer));
        ck_assert_ptr_nonnull(ps_averaging_find(m->averaging));
        ck_assert_int_eq(ps_optimizer_find(m->optimizer)->steps,
                         m->rule == NULL || ps_rule_find(m->rule)->worker_steps);
        ck_assert_uint_gt(strlen(m->source), 10);
        ck_assert_uint_lt(strlen(m->name), 32); /* struct psd_config, psc_info */
    }
    ck_assert_uint_eq(n_local, 4);
    ck_assert_ptr_null(ps_method_find("custom"));
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-method");
    TCase *tc = tcase_create("method");
    tcase_add_test(tc, constant_schedule);
    tcase_add_test(tc, step_schedule);
    tcase_add_test(tc, inverse_square_root_schedule);
    tcase_add_test(tc, cosine_schedule);
    tcase_add_test(tc, multi_step_schedule);
    tcase_add_test(tc, plateau_schedule);
    tcase_add_loop_test(tc, schedules_make_sense, 0, ROWS(sensible));
    tcase_add_test(tc, warmup_rises_linearly_and_ends);
    tcase_add_test(tc, schedules_are_found_by_name);
    tcase_add_test(tc, staleness_weighs_by_its_kind);
    tcase_add_loop_test(tc, moving_rate_follows_its_formula, 0, ROWS(rates));
    tcase_add_test(tc, beta_is_shared_by_live_workers);
    tcase_add_test(tc, rounds_share_beta_by_workers_alone);
    tcase_add_test(tc, averages_follow_at_their_rates);
    tcase_add_test(tc, rules_are_consistent);
    tcase_add_test(tc, the_other_tables_are_consistent);
    tcase_add_test(tc, a_mean_follows_after_any_number_of_updates);
    tcase_add_test(tc, methods_name_rows_that_fit);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
