/* backends.c: one suite for the table of backends, run over every row of it. */
#include <check.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nets/cases.h"
#include "tests/nets/halves.h"
#include "tests/support/unit.h"

/* ref computes in double, so its loss is good for differences over a step this small: truncation is then
 * 1e-10, and hardly any max-pool window or ReLU changes sides within it. */
#define STEP 0x1p-17f

/* Of dropout. */
#define SEED        9
#define STEP_NUMBER 5

/* Against finite differences and ref. ref only rounds g to float: 1e-6 of a tensor's largest gradient. A
 * float32 backend sums up to 18,432 products (conv1 of LeNet: 32 images of 576 places), in blocks, each sum
 * rounded: about 1e-6 again, and 1e-4 leaves room for other orders of summation. */
#define TOLERANCE_DOUBLE 1e-6
#define TOLERANCE_FLOAT  1e-4

static double tolerance_of(const char *backend)
{
    return strcmp(backend, "ref") == 0 ? TOLERANCE_DOUBLE : TOLERANCE_FLOAT;
}

/* The loss in training, always with the same draws of dropout. */
static double loss_at(struct cnn_net *net, const struct bed *b)
{
    struct cnn_score score;

    if (scores_as_it_trains(b->model)) { /* cheaper */
        ck_assert_int_eq(cnn_net_score(net, b->x, b->images, b->labels, b->batch, &score), 0);
        return score.loss;
    }
    float *g = malloc(b->n_floats * sizeof *g);
    cnn_net_seed(net, SEED, STEP_NUMBER);
    ck_assert_int_eq(cnn_net_gradient(net, b->x, b->images, b->labels, g, &score), 0);
    free(g);
    return score.loss;
}

/* d loss / d x[at] by a central difference. */
static double difference(struct cnn_net *ref, struct bed *b, size_t at)
{
    float x = b->x[at];
    float up = x + STEP,
          down = x - STEP; /* as floats: what is divided by is the step that was really taken */

    b->x[at] = up;
    double above = loss_at(ref, b);
    b->x[at] = down;
    double below = loss_at(ref, b);
    b->x[at] = x;
    return (above - below) / ((double)up - (double)down);
}

/* A backend's gradient of the bed. */
struct claim {
    const char *backend;
    float *g;
    double scale; /* of the tensor that is looked at */
};

static struct claim claim_of(const struct bed *b, const char *backend)
{
    struct claim claim = {backend, malloc(b->n_floats * sizeof *claim.g), 0};
    struct cnn_score score;

    ck_assert_ptr_nonnull(claim.g);
    struct cnn_net *net = net_of(b->model, backend, b->batch, 1);
    cnn_net_seed(net, SEED, STEP_NUMBER);
    ck_assert_int_eq(cnn_net_gradient(net, b->x, b->images, b->labels, claim.g, &score), 0);
    cnn_net_destroy(net);
    return claim;
}

static void check_claim(const struct claim *claim, const struct bed *b, const struct cnn_param *p, size_t k,
                        double fd)
{
    double g = (double)claim->g[p->offset + k];

    ck_assert_msg(fabs(fd - g) <= tolerance_of(claim->backend) * claim->scale,
                  "%s, %s, %s[%zu]: gradient %.9g, difference %.9g; the tensor's scale is %.3g",
                  claim->backend, b->model->name, p->name, k, g, fd, claim->scale);
}

enum { MAX_BACKENDS = 8 };

/* Up to `most` floats of each tensor, spread over it. Every difference is taken once, for all backends. */
static void check_differences(const struct cnn_model *model, size_t most)
{
    struct claim claims[MAX_BACKENDS];
    size_t n_claims = 0;
    struct bed b;

    bed_create(&b, model, 2);
    for (const char *name; (name = tested_backend(n_claims)) != NULL; n_claims++) {
        ck_assert_uint_lt(n_claims, MAX_BACKENDS);
        claims[n_claims] = claim_of(&b, name);
    }
    struct cnn_net *ref = net_of(model, "ref", 2, 1);
    cnn_net_seed(ref, SEED, STEP_NUMBER);
    for (size_t i = 0; i < b.n_params; i++) {
        const struct cnn_param *p = &b.params[i];
        size_t n = param_floats(p), every = n / most + 1;
        for (size_t c = 0; c < n_claims; c++)
            claims[c].scale = scale_of(&b, claims[c].g, p);
        for (size_t k = 0; k < n && p->role == CNN_PARAM; k += every) {
            double fd = difference(ref, &b, p->offset + k);
            for (size_t c = 0; c < n_claims; c++)
                check_claim(&claims[c], &b, p, k, fd);
        }
    }
    for (size_t c = 0; c < n_claims; c++)
        free(claims[c].g);
    cnn_net_destroy(ref);
    bed_destroy(&b);
}

