/* norm.cuh: sums over channels, and batch norm. Included by kernels.cuh. */

/* ---- sums over a channel: first within slices of the rows, then over the slices in order. In double: these
 * sums are memory-bound on the supported GPUs, and double allows summing x^2 without subtracting the mean. */

enum sums_of { SUMS_OF_VALUES, SUMS_OF_SQUARES, SUMS_OF_PRODUCTS };

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

/* Four neighbouring channels of a row; those beyond the last are 0. */
template <class T> struct alignas(CNN_CUDA_QUAD * sizeof(T)) quad {
    T v[CNN_CUDA_QUAD];
};

template <class T>
__device__ inline void read_quad(const T *row, uint32_t channel, uint32_t c, float to[CNN_CUDA_QUAD])
{
    if (c % CNN_CUDA_QUAD == 0 && (uintptr_t)row % sizeof(quad<T>) == 0) {
        const quad<T> q = *(const quad<T> *)(row + channel);
        for (uint32_t k = 0; k < CNN_CUDA_QUAD; k++)
            to[k] = number(q.v[k]);
        return;
    }
    for (uint32_t k = 0; k < CNN_CUDA_QUAD; k++)
        to[k] = channel + k < c ? number(row[channel + k]) : 0;
}

/* The first channel of a thread in sum_channels. */
__device__ inline uint32_t quad_channel()
{
    return blockIdx.x * CNN_CUDA_TILE + threadIdx.x % (CNN_CUDA_TILE / CNN_CUDA_QUAD) * CNN_CUDA_QUAD;
}

/* Adds four channels of a row to a thread's sums. */
template <enum sums_of SECOND>
__device__ inline void add_quad(const float a[CNN_CUDA_QUAD], const float b[CNN_CUDA_QUAD],
                                const norm_of<CNN_CUDA_QUAD> &norm, bool has_relu, double sum[CNN_CUDA_QUAD],
                                double other[CNN_CUDA_QUAD])
{
    for (uint32_t k = 0; k < CNN_CUDA_QUAD; k++) {
        float v = a[k], apart = SECOND == SUMS_OF_PRODUCTS ? b[k] - norm.mean[k] : 0;
        if (SECOND == SUMS_OF_PRODUCTS && has_relu && !(apart * norm.scale[k] + norm.shift[k] > 0))
            v = 0;
        sum[k] += (double)v;
        if (SECOND == SUMS_OF_SQUARES)
            other[k] += (double)v * (double)v;
        else if (SECOND == SUMS_OF_PRODUCTS)
            other[k] += (double)v * (double)apart;
    }
}

/* Block (tile, slice) writes two sums over its channels and rows to part[slice][2][c]: of a, and of a second
 * term. The term is a^2 or, with b, a times (b minus its mean). has_relu: where the norm of b is not
 * positive, a counts as 0. s: shared, [2][CNN_CUDA_SUMS / 2]. */
template <enum sums_of SECOND, class T>
__device__ inline void sum_channels(uint64_t rows, uint32_t c, const T *a, const T *b,
                                    const norm_of<CNN_CUDA_QUAD> &norm, bool has_relu, double *s,
                                    double *part)
{
    const uint32_t lanes = CNN_CUDA_TILE / CNN_CUDA_QUAD, per = CNN_CUDA_BLOCK / lanes,
                   row = threadIdx.x / lanes, channel = quad_channel();
    const uint64_t each = (rows + gridDim.y - 1) / gridDim.y, first = blockIdx.y * each;
    const uint64_t end = first + each < rows ? first + each : rows;
    constexpr uint32_t ROWS = SECOND == SUMS_OF_PRODUCTS ? 4 : 8;
    double sum[CNN_CUDA_QUAD] = {0, 0, 0, 0}, other[CNN_CUDA_QUAD] = {0, 0, 0, 0};

    for (uint64_t r = first + row; channel < c && r < end; r += ROWS * per) {
        float v[ROWS][CNN_CUDA_QUAD], w[ROWS][CNN_CUDA_QUAD]; /* all are read before the first is added */
        for (uint32_t j = 0; j < ROWS; j++) {
            const uint64_t at = (r + j * per < end ? r + j * per : r) * c;
            read_quad(a + at, channel, c, v[j]);
            if (SECOND == SUMS_OF_PRODUCTS)
                read_quad(b + at, channel, c, w[j]);
        }
        for (uint32_t j = 0; j < ROWS; j++)
            if (r + j * per < end)
                add_quad<SECOND>(v[j], w[j], norm, has_relu, sum, other);
    }
    const uint32_t at = row * CNN_CUDA_TILE + threadIdx.x % lanes * CNN_CUDA_QUAD, all = per * CNN_CUDA_TILE;
    for (uint32_t k = 0; k < CNN_CUDA_QUAD; k++) {
        s[at + k] = sum[k];
        s[all + at + k] = other[k];
    }
    __syncthreads();
    for (uint32_t half = per / 2; half > 0; half /= 2) {
        for (uint32_t i = threadIdx.x; i < half * CNN_CUDA_TILE; i += CNN_CUDA_BLOCK) {
            s[i] += s[half * CNN_CUDA_TILE + i];
            s[all + i] += s[all + half * CNN_CUDA_TILE + i];
        }
        __syncthreads();
    }
    const uint32_t which = threadIdx.x / CNN_CUDA_TILE, own = threadIdx.x % CNN_CUDA_TILE;
    if (which < 2 && blockIdx.x * CNN_CUDA_TILE + own < c)
        part[((uint64_t)blockIdx.y * 2 + which) * c + blockIdx.x * CNN_CUDA_TILE + own] =
            s[which * all + own];
}

