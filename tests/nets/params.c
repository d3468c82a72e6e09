/* params.c: where parameters lie, what they start as, and which models are refused. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nets/net.h"
#include "nets/plan.h"
#include "tests/support/unit.h"

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
    struct ps_error err = {""};
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
    const struct cnn_layer_spec average = {
        .kind = CNN_AVGPOOL, .name = "p", .kernel = kernel, .stride = stride, .pad = pad};
    const struct cnn_layer_spec average_layers[] = {average, layers[1], layers[2]};
    const struct cnn_model model = {"pool", 1, side, side, 2, layers, 3, "test"};
    const struct cnn_model average_model = {"pool", 1, side, side, 2, average_layers, 3, "test"};
    struct ps_error err = {""};
    struct cnn_plan *plan;

    ck_assert_msg(cnn_plan_create(&model, &plan, &err) == 0, "%s", err.text);
    struct cnn_shape out = plan->layers[0].out;
    cnn_plan_destroy(plan);
    ck_assert_int_eq(cnn_plan_create(&average_model, &plan, &err), 0);
    ck_assert_mem_eq(&plan->layers[0].out, &out, sizeof out);
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

static uint64_t floats_of(const struct cnn_param *p)
{
    uint64_t n = 1;
    for (uint32_t d = 0; d < p->n_dims; d++)
        n *= p->shape[d];
    return n;
}

static void check_refused(const struct cnn_layer_spec *first, uint32_t classes, const char *sentence)
{
    const struct cnn_layer_spec layers[] = {
        *first, {.kind = CNN_FC, .name = "f", .n_out = 3}, {.kind = CNN_SOFTMAX_LOSS, .name = "loss"}};
    const struct cnn_model model = {"bad", 1, 8, 8, classes, layers, 3, "test"};
    struct cnn_net_options opt = {&model, NULL, 1, 1};
    struct ps_error err = {""};
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
    check_refused(&bad, 3, "layer 'c': its window is 9 high and larger than its padded input of 8");
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
    check_refused(&bad, 3, "layer 'c': input of 1 x 8 x 8; allowed are 2 to 65536 values in one place");
    bad = fine, bad.kind = CNN_MAXPOOL, bad.kernel = 257;
    check_refused(&bad, 3, "layer 'c': kernel 257; allowed are 1 to 256");
}
END_TEST

static void check_graph_refused(const struct cnn_layer_spec *layers, size_t n, const char *sentence)
{
    const struct cnn_model model = {"bad", 2, 8, 8, 3, layers, n, "test"};
    struct ps_error err = {""};
    struct cnn_plan *plan = NULL;

    ck_assert_int_eq(cnn_plan_create(&model, &plan, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, sentence) != NULL, "found '%s', expected '%s'", err.text, sentence);
}

#define END                                                                                                  \
    {.kind = CNN_FC, .name = "f", .n_out = 3},                                                               \
    {                                                                                                        \
        .kind = CNN_SOFTMAX_LOSS, .name = "loss"                                                             \
    }
#define CONV(N, FROM, OUT, KERNEL)                                                                           \
    {                                                                                                        \
        .kind = CNN_CONV, .name = N, .inputs = {FROM}, .n_out = OUT, .kernel = KERNEL, .stride = 1           \
    }
#define REFUSED(SENTENCE, ...)                                                                               \
    do {                                                                                                     \
        const struct cnn_layer_spec layers[] = {__VA_ARGS__, END};                                           \
        check_graph_refused(layers, sizeof layers / sizeof layers[0], SENTENCE);                             \
    } while (0)

START_TEST(graphs_that_make_no_sense_are_refused)
{
    REFUSED("layer 'a': input 'b' is not a layer before it; those and 'images' are allowed",
            CONV("a", "b", 2, 1), CONV("b", "a", 2, 1));
    REFUSED("layer 'a': input 'a' is not a layer before it", CONV("a", "a", 2, 1));
    REFUSED("layers 0 and 1 are both named 'a'", CONV("a", "images", 2, 1), CONV("a", "images", 2, 1));
    REFUSED("layer 0 is named 'images', which is the net's input", CONV("images", "images", 2, 1));
    REFUSED("no layer reads layer 'a'", CONV("a", "images", 2, 1), CONV("b", "images", 2, 1));
    REFUSED("layer 's': 1 inputs; a layer of kind add has two to eight", CONV("a", "images", 2, 1),
            {.kind = CNN_ADD, .name = "s"});
    REFUSED("layer 'r': 2 inputs; a layer of kind relu has one", CONV("a", "images", 2, 1),
            {.kind = CNN_RELU, .name = "r", .inputs = {"a", "images"}});
    REFUSED("layer 's': input 'images' is 2 x 8 x 8, the first 3 x 8 x 8; they must agree",
            CONV("a", "images", 3, 1), {.kind = CNN_ADD, .name = "s", .inputs = {"a", "images"}});
    REFUSED("layer 'c': input 'images' is 8 x 8, the first 7 x 7; they must agree", CONV("a", "images", 3, 2),
            {.kind = CNN_CONCAT, .name = "c", .inputs = {"a", "images"}});
    REFUSED("layer 'c': 131072 channels in all; allowed are 65536", CONV("a", "images", 65536, 8),
            {.kind = CNN_CONCAT, .name = "c", .inputs = {"a", "a"}});
}
END_TEST

START_TEST(settings_that_make_no_sense_are_refused)
{
    REFUSED("layer 'c': 3 groups do not divide 2 input and 6 output channels",
            {.kind = CNN_CONV, .name = "c", .n_out = 6, .kernel = 1, .stride = 1, .groups = 3});
    REFUSED("layer 'c': 2 groups do not divide 2 input and 5 output channels",
            {.kind = CNN_CONV, .name = "c", .n_out = 5, .kernel = 1, .stride = 1, .groups = 2});
    REFUSED("layer 'd': rate 1; allowed are 0 to below 1", {.kind = CNN_DROPOUT, .name = "d", .rate = 1});
    REFUSED("layer 'd': rate nan", {.kind = CNN_DROPOUT, .name = "d", .rate = NAN});
    REFUSED("layer 'n': size 0; allowed are 1 to 65536 channels",
            {.kind = CNN_LRN, .name = "n", .alpha = 1, .beta = 1, .k = 1});
    REFUSED("layer 'n': alpha 1, beta 1, k 0; they are finite, alpha at least 0 and k above 0",
            {.kind = CNN_LRN, .name = "n", .size = 5, .alpha = 1, .beta = 1});
    REFUSED("layer 'n': epsilon -1, momentum 0; epsilon is at least 0",
            {.kind = CNN_BATCHNORM, .name = "n", .epsilon = -1});
    REFUSED("layer 'n': epsilon 0, momentum 2;", {.kind = CNN_BATCHNORM, .name = "n", .momentum = 2});
    REFUSED("layer 'p': pads 9 and 9 of a window 9 high; a pad is smaller than the window",
            {.kind = CNN_AVGPOOL, .name = "p", .kernel = 9, .stride = 1, .pad = 9});
    REFUSED("layer 'p': pads 0 and 2 of a window 2 wide",
            {.kind = CNN_AVGPOOL, .name = "p", .kernel = 2, .stride = 1, .pads = {0, 0, 0, 2}});
    REFUSED("layer 'p': its window is 9 high and larger than its padded input of 8",
            {.kind = CNN_AVGPOOL, .name = "p", .kernel = 9, .stride = 1});
    REFUSED("layer 'p': a pool with dilation; convolutions have it",
            {.kind = CNN_MAXPOOL, .name = "p", .kernel = 2, .stride = 1, .dilation = 2});
    REFUSED("layer 'c': its window is 9 high and larger than its padded input of 8",
            {.kind = CNN_CONV, .name = "c", .n_out = 1, .kernel = 3, .stride = 1, .dilation = 4});
    REFUSED("layer 'r': slope 0; allowed are above 0 to 1", {.kind = CNN_LEAKY_RELU, .name = "r"});
    REFUSED("layer 'r': a relu cannot be frozen; conv and fc can",
            {.kind = CNN_RELU, .name = "r", .is_frozen = true});
    REFUSED("layer 'c': filler 2 with nan", {.kind = CNN_CONV,
                                             .name = "c",
                                             .n_out = 1,
                                             .kernel = 1,
                                             .stride = 1,
                                             .filler = CNN_FILL_GAUSSIAN,
                                             .fill = NAN});
}
END_TEST

/* Names are as long as a manifest's: 127 bytes with ".weight", and all of them where there are no tensors. */
START_TEST(names_are_as_long_as_a_manifests)
{
    char name[130];

    memset(name, 'n', sizeof name);
    name[127] = 0;
    REFUSED("its tensors' names are longer than 127 bytes", CONV(name, "images", 2, 1));
    const struct cnn_layer_spec relu[] = {{.kind = CNN_RELU, .name = name}, END};
    const struct cnn_model relus = {"long", 2, 8, 8, 3, relu, 3, "test"};
    ck_assert_uint_eq(cnn_model_n_floats(&relus), 128 * 3 + 3);
    name[127] = 'n', name[128] = 0;
    ck_assert_uint_eq(cnn_model_n_floats(&relus), 0);
    name[127 - 7] = 0;
    const struct cnn_layer_spec conv[] = {CONV(name, "images", 2, 1), END};
    const struct cnn_model convs = {"long", 2, 8, 8, 3, conv, 3, "test"};
    struct cnn_param *rows;
    size_t n;
    ck_assert_int_eq(cnn_model_params(&convs, &rows, &n, NULL), 0);
    ck_assert_uint_eq(strlen(rows[0].name), 127);
    free(rows);
}
END_TEST