START_TEST(gradients_are_finite_differences)
{
    for (const struct cnn_model *const *m = cases; *m != NULL; m++)
        check_differences(*m, cnn_model_n_floats(*m) > 100000 ? 5 : 40);
}
END_TEST

/* The softmax of each image: its parts sum to 1, the largest is the class, and what is left of the label's is
 * the loss. */
static void check_predictions(struct cnn_net *net, const struct bed *b, uint32_t n)
{
    uint32_t classes = b->model->classes, n_correct = 0;
    uint16_t *predicted = malloc(n * sizeof *predicted);
    float *p = malloc((size_t)n * classes * sizeof *p);
    const struct cnn_batch batch = {.images = b->images, .labels = b->labels, .n = n};
    const struct cnn_predictions out = {predicted, p};
    struct cnn_score score, plain;
    double loss = 0;

    ck_assert_int_eq(cnn_net_predict(net, b->x, &batch, &out, &score), 0);
    ck_assert_int_eq(cnn_net_score_of(net, b->x, &batch, &plain), 0);
    ck_assert(score.loss == plain.loss && score.n_correct == plain.n_correct);
    for (uint32_t i = 0; i < n; i++) {
        const float *row = p + (size_t)i * classes;
        double sum = 0;
        for (uint32_t k = 0; k < classes; k++) {
            sum += (double)row[k];
            ck_assert(row[k] >= 0 && row[k] <= row[predicted[i]]);
        }
        ck_assert_double_eq_tol(sum, 1, 1e-6 * classes); /* each is rounded to a float */
        loss -= log((double)row[b->labels[i]]) / n;
        n_correct += predicted[i] == b->labels[i];
    }
    ck_assert_uint_eq(n_correct, score.n_correct);
    ck_assert_double_eq_tol(loss, score.loss, 1e-6 * (1 + score.loss));
    free(p);
    free(predicted);
}

static struct cnn_net *smooth_net(const struct cnn_model *model, const char *backend, uint32_t batch,
                                  double smoothing)
{
    struct cnn_net_options opt = {
        .model = model, .backend = backend, .batch = batch, .threads = 1, .label_smoothing = smoothing};
    struct ps_error err = {""};
    struct cnn_net *net = NULL;
    ck_assert_msg(cnn_net_create(&opt, &net, &err) == 0, "%s", err.text);
    return net;
}

/* What a gradient says of its loss, always with the same draws. */
static double smooth_loss(struct cnn_net *net, const struct bed *b, float *g)
{
    struct cnn_score score;
    cnn_net_seed(net, SEED, STEP_NUMBER);
    ck_assert_int_eq(cnn_net_gradient(net, b->x, b->images, b->labels, g, &score), 0);
    return score.loss;
}

/* Label smoothing: every backend's gradient is the differences' of ref's loss, and scores are without. */
static void check_smoothing(const struct cnn_model *model, double smoothing)
{
    struct bed b;
    bed_create(&b, model, 2);
    float *g = malloc(b.n_floats * sizeof *g), *other = malloc(b.n_floats * sizeof *g);
    struct cnn_net *ref = smooth_net(model, "ref", 2, smoothing);
    for (size_t i = 0; tested_backend(i) != NULL; i++) {
        const char *backend = tested_backend(i);
        struct cnn_net *net = smooth_net(model, backend, 2, smoothing), *plain = net_of(model, backend, 2, 1);
        struct cnn_score smooth, without;
        smooth_loss(net, &b, g);
        for (size_t k = 0; k < b.n_params; k++) {
            const struct cnn_param *p = &b.params[k];
            size_t at = p->offset + param_floats(p) / 2;
            float x = b.x[at], up = x + STEP, down = x - STEP;
            if (p->role != CNN_PARAM)
                continue;
            b.x[at] = up;
            double above = smooth_loss(ref, &b, other);
            b.x[at] = down;
            double below = smooth_loss(ref, &b, other);
            b.x[at] = x;
            double fd = (above - below) / ((double)up - (double)down);
            ck_assert_msg(fabs(fd - (double)g[at]) <= tolerance_of(backend) * scale_of(&b, g, p),
                          "%s, %s, %s: gradient %.9g, difference %.9g", backend, model->name, p->name,
                          (double)g[at], fd);
        }
        ck_assert_int_eq(cnn_net_score(net, b.x, b.images, b.labels, 2, &smooth), 0);
        ck_assert_int_eq(cnn_net_score(plain, b.x, b.images, b.labels, 2, &without), 0);
        ck_assert(smooth.loss == without.loss);
        cnn_net_destroy(net);
        cnn_net_destroy(plain);
    }
    cnn_net_destroy(ref);
    free(g);
    free(other);
    bed_destroy(&b);
}

