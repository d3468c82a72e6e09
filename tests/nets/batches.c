/* batches.c: the forms in which every backend takes a batch. */
#include <check.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tests/nets/cases.h"

enum { SEED = 5, STEP_NUMBER = 3 };

/* The same images as floats and as bytes, channels first and last: the same bits. */
static void check_batches(const char *backend, const struct cnn_model *model)
{
    static float value_of[32][256]; /* as many channels as any case has */
    struct bed b;
    struct cnn_score score;

    ck_assert_uint_le(model->channels, 32);
    bed_create(&b, model, 3);
    size_t n = 3 * b.n_pixels, places = (size_t)model->height * model->width;
    uint8_t *bytes = malloc(n), *bytes_hwc = malloc(n);
    float *floats_hwc = malloc(n * sizeof *floats_hwc), *first = malloc(b.n_floats * sizeof *first);
    for (uint32_t c = 0; c < model->channels; c++)
        for (int v = 0; v < 256; v++)
            value_of[c][v] = ((float)v / 255.0f - 0.4f) / (0.2f + 0.1f * (float)c);
    for (size_t k = 0; k < n; k++) {
        size_t c = k / places % model->channels, image = k / b.n_pixels, place = k % places;
        size_t hwc = image * b.n_pixels + place * model->channels + c;
        bytes[k] = bytes_hwc[hwc] = (uint8_t)(k * 2654435761u >> 7);
        b.images[k] = floats_hwc[hwc] = value_of[c][bytes[k]];
    }
    const struct cnn_batch batches[] = {
        {b.images, CNN_PIXELS_FLOAT, false, NULL, b.labels, 3},
        {floats_hwc, CNN_PIXELS_FLOAT, true, NULL, b.labels, 3},
        {bytes, CNN_PIXELS_BYTE, false, (const float(*)[256])value_of, b.labels, 3},
        {bytes_hwc, CNN_PIXELS_BYTE, true, (const float(*)[256])value_of, b.labels, 3},
    };
    struct cnn_net *net = net_of(model, backend, 3, 1);
    for (size_t k = 0; k < 4; k++) {
        float *g = k == 0 ? first : b.g;
        cnn_net_seed(net, SEED, STEP_NUMBER);
        ck_assert_int_eq(cnn_net_gradient_of(net, b.x, &batches[k], g, NULL, &score), 0);
        for (size_t i = 0; i < b.n_floats; i++)
            if (memcmp(&g[i], &first[i], sizeof *g) != 0)
                ck_abort_msg("%s, %s: batch %zu makes other bits", backend, model->name, k);
    }
    cnn_net_destroy(net);
    free(bytes);
    free(bytes_hwc);
    free(floats_hwc);
    free(first);
    bed_destroy(&b);
}

/* Parts of larger images, some of them mirrored and beyond the edge: the bits of the parts that the host
 * cuts.
 */
enum { STORED_MARGIN = 3 };
static const struct cnn_cut some_cuts[] = {{0, 0, 0}, {-2, 2, 1}, {STORED_MARGIN + 1, -3, 0}};

static uint8_t stored_byte(size_t image, size_t c, int64_t row, int64_t column)
{
    return (uint8_t)((image * 7919 + c * 104729 + (size_t)row * 1299709 + (size_t)column * 15485863) *
                         2654435761u >>
                     9);
}