/* The channel of a thread where a block adds up CNN_CUDA_END channels over the slices. */
__device__ inline uint32_t end_channel()
{
    return blockIdx.x * CNN_CUDA_END + threadIdx.x % CNN_CUDA_END;
}

/* Adds up sum number `which` of the thread's channel over the slices; for all threads of the block. The
 * result is that of the channel's first thread. sums: shared, [CNN_CUDA_BLOCK]. */
__device__ inline double over_slices(const double *part, uint32_t slices, uint32_t c, uint32_t which,
                                     double *sums)
{
    const uint32_t lanes = CNN_CUDA_BLOCK / CNN_CUDA_END, lane = threadIdx.x / CNN_CUDA_END,
                   channel = end_channel();
    double sum = 0;

    for (uint32_t s = lane; s < slices && channel < c; s += lanes)
        sum += part[((uint64_t)s * 2 + which) * c + channel];
    sums[threadIdx.x] = sum;
    __syncthreads();
    for (uint32_t half = lanes / 2; half > 0; half /= 2) {
        if (lane < half)
            sums[threadIdx.x] += sums[threadIdx.x + half * CNN_CUDA_END];
        __syncthreads();
    }
    sum = sums[threadIdx.x % CNN_CUDA_END];
    __syncthreads(); /* the next sum uses the same memory */
    return sum;
}

/* Whether the thread writes its channel's result. */
__device__ inline bool ends_channel(uint32_t c)
{
    return threadIdx.x < CNN_CUDA_END && end_channel() < c;
}

/* db */
KERNEL k_sums_end(uint32_t c, uint32_t slices, const double *part, float *out)
{
    __shared__ double sums[CNN_CUDA_BLOCK];
    double sum = over_slices(part, slices, c, 0, sums);
    if (ends_channel(c))
        out[end_channel()] = (float)sum;
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

/* stats [2][c]: the batch's mean and variance. */
KERNEL k_norm_measured(struct cnn_cuda_norm p, const double *part, const float *scale, const float *shift,
                       double *stats, float *used)
{
    __shared__ double sums[CNN_CUDA_BLOCK];
    const uint32_t i = end_channel();
    double mean = over_slices(part, p.slices, p.c, 0, sums) / (double)p.rows;
    double variance = over_slices(part, p.slices, p.c, 1, sums) / (double)p.rows - mean * mean;

    if (!ends_channel(p.c))
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

/* The gradients of scale and shift, and in k [3][c] the coefficients of the input's gradient: of dout, of the
 * input minus its mean, and a constant. */
KERNEL k_norm_back_end(struct cnn_cuda_norm p, const double *part, const float *used, const float *scale,
                       float *dscale, float *dshift, float *k)
{
    __shared__ double sums[CNN_CUDA_BLOCK];
    const uint32_t i = end_channel();
    double sum = over_slices(part, p.slices, p.c, 0, sums),
           product = over_slices(part, p.slices, p.c, 1, sums);

    if (!ends_channel(p.c))
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

template <uint32_t WIDTH, class T>
__device__ inline void normalize(const struct cnn_cuda_norm &p, const float *used, const T *in, T *out)
{
    typedef some<T, WIDTH> unit;
    const uint64_t n = p.rows * (p.c / WIDTH), stride = (uint64_t)gridDim.x * blockDim.x,
                   first = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const norm_of<WIDTH> norm = read_norm<WIDTH>(p.c, (uint32_t)(first % (p.c / WIDTH)) * WIDTH, used);

    for (uint64_t i = first; i < n; i += 2 * stride) {
        const uint64_t next = i + stride < n ? i + stride : i; /* both are read before either is written */
        const unit from[2] = {((const unit *)in)[i], ((const unit *)in)[next]};
        unit to[2];
        for (uint32_t j = 0; j < 2; j++)
            for (uint32_t k = 0; k < WIDTH; k++) {
                float y = (number(from[j].v[k]) - norm.mean[k]) * norm.scale[k] + norm.shift[k];
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
