/* pooled_kernels.c: the loops of struct cnn_pooled_kernels (kernels.h).
 *
 * Both loops keep a tile of R rows by V vectors in registers: 14 sums hide the latency of the multiply-add.
 * The last vector of a row extends past the row. The extra lanes of weight gradients are never read; those of
 * input gradients add 0, because weights are padded with zeros. */
#include "nets/onednn/kernels.h"

#include "nets/onednn/simd.h"

#define MAX_TILE_VECTORS 8
#define INLINE           static inline __attribute__((always_inline))

/* The number of images whose input stays in the first-level cache while all channels are processed. */
static uint32_t images_at_a_time(const struct cnn_pooled *p)
{
    size_t fit = 24 * 1024 / (cnn_shape_count(p->in) * sizeof(float));
    return fit < 1 ? 1 : (uint32_t)fit;
}

struct weights_job {
    const struct cnn_pooled *p;
    uint32_t n_images;
    const float *in; /* points to the tile's first row and vector */
    const float *dout;
    const uint8_t *argmax;
};

/* sum[r][v] over images and places of d * in[patch row r][vector v], for one channel. */
INLINE void weights_tile(const struct weights_job *j, uint32_t channel, float *dweight, const int R,
                         const int V)
{
    const struct cnn_pooled *p = j->p;
    size_t n_in = cnn_shape_count(p->in), n_out = (size_t)p->n_places * p->n_out, step = p->row_step;
    floats sum[R][V];

#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int v = 0; v < V; v++)
            sum[r][v] = load(dweight + ((size_t)r * p->row_vectors + (size_t)v) * LANES);
    for (uint32_t i = 0; i < j->n_images; i++) {
        const float *dout = j->dout + i * n_out + channel * p->c_step, *in = j->in + i * n_in;
        const uint8_t *argmax = j->argmax + i * n_out + channel;
        for (uint32_t k = 0; k < p->n_places; k++, dout += p->place_step, argmax += p->n_out) {
            const float *patch = in + p->place_in_at[k] + p->argmax_in_at[*argmax];
            float d = *dout;
#pragma GCC unroll 16
            for (int r = 0; r < R; r++)
#pragma GCC unroll 16
                for (int v = 0; v < V; v++)
                    sum[r][v] += d * load(patch + (size_t)r * step + (size_t)v * LANES);
        }
    }
#pragma GCC unroll 16
    for (int r = 0; r < R; r++)
#pragma GCC unroll 16
        for (int v = 0; v < V; v++)
            store(dweight + ((size_t)r * p->row_vectors + (size_t)v) * LANES, sum[r][v]);
}

#define WEIGHTS_TILE(R, V)                                                                                   \
    case R * 16 + V:                                                                                         \
        weights_tile(j, channel, dweight, R, V);                                                             \
        break

static void run_weights_tile(const struct weights_job *j, uint32_t channel, float *dweight, uint32_t rows,
                             uint32_t vectors)
{
    switch (rows * 16 + vectors) {
        WEIGHTS_TILE(1, 1);
        WEIGHTS_TILE(1, 2);
        WEIGHTS_TILE(1, 3);
        WEIGHTS_TILE(1, 4);
        WEIGHTS_TILE(1, 5);
        WEIGHTS_TILE(1, 6);
        WEIGHTS_TILE(1, 7);
        WEIGHTS_TILE(1, 8);
        WEIGHTS_TILE(2, 1);
        WEIGHTS_TILE(2, 2);
        WEIGHTS_TILE(2, 3);
        WEIGHTS_TILE(2, 4);
        WEIGHTS_TILE(2, 5);
        WEIGHTS_TILE(2, 6);
        WEIGHTS_TILE(2, 7);
        WEIGHTS_TILE(2, 8);
        WEIGHTS_TILE(3, 1);
        WEIGHTS_TILE(5, 1);
    }
}

/* Rows of the next tile if `left` rows are left. */
static uint32_t tile_rows(uint32_t left, uint32_t vectors)
{
    if (vectors == 1 && (left == 5 || left == 3))
        return left;
    return left >= 2 ? 2 : 1;
}

static void one_channel(const struct weights_job *all, uint32_t channel, float *dweight)
{
    const struct cnn_pooled *p = all->p;

    for (uint32_t v = 0; v < p->row_vectors; v += MAX_TILE_VECTORS) {
        uint32_t vectors = p->row_vectors - v < MAX_TILE_VECTORS ? p->row_vectors - v : MAX_TILE_VECTORS;
        for (uint32_t r = 0, rows; r < p->kernel; r += rows) {
            struct weights_job tile = *all;
            rows = tile_rows(p->kernel - r, vectors);
            tile.in += r * p->row_step + v * LANES;
            run_weights_tile(&tile, channel, dweight + ((size_t)r * p->row_vectors + v) * LANES, rows,
                             vectors);
        }
    }
}

