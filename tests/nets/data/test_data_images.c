/* images:DIR: which files are which images, what of them the net sees, and what becomes of bad ones. */
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "nets/data/dataset.h"
#include "nets/data/images/images.h"
#include "tests/nets/data/image_files.h"
#include "tests/nets/data/suite.h"

static const uint8_t red[3] = {200, 20, 10}, green[3] = {10, 180, 30}, blue[3] = {20, 30, 220};

static int open_set(const char *view, uint32_t max_damaged, struct cnn_data **out, struct ps_error *err)
{
    char spec[128];
    struct cnn_data_options opt = {.view = view, .max_damaged = max_damaged};
    snprintf(spec, sizeof spec, "images:%s", image_folder());
    return cnn_data_open_with(spec, &opt, out, err);
}

static struct cnn_data *open_well(const char *view, uint32_t max_damaged)
{
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    ck_assert_msg(open_set(view, max_damaged, &data, &err) == 0, "%s", err.text);
    return data;
}

static struct cnn_stream *stream_of(const struct cnn_data *data, enum cnn_split split, uint32_t batch,
                                    uint32_t side, uint32_t threads)
{
    struct cnn_stream *s = NULL;
    struct ps_error err = {""};
    struct cnn_stream_options opt = {.split = split,
                                     .seed = 3,
                                     .rank = 1,
                                     .batch = batch,
                                     .height = side,
                                     .width = side,
                                     .prefetch = threads > 0 ? 3 : 0,
                                     .threads = threads};
    ck_assert_msg(cnn_stream_create(data, &opt, &s, &err) == 0, "%s", err.text);
    return s;
}

/* Two classes of one colour each, enough for a test set to be held out. */
static void write_classes(uint32_t n)
{
    char path[64];
    for (uint32_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "warm/%02u.jpg", i);
        write_image(path, flat_jpeg(40 + i, 30, red));
        snprintf(path, sizeof path, "cold/%02u.png", i);
        write_image(path, flat_png(30, 40 + i, blue));
    }
}

static bool is_near(const uint8_t *pixel, const uint8_t colour[3])
{
    for (int c = 0; c < 3; c++)
        if (abs(pixel[c] - colour[c]) > 4) /* what JPEG does to a flat colour */
            return false;
    return true;
}

START_TEST(folders_are_classes_in_the_order_of_their_names)
{
    struct cnn_data_info info;
    struct cnn_batch b;
    write_image("train/dog/1.jpg", flat_jpeg(20, 20, red));
    write_image("train/cat/9.JPEG", flat_jpeg(20, 20, green));
    write_image("train/cat/deep/er.png", flat_png(20, 20, green));
    write_image("train/ant/x.png", flat_png(20, 20, blue));
    write_image("val/dog/1.jpg", flat_jpeg(20, 20, red));
    write_image("test/ant/1.jpg", flat_jpeg(20, 20, blue));
    write_file("train/cat/notes.txt", "no image", 8);
    write_file("LICENSE", "none", 4);
    struct cnn_data *data = open_well(NULL, 0);
    cnn_data_get_info(data, &info);
    ck_assert_str_eq(info.name, "images");
    ck_assert(info.channels == 3 && info.height == 0 && info.classes == 3);
    ck_assert_uint_eq(info.n_train, 4);
    ck_assert_uint_eq(info.n_test, 2);
    struct cnn_stream *s = stream_of(data, CNN_TRAIN, 4, 16, 0);
    ck_assert_int_eq(cnn_stream_borrow(s, &b), 4);
    ck_assert(b.is_hwc && b.pixels == CNN_PIXELS_BYTE);
    for (int i = 0; i < 4; i++)
        ck_assert(is_near((const uint8_t *)b.images + i * 16 * 16 * 3, b.labels[i] == 0   ? blue
                                                                       : b.labels[i] == 1 ? green
                                                                                          : red));
    cnn_stream_destroy(s);
    cnn_data_close(data);
}
END_TEST

START_TEST(without_test_folders_every_tenth_image_is_held_out)
{
    struct cnn_data_info info;
    struct cnn_batch b;
    write_classes(25);
    struct cnn_data *data = open_well(NULL, 0);
    cnn_data_get_info(data, &info);
    ck_assert_uint_eq(info.n_train, 46);
    ck_assert_uint_eq(info.n_test, 4);
    struct cnn_stream *s = stream_of(data, CNN_TEST, 10, 16, 0);
    ck_assert_int_eq(cnn_stream_borrow(s, &b), 4);
    ck_assert(b.labels[0] == 0 && b.labels[1] == 0 && b.labels[2] == 1 && b.labels[3] == 1);
    ck_assert_int_eq(cnn_stream_borrow(s, &b), 0);
    cnn_stream_destroy(s);
    cnn_data_close(data);
}
END_TEST

