/* JPEG with libjpeg-turbo, which decodes at a fraction of the size for a fraction of the work. Uses its
 * libjpeg API, because the TurboJPEG API cannot decode a part of an image. As TurboJPEG does by default, it
 * uses the accurate inverse DCT (JDCT_ISLOW) and smooth upsampling of colours.
 *
 * Rows below the part that is wanted are not decoded. Of blocks above and beside it, only the entropy code is
 * decoded. The pixels of the part are the same as in the whole image, bit for bit. */
#include <errno.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#include "nets/data/images/decode.h"

/* EDGE: upsampling uses the next pixel on both sides, so that the first and last columns of a part differ.
 * LEAST_WIDTH: it is of another kind for a part of very few columns. */
enum { MAX_SCANS = 500, ROWS_AT_ONCE = 4, EDGE = 1, LEAST_WIDTH = 16, SOI = 0xd8 };

struct cnn_jpeg {
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    const uint8_t *bytes; /* the file whose header was read; NULL: none */
    size_t len;
    jmp_buf failed;
    char text[JMSG_LENGTH_MAX];
};

static void fail(j_common_ptr c)
{
    struct cnn_jpeg *j = c->client_data;
    c->err->format_message(c, j->text);
    longjmp(j->failed, 1);
}

/* A warning of libjpeg-turbo counts as damage: after one it fills the rest with grey. */
static void hear(j_common_ptr c, int level)
{
    if (level < 0)
        fail(c);
}

/* A file with more scans is treated as an attack on decoding time. */
static void watch(j_common_ptr c)
{
    struct cnn_jpeg *j = c->client_data;
    if (c->is_decompressor && j->c.input_scan_number > MAX_SCANS) {
        snprintf(j->text, sizeof j->text, "more than %d scans", MAX_SCANS);
        longjmp(j->failed, 1);
    }
}

static bool init(struct cnn_jpeg *j)
{
    j->c.err = jpeg_std_error(&j->errors);
    j->errors.error_exit = fail;
    j->errors.emit_message = hear;
    j->c.client_data = j;
    if (setjmp(j->failed) != 0)
        return false;
    jpeg_create_decompress(&j->c);
    j->progress.progress_monitor = watch;
    j->c.progress = &j->progress;
    return true;
}

/* Not inlined because the callers are targets of longjmp. */
static __attribute__((noinline)) struct cnn_jpeg *create(void)
{
    struct cnn_jpeg *j = calloc(1, sizeof *j);
    if (j == NULL || init(j))
        return j;
    free(j);
    return NULL;
}

void cnn_jpeg_destroy(struct cnn_jpeg *j)
{
    if (j == NULL)
        return;
    jpeg_destroy_decompress(&j->c);
    free(j);
}

static struct cnn_jpeg *jpeg_of(struct cnn_decoder *d, struct ps_error *err)
{
    if (d->jpeg == NULL && (d->jpeg = create()) == NULL)
        ps_fail(err, -ENOMEM, "no memory for a JPEG decoder");
    return d->jpeg;
}

static void end(struct cnn_jpeg *j)
{
    jpeg_abort_decompress(&j->c);
    j->bytes = NULL;
}

static int end_badly(struct cnn_jpeg *j, struct ps_error *err)
{
    end(j);
    return ps_fail(err, -EBADMSG, "JPEG: %.200s", j->text);
}

static void read_header(struct cnn_jpeg *j, const uint8_t *bytes, size_t len)
{
    end(j); /* of the last file, if its size was all that was wanted */
    jpeg_mem_src(&j->c, bytes, len);
    jpeg_read_header(&j->c, TRUE);
    j->bytes = bytes;
    j->len = len;
}

static int jpeg_size(struct cnn_decoder *d, const uint8_t *bytes, size_t len, uint32_t *width,
                     uint32_t *height, struct ps_error *err)
{
    struct cnn_jpeg *j = jpeg_of(d, err);
    if (j == NULL)
        return -ENOMEM;
    if (setjmp(j->failed) != 0)
        return end_badly(j, err);
    read_header(j, bytes, len);
    *width = j->c.image_width;
    *height = j->c.image_height;
    return 0;
}

/* Inverted CMYK, as Adobe's programs write it: 255 is no ink. In place. */
static void from_cmyk(uint8_t *pixels, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned k = pixels[4 * i + 3];
        for (size_t c = 0; c < 3; c++)
            pixels[3 * i + c] = (uint8_t)((pixels[4 * i + c] * k + 127) / 255);
    }
}

/* Whether the marker has no segment: RST0 to RST7, SOI, TEM, and a 0 after a data byte of 0xff. */
static bool is_alone(uint8_t marker)
{
    return marker <= 0x01 || (marker >= JPEG_RST0 && marker <= SOI);
}

