/* view.h: views: the part of an image that the net sees. Private to data/images.
 *
 * A kind of view is a row of a table; it computes the positions of the view's columns and rows in the image.
 * resample.h then interpolates the pixels, at any scale of the decoded image. */
#ifndef CNN_IMAGES_VIEW_H
#define CNN_IMAGES_VIEW_H

#include <stdbool.h>

#include "nets/data/dataset.h"

/* Column i of the view is at (a + (2 i + 1) b) / (2 c) of the image's width; rows likewise. */
struct cnn_axis {
    uint64_t a, b, c;
};

struct cnn_window {
    struct cnn_axis x, y;
    bool mirrored;
};

/* Random words of one image. They depend only on (seed, rank, epoch, index). */
struct cnn_draws {
    const struct cnn_image_id *id;
    uint32_t n; /* words drawn so far */
    struct cnn_philox_block block;
};

float cnn_draw_float(struct cnn_draws *d, float lo, float hi); /* in [lo, hi) */

/* The arguments of a kind of view. */
struct cnn_view_call {
    uint32_t image_width, image_height;
    uint32_t width, height; /* of the view */
    uint32_t side;          /* the scaled length of the image's shorter side; at least width and height */
    bool flips;             /* half of the views are mirrored */
};

struct cnn_view_kind {
    const char *name;
    struct cnn_window (*place)(const struct cnn_view_call *call, struct cnn_draws *draws);
};

/* The view options of a set, for training images. Test images are the center, scaled to the same side. */
struct cnn_looks {
    const struct cnn_view_kind *kind;
    uint32_t side; /* 0: 8/7 of the view's longer side, such as 256 for 224 */
    float jitter;  /* brightness, contrast and saturation are each multiplied by 1 - jitter to 1 + jitter */
    bool flips;
};

/* Reads "KIND[:KEY=VALUE,…]", NULL: "crop". -EINVAL with a sentence. */
int cnn_looks_read(const char *text, struct cnn_looks *out, struct ps_error *err);
uint32_t cnn_looks_side(const struct cnn_looks *looks, uint32_t width, uint32_t height);

extern const struct cnn_view_kind cnn_view_centre;

/* The view of the whole image with its shorter side scaled to `side`: its window and its size. */
struct cnn_window cnn_view_whole(uint32_t image_width, uint32_t image_height, uint32_t side, uint32_t *width,
                                 uint32_t *height);

/* Multiplies the brightness, contrast and saturation of an RGB image in place (Howard 2013; Krizhevsky et
 * al. 2012 vary colours too). */
void cnn_view_jitter(uint8_t *rgb, size_t n_pixels, float jitter, struct cnn_draws *draws);

#endif
