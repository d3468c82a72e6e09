// libraries.cpp: cuBLAS's product and cuDNN's convolutions, in plain loops that sum in double. Where the math mode permits
// tf32, factors are rounded to it.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <cublas_v2.h>
#include <cudnn.h>

#include "tests/cuda/standin.h"

using standin::fail;
using standin::numbers;
using standin::put;

// The number, with the 10 bits after the point that tf32 has; to nearest.
static float to_tf32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7f800000) != 0x7f800000)
        bits = (bits + 0x0fff + (bits >> 13 & 1)) & ~uint32_t(0x1fff);
    memcpy(&x, &bits, sizeof x);
    return x;
}

// A factor as the math mode has it read.
static double factor(bool is_tf32, float x)
{
    return double(is_tf32 ? to_tf32(x) : x);
}

// ---- cuBLAS: matrices by columns

struct cublasContext {
    cudaStream_t stream;
    cublasMath_t math;
};

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t *h)
{
    *h = new cublasContext{};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t h)
{
    delete h;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetStream_v2(cublasHandle_t h, cudaStream_t s)
{
    h->stream = s;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t, void *at, size_t bytes)
{
    standin::numbers_at(at, bytes, "cublasSetWorkspace");
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasSetMathMode(cublasHandle_t h, cublasMath_t math)
{
    h->math = math;
    return CUBLAS_STATUS_SUCCESS;
}

const char *cublasGetStatusString(cublasStatus_t)
{
    return "an error of the stand-in";
}

// Bytes from the first to the last number of a matrix whose columns lie ld apart.
static size_t span(int rows, int columns, int ld)
{
    return size_t(columns - 1) * size_t(ld) + size_t(rows);
}

cublasStatus_t cublasSgemm_v2(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n,
                              int k, const float *alpha, const float *a, int lda, const float *b, int ldb,
                              const float *beta, float *c, int ldc)
{
    bool turns_a = ta != CUBLAS_OP_N, turns_b = tb != CUBLAS_OP_N;
    if (lda < (turns_a ? k : m) || ldb < (turns_b ? n : k) || ldc < m)
        return CUBLAS_STATUS_INVALID_VALUE;
    const float *pa = numbers(a, "cublasSgemm's A", turns_a ? span(k, m, lda) : span(m, k, lda));
    const float *pb = numbers(b, "cublasSgemm's B", turns_b ? span(n, k, ldb) : span(k, n, ldb));
    float *pc = numbers(c, "cublasSgemm's C", span(m, n, ldc));
    float al = *alpha, be = *beta;
    bool rounds = h->math == CUBLAS_TF32_TENSOR_OP_MATH;
    put(h->stream, "cublasSgemm", [=] {
        size_t step_a = turns_a ? 1 : size_t(lda), step_b = turns_b ? size_t(ldb) : 1;
        for (int j = 0; j < n; j++)
            for (int i = 0; i < m; i++) {
                const float *x = pa + size_t(i) * (turns_a ? size_t(lda) : 1);
                const float *y = pb + size_t(j) * (turns_b ? 1 : size_t(ldb));
                double sum = 0;
                for (size_t l = 0; l < size_t(k); l++)
                    sum += factor(rounds, x[l * step_a]) * factor(rounds, y[l * step_b]);
                float &to = pc[size_t(i) + size_t(j) * size_t(ldc)];
                to = float(double(al) * sum + (be == 0 ? 0 : double(be) * double(to)));
            }
    });
    return CUBLAS_STATUS_SUCCESS;
}
}

// ---- cuDNN: NHWC, float32

struct cudnnContext {
    cudaStream_t stream;
};
struct cudnnTensorStruct {
    int n, c, h, w;
    size_t count() const
    {
        return size_t(n) * size_t(c) * size_t(h) * size_t(w);
    }
};
struct cudnnFilterStruct {
    int k, c, h, w;
    size_t count() const
    {
        return size_t(k) * size_t(c) * size_t(h) * size_t(w);
    }
};
struct cudnnConvolutionStruct {
    int pad[2], stride[2], dilation[2], groups = 1;
    cudnnMathType_t math = CUDNN_DEFAULT_MATH;
};

static const cudnnStatus_t OK = CUDNN_STATUS_SUCCESS, BAD = CUDNN_STATUS_BAD_PARAM,
                           NOT_SUPPORTED = CUDNN_STATUS_NOT_SUPPORTED;

// Every product wants so much workspace, and spoils it.
static const size_t WORKSPACE = 5000;

// STANDIN_CUDNN=none: no algorithm for any convolution.
static bool has_algorithms()
{
    const char *s = getenv("STANDIN_CUDNN");
    return s == nullptr || strcmp(s, "none") != 0;
}

extern "C" {

cudnnStatus_t cudnnCreate(cudnnHandle_t *h)
{
    *h = new cudnnContext{};
    return OK;
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t h)
{
    delete h;
    return OK;
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t h, cudaStream_t s)
{
    h->stream = s;
    return OK;
}

const char *cudnnGetErrorString(cudnnStatus_t)
{
    return "an error of the stand-in";
}

#define DESCRIPTOR(Name, Type)                                                                               \
    cudnnStatus_t cudnnCreate##Name(Type *d)                                                                 \
    {                                                                                                        \
        *d = new std::remove_pointer<Type>::type{};                                                          \
        return OK;                                                                                           \
    }                                                                                                        \
    cudnnStatus_t cudnnDestroy##Name(Type d)                                                                 \
    {                                                                                                        \
        delete d;                                                                                            \
        return OK;                                                                                           \
    }
DESCRIPTOR(TensorDescriptor, cudnnTensorDescriptor_t)
DESCRIPTOR(FilterDescriptor, cudnnFilterDescriptor_t)
DESCRIPTOR(ConvolutionDescriptor, cudnnConvolutionDescriptor_t)

cudnnStatus_t cudnnSetTensor4dDescriptor(cudnnTensorDescriptor_t d, cudnnTensorFormat_t format,
                                         cudnnDataType_t type, int n, int c, int h, int w)
{
    if (format != CUDNN_TENSOR_NHWC || type != CUDNN_DATA_FLOAT)
        return NOT_SUPPORTED;
    *d = {n, c, h, w};
    return n > 0 && c > 0 && h > 0 && w > 0 ? OK : BAD;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w)
{
    if (format != CUDNN_TENSOR_NHWC || type != CUDNN_DATA_FLOAT)
        return NOT_SUPPORTED;
    *d = {k, c, h, w};
    return k > 0 && c > 0 && h > 0 && w > 0 ? OK : BAD;
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(cudnnConvolutionDescriptor_t d, int pad_h, int pad_w, int u,
                                              int v, int dilation_h, int dilation_w,
                                              cudnnConvolutionMode_t mode, cudnnDataType_t type)
{
    if (mode != CUDNN_CROSS_CORRELATION || type != CUDNN_DATA_FLOAT)
        return NOT_SUPPORTED;
    d->pad[0] = pad_h, d->pad[1] = pad_w;
    d->stride[0] = u, d->stride[1] = v;
    d->dilation[0] = dilation_h, d->dilation[1] = dilation_w;
    return OK;
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t d, int groups)
{
    d->groups = groups;
    return OK;
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t d, cudnnMathType_t math)
{
    d->math = math;
    return OK;
}
}

static bool fits_side(int in, int out, int kernel, const cudnnConvolutionStruct &c, int d)
{
    return out == (in + 2 * c.pad[d] - (kernel - 1) * c.dilation[d] - 1) / c.stride[d] + 1;
}

static bool fits(const cudnnTensorStruct &x, const cudnnFilterStruct &w, const cudnnConvolutionStruct &c,
                 const cudnnTensorStruct &y)
{
    return x.n == y.n && x.c == w.c * c.groups && y.c == w.k && w.k % c.groups == 0 &&
           fits_side(x.h, y.h, w.h, c, 0) && fits_side(x.w, y.w, w.w, c, 1);
}

// What each algorithm is; HUGE_ONE wants more workspace than anybody has.
enum { HUGE_ONE, ANY_ORDER, LESS_THAN_FLOAT, MISSING, GOOD };

// One that the caller may take, last, behind those that it must not.
template <class Perf, class Algorithm>
static cudnnStatus_t name_algorithms(bool is_fit, int most, int *n, Perf *out)
{
    if (!is_fit)
        return BAD;
    if (!has_algorithms())
        return NOT_SUPPORTED;
    const struct {
        cudnnStatus_t status;
        cudnnDeterminism_t determinism;
        cudnnMathType_t math;
        int algorithm;
    } all[] = {
        {OK, CUDNN_DETERMINISTIC, CUDNN_FMA_MATH, HUGE_ONE},
        {OK, CUDNN_NON_DETERMINISTIC, CUDNN_FMA_MATH, ANY_ORDER},
        {OK, CUDNN_DETERMINISTIC, CUDNN_TENSOR_OP_MATH, LESS_THAN_FLOAT},
        {NOT_SUPPORTED, CUDNN_DETERMINISTIC, CUDNN_FMA_MATH, MISSING},
        {OK, CUDNN_DETERMINISTIC, CUDNN_DEFAULT_MATH, GOOD},
    };
    *n = 0;
    for (auto &a : all) {
        if (*n == most)
            break;
        Perf &p = out[(*n)++];
        p = Perf{};
        p.status = a.status;
        p.determinism = a.determinism;
        p.mathType = a.math;
        p.algo = Algorithm(a.algorithm);
    }
    return OK;
}

static cudnnStatus_t workspace_of(bool is_fit, int algorithm, size_t *bytes)
{
    *bytes = algorithm == HUGE_ONE ? size_t(1) << 40 : WORKSPACE;
    return is_fit && algorithm != MISSING ? OK : NOT_SUPPORTED;
}

// product(input row of channels, weights, output number) for each output number of each tap; rows are
// contiguous.
template <class F>
static void each_tap(const cudnnTensorStruct &x, const cudnnFilterStruct &w, const cudnnConvolutionStruct &c,
                     const cudnnTensorStruct &y, F product)
{
    for (int n = 0; n < y.n; n++)
        for (int oy = 0; oy < y.h; oy++)
            for (int ox = 0; ox < y.w; ox++)
                for (int r = 0; r < w.h; r++)
                    for (int s = 0; s < w.w; s++) {
                        int iy = oy * c.stride[0] - c.pad[0] + r * c.dilation[0];
                        int ix = ox * c.stride[1] - c.pad[1] + s * c.dilation[1];
                        if (iy < 0 || ix < 0 || iy >= x.h || ix >= x.w)
                            continue;
                        size_t at_x =
                            ((size_t(n) * size_t(x.h) + size_t(iy)) * size_t(x.w) + size_t(ix)) * size_t(x.c);
                        size_t at_y =
                            ((size_t(n) * size_t(y.h) + size_t(oy)) * size_t(y.w) + size_t(ox)) * size_t(y.c);
                        for (int k = 0; k < w.k; k++) {
                            size_t group = size_t(k / (w.k / c.groups));
                            size_t at_w = ((size_t(k) * size_t(w.h) + size_t(r)) * size_t(w.w) + size_t(s)) *
                                          size_t(w.c);
                            product(at_x + group * size_t(w.c), at_w, at_y + size_t(k));
                        }
                    }
}

static void finish(const std::vector<double> &sums, float alpha, float beta, float *out)
{
    for (size_t i = 0; i < sums.size(); i++)
        out[i] = float(double(alpha) * sums[i] + (beta == 0 ? 0 : double(beta) * double(out[i])));
}

// What the three have in common.
struct Convolution {
    cudaStream_t stream;
    cudnnTensorStruct x, y;
    cudnnFilterStruct w;
    cudnnConvolutionStruct c;
    float alpha, beta;
    void *workspace;
    bool rounds() const
    {
        return c.math != CUDNN_FMA_MATH;
    }
};

static bool read(Convolution &out, cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t x,
                 cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t y,
                 int algorithm, void *workspace, size_t bytes, const void *beta)
{
    bool is_there = algorithm == GOOD || (algorithm == LESS_THAN_FLOAT && c->math == CUDNN_TENSOR_OP_MATH);
    if (!fits(*x, *w, *c, *y) || !is_there || bytes < WORKSPACE)
        return false;
    out = {h->stream,
           *x,
           *y,
           *w,
           *c,
           *static_cast<const float *>(alpha),
           *static_cast<const float *>(beta),
           standin::numbers_at(workspace, WORKSPACE, "cuDNN's workspace")};
    return true;
}

// Its kernels read 16 bytes at a time; it does not say that it would take less.
static const float *floats(const void *p, const char *who, size_t count)
{
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0)
        fail("cuDNN: %s are at %p, which is not a multiple of 16", who, p);
    return numbers(static_cast<const float *>(p), who, count);
}

extern "C" {

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                     cudnnFilterDescriptor_t w,
                                                     cudnnConvolutionDescriptor_t c,
                                                     cudnnTensorDescriptor_t y, int most, int *n,
                                                     cudnnConvolutionFwdAlgoPerf_t *out)
{
    return name_algorithms<cudnnConvolutionFwdAlgoPerf_t, cudnnConvolutionFwdAlgo_t>(fits(*x, *w, *c, *y),
                                                                                     most, n, out);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(cudnnHandle_t, cudnnFilterDescriptor_t w,
                                                          cudnnTensorDescriptor_t y,
                                                          cudnnConvolutionDescriptor_t c,
                                                          cudnnTensorDescriptor_t x, int most, int *n,
                                                          cudnnConvolutionBwdDataAlgoPerf_t *out)
{
    return name_algorithms<cudnnConvolutionBwdDataAlgoPerf_t, cudnnConvolutionBwdDataAlgo_t>(
        fits(*x, *w, *c, *y), most, n, out);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                            cudnnTensorDescriptor_t y,
                                                            cudnnConvolutionDescriptor_t c,
                                                            cudnnFilterDescriptor_t w, int most, int *n,
                                                            cudnnConvolutionBwdFilterAlgoPerf_t *out)
{
    return name_algorithms<cudnnConvolutionBwdFilterAlgoPerf_t, cudnnConvolutionBwdFilterAlgo_t>(
        fits(*x, *w, *c, *y), most, n, out);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(cudnnHandle_t, cudnnTensorDescriptor_t x,
                                                      cudnnFilterDescriptor_t w,
                                                      cudnnConvolutionDescriptor_t c,
                                                      cudnnTensorDescriptor_t y,
                                                      cudnnConvolutionFwdAlgo_t algorithm, size_t *bytes)
{
    return workspace_of(fits(*x, *w, *c, *y), int(algorithm), bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t, cudnnFilterDescriptor_t w, cudnnTensorDescriptor_t y, cudnnConvolutionDescriptor_t c,
    cudnnTensorDescriptor_t x, cudnnConvolutionBwdDataAlgo_t algorithm, size_t *bytes)
{
    return workspace_of(fits(*x, *w, *c, *y), int(algorithm), bytes);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t, cudnnTensorDescriptor_t x, cudnnTensorDescriptor_t y, cudnnConvolutionDescriptor_t c,
    cudnnFilterDescriptor_t w, cudnnConvolutionBwdFilterAlgo_t algorithm, size_t *bytes)
{
    return workspace_of(fits(*x, *w, *c, *y), int(algorithm), bytes);
}

cudnnStatus_t cudnnConvolutionForward(cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t xd,
                                      const void *x, cudnnFilterDescriptor_t wd, const void *w,
                                      cudnnConvolutionDescriptor_t cd, cudnnConvolutionFwdAlgo_t algorithm,
                                      void *workspace, size_t bytes, const void *beta,
                                      cudnnTensorDescriptor_t yd, void *y)
{
    Convolution v;
    if (!read(v, h, alpha, xd, wd, cd, yd, int(algorithm), workspace, bytes, beta))
        return BAD;
    const float *px = floats(x, "a convolution's input", v.x.count()),
                *pw = floats(w, "its weights", v.w.count());
    float *py = const_cast<float *>(floats(y, "a convolution's output", v.y.count()));
    put(v.stream, "cudnnConvolutionForward", [=] {
        memset(v.workspace, 0xff, WORKSPACE);
        std::vector<double> sums(v.y.count());
        each_tap(v.x, v.w, v.c, v.y, [&](size_t i, size_t j, size_t o) {
            double sum = 0;
            for (size_t c = 0; c < size_t(v.w.c); c++)
                sum += factor(v.rounds(), px[i + c]) * factor(v.rounds(), pw[j + c]);
            sums[o] += sum;
        });
        finish(sums, v.alpha, v.beta, py);
    });
    return OK;
}

cudnnStatus_t cudnnConvolutionBackwardData(cudnnHandle_t h, const void *alpha, cudnnFilterDescriptor_t wd,
                                           const void *w, cudnnTensorDescriptor_t yd, const void *dy,
                                           cudnnConvolutionDescriptor_t cd,
                                           cudnnConvolutionBwdDataAlgo_t algorithm, void *workspace,
                                           size_t bytes, const void *beta, cudnnTensorDescriptor_t xd,
                                           void *dx)
{
    Convolution v;
    if (!read(v, h, alpha, xd, wd, cd, yd, int(algorithm), workspace, bytes, beta))
        return BAD;
    const float *pw = floats(w, "a convolution's weights", v.w.count()),
                *py = floats(dy, "its gradient", v.y.count());
    float *px = const_cast<float *>(floats(dx, "its input's gradient", v.x.count()));
    put(v.stream, "cudnnConvolutionBackwardData", [=] {
        memset(v.workspace, 0xff, WORKSPACE);
        std::vector<double> sums(v.x.count());
        each_tap(v.x, v.w, v.c, v.y, [&](size_t i, size_t j, size_t o) {
            double d = factor(v.rounds(), py[o]);
            for (size_t c = 0; c < size_t(v.w.c); c++)
                sums[i + c] += d * factor(v.rounds(), pw[j + c]);
        });
        finish(sums, v.alpha, v.beta, px);
    });
    return OK;
}

cudnnStatus_t cudnnConvolutionBackwardFilter(cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t xd,
                                             const void *x, cudnnTensorDescriptor_t yd, const void *dy,
                                             cudnnConvolutionDescriptor_t cd,
                                             cudnnConvolutionBwdFilterAlgo_t algorithm, void *workspace,
                                             size_t bytes, const void *beta, cudnnFilterDescriptor_t wd,
                                             void *dw)
{
    Convolution v;
    if (!read(v, h, alpha, xd, wd, cd, yd, int(algorithm), workspace, bytes, beta))
        return BAD;
    const float *px = floats(x, "a convolution's input", v.x.count()),
                *py = floats(dy, "its gradient", v.y.count());
    float *pw = const_cast<float *>(floats(dw, "its weights' gradient", v.w.count()));
    put(v.stream, "cudnnConvolutionBackwardFilter", [=] {
        memset(v.workspace, 0xff, WORKSPACE);
        std::vector<double> sums(v.w.count());
        each_tap(v.x, v.w, v.c, v.y, [&](size_t i, size_t j, size_t o) {
            double d = factor(v.rounds(), py[o]);
            for (size_t c = 0; c < size_t(v.w.c); c++)
                sums[j + c] += d * factor(v.rounds(), px[i + c]);
        });
        finish(sums, v.alpha, v.beta, pw);
    });
    return OK;
}
}
