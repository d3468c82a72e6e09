#include "nets/data/images/decode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const struct cnn_picture_format *const formats[] = {&cnn_picture_jpeg, &cnn_picture_png};
enum { N_FORMATS = sizeof formats / sizeof *formats };

void cnn_decoder_finish(struct cnn_decoder *d)
{
    cnn_jpeg_destroy(d->jpeg);
    free(d->memory);
}

const struct cnn_picture_format *cnn_picture_find(const uint8_t *bytes, size_t len, struct ps_error *err)
{
    for (int i = 0; i < N_FORMATS; i++)
        if (len >= formats[i]->n_magic && memcmp(bytes, formats[i]->magic, formats[i]->n_magic) == 0)
            return formats[i];
    ps_fail(err, -EBADMSG,
            len == 0 ? "the file is empty; allowed: a JPEG or PNG file"
                     : "byte 0: neither a JPEG nor a PNG file; allowed: those two");
    return NULL;
}

int cnn_picture_size(const struct cnn_picture_format *f, struct cnn_decoder *d, const uint8_t *bytes,
                     size_t len, uint32_t *width, uint32_t *height, struct ps_error *err)
{
    int rc = f->size(d, bytes, len, width, height, err);
    if (rc == 0 && ((uint64_t)*width * *height > CNN_PICTURE_PIXELS || *width == 0 || *height == 0))
        return ps_fail(err, -EBADMSG, "an image of %u x %u pixels; allowed: 1 to %d pixels", *width, *height,
                       CNN_PICTURE_PIXELS);
    return rc;
}

/* Where a row begins at a multiple of 32 bytes, libjpeg-turbo writes it around the caches, which takes longer
 * for a picture that fits into them and is read at once. From an odd address, no row of an even width does.
 */
int cnn_decoder_reserve(struct cnn_decoder *d, size_t bytes, struct ps_error *err)
{
    if (bytes <= d->room)
        return 0;
    uint8_t *memory = malloc(bytes + 1);
    if (memory == NULL)
        return ps_fail(err, -ENOMEM, "no memory for a picture of %zu bytes", bytes);
    free(d->memory);
    d->memory = memory;
    d->rgb = memory + 1;
    d->room = bytes;
    return 0;
}

void cnn_decoder_halve(struct cnn_decoder *d)
{
    uint32_t width = (d->width + 1) / 2, height = (d->height + 1) / 2;
    size_t stride = (size_t)d->width * 3;
    uint8_t *out = d->rgb; /* never ahead of the pixels still to be read */
    for (uint32_t y = 0; y < height; y++) {
        const uint8_t *top = d->rgb + 2 * y * stride;
        const uint8_t *low = 2 * y + 1 < d->height ? top + stride : top;
        for (uint32_t x = 0; x < width; x++)
            for (int c = 0; c < 3; c++) {
                size_t left = 6 * (size_t)x + (size_t)c, right = 2 * x + 1 < d->width ? left + 3 : left;
                *out++ = (uint8_t)((top[left] + top[right] + low[left] + low[right] + 2) / 4);
            }
    }
    d->width = width;
    d->height = height;
}
