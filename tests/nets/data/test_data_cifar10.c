/* cifar10:DIR against small files, good and hostile ones; and how their images are cut. */
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nets/data/cifar_format.h"
#include "nets/data/data.h"
#include "tests/nets/data/cifar_files.h"
#include "tests/nets/data/suite.h"

enum { N_TRAIN = 5 * CIFAR_PER_FILE, N_TEST = CIFAR_PER_FILE, MAX_PIXELS = 3 * 32 * 32 };

static char dir[64];
static uint8_t bytes[CIFAR_FILE_BYTES + 8];

static void setup(void)
{
    cifar_make_dir(dir);
}

static void teardown(void)
{
    cifar_remove_dir(dir);
}

static void path_of(char out[160], int file)
{
    snprintf(out, 160, "%s/%s", dir, cifar_names[file]);
}

static int open_dir(struct cnn_data **data, struct ps_error *err)
{
    char spec[80];
    snprintf(spec, sizeof spec, "cifar10:%s", dir);
    return cnn_data_open(spec, data, err);
}

static struct cnn_data *open_good(void)
{
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    ck_assert_msg(open_dir(&data, &err) == 0, "%s", err.text);
    return data;
}

static void expect_parts(const char *text, const char *const *parts)
{
    for (; *parts != NULL; parts++)
        ck_assert_msg(strstr(text, *parts) != NULL, "\"%s\" is not in \"%s\"", *parts, text);
}

static void expect_failure(int code, const char *const *parts)
{
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    ck_assert_int_eq(open_dir(&data, &err), code);
    ck_assert_ptr_null(data);
    expect_parts(err.text, parts);
}
#define EXPECT_FAILURE(code, ...) expect_failure(code, (const char *const[]){__VA_ARGS__, NULL})

static void expect_unparsed(size_t len, const char *const *parts)
{
    struct ps_error err = {""};
    uint32_t n = 77;
    ck_assert_int_eq(cnn_cifar_parse(&cnn_cifar_10, "file.bin", bytes, len, &n, &err), -EBADMSG);
    ck_assert_uint_eq(n, 77);
    expect_parts(err.text, parts);
}
#define EXPECT_UNPARSED(len, ...) expect_unparsed(len, (const char *const[]){"file.bin", __VA_ARGS__, NULL})

START_TEST(whole_files_parse)
{
    uint32_t n;
    cifar_fill(0, bytes);
    ck_assert_int_eq(cnn_cifar_parse(&cnn_cifar_10, "file.bin", bytes, CIFAR_FILE_BYTES, &n, NULL), 0);
    ck_assert_uint_eq(n, CIFAR_PER_FILE);
    ck_assert_int_eq(cnn_cifar_parse(&cnn_cifar_10, "file.bin", bytes, 3073, &n, NULL), 0);
    ck_assert_uint_eq(n, 1);
}
END_TEST

START_TEST(other_bytes_do_not)
{
    const size_t too_many = (size_t)CNN_CIFAR_MAX_COUNT * 3073 + 1; /* refused before a byte is looked at */
    cifar_fill(0, bytes);
    EXPECT_UNPARSED(0, "byte 0", "empty", "allowed: images of 3073 bytes");
    EXPECT_UNPARSED(1, "byte 1", "1 bytes into image 0", "allowed: whole images");
    EXPECT_UNPARSED(3072, "byte 3072", "3072 bytes into image 0", "allowed: whole images");
    EXPECT_UNPARSED(3074, "byte 3074", "1 bytes into image 1", "allowed: whole images");
    EXPECT_UNPARSED(CIFAR_FILE_BYTES + 5, "byte 12297", "5 bytes into image 4");
    EXPECT_UNPARSED(too_many, "byte 307300000", "more bytes follow", "allowed: at most 100000 images");
    EXPECT_UNPARSED(SIZE_MAX, "byte 307300000", "more bytes follow");
    bytes[2 * 3073] = 10;
    EXPECT_UNPARSED(CIFAR_FILE_BYTES, "byte 6146", "label 10 of image 2", "allowed: 0 to 9");
    bytes[0] = 255;
    EXPECT_UNPARSED(CIFAR_FILE_BYTES, "byte 0", "label 255 of image 0", "allowed: 0 to 9");
}
END_TEST

