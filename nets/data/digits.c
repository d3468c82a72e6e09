/* digits: generates images like handwritten digits, for training without a download.
 *
 * An image is a glyph of pen strokes, distorted by a smooth random field and a random affine map, drawn with
 * an antialiased round pen, with noise added. All random numbers come from Philox keyed by the identity of
 * the image. The arithmetic is float additions, multiplications, divisions and square roots in a fixed order
 * (no libm, no contraction), so that the bits are the same on every machine with IEEE floats. With the ranges
 * below a linear model reaches about 90 % and LeNet more than 99 %. */
#include "nets/data/dataset.h"
#include "nets/data/glyphs.h"
#include "nets/philox.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE, CLASSES = 10, N_TRAIN = 60000, N_TEST = 10000 };
enum { GRID = 4, LINE_PIECES = 3, CURVE_PIECES = 3, MAX_VERTICES = 96 };
enum { LANES = 8, STRIDE = SIDE + LANES }; /* floats of a row of distances */

#define HEIGHT_PX  20.0f
#define MAX_ROTATE 0.2617994f /* 15 degrees */
#define MIN_SCALE  0.80f
#define MAX_SCALE  1.05f
#define MAX_ASPECT 0.10f /* of the logarithm */
#define MAX_SHEAR  0.20f
#define MAX_SHIFT  2.0f  /* px */
#define MAX_BEND   0.11f /* digit heights */
#define MIN_STROKE 1.2f  /* px */
#define MAX_STROKE 3.2f
#define MAX_NOISE  0.12f /* standard deviation; ink is 1 */

struct digits {
    struct cnn_philox_key key;
};

struct point {
    float x, y;
};

/* The distortion of one image: maps glyph coordinates, in digit heights around the middle, to pixels. */
struct warp {
    struct point bend[GRID][GRID];
    float xx, xy, yx, yy; /* [xx xy; yx yy] */
    struct point shift;
};

static uint8_t first_glyph(uint8_t digit)
{
    uint8_t g = 0;
    while (cnn_glyphs[g].digit != digit)
        g++;
    return g;
}

static const struct cnn_glyph *pick_glyph(struct cnn_random *r, uint8_t digit)
{
    uint8_t first = first_glyph(digit), n = 1;
    while (first + n < CNN_N_GLYPHS && cnn_glyphs[first + n].digit == digit)
        n++;
    return &cnn_glyphs[first + cnn_random_below(r, n)];
}

static void draw_warp(struct cnn_random *r, struct warp *w)
{
    for (int i = 0; i < GRID; i++)
        for (int j = 0; j < GRID; j++)
            w->bend[i][j] = (struct point){cnn_random_float(r, -MAX_BEND, MAX_BEND),
                                           cnn_random_float(r, -MAX_BEND, MAX_BEND)};
    float angle = cnn_random_float(r, -MAX_ROTATE, MAX_ROTATE);
    float scale = HEIGHT_PX * cnn_random_float(r, MIN_SCALE, MAX_SCALE);
    float aspect = 0.5f * cnn_random_float(r, -MAX_ASPECT, MAX_ASPECT);
    float shear = cnn_random_float(r, -MAX_SHEAR, MAX_SHEAR);

    /* Taylor series: for these small arguments exact to float rounding, and identical on all machines, unlike
     * libm. */
    float a2 = angle * angle;
    float sine = angle * (1.0f - a2 / 6.0f * (1.0f - a2 / 20.0f));
    float cosine = 1.0f - a2 / 2.0f * (1.0f - a2 / 12.0f * (1.0f - a2 / 30.0f));
    float stretch = 1.0f + aspect * (1.0f + aspect / 2.0f * (1.0f + aspect / 3.0f));

    float sx = scale * stretch, sy = scale / stretch;
    w->xx = cosine * sx;
    w->xy = cosine * sx * shear - sine * sy;
    w->yx = sine * sx;
    w->yy = sine * sx * shear + cosine * sy;
    /* Pixel k covers k to k + 1 with its centre at k + 0.5. Coordinates here are relative to centres. */
    w->shift.x = 0.5f * (SIDE - 1) + cnn_random_float(r, -MAX_SHIFT, MAX_SHIFT);
    w->shift.y = 0.5f * (SIDE - 1) + cnn_random_float(r, -MAX_SHIFT, MAX_SHIFT);
}

