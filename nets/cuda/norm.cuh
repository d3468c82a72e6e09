/* norm.cuh: sums over channels, and batch norm. Included by kernels.cuh. */

/* ---- sums over a channel: first within slices of the rows, then over the slices in order. A thread adds up
 * a few rows in float32, and everything else is added in double. What is squared is first moved near 0 by a
 * value of its channel, so that a mean that is large beside the variance costs no digits. */

enum sums_of { SUMS_OF_VALUES, SUMS_OF_KEPT, SUMS_OF_SQUARES, SUMS_OF_PRODUCTS };

/* A second sum; of what is beside the values. */
__device__ constexpr bool has_second(enum sums_of what)
{
    return what == SUMS_OF_SQUARES || what == SUMS_OF_PRODUCTS;
}

__device__ constexpr bool reads_beside(enum sums_of what)
{
    return what == SUMS_OF_KEPT || what == SUMS_OF_PRODUCTS;
}

/* Whether a ReLU has a gradient: by its output, or by the positions of a pool behind it. */
template <class T> __device__ inline bool is_kept(const T &out)
{
    return number(out) > 0;
}

__device__ inline bool is_kept(uint16_t best)
{
    return best != CNN_CUDA_NOWHERE;
}

/* What a batch norm does to WIDTH neighbouring channels. */
template <uint32_t WIDTH> struct norm_of {
    float mean[WIDTH], scale[WIDTH], shift[WIDTH];
};

/* `left`: how many there are from `from` on; others are 0. */
template <uint32_t WIDTH>
__device__ inline void read_floats(const float *from, uint32_t left, float to[WIDTH])
{
    if (WIDTH % 4 == 0 && left >= WIDTH && begins_group(from)) {
        for (uint32_t k = 0; k < WIDTH; k += 4) {
            const group<float> four = *(const group<float> *)(from + k);
            for (uint32_t j = 0; j < 4 && k + j < WIDTH; j++)
                to[k + j] = four.v[j];
        }
        return;
    }
    for (uint32_t k = 0; k < WIDTH; k++)
        to[k] = k < left ? from[k] : 0;
}

/* From the given channel on; those beyond the last are 0. */
template <uint32_t WIDTH>
__device__ inline norm_of<WIDTH> read_norm(uint32_t c, uint32_t channel, const float *used)
{
    const uint32_t left = channel < c ? c - channel : 0;
    norm_of<WIDTH> norm;
    read_floats<WIDTH>(used + channel, left, norm.mean);
    read_floats<WIDTH>(used + 2 * c + channel, left, norm.scale);
    read_floats<WIDTH>(used + 3 * c + channel, left, norm.shift);
    return norm;
}

/* The neighbouring channels that a thread reads at once. */
template <class T> constexpr uint32_t WIDE = 16 / sizeof(T);

/* Channels [channel, channel + N) of a row of c; those beyond the last are 0. IS_WHOLE: they lie as a pack
 * does. */
template <bool IS_WHOLE, uint32_t N, class T>
__device__ inline pack<T, N> read_wide(const T *row, uint32_t channel, uint32_t c)
{
    if (IS_WHOLE)
        return load<N>(row + channel);
    pack<T, N> out = {};
    for (uint32_t k = 0; k < N && channel + k < c; k++)
        out.v[k] = row[channel + k];
    return out;
}

template <bool IS_WHOLE, uint32_t N, class T>
__device__ inline void write_wide(T *row, uint32_t channel, uint32_t c, const pack<T, N> &values)
{
    if (IS_WHOLE)
        save<N>(row + channel, values);
    for (uint32_t k = 0; !IS_WHOLE && k < N && channel + k < c; k++)
        row[channel + k] = values.v[k];
}

/* Whether all rows of c values lie so, by packs of N. */
template <uint32_t N, class T> __device__ inline bool is_whole(uint32_t c, const T *rows)
{
    return c % N == 0 && begins_group(rows);
}

/* The first channel of a thread in sum_channels. */
template <class T> __device__ inline uint32_t wide_channel()
{
    return (blockIdx.x * CNN_CUDA_LANES + threadIdx.x % CNN_CUDA_LANES) * WIDE<T>;
}

