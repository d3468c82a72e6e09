/* search.c: how the backend of TEST_BACKEND chooses among ways to compute a product: what it measures,
 * keeps in its file, and takes from it. On the stand-in, whose clock counts pieces of work. */
#include <check.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/nets/cases.h"
#include "tests/support/unit.h"

enum { BATCH = 2 };

/* Two convolutions, of which the second has a ReLU behind it. They have five products: the gradient of the
 * images is not wanted. The fully connected layer has three. */
enum { N_CONVOLUTIONS = 5, N_PRODUCTS = 8 };
static const struct cnn_layer_spec layers[] = {
    {.kind = CNN_CONV, .name = "first", .n_out = 4, .kernel = 3, .stride = 1, .pad = 1},
    {.kind = CNN_MAXPOOL, .name = "pool", .kernel = 2, .stride = 2},
    {.kind = CNN_CONV, .name = "second", .n_out = 8, .kernel = 3, .stride = 1, .pad = 1},
    {.kind = CNN_RELU, .name = "relu"},
    {.kind = CNN_FC, .name = "fc", .n_out = CNN_CLASSES},
    {.kind = CNN_SOFTMAX_LOSS, .name = "loss"},
};
static const struct cnn_model model = {"two", 3, 8, 8, 10, layers, 6, "a test"};

static char file[64];

static void set_up(void)
{
    snprintf(file, sizeof file, "/tmp/psd-search-XXXXXX");
    int f = mkstemp(file);
    ck_assert_int_ge(f, 0);
    close(f);
    setenv("PSD_CUDA_ALGORITHMS", file, 1);
}

static void tear_down(void)
{
    unlink(file);
}

/* The text of the file; the caller frees it. */
static char *read_all(void)
{
    FILE *f = fopen(file, "r");
    char *text = calloc(1, 1 << 16);

    ck_assert(f != NULL && text != NULL);
    size_t n = fread(text, 1, (1 << 16) - 1, f);
    ck_assert_uint_lt(n, (1 << 16) - 1);
    fclose(f);
    return text;
}

static void write_all(const char *text)
{
    FILE *f = fopen(file, "w");
    ck_assert_ptr_nonnull(f);
    fputs(text, f);
    fclose(f);
}

static size_t count(const char *text, const char *word)
{
    size_t n = 0;
    for (const char *at = strstr(text, word); at != NULL; at = strstr(at + 1, word))
        n++;
    return n;
}

/* One gradient, in a net of its own. */
static void gradient(enum cnn_precision precision, struct bed *b, float *g)
{
    const struct cnn_net_options opt = {
        .model = b->model, .backend = tested_backend(0), .batch = BATCH, .precision = precision};
    struct cnn_net *net = NULL;
    struct cnn_score score;
    struct ps_error err = {""};

    ck_assert_msg(cnn_net_create(&opt, &net, &err) == 0, "%s", err.text);
    ck_assert_int_eq(cnn_net_gradient(net, b->x, b->images, b->labels, g, &score), 0);
    cnn_net_destroy(net);
}

/* The first plan that the stand-in names is not deterministic, and off by a last bit at random. */
START_TEST(algorithms_are_deterministic_unless_they_need_not_be)
{
    struct bed b;
    struct cnn_net_options opt = {.model = &model, .backend = tested_backend(0), .batch = BATCH};
    struct cnn_net *net = NULL;
    struct cnn_score score;
    struct ps_error err = {""};

    setenv("PSD_CUDA_ALGORITHMS", "estimated", 1);
    if (_i == 1)
        setenv("STANDIN_CUDNN", "classic", 1);
    bed_create(&b, &model, BATCH);
    float *g = malloc(b.n_floats * sizeof *g);
    for (int any_order = 0; any_order < 2; any_order++) {
        opt.any_order = any_order;
        ck_assert_msg(cnn_net_create(&opt, &net, &err) == 0, "%s", err.text);
        ck_assert_int_eq(cnn_net_gradient(net, b.x, b.images, b.labels, g, &score), 0);
        ck_assert_int_eq(cnn_net_gradient(net, b.x, b.images, b.labels, b.g, &score), 0);
        ck_assert_int_eq(memcmp(g, b.g, b.n_floats * sizeof *g) != 0, any_order);
        assert_close(&b, opt.backend, b.g, g, 1e-5);
        cnn_net_destroy(net);
    }
    opt.backend = "ref";
    ck_assert_int_lt(cnn_net_create(&opt, &net, &err), 0);
    assert_says(err.text, "backend 'ref' has deterministic algorithms only");
    free(g);
    bed_destroy(&b);
}
END_TEST