/* Cell and smooth weight of a coordinate in the distortion field, which spans [-0.5, 0.5]. */
static int field_cell(float v, float *weight)
{
    float at = (v + 0.5f) * (GRID - 1);
    int cell = at <= 0 ? 0 : at >= GRID - 1 ? GRID - 2 : (int)at;
    float t = at - (float)cell;
    t = t < 0 ? 0 : t > 1 ? 1 : t;
    *weight = t * t * (3.0f - 2.0f * t);
    return cell;
}

static struct point warp_point(const struct warp *w, struct point p)
{
    float u, v;
    int j = field_cell(p.x, &u), i = field_cell(p.y, &v);
    const struct point *a = &w->bend[i][j], *b = &w->bend[i + 1][j];
    float x = p.x + (1 - v) * ((1 - u) * a[0].x + u * a[1].x) + v * ((1 - u) * b[0].x + u * b[1].x);
    float y = p.y + (1 - v) * ((1 - u) * a[0].y + u * a[1].y) + v * ((1 - u) * b[0].y + u * b[1].y);
    return (struct point){w->xx * x + w->xy * y + w->shift.x, w->yx * x + w->yy * y + w->shift.y};
}

static struct point stroke_point(const struct cnn_stroke *s, int i)
{
    return (struct point){(float)(s->point[i][0] - 50) * 0.01f, (float)(s->point[i][1] - 50) * 0.01f};
}

/* Catmull-Rom spline from b (t = 0) to c (t = 1). */
static float spline(float a, float b, float c, float d, float t)
{
    return b + 0.5f * t * (c - a + t * (2 * a - 5 * b + 4 * c - d + t * (3 * (b - c) + d - a)));
}

/* Writes the warped stroke as a chain of points; returns how many. */
static int trace_stroke(const struct cnn_stroke *s, const struct warp *w, struct point *out)
{
    int n = 0, n_out = 0;
    while (n < CNN_GLYPH_POINTS && (s->point[n][0] != 0 || s->point[n][1] != 0))
        n++;
    bool closed = memcmp(s->point[0], s->point[n - 1], 2) == 0;
    int pieces = s->pen == CNN_PEN_CURVE ? CURVE_PIECES : LINE_PIECES;
    for (int i = 0; i + 1 < n; i++) {
        struct point b = stroke_point(s, i), c = stroke_point(s, i + 1);
        struct point a = i > 0 ? stroke_point(s, i - 1) : closed ? stroke_point(s, n - 2) : b;
        struct point d = i + 2 < n ? stroke_point(s, i + 2) : closed ? stroke_point(s, 1) : c;
        for (int k = 0; k < pieces; k++) {
            float t = (float)k / (float)pieces;
            struct point p = {b.x + t * (c.x - b.x), b.y + t * (c.y - b.y)};
            if (s->pen == CNN_PEN_CURVE)
                p = (struct point){spline(a.x, b.x, c.x, d.x, t), spline(a.y, b.y, c.y, d.y, t)};
            out[n_out++] = warp_point(w, p);
        }
    }
    out[n_out++] = warp_point(w, stroke_point(s, n - 1));
    return n_out;
}

static int clamp_pixel(float v)
{
    return v <= 0 ? 0 : v >= SIDE - 1 ? SIDE - 1 : (int)v;
}

/* Lowers the squared distances of the pixels within `reach` of the segment a b. It may also lower those of
 * pixels up to LANES to the right, which are farther away than that: a multiple of LANES at a time is for
 * vector instructions. */
static void near_segment(struct point a, struct point b, float reach, float distance2[SIDE][STRIDE])
{
    struct point d = {b.x - a.x, b.y - a.y};
    float len2 = d.x * d.x + d.y * d.y;
    float inv = len2 > 0 ? 1.0f / len2 : 0;
    int x0 = clamp_pixel((a.x < b.x ? a.x : b.x) - reach),
        x1 = clamp_pixel((a.x < b.x ? b.x : a.x) + reach + 1);
    int y0 = clamp_pixel((a.y < b.y ? a.y : b.y) - reach),
        y1 = clamp_pixel((a.y < b.y ? b.y : a.y) + reach + 1);
    for (int y = y0; y <= y1; y++)
        for (int x = x0; x <= x1; x += LANES) {
            float py = (float)y - a.y, *at = &distance2[y][x];
#pragma omp simd
            for (int k = 0; k < LANES; k++) {
                float px = (float)(x + k) - a.x;
                float t = (px * d.x + py * d.y) * inv;
                t = t > 0 ? t : 0;
                t = t < 1 ? t : 1;
                float ex = px - t * d.x, ey = py - t * d.y;
                float e2 = ex * ex + ey * ey;
                at[k] = e2 < at[k] ? e2 : at[k];
            }
        }
}

