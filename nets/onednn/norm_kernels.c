/* norm_kernels.c: the loops of struct cnn_norm_kernels (kernels.h). They run along the channels, which are
 * contiguous. Compiled once per instruction set. */
#include "nets/onednn/kernels.h"

#include <math.h>
#include <string.h>

#include "nets/onednn/simd.h"

/* to = s^-beta. The usual 3/4 uses square roots, because a loop over powf is not vectorised. */
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

/* to[c] = the sum of padded[c] to padded[c + size - 1]; the padding before and after the channels is 0. */
static void window_sums(const struct cnn_lrn *p, const float *padded, float *restrict to)
{
    if (p->size == 5) { /* the usual size */
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

/* Writes the squares between the padding that window_sums reads. A separate function, because window_sums
 * reads the same values through another pointer, which `restrict` forbids. */
static void squares(uint32_t channels, const value *in, float *restrict to)
{
    for (uint32_t c = 0; c < channels; c++)
        to[c] = get(&in[c]) * get(&in[c]);
}

static void weighted(uint32_t channels, const value *dout, const value *in, const float *factor,
                     const float *norm, float *restrict to)
{
    for (uint32_t c = 0; c < channels; c++)
        to[c] = get(&dout[c]) * get(&in[c]) * factor[c] / norm[c];
}

static void lrn(const struct cnn_lrn *p, size_t places, const void *from, void *to, float *norm, float *work)
{
    const value *in = from;
    value *out = to;
    uint32_t channels = p->channels;
    float *factor = work + channels + p->size;

    clear_ends(p, p->half, work);
    for (size_t k = 0; k < places; k++, in += channels, out += channels, norm += channels) {
        squares(channels, in, work + p->half);
        window_sums(p, work, norm);
        for (uint32_t c = 0; c < channels; c++)
            norm[c] = p->k + p->part * norm[c];
        power(p, norm, factor);
        for (uint32_t c = 0; c < channels; c++)
            put(&out[c], get(&in[c]) * factor[c]);
    }
}

/* The equation is in nets/ref/lrn.c. */
static void lrn_back(const struct cnn_lrn *p, size_t places, const void *values, const float *norm,
                     const void *from, void *to, float *work)
{
    const value *in = values, *dout = from;
    value *din = to;
    uint32_t channels = p->channels;
    uint32_t before = p->size - 1 - p->half; /* the reversed neighbourhood */
    float *factor = work + channels + p->size, *sums = factor + channels + p->size;
    float twice = 2 * p->part * p->beta;

    clear_ends(p, before, work);
    for (size_t k = 0; k < places; k++, in += channels, norm += channels, dout += channels, din += channels) {
        power(p, norm, factor);
        weighted(channels, dout, in, factor, norm, work + before);
        window_sums(p, work, sums);
        for (uint32_t c = 0; c < channels; c++)
            put(&din[c], get(&dout[c]) * factor[c] - twice * get(&in[c]) * sums[c]);
    }
}

/* Sums of channels over the positions. One or four vectors of channels and two positions are processed at a
 * time, so that additions do not wait for each other. */
#define INLINE static inline __attribute__((always_inline))

/* The sum over positions, and the sum of the squared distances from the mean. */
INLINE void moments_tile(size_t places, size_t step, const value *in, float *sum, float *square, const int V)
{
    floats a[V], b[V], mean[V];
    size_t k;

    for (int v = 0; v < V; v++)
        a[v] = b[v] = (floats){0};
    for (k = 0; k + 1 < places; k += 2)
        for (int v = 0; v < V; v++) {
            a[v] += load_value(in + k * step + v * LANES);
            b[v] += load_value(in + (k + 1) * step + v * LANES);
        }
    for (int v = 0; v < V; v++) {
        if (k < places)
            a[v] += load_value(in + k * step + v * LANES);
        a[v] += b[v];
        store(sum + v * LANES, a[v]);
        mean[v] = a[v] / (float)places;
        a[v] = b[v] = (floats){0};
    }
    for (k = 0; k + 1 < places; k += 2)
        for (int v = 0; v < V; v++) {
            floats p = load_value(in + k * step + v * LANES) - mean[v];
            floats q = load_value(in + (k + 1) * step + v * LANES) - mean[v];
            a[v] += p * p;
            b[v] += q * q;
        }
    for (int v = 0; v < V; v++) {
        floats p = k < places ? load_value(in + k * step + v * LANES) - mean[v] : (floats){0};
        store(square + v * LANES, a[v] + b[v] + p * p);
    }
}

/* The same for one channel, if there are fewer than LANES. */
static void moments_one(size_t places, size_t step, const value *in, float *sum, float *square)
{
    float s = 0, q = 0;

    for (size_t k = 0; k < places; k++)
        s += get(&in[k * step]);
    *sum = s;
    for (size_t k = 0; k < places; k++)
        q += (get(&in[k * step]) - s / (float)places) * (get(&in[k * step]) - s / (float)places);
    *square = q;
}

static void moments(size_t places, size_t step, size_t channels, const void *values, float *sum,
                    float *square)
{
    const value *in = values;
    size_t c = 0;

    for (; channels < LANES && c < channels; c++)
        moments_one(places, step, in + c, sum + c, square + c);
    for (; c + 4 * LANES <= channels; c += 4 * LANES)
        moments_tile(places, step, in + c, sum + c, square + c, 4);
    for (; c < channels; c += LANES) {
        size_t at = c + LANES <= channels ? c : channels - LANES; /* some channels twice */
        moments_tile(places, step, in + at, sum + at, square + at, 1);
    }
}

/* d, or 0 where the fused ReLU's output is 0; written back if there is a ReLU. */
INLINE floats gradient_at(value *dout, const value *out, bool has_relu)
{
    floats d = load_value(dout);

    if (has_relu) {
        d = (floats)((load_value(out) > 0) & (ints)d);
        store_value(dout, d);
    }
    return d;
}

INLINE void back_tile(size_t places, size_t step, const value *in, const float *mean, value *dout,
                      const value *out, float *sum, float *product, const int V, const bool has_relu)
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
                size_t at = (k + e) * step + (size_t)v * LANES;
                floats d = gradient_at(dout + at, out + at, has_relu);
                s[e][v] += d;
                q[e][v] += d * (load_value(in + at) - m[v]);
            }
    for (int v = 0; v < V; v++) {
        if (k < places) {
            size_t at = k * step + (size_t)v * LANES;
            floats d = gradient_at(dout + at, out + at, has_relu);
            s[0][v] += d;
            q[0][v] += d * (load_value(in + at) - m[v]);
        }
        store(sum + v * LANES, s[0][v] + s[1][v]);
        store(product + v * LANES, q[0][v] + q[1][v]);
    }
}

