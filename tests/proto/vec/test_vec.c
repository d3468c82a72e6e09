/* Every row of kernels against double precision and against the plain row. */
#include "proto/vec/vec.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "tests/support/unit.h"

/* Vectors start this many floats into a 64-byte line: all the alignments there are. */
enum { MAX_N = 200, OFFSETS = 16, GUARD = 16, SPACE = MAX_N + OFFSETS + 2 * GUARD };

/* Two vectors, `a` moved by `b` (or both moved). */
struct pair {
    _Alignas(64) float a_space[SPACE], b_space[SPACE];
    float *a, *b;
};

static void pair_fill(struct pair *p, struct dice *dice, size_t a_offset, size_t b_offset)
{
    for (size_t i = 0; i < SPACE; i++) {
        p->a_space[i] = dice_float(dice);
        p->b_space[i] = dice_float(dice);
    }
    p->a = p->a_space + GUARD + a_offset;
    p->b = p->b_space + GUARD + b_offset;
}

static void pair_copy(struct pair *to, const struct pair *from)
{
    memcpy(to->a_space, from->a_space, sizeof to->a_space);
    memcpy(to->b_space, from->b_space, sizeof to->b_space);
    to->a = to->a_space + (from->a - from->a_space);
    to->b = to->b_space + (from->b - from->b_space);
}

/* A kernel under one signature, and what it computes in double precision. scale: the largest intermediate, so
 * that the bound below holds for it. */
struct kernel {
    const char *name;
    size_t (*run)(const struct ps_vec *row, float *a, float *b, float rate, size_t n);
    void (*reference)(double *a, double *b, double rate, double *scale);
};

static size_t run_axpy(const struct ps_vec *row, float *a, float *b, float rate, size_t n)
{
    row->axpy(a, b, rate, n);
    return 0;
}

static void reference_axpy(double *a, double *b, double rate, double *scale)
{
    *scale = fabs(rate * *b);
    *a += rate * *b;
}

static size_t run_elastic(const struct ps_vec *row, float *a, float *b, float rate, size_t n)
{
    row->elastic(a, b, rate, n);
    return 0;
}

static void reference_elastic(double *a, double *b, double rate, double *scale)
{
    *scale = fabs(rate * (*a - *b));
    *a -= rate * (*a - *b);
}

static size_t run_exchange_elastic(const struct ps_vec *row, float *a, float *b, float rate, size_t n)
{
    return row->exchange_elastic(a, b, rate, n);
}

static void reference_exchange_elastic(double *a, double *b, double rate, double *scale)
{
    double before = *a;
    *scale = fabs(rate * (*b - before));
    *a = before + rate * (*b - before);
    *b = before;
}

static size_t run_exchange_descend(const struct ps_vec *row, float *a, float *b, float rate, size_t n)
{
    return row->exchange_descend(a, b, rate, n);
}

static void reference_exchange_descend(double *a, double *b, double rate, double *scale)
{
    *scale = fabs(rate * *b);
    *a -= rate * *b;
    *b = *a;
}

static size_t run_copy_finite(const struct ps_vec *row, float *a, float *b, float rate, size_t n)
{
    (void)rate;
    return row->copy_finite(a, b, n);
}

static void reference_copy_finite(double *a, double *b, double rate, double *scale)
{
    (void)rate;
    *scale = 0;
    *a = *b;
}

static size_t run_exchange_mean(const struct ps_vec *row, float *a, float *b, float rate, size_t n)
{
    return row->exchange_mean(a, b, rate, n);
}

static void reference_exchange_mean(double *a, double *b, double rate, double *scale)
{
    *scale = fabs(rate * (*b - *a));
    *a += rate * (*b - *a);
    *b = *a;
}

static size_t run_copy(const struct ps_vec *row, float *a, float *b, float rate, size_t n)
{
    (void)rate;
    row->copy(a, b, n);
    return 0;
}

