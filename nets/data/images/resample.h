/* resample.h: takes the pixels of a view out of a decoded picture. Private to data/images. */
#ifndef CNN_IMAGES_RESAMPLE_H
#define CNN_IMAGES_RESAMPLE_H

#include "nets/data/images/decode.h"
#include "nets/data/images/view.h"

/* Of one thread; zeroed at first. */
struct cnn_resampler {
    void *memory; /* of all that follows */
    size_t room;
    int16_t *weights; /* how far it is from `at` to the next pixel, four times for each column of the view */
    uint32_t *at;     /* of the view's columns: the pixel at or before each */
    int16_t *row;     /* a row of the picture, between two of its own */
    uint8_t *line;    /* a row of the view */
};

void cnn_resampler_finish(struct cnn_resampler *r);

/* The smallest scale, 1/1 to 1/8, at which an image of that size has a pixel for every one of the view. */
uint32_t cnn_window_scale(const struct cnn_window *w, uint32_t image_width, uint32_t image_height);

/* How many of the first rows of a picture of that height a view of `height` rows needs. */
uint32_t cnn_window_rows(const struct cnn_window *w, uint32_t picture_height, uint32_t height);

/* Writes the view [height][width][3] that the window shows of the picture, which may be at any scale:
 * bilinear between its four nearest pixels. Its bits depend on the arguments alone. -ENOMEM with a sentence.
 */
int cnn_resample(struct cnn_resampler *r, const struct cnn_picture *p, const struct cnn_window *w,
                 uint32_t width, uint32_t height, uint8_t *out, struct ps_error *err);

#endif
