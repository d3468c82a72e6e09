/* Streams: every image once an epoch, in an order of the rank's own; digits: the same bits for the same name,
 * other images for any other. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "nets/data/dataset.h"
#include "tests/nets/data/suite.h"

enum { N = 1000, DIGIT = 28 * 28 };

/* A set of N images of one row of two pixels that spell out their index, so that orders can be read. */
static int counting_image(const void *self, const struct cnn_image_id *id, uint8_t *pixels, uint16_t *label,
                          struct ps_error *err)
{
    (void)self;
    (void)err;
    pixels[0] = (uint8_t)(id->index >> 8);
    pixels[1] = (uint8_t)id->index;
    *label = (uint16_t)(id->index % 10);
    return 0;
}

static const struct cnn_data_type counting_type = {
    .name = "counting", .mean = {0.1307f}, .deviation = {0.3081f}, .image = counting_image};
static const struct cnn_data counting = {
    .type = &counting_type,
    .info = {"counting", .channels = 1, .height = 1, .width = 2, .classes = 10, .n_train = N,
             .n_test = N / 3},
};

static int create_stream(const struct cnn_data *data, enum cnn_split split, uint64_t seed, uint32_t rank,
                         uint32_t batch, struct cnn_stream **s, struct ps_error *err)
{
    struct cnn_stream_options opt = {.split = split, .seed = seed, .rank = rank, .batch = batch};
    return cnn_stream_create(data, &opt, s, err);
}

static uint64_t epoch_of(const struct cnn_stream *s)
{
    struct cnn_position at;
    cnn_stream_position(s, &at);
    return at.epoch;
}

static uint32_t byte_of(float v)
{
    return (uint32_t)((v * 0.3081f + 0.1307f) * 255.0f + 0.5f);
}

/* The order of epoch `epoch`, read in batches of `batch`, which should divide N. */
static void read_order(uint64_t seed, uint32_t rank, uint64_t epoch, uint32_t batch, uint32_t order[N])
{
    struct cnn_stream *s;
    float *images = calloc(batch, 2 * sizeof *images);
    uint16_t *labels = calloc(batch, sizeof *labels);
    ck_assert_int_eq(create_stream(&counting, CNN_TRAIN, seed, rank, batch, &s, NULL), 0);
    for (uint32_t i = 0; i < epoch * N / batch; i++)
        ck_assert_uint_eq(cnn_stream_next(s, images, labels), batch);
    for (uint32_t i = 0; i < N; i += batch) {
        ck_assert_uint_eq(cnn_stream_next(s, images, labels), batch);
        ck_assert_uint_eq(epoch_of(s), epoch);
        for (uint32_t k = 0; k < batch; k++) {
            order[i + k] = byte_of(images[2 * k]) << 8 | byte_of(images[2 * k + 1]);
            ck_assert_uint_eq(labels[k], order[i + k] % 10);
        }
    }
    cnn_stream_destroy(s);
    free(images);
    free(labels);
}

START_TEST(every_image_once_an_epoch)
{
    for (uint64_t epoch = 0; epoch < 3; epoch++) {
        uint32_t order[N];
        bool seen[N] = {false};
        read_order(5, 2, epoch, 50, order);
        for (int i = 0; i < N; i++) {
            ck_assert_uint_lt(order[i], N);
            ck_assert(!seen[order[i]]);
            seen[order[i]] = true;
        }
    }
}
END_TEST

START_TEST(the_order_depends_on_seed_rank_and_epoch_alone)
{
    uint32_t a[N], b[N];
    read_order(5, 2, 1, 50, a);
    read_order(5, 2, 1, 125, b); /* not on the batch */
    ck_assert_mem_eq(a, b, sizeof a);
    read_order(6, 2, 1, 50, b);
    ck_assert_mem_ne(a, b, sizeof a);
    read_order(5, 3, 1, 50, b);
    ck_assert_mem_ne(a, b, sizeof a);
    read_order(5, 2, 0, 50, b);
    ck_assert_mem_ne(a, b, sizeof a);
}
END_TEST

/* 7 does not divide 1000: after 143 batches of 7 one image of the next epoch is out. */
START_TEST(a_batch_runs_on_into_the_next_epoch)
{
    uint32_t first[N], second[N], got[7 * 143];
    struct cnn_stream *s;
    float images[7 * 2];
    uint16_t labels[7];
    read_order(1, 0, 0, 50, first);
    read_order(1, 0, 1, 50, second);
    ck_assert_int_eq(create_stream(&counting, CNN_TRAIN, 1, 0, 7, &s, NULL), 0);
    for (int i = 0; i < 143; i++) {
        ck_assert_uint_eq(cnn_stream_next(s, images, labels), 7);
        for (int k = 0; k < 7; k++)
            got[i * 7 + k] = byte_of(images[2 * k]) << 8 | byte_of(images[2 * k + 1]);
    }
    ck_assert_mem_eq(got, first, sizeof first);
    ck_assert_uint_eq(got[N], second[0]);
    ck_assert_uint_eq(epoch_of(s), 1);
    cnn_stream_destroy(s);
}
END_TEST

