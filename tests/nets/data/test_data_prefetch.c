/* Batches made ahead: the same as those made when asked for, in the same order, from any place and to any
 * end. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "nets/data/dataset.h"
#include "tests/nets/data/suite.h"

enum { N_TRAIN = 101, N_TEST = 38, PIXELS = 5, BATCH = 7, N_BATCHES = 60 };

/* A set whose images spell out all of their id, made at an uneven pace; one of them may fail. */
static atomic_uint n_made;
static struct cnn_image_id bad;
static bool has_bad;

/* Images of which so many are begun before any is made: as many threads are needed. 0: none is waited for. */
static atomic_uint n_meeting, n_there;
static pthread_mutex_t meeting = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t met = PTHREAD_COND_INITIALIZER;

static void meet(void)
{
    pthread_mutex_lock(&meeting);
    n_there++;
    pthread_cond_broadcast(&met);
    while (n_there < n_meeting)
        pthread_cond_wait(&met, &meeting);
    pthread_mutex_unlock(&meeting);
}

static int spelled_image(const void *self, const struct cnn_image_id *id, uint8_t *pixels, uint16_t *label,
                         struct ps_error *err)
{
    (void)self;
    if (n_meeting > 0)
        meet();
    /* Not by giving the cpu away: on a busy machine it comes back much later. */
    for (volatile uint32_t i = 0; i < (id->index * 2654435761u >> 28) * 200; i++)
        ;
    pixels[0] = (uint8_t)id->index;
    pixels[1] = (uint8_t)id->epoch;
    pixels[2] = (uint8_t)id->seed;
    pixels[3] = (uint8_t)id->rank;
    pixels[4] = id->split == CNN_TEST;
    *label = (uint16_t)(id->index % 10);
    atomic_fetch_add(&n_made, 1);
    if (has_bad && id->epoch == bad.epoch && id->index == bad.index)
        return ps_fail(err, -EIO, "image %u of epoch %u is bad", id->index, (unsigned)id->epoch);
    return 0;
}

static const struct cnn_data_type spelled_type = {
    .name = "spelled", .mean = {0}, .deviation = {1}, .image = spelled_image};
static const struct cnn_data spelled = {
    .type = &spelled_type,
    .info = {"spelled", .channels = 1, .height = 1, .width = PIXELS, .classes = 10, .n_train = N_TRAIN,
             .n_test = N_TEST},
};

struct batch {
    int n;
    float images[BATCH * PIXELS];
    uint16_t labels[BATCH];
    struct cnn_position after;
};

static const struct {
    uint32_t prefetch, threads;
} ways[] = {{1, 1}, {4, 1}, {4, 3}, {3, 8}, {CNN_MAX_PREFETCH, CNN_MAX_DATA_THREADS}};
enum { N_WAYS = sizeof ways / sizeof *ways };

static void setup(void)
{
    atomic_store(&n_made, 0);
    has_bad = false;
}

static struct cnn_stream *create(enum cnn_split split, uint32_t prefetch, uint32_t threads)
{
    struct cnn_stream *s = NULL;
    struct ps_error err = {""};
    struct cnn_stream_options opt = {
        .split = split, .seed = 5, .rank = 2, .batch = BATCH, .prefetch = prefetch, .threads = threads};
    ck_assert_msg(cnn_stream_create(&spelled, &opt, &s, &err) == 0, "%s", err.text);
    return s;
}

static void take_batch(struct cnn_stream *s, struct batch *b)
{
    memset(b, 0, sizeof *b);
    b->n = cnn_stream_next(s, b->images, b->labels);
    cnn_stream_position(s, &b->after);
}

/* What a stream without threads gives: the measure of all others. */
static void read_plain(enum cnn_split split, struct batch batches[N_BATCHES])
{
    struct cnn_stream *s = create(split, 0, 0);
    for (int i = 0; i < N_BATCHES; i++)
        take_batch(s, &batches[i]);
    cnn_stream_destroy(s);
}

static void expect_same(struct cnn_stream *s, const struct batch *expected)
{
    struct batch b;
    take_batch(s, &b);
    ck_assert_int_eq(b.n, expected->n);
    ck_assert_mem_eq(b.images, expected->images, sizeof b.images);
    ck_assert_mem_eq(b.labels, expected->labels, sizeof b.labels);
    ck_assert_uint_eq(b.after.epoch, expected->after.epoch);
    ck_assert_uint_eq(b.after.index, expected->after.index);
}

static struct batch plain[N_BATCHES];

