/* The loops of resample.c: all that this machine has make the bits of those in plain C, for windows of any
 * scale, and refuse columns that they cannot pick. */
#include <stdlib.h>
#include <string.h>

#include "nets/data/images/resample.h"
#include "nets/data/images/resample_loops.h"
#include "tests/nets/data/suite.h"
#include "tests/support/unit.h"

enum { MOST = 600 };

/* A row of a picture ends where its memory does, but for the slack. */
static uint8_t *random_row(struct dice *dice, size_t n)
{
    uint8_t *row = malloc(n + CNN_RESAMPLE_SLACK);
    ck_assert_ptr_nonnull(row);
    for (size_t i = 0; i < n + CNN_RESAMPLE_SLACK; i++)
        row[i] = (uint8_t)(dice_bits(dice) >> 32);
    return row;
}

START_TEST(rows_are_blended_alike)
{
    struct dice dice = {1};
    for (size_t n = 1; n < 200; n++) {
        uint8_t *top = random_row(&dice, n), *low = random_row(&dice, n);
        uint8_t expected[200 + CNN_RESAMPLE_SLACK], found[200 + CNN_RESAMPLE_SLACK];
        uint8_t weight = n % 3 == 0 ? 0 : (uint8_t)(dice_bits(&dice) % CNN_RESAMPLE_STEPS);
        cnn_resample_plain.blend(top, low, weight, n, expected);
        const struct cnn_resample_loops *loops;
        for (uint32_t i = 0; (loops = cnn_resample_loops(i)) != NULL; i++) {
            loops->blend(top, low, weight, n, found);
            ck_assert_mem_eq(found, expected, n);
        }
        free(top);
        free(low);
    }
}
END_TEST

/* Columns of a view of n pixels, `step` 128ths of a pixel apart; returns how many pixels they need. */
static uint32_t make_columns(uint32_t n, uint32_t step, bool mirrored, uint32_t *at, uint8_t *weights)
{
    for (uint32_t x = 0; x < n; x++) {
        uint32_t place = (mirrored ? n - 1 - x : x) * step;
        at[x] = place / CNN_RESAMPLE_STEPS;
        weights[x] = (uint8_t)(place % CNN_RESAMPLE_STEPS);
    }
    uint32_t last = mirrored ? at[0] : at[n - 1];
    if (mirrored)
        weights[0] = 0; /* there is no pixel after the last */
    else
        weights[n - 1] = 0;
    return last + 1;
}

/* reach: the largest step of loops that load `skip` pixels beyond the first of `group` columns. */
struct reach {
    const char *isa;
    uint32_t group, skip;
};

static bool can_pick(const char *isa, uint32_t step)
{
    static const struct reach rows[] = {{"avx512", 11, 19}, {"avx2", 1, 3}};
    for (size_t i = 0; i < ROWS(rows); i++) /* from any place in a pixel */
        if (strcmp(rows[i].isa, isa) == 0)
            return rows[i].group * step <= rows[i].skip * CNN_RESAMPLE_STEPS;
    return true;
}

/* Rows that follow each other in a view, with or without streaming. Nothing may be written after the second.
 */
static void check_loops(const struct cnn_resample_loops *loops, const struct cnn_columns *columns,
                        const uint8_t *const rows[2], bool can)
{
    enum { AFTER = 64 };
    static uint8_t expected[2][3 * MOST];
    static _Alignas(CNN_RESAMPLE_ALIGN) uint8_t found[2 * 3 * MOST + AFTER];
    size_t n = 3 * (size_t)columns->n;
    bool does = loops->prepare(columns);
    ck_assert_msg(does || !can, "%s: %u columns", loops->isa, columns->n);
    if (!does)
        return;
    memset(found + 2 * n, 0xaa, AFTER);
    cnn_resample_plain.pick(rows, columns, (uint8_t *const[2]){expected[0], expected[1]});
    loops->pick(rows, columns, (uint8_t *const[2]){found, found + n});
    if (columns->streams && loops->flush != NULL)
        loops->flush();
    ck_assert_mem_eq(found, expected[0], n);
    ck_assert_mem_eq(found + n, expected[1], n);
    for (size_t i = 0; i < AFTER; i++)
        assert_quick(found[2 * n + i] == 0xaa);
}

static void check_columns(struct dice *dice, uint32_t n, uint32_t step, bool mirrored)
{
    const struct cnn_resample_loops *loops;
    uint32_t at[MOST];
    uint8_t weights[MOST];
    size_t bytes = (cnn_resample_table_bytes(n) + CNN_RESAMPLE_ALIGN - 1) & ~(size_t)(CNN_RESAMPLE_ALIGN - 1);
    uint8_t *table = aligned_alloc(CNN_RESAMPLE_ALIGN, bytes);
    ck_assert_ptr_nonnull(table);
    size_t n_row = 3 * (size_t)make_columns(n, step, mirrored, at, weights);
    uint8_t *rows[2] = {random_row(dice, n_row), random_row(dice, n_row)};
    const struct cnn_columns columns = {n, at, weights, table, n % CNN_RESAMPLE_PICKED == 0};
    for (uint32_t i = 0; (loops = cnn_resample_loops(i)) != NULL; i++)
        check_loops(loops, &columns, (const uint8_t *const *)rows, can_pick(loops->isa, step));
    free(rows[0]);
    free(rows[1]);
    free(table);
}

