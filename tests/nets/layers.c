/* layers.c: what single kinds of layers promise, on every backend. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nets/layers/layer.h"
#include "tests/nets/cases.h"

#define LAYERS(...)                                                                                          \
    (const struct cnn_layer_spec[])                                                                          \
    {                                                                                                        \
        __VA_ARGS__                                                                                          \
    }

/* Float32 against double over a few dozen operations. */
#define TOLERANCE 2e-6

/* A net that shows the values before its last layer, which has two outputs: 0 and the value asked for. */
struct probe {
    struct cnn_layer_spec layers[4];
    struct cnn_model model;
    struct bed bed;
    struct cnn_net *net;
};

/* `spec` on images of c x h x w. */
static void probe_create(struct probe *p, const char *backend, const struct cnn_layer_spec *spec,
                         struct cnn_shape in, uint32_t batch)
{
    *p = (struct probe){.layers = {*spec,
                                   {.kind = CNN_FC, .name = "probe", .n_out = 2},
                                   {.kind = CNN_SOFTMAX_LOSS, .name = "loss"}}};
    p->model = (struct cnn_model){"probe", in.c, in.h, in.w, 2, p->layers, 3, "test"};
    bed_create(&p->bed, &p->model, batch);
    p->net = net_of(&p->model, backend, batch, 1);
}

static void probe_destroy(struct probe *p)
{
    cnn_net_destroy(p->net);
    bed_destroy(&p->bed);
}

static const struct cnn_param *param_named(const struct bed *b, const char *name)
{
    for (size_t i = 0; i < b->n_params; i++)
        if (strcmp(b->params[i].name, name) == 0)
            return &b->params[i];
    ck_abort_msg("no tensor is named %s", name);
}

/* Value `at` of [C*H*W] of the first image, scored or trained: with label 0 the loss is log(1 + e^value). */
static double probe_value(struct probe *p, size_t at, bool trains)
{
    const struct cnn_param *weight = param_named(&p->bed, "probe.weight");
    struct cnn_score score;
    size_t n = weight->shape[1];

    memset(p->bed.x + weight->offset, 0, (2 * n + 2) * sizeof(float)); /* and its biases */
    p->bed.x[weight->offset + n + at] = 1;
    if (!trains) {
        uint16_t label = 0;
        ck_assert_int_eq(cnn_net_score(p->net, p->bed.x, p->bed.images, &label, 1, &score), 0);
        return log(expm1(score.loss));
    }
    ck_assert_uint_eq(p->bed.batch, 1);
    p->bed.labels[0] = 0;
    cnn_net_seed(p->net, 1, 1);
    ck_assert_int_eq(cnn_net_gradient(p->net, p->bed.x, p->bed.images, p->bed.labels, p->bed.g, &score), 0);
    return log(expm1(score.loss));
}

/* Krizhevsky's equation as Caffe scales it. */
static void check_lrn(const char *backend, uint32_t channels, uint32_t size, double beta)
{
    const struct cnn_layer_spec lrn = {
        .kind = CNN_LRN, .name = "n", .size = size, .alpha = 0.7f, .beta = (float)beta, .k = 1.5f};
    struct probe p;

    probe_create(&p, backend, &lrn, (struct cnn_shape){channels, 1, 2}, 1);
    for (uint32_t c = 0; c < channels; c++) {
        double sum = 0, x = (double)p.bed.images[2 * c + 1];
        for (uint32_t j = 0; j < channels; j++)
            if (abs((int)j - (int)c) <= (int)size / 2)
                sum += pow((double)p.bed.images[2 * j + 1], 2);
        double expected = x * pow(1.5 + (double)0.7f / size * sum, -(double)(float)beta);
        ck_assert_double_eq_tol(probe_value(&p, 2 * c + 1, false), expected, TOLERANCE);
    }
    probe_destroy(&p);
}

START_TEST(lrn_is_its_equation)
{
    check_lrn(tested_backend((size_t)_i), 20, 5, 0.75);
    check_lrn(tested_backend((size_t)_i), 3, 5, 0.75);
    check_lrn(tested_backend((size_t)_i), 17, 3, 0.4);
}
END_TEST