/* 60 batches are four epochs and a bit: 7 does not divide 101. */
START_TEST(training_batches_are_the_same)
{
    read_plain(CNN_TRAIN, plain);
    ck_assert_uint_eq(plain[N_BATCHES - 1].after.epoch, 4);
    ck_assert_uint_eq(plain[N_BATCHES - 1].after.index, 60 * 7 - 4 * N_TRAIN);
    struct cnn_stream *s = create(CNN_TRAIN, ways[_i].prefetch, ways[_i].threads);
    for (int i = 0; i < N_BATCHES; i++)
        expect_same(s, &plain[i]);
    cnn_stream_destroy(s);
}
END_TEST

START_TEST(test_batches_are_the_same_and_end)
{
    read_plain(CNN_TEST, plain);
    ck_assert_int_eq(plain[5].n, 3);
    ck_assert_int_eq(plain[6].n, 0);
    struct cnn_stream *s = create(CNN_TEST, ways[_i].prefetch, ways[_i].threads);
    for (int i = 0; i < 10; i++)
        expect_same(s, &plain[i]);
    ck_assert_int_eq(cnn_stream_seek(s, &(struct cnn_position){0, 14}, NULL), 0); /* again, from the third */
    for (int i = 2; i < 10; i++)
        expect_same(s, &plain[i]);
    cnn_stream_destroy(s);
}
END_TEST

/* A position that was saved is all that a new stream needs, and an old one too, whatever it had made ahead.
 */
START_TEST(a_stream_goes_on_from_any_place)
{
    uint32_t prefetch = _i < N_WAYS ? ways[_i].prefetch : 0, threads = _i < N_WAYS ? ways[_i].threads : 0;
    read_plain(CNN_TRAIN, plain);
    struct cnn_stream *old = create(CNN_TRAIN, prefetch, threads);
    for (int from = N_BATCHES - 3; from > 0; from -= 8) {
        struct cnn_stream *new = create(CNN_TRAIN, prefetch, threads);
        ck_assert_int_eq(cnn_stream_seek(old, &plain[from - 1].after, NULL), 0);
        ck_assert_int_eq(cnn_stream_seek(new, &plain[from - 1].after, NULL), 0);
        struct cnn_position at;
        cnn_stream_position(new, &at);
        ck_assert_mem_eq(&at, &plain[from - 1].after, sizeof at);
        for (int i = from; i < from + 3; i++) {
            expect_same(old, &plain[i]);
            expect_same(new, &plain[i]);
        }
        cnn_stream_destroy(new);
    }
    cnn_stream_destroy(old);
}
END_TEST

START_TEST(places_that_are_none)
{
    struct ps_error err = {""};
    read_plain(CNN_TRAIN, plain);
    struct cnn_stream *s = create(CNN_TRAIN, 4, 2);
    expect_same(s, &plain[0]);
    ck_assert_int_eq(cnn_stream_seek(s, &(struct cnn_position){0, N_TRAIN + 1}, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, "image 102 of an epoch; allowed: 0 to 101") != NULL, "%s", err.text);
    expect_same(s, &plain[1]); /* it has not moved */
    cnn_stream_destroy(s);
    s = create(CNN_TEST, 4, 2);
    ck_assert_int_eq(cnn_stream_seek(s, &(struct cnn_position){1, 0}, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, "epoch 1 of a test split; allowed: 0") != NULL, "%s", err.text);
    cnn_stream_destroy(s);
}
END_TEST

/* The end of one epoch and the start of the next are the same place. */
START_TEST(the_seam_of_two_epochs)
{
    struct batch a, b;
    struct cnn_stream *s = create(CNN_TRAIN, 2, 2);
    ck_assert_int_eq(cnn_stream_seek(s, &(struct cnn_position){0, N_TRAIN}, NULL), 0);
    take_batch(s, &a);
    ck_assert_int_eq(cnn_stream_seek(s, &(struct cnn_position){1, 0}, NULL), 0);
    take_batch(s, &b);
    ck_assert_mem_eq(&a, &b, sizeof a);
    ck_assert_float_eq(a.images[1] * 255, 1); /* the epoch */
    cnn_stream_destroy(s);
}
END_TEST

/* Batches before the bad image arrive; its own is an error, as is all that follows, until a seek. */
START_TEST(an_error_travels_to_the_reader)
{
    uint32_t prefetch = _i < N_WAYS ? ways[_i].prefetch : 0, threads = _i < N_WAYS ? ways[_i].threads : 0;
    struct batch b;
    read_plain(CNN_TRAIN, plain);
    has_bad = true;
    bad = (struct cnn_image_id){.epoch = 1, .index = (uint32_t)(plain[20].images[PIXELS * 3] * 255 + 0.5f)};
    ck_assert_uint_eq(plain[20].after.epoch, 1);
    struct cnn_stream *s = create(CNN_TRAIN, prefetch, threads);
    for (int i = 0; i < 20; i++)
        expect_same(s, &plain[i]);
    for (int i = 0; i < 3; i++) {
        take_batch(s, &b);
        ck_assert_int_eq(b.n, -EIO);
        ck_assert_msg(strstr(cnn_stream_error(s), "of epoch 1 is bad") != NULL, "%s", cnn_stream_error(s));
        ck_assert_mem_eq(&b.after, &plain[19].after, sizeof b.after);
    }
    ck_assert_int_eq(cnn_stream_seek(s, &plain[20].after, NULL), 0);
    for (int i = 21; i < 30; i++)
        expect_same(s, &plain[i]);
    cnn_stream_destroy(s);
}
END_TEST