/* Adds channels of a row to a thread's sums; norm.mean: for squares, what they are moved by. */
template <enum sums_of SECOND, class T, class B>
__device__ inline void add_wide(const pack<T, WIDE<T>> &a, const pack<B, WIDE<T>> &b,
                                const norm_of<WIDE<T>> &norm, bool has_relu, float sum[WIDE<T>],
                                float other[WIDE<T>])
{
    for (uint32_t k = 0; k < WIDE<T>; k++) {
        float v = number(a.v[k]) - (SECOND == SUMS_OF_SQUARES ? norm.mean[k] : 0), apart = v;
        if constexpr (SECOND == SUMS_OF_PRODUCTS)
            apart = number(b.v[k]) - norm.mean[k];
        if (SECOND == SUMS_OF_PRODUCTS && has_relu && !(apart * norm.scale[k] + norm.shift[k] > 0))
            v = 0;
        sum[k] += v;
        if (has_second(SECOND))
            other[k] += v * apart;
    }
}

/* Adds up what the block's threads have in s, and writes the sums of its channels and slice to part. by: of
 * the squares, what their values were moved by; rows: of the slice. */
template <enum sums_of SECOND, class T>
__device__ inline void end_slice(uint32_t c, const T *by, uint64_t rows, double *s, double *part)
{
    constexpr uint32_t lanes = CNN_CUDA_LANES, per = CNN_CUDA_BLOCK / lanes, width = WIDE<T>,
                       n = has_second(SECOND) ? 2 : 1;

    __syncthreads();
    for (uint32_t half = per / 2; half > 0; half /= 2) {
        for (uint32_t i = threadIdx.x; i < n * width * half * lanes; i += CNN_CUDA_BLOCK) {
            const uint32_t at = i / (half * lanes) * CNN_CUDA_BLOCK + i % (half * lanes);
            s[at] += s[at + half * lanes];
        }
        __syncthreads();
    }
    const uint32_t channel = blockIdx.x * lanes * width + threadIdx.x;
    if (threadIdx.x >= lanes * width || channel >= c)
        return;
    const uint32_t at = threadIdx.x % width * CNN_CUDA_BLOCK + threadIdx.x / width;
    double sum = s[at], *to = part + (uint64_t)blockIdx.y * 2 * c + channel;
    if (SECOND == SUMS_OF_SQUARES) {
        const double k = (double)number(by[channel]);
        to[c] = s[width * CNN_CUDA_BLOCK + at] + k * (2 * sum + k * (double)rows);
        sum += k * (double)rows;
    } else if (SECOND == SUMS_OF_PRODUCTS)
        to[c] = s[width * CNN_CUDA_BLOCK + at];
    to[0] = sum;
}

/* Sets what is not kept to 0. */
template <class T, class B, uint32_t N>
__device__ inline pack<T, N> only_kept(const pack<T, N> &values, const pack<B, N> &by)
{
    pack<T, N> out;
    for (uint32_t k = 0; k < N; k++)
        store(out.v[k], is_kept(by.v[k]) ? number(values.v[k]) : 0);
    return out;
}