START_TEST(smoothed_labels_have_their_gradient)
{
    for (const struct cnn_model *const *m = cases; *m != NULL; m++)
        if (cnn_model_n_floats(*m) < 100000)
            check_smoothing(*m, 0.1);
}
END_TEST

/* (1 - s) the cross-entropy of the label and s the mean of all classes'. */
START_TEST(smoothed_loss_is_its_formula)
{
    const struct cnn_model *model = cnn_model_find("linear");
    enum { BATCH = 5 };
    uint16_t predicted[BATCH];
    float p[BATCH * 10];
    struct bed b;
    struct cnn_score score;
    bed_create(&b, model, BATCH);
    float *g = malloc(b.n_floats * sizeof *g);
    struct cnn_net *net = smooth_net(model, tested_backend((size_t)_i), BATCH, 0.25);
    const struct cnn_batch batch = {.images = b.images, .labels = b.labels, .n = BATCH};
    ck_assert_int_eq(cnn_net_predict(net, b.x, &batch, &(struct cnn_predictions){predicted, p}, &score), 0);
    double wanted = 0;
    for (int i = 0; i < BATCH; i++)
        for (int k = 0; k < 10; k++)
            wanted -= ((k == b.labels[i] ? 0.75 : 0) + 0.025) * log((double)p[i * 10 + k]) / BATCH;
    ck_assert_double_eq_tol(smooth_loss(net, &b, g), wanted, 1e-6 * wanted); /* p are floats */
    cnn_net_destroy(net);
    free(g);
    bed_destroy(&b);
}
END_TEST

START_TEST(smoothing_has_its_bounds)
{
    const double bad[] = {-0.1, 1, NAN};
    for (size_t i = 0; i < ROWS(bad); i++) {
        struct cnn_net_options opt = {
            .model = cnn_model_find("linear"), .batch = 1, .threads = 1, .label_smoothing = bad[i]};
        struct ps_error err = {""};
        struct cnn_net *net = NULL;
        ck_assert_int_eq(cnn_net_create(&opt, &net, &err), -EINVAL);
        ck_assert_msg(strstr(err.text, "allowed are 0 to below 1") != NULL, "%s", err.text);
    }
}
END_TEST

static void check_agreement(const char *backend, const struct cnn_model *model, uint32_t batch,
                            uint32_t threads)
{
    struct bed b;
    struct cnn_score score, expected, alone, expected_alone;

    bed_create(&b, model, batch);
    float *g = malloc(b.n_floats * sizeof *g);
    ck_assert_ptr_nonnull(g);
    struct cnn_net *net = net_of(model, backend, batch, threads), *ref = net_of(model, "ref", batch, 1);
    cnn_net_seed(ref, SEED, STEP_NUMBER);
    ck_assert_int_eq(cnn_net_gradient(ref, b.x, b.images, b.labels, g, &expected), 0);
    for (int twice = 0; twice < 2; twice++) { /* nothing is left over from the call before */
        memset(b.g, 0xff, b.n_floats * sizeof *b.g);
        cnn_net_seed(net, SEED, STEP_NUMBER);
        ck_assert_int_eq(cnn_net_gradient(net, b.x, b.images, b.labels, b.g, &score), 0);
        assert_close(&b, backend, b.g, g, tolerance_of(backend));
        ck_assert_double_eq_tol(score.loss, expected.loss, 1e-5 * expected.loss);
        ck_assert_uint_eq(score.n_correct, expected.n_correct);
        ck_assert_uint_eq(score.n_correct_5, expected.n_correct_5);
    }
    ck_assert_int_eq(cnn_net_score(net, b.x, b.images, b.labels, batch, &alone), 0);
    ck_assert_int_eq(cnn_net_score(ref, b.x, b.images, b.labels, batch, &expected_alone), 0);
    ck_assert_double_eq_tol(alone.loss, expected_alone.loss, 1e-5 * expected_alone.loss);
    ck_assert(alone.loss == score.loss || !scores_as_it_trains(model));
    check_predictions(net, &b, batch);
    check_predictions(net, &b, 1);
    cnn_net_destroy(net);
    cnn_net_destroy(ref);
    free(g);
    bed_destroy(&b);
}

