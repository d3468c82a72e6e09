/* train.c: some steps of plain SGD of whole nets, on the backend of TEST_BACKEND and on ref: the same points.
 */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nets/cases.h"
#include "tests/support/unit.h"

enum { STEPS = 3, BATCH = 4 };

/* The loss of the last step. */
static double train(const struct cnn_model *model, const char *backend, struct bed *b)
{
    struct cnn_net *net = net_of(model, backend, BATCH, 1);
    struct cnn_score score = {0};

    for (int step = 0; step < STEPS; step++) {
        ck_assert_int_eq(cnn_net_gradient(net, b->x, b->images, b->labels, b->g, &score), 0);
        cnn_net_update_buffers(net, b->x);
        for (size_t i = 0; i < b->n_floats; i++)
            b->x[i] -= 0.01f * b->g[i];
    }
    cnn_net_destroy(net);
    return score.loss;
}

/* Rounding of the first steps is carried through the others: ten times what a gradient may be off. */
static void check_training(const char *name)
{
    const struct cnn_model *model = cnn_model_find(name);
    struct bed a, b;
    double moved = 0, apart = 0;

    ck_assert_ptr_nonnull(model);
    bed_create(&a, model, BATCH);
    bed_create(&b, model, BATCH);
    float *start = malloc(a.n_floats * sizeof *start);
    ck_assert_ptr_nonnull(start);
    for (size_t i = 0; i < a.n_floats; i++)
        start[i] = a.x[i];
    double loss = train(model, tested_backend(0), &a), expected = train(model, "ref", &b);
    for (size_t i = 0; i < a.n_floats; i++) {
        moved += pow((double)b.x[i] - (double)start[i], 2);
        apart += pow((double)b.x[i] - (double)a.x[i], 2);
    }
    ck_assert_msg(sqrt(apart) <= 1e-3 * sqrt(moved), "%s: %g apart after a way of %g", name, sqrt(apart),
                  sqrt(moved));
    ck_assert_double_eq_tol(loss, expected, 1e-3 * expected);
    free(start);
    bed_destroy(&a);
    bed_destroy(&b);
}

START_TEST(lenet_goes_the_way_of_ref)
{
    check_training("lenet");
}
END_TEST

START_TEST(resnet8_goes_the_way_of_ref)
{
    check_training("resnet8");
}
END_TEST

/* 48 MiB of GPU memory: the batch that would fit is named. */
START_TEST(too_little_memory_names_the_batch_that_fits)
{
    struct cnn_net_options opt = {
        .model = cnn_model_find("linear"), .backend = tested_backend(0), .batch = 65536};
    struct cnn_net *net = NULL;
    struct ps_error err = {""};
    unsigned batch = 0;

    setenv("STANDIN_MEMORY_MIB", "48", 1);
    ck_assert_int_lt(cnn_net_create(&opt, &net, &err), 0);
    const char *tail = strstr(err.text, "a batch of ");
    ck_assert_msg(tail != NULL && sscanf(tail, "a batch of %u would fit", &batch) == 1, "%s", err.text);
    opt.batch = batch;
    ck_assert_msg(cnn_net_create(&opt, &net, &err) == 0, "%u: %s", batch, err.text);
    cnn_net_destroy(net);
}
END_TEST

START_TEST(no_device_is_a_sentence)
{
    struct cnn_net_options opt = {
        .model = cnn_model_find("linear"), .backend = tested_backend(0), .batch = 1};
    struct cnn_net *net = NULL;
    struct ps_error err = {""};

    setenv("STANDIN_DEVICES", "0", 1);
    ck_assert_int_eq(cnn_net_create(&opt, &net, &err), -ENOTSUP);
    ck_assert_str_eq(err.text, "backend 'cuda': no CUDA device: no CUDA-capable device is detected");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cuda-train");
    TCase *t = tcase_create("training"), *standin = tcase_create("the stand-in's machine");

    tcase_add_test(t, lenet_goes_the_way_of_ref);
    tcase_add_test(t, resnet8_goes_the_way_of_ref);
    tcase_add_test(standin, too_little_memory_names_the_batch_that_fits);
    tcase_add_test(standin, no_device_is_a_sentence);
    suite_add_tcase(s, t);
    suite_add_tcase(s, standin);
    return unit_run(s);
}
