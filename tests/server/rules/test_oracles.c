/* What rules must do by theory: limits in which two of them agree, steps computed by hand, and ADMM against
 * its equations over all clients. */
#include "server/rules/rules.h"

#include <math.h>

#include "tests/support/unit.h"

enum { N = 300 };

struct vectors {
    float center[N], m[N], first[N], second[N];
    float *state[PSD_MAX_STATE];
};

static void vectors_init(struct vectors *v, struct dice *dice)
{
    memset(v, 0, sizeof *v);
    v->state[0] = v->first;
    v->state[1] = v->second;
    for (size_t i = 0; i < N; i++) {
        v->center[i] = dice_float(dice);
        v->m[i] = dice_float(dice);
    }
}

static void apply(const char *rule, const struct psd_move *move, struct vectors *v)
{
    ck_assert_uint_eq(psd_rule_find(rule)->apply(move, v->center, v->state, v->m, N), 0);
}

/* Bit for bit: 0 v - eta g is -(eta g), and center + -(eta g) is center - eta g. */
START_TEST(momentum_zero_is_sgd)
{
    struct dice dice = {20};
    struct vectors a, b;
    struct psd_move move = {.vec = ps_vec_best(), .eta = 0.3f, .momentum = 0};
    vectors_init(&a, &dice);
    dice.state = 20;
    vectors_init(&b, &dice);
    for (int step = 0; step < 20; step++) {
        for (size_t i = 0; i < N; i++)
            a.m[i] = b.m[i] = dice_float(&dice);
        apply("momentum", &move, &a);
        apply("sgd", &move, &b);
        ck_assert_mem_eq(a.center, b.center, sizeof a.center);
        ck_assert_mem_eq(a.m, b.m, sizeof a.m);
    }
}
END_TEST

START_TEST(adding_nothing_changes_nothing)
{
    struct dice dice = {21};
    struct vectors v, before;
    struct psd_move move = {.vec = ps_vec_best()};
    vectors_init(&v, &dice);
    memset(v.m, 0, sizeof v.m);
    before = v;
    apply("add", &move, &v);
    ck_assert_mem_eq(v.center, before.center, sizeof v.center);
    ck_assert_mem_eq(v.m, before.center, sizeof v.m);
}
END_TEST

/* DOWNPOUR's sum: the center moves by all that was added. Integers: exact. */
START_TEST(add_sums_what_workers_did)
{
    struct dice dice = {22};
    struct vectors v;
    struct psd_move move = {.vec = ps_vec_best()};
    float want[N];
    vectors_init(&v, &dice);
    for (size_t i = 0; i < N; i++)
        v.center[i] = want[i] = (float)(int)dice_below(&dice, 1000);
    for (int worker = 0; worker < 5; worker++) {
        for (size_t i = 0; i < N; i++)
            want[i] += v.m[i] = (float)(int)dice_below(&dice, 1000) - 500;
        apply("add", &move, &v);
    }
    ck_assert_mem_eq(v.center, want, sizeof want);
}
END_TEST

/* Zhang's Algorithm 5 by hand, delta = 1/2, eta = 1/4, g = 1, 1, -2, from x = 1: v = -1/4, -3/8, 5/16 and
 * x = 7/8, 11/16, 27/32. Powers of two: exact. */
START_TEST(mdownpour_by_hand)
{
    static const float g[] = {1, 1, -2}, v_want[] = {-0.25f, -0.375f, 0.3125f},
                       x_want[] = {0.875f, 0.6875f, 0.84375f};
    struct dice dice = {23};
    struct vectors v;
    struct psd_move move = {.vec = ps_vec_best(), .eta = 0.25f, .momentum = 0.5f};
    vectors_init(&v, &dice);
    for (size_t i = 0; i < N; i++)
        v.center[i] = 1;
    for (size_t t = 0; t < ROWS(g); t++) {
        for (size_t i = 0; i < N; i++)
            v.m[i] = g[t];
        apply("mdownpour", &move, &v);
        for (size_t i = 0; i < N; i++) {
            ck_assert_float_eq(v.first[i], v_want[t]);
            ck_assert_float_eq(v.center[i], x_want[t]);
        }
    }
}
END_TEST

/* From s = 0 and g twice: eta sign(g), then eta sign(g) / sqrt(2), but for epsilon. At most five roundings of
 * the step and one of the center, 2 or less: 2^-23 each. */
START_TEST(adagrad_starts_with_steps_of_eta)
{
    struct dice dice = {24};
    struct vectors v, before;
    struct psd_move move = {.vec = ps_vec_best(), .eta = 0.125f, .epsilon = 1e-30f};
    vectors_init(&v, &dice);
    before = v;
    for (int step = 1; step <= 2; step++) {
        memcpy(v.m, before.m, sizeof v.m);
        float was[N];
        memcpy(was, v.center, sizeof was);
        apply("adagrad", &move, &v);
        for (size_t i = 0; i < N; i++) {
            double want = (double)was[i] - copysign(0.125 / sqrt(step), (double)before.m[i]);
            ck_assert_double_le(fabs((double)v.center[i] - want), 2 * 0x1p-23);
        }
    }
}
END_TEST

