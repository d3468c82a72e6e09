/* Every rule over random vectors against its equation in double precision, on every row of kernels. */
#include "server/rules/rules.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "proto/model/method.h"
#include "tests/support/unit.h"

enum { MAX_N = 300, STEPS = 20, MAX_ROWS = 8 };

/* One float of one exchange in double precision. slack: the sizes of the roundings on the way, in units of
 * 2^-24, beyond the last of each result. */
struct value {
    double center, m, state[PSD_MAX_STATE];
    double slack, state_slack[PSD_MAX_STATE];
};

/* Moves the center and the state by the message, and leaves in m the answer. */
struct reference {
    const char *rule;
    void (*apply)(const struct psd_move *move, struct value *v);
    float (*rate)(const struct psd_move *move);
};

static float rate_alpha(const struct psd_move *move)
{
    return move->alpha;
}

static float rate_eta(const struct psd_move *move)
{
    return move->eta;
}

/* Zhang, Choromanska, LeCun 2015, eq. 6; answered with the center before. The difference and the product
 * round. */
static void apply_elastic(const struct psd_move *move, struct value *v)
{
    double before = v->center, step = (double)move->alpha * (v->m - before);
    v->center += step;
    v->m = before;
    v->slack = 2 * fabs(step);
}

/* The center after: every rule below but admm. */
static void step_to(struct value *v, double step, double slack)
{
    v->center += step;
    v->m = v->center;
    v->slack = slack;
}

static void apply_add(const struct psd_move *move, struct value *v)
{
    (void)move;
    step_to(v, v->m, 0);
}

static void apply_sgd(const struct psd_move *move, struct value *v)
{
    double step = -(double)move->eta * v->m;
    step_to(v, step, fabs(step));
}

/* v: two products and their difference; the step: what v lost, and a product. */
static void step_by_speed(const struct psd_move *move, struct value *v, double pull)
{
    double keep = (double)move->momentum * v->state[0], push = (double)move->eta * v->m, speed = keep - push;
    v->state[0] = speed;
    v->state_slack[0] = fabs(keep) + fabs(push);
    step_to(v, pull * speed, pull * (v->state_slack[0] + 2 * fabs(speed)));
}

static void apply_momentum(const struct psd_move *move, struct value *v)
{
    step_by_speed(move, v, 1);
}

static void apply_mdownpour(const struct psd_move *move, struct value *v)
{
    step_by_speed(move, v, (double)move->momentum);
}

/* s: a square and a sum, which the root halves; the root, the sum with epsilon, the product, the quotient. */
static void apply_adagrad(const struct psd_move *move, struct value *v)
{
    double g = v->m;
    v->state[0] += g * g;
    v->state_slack[0] = g * g;
    double step = -(double)move->eta * g / (sqrt(v->state[0]) + (double)move->epsilon);
    step_to(v, step, 5 * fabs(step));
}

/* First and second moment: as weighted sums whose weights 1 - beta round too. The step: what the first lost;
 * then at most nine more (second, halved by the root: two; root, its factor, product, epsilon; the rate,
 * product, quotient). */
static void apply_adam(const struct psd_move *move, struct value *v)
{
    double b1 = (double)move->momentum, b2 = (double)move->beta2, t = (double)move->t + 1, g = v->m;
    double old[] = {b1 * v->state[0], b2 * v->state[1]}, more[] = {(1 - b1) * g, (1 - b2) * g * g};
    for (int k = 0; k < 2; k++) {
        v->state[k] = old[k] + more[k];
        v->state_slack[k] = fabs(old[k]) + (2 + k) * fabs(more[k]);
    }
    double root = sqrt(v->state[1] / (1 - pow(b2, t))) + (double)move->epsilon;
    double rate = (double)move->eta / (1 - pow(b1, t)) / root, step = -rate * v->state[0];
    step_to(v, step, rate * (v->state_slack[0] + fabs(v->state[0])) + 9 * fabs(step));
}

/* Zhang, Choromanska, LeCun 2015, eq. 9-11 in one trip; answered with the center before. */
static void apply_admm(const struct psd_move *move, struct value *v)
{
    double before = v->center, share = (double)move->share;
    double pull = (double)move->n_moves * (double)move->kappa * before, sum = v->m + pull;
    v->center += share * sum;
    v->m = before;
    v->slack = share * (2 * fabs(pull) + 2 * fabs(sum));
}

