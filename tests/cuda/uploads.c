/* uploads.c: batches that are announced and uploaded beside the step before theirs, on the backend of
 * TEST_BACKEND: the gradients of batches that were not announced, whatever the order in which the device
 * works (STANDIN_ORDER). In the lazy order an upload runs when its own step needs it: that shows that no
 * other step waits for it. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nets/cases.h"
#include "tests/support/unit.h"

enum { BATCH = 2, SIDE = 12, STORED = 14, PIXELS = 3 * STORED * STORED, N_BATCHES = 8 };

/* A convolution, so that a step has work before and after the loss. */
static const struct cnn_layer_spec layers[] = {
    {.kind = CNN_CONV, .name = "conv", .n_out = 4, .kernel = 3, .stride = 1, .pad = 1},
    {.kind = CNN_RELU, .name = "relu"},
    {.kind = CNN_FC, .name = "fc", .n_out = CNN_CLASSES},
    {.kind = CNN_SOFTMAX_LOSS, .name = "loss"},
};
static const struct cnn_model model = {"small", 3, SIDE, SIDE, 10, layers, 4, "a test"};

static struct bed b;
static struct cnn_net *net;
static float value_of[3][256];
static float *expected[N_BATCHES]; /* the gradients of the batches */

/* Memory of a batch, as a loader lends it. */
struct slot {
    uint8_t *images;
    uint16_t *labels;
    struct cnn_cut *cuts;
};

static void slot_create(struct slot *s)
{
    s->images = cnn_net_alloc(net, BATCH * PIXELS);
    s->labels = cnn_net_alloc(net, BATCH * sizeof *s->labels);
    s->cuts = cnn_net_alloc(net, BATCH * sizeof *s->cuts);
    ck_assert(s->images != NULL && s->labels != NULL && s->cuts != NULL);
}

static void slot_destroy(struct slot *s)
{
    cnn_net_free(net, s->images);
    cnn_net_free(net, s->labels);
    cnn_net_free(net, s->cuts);
}

static void fill(const struct slot *s, uint32_t number)
{
    for (uint32_t k = 0; k < BATCH * PIXELS; k++)
        s->images[k] = (uint8_t)((number * 48271 + k) * 2654435761u >> 11);
    for (uint32_t i = 0; i < BATCH; i++) {
        s->labels[i] = (uint16_t)((number + 3 * i) % 10);
        s->cuts[i] =
            (struct cnn_cut){(int32_t)(number % 4) - 1, (int32_t)(i + number % 3) - 2, (number + i) % 2};
    }
}

static struct cnn_batch batch_in(const struct slot *s)
{
    return (struct cnn_batch){.images = s->images,
                              .pixels = CNN_PIXELS_BYTE,
                              .value_of = (const float(*)[256])value_of,
                              .labels = s->labels,
                              .n = BATCH,
                              .cuts = s->cuts,
                              .stored_height = STORED,
                              .stored_width = STORED};
}

static void gradient(const struct slot *s)
{
    struct cnn_score score;
    struct cnn_batch batch = batch_in(s);
    ck_assert_msg(cnn_net_gradient_of(net, b.x, &batch, b.g, NULL, &score) == 0, "%s", cnn_net_error(net));
}

static void announce(const struct slot *s)
{
    struct cnn_batch batch = batch_in(s);
    ck_assert_int_eq(cnn_net_announce(net, &batch), 0);
}

static bool is_gradient_of(uint32_t number)
{
    return memcmp(b.g, expected[number], b.n_floats * sizeof *b.g) == 0;
}

/* Each batch once, from ordinary memory. */
static void set_up(void)
{
    static uint8_t images[BATCH * PIXELS];
    static uint16_t labels[BATCH];
    static struct cnn_cut cuts[BATCH];
    const struct slot plain = {images, labels, cuts};

    for (int c = 0; c < 3; c++)
        for (int v = 0; v < 256; v++)
            value_of[c][v] = (float)v / (100.0f + (float)c) - 1.0f;
    bed_create(&b, &model, BATCH);
    net = net_of(&model, tested_backend(0), BATCH, 1);
    for (uint32_t k = 0; k < N_BATCHES; k++) {
        fill(&plain, k);
        gradient(&plain);
        expected[k] = malloc(b.n_floats * sizeof *b.g);
        memcpy(expected[k], b.g, b.n_floats * sizeof *b.g);
    }
}

static void tear_down(void)
{
    cnn_net_destroy(net);
    for (uint32_t k = 0; k < N_BATCHES; k++)
        free(expected[k]);
    bed_destroy(&b);
}

/* Two slots: each is filled anew as soon as its gradient has returned. */
START_TEST(batches_that_are_announced_make_the_same_bits)
{
    struct slot slots[2];

    ck_assert(!is_gradient_of(0)); /* but of the last batch */
    slot_create(&slots[0]);
    slot_create(&slots[1]);
    fill(&slots[0], 0);
    for (uint32_t k = 0; k < N_BATCHES; k++) {
        if (k + 1 < N_BATCHES) {
            fill(&slots[(k + 1) % 2], k + 1);
            announce(&slots[(k + 1) % 2]);
        }
        gradient(&slots[k % 2]);
        ck_assert_msg(is_gradient_of(k), "batch %u has another gradient", k);
        memset(slots[k % 2].images, 0x77, BATCH * PIXELS);
        memset(slots[k % 2].cuts, 0, BATCH * sizeof *slots[0].cuts);
    }
    slot_destroy(&slots[0]);
    slot_destroy(&slots[1]);
}
END_TEST

