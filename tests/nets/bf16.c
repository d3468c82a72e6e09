/* bf16.c: nets that compute in bf16 on onednn, or on the backend of TEST_BACKEND, against ref and float32; on
 * a CPU without the units, or with ONEDNN_MAX_CPU_ISA below them, how they are refused. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/nets/cases.h"
#include "tests/support/unit.h"

#define SEED        9
#define STEP_NUMBER 5

/* The norm of a tensor's error, as a part of the tensor's own norm: rounding a value to 8 bits errs by up to
 * 2^-9 = 0.002 of it, and every layer adds its roundings: 0.01 in most models of this suite, and 0.1 where a
 * gradient is a sum of parts that cancel. Where a ReLU or a max-pool chooses between values that are equal
 * but for such an error, it may choose the other, and a part of the gradient goes another way. Random
 * parameters and few images make that frequent: up to 0.29. A wrong kernel errs by 1. */
#define TOLERANCE         0.15
#define TOLERANCE_CHOICES 0.4
#define TOLERANCE_LOSS    0.02
/* Of the mean loss of the last steps of a training, of float32's. */
#define TOLERANCE_TRAINED 0.05

static bool chooses(const struct cnn_model *m)
{
    const unsigned kinds = 1u << CNN_RELU | 1u << CNN_LEAKY_RELU | 1u << CNN_RELU6 | 1u << CNN_MAXPOOL |
                           1u << CNN_GLOBAL_MAXPOOL;
    for (size_t i = 0; i < m->n_layers; i++)
        if (kinds >> m->layers[i].kind & 1)
            return true;
    return false;
}

static const char *backend_of_bf16(void)
{
    const char *asked = getenv("TEST_BACKEND");
    return asked != NULL ? asked : "onednn";
}