START_TEST(agrees_with_ref_on_every_case)
{
    for (const struct cnn_model *const *m = cases; *m != NULL; m++)
        for (uint32_t threads = 1; threads <= 2; threads++)
            check_agreement(tested_backend((size_t)_i), *m, 3, threads);
}
END_TEST

START_TEST(agrees_with_ref_on_wide_cases)
{
    for (const struct cnn_model *const *m = wide_cases; *m != NULL; m++)
        for (uint32_t threads = 1; threads <= 2; threads++)
            check_agreement(tested_backend((size_t)_i), *m, 3, threads);
}
END_TEST

START_TEST(agrees_with_ref_on_a_lenet_batch)
{
    check_agreement(tested_backend((size_t)_i), cnn_model_find("lenet"), 32, 1);
}
END_TEST

START_TEST(agrees_with_ref_on_whole_models)
{
    for (const struct cnn_model *const *m = whole_models; *m != NULL; m++)
        check_agreement(tested_backend((size_t)_i), *m, 2, 1);
}
END_TEST

START_TEST(scores_fewer_images_than_the_batch)
{
    for (const struct cnn_model *const *m = cases; *m != NULL; m++) {
        struct bed b;
        struct cnn_score score, expected;
        bed_create(&b, *m, 3); /* images and labels end after 3 */
        struct cnn_net *net = net_of(*m, tested_backend((size_t)_i), 8, 1), *ref = net_of(*m, "ref", 3, 1);
        ck_assert_int_eq(cnn_net_score(net, b.x, b.images, b.labels, 3, &score), 0);
        ck_assert_int_eq(cnn_net_score(ref, b.x, b.images, b.labels, 3, &expected), 0);
        ck_assert_double_eq_tol(score.loss, expected.loss, 1e-5 * expected.loss);
        ck_assert_uint_eq(score.n_correct, expected.n_correct);
        cnn_net_destroy(net);
        cnn_net_destroy(ref);
        bed_destroy(&b);
    }
}
END_TEST

/* Pixel 0 has only its first channel, pixel 3 only its second, and the convolution adds the two: the window's
 * ends are equal, and the gradient of each channel's weight says which of them was taken. */
static void check_tie(const char *backend, uint32_t n_out)
{
    const struct cnn_layer_spec layers[] = {
        {.kind = CNN_CONV, .name = "a", .n_out = n_out, .kernel = 1, .stride = 1},
        {.kind = CNN_MAXPOOL, .name = "p", .kernel = 2, .stride = 2},
        {.kind = CNN_FC, .name = "f", .n_out = 2},
        {.kind = CNN_SOFTMAX_LOSS, .name = "loss"},
    };
    const struct cnn_model model = {"tie", 2, 2, 2, 2, layers, 4, "test"};
    const float images[] = {1, 0, 0, 0, 0, 0, 0, 1};
    const uint16_t label = 1;
    struct bed b;
    struct cnn_score score;

    bed_create(&b, &model, 1);
    for (uint32_t k = 0; k < 2 * n_out; k++)
        b.x[k] = 1;
    struct cnn_net *net = net_of(&model, backend, 1, 1);
    ck_assert_int_eq(cnn_net_gradient(net, b.x, images, &label, b.g, &score), 0);
    for (uint32_t c = 0; c < n_out; c++) {
        ck_assert_msg(b.g[2 * c] != 0, "%s, %u channels: the first of equals gets no gradient", backend,
                      n_out);
        ck_assert_msg(b.g[2 * c + 1] == 0, "%s, %u channels: a later one of equals gets gradient", backend,
                      n_out);
    }
    cnn_net_destroy(net);
    bed_destroy(&b);
}