/* With the biases corrected, a gradient that stays the same moves by eta sign(g) at every step, whatever the
 * betas (Kingma, Ba 2015, section 2.1). Corrections undo sums of t terms: t roundings more. */
START_TEST(adam_moves_by_eta_under_a_constant_gradient)
{
    struct dice dice = {25};
    struct vectors v, before;
    struct psd_move move = {
        .vec = ps_vec_best(), .eta = 0.125f, .momentum = 0.9f, .beta2 = 0.999f, .epsilon = 1e-30f};
    vectors_init(&v, &dice);
    before = v;
    for (move.t = 0; move.t < 8; move.t++) {
        float was[N];
        memcpy(was, v.center, sizeof was);
        memcpy(v.m, before.m, sizeof v.m);
        apply("adam", &move, &v);
        for (size_t i = 0; i < N; i++) {
            double want = (double)was[i] - copysign(0.125, (double)before.m[i]);
            ck_assert_double_le(fabs((double)v.center[i] - want), (4 + (double)move.t) * 0x1p-23);
        }
    }
}
END_TEST

/* N = 1: each move is an N-th one, s stays 0 and m is the same, bit for bit. The center goes by eta d and
 * then by eta beta m instead of by eta (d + beta m): six roundings in the one and four in the other of values
 * below 8, half an ulp of 2^-21 each, so 10 x 2^-22 a step from the same center; 20 steps. */
START_TEST(delayed_nesterov_of_one_is_outer_nesterov)
{
    struct dice dice = {26};
    struct vectors a, b;
    struct psd_move move = {.vec = ps_vec_best(), .outer_eta = 0.7f, .outer_momentum = 0.5f, .delay = 1};
    vectors_init(&a, &dice);
    dice.state = 26;
    vectors_init(&b, &dice);
    for (move.t = 0; move.t < 20; move.t++) {
        for (size_t i = 0; i < N; i++)
            a.m[i] = b.m[i] = dice_float(&dice) / 4;
        apply("delayed-nesterov", &move, &a);
        apply("outer-nesterov", &move, &b);
        ck_assert_mem_eq(a.first, b.first, sizeof a.first);
        for (size_t i = 0; i < N; i++) {
            ck_assert_float_eq(a.second[i], 0);
            ck_assert_double_lt(fabs((double)a.center[i]), 8);
            ck_assert_double_le(fabs((double)a.center[i] - (double)b.center[i]), 20 * 10 * 0x1p-22);
        }
    }
}
END_TEST

/* By hand, N = 2, eta = 1, beta = 1/2, messages -1, -1, -2, 0 from x = 8: x = 7.5; s = 2, m = 1, x = 7 - 1/2;
 * x = 5.5; s = 2, m = 1/2 + 1, x = 5.5 - 3/4. Powers of two: exact. */
START_TEST(delayed_nesterov_by_hand)
{
    static const float message[] = {-1, -1, -2, 0}, x_want[] = {7.5f, 6.5f, 5.5f, 4.75f},
                       m_want[] = {0, 1, 1, 1.5f}, s_want[] = {1, 0, 2, 0};
    struct dice dice = {27};
    struct vectors v;
    struct psd_move move = {.vec = ps_vec_best(), .outer_eta = 1, .outer_momentum = 0.5f, .delay = 2};
    vectors_init(&v, &dice);
    for (size_t i = 0; i < N; i++)
        v.center[i] = 8;
    for (move.t = 0; move.t < ROWS(message); move.t++) {
        for (size_t i = 0; i < N; i++)
            v.m[i] = message[move.t];
        apply("delayed-nesterov", &move, &v);
        for (size_t i = 0; i < N; i++) {
            ck_assert_float_eq(v.center[i], x_want[move.t]);
            ck_assert_float_eq(v.m[i], x_want[move.t]);
            ck_assert_float_eq(v.first[i], m_want[move.t]);
            ck_assert_float_eq(v.second[i], s_want[move.t]);
        }
    }
}
END_TEST