/* Detects a truncated file even if its last rows are not decoded. Goes from marker to marker, because a
 * segment may hold another end marker, such as that of an Exif thumbnail. Bytes after the end marker are
 * ignored: a motion photo has a video there. */
static bool has_end(const uint8_t *bytes, size_t len)
{
    size_t at = 0;
    const uint8_t *found;
    while (at < len && (found = memchr(bytes + at, 0xff, len - at)) != NULL) {
        at = (size_t)(found - bytes) + 1;
        while (at < len && bytes[at] == 0xff) /* padding */
            at++;
        if (at == len)
            return false;
        uint8_t marker = bytes[at++];
        if (marker == JPEG_EOI)
            return true;
        if (!is_alone(marker) && len - at >= 2)
            at += (size_t)bytes[at] << 8 | bytes[at + 1];
    }
    return false;
}

static int start(struct cnn_jpeg *j, struct cnn_decoder *d, uint32_t scale, struct ps_error *err)
{
    bool is_cmyk = j->c.jpeg_color_space == JCS_CMYK || j->c.jpeg_color_space == JCS_YCCK;
    j->c.out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
    j->c.scale_num = 1;
    j->c.scale_denom = scale;
    jpeg_start_decompress(&j->c);
    d->width = j->c.output_width;
    d->height = j->c.output_height;
    return cnn_decoder_reserve(d, (size_t)d->width * d->height * (size_t)j->c.output_components, err);
}

/* For images of one scan, with the samplings of cameras. In a file of several scans, missing coefficients are
 * made from neighbours. Other samplings are rare, and libjpeg-turbo 2.1 has errors in parts of some of them
 * (its issue 669). */
static bool can_skip(struct jpeg_decompress_struct *c)
{
    const jpeg_component_info *of = c->comp_info;
    if (jpeg_has_multiple_scans(c) || (c->num_components != 1 && c->num_components != 3))
        return false;
    for (int i = c->num_components == 3 ? 1 : 0; i < c->num_components; i++)
        if (of[i].h_samp_factor != 1 || of[i].v_samp_factor != 1)
            return false;
    return of[0].h_samp_factor <= 2 && of[0].v_samp_factor <= 2;
}

/* Limits decoding to the blocks of the part's columns. Returns the first column that is decoded. */
static uint32_t skip_columns(struct cnn_jpeg *j, const struct cnn_part *part)
{
    uint32_t last = part->left + part->width;
    JDIMENSION left = part->left > EDGE ? part->left - EDGE : 0;
    JDIMENSION width = (last + EDGE < j->c.output_width ? last + EDGE : j->c.output_width) - left;
    if (width < LEAST_WIDTH)
        return 0;
    jpeg_crop_scanline(&j->c, &left, &width); /* moves left to where a block begins */
    return left;
}

/* Reads rows y to end - 1, from column `left`. */
static void read_rows(struct cnn_jpeg *j, const struct cnn_decoder *d, uint32_t y, uint32_t end,
                      uint32_t left)
{
    size_t components = (size_t)j->c.output_components, stride = d->width * components;
    while (y < end) {
        JSAMPROW rows[ROWS_AT_ONCE];
        uint32_t n = end - y < ROWS_AT_ONCE ? end - y : ROWS_AT_ONCE;
        for (uint32_t i = 0; i < n; i++)
            rows[i] = d->rgb + (y + i) * stride + left * components;
        y += jpeg_read_scanlines(&j->c, rows, n);
    }
}

static void read_part(struct cnn_jpeg *j, const struct cnn_decoder *d, const struct cnn_part *part)
{
    uint32_t first = 0, left = 0, end = part->top + part->height;
    if (can_skip(&j->c)) {
        left = skip_columns(j, part);
        first = jpeg_skip_scanlines(&j->c, part->top);
    }
    read_rows(j, d, first, end, left);
    if (j->c.output_components == 4) /* which cannot skip */
        from_cmyk(d->rgb, (size_t)d->width * end);
}

static int jpeg_decode(struct cnn_decoder *d, const uint8_t *bytes, size_t len, uint32_t scale,
                       const struct cnn_part *part, struct ps_error *err)
{
    struct cnn_jpeg *j = jpeg_of(d, err);
    if (j == NULL)
        return -ENOMEM;
    if (!has_end(bytes, len))
        return ps_fail(err, -EBADMSG, "JPEG: the file is truncated: it has no end marker");
    if (setjmp(j->failed) != 0)
        return end_badly(j, err);
    if (j->bytes != bytes || j->len != len)
        read_header(j, bytes, len);
    int rc = start(j, d, scale, err);
    const struct cnn_part whole = {0, 0, d->width, d->height};
    if (rc == 0)
        read_part(j, d, part != NULL ? part : &whole);
    end(j);
    return rc;
}

const struct cnn_picture_format cnn_picture_jpeg = {
    .name = "JPEG", .magic = "\xff\xd8\xff", .n_magic = 3, .size = jpeg_size, .decode = jpeg_decode};