/* Readers that stop early: before anything, with the queue empty, half full and full, after an end and after
 * an error, and right after a seek. */
START_TEST(a_stream_stops_from_any_state)
{
    struct batch b;
    for (int round = 0; round < 40; round++) {
        struct cnn_stream *s =
            create(round % 2 == 0 ? CNN_TRAIN : CNN_TEST, ways[_i].prefetch, ways[_i].threads);
        for (int i = 0; i < round % 10; i++)
            take_batch(s, &b);
        if (round % 3 == 0)
            ck_assert_int_eq(cnn_stream_seek(s, &(struct cnn_position){0, 3}, NULL), 0);
        if (round % 4 == 0)
            unit_nap_ms(2);
        cnn_stream_destroy(s);
    }
    has_bad = true;
    bad = (struct cnn_image_id){.epoch = 0, .index = 50};
    struct cnn_stream *s = create(CNN_TRAIN, ways[_i].prefetch, ways[_i].threads);
    do
        take_batch(s, &b);
    while (b.n > 0);
    cnn_stream_destroy(s);
}
END_TEST

static double cpu_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* Waits until so many images were made, and no more for a while. */
static void expect_made(unsigned n)
{
    for (double end = unit_now_s() + UNIT_HANG_S; atomic_load(&n_made) < n && unit_now_s() < end;)
        unit_nap_ms(1);
    unit_nap_ms(20); /* on a slow machine a thread too eager may be late; one that is not never fails */
    ck_assert_uint_eq(atomic_load(&n_made), n);
}

/* Waits for a span in which the process takes next to nothing of a cpu. */
static bool falls_asleep(void)
{
    for (double end = unit_now_s() + UNIT_HANG_S; unit_now_s() < end;) {
        double before = cpu_s();
        unit_nap_ms(50);
        if (cpu_s() - before < 0.01)
            return true;
    }
    return false;
}

/* It runs ahead by its depth and no further, and then sleeps. */
START_TEST(the_queue_is_bounded_and_sleeps)
{
    enum { DEPTH = 5 };
    struct batch b;
    struct cnn_stream *s = create(CNN_TRAIN, DEPTH, 3);
    expect_made(DEPTH * BATCH);
    for (unsigned i = 1; i < 4; i++) {
        take_batch(s, &b);
        expect_made((DEPTH + i) * BATCH);
    }
    ck_assert(falls_asleep());
    cnn_stream_destroy(s);
}
END_TEST