/* Caffe's: 3 x 3 windows, stride 2, pad 1 on 4 x 4 make 3 x 3 outputs; each divides by what its window covers
 * of the input and the pad on all sides, which ends after 5. */
START_TEST(avgpool_counts_its_padding)
{
    static const double covered[] = {3, 3, 2}; /* rows or columns of the windows at -1, 1 and 3 */
    const struct cnn_layer_spec avg = {.kind = CNN_AVGPOOL, .name = "p", .kernel = 3, .stride = 2, .pad = 1};
    struct probe p;

    probe_create(&p, tested_backend((size_t)_i), &avg, (struct cnn_shape){2, 4, 4}, 1);
    for (size_t at = 0; at < 18; at++) {
        int top = (int)(at % 9 / 3) * 2 - 1, left = (int)(at % 3) * 2 - 1;
        double sum = 0;
        for (int y = top; y < top + 3; y++)
            for (int x = left; x < left + 3; x++)
                if (y >= 0 && y < 4 && x >= 0 && x < 4)
                    sum += (double)p.bed.images[at / 9 * 16 + (size_t)(4 * y + x)];
        double expected = sum / (covered[at % 9 / 3] * covered[at % 3]);
        ck_assert_double_eq_tol(probe_value(&p, at, false), expected, TOLERANCE);
    }
    probe_destroy(&p);
}
END_TEST

/* Mean and biased variance of a channel over batch and places. */
static void moments(const struct bed *b, uint32_t c, size_t places, double *mean, double *variance)
{
    double n = (double)b->batch * (double)places;

    *mean = *variance = 0;
    for (uint32_t i = 0; i < b->batch; i++)
        for (size_t k = 0; k < places; k++)
            *mean += (double)b->images[i * b->n_pixels + c * places + k] / n;
    for (uint32_t i = 0; i < b->batch; i++)
        for (size_t k = 0; k < places; k++)
            *variance += pow((double)b->images[i * b->n_pixels + c * places + k] - *mean, 2) / n;
}

START_TEST(batchnorm_keeps_running_statistics)
{
    const struct cnn_layer_spec norm = {.kind = CNN_BATCHNORM, .name = "n", .momentum = 0.25f};
    const uint32_t channels = 18, batch = 4;
    const size_t places = 6, n = batch * places;
    struct probe p;
    struct cnn_score score;
    double mean, variance;

    probe_create(&p, tested_backend((size_t)_i), &norm, (struct cnn_shape){channels, 2, 3}, batch);
    struct bed *b = &p.bed;
    const struct cnn_param *running_mean = param_named(b, "n.running_mean");
    const struct cnn_param *running_variance = param_named(b, "n.running_variance");
    ck_assert(running_mean->role == CNN_BUFFER && running_variance->role == CNN_BUFFER);
    float *before = malloc(b->n_floats * sizeof *before);
    memcpy(before, b->x, b->n_floats * sizeof *before);

    cnn_net_update_buffers(p.net, b->x); /* nothing was seen yet */
    ck_assert_mem_eq(b->x, before, b->n_floats * sizeof *before);
    ck_assert_int_eq(cnn_net_gradient(p.net, b->x, b->images, b->labels, b->g, &score), 0);
    ck_assert_mem_eq(b->x, before, b->n_floats * sizeof *before);
    ck_assert_int_eq(cnn_net_score(p.net, b->x, b->images, b->labels, 1, &score), 0);
    cnn_net_update_buffers(p.net, b->x);

    for (uint32_t c = 0; c < channels; c++) {
        size_t m = running_mean->offset + c, v = running_variance->offset + c;
        moments(b, c, places, &mean, &variance);
        ck_assert_double_eq_tol((double)b->x[m], 0.75 * (double)before[m] + 0.25 * mean, TOLERANCE);
        ck_assert_double_eq_tol((double)b->x[v],
                                0.75 * (double)before[v] + 0.25 * variance * (double)n / (double)(n - 1),
                                TOLERANCE);
        before[m] = b->x[m];
        before[v] = b->x[v];
    }
    ck_assert_mem_eq(b->x, before, b->n_floats * sizeof *before); /* and nothing else */
    free(before);
    probe_destroy(&p);
}
END_TEST