static void back_one(size_t places, size_t step, const value *in, float mean, value *dout, const value *out,
                     float *sum, float *product)
{
    *sum = *product = 0;
    for (size_t k = 0; k < places; k++) {
        value *d = &dout[k * step];
        if (out != NULL)
            *d = get(&out[k * step]) > 0 ? *d : 0;
        *sum += get(d);
        *product += get(d) * (get(&in[k * step]) - mean);
    }
}

/* Some channels of the last vector are processed twice; values that the ReLU cleared stay 0. Without a ReLU
 * `out` is not read. */
INLINE void back_all(size_t places, size_t step, size_t channels, const value *in, const float *mean,
                     value *dout, const value *out, float *sum, float *product, const bool has_relu)
{
    size_t c = 0;

    for (; c + 4 * LANES <= channels; c += 4 * LANES)
        back_tile(places, step, in + c, mean + c, dout + c, out + c, sum + c, product + c, 4, has_relu);
    for (; c < channels; c += LANES) {
        size_t at = c + LANES <= channels ? c : channels - LANES;
        back_tile(places, step, in + at, mean + at, dout + at, out + at, sum + at, product + at, 1, has_relu);
    }
}

static void back_sums(size_t places, size_t step, size_t channels, const void *values, const float *mean,
                      void *gradients, const void *outputs, float *restrict sum, float *restrict product)
{
    const value *in = values, *out = outputs;
    value *dout = gradients;

    if (channels < LANES)
        for (size_t c = 0; c < channels; c++)
            back_one(places, step, in + c, mean[c], dout + c, out != NULL ? out + c : NULL, sum + c,
                     product + c);
    else if (out != NULL)
        back_all(places, step, channels, in, mean, dout, out, sum, product, true);
    else
        back_all(places, step, channels, in, mean, dout, dout, sum, product, false);
}

