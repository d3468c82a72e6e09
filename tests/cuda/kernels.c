/* kernels.c: every kernel of the nets by its launcher, without cuDNN: vectors that lie at multiples of 16
 * bytes give the results of the same vectors one value further on, for which kernels take other paths.
 * compute-sanitizer runs it, which takes minutes on programs with cuDNN. */
#include <check.h>
#include <cuda_runtime_api.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/cuda/launch.h"
#include "tests/support/unit.h"

#define BYTES     (8u << 20) /* of a run's vectors */
#define MOST_OUTS 8

/* One run of a launcher: its vectors, in the order in which it takes them. */
struct run {
    enum cnn_cuda_type type;
    bool shifted; /* vectors begin one value after a multiple of 256 bytes */
    cudaStream_t stream;
    char *device, *host; /* [BYTES]; host: pinned, what is uploaded */
    size_t used;
    uint32_t random;
    struct {
        size_t at, bytes;
        bool is_float;
    } outs[MOST_OUTS];
    size_t n_outs;
};

static float next_value(struct run *r)
{
    r->random = r->random * 1664525 + 1013904223;
    return (float)(int32_t)(r->random >> 8) * (4.0f / (1 << 24)) - 2; /* [-2, 2) */
}

static size_t value_bytes(const struct run *r)
{
    return r->type == CNN_CUDA_BF16 ? 2 : 4;
}

static size_t take(struct run *r, size_t n, size_t each)
{
    size_t at = (r->used + 255) / 256 * 256 + (r->shifted ? each : 0);
    r->used = at + n * each;
    ck_assert_uint_le(r->used, BYTES);
    return at;
}

static void put_value(struct run *r, size_t at, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, sizeof bits);
    if (r->type == CNN_CUDA_BF16)
        memcpy(r->host + at, (char *)&bits + 2, 2);
    else
        memcpy(r->host + at, &v, sizeof v);
}

/* Values of the net's type, as an input. */
static void *values(struct run *r, size_t n)
{
    size_t at = take(r, n, value_bytes(r));
    for (size_t i = 0; i < n; i++)
        put_value(r, at + i * value_bytes(r), next_value(r));
    return r->device + at;
}

static float *floats(struct run *r, size_t n)
{
    size_t at = take(r, n, sizeof(float));
    for (size_t i = 0; i < n; i++) {
        float v = next_value(r);
        memcpy(r->host + at + i * sizeof v, &v, sizeof v);
    }
    return (float *)(void *)(r->device + at);
}

static void *bytes_of(struct run *r, const void *from, size_t n)
{
    size_t at = (r->used + 255) / 256 * 256;
    r->used = at + n;
    ck_assert_uint_le(r->used, BYTES);
    if (from != NULL)
        memcpy(r->host + at, from, n);
    else
        memset(r->host + at, 0, n);
    return r->device + at;
}

static void *out_of(struct run *r, void *p, size_t n, size_t each, bool is_float)
{
    ck_assert_uint_lt(r->n_outs, MOST_OUTS);
    r->outs[r->n_outs].at = (size_t)((char *)p - r->device);
    r->outs[r->n_outs].bytes = n * each;
    r->outs[r->n_outs++].is_float = is_float;
    return p;
}

/* What a kernel writes; also reads, if it begins with values. */
static void *out(struct run *r, size_t n)
{
    return out_of(r, values(r, n), n, value_bytes(r), false);
}

static float *out_floats(struct run *r, size_t n)
{
    return out_of(r, floats(r, n), n, sizeof(float), true);
}

static double *doubles(struct run *r, size_t n)
{
    return out_of(r, bytes_of(r, NULL, n * sizeof(double)), n, sizeof(double), false);
}

static void upload(struct run *r)
{
    ck_assert_int_eq(cudaMemcpyAsync(r->device, r->host, r->used, cudaMemcpyHostToDevice, r->stream),
                     cudaSuccess);
}