static void expect_refused(int rc, const char *part)
{
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    ck_assert_int_eq(open_set(NULL, 0, &data, &err), rc);
    ck_assert_ptr_null(data);
    assert_says(err.text, part);
}

START_TEST(folders_that_are_no_set)
{
    expect_refused(-EBADMSG, "no training images; allowed: JPEG and PNG files in CLASS/ or train/CLASS/");
    write_image("train/a/1.jpg", flat_jpeg(8, 8, red));
    expect_refused(-EBADMSG, "1 class; allowed: 2 to");
    write_image("train/b/1.jpg", flat_jpeg(8, 8, red));
    write_image("val/c/1.jpg", flat_jpeg(8, 8, red));
    expect_refused(-EBADMSG, "val/c/1.jpg: a test image of a class that has no training images");
}
END_TEST

/* As in ImageNet's own archives, whose test images are not in folders: they are no further class. */
START_TEST(images_beside_the_splits_are_refused)
{
    write_image("train/a/1.jpg", flat_jpeg(8, 8, red));
    write_image("train/b/1.jpg", flat_jpeg(8, 8, green));
    write_image("val/1.jpg", flat_jpeg(8, 8, red));
    expect_refused(-EBADMSG, "1.jpg is in train/CLASS/, val/CLASS/ or test/CLASS/, and val/1.jpg is not; "
                             "allowed: all images, or none");
}
END_TEST

START_TEST(a_class_is_one_folder)
{
    write_image("left/train/a/1.jpg", flat_jpeg(8, 8, red));
    write_image("left/train/b/1.jpg", flat_jpeg(8, 8, red));
    write_image("right/train/a/1.jpg", flat_jpeg(8, 8, red));
    expect_refused(-EBADMSG, "two classes with the same name: left/train/a and right/train/a");
}
END_TEST

START_TEST(an_image_lies_in_a_folder)
{
    write_image("1.jpg", flat_jpeg(8, 8, red));
    expect_refused(-EBADMSG, "1.jpg: an image outside a class folder");
}
END_TEST

/* No class: its name has no number, and nobody waits for its images. */
START_TEST(an_empty_folder_is_no_class)
{
    struct cnn_data_info info;
    char path[128];
    write_classes(2);
    snprintf(path, sizeof path, "%s/middle", image_folder());
    ck_assert_int_eq(mkdir(path, 0777), 0);
    struct cnn_data *data = open_well(NULL, 0);
    cnn_data_get_info(data, &info);
    ck_assert_uint_eq(info.classes, 2);
    cnn_data_close(data);
}
END_TEST

/* A link to a name that no file system has cannot be looked up, by root neither; a dangling link, or one to
 * itself, is no image. */
START_TEST(a_link_that_cannot_be_looked_up_is_an_error)
{
    struct cnn_data_info info;
    char path[128], name[400];
    write_classes(2);
    snprintf(path, sizeof path, "%s/warm/dangling.jpg", image_folder());
    ck_assert_int_eq(symlink("nowhere.jpg", path), 0);
    snprintf(path, sizeof path, "%s/warm/loop.jpg", image_folder());
    ck_assert_int_eq(symlink("loop.jpg", path), 0);
    struct cnn_data *data = open_well(NULL, 0);
    cnn_data_get_info(data, &info);
    ck_assert_uint_eq(info.n_train, 4);
    cnn_data_close(data);
    memset(name, 'n', sizeof name);
    name[sizeof name - 1] = '\0';
    snprintf(path, sizeof path, "%s/warm/long.jpg", image_folder());
    ck_assert_int_eq(symlink(name, path), 0);
    expect_refused(-ENAMETOOLONG, "/warm/long.jpg: cannot be read: File name too long");
}
END_TEST

/* Whose names can be listed, but not its files: as one of its user's whose modes were copied wrongly. In a
 * child, because root reads everything. */
START_TEST(a_class_that_cannot_be_searched_is_an_error)
{
    char path[128];
    int status = 1;
    write_classes(2);
    write_image("third/1.jpg", flat_jpeg(8, 8, green));
    snprintf(path, sizeof path, "%s/third", image_folder());
    ck_assert_int_eq(chmod(path, 0444), 0);
    ck_assert_int_eq(chmod(image_folder(), 0755), 0);
    if (fork() == 0) {
        struct cnn_data *data = NULL;
        struct ps_error err = {""};
        if (geteuid() == 0 && setuid(65534) != 0)
            _exit(2);
        bool is_right = open_set(NULL, 0, &data, &err) == -EACCES &&
                        strstr(err.text, "/third/1.jpg: cannot be read: Permission denied") != NULL;
        _exit(is_right ? 0 : 3);
    }
    ck_assert_int_gt(wait(&status), 0);
    ck_assert_int_eq(chmod(path, 0755), 0); /* to be removed */
    ck_assert_int_eq(status, 0);
}
END_TEST