/* A choice without determinism is none with it. */
START_TEST(each_mode_is_searched)
{
    struct bed b;
    struct cnn_net_options opt = {.model = &model, .backend = tested_backend(0), .batch = BATCH};
    struct cnn_net *net = NULL;

    bed_create(&b, &model, BATCH);
    for (int k = 0; k < 4; k++) {
        opt.any_order = k % 2;
        ck_assert_int_eq(cnn_net_create(&opt, &net, NULL), 0);
        cnn_net_destroy(net);
    }
    char *text = read_all();
    ck_assert_uint_eq(count(text, "\n"), 2 * N_PRODUCTS);
    ck_assert_uint_eq(count(text, " any order\t"), N_PRODUCTS);
    free(text);
    bed_destroy(&b);
}
END_TEST

START_TEST(each_product_is_searched_once)
{
    struct bed b;

    bed_create(&b, &model, BATCH);
    gradient(CNN_FLOAT32, &b, b.g);
    char *first = read_all();
    ck_assert_uint_eq(count(first, "\n"), N_PRODUCTS);
    ck_assert_uint_eq(count(first, "stand-in\t"), N_PRODUCTS);
    ck_assert_uint_eq(count(first, "\tfc "), N_PRODUCTS - N_CONVOLUTIONS);
    ck_assert_uint_eq(count(first, "\tforward precision 0 in 2x"), 2);
    gradient(CNN_FLOAT32, &b, b.g);
    char *second = read_all();
    ck_assert_str_eq(first, second);
    free(second);
    gradient(CNN_BF16, &b, b.g);
    second = read_all();
    ck_assert_uint_eq(count(second, "\n"), 2 * N_PRODUCTS);
    free(first);
    free(second);
    bed_destroy(&b);
}
END_TEST

/* A plan with the bias is one piece of work, all else two. */
START_TEST(the_fastest_is_taken)
{
    struct bed b;

    bed_create(&b, &model, BATCH);
    gradient(CNN_FLOAT32, &b, b.g);
    char *text = read_all();
    ck_assert_uint_eq(count(text, "\tforward "), 2);
    ck_assert_uint_eq(count(text, "+bias\t"), 2); /* one of them of the fully connected layer */
    ck_assert_uint_eq(count(text, "+bias+relu\t"), 1);
    free(text);
    bed_destroy(&b);
}
END_TEST

START_TEST(at_each_precision)
{
    struct bed b;

    bed_create(&b, &model, BATCH);
    for (enum cnn_precision precision = CNN_FLOAT32; precision < CNN_N_PRECISIONS; precision++)
        gradient(precision, &b, b.g);
    char *text = read_all();
    ck_assert_uint_eq(count(text, "+bias+relu\t"), CNN_N_PRECISIONS);
    free(text);
    bed_destroy(&b);
}
END_TEST

/* Writes another name over the way of each forward product. */
static void rename_ways(char *text, const char *name)
{
    for (char *line = text; (line = strstr(line, "\tforward ")) != NULL; line++)
        memcpy(strstr(line, "\tgraph:") + 1, name, strlen(name));
}

/* The classic call: one of the ways, but not the fastest. */
START_TEST(a_way_of_the_file_is_taken)
{
    struct bed b;

    bed_create(&b, &model, BATCH);
    float *g = malloc(b.n_floats * sizeof *g);
    ck_assert_ptr_nonnull(g);
    gradient(CNN_FLOAT32, &b, g);
    char *text = read_all();
    rename_ways(text, "classic:4:0\t");
    write_all(text);
    gradient(CNN_FLOAT32, &b, b.g);
    char *again = read_all();
    ck_assert_str_eq(again, text);
    for (size_t i = 0; i < b.n_floats; i++)
        ck_assert_float_eq_tol(b.g[i], g[i], 1e-5f);
    free(again);
    free(text);
    free(g);
    bed_destroy(&b);
}
END_TEST

