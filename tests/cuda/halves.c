/* halves.c: gradients of which the next begins before the one before has ended, with x and g in memory of the
 * device, on the backend of TEST_BACKEND: the bits of gradients that end before the next begins, whatever the
 * order in which the device works (STANDIN_ORDER). The cases that are named for a wait fail without that one
 * alone. */
#include "tests/nets/halves.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/unit.h"

static const struct {
    const char *model;
    enum cnn_precision precision;
} rows[] = {{"lenet", CNN_FLOAT32},
            {"small_lenet", CNN_FLOAT32},
            {"dropped_chain", CNN_FLOAT32},
            {"small_residual", CNN_FLOAT32},
            {"aux_losses", CNN_BF16}};
enum { LENET, SMALL, NORM = 3, N_ROWS = sizeof rows / sizeof rows[0] };

static struct bed b;
static struct cnn_net *net;
static cudaStream_t stream; /* another than the net's */
static float *pinned;

static void copy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t in)
{
    ck_assert_int_eq(cudaMemcpyAsync(to, from, bytes, kind, in), cudaSuccess);
}

static float *make(const float *from, size_t n)
{
    float *p = NULL;

    ck_assert_int_eq(cudaMalloc((void **)&p, n * sizeof *p), cudaSuccess);
    memcpy(pinned, from, n * sizeof *p);
    copy(p, pinned, n * sizeof *p, cudaMemcpyHostToDevice, stream);
    ck_assert_int_eq(cudaStreamSynchronize(stream), cudaSuccess);
    return p;
}

static void read_back(struct cnn_net *of, float *to, const float *from, size_t n)
{
    cudaStream_t in = cnn_net_stream(of);

    copy(pinned, from, n * sizeof *to, cudaMemcpyDeviceToHost, in);
    ck_assert_int_eq(cudaStreamSynchronize(in), cudaSuccess);
    memcpy(to, pinned, n * sizeof *to);
}

static void move(struct cnn_net *of, float *x, const float *g, size_t from, size_t n)
{
    copy(x + from, g + from, n * sizeof *x, cudaMemcpyDeviceToDevice, cnn_net_stream(of));
}

static void release(float *p)
{
    ck_assert_int_eq(cudaFree(p), cudaSuccess);
}

static const struct halves_place on_device = {make, read_back, move, release};

static void begin(int row)
{
    struct cnn_net_options opt = {
        .backend = tested_backend(0), .batch = HALVES_BATCH, .precision = rows[row].precision};
    struct ps_error err = {""};

    opt.model = cnn_model_find(rows[row].model);
    for (const struct cnn_model *const *m = cases; opt.model == NULL; m++)
        opt.model = strcmp((*m)->name, rows[row].model) == 0 ? *m : NULL;
    bed_create(&b, opt.model, HALVES_BATCH);
    ck_assert_msg(cnn_net_create(&opt, &net, &err) == 0, "%s", err.text);
    ck_assert_int_eq(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    ck_assert_int_eq(cudaHostAlloc((void **)&pinned, b.n_floats * sizeof *pinned, cudaHostAllocDefault),
                     cudaSuccess);
}

static void end(void)
{
    cnn_net_destroy(net);
    cudaFreeHost(pinned);
    cudaStreamDestroy(stream);
    bed_destroy(&b);
}

START_TEST(two_halves_make_the_bits_of_one_call)
{
    struct halves_course expected, found;

    begin(_i);
    for (int way = 0; way < 8; way++) {
        const struct halves_way plain = {.has_tables = way >= 4},
                                halves = {true, way % 2 == 1, way / 2 % 2 == 1, true, plain.has_tables};
        halves_train(net, &b, &halves_on_host, plain, &expected);
        halves_train(net, &b, &on_device, halves, &found);
        halves_assert_scores(&found, &expected);
        halves_assert_vectors(&b, &found, &expected);
        halves_free(&expected);
        halves_free(&found);
    }
    end();
}
END_TEST

/* Memory of a batch of lenet, from which the device reads. */
static uint8_t *images;
static uint16_t *labels;
static float tables[2][1][256];

static struct cnn_batch batch_with(int table)
{
    return (struct cnn_batch){.images = images,
                              .pixels = CNN_PIXELS_BYTE,
                              .value_of = (const float(*)[256])tables[table],
                              .labels = labels,
                              .n = HALVES_BATCH};
}

static void fill(uint32_t number)
{
    for (size_t k = 0; k < HALVES_BATCH * b.n_pixels; k++)
        images[k] = (uint8_t)((number * 48271 + k) * 2654435761u >> 11);
    for (uint32_t i = 0; i < HALVES_BATCH; i++)
        labels[i] = (uint16_t)(i + number);
}

/* g: beside a multiple of 256 bytes, so that the net computes its own, which it copies there. */
static float *x, *g[2], *host;

static void begin_lenet(void)
{
    begin(LENET);
    images = cnn_net_alloc(net, HALVES_BATCH * b.n_pixels);
    labels = cnn_net_alloc(net, HALVES_BATCH * sizeof *labels);
    host = malloc(b.n_floats * sizeof *host);
    ck_assert(images != NULL && labels != NULL && host != NULL);
    for (int v = 0; v < 256; v++) {
        tables[0][0][v] = (float)v / 100.0f - 1.0f;
        tables[1][0][v] = (float)v / 200.0f;
    }
    fill(0);
    x = make(b.x, b.n_floats);
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(cudaMalloc((void **)&g[k], (b.n_floats + 1) * sizeof *g[k]), cudaSuccess);
        g[k]++;
    }
}

