/* JPEG with libjpeg-turbo, which decodes at a fraction of the size for a fraction of the work. Uses its
 * libjpeg API, because the TurboJPEG API cannot stop after the last row that is needed. */
#include <errno.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jerror.h>
#include <jpeglib.h>

#include "nets/data/images/decode.h"

enum { MAX_SCANS = 500, ROWS_AT_ONCE = 4, END_BYTES = 1 << 16 };

struct cnn_jpeg {
    struct jpeg_decompress_struct c;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
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

static int end_badly(struct cnn_jpeg *j, struct ps_error *err)
{
    jpeg_abort_decompress(&j->c);
    return ps_fail(err, -EBADMSG, "JPEG: %.200s", j->text);
}

static int jpeg_size(struct cnn_decoder *d, const uint8_t *bytes, size_t len, uint32_t *width,
                     uint32_t *height, struct ps_error *err)
{
    struct cnn_jpeg *j = jpeg_of(d, err);
    if (j == NULL)
        return -ENOMEM;
    if (setjmp(j->failed) != 0)
        return end_badly(j, err);
    jpeg_mem_src(&j->c, bytes, len);
    jpeg_read_header(&j->c, TRUE);
    *width = j->c.image_width;
    *height = j->c.image_height;
    jpeg_abort_decompress(&j->c);
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

/* Detects a truncated file even if its last rows are not decoded. Bytes after the end marker are ignored. */
static bool has_end(const uint8_t *bytes, size_t len)
{
    size_t first = len > END_BYTES ? len - END_BYTES : 0;
    for (size_t i = len; i >= first + 2; i--)
        if (bytes[i - 2] == 0xff && bytes[i - 1] == JPEG_EOI)
            return true;
    return false;
}

static void start(struct cnn_jpeg *j, struct cnn_decoder *d, uint32_t scale)
{
    bool is_cmyk = j->c.jpeg_color_space == JCS_CMYK || j->c.jpeg_color_space == JCS_YCCK;
    j->c.out_color_space = is_cmyk ? JCS_CMYK : JCS_RGB;
    j->c.scale_num = 1;
    j->c.scale_denom = scale;
    jpeg_start_decompress(&j->c);
    d->width = j->c.output_width;
    d->height = j->c.output_height;
}

static void read_rows(struct cnn_jpeg *j, uint32_t n_rows, uint8_t *out)
{
    size_t stride = (size_t)j->c.output_width * (size_t)j->c.output_components;
    for (uint32_t y = 0; y < n_rows;) {
        JSAMPROW rows[ROWS_AT_ONCE];
        uint32_t n = n_rows - y < ROWS_AT_ONCE ? n_rows - y : ROWS_AT_ONCE;
        for (uint32_t i = 0; i < n; i++)
            rows[i] = out + (y + i) * stride;
        y += jpeg_read_scanlines(&j->c, rows, n);
    }
}

static int jpeg_decode(struct cnn_decoder *d, const uint8_t *bytes, size_t len, uint32_t scale, uint32_t rows,
                       struct ps_error *err)
{
    struct cnn_jpeg *j = jpeg_of(d, err);
    if (j == NULL)
        return -ENOMEM;
    if (!has_end(bytes, len))
        return ps_fail(err, -EBADMSG, "JPEG: the file is truncated: it has no end marker");
    if (setjmp(j->failed) != 0)
        return end_badly(j, err);
    jpeg_mem_src(&j->c, bytes, len);
    jpeg_read_header(&j->c, TRUE);
    start(j, d, scale);
    size_t pixels = (size_t)d->width * d->height, components = (size_t)j->c.output_components;
    int rc = cnn_decoder_reserve(d, pixels * components, err);
    if (rc == 0)
        read_rows(j, rows < d->height ? rows : d->height, d->rgb);
    if (rc == 0 && components == 4)
        from_cmyk(d->rgb, pixels);
    jpeg_abort_decompress(&j->c);
    return rc;
}

const struct cnn_picture_format cnn_picture_jpeg = {
    .name = "JPEG", .magic = "\xff\xd8\xff", .n_magic = 3, .size = jpeg_size, .decode = jpeg_decode};
