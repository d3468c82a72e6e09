/* The published CIFAR-10, where PSD_CIFAR10 names a folder with its six .bin files: as many of every class,
 * and pixels of mean 0 and deviation 1. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "nets/data/data.h"
#include "tests/nets/data/suite.h"

enum { PLANE = 32 * 32, BATCH = 100, SKIPPED = 77 }; /* 77: meson's word for a test that was skipped */

static const char *dir;

static struct cnn_data *open_data(void)
{
    char spec[4096];
    struct ps_error err = {""};
    struct cnn_data *data;
    snprintf(spec, sizeof spec, "cifar10:%s", dir);
    ck_assert_msg(cnn_data_open(spec, &data, &err) == 0, "%s", err.text);
    return data;
}

START_TEST(classes_and_moments)
{
    static float images[BATCH * 3 * PLANE];
    uint16_t labels[BATCH];
    uint32_t of_class[10] = {0};
    double sum[3] = {0}, squares[3] = {0};
    int n, total = 0;
    struct cnn_data *data = open_data();
    struct cnn_data_info info;
    cnn_data_get_info(data, &info);
    ck_assert_uint_eq(info.n_train, 50000);
    struct cnn_stream *s;
    struct cnn_stream_options opt = {.split = CNN_TEST, .batch = BATCH, .prefetch = 2};
    ck_assert_int_eq(cnn_stream_create(data, &opt, &s, NULL), 0);
    while ((n = cnn_stream_next(s, images, labels)) > 0) {
        for (int i = 0; i < n; i++)
            of_class[labels[i]]++;
        for (int k = 0; k < n * 3 * PLANE; k++) {
            double v = (double)images[k];
            sum[k / PLANE % 3] += v;
            squares[k / PLANE % 3] += v * v;
        }
        total += n;
    }
    ck_assert_int_eq(total, 10000);
    for (int c = 0; c < 10; c++)
        ck_assert_uint_eq(of_class[c], 1000);
    for (int c = 0; c < 3; c++) { /* the moments are of the training split: the test split's differ by 2 % */
        double mean = sum[c] / total / PLANE, deviation = sqrt(squares[c] / total / PLANE - mean * mean);
        printf("channel %d: mean %.4f, deviation %.4f\n", c, mean, deviation);
        ck_assert_double_eq_tol(mean, 0, 0.03);
        ck_assert_double_eq_tol(deviation, 1, 0.03);
    }
    cnn_stream_destroy(s);
    cnn_data_close(data);
}
END_TEST

int main(void)
{
    dir = getenv("PSD_CIFAR10");
    if (dir == NULL || *dir == '\0') {
        puts("skipped: PSD_CIFAR10 does not name a folder with the six .bin files of CIFAR-10");
        return SKIPPED;
    }
    TCase *tc = tcase_create("published");
    tcase_add_test(tc, classes_and_moments);
    return run_case(tc, "cifar10_published");
}
