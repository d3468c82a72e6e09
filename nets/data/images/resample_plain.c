/* resample_plain.c: the loops of resample_loops.h in plain C, for any columns. */
#include "nets/data/images/resample_loops.h"

static uint8_t between(unsigned a, unsigned b, unsigned weight)
{
    return (uint8_t)((a * (CNN_RESAMPLE_STEPS - weight) + b * weight + CNN_RESAMPLE_STEPS / 2) >> 7);
}

static bool prepare(const struct cnn_columns *columns)
{
    (void)columns;
    return true;
}

static void blend(const uint8_t *top, const uint8_t *low, uint8_t weight, size_t n, uint8_t *out)
{
    for (size_t i = 0; i < n; i++)
        out[i] = between(top[i], low[i], weight);
}

static void pick_row(const uint8_t *row, const struct cnn_columns *columns, uint8_t *out)
{
    for (uint32_t x = 0; x < columns->n; x++, out += 3) {
        const uint8_t *a = row + 3 * (size_t)columns->at[x];
        for (int c = 0; c < 3; c++)
            out[c] = between(a[c], a[c + 3], columns->weights[x]);
    }
}

static void pick(const uint8_t *const rows[2], const struct cnn_columns *columns, uint8_t *const out[2])
{
    pick_row(rows[0], columns, out[0]);
    pick_row(rows[1], columns, out[1]);
}

const struct cnn_resample_loops cnn_resample_plain = {"plain", prepare, blend, pick, NULL};
