/* Methods, schedules and the moving rate. */
#include "proto/method.h"

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

START_TEST(warmup_rises_linearly_and_ends)
{
    for (int kind = 0; kind <= PS_SCHEDULE_INV_SQRT; kind++) {
        struct ps_schedule plain = {.kind = (enum ps_schedule_kind)kind, .gamma = 0.5, .step_steps = 4},
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

START_TEST(schedule_names_go_both_ways)
{
    static const char *const names[] = {"constant", "step", "inv-sqrt"};
    for (int kind = 0; kind < (int)ROWS(names); kind++) {
        ck_assert_str_eq(ps_schedule_name((enum ps_schedule_kind)kind), names[kind]);
        ck_assert_int_eq(ps_schedule_parse(names[kind]), kind);
    }
    ck_assert_int_eq(ps_schedule_parse("cosine"), -EINVAL);
    ck_assert_int_eq(ps_schedule_parse(""), -EINVAL);
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

/* The total pull of all workers over a period stays beta, as p changes. */
START_TEST(beta_is_shared_by_live_workers)
{
    const struct ps_hyper h = {.learning_rate = 0.1, .alpha = NAN, .rho = NAN, .beta = 0.9, .period = 4};
    for (uint32_t p = 1; p <= 1024; p *= 2)
        ck_assert_double_eq(ps_hyper_alpha(&h, p, false) * p * 4, 0.9); /* powers of two divide exactly */
}
END_TEST

START_TEST(tables_are_consistent)
{
    size_t n_rules = 0, n_methods = 0;
    for (const struct ps_rule_info *r = ps_rules; r->name != NULL; r++, n_rules++) {
        ck_assert_ptr_eq(ps_rule_find(r->name), r); /* so names are unique */
        if (r->message == PS_MESSAGE_GRADIENT)
            ck_assert_uint_eq(r->uses & PS_USES_PERIOD, 0);
        if (r->half == PS_HALF_ELASTIC)
            ck_assert(r->uses & PS_USES_RATE);
    }
    for (const struct ps_optimizer_info *o = ps_optimizers; o->name != NULL; o++)
        ck_assert_ptr_eq(ps_optimizer_find(o->name), o);
    for (const struct ps_method *m = ps_methods; m->name != NULL; m++, n_methods++) {
        ck_assert_ptr_eq(ps_method_find(m->name), m);
        ck_assert_ptr_nonnull(ps_rule_find(m->rule));
        ck_assert_ptr_nonnull(ps_optimizer_find(m->optimizer));
        ck_assert(m->admission[0] != 0 && m->optimizer[0] != 0 && m->averaging[0] != 0);
        ck_assert_uint_gt(strlen(m->source), 10);
        ck_assert_uint_lt(strlen(m->name), 32); /* struct psd_config, psc_info */
    }
    ck_assert(n_rules > 0 && n_methods > 0);
    ck_assert_ptr_null(ps_rule_find(""));
    ck_assert_ptr_null(ps_rule_find("elasti"));
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
    tcase_add_test(tc, warmup_rises_linearly_and_ends);
    tcase_add_test(tc, schedule_names_go_both_ways);
    tcase_add_loop_test(tc, moving_rate_follows_its_formula, 0, ROWS(rates));
    tcase_add_test(tc, beta_is_shared_by_live_workers);
    tcase_add_test(tc, tables_are_consistent);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
