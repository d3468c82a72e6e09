/* JPEG and PNG files: what is decoded has the size that was said, and a view can be taken out of it, with the
 * same bits if only the part is decoded that it needs. The first byte is the scale and the view. */
#include <string.h>

#include "nets/data/images/resample.h"
#include "tests/fuzz/fuzz.h"

enum { SIDE = 16, MOST = 1 << 20 }; /* larger ones take longer and show nothing more */

/* Decodes the part, NULL: all, and takes the view out of it. */
static bool decode_view(const struct cnn_picture_format *f, struct cnn_decoder *d, const uint8_t *bytes,
                        size_t len, uint32_t scale, const struct cnn_part *part, const struct cnn_window *w,
                        uint8_t *view)
{
    struct cnn_resampler r = {0};
    if (f->decode(d, bytes, len, scale, part, NULL) != 0)
        return false;
    struct cnn_picture p = cnn_decoder_picture(d);
    promise(cnn_resample(&r, &p, w, SIDE, SIDE, view, NULL) == 0);
    cnn_resampler_finish(&r);
    return true;
}

static void take_view(const struct cnn_picture_format *f, struct cnn_decoder *d, const uint8_t *bytes,
                      size_t len, uint32_t width, uint32_t height, uint8_t choice)
{
    const struct cnn_image_id id = {.index = choice};
    struct cnn_draws draws = {.id = &id};
    struct cnn_looks looks;
    struct cnn_view_call call = {width, height, SIDE, SIDE, SIDE + choice % 8u, true};
    uint8_t *view = malloc(3 * SIDE * SIDE), *same = malloc(3 * SIDE * SIDE);
    promise(view != NULL && same != NULL);
    promise(cnn_looks_read(choice & 4 ? "crop" : "resized-crop", &looks, NULL) == 0);
    struct cnn_window w = looks.kind->place(&call, &draws);
    uint32_t scale = cnn_window_scale(&w, width, height);
    promise(scale == 1 || scale == 2 || scale == 4 || scale == 8);
    uint32_t decoded_w = (width + scale - 1) / scale, decoded_h = (height + scale - 1) / scale;
    struct cnn_part part = cnn_window_part(&w, decoded_w, decoded_h, SIDE, SIDE);
    promise(part.width > 0 && part.left + part.width <= decoded_w);
    promise(part.height > 0 && part.top + part.height <= decoded_h);
    if (decode_view(f, d, bytes, len, scale, &part, &w, same)) {
        promise(d->width == decoded_w && d->height == decoded_h);
        /* the whole may have damage outside the part */
        if (decode_view(f, d, bytes, len, scale, NULL, &w, view))
            promise(memcmp(view, same, 3 * SIDE * SIDE) == 0);
        cnn_view_jitter(same, SIDE * SIDE, 0.5f, &draws);
    }
    free(view);
    free(same);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct cnn_decoder d = {0};
    struct ps_error err = {""};
    uint32_t width = 0, height = 0;

    if (len == 0)
        return 0;
    uint8_t choice = bytes[0];
    uint32_t scale = 1u << choice % 4;
    bytes++, len--;
    const struct cnn_picture_format *f = cnn_picture_find(bytes, len, &err);
    if (f == NULL || cnn_picture_size(f, &d, bytes, len, &width, &height, &err) != 0) {
        promise(*err.text != '\0');
    } else if ((uint64_t)width * height <= MOST) {
        int rc = f->decode(&d, bytes, len, scale, NULL, &err);
        promise(rc == 0 || *err.text != '\0');
        if (rc == 0) {
            promise(d.width == (width + scale - 1) / scale && d.height == (height + scale - 1) / scale);
            promise(d.room >= 3 * (size_t)d.width * d.height);
            take_view(f, &d, bytes, len, width, height, choice);
        }
    }
    cnn_decoder_finish(&d);
    return 0;
}
