/* mnist:DIR against small files, good and hostile ones. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "nets/data/data.h"
#include "tests/nets/data/suite.h"

enum { PIXELS = 28 * 28, N_TRAIN = 5, N_TEST = 3 };

static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                    "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

static char dir[64];

struct bytes {
    uint8_t *at;
    size_t len;
};

static void path_of(char out[160], const char *name, const char *ending)
{
    snprintf(out, 160, "%s/%s%s", dir, name, ending);
}

static void put_word(uint8_t *at, uint32_t v)
{
    at[0] = (uint8_t)(v >> 24);
    at[1] = (uint8_t)(v >> 16);
    at[2] = (uint8_t)(v >> 8);
    at[3] = (uint8_t)v;
}

static uint8_t pixel(uint32_t image, uint32_t k)
{
    return (uint8_t)(image * 37 + k);
}

/* File number `f` of the four, as it should be. */
static struct bytes good_file(int f)
{
    uint32_t n = f < 2 ? N_TRAIN : N_TEST;
    bool images = f % 2 == 0;
    struct bytes b = {.len = images ? 16 + n * PIXELS : 8 + n};
    b.at = malloc(b.len);
    ck_assert_ptr_nonnull(b.at);
    put_word(b.at, images ? 0x803 : 0x801);
    put_word(b.at + 4, n);
    if (images) {
        put_word(b.at + 8, 28);
        put_word(b.at + 12, 28);
    }
    for (uint32_t i = 0; i < n; i++)
        if (images)
            for (uint32_t k = 0; k < PIXELS; k++)
                b.at[16 + i * PIXELS + k] = pixel(i, k);
        else
            b.at[8 + i] = (uint8_t)(9 - i);
    return b;
}

static void write_plain(const char *name, struct bytes b)
{
    char path[160];
    path_of(path, name, "");
    FILE *f = fopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_uint_eq(fwrite(b.at, 1, b.len, f), b.len);
    ck_assert_int_eq(fclose(f), 0);
}

static void write_gz(const char *name, struct bytes b)
{
    char path[160];
    path_of(path, name, ".gz");
    gzFile f = gzopen(path, "wb");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(gzwrite(f, b.at, (unsigned)b.len), (int)b.len);
    ck_assert_int_eq(gzclose(f), Z_OK);
}

static void setup(void)
{
    strcpy(dir, "/tmp/psd-test-idx-XXXXXX");
    ck_assert_ptr_nonnull(mkdtemp(dir));
    for (int f = 0; f < 4; f++) {
        struct bytes b = good_file(f);
        write_plain(names[f], b);
        free(b.at);
    }
}

static void teardown(void)
{
    char path[160];
    for (int f = 0; f < 4; f++) {
        path_of(path, names[f], "");
        unlink(path);
        rmdir(path);
        path_of(path, names[f], ".gz");
        unlink(path);
    }
    rmdir(dir);
}

static int open_dir(struct cnn_data **data, struct ps_error *err)
{
    char spec[80];
    snprintf(spec, sizeof spec, "mnist:%s", dir);
    return cnn_data_open(spec, data, err);
}

/* Opening fails with `code` and a sentence that has every one of the parts, NULL-ended. */
static void expect_failure(int code, const char *const *parts)
{
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    ck_assert_int_eq(open_dir(&data, &err), code);
    ck_assert_ptr_null(data);
    for (; *parts != NULL; parts++)
        ck_assert_msg(strstr(err.text, *parts) != NULL, "\"%s\" is not in \"%s\"", *parts, err.text);
}
#define EXPECT_FAILURE(code, ...) expect_failure(code, (const char *const[]){__VA_ARGS__, NULL})