START_TEST(a_missing_file)
{
    char path[160];
    path_of(path, _i);
    ck_assert_int_eq(unlink(path), 0);
    EXPECT_FAILURE(-ENOENT, path, "no such file", "allowed: a folder with data_batch_1.bin");
}
END_TEST

START_TEST(something_else_in_place_of_a_file)
{
    char path[160];
    path_of(path, 3);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    EXPECT_FAILURE(-EINVAL, path, "a folder", "allowed: a regular file");
    ck_assert_int_eq(rmdir(path), 0);
    ck_assert_int_eq(mkfifo(path, 0600), 0);
    EXPECT_FAILURE(-EINVAL, path, "a pipe", "allowed: a regular file");
}
END_TEST

START_TEST(a_wrong_file)
{
    char path[160];
    path_of(path, _i);
    cifar_fill((uint32_t)_i, bytes);
    cifar_write(dir, (uint32_t)_i, bytes, CIFAR_FILE_BYTES - 1);
    EXPECT_FAILURE(-EBADMSG, path, "byte 12291", "3072 bytes into image 3");
    cifar_write(dir, (uint32_t)_i, bytes, CIFAR_FILE_BYTES + 1);
    EXPECT_FAILURE(-EBADMSG, path, "byte 12293", "1 bytes into image 4");
    cifar_write(dir, (uint32_t)_i, bytes, 0);
    EXPECT_FAILURE(-EBADMSG, path, "empty");
    bytes[3073] = 10;
    cifar_write(dir, (uint32_t)_i, bytes, CIFAR_FILE_BYTES);
    EXPECT_FAILURE(-EBADMSG, path, "byte 3073", "label 10 of image 1", "allowed: 0 to 9");
}
END_TEST

/* No header tells that images are missing: the other files do. */
START_TEST(a_file_cut_between_two_images)
{
    cifar_fill((uint32_t)_i, bytes);
    cifar_write(dir, (uint32_t)_i, bytes, 2 * 3073);
    EXPECT_FAILURE(-EBADMSG, cifar_names[_i == 0 ? 1 : _i], _i == 0 ? "after 4 images" : "after 2 images",
                   _i == 0 ? "data_batch_1.bin after 2" : "data_batch_1.bin after 4", "as many in each");
}
END_TEST

START_TEST(bad_specs)
{
    static const char *const specs[] = {"cifar10", "cifar10:", "cifar1000:x"};
    struct cnn_data *data;
    struct ps_error err = {""};
    ck_assert_int_eq(cnn_data_open(specs[_i], &data, &err), -EINVAL);
    expect_parts(err.text, (const char *const[]){"allowed: ", "cifar10:DIR", NULL});
}
END_TEST

/* An image that a stream gave, taken back to bytes and to the place it was cut from. */
struct seen {
    uint32_t image; /* among all of the six files */
    int top, left;  /* -4 to 8 */
    bool mirrored;
};

static int byte_of(float v, uint32_t channel)
{
    static const float mean[] = {0.4914f, 0.4822f, 0.4465f}, deviation[] = {0.2470f, 0.2435f, 0.2616f};
    float byte = (v * deviation[channel] + mean[channel]) * 255.0f;
    return fabsf(byte - roundf(byte)) < 1e-3f ? (int)roundf(byte) : -1; /* exact, but for rounding */
}