/* The stored images in both layouts, and the parts of them that a net is to cut. */
static void fill_stored(const struct cnn_model *m, uint8_t *chw, uint8_t *hwc, uint8_t *parts)
{
    const int64_t h = m->height + STORED_MARGIN, w = m->width + STORED_MARGIN;

    for (size_t i = 0; i < 3; i++)
        for (size_t c = 0; c < m->channels; c++) {
            for (int64_t at = 0; at < h * w; at++)
                chw[(i * m->channels + c) * (size_t)(h * w) + (size_t)at] =
                    hwc[(i * (size_t)(h * w) + (size_t)at) * m->channels + c] =
                        stored_byte(i, c, at / w, at % w);
            for (size_t at = 0; at < (size_t)m->height * m->width; at++) {
                size_t x = at % m->width;
                int64_t row = some_cuts[i].top + (int64_t)(at / m->width);
                int64_t column = some_cuts[i].left + (int64_t)(some_cuts[i].mirrored ? m->width - 1 - x : x);
                bool is_inside = row >= 0 && row < h && column >= 0 && column < w;
                *parts++ = is_inside ? stored_byte(i, c, row, column) : 0;
            }
        }
}

static void expect_refused(struct cnn_net *net, struct bed *b, const struct cnn_batch *cut)
{
    struct cnn_score score;
    ck_assert_int_eq(cnn_net_gradient_of(net, b->x, cut, b->g, NULL, &score), -EINVAL);
    ck_assert_int_eq(cnn_net_score_of(net, b->x, cut, &score), -EINVAL);
    ck_assert_ptr_nonnull(strstr(cnn_net_error(net), "are to be cut"));
}

static void check_cuts(const char *backend, const struct cnn_model *m)
{
    static float value_of[32][256];
    struct bed b;
    struct cnn_score score;
    const uint32_t h = m->height + STORED_MARGIN, w = m->width + STORED_MARGIN;

    bed_create(&b, m, 3);
    size_t n = 3 * (size_t)m->channels * h * w;
    uint8_t *stored[] = {malloc(n), malloc(n)}, *parts = malloc(3 * b.n_pixels);
    float *expected = malloc(b.n_floats * sizeof *expected);
    for (uint32_t c = 0; c < m->channels; c++)
        for (int v = 0; v < 256; v++)
            value_of[c][v] = (float)v / (100.0f + (float)c) - 1.0f;
    fill_stored(m, stored[0], stored[1], parts);
    struct cnn_batch batch = {parts, CNN_PIXELS_BYTE, false, (const float(*)[256])value_of, b.labels, 3};
    struct cnn_net *net = net_of(m, backend, 3, 1);
    cnn_net_seed(net, SEED, STEP_NUMBER);
    ck_assert_int_eq(cnn_net_gradient_of(net, b.x, &batch, expected, NULL, &score), 0);
    batch.cuts = some_cuts;
    batch.stored_height = h;
    batch.stored_width = w;
    for (int is_hwc = 0; is_hwc < 2; is_hwc++) {
        batch.images = stored[is_hwc];
        batch.is_hwc = is_hwc;
        if (!cnn_net_cuts(net, h, w)) {
            expect_refused(net, &b, &batch);
            continue;
        }
        cnn_net_seed(net, SEED, STEP_NUMBER);
        ck_assert_int_eq(cnn_net_gradient_of(net, b.x, &batch, b.g, NULL, &score), 0);
        ck_assert_msg(memcmp(expected, b.g, b.n_floats * sizeof *expected) == 0,
                      "%s, %s: cut images make other bits", backend, m->name);
    }
    cnn_net_destroy(net);
    free(stored[0]);
    free(stored[1]);
    free(parts);
    free(expected);
    bed_destroy(&b);
}

START_TEST(cuts_its_input_from_larger_images)
{
    check_cuts(tested_backend((size_t)_i), cnn_model_find("lenet"));
    check_cuts(tested_backend((size_t)_i), cases[0]);
}
END_TEST

START_TEST(takes_bytes_and_floats_in_either_layout)
{
    for (const struct cnn_model *const *m = cases; *m != NULL; m++)
        check_batches(tested_backend((size_t)_i), *m);
}
END_TEST

TCase *batches_case(int n_backends)
{
    TCase *t = tcase_create("batches");

    tcase_add_loop_test(t, takes_bytes_and_floats_in_either_layout, 0, n_backends);
    tcase_add_loop_test(t, cuts_its_input_from_larger_images, 0, n_backends);
    return t;
}