static size_t run_follow(const struct ps_vec *row, float *a, float *b, float rate, size_t n)
{
    return row->follow(a, b, rate, n);
}

static void reference_follow(double *a, double *b, double rate, double *scale)
{
    *scale = fabs(rate * (*b - *a));
    *a += rate * (*b - *a);
}

static const struct kernel kernels[] = {
    {"axpy", run_axpy, reference_axpy},
    {"elastic", run_elastic, reference_elastic},
    {"exchange_elastic", run_exchange_elastic, reference_exchange_elastic},
    {"exchange_descend", run_exchange_descend, reference_exchange_descend},
    {"copy_finite", run_copy_finite, reference_copy_finite},
    {"exchange_mean", run_exchange_mean, reference_exchange_mean},
    {"copy", run_copy, reference_copy_finite},
    {"follow", run_follow, reference_follow},
};

/* The last operation rounds once: half an ulp of the result. The product before it rounds at most twice (the
 * difference and the product itself): each half an ulp of `scale`. u = 2^-24; 1.01 covers u^2. */
static double bound(double result, double scale)
{
    return 1.01 * 0x1p-24 * (fabs(result) + 2 * scale);
}

static void check_element(const struct kernel *k, const struct pair *before, const struct pair *after,
                          size_t i, float rate)
{
    double a = (double)before->a[i], b = (double)before->b[i], scale;
    k->reference(&a, &b, (double)rate, &scale);
    if (!(fabs((double)after->a[i] - a) <= bound(a, scale) &&
          fabs((double)after->b[i] - b) <= bound(b, scale)))
        ck_abort_msg("%s[%zu]: %.9g, answers %.9g; expected %.9g, %.9g", k->name, i, (double)after->a[i],
                     (double)after->b[i], a, b);
}

static void check_guards(const struct pair *before, const struct pair *after, size_t n)
{
    size_t a = (size_t)(after->a - after->a_space), b = (size_t)(after->b - after->b_space);
    ck_assert_mem_eq(before->a_space, after->a_space, a * sizeof(float));
    ck_assert_mem_eq(before->b_space, after->b_space, b * sizeof(float));
    ck_assert_mem_eq(before->a_space + a + n, after->a_space + a + n, (SPACE - a - n) * sizeof(float));
    ck_assert_mem_eq(before->b_space + b + n, after->b_space + b + n, (SPACE - b - n) * sizeof(float));
}

static const struct ps_vec *row_that_runs(size_t index)
{
    size_t n;
    const struct ps_vec *const *rows = ps_vec_rows(&n);
    if (index == n)
        return ps_vec_best_racing(); /* the same promises hold for it */
    return index < n && ps_vec_runs_here(rows[index]) ? rows[index] : NULL;
}

enum { MAX_ROWS = 8 };

START_TEST(kernels_compute_what_they_say_at_every_length_and_alignment)
{
    const struct ps_vec *row = row_that_runs((size_t)_i), *plain = row_that_runs(0);
    struct dice dice = {1};
    struct pair before, after, reference;
    if (row == NULL)
        return;
    for (size_t k = 0; k < ROWS(kernels); k++)
        for (size_t n = 0; n <= MAX_N; n++)
            for (size_t offset = 0; offset < OFFSETS; offset += n % 3 + 3) {
                float rate = dice_float(&dice);
                pair_fill(&before, &dice, offset, (offset * 7 + n) % OFFSETS);
                pair_copy(&after, &before);
                pair_copy(&reference, &before);
                ck_assert_uint_eq(kernels[k].run(row, after.a, after.b, rate, n), 0);
                kernels[k].run(plain, reference.a, reference.b, rate, n);
                ck_assert_mem_eq(after.a_space, reference.a_space, sizeof after.a_space);
                ck_assert_mem_eq(after.b_space, reference.b_space, sizeof after.b_space);
                check_guards(&before, &after, n);
                for (size_t i = 0; i < n; i++)
                    check_element(&kernels[k], &before, &after, i, rate);
            }
}
END_TEST