static void add_bias(const struct cnn_pooled *p, uint32_t n_images, const float *dout, uint32_t c0,
                     uint32_t c1, float *dbias)
{
    size_t n_out = (size_t)p->n_places * p->n_out;

    for (uint32_t i = 0; i < n_images; i++, dout += n_out)
        if (p->c_step == 1)
            for (uint32_t k = 0; k < p->n_places; k++)
                for (uint32_t c = c0; c < c1; c++)
                    dbias[c] += dout[k * p->place_step + c];
        else
            for (uint32_t c = c0; c < c1; c++)
                for (uint32_t k = 0; k < p->n_places; k++)
                    dbias[c] += dout[k * p->place_step + c * p->c_step];
}

static void back_weights(const struct cnn_pooled *p, uint32_t n_images, const float *in, const float *dout,
                         const uint8_t *argmax, uint32_t c0, uint32_t c1, float *dweight, float *dbias)
{
    uint32_t some = images_at_a_time(p);
    size_t n_in = cnn_shape_count(p->in), n_out = (size_t)p->n_places * p->n_out;
    size_t channel_floats = (size_t)p->kernel * p->row_vectors * LANES;

    for (uint32_t i = 0; i < n_images; i += some) {
        uint32_t n = n_images - i < some ? n_images - i : some;
        struct weights_job job = {p, n, in + i * n_in, dout + i * n_out, argmax + i * n_out};
        for (uint32_t c = c0; c < c1; c++)
            one_channel(&job, c, dweight + c * channel_floats);
    }
    add_bias(p, n_images, dout, c0, c1, dbias);
}

/* Sorts the entries by position with a counting sort. */
static void sort_entries(const struct cnn_pooled *p, const float *dout, const uint8_t *argmax,
                         struct cnn_pooled_work *w)
{
    uint32_t n_out = p->n_out, *next = w->first;

    memset(w->first, 0, (p->n_positions + 1) * sizeof *w->first);
    for (uint32_t k = 0; k < p->n_places; k++)
        for (uint32_t c = 0; c < n_out; c++)
            w->first[p->place_at[k] + p->argmax_at[argmax[k * n_out + c]] + 1]++;
    for (uint32_t i = 0; i < p->n_positions; i++)
        w->first[i + 1] += w->first[i];
    for (uint32_t k = 0; k < p->n_places; k++)
        for (uint32_t c = 0; c < n_out; c++) {
            uint32_t *at = &next[p->place_at[k] + p->argmax_at[argmax[k * n_out + c]]];
            w->entries[(*at)++] = (struct cnn_pooled_entry){dout[k * p->place_step + c * p->c_step], c};
        }
    /* Placing advanced every start to its end, which is the start of the next position. */
    memmove(w->first + 1, w->first, p->n_positions * sizeof *w->first);
    w->first[0] = 0;
}

/* For every position: adds the sum over its entries of d * weight row to the gradient of the input row. */
INLINE void data_tile(const struct cnn_pooled *p, const struct cnn_pooled_work *w, const float *weight,
                      float *din, const int V)
{
    size_t stride = (size_t)p->row_vectors * LANES;

    for (uint32_t i = 0; i < p->n_positions; i++) {
        uint32_t e = w->first[i], end = w->first[i + 1];
        if (e == end)
            continue;
        floats sum[V];
        float *to = din + p->in_at[i];
#pragma GCC unroll 16
        for (int v = 0; v < V; v++)
            sum[v] = load(to + v * LANES);
        for (; e < end; e++) {
            const float *row = weight + w->entries[e].channel * stride;
            float d = w->entries[e].d;
#pragma GCC unroll 16
            for (int v = 0; v < V; v++)
                sum[v] += d * load(row + v * LANES);
        }
#pragma GCC unroll 16
        for (int v = 0; v < V; v++)
            store(to + v * LANES, sum[v]);
    }
}

#define DATA_TILE(V)                                                                                         \
    case V:                                                                                                  \
        data_tile(p, w, weight, din, V);                                                                     \
        break

static void run_data_tile(const struct cnn_pooled *p, const struct cnn_pooled_work *w, const float *weight,
                          float *din, uint32_t vectors)
{
    switch (vectors) {
        DATA_TILE(1);
        DATA_TILE(2);
        DATA_TILE(3);
        DATA_TILE(4);
        DATA_TILE(5);
        DATA_TILE(6);
        DATA_TILE(7);
        DATA_TILE(8);
    }
}

static void back_data(const struct cnn_pooled *p, const float *dout, const uint8_t *argmax,
                      const float *weight, struct cnn_pooled_work *work, float *din)
{
    size_t row_weights = (size_t)p->n_out * p->row_vectors * LANES;

    sort_entries(p, dout, argmax, work);
    memset(work->din, 0, cnn_shape_count(p->in) * sizeof *din);
    for (uint32_t r = 0; r < p->kernel; r++)
        for (uint32_t v = 0; v < p->row_vectors; v += MAX_TILE_VECTORS) {
            uint32_t vectors = p->row_vectors - v < MAX_TILE_VECTORS ? p->row_vectors - v : MAX_TILE_VECTORS;
            run_data_tile(p, work, weight + r * row_weights + v * LANES,
                          work->din + r * p->row_step + v * LANES, vectors);
        }
    memcpy(din, work->din, cnn_shape_count(p->in) * sizeof *din);
}

const struct cnn_pooled_kernels cnn_pooled_avx512 = {back_weights, back_data};
