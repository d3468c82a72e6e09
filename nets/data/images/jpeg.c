/* JPEG by libjpeg-turbo, which decodes at a fraction of the size for a fraction of the work. */
#include <errno.h>
#include <turbojpeg.h>

#include "nets/data/images/decode.h"

static int fail(struct cnn_decoder *d, struct ps_error *err)
{
    return ps_fail(err, -EBADMSG, "JPEG: %.200s", tjGetErrorStr2(d->jpeg));
}

static int read_header(struct cnn_decoder *d, const uint8_t *bytes, size_t len, int *width, int *height,
                       int *colours, struct ps_error *err)
{
    int subsampling;
    if (d->jpeg == NULL && (d->jpeg = tjInitDecompress()) == NULL)
        return ps_fail(err, -ENOMEM, "no memory for a JPEG decoder");
    if (tjDecompressHeader3(d->jpeg, bytes, len, width, height, &subsampling, colours) != 0)
        return fail(d, err);
    return 0;
}

static int jpeg_size(struct cnn_decoder *d, const uint8_t *bytes, size_t len, uint32_t *width,
                     uint32_t *height, struct ps_error *err)
{
    int w = 0, h = 0, colours = 0;
    int rc = read_header(d, bytes, len, &w, &h, &colours, err);
    *width = w > 0 ? (uint32_t)w : 0;
    *height = h > 0 ? (uint32_t)h : 0;
    return rc;
}

/* As Adobe's programs write them, and everybody after them: 255 is no ink. In place. */
static void from_cmyk(uint8_t *pixels, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned k = pixels[4 * i + 3];
        for (size_t c = 0; c < 3; c++)
            pixels[3 * i + c] = (uint8_t)((pixels[4 * i + c] * k + 127) / 255);
    }
}

/* Whatever libjpeg-turbo warns of, such as a file that ends early, counts as damage: it would fill the rest
 * with grey. A file of more than 500 scans is made to waste time. */
static int jpeg_decode(struct cnn_decoder *d, const uint8_t *bytes, size_t len, uint32_t scale,
                       struct ps_error *err)
{
    int width, height, colours;
    int rc = read_header(d, bytes, len, &width, &height, &colours, err);
    if (rc != 0)
        return rc;
    int is_cmyk = colours == TJCS_CMYK || colours == TJCS_YCCK;
    tjscalingfactor factor = {1, (int)scale};
    d->width = (uint32_t)TJSCALED(width, factor);
    d->height = (uint32_t)TJSCALED(height, factor);
    rc = cnn_decoder_reserve(d, (size_t)d->width * d->height * (is_cmyk ? 4 : 3), err);
    if (rc != 0)
        return rc;
    if (tjDecompress2(d->jpeg, bytes, len, d->rgb, (int)d->width, 0, (int)d->height,
                      is_cmyk ? TJPF_CMYK : TJPF_RGB, TJFLAG_STOPONWARNING | TJFLAG_LIMITSCANS) != 0)
        return fail(d, err);
    if (is_cmyk)
        from_cmyk(d->rgb, (size_t)d->width * d->height);
    return 0;
}

const struct cnn_picture_format cnn_picture_jpeg = {
    .name = "JPEG", .magic = "\xff\xd8\xff", .n_magic = 3, .size = jpeg_size, .decode = jpeg_decode};
