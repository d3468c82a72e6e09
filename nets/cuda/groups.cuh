/* groups.cuh: pools, LRN and copies of channels. A thread handles N neighbouring channels of a place, which
 * it reads and writes at once: 16 bytes of values. N is 1 where the channels do not divide or lie so. */

template <uint32_t N, class T> __device__ inline void save_floats(T *p, const float *values)
{
    struct pack<T, N> out;
    for (uint32_t k = 0; k < N; k++)
        store(out.v[k], values[k]);
    save<N>(p, out);
}

/* n / d.by: some five instructions. */
__device__ inline uint32_t over(uint32_t n, const struct cnn_cuda_divisor &d)
{
    uint32_t high = (uint32_t)((uint64_t)n * d.factor >> 32);
    return (high + ((n - high) >> d.first_shift)) >> d.then_shift;
}

/* The groups of a shape over the grid: y over the rows of all images, x over the groups of a row. */
#define EACH_ROW(row, s) for (uint32_t row = blockIdx.y; row < (s).n * (s).h; row += gridDim.y)
#define EACH_OF_ROW(i, n)                                                                                    \
    for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < (n); i += gridDim.x * blockDim.x)

/* The place of group i of a row. */
template <uint32_t N>
__device__ inline struct place group_of(const struct cnn_cuda_share &s, uint32_t row, uint32_t i)
{
    uint32_t x = over(i, s.groups), image = over(row, s.h);
    return {image, (int32_t)(row - image * s.h.by), (int32_t)x, (i - x * s.groups.by) * N};
}

/* Where place (y, x) of an image lies that begins at channel c at `first`. */
__device__ inline uint64_t index_in(const struct cnn_cuda_shape &s, uint64_t first, int32_t y, int32_t x)
{
    return first + (uint64_t)((uint32_t)y * s.w + (uint32_t)x) * s.c;
}

/* ---- pools. Forward, a thread computes outputs. Backward, it computes inputs, from every window that
 * contains them. */

/* The windows [from, to) that contain position `at` of the input. */
__device__ inline struct clip windows_over(const struct cnn_cuda_share *s, const struct cnn_cuda_window *w,
                                           int d, int32_t out, int32_t at)
{
    int32_t padded = at + w->pad[d], first = padded - w->kernel[d];
    int32_t end = (int32_t)over((uint32_t)padded, s->stride[d]) + 1;
    return {first < 0 ? 0 : (int32_t)over((uint32_t)first, s->stride[d]) + 1, end < out ? end : out, 0};
}

/* best: position of the largest value in its window, the first in row order among equals. A NaN counts as
 * largest. Behind a ReLU, one that is not above 0 has no gradient: its window has no position. */
template <uint32_t N, class T>
__device__ inline void maxpool(const struct cnn_cuda_share &s, const struct cnn_cuda_window &w, const T *in,
                               T *out, uint16_t *best)
{
    EACH_ROW(row, w.out)
    EACH_OF_ROW(i, w.out.w * s.groups.by)
    {
        struct place o = group_of<N>(s, row, i);
        struct clip rows = clip_side(&w, 0, (int32_t)w.in.h, o.y),
                    columns = clip_side(&w, 1, (int32_t)w.in.w, o.x);
        int32_t y0 = o.y * w.stride[0] - w.pad[0], x0 = o.x * w.stride[1] - w.pad[1];
        uint64_t first = index_of(&w.in, o.image, 0, 0, o.c);
        float most[N];
        struct pack<uint16_t, N> at;
        for (uint32_t k = 0; k < N; k++) {
            most[k] = -INFINITY;
            at.v[k] = (uint16_t)((rows.from - y0) * w.kernel[1] + columns.from - x0);
        }
        for (int32_t y = rows.from; y < rows.to; y++)
            for (int32_t x = columns.from; x < columns.to; x++) {
                struct pack<T, N> values = load<N>(in + index_in(w.in, first, y, x));
                uint16_t here = (uint16_t)((y - y0) * w.kernel[1] + x - x0);
                for (uint32_t k = 0; k < N; k++) {
                    float v = number(values.v[k]);
                    bool is_more = v > most[k] || v != v;
                    most[k] = is_more ? v : most[k];
                    at.v[k] = is_more ? here : at.v[k];
                }
            }
        for (uint32_t k = 0; k < N; k++)
            at.v[k] = w.has_relu && !(most[k] > 0) ? CNN_CUDA_NOWHERE : at.v[k];
        uint64_t to = index_of(&w.out, o.image, o.y, o.x, o.c);
        save_floats<N>(out + to, most);
        save<N>(best + to, at);
    }
}