static struct cnn_net *create(const struct cnn_model *model, enum cnn_precision precision, uint32_t batch,
                              uint32_t threads)
{
    const struct cnn_net_options opt = {.model = model,
                                        .backend = backend_of_bf16(),
                                        .batch = batch,
                                        .threads = threads,
                                        .precision = precision};
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

/* A tensor whose gradient is less than a hundredth of the largest has that for a scale: it is 0 but for
 * rounding, as that of a bias before a batchnorm. */
static void assert_near(const struct bed *b, const float *g, const float *expected)
{
    double largest = 0, tolerance = chooses(b->model) ? TOLERANCE_CHOICES : TOLERANCE;

    for (size_t i = 0; i < b->n_params; i++)
        largest = fmax(largest, norm(expected + b->params[i].offset, NULL, param_floats(&b->params[i])));
    for (size_t i = 0; i < b->n_params; i++) {
        const struct cnn_param *p = &b->params[i];
        size_t n = param_floats(p);
        double off = norm(g + p->offset, expected + p->offset, n);
        double scale = fmax(norm(expected + p->offset, NULL, n), largest / 100);
        ck_assert_msg(off <= tolerance * scale, "%s, %s: off by %.3g of %.3g", b->model->name, p->name, off,
                      scale);
    }
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
    for (int twice = 0; twice < 2; twice++) { /* nothing is left over from the call before */
        memset(b.g, 0xff, b.n_floats * sizeof *b.g);
        cnn_net_seed(net, SEED, STEP_NUMBER);
        ck_assert_int_eq(cnn_net_gradient(net, b.x, b.images, b.labels, b.g, &score), 0);
        assert_near(&b, b.g, g);
        ck_assert_double_eq_tol(score.loss, expected.loss, TOLERANCE_LOSS * expected.loss);
    }
    ck_assert_int_eq(cnn_net_score(net, b.x, b.images, b.labels, batch, &score), 0);
    ck_assert_int_eq(cnn_net_score(ref, b.x, b.images, b.labels, batch, &expected), 0);
    ck_assert_double_eq_tol(score.loss, expected.loss, TOLERANCE_LOSS * expected.loss);
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

/* Only loops of our own: their bits do not depend on the number of threads. 48 images of 128 classes are
 * enough logits for the loss to be divided. Three images are fewer than the threads, which then divide the
 * channels. */
static const struct cnn_layer_spec own_layers[] = {
    {.kind = CNN_BATCHNORM, .name = "norm"},
    {.kind = CNN_RELU, .name = "relu"},
    {.kind = CNN_AVGPOOL, .name = "average", .kernel = 2, .stride = 1},
    {.kind = CNN_BATCHNORM, .name = "norm2"},
    {.kind = CNN_MAXPOOL, .name = "overlapping", .kernel = 3, .stride = 2, .pad = 1},
    {.kind = CNN_RELU, .name = "relu2"},
    {.kind = CNN_MAXPOOL, .name = "pool", .kernel = 2, .stride = 2},
    {.kind = CNN_TANH, .name = "tanh"},
    {.kind = CNN_GLOBAL_AVGPOOL, .name = "mean"},
    {.kind = CNN_SOFTMAX_LOSS, .name = "loss"},
};
static const struct cnn_model own_model = {
    "own", 128, 6, 6, 128, own_layers, sizeof own_layers / sizeof own_layers[0], "a test"};

static void gradient_of(const struct bed *b, enum cnn_precision precision, uint32_t threads, float *g,
                        struct cnn_score *score)
{
    struct cnn_net *net = create(b->model, precision, b->batch, threads);
    cnn_net_seed(net, SEED, STEP_NUMBER);
    ck_assert_int_eq(cnn_net_gradient(net, b->x, b->images, b->labels, g, score), 0);
    cnn_net_destroy(net);
}

static void check_threads(enum cnn_precision precision, uint32_t batch)
{
    struct bed b;
    struct cnn_score first, score;

    bed_create(&b, &own_model, batch);
    float *g = malloc(b.n_floats * sizeof *g);
    ck_assert_ptr_nonnull(g);
    gradient_of(&b, precision, 1, g, &first);
    for (uint32_t threads = 2; threads <= 5; threads++) {
        gradient_of(&b, precision, threads, b.g, &score);
        ck_assert_mem_eq(b.g, g, b.n_floats * sizeof *g);
        ck_assert(score.loss == first.loss);
        ck_assert_uint_eq(score.n_correct_5, first.n_correct_5);
    }
    free(g);
    bed_destroy(&b);
}

START_TEST(own_loops_make_the_same_bits_on_any_number_of_threads)
{
    check_threads(CNN_FLOAT32, 48);
    check_threads(CNN_FLOAT32, 3);
}
END_TEST

START_TEST(and_in_bf16)
{
    check_threads(CNN_BF16, 48);
    check_threads(CNN_BF16, 3);
}
END_TEST

/* A resumed run creates its net again. */
START_TEST(the_same_bits_from_every_net)
{
    struct bed b;
    struct cnn_score first, second;

    bed_create(&b, cnn_model_find("lenet"), 32);
    float *g = malloc(b.n_floats * sizeof *g);
    ck_assert_ptr_nonnull(g);
    gradient_of(&b, CNN_BF16, 2, g, &first);
    gradient_of(&b, CNN_BF16, 2, b.g, &second);
    ck_assert_mem_eq(b.g, g, b.n_floats * sizeof *g);
    ck_assert(first.loss == second.loss);
    free(g);
    bed_destroy(&b);
}
END_TEST

/* The images that a net takes as floats or as bytes, channels first or last. */
START_TEST(images_in_every_form_make_the_same_bits)
{
    static float value_of[3][256];
    struct bed b;
    struct cnn_score score, first;

    bed_create(&b, cnn_model_find("cifar7"), 2);
    size_t n = 2 * b.n_pixels, places = b.n_pixels / 3;
    uint8_t *bytes = malloc(n), *bytes_hwc = malloc(n);
    float *floats_hwc = malloc(n * sizeof *floats_hwc), *g = malloc(b.n_floats * sizeof *g);
    for (size_t c = 0; c < 3; c++)
        for (int v = 0; v < 256; v++)
            value_of[c][v] = ((float)v / 255.0f - 0.4f) / (0.2f + 0.1f * (float)c);
    for (size_t k = 0; k < n; k++) {
        size_t c = k / places % 3, hwc = k / b.n_pixels * b.n_pixels + k % places * 3 + c;
        bytes[k] = bytes_hwc[hwc] = (uint8_t)(k * 2654435761u >> 7);
        b.images[k] = floats_hwc[hwc] = value_of[c][bytes[k]];
    }
    const struct cnn_batch batches[] = {
        {b.images, CNN_PIXELS_FLOAT, false, NULL, b.labels, 2},
        {floats_hwc, CNN_PIXELS_FLOAT, true, NULL, b.labels, 2},
        {bytes, CNN_PIXELS_BYTE, false, (const float(*)[256])value_of, b.labels, 2},
        {bytes_hwc, CNN_PIXELS_BYTE, true, (const float(*)[256])value_of, b.labels, 2},
    };
    struct cnn_net *net = create(b.model, CNN_BF16, 2, 2);
    for (size_t k = 0; k < ROWS(batches); k++) {
        cnn_net_seed(net, SEED, STEP_NUMBER);
        ck_assert_int_eq(
            cnn_net_gradient_of(net, b.x, &batches[k], k == 0 ? g : b.g, NULL, k == 0 ? &first : &score), 0);
        if (k > 0)
            ck_assert_mem_eq(b.g, g, b.n_floats * sizeof *g);
    }
    cnn_net_destroy(net);
    free(bytes);
    free(bytes_hwc);
    free(floats_hwc);
    free(g);
    bed_destroy(&b);
}
END_TEST

/* Gradient descent on 64 images, where each class is a pattern with noise. The mean loss of the last ten of
 * 80 steps. */
static double train(const struct cnn_model *model, float rate, enum cnn_precision precision)
{
    enum { BATCH = 64, STEPS = 80, LAST = 10 };
    struct bed b;
    struct cnn_score score;
    double sum = 0;

    bed_create(&b, model, BATCH);
    cnn_model_fill(model, 1, b.x);
    struct dice dice = {7};
    for (size_t i = 0; i < BATCH * b.n_pixels; i++) {
        size_t image = i / b.n_pixels, class = image % model->classes, k = i % b.n_pixels;
        float noise = (float)(dice_bits(&dice) >> 40) * 0x1p-24f - 0.5f;
        b.images[i] = ((k * 2654435761u + class * 40503u) >> 9 & 1 ? 0.5f : -0.5f) + noise;
        b.labels[image] = (uint16_t) class;
    }
    struct cnn_net *net = create(model, precision, BATCH, 1);
    for (int step = 0; step < STEPS; step++) {
        ck_assert_int_eq(cnn_net_gradient(net, b.x, b.images, b.labels, b.g, &score), 0);
        for (size_t i = 0; i < b.n_floats; i++)
            b.x[i] -= rate * b.g[i];
        sum += step >= STEPS - LAST ? score.loss : 0;
    }
    cnn_net_destroy(net);
    bed_destroy(&b);
    return sum / LAST;
}

START_TEST(training_reaches_the_loss_of_float32)
{
    const struct {
        const char *name;
        float rate;
    } rows[] = {{"lenet", 0.02f}, {"mlp", 0.02f}, {"resnet8", 0.2f}};
    const struct cnn_model *model = cnn_model_find(rows[_i].name);
    double full = train(model, rows[_i].rate, CNN_FLOAT32), half = train(model, rows[_i].rate, CNN_BF16);

    ck_assert_msg(full < 0.7 * log(model->classes), "%s: float32 does not learn: %g", rows[_i].name, full);
    ck_assert_msg(fabs(half - full) <= TOLERANCE_TRAINED * full, "%s: %g in bf16, %g in float32",
                  rows[_i].name, half, full);
}
END_TEST

START_TEST(values_take_half_the_memory)
{
    struct cnn_net_options opt = {
        .model = cnn_model_find("resnet18"), .backend = backend_of_bf16(), .batch = 8, .threads = 1};
    struct cnn_net_memory full, half;

    ck_assert_int_eq(cnn_net_plan_memory(&opt, &full, NULL), 0);
    opt.precision = CNN_BF16;
    ck_assert_int_eq(cnn_net_plan_memory(&opt, &half, NULL), 0);
    ck_assert_uint_le(half.values, full.values / 100 * 55);
    ck_assert_uint_eq(half.vectors, full.vectors);
}
END_TEST

START_TEST(auto_measures)
{
    const struct cnn_net_options opt = {
        .model = cnn_model_find("linear"), .backend = backend_of_bf16(), .batch = 8, .threads = 1};
    struct cnn_precision_choice choice;

    ck_assert_int_eq(cnn_precision_choose(&opt, &choice, NULL), 0);
    ck_assert(choice.precision == CNN_FLOAT32 || choice.precision == CNN_BF16);
    ck_assert_ptr_nonnull(strstr(choice.why, " ms in bf16 and "));
    ck_assert_int_eq(strncmp(choice.why, cnn_precision_name(choice.precision), 4), 0);
}
END_TEST

static uint64_t planned_bytes(struct cnn_net_options opt, enum cnn_precision precision)
{
    struct cnn_net_memory m;
    opt.precision = precision;
    ck_assert_int_eq(cnn_net_plan_memory(&opt, &m, NULL), 0);
    return m.values + m.own + m.vectors;
}

/* The activations of resnet8 take less in bf16; the weights of linear, of which there are copies, more. */
START_TEST(auto_chooses_what_fits)
{
    static const struct {
        const char *name;
        uint32_t batch;
        enum cnn_precision fits;
    } rows[] = {{"resnet8", 8, CNN_BF16}, {"linear", 1, CNN_FLOAT32}};
    struct cnn_net_options opt = {.model = cnn_model_find(rows[_i].name),
                                  .backend = backend_of_bf16(),
                                  .batch = rows[_i].batch,
                                  .threads = 1};
    const enum cnn_precision other = rows[_i].fits == CNN_BF16 ? CNN_FLOAT32 : CNN_BF16;
    struct cnn_precision_choice choice;
    struct ps_error err = {""};
    char begin[64];

    opt.memory_limit = planned_bytes(opt, rows[_i].fits);
    ck_assert_uint_gt(planned_bytes(opt, other), opt.memory_limit);
    ck_assert_msg(cnn_precision_choose(&opt, &choice, &err) == 0, "%s", err.text);
    ck_assert_int_eq(choice.precision, rows[_i].fits);
    snprintf(begin, sizeof begin, "%s: %s does not fit: model '%s' ", cnn_precision_name(rows[_i].fits),
             cnn_precision_name(other), rows[_i].name);
    ck_assert_msg(strncmp(choice.why, begin, strlen(begin)) == 0, "%s", choice.why);
    opt.memory_limit = 1;
    ck_assert_int_eq(cnn_precision_choose(&opt, &choice, &err), -ENOMEM);
    ck_assert_msg(strstr(err.text, "neither bf16 nor float32 fits: model '") != NULL, "%s", err.text);
}
END_TEST

START_TEST(a_cpu_without_the_units_is_refused)
{
    struct cnn_net_options opt = {.model = cnn_model_find("lenet"), .batch = 8, .precision = CNN_BF16};
    const char *const backends[] = {"onednn", NULL};
    struct cnn_precision_choice choice;
    struct cnn_net *net = NULL;

    for (size_t i = 0; i < ROWS(backends); i++) {
        struct ps_error err = {""};
        opt.backend = backends[i];
        ck_assert_int_eq(cnn_net_create(&opt, &net, &err), -ENOTSUP);
        ck_assert_msg(strstr(err.text, "AVX512_BF16 or AMX, and the CPU has neither") != NULL, "%s",
                      err.text);
    }
    ck_assert_int_eq(cnn_precision_choose(&opt, &choice, NULL), 0);
    ck_assert_int_eq(choice.precision, CNN_FLOAT32);
    ck_assert_ptr_nonnull(strstr(choice.why, "the CPU has neither"));
}
END_TEST

START_TEST(ref_refuses)
{
    const struct cnn_net_options opt = {
        .model = cnn_model_find("lenet"), .backend = "ref", .batch = 8, .precision = CNN_BF16};
    struct ps_error err = {""};
    struct cnn_net *net = NULL;

    ck_assert_int_eq(cnn_net_create(&opt, &net, &err), -ENOTSUP);
    ck_assert_str_eq(err.text, "backend 'ref' does not compute in bf16");
}
END_TEST

/* In a child: after this process had asked CUDA, its children, the tests, could not. */
static bool has_units(void)
{
    const struct cnn_net_options opt = {
        .model = cnn_model_find("linear"), .backend = backend_of_bf16(), .batch = 1, .precision = CNN_BF16};
    struct cnn_net_memory memory;
    int status = 1;
    pid_t child = fork();
    if (child == 0)
        _exit(cnn_net_plan_memory(&opt, &memory, NULL) == 0 ? 0 : 1);
    return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(void)
{
    Suite *s = suite_create("nets-bf16");
    TCase *t = tcase_create("gradients"), *training = tcase_create("training"),
          *refused = tcase_create("refused");

    tcase_add_test(refused, ref_refuses);
    tcase_add_test(t, own_loops_make_the_same_bits_on_any_number_of_threads);
    if (has_units()) {
        tcase_add_test(t, gradients_are_near_those_of_ref);
        tcase_add_test(t, gradients_of_whole_models_are_near_too);
        tcase_add_test(t, and_in_bf16);
        tcase_add_test(t, the_same_bits_from_every_net);
        tcase_add_test(t, images_in_every_form_make_the_same_bits);
        tcase_add_test(t, values_take_half_the_memory);
        tcase_add_loop_test(training, training_reaches_the_loss_of_float32, 0, 3);
        tcase_add_test(training, auto_measures);
        tcase_add_loop_test(t, auto_chooses_what_fits, 0, 2);
    } else {
        tcase_add_test(refused, a_cpu_without_the_units_is_refused);
    }
    suite_add_tcase(s, t);
    suite_add_tcase(s, training);
    suite_add_tcase(s, refused);
    return unit_run(s);
}