START_TEST(a_test_stream_runs_once_and_in_order)
{
    struct cnn_stream *s;
    float images[100 * 2];
    uint16_t labels[100];
    static const uint32_t sizes[] = {100, 100, 100, 33, 0, 0};
    uint32_t at = 0;
    ck_assert_int_eq(create_stream(&counting, CNN_TEST, 9, 9, 100, &s, NULL), 0);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        ck_assert_uint_eq(cnn_stream_next(s, images, labels), sizes[i]);
        for (uint32_t k = 0; k < sizes[i]; k++, at++)
            ck_assert_uint_eq(byte_of(images[2 * k]) << 8 | byte_of(images[2 * k + 1]), at);
    }
    cnn_stream_destroy(s);
}
END_TEST

START_TEST(bad_streams)
{
    struct cnn_stream *s = NULL;
    struct ps_error err = {""};
    ck_assert_int_eq(create_stream(&counting, CNN_TRAIN, 1, 0, 0, &s, &err), -EINVAL);
    ck_assert_int_eq(create_stream(&counting, CNN_TRAIN, 1, CNN_MAX_RANKS, 1, &s, &err), -EINVAL);
    ck_assert_ptr_null(s);
    cnn_stream_destroy(NULL);
    cnn_data_close(NULL);
}
END_TEST

/* The checksum of the first n images (as bytes) and labels. */
static uint32_t checksum(const char *spec, enum cnn_split split, uint64_t seed, uint32_t rank, uint32_t skip,
                         uint32_t n)
{
    float image[DIGIT];
    uint8_t pixels[DIGIT + 1];
    uint16_t label;
    uLong sum = 0;
    struct cnn_data *data;
    struct cnn_stream *s;
    ck_assert_int_eq(cnn_data_open(spec, &data, NULL), 0);
    ck_assert_int_eq(create_stream(data, split, seed, rank, 1, &s, NULL), 0);
    for (uint32_t i = 0; i < skip + n; i++) {
        ck_assert_uint_eq(cnn_stream_next(s, image, &label), 1);
        pixels[DIGIT] = (uint8_t)label;
        for (int k = 0; k < DIGIT; k++)
            pixels[k] = (uint8_t)byte_of(image[k]);
        if (i >= skip)
            sum = crc32(sum, pixels, sizeof pixels);
    }
    cnn_stream_destroy(s);
    cnn_data_close(data);
    return (uint32_t)sum;
}

/* Written down once: another compiler, instruction set or year must not make other images, or results could
 * no longer be compared. Whoever changes the generator on purpose writes the new values. */
START_TEST(digits_are_the_same_everywhere)
{
    ck_assert_uint_eq(checksum("digits", CNN_TEST, 0, 0, 0, 500), 0x4e3a6afb);
    ck_assert_uint_eq(checksum("digits", CNN_TRAIN, 1, 3, 0, 500), 0xc19f474a);
}
END_TEST

/* Any size and number of classes; labels beyond a byte; the same bytes for the same name, others for others.
 */
START_TEST(synthetic_makes_images_of_any_size)
{
    struct cnn_image_id id = {CNN_TRAIN, 1, 0, 0, 999}, other = {CNN_TRAIN, 1, 1, 0, 999};
    static uint8_t a[3 * 40 * 30 + 1], b[3 * 40 * 30 + 1];
    struct cnn_data_info info;
    struct cnn_data *data;
    uint16_t label, again;

    ck_assert_int_eq(cnn_data_open("synthetic:3x40x30:1000", &data, NULL), 0);
    cnn_data_get_info(data, &info);
    ck_assert(info.channels == 3 && info.height == 40 && info.width == 30 && info.classes == 1000);
    a[3600] = b[3600] = 77;
    ck_assert_int_eq(data->type->image(data->self, &id, a, &label, NULL), 0);
    ck_assert_uint_eq(label, 999);
    ck_assert_uint_eq(crc32(0, a, 3600), 668202861);
    ck_assert_int_eq(data->type->image(data->self, &id, b, &again, NULL), 0);
    ck_assert_mem_eq(a, b, sizeof a);
    ck_assert_int_eq(data->type->image(data->self, &other, b, &again, NULL), 0);
    ck_assert_mem_ne(a, b, sizeof a);
    ck_assert_uint_eq(b[3600], 77);
    cnn_data_close(data);
}
END_TEST

START_TEST(synthetic_says_what_is_allowed)
{
    static const char *const bad[] = {"synthetic",
                                      "synthetic:",
                                      "synthetic:3x32:10",
                                      "synthetic:0x32x32:10",
                                      "synthetic:5x32x32:10",
                                      "synthetic:3x4097x32:10",
                                      "synthetic:3x32x32:1",
                                      "synthetic:3x32x32:65537",
                                      "synthetic:3x32x32:10x"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct ps_error err = {""};
        struct cnn_data *data;
        ck_assert_int_eq(cnn_data_open(bad[i], &data, &err), -EINVAL);
        ck_assert_msg(strstr(err.text, "allowed: CxHxW:CLASSES such as 3x224x224:1000") != NULL, "%s",
                      err.text);
    }
}
END_TEST

