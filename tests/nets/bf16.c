/* bf16.c: nets that compute in bf16, against ref. Without AVX512_BF16 or AMX the suite is about the refusal. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nets/cases.h"
#include "tests/support/unit.h"

#define SEED        9
#define STEP_NUMBER 5

/* A value is rounded by 2^-9 of itself at most, each layer adds its own roundings, and a window or ReLU whose
 * inputs are close may choose another side. Of a tensor's gradient the norm of the difference is a part of
 * its own norm; where that is much smaller than the net's, a part of the net's. */
#define TOLERANCE      0.1
#define LOSS_TOLERANCE 0.02

static struct cnn_net *create(const struct cnn_model *model, enum cnn_precision precision, uint32_t batch,
                              uint32_t threads)
{
    const struct cnn_net_options opt = {
        .model = model, .backend = "onednn", .batch = batch, .threads = threads, .precision = precision};
    struct cnn_net *net = NULL;
    struct ps_error err = {""};
    int rc = cnn_net_create(&opt, &net, &err);

    ck_assert_msg(rc == 0, "%s: %s", model->name, err.text);
    return net;
}

static double norm(const float *g, const float *expected, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++) {
        double off = (double)g[i] - (expected != NULL ? (double)expected[i] : 0);
        sum += off * off;
    }
    return sqrt(sum);
}

/* The largest error of a tensor's gradient, as a part of its norm or of a hundredth of the largest norm. */
static double assert_near(const struct bed *b, const float *g, const float *expected)
{
    double largest = 0, worst = 0;

    for (size_t i = 0; i < b->n_params; i++)
        largest = fmax(largest, norm(expected + b->params[i].offset, NULL, param_floats(&b->params[i])));
    for (size_t i = 0; i < b->n_params; i++) {
        const struct cnn_param *p = &b->params[i];
        size_t n = param_floats(p);
        double off = norm(g + p->offset, expected + p->offset, n);
        double scale = fmax(norm(expected + p->offset, NULL, n), largest / 100);
        ck_assert_msg(getenv("BF16_SHOW") || off <= TOLERANCE * scale, "%s, %s: off by %.3g of %.3g", b->model->name, p->name, off,
                      scale);
        worst = fmax(worst, scale > 0 ? off / scale : 0);
    }
    return worst;
}

static void check_model(const struct cnn_model *model, uint32_t batch, uint32_t threads)
{
    struct bed b;
    struct cnn_score score, expected;

    bed_create(&b, model, batch);
    float *g = malloc(b.n_floats * sizeof *g);
    ck_assert_ptr_nonnull(g);
    struct cnn_net *net = create(model, CNN_BF16, batch, threads), *ref = net_of(model, "ref", batch, 1);
    cnn_net_seed(ref, SEED, STEP_NUMBER);
    ck_assert_int_eq(cnn_net_gradient(ref, b.x, b.images, b.labels, g, &expected), 0);
    for (int twice = 0; twice < 2; twice++) {
        memset(b.g, 0xff, b.n_floats * sizeof *b.g);
        cnn_net_seed(net, SEED, STEP_NUMBER);
        ck_assert_int_eq(cnn_net_gradient(net, b.x, b.images, b.labels, b.g, &score), 0);
        double worst = assert_near(&b, b.g, g);
        if (getenv("BF16_SHOW") != NULL)
            fprintf(stderr, "%-20s threads %u: worst tensor %.4f, loss %.5f of %.5f\n", model->name, threads, worst, score.loss, expected.loss);
        ck_assert_double_eq_tol(score.loss, expected.loss, LOSS_TOLERANCE * fmax(expected.loss, 1));
    }
    ck_assert_int_eq(cnn_net_score(net, b.x, b.images, b.labels, batch, &score), 0);
    ck_assert_int_eq(cnn_net_score(ref, b.x, b.images, b.labels, batch, &expected), 0);
    ck_assert_double_eq_tol(score.loss, expected.loss, LOSS_TOLERANCE * fmax(expected.loss, 1));
    cnn_net_destroy(net);
    cnn_net_destroy(ref);
    free(g);
    bed_destroy(&b);
}

START_TEST(gradients_are_near_those_of_ref)
{
    for (const struct cnn_model *const *m = cases; *m != NULL; m++)
        for (uint32_t threads = 1; threads <= 2; threads++)
            check_model(*m, 3, threads);
    for (const struct cnn_model *const *m = wide_cases; *m != NULL; m++)
        check_model(*m, 3, 2);
}
END_TEST

START_TEST(gradients_of_whole_models_are_near_too)
{
    for (const struct cnn_model *const *m = whole_models; *m != NULL; m++)
        check_model(*m, 2, 1);
    check_model(cnn_model_find("lenet"), 32, 1);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nets-bf16");
    TCase *t = tcase_create("bf16");
    tcase_set_timeout(t, 0);
    tcase_add_test(t, gradients_are_near_those_of_ref);
    tcase_add_test(t, gradients_of_whole_models_are_near_too);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_NORMAL);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed != 0;
}