template <uint32_t N, class T>
__device__ inline void maxpool_back(const struct cnn_cuda_share &s, const struct cnn_cuda_window &w,
                                    const T *dout, const uint16_t *best, T *din)
{
    EACH_ROW(row, w.in)
    EACH_OF_ROW(i, w.in.w * s.groups.by)
    {
        struct place p = group_of<N>(s, row, i);
        struct clip rows = windows_over(&s, &w, 0, (int32_t)w.out.h, p.y);
        struct clip columns = windows_over(&s, &w, 1, (int32_t)w.out.w, p.x);
        uint64_t first = index_of(&w.out, p.image, 0, 0, p.c);
        float sum[N] = {};
        for (int32_t y = rows.from; y < rows.to; y++)
            for (int32_t x = columns.from; x < columns.to; x++) {
                int32_t ky = p.y + w.pad[0] - y * w.stride[0], kx = p.x + w.pad[1] - x * w.stride[1];
                uint64_t o = index_in(w.out, first, y, x);
                struct pack<uint16_t, N> at = load<N>(best + o);
                struct pack<T, N> d = load<N>(dout + o);
                for (uint32_t k = 0; k < N; k++)
                    if (at.v[k] == ky * w.kernel[1] + kx)
                        sum[k] += number(d.v[k]);
            }
        save_floats<N>(din + index_of(&w.in, p.image, p.y, p.x, p.c), sum);
    }
}

template <uint32_t N, class T>
__device__ inline void avgpool(const struct cnn_cuda_share &s, const struct cnn_cuda_window &w, const T *in,
                               T *out)
{
    EACH_ROW(row, w.out)
    EACH_OF_ROW(i, w.out.w * s.groups.by)
    {
        struct place o = group_of<N>(s, row, i);
        struct clip rows = clip_side(&w, 0, (int32_t)w.in.h, o.y),
                    columns = clip_side(&w, 1, (int32_t)w.in.w, o.x);
        uint64_t first = index_of(&w.in, o.image, 0, 0, o.c);
        float sum[N] = {};
        for (int32_t y = rows.from; y < rows.to; y++)
            for (int32_t x = columns.from; x < columns.to; x++) {
                struct pack<T, N> values = load<N>(in + index_in(w.in, first, y, x));
                for (uint32_t k = 0; k < N; k++)
                    sum[k] += number(values.v[k]);
            }
        for (uint32_t k = 0; k < N; k++)
            sum[k] /= counted(&w, rows, columns);
        save_floats<N>(out + index_of(&w.out, o.image, o.y, o.x, o.c), sum);
    }
}

template <uint32_t N, class T>
__device__ inline void avgpool_back(const struct cnn_cuda_share &s, const struct cnn_cuda_window &w,
                                    const T *dout, T *din)
{
    EACH_ROW(row, w.in)
    EACH_OF_ROW(i, w.in.w * s.groups.by)
    {
        struct place p = group_of<N>(s, row, i);
        struct clip rows = windows_over(&s, &w, 0, (int32_t)w.out.h, p.y);
        struct clip columns = windows_over(&s, &w, 1, (int32_t)w.out.w, p.x);
        uint64_t first = index_of(&w.out, p.image, 0, 0, p.c);
        float sum[N] = {};
        for (int32_t y = rows.from; y < rows.to; y++)
            for (int32_t x = columns.from; x < columns.to; x++) {
                struct pack<T, N> d = load<N>(dout + index_in(w.out, first, y, x));
                float part = 1 / counted(&w, clip_side(&w, 0, (int32_t)w.in.h, y),
                                         clip_side(&w, 1, (int32_t)w.in.w, x));
                for (uint32_t k = 0; k < N; k++)
                    sum[k] += number(d.v[k]) * part;
            }
        save_floats<N>(din + index_of(&w.in, p.image, p.y, p.x, p.c), sum);
    }
}

