// dnn.cpp: cuDNN's convolutions, its classic calls. Where the math mode permits tf32, factors are rounded to
// it.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <vector>

#include <cudnn.h>

#include "tests/cuda/dnn.h"
#include "tests/cuda/products.h"
#include "tests/cuda/standin.h"

using standin::fail;
using standin::numbers_at;
using standin::Product;
using standin::put;
using standin::Sizes4;
using standin::Type;

struct cudnnTensorStruct {
    Sizes4 sizes;
    Type type;
};
struct cudnnFilterStruct {
    Sizes4 sizes;
    Type type;
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

bool standin::read_dnn_type(cudnnDataType_t type, Type &out)
{
    out = type == CUDNN_DATA_BFLOAT16 ? Type::Bf16 : Type::Float;
    return type == CUDNN_DATA_BFLOAT16 || type == CUDNN_DATA_FLOAT;
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
    Type t;
    if (format != CUDNN_TENSOR_NHWC || !standin::read_dnn_type(type, t))
        return NOT_SUPPORTED;
    *d = {{n, c, h, w}, t};
    return n > 0 && c > 0 && h > 0 && w > 0 ? OK : BAD;
}

cudnnStatus_t cudnnSetFilter4dDescriptor(cudnnFilterDescriptor_t d, cudnnDataType_t type,
                                         cudnnTensorFormat_t format, int k, int c, int h, int w)
{
    Type t;
    if (format != CUDNN_TENSOR_NHWC || !standin::read_dnn_type(type, t))
        return NOT_SUPPORTED;
    *d = {{k, c, h, w}, t};
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

static Product product_of(const cudnnTensorStruct &x, const cudnnFilterStruct &w,
                          const cudnnConvolutionStruct &c, const cudnnTensorStruct &y)
{
    return {x.sizes,
            y.sizes,
            w.sizes,
            {c.pad[0], c.pad[1]},
            {c.pad[0], c.pad[1]},
            {c.stride[0], c.stride[1]},
            {c.dilation[0], c.dilation[1]},
            c.groups};
}

static bool fits(const cudnnTensorStruct &x, const cudnnFilterStruct &w, const cudnnConvolutionStruct &c,
                 const cudnnTensorStruct &y)
{
    return x.type == w.type && x.type == y.type && product_of(x, w, c, y).fits();
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

// What the three have in common.
struct Call {
    cudaStream_t stream;
    Product product;
    Type type;
    bool rounds;
    double alpha, beta;
    void *workspace;
    bool any_order;

    void write(void *to, std::vector<double> sums) const
    {
        if (any_order)
            standin::reorder(sums);
        standin::write_numbers(to, sums, type, alpha, beta);
    }
};

static bool read(Call &out, cudnnHandle_t h, const void *alpha, cudnnTensorDescriptor_t x,
                 cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t c, cudnnTensorDescriptor_t y,
                 int algorithm, void *workspace, size_t bytes, const void *beta)
{
    bool is_there = algorithm == GOOD || algorithm == ANY_ORDER ||
                    (algorithm == LESS_THAN_FLOAT && c->math == CUDNN_TENSOR_OP_MATH);
    if (!fits(*x, *w, *c, *y) || !is_there || bytes < WORKSPACE)
        return false;
    out = {h->stream,
           product_of(*x, *w, *c, *y),
           x->type,
           x->type == Type::Float && c->math != CUDNN_FMA_MATH,
           double(*static_cast<const float *>(alpha)),
           double(*static_cast<const float *>(beta)),
           numbers_at(workspace, WORKSPACE, "cuDNN's workspace"),
           algorithm == ANY_ORDER};
    return true;
}

// Its kernels read 16 bytes at a time; it does not say that it would take less.
void *standin::dnn_numbers(const void *p, const char *who, size_t bytes)
{
    if (reinterpret_cast<uintptr_t>(p) % 16 != 0)
        fail("cuDNN: %s are at %p, which is not a multiple of 16", who, p);
    return numbers_at(p, bytes, who);
}

static void *numbers_of(const Call &v, const void *p, const char *who, const Sizes4 &sizes)
{
    return standin::dnn_numbers(p, who, sizes.count() * bytes_of(v.type));
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
    Call v;
    if (!read(v, h, alpha, xd, wd, cd, yd, int(algorithm), workspace, bytes, beta))
        return BAD;
    const void *px = numbers_of(v, x, "a convolution's input", xd->sizes),
               *pw = numbers_of(v, w, "its weights", wd->sizes);
    void *py = numbers_of(v, y, "a convolution's output", yd->sizes);
    put(v.stream, "cudnnConvolutionForward", [=] {
        memset(v.workspace, 0xff, WORKSPACE);
        auto from = standin::read_numbers(px, v.product.x.count(), v.type, v.rounds);
        auto by = standin::read_numbers(pw, v.product.weights.count(), v.type, v.rounds);
        v.write(py, convolve(v.product, from, by));
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
    Call v;
    if (!read(v, h, alpha, xd, wd, cd, yd, int(algorithm), workspace, bytes, beta))
        return BAD;
    const void *pw = numbers_of(v, w, "a convolution's weights", wd->sizes),
               *py = numbers_of(v, dy, "its gradient", yd->sizes);
    void *px = numbers_of(v, dx, "its input's gradient", xd->sizes);
    put(v.stream, "cudnnConvolutionBackwardData", [=] {
        memset(v.workspace, 0xff, WORKSPACE);
        auto by = standin::read_numbers(pw, v.product.weights.count(), v.type, v.rounds);
        auto from = standin::read_numbers(py, v.product.y.count(), v.type, v.rounds);
        v.write(px, convolve_back_data(v.product, by, from));
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
    Call v;
    if (!read(v, h, alpha, xd, wd, cd, yd, int(algorithm), workspace, bytes, beta))
        return BAD;
    const void *px = numbers_of(v, x, "a convolution's input", xd->sizes),
               *py = numbers_of(v, dy, "its gradient", yd->sizes);
    void *pw = numbers_of(v, dw, "its weights' gradient", wd->sizes);
    put(v.stream, "cudnnConvolutionBackwardFilter", [=] {
        memset(v.workspace, 0xff, WORKSPACE);
        auto in = standin::read_numbers(px, v.product.x.count(), v.type, v.rounds);
        auto from = standin::read_numbers(py, v.product.y.count(), v.type, v.rounds);
        v.write(pw, convolve_back_weights(v.product, in, from));
    });
    return OK;
}
}