static void expect_good(void)
{
    static float images[N_TEST * PIXELS];
    uint16_t labels[N_TEST];
    struct cnn_data *data;
    struct cnn_data_info info;
    struct cnn_stream *s;
    struct ps_error err = {""};
    ck_assert_msg(open_dir(&data, &err) == 0, "%s", err.text);
    cnn_data_get_info(data, &info);
    ck_assert_str_eq(info.name, "mnist");
    ck_assert_uint_eq(info.n_train, N_TRAIN);
    ck_assert_uint_eq(info.n_test, N_TEST);
    ck_assert_uint_eq(info.classes, 10);
    ck_assert_uint_eq(info.channels * info.height * info.width, PIXELS);

    ck_assert_int_eq(
        cnn_stream_create(data, &(struct cnn_stream_options){.split = CNN_TEST, .batch = N_TEST}, &s, NULL),
        0);
    ck_assert_uint_eq(cnn_stream_next(s, images, labels), N_TEST);
    for (uint32_t i = 0; i < N_TEST; i++) {
        ck_assert_uint_eq(labels[i], 9 - i);
        for (uint32_t k = 0; k < PIXELS; k++)
            ck_assert_float_eq(images[i * PIXELS + k], ((float)pixel(i, k) / 255.0f - 0.1307f) / 0.3081f);
    }
    ck_assert_uint_eq(cnn_stream_next(s, images, labels), 0);
    cnn_stream_destroy(s);
    cnn_data_close(data);
}

START_TEST(plain_files)
{
    expect_good();
}
END_TEST

START_TEST(gz_files)
{
    char path[160];
    for (int f = 0; f < 4; f++) {
        struct bytes b = good_file(f);
        path_of(path, names[f], "");
        ck_assert_int_eq(unlink(path), 0);
        write_gz(names[f], b);
        free(b.at);
    }
    expect_good();
}
END_TEST

START_TEST(a_missing_file)
{
    char path[160];
    path_of(path, names[_i], "");
    ck_assert_int_eq(unlink(path), 0);
    EXPECT_FAILURE(-ENOENT, names[_i], "no such file");
}
END_TEST

START_TEST(a_folder_in_place_of_a_file)
{
    char path[160];
    path_of(path, names[0], "");
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_int_eq(mkdir(path, 0700), 0);
    struct cnn_data *data;
    struct ps_error err = {""};
    ck_assert_int_lt(open_dir(&data, &err), 0);
    ck_assert_ptr_nonnull(strstr(err.text, names[0]));
}
END_TEST

/* Every length short of the whole is an error, whatever was cut. */
START_TEST(a_truncated_file)
{
    for (int f = 0; f < 4; f++) {
        struct bytes b = good_file(f);
        size_t cuts[] = {0, 3, 4, 7, 8, 12, 15, b.len / 2, b.len - 1};
        for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++)
            if (cuts[i] < b.len) {
                char place[64];
                snprintf(place, sizeof place, "byte %zu: the file ends", cuts[i]);
                write_plain(names[f], (struct bytes){b.at, cuts[i]});
                EXPECT_FAILURE(-EBADMSG, names[f], place);
            }
        write_plain(names[f], b);
        free(b.at);
    }
}
END_TEST

START_TEST(a_wrong_magic_number)
{
    struct bytes b = good_file(0);
    put_word(b.at, 0x801);
    write_plain(names[0], b);
    EXPECT_FAILURE(-EBADMSG, names[0], "byte 0", "0x00000801", "allowed: 0x00000803");
    free(b.at);
}
END_TEST

START_TEST(wrong_dimensions)
{
    struct bytes b = good_file(2);
    put_word(b.at + 12, 27);
    write_plain(names[2], b);
    EXPECT_FAILURE(-EBADMSG, names[2], "byte 12", "27", "allowed: 28");
    free(b.at);
}
END_TEST

START_TEST(counts_beyond_all_bounds)
{
    static const uint32_t counts[] = {0, 0xffffffff, 0x80000000, 1000001};
    struct bytes b = good_file(0);
    put_word(b.at + 4, counts[_i]);
    write_plain(names[0], b);
    EXPECT_FAILURE(-EBADMSG, names[0], "byte 4", "allowed: 1 to 1000000");
    free(b.at);
}
END_TEST

