/* resample.h: computes the pixels of a view from a decoded picture. Private to data/images. */
#ifndef CNN_IMAGES_RESAMPLE_H
#define CNN_IMAGES_RESAMPLE_H

#include "nets/data/images/decode.h"
#include "nets/data/images/view.h"

/* For one thread; zero-initialised. */
struct cnn_resampler {
    void *memory; /* holds all arrays below */
    size_t room;
    uint32_t *at;     /* the pixel at or before each column of the view */
    uint8_t *table;   /* of the loops */
    uint8_t *weights; /* interpolation weight of each column of the view */
    uint8_t *rows[2]; /* each interpolated between two rows of the picture */
};

void cnn_resampler_finish(struct cnn_resampler *r);

/* The smallest scale, 1/1 to 1/8, at which an image of that size has at least one pixel for each pixel of the
 * view. */
uint32_t cnn_window_scale(const struct cnn_window *w, uint32_t image_width, uint32_t image_height);

/* The part of a picture of that size that a view of `width` x `height` pixels needs. */
struct cnn_part cnn_window_part(const struct cnn_window *w, uint32_t picture_width, uint32_t picture_height,
                                uint32_t width, uint32_t height);

/* Writes the view [height][width][3] of the window in the picture, which may have any scale, with bilinear
 * interpolation. The bits depend only on the arguments. -ENOMEM with a sentence. */
int cnn_resample(struct cnn_resampler *r, const struct cnn_picture *p, const struct cnn_window *w,
                 uint32_t width, uint32_t height, uint8_t *out, struct ps_error *err);

#endif