/* Every pixel must be what the files have at that place, or black beyond their edge. */
static struct seen look(const float *image, uint32_t side)
{
    uint32_t plane = side * side, middle = side / 2 * side + side / 2;
    int row = (byte_of(image[middle], 0) - 5) / 7, column = (byte_of(image[plane + middle], 1) - 5) / 7;
    struct seen s = {.image = (uint32_t)byte_of(image[2 * plane + middle], 2) - 100};
    s.mirrored = byte_of(image[plane + middle + 1], 1) < byte_of(image[plane + middle], 1);
    s.top = row - (int)(side / 2);
    s.left = s.mirrored ? column - (int)(side - 1 - side / 2) : column - (int)(side / 2);
    uint32_t n_wrong = 0; /* one assertion for an image: each costs a microsecond */
    for (uint32_t k = 0; k < 3 * plane; k++) {
        uint32_t c = k / plane, x = k % side;
        int y = s.top + (int)(k % plane / side), at = s.left + (int)(s.mirrored ? side - 1 - x : x);
        bool outside = y < 0 || y > 31 || at < 0 || at > 31;
        int expected = outside ? 0
                               : cifar_pixel(s.image / CIFAR_PER_FILE, s.image % CIFAR_PER_FILE, c,
                                             (uint32_t)y, (uint32_t)at);
        n_wrong += byte_of(image[k], c) != expected;
    }
    ck_assert_uint_eq(n_wrong, 0);
    return s;
}

static struct cnn_stream *stream(const struct cnn_data *data, enum cnn_split split, uint64_t seed,
                                 uint32_t rank, uint32_t side)
{
    struct cnn_stream *s;
    struct cnn_stream_options opt = {
        .split = split, .seed = seed, .rank = rank, .batch = 1, .height = side, .width = side};
    ck_assert_int_eq(cnn_stream_create(data, &opt, &s, NULL), 0);
    return s;
}

START_TEST(test_images_are_the_middle)
{
    static const uint32_t sides[] = {32, 28, 0};
    uint32_t side = sides[_i] == 0 ? 32 : sides[_i];
    static float image[MAX_PIXELS];
    uint16_t label;
    struct cnn_data *data = open_good();
    struct cnn_data_info info;
    cnn_data_get_info(data, &info);
    ck_assert_str_eq(info.name, "cifar10");
    ck_assert_uint_eq(info.n_train, N_TRAIN);
    ck_assert_uint_eq(info.n_test, N_TEST);
    ck_assert_uint_eq(info.channels * info.height * info.width, MAX_PIXELS);
    ck_assert_uint_eq(info.classes, 10);
    struct cnn_stream *s = stream(data, CNN_TEST, 0, 0, sides[_i]);
    for (uint32_t i = 0; i < N_TEST; i++) {
        ck_assert_int_eq(cnn_stream_next(s, image, &label), 1);
        struct seen seen = look(image, side);
        ck_assert_uint_eq(seen.image, N_TRAIN + i);
        ck_assert_uint_eq(label, cifar_label(5, i));
        ck_assert_int_eq(seen.top, (32 - (int)side) / 2);
        ck_assert_int_eq(seen.left, (32 - (int)side) / 2);
        ck_assert(!seen.mirrored);
    }
    ck_assert_int_eq(cnn_stream_next(s, image, &label), 0);
    cnn_stream_destroy(s);
    cnn_data_close(data);
}
END_TEST

