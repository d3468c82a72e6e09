/* The difficulty of digits: a linear model gets most of them, and not nearly all. Softmax regression in plain
 * C, independent of the nets, so that it judges the data alone. */
#include <math.h>
#include <stdio.h>
#include <stdint.h>
#include <stdlib.h>

#include "nets/data/data.h"
#include "tests/nets/data/suite.h"

enum { N_IN = 28 * 28, N_OUT = 10, BATCH = 100, STEPS = 1600, TEST_IMAGES = 10000 };

struct linear {
    float w[N_OUT][N_IN];
    float b[N_OUT];
};

static void outputs(const struct linear *m, const float *image, float out[N_OUT])
{
    for (int o = 0; o < N_OUT; o++) {
        float part[16] = {0}; /* the compiler may not reorder one sum; sixteen it keeps in registers */
        for (int i = 0; i < N_IN; i += 16)
            for (int k = 0; k < 16; k++)
                part[k] += m->w[o][i + k] * image[i + k];
        out[o] = m->b[o];
        for (int k = 0; k < 16; k++)
            out[o] += part[k];
    }
}

static void softmax(float out[N_OUT])
{
    float top = out[0], sum = 0;
    for (int o = 1; o < N_OUT; o++)
        top = out[o] > top ? out[o] : top;
    for (int o = 0; o < N_OUT; o++)
        sum += out[o] = expf(out[o] - top);
    for (int o = 0; o < N_OUT; o++)
        out[o] /= sum;
}

static void sgd_step(struct linear *m, const float *images, const uint16_t *labels, float rate)
{
    static float error[BATCH][N_OUT];
    for (int n = 0; n < BATCH; n++) {
        outputs(m, images + n * N_IN, error[n]);
        softmax(error[n]);
        error[n][labels[n]] -= 1;
    }
    for (int n = 0; n < BATCH; n++)
        for (int o = 0; o < N_OUT; o++) {
            float move = rate / BATCH * error[n][o];
            for (int i = 0; i < N_IN; i++)
                m->w[o][i] -= move * images[n * N_IN + i];
            m->b[o] -= move;
        }
}

static double test_accuracy(const struct linear *m, const struct cnn_data *data)
{
    static float images[BATCH * N_IN];
    uint16_t labels[BATCH];
    struct cnn_stream *s;
    uint32_t correct = 0, total = 0;
    int n;
    ck_assert_int_eq(
        cnn_stream_create(data, &(struct cnn_stream_options){.split = CNN_TEST, .batch = BATCH}, &s, NULL),
        0);
    while ((n = cnn_stream_next(s, images, labels)) > 0) {
        for (int k = 0; k < n; k++) {
            float out[N_OUT];
            int best = 0;
            outputs(m, images + k * N_IN, out);
            for (int o = 1; o < N_OUT; o++)
                best = out[o] > out[best] ? o : best;
            correct += best == labels[k];
        }
        total += (uint32_t)n;
    }
    cnn_stream_destroy(s);
    ck_assert_uint_eq(total, TEST_IMAGES);
    return (double)correct / total;
}

START_TEST(linear_model_gets_85_to_95_percent)
{
    static float images[BATCH * N_IN];
    uint16_t labels[BATCH];
    struct linear *m = calloc(1, sizeof *m);
    struct cnn_data *data;
    struct cnn_stream *s;
    ck_assert_ptr_nonnull(m);
    ck_assert_int_eq(cnn_data_open("digits", &data, NULL), 0);
    ck_assert_int_eq(
        cnn_stream_create(
            data, &(struct cnn_stream_options){.split = CNN_TRAIN, .seed = 1, .batch = BATCH, .prefetch = 4},
            &s, NULL),
        0);
    for (int t = 0; t < STEPS; t++) {
        cnn_stream_next(s, images, labels);
        sgd_step(m, images, labels, 0.02f / (1 + 8.0f * (float)t / STEPS));
    }
    double accuracy = test_accuracy(m, data);
    printf("softmax regression, %d images of digits: test accuracy %.4f\n", STEPS * BATCH, accuracy);
    ck_assert_double_ge(accuracy, 0.85);
    ck_assert_double_le(accuracy, 0.95);
    cnn_stream_destroy(s);
    cnn_data_close(data);
    free(m);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("linear");
    tcase_add_test(tc, linear_model_gets_85_to_95_percent);
    return run_case(tc, "digits_linear");
}