static const struct {
    const char *spec, *sentence;
} bad_specs[] = {
    {"alexnot", "\"alexnot\" is not a net; allowed: lenet, "},
    {"", "\"\" is not a net"},
    {"lenet:", "parameter \"\"; allowed: classes=N and size="},
    {"lenet:depth=3", "parameter \"depth\"; allowed: classes=N"},
    {"lenet:classes", "classes \"\"; allowed: 2 to 65536"},
    {"lenet:classes=1", "classes \"1\"; allowed: 2 to 65536"},
    {"lenet:classes=65537", "classes \"65537\""},
    {"lenet:classes=10x", "classes \"10x\""},
    {"lenet:classes=-2", "classes \"-2\""},
    {"lenet:size=0", "size \"0\"; allowed: SIDE or HEIGHTxWIDTH, 1 to 4096"},
    {"lenet:size=28x", "size \"28x\""},
    {"lenet:size=4097", "size \"4097\""},
    {"lenet:size=28,", "parameter \"\""},
    {"lenet:size=6", "layer 'conv2': its window is 5 high and larger than its padded input of 1"},
};

START_TEST(model_parameters_are_read)
{
    struct cnn_model m = {0};
    struct ps_error err = {""};

    ck_assert_int_eq(cnn_model_read("lenet", &m, &err), 0);
    ck_assert_uint_eq(cnn_model_n_floats(&m), 431080);
    ck_assert_int_eq(cnn_model_read("lenet:classes=1000,size=32x28", &m, &err), 0);
    ck_assert(m.classes == 1000 && m.height == 32 && m.width == 28);
    ck_assert_uint_eq(cnn_model_n_floats(&m), 520 + 25050 + (50 * 5 * 4 * 500 + 500) + 501 * 1000);
    for (size_t i = 0; i < sizeof bad_specs / sizeof bad_specs[0]; i++) {
        ck_assert_int_eq(cnn_model_read(bad_specs[i].spec, &m, &err), -EINVAL);
        ck_assert_msg(strstr(err.text, bad_specs[i].sentence) != NULL, "found '%s', expected '%s'", err.text,
                      bad_specs[i].sentence);
    }
    ck_assert_uint_eq(m.classes, 1000); /* untouched */
}
END_TEST