START_TEST(an_unknown_way_is_searched_again)
{
    struct bed b;

    bed_create(&b, &model, BATCH);
    gradient(CNN_FLOAT32, &b, b.g);
    char *text = read_all();
    rename_ways(text, "other");
    write_all(text);
    gradient(CNN_FLOAT32, &b, b.g);
    char *again = read_all();
    ck_assert_uint_eq(count(again, "\n"), N_PRODUCTS + 2);
    ck_assert_uint_eq(count(again, "\tgraph:"), N_CONVOLUTIONS);
    free(again);
    free(text);
    bed_destroy(&b);
}
END_TEST

START_TEST(a_damaged_file_is_searched_again)
{
    struct bed b;

    bed_create(&b, &model, BATCH);
    write_all("stand-in\t\n\t\t\t\nno line end");
    gradient(CNN_FLOAT32, &b, b.g);
    char *text = read_all();
    ck_assert_uint_eq(count(text, "\tgraph:"), N_CONVOLUTIONS);
    free(text);
    bed_destroy(&b);
}
END_TEST

START_TEST(estimated_measures_nothing)
{
    struct bed b;

    bed_create(&b, &model, BATCH);
    setenv("PSD_CUDA_ALGORITHMS", "estimated", 1);
    gradient(CNN_FLOAT32, &b, b.g);
    char *text = read_all();
    ck_assert_str_eq(text, "");
    free(text);
    bed_destroy(&b);
}
END_TEST

/* The first algorithm that the stand-in names for a product with a ReLU makes 0 of a NaN. */
START_TEST(a_nan_passes_through_the_relu_of_a_product)
{
    static const struct cnn_layer_spec two[] = {
        {.kind = CNN_FC, .name = "first", .n_out = 4},
        {.kind = CNN_RELU, .name = "relu"},
        {.kind = CNN_FC, .name = "fc", .n_out = CNN_CLASSES},
        {.kind = CNN_SOFTMAX_LOSS, .name = "loss"},
    };
    static const struct cnn_model relu = {"relu", 1, 3, 3, 10, two, 4, "a test"};
    const enum cnn_precision precisions[] = {CNN_FLOAT32, CNN_BF16};
    struct bed b;
    struct cnn_score score;

    bed_create(&b, &relu, BATCH);
    b.x[4 * 9 + 1] = NAN; /* a bias of the first */
    for (int k = 0; k < 2; k++) {
        const struct cnn_net_options opt = {
            .model = &relu, .backend = tested_backend(0), .batch = BATCH, .precision = precisions[k]};
        struct cnn_net *net = NULL;
        ck_assert_int_eq(cnn_net_create(&opt, &net, NULL), 0);
        ck_assert_int_eq(cnn_net_gradient(net, b.x, b.images, b.labels, b.g, &score), 0);
        ck_assert(isnan(score.loss));
        cnn_net_destroy(net);
    }
    char *text = read_all();
    ck_assert_uint_eq(count(text, "+bias+relu\t"), 2); /* another algorithm with it is taken */
    free(text);
    bed_destroy(&b);
}
END_TEST

START_TEST(a_product_without_an_algorithm_is_named)
{
    const struct cnn_net_options opt = {.model = &model, .backend = tested_backend(0), .batch = BATCH};
    struct cnn_net *net = NULL;
    struct ps_error err = {""};

    setenv("STANDIN_CUBLAS", "none", 1);
    ck_assert_int_lt(cnn_net_create(&opt, &net, &err), 0);
    assert_says(err.text, "layer fc: cuBLASLt has no algorithm for a product of 10 x 2 x 128");
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cuda-search");
    TCase *t = tcase_create("search");

    tcase_add_checked_fixture(t, set_up, tear_down);
    tcase_add_loop_test(t, algorithms_are_deterministic_unless_they_need_not_be, 0, 2);
    tcase_add_test(t, each_mode_is_searched);
    tcase_add_test(t, each_product_is_searched_once);
    tcase_add_test(t, the_fastest_is_taken);
    tcase_add_test(t, at_each_precision);
    tcase_add_test(t, a_way_of_the_file_is_taken);
    tcase_add_test(t, an_unknown_way_is_searched_again);
    tcase_add_test(t, a_damaged_file_is_searched_again);
    tcase_add_test(t, estimated_measures_nothing);
    tcase_add_test(t, a_nan_passes_through_the_relu_of_a_product);
    tcase_add_test(t, a_product_without_an_algorithm_is_named);
    suite_add_tcase(s, t);
    return unit_run(s);
}