/* Pixel (x, y) is (x, y, 7). */
static struct file_bytes map_png(uint32_t width, uint32_t height)
{
    uint8_t *rgb = malloc((size_t)width * height * 3);
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++)
            memcpy(rgb + 3 * (y * width + x), (uint8_t[]){(uint8_t)x, (uint8_t)y, 7}, 3);
    struct file_bytes f = png_of(PNG_PLAIN, rgb, width, height);
    free(rgb);
    return f;
}

enum { MAP_W = 100, MAP_H = 60, VIEW = 40 };

static void write_maps(void)
{
    char path[64];
    for (int i = 0; i < 8; i++) {
        snprintf(path, sizeof path, "train/%c/%d.png", 'a' + i % 2, i);
        write_image(path, map_png(MAP_W, MAP_H));
    }
    write_image("val/a/1.png", map_png(MAP_W, MAP_H));
}

/* At a scale of 1 a view is the pixels themselves: where it was cut can be read from them. */
static void read_cut(const uint8_t *view, bool *mirrored, uint32_t *left, uint32_t *top)
{
    *mirrored = view[0] > view[3];
    *left = *mirrored ? view[0] - (VIEW - 1u) : view[0];
    *top = view[1];
    for (uint32_t y = 0; y < VIEW; y++)
        for (uint32_t x = 0; x < VIEW; x++) {
            const uint8_t *p = view + 3 * (y * VIEW + x);
            uint32_t expected = *mirrored ? *left + VIEW - 1 - x : *left + x;
            assert_quick(p[0] == expected && p[1] == *top + y && p[2] == 7);
        }
}

START_TEST(crops_lie_anywhere_and_half_are_mirrored)
{
    enum { BATCHES = 60, BATCH = 8 };
    uint32_t n_mirrored = 0, lefts[MAP_W] = {0}, tops[MAP_H] = {0}, n_lefts = 0, n_tops = 0;
    struct cnn_batch b;
    write_maps();
    struct cnn_data *data = open_well("crop:side=60", 0);
    struct cnn_stream *s = stream_of(data, CNN_TRAIN, BATCH, VIEW, 2);
    for (int k = 0; k < BATCHES; k++) {
        ck_assert_int_eq(cnn_stream_borrow(s, &b), BATCH);
        for (int i = 0; i < BATCH; i++) {
            bool mirrored;
            uint32_t left, top;
            read_cut((const uint8_t *)b.images + i * VIEW * VIEW * 3, &mirrored, &left, &top);
            ck_assert_uint_le(left, MAP_W - VIEW);
            ck_assert_uint_le(top, MAP_H - VIEW);
            n_mirrored += mirrored;
            n_lefts += lefts[left]++ == 0;
            n_tops += tops[top]++ == 0;
        }
    }
    /* Of 480 draws: 240 with a deviation of 11; of 61 and 21 places each is missed with e^-7.8 and less. */
    ck_assert(n_mirrored > 170 && n_mirrored < 310);
    ck_assert_uint_ge(n_lefts, 55);
    ck_assert_uint_eq(n_tops, MAP_H - VIEW + 1);
    cnn_stream_destroy(s);
    cnn_data_close(data);
}
END_TEST

START_TEST(test_images_are_the_middle)
{
    static const char *const views[] = {"crop:side=60", "resized-crop:side=60,jitter=0.5", "centre:side=60"};
    write_maps();
    for (size_t i = 0; i < ROWS(views); i++) {
        bool mirrored;
        uint32_t left, top;
        struct cnn_batch b;
        struct cnn_data *data = open_well(views[i], 0);
        struct cnn_stream *s = stream_of(data, CNN_TEST, 1, VIEW, 0);
        ck_assert_int_eq(cnn_stream_borrow(s, &b), 1);
        read_cut(b.images, &mirrored, &left, &top);
        ck_assert(!mirrored && left == (MAP_W - VIEW) / 2 && top == (MAP_H - VIEW) / 2);
        cnn_stream_destroy(s);
        cnn_data_close(data);
    }
}
END_TEST