/* Sizes after each layer and floats in all, from the papers or counted by hand. */
START_TEST(the_cifar_nets_have_the_papers_sizes)
{
    static const uint32_t cifar7[][2] = {{64, 24}, {64, 24}, {64, 12}, {128, 8}, {128, 8}, {128, 4},
                                         {64, 2},  {64, 2},  {256, 1}, {256, 1}, {256, 1}, {10, 1}};
    struct ps_error err = {""};
    struct cnn_plan *plan;

    ck_assert_int_eq(cnn_plan_create(cnn_model_find("cifar7"), &plan, &err), 0);
    for (size_t i = 0; i < sizeof cifar7 / sizeof cifar7[0]; i++) {
        ck_assert_uint_eq(plan->layers[i].out.c, cifar7[i][0]);
        ck_assert_uint_eq(plan->layers[i].out.h, cifar7[i][1]);
        ck_assert_uint_eq(plan->layers[i].out.w, cifar7[i][1]);
    }
    cnn_plan_destroy(plan);
    /* 3*64*25+64, 64*128*25+128, 128*64*9+64, 256*256+256, 256*10+10 */
    ck_assert_uint_eq(cnn_model_n_floats(cnn_model_find("cifar7")), 4864 + 204928 + 73792 + 65792 + 2570);
    ck_assert_uint_eq(cnn_model_n_floats(cnn_model_find("mlp")), 392500 + 250500 + 5010);
    ck_assert_uint_eq(cnn_model_n_floats(cnn_model_find("alexnet-cifar")),
                      4864 + (192 * 32 * 25 + 192) + (384 * 192 * 9 + 384) + (256 * 192 * 9 + 256) +
                          (256 * 128 * 9 + 256) + (1024 * 4096 + 1024) + (1024 * 1024 + 1024) + 10250);
}
END_TEST

