/* params.c: where parameters lie, what they start as, and which models are refused. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nets/net.h"
#include "nets/plan.h"

struct row {
    const char *name;
    uint64_t offset, shape[4];
    uint32_t n_dims, fan_in;
};

/* Caffe's lenet_train_test.prototxt; the sizes are the known 520, 25,050, 400,500 and 5,010. */
static const struct row lenet_rows[] = {
    {"conv1.weight", 0, {20, 1, 5, 5}, 4, 25},     {"conv1.bias", 500, {20}, 1, 0},
    {"conv2.weight", 520, {50, 20, 5, 5}, 4, 500}, {"conv2.bias", 25520, {50}, 1, 0},
    {"fc1.weight", 25570, {500, 800}, 2, 800},     {"fc1.bias", 425570, {500}, 1, 0},
    {"fc2.weight", 426070, {10, 500}, 2, 500},     {"fc2.bias", 431070, {10}, 1, 0},
};

START_TEST(lenet_is_caffes)
{
    const struct cnn_model *lenet = cnn_model_find("lenet");
    struct cnn_param *p;
    struct cnn_error err = {""};
    size_t n;

    ck_assert_uint_eq(cnn_model_n_floats(lenet), 431080);
    ck_assert_int_eq(cnn_model_params(lenet, &p, &n, &err), 0);
    ck_assert_uint_eq(n, sizeof lenet_rows / sizeof lenet_rows[0]);
    for (size_t i = 0; i < n; i++) {
        ck_assert_str_eq(p[i].name, lenet_rows[i].name);
        ck_assert_uint_eq(p[i].offset, lenet_rows[i].offset);
        ck_assert_uint_eq(p[i].n_dims, lenet_rows[i].n_dims);
        ck_assert_uint_eq(p[i].fan_in, lenet_rows[i].fan_in);
        ck_assert_mem_eq(p[i].shape, lenet_rows[i].shape, sizeof p[i].shape);
    }
    free(p);
    for (size_t i = 0; i < lenet->n_layers; i++) /* no ReLU after its convolutions */
        ck_assert(lenet->layers[i].kind != CNN_RELU || lenet->layers[i - 1].kind == CNN_FC);
}
END_TEST

START_TEST(linear_is_one_matrix)
{
    ck_assert_uint_eq(cnn_model_n_floats(cnn_model_find("linear")), 7850);
    ck_assert_ptr_null(cnn_model_find("alexnot"));
}
END_TEST

/* Forward multiply-adds of LeNet: conv1 288,000, conv2 1,600,000, fc1 400,000, fc2 5,000. */
START_TEST(flops_count_three_passes)
{
    ck_assert_double_eq(cnn_model_train_flops(cnn_model_find("lenet")),
                        2.0 * (2 * 288000 + 3 * (1600000 + 400000 + 5000)));
    ck_assert_double_eq(cnn_model_train_flops(cnn_model_find("linear")), 2.0 * 2 * 7840);
}
END_TEST

static uint64_t fnv1a(const float *x, size_t n)
{
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        for (int k = 0; k < 32; k += 8)
            h = (h ^ (bits >> k & 0xff)) * UINT64_C(0x100000001b3);
    }
    return h;
}

static float *filled(const struct cnn_model *model, uint64_t seed)
{
    size_t n = cnn_model_n_floats(model);
    float *x = malloc(n * sizeof *x);
    ck_assert_ptr_nonnull(x);
    memset(x, 0xff, n * sizeof *x);
    ck_assert_int_eq(cnn_model_fill(model, seed, x), 0);
    return x;
}

/* The hashes are the filler's contract: another machine, compiler or version that gets others breaks runs
 * that must repeat bit for bit. */
START_TEST(filler_gives_the_same_bits_everywhere)
{
    static const struct cnn_layer_spec layers[] = {
        {.kind = CNN_FC, .name = "f", .n_out = 40, .filler = CNN_FILL_MSRA},
        {.kind = CNN_SOFTMAX_LOSS, .name = "loss"},
    };
    static const struct cnn_model msra = {"msra", 5, 20, 20, 40, layers, 2, "test"};
    float *x = filled(cnn_model_find("lenet"), 1), *y = filled(&msra, 1),
          *z = filled(cnn_model_find("lenet"), 2);

    ck_assert_uint_eq(fnv1a(x, cnn_model_n_floats(cnn_model_find("lenet"))), UINT64_C(7035824774238749104));
    ck_assert_uint_eq(fnv1a(y, cnn_model_n_floats(&msra)), UINT64_C(13601347571158679904));
    ck_assert_mem_ne(x, z, 400);

    double sum = 0, squares = 0;
    for (size_t i = 0; i < 80000; i++) {
        sum += (double)y[i];
        squares += (double)y[i] * (double)y[i];
    }
    /* variance 2/2000; of 80,000 draws the standard errors are 0.35 % of sigma and 0.5 % of the variance */
    ck_assert_double_eq_tol(sum / 80000, 0, 4 * 0.0035 * sqrt(1e-3));
    ck_assert_double_eq_tol(squares / 80000, 1e-3, 4 * 0.005 * 1e-3);
    free(x);
    free(y);
    free(z);
}
END_TEST