/* at, x and v by g: Zhang et al. 2015, eq. 7-8. Values are below 8; each result is at most five roundings
 * away. */
START_TEST(nesterov_computes_what_it_says)
{
    const struct ps_vec *row = row_that_runs((size_t)_i), *plain = row_that_runs(0);
    struct dice dice = {14};
    if (row == NULL)
        return;
    for (size_t n = 0; n <= MAX_N; n++) {
        float space[2][4][SPACE], *v[2][4], eta = dice_float(&dice), delta = fabsf(dice_float(&dice)) / 2;
        for (size_t k = 0; k < 4; k++) {
            for (size_t i = 0; i < SPACE; i++)
                space[0][k][i] = space[1][k][i] = dice_float(&dice);
            v[0][k] = space[0][k] + (n + k * 5) % OFFSETS;
            v[1][k] = space[1][k] + (n + k * 5) % OFFSETS;
        }
        float before[4][SPACE];
        memcpy(before, space[0], sizeof before);
        row->nesterov(v[0][0], v[0][1], v[0][2], v[0][3], eta, delta, n);
        plain->nesterov(v[1][0], v[1][1], v[1][2], v[1][3], eta, delta, n);
        ck_assert_mem_eq(space[0], space[1], sizeof space[0]);
        for (size_t i = 0; i < n; i++) {
            double x = (double)before[1][v[0][1] - space[0][1] + (ptrdiff_t)i];
            double vel = (double)before[2][v[0][2] - space[0][2] + (ptrdiff_t)i];
            vel = (double)delta * vel - (double)eta * (double)v[0][3][i];
            x += vel;
            assert_quick(fabs((double)v[0][2][i] - vel) <= 5 * 0x1p-22);
            assert_quick(fabs((double)v[0][1][i] - x) <= 5 * 0x1p-22);
            assert_quick(fabs((double)v[0][0][i] - (x + (double)delta * vel)) <= 5 * 0x1p-22);
        }
    }
}
END_TEST

/* What the client's halves, optimizers and merges do with two to four vectors, at index i in double. */
static void want_heavy_ball(double *v, const double *rate)
{
    v[1] = rate[1] * v[1] - rate[0] * v[2];
    v[0] += v[1];
}

static void want_add(double *v, const double *rate)
{
    (void)rate;
    v[0] = v[1] + v[2];
}

static void want_subtract(double *v, const double *rate)
{
    (void)rate;
    v[0] = v[1] - v[2];
}

static void want_take_change(double *v, const double *rate)
{
    (void)rate;
    v[0] = v[2] - v[1];
    v[1] = v[2];
}

static void want_order(double *v, const double *rate)
{
    double low = fmin(v[0], v[1]), high = fmax(v[0], v[1]);
    (void)rate;
    v[0] = low;
    v[1] = high;
}

static void want_rebase(double *v, const double *rate)
{
    (void)rate;
    v[0] = v[2] + (v[0] - v[1]);
    v[1] = v[2];
}

static void want_admm_message(double *v, const double *rate)
{
    v[0] = rate[2] * (v[1] - rate[0] * v[3] + rate[1] * (v[2] - v[1]));
}

static void want_admm_land(double *v, const double *rate)
{
    v[1] -= v[0] - v[2];
    v[0] = rate[2] * (v[0] - rate[0] * v[3] + rate[1] * (v[1] + v[2]));
}

static void run_heavy_ball(const struct ps_vec *row, float *const *v, const float *rate, size_t n)
{
    row->heavy_ball(v[0], v[1], v[2], rate[0], rate[1], n);
}

static void run_add(const struct ps_vec *row, float *const *v, const float *rate, size_t n)
{
    (void)rate;
    row->add(v[0], v[1], v[2], n);
}

static void run_subtract(const struct ps_vec *row, float *const *v, const float *rate, size_t n)
{
    (void)rate;
    row->subtract(v[0], v[1], v[2], n);
}