/* ---- LRN: y = x s^-beta; s, the norm over neighbouring channels, is kept in float32. The equations are in
 * nets/ref/lrn.c. */

/* s^exponent. __log2f errs by 2^-22 at most where s is near 1, and by two units in the last place elsewhere;
 * it takes a tenth of powf's instructions. */
__device__ inline float power(float s, float exponent)
{
    return exp2f(exponent * __log2f(s));
}

/* Of any neighbours: a thread handles one value. */
template <class T>
__device__ inline void lrn_of_any(const struct cnn_cuda_lrn &p, const T *in, float *norm, T *out)
{
    EACH(i, p.n)
    {
        uint32_t c = (uint32_t)(i % p.c), from = c < p.before ? 0 : c - p.before;
        uint32_t to = p.after < p.c - c ? c + p.after + 1 : p.c;
        const T *x = in + (i - c);
        float sum = 0;
        for (uint32_t j = from; j < to; j++)
            sum += number(x[j]) * number(x[j]);
        norm[i] = p.k + p.alpha * sum;
        store(out[i], number(x[c]) * power(norm[i], -p.beta));
    }
}

template <class T>
__device__ inline void lrn_of_any_back(const struct cnn_cuda_lrn &p, const T *in, const float *norm,
                                       const T *dout, T *din)
{
    EACH(i, p.n)
    {
        uint32_t c = (uint32_t)(i % p.c), from = c < p.after ? 0 : c - p.after;
        uint32_t to = p.before < p.c - c ? c + p.before + 1 : p.c;
        uint64_t row = i - c;
        float sum = 0;
        for (uint32_t j = from; j < to; j++)
            sum += number(dout[row + j]) * number(in[row + j]) * power(norm[row + j], -p.beta - 1);
        store(din[i], number(dout[i]) * power(norm[i], -p.beta) - 2 * p.alpha * p.beta * number(in[i]) * sum);
    }
}

/* Of two neighbours on each side, which almost all nets have: a thread handles a group. */
enum { LRN_SIDE = 2 };

/* Channel c of a row of p.c, of which `from` is that channel: N values and their neighbours; past the row's
 * ends, `outside`. */
template <uint32_t N, class T>
__device__ inline void load_around(const T *from, uint32_t c, uint32_t row_c, float outside, float *to)
{
    struct pack<T, LRN_SIDE> side;
    struct pack<T, N> own = load<N>(from);
    for (uint32_t k = 0; k < N; k++)
        to[LRN_SIDE + k] = number(own.v[k]);
    if (c > 0)
        side = load<LRN_SIDE>(from - LRN_SIDE);
    for (uint32_t k = 0; k < LRN_SIDE; k++)
        to[k] = c > 0 ? number(side.v[k]) : outside;
    if (c + N < row_c)
        side = load<LRN_SIDE>(from + N);
    for (uint32_t k = 0; k < LRN_SIDE; k++)
        to[LRN_SIDE + N + k] = c + N < row_c ? number(side.v[k]) : outside;
}

/* of[k] + ... + of[k + 4] */
__device__ inline float sum_around(const float *of)
{
    float sum = 0;
    for (uint32_t k = 0; k <= 2 * LRN_SIDE; k++)
        sum += of[k];
    return sum;
}

template <uint32_t N, class T>
__device__ inline void lrn(const struct cnn_cuda_lrn &p, const T *in, float *norm, T *out)
{
    EACH(i, p.n / N)
    {
        float x[N + 2 * LRN_SIDE], square[N + 2 * LRN_SIDE], y[N];
        struct pack<float, N> s;
        load_around<N>(in + i * N, (uint32_t)(i % (p.c / N)) * N, p.c, 0, x);
        for (uint32_t k = 0; k < N + 2 * LRN_SIDE; k++)
            square[k] = x[k] * x[k];
        for (uint32_t k = 0; k < N; k++) {
            s.v[k] = p.k + p.alpha * sum_around(square + k);
            y[k] = x[LRN_SIDE + k] * power(s.v[k], -p.beta);
        }
        save<N>(norm + i * N, s);
        save_floats<N>(out + i * N, y);
    }
}