/* Four vectors of channels at a time, or one: their coefficients stay in registers for all positions, and the
 * values of a position lie beside each other in memory. */
INLINE void affine_tile(size_t places, size_t step, const value *in, const float *mean, const float *a,
                        const float *b, value *out, const int V, const bool has_relu)
{
    floats m[V], scale[V], shift[V];

    for (int v = 0; v < V; v++) {
        m[v] = load(mean + v * LANES);
        scale[v] = load(a + v * LANES);
        shift[v] = load(b + v * LANES);
    }
    for (size_t k = 0; k < places; k++)
        for (int v = 0; v < V; v++) {
            size_t at = k * step + (size_t)v * LANES;
            floats y = (load_value(in + at) - m[v]) * scale[v] + shift[v];
            if (has_relu)
                y = (floats)(~(y < 0) & (ints)y); /* a NaN stays one */
            store_value(out + at, y);
        }
}

/* Some channels of the last vector are processed twice. */
INLINE void affine_all(size_t places, size_t step, size_t channels, const value *in, const float *mean,
                       const float *a, const float *b, value *out, const bool has_relu)
{
    size_t c = 0;

    for (; c + 4 * LANES <= channels; c += 4 * LANES)
        affine_tile(places, step, in + c, mean + c, a + c, b + c, out + c, 4, has_relu);
    for (; c < channels; c += LANES) {
        size_t at = c + LANES <= channels ? c : channels - LANES;
        affine_tile(places, step, in + at, mean + at, a + at, b + at, out + at, 1, has_relu);
    }
}

static void affine(size_t places, size_t step, size_t channels, const void *values, const float *mean,
                   const float *a, const float *b, bool has_relu, void *restrict outputs)
{
    const value *in = values;
    value *restrict out = outputs;

    if (channels >= LANES && has_relu)
        affine_all(places, step, channels, in, mean, a, b, out, true);
    else if (channels >= LANES)
        affine_all(places, step, channels, in, mean, a, b, out, false);
    for (size_t k = 0; channels < LANES && k < places; k++)
        for (size_t c = 0; c < channels; c++) {
            float y = (get(&in[k * step + c]) - mean[c]) * a[c] + b[c];
            put(&out[k * step + c], has_relu && y < 0 ? 0 : y);
        }
}

INLINE void back_affine_tile(size_t places, size_t step, const value *in, const float *mean,
                             const value *dout, const float *a, const float *b, const float *c, value *din,
                             const int V)
{
    floats m[V], of_dout[V], of_in[V], shift[V];

    for (int v = 0; v < V; v++) {
        m[v] = load(mean + v * LANES);
        of_dout[v] = load(a + v * LANES);
        of_in[v] = load(b + v * LANES);
        shift[v] = load(c + v * LANES);
    }
    for (size_t k = 0; k < places; k++)
        for (int v = 0; v < V; v++) {
            size_t at = k * step + (size_t)v * LANES;
            store_value(din + at, of_dout[v] * load_value(dout + at) +
                                      (load_value(in + at) - m[v]) * of_in[v] + shift[v]);
        }
}

static void back_affine(size_t places, size_t step, size_t channels, const void *values, const float *mean,
                        const void *gradients, const float *a, const float *b, const float *c,
                        void *restrict to)
{
    const value *in = values, *dout = gradients;
    value *restrict din = to;

    size_t v = 0;
    for (; v + 4 * LANES <= channels; v += 4 * LANES)
        back_affine_tile(places, step, in + v, mean + v, dout + v, a + v, b + v, c + v, din + v, 4);
    for (; channels >= LANES && v < channels; v += LANES) {
        size_t at = v + LANES <= channels ? v : channels - LANES; /* some channels twice */
        back_affine_tile(places, step, in + at, mean + at, dout + at, a + at, b + at, c + at, din + at, 1);
    }
    for (size_t k = 0; channels < LANES && k < places; k++)
        for (size_t i = 0; i < channels; i++) {
            size_t at = k * step + i;
            put(&din[at], a[i] * get(&dout[at]) + (get(&in[at]) - mean[i]) * b[i] + c[i]);
        }
}

extern const struct cnn_norm_kernels CNN_NORM;
const struct cnn_norm_kernels CNN_NORM = {lrn, lrn_back, moments, affine, back_sums, back_affine};