/* The square, its product with lambda, the difference, their product; the sum with g, the product with eta.
 */
static void apply_dc_asgd(const struct psd_move *move, struct value *v)
{
    double g = v->m, more = (double)move->compensation * g * g * (v->center - v->state[0]);
    step_to(v, -(double)move->eta * (g + more), (double)move->eta * (4 * fabs(more) + 2 * fabs(g + more)));
}

static float rate_outer(const struct psd_move *move)
{
    return move->outer_eta;
}

/* DiLoCo. v: a product; the step: what v lost, times beta; that product, the sum with d, the product with
 * eta. */
static void apply_outer_nesterov(const struct psd_move *move, struct value *v)
{
    double eta = (double)move->outer_eta, beta = (double)move->outer_momentum, d = -v->m,
           keep = beta * v->state[0];
    double speed = keep + d, ahead = d + beta * speed;
    v->state[0] = speed;
    v->state_slack[0] = fabs(keep);
    step_to(v, -eta * ahead,
            eta * (beta * (fabs(keep) + fabs(speed)) + beta * fabs(speed) + 2 * fabs(ahead)));
}

/* Its share of the step: eta / N and the product. */
static void apply_delayed_nesterov(const struct psd_move *move, struct value *v)
{
    double eta = (double)move->outer_eta, beta = (double)move->outer_momentum, share = 1.0 / move->delay;
    double d = -v->m, part = eta * share * d, sum = v->state[1] + d, keep = beta * v->state[0];
    v->state[1] = sum;
    if ((move->t + 1) % move->delay != 0) {
        step_to(v, -part, 2 * fabs(part));
        return;
    }
    /* v: a product, and of the sum the sum, 1 / N and the product. The step: the first part's difference;
     * what v lost, times eta beta; that product and its product with v. */
    double speed = keep + share * sum, between = v->center - part;
    v->state[0] = speed;
    v->state_slack[0] = fabs(keep) + 3 * share * fabs(sum);
    v->state[1] = 0;
    step_to(v, -part - eta * beta * speed,
            2 * fabs(part) + fabs(between) + eta * beta * (v->state_slack[0] + 3 * fabs(speed)));
}

/* The center is the message, exactly. */
static void apply_hold(const struct psd_move *move, struct value *v)
{
    (void)move;
    v->center = v->m;
    v->slack = 0;
}