START_TEST(batchnorm_scores_by_running_statistics)
{
    const struct cnn_layer_spec norm = {.kind = CNN_BATCHNORM, .name = "n", .epsilon = 0.01f};
    struct probe p;

    probe_create(&p, tested_backend((size_t)_i), &norm, (struct cnn_shape){3, 2, 2}, 1);
    const float *x = p.bed.x; /* scale, shift, mean and variance, 3 of each */
    for (size_t at = 0; at < 12; at++) {
        size_t c = at / 4;
        double expected = (double)x[c] * ((double)p.bed.images[at] - (double)x[6 + c]) /
                              sqrt((double)x[9 + c] + (double)0.01f) +
                          (double)x[3 + c];
        ck_assert_double_eq_tol(probe_value(&p, at, false), expected, 4 * TOLERANCE);
    }
    probe_destroy(&p);
}
END_TEST

START_TEST(concat_keeps_the_order_of_its_inputs)
{
    const struct cnn_layer_spec concat = {.kind = CNN_CONCAT, .name = "c", .inputs = {"images", "images"}};
    struct probe p;

    probe_create(&p, tested_backend((size_t)_i), &concat, (struct cnn_shape){3, 2, 2}, 1);
    for (size_t at = 0; at < 24; at++)
        ck_assert_double_eq_tol(probe_value(&p, at, false), (double)p.bed.images[at % 12], TOLERANCE);
    probe_destroy(&p);
}
END_TEST

/* One image of channels x 3 x 3 and dropout alone: what is not 0 is the image's value over 1 - rate, and
 * which are is what cnn_dropout_mask says. */
START_TEST(dropout_is_inverted_and_off_when_scoring)
{
    const struct cnn_layer_spec drop = {.kind = CNN_DROPOUT, .name = "d", .rate = 0.25f};
    const struct cnn_draw draw = {1, 1};
    struct cnn_layer layer = {.spec = &drop};
    uint8_t keep[27];
    struct probe p;

    probe_create(&p, tested_backend((size_t)_i), &drop, (struct cnn_shape){3, 3, 3}, 1);
    cnn_dropout_mask(&layer, &draw, 0, 27, keep);
    for (size_t at = 0; at < 27; at++) {
        double pixel = (double)p.bed.images[at];
        ck_assert_double_eq_tol(probe_value(&p, at, true), keep[at] ? pixel / 0.75 : 0, TOLERANCE);
        ck_assert_double_eq_tol(probe_value(&p, at, false), pixel, TOLERANCE);
    }
    probe_destroy(&p);
}
END_TEST

/* Of a net whose batch is a part of a larger one, from its fourth image on: the elements before it are not a
 * multiple of four, as a generator's block has. */
START_TEST(a_part_of_a_batch_drops_what_the_whole_drops)
{
    static const struct cnn_shape shapes[] = {{3, 3, 3}, {5, 1, 1}, {1, 3, 3}};
    const struct cnn_layer_spec drop = {.kind = CNN_DROPOUT, .name = "d", .rate = 0.5f};
    const struct cnn_draw draw = {.seed = 1, .step = 1, .first_image = 3};
    const char *backend = tested_backend((size_t)_i);
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        const size_t n = (size_t)shapes[s].c * shapes[s].h * shapes[s].w;
        struct cnn_layer layer = {.spec = &drop, .in = shapes[s]};
        struct ps_error err = {""};
        uint8_t keep[27];
        struct probe p;
        probe_create(&p, backend, &drop, shapes[s], 1);
        cnn_net_destroy(p.net);
        struct cnn_net_options opt = {
            .model = &p.model, .backend = backend, .batch = 1, .threads = 1, .first_image = draw.first_image};
        ck_assert_msg(cnn_net_create(&opt, &p.net, &err) == 0, "%s", err.text);
        cnn_dropout_mask(&layer, &draw, 0, n, keep);
        for (size_t at = 0; at < n; at++)
            ck_assert_double_eq_tol(probe_value(&p, at, true), keep[at] ? 2 * (double)p.bed.images[at] : 0,
                                    TOLERANCE);
        probe_destroy(&p);
    }
}
END_TEST