/* Several tiles and slices; channels in whole groups, and not. */
static const struct {
    uint32_t rows, c;
} channels[] = {{1000, 64}, {300, 136}, {77, 130}, {1, 3}};
enum { N_CHANNELS = sizeof channels / sizeof channels[0] };

static struct cnn_cuda_sums sums_of(struct run *r, uint32_t rows, uint32_t c)
{
    return (struct cnn_cuda_sums){
        bytes_of(r, NULL, cnn_cuda_slices(r->type, rows, c) * 2 * (size_t)c * sizeof(double)),
        bytes_of(r, NULL, cnn_cuda_tiles(r->type, c) * sizeof(uint32_t))};
}

static cudaError_t turn(struct run *r, uint32_t rows, uint32_t c)
{
    void *in = values(r, (size_t)rows * c), *to = out(r, (size_t)rows * c);
    upload(r);
    return cu_turn(r->stream, r->type, (uint64_t)rows * c, rows, c, in, to);
}

static cudaError_t turn_in(struct run *r, uint32_t rows, uint32_t c)
{
    float *in = floats(r, (size_t)rows * c);
    void *to = out(r, (size_t)rows * c), *same = out(r, (size_t)rows * c);
    upload(r);
    cudaError_t e = cu_turn_in(r->stream, r->type, (uint64_t)rows * c, rows, c, in, to);
    return e == cudaSuccess ? cu_turn_in(r->stream, r->type, (uint64_t)rows * c, 1, c, in, same) : e;
}

/* Three layers: in order, turned, and in order again. */
static struct cnn_cuda_turns turns_of(uint32_t rows, uint32_t c)
{
    const uint64_t n = (uint64_t)rows * c;
    return (struct cnn_cuda_turns){.n = 3,
                                   .of = {{.at = 0, .to = 0, .n = n, .a = 1, .b = c},
                                          {.at = n, .to = n, .n = n, .a = c, .b = rows},
                                          {.at = 2 * n, .to = 2 * n, .n = c, .a = c, .b = 1}}};
}

static cudaError_t weights(struct run *r, uint32_t rows, uint32_t c)
{
    struct cnn_cuda_turns turns = turns_of(rows, c);
    const size_t n = 2 * (size_t)rows * c + c;
    float *x = floats(r, n), *g = out_floats(r, n);
    void *copies = out(r, n);
    upload(r);
    cudaError_t e = cu_weights_in(r->stream, r->type, &turns, x, copies);
    return e == cudaSuccess ? cu_weights_out(r->stream, r->type, &turns, copies, g) : e;
}

static cudaError_t add(struct run *r, uint32_t rows, uint32_t c)
{
    const size_t n = (size_t)rows * c;
    void *a = values(r, n), *b = values(r, n), *to = out(r, n), *with_relu = out(r, n);
    upload(r);
    cudaError_t e = cu_add(r->stream, r->type, n, false, a, b, to);
    return e == cudaSuccess ? cu_add(r->stream, r->type, n, true, a, b, with_relu) : e;
}

static cudaError_t bias(struct run *r, uint32_t rows, uint32_t c)
{
    float *b = floats(r, c), *db = out_floats(r, c);
    void *x = out(r, (size_t)rows * c), *dout = values(r, (size_t)rows * c);
    struct cnn_cuda_sums sums = sums_of(r, rows, c);
    upload(r);
    cudaError_t e = cu_bias(r->stream, r->type, (uint64_t)rows * c, c, b, x);
    return e == cudaSuccess ? cu_bias_back(r->stream, r->type, rows, c, dout, sums, db) : e;
}

static cudaError_t relu_bias(struct run *r, uint32_t rows, uint32_t c)
{
    const size_t n = (size_t)rows * c;
    float *db = out_floats(r, c), *in_place = out_floats(r, c);
    void *relu = values(r, n), *dout = values(r, n), *din = out(r, n), *over = out(r, n);
    struct cnn_cuda_sums sums = sums_of(r, rows, c);
    upload(r);
    cudaError_t e = cu_relu_bias_back(r->stream, r->type, rows, c, relu, dout, sums, din, db);
    return e == cudaSuccess ? cu_relu_bias_back(r->stream, r->type, rows, c, relu, over, sums, over, in_place)
                            : e;
}