START_TEST(digits_differ_by_every_part_of_their_name)
{
    uint32_t sums[] = {
        checksum("digits", CNN_TEST, 0, 0, 0, 1),         checksum("digits:1", CNN_TEST, 0, 0, 0, 1),
        checksum("digits", CNN_TRAIN, 0, 0, 0, 1),        checksum("digits", CNN_TRAIN, 1, 0, 0, 1),
        checksum("digits", CNN_TRAIN, 1, 1, 0, 1),        checksum("digits:1", CNN_TRAIN, 1, 0, 0, 1),
        checksum("digits", CNN_TRAIN, 1u << 31, 0, 0, 1), checksum("digits", CNN_TRAIN, 1ull << 32, 0, 0, 1),
    };
    for (size_t i = 0; i < sizeof sums / sizeof *sums; i++)
        for (size_t j = 0; j < i; j++)
            ck_assert_uint_ne(sums[i], sums[j]);
    /* the test split is one and the same for every stream */
    ck_assert_uint_eq(checksum("digits", CNN_TEST, 7, 7, 0, 20), checksum("digits", CNN_TEST, 0, 0, 0, 20));
    ck_assert_uint_eq(checksum("digits:0", CNN_TEST, 0, 0, 0, 20), checksum("digits", CNN_TEST, 0, 0, 0, 20));
}
END_TEST

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

/* The same index in two epochs and in the test split: three images. */
START_TEST(digits_are_new_every_epoch)
{
    struct cnn_data *data;
    ck_assert_int_eq(cnn_data_open("digits", &data, NULL), 0);
    enum { IMAGES = 300 };
    uint32_t sums[3 * IMAGES];
    for (uint32_t i = 0; i < 3 * IMAGES; i++) {
        struct cnn_image_id id = {
            .split = i < 2 * IMAGES ? CNN_TRAIN : CNN_TEST, .epoch = i < IMAGES ? 0 : 1, .index = i % IMAGES};
        if (id.split == CNN_TEST)
            id.epoch = 0;
        uint8_t pixels[DIGIT];
        uint16_t label;
        ck_assert_int_eq(data->type->image(data->self, &id, pixels, &label, NULL), 0);
        ck_assert_uint_lt(label, 10);
        sums[i] = (uint32_t)crc32(0, pixels, DIGIT);
    }
    qsort(sums, 3 * IMAGES, sizeof *sums, by_value);
    for (int i = 1; i < 3 * IMAGES; i++)
        ck_assert_uint_ne(sums[i - 1], sums[i]);
    cnn_data_close(data);
}
END_TEST

/* As many of every digit, and hardly one that reaches the frame of its image. */
START_TEST(digits_are_even_and_inside_the_image)
{
    struct cnn_data *data;
    uint32_t of_label[10] = {0}, ink_at_frame = 0;
    ck_assert_int_eq(cnn_data_open("digits", &data, NULL), 0);
    for (uint32_t i = 0; i < 10000; i++) {
        struct cnn_image_id id = {.split = CNN_TEST, .index = i};
        uint8_t pixels[DIGIT];
        uint16_t label;
        bool touched = false;
        uint32_t ink = 0;
        ck_assert_int_eq(data->type->image(data->self, &id, pixels, &label, NULL), 0);
        of_label[label]++;
        for (int k = 0; k < DIGIT; k++) {
            bool frame = k < 28 || k >= DIGIT - 28 || k % 28 == 0 || k % 28 == 27;
            ink += pixels[k] > 192;
            touched |= frame && pixels[k] > 192;
        }
        ck_assert_uint_gt(ink, 5);
        ink_at_frame += touched;
    }
    for (int l = 0; l < 10; l++)
        ck_assert_uint_eq(of_label[l], 1000);
    ck_assert_uint_lt(ink_at_frame, 500); /* 5 %: the largest, most shifted ones may touch it */
    cnn_data_close(data);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("stream");
    tcase_add_test(tc, every_image_once_an_epoch);
    tcase_add_test(tc, the_order_depends_on_seed_rank_and_epoch_alone);
    tcase_add_test(tc, a_batch_runs_on_into_the_next_epoch);
    tcase_add_test(tc, a_test_stream_runs_once_and_in_order);
    tcase_add_test(tc, bad_streams);
    tcase_add_test(tc, digits_are_the_same_everywhere);
    tcase_add_test(tc, synthetic_makes_images_of_any_size);
    tcase_add_test(tc, synthetic_says_what_is_allowed);
    tcase_add_test(tc, digits_differ_by_every_part_of_their_name);
    tcase_add_test(tc, digits_are_new_every_epoch);
    tcase_add_test(tc, digits_are_even_and_inside_the_image);
    return run_case(tc, "data_stream");
}
