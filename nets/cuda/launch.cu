/* launch.cu: the kernel launchers. <<<>>> does not return an error, so each launcher returns
 * cudaPeekAtLastError(). */
#include "nets/cuda/launch.h"

#include <initializer_list>

#include "nets/cuda/kernels.cuh"

/* Kernels use grid-stride loops; more blocks would not run at the same time. */
#define MOST_BLOCKS 4096
/* Of kernels whose threads first read what they need of their channels: three for each of an H100's 132
 * multiprocessors. */
#define MOST_CHANNEL_BLOCKS 396

static unsigned blocks_for(uint64_t n)
{
    uint64_t blocks = (n + CNN_CUDA_BLOCK - 1) / CNN_CUDA_BLOCK;
    return blocks < 1 ? 1 : blocks > MOST_BLOCKS ? MOST_BLOCKS : (unsigned)blocks;
}

/* Blocks whose threads have `each` values at a time. */
static unsigned blocks_for_groups(enum cnn_cuda_type t, uint64_t n)
{
    return blocks_for(n / (16 / (t == CNN_CUDA_BF16 ? sizeof(struct cnn_cuda_bf16) : sizeof(float))) + 1);
}

static dim3 tiles_for(enum cnn_cuda_type t, uint64_t rows, uint32_t c)
{
    return dim3(cnn_cuda_tiles(t, c), cnn_cuda_slices(t, rows, c));
}

static uint32_t common_factor(uint32_t a, uint32_t b)
{
    return b == 0 ? a : common_factor(b, a % b);
}

/* Blocks for values of c channels, of which a thread has the same ones each time: the number of threads is a
 * multiple of c, or of c / width where it has `width` of them. */
static unsigned blocks_for_channels(struct cnn_cuda_norm *p, enum cnn_cuda_type t, const void *in,
                                    const void *also, const void *out)
{
    const uint32_t width = 16 / (t == CNN_CUDA_BF16 ? sizeof(struct cnn_cuda_bf16) : sizeof(float));
    p->is_grouped = p->c % width == 0 && ((uintptr_t)in | (uintptr_t)also | (uintptr_t)out) % 16 == 0;
    const uint32_t each = p->is_grouped ? p->c / width : p->c;
    const unsigned step = each / common_factor(each, CNN_CUDA_BLOCK), all = blocks_for(p->rows * each),
                   blocks = all < MOST_CHANNEL_BLOCKS ? all : MOST_CHANNEL_BLOCKS;
    return (blocks + step - 1) / step * step;
}

static uint64_t count(struct cnn_cuda_shape s)
{
    return (uint64_t)s.n * s.h * s.w * s.c;
}

/* The number of neighbouring channels that a thread handles: 16 bytes where all rows and pointers are
 * multiples of 16 bytes, otherwise one. rows: the row lengths, or'ed. */
static uint32_t together(enum cnn_cuda_type t, uint32_t rows, std::initializer_list<const void *> pointers)
{
    const uint32_t per = t == CNN_CUDA_BF16 ? 8 : 4;
    uintptr_t bits = (uintptr_t)rows * 16 / per;

    for (const void *p : pointers)
        bits |= reinterpret_cast<uintptr_t>(p);
    return bits % 16 == 0 ? per : 1;
}

/* Granlund and Montgomery, "Division by invariant integers using multiplication": for every dividend. */
static struct cnn_cuda_divisor divisor(uint32_t by)
{
    uint32_t bits = 0; /* by <= 2^bits */

    while ((uint64_t)1 << bits < by)
        bits++;
    uint64_t factor = ((((uint64_t)1 << bits) - by) << 32) / by + 1;
    return {by, (uint32_t)factor, bits > 0 ? 1u : 0u, bits > 0 ? bits - 1 : 0u};
}

/* of: the shape that the threads write. */
static struct cnn_cuda_share share_of(const struct cnn_cuda_window &w, const struct cnn_cuda_shape &of,
                                      uint32_t per)
{
    return {per,
            divisor(of.c / per),
            divisor(of.h),
            {divisor((uint32_t)w.stride[0]), divisor((uint32_t)w.stride[1])}};
}

/* For EACH_ROW and EACH_OF_ROW of groups.cuh. */
static dim3 rows_for(const struct cnn_cuda_shape &of, uint32_t per)
{
    const uint64_t rows = (uint64_t)of.n * of.h;
    return dim3(blocks_for((uint64_t)of.w * (of.c / per)), rows > 65535 ? 65535 : (unsigned)rows);
}