/* What the next function adds up in a thread, to s. */
template <enum sums_of SECOND, bool IS_WHOLE, class T, class B>
__device__ inline void sum_rows(uint64_t first, uint64_t end, uint32_t c, const T *a, const B *b, T *kept,
                                const norm_of<WIDE<T>> &norm, bool has_relu, double *s)
{
    /* Rows that are read before the first is added; and how often, until float32 has added up enough. */
    constexpr uint32_t ROWS = !IS_WHOLE              ? 1
                              : reads_beside(SECOND) ? 4
                                                     : 8,
                       TIMES = 32 / ROWS, WIDTH = WIDE<T>;
    const uint32_t per = CNN_CUDA_BLOCK / CNN_CUDA_LANES, channel = wide_channel<T>();

    for (uint64_t r = first + threadIdx.x / CNN_CUDA_LANES; channel < c && r < end;) {
        float sum[WIDTH] = {}, other[WIDTH] = {};
        for (uint32_t i = 0; i < TIMES && r < end; i++, r += ROWS * per) {
            pack<T, WIDTH> v[ROWS];
            pack<B, WIDTH> w[ROWS];
            for (uint32_t j = 0; j < ROWS; j++) {
                const uint64_t at = (r + j * per < end ? r + j * per : r) * c;
                v[j] = read_wide<IS_WHOLE, WIDTH>(a + at, channel, c);
                if (reads_beside(SECOND))
                    w[j] = read_wide<IS_WHOLE, WIDTH>(b + at, channel, c);
            }
            for (uint32_t j = 0; j < ROWS; j++) {
                if constexpr (SECOND == SUMS_OF_KEPT)
                    v[j] = only_kept(v[j], w[j]);
                if (SECOND == SUMS_OF_KEPT && kept != NULL && r + j * per < end)
                    write_wide<IS_WHOLE, WIDTH>(kept + (r + j * per) * c, channel, c, v[j]);
                if (r + j * per < end)
                    add_wide<SECOND, T>(v[j], w[j], norm, has_relu, sum, other);
            }
        }
        for (uint32_t k = 0; k < WIDTH; k++) {
            s[k * CNN_CUDA_BLOCK + threadIdx.x] += (double)sum[k];
            if (has_second(SECOND))
                s[(WIDTH + k) * CNN_CUDA_BLOCK + threadIdx.x] += (double)other[k];
        }
    }
}

/* Block (tile, slice) writes two sums over its channels and rows to part[slice][2][c]: of a, and of a second
 * term. The term is a^2 or, with b, a times (b minus its mean). has_relu: where the norm of b is not
 * positive, a counts as 0. Of SUMS_OF_KEPT the first alone, of what b keeps of a, which is written to `kept`,
 * maybe a, unless it is NULL. s: shared, CNN_CUDA_SUMS of T. */
template <enum sums_of SECOND, class T, class B>
__device__ inline void sum_channels(uint64_t rows, uint32_t c, const T *a, const B *b, T *kept,
                                    const norm_of<WIDE<T>> &norm, bool has_relu, double *s, double *part)
{
    const uint64_t each = (rows + gridDim.y - 1) / gridDim.y, at = blockIdx.y * each,
                   first = at < rows ? at : rows, end = first + each < rows ? first + each : rows;

    for (uint32_t k = 0; k < 2 * WIDE<T>; k++)
        s[k * CNN_CUDA_BLOCK + threadIdx.x] = 0;
    if (is_whole<WIDE<T>>(c, a) && is_whole<WIDE<T>>(c, b) && is_whole<WIDE<T>>(c, kept))
        sum_rows<SECOND, true>(first, end, c, a, b, kept, norm, has_relu, s);
    else
        sum_rows<SECOND, false>(first, end, c, a, b, kept, norm, has_relu, s);
    end_slice<SECOND, T>(c, a, end - first, s, part);
}

/* Whether the block is the last of its channels' to come here: then it sees what the others have written to
 * part. ended: [tiles], 0 before the kernel and after it. */
__device__ inline bool comes_last(uint32_t *ended)
{
    __shared__ uint32_t before;

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        before = atomicAdd(&ended[blockIdx.x], 1);
        if (before == gridDim.y - 1)
            ended[blockIdx.x] = 0;
    }
    __syncthreads();
    __threadfence();
    return before == gridDim.y - 1;
}

/* The channel of a thread of the last block; of several threads each. */
template <class T> __device__ inline uint32_t last_channel()
{
    constexpr uint32_t tile = CNN_CUDA_LANES * WIDE<T>;
    return blockIdx.x * tile + threadIdx.x % tile;
}

/* Adds up sum number `which` of the thread's channel over the slices; for all threads of the block. The
 * result is that of the channel's first thread. sums: shared, [CNN_CUDA_BLOCK]. */