static void run_take_change(const struct ps_vec *row, float *const *v, const float *rate, size_t n)
{
    (void)rate;
    assert_quick(row->take_change(v[0], v[1], v[2], n) == 0);
}

static void run_order(const struct ps_vec *row, float *const *v, const float *rate, size_t n)
{
    (void)rate;
    row->order(v[0], v[1], n);
}

static void run_rebase(const struct ps_vec *row, float *const *v, const float *rate, size_t n)
{
    (void)rate;
    row->rebase(v[0], v[1], v[2], n);
}

static void run_admm_message(const struct ps_vec *row, float *const *v, const float *rate, size_t n)
{
    row->admm_message(v[0], v[1], v[2], v[3], rate[0], rate[1], rate[2], n);
}

static void run_admm_land(const struct ps_vec *row, float *const *v, const float *rate, size_t n)
{
    row->admm_land(v[0], v[1], v[2], v[3], rate[0], rate[1], rate[2], n);
}

static const struct {
    void (*want)(double *v, const double *rate);
    void (*run)(const struct ps_vec *row, float *const *v, const float *rate, size_t n);
} worker_kernels[] = {{want_heavy_ball, run_heavy_ball},
                      {want_add, run_add},
                      {want_subtract, run_subtract},
                      {want_take_change, run_take_change},
                      {want_order, run_order},
                      {want_rebase, run_rebase},
                      {want_admm_message, run_admm_message},
                      {want_admm_land, run_admm_land}};

/* At every length and alignment, nothing beyond the end, the same bits in every row. Values are below 16, and
 * each result is at most seven roundings away. */
START_TEST(worker_kernels_compute_what_they_say)
{
    const struct ps_vec *row = row_that_runs((size_t)_i), *plain = row_that_runs(0);
    struct dice dice = {16};
    if (row == NULL)
        return;
    for (size_t k = 0; k < ROWS(worker_kernels); k++)
        for (size_t n = 0; n <= MAX_N; n++) {
            float space[2][4][SPACE], before[4][SPACE], *v[2][4], rate[3];
            for (size_t j = 0; j < 3; j++)
                rate[j] = fabsf(dice_float(&dice)) / 2;
            const double wide[3] = {(double)rate[0], (double)rate[1], (double)rate[2]};
            for (size_t j = 0; j < 4; j++) {
                for (size_t i = 0; i < SPACE; i++)
                    space[0][j][i] = space[1][j][i] = before[j][i] = dice_float(&dice);
                v[0][j] = space[0][j] + (n + j * 5) % OFFSETS;
                v[1][j] = space[1][j] + (n + j * 5) % OFFSETS;
            }
            worker_kernels[k].run(row, v[0], rate, n);
            worker_kernels[k].run(plain, v[1], rate, n);
            ck_assert_mem_eq(space[0], space[1], sizeof space[0]);
            for (size_t j = 0; j < 4; j++)
                for (size_t i = n; v[0][j] + i < space[0][j] + SPACE; i++)
                    assert_quick(v[0][j][i] == before[j][(size_t)(v[0][j] - space[0][j]) + i]);
            for (size_t i = 0; i < n; i++) {
                double want[4];
                for (size_t j = 0; j < 4; j++)
                    want[j] = (double)before[j][(size_t)(v[0][j] - space[0][j]) + i];
                worker_kernels[k].want(want, wide);
                for (size_t j = 0; j < 4; j++)
                    assert_quick(fabs((double)v[0][j][i] - want[j]) <= 7 * 0x1p-21);
            }
        }
}
END_TEST

