/* norm_kernels.c: see struct cnn_norm_kernels in kernels.h. Plain loops along the channels, which lie
 * together; compiled once per instruction set. */
#include "nets/onednn/kernels.h"

#include <math.h>
#include <string.h>

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

static void sums(size_t places, size_t channels, const float *in, float *restrict sum)
{
    memset(sum, 0, channels * sizeof *sum);
    for (size_t k = 0; k < places; k++, in += channels)
        for (size_t c = 0; c < channels; c++)
            sum[c] += in[c];
}

static void squares(size_t places, size_t channels, const float *in, const float *mean, float *restrict sum)
{
    memset(sum, 0, channels * sizeof *sum);
    for (size_t k = 0; k < places; k++, in += channels)
        for (size_t c = 0; c < channels; c++)
            sum[c] += (in[c] - mean[c]) * (in[c] - mean[c]);
}

static void affine(size_t places, size_t channels, const float *in, const float *mean, const float *a,
                   const float *b, float *restrict out)
{
    for (size_t k = 0; k < places; k++, in += channels, out += channels)
        for (size_t c = 0; c < channels; c++)
            out[c] = (in[c] - mean[c]) * a[c] + b[c];
}

static void back_sums(size_t places, size_t channels, const float *in, const float *mean, const float *dout,
                      float *restrict sum, float *restrict product)
{
    memset(sum, 0, channels * sizeof *sum);
    memset(product, 0, channels * sizeof *product);
    for (size_t k = 0; k < places; k++, in += channels, dout += channels)
        for (size_t c = 0; c < channels; c++) {
            sum[c] += dout[c];
            product[c] += dout[c] * (in[c] - mean[c]);
        }
}

static void back_affine(size_t places, size_t channels, const float *in, const float *mean, const float *dout,
                        const float *a, const float *b, const float *c, float *restrict din)
{
    for (size_t k = 0; k < places; k++, in += channels, dout += channels, din += channels)
        for (size_t i = 0; i < channels; i++)
            din[i] = a[i] * dout[i] + (in[i] - mean[i]) * b[i] + c[i];
}

extern const struct cnn_norm_kernels CNN_NORM;
const struct cnn_norm_kernels CNN_NORM = {lrn, lrn_back, sums, squares, affine, back_sums, back_affine};
