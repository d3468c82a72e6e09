/* PNG with libpng, of any depth and colour type. Transparent pixels are blended with black. */
#include <errno.h>
#include <png.h>

#include "nets/data/images/decode.h"

static int begin(png_image *image, const uint8_t *bytes, size_t len, struct ps_error *err)
{
    *image = (png_image){.version = PNG_IMAGE_VERSION};
    if (png_image_begin_read_from_memory(image, bytes, len))
        return 0;
    return ps_fail(err, -EBADMSG, "PNG: %.64s", image->message);
}

static int png_size(struct cnn_decoder *d, const uint8_t *bytes, size_t len, uint32_t *width,
                    uint32_t *height, struct ps_error *err)
{
    png_image image;
    int rc = begin(&image, bytes, len, err);
    (void)d;
    *width = image.width;
    *height = image.height;
    png_image_free(&image);
    return rc;
}

/* libpng cannot scale: decodes the whole image */
static int png_decode(struct cnn_decoder *d, const uint8_t *bytes, size_t len, uint32_t scale,
                      const struct cnn_part *part, struct ps_error *err)
{
    const png_color black = {0, 0, 0};
    png_image image;
    int rc = begin(&image, bytes, len, err);
    (void)part;
    if (rc == 0)
        rc = cnn_decoder_reserve(d, (size_t)image.width * image.height * 3, err);
    if (rc == 0) {
        image.format = PNG_FORMAT_RGB;
        image.flags |= PNG_IMAGE_FLAG_16BIT_sRGB;
        d->width = image.width;
        d->height = image.height;
        if (!png_image_finish_read(&image, &black, d->rgb, 0, NULL) || PNG_IMAGE_FAILED(image) != 0)
            rc = ps_fail(err, -EBADMSG, "PNG: %.64s", image.message);
    }
    png_image_free(&image);
    for (; rc == 0 && scale > 1; scale /= 2)
        cnn_decoder_halve(d);
    return rc;
}

const struct cnn_picture_format cnn_picture_png = {
    .name = "PNG", .magic = "\x89PNG\r\n\x1a\n", .n_magic = 8, .size = png_size, .decode = png_decode};
