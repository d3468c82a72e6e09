#include "nets/data/images/resample.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A column or row of a view is interpolated between pixel `at` of the picture and the next, at `weight`/128
 * of the distance. */
enum { STEPS = 128 };

/* Two pixels of three 8-bit colours and an unused lane, in 16-bit lanes: the difference of two bytes times a
 * weight fits. */
typedef int16_t lanes __attribute__((vector_size(16)));
typedef uint64_t halves __attribute__((vector_size(16)));
typedef uint8_t bytes __attribute__((vector_size(8)));
typedef uint32_t words __attribute__((vector_size(8)));

void cnn_resampler_finish(struct cnn_resampler *r)
{
    free(r->memory);
}

static bool has_a_pixel_each(const struct cnn_axis *a, uint32_t image_side, uint32_t scale)
{
    return a->b * image_side >= a->c * scale;
}

uint32_t cnn_window_scale(const struct cnn_window *w, uint32_t image_width, uint32_t image_height)
{
    uint32_t scale = CNN_PICTURE_SCALES;
    while (scale > 1 &&
           !(has_a_pixel_each(&w->x, image_width, scale) && has_a_pixel_each(&w->y, image_height, scale)))
        scale /= 2;
    return scale;
}

/* The position of column or row i in the picture, in steps of 1/128 pixel from the centre of pixel 0, clamped
 * to the picture. */
static uint64_t place_of(const struct cnn_axis *a, uint32_t side, uint32_t i)
{
    uint64_t place = (a->a + (2ull * i + 1) * a->b) * side * (STEPS / 2) / a->c;
    uint64_t last = (uint64_t)(side - 1) * STEPS;
    place = place < STEPS / 2 ? 0 : place - STEPS / 2;
    return place < last ? place : last;
}

uint32_t cnn_window_rows(const struct cnn_window *w, uint32_t picture_height, uint32_t height)
{
    uint32_t rows = (uint32_t)(place_of(&w->y, picture_height, height - 1) / STEPS) + 2;
    return rows < picture_height ? rows : picture_height;
}

/* weights: four copies of each, one per lane of pick_columns. */
static void fill_columns(const struct cnn_axis *a, uint32_t side, uint32_t n, bool mirrored, uint32_t *at,
                         int16_t *weights)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t place = place_of(a, side, mirrored ? n - 1 - i : i);
        at[i] = (uint32_t)(place / STEPS);
        for (int k = 0; k < 4; k++)
            weights[4 * i + k] = (int16_t)(place % STEPS);
    }
}

/* Whether the view copies pixels: no interpolation, and every column once, from left to right or reversed. */
static bool is_plain(const uint32_t *at, const int16_t *weights, uint32_t n, bool mirrored)
{
    for (uint32_t i = 0; i < n; i++)
        if (weights[4 * i] != 0 || at[i] != (mirrored ? at[0] - i : at[0] + i))
            return false;
    return true;
}

static void copy_pixels(const uint8_t *from, uint32_t n, bool mirrored, uint8_t *out)
{
    if (!mirrored)
        memcpy(out, from, 3 * (size_t)n);
    else
        for (from += 3 * ((size_t)n - 1); n > 0; n--, from -= 3, out += 3) {
            out[0] = from[0];
            out[1] = from[1];
            out[2] = from[2];
        }
}

/* Interpolates n values between two rows. */
static void blend_rows(const uint8_t *top, const uint8_t *low, int16_t weight, size_t n, int16_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = (int16_t)(top[i] + (int16_t)((int16_t)((low[i] - top[i]) * weight + STEPS / 2) >> 7));
}

static uint64_t load(const int16_t *from)
{
    uint64_t four;
    memcpy(&four, from, sizeof four);
    return four;
}

/* Interpolates two columns at a time. out has room for one more pair and a byte. */
static void pick_columns(const int16_t *row, const uint32_t *at, const int16_t *weights, uint32_t first,
                         uint32_t n, uint8_t *out)
{
    for (uint32_t x = 0; x < n; x += 2, out += 6) {
        const int16_t *left = row + 3 * (size_t)(at[x] - first),
                      *right = row + 3 * (size_t)(at[x + 1] - first);
        lanes a = (lanes)(halves){load(left), load(right)};
        lanes b = (lanes)(halves){load(left + 3), load(right + 3)};
        lanes w = (lanes)(halves){load(weights + 4 * (size_t)x), load(weights + 4 * (size_t)x + 4)};
        words pixels = (words) __builtin_convertvector(a + (((b - a) * w + STEPS / 2) >> 7), bytes);
        memcpy(out, &(uint32_t){pixels[0]}, 4);
        memcpy(out + 3, &(uint32_t){pixels[1]}, 4);
    }
}

/* Reserves memory for a view and a picture of these widths: full pairs of columns, one pixel past the picture
 * (its weight is 0), and the unused lane. */
static int reserve(struct cnn_resampler *r, uint32_t view, uint32_t picture, struct ps_error *err)
{
    size_t n_view = (size_t)view + 1, n_row = 3 * (size_t)picture + 8;
    size_t needed = n_view * (4 + 8) + n_row * 2 + 3 * n_view + 8;
    if (needed > r->room) { /* the old contents are not needed */
        void *memory = malloc(needed);
        if (memory == NULL)
            return ps_fail(err, -ENOMEM, "no memory for a view of %u columns", view);
        free(r->memory);
        r->memory = memory;
        r->room = needed;
    }
    r->weights = r->memory;
    r->at = (uint32_t *)(void *)(r->weights + 4 * n_view);
    r->row = (int16_t *)(void *)(r->at + n_view);
    r->line = (uint8_t *)(r->row + n_row);
    return 0;
}

int cnn_resample(struct cnn_resampler *r, const struct cnn_picture *p, const struct cnn_window *w,
                 uint32_t width, uint32_t height, uint8_t *out, struct ps_error *err)
{
    int rc = reserve(r, width, p->width, err);
    if (rc != 0)
        return rc;
    fill_columns(&w->x, p->width, width, w->mirrored, r->at, r->weights);
    r->at[width] = r->at[width - 1]; /* completes the last pair */
    memcpy(r->weights + 4 * (size_t)width, r->weights + 4 * (size_t)(width - 1), 4 * sizeof *r->weights);
    uint32_t first = r->at[w->mirrored ? width - 1 : 0], last = r->at[w->mirrored ? 0 : width - 1];
    size_t n = 3 * (size_t)((last + 1 < p->width ? last + 1 : last) - first + 1),
           stride = 3 * (size_t)p->width;
    bool plain = is_plain(r->at, r->weights, width, w->mirrored);

    memset(r->row + n, 0, 8 * sizeof *r->row);
    for (uint32_t y = 0; y < height; y++, out += 3 * (size_t)width) {
        uint64_t place = place_of(&w->y, p->height, y);
        int16_t weight = (int16_t)(place % STEPS);
        const uint8_t *top = p->rgb + place / STEPS * stride + 3 * (size_t)first;
        if (plain && weight == 0) {
            copy_pixels(top, width, w->mirrored, out);
            continue;
        }
        blend_rows(top, weight != 0 ? top + stride : top, weight, n, r->row);
        pick_columns(r->row, r->at, r->weights, first, width, r->line);
        memcpy(out, r->line, 3 * (size_t)width);
    }
    return 0;
}