static cudaError_t activation(struct run *r, uint32_t rows, uint32_t c)
{
    const size_t n = (size_t)rows * c;
    void *in = values(r, n), *y = out(r, n), *dout = values(r, n), *part = values(r, n), *din = out(r, n),
         *also = out(r, n);
    cudaError_t e = cudaSuccess;
    upload(r);
    for (int kind = CNN_CUDA_RELU; kind <= CNN_CUDA_TANH && e == cudaSuccess; kind++) {
        e = cu_activate(r->stream, r->type, n, (enum cnn_cuda_activation)kind, 0.1f, in, y);
        if (e == cudaSuccess)
            e = cu_activate_back(r->stream, r->type, n, (enum cnn_cuda_activation)kind, 0.1f, y, dout, NULL,
                                 din);
        if (e == cudaSuccess)
            e = cu_activate_back(r->stream, r->type, n, (enum cnn_cuda_activation)kind, 0.1f, y, dout, part,
                                 also);
    }
    return e;
}

static cudaError_t dropout(struct run *r, uint32_t rows, uint32_t c)
{
    const size_t n = (size_t)rows * c;
    const struct cnn_cuda_step step = {7, 3, {11, 13}};
    struct cnn_cuda_dropout p = {n, c, 1, 5, UINT64_C(1) << 31, 2};
    void *in = values(r, n), *to = out(r, n), *in_planes = out(r, n);
    const struct cnn_cuda_step *s = bytes_of(r, &step, sizeof step);
    upload(r);
    cudaError_t e = cu_dropout(r->stream, r->type, p, s, in, to);
    p.places = rows;
    return e == cudaSuccess ? cu_dropout(r->stream, r->type, p, s, in, in_planes) : e;
}

static cudaError_t norm(struct run *r, uint32_t rows, uint32_t c)
{
    const size_t n = (size_t)rows * c;
    const struct cnn_cuda_norm p = {.rows = rows, .c = c, .epsilon = 1e-5f, .has_relu = true};
    const struct cnn_cuda_running row = {0, c, 0, rows, 0.1, c};
    float *scale = floats(r, c), *shift = floats(r, c), *used = out_floats(r, 4 * (size_t)c),
          *k = floats(r, 3 * (size_t)c), *of_scale = out_floats(r, c), *of_shift = out_floats(r, c),
          *running = out_floats(r, 2 * (size_t)c);
    void *in = values(r, n), *added = values(r, n), *y = out(r, n), *dout = values(r, n), *din = out(r, n);
    double *stats = doubles(r, 2 * (size_t)c);
    struct cnn_cuda_sums sums = sums_of(r, rows, c);
    const struct cnn_cuda_running *layers = bytes_of(r, &row, sizeof row);
    upload(r);
    cudaError_t e = cu_norm_measure(r->stream, r->type, p, scale, shift, in, sums, stats, used);
    if (e == cudaSuccess)
        e = cu_norm(r->stream, r->type, p, used, in, NULL, y);
    if (e == cudaSuccess)
        e = cu_norm(r->stream, r->type, p, used, in, added, y);
    if (e == cudaSuccess)
        e = cu_norm_back(r->stream, r->type, p, used, scale, in, dout, sums, k, of_scale, of_shift, din);
    return e == cudaSuccess ? cu_norm_move(r->stream, 1, layers, stats, running) : e;
}

static cudaError_t norm_running(struct run *r, uint32_t rows, uint32_t c)
{
    const struct cnn_cuda_norm p = {.rows = rows, .c = c, .epsilon = 5};
    float *scale = floats(r, c), *shift = floats(r, c), *mean = floats(r, c), *variance = floats(r, c),
          *used = out_floats(r, 4 * (size_t)c);
    upload(r);
    return cu_norm_running(r->stream, p, scale, shift, mean, variance, used);
}

