#include "nets/data/images/resample.h"

#include "nets/data/images/resample_loops.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* A column or row of a view is interpolated between pixel `at` of the picture and the next, at `weight`/128
 * of the distance. */
enum { STEPS = CNN_RESAMPLE_STEPS };

/* A view of that size is written around the caches: others of its batch follow, and their reader comes when
 * no core's cache has them any more. */
enum { STREAMED_BYTES = 1 << 16 };

#ifdef __x86_64__
extern const struct cnn_resample_loops cnn_resample_avx512, cnn_resample_avx2;

static const struct cnn_resample_loops *avx512(void)
{
    bool has = __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("avx512vbmi");
    return has ? &cnn_resample_avx512 : NULL;
}

static const struct cnn_resample_loops *avx2(void)
{
    return __builtin_cpu_supports("avx2") ? &cnn_resample_avx2 : NULL;
}
#endif

static const struct cnn_resample_loops *plain(void)
{
    return &cnn_resample_plain;
}

const struct cnn_resample_loops *cnn_resample_loops(uint32_t i)
{
    static const struct cnn_resample_loops *(*const rows[])(void) = {
#ifdef __x86_64__
        avx512,
        avx2,
#endif
        plain,
    };
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const struct cnn_resample_loops *found = rows[k]();
        if (found != NULL && i-- == 0)
            return found;
    }
    return NULL;
}

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

/* The positions of columns or rows in a picture, from the first to the last: place + rest/c, in steps of
 * 1/128 pixel from the left of pixel 0. Additions give the quotients that divisions would. */
struct places {
    uint64_t place, rest, step, step_rest, c;
    uint64_t last; /* the centre of the last pixel, from that of pixel 0 */
};

static struct places places_from(const struct cnn_axis *a, uint32_t side, uint32_t i)
{
    uint64_t unit = (uint64_t)side * (STEPS / 2), first = (a->a + (2ull * i + 1) * a->b) * unit;
    uint64_t step = 2 * a->b * unit;
    return (struct places){.place = first / a->c,
                           .rest = first % a->c,
                           .step = step / a->c,
                           .step_rest = step % a->c,
                           .c = a->c,
                           .last = (uint64_t)(side - 1) * STEPS};
}

/* The next position, from the centre of pixel 0, clamped to the picture. */
static uint64_t next_place(struct places *p)
{
    uint64_t place = p->place < STEPS / 2 ? 0 : p->place - STEPS / 2;
    p->place += p->step;
    p->rest += p->step_rest;
    if (p->rest >= p->c) {
        p->rest -= p->c;
        p->place++;
    }
    return place < p->last ? place : p->last;
}

/* The first of `side` pixels that n columns or rows need, and how many. */
static void find_span(const struct cnn_axis *a, uint32_t side, uint32_t n, uint32_t *first,
                      uint32_t *n_needed)
{
    struct places from = places_from(a, side, 0), to = places_from(a, side, n - 1);
    uint32_t end = (uint32_t)(next_place(&to) / STEPS) + 2;
    *first = (uint32_t)(next_place(&from) / STEPS);
    *n_needed = (end < side ? end : side) - *first;
}

struct cnn_part cnn_window_part(const struct cnn_window *w, uint32_t picture_width, uint32_t picture_height,
                                uint32_t width, uint32_t height)
{
    struct cnn_part part;
    find_span(&w->x, picture_width, width, &part.left, &part.width);
    find_span(&w->y, picture_height, height, &part.top, &part.height);
    return part;
}

