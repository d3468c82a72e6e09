/* vectors.c: x and g in memory of the device, on the backend of TEST_BACKEND: the bits of those on the host,
 * also when other vectors follow, when a score is of another x, and at floats that have no gradient. */
#include <check.h>
#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nets/cases.h"
#include "tests/support/unit.h"

enum { BATCH = 1, N_POINTS = 2 };

static const struct {
    const char *model;
    enum cnn_precision precision;
} rows[] = {{"lenet", CNN_BF16}, {"resnet8", CNN_BF16}, {"linear", CNN_FLOAT32}};

struct job {
    struct bed bed;
    struct cnn_net *net;
    size_t bytes;
    float *points[N_POINTS], *expected[N_POINTS]; /* on the host: x, and its gradient */
    double loss[N_POINTS];                        /* of its score */
    float *x[N_POINTS], *g[N_POINTS];             /* on the device */
    float *pinned;                                /* the other end of copies */
    cudaStream_t stream;
};

/* from NULL: bits that are no value of a gradient. */
static float *on_device(const struct job *j, const float *from)
{
    float *p = NULL;
    ck_assert_int_eq(cudaMalloc((void **)&p, j->bytes), cudaSuccess);
    ck_assert_int_eq(cudaMemsetAsync(p, 0xff, j->bytes, j->stream), cudaSuccess);
    if (from != NULL) {
        memcpy(j->pinned, from, j->bytes);
        ck_assert_int_eq(cudaMemcpyAsync(p, j->pinned, j->bytes, cudaMemcpyHostToDevice, j->stream),
                         cudaSuccess);
    }
    ck_assert_int_eq(cudaStreamSynchronize(j->stream), cudaSuccess);
    return p;
}

static void check_bits(const struct job *j, const float *device, const float *expected)
{
    ck_assert_int_eq(cudaMemcpyAsync(j->pinned, device, j->bytes, cudaMemcpyDeviceToHost, j->stream),
                     cudaSuccess);
    ck_assert_int_eq(cudaStreamSynchronize(j->stream), cudaSuccess);
    ck_assert_mem_eq(j->pinned, expected, j->bytes);
}

static float *copy_of(const struct job *j, const float *from)
{
    float *p = malloc(j->bytes);
    ck_assert_ptr_nonnull(p);
    memcpy(p, from, j->bytes);
    return p;
}

static void gradient(struct job *j, const float *x, float *g)
{
    struct cnn_score score;
    ck_assert_int_eq(cnn_net_gradient(j->net, x, j->bed.images, j->bed.labels, g, &score), 0);
}

static double loss_at(struct job *j, const float *x)
{
    struct cnn_score score;
    ck_assert_int_eq(cnn_net_score(j->net, x, j->bed.images, j->bed.labels, BATCH, &score), 0);
    return score.loss;
}

static void begin(struct job *j, int row)
{
    const struct cnn_net_options opt = {.model = cnn_model_find(rows[row].model),
                                        .backend = tested_backend(0),
                                        .batch = BATCH,
                                        .precision = rows[row].precision};
    struct ps_error err = {""};

    bed_create(&j->bed, opt.model, BATCH);
    j->bytes = j->bed.n_floats * sizeof(float);
    ck_assert_msg(cnn_net_create(&opt, &j->net, &err) == 0, "%s", err.text);
    ck_assert_int_eq(cudaStreamCreateWithFlags(&j->stream, cudaStreamNonBlocking), cudaSuccess);
    ck_assert_int_eq(cudaHostAlloc((void **)&j->pinned, j->bytes, cudaHostAllocDefault), cudaSuccess);
    for (int k = 0; k < N_POINTS; k++) {
        for (size_t i = 0; i < j->bed.n_floats; i++)
            j->bed.x[i] *= 1 + 0.01f * (float)k;
        j->points[k] = copy_of(j, j->bed.x);
        gradient(j, j->points[k], j->bed.g);
        j->expected[k] = copy_of(j, j->bed.g);
        j->loss[k] = loss_at(j, j->points[k]);
        j->x[k] = on_device(j, j->points[k]);
        j->g[k] = on_device(j, NULL);
    }
}

static void end(struct job *j)
{
    cnn_net_destroy(j->net);
    for (int k = 0; k < N_POINTS; k++) {
        cudaFree(j->x[k]);
        cudaFree(j->g[k]);
        free(j->points[k]);
        free(j->expected[k]);
    }
    cudaFreeHost(j->pinned);
    cudaStreamDestroy(j->stream);
    bed_destroy(&j->bed);
}

/* The gradient of a point, in one of the vectors. */
static void check_gradient(struct job *j, int point, int in)
{
    gradient(j, j->x[point], j->g[in]);
    check_bits(j, j->g[in], j->expected[point]);
}

START_TEST(the_bits_are_those_of_vectors_on_the_host)
{
    struct job j = {.net = NULL};

    begin(&j, _i);
    for (int step = 0; step < 2; step++) /* without graphs, and with them */
        check_gradient(&j, 0, 0);
    check_gradient(&j, 1, 0);
    check_gradient(&j, 1, 1);
    ck_assert(loss_at(&j, j.x[0]) == j.loss[0]);
    ck_assert(loss_at(&j, j.points[1]) == j.loss[1]);
    check_gradient(&j, 1, 1);
    check_bits(&j, j.x[0], j.points[0]); /* a score of another x has not touched it */
    gradient(&j, j.x[0], j.bed.g);       /* x on the device, g on the host, and the other way round */
    ck_assert_mem_eq(j.bed.g, j.expected[0], j.bytes);
    gradient(&j, j.points[1], j.g[0]);
    check_bits(&j, j.g[0], j.expected[1]);
    end(&j);
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cuda-vectors");
    TCase *t = tcase_create("vectors");

    tcase_add_loop_test(t, the_bits_are_those_of_vectors_on_the_host, 0, (int)(sizeof rows / sizeof rows[0]));
    suite_add_tcase(s, t);
    return unit_run(s);
}
