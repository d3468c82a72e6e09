/* kernels.c: the loops of kernels.h. CNN_ISA names the instruction set of this copy. */
#include "nets/onednn/kernels.h"

#include <math.h>
#include <string.h>

#include "nets/onednn/simd.h"

/* A window, clipped to the input. */
struct window {
    uint32_t y0, y1, x0, x1;
    int64_t top, left; /* start of the unclipped window */
};

static struct window window_at(const struct cnn_pool *p, uint32_t oy, uint32_t ox)
{
    struct window w;
    w.top = (int64_t)oy * p->stride[0] - p->pad[0];
    w.left = (int64_t)ox * p->stride[1] - p->pad[1];
    int64_t bottom = w.top + p->kernel[0], right = w.left + p->kernel[1];
    w.y0 = w.top < 0 ? 0 : (uint32_t)w.top;
    w.x0 = w.left < 0 ? 0 : (uint32_t)w.left;
    w.y1 = bottom > p->in.h ? p->in.h : (uint32_t)bottom;
    w.x1 = right > p->in.w ? p->in.w : (uint32_t)right;
    return w;
}

static inline int32_t place_in(const struct cnn_pool *p, const struct window *w, uint32_t y, uint32_t x)
{
    return (int32_t)((y - w->top) * p->kernel[1] + (x - w->left));
}

static inline size_t pixel(const struct cnn_pool *p, uint32_t y, uint32_t x)
{
    return ((size_t)y * p->in.w + x) * p->in.c;
}

/* Blocks of LANES channels. The last block is moved back to end at C, and writes some results twice. */
static inline uint32_t next_block(uint32_t c, uint32_t channels)
{
    return c + 2 * LANES <= channels ? c + LANES : channels - LANES;
}

static inline void max_block(const struct cnn_pool *p, const struct window *w, const float *in, float *out,
                             uint8_t *argmax)
{
    floats best = load(in + pixel(p, w->y0, w->x0));
    ints at = {0};
    at += place_in(p, w, w->y0, w->x0);

    for (uint32_t y = w->y0; y < w->y1; y++)
        for (uint32_t x = w->x0; x < w->x1; x++) {
            floats v = load(in + pixel(p, y, x));
            ints larger = (v > best) | (v != v); /* a NaN wins */
            best = (floats)((larger & (ints)v) | (~larger & (ints)best));
            at = (larger & place_in(p, w, y, x)) | (~larger & at);
        }
    bytes narrow = __builtin_convertvector(at, bytes);
    memcpy(argmax, &narrow, sizeof narrow);
    if (p->c_step == 1)
        store(out, best);
    else
        for (int k = 0; k < LANES; k++)
            out[k * p->c_step] = best[k];
}

static inline void max_one(const struct cnn_pool *p, const struct window *w, const float *in, float *out,
                           uint8_t *argmax)
{
    float best = in[pixel(p, w->y0, w->x0)];
    int32_t at = place_in(p, w, w->y0, w->x0);

    for (uint32_t y = w->y0; y < w->y1; y++)
        for (uint32_t x = w->x0; x < w->x1; x++)
            if (in[pixel(p, y, x)] > best || in[pixel(p, y, x)] != in[pixel(p, y, x)]) {
                best = in[pixel(p, y, x)];
                at = place_in(p, w, y, x);
            }
    *out = best;
    *argmax = (uint8_t)at;
}

static void maxpool(const struct cnn_pool *p, const float *in, float *out, uint8_t *argmax)
{
    uint32_t channels = p->in.c;

    for (uint32_t oy = 0; oy < p->out.h; oy++)
        for (uint32_t ox = 0; ox < p->out.w; ox++, out += p->place_step, argmax += channels) {
            struct window w = window_at(p, oy, ox);
            if (channels < LANES)
                for (uint32_t c = 0; c < channels; c++)
                    max_one(p, &w, in + c, out + c * p->c_step, argmax + c);
            else
                for (uint32_t c = 0;; c = next_block(c, channels)) {
                    max_block(p, &w, in + c, out + c * p->c_step, argmax + c);
                    if (c + LANES == channels)
                        break;
                }
        }
}

static inline floats load_dout(const struct cnn_pool *p, const float *dout)
{
    if (p->c_step == 1)
        return load(dout);
    floats d = {0};
    for (int k = 0; k < LANES; k++)
        d[k] = dout[k * p->c_step];
    return d;
}

static inline void store_or_add(float *to, floats v, bool adds)
{
    store(to, adds ? load(to) + v : v);
}

/* Writes every input of the window: d at the maximum, 0 elsewhere; or adds these values. */
static inline void write_block(const struct cnn_pool *p, const struct window *w, const float *dout,
                               const uint8_t *argmax, float *din, bool adds)
{
    bytes narrow;
    memcpy(&narrow, argmax, sizeof narrow);
    ints at = __builtin_convertvector(narrow, ints);
    ints d = (ints)load_dout(p, dout);

    for (uint32_t y = w->y0; y < w->y1; y++)
        for (uint32_t x = w->x0; x < w->x1; x++)
            store_or_add(din + pixel(p, y, x), (floats)((at == place_in(p, w, y, x)) & d), adds);
}

/* Offset of the window's start in the input; negative if it is in the padding. */
static inline int64_t window_start(const struct cnn_pool *p, const struct window *w)
{
    return (w->top * p->in.w + w->left) * p->in.c;
}

static inline void back_few(const struct cnn_pool *p, const struct window *w, const float *dout,
                            const uint8_t *argmax, float *din)
{
    int64_t start = window_start(p, w);

    for (uint32_t c = 0; c < p->in.c; c++)
        din[start + p->argmax_at[argmax[c]] + c] += dout[c * p->c_step];
}

