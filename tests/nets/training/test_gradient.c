/* Gradients as they are stepped with: the clipped norm against a reference in long double, and k batches of n
 * against one of k n, on every backend. */
#include <math.h>
#include <stdio.h>

#include "nets/training/gradient.h"
#include "tests/support/unit.h"

enum { N = 1003 };
static const struct cnn_param params[] = {
    {.name = "a", .offset = 0, .shape = {500}, .n_dims = 1},
    {.name = "frozen", .offset = 500, .shape = {100}, .n_dims = 1, .role = CNN_FROZEN},
    {.name = "b", .offset = 600, .shape = {13, 31}, .n_dims = 2},
};

static float g[N], was[N];

static void roll(void)
{
    struct dice dice = {77};
    for (int i = 0; i < N; i++)
        was[i] = g[i] = dice_float(&dice) * (i % 7 == 0 ? 1e3f : 1);
}

static long double reference_norm(void)
{
    long double sum = 0;
    for (int i = 0; i < N; i++)
        if (i < 500 || i >= 600)
            sum += (long double)was[i] * (long double)was[i];
    return sqrtl(sum);
}

START_TEST(a_longer_gradient_is_cut_to_the_norm)
{
    roll();
    double norm = (double)reference_norm(), most = norm / 3;
    /* A thousand additions in double: 1e-13. */
    ck_assert_double_eq_tol(cnn_gradient_norm(params, 3, g), norm, 1e-12 * norm);
    ck_assert_double_eq_tol(cnn_gradient_clip(params, 3, g, most), norm, 1e-12 * norm);
    for (int i = 0; i < N; i++) {
        double wanted = (double)((long double)was[i] * most / reference_norm());
        if (i >= 500 && i < 600)
            ck_assert_float_eq(g[i], was[i]);
        else /* rounded to a float once: half an ulp */
            ck_assert_double_eq_tol((double)g[i], wanted, fabs(wanted) * (0x1p-24 + 1e-12));
    }
    ck_assert_double_eq_tol(cnn_gradient_norm(params, 3, g), most, 1e-6 * most);
}
END_TEST

START_TEST(a_shorter_one_keeps_its_bits)
{
    roll();
    double norm = cnn_gradient_norm(params, 3, g);
    cnn_gradient_clip(params, 3, g, norm);
    ck_assert_mem_eq(g, was, sizeof g);
    cnn_gradient_clip(params, 3, g, 1e30);
    ck_assert_mem_eq(g, was, sizeof g);
    memset(g, 0, sizeof g);
    ck_assert_double_eq(cnn_gradient_clip(params, 3, g, 1), 0);
}
END_TEST

/* No gradient is made up of one that is not finite; and the largest are no reason to overflow. */
START_TEST(what_is_not_finite_stays)
{
    roll();
    g[3] = was[3] = NAN;
    ck_assert(isnan(cnn_gradient_clip(params, 3, g, 1)));
    ck_assert_mem_eq(g, was, sizeof g);
    roll();
    g[550] = INFINITY; /* frozen: nobody reads it */
    ck_assert(isfinite(cnn_gradient_clip(params, 3, g, 1)));
    roll();
    g[0] = g[1] = 3e38f;
    ck_assert_double_eq_tol(cnn_gradient_clip(params, 3, g, 1), 3e38 * sqrt(2), 1e32);
    ck_assert_float_eq_tol(g[0], (float)sqrt(0.5), 1e-6f);
}
END_TEST

enum { BATCH = 3, TIMES = 4 };

static struct cnn_net *net_of(const struct cnn_model *m, const char *backend, uint32_t batch)
{
    struct cnn_net_options opt = {.model = m, .backend = backend, .batch = batch, .threads = 1};
    struct cnn_net *net;
    struct ps_error err;
    ck_assert_msg(cnn_net_create(&opt, &net, &err) == 0, "%s", err.text);
    return net;
}

START_TEST(batches_add_up_to_one)
{
    const struct cnn_model *m = cnn_model_find("lenet");
    const char *backend = cnn_backend_name((size_t)_i);
    static float images[TIMES * BATCH * 784];
    uint16_t labels[TIMES * BATCH];
    size_t n = cnn_model_n_floats(m);
    float *x = malloc(n * sizeof *x), *one = malloc(n * sizeof *x), *sum = malloc(n * sizeof *x);
    struct cnn_accumulator a;
    struct cnn_score score, whole;
    struct dice dice = {8};
    double loss = 0, largest = 0;
    for (size_t i = 0; i < ROWS(images); i++)
        images[i] = dice_float(&dice);
    for (size_t i = 0; i < ROWS(labels); i++)
        labels[i] = (uint16_t)(i * 3 % 10);
    ck_assert_int_eq(cnn_model_fill(m, 4, x), 0);
    struct cnn_net *large = net_of(m, backend, TIMES * BATCH), *small = net_of(m, backend, BATCH);
    ck_assert_int_eq(cnn_net_gradient(large, x, images, labels, one, &whole), 0);
    ck_assert_int_eq(cnn_accumulator_init(&a, n, TIMES), 0);
    for (int twice = 0; twice < 2;
         twice++) { /* nothing is left of the step before, nor of one that was given up */
        cnn_accumulator_add(&a, one);
        cnn_accumulator_clear(&a);
        loss = 0;
        for (int k = 0; k < TIMES; k++) {
            ck_assert_int_eq(
                cnn_net_gradient(small, x, images + k * BATCH * 784, labels + k * BATCH, sum, &score), 0);
            loss += score.loss / TIMES;
            ck_assert(cnn_accumulator_add(&a, sum) == (k == TIMES - 1));
        }
    }
    ck_assert_double_eq_tol(loss, whole.loss, 1e-6 * whole.loss);
    for (size_t i = 0; i < n; i++)
        largest = fmax(largest, fabs((double)one[i]));
    for (size_t i = 0; i < n; i++) /* backends' own bound, tests/nets/backends.c */
        ck_assert_msg(fabs((double)sum[i] - (double)one[i]) <= 1e-4 * largest, "%s [%zu]: %g, %g", backend, i,
                      (double)sum[i], (double)one[i]);
    cnn_accumulator_finish(&a);
    cnn_net_destroy(large);
    cnn_net_destroy(small);
    free(x);
    free(one);
    free(sum);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("gradient");
    TCase *t = tcase_create("gradient");
    int n_backends = 1; /* ref is the last that may be a default */
    while (strcmp(cnn_backend_name((size_t)n_backends - 1), "ref") != 0)
        n_backends++;
    tcase_add_test(t, a_longer_gradient_is_cut_to_the_norm);
    tcase_add_test(t, a_shorter_one_keeps_its_bits);
    tcase_add_test(t, what_is_not_finite_stays);
    tcase_add_loop_test(t, batches_add_up_to_one, 0, n_backends);
    suite_add_tcase(s, t);
    return unit_run(s);
}
