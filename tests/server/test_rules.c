/* Every rule over random vectors against its equation in double precision, on every row of kernels. */
#include "server/rules/rules.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "proto/method.h"
#include "tests/support/unit.h"

enum { MAX_N = 300, STEPS = 20, MAX_ROWS = 8 };

/* One float of one exchange: moves the center and the state by the message, and leaves in *m the answer.
 * scale: the largest intermediate. */
struct reference {
    const char *rule;
    void (*apply)(const struct psd_move *move, double *center, double *state, double *m, double *scale);
    float (*rate)(const struct psd_move *move);
};

/* Zhang, Choromanska, LeCun 2015, eq. 3; answered with the center before. */
static void apply_elastic(const struct psd_move *move, double *center, double *state, double *m,
                          double *scale)
{
    double before = *center, alpha = (double)move->alpha;
    (void)state;
    *scale = fabs(alpha * (*m - before));
    *center = before + alpha * (*m - before);
    *m = before;
}

static float rate_elastic(const struct psd_move *move)
{
    return move->alpha;
}

/* center - eta g; answered with the center after. */
static void apply_sgd(const struct psd_move *move, double *center, double *state, double *m, double *scale)
{
    double eta = (double)move->eta;
    (void)state;
    *scale = fabs(eta * *m);
    *center -= eta * *m;
    *m = *center;
}

static float rate_sgd(const struct psd_move *move)
{
    return move->eta;
}

static const struct reference references[] = {
    {"elastic", apply_elastic, rate_elastic},
    {"sgd", apply_sgd, rate_sgd},
};

static const struct reference *reference_of(const char *rule)
{
    for (size_t i = 0; i < ROWS(references); i++)
        if (strcmp(references[i].rule, rule) == 0)
            return &references[i];
    return NULL;
}

static const struct ps_vec *row(size_t i)
{
    size_t n;
    const struct ps_vec *const *rows = ps_vec_rows(&n);
    return i < n && ps_vec_runs_here(rows[i]) ? rows[i] : NULL;
}

struct vectors {
    float center[MAX_N], m[MAX_N], state_space[PSD_MAX_STATE][MAX_N];
    float *state[PSD_MAX_STATE];
};

static void vectors_init(struct vectors *v)
{
    memset(v, 0, sizeof *v);
    for (int k = 0; k < PSD_MAX_STATE; k++)
        v->state[k] = v->state_space[k];
}

START_TEST(every_rule_that_both_ends_know_is_here_and_tested)
{
    for (const struct ps_rule_info *info = ps_rules; info->name != NULL; info++) {
        const struct psd_rule *rule = psd_rule_find(info->name);
        ck_assert_msg(rule != NULL, "no rule '%s'", info->name);
        ck_assert_str_eq(rule->name, info->name);
        ck_assert_uint_le(rule->n_state, PSD_MAX_STATE);
        ck_assert_msg(reference_of(info->name) != NULL, "rule '%s' has no reference here", info->name);
    }
    for (const struct ps_method *m = ps_methods; m->name != NULL; m++)
        ck_assert_ptr_nonnull(psd_rule_find(m->rule));
    ck_assert_ptr_null(psd_rule_find("none"));
}
END_TEST

/* Each step from the floats the one before it left: rounding does not add up over steps. A result is a sum of
 * two terms, the second a product of at most two roundings: half an ulp of the result and twice that of the
 * product. */
static void check_steps(const struct psd_rule *rule, const struct reference *ref, const struct ps_vec *vec,
                        size_t n)
{
    struct vectors v;
    struct dice dice = {n};
    vectors_init(&v);
    for (size_t i = 0; i < n; i++)
        v.center[i] = dice_float(&dice);
    for (int step = 0; step < STEPS; step++) {
        struct vectors before = v;
        struct psd_move move = {.vec = vec, .alpha = fabsf(dice_float(&dice)), .eta = fabsf(dice_float(&dice))};
        for (size_t i = 0; i < n; i++)
            before.m[i] = v.m[i] = dice_float(&dice);
        ck_assert_uint_eq(rule->apply(&move, v.center, v.state, v.m, n), 0);
        ck_assert_float_eq(rule->rate(&move), ref->rate(&move));
        for (size_t i = 0; i < n; i++) {
            double center = (double)before.center[i], m = (double)before.m[i], scale, state[PSD_MAX_STATE];
            for (int k = 0; k < PSD_MAX_STATE; k++)
                state[k] = (double)before.state_space[k][i];
            ref->apply(&move, &center, state, &m, &scale);
            double bound = 1.01 * 0x1p-24 * (fabs(center) + 2 * scale);
            assert_quick(fabs((double)v.center[i] - center) <= bound);
            assert_quick(fabs((double)v.m[i] - m) <= bound);
        }
    }
}

