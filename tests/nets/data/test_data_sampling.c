/* The orders of training images: every image once an epoch, near its place or dealt out by chunks. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "nets/data/sampler.h"
#include "tests/nets/data/suite.h"

enum { N = 1000 };

static const struct cnn_data_info info = {.name = "set", .n_train = N, .n_test = 10};

static struct cnn_sampling sampling_of(const char *text)
{
    struct cnn_sampling s;
    struct ps_error err = {""};
    ck_assert_msg(cnn_sampling_read(text, &s, &err) == 0, "%s", err.text);
    return s;
}

/* Epoch `epoch` of a rank. */
static void read_order(const char *text, uint32_t rank, uint64_t epoch, struct cnn_pick picks[N])
{
    struct cnn_order o;
    struct cnn_stream_options opt = {.seed = 7, .rank = rank, .batch = 10, .sampling = sampling_of(text)};
    ck_assert_int_eq(cnn_order_init(&o, &info, &opt, NULL), 0);
    cnn_order_seek(&o, &(struct cnn_position){epoch, 0});
    for (int i = 0; i < N; i += 10)
        ck_assert_uint_eq(cnn_order_draw(&o, 10, picks + i), 10);
    cnn_order_finish(&o);
}

static void expect_each_once(const struct cnn_pick *picks, uint32_t n)
{
    bool seen[N] = {false};
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_uint_lt(picks[i].index, N);
        ck_assert(!seen[picks[i].index]);
        seen[picks[i].index] = true;
    }
}

/* An image comes when it is in the buffer: not before its place in the set's order less the buffer. */
START_TEST(a_buffer_keeps_images_near_their_places)
{
    struct cnn_pick picks[N], other[N];
    read_order("buffer:50", 1, 2, picks);
    expect_each_once(picks, N);
    /* the first 50 are drawn from the 50 after the start, which the last image to be told of goes before */
    uint32_t start = (picks[0].expected + N - 50) % N;
    for (uint32_t i = 0; i < N; i++) {
        uint32_t place = (picks[i].index + N - start) % N;
        ck_assert_uint_lt(place, i + 50);
        if (i + 50 < N)
            ck_assert_uint_eq(picks[i].expected, (start + i + 50) % N);
        else
            ck_assert_uint_eq(picks[i].expected, CNN_NO_IMAGE);
    }
    read_order("buffer:50", 2, 2, other);
    ck_assert_uint_ne(other[0].expected, picks[0].expected); /* another rank reads elsewhere */
    read_order("buffer:50", 1, 3, other);
    ck_assert_uint_ne(other[0].expected, picks[0].expected); /* and another epoch */
    read_order("buffer:5000", 1, 2, picks);                  /* larger than the set */
    expect_each_once(picks, N);
}
END_TEST

START_TEST(sets_to_be_read_in_order_have_a_buffer)
{
    struct cnn_order o;
    struct cnn_data_info tar = info;
    struct cnn_stream_options opt = {.batch = 10};
    tar.is_sequential = true;
    ck_assert_int_eq(cnn_order_init(&o, &tar, &opt, NULL), 0);
    ck_assert_int_eq(o.sampling.kind, CNN_SAMPLING_BUFFER);
    ck_assert_uint_eq(o.sampling.buffer, 4096);
    cnn_order_finish(&o);
    opt.sampling.kind = CNN_SAMPLING_SHUFFLE;
    ck_assert_int_eq(cnn_order_init(&o, &tar, &opt, NULL), 0);
    ck_assert_int_eq(o.sampling.kind, CNN_SAMPLING_SHUFFLE);
    cnn_order_finish(&o);
}
END_TEST

/* 1000 images, 4 loaders of 250, chunks of 25, 5 workers: in a pass each worker has 2 of 10 chunks of each
 * loader, 200 images. */
START_TEST(a_pass_of_all_workers_is_the_set)
{
    enum { WORKERS = 5, SHARE = N / WORKERS, ASK = 4 * 25 };
    struct cnn_pick picks[WORKERS][N], pass[N];
    for (uint32_t rank = 0; rank < WORKERS; rank++)
        read_order("loaders:4:25:5", rank, 3, picks[rank]);
    for (uint32_t k = 0; k < WORKERS; k++) {
        for (uint32_t rank = 0; rank < WORKERS; rank++)
            memcpy(pass + rank * SHARE, picks[rank] + k * SHARE, SHARE * sizeof *pass);
        expect_each_once(pass, N);
    }
    /* What a worker asks for at once is a chunk of every loader, mixed. */
    for (uint32_t at = 0; at < N; at += ASK) {
        uint32_t of_loader[4] = {0}, chunk[4], n_in_a_row = 0;
        for (uint32_t i = at; i < at + ASK; i++) {
            uint32_t index = picks[2][i].index, loader = index / 250;
            if (of_loader[loader]++ == 0)
                chunk[loader] = index / 25;
            ck_assert_uint_eq(index / 25, chunk[loader]);
            n_in_a_row += i > at && index == picks[2][i - 1].index + 1;
        }
        for (int l = 0; l < 4; l++)
            ck_assert_uint_eq(of_loader[l], 25);
        ck_assert_uint_lt(n_in_a_row, 20); /* of 99 */
    }
}
END_TEST

/* Sizes that nothing divides: an epoch is as long as ever, and no pass gives an image to two workers. */
START_TEST(loaders_that_divide_nothing)
{
    struct cnn_pick a[N], b[N];
    uint32_t n_common = 0;
    bool seen[N] = {false};
    read_order("loaders:3:64:2", 0, 0, a);
    read_order("loaders:3:64:2", 1, 0, b);
    for (uint32_t i = 0; i < 300; i++) /* less than half a pass of each */
        seen[a[i].index] = true;
    for (uint32_t i = 0; i < 300; i++)
        n_common += seen[b[i].index];
    ck_assert_uint_eq(n_common, 0);
    read_order("loaders:1024:1:1", 0, 0, a); /* more loaders than images */
    expect_each_once(a, N);
    read_order("loaders:2:2000:3", 2, 0, a); /* a chunk is more than a part */
    for (uint32_t i = 0; i < N; i++)
        ck_assert_uint_lt(a[i].index, N);
}
END_TEST

START_TEST(samplings_that_are_none)
{
    static const char *const bad[] = {
        "",        "shuffled",     "shuffle:3",      "buffer:0",         "buffer:",         "buffer:99999999",
        "loaders", "loaders:8:64", "loaders:8:64:0", "loaders:8:64:4:1", "loaders:2000:1:1"};
    for (size_t i = 0; i < ROWS(bad); i++) {
        struct cnn_sampling s;
        struct ps_error err = {""};
        ck_assert_msg(cnn_sampling_read(bad[i], &s, &err) == -EINVAL, "%s", bad[i]);
        assert_says(err.text, "allowed: shuffle, buffer[:IMAGES]");
    }
    ck_assert_int_eq(sampling_of(NULL).kind, CNN_SAMPLING_DEFAULT);
    ck_assert_uint_eq(sampling_of("buffer").buffer, CNN_SAMPLING_IMAGES);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("sampling");
    tcase_add_test(tc, a_buffer_keeps_images_near_their_places);
    tcase_add_test(tc, sets_to_be_read_in_order_have_a_buffer);
    tcase_add_test(tc, a_pass_of_all_workers_is_the_set);
    tcase_add_test(tc, loaders_that_divide_nothing);
    tcase_add_test(tc, samplings_that_are_none);
    return run_case(tc, "data_sampling");
}