/* What a slot has after the step before its own is what its own step computes with: that step did not wait
 * for the upload. */
START_TEST(a_step_does_not_wait_for_the_next_upload)
{
    const char *order = getenv("STANDIN_ORDER");
    struct slot first, second;

    if (order == NULL || strcmp(order, "lazy") != 0) /* without it, a GPU may be as fast as it likes */
        return;
    slot_create(&first);
    slot_create(&second);
    fill(&first, 0);
    fill(&second, 1);
    announce(&second);
    gradient(&first);
    ck_assert(is_gradient_of(0));
    fill(&second, 2);
    gradient(&second);
    ck_assert(is_gradient_of(2));
    slot_destroy(&first);
    slot_destroy(&second);
}
END_TEST

/* Another batch, a score, or nothing at all comes before the one that was announced. */
START_TEST(a_batch_may_be_announced_in_vain)
{
    struct slot slots[3];
    struct cnn_score score, before;

    for (uint32_t k = 0; k < 3; k++) {
        slot_create(&slots[k]);
        fill(&slots[k], k);
    }
    struct cnn_batch third = batch_in(&slots[2]);
    ck_assert_int_eq(cnn_net_score_of(net, b.x, &third, &before), 0);
    announce(&slots[1]);
    gradient(&slots[0]);
    gradient(&slots[2]);
    ck_assert(is_gradient_of(2));
    announce(&slots[1]);
    gradient(&slots[0]);
    ck_assert_int_eq(cnn_net_score_of(net, b.x, &third, &score), 0);
    ck_assert(score.loss == before.loss);
    gradient(&slots[1]);
    ck_assert(is_gradient_of(1));
    announce(&slots[1]);
    announce(&slots[2]);
    gradient(&slots[0]);
    ck_assert(is_gradient_of(0));
    gradient(&slots[2]);
    ck_assert(is_gradient_of(2));
    for (uint32_t k = 0; k < 3; k++)
        slot_destroy(&slots[k]);
}
END_TEST

/* Ordinary memory is uploaded in its own step. */
START_TEST(memory_of_others_may_be_announced)
{
    static uint8_t images[BATCH * PIXELS];
    static uint16_t labels[BATCH];
    static struct cnn_cut cuts[BATCH];
    const struct slot plain = {images, labels, cuts};
    struct slot first;

    slot_create(&first);
    fill(&first, 0);
    fill(&plain, 1);
    announce(&plain);
    gradient(&first);
    ck_assert(is_gradient_of(0));
    gradient(&plain);
    ck_assert(is_gradient_of(1));
    slot_destroy(&first);
}
END_TEST

/* After an announcement of nothing, memory that was announced may go. */
START_TEST(a_slot_is_given_back_after_its_upload)
{
    struct slot first, second;

    slot_create(&first);
    slot_create(&second);
    fill(&first, 0);
    fill(&second, 1);
    announce(&second);
    gradient(&first);
    ck_assert_int_eq(cnn_net_announce(net, NULL), 0);
    slot_destroy(&second);
    announce(&first);
    gradient(&first);
    gradient(&first); /* which waits for all that was uploaded before */
    slot_destroy(&first);
}
END_TEST

START_TEST(what_cannot_be_announced_is_refused)
{
    struct slot first;

    slot_create(&first);
    fill(&first, 0);
    struct cnn_batch batch = batch_in(&first);
    batch.n = BATCH - 1;
    ck_assert_int_eq(cnn_net_announce(net, &batch), -EINVAL);
    assert_says(cnn_net_error(net), "1 images announced; the net's batch is 2");
    batch.n = BATCH;
    batch.stored_height = 10 * SIDE;
    ck_assert_int_eq(cnn_net_announce(net, &batch), -EINVAL);
    assert_says(cnn_net_error(net), "takes none so large for a net of 12 x 12");
    slot_destroy(&first);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cuda-uploads");
    TCase *steps = tcase_create("steps"), *back = tcase_create("giving back");

    tcase_add_checked_fixture(steps, set_up, tear_down);
    tcase_add_checked_fixture(back, set_up, tear_down);
    tcase_add_test(steps, batches_that_are_announced_make_the_same_bits);
    tcase_add_test(steps, a_step_does_not_wait_for_the_next_upload);
    tcase_add_test(steps, a_batch_may_be_announced_in_vain);
    tcase_add_test(steps, memory_of_others_may_be_announced);
    tcase_add_test(steps, what_cannot_be_announced_is_refused);
    tcase_add_test(back, a_slot_is_given_back_after_its_upload);
    suite_add_tcase(s, steps);
    suite_add_tcase(s, back);
    return unit_run(s);
}