/* Approximately normal noise of deviation 1: the sum of the four bytes of a word. */
static void draw_noise(struct cnn_random *r, float *noise)
{
    for (int i = 0; i < PIXELS; i += 4) {
        struct cnn_philox_block b = cnn_philox(r->counter, r->key);
        r->counter.v[0]++;
        for (int k = 0; k < 4; k++) {
            uint32_t pairs = (b.v[k] & 0x00FF00FF) + (b.v[k] >> 8 & 0x00FF00FF);
            int sum = (int)((pairs & 0xFFFF) + (pairs >> 16));
            noise[i + k] = (float)(sum - 510) * (1.0f / 147.8f);
        }
    }
}

static float clamp_ink(float ink)
{
    ink = ink > 0 ? ink : 0;
    return ink < 1 ? ink : 1;
}

static void draw_row(const float *restrict distance2, float radius, float sigma, const float *restrict noise,
                     uint8_t *restrict pixels)
{
    for (int x = 0; x < SIDE; x++) {
        float ink = clamp_ink(radius + 0.5f - sqrtf(distance2[x]));
        pixels[x] = (uint8_t)(int)(clamp_ink(ink + sigma * noise[x]) * 255.0f + 0.5f);
    }
}

static int digits_image(const void *self, const struct cnn_image_id *id, uint8_t *pixels, uint16_t *label,
                        struct ps_error *err)
{
    (void)err;
    const struct digits *digits = self;
    /* The split is a bit of the counter: training and test images never coincide, for any seeds. */
    struct cnn_philox_block mixed =
        cnn_philox((struct cnn_philox_block){{(uint32_t)id->seed, (uint32_t)(id->seed >> 32)}}, digits->key);
    struct cnn_random r =
        cnn_random_start((struct cnn_philox_key){{mixed.v[0], mixed.v[1]}}, id->index, (uint32_t)id->epoch,
                         id->rank | (id->split == CNN_TEST ? 1u << 31 : 0));
    struct point chain[MAX_VERTICES];
    float distance2[SIDE][STRIDE], noise[PIXELS];
    struct warp warp;

    *label = (uint16_t)(id->index % CLASSES);
    const struct cnn_glyph *glyph = pick_glyph(&r, *label);
    draw_warp(&r, &warp);
    float radius = 0.5f * cnn_random_float(&r, MIN_STROKE, MAX_STROKE);
    float sigma = cnn_random_float(&r, 0, MAX_NOISE);

    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < STRIDE; x++)
            distance2[y][x] = 1e6f;
    for (int s = 0; s < CNN_GLYPH_STROKES && glyph->stroke[s].pen != CNN_PEN_NONE; s++) {
        int n = trace_stroke(&glyph->stroke[s], &warp, chain);
        for (int i = 0; i + 1 < n; i++)
            near_segment(chain[i], chain[i + 1], radius + 0.5f, distance2);
    }
    draw_noise(&r, noise);
    for (int y = 0; y < SIDE; y++)
        draw_row(distance2[y], radius, sigma, noise + y * SIDE, pixels + y * SIDE);
    return 0;
}

static int digits_open(const char *arg, const struct cnn_data_options *opt, struct cnn_data_info *info,
                       void **self, struct ps_error *err)
{
    (void)opt;
    uint64_t seed = 0;
    if (arg != NULL) {
        char *end;
        errno = 0;
        seed = strtoull(arg, &end, 10);
        if (*arg < '0' || *arg > '9' || *end != '\0' || errno != 0)
            return ps_fail(err, -EINVAL, "data set digits: seed \"%.80s\"; allowed: 0 to 2^64 - 1", arg);
    }
    struct digits *digits = calloc(1, sizeof *digits);
    if (digits == NULL)
        return ps_fail(err, -ENOMEM, "no memory for data set digits");
    digits->key = cnn_philox_key_of(seed);
    *info = (struct cnn_data_info){.name = "digits",
                                   .channels = 1,
                                   .height = SIDE,
                                   .width = SIDE,
                                   .classes = CLASSES,
                                   .n_train = N_TRAIN,
                                   .n_test = N_TEST};
    *self = digits;
    return 0;
}

const struct cnn_data_type cnn_data_digits = {
    .name = "digits",
    .usage = "digits[:SEED]",
    .mean = {0.1307f}, /* of mnist */
    .deviation = {0.3081f},
    .open = digits_open,
    .close = free,
    .image = digits_image,
};
