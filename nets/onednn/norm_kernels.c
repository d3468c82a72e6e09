/* norm_kernels.c: see struct cnn_norm_kernels in kernels.h. Loops along the channels, which lie together;
 * compiled once per instruction set. */
#include "nets/onednn/kernels.h"

#include <math.h>
#include <string.h>

#include "nets/onednn/simd.h"

/* to = s^-beta. The usual 3/4 by square roots: a loop over powf is not made of vectors. */
static void power(const struct cnn_lrn *p, const float *s, float *restrict to)
{
    if (p->beta == 0.75f)
        for (uint32_t c = 0; c < p->channels; c++) {
            float root = sqrtf(s[c]);
            to[c] = 1 / (root * sqrtf(root));
        }
    else
        for (uint32_t c = 0; c < p->channels; c++)
            to[c] = powf(s[c], -p->beta);
}

/* to[c] = the sum of padded[c] to padded[c + size - 1]; the halves before and after the channels are 0. */
static void window_sums(const struct cnn_lrn *p, const float *padded, float *restrict to)
{
    if (p->size == 5) { /* the usual one */
        for (uint32_t c = 0; c < p->channels; c++)
            to[c] = padded[c] + padded[c + 1] + padded[c + 2] + padded[c + 3] + padded[c + 4];
        return;
    }
    memcpy(to, padded, p->channels * sizeof *to);
    for (uint32_t j = 1; j < p->size; j++)
        for (uint32_t c = 0; c < p->channels; c++)
            to[c] += padded[c + j];
}

static void clear_ends(const struct cnn_lrn *p, uint32_t before, float *padded)
{
    memset(padded, 0, before * sizeof *padded);
    memset(padded + before + p->channels, 0, (p->size - 1 - before) * sizeof *padded);
}

static void lrn(const struct cnn_lrn *p, size_t places, const float *in, float *out, float *norm, float *work)
{
    uint32_t channels = p->channels;
    float *restrict middle = work + p->half, *restrict factor = work + channels + p->size;

    clear_ends(p, p->half, work);
    for (size_t k = 0; k < places; k++, in += channels, out += channels, norm += channels) {
        for (uint32_t c = 0; c < channels; c++)
            middle[c] = in[c] * in[c];
        window_sums(p, work, norm);
        for (uint32_t c = 0; c < channels; c++)
            norm[c] = p->k + p->part * norm[c];
        power(p, norm, factor);
        for (uint32_t c = 0; c < channels; c++)
            out[c] = in[c] * factor[c];
    }
}

/* The equation stands in nets/ref/lrn.c. */
static void lrn_back(const struct cnn_lrn *p, size_t places, const float *in, const float *norm,
                     const float *dout, float *din, float *work)
{
    uint32_t channels = p->channels;
    uint32_t before = p->size - 1 - p->half; /* the neighbours of a neighbour lie the other way round */
    float *restrict middle = work + before, *restrict factor = work + channels + p->size;
    float twice = 2 * p->part * p->beta;

    clear_ends(p, before, work);
    for (size_t k = 0; k < places; k++, in += channels, norm += channels, dout += channels, din += channels) {
        power(p, norm, factor);
        for (uint32_t c = 0; c < channels; c++)
            middle[c] = dout[c] * in[c] * factor[c] / norm[c];
        window_sums(p, work, din);
        for (uint32_t c = 0; c < channels; c++)
            din[c] = dout[c] * factor[c] - twice * in[c] * din[c];
    }
}

/* Sums of a channel over the places: one vector of channels, or four, at a time, and of two places, so that
 * additions do not wait for each other. */
#define INLINE static inline __attribute__((always_inline))

/* The sum over places, and that of the squared distances from its mean. */
INLINE void moments_tile(size_t places, size_t channels, const float *in, float *sum, float *square,
                         const int V)
{
    floats a[V], b[V], mean[V];
    size_t k;

    for (int v = 0; v < V; v++)
        a[v] = b[v] = (floats){0};
    for (k = 0; k + 1 < places; k += 2)
        for (int v = 0; v < V; v++) {
            a[v] += load(in + k * channels + v * LANES);
            b[v] += load(in + (k + 1) * channels + v * LANES);
        }
    for (int v = 0; v < V; v++) {
        if (k < places)
            a[v] += load(in + k * channels + v * LANES);
        a[v] += b[v];
        store(sum + v * LANES, a[v]);
        mean[v] = a[v] / (float)places;
        a[v] = b[v] = (floats){0};
    }
    for (k = 0; k + 1 < places; k += 2)
        for (int v = 0; v < V; v++) {
            floats p = load(in + k * channels + v * LANES) - mean[v];
            floats q = load(in + (k + 1) * channels + v * LANES) - mean[v];
            a[v] += p * p;
            b[v] += q * q;
        }
    for (int v = 0; v < V; v++) {
        floats p = k < places ? load(in + k * channels + v * LANES) - mean[v] : (floats){0};
        store(square + v * LANES, a[v] + b[v] + p * p);
    }
}