/* Each gradient draws anew, and the draws repeat with seed and step. */
START_TEST(dropout_can_be_repeated)
{
    const struct cnn_layer_spec drop = {.kind = CNN_DROPOUT, .name = "d", .rate = 0.5f};
    struct cnn_score score;
    struct probe p;

    probe_create(&p, tested_backend((size_t)_i), &drop, (struct cnn_shape){3, 8, 8}, 4);
    struct bed *b = &p.bed;
    float *first = malloc(b->n_floats * sizeof *first);
    cnn_net_seed(p.net, 5, 0);
    ck_assert_int_eq(cnn_net_gradient(p.net, b->x, b->images, b->labels, first, &score), 0);
    ck_assert_int_eq(cnn_net_gradient(p.net, b->x, b->images, b->labels, b->g, &score), 0);
    ck_assert_mem_ne(b->g, first, b->n_floats * sizeof *first);
    cnn_net_seed(p.net, 5, 0);
    ck_assert_int_eq(cnn_net_gradient(p.net, b->x, b->images, b->labels, b->g, &score), 0);
    ck_assert_mem_eq(b->g, first, b->n_floats * sizeof *first);
    cnn_net_seed(p.net, 6, 0);
    ck_assert_int_eq(cnn_net_gradient(p.net, b->x, b->images, b->labels, b->g, &score), 0);
    ck_assert_mem_ne(b->g, first, b->n_floats * sizeof *first);
    free(first);
    probe_destroy(&p);
}
END_TEST

#define N_DRAWS 100000

/* Part of two masks' elements that agree. */
static double agreement(const uint8_t *a, const uint8_t *b)
{
    size_t n = 0;
    for (size_t i = 0; i < N_DRAWS; i++)
        n += a[i] == b[i];
    return (double)n / N_DRAWS;
}

START_TEST(dropout_masks_are_independent)
{
    static uint8_t mask[N_DRAWS], other[N_DRAWS], part[1000];
    const struct cnn_layer_spec drop = {.kind = CNN_DROPOUT, .name = "d", .rate = 0.3f};
    struct cnn_layer layer = {.spec = &drop, .index = 2}, next = {.spec = &drop, .index = 3};
    const struct cnn_draw others[] = {
        {8, 4}, {7, 5}, {7, 4 + (UINT64_C(1) << 32)}, {7 + (UINT64_C(1) << 32), 4}};
    const struct cnn_draw draw = {7, 4};
    double kept = 0, alike = 0.3 * 0.3 + 0.7 * 0.7; /* of independent masks */
    /* four standard errors of 100,000 draws */
    double kept_error = 4 * sqrt(0.3 * 0.7 / N_DRAWS), alike_error = 4 * sqrt(alike * (1 - alike) / N_DRAWS);

    cnn_dropout_mask(&layer, &draw, 0, N_DRAWS, mask);
    for (size_t i = 0; i < N_DRAWS; i++)
        kept += mask[i];
    ck_assert_double_eq_tol(kept / N_DRAWS, 0.7, kept_error);
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) {
        cnn_dropout_mask(&layer, &others[i], 0, N_DRAWS, other);
        ck_assert_double_eq_tol(agreement(mask, other), alike, alike_error);
    }
    cnn_dropout_mask(&next, &draw, 0, N_DRAWS, other);
    ck_assert_double_eq_tol(agreement(mask, other), alike, alike_error);
    for (size_t from = 5; from < 9; from++) { /* a part is a part of the whole, wherever a block starts */
        cnn_dropout_mask(&layer, &draw, from, sizeof part, part);
        ck_assert_mem_eq(part, mask + from, sizeof part);
    }
}
END_TEST

