/* The loops of resample.c: those for this machine make the bits of those in plain C, for windows of any
 * scale, and refuse columns that they cannot pick. */
#include <stdlib.h>
#include <string.h>

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
    const struct cnn_resample_loops *fast = cnn_resample_fast();
    struct dice dice = {1};
    for (size_t n = 1; fast != NULL && n < 200; n++) {
        uint8_t *top = random_row(&dice, n), *low = random_row(&dice, n);
        uint8_t expected[200 + CNN_RESAMPLE_SLACK], found[200 + CNN_RESAMPLE_SLACK];
        uint8_t weight = n % 3 == 0 ? 0 : (uint8_t)(dice_bits(&dice) % CNN_RESAMPLE_STEPS);
        cnn_resample_plain.blend(top, low, weight, n, expected);
        fast->blend(top, low, weight, n, found);
        ck_assert_mem_eq(found, expected, n);
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

static void check_columns(struct dice *dice, uint32_t n, uint32_t step, bool mirrored, bool can)
{
    const struct cnn_resample_loops *fast = cnn_resample_fast();
    uint32_t at[MOST];
    uint8_t weights[MOST], *table = malloc(cnn_resample_table_bytes(n));
    uint8_t expected[3 * MOST + CNN_RESAMPLE_SLACK], found[3 * MOST + CNN_RESAMPLE_SLACK];
    ck_assert_ptr_nonnull(table);
    uint8_t *row = random_row(dice, 3 * (size_t)make_columns(n, step, mirrored, at, weights));
    const struct cnn_columns columns = {n, at, weights, table};
    ck_assert_int_eq(fast->prepare(&columns), can);
    if (can) {
        cnn_resample_plain.pick(row, &columns, expected);
        fast->pick(row, &columns, found);
        ck_assert_mem_eq(found, expected, 3 * (size_t)n);
    }
    free(row);
    free(table);
}

START_TEST(columns_are_picked_alike)
{
    struct dice dice = {2};
    /* from eight times enlarged to a third, and further apart than a load reaches */
    static const uint32_t steps[] = {16, 64, 112, 127, 128, 129, 146, 200, 256, 300, 384};
    if (cnn_resample_fast() == NULL)
        return;
    for (size_t i = 0; i < ROWS(steps); i++)
        for (uint32_t n = 1; n < 230; n += n < 20 ? 1 : 37)
            for (int mirrored = 0; mirrored < 2; mirrored++)
                check_columns(&dice, n, steps[i], mirrored == 1, true);
    check_columns(&dice, 100, 4 * CNN_RESAMPLE_STEPS, false, false);
    check_columns(&dice, 100, 9 * CNN_RESAMPLE_STEPS, true, false);
}
END_TEST

int main(void)
{
    TCase *tc = tcase_create("resample");
    tcase_add_test(tc, rows_are_blended_alike);
    tcase_add_test(tc, columns_are_picked_alike);
    return run_case(tc, "data_resample");
}
