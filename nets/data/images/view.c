#include "nets/data/images/view.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/philox.h"

static uint32_t draw_word(struct cnn_draws *d)
{
    if (d->n % 4 == 0)
        d->block = cnn_image_draw(d->id, d->n / 4);
    return d->block.v[d->n++ % 4];
}

float cnn_draw_float(struct cnn_draws *d, float lo, float hi)
{
    return lo + (hi - lo) * ((float)(draw_word(d) >> 8) * 0x1p-24f);
}

/* In [0, n), n > 0. For n below 2^16 the bias is below 2^-16. */
static uint32_t draw_below(struct cnn_draws *d, uint32_t n)
{
    return (uint32_t)((uint64_t)draw_word(d) * n >> 32);
}

static bool draw_flip(const struct cnn_view_call *call, struct cnn_draws *d)
{
    return call->flips && draw_word(d) >> 31 != 0;
}

/* The image's size when its shorter side is call->side. */
static void scale_shorter(const struct cnn_view_call *c, uint32_t *width, uint32_t *height)
{
    uint64_t shorter = c->image_width < c->image_height ? c->image_width : c->image_height;
    *width = (uint32_t)((2ull * c->image_width * c->side + shorter) / (2 * shorter));
    *height = (uint32_t)((2ull * c->image_height * c->side + shorter) / (2 * shorter));
}

static struct cnn_window scaled_window(uint32_t left, uint32_t width, uint32_t top, uint32_t height,
                                       bool mirrored)
{
    return (struct cnn_window){.x = {2ull * left, 1, width}, .y = {2ull * top, 1, height}, mirrored};
}

struct cnn_window cnn_view_whole(uint32_t image_width, uint32_t image_height, uint32_t side, uint32_t *width,
                                 uint32_t *height)
{
    const struct cnn_view_call call = {
        .image_width = image_width, .image_height = image_height, .side = side};
    scale_shorter(&call, width, height);
    return scaled_window(0, *width, 0, *height, false);
}

/* Scales the shorter side; the view is the center. */
static struct cnn_window centre_place(const struct cnn_view_call *call, struct cnn_draws *draws)
{
    uint32_t width, height;
    (void)draws;
    scale_shorter(call, &width, &height);
    return scaled_window((width - call->width) / 2, width, (height - call->height) / 2, height, false);
}

/* Scales the shorter side; the view is at a random position (Krizhevsky et al. 2012; Zhang et al. 2015,
 * 5.1). */
static struct cnn_window crop_place(const struct cnn_view_call *call, struct cnn_draws *draws)
{
    uint32_t width, height;
    scale_shorter(call, &width, &height);
    uint32_t left = draw_below(draws, width - call->width + 1);
    uint32_t top = draw_below(draws, height - call->height + 1);
    return scaled_window(left, width, top, height, draw_flip(call, draws));
}

static struct cnn_window part_of(const struct cnn_view_call *call, uint32_t left, uint32_t width,
                                 uint32_t top, uint32_t height, bool mirrored)
{
    return (struct cnn_window){
        .x = {2ull * left * call->width, width, (uint64_t)call->image_width * call->width},
        .y = {2ull * top * call->height, height, (uint64_t)call->image_height * call->height},
        mirrored};
}

/* A random part with 8 to 100 % of the image's area and an aspect ratio of 3:4 to 4:3 (Szegedy et al. 2015,
 * 6). After ten draws that do not fit into the image, the largest center part of an allowed ratio. */
static struct cnn_window resized_place(const struct cnn_view_call *call, struct cnn_draws *draws)
{
    float w = (float)call->image_width, h = (float)call->image_height;
    bool mirrored = draw_flip(call, draws);
    for (int i = 0; i < 10; i++) {
        float area = cnn_draw_float(draws, 0.08f, 1.0f) * w * h;
        float u = cnn_draw_float(draws, -1, 1), shape = u < 0 ? 1 / (1 - u / 3) : 1 + u / 3;
        float part_w = roundf(sqrtf(area * shape)), part_h = roundf(sqrtf(area / shape));
        uint32_t x = draw_word(draws), y = draw_word(draws);
        if (part_w < 1 || part_h < 1 || part_w > w || part_h > h)
            continue;
        uint32_t pw = (uint32_t)part_w, ph = (uint32_t)part_h;
        return part_of(call, (uint32_t)((uint64_t)x * (call->image_width - pw + 1) >> 32), pw,
                       (uint32_t)((uint64_t)y * (call->image_height - ph + 1) >> 32), ph, mirrored);
    }
    uint32_t pw = (uint32_t)fmaxf(1, fminf(w, roundf(h * 4 / 3)));
    uint32_t ph = (uint32_t)fmaxf(1, fminf(h, roundf(w * 4 / 3)));
    return part_of(call, (call->image_width - pw) / 2, pw, (call->image_height - ph) / 2, ph, mirrored);
}

