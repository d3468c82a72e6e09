/* kernels.c: the loops of kernels.h. CNN_ISA names the instruction set of this copy; with CNN_VALUES_BF16 its
 * activations are bf16. */
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

static inline void max_block(const struct cnn_pool *p, const struct window *w, const value *in, value *out,
                             uint8_t *argmax)
{
    floats best = load_value(in + pixel(p, w->y0, w->x0));
    ints at = {0};
    at += place_in(p, w, w->y0, w->x0);

    for (uint32_t y = w->y0; y < w->y1; y++)
        for (uint32_t x = w->x0; x < w->x1; x++) {
            floats v = load_value(in + pixel(p, y, x));
            ints larger = (v > best) | (v != v); /* a NaN wins */
            best = (floats)((larger & (ints)v) | (~larger & (ints)best));
            at = (larger & place_in(p, w, y, x)) | (~larger & at);
        }
    bytes narrow = __builtin_convertvector(at, bytes);
    memcpy(argmax, &narrow, sizeof narrow);
    if (p->c_step == 1)
        store_value(out, best);
    else
        for (int k = 0; k < LANES; k++)
            put(&out[k * p->c_step], best[k]);
}

static inline void max_one(const struct cnn_pool *p, const struct window *w, const value *in, value *out,
                           uint8_t *argmax)
{
    float best = get(&in[pixel(p, w->y0, w->x0)]);
    int32_t at = place_in(p, w, w->y0, w->x0);

    for (uint32_t y = w->y0; y < w->y1; y++)
        for (uint32_t x = w->x0; x < w->x1; x++) {
            float v = get(&in[pixel(p, y, x)]);
            if (v > best || v != v) {
                best = v;
                at = place_in(p, w, y, x);
            }
        }
    put(out, best);
    *argmax = (uint8_t)at;
}