/* Every place and both ways round come about equally often. */
START_TEST(training_images_are_cut_anywhere)
{
    const uint32_t side = _i == 0 ? 28 : 32;
    const int lowest = _i == 0 ? 0 : -4, places = _i == 0 ? 5 : 9, epochs = 150;
    static float image[MAX_PIXELS];
    int of_top[9] = {0}, of_left[9] = {0}, of_both[81] = {0}, mirrored = 0, n = epochs * N_TRAIN;
    uint16_t label;
    struct cnn_data *data = open_good();
    struct cnn_stream *s = stream(data, CNN_TRAIN, 1, 0, side);
    for (int i = 0; i < n; i++) {
        ck_assert_int_eq(cnn_stream_next(s, image, &label), 1);
        struct seen seen = look(image, side);
        ck_assert_uint_eq(label, seen.image % 10);
        ck_assert_int_ge(seen.top, lowest);
        ck_assert_int_lt(seen.top, lowest + places);
        ck_assert_int_ge(seen.left, lowest);
        ck_assert_int_lt(seen.left, lowest + places);
        of_top[seen.top - lowest]++;
        of_left[seen.left - lowest]++;
        of_both[(seen.top - lowest) * places + seen.left - lowest]++;
        mirrored += seen.mirrored;
    }
    double p = 1.0 / places, most = 5 * sqrt(n * p * (1 - p)); /* five standard deviations */
    for (int k = 0; k < places; k++) {
        ck_assert_double_eq_tol(of_top[k], n * p, most);
        ck_assert_double_eq_tol(of_left[k], n * p, most);
    }
    for (int k = 0; k < places * places; k++)
        ck_assert_int_gt(of_both[k], 0);
    ck_assert_double_eq_tol(mirrored, n * 0.5, 5 * sqrt(n * 0.25));
    cnn_stream_destroy(s);
    cnn_data_close(data);
}
END_TEST

/* The cuts of epoch `epoch`, by image. */
static void read_cuts(uint64_t seed, uint32_t rank, uint64_t epoch, struct seen cuts[N_TRAIN])
{
    static float image[MAX_PIXELS];
    uint16_t label;
    struct cnn_data *data = open_good();
    struct cnn_stream *s = stream(data, CNN_TRAIN, seed, rank, 28);
    ck_assert_int_eq(cnn_stream_seek(s, &(struct cnn_position){.epoch = epoch}, NULL), 0);
    memset(cuts, 0, N_TRAIN * sizeof *cuts);
    for (int i = 0; i < N_TRAIN; i++) {
        ck_assert_int_eq(cnn_stream_next(s, image, &label), 1);
        struct seen seen = look(image, 28);
        cuts[seen.image].image = seen.image;
        cuts[seen.image].top = seen.top;
        cuts[seen.image].left = seen.left;
        cuts[seen.image].mirrored = seen.mirrored;
    }
    cnn_stream_destroy(s);
    cnn_data_close(data);
}

START_TEST(cuts_depend_on_seed_rank_epoch_and_image)
{
    struct seen a[N_TRAIN], b[N_TRAIN];
    read_cuts(3, 1, 2, a);
    read_cuts(3, 1, 2, b);
    ck_assert_mem_eq(a, b, sizeof a);
    read_cuts(4, 1, 2, b);
    ck_assert_mem_ne(a, b, sizeof a);
    read_cuts(3, 2, 2, b);
    ck_assert_mem_ne(a, b, sizeof a);
    read_cuts(3, 1, 3, b);
    ck_assert_mem_ne(a, b, sizeof a);
    bool same = true;
    for (int i = 1; i < N_TRAIN; i++)
        same = same && a[i].top == a[0].top && a[i].left == a[0].left;
    ck_assert(!same);
}
END_TEST

/* Stored images and their cuts, of either split, size and number of threads: the images that the stream would
 * cut. */