/* The same of one channel, where there are fewer than LANES. */
static void moments_one(size_t places, size_t channels, const float *in, float *sum, float *square)
{
    float s = 0, q = 0;

    for (size_t k = 0; k < places; k++)
        s += in[k * channels];
    *sum = s;
    for (size_t k = 0; k < places; k++)
        q += (in[k * channels] - s / (float)places) * (in[k * channels] - s / (float)places);
    *square = q;
}

static void moments(size_t places, size_t channels, const float *in, float *sum, float *square)
{
    size_t c = 0;

    for (; channels < LANES && c < channels; c++)
        moments_one(places, channels, in + c, sum + c, square + c);
    for (; c + 4 * LANES <= channels; c += 4 * LANES)
        moments_tile(places, channels, in + c, sum + c, square + c, 4);
    for (; c < channels; c += LANES) {
        size_t at = c + LANES <= channels ? c : channels - LANES; /* some twice */
        moments_tile(places, channels, in + at, sum + at, square + at, 1);
    }
}

INLINE void back_tile(size_t places, size_t channels, const float *in, const float *mean, const float *dout,
                      float *sum, float *product, const int V)
{
    floats s[2][V], q[2][V], m[V];
    size_t k;

    for (int v = 0; v < V; v++) {
        s[0][v] = s[1][v] = q[0][v] = q[1][v] = (floats){0};
        m[v] = load(mean + v * LANES);
    }
    for (k = 0; k + 1 < places; k += 2)
        for (int v = 0; v < V; v++)
            for (size_t e = 0; e < 2; e++) {
                floats d = load(dout + (k + e) * channels + v * LANES);
                s[e][v] += d;
                q[e][v] += d * (load(in + (k + e) * channels + v * LANES) - m[v]);
            }
    for (int v = 0; v < V; v++) {
        if (k < places) {
            floats d = load(dout + k * channels + v * LANES);
            s[0][v] += d;
            q[0][v] += d * (load(in + k * channels + v * LANES) - m[v]);
        }
        store(sum + v * LANES, s[0][v] + s[1][v]);
        store(product + v * LANES, q[0][v] + q[1][v]);
    }
}

static void back_one(size_t places, size_t channels, const float *in, float mean, const float *dout,
                     float *sum, float *product)
{
    *sum = *product = 0;
    for (size_t k = 0; k < places; k++) {
        *sum += dout[k * channels];
        *product += dout[k * channels] * (in[k * channels] - mean);
    }
}

static void back_sums(size_t places, size_t channels, const float *in, const float *mean, const float *dout,
                      float *restrict sum, float *restrict product)
{
    size_t c = 0;

    for (; channels < LANES && c < channels; c++)
        back_one(places, channels, in + c, mean[c], dout + c, sum + c, product + c);
    for (; c + 4 * LANES <= channels; c += 4 * LANES)
        back_tile(places, channels, in + c, mean + c, dout + c, sum + c, product + c, 4);
    for (; c < channels; c += LANES) {
        size_t at = c + LANES <= channels ? c : channels - LANES; /* some twice */
        back_tile(places, channels, in + at, mean + at, dout + at, sum + at, product + at, 1);
    }
}

static void affine(size_t places, size_t channels, const float *in, const float *mean, const float *a,
                   const float *b, float *restrict out)
{
    for (size_t k = 0; k < places; k++, in += channels, out += channels)
        for (size_t c = 0; c < channels; c++)
            out[c] = (in[c] - mean[c]) * a[c] + b[c];
}

static void back_affine(size_t places, size_t channels, const float *in, const float *mean, const float *dout,
                        const float *a, const float *b, const float *c, float *restrict din)
{
    for (size_t k = 0; k < places; k++, in += channels, dout += channels, din += channels)
        for (size_t i = 0; i < channels; i++)
            din[i] = a[i] * dout[i] + (in[i] - mean[i]) * b[i] + c[i];
}

extern const struct cnn_norm_kernels CNN_NORM;
const struct cnn_norm_kernels CNN_NORM = {lrn, lrn_back, moments, affine, back_sums, back_affine};
