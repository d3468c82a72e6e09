/* tf32.c: products in tf32 on the backend of TEST_BACKEND: gradients near those of float32, but not the same;
 * the same bits each time; refused where there is none. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nets/cases.h"
#include "tests/support/unit.h"

enum { BATCH = 4 };

static int create(const struct cnn_model *model, const char *backend, enum cnn_precision precision,
                  struct cnn_net **out, struct ps_error *err)
{
    const struct cnn_net_options opt = {
        .model = model, .backend = backend, .batch = BATCH, .precision = precision};
    return cnn_net_create(&opt, out, err);
}

/* The third gradient is of a graph. */
static void gradient(const struct cnn_model *model, enum cnn_precision precision, struct bed *b, float *g)
{
    struct cnn_net *net = NULL;
    struct cnn_score score;
    struct ps_error err = {""};

    ck_assert_msg(create(model, tested_backend(0), precision, &net, &err) == 0, "%s", err.text);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(cnn_net_gradient(net, b->x, b->images, b->labels, g, &score), 0);
    cnn_net_destroy(net);
}

/* most: relative. A product rounds by 2.5e-4; depth, batch norm over four images and changed signs before a
 * ReLU carry that further. */
static void check_net(const char *name, double most)
{
    const struct cnn_model *model = cnn_model_find(name);
    struct bed b;
    double apart = 0, length = 0;

    ck_assert_ptr_nonnull(model);
    bed_create(&b, model, BATCH);
    float *rounded = calloc(b.n_floats, sizeof *rounded), *again = calloc(b.n_floats, sizeof *again);
    ck_assert(rounded != NULL && again != NULL);
    gradient(model, CNN_FLOAT32, &b, b.g);
    gradient(model, CNN_TF32, &b, rounded);
    gradient(model, CNN_TF32, &b, again);
    ck_assert_msg(memcmp(rounded, again, b.n_floats * sizeof *again) == 0, "%s: two gradients differ", name);
    for (size_t i = 0; i < b.n_floats; i++) {
        apart += pow((double)rounded[i] - (double)b.g[i], 2);
        length += pow((double)b.g[i], 2);
    }
    ck_assert_msg(apart > 1e-10 * length && apart <= most * most * length, "%s: %g of %g apart", name,
                  sqrt(apart), sqrt(length));
    free(rounded);
    free(again);
    bed_destroy(&b);
}

START_TEST(linear_rounds)
{
    check_net("linear", 1e-3);
}
END_TEST

START_TEST(lenet_rounds)
{
    check_net("lenet", 1e-2);
}
END_TEST

START_TEST(resnet8_rounds)
{
    check_net("resnet8", 0.1);
}
END_TEST

START_TEST(an_older_device_is_refused)
{
    struct cnn_net *net = NULL;
    struct ps_error err = {""};

    setenv("STANDIN_MAJOR", "7", 1);
    ck_assert_int_eq(create(cnn_model_find("linear"), tested_backend(0), CNN_TF32, &net, &err), -ENOTSUP);
    ck_assert_str_eq(err.text, "backend 'cuda': the GPU has compute capability 7; tf32 needs 8 or newer");
    ck_assert_int_eq(create(cnn_model_find("linear"), tested_backend(0), CNN_BF16, &net, &err), -ENOTSUP);
    ck_assert_str_eq(err.text, "backend 'cuda': the GPU has compute capability 7; bf16 needs 8 or newer");
    ck_assert_int_eq(create(cnn_model_find("linear"), tested_backend(0), CNN_FLOAT32, &net, &err), 0);
    cnn_net_destroy(net);
}
END_TEST

START_TEST(another_backend_refuses)
{
    struct cnn_net *net = NULL;
    struct ps_error err = {""};

    ck_assert_int_eq(create(cnn_model_find("linear"), "ref", CNN_TF32, &net, &err), -ENOTSUP);
    ck_assert_str_eq(err.text, "backend 'ref' does not compute in tf32");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cuda-tf32");
    TCase *t = tcase_create("gradients"), *refused = tcase_create("refused");

    tcase_add_test(t, linear_rounds);
    tcase_add_test(t, lenet_rounds);
    tcase_add_test(t, resnet8_rounds);
    tcase_add_test(refused, an_older_device_is_refused);
    tcase_add_test(refused, another_backend_refuses);
    suite_add_tcase(s, t);
    suite_add_tcase(s, refused);
    return unit_run(s);
}