START_TEST(ties_go_to_the_first)
{
    check_tie(tested_backend((size_t)_i), 3);
    check_tie(tested_backend((size_t)_i), 20);
}
END_TEST

/* Wherever in its window it lies, a NaN comes out of a max-pool. */
static void check_nan(const char *backend, uint32_t n_out, int place)
{
    const struct cnn_layer_spec layers[] = {
        {.kind = CNN_CONV, .name = "a", .n_out = n_out, .kernel = 1, .stride = 1},
        {.kind = CNN_MAXPOOL, .name = "p", .kernel = 2, .stride = 2},
        {.kind = CNN_FC, .name = "f", .n_out = 2},
        {.kind = CNN_SOFTMAX_LOSS, .name = "loss"},
    };
    const struct cnn_model model = {"nan", 1, 2, 2, 2, layers, 4, "test"};
    float images[4] = {1, 1, 1, 1};
    const uint16_t label = 1;
    struct cnn_score score;
    struct bed b;

    bed_create(&b, &model, 1);
    images[place] = NAN;
    struct cnn_net *net = net_of(&model, backend, 1, 1);
    ck_assert_int_eq(cnn_net_gradient(net, b.x, images, &label, b.g, &score), 0);
    ck_assert_msg(!isfinite(score.loss), "%s, %u channels, place %d: loss %g", backend, n_out, place,
                  (double)score.loss);
    cnn_net_destroy(net);
    bed_destroy(&b);
}

START_TEST(a_nan_passes_through_a_max_pool)
{
    for (int place = 0; place < 4; place++) {
        check_nan(tested_backend((size_t)_i), 3, place);
        check_nan(tested_backend((size_t)_i), 20, place);
    }
}
END_TEST

START_TEST(huge_logits_do_not_overflow)
{
    struct bed b;
    struct cnn_score score;

    bed_create(&b, cnn_model_find("linear"), 4);
    struct cnn_net *net = net_of(b.model, tested_backend((size_t)_i), 4, 1);
    for (size_t i = 0; i < b.n_floats; i++)
        b.x[i] *= 1e5f;
    ck_assert_int_eq(cnn_net_gradient(net, b.x, b.images, b.labels, b.g, &score), 0);
    ck_assert(isfinite(score.loss) && score.loss > 100);
    for (size_t i = 0; i < b.n_floats; i++)
        ck_assert(isfinite(b.g[i]));
    cnn_net_destroy(net);
    bed_destroy(&b);
}
END_TEST

START_TEST(refuses_bad_labels_and_counts)
{
    struct bed b;
    struct cnn_score score = {-1, 77, 0};

    bed_create(&b, cnn_model_find("linear"), 4);
    struct cnn_net *net = net_of(b.model, tested_backend((size_t)_i), 4, 1);
    ck_assert_str_eq(cnn_net_error(net), "");
    b.labels[2] = 10;
    memset(b.g, 0, b.n_floats * sizeof *b.g);
    ck_assert_int_eq(cnn_net_gradient(net, b.x, b.images, b.labels, b.g, &score), -EINVAL);
    ck_assert_str_eq(cnn_net_error(net), "label 10 of image 2; model 'linear' has classes 0 to 9");
    ck_assert_int_eq(cnn_net_score(net, b.x, b.images, b.labels, 4, &score), -EINVAL);
    ck_assert_int_eq(cnn_net_score(net, b.x, b.images, b.labels, 0, &score), -EINVAL);
    ck_assert_int_eq(cnn_net_score(net, b.x, b.images, b.labels, 5, &score), -EINVAL);
    ck_assert_str_eq(cnn_net_error(net), "5 images to score; allowed are 1 to the net's batch of 4");
    ck_assert(score.loss == -1 && score.n_correct == 77 && b.g[0] == 0);
    ck_assert_int_eq(cnn_net_score(net, b.x, b.images, b.labels, 2, &score), 0);
    cnn_net_destroy(net);
    bed_destroy(&b);
}
END_TEST

/* What a listener saw of g. */
struct told {
    const float *g;
    float *copy;
    uint64_t next; /* where the last range began */
    size_t n;
};

static void hear(void *arg, uint64_t offset, uint64_t n)
{
    struct told *t = arg;

    ck_assert_uint_eq(offset + n, t->next);
    memcpy(t->copy + offset, t->g + offset, n * sizeof *t->g);
    t->next = offset;
    t->n++;
}