static const struct cnn_param *row_named(const struct cnn_param *rows, size_t n, const char *name)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(rows[i].name, name) == 0)
            return &rows[i];
    ck_abort_msg("no row is named %s", name);
}

START_TEST(batchnorms_have_buffers)
{
    const struct cnn_model *resnet = cnn_model_find("resnet8");
    struct cnn_param *rows;
    size_t n;
    float *x = filled(resnet, 1);

    ck_assert_int_eq(cnn_model_params(resnet, &rows, &n, NULL), 0);
    uint64_t end = 0;
    for (size_t i = 0; i < n; i++) { /* back to back */
        ck_assert_uint_eq(rows[i].offset, end);
        end += rows[i].shape[0] * (rows[i].n_dims > 1 ? rows[i].shape[1] : 1) *
               (rows[i].n_dims > 2 ? rows[i].shape[2] * rows[i].shape[3] : 1);
    }
    ck_assert_uint_eq(end, cnn_model_n_floats(resnet));

    static const struct {
        const char *name;
        enum cnn_role role;
        enum cnn_decay decay;
        float start; /* NAN: drawn */
    } expected[] = {
        {"conv2a.weight", CNN_PARAM, CNN_DECAY, NAN},
        {"conv2a.bias", CNN_PARAM, CNN_NO_DECAY, 0},
        {"norm2a.weight", CNN_PARAM, CNN_NO_DECAY, 1},
        {"norm2a.bias", CNN_PARAM, CNN_NO_DECAY, 0},
        {"norm2a.running_mean", CNN_BUFFER, CNN_NO_DECAY, 0},
        {"norm2a.running_variance", CNN_BUFFER, CNN_NO_DECAY, 1},
        {"fc.weight", CNN_PARAM, CNN_DECAY, NAN},
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const struct cnn_param *row = row_named(rows, n, expected[i].name);
        ck_assert_int_eq(row->role, expected[i].role);
        ck_assert_int_eq(row->decay, expected[i].decay);
        for (size_t k = 0; k < row->shape[0] && !isnan(expected[i].start); k++)
            ck_assert_float_eq(x[row->offset + k], expected[i].start);
    }
    free(rows);
    free(x);
}
END_TEST

/* Floats that the method steps, and those it leaves alone. */
static const struct {
    const char *spec;
    uint64_t n_params, n_frozen, n_buffers;
} counts[] = {
    {"alexnet", 60965224, 0, 0},
    {"alexnet-ungrouped", 62378344, 0, 0},
    {"alexnet-ungrouped-cifar:classes=1000", 62378344, 0, 0},
    {"googlenet-plain", 6998552, 0, 0},
    /* Each head: 1 x 1 x in x 128, 4 x 4 x 128 x 1024, 1024 x 1000, and their biases. */
    {"googlenet", 6998552 + (512 + 528) * 128 + 2 * (128 + 2048 * 1024 + 1024 + 1024 * 1000 + 1000), 0, 0},
    {"vgg19", 143667240, 0, 0},
    {"resnet18", 11689512, 0, 9600},
    {"resnet50", 25557032, 0, 53120},
    /* 96*147+96, 256*96*25+256, 384*256*9+384, 384*384*4+384, 256*384*4+256, 9216*4096+4096, ... */
    {"imagenet11", 14208 + 614656 + 885120 + 590208 + 393472 + 37752832 + 16781312 + 4097000, 0, 0},
    {"cifar100-cnn", 4864 + 204928 + 295168 + (4096 * 512 + 512) + 51300, 0, 0},
    {"cifar100-convex", 51300, 4864 + 204928 + 295168 + (4096 * 512 + 512), 0},
};

START_TEST(the_seeds_nets_have_their_parameters)
{
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        uint64_t found[3] = {0}; /* by role */
        struct cnn_param *rows;
        struct cnn_model m;
        struct ps_error err = {""};
        size_t n;
        ck_assert_msg(cnn_model_read(counts[i].spec, &m, &err) == 0, "%s", err.text);
        ck_assert_int_eq(cnn_model_params(&m, &rows, &n, &err), 0);
        for (size_t k = 0; k < n; k++)
            found[rows[k].role] += floats_of(&rows[k]);
        ck_assert_msg(found[CNN_PARAM] == counts[i].n_params && found[CNN_FROZEN] == counts[i].n_frozen &&
                          found[CNN_BUFFER] == counts[i].n_buffers,
                      "%s has %lu, %lu and %lu floats", counts[i].spec, (unsigned long)found[CNN_PARAM],
                      (unsigned long)found[CNN_FROZEN], (unsigned long)found[CNN_BUFFER]);
        free(rows);
    }
}
END_TEST