const struct cnn_view_kind cnn_view_centre = {"centre", centre_place};
static const struct cnn_view_kind kinds[] = {
    {"crop", crop_place}, {"resized-crop", resized_place}, {"centre", centre_place}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static int read_key(char *text, struct cnn_looks *looks, struct ps_error *err)
{
    char *value = strchr(text, '='), *end;
    if (value != NULL) {
        *value++ = '\0';
        double v = strtod(value, &end);
        bool is_number = end != value && *end == '\0';
        if (strcmp(text, "side") == 0 && is_number && v >= 1 && v <= 4096 && v == floor(v)) {
            looks->side = (uint32_t)v;
            return 0;
        }
        if (strcmp(text, "jitter") == 0 && is_number && v >= 0 && v < 1) {
            looks->jitter = (float)v;
            return 0;
        }
        if (strcmp(text, "flip") == 0 && (strcmp(value, "yes") == 0 || strcmp(value, "no") == 0)) {
            looks->flips = *value == 'y';
            return 0;
        }
    }
    return ps_fail(err, -EINVAL,
                   "view: \"%.40s%s%.40s\"; allowed: side=1 to 4096, jitter=0 to below 1, flip=yes or no",
                   text, value != NULL ? "=" : "", value != NULL ? value : "");
}

int cnn_looks_read(const char *text, struct cnn_looks *out, struct ps_error *err)
{
    struct cnn_looks looks = {.flips = true};
    char copy[128], *rest = copy;
    if (snprintf(copy, sizeof copy, "%s", text != NULL ? text : "crop") >= (int)sizeof copy)
        return ps_fail(err, -EINVAL, "view: \"%.60s…\"; allowed: at most %zu characters", text,
                       sizeof copy - 1);
    const char *name = strsep(&rest, ":");
    for (int i = 0; i < N_KINDS; i++)
        if (strcmp(kinds[i].name, name) == 0)
            looks.kind = &kinds[i];
    if (looks.kind == NULL)
        return ps_fail(err, -EINVAL, "view: \"%.60s\"; allowed: crop, resized-crop or centre", name);
    for (char *key; (key = strsep(&rest, ",")) != NULL;) {
        int rc = read_key(key, &looks, err);
        if (rc != 0)
            return rc;
    }
    *out = looks;
    return 0;
}

uint32_t cnn_looks_side(const struct cnn_looks *looks, uint32_t width, uint32_t height)
{
    uint32_t longer = width > height ? width : height;
    return looks->side != 0 ? looks->side : (longer * 16 + 7) / 14;
}

/* ITU-R BT.601, in 1024ths. */
static int32_t grey_of(const uint8_t *p)
{
    return 306 * p[0] + 601 * p[1] + 117 * p[2];
}

/* v <- mean + contrast (brightness v - mean); then saturation moves v away from or towards the pixel's grey.
 * Together: offset + own v + common grey(v), in units of 2^-16. */
void cnn_view_jitter(uint8_t *rgb, size_t n_pixels, float jitter, struct cnn_draws *draws)
{
    float brightness = cnn_draw_float(draws, 1 - jitter, 1 + jitter);
    float contrast = cnn_draw_float(draws, 1 - jitter, 1 + jitter);
    float saturation = cnn_draw_float(draws, 1 - jitter, 1 + jitter);
    float gain = brightness * contrast;
    uint64_t sum = 0;
    for (size_t i = 0; i < n_pixels; i++)
        sum += (uint32_t)grey_of(rgb + 3 * i);
    float mean = brightness * (float)((double)sum / 1024 / (double)n_pixels);
    int32_t offset = (int32_t)(mean * (1 - contrast) * 65536) + 32768;
    int32_t own = (int32_t)(gain * saturation * 65536), common = (int32_t)(gain * (1 - saturation) * 4096);
    for (size_t i = 0; i < n_pixels; i++) {
        uint8_t *p = rgb + 3 * i;
        int32_t grey = offset + common * (grey_of(p) >> 6); /* 16ths */
        for (int c = 0; c < 3; c++) {
            int32_t v = (grey + own * p[c]) >> 16;
            p[c] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
        }
    }
}