/* Overlapping blocks would add some channels twice, so those of the last block are added one by one. */
static inline void back_adding(const struct cnn_pool *p, const struct window *w, const float *dout,
                               const uint8_t *argmax, float *din)
{
    int64_t start = window_start(p, w);
    uint32_t c = 0;

    for (; c + LANES <= p->in.c; c += LANES)
        write_block(p, w, dout + c * p->c_step, argmax + c, din + c, true);
    for (; c < p->in.c; c++)
        din[start + p->argmax_at[argmax[c]] + c] += dout[c * p->c_step];
}

static inline void back_writing(const struct cnn_pool *p, const struct window *w, const float *dout,
                                const uint8_t *argmax, float *din)
{
    for (uint32_t c = 0;; c = next_block(c, p->in.c)) {
        write_block(p, w, dout + c * p->c_step, argmax + c, din + c, false);
        if (c + LANES == p->in.c)
            break;
    }
}

/* For windows with more positions it is faster to add each maximum separately. */
#define MANY_PLACES 16

static void maxpool_back(const struct cnn_pool *p, const float *dout, const uint8_t *argmax, float *din)
{
    bool apart = p->stride[0] >= p->kernel[0] && p->stride[1] >= p->kernel[1];
    bool covers = p->stride[0] == p->kernel[0] && p->stride[1] == p->kernel[1] &&
                  p->pad[0] + p->pad[1] == 0 && p->out.h * p->stride[0] >= p->in.h &&
                  p->out.w * p->stride[1] >= p->in.w;
    bool few = p->in.c < LANES || p->kernel[0] * p->kernel[1] > MANY_PLACES;

    if (few || !apart || !covers)
        memset(din, 0, cnn_shape_count(p->in) * sizeof *din);
    for (uint32_t oy = 0; oy < p->out.h; oy++)
        for (uint32_t ox = 0; ox < p->out.w; ox++, dout += p->place_step, argmax += p->in.c) {
            struct window w = window_at(p, oy, ox);
            if (few)
                back_few(p, &w, dout, argmax, din);
            else if (apart)
                back_writing(p, &w, dout, argmax, din);
            else
                back_adding(p, &w, dout, argmax, din);
        }
}

static void relu(float *x, size_t n)
{
    for (size_t i = 0; i < n; i++)
        x[i] = x[i] < 0 ? 0 : x[i]; /* a NaN is kept */
}

static void relu_back(float *dx, const float *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        dx[i] = out[i] > 0 ? dx[i] : 0;
}

static void leaky(const float *in, float *out, size_t n, float slope)
{
    for (size_t i = 0; i < n; i++)
        out[i] = in[i] > 0 ? in[i] : slope * in[i];
}

static void leaky_back(const float *out, const float *dout, float *dx, size_t n, float slope)
{
    for (size_t i = 0; i < n; i++)
        dx[i] = out[i] > 0 ? dout[i] : slope * dout[i];
}

static void relu6(const float *in, float *out, size_t n, float p)
{
    (void)p;
    for (size_t i = 0; i < n; i++)
        out[i] = in[i] < 0 ? 0 : in[i] > 6 ? 6 : in[i];
}

static void relu6_back(const float *out, const float *dout, float *dx, size_t n, float p)
{
    (void)p;
    for (size_t i = 0; i < n; i++)
        dx[i] = out[i] > 0 && out[i] < 6 ? dout[i] : 0;
}

static void sigmoid(const float *in, float *out, size_t n, float p)
{
    (void)p;
    for (size_t i = 0; i < n; i++)
        out[i] = 1 / (1 + expf(-in[i]));
}

static void sigmoid_back(const float *out, const float *dout, float *dx, size_t n, float p)
{
    (void)p;
    for (size_t i = 0; i < n; i++)
        dx[i] = dout[i] * out[i] * (1 - out[i]);
}

static void hyperbolic(const float *in, float *out, size_t n, float p)
{
    (void)p;
    for (size_t i = 0; i < n; i++)
        out[i] = tanhf(in[i]);
}

static void hyperbolic_back(const float *out, const float *dout, float *dx, size_t n, float p)
{
    (void)p;
    for (size_t i = 0; i < n; i++)
        dx[i] = dout[i] * (1 - out[i] * out[i]);
}

static const struct cnn_activation_kernels activation = {
    leaky, relu6, sigmoid, hyperbolic, leaky_back, relu6_back, sigmoid_back, hyperbolic_back,
};

static void transpose(const float *from, float *to, size_t rows, size_t cols)
{
    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            to[c * rows + r] = from[r * cols + c];
}

static void add_scaled(float *to, const float *from, float a, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] += a * from[i];
}

static void add(float *to, const float *a, const float *b, bool has_relu, size_t n)
{
    if (has_relu)
        for (size_t i = 0; i < n; i++) {
            float sum = a[i] + b[i];
            to[i] = sum < 0 ? 0 : sum; /* a NaN is kept */
        }
    else
        for (size_t i = 0; i < n; i++)
            to[i] = a[i] + b[i];
}

static void dropout(const float *from, float *to, const uint8_t *keep, float scale, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = keep[i] ? from[i] * scale : 0;
}

extern const struct cnn_norm_kernels CNN_NORM;
extern const struct cnn_kernels CNN_KERNELS;
const struct cnn_kernels CNN_KERNELS = {CNN_ISA,   maxpool,    maxpool_back, relu,    relu_back, &activation,
                                        transpose, add_scaled, add,          dropout, &CNN_NORM, CNN_POOLED};
