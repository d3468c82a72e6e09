/* JPEG: a part of an image has the pixels that it has in the whole image, whatever the file's kind, the scale
 * and the place. */
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "nets/data/images/decode.h"
#include "tests/nets/data/image_files.h"
#include "tests/nets/data/suite.h"
#include "tests/support/unit.h"

/* No multiples of a block; several blocks of every kind at every scale. */
enum { WIDTH = 301, HEIGHT = 203, PARTS = 60 };

/* Neighbours differ, so that a pixel taken from another place shows. */
static struct file_bytes noise(enum jpeg_kind kind, uint32_t width, uint32_t height)
{
    struct dice dice = {kind};
    size_t n = (size_t)3 * width * height;
    uint8_t *rgb = malloc(n);
    ck_assert_ptr_nonnull(rgb);
    for (size_t i = 0; i < n; i++)
        rgb[i] = (uint8_t)(dice_bits(&dice) >> 40);
    struct file_bytes f = jpeg_of(kind, rgb, width, height);
    free(rgb);
    return f;
}

static uint32_t below(struct dice *dice, uint32_t n)
{
    return (uint32_t)((dice_bits(dice) >> 32) % n);
}

/* Parts of all sizes, half of them at an edge. */
static struct cnn_part draw_part(struct dice *dice, uint32_t width, uint32_t height)
{
    struct cnn_part p = {.width = 1 + below(dice, width), .height = 1 + below(dice, height)};
    p.left = below(dice, 4) == 0 ? width - p.width : below(dice, width - p.width + 1);
    p.top = below(dice, 4) == 0 ? 0 : below(dice, height - p.height + 1);
    return p;
}

static void check_part(struct cnn_decoder *d, const struct file_bytes *f, uint32_t scale,
                       const struct cnn_part *part, const uint8_t *whole)
{
    struct ps_error err = {""};
    memset(d->rgb, 0x55, d->room); /* what the last call left is no result of this one */
    ck_assert_msg(cnn_picture_jpeg.decode(d, f->bytes, f->len, scale, part, &err) == 0, "%s", err.text);
    for (uint32_t y = part->top; y < part->top + part->height; y++) {
        size_t at = 3 * ((size_t)y * d->width + part->left);
        ck_assert_msg(memcmp(d->rgb + at, whole + at, 3 * (size_t)part->width) == 0,
                      "scale %u, part %u x %u at (%u, %u), row %u", scale, part->width, part->height,
                      part->left, part->top, y);
    }
}

static void check_kind(enum jpeg_kind kind, uint32_t scale)
{
    struct cnn_decoder d = {0};
    struct ps_error err = {""};
    struct dice dice = {100 + scale};
    struct file_bytes f = noise(kind, WIDTH, HEIGHT);
    uint32_t width, height;
    ck_assert_int_eq(cnn_picture_jpeg.size(&d, f.bytes, f.len, &width, &height, &err), 0);
    ck_assert(width == WIDTH && height == HEIGHT);
    ck_assert_msg(cnn_picture_jpeg.decode(&d, f.bytes, f.len, scale, NULL, &err) == 0, "%s", err.text);
    uint8_t *whole = malloc(d.room);
    ck_assert_ptr_nonnull(whole);
    memcpy(whole, d.rgb, 3 * (size_t)d.width * d.height);
    for (int i = 0; i < PARTS; i++) {
        struct cnn_part part = draw_part(&dice, d.width, d.height);
        check_part(&d, &f, scale, &part, whole);
    }
    free(whole);
    free(f.bytes);
    cnn_decoder_finish(&d);
}

START_TEST(parts_are_those_of_the_whole)
{
    for (uint32_t scale = 1; scale <= CNN_PICTURE_SCALES; scale *= 2)
        check_kind((enum jpeg_kind)_i, scale);
}
END_TEST

/* Every place of a narrow part, of whose columns upsampling could mistake one for an edge of the image. */
START_TEST(parts_may_begin_and_end_anywhere)
{
    struct cnn_decoder d = {0};
    struct ps_error err = {""};
    struct file_bytes f = noise(JPEG_HALF, 100, 100);
    ck_assert_int_eq(cnn_picture_jpeg.decode(&d, f.bytes, f.len, 1, NULL, &err), 0);
    uint8_t *whole = malloc(d.room);
    ck_assert_ptr_nonnull(whole);
    memcpy(whole, d.rgb, d.room);
    for (uint32_t n = 1; n < 40; n += 3)
        for (uint32_t at = 0; at <= 100 - n; at++) {
            const struct cnn_part part = {at, (at * 7 + 50) % (101 - n), n, n};
            check_part(&d, &f, 1, &part, whole);
        }
    free(whole);
    free(f.bytes);
    cnn_decoder_finish(&d);
}
END_TEST

/* A decoder's last file may not be the one that is decoded; and a size may be all that was wanted. */
START_TEST(sizes_and_pictures_in_any_order)
{
    struct cnn_decoder d = {0};
    struct ps_error err = {""};
    struct file_bytes a = noise(JPEG_HALF, 40, 30), b = noise(JPEG_GREY, 50, 20);
    uint32_t width, height;
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(cnn_picture_jpeg.size(&d, a.bytes, a.len, &width, &height, &err), 0);
        ck_assert(width == 40 && height == 30);
        ck_assert_int_eq(cnn_picture_jpeg.size(&d, b.bytes, b.len, &width, &height, &err), 0);
        ck_assert(width == 50 && height == 20);
        ck_assert_int_eq(cnn_picture_jpeg.decode(&d, a.bytes, a.len, 1, NULL, &err), 0);
        ck_assert(d.width == 40 && d.height == 30);
        ck_assert_int_eq(cnn_picture_jpeg.decode(&d, b.bytes, b.len, 2, NULL, &err), 0);
        ck_assert(d.width == 25 && d.height == 10);
        ck_assert_int_eq(cnn_picture_jpeg.size(&d, a.bytes, 20, &width, &height, &err), -EBADMSG);
        ck_assert_int_eq(cnn_picture_jpeg.size(&d, b.bytes, b.len, &width, &height, &err), 0);
    }
    free(a.bytes);
    free(b.bytes);
    cnn_decoder_finish(&d);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("jpeg");
    tcase_add_loop_test(tc, parts_are_those_of_the_whole, 0, N_JPEG_KINDS);
    tcase_add_test(tc, parts_may_begin_and_end_anywhere);
    tcase_add_test(tc, sizes_and_pictures_in_any_order);
    return run_case(tc, "data_jpeg");
}