static cudaError_t lrn(struct run *r, uint32_t rows, uint32_t c)
{
    const size_t n = (size_t)rows * c;
    struct cnn_cuda_lrn p = {n, c, 2, 2, 2e-5f, 0.75f, 1};
    void *in = values(r, n), *y = out(r, n), *dout = values(r, n), *din = out(r, n), *wide = out(r, n);
    float *kept = floats(r, n);
    upload(r);
    cudaError_t e = cu_lrn(r->stream, r->type, p, in, kept, y);
    if (e == cudaSuccess)
        e = cu_lrn_back(r->stream, r->type, p, in, kept, dout, din);
    p.before = 3;
    return e == cudaSuccess ? cu_lrn(r->stream, r->type, p, in, kept, wide) : e;
}

static cudaError_t copy_channels(struct run *r, uint32_t rows, uint32_t c)
{
    const size_t n = (size_t)rows * c;
    void *in = values(r, n), *to = out(r, 2 * n);
    upload(r);
    return cu_copy_channels(r->stream, r->type, rows, c, in, c, (char *)to + c * value_bytes(r), 2 * c);
}

/* Images of 9 x 9 places and windows of 3 x 3; rows / 81 of them. */
static struct cnn_cuda_window window_of(uint32_t rows, uint32_t c, uint32_t out_c)
{
    const uint32_t n = rows / 81 + 1;
    return (struct cnn_cuda_window){.in = {n, 9, 9, c},
                                    .out = {n, 5, 5, out_c},
                                    .kernel = {3, 3},
                                    .stride = {2, 2},
                                    .dilation = {1, 1},
                                    .pad = {1, 1},
                                    .pad_end = {1, 1},
                                    .groups = 1};
}

static size_t count(struct cnn_cuda_shape s)
{
    return (size_t)s.n * s.h * s.w * s.c;
}

static cudaError_t pools(struct run *r, uint32_t rows, uint32_t c)
{
    struct cnn_cuda_window w = window_of(rows, c, c), behind_relu = w;
    void *in = values(r, count(w.in)), *y = out(r, count(w.out)), *dout = values(r, count(w.out)),
         *din = out(r, count(w.in)), *mean = out(r, count(w.out)), *of_mean = out(r, count(w.in)),
         *of_relu = out(r, count(w.in));
    uint16_t *best = bytes_of(r, NULL, count(w.out) * sizeof *best + 256);
    behind_relu.has_relu = true;
    upload(r);
    cudaError_t e = cu_maxpool(r->stream, r->type, behind_relu, in, y, best);
    if (e == cudaSuccess)
        e = cu_maxpool_back(r->stream, r->type, w, dout, best, of_relu);
    if (e == cudaSuccess)
        e = cu_maxpool(r->stream, r->type, w, in, y, best);
    if (e == cudaSuccess)
        e = cu_maxpool_back(r->stream, r->type, w, dout, best, din);
    if (e == cudaSuccess)
        e = cu_avgpool(r->stream, r->type, w, in, mean);
    return e == cudaSuccess ? cu_avgpool_back(r->stream, r->type, w, dout, of_mean) : e;
}

/* Of a pool: its windows have a position behind a ReLU, or none. */
static cudaError_t pool_bias(struct run *r, uint32_t rows, uint32_t c)
{
    struct cnn_cuda_window w = window_of(rows, c, c);
    void *in = values(r, count(w.in)), *y = out(r, count(w.out)), *dout = values(r, count(w.out));
    uint16_t *best = bytes_of(r, NULL, count(w.out) * sizeof *best + 256);
    const uint32_t places = (uint32_t)(count(w.out) / c);
    float *db = out_floats(r, c);
    struct cnn_cuda_sums sums = sums_of(r, places, c);
    w.has_relu = true;
    upload(r);
    cudaError_t e = cu_maxpool(r->stream, r->type, w, in, y, best);
    return e == cudaSuccess ? cu_pool_bias_back(r->stream, r->type, places, c, best, dout, sums, db) : e;
}