static const struct reference references[] = {
    {"elastic", apply_elastic, rate_alpha},
    {"add", apply_add, rate_eta},
    {"sgd", apply_sgd, rate_eta},
    {"momentum", apply_momentum, rate_eta},
    {"mdownpour", apply_mdownpour, rate_eta},
    {"adagrad", apply_adagrad, rate_eta},
    {"adam", apply_adam, rate_eta},
    {"admm", apply_admm, rate_eta},
    {"dc-asgd", apply_dc_asgd, rate_eta},
    {"outer-nesterov", apply_outer_nesterov, rate_outer},
    {"delayed-nesterov", apply_delayed_nesterov, rate_outer},
    {"hold", apply_hold, rate_eta},
    {"sum", apply_hold, rate_eta}, /* of a round's sum */
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
    if (i == n)
        return ps_vec_best_racing(); /* the same promises hold for it */
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

static void vectors_copy(struct vectors *to, const struct vectors *from)
{
    memcpy(to->center, from->center, sizeof to->center);
    memcpy(to->m, from->m, sizeof to->m);
    memcpy(to->state_space, from->state_space, sizeof to->state_space);
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
        ck_assert_msg(m->rule == NULL || psd_rule_find(m->rule) != NULL, "%s: no rule '%s'", m->name,
                      m->rule);
    ck_assert_ptr_null(psd_rule_find("none"));
}
END_TEST

/* Something of everything, within what a config allows. */
static struct psd_move move_by_dice(struct dice *dice, const struct ps_vec *vec)
{
    return (struct psd_move){.vec = vec,
                             .alpha = fabsf(dice_float(dice)),
                             .eta = fabsf(dice_float(dice)),
                             .momentum = fabsf(dice_float(dice)) / 2,
                             .beta2 = 1 - fabsf(dice_float(dice)) / 64,
                             .epsilon = 1e-3f * fabsf(dice_float(dice)) + 1e-8f,
                             .outer_eta = fabsf(dice_float(dice)),
                             .outer_momentum = fabsf(dice_float(dice)) / 2,
                             .compensation = fabsf(dice_float(dice)),
                             .delay = 1 + (uint32_t)dice_below(dice, 3),
                             .share = 1 / (float)(1 + dice_below(dice, 8)),
                             .kappa = dice_float(dice) / 2,
                             .n_moves = 1 + (uint32_t)dice_below(dice, 3),
                             .t = dice_below(dice, 5)};
}

static void check_value(const struct psd_rule *rule, const struct reference *ref, const struct psd_move *move,
                        const struct vectors *before, const struct vectors *after, size_t i)
{
    struct value v = {.center = (double)before->center[i], .m = (double)before->m[i]};
    for (uint32_t k = 0; k < rule->n_state + rule->takes_seen; k++)
        v.state[k] = (double)before->state_space[k][i];
    ref->apply(move, &v);
    double bound = 1.01 * 0x1p-24 * (fabs(v.center) + v.slack); /* 1.01: products of roundings */
    assert_quick(fabs((double)after->center[i] - v.center) <= bound);
    assert_quick(fabs((double)after->m[i] - v.m) <= bound);
    for (uint32_t k = 0; k < rule->n_state + rule->takes_seen; k++)
        assert_quick(fabs((double)after->state_space[k][i] - v.state[k]) <=
                     1.01 * 0x1p-24 * (fabs(v.state[k]) + v.state_slack[k]));
}

/* Each step from the floats the one before it left: rounding does not add up over steps. All rows of kernels
 * give the same bits. */
static void check_steps(const struct psd_rule *rule, const struct reference *ref, const struct ps_vec *vec,
                        size_t n)
{
    struct vectors v, plain;
    struct dice dice = {n};
    vectors_init(&v);
    vectors_init(&plain);
    for (size_t i = 0; i < n; i++)
        v.center[i] = dice_float(&dice);
    for (int step = 0; step < STEPS; step++) {
        struct vectors before = v;
        struct psd_move move = move_by_dice(&dice, vec), same = move;
        same.vec = row(0);
        for (size_t i = 0; i < n; i++)
            before.m[i] = v.m[i] = dice_float(&dice);
        for (size_t i = 0; i < n && rule->takes_seen; i++)
            before.state_space[rule->n_state][i] = v.state_space[rule->n_state][i] = dice_float(&dice);
        vectors_copy(&plain, &v);
        ck_assert_uint_eq(rule->apply(&move, v.center, v.state, v.m, n), 0);
        ck_assert_uint_eq(rule->apply(&same, plain.center, plain.state, plain.m, n), 0);
        ck_assert_mem_eq(v.center, plain.center, sizeof v.center);
        ck_assert_mem_eq(v.m, plain.m, sizeof v.m);
        ck_assert_mem_eq(v.state_space, plain.state_space, sizeof v.state_space);
        ck_assert_float_eq(rule->rate(&move), ref->rate(&move));
        for (size_t i = 0; i < n; i++)
            check_value(rule, ref, &move, &before, &v, i);
    }
}

START_TEST(rules_follow_their_equations)
{
    for (size_t k = 0; k < ROWS(references); k++)
        for (size_t n = 1; n <= MAX_N && row((size_t)_i) != NULL; n += n < 70 ? 1 : 23)
            check_steps(psd_rule_find(references[k].rule), &references[k], row((size_t)_i), n);
}
END_TEST

/* n values, of which every fifth message is `bad`. */
static void check_masked(const struct psd_rule *rule, const struct ps_vec *vec, const float *bad, size_t n)
{
    struct vectors v, before;
    struct dice dice = {9 + n};
    struct psd_move move = move_by_dice(&dice, vec);
    size_t want = 0;
    vectors_init(&v);
    for (size_t i = 0; i < n; i++) {
        v.center[i] = dice_float(&dice);
        v.m[i] = i % 5 == n % 5 ? bad[i % 3] : dice_float(&dice);
        want += i % 5 == n % 5;
        for (int k = 0; k < PSD_MAX_STATE; k++)
            v.state_space[k][i] = fabsf(dice_float(&dice));
    }
    before = v;
    ck_assert_uint_eq(rule->apply(&move, v.center, v.state, v.m, n), want);
    for (size_t i = 0; i < n; i++) {
        bool masked = i % 5 == n % 5;
        assert_quick(!masked || memcmp(&v.center[i], &before.center[i], sizeof(float)) == 0);
        assert_quick(isfinite(v.center[i]) && isfinite(v.m[i]));
        for (int k = 0; k < PSD_MAX_STATE; k++) {
            assert_quick(isfinite(v.state_space[k][i]));
            assert_quick(!masked ||
                         memcmp(&v.state_space[k][i], &before.state_space[k][i], sizeof(float)) == 0);
        }
    }
}

START_TEST(results_that_are_not_finite_are_masked_and_counted)
{
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (size_t k = 0; k < ROWS(references); k++)
        for (size_t n = 1; n <= MAX_N && row((size_t)_i) != NULL; n++)
            check_masked(psd_rule_find(references[k].rule), row((size_t)_i), bad, n);
}
END_TEST

/* A finite gradient whose square is not: the center would stay finite, the state would not. */
START_TEST(a_state_that_would_overflow_moves_nothing)
{
    static const float bad[] = {1e30f, -1e25f, FLT_MAX};
    static const char *const rules[] = {"adagrad", "adam"};
    for (size_t k = 0; k < ROWS(rules); k++)
        for (size_t n = 1; n <= 40 && row((size_t)_i) != NULL; n++)
            check_masked(psd_rule_find(rules[k]), row((size_t)_i), bad, n);
}
END_TEST

/* The sum of delayed Nesterov grows where the center hardly moves: by one more it is no longer finite. */
START_TEST(a_sum_that_would_overflow_moves_nothing)
{
    for (uint32_t delay = 1; delay <= 2; delay++) {
        struct vectors v, before;
        struct psd_move move = {.vec = row((size_t)_i), .outer_eta = 0x1p-20f, .delay = delay};
        if (move.vec == NULL)
            return;
        vectors_init(&v);
        for (size_t i = 0; i < MAX_N; i++) {
            v.m[i] = i % 3 == 0 ? -FLT_MAX : 1;
            v.state[1][i] = FLT_MAX;
        }
        before = v;
        ck_assert_uint_eq(psd_rule_find("delayed-nesterov")->apply(&move, v.center, v.state, v.m, MAX_N),
                          MAX_N / 3);
        for (size_t i = 0; i < MAX_N; i++) {
            assert_quick(isfinite(v.center[i]) && isfinite(v.state[0][i]) && isfinite(v.state[1][i]));
            assert_quick(i % 3 != 0 || (v.center[i] == 0 && v.m[i] == 0 && v.state[0][i] == 0));
            assert_quick(i % 3 != 0 || v.state[1][i] == before.state_space[1][i]);
        }
    }
}
END_TEST

/* A known answer: alpha = 0 leaves the center as it is, bit for bit, whatever x is. */
START_TEST(elastic_with_alpha_zero_leaves_the_center)
{
    struct vectors v, before;
    struct dice dice = {10};
    struct psd_move move = {.vec = row((size_t)_i), .alpha = 0, .eta = 0.1f};
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
    struct psd_move move = {.vec = row((size_t)_i), .alpha = 1};
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
    tcase_add_test(tc, every_rule_that_both_ends_know_is_here_and_tested);
    tcase_add_loop_test(tc, rules_follow_their_equations, 0, MAX_ROWS);
    tcase_add_loop_test(tc, results_that_are_not_finite_are_masked_and_counted, 0, MAX_ROWS);
    tcase_add_loop_test(tc, a_state_that_would_overflow_moves_nothing, 0, MAX_ROWS);
    tcase_add_loop_test(tc, a_sum_that_would_overflow_moves_nothing, 0, MAX_ROWS);
    tcase_add_loop_test(tc, elastic_with_alpha_zero_leaves_the_center, 0, MAX_ROWS);
    tcase_add_loop_test(tc, elastic_with_alpha_one_takes_x, 0, MAX_ROWS);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
