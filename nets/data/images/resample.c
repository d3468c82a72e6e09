#include "nets/data/images/resample.h"

#include "nets/data/images/resample_loops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A column or row of a view is interpolated between pixel `at` of the picture and the next, at `weight`/128
 * of the distance. */
enum { STEPS = CNN_RESAMPLE_STEPS };

#ifdef __x86_64__
extern const struct cnn_resample_loops cnn_resample_avx2;

const struct cnn_resample_loops *cnn_resample_fast(void)
{
    return __builtin_cpu_supports("avx2") ? &cnn_resample_avx2 : NULL;
}
#else
const struct cnn_resample_loops *cnn_resample_fast(void)
{
    return NULL;
}
#endif

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

static void fill_columns(const struct cnn_axis *a, uint32_t side, uint32_t n, bool mirrored, uint32_t *at,
                         uint8_t *weights)
{
    for (uint32_t i = 0; i < n; i++) {
        uint64_t place = place_of(a, side, mirrored ? n - 1 - i : i);
        at[i] = (uint32_t)(place / STEPS);
        weights[i] = (uint8_t)(place % STEPS);
    }
}

/* Whether the view copies pixels: no interpolation, and every column once, from left to right or reversed. */
static bool is_plain(const uint32_t *at, const uint8_t *weights, uint32_t n, bool mirrored)
{
    for (uint32_t i = 0; i < n; i++)
        if (weights[i] != 0 || at[i] != (mirrored ? at[0] - i : at[0] + i))
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

/* Reserves memory for a view and a picture of these widths. */
static int reserve(struct cnn_resampler *r, uint32_t view, uint32_t picture, struct ps_error *err)
{
    size_t n_table = cnn_resample_table_bytes(view), n_row = 3 * (size_t)picture + CNN_RESAMPLE_SLACK;
    size_t n_line = 3 * (size_t)view + CNN_RESAMPLE_SLACK;
    size_t needed = view * sizeof *r->at + n_table + view + n_row + n_line;
    if (needed > r->room) { /* the old contents are not needed */
        void *memory = calloc(needed, 1);
        if (memory == NULL)
            return ps_fail(err, -ENOMEM, "no memory for a view of %u columns", view);
        free(r->memory);
        r->memory = memory;
        r->room = needed;
    }
    r->at = r->memory;
    r->table = (uint8_t *)(r->at + view);
    r->weights = r->table + n_table;
    r->row = r->weights + view;
    r->line = r->row + n_row;
    return 0;
}

/* The columns relative to the first pixel that they use, and the loops for them. */
static const struct cnn_resample_loops *choose_loops(struct cnn_resampler *r, uint32_t width, uint32_t first,
                                                     struct cnn_columns *columns)
{
    const struct cnn_resample_loops *fast = cnn_resample_fast();
    for (uint32_t x = 0; x < width; x++)
        r->at[x] -= first;
    *columns = (struct cnn_columns){width, r->at, r->weights, r->table};
    return fast != NULL && fast->prepare(columns) ? fast : &cnn_resample_plain;
}

int cnn_resample(struct cnn_resampler *r, const struct cnn_picture *p, const struct cnn_window *w,
                 uint32_t width, uint32_t height, uint8_t *out, struct ps_error *err)
{
    struct cnn_columns columns;
    int rc = reserve(r, width, p->width, err);
    if (rc != 0)
        return rc;
    fill_columns(&w->x, p->width, width, w->mirrored, r->at, r->weights);
    uint32_t first = r->at[w->mirrored ? width - 1 : 0], last = r->at[w->mirrored ? 0 : width - 1];
    size_t n = 3 * (size_t)((last + 1 < p->width ? last + 1 : last) - first + 1),
           stride = 3 * (size_t)p->width;
    bool plain = is_plain(r->at, r->weights, width, w->mirrored);
    const struct cnn_resample_loops *loops = choose_loops(r, width, first, &columns);

    memset(r->row + n, 0, CNN_RESAMPLE_SLACK);
    for (uint32_t y = 0; y < height; y++, out += 3 * (size_t)width) {
        uint64_t place = place_of(&w->y, p->height, y);
        uint8_t weight = (uint8_t)(place % STEPS);
        const uint8_t *top = p->rgb + place / STEPS * stride + 3 * (size_t)first;
        if (plain && weight == 0) {
            copy_pixels(top, width, w->mirrored, out);
            continue;
        }
        loops->blend(top, weight != 0 ? top + stride : top, weight, n, r->row);
        loops->pick(r->row, &columns, r->line);
        memcpy(out, r->line, 3 * (size_t)width);
    }
    return 0;
}