/* A convolution in groups is one whose weights are 0 between the groups. */
START_TEST(groups_are_convolutions_side_by_side)
{
    const struct cnn_layer_spec *grouped_layers =
        LAYERS({.kind = CNN_CONV, .name = "c", .n_out = 8, .kernel = 2, .stride = 1, .groups = 2},
               {.kind = CNN_FC, .name = "f", .n_out = 3}, {.kind = CNN_SOFTMAX_LOSS, .name = "loss"});
    const struct cnn_layer_spec *dense_layers =
        LAYERS({.kind = CNN_CONV, .name = "c", .n_out = 8, .kernel = 2, .stride = 1},
               {.kind = CNN_FC, .name = "f", .n_out = 3}, {.kind = CNN_SOFTMAX_LOSS, .name = "loss"});
    const struct cnn_model grouped = {"grouped", 6, 3, 3, 3, grouped_layers, 3, "test"};
    const struct cnn_model dense = {"dense", 6, 3, 3, 3, dense_layers, 3, "test"};
    const size_t taps = 4, some = 3 * taps, all = 6 * taps; /* weights of an output channel */
    struct cnn_score score, expected;
    struct bed g, d;

    bed_create(&g, &grouped, 2);
    bed_create(&d, &dense, 2);
    memset(d.x, 0, 8 * all * sizeof *d.x);
    for (size_t o = 0; o < 8; o++)
        memcpy(d.x + o * all + o / 4 * some, g.x + o * some, some * sizeof *d.x);
    memcpy(d.x + 8 * all, g.x + 8 * some, (g.n_floats - 8 * some) * sizeof *d.x);
    struct cnn_net *a = net_of(&grouped, tested_backend((size_t)_i), 2, 1), *b = net_of(&dense, "ref", 2, 1);
    ck_assert_int_eq(cnn_net_gradient(a, g.x, g.images, g.labels, g.g, &score), 0);
    ck_assert_int_eq(cnn_net_gradient(b, d.x, g.images, g.labels, d.g, &expected), 0);
    ck_assert_double_eq_tol(score.loss, expected.loss, TOLERANCE);
    for (size_t o = 0; o < 8; o++)
        for (size_t k = 0; k < some; k++)
            ck_assert_double_eq_tol((double)g.g[o * some + k], (double)d.g[o * all + o / 4 * some + k],
                                    TOLERANCE);
    cnn_net_destroy(a);
    cnn_net_destroy(b);
    bed_destroy(&g);
    bed_destroy(&d);
}
END_TEST

/* Plain gradient descent on a few images: a residual net with batch normalisation learns them, and scores
 * them by the running statistics as well as it fits them by the batch's. */
START_TEST(a_residual_net_learns)
{
    const struct cnn_model *const *m = cases;
    struct cnn_score score;
    struct bed b;

    while (strcmp((*m)->name, "small_residual") != 0)
        m++;
    bed_create(&b, *m, 8);
    struct cnn_net *net = net_of(*m, tested_backend((size_t)_i), 8, 1);
    for (int step = 0; step < 300; step++) {
        ck_assert_int_eq(cnn_net_gradient(net, b.x, b.images, b.labels, b.g, &score), 0);
        cnn_net_update_buffers(net, b.x);
        for (size_t i = 0; i < b.n_floats; i++)
            b.x[i] -= 0.1f * b.g[i];
    }
    ck_assert_double_lt(score.loss, 0.1);
    ck_assert_uint_eq(score.n_correct, 8);
    ck_assert_int_eq(cnn_net_score(net, b.x, b.images, b.labels, 8, &score), 0);
    ck_assert_double_lt(score.loss, 0.2);
    ck_assert_uint_eq(score.n_correct, 8);
    cnn_net_destroy(net);
    bed_destroy(&b);
}
END_TEST

TCase *layers_case(int n_backends)
{
    TCase *t = tcase_create("single kinds of layers");

    tcase_add_loop_test(t, lrn_is_its_equation, 0, n_backends);
    tcase_add_loop_test(t, avgpool_counts_its_padding, 0, n_backends);
    tcase_add_loop_test(t, batchnorm_keeps_running_statistics, 0, n_backends);
    tcase_add_loop_test(t, batchnorm_scores_by_running_statistics, 0, n_backends);
    tcase_add_loop_test(t, concat_keeps_the_order_of_its_inputs, 0, n_backends);
    tcase_add_loop_test(t, dropout_is_inverted_and_off_when_scoring, 0, n_backends);
    tcase_add_loop_test(t, a_part_of_a_batch_drops_what_the_whole_drops, 0, n_backends);
    tcase_add_loop_test(t, dropout_can_be_repeated, 0, n_backends);
    tcase_add_test(t, dropout_masks_are_independent);
    tcase_add_loop_test(t, groups_are_convolutions_side_by_side, 0, n_backends);
    tcase_add_loop_test(t, a_residual_net_learns, 0, n_backends);
    return t;
}