START_TEST(rules_follow_their_equations)
{
    for (size_t k = 0; k < ROWS(references); k++)
        for (size_t n = 1; n <= MAX_N && row((size_t)_i) != NULL; n += n < 70 ? 1 : 23)
            check_steps(psd_rule_find(references[k].rule), &references[k], row((size_t)_i), n);
}
END_TEST

START_TEST(results_that_are_not_finite_are_masked_and_counted)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    struct vectors v, before;
    struct dice dice = {9};
    if (row((size_t)_i) == NULL)
        return;
    for (size_t k = 0; k < ROWS(references); k++)
        for (size_t n = 1; n <= MAX_N; n++) {
            struct psd_move move = {row((size_t)_i), 0.5f, 0.5f};
            size_t want = 0;
            vectors_init(&v);
            for (size_t i = 0; i < n; i++) {
                v.center[i] = dice_float(&dice);
                v.m[i] = i % 5 == n % 5 ? bad[i % ROWS(bad)] : dice_float(&dice);
                want += !isfinite(v.m[i]);
            }
            before = v;
            ck_assert_uint_eq(psd_rule_find(references[k].rule)->apply(&move, v.center, v.state, v.m, n),
                              want);
            for (size_t i = 0; i < n; i++)
                if (!isfinite(before.m[i]))
                    assert_quick(memcmp(&v.center[i], &before.center[i], sizeof(float)) == 0);
            for (size_t i = 0; i < n; i++)
                assert_quick(isfinite(v.center[i]));
            for (int s = 0; s < PSD_MAX_STATE; s++)
                for (size_t i = 0; i < n; i++)
                    assert_quick(isfinite(v.state_space[s][i]));
        }
}
END_TEST

/* An oracle of DESIGN 3: alpha = 0 leaves the center as it is, bit for bit, whatever x is. */
START_TEST(elastic_with_alpha_zero_leaves_the_center)
{
    struct vectors v, before;
    struct dice dice = {10};
    struct psd_move move = {row((size_t)_i), 0, 0.1f};
    if (move.vec == NULL)
        return;
    vectors_init(&v);
    for (size_t i = 0; i < MAX_N; i++) {
        v.center[i] = i == 0 ? 0.0f : dice_float(&dice);
        v.m[i] = i == 1 ? FLT_MAX : dice_float(&dice);
    }
    before = v;
    ck_assert_uint_eq(psd_rule_find("elastic")->apply(&move, v.center, v.state, v.m, MAX_N), 0);
    ck_assert_mem_eq(v.center, before.center, sizeof v.center);
    ck_assert_mem_eq(v.m, before.center, sizeof v.m);
}
END_TEST

/* Another: with alpha = 1 the center becomes x (within the rounding of x - center). */
START_TEST(elastic_with_alpha_one_takes_x)
{
    struct vectors v;
    struct dice dice = {11};
    struct psd_move move = {row((size_t)_i), 1, 0};
    float x[MAX_N];
    if (move.vec == NULL)
        return;
    vectors_init(&v);
    for (size_t i = 0; i < MAX_N; i++) {
        v.center[i] = (float)(int)dice_below(&dice, 1000);
        v.m[i] = x[i] = (float)(int)dice_below(&dice, 1000); /* integers: exact */
    }
    psd_rule_find("elastic")->apply(&move, v.center, v.state, v.m, MAX_N);
    ck_assert_mem_eq(v.center, x, sizeof x);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-rules");
    TCase *tc = tcase_create("rules");
    tcase_set_timeout(tc, 60);
    tcase_add_test(tc, every_rule_that_both_ends_know_is_here_and_tested);
    tcase_add_loop_test(tc, rules_follow_their_equations, 0, MAX_ROWS);
    tcase_add_loop_test(tc, results_that_are_not_finite_are_masked_and_counted, 0, MAX_ROWS);
    tcase_add_loop_test(tc, elastic_with_alpha_zero_leaves_the_center, 0, MAX_ROWS);
    tcase_add_loop_test(tc, elastic_with_alpha_one_takes_x, 0, MAX_ROWS);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