template <uint32_t N, class T>
__device__ inline void lrn_back(const struct cnn_cuda_lrn &p, const T *in, const float *norm, const T *dout,
                                T *din)
{
    EACH(i, p.n / N)
    {
        const uint32_t c = (uint32_t)(i % (p.c / N)) * N;
        float x[N + 2 * LRN_SIDE], s[N + 2 * LRN_SIDE], d[N + 2 * LRN_SIDE], product[N + 2 * LRN_SIDE];
        load_around<N>(in + i * N, c, p.c, 0, x);
        load_around<N>(norm + i * N, c, p.c, 1, s);
        load_around<N>(dout + i * N, c, p.c, 0, d);
        for (uint32_t k = 0; k < N + 2 * LRN_SIDE; k++) {
            float power_of_s = power(s[k], -p.beta - 1);
            product[k] = d[k] * x[k] * power_of_s;
            d[k] *= power_of_s * s[k];
        }
        for (uint32_t k = 0; k < N; k++)
            d[LRN_SIDE + k] -= 2 * p.alpha * p.beta * x[LRN_SIDE + k] * sum_around(product + k);
        save_floats<N>(din + i * N, d + LRN_SIDE);
    }
}

/* ---- layouts */

/* Where [images][a][b] has what [images][b][a] has at i. An image has fewer than 2^32 values. */
__device__ inline uint64_t turned(uint64_t i, uint32_t a, uint32_t b)
{
    uint64_t image = i / (a * b) * (a * b);
    uint32_t one = (uint32_t)(i - image), row = one / a;
    return image + (one - row * a) * b + row;
}

/* The copy that a block is for. */
__device__ inline const struct cnn_cuda_turn &turn_of_block(const struct cnn_cuda_turns &all)
{
    uint32_t low = 0, high = all.n; /* low's blocks begin at this one or before it, those of high after it */
    while (high - low > 1) {
        uint32_t middle = (low + high) / 2;
        if (all.of[middle].first <= blockIdx.x)
            low = middle;
        else
            high = middle;
    }
    return all.of[low];
}

/* A thread's first value of a copy, and the end of its block's. */
struct turned_part {
    uint64_t first, end;
};

__device__ inline struct turned_part turned_part_of(const struct cnn_cuda_turn &t)
{
    uint64_t begin = (uint64_t)(blockIdx.x - t.first) * CNN_CUDA_TURNED, end = begin + CNN_CUDA_TURNED;
    return {begin + threadIdx.x, end < t.n ? end : t.n};
}

/* Four values at a time where all lie so. */
template <class From, class To>
__device__ inline void copy_in_order(const struct turned_part &part, const From *in, To *out)
{
    const uint64_t begin = part.first - threadIdx.x;
    uint64_t rest = begin;

    if ((uintptr_t)(in + begin) % sizeof(pack<From, 4>) == 0 &&
        (uintptr_t)(out + begin) % sizeof(pack<To, 4>) == 0) {
        rest += (part.end - begin) / 4 * 4;
        for (uint64_t i = begin + 4 * threadIdx.x; i < rest; i += 4 * CNN_CUDA_BLOCK) {
            const pack<From, 4> from = load<4>(in + i);
            pack<To, 4> to;
            for (uint32_t k = 0; k < 4; k++)
                store(to.v[k], number(from.v[k]));
            save<4>(out + i, to);
        }
    }
    for (uint64_t i = rest + threadIdx.x; i < part.end; i += CNN_CUDA_BLOCK)
        store(out[i], number(in[i]));
}

/* Copies channels [0, c) of rows in_stride apart to rows out_stride apart; n = rows * c / N. */
template <uint32_t N, class T>
__device__ inline void copy_channels(uint64_t n, uint32_t c, const T *in, uint32_t in_stride, T *out,
                                     uint32_t out_stride)
{
    EACH(i, n)
    {
        uint64_t row = i / (c / N), k = (i - row * (c / N)) * N;
        save<N>(out + row * out_stride + k, load<N>(in + row * in_stride + k));
    }
}