static void end_lenet(void)
{
    ck_assert_int_eq(cnn_net_announce(net, NULL), 0);
    cnn_net_free(net, images);
    cnn_net_free(net, labels);
    end(); /* before its vectors go */
    free(host);
    release(x);
    release(g[0] - 1);
    release(g[1] - 1);
}

/* The gradient of a batch by itself; nothing but the net's stream is waited for. */
static float *gradient_alone(const struct cnn_batch *batch)
{
    struct cnn_score score;
    float *out = malloc(b.n_floats * sizeof *out);

    ck_assert_ptr_nonnull(out);
    ck_assert_int_eq(cnn_net_gradient_of(net, x, batch, g[0], NULL, &score), 0);
    read_back(net, out, g[0], b.n_floats);
    return out;
}

static void begin_gradient(const struct cnn_batch *batch, int in)
{
    ck_assert_msg(cnn_net_gradient_begin(net, x, batch, g[in], NULL) == 0, "%s", cnn_net_error(net));
}

static void end_gradient(void)
{
    struct cnn_score score;
    ck_assert_msg(cnn_net_gradient_end(net, &score) == 0, "%s", cnn_net_error(net));
}

static bool is_gradient(int in, const float *expected)
{
    read_back(net, host, g[in], b.n_floats);
    return memcmp(host, expected, b.n_floats * sizeof *host) == 0;
}

/* The scores of two gradients, each of its own. */
START_TEST(end_waits_for_the_score)
{
    struct cnn_score expected[2], found;

    begin_lenet();
    const struct cnn_batch batches[] = {batch_with(0), batch_with(1)};
    for (int k = 0; k < 2; k++)
        ck_assert_int_eq(cnn_net_score_of(net, b.x, &batches[k], &expected[k]), 0);
    for (int k = 0; k < 2; k++)
        begin_gradient(&batches[k], k);
    for (int k = 0; k < 2; k++) {
        ck_assert_int_eq(cnn_net_gradient_end(net, &found), 0);
        ck_assert(found.loss == expected[k].loss);
    }
    end_lenet();
}
END_TEST

START_TEST(begin_waits_for_its_batch)
{
    begin_lenet();
    const struct cnn_batch batch = batch_with(0);
    float *expected = gradient_alone(&batch);
    begin_gradient(&batch, 1);
    fill(1);
    end_gradient();
    ck_assert(is_gradient(1, expected));
    free(expected);
    end_lenet();
}
END_TEST

/* Another batch of lenet, in memory that the device does not read. */
static struct cnn_batch plain_batch(void)
{
    static uint8_t plain_images[HALVES_BATCH * 28 * 28];
    static uint16_t plain_labels[HALVES_BATCH];
    struct cnn_batch batch = batch_with(0);

    ck_assert_uint_le(b.n_pixels, 28 * 28);
    batch.images = plain_images;
    batch.labels = plain_labels;
    return batch;
}

START_TEST(begin_waits_for_a_batch_that_was_announced)
{
    begin_lenet();
    const struct cnn_batch batch = batch_with(0), other = plain_batch();
    float *expected = gradient_alone(&batch);
    ck_assert_int_eq(cnn_net_announce(net, &batch), 0);
    begin_gradient(&other, 0);
    begin_gradient(&batch, 1);
    fill(1);
    end_gradient();
    end_gradient();
    ck_assert(is_gradient(1, expected));
    free(expected);
    end_lenet();
}
END_TEST

/* The third table follows when the second has not left the host: begin waits for an announced batch alone. */
START_TEST(a_table_waits_for_the_one_before)
{
    float *expected[2];

    begin_lenet();
    const struct cnn_batch batches[] = {batch_with(0), batch_with(1)}, other = plain_batch();
    for (int k = 0; k < 2; k++)
        expected[k] = gradient_alone(&batches[k]);
    ck_assert_int_eq(cnn_net_announce(net, &batches[1]), 0);
    begin_gradient(&other, 0);
    ck_assert_int_eq(cnn_net_announce(net, &batches[0]), 0);
    begin_gradient(&batches[1], 1);
    end_gradient();
    begin_gradient(&batches[0], 0);
    end_gradient();
    end_gradient();
    ck_assert(is_gradient(0, expected[0]) && is_gradient(1, expected[1]));
    free(expected[0]);
    free(expected[1]);
    end_lenet();
}
END_TEST

/* In the lazy order a batch that is changed when the gradient before its own has begun changes its own: that
 * begin has waited for its own batch only. */