/* Every float of g once, from the last layer to the first, and final when it is told of. */
START_TEST(tells_of_g_part_by_part)
{
    for (const struct cnn_model *const *m = cases; *m != NULL; m++) {
        struct bed b;
        struct cnn_score score;
        bed_create(&b, *m, 3);
        const struct cnn_batch batch = {.images = b.images, .labels = b.labels, .n = 3};
        struct told told = {b.g, malloc(b.n_floats * sizeof(float)), b.n_floats, 0};
        const struct cnn_ready ready = {hear, &told};
        struct cnn_net *net = net_of(*m, tested_backend((size_t)_i), 3, 1);
        ck_assert_int_eq(cnn_net_gradient_of(net, b.x, &batch, b.g, &ready, &score), 0);
        ck_assert_uint_eq(told.next, 0);
        ck_assert_mem_eq(told.copy, b.g, b.n_floats * sizeof *b.g);
        free(told.copy);
        cnn_net_destroy(net);
        bed_destroy(&b);
    }
}
END_TEST

/* As of a point that has diverged. */
START_TEST(an_output_that_is_not_a_number_is_not_correct)
{
    struct bed b;
    struct cnn_score score;

    bed_create(&b, cnn_model_find("linear"), 8);
    for (size_t i = 0; i < b.n_floats; i++)
        b.x[i] = NAN;
    struct cnn_net *net = net_of(b.model, tested_backend((size_t)_i), 8, 1);
    ck_assert_int_eq(cnn_net_score(net, b.x, b.images, b.labels, 8, &score), 0);
    ck_assert(isnan(score.loss) && score.n_correct == 0 && score.n_correct_5 == 0);
    ck_assert_int_eq(cnn_net_gradient(net, b.x, b.images, b.labels, b.g, &score), 0);
    ck_assert(isnan(score.loss) && score.n_correct == 0 && score.n_correct_5 == 0);
    cnn_net_destroy(net);
    bed_destroy(&b);
}
END_TEST

/* All outputs are equal: the label's rank is its index, since the first of equals are larger. */
START_TEST(counts_the_top_five)
{
    struct bed b;
    struct cnn_score score;

    bed_create(&b, cnn_model_find("linear"), 8);
    memset(b.x, 0, b.n_floats * sizeof *b.x);
    for (uint16_t i = 0; i < 8; i++)
        b.labels[i] = i;
    struct cnn_net *net = net_of(b.model, tested_backend((size_t)_i), 8, 1);
    ck_assert_int_eq(cnn_net_gradient(net, b.x, b.images, b.labels, b.g, &score), 0);
    ck_assert(score.n_correct == 1 && score.n_correct_5 == 5);
    ck_assert_int_eq(cnn_net_score(net, b.x, b.images, b.labels, 6, &score), 0);
    ck_assert(score.n_correct == 1 && score.n_correct_5 == 5);
    cnn_net_destroy(net);
    bed_destroy(&b);
}
END_TEST

/* A model cut off behind its own loss scores as the whole of it does; training counts the others too. */
START_TEST(auxiliary_losses_are_left_out_of_scores)
{
    const struct cnn_model *const *whole = cases;
    struct cnn_score score, expected;
    struct bed b;

    while (strcmp((*whole)->name, "aux_losses") != 0)
        whole++;
    struct cnn_model cut = **whole;
    cut.n_layers = 7;
    bed_create(&b, *whole, 3);
    struct cnn_net *net = net_of(*whole, tested_backend((size_t)_i), 3, 1);
    struct cnn_net *main = net_of(&cut, tested_backend((size_t)_i), 3, 1);
    ck_assert_int_eq(cnn_net_score(net, b.x, b.images, b.labels, 3, &score), 0);
    ck_assert_int_eq(cnn_net_score(main, b.x, b.images, b.labels, 3, &expected), 0);
    ck_assert(score.loss == expected.loss && score.n_correct == expected.n_correct);
    ck_assert_int_eq(cnn_net_gradient(main, b.x, b.images, b.labels, b.g, &expected), 0);
    ck_assert_int_eq(cnn_net_gradient(net, b.x, b.images, b.labels, b.g, &score), 0);
    ck_assert_double_gt(score.loss, expected.loss + 0.5);
    cnn_net_destroy(net);
    cnn_net_destroy(main);
    bed_destroy(&b);
}
END_TEST