START_TEST(a_count_beyond_the_file)
{
    struct bytes b = good_file(0);
    put_word(b.at + 4, 1000000);
    write_plain(names[0], b);
    EXPECT_FAILURE(-EBADMSG, names[0], "the file ends");
    free(b.at);
}
END_TEST

START_TEST(bytes_after_the_end)
{
    struct bytes b = good_file(0);
    put_word(b.at + 4, N_TRAIN - 1);
    write_plain(names[0], b);
    EXPECT_FAILURE(-EBADMSG, names[0], "byte 3152", "more bytes follow");
    free(b.at);
}
END_TEST

START_TEST(fewer_labels_than_images)
{
    struct bytes b = good_file(1);
    put_word(b.at + 4, N_TRAIN - 1);
    write_plain(names[1], (struct bytes){b.at, b.len - 1});
    EXPECT_FAILURE(-EBADMSG, "5 images", "4 labels");
    free(b.at);
}
END_TEST

START_TEST(a_label_out_of_range)
{
    struct bytes b = good_file(3);
    b.at[8 + 2] = 10;
    write_plain(names[3], b);
    EXPECT_FAILURE(-EBADMSG, names[3], "byte 10", "label 10", "allowed: 0 to 9");
    free(b.at);
}
END_TEST

/* Any cut and any flipped byte of a .gz file is noticed: by the format or by its checksum. */
START_TEST(damaged_gz_files)
{
    char path[160], plain[160];
    struct bytes b = good_file(0), packed = {malloc(65536), 0};
    ck_assert_ptr_nonnull(packed.at);
    path_of(plain, names[0], "");
    ck_assert_int_eq(unlink(plain), 0);
    write_gz(names[0], b);
    free(b.at);
    path_of(path, names[0], ".gz");
    FILE *f = fopen(path, "rb");
    ck_assert_ptr_nonnull(f);
    packed.len = fread(packed.at, 1, 65536, f);
    fclose(f);

    for (size_t i = 0; i < packed.len; i++) {
        bool header = i < 10; /* bytes that gzip itself does not protect, such as the time */
        if (!header) {
            packed.at[i] ^= 0x5a;
            f = fopen(path, "wb");
            fwrite(packed.at, 1, packed.len, f);
            fclose(f);
            struct cnn_data *data;
            ck_assert_int_lt(open_dir(&data, NULL), 0);
            packed.at[i] ^= 0x5a;
        }
        f = fopen(path, "wb");
        fwrite(packed.at, 1, i, f);
        fclose(f);
        struct cnn_data *data;
        ck_assert_int_lt(open_dir(&data, NULL), 0);
    }
    free(packed.at);
}
END_TEST

START_TEST(bad_specs)
{
    static const char *const specs[] = {
        "mnist",   "mnist:",   "imagenet",  "",          ":",
        "digits:", "digits:x", "digits:-1", "digits:1x", "digits:99999999999999999999"};
    struct cnn_data *data;
    struct ps_error err = {""};
    ck_assert_int_eq(cnn_data_open(specs[_i], &data, &err), -EINVAL);
    ck_assert_msg(strstr(err.text, "allowed: ") != NULL, "%s", err.text);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("idx");
    tcase_add_checked_fixture(tc, setup, teardown);
    tcase_add_test(tc, plain_files);
    tcase_add_test(tc, gz_files);
    tcase_add_loop_test(tc, a_missing_file, 0, 4);
    tcase_add_test(tc, a_folder_in_place_of_a_file);
    tcase_add_test(tc, a_truncated_file);
    tcase_add_test(tc, a_wrong_magic_number);
    tcase_add_test(tc, wrong_dimensions);
    tcase_add_loop_test(tc, counts_beyond_all_bounds, 0, 4);
    tcase_add_test(tc, a_count_beyond_the_file);
    tcase_add_test(tc, bytes_after_the_end);
    tcase_add_test(tc, fewer_labels_than_images);
    tcase_add_test(tc, a_label_out_of_range);
    tcase_add_test(tc, damaged_gz_files);
    tcase_add_loop_test(tc, bad_specs, 0, 10);
    return run_case(tc, "data_idx");
}