/* (3,221) C(96,108) P(96,36) C(256,32) P(256,16) C(384,14) C(384,13) C(256,12) P(256,6) */
START_TEST(the_11_layer_net_has_the_papers_sizes)
{
    static const uint32_t sizes[][2] = {{96, 108}, {96, 36},  {256, 32}, {256, 16},
                                        {384, 14}, {384, 13}, {256, 12}, {256, 6}};
    struct cnn_plan *plan;
    size_t row = 0;

    ck_assert_int_eq(cnn_plan_create(cnn_model_find("imagenet11"), &plan, NULL), 0);
    for (size_t i = 0; row < 8; i++) {
        const struct cnn_layer *l = &plan->layers[i];
        if (l->spec->kind == CNN_RELU)
            continue;
        ck_assert_uint_eq(l->out.c, sizes[row][0]);
        ck_assert_uint_eq(l->out.h, sizes[row++][1]);
    }
    cnn_plan_destroy(plan);
}
END_TEST

START_TEST(fillers_are_as_published)
{
    static const struct cnn_layer_spec layers[] = {
        {.kind = CNN_FC,
         .name = "f",
         .n_out = 400,
         .filler = CNN_FILL_GAUSSIAN,
         .fill = 0.01f,
         .bias_fill = 0.1f},
        {.kind = CNN_FC, .name = "c", .n_out = 2, .filler = CNN_FILL_CONSTANT, .fill = -3},
        {.kind = CNN_SOFTMAX_LOSS, .name = "loss"},
    };
    static const struct cnn_model model = {"fill", 2, 10, 10, 2, layers, 3, "test"};
    float *x = filled(&model, 1);
    double sum = 0, squares = 0;

    for (size_t i = 0; i < 80000; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
    }
    ck_assert_double_eq_tol(sum / 80000, 0, 4 * 0.0035 * 0.01);
    ck_assert_double_eq_tol(squares / 80000, 1e-4, 4 * 0.005 * 1e-4);
    for (size_t i = 80000; i < 80400; i++)
        ck_assert_float_eq(x[i], 0.1f);
    for (size_t i = 80400; i < 81200; i++)
        ck_assert_float_eq(x[i], -3);
    free(x);
}
END_TEST

/* This program has no run path to the module, whether it was built or not. */
START_TEST(cuda_without_its_module_says_so)
{
    struct cnn_net_options opt = {.model = cnn_model_find("linear"), .backend = "cuda", .batch = 1};
    struct cnn_net *net = NULL;
    struct ps_error err = {""};

    ck_assert_int_eq(cnn_net_create(&opt, &net, &err), -ENOTSUP);
    ck_assert_msg(strncmp(err.text, "backend 'cuda' needs libpsnets-cuda.so, which is built if CUDA", 62) ==
                      0,
                  "%s", err.text);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nets-params");
    TCase *t = tcase_create("params");

    tcase_add_test(t, cuda_without_its_module_says_so);
    tcase_add_test(t, lenet_is_caffes);
    tcase_add_test(t, linear_is_one_matrix);
    tcase_add_test(t, flops_count_three_passes);
    tcase_add_test(t, filler_gives_the_same_bits_everywhere);
    tcase_add_test(t, xavier_is_uniform_and_biases_are_zero);
    tcase_add_test(t, pool_sizes_round_up);
    tcase_add_test(t, models_that_make_no_sense_are_refused);
    tcase_add_test(t, graphs_that_make_no_sense_are_refused);
    tcase_add_test(t, settings_that_make_no_sense_are_refused);
    tcase_add_test(t, names_are_as_long_as_a_manifests);
    tcase_add_test(t, model_parameters_are_read);
    tcase_add_test(t, the_cifar_nets_have_the_papers_sizes);
    tcase_add_test(t, batchnorms_have_buffers);
    tcase_add_test(t, the_seeds_nets_have_their_parameters);
    tcase_add_test(t, the_11_layer_net_has_the_papers_sizes);
    tcase_add_test(t, fillers_are_as_published);
    suite_add_tcase(s, t);
    return unit_run(s);
}