START_TEST(flip_no_mirrors_nothing)
{
    struct cnn_batch b;
    bool mirrored;
    uint32_t left, top;
    write_maps();
    struct cnn_data *data = open_well("crop:side=60,flip=no", 0);
    struct cnn_stream *s = stream_of(data, CNN_TRAIN, 64, VIEW, 0);
    ck_assert_int_eq(cnn_stream_borrow(s, &b), 64);
    for (int i = 0; i < 64; i++) {
        read_cut((const uint8_t *)b.images + i * VIEW * VIEW * 3, &mirrored, &left, &top);
        ck_assert(!mirrored);
    }
    cnn_stream_destroy(s);
    cnn_data_close(data);
}
END_TEST

/* Scaled by any factor, a gradient stays that gradient: column x of the view shows the image's column at
 * (left + x + 1/2) * 100/W - 1/2. */
START_TEST(scaling_keeps_places)
{
    static const uint32_t sides[] = {40, 47, 90, 15}; /* of a shorter side of 60: down, up and past a half */
    write_maps();
    for (size_t k = 0; k < ROWS(sides); k++) {
        char view[32];
        struct cnn_batch b;
        uint32_t side = sides[k], n = side < VIEW ? side : VIEW, width = (100 * side + 30) / 60;
        double step_x = 100.0 / width, step_y = 60.0 / side;
        snprintf(view, sizeof view, "centre:side=%u", side);
        struct cnn_data *data = open_well(view, 0);
        struct cnn_stream *s = stream_of(data, CNN_TEST, 1, n, 0);
        ck_assert_int_eq(cnn_stream_borrow(s, &b), 1);
        const uint8_t *p = b.images;
        for (uint32_t y = 0; y < n; y++)
            for (uint32_t x = 0; x < n; x++, p += 3) {
                double at_x = (double)((width - n) / 2 + x) * step_x + step_x / 2 - 0.5;
                double at_y = (double)((side - n) / 2 + y) * step_y + step_y / 2 - 0.5;
                at_x = at_x < 0 ? 0 : at_x;
                at_y = at_y < 0 ? 0 : at_y > 59 ? 59 : at_y;
                /* half a unit for each of two roundings, and 1/128 pixel of place */
                assert_quick(p[0] > at_x - 1.2 && p[0] < at_x + 1.2 && p[1] > at_y - 1.2 &&
                             p[1] < at_y + 1.2);
            }
        cnn_stream_destroy(s);
        cnn_data_close(data);
    }
}
END_TEST

/* The part that a resized crop shows: from its corners, whose colours are places. */
START_TEST(resized_crops_have_their_shapes_and_areas)
{
    enum { BATCH = 200 };
    struct cnn_batch b;
    double smallest = 1, largest = 0;
    write_maps();
    struct cnn_data *data = open_well("resized-crop:flip=no", 0);
    struct cnn_stream *s = stream_of(data, CNN_TRAIN, BATCH, VIEW, 2);
    ck_assert_int_eq(cnn_stream_borrow(s, &b), BATCH);
    for (int i = 0; i < BATCH; i++) {
        const uint8_t *first = (const uint8_t *)b.images + i * VIEW * VIEW * 3;
        const uint8_t *last = first + 3 * (VIEW * VIEW - 1);
        /* between the middles of the first and last columns lie 39 of 40 parts */
        double w = (last[0] - first[0]) * 40.0 / 39, h = (last[1] - first[1]) * 40.0 / 39;
        double area = w * h / (MAP_W * MAP_H);
        ck_assert(w / h > 0.75 * 0.85 &&
                  w / h < 4 / 3.0 * 1.15); /* of about 20 pixels, to a pixel and more */
        smallest = area < smallest ? area : smallest;
        largest = area > largest ? area : largest;
    }
    ck_assert(smallest > 0.05 && smallest < 0.2 && largest > 0.6 && largest <= 1.05);
    cnn_stream_destroy(s);
    cnn_data_close(data);
}
END_TEST

START_TEST(jitter_changes_colours_and_stays_in_range)
{
    struct cnn_batch plain, jittered;
    uint32_t n_other = 0;
    write_classes(10);
    struct cnn_data *a = open_well("crop", 0), *b = open_well("crop:jitter=0.4", 0);
    struct cnn_stream *of_a = stream_of(a, CNN_TRAIN, 16, 16, 0), *of_b = stream_of(b, CNN_TRAIN, 16, 16, 0);
    ck_assert_int_eq(cnn_stream_borrow(of_a, &plain), 16);
    ck_assert_int_eq(cnn_stream_borrow(of_b, &jittered), 16);
    for (int i = 0; i < 16; i++) {
        const uint8_t *p = (const uint8_t *)plain.images + i * 768,
                      *q = (const uint8_t *)jittered.images + i * 768;
        ck_assert_uint_eq(plain.labels[i], jittered.labels[i]);
        n_other += !is_near(q, p);
        /* a flat image has no contrast: brightness 0.6 to 1.4, then saturation as much: the largest of its
         * colours stays the largest */
        int strongest = plain.labels[i] == 1 ? 0 : 2;
        for (int c = 0; c < 3; c++)
            ck_assert(q[c] <= q[strongest]);
    }
    ck_assert_uint_ge(n_other, 12);
    cnn_stream_destroy(of_a);
    cnn_stream_destroy(of_b);
    cnn_data_close(a);
    cnn_data_close(b);
}
END_TEST