START_TEST(cuts_left_to_the_net_are_the_same)
{
    enum { BATCH = 3 };
    static float images[2][BATCH * MAX_PIXELS];
    uint16_t labels[2][BATCH];
    struct cnn_data *data = open_good();
    struct cnn_stream *s[2];
    struct cnn_batch lent;
    struct ps_error err = {""};
    struct cnn_stream_options opt = {.split = _i % 2 == 0 ? CNN_TRAIN : CNN_TEST,
                                     .seed = 3,
                                     .batch = BATCH,
                                     .height = _i < 4 ? 28 : 32,
                                     .width = _i < 4 ? 28 : 32,
                                     .prefetch = _i / 2 % 2 == 0 ? 0 : 2};
    for (int k = 0; k < 2; k++) {
        opt.leaves_cuts = k == 1;
        ck_assert_msg(cnn_stream_create(data, &opt, &s[k], &err) == 0, "%s", err.text);
    }
    for (int batch = 0; batch < (opt.split == CNN_TRAIN ? 30 : 2); batch++) {
        int n = cnn_stream_next(s[0], images[0], labels[0]);
        ck_assert_int_gt(n, 0);
        ck_assert_int_eq(cnn_stream_next(s[1], images[1], labels[1]), n);
        ck_assert_mem_eq(images[0], images[1], sizeof images[0]);
        ck_assert_mem_eq(labels[0], labels[1], (size_t)n * sizeof labels[0][0]);
    }
    cnn_stream_seek(s[1], &(struct cnn_position){0, 0}, NULL);
    ck_assert_int_gt(cnn_stream_borrow(s[1], &lent), 0);
    ck_assert(lent.cuts != NULL && lent.stored_height == 32 && lent.stored_width == 32);
    for (int k = 0; k < 2; k++)
        cnn_stream_destroy(s[k]);
    cnn_data_close(data);
}
END_TEST

START_TEST(other_sizes_are_named)
{
    static const uint32_t sizes[][2] = {{20, 20}, {28, 32}, {0, 32}, {33, 33}, {40, 40}};
    struct cnn_data *data = open_good();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct cnn_stream *s = NULL;
        struct ps_error err = {""};
        struct cnn_stream_options opt = {.batch = 1, .height = sizes[i][0], .width = sizes[i][1]};
        ck_assert_int_eq(cnn_stream_create(data, &opt, &s, &err), -EINVAL);
        ck_assert_ptr_null(s);
        expect_parts(err.text, (const char *const[]){"cifar10", "allowed: 32x32 or 28x28", NULL});
    }
    cnn_data_close(data);
}
END_TEST

START_TEST(models_fit_by_channels_size_and_classes)
{
    struct cnn_data *data = open_good();
    struct ps_error err = {""};
    struct cnn_model m = {.name = "m", .channels = 3, .height = 28, .width = 28, .classes = 10};
    ck_assert_int_eq(cnn_data_fits(data, &m, &err), 0);
    m.height = m.width = 32;
    m.classes = 100;
    ck_assert_int_eq(cnn_data_fits(data, &m, &err), 0);
    m.classes = 9;
    ck_assert_int_eq(cnn_data_fits(data, &m, &err), -EINVAL);
    expect_parts(err.text, (const char *const[]){"cifar10", "10 classes", "at most 9 classes", NULL});
    ck_assert_int_eq(cnn_data_fits(data, cnn_model_find("lenet"), &err), -EINVAL);
    expect_parts(err.text,
                 (const char *const[]){"3 channels", "32x32 or 28x28", "net lenet: 1 channels", NULL});
    cnn_data_close(data);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("cifar10");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, whole_files_parse);
    tcase_add_test(tc, other_bytes_do_not);
    tcase_add_loop_test(tc, a_missing_file, 0, CIFAR_N_FILES);
    tcase_add_test(tc, something_else_in_place_of_a_file);
    tcase_add_loop_test(tc, a_wrong_file, 0, CIFAR_N_FILES);
    tcase_add_loop_test(tc, a_file_cut_between_two_images, 0, CIFAR_N_FILES);
    tcase_add_loop_test(tc, bad_specs, 0, 3);
    tcase_add_loop_test(tc, test_images_are_the_middle, 0, 3);
    tcase_add_loop_test(tc, training_images_are_cut_anywhere, 0, 2);
    tcase_add_test(tc, cuts_depend_on_seed_rank_epoch_and_image);
    tcase_add_loop_test(tc, cuts_left_to_the_net_are_the_same, 0, 8);
    tcase_add_test(tc, other_sizes_are_named);
    tcase_add_test(tc, models_fit_by_channels_size_and_classes);
    return run_case(tc, "data_cifar10");
}