START_TEST(columns_are_picked_alike)
{
    struct dice dice = {2};
    /* from eight times enlarged to a third, and further apart than a load reaches */
    static const uint32_t steps[] = {16, 64, 112, 127, 128, 129, 146, 200, 256, 270, 300, 384, 512, 1152};
    for (size_t i = 0; i < ROWS(steps); i++)
        for (uint32_t n = 1; n < 230; n += n < 34 ? 1 : 15)
            for (int mirrored = 0; mirrored < 2; mirrored++)
                check_columns(&dice, n, steps[i], mirrored == 1);
}
END_TEST

/* The position of column or row i, in steps from the centre of pixel 0. */
static uint64_t place_of(const struct cnn_axis *a, uint32_t side, uint32_t i)
{
    uint64_t place = (a->a + (2ull * i + 1) * a->b) * side * (CNN_RESAMPLE_STEPS / 2) / a->c;
    uint64_t last = (uint64_t)(side - 1) * CNN_RESAMPLE_STEPS, half = CNN_RESAMPLE_STEPS / 2;
    place = place < half ? 0 : place - half;
    return place < last ? place : last;
}

static unsigned between(unsigned a, unsigned b, unsigned weight)
{
    return (a * (CNN_RESAMPLE_STEPS - weight) + b * weight + CNN_RESAMPLE_STEPS / 2) / CNN_RESAMPLE_STEPS;
}

/* Rows are interpolated first, then columns. Pixels beyond the edge have no weight. */
static unsigned expected_value(const struct cnn_picture *p, uint64_t place_x, uint64_t place_y, int c)
{
    uint64_t x = place_x / CNN_RESAMPLE_STEPS, y = place_y / CNN_RESAMPLE_STEPS;
    unsigned column[2];
    for (uint64_t i = 0; i < 2; i++) {
        uint64_t to = x + i < p->width ? x + i : x, below = y + 1 < p->height ? y + 1 : y;
        column[i] = between(p->rgb[3 * (y * p->width + to) + (size_t)c],
                            p->rgb[3 * (below * p->width + to) + (size_t)c], place_y % CNN_RESAMPLE_STEPS);
    }
    return between(column[0], column[1], place_x % CNN_RESAMPLE_STEPS);
}

static void check_view(const struct cnn_picture *p, const struct cnn_window *w, uint32_t width,
                       uint32_t height, const uint8_t *view)
{
    for (uint32_t y = 0; y < height; y++)
        for (uint32_t x = 0; x < width; x++)
            for (int c = 0; c < 3; c++) {
                uint32_t column = w->mirrored ? width - 1 - x : x;
                assert_quick(*view++ == expected_value(p, place_of(&w->x, p->width, column),
                                                       place_of(&w->y, p->height, y), c));
            }
}

/* Of a picture larger than the view, alike and smaller, mirrored and not; the last size is large enough to be
 * written around the caches. */
START_TEST(views_are_those_of_the_formula)
{
    static const uint32_t sizes[][2] = {{1, 1}, {7, 5}, {32, 31}, {96, 40}, {160, 160}};
    static const uint32_t sides[] = {5, 40, 160, 181, 333};
    const uint32_t *size = sizes[_i];
    struct cnn_resampler r = {0};
    struct dice dice = {3};
    size_t n = 3 * (size_t)size[0] * size[1];
    uint8_t *view = aligned_alloc(CNN_RESAMPLE_ALIGN, (n + CNN_RESAMPLE_ALIGN) & ~(size_t)63);
    ck_assert_ptr_nonnull(view);
    for (size_t i = 0; i < ROWS(sides); i++)
        for (int mirrored = 0; mirrored < 2; mirrored++) {
            const struct cnn_picture p = {random_row(&dice, 3 * (size_t)sides[i] * 97), sides[i], 97};
            /* seven eighths of the columns and two thirds of the rows */
            const struct cnn_window w = {
                {size[0] / 8, 7, 8 * (uint64_t)size[0]}, {size[1], 2, 3 * (uint64_t)size[1]}, mirrored == 1};
            ck_assert_int_eq(cnn_resample(&r, &p, &w, size[0], size[1], view, NULL), 0);
            check_view(&p, &w, size[0], size[1], view);
            free((void *)p.rgb);
        }
    free(view);
    cnn_resampler_finish(&r);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("resample");
    tcase_add_test(tc, rows_are_blended_alike);
    tcase_add_test(tc, columns_are_picked_alike);
    tcase_add_loop_test(tc, views_are_those_of_the_formula, 0, 5);
    return run_case(tc, "data_resample");
}
