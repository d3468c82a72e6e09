/* cifar100:DIR: the two binary files, or folders of small images, are the same set; and what is refused. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/data/dataset.h"
#include "tests/nets/data/image_files.h"
#include "tests/nets/data/suite.h"

enum { RECORD = 2 + 3072, N = 5 };

/* Image i is of class i and of one colour, (10 i, 7, 200). */
static void fill(uint8_t *records)
{
    for (uint32_t i = 0; i < N; i++) {
        uint8_t *r = records + i * RECORD;
        r[0] = 19;
        r[1] = (uint8_t)i;
        memset(r + 2, (int)(10 * i), 1024);
        memset(r + 2 + 1024, 7, 1024);
        memset(r + 2 + 2048, 200, 1024);
    }
}

static int open_set(struct cnn_data **data, struct ps_error *err)
{
    char spec[128];
    snprintf(spec, sizeof spec, "cifar100:%s", image_folder());
    return cnn_data_open(spec, data, err);
}

static void expect_set(uint32_t classes)
{
    static uint8_t pixels[3072];
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    ck_assert_msg(open_set(&data, &err) == 0, "%s", err.text);
    ck_assert(data->info.classes == classes && data->info.n_train == N && data->info.n_test == N);
    ck_assert(data->info.height == 32 && data->info.channels == 3);
    for (uint32_t i = 0; i < 2 * N; i++) {
        struct cnn_image_id id = {.split = i < N ? CNN_TRAIN : CNN_TEST, .index = i % N};
        uint16_t label;
        ck_assert_int_eq(data->type->image(data->self, &id, pixels, &label, NULL), 0);
        ck_assert_uint_eq(label, i % N);
        ck_assert(pixels[0] == 10 * (i % N) && pixels[1023] == pixels[0] && pixels[1024] == 7 &&
                  pixels[3071] == 200);
    }
    cnn_data_close(data);
}

static void expect_refused(int rc, const char *part)
{
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    ck_assert_int_eq(open_set(&data, &err), rc);
    assert_says(err.text, part);
}

START_TEST(the_binary_version)
{
    static uint8_t records[N * RECORD];
    fill(records);
    write_file("train.bin", records, sizeof records);
    expect_refused(-ENOENT, "test.bin: no such file; allowed: a folder with train.bin and test.bin");
    write_file("test.bin", records, sizeof records);
    expect_set(100);
    records[RECORD + 1] = 100;
    write_file("test.bin", records, sizeof records);
    expect_refused(-EBADMSG, "test.bin: byte 3075: label 100 of image 1; allowed: 0 to 99");
    write_file("test.bin", records, 4000);
    expect_refused(
        -EBADMSG, "test.bin: byte 4000: the file ends 926 bytes into image 1; allowed: whole images of 3074");
}
END_TEST

START_TEST(folders_of_small_images)
{
    char path[64];
    for (uint32_t i = 0; i < 2 * N; i++) {
        snprintf(path, sizeof path, "%s/%c/1.png", i < N ? "train" : "test", 'a' + (int)(i % N));
        write_image(path, flat_png(32, 32, (uint8_t[]){(uint8_t)(10 * (i % N)), 7, 200}));
    }
    expect_set(N);
    write_image("train/b/2.png", flat_png(33, 32, (uint8_t[]){1, 2, 3}));
    expect_refused(-EBADMSG, "train/b/2.png: an image of 33 x 32 pixels; allowed: 32 x 32");
    write_file("train/b/2.png", "text", 4);
    expect_refused(-EBADMSG, "train/b/2.png: byte 0: neither a JPEG nor a PNG file");
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("cifar100");
    tcase_add_checked_fixture(tc, NULL, image_folder_remove);
    tcase_add_test(tc, the_binary_version);
    tcase_add_test(tc, folders_of_small_images);
    return run_case(tc, "data_cifar100");
}