/* Denormal numbers, zeros of both signs and large numbers: nothing is flushed or reordered. */
START_TEST(rows_agree_bit_for_bit_on_extreme_values)
{
    static const float extremes[] = {0.0f,      -0.0f,    FLT_MIN,  -FLT_MIN, 0x1p-149f, -0x1p-149f,
                                     0x1p-130f, FLT_MAX,  -FLT_MAX, 1.0f,     -1.0f,     0x1.fffffep0f,
                                     0x1p60f,   0x1p-60f, NAN,      INFINITY, -INFINITY};
    const struct ps_vec *row = row_that_runs((size_t)_i), *plain = row_that_runs(0);
    struct dice dice = {2};
    struct pair before, after, reference;
    if (row == NULL)
        return;
    for (size_t k = 0; k < ROWS(kernels); k++)
        for (int round = 0; round < 200; round++) {
            float rate = round % 2 ? dice_float(&dice) : extremes[dice_below(&dice, 14)];
            pair_fill(&before, &dice, dice_below(&dice, OFFSETS), dice_below(&dice, OFFSETS));
            for (size_t i = 0; i < MAX_N; i++) {
                before.a[i] = extremes[dice_below(&dice, 14)];
                before.b[i] = extremes[dice_below(&dice, ROWS(extremes))];
            }
            pair_copy(&after, &before);
            pair_copy(&reference, &before);
            size_t bad = kernels[k].run(row, after.a, after.b, rate, MAX_N);
            ck_assert_uint_eq(bad, kernels[k].run(plain, reference.a, reference.b, rate, MAX_N));
            if (kernels[k].run == run_axpy || kernels[k].run == run_elastic || kernels[k].run == run_copy)
                continue; /* a NaN's sign and payload are not promised */
            ck_assert_mem_eq(after.a, reference.a, MAX_N * sizeof(float));
        }
}
END_TEST

struct poison {
    float a, b, rate;
};

/* What makes a result that is not finite, for the kernels that store into a center. */
static const struct poison elastic_poisons[] = {
    {1, NAN, 0.5f},  {1, INFINITY, 0.5f},       {1, -INFINITY, 0.5f},
    {1, 2, NAN},     {-FLT_MAX, FLT_MAX, 1.0f}, {FLT_MAX, -FLT_MAX, 0.1f},
    {1, 3, INFINITY}};
static const struct poison descend_poisons[] = {
    {1, NAN, 0.5f},         {1, INFINITY, 0.5f},       {1, -INFINITY, 0.5f},
    {FLT_MAX, -FLT_MAX, 1}, {-FLT_MAX, FLT_MAX, 0.5f}, {1, 3, INFINITY},
    {0, 0, INFINITY}};
static const struct poison copy_poisons[] = {{1, NAN, 0}, {1, INFINITY, 0}, {1, -INFINITY, 0}};

static void check_masked(const struct ps_vec *row, const struct kernel *k, struct poison p, size_t n,
                         size_t step)
{
    struct pair before, after;
    struct dice dice = {n * 31 + step};
    size_t want = 0, first = n / 3;
    bool rate_is_fine = isfinite(p.rate);

    pair_fill(&before, &dice, n % OFFSETS, step % OFFSETS);
    for (size_t i = first; i < n; i += step) {
        before.a[i] = p.a;
        before.b[i] = p.b;
        want++;
    }
    pair_copy(&after, &before);
    size_t bad = k->run(row, after.a, after.b, p.rate, n);
    if (rate_is_fine)
        ck_assert_uint_eq(bad, want);
    else
        ck_assert_uint_eq(bad, n); /* every element is drawn from the non-zero */
    for (size_t i = 0; i < n; i++) {
        assert_quick(isfinite(after.a[i]));
        if (!rate_is_fine || (i >= first && (i - first) % step == 0))
            assert_quick(memcmp(&after.a[i], &before.a[i], sizeof(float)) == 0);
        else
            check_element(k, &before, &after, i, p.rate);
    }
    check_guards(&before, &after, n);
}

static void check_poisons(const struct ps_vec *row, const struct kernel *k, const struct poison *poisons,
                          size_t n_poisons)
{
    for (size_t p = 0; p < n_poisons; p++)
        for (size_t n = 1; n <= MAX_N; n++)
            check_masked(row, k, poisons[p], n, n % 7 + 1);
}