template <class T>
__device__ inline double over_slices(const double *part, uint32_t c, uint32_t which, double *sums)
{
    constexpr uint32_t tile = CNN_CUDA_LANES * WIDE<T>, lanes = CNN_CUDA_BLOCK / tile, TIMES = 8;
    const uint32_t lane = threadIdx.x / tile, channel = last_channel<T>();
    const volatile double *of = part + (uint64_t)which * c + channel; /* other blocks have written it */
    double sum = 0;

    for (uint32_t s = lane; channel < c && s < gridDim.y; s += TIMES * lanes) {
        double read[TIMES]; /* all, before the first is added */
        for (uint32_t j = 0; j < TIMES; j++)
            read[j] = s + j * lanes < gridDim.y ? of[(uint64_t)(s + j * lanes) * 2 * c] : 0;
        for (uint32_t j = 0; j < TIMES; j++)
            sum += read[j];
    }
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (uint32_t half = lanes / 2; half > 0; half /= 2) {
        if (lane < half)
            sums[threadIdx.x] += sums[threadIdx.x + half * tile];
        __syncthreads();
    }
    sum = sums[threadIdx.x % tile];
    __syncthreads(); /* the next sum uses the same memory */
    return sum;
}

/* Whether the thread writes its channel's result. */
template <class T> __device__ inline bool ends_channel(uint32_t c)
{
    return threadIdx.x < CNN_CUDA_LANES * WIDE<T> && last_channel<T>() < c;
}

/* By the last block of its channels. */
template <class T> __device__ inline void end_sums(uint32_t c, const double *part, double *sums, float *out)
{
    const double sum = over_slices<T>(part, c, 0, sums);

    if (ends_channel<T>(c))
        out[last_channel<T>()] = (float)sum;
}

/* ---- batch norm. used [4][c]: the mean and 1 / sqrt(variance + epsilon) of the pass, the scale times the
 * latter, and the shift. */

__device__ inline void use_norm(uint32_t c, uint32_t i, float mean, float inverse, const float *scale,
                                const float *shift, float *used)
{
    used[i] = mean;
    used[c + i] = inverse;
    used[2 * c + i] = scale[i] * inverse;
    used[3 * c + i] = shift[i];
}

/* By the last block of its channels. stats [2][c]: the batch's mean and variance. */
template <class T>
__device__ inline void end_moments(const struct cnn_cuda_norm &p, const double *part, const float *scale,
                                   const float *shift, double *sums, double *stats, float *used)
{
    const uint32_t i = last_channel<T>();
    double mean = over_slices<T>(part, p.c, 0, sums) / (double)p.rows;
    double variance = over_slices<T>(part, p.c, 1, sums) / (double)p.rows - mean * mean;

    if (!ends_channel<T>(p.c))
        return;
    variance = variance < 0 ? 0 : variance; /* rounding may give a negative value; a NaN is kept */
    stats[i] = mean;
    stats[p.c + i] = variance;
    use_norm(p.c, i, (float)mean, (float)(1 / sqrt(variance + (double)p.epsilon)), scale, shift, used);
}

/* The running statistics of a layer a block, as nets/layers/batchnorm.c moves them. */
KERNEL k_norm_move(const struct cnn_cuda_running *layers, const double *stats, float *x)
{
    const struct cnn_cuda_running l = layers[blockIdx.x];
    for (uint32_t i = threadIdx.x; i < l.c; i += blockDim.x) {
        float *mean = x + l.mean_at + i, *variance = x + l.variance_at + i;
        double mean_seen = stats[l.stats_at + i], variance_seen = stats[l.stats_at + l.c + i];
        if (l.count > 1)
            variance_seen = variance_seen * (double)l.count / (double)(l.count - 1);
        *mean = (float)((1 - l.part) * (double)*mean + l.part * mean_seen);
        *variance = (float)((1 - l.part) * (double)*variance + l.part * variance_seen);
    }
}

KERNEL k_norm_running(struct cnn_cuda_norm p, const float *mean, const float *variance, const float *scale,
                      const float *shift, float *used)
{
    EACH(i, p.c)
    use_norm(p.c, (uint32_t)i, mean[i], (float)(1 / sqrt((double)variance[i] + (double)p.epsilon)), scale,
             shift, used);
}

/* By the last block of its channels: the gradients of scale and shift, and in k [3][c] the coefficients of
 * the input's gradient: of dout, of the input minus its mean, and a constant. */