/* Brightness, contrast and saturation by hand, of two pixels. */
START_TEST(jitter_is_what_it_says)
{
    const struct cnn_image_id id = {.seed = 4};
    struct cnn_draws draws = {.id = &id}, again = {.id = &id};
    uint8_t rgb[6] = {100, 50, 10, 20, 60, 120};
    float b = cnn_draw_float(&again, 0.5f, 1.5f), c = cnn_draw_float(&again, 0.5f, 1.5f),
          s = cnn_draw_float(&again, 0.5f, 1.5f), v[6], mean = 0;
    for (int i = 0; i < 6; i++)
        v[i] = rgb[i] * b;
    for (int i = 0; i < 2; i++)
        mean += (0.299f * v[3 * i] + 0.587f * v[3 * i + 1] + 0.114f * v[3 * i + 2]) / 2;
    for (int i = 0; i < 6; i++)
        v[i] = mean + c * (v[i] - mean);
    cnn_view_jitter(rgb, 2, 0.5f, &draws);
    for (int i = 0; i < 2; i++) {
        float grey = 0.299f * v[3 * i] + 0.587f * v[3 * i + 1] + 0.114f * v[3 * i + 2];
        for (int k = 0; k < 3; k++) {
            float expected = grey + s * (v[3 * i + k] - grey);
            expected = expected < 0 ? 0 : expected > 255 ? 255 : expected;
            ck_assert_float_eq_tol(rgb[3 * i + k], expected, 0.6f); /* half, and a 16th of grey */
        }
    }
}
END_TEST

static void read_batches(const struct cnn_data *data, uint32_t threads, uint32_t from, uint8_t *out)
{
    enum { BATCH = 7, BYTES = BATCH * 16 * 16 * 3 };
    struct cnn_batch b;
    struct cnn_stream *s = stream_of(data, CNN_TRAIN, BATCH, 16, threads);
    struct cnn_position at = {from * BATCH / 45, from * BATCH % 45}; /* of 45 training images */
    if (from > 0)
        ck_assert_int_eq(cnn_stream_seek(s, &at, NULL), 0);
    for (uint32_t k = from; k < 20; k++) {
        ck_assert_int_eq(cnn_stream_borrow(s, &b), BATCH);
        memcpy(out + k * BYTES, b.images, BYTES);
    }
    cnn_stream_destroy(s);
}

/* By the caller, by threads, and from the middle on: the same pixels. */
START_TEST(views_depend_on_seed_rank_epoch_and_index_alone)
{
    static uint8_t plain[20 * 7 * 768], other[sizeof plain];
    char path[64];
    for (int i = 0; i < 45; i++) {
        snprintf(path, sizeof path, "train/%c/%02d.%s", 'a' + i % 2, i, i % 3 == 0 ? "jpg" : "png");
        write_image(path, i % 3 == 0 ? flat_jpeg(30, 40, red) : map_png(50, 40));
    }
    write_image("val/a/1.jpg", flat_jpeg(8, 8, red));
    struct cnn_data *data = open_well("resized-crop:jitter=0.3", 0);
    read_batches(data, 0, 0, plain);
    read_batches(data, 3, 0, other);
    ck_assert_mem_eq(plain, other, sizeof plain);
    memset(other + 9 * 7 * 768, 0, 11 * 7 * 768);
    read_batches(data, 2, 9, other);
    ck_assert_mem_eq(plain, other, sizeof plain);
    cnn_data_close(data);
}
END_TEST

/* A photograph with a video after its end, as telephones write them. */
static struct file_bytes motion_photo(const uint8_t *rgb)
{
    enum { VIDEO = 100000 };
    struct file_bytes f = jpeg_of(JPEG_HALF, rgb, 32, 32);
    f.bytes = realloc(f.bytes, f.len + VIDEO);
    memset(f.bytes + f.len, 'v', VIDEO);
    f.len += VIDEO;
    return f;
}