START_TEST(xavier_is_uniform_and_biases_are_zero)
{
    float *x = filled(cnn_model_find("lenet"), 3);
    const struct row *fc1 = &lenet_rows[4];
    double bound = sqrt(3.0 / 800), sum = 0, squares = 0, largest = 0;

    for (size_t i = 0; i < 400000; i++) {
        double v = (double)x[fc1->offset + i];
        sum += v;
        squares += v * v;
        largest = fmax(largest, fabs(v));
    }
    /* variance 1/800; standard errors of 400,000 draws: 0.16 % of sigma, 0.14 % of the variance */
    ck_assert_double_le(largest, bound * (1 + 1e-7));
    ck_assert_double_ge(largest, bound * 0.999);
    ck_assert_double_eq_tol(sum / 400000, 0, 4 * 0.0016 * sqrt(1.0 / 800));
    ck_assert_double_eq_tol(squares / 400000, 1.0 / 800, 4 * 0.0014 / 800);
    for (size_t i = 1; i < 8; i += 2)
        for (size_t k = 0; k < lenet_rows[i].shape[0]; k++)
            ck_assert_float_eq(x[lenet_rows[i].offset + k], 0);
    free(x);
}
END_TEST

static struct cnn_shape pool_shape(uint32_t side, uint32_t kernel, uint32_t stride, uint32_t pad)
{
    const struct cnn_layer_spec layers[] = {
        {.kind = CNN_MAXPOOL, .name = "p", .kernel = kernel, .stride = stride, .pad = pad},
        {.kind = CNN_FC, .name = "f", .n_out = 2},
        {.kind = CNN_SOFTMAX_LOSS, .name = "loss"},
    };
    const struct cnn_model model = {"pool", 1, side, side, 2, layers, 3, "test"};
    struct cnn_error err = {""};
    struct cnn_plan *plan;

    ck_assert_msg(cnn_plan_create(&model, &plan, &err) == 0, "%s", err.text);
    struct cnn_shape out = plan->layers[0].out;
    cnn_plan_destroy(plan);
    return out;
}

START_TEST(pool_sizes_round_up)
{
    ck_assert_uint_eq(pool_shape(24, 2, 2, 0).h, 12);
    ck_assert_uint_eq(pool_shape(7, 2, 2, 0).h, 4);
    ck_assert_uint_eq(pool_shape(32, 3, 2, 0).w, 16); /* CIFAR: floor would give 15 */
    ck_assert_uint_eq(pool_shape(4, 2, 2, 1).w, 3);
    ck_assert_uint_eq(pool_shape(5, 1, 3, 0).w, 2); /* a third window would start past the input */
}
END_TEST

static void check_refused(const struct cnn_layer_spec *first, uint32_t classes, const char *sentence)
{
    const struct cnn_layer_spec layers[] = {
        *first, {.kind = CNN_FC, .name = "f", .n_out = 3}, {.kind = CNN_SOFTMAX_LOSS, .name = "loss"}};
    const struct cnn_model model = {"bad", 1, 8, 8, classes, layers, 3, "test"};
    struct cnn_net_options opt = {&model, NULL, 1, 1};
    struct cnn_error err = {""};
    struct cnn_net *net;

    ck_assert_int_eq(cnn_net_create(&opt, &net, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, sentence) != NULL, "found '%s', expected '%s'", err.text, sentence);
    ck_assert_uint_eq(cnn_model_n_floats(&model), 0);
}

START_TEST(models_that_make_no_sense_are_refused)
{
    const struct cnn_layer_spec fine = {.kind = CNN_CONV, .name = "c", .n_out = 1, .kernel = 3, .stride = 1};
    struct cnn_layer_spec bad;

    check_refused(&fine, 4, "model 'bad' has 4 classes but its last layer 3 outputs");
    bad = fine, bad.kernel = 9;
    check_refused(&bad, 3, "layer 'c': kernel 9 is larger than its padded input of 8 x 8");
    bad = fine, bad.kernel = UINT32_MAX;
    check_refused(&bad, 3, "layer 'c': kernel 4294967295");
    bad = fine, bad.stride = 0;
    check_refused(&bad, 3, "stride 0");
    bad = fine, bad.n_out = 0;
    check_refused(&bad, 3, "0 output channels");
    bad = fine, bad.name = NULL;
    check_refused(&bad, 3, "layer 0 needs a name");
    bad = fine, bad.kind = (enum cnn_layer_kind)99;
    check_refused(&bad, 3, "of kind 99, which is not known");
    bad = fine, bad.kind = CNN_SOFTMAX_LOSS;
    check_refused(&bad, 3, "the last layer, and no other, is the softmax loss");
    bad = fine, bad.kind = CNN_MAXPOOL, bad.kernel = 17;
    check_refused(&bad, 3, "the kernel is 1 to 16");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nets-params");
    TCase *t = tcase_create("params");

    tcase_add_test(t, lenet_is_caffes);
    tcase_add_test(t, linear_is_one_matrix);
    tcase_add_test(t, flops_count_three_passes);
    tcase_add_test(t, filler_gives_the_same_bits_everywhere);
    tcase_add_test(t, xavier_is_uniform_and_biases_are_zero);
    tcase_add_test(t, pool_sizes_round_up);
    tcase_add_test(t, models_that_make_no_sense_are_refused);
    suite_add_tcase(s, t);
    SRunner *r = srunner_create(s);
    srunner_run_all(r, CK_ENV);
    int failed = srunner_ntests_failed(r);
    srunner_free(r);
    return failed == 0 ? 0 : 1;
}