static void fill_columns(const struct cnn_axis *a, uint32_t side, uint32_t n, bool mirrored, uint32_t *at,
                         uint8_t *weights)
{
    struct places places = places_from(a, side, 0);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t place = next_place(&places);
        uint32_t to = mirrored ? n - 1 - i : i;
        at[to] = (uint32_t)(place / STEPS);
        weights[to] = (uint8_t)(place % STEPS);
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

static size_t aligned(size_t bytes)
{
    return (bytes + CNN_RESAMPLE_ALIGN - 1) / CNN_RESAMPLE_ALIGN * CNN_RESAMPLE_ALIGN;
}

/* Reserves memory for a view and a picture of these widths. */
static int reserve(struct cnn_resampler *r, uint32_t view, uint32_t picture, struct ps_error *err)
{
    size_t n_table = aligned(cnn_resample_table_bytes(view));
    size_t n_row = aligned(3 * (size_t)picture + CNN_RESAMPLE_SLACK);
    size_t needed = aligned(n_table + 2 * n_row + view * (sizeof *r->at + 1));
    if (needed > r->room) { /* the old contents are not needed */
        void *memory = aligned_alloc(CNN_RESAMPLE_ALIGN, needed);
        if (memory == NULL)
            return ps_fail(err, -ENOMEM, "no memory for a view of %u columns", view);
        free(r->memory);
        r->memory = memory;
        r->room = needed;
    }
    r->table = r->memory;
    r->rows[0] = r->table + n_table;
    r->rows[1] = r->rows[0] + n_row;
    r->at = (uint32_t *)(void *)(r->rows[1] + n_row);
    r->weights = (uint8_t *)(r->at + view);
    return 0;
}

/* A view that is being made. */
struct making {
    const struct cnn_resample_loops *loops;
    struct cnn_columns columns;
    bool copies; /* columns that are those of the picture */
    bool mirrored;
    const uint8_t *first; /* the first column needed, in the picture's first row */
    size_t stride;        /* of the picture */
    size_t n_row;         /* bytes needed of each row */
    uint8_t **rows;       /* two, of that many bytes and slack */
};

/* What a row of the view is made of: two rows of the picture, from the first column needed. */
struct source {
    const uint8_t *top, *low;
    uint8_t weight;
};

static struct source next_source(const struct making *m, struct places *places)
{
    uint64_t place = next_place(places);
    uint8_t weight = (uint8_t)(place % STEPS);
    const uint8_t *top = m->first + place / STEPS * m->stride;
    return (struct source){top, weight != 0 ? top + m->stride : top, weight};
}

/* Two rows of the view. */
static void make_rows(const struct making *m, const struct source s[2], uint8_t *const out[2])
{
    if (m->copies && s[0].weight == 0 && s[1].weight == 0) {
        copy_pixels(s[0].top, m->columns.n, m->mirrored, out[0]);
        copy_pixels(s[1].top, m->columns.n, m->mirrored, out[1]);
        return;
    }
    for (int i = 0; i < 2; i++)
        m->loops->blend(s[i].top, s[i].low, s[i].weight, m->n_row, m->rows[i]);
    m->loops->pick((const uint8_t *const *)m->rows, &m->columns, out);
}

/* Whether the view's rows are to be written around the caches. */
static bool streams(uint32_t width, uint32_t height, const uint8_t *out)
{
    size_t n = 3 * (size_t)width;
    return n * height >= STREAMED_BYTES && n % CNN_RESAMPLE_PICKED == 0 &&
           (uintptr_t)out % CNN_RESAMPLE_PICKED == 0;
}

/* The loops for the columns. */
static const struct cnn_resample_loops *choose_loops(const struct cnn_columns *columns)
{
    const struct cnn_resample_loops *loops;
    for (uint32_t i = 0; (loops = cnn_resample_loops(i)) != NULL && !loops->prepare(columns); i++)
        ; /* those in plain C, the last, can pick any */
    return loops;
}

static void begin(struct making *m, struct cnn_resampler *r, const struct cnn_picture *p,
                  const struct cnn_window *w, uint32_t width, uint32_t height)
{
    const struct cnn_part part = cnn_window_part(w, p->width, p->height, width, height);
    fill_columns(&w->x, p->width, width, w->mirrored, r->at, r->weights);
    m->copies = is_plain(r->at, r->weights, width, w->mirrored);
    for (uint32_t x = 0; x < width; x++)
        r->at[x] -= part.left;
    m->columns = (struct cnn_columns){width, r->at, r->weights, r->table, false};
    m->loops = choose_loops(&m->columns);
    m->copies = m->copies && (!w->mirrored || m->loops == &cnn_resample_plain);
    m->mirrored = w->mirrored;
    m->first = p->rgb + 3 * (size_t)part.left;
    m->stride = 3 * (size_t)p->width;
    m->n_row = 3 * (size_t)part.width;
    m->rows = r->rows;
    for (int i = 0; i < 2; i++)
        memset(r->rows[i] + m->n_row, 0, CNN_RESAMPLE_SLACK);
}

/* Two rows at a time; the last of an odd number is made twice. */
int cnn_resample(struct cnn_resampler *r, const struct cnn_picture *p, const struct cnn_window *w,
                 uint32_t width, uint32_t height, uint8_t *out, struct ps_error *err)
{
    struct places places = places_from(&w->y, p->height, 0);
    size_t n = 3 * (size_t)width;
    struct making m;
    int rc = reserve(r, width, p->width, err);
    if (rc != 0)
        return rc;
    begin(&m, r, p, w, width, height);
    m.columns.streams = streams(width, height, out);
    for (uint32_t y = 0; y < height; y += 2, out += 2 * n) {
        bool is_single = y + 1 == height;
        struct source first = next_source(&m, &places);
        const struct source s[2] = {first, is_single ? first : next_source(&m, &places)};
        make_rows(&m, s, (uint8_t *const[2]){out, is_single ? out : out + n});
    }
    if (m.columns.streams && m.loops->flush != NULL)
        m.loops->flush();
    return 0;
}