START_TEST(bad_options)
{
    static const struct {
        struct cnn_stream_options opt;
        const char *part;
    } rows[] = {
        {{.batch = 0}, "allowed: 1 or more"},
        {{.batch = 1u << 31}, "allowed: 1 to 2147483647"},
        {{.batch = 1, .rank = CNN_MAX_RANKS}, "allowed: 0 to 65535"},
        {{.batch = 1, .prefetch = CNN_MAX_PREFETCH + 1}, "allowed: 0 to 256"},
        {{.batch = 1, .prefetch = 1, .threads = CNN_MAX_DATA_THREADS + 1}, "allowed: 0 to 64"},
        {{.batch = 1, .height = 2, .width = PIXELS}, "allowed: 1x5"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct cnn_stream *s = NULL;
        struct ps_error err = {""};
        ck_assert_int_eq(cnn_stream_create(&spelled, &rows[i].opt, &s, &err), -EINVAL);
        ck_assert_ptr_null(s);
        ck_assert_msg(strstr(err.text, rows[i].part) != NULL, "%s", err.text);
    }
}
END_TEST

/* The bytes and labels of a lent batch are those expected. */
static void check_lent(const struct cnn_batch *lent, const struct batch *expected)
{
    const uint8_t *bytes = lent->images;
    ck_assert_int_eq(lent->pixels, CNN_PIXELS_BYTE);
    ck_assert_uint_eq(lent->n, BATCH);
    for (int i = 0; i < BATCH * PIXELS; i++)
        assert_quick(lent->value_of[0][bytes[i]] == expected->images[i]);
    ck_assert_mem_eq(lent->labels, expected->labels, sizeof expected->labels);
}

/* Batch k, when the threads have made all that they may make beside it. */
static void check_when_full(uint32_t prefetch, int k, const struct batch *expected,
                            const struct cnn_batch *lent)
{
    double end = unit_now_s() + UNIT_HANG_S;
    while (atomic_load(&n_made) < (unsigned)(k + 1 + (int)prefetch) * BATCH && unit_now_s() < end)
        unit_nap_ms(1);
    check_lent(lent, expected);
}

START_TEST(lent_batches_stay_until_the_next)
{
    struct batch expected[12];
    struct cnn_stream *made = create(CNN_TRAIN, 0, 0), *ahead;
    struct cnn_batch lent;
    for (int k = 0; k < 12; k++)
        take_batch(made, &expected[k]);
    ck_assert_int_eq(cnn_stream_seek(made, &(struct cnn_position){0, 0}, NULL), 0);
    ck_assert_int_eq(cnn_stream_borrow(made, &lent), BATCH);
    check_lent(&lent, &expected[0]);
    cnn_stream_destroy(made);
    atomic_store(&n_made, 0);
    ahead = create(CNN_TRAIN, ways[_i].prefetch, ways[_i].threads);
    for (int k = 0; k < 12; k++) {
        ck_assert_int_eq(cnn_stream_borrow(ahead, &lent), BATCH);
        check_when_full(ways[_i].prefetch, k, &expected[k], &lent);
    }
    cnn_stream_destroy(ahead);
}
END_TEST

/* A batch lent ahead is the one that is borrowed next, and stays until the borrow after that. */
START_TEST(batches_are_lent_ahead)
{
    struct batch expected[12];
    struct cnn_batch lent, ahead, early;
    struct cnn_stream *s = create(CNN_TRAIN, 0, 0);
    struct cnn_position at;
    for (int k = 0; k < 12; k++)
        take_batch(s, &expected[k]);
    ck_assert_int_eq(cnn_stream_peek(s, &ahead), 0); /* it makes none ahead */
    cnn_stream_destroy(s);
    atomic_store(&n_made, 0);
    s = create(CNN_TRAIN, ways[_i].prefetch, ways[_i].threads);
    for (int k = 0; k < 11; k++) {
        ck_assert_int_eq(cnn_stream_borrow(s, &lent), BATCH);
        if (k > 0)
            ck_assert(lent.images == early.images && lent.labels == early.labels);
        double end = unit_now_s() + UNIT_HANG_S;
        while (cnn_stream_peek(s, &ahead) == 0 && unit_now_s() < end)
            unit_nap_ms(1);
        check_lent(&ahead, &expected[k + 1]);
        cnn_stream_position(s, &at);
        ck_assert(at.epoch == expected[k].after.epoch && at.index == expected[k].after.index);
        check_when_full(ways[_i].prefetch, k, &expected[k], &lent);
        check_lent(&ahead, &expected[k + 1]);
        early = ahead;
    }
    cnn_stream_destroy(s);
    s = create(CNN_TEST, ways[_i].prefetch, ways[_i].threads);
    ck_assert_int_eq(cnn_stream_borrow(s, &lent), BATCH);
    ck_assert_int_eq(cnn_stream_peek(s, &ahead), 0);
    cnn_stream_destroy(s);
}
END_TEST

/* With one batch ahead, all threads work on that one: its images are waited for by each other, and no thread
 * could make two of them. */
START_TEST(several_threads_make_one_batch)
{
    struct batch expected, got;
    read_plain(CNN_TRAIN, plain);
    expected = plain[0];
    n_meeting = BATCH;
    struct cnn_stream *s = create(CNN_TRAIN, 1, BATCH);
    take_batch(s, &got);
    n_meeting = 0;
    pthread_cond_broadcast(&met);
    ck_assert_int_eq(got.n, BATCH);
    ck_assert_mem_eq(got.images, expected.images, sizeof got.images);
    cnn_stream_destroy(s);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("prefetch");
    tcase_add_checked_fixture(tc, setup, NULL);
    tcase_add_loop_test(tc, training_batches_are_the_same, 0, N_WAYS);
    tcase_add_loop_test(tc, test_batches_are_the_same_and_end, 0, N_WAYS);
    tcase_add_loop_test(tc, a_stream_goes_on_from_any_place, 0, N_WAYS + 1);
    tcase_add_loop_test(tc, lent_batches_stay_until_the_next, 0, N_WAYS);
    tcase_add_loop_test(tc, batches_are_lent_ahead, 0, N_WAYS);
    tcase_add_test(tc, several_threads_make_one_batch);
    tcase_add_test(tc, places_that_are_none);
    tcase_add_test(tc, the_seam_of_two_epochs);
    tcase_add_loop_test(tc, an_error_travels_to_the_reader, 0, N_WAYS + 1);
    tcase_add_loop_test(tc, a_stream_stops_from_any_state, 0, N_WAYS);
    tcase_add_test(tc, the_queue_is_bounded_and_sleeps);
    tcase_add_test(tc, bad_options);
    return run_case(tc, "data_prefetch");
}