static cudaError_t convolution(struct run *r, uint32_t rows, uint32_t c)
{
    const struct cnn_cuda_window w = window_of(rows < 200 ? rows : 200, c, 4);
    const size_t n_weights = 4 * 9 * (size_t)c;
    void *in = values(r, count(w.in)), *weight = values(r, n_weights), *y = out(r, count(w.out)),
         *dout = values(r, count(w.out)), *din = out(r, count(w.in)), *of_weight = out(r, n_weights);
    upload(r);
    cudaError_t e = cu_conv(r->stream, r->type, w, in, weight, y);
    if (e == cudaSuccess)
        e = cu_conv_back_data(r->stream, r->type, w, weight, dout, din);
    return e == cudaSuccess ? cu_conv_back_weights(r->stream, r->type, w, in, dout, of_weight) : e;
}

static cudaError_t images(struct run *r, uint32_t rows, uint32_t c)
{
    const uint32_t n = 3, side = 9, stored = 11;
    const struct cnn_cuda_stored s = {stored, stored, true, c, side, side};
    const struct cnn_cuda_cut cuts[] = {{0, 0, 0}, {-1, 2, 1}, {2, -1, 0}};
    const size_t all = (size_t)n * side * side * c;
    float *value_of = floats(r, 256 * (size_t)c);
    void *to = out(r, all), *cut = out(r, all);
    uint8_t *bytes = bytes_of(r, NULL, (size_t)n * stored * stored * c);
    uint8_t *at = (uint8_t *)r->host + ((char *)bytes - r->device);
    for (size_t i = 0; i < (size_t)n * stored * stored * c; i++)
        at[i] = (uint8_t)(i * 2654435761u >> 16);
    const struct cnn_cuda_cut *of = bytes_of(r, cuts, sizeof cuts);
    (void)rows;
    upload(r);
    cudaError_t e = cu_bytes(r->stream, r->type, all, c, side * side, true, bytes, value_of, to);
    return e == cudaSuccess ? cu_cut_bytes(r->stream, r->type, all, s, bytes, of, value_of, cut) : e;
}

static cudaError_t loss(struct run *r, uint32_t rows, uint32_t c)
{
    const uint32_t n = rows < 50 ? rows : 50;
    const struct cnn_cuda_loss p = {c, true, 0.1, 0.5};
    float *wide = floats(r, (size_t)n * c);
    void *logits = values(r, (size_t)n * c), *dz = out(r, (size_t)n * c), *of_wide = out(r, (size_t)n * c);
    uint16_t *labels = bytes_of(r, NULL, n * sizeof *labels);
    struct cnn_cuda_row *of = bytes_of(r, NULL, n * sizeof *of);
    struct cnn_cuda_row *copy = out_of(r, bytes_of(r, NULL, n * sizeof *copy), n, sizeof *copy, false);
    upload(r);
    cudaError_t e = cu_loss(r->stream, r->type, r->type, p, n, logits, labels, dz, of);
    if (e == cudaSuccess)
        e = cu_loss(r->stream, CNN_CUDA_FLOAT, r->type, p, n, wide, labels, of_wide, of);
    return e == cudaSuccess ? cu_rows(r->stream, n, of, copy) : e;
}

/* tolerance: of the paths' results, relative to the largest; 0: they have the same bits. */
static const struct {
    const char *name;
    cudaError_t (*call)(struct run *r, uint32_t rows, uint32_t c);
    double tolerance;
} rows[] = {
    {"turn", turn, 0},
    {"turn in", turn_in, 0},
    {"weights", weights, 0},
    {"add", add, 0},
    {"bias", bias, 0},
    {"ReLU and bias", relu_bias, 0},
    {"pool and bias", pool_bias, 0},
    {"activation", activation, 0},
    {"dropout", dropout, 0},
    {"norm", norm, 0},
    {"running norm", norm_running, 0},
    {"lrn", lrn, 1e-5},
    {"copy", copy_channels, 0},
    {"pools", pools, 0},
    {"conv", convolution, 0},
    {"images", images, 0},
    {"loss", loss, 0},
};
enum { N_ROWS = sizeof rows / sizeof rows[0] };