template <class T>
__device__ inline void end_products(const struct cnn_cuda_norm &p, const double *part, const float *used,
                                    const float *scale, double *sums, float *dscale, float *dshift, float *k)
{
    const uint32_t i = last_channel<T>();
    double sum = over_slices<T>(part, p.c, 0, sums), product = over_slices<T>(part, p.c, 1, sums);

    if (!ends_channel<T>(p.c))
        return;
    double inverse = (double)used[p.c + i], a = (double)scale[i] * inverse;
    product *= inverse;
    dscale[i] = (float)product;
    dshift[i] = (float)sum;
    k[i] = (float)a;
    k[p.c + i] = (float)(-a * inverse * product / (double)p.rows);
    k[2 * p.c + i] = (float)(-a * sum / (double)p.rows);
}

/* The next two: a thread has the same WIDTH channels in each of its rows, because the grid is cut so
 * (launch.cu), and keeps what it needs of them. */

template <class T, uint32_t WIDTH> struct alignas(WIDTH * sizeof(T)) some {
    T v[WIDTH];
};

/* added: to the result; NULL: nothing. */
template <uint32_t WIDTH, class T>
__device__ inline void normalize(const struct cnn_cuda_norm &p, const float *used, const T *in,
                                 const T *added, T *out)
{
    typedef some<T, WIDTH> unit;
    const uint64_t n = p.rows * (p.c / WIDTH), stride = (uint64_t)gridDim.x * blockDim.x,
                   first = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const norm_of<WIDTH> norm = read_norm<WIDTH>(p.c, (uint32_t)(first % (p.c / WIDTH)) * WIDTH, used);

    for (uint64_t i = first; i < n; i += 2 * stride) {
        const uint64_t next = i + stride < n ? i + stride : i; /* both are read before either is written */
        const unit from[2] = {((const unit *)in)[i], ((const unit *)in)[next]};
        unit to[2], also[2] = {};
        if (added != NULL) {
            also[0] = ((const unit *)added)[i];
            also[1] = ((const unit *)added)[next];
        }
        for (uint32_t j = 0; j < 2; j++)
            for (uint32_t k = 0; k < WIDTH; k++) {
                float y = (number(from[j].v[k]) - norm.mean[k]) * norm.scale[k] + norm.shift[k] +
                          number(also[j].v[k]);
                store(to[j].v[k], p.has_relu && y < 0 ? 0 : y);
            }
        ((unit *)out)[i] = to[0];
        if (next != i)
            ((unit *)out)[next] = to[1];
    }
}

/* din <- k[0] dout + k[1] (in - mean) + k[2], of each channel. */
template <uint32_t WIDTH, class T>
__device__ inline void normalize_back(const struct cnn_cuda_norm &p, const float *used, const float *k,
                                      const T *in, const T *dout, T *din)
{
    typedef some<T, WIDTH> unit;
    const uint64_t n = p.rows * (p.c / WIDTH), stride = (uint64_t)gridDim.x * blockDim.x,
                   first = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const uint32_t channel = (uint32_t)(first % (p.c / WIDTH)) * WIDTH, left = p.c - channel;
    const norm_of<WIDTH> norm = read_norm<WIDTH>(p.c, channel, used);
    float of_dout[WIDTH], of_in[WIDTH], constant[WIDTH];

    read_floats<WIDTH>(k + channel, left, of_dout);
    read_floats<WIDTH>(k + p.c + channel, left, of_in);
    read_floats<WIDTH>(k + 2 * p.c + channel, left, constant);
    for (uint64_t i = first; i < n; i += 2 * stride) {
        const uint64_t next = i + stride < n ? i + stride : i; /* both are read before either is written */
        const unit x[2] = {((const unit *)in)[i], ((const unit *)in)[next]};
        const unit d[2] = {((const unit *)dout)[i], ((const unit *)dout)[next]};
        unit to[2];
        for (uint32_t j = 0; j < 2; j++)
            for (uint32_t h = 0; h < WIDTH; h++) {
                float apart = number(x[j].v[h]) - norm.mean[h], g = number(d[j].v[h]);
                if (p.has_relu && !(apart * norm.scale[h] + norm.shift[h] > 0))
                    g = 0;
                store(to[j].v[h], of_dout[h] * g + of_in[h] * apart + constant[h]);
            }
        ((unit *)din)[i] = to[0];
        if (next != i)
            ((unit *)din)[next] = to[1];
    }
}