START_TEST(begin_waits_for_no_later_batch)
{
    const char *order = getenv("STANDIN_ORDER");

    if (order == NULL || strcmp(order, "lazy") != 0)
        return;
    begin_lenet();
    uint8_t *more = cnn_net_alloc(net, HALVES_BATCH * b.n_pixels);
    const struct cnn_batch batch = batch_with(0), other = plain_batch();
    struct cnn_batch second = batch;
    fill(1);
    float *expected = gradient_alone(&batch);
    fill(0);
    second.images = memcpy(more, images, HALVES_BATCH * b.n_pixels);
    ck_assert_int_eq(cnn_net_announce(net, &second), 0);
    begin_gradient(&other, 0);
    ck_assert_int_eq(cnn_net_announce(net, &batch), 0);
    begin_gradient(&second, 1);
    fill(1);
    end_gradient();
    begin_gradient(&batch, 0);
    end_gradient();
    end_gradient();
    ck_assert(is_gradient(0, expected));
    free(expected);
    cnn_net_free(net, more);
    end_lenet();
}
END_TEST

START_TEST(work_behind_begin_sees_g)
{
    struct cnn_score score;

    begin_lenet();
    const struct cnn_batch batch = batch_with(0);
    ck_assert_int_eq(cnn_net_gradient_of(net, b.x, &batch, b.g, NULL, &score), 0);
    begin_gradient(&batch, 1);
    ck_assert(is_gradient(1, b.g));
    end_gradient();
    end_lenet();
}
END_TEST

/* An x and a g of the host follow, and others of the device: begin knows of what is under way. */
START_TEST(gradients_of_other_vectors_follow)
{
    struct cnn_score score;

    begin_lenet();
    const struct cnn_batch batch = batch_with(0);
    float *expected = gradient_alone(&batch);
    for (int k = 0; k < 3; k++) {
        float *other = make(b.x, b.n_floats);
        begin_gradient(&batch, 0);
        ck_assert_int_eq(cnn_net_gradient_begin(net, b.x, &batch, b.g, NULL), 0);
        ck_assert_mem_eq(b.g, expected, b.n_floats * sizeof *b.g);
        end_gradient();
        ck_assert_int_eq(cnn_net_gradient_begin(net, other, &batch, g[1], NULL), 0);
        end_gradient();
        end_gradient();
        ck_assert(is_gradient(0, expected) && is_gradient(1, expected));
        ck_assert_int_eq(cnn_net_score_of(net, other, &batch, &score), 0);
        release(other);
    }
    free(expected);
    end_lenet();
}
END_TEST

/* Its batch may go before the net, and its vectors after it. */
START_TEST(destroy_waits_for_what_was_begun)
{
    begin_lenet();
    const struct cnn_batch batch = batch_with(0);
    begin_gradient(&batch, 0);
    begin_gradient(&batch, 1);
    end_lenet();
}
END_TEST

/* Statistics go to an x on the host, too, while their gradient is under way. */
START_TEST(buffers_of_the_host_move)
{
    struct cnn_score score;

    begin(NORM);
    const struct cnn_batch batch = {.images = b.images, .labels = b.labels, .n = HALVES_BATCH};
    float *on_host = halves_on_host.make(b.x, b.n_floats), *there = make(b.x, b.n_floats),
          *to = make(b.x, b.n_floats);
    ck_assert_int_eq(cnn_net_gradient_of(net, b.x, &batch, b.g, NULL, &score), 0);
    cnn_net_update_buffers(net, b.x);
    ck_assert_int_eq(cnn_net_gradient_begin(net, there, &batch, to, NULL), 0);
    cnn_net_update_buffers(net, on_host);
    ck_assert_mem_eq(on_host, b.x, b.n_floats * sizeof *b.x);
    ck_assert_int_eq(cnn_net_gradient_end(net, &score), 0);
    free(on_host);
    release(there);
    release(to);
    end();
}
END_TEST

int main(void)
{
    const struct {
        const char *name;
        const TTest *test;
    } waits[] = {{"score", end_waits_for_the_score},
                 {"batch", begin_waits_for_its_batch},
                 {"announced batch", begin_waits_for_a_batch_that_was_announced},
                 {"table", a_table_waits_for_the_one_before},
                 {"g", work_behind_begin_sees_g}};
    Suite *s = suite_create("cuda-halves");
    TCase *t = tcase_create("trainings");

    tcase_add_loop_test(t, two_halves_make_the_bits_of_one_call, SMALL, N_ROWS);
    tcase_add_test(t, gradients_of_other_vectors_follow);
    tcase_add_test(t, buffers_of_the_host_move);
    tcase_add_test(t, begin_waits_for_no_later_batch);
    tcase_add_test(t, destroy_waits_for_what_was_begun);
    suite_add_tcase(s, t);
    for (size_t k = 0; k < sizeof waits / sizeof waits[0]; k++) {
        TCase *wait = tcase_create(waits[k].name);
        tcase_add_test(wait, waits[k].test);
        suite_add_tcase(s, wait);
    }
    return unit_run(s);
}