static void run_begin(struct run *r, enum cnn_cuda_type type, bool shifted)
{
    *r = (struct run){.type = type, .shifted = shifted, .random = 1};
    ck_assert_int_eq(cudaStreamCreateWithFlags(&r->stream, cudaStreamNonBlocking), cudaSuccess);
    ck_assert_int_eq(cudaMalloc((void **)&r->device, BYTES), cudaSuccess);
    ck_assert_int_eq(cudaHostAlloc((void **)&r->host, BYTES, cudaHostAllocDefault), cudaSuccess);
    memset(r->host, 0, BYTES);
}

static void run_end(struct run *r)
{
    cudaFreeHost(r->host);
    cudaFree(r->device);
    cudaStreamDestroy(r->stream);
}

static void call(struct run *r, size_t row, uint32_t n_rows, uint32_t c)
{
    cudaError_t e = rows[row].call(r, n_rows, c);
    ck_assert_msg(e == cudaSuccess, "%s: %s", rows[row].name, cudaGetErrorString(e));
    ck_assert_int_eq(cudaMemcpyAsync(r->host, r->device, r->used, cudaMemcpyDeviceToHost, r->stream),
                     cudaSuccess);
    e = cudaStreamSynchronize(r->stream);
    ck_assert_msg(e == cudaSuccess, "%s: %s", rows[row].name, cudaGetErrorString(e));
}

static double value_at(const struct run *r, size_t k, size_t i)
{
    const char *at = r->host + r->outs[k].at;
    uint16_t half;
    float f;
    if (r->outs[k].is_float || r->type == CNN_CUDA_FLOAT) {
        memcpy(&f, at + i * sizeof f, sizeof f);
        return (double)f;
    }
    memcpy(&half, at + i * sizeof half, sizeof half);
    uint32_t bits = (uint32_t)half << 16;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

static void compare(const struct run *a, const struct run *b, size_t row, uint32_t c)
{
    ck_assert_uint_eq(a->n_outs, b->n_outs);
    for (size_t k = 0; k < a->n_outs; k++) {
        const size_t each = a->outs[k].is_float ? sizeof(float) : value_bytes(a);
        const void *x = a->host + a->outs[k].at, *y = b->host + b->outs[k].at;
        double largest = 0, off = 0;
        if (memcmp(x, y, a->outs[k].bytes) == 0)
            continue;
        ck_assert_msg(rows[row].tolerance > 0, "%s, %u channels, vector %zu: other bits", rows[row].name, c,
                      k);
        for (size_t i = 0; i < a->outs[k].bytes / each; i++) {
            largest = fmax(largest, fabs(value_at(a, k, i)));
            off = fmax(off, fabs(value_at(a, k, i) - value_at(b, k, i)));
        }
        ck_assert_msg(off <= rows[row].tolerance * largest * (each == 2 ? 1000 : 1),
                      "%s, %u channels, vector %zu: %g off of %g", rows[row].name, c, k, off, largest);
    }
}

START_TEST(both_paths_give_the_same)
{
    for (int type = CNN_CUDA_FLOAT; type <= CNN_CUDA_BF16; type++)
        for (size_t k = 0; k < N_CHANNELS; k++) {
            struct run whole, shifted;
            run_begin(&whole, (enum cnn_cuda_type)type, false);
            run_begin(&shifted, (enum cnn_cuda_type)type, true);
            call(&whole, (size_t)_i, channels[k].rows, channels[k].c);
            call(&shifted, (size_t)_i, channels[k].rows, channels[k].c);
            compare(&whole, &shifted, (size_t)_i, channels[k].c);
            run_end(&whole);
            run_end(&shifted);
        }
}
END_TEST

int main(void)
{
    Suite *s = suite_create("cuda-kernels");
    TCase *t = tcase_create("kernels");

    tcase_add_loop_test(t, both_paths_give_the_same, 0, N_ROWS);
    suite_add_tcase(s, t);
    return unit_run(s);
}