/* Bit for bit, whatever the client saw: g + 0 is g. */
START_TEST(compensation_zero_is_sgd)
{
    struct dice dice = {28};
    struct vectors a, b;
    struct psd_move move = {.vec = ps_vec_best(), .eta = 0.3f, .compensation = 0};
    vectors_init(&a, &dice);
    dice.state = 28;
    vectors_init(&b, &dice);
    for (int step = 0; step < 20; step++) {
        for (size_t i = 0; i < N; i++) {
            a.m[i] = b.m[i] = dice_float(&dice);
            a.first[i] = dice_float(&dice);
        }
        apply("dc-asgd", &move, &a);
        apply("sgd", &move, &b);
        ck_assert_mem_eq(a.center, b.center, sizeof a.center);
        ck_assert_mem_eq(a.m, b.m, sizeof a.m);
    }
}
END_TEST

/* One coordinate of ADMM: workers with losses h/2 (x - goal)^2, in double precision by eq. 9-11 as they
 * stand, and by our one trip with the center in floats at the server. */
enum { WORKERS = 3 };

struct admm {
    double x[WORKERS], lambda[WORKERS];
};

static const double goal[WORKERS] = {1, -2, 3.5};
static const double eta = 0.1, rho = 2.5;

static double descend(double x, double lambda, double center, int i)
{
    double g = 1.5 * (x - goal[i]);
    return (x - eta * g + eta * rho * (lambda + center)) / (1 + eta * rho);
}

/* Zhang, Choromanska, LeCun 2015, eq. 9, 10 and 11 for worker i; the center after. */
static double dense_turn(struct admm *a, double center, int i)
{
    a->lambda[i] -= a->x[i] - center;
    a->x[i] = descend(a->x[i], a->lambda[i], center, i);
    return center;
}

static double dense_center(const struct admm *a)
{
    double sum = 0;
    for (int i = 0; i < WORKERS; i++)
        sum += a->x[i] - a->lambda[i];
    return sum / WORKERS;
}

/* The worker's half: its message, from what it had before the trip. */
static float message(const struct admm *a, int i)
{
    double x = a->x[i], lambda = a->lambda[i], g = 1.5 * (x - goal[i]);
    double part = (x - eta * g + eta * rho * (lambda - x)) / (1 + eta * rho) - lambda + x;
    return (float)(part - (x - lambda));
}

static void one_trip(struct admm *a, float *center, int first, int n, float *answer)
{
    double pull = eta * rho;
    struct psd_move move = {.vec = ps_vec_best(),
                            .share = 1.0f / WORKERS,
                            .kappa = (float)((pull - 1) / (pull + 1)),
                            .n_moves = (uint32_t)n};
    *answer = 0;
    for (int i = first; i < first + n; i++)
        *answer += message(a, i);
    ck_assert_uint_eq(psd_rule_find("admm")->apply(&move, center, NULL, answer, 1), 0);
    for (int i = first; i < first + n; i++)
        dense_turn(a, (double)*answer, i); /* the half is eq. 9-10 at the center before */
}

/* Turns of one worker (round-robin), or rounds of all (sync). A trip adds to the center's error at most three
 * roundings of values below 8, 3 x 2^-22; the iteration contracts in neither case but does not grow either
 * over 50 trips: 50 x 3 x 2^-22, twice. */
static const int trips_of[] = {1, WORKERS};

START_TEST(admm_in_one_trip_is_zhangs_equations)
{
    struct admm dense = {{0}, {0}}, ours = {{0}, {0}};
    double center = 0.5;
    float x = 0.5f, answer;
    int n = trips_of[_i];
    for (int i = 0; i < WORKERS; i++)
        dense.x[i] = ours.x[i] = 0.5; /* all start at the center: eq. 11 holds */
    for (int t = 0; t < 50; t++) {
        int first = n == 1 ? t % WORKERS : 0;
        for (int i = first; i < first + n; i++)
            dense_turn(&dense, center, i);
        double before = center;
        center = dense_center(&dense);
        one_trip(&ours, &x, first, n, &answer);
        ck_assert_double_le(fabs((double)answer - before), 100 * 3 * 0x1p-22);
        ck_assert_double_le(fabs((double)x - center), 100 * 3 * 0x1p-22);
    }
    ck_assert_double_gt(fabs(center - 0.5), 0.1); /* it went somewhere */
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("server-oracles");
    TCase *tc = tcase_create("oracles");
    tcase_add_test(tc, momentum_zero_is_sgd);
    tcase_add_test(tc, adding_nothing_changes_nothing);
    tcase_add_test(tc, add_sums_what_workers_did);
    tcase_add_test(tc, mdownpour_by_hand);
    tcase_add_test(tc, adagrad_starts_with_steps_of_eta);
    tcase_add_test(tc, adam_moves_by_eta_under_a_constant_gradient);
    tcase_add_test(tc, delayed_nesterov_of_one_is_outer_nesterov);
    tcase_add_test(tc, delayed_nesterov_by_hand);
    tcase_add_test(tc, compensation_zero_is_sgd);
    tcase_add_loop_test(tc, admm_in_one_trip_is_zhangs_equations, 0, (int)ROWS(trips_of));
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
