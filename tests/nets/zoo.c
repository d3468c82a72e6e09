/* zoo.c: the seeds' nets: every other backend's gradient against ref's, at sizes that ref gets through.
 *
 * Without an argument, as small as each net's pools allow, in seconds. With "full", larger and with ref's
 * gradient against differences of its loss: minutes, for scripts/soak. */
#include <check.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nets/cases.h"
#include "tests/support/unit.h"

#define SEED        9
#define STEP_NUMBER 5

/* Each parameter takes a step of this part of its size, at random up or down. ReLUs and pools that change
 * sides within it, and what lies beyond the second order, are less than a thousandth of the difference. */
#define STEP       0x1p-21
#define DIFFERENCE 1e-3
/* In 53 layers they are 4 % of it, and 30 % at a step 16 times as long. */
#define DIFFERENCE_DEEP 0.1
/* A float32 backend against double, by the length of the error of a tensor. In 53 layers with batch
 * normalisation over 12 values, a rounding turns some ReLUs round, each of which moves gradients by a step.
 */
#define AGREEMENT      1e-3
#define AGREEMENT_DEEP 6e-2 /* PyTorch's float32 is as far from its own double: compare.py */

static const struct {
    const char *spec;
    const char *quick; /* NULL: nothing that a row with one does not show */
    double agreement;
} nets[] = {
    {"resnet18:classes=7,size=64", "resnet18:classes=7,size=33", AGREEMENT},
    {"resnet50:classes=7,size=64", "resnet50:classes=7,size=33", AGREEMENT_DEEP},
    {"googlenet:classes=7,size=80", "googlenet:classes=7,size=80", AGREEMENT},
    {"googlenet-plain:classes=7,size=64x48", NULL, AGREEMENT},
    {"alexnet:classes=7,size=67", "alexnet:classes=7,size=55", AGREEMENT},
    {"alexnet-ungrouped:classes=7,size=67x75", NULL, AGREEMENT},
    {"vgg19:classes=7,size=32", "vgg19:classes=7,size=17", AGREEMENT},
    {"imagenet11:classes=7,size=101", "imagenet11:classes=7,size=91", AGREEMENT},
    {"cifar100-cnn:size=16", "cifar100-cnn:size=12", AGREEMENT},
    {"cifar100-convex:size=16", "cifar100-convex:size=12", AGREEMENT},
    {"alexnet-ungrouped-cifar:size=16", "alexnet-ungrouped-cifar:size=12", AGREEMENT},
};
static bool is_full;
enum { N_NETS = sizeof nets / sizeof nets[0] };

static double gradient(const char *backend, const struct bed *b, const float *x, float *g)
{
    struct cnn_net *net = net_of(b->model, backend, b->batch, 2);
    struct cnn_score score;

    cnn_net_seed(net, SEED, STEP_NUMBER);
    ck_assert_int_eq(cnn_net_gradient(net, x, b->images, b->labels, g, &score), 0);
    cnn_net_destroy(net);
    return score.loss;
}

/* up = x (1 + STEP), down = x (1 - STEP) or the other way round; what does not train stays. */
static void step_aside(const struct bed *b, float *up, float *down)
{
    uint64_t state = 12345;

    memcpy(up, b->x, b->n_floats * sizeof *up);
    memcpy(down, b->x, b->n_floats * sizeof *down);
    for (size_t i = 0; i < b->n_params; i++)
        for (size_t k = 0; b->params[i].role == CNN_PARAM && k < param_floats(&b->params[i]); k++) {
            size_t at = b->params[i].offset + k;
            state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
            float by = (state >> 63 ? 1.0f : -1.0f) * (float)STEP * (fabsf(b->x[at]) + 1e-3f);
            up[at] = b->x[at] + by;
            down[at] = b->x[at] - by;
        }
}

static void check_difference(const struct bed *b, const float *g, double tolerance)
{
    float *up = malloc(b->n_floats * sizeof *up), *down = malloc(b->n_floats * sizeof *down);
    float *unused = malloc(b->n_floats * sizeof *unused);
    double expected = 0, size = 0;

    ck_assert(up != NULL && down != NULL && unused != NULL);
    step_aside(b, up, down);
    for (size_t i = 0; i < b->n_floats; i++) { /* steps as they were taken, rounded to floats */
        double part = (double)g[i] * ((double)up[i] - (double)down[i]);
        expected += part;
        size += part * part;
    }
    double found = gradient("ref", b, up, unused) - gradient("ref", b, down, unused);
    ck_assert_msg(fabs(found - expected) <= tolerance * fmax(fabs(expected), sqrt(size)),
                  "%s: the loss changes by %.9g, the gradient says %.9g", b->model->name, found, expected);
    free(up);
    free(down);
    free(unused);
}

static double length(const float *a, const float *b, size_t n)
{
    double sum = 0;
    for (size_t k = 0; k < n; k++)
        sum += pow((double)a[k] - (b != NULL ? (double)b[k] : 0), 2);
    return sqrt(sum);
}

/* Of its own length, or a hundredth of the longest tensor's. */
static void assert_near(const struct bed *b, const char *backend, const float *expected, double tolerance)
{
    double longest = 0;

    for (size_t i = 0; i < b->n_params; i++)
        longest = fmax(longest, length(expected + b->params[i].offset, NULL, param_floats(&b->params[i])));
    for (size_t i = 0; i < b->n_params; i++) {
        size_t at = b->params[i].offset, n = param_floats(&b->params[i]);
        double own = length(expected + at, NULL, n), error = length(b->g + at, expected + at, n);
        ck_assert_msg(error <= tolerance * fmax(own, 0.01 * longest),
                      "%s, %s, %s: error %.3g of a length of %.3g", backend, b->model->name,
                      b->params[i].name, error, own);
    }
}

/* Of every backend that this machine can run. */
static void check_backends(struct bed *b, double loss, const float *expected, double tolerance)
{
    for (size_t k = 0; tested_backend(k) != NULL; k++) {
        const char *backend = tested_backend(k);
        if (strcmp(backend, "ref") == 0)
            continue;
        double found = gradient(backend, b, b->x, b->g);
        ck_assert_msg(fabs(found - loss) <= 1e-4 * loss, "%s, %s: loss %.9g, expected %.9g", backend,
                      b->model->name, found, loss);
        assert_near(b, backend, expected, tolerance);
    }
}

START_TEST(gradients_are_right)
{
    const char *spec = is_full ? nets[_i].spec : nets[_i].quick;
    struct cnn_model model;
    struct ps_error err = {""};
    struct bed b;

    if (spec == NULL)
        return;
    ck_assert_msg(cnn_model_read(spec, &model, &err) == 0, "%s", err.text);
    bed_create(&b, &model, is_full ? 3 : 2);
    float *expected = malloc(b.n_floats * sizeof *expected);
    ck_assert_ptr_nonnull(expected);
    double loss = gradient("ref", &b, b.x, expected);
    check_backends(&b, loss, expected, nets[_i].agreement);
    if (is_full) {
        check_difference(&b, expected, nets[_i].agreement == AGREEMENT_DEEP ? DIFFERENCE_DEEP : DIFFERENCE);
        printf("%s: by finite differences, and every backend against ref\n", spec);
    }
    free(expected);
    bed_destroy(&b);
}
END_TEST

int main(int argc, char **argv)
{
    Suite *s = suite_create("nets-zoo");
    TCase *t = tcase_create("zoo");

    is_full = argc == 2 && strcmp(argv[1], "full") == 0;
    tcase_add_loop_test(t, gradients_are_right, 0, N_NETS);
    suite_add_tcase(s, t);
    return unit_run(s);
}