static void maxpool(const struct cnn_pool *p, const void *from, void *to, uint8_t *argmax)
{
    uint32_t channels = p->n_channels;
    const value *in = from;
    value *out = to;

    for (uint32_t oy = 0; oy < p->out.h; oy++)
        for (uint32_t ox = 0; ox < p->out.w; ox++, out += p->place_step, argmax += p->in.c) {
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

static inline floats load_dout(const struct cnn_pool *p, const value *dout)
{
    if (p->c_step == 1)
        return load_value(dout);
    floats d = {0};
    for (int k = 0; k < LANES; k++)
        d[k] = get(&dout[k * p->c_step]);
    return d;
}

static inline void store_or_add(value *to, floats v, bool adds)
{
    store_value(to, adds ? load_value(to) + v : v);
}

static inline void add_one(value *to, float v)
{
    put(to, get(to) + v);
}

/* Writes every input of the window: d at the maximum, 0 elsewhere; or adds these values. */
static inline void write_block(const struct cnn_pool *p, const struct window *w, const value *dout,
                               const uint8_t *argmax, value *din, bool adds)
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

static inline void back_few(const struct cnn_pool *p, const struct window *w, const value *dout,
                            const uint8_t *argmax, value *din)
{
    int64_t start = window_start(p, w);

    for (uint32_t c = 0; c < p->n_channels; c++)
        add_one(&din[start + p->argmax_at[argmax[c]] + c], get(&dout[c * p->c_step]));
}

/* Overlapping blocks would add some channels twice, so those of the last block are added one by one. */
static inline void back_adding(const struct cnn_pool *p, const struct window *w, const value *dout,
                               const uint8_t *argmax, value *din)
{
    int64_t start = window_start(p, w);
    uint32_t c = 0;

    for (; c + LANES <= p->n_channels; c += LANES)
        write_block(p, w, dout + c * p->c_step, argmax + c, din + c, true);
    for (; c < p->n_channels; c++)
        add_one(&din[start + p->argmax_at[argmax[c]] + c], get(&dout[c * p->c_step]));
}

static inline void back_writing(const struct cnn_pool *p, const struct window *w, const value *dout,
                                const uint8_t *argmax, value *din)
{
    for (uint32_t c = 0;; c = next_block(c, p->n_channels)) {
        write_block(p, w, dout + c * p->c_step, argmax + c, din + c, false);
        if (c + LANES == p->n_channels)
            break;
    }
}

static void clear(const struct cnn_pool *p, value *din)
{
    size_t places = (size_t)p->in.h * p->in.w;

    if (p->n_channels == p->in.c)
        memset(din, 0, places * p->in.c * sizeof *din);
    else
        for (size_t k = 0; k < places; k++)
            memset(din + k * p->in.c, 0, p->n_channels * sizeof *din);
}

/* For windows with more positions it is faster to add each maximum separately. */
#define MANY_PLACES 16

static void maxpool_back(const struct cnn_pool *p, const void *from, const uint8_t *argmax, void *to)
{
    const value *dout = from;
    value *din = to;
    bool apart = p->stride[0] >= p->kernel[0] && p->stride[1] >= p->kernel[1];
    bool covers = p->stride[0] == p->kernel[0] && p->stride[1] == p->kernel[1] &&
                  p->pad[0] + p->pad[1] == 0 && p->out.h * p->stride[0] >= p->in.h &&
                  p->out.w * p->stride[1] >= p->in.w;
    bool few = p->n_channels < LANES || p->kernel[0] * p->kernel[1] > MANY_PLACES;

    if (few || !apart || !covers)
        clear(p, din);
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

/* One window of one channel; in and out point to that channel. */
static void wide_window(const struct cnn_pool *p, const value *in, uint32_t oy, uint32_t ox, value *out,
                        uint16_t *argmax)
{
    int64_t top = (int64_t)oy * p->stride[0] - p->pad[0], left = (int64_t)ox * p->stride[1] - p->pad[1];
    bool found = false;
    float best = 0;

    for (uint32_t k = 0; k < p->kernel[0] * p->kernel[1]; k++) {
        int64_t y = top + k / p->kernel[1], x = left + k % p->kernel[1];
        if (y < 0 || x < 0 || y >= p->in.h || x >= p->in.w)
            continue;
        float v = get(&in[(y * p->in.w + x) * p->in.c]);
        if (!found || v > best || v != v) { /* a NaN wins */
            best = v;
            *argmax = (uint16_t)k;
            found = true;
        }
    }
    put(out, best);
}

static void maxpool_wide(const struct cnn_pool *p, const void *from, void *to, uint16_t *argmax)
{
    const value *in = from;
    value *out = to;

    for (uint32_t k = 0; k < p->out.h * p->out.w; k++)
        for (uint32_t c = 0; c < p->n_channels; c++)
            wide_window(p, in + c, k / p->out.w, k % p->out.w, &out[c * p->c_step + k * p->place_step],
                        &argmax[(size_t)k * p->in.c + c]);
}

static void maxpool_wide_back(const struct cnn_pool *p, const void *from, const uint16_t *argmax, void *to)
{
    const value *dout = from;
    value *din = to;

    clear(p, din);
    for (uint32_t k = 0; k < p->out.h * p->out.w; k++) {
        int64_t top = (int64_t)(k / p->out.w) * p->stride[0] - p->pad[0];
        int64_t left = (int64_t)(k % p->out.w) * p->stride[1] - p->pad[1];
        int64_t start = (top * p->in.w + left) * p->in.c;
        for (uint32_t c = 0; c < p->n_channels; c++)
            add_one(&din[start + p->argmax_at[argmax[(size_t)k * p->in.c + c]] + c],
                    get(&dout[c * p->c_step + k * p->place_step]));
    }
}

static void relu(void *values, size_t n)
{
    value *x = values;

    for (size_t i = 0; i < n; i++)
        x[i] = get(&x[i]) < 0 ? 0 : x[i]; /* a NaN is kept */
}

static void relu_back(void *gradients, const void *values, size_t n)
{
    value *dx = gradients;
    const value *out = values;

    for (size_t i = 0; i < n; i++)
        dx[i] = get(&out[i]) > 0 ? dx[i] : 0;
}

/* Each function f of a value and its derivative: `v` is the input, or the output in a backward pass. */
#define FORWARD(name, f)                                                                                     \
    static void name(const void *from, void *to, size_t n, float p)                                          \
    {                                                                                                        \
        const value *in = from;                                                                              \
        value *out = to;                                                                                     \
        (void)p;                                                                                             \
        for (size_t i = 0; i < n; i++) {                                                                     \
            float v = get(&in[i]);                                                                           \
            put(&out[i], f);                                                                                 \
        }                                                                                                    \
    }
#define BACKWARD(name, f)                                                                                    \
    static void name(const void *values, const void *from, void *to, size_t n, float p)                      \
    {                                                                                                        \
        const value *out = values, *dout = from;                                                             \
        value *dx = to;                                                                                      \
        (void)p;                                                                                             \
        for (size_t i = 0; i < n; i++) {                                                                     \
            float v = get(&out[i]), d = get(&dout[i]);                                                       \
            put(&dx[i], f);                                                                                  \
        }                                                                                                    \
    }

FORWARD(leaky, v > 0 ? v : p * v)
BACKWARD(leaky_back, v > 0 ? d : p * d)
FORWARD(relu6, v<0 ? 0 : v> 6 ? 6 : v)
BACKWARD(relu6_back, v > 0 && v < 6 ? d : 0)
FORWARD(sigmoid, 1 / (1 + expf(-v)))
BACKWARD(sigmoid_back, d *v *(1 - v))
FORWARD(hyperbolic, tanhf(v))
BACKWARD(hyperbolic_back, d *(1 - v * v))

static const struct cnn_activation_kernels activation = {
    leaky, relu6, sigmoid, hyperbolic, leaky_back, relu6_back, sigmoid_back, hyperbolic_back,
};

static void transpose(const void *values, void *turned, size_t rows, size_t cols)
{
    const value *from = values;
    value *to = turned;

    for (size_t r = 0; r < rows; r++)
        for (size_t c = 0; c < cols; c++)
            to[c * rows + r] = from[r * cols + c];
}

static void add_scaled(float *to, const void *values, float a, size_t n)
{
    const value *from = values;

    for (size_t i = 0; i < n; i++)
        to[i] += a * get(&from[i]);
}

static void from_floats(const float *from, void *values, size_t n)
{
    value *to = values;

    for (size_t i = 0; i < n; i++)
        put(&to[i], from[i]);
}

static void to_doubles(const void *values, double *to, size_t n)
{
    const value *from = values;

    for (size_t i = 0; i < n; i++)
        to[i] = (double)get(&from[i]);
}

static void from_doubles(const double *from, void *values, bool adds, size_t n)
{
    value *to = values;

    for (size_t i = 0; i < n; i++)
        put(&to[i], adds ? get(&to[i]) + (float)from[i] : (float)from[i]);
}

static void add(void *sums, const void *first, const void *second, bool has_relu, size_t n)
{
    value *to = sums;
    const value *a = first, *b = second;

    if (has_relu)
        for (size_t i = 0; i < n; i++) {
            float sum = get(&a[i]) + get(&b[i]);
            put(&to[i], sum < 0 ? 0 : sum); /* a NaN is kept */
        }
    else
        for (size_t i = 0; i < n; i++)
            put(&to[i], get(&a[i]) + get(&b[i]));
}

static void dropout(const void *values, void *dropped, const uint8_t *keep, float scale, size_t n)
{
    const value *from = values;
    value *to = dropped;

    for (size_t i = 0; i < n; i++)
        put(&to[i], keep[i] ? get(&from[i]) * scale : 0);
}

extern const struct cnn_norm_kernels CNN_NORM;
extern const struct cnn_kernels CNN_KERNELS;
const struct cnn_kernels CNN_KERNELS = {.isa = CNN_ISA,
                                        .maxpool = maxpool,
                                        .maxpool_back = maxpool_back,
                                        .maxpool_wide = maxpool_wide,
                                        .maxpool_wide_back = maxpool_wide_back,
                                        .relu = relu,
                                        .relu_back = relu_back,
                                        .activation = &activation,
                                        .transpose = transpose,
                                        .add_scaled = add_scaled,
                                        .from_floats = from_floats,
                                        .to_doubles = to_doubles,
                                        .from_doubles = from_doubles,
                                        .add = add,
                                        .dropout = dropout,
                                        .norm = &CNN_NORM,
                                        .pooled = CNN_POOLED};