/* A file with a segment for programs that holds a whole small file, as Exif has it, and its end marker. */
static struct file_bytes with_thumbnail(struct file_bytes f)
{
    struct file_bytes small = flat_jpeg(8, 8, green);
    size_t size = small.len + 2;
    struct file_bytes out = {malloc(f.len + size + 2), f.len + size + 2};
    memcpy(out.bytes, (uint8_t[]){0xff, 0xd8, 0xff, 0xe1, (uint8_t)(size >> 8), (uint8_t)size}, 6);
    memcpy(out.bytes + 6, small.bytes, small.len);
    memcpy(out.bytes + 6 + small.len, f.bytes + 2, f.len - 2);
    free(small.bytes);
    free(f.bytes);
    return out;
}

/* Files that are unusual and good: what their first pixel is. */
START_TEST(kinds_of_files_that_are_read)
{
    uint8_t rgb[32 * 32 * 3];
    static const uint8_t grey[3] = {200, 200, 200};
    for (int i = 0; i < 32 * 32; i++)
        memcpy(rgb + 3 * i, grey, 3);
    const struct {
        const char *name;
        struct file_bytes file;
    } rows[] = {
        {"plain.jpg", jpeg_of(JPEG_PLAIN, rgb, 32, 32)},
        {"late.jpg", jpeg_of(JPEG_PROGRESSIVE, rgb, 32, 32)},
        {"grey.jpg", jpeg_of(JPEG_GREY, rgb, 32, 32)},
        {"cmyk.jpg", jpeg_of(JPEG_CMYK, rgb, 32, 32)},
        {"one.jpg", jpeg_of(JPEG_PLAIN, rgb, 1, 1)},
        {"one.png", png_of(PNG_PLAIN, rgb, 1, 1)},
        {"line.png", png_of(PNG_PLAIN, rgb, 32, 1)},
        {"deep.png", png_of(PNG_16_BIT, rgb, 32, 32)},
        {"alpha.png", png_of(PNG_ALPHA, rgb, 32, 32)},
        {"palette.png", png_of(PNG_PALETTE, rgb, 32, 32)},
        {"grey.png", png_of(PNG_GREY, rgb, 32, 32)},
        {"png.jpg", png_of(PNG_PLAIN, rgb, 32, 32)},
        {"motion.jpg", motion_photo(rgb)},
        {"exif.jpg", with_thumbnail(jpeg_of(JPEG_PLAIN, rgb, 32, 32))},
        {"exif-late.jpg", with_thumbnail(jpeg_of(JPEG_PROGRESSIVE, rgb, 32, 32))},
    };
    char path[64];
    struct cnn_batch b;
    write_image("train/a/1.jpg", flat_jpeg(8, 8, red));
    write_image("train/b/1.jpg", flat_jpeg(8, 8, red));
    for (size_t i = 0; i < ROWS(rows); i++) {
        snprintf(path, sizeof path, "val/a/%s", rows[i].name);
        write_image(path, rows[i].file);
    }
    struct cnn_data *data = open_well(NULL, 0);
    struct cnn_stream *s = stream_of(data, CNN_TEST, ROWS(rows), 16, 2);
    ck_assert_int_eq(cnn_stream_borrow(s, &b), ROWS(rows));
    for (size_t i = 0; i < ROWS(rows) * 16 * 16; i++) {
        const uint8_t *p = (const uint8_t *)b.images + 3 * i;
        /* 16 bits without a word of their scale are taken as sRGB, as 8 bits are; libpng wrote them linear */
        ck_assert_msg(is_near(p, grey) || is_near(p, (const uint8_t[]){229, 229, 229}), "image %zu: %u %u %u",
                      i / 256, p[0], p[1], p[2]);
    }
    cnn_stream_destroy(s);
    cnn_data_close(data);
}
END_TEST

/* Files that are bad, and what is said of them. */
enum { N_BAD = 10 };
static const char *write_bad(int i, const char **part)
{
    static const char *const names[N_BAD] = {"cut.jpg",   "text.jpg", "empty.jpg",  "large.jpg",
                                             "large.png", "head.jpg", "broken.png", "removed.jpg",
                                             "pipe.jpg",  "thumb.jpg"};
    static const char *const parts[N_BAD] = {"JPEG: the file is truncated: it has no end marker",
                                             "neither a JPEG nor a PNG file",
                                             "the file is empty",
                                             "an image of 30000 x 30000 pixels; allowed: 1 to 67108864",
                                             "an image of 30000 x 30000 pixels; allowed: 1 to 67108864",
                                             "JPEG: ",
                                             "PNG: ",
                                             "cannot be opened: No such file or directory",
                                             "not a regular file",
                                             "JPEG: the file is truncated: it has no end marker"};
    char path[64];
    uint8_t rgb[64 * 64 * 3];
    for (size_t k = 0; k < sizeof rgb; k++)
        rgb[k] = (uint8_t)(k * 2654435761u >> 24);
    struct file_bytes f =
        i == 4 || i == 6 ? png_of(PNG_PLAIN, rgb, 64, 64) : jpeg_of(JPEG_PLAIN, rgb, 64, 64);
    if (i == 9)
        f = with_thumbnail(f);
    f.len = i == 9 ? f.len - 100 : i == 0 ? f.len / 2 : i == 2 ? 0 : i == 5 ? 10 : f.len;
    if (i == 1)
        memset(f.bytes, 'x', f.len);
    if (i == 3)
        jpeg_claims(f, 30000, 30000);
    if (i == 4)
        png_claims(f, 30000, 30000);
    if (i == 6)
        f.bytes[f.len / 2] ^= 0x40;
    snprintf(path, sizeof path, "train/a/%s", names[i]);
    write_image(path, f);
    *part = parts[i];
    return names[i];
}