#define LAUNCH(kernel, grid, ...)                                                                            \
    do {                                                                                                     \
        kernel<<<grid, CNN_CUDA_BLOCK, 0, s>>>(__VA_ARGS__);                                                 \
        cudaError_t error = cudaPeekAtLastError();                                                           \
        if (error != cudaSuccess)                                                                            \
            return error;                                                                                    \
    } while (0)
#define RUN(kernel, grid, ...)                                                                               \
    do {                                                                                                     \
        LAUNCH(kernel, grid, __VA_ARGS__);                                                                   \
        return cudaSuccess;                                                                                  \
    } while (0)

/* A pointer to values of either type: it becomes what the kernel takes. */
struct untyped {
    const void *p;
    template <class T> operator const T *() const
    {
        return static_cast<const T *>(p);
    }
    template <class T> operator T *() const
    {
        return static_cast<T *>(const_cast<void *>(p));
    }
};
#define LAUNCH_FOR(t, kernel, grid, ...)                                                                     \
    do {                                                                                                     \
        if (t == CNN_CUDA_BF16)                                                                              \
            LAUNCH(kernel##_bf16, grid, __VA_ARGS__);                                                        \
        else                                                                                                 \
            LAUNCH(kernel, grid, __VA_ARGS__);                                                               \
    } while (0)
#define RUN_FOR(t, kernel, grid, ...)                                                                        \
    do {                                                                                                     \
        LAUNCH_FOR(t, kernel, grid, __VA_ARGS__);                                                            \
        return cudaSuccess;                                                                                  \
    } while (0)

cudaError_t cu_turn(cu_stream s, enum cnn_cuda_type t, uint64_t n, uint32_t a, uint32_t b, const void *in,
                    void *out)
{
    RUN_FOR(t, k_turn, blocks_for(n), n, a, b, untyped{in}, untyped{out});
}

cudaError_t cu_turn_in(cu_stream s, enum cnn_cuda_type t, uint64_t n, uint32_t a, uint32_t b, const float *in,
                       void *out)
{
    if (a == 1 || b == 1)
        RUN_FOR(t, k_convert, blocks_for_groups(t, n), n, in, untyped{out});
    RUN_FOR(t, k_turn_in, blocks_for(n), n, a, b, in, untyped{out});
}

/* Gives each its blocks; how many there are. */
static unsigned blocks_of(struct cnn_cuda_turns *turns)
{
    unsigned n = 0;

    for (uint32_t i = 0; i < turns->n; i++) {
        turns->of[i].first = n;
        n += (unsigned)((turns->of[i].n + CNN_CUDA_TURNED - 1) / CNN_CUDA_TURNED);
    }
    return n;
}

cudaError_t cu_weights_in(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_turns *turns, const float *x,
                          void *copies)
{
    const unsigned blocks = blocks_of(turns);
    RUN_FOR(t, k_weights_in, blocks, *turns, x, untyped{copies});
}

cudaError_t cu_weights_out(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_turns *turns,
                           const void *copies, float *g)
{
    const unsigned blocks = blocks_of(turns);
    RUN_FOR(t, k_weights_out, blocks, *turns, untyped{copies}, g);
}

cudaError_t cu_bytes(cu_stream s, enum cnn_cuda_type t, uint64_t n, uint32_t c, uint32_t places,
                     uint32_t is_hwc, const uint8_t *in, const float *value_of, void *out)
{
    RUN_FOR(t, k_bytes, blocks_for(n), n, c, places, is_hwc, in, value_of, untyped{out});
}

cudaError_t cu_cut_bytes(cu_stream s, enum cnn_cuda_type t, uint64_t n, struct cnn_cuda_stored p,
                         const uint8_t *in, const struct cnn_cuda_cut *cuts, const float *value_of, void *out)
{
    RUN_FOR(t, k_cut_bytes, blocks_for(n), n, p, in, cuts, value_of, untyped{out});
}

cudaError_t cu_copy_channels(cu_stream s, enum cnn_cuda_type t, uint64_t rows, uint32_t c, const void *in,
                             uint32_t in_stride, void *out, uint32_t out_stride)
{
    const uint32_t per = together(t, c | in_stride | out_stride, {in, out});
    const uint64_t n = rows * (c / per);
    RUN_FOR(t, k_copy_channels, blocks_for(n), n, per, c, untyped{in}, in_stride, untyped{out}, out_stride);
}

cudaError_t cu_add(cu_stream s, enum cnn_cuda_type t, uint64_t n, uint32_t has_relu, const void *a,
                   const void *b, void *out)
{
    RUN_FOR(t, k_add, blocks_for_groups(t, n), n, has_relu, untyped{a}, untyped{b}, untyped{out});
}

cudaError_t cu_bias(cu_stream s, enum cnn_cuda_type t, uint64_t n, uint32_t c, const float *bias, void *x)
{
    RUN_FOR(t, k_bias, blocks_for(n), n, c, bias, untyped{x});
}

cudaError_t cu_bias_back(cu_stream s, enum cnn_cuda_type t, uint64_t rows, uint32_t c, const void *dout,
                         struct cnn_cuda_sums sums, float *dbias)
{
    RUN_FOR(t, k_sums, tiles_for(t, rows, c), rows, c, untyped{dout}, sums, dbias);
}

cudaError_t cu_relu_bias_back(cu_stream s, enum cnn_cuda_type t, uint64_t rows, uint32_t c, const void *relu,
                              const void *dout, struct cnn_cuda_sums sums, void *din, float *dbias)
{
    RUN_FOR(t, k_sums_behind_relu, tiles_for(t, rows, c), rows, c, untyped{relu}, untyped{dout}, sums,
            untyped{din}, dbias);
}

cudaError_t cu_pool_bias_back(cu_stream s, enum cnn_cuda_type t, uint64_t rows, uint32_t c,
                              const uint16_t *best, const void *dout, struct cnn_cuda_sums sums, float *dbias)
{
    RUN_FOR(t, k_sums_behind_pool, tiles_for(t, rows, c), rows, c, best, untyped{dout}, sums, dbias);
}

cudaError_t cu_activate(cu_stream s, enum cnn_cuda_type t, uint64_t n, enum cnn_cuda_activation kind,
                        float slope, const void *in, void *out)
{
    RUN_FOR(t, k_activate, blocks_for_groups(t, n), n, kind, slope, untyped{in}, untyped{out});
}

cudaError_t cu_activate_back(cu_stream s, enum cnn_cuda_type t, uint64_t n, enum cnn_cuda_activation kind,
                             float slope, const void *out, const void *dout, const void *part, void *din)
{
    RUN_FOR(t, k_activate_back, blocks_for_groups(t, n), n, kind, slope, untyped{out}, untyped{dout},
            untyped{part}, untyped{din});
}

cudaError_t cu_dropout(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_dropout p,
                       const struct cnn_cuda_step *step, const void *in, void *out)
{
    if (p.c == 1 || p.places == 1)
        RUN_FOR(t, k_dropout, blocks_for((p.n + 3) / 4), p, step, untyped{in}, untyped{out});
    RUN_FOR(t, k_dropout_planes, blocks_for(p.n), p, step, untyped{in}, untyped{out});
}

cudaError_t cu_maxpool(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_window w, const void *in, void *out,
                       uint16_t *best)
{
    const uint32_t per = together(t, w.in.c, {in, out, best});
    RUN_FOR(t, k_maxpool, rows_for(w.out, per), share_of(w, w.out, per), w, untyped{in}, untyped{out}, best);
}

cudaError_t cu_maxpool_back(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_window w, const void *dout,
                            const uint16_t *best, void *din)
{
    const uint32_t per = together(t, w.in.c, {dout, best, din});
    RUN_FOR(t, k_maxpool_back, rows_for(w.in, per), share_of(w, w.in, per), w, untyped{dout}, best,
            untyped{din});
}

cudaError_t cu_avgpool(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_window w, const void *in, void *out)
{
    const uint32_t per = together(t, w.in.c, {in, out});
    RUN_FOR(t, k_avgpool, rows_for(w.out, per), share_of(w, w.out, per), w, untyped{in}, untyped{out});
}

cudaError_t cu_avgpool_back(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_window w, const void *dout,
                            void *din)
{
    const uint32_t per = together(t, w.in.c, {dout, din});
    RUN_FOR(t, k_avgpool_back, rows_for(w.in, per), share_of(w, w.in, per), w, untyped{dout}, untyped{din});
}

static uint32_t together_in_lrn(enum cnn_cuda_type t, const struct cnn_cuda_lrn &p,
                                std::initializer_list<const void *> pointers)
{
    return p.before == LRN_SIDE && p.after == LRN_SIDE ? together(t, p.c, pointers) : 1;
}

cudaError_t cu_lrn(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_lrn p, const void *in, float *norm,
                   void *out)
{
    const uint32_t per = together_in_lrn(t, p, {in, norm, out});
    RUN_FOR(t, k_lrn, blocks_for(p.n / per), per, p, untyped{in}, norm, untyped{out});
}

cudaError_t cu_lrn_back(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_lrn p, const void *in,
                        const float *norm, const void *dout, void *din)
{
    const uint32_t per = together_in_lrn(t, p, {in, norm, dout, din});
    RUN_FOR(t, k_lrn_back, blocks_for(p.n / per), per, p, untyped{in}, norm, untyped{dout}, untyped{din});
}

cudaError_t cu_norm_measure(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_norm p, const float *scale,
                            const float *shift, const void *in, struct cnn_cuda_sums sums, double *stats,
                            float *used)
{
    RUN_FOR(t, k_moments, tiles_for(t, p.rows, p.c), p, untyped{in}, scale, shift, sums, stats, used);
}

cudaError_t cu_norm_running(cu_stream s, struct cnn_cuda_norm p, const float *scale, const float *shift,
                            const float *mean, const float *variance, float *used)
{
    RUN(k_norm_running, blocks_for(p.c), p, mean, variance, scale, shift, used);
}

cudaError_t cu_norm_move(cu_stream s, uint32_t layers, const struct cnn_cuda_running *running,
                         const double *stats, float *x)
{
    RUN(k_norm_move, layers, running, stats, x);
}

cudaError_t cu_norm(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_norm p, const float *used,
                    const void *in, const void *added, void *out)
{
    const unsigned blocks = blocks_for_channels(&p, t, in, added, out);
    RUN_FOR(t, k_norm, blocks, p, used, untyped{in}, untyped{added}, untyped{out});
}

cudaError_t cu_norm_back(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_norm p, const float *used,
                         const float *scale, const void *in, const void *dout, struct cnn_cuda_sums sums,
                         float *coefficients, float *dscale, float *dshift, void *din)
{
    LAUNCH_FOR(t, k_products, tiles_for(t, p.rows, p.c), p, used, scale, untyped{in}, untyped{dout}, sums,
               dscale, dshift, coefficients);
    if (din == NULL)
        return cudaSuccess;
    const unsigned blocks = blocks_for_channels(&p, t, in, dout, din);
    RUN_FOR(t, k_norm_back, blocks, p, used, coefficients, untyped{in}, untyped{dout}, untyped{din});
}

cudaError_t cu_loss(cu_stream s, enum cnn_cuda_type logit, enum cnn_cuda_type t, struct cnn_cuda_loss p,
                    uint32_t images, const void *logits, const uint16_t *labels, void *dz,
                    struct cnn_cuda_row *rows)
{
    if (logit == CNN_CUDA_FLOAT && t == CNN_CUDA_BF16)
        RUN(k_loss_wide_bf16, images, p, untyped{logits}, labels, untyped{dz}, rows);
    RUN_FOR(t, k_loss, images, p, untyped{logits}, labels, untyped{dz}, rows);
}

cudaError_t cu_rows(cu_stream s, uint32_t n, const struct cnn_cuda_row *from, struct cnn_cuda_row *to)
{
    RUN(k_rows, blocks_for(n), n, from, to);
}

cudaError_t cu_conv(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_window w, const void *in,
                    const void *weight, void *out)
{
    RUN_FOR(t, k_conv, blocks_for(count(w.out)), count(w.out), w, untyped{in}, untyped{weight}, untyped{out});
}

cudaError_t cu_conv_back_data(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_window w, const void *weight,
                              const void *dout, void *din)
{
    RUN_FOR(t, k_conv_back_data, blocks_for(count(w.in)), count(w.in), w, untyped{weight}, untyped{dout},
            untyped{din});
}

static uint64_t weights_of(const struct cnn_cuda_window *w)
{
    return (uint64_t)w->out.c * w->kernel[0] * w->kernel[1] * (w->in.c / w->groups);
}

cudaError_t cu_conv_back_weights(cu_stream s, enum cnn_cuda_type t, struct cnn_cuda_window w, const void *in,
                                 const void *dout, void *dweight)
{
    RUN_FOR(t, k_conv_back_weights, blocks_for(weights_of(&w)), weights_of(&w), w, untyped{in}, untyped{dout},
            untyped{dweight});
}