START_TEST(what_is_not_finite_is_counted_and_never_stored)
{
    const struct ps_vec *row = row_that_runs((size_t)_i);
    if (row == NULL)
        return;
    check_poisons(row, &kernels[2], elastic_poisons, ROWS(elastic_poisons));
    check_poisons(row, &kernels[3], descend_poisons, ROWS(descend_poisons));
    check_poisons(row, &kernels[4], copy_poisons, ROWS(copy_poisons));
    check_poisons(row, &kernels[5], elastic_poisons, ROWS(elastic_poisons));
    check_poisons(row, &kernels[7], elastic_poisons, ROWS(elastic_poisons));
}
END_TEST

/* A sum of n positive terms: each float sum adds at most 128 of them, so it is off by 128 x 2^-24 at most. */
START_TEST(sums_of_squares_are_close_and_the_same_in_every_row)
{
    const struct ps_vec *row = row_that_runs((size_t)_i), *plain = row_that_runs(0);
    static const size_t lengths[] = {0, 1, 15, 16, 17, 100, 2047, 2048, 2049, 5000};
    static float space[2][5000 + OFFSETS];
    struct dice dice = {21};
    if (row == NULL)
        return;
    for (size_t k = 0; k < ROWS(lengths); k++) {
        float *x = space[0] + k % OFFSETS, *y = space[1] + k * 3 % OFFSETS;
        double squares = 0, distance = 0;
        for (size_t i = 0; i < lengths[k]; i++) {
            x[i] = dice_float(&dice);
            y[i] = dice_float(&dice);
            squares += (double)x[i] * (double)x[i];
            distance += ((double)x[i] - (double)y[i]) * ((double)x[i] - (double)y[i]);
        }
        ck_assert_double_eq(row->squares(x, lengths[k]), plain->squares(x, lengths[k]));
        ck_assert_double_eq(row->squared_distance(x, y, lengths[k]),
                            plain->squared_distance(x, y, lengths[k]));
        ck_assert_double_le(fabs(row->squares(x, lengths[k]) - squares), 130 * 0x1p-24 * squares);
        ck_assert_double_le(fabs(row->squared_distance(x, y, lengths[k]) - distance),
                            130 * 0x1p-24 * distance);
    }
}
END_TEST

START_TEST(decay_adds_what_it_says)
{
    const struct ps_vec *row = row_that_runs((size_t)_i);
    float out[MAX_N + 1], g[MAX_N], x[MAX_N];
    struct dice dice = {22};
    if (row == NULL)
        return;
    for (size_t n = 0; n <= MAX_N; n++) {
        for (size_t i = 0; i < n; i++) {
            g[i] = dice_float(&dice);
            x[i] = dice_float(&dice);
        }
        out[n] = 7;
        row->decay(out, g, x, 0.25f, n);
        for (size_t i = 0; i < n; i++) /* the product is exact: one rounding */
            assert_quick(out[i] == (float)((double)g[i] + 0.25 * (double)x[i]));
        ck_assert_float_eq(out[n], 7);
    }
}
END_TEST

/* Where the change is not finite it says so, and start stays. */
START_TEST(take_change_keeps_the_start_of_what_is_not_finite)
{
    enum { LENGTH = 100 };
    static const struct {
        float x, start;
    } bad[] = {{NAN, 1}, {INFINITY, 1}, {-INFINITY, 1}, {FLT_MAX, -FLT_MAX}};
    const struct ps_vec *row = row_that_runs((size_t)_i);
    if (row == NULL)
        return;
    for (size_t k = 0; k < ROWS(bad); k++)
        for (size_t place = 0; place < LENGTH; place++) {
            float x[LENGTH], start[LENGTH], change[LENGTH];
            for (size_t i = 0; i < LENGTH; i++) {
                x[i] = (float)(3 * i);
                start[i] = (float)i;
            }
            x[place] = bad[k].x;
            start[place] = bad[k].start;
            ck_assert_uint_eq(row->take_change(change, start, x, LENGTH), 1);
            for (size_t i = 0; i < LENGTH; i++) {
                assert_quick(i == place ? !isfinite(change[i]) : change[i] == (float)(2 * i));
                assert_quick(i == place ? start[i] == bad[k].start : start[i] == x[i]);
            }
        }
}
END_TEST