/* What happens to a file after the set was opened. */
static void change_meanwhile(int i, const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/train/a/%s", image_folder(), name);
    if (i == 7 || i == 8)
        ck_assert_int_eq(unlink(path), 0);
    if (i == 8)
        ck_assert_int_eq(mkfifo(path, 0600), 0);
}

/* It is named; under the limit the image after it takes its place, so that the batch is full. */
START_TEST(a_damaged_file_is_named_and_left_out)
{
    const char *part, *name = write_bad(_i, &part);
    struct cnn_batch b;
    write_image("train/b/1.png", flat_png(40, 40, green));
    write_image("train/b/2.png", flat_png(40, 40, green));
    struct cnn_data *strict = open_well(NULL, 0), *lenient = open_well(NULL, 1);
    change_meanwhile(_i, name);
    struct cnn_stream *s = stream_of(strict, CNN_TRAIN, 3, 16, 2);
    ck_assert_int_eq(cnn_stream_borrow(s, &b), -EBADMSG);
    assert_says(cnn_stream_error(s), part);
    assert_says(cnn_stream_error(s), name);
    assert_says(cnn_stream_error(s), "more than 0 images cannot be read");
    cnn_stream_destroy(s);
    s = stream_of(lenient, CNN_TRAIN, 3, 16, 2);
    for (int epoch = 0; epoch < 3; epoch++) { /* told of, and counted, once */
        ck_assert_int_eq(cnn_stream_borrow(s, &b), 3);
        for (int i = 0; i < 3; i++)
            ck_assert(b.labels[i] == 1 && is_near((const uint8_t *)b.images + i * 768, green));
    }
    cnn_stream_destroy(s); /* and its threads, which count */
    ck_assert_uint_eq(((struct cnn_images *)lenient->self)->n_damaged, 1);
    cnn_data_close(strict);
    cnn_data_close(lenient);
}
END_TEST

/* A test batch becomes shorter, one of which nothing is left is no end, and the limit is of all. */
START_TEST(damaged_test_images_are_left_out)
{
    char path[64];
    struct cnn_batch b;
    write_image("train/a/1.png", flat_png(40, 40, green));
    write_image("train/b/1.png", flat_png(40, 40, green));
    for (int i = 0; i < 9; i++) {
        snprintf(path, sizeof path, "val/%c/%d.png", i < 6 ? 'a' : 'b', i);
        if (i == 1 || (i >= 3 && i < 6))
            write_file(path, "text", 4);
        else
            write_image(path, flat_png(40, 40, i < 6 ? red : blue));
    }
    for (uint32_t threads = 0; threads < 3; threads++) {
        struct cnn_data *data = open_well(NULL, 4);
        struct cnn_stream *s = stream_of(data, CNN_TEST, 3, 16, threads);
        ck_assert_int_eq(cnn_stream_borrow(s, &b), 2);
        ck_assert_uint_eq(b.n, 2);
        ck_assert(b.labels[0] == 0 && b.labels[1] == 0);
        ck_assert(is_near((const uint8_t *)b.images + 768, red));
        ck_assert_int_eq(cnn_stream_borrow(s, &b), 3); /* images 6 to 8 */
        ck_assert(b.labels[0] == 1 && is_near(b.images, blue));
        ck_assert_int_eq(cnn_stream_borrow(s, &b), 0);
        cnn_stream_destroy(s);
        cnn_data_close(data);
    }
    struct cnn_data *data = open_well(NULL, 3);
    struct cnn_stream *s = stream_of(data, CNN_TEST, 9, 16, 0);
    ck_assert_int_eq(cnn_stream_borrow(s, &b), -EBADMSG);
    assert_says(cnn_stream_error(s), "more than 3 images cannot be read; the last is val/a/5.png");
    cnn_stream_destroy(s);
    cnn_data_close(data);
}
END_TEST