START_TEST(refuses_bad_options)
{
    const struct cnn_model *lenet = cnn_model_find("lenet");
    const char *backend = tested_backend((size_t)_i);
    struct ps_error err = {""};
    struct cnn_net *net = NULL;

    struct cnn_net_options opt = {lenet, "abacus", 64, 1};
    ck_assert_int_eq(cnn_net_create(&opt, &net, &err), -EINVAL);
    ck_assert_ptr_nonnull(strstr(err.text, "backend 'abacus' is not in this build; it has: "));
    ck_assert_ptr_nonnull(strstr(err.text, backend));
    opt = (struct cnn_net_options){lenet, backend, 0, 1};
    ck_assert_int_eq(cnn_net_create(&opt, &net, &err), -EINVAL);
    ck_assert_str_eq(err.text, "batch 0; allowed are 1 to 65536 images");
    opt = (struct cnn_net_options){lenet, backend, 1, 5000};
    ck_assert_int_eq(cnn_net_create(&opt, &net, &err), -EINVAL);
    if (strcmp(backend, "cuda") != 0) { /* which computes in every precision */
        opt = (struct cnn_net_options){.model = lenet, .backend = backend, .batch = 1, .precision = CNN_TF32};
        ck_assert_int_eq(cnn_net_create(&opt, &net, &err), -ENOTSUP);
        ck_assert_ptr_nonnull(strstr(err.text, "does not compute in tf32"));
    }
    opt = (struct cnn_net_options){NULL, backend, 1, 1};
    ck_assert_int_eq(cnn_net_create(&opt, &net, &err), -EINVAL);
    ck_assert_ptr_null(net);
    cnn_net_destroy(NULL);
}
END_TEST

START_TEST(the_default_is_the_fastest)
{
    struct cnn_net *net = net_of(cnn_model_find("linear"), NULL, 1, 0);
    ck_assert_str_eq(cnn_net_backend(net), cnn_backend_name(0));
    cnn_net_destroy(net);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("nets-backends");
    TCase *t = tcase_create("every backend"), *agreement = tcase_create("agreement with ref");
    int n = 0;

    while (tested_backend((size_t)n) != NULL)
        n++;
    tcase_add_test(t, gradients_are_finite_differences);
    int n_backends = 0;
    while (tested_backend((size_t)n_backends) != NULL)
        n_backends++;
    tcase_add_test(t, smoothed_labels_have_their_gradient);
    tcase_add_loop_test(t, smoothed_loss_is_its_formula, 0, n_backends);
    tcase_add_test(t, smoothing_has_its_bounds);
    tcase_add_loop_test(agreement, agrees_with_ref_on_every_case, 0, n);
    /* ref is the last row; what is large is not compared with itself. */
    tcase_add_loop_test(agreement, agrees_with_ref_on_wide_cases, 0, n - 1);
    tcase_add_loop_test(agreement, agrees_with_ref_on_a_lenet_batch, 0, n - 1);
    tcase_add_loop_test(t, agrees_with_ref_on_whole_models, 0, n - 1);
    tcase_add_loop_test(t, scores_fewer_images_than_the_batch, 0, n);
    tcase_add_loop_test(t, ties_go_to_the_first, 0, n);
    tcase_add_loop_test(t, a_nan_passes_through_a_max_pool, 0, n);
    tcase_add_loop_test(t, huge_logits_do_not_overflow, 0, n);
    tcase_add_loop_test(t, refuses_bad_labels_and_counts, 0, n);
    tcase_add_loop_test(t, tells_of_g_part_by_part, 0, n);
    tcase_add_loop_test(t, an_output_that_is_not_a_number_is_not_correct, 0, n);
    tcase_add_loop_test(t, counts_the_top_five, 0, n);
    tcase_add_loop_test(t, auxiliary_losses_are_left_out_of_scores, 0, n);
    tcase_add_loop_test(t, refuses_bad_options, 0, n);
    tcase_add_test(t, the_default_is_the_fastest);
    suite_add_tcase(s, t);
    suite_add_tcase(s, agreement);
    suite_add_tcase(s, batches_case(n));
    suite_add_tcase(s, layers_case(n));
    suite_add_tcase(s, halves_case(n));
    return unit_run(s);
}