START_TEST(first_nonfinite_is_the_first)
{
    enum { BIG = 3 * 4096 + 5 };
    static const size_t places[] = {0,    1,    15,   16,   63,    64,    4095,   4096,
                                    4097, 8191, 8192, 8193, 12287, 12288, BIG - 1};
    static const float bad[] = {NAN, -NAN, INFINITY, -INFINITY};
    const struct ps_vec *row = row_that_runs((size_t)_i);
    struct dice dice = {3};
    float *space = malloc((BIG + OFFSETS) * sizeof *space);
    if (row == NULL || space == NULL) {
        free(space);
        return;
    }
    for (size_t offset = 0; offset < OFFSETS; offset += 5) {
        float *x = space + offset;
        for (size_t i = 0; i < BIG; i++)
            x[i] = i % 100 == 0 ? FLT_MAX : dice_float(&dice);
        ck_assert_uint_eq(row->first_nonfinite(x, BIG), BIG);
        ck_assert_uint_eq(row->first_nonfinite(x, 0), 0);
        for (size_t k = 0; k < ROWS(places); k++) {
            float was = x[places[k]], last = x[BIG - 1];
            x[BIG - 1] = NAN; /* a later one changes nothing */
            x[places[k]] = bad[k % ROWS(bad)];
            ck_assert_uint_eq(row->first_nonfinite(x, BIG), places[k]);
            ck_assert_uint_eq(row->first_nonfinite(x, places[k]), places[k]); /* beyond n: not seen */
            x[BIG - 1] = last;
            x[places[k]] = was;
        }
    }
    free(space);
}
END_TEST

START_TEST(best_row_runs_here)
{
    size_t n, found = 0;
    const struct ps_vec *const *rows = ps_vec_rows(&n), *best = ps_vec_best();
    ck_assert_uint_ge(n, 1);
    ck_assert_uint_le(n, MAX_ROWS);
    ck_assert_str_eq(rows[0]->name, "scalar");
    ck_assert(ps_vec_runs_here(best));
    ck_assert_ptr_eq(best, ps_vec_best());
    for (size_t i = 0; i < n; i++)
        found += rows[i] == best;
    ck_assert_uint_eq(found, 1);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-vec");
    TCase *tc = tcase_create("rows");
    tcase_add_loop_test(tc, kernels_compute_what_they_say_at_every_length_and_alignment, 0, MAX_ROWS);
    tcase_add_loop_test(tc, nesterov_computes_what_it_says, 0, MAX_ROWS);
    tcase_add_loop_test(tc, worker_kernels_compute_what_they_say, 0, MAX_ROWS);
    tcase_add_loop_test(tc, rows_agree_bit_for_bit_on_extreme_values, 0, MAX_ROWS);
    tcase_add_loop_test(tc, what_is_not_finite_is_counted_and_never_stored, 0, MAX_ROWS);
    tcase_add_loop_test(tc, sums_of_squares_are_close_and_the_same_in_every_row, 0, MAX_ROWS);
    tcase_add_loop_test(tc, decay_adds_what_it_says, 0, MAX_ROWS);
    tcase_add_loop_test(tc, take_change_keeps_the_start_of_what_is_not_finite, 0, MAX_ROWS);
    tcase_add_loop_test(tc, first_nonfinite_is_the_first, 0, MAX_ROWS);
    tcase_add_test(tc, best_row_runs_here);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