START_TEST(a_set_of_which_nothing_can_be_read)
{
    struct cnn_batch b;
    write_file("a/1.jpg", "text", 4);
    write_file("b/1.jpg", "text", 4);
    struct cnn_data *data = open_well(NULL, 100);
    struct cnn_stream *s = stream_of(data, CNN_TRAIN, 2, 16, 1);
    ck_assert_int_eq(cnn_stream_borrow(s, &b), -EBADMSG);
    assert_says(cnn_stream_error(s), "none of the 2 training images of images can be read");
    cnn_stream_destroy(s);
    cnn_data_close(data);
}
END_TEST

START_TEST(views_that_are_none)
{
    static const struct {
        const char *view, *part;
    } rows[] = {
        {"cropp", "view: \"cropp\"; allowed: crop, resized-crop or centre"},
        {"crop:side=0", "\"side=0\"; allowed: side=1 to 4096"},
        {"crop:side=4097", "side=1 to 4096"},
        {"crop:side=12x", "side=1 to 4096"},
        {"crop:jitter=1", "jitter=0 to below 1"},
        {"crop:flip=maybe", "flip=yes or no"},
        {"crop:flip", "\"flip\"; allowed: side"},
        {"crop:", "\"\"; allowed: side"},
    };
    struct cnn_data *data = NULL;
    struct ps_error err = {""};
    write_classes(1);
    for (size_t i = 0; i < ROWS(rows); i++) {
        ck_assert_int_eq(open_set(rows[i].view, 0, &data, &err), -EINVAL);
        assert_says(err.text, rows[i].part);
    }
    ck_assert_int_eq(cnn_data_open_with("digits", &(struct cnn_data_options){.view = "crop"}, &data, &err),
                     -EINVAL);
    assert_says(err.text, "data set digits does not support --view");
    data = open_well("crop:side=20", 0);
    struct cnn_stream *s = NULL;
    struct cnn_stream_options opt = {.batch = 1, .height = 24, .width = 16};
    ck_assert_int_eq(cnn_stream_create(data, &opt, &s, &err), -EINVAL);
    assert_says(err.text, "view: side=20, and images of 24x16; allowed: side=24 to 4096");
    cnn_data_close(data);
}
END_TEST

/* The sides that papers have. */
START_TEST(sides_are_eight_sevenths)
{
    const struct cnn_looks looks = {0};
    ck_assert_uint_eq(cnn_looks_side(&looks, 224, 224), 256);
    ck_assert_uint_eq(cnn_looks_side(&looks, 221, 221), 253);
    ck_assert_uint_eq(cnn_looks_side(&looks, 227, 227), 259);
    ck_assert_uint_eq(cnn_looks_side(&looks, 128, 128), 146);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("images");
    tcase_add_checked_fixture(tc, NULL, image_folder_remove);
    tcase_add_test(tc, folders_are_classes_in_the_order_of_their_names);
    tcase_add_test(tc, without_test_folders_every_tenth_image_is_held_out);
    tcase_add_test(tc, folders_that_are_no_set);
    tcase_add_test(tc, images_beside_the_splits_are_refused);
    tcase_add_test(tc, a_class_is_one_folder);
    tcase_add_test(tc, an_image_lies_in_a_folder);
    tcase_add_test(tc, an_empty_folder_is_no_class);
    tcase_add_test(tc, a_link_that_cannot_be_looked_up_is_an_error);
    tcase_add_test(tc, a_class_that_cannot_be_searched_is_an_error);
    tcase_add_test(tc, crops_lie_anywhere_and_half_are_mirrored);
    tcase_add_test(tc, test_images_are_the_middle);
    tcase_add_test(tc, flip_no_mirrors_nothing);
    tcase_add_test(tc, scaling_keeps_places);
    tcase_add_test(tc, resized_crops_have_their_shapes_and_areas);
    tcase_add_test(tc, jitter_changes_colours_and_stays_in_range);
    tcase_add_test(tc, jitter_is_what_it_says);
    tcase_add_test(tc, views_depend_on_seed_rank_epoch_and_index_alone);
    tcase_add_test(tc, kinds_of_files_that_are_read);
    tcase_add_loop_test(tc, a_damaged_file_is_named_and_left_out, 0, N_BAD);
    tcase_add_test(tc, damaged_test_images_are_left_out);
    tcase_add_test(tc, a_set_of_which_nothing_can_be_read);
    tcase_add_test(tc, views_that_are_none);
    tcase_add_test(tc, sides_are_eight_sevenths);
    return run_case(tc, "data_images");
}
