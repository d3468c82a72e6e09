/* decode.h: decodes JPEG and PNG files to pixels. Private to data/images.
 *
 * Files are not trusted: sizes are checked before memory is allocated. */
#ifndef CNN_IMAGES_DECODE_H
#define CNN_IMAGES_DECODE_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"

enum {
    CNN_PICTURE_PIXELS = 1 << 26, /* the most pixels of an image: 67 megapixels */
    CNN_PICTURE_SCALES = 8,       /* an image is decoded at 1/1, 1/2, 1/4 or 1/8 of its size */
};

/* A picture in memory: [height][width][3]. */
struct cnn_picture {
    const uint8_t *rgb;
    uint32_t width, height;
};

/* A part of a picture. */
struct cnn_part {
    uint32_t left, top, width, height;
};

struct cnn_jpeg;

/* For one thread; zero-initialised. */
struct cnn_decoder {
    struct cnn_jpeg *jpeg; /* NULL before the first JPEG */
    uint8_t *memory;       /* holds rgb */
    uint8_t *rgb;          /* the last picture; at an odd address, see decode.c */
    size_t room;           /* bytes of rgb */
    uint32_t width, height;
};

static inline struct cnn_picture cnn_decoder_picture(const struct cnn_decoder *d)
{
    return (struct cnn_picture){d->rgb, d->width, d->height};
}

/* A file format: one source file here and one row in the table of decode.c. Both functions return 0, -EBADMSG
 * with a sentence about the bytes, or -ENOMEM. If `size` was the decoder's last call, with the same bytes,
 * `decode` does not read the header again: the bytes must not change in between. */
struct cnn_picture_format {
    const char *name;
    const char *magic; /* the first bytes of a file */
    size_t n_magic;
    int (*size)(struct cnn_decoder *d, const uint8_t *bytes, size_t len, uint32_t *width, uint32_t *height,
                struct ps_error *err);
    /* Fills the picture: the image at 1/scale of its size, rounded up. part: the pixels that are wanted,
     * which lie in the picture; the others are undefined. NULL: all. */
    int (*decode)(struct cnn_decoder *d, const uint8_t *bytes, size_t len, uint32_t scale,
                  const struct cnn_part *part, struct ps_error *err);
};

extern const struct cnn_picture_format cnn_picture_jpeg, cnn_picture_png;

void cnn_jpeg_destroy(struct cnn_jpeg *j);

void cnn_decoder_finish(struct cnn_decoder *d); /* of a zeroed or used decoder */

/* The format of a file; NULL with a sentence if its first bytes match none. */
const struct cnn_picture_format *cnn_picture_find(const uint8_t *bytes, size_t len, struct ps_error *err);
/* The size of the image; checks 1 to CNN_PICTURE_PIXELS pixels. */
int cnn_picture_size(const struct cnn_picture_format *f, struct cnn_decoder *d, const uint8_t *bytes,
                     size_t len, uint32_t *width, uint32_t *height, struct ps_error *err);

/* Reserves `bytes` bytes in rgb. -ENOMEM with a sentence. */
int cnn_decoder_reserve(struct cnn_decoder *d, size_t bytes, struct ps_error *err);
/* Halves the picture's size; each pixel is the mean of four. */
void cnn_decoder_halve(struct cnn_decoder *d);

#endif
