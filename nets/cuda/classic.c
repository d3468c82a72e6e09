/* classic.c: convolutions with the classic calls of cuDNN. These have one padding per dimension. */
#include "nets/cuda/conv.h"

static cudnnDataType_t dnn_type(const struct cnn_cuda *d)
{
    return d->type == CNN_CUDA_BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT;
}

static cudnnStatus_t describe_tensor(const struct cnn_cuda *d, struct cnn_cuda_shape s,
                                     cudnnTensorDescriptor_t *t)
{
    cudnnStatus_t st = cudnnCreateTensorDescriptor(t);
    return st != CUDNN_STATUS_SUCCESS ? st
                                      : cudnnSetTensor4dDescriptor(*t, CUDNN_TENSOR_NHWC, dnn_type(d),
                                                                   (int)s.n, (int)s.c, (int)s.h, (int)s.w);
}

/* What the algorithms of a net may be: CUDNN_DEFAULT_MATH permits tf32 for float32, and tensor cores for
 * bf16. */
static cudnnMathType_t math_of(const struct cnn_cuda *d)
{
    return d->precision == CNN_FLOAT32 ? CUDNN_FMA_MATH : CUDNN_DEFAULT_MATH;
}

cudnnStatus_t cnn_cuda_classic_describe(const struct cnn_cuda *d, struct cnn_cuda_conv_state *c)
{
    const struct cnn_cuda_window *w = &c->window;
    cudnnStatus_t st = describe_tensor(d, w->in, &c->in);

    if (st == CUDNN_STATUS_SUCCESS)
        st = describe_tensor(d, w->out, &c->out);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnnCreateFilterDescriptor(&c->weight);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnnSetFilter4dDescriptor(c->weight, dnn_type(d), CUDNN_TENSOR_NHWC, (int)w->out.c,
                                        (int)(w->in.c / w->groups), w->kernel[0], w->kernel[1]);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnnCreateConvolutionDescriptor(&c->conv);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnnSetConvolution2dDescriptor(c->conv, w->pad[0], w->pad[1], w->stride[0], w->stride[1],
                                             w->dilation[0], w->dilation[1], CUDNN_CROSS_CORRELATION,
                                             CUDNN_DATA_FLOAT);
    if (st == CUDNN_STATUS_SUCCESS)
        st = cudnnSetConvolutionGroupCount(c->conv, (int)w->groups);
    return st == CUDNN_STATUS_SUCCESS ? cudnnSetConvolutionMathType(c->conv, math_of(d)) : st;
}

#define MOST_ALGORITHMS 16
/* Algorithms of one product that are compared. */
#define MOST_LISTED 2

/* Accepts an algorithm if it is available, deterministic where it must be, and does not round to less than
 * the net's precision. The descriptor forbids such rounding as well; at float32, algorithms of the default
 * math type follow the descriptor. CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION, which may round to half, is never
 * accepted. is_winograd: with tiles of more than 4 x 4; their rounding is a hundred times that of float32.
 */
static bool is_good(const struct cnn_cuda *d, cudnnStatus_t status, cudnnDeterminism_t determinism,
                    cudnnMathType_t math, bool is_winograd)
{
    return status == CUDNN_STATUS_SUCCESS && (d->any_order || determinism == CUDNN_DETERMINISTIC) &&
           !(is_winograd && d->precision == CNN_FLOAT32) &&
           (math == CUDNN_FMA_MATH || math == CUDNN_DEFAULT_MATH ||
            (math == CUDNN_TENSOR_OP_MATH && d->precision != CNN_FLOAT32));
}

/* Sets the descriptor for an algorithm: at float32 always the same. */
static cudnnStatus_t use_math(const struct cnn_cuda *d, struct cnn_cuda_conv_state *c, cudnnMathType_t math)
{
    return d->precision != CNN_FLOAT32 ? cudnnSetConvolutionMathType(c->conv, math) : CUDNN_STATUS_SUCCESS;
}

/* Adds an algorithm that fits into the workspace. Whether more are wanted. */
static bool add(struct cnn_cuda_ways *w, cudnnStatus_t status, const size_t *bytes, int algorithm,
                cudnnMathType_t math, size_t *listed)
{
    if (status == CUDNN_STATUS_SUCCESS && *bytes <= CNN_CUDA_WORKSPACE && w->n < CNN_CUDA_MOST_WAYS) {
        w->ways[w->n++] = (struct cnn_cuda_way){
            .by = CNN_CUDA_BY_CLASSIC, .algorithm = algorithm, .math = math, .workspace = *bytes};
        ++*listed;
    }
    return *listed < MOST_LISTED;
}

static void list_forward(struct cnn_cuda *d, struct cnn_cuda_conv_state *c, struct cnn_cuda_ways *w)
{
    cudnnConvolutionFwdAlgoPerf_t f[MOST_ALGORITHMS];
    size_t bytes = 0, listed = 0;
    int n = 0;

    if (cudnnGetConvolutionForwardAlgorithm_v7(d->dnn, c->in, c->weight, c->conv, c->out, MOST_ALGORITHMS, &n,
                                               f) != CUDNN_STATUS_SUCCESS)
        return;
    for (int i = 0; i < n; i++)
        if (is_good(d, f[i].status, f[i].determinism, f[i].mathType,
                    f[i].algo == CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED) &&
            use_math(d, c, f[i].mathType) == CUDNN_STATUS_SUCCESS &&
            !add(w,
                 cudnnGetConvolutionForwardWorkspaceSize(d->dnn, c->in, c->weight, c->conv, c->out, f[i].algo,
                                                         &bytes),
                 &bytes, (int)f[i].algo, f[i].mathType, &listed))
            return;
}

static void list_back_data(struct cnn_cuda *d, struct cnn_cuda_conv_state *c, struct cnn_cuda_ways *w)
{
    cudnnConvolutionBwdDataAlgoPerf_t f[MOST_ALGORITHMS];
    size_t bytes = 0, listed = 0;
    int n = 0;

    if (cudnnGetConvolutionBackwardDataAlgorithm_v7(d->dnn, c->weight, c->out, c->conv, c->in,
                                                    MOST_ALGORITHMS, &n, f) != CUDNN_STATUS_SUCCESS)
        return;
    for (int i = 0; i < n; i++)
        if (is_good(d, f[i].status, f[i].determinism, f[i].mathType,
                    f[i].algo == CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED) &&
            use_math(d, c, f[i].mathType) == CUDNN_STATUS_SUCCESS &&
            !add(w,
                 cudnnGetConvolutionBackwardDataWorkspaceSize(d->dnn, c->weight, c->out, c->conv, c->in,
                                                              f[i].algo, &bytes),
                 &bytes, (int)f[i].algo, f[i].mathType, &listed))
            return;
}

static void list_back_weights(struct cnn_cuda *d, struct cnn_cuda_conv_state *c, struct cnn_cuda_ways *w)
{
    cudnnConvolutionBwdFilterAlgoPerf_t f[MOST_ALGORITHMS];
    size_t bytes = 0, listed = 0;
    int n = 0;

    if (cudnnGetConvolutionBackwardFilterAlgorithm_v7(d->dnn, c->in, c->out, c->conv, c->weight,
                                                      MOST_ALGORITHMS, &n, f) != CUDNN_STATUS_SUCCESS)
        return;
    for (int i = 0; i < n; i++)
        if (is_good(d, f[i].status, f[i].determinism, f[i].mathType,
                    f[i].algo == CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED) &&
            use_math(d, c, f[i].mathType) == CUDNN_STATUS_SUCCESS &&
            !add(w,
                 cudnnGetConvolutionBackwardFilterWorkspaceSize(d->dnn, c->in, c->out, c->conv, c->weight,
                                                                f[i].algo, &bytes),
                 &bytes, (int)f[i].algo, f[i].mathType, &listed))
            return;
}

void cnn_cuda_classic_list(struct cnn_cuda *d, struct cnn_cuda_conv_state *c, enum cnn_cuda_product product)
{
    static void (*const list[])(struct cnn_cuda *, struct cnn_cuda_conv_state *, struct cnn_cuda_ways *) = {
        [CNN_CUDA_FORWARD] = list_forward,
        [CNN_CUDA_BACK_DATA] = list_back_data,
        [CNN_CUDA_BACK_WEIGHTS] = list_back_weights,
    };
    if (use_math(d, c, math_of(d)) == CUDNN_STATUS_SUCCESS)
        list[product](d, c, &c->products[product]);
}

cudnnStatus_t cnn_cuda_classic_run(struct cnn_cuda *d, struct cnn_cuda_conv_state *c,
                                   enum cnn_cuda_product product, const struct cnn_cuda_way *way,
                                   const struct cnn_cuda_tensors *t)
{
    const float one = 1, zero = 0;
    cudnnStatus_t st = use_math(d, c, way->math);

    if (st != CUDNN_STATUS_SUCCESS)
        return st;
    if (product == CNN_CUDA_FORWARD)
        return cudnnConvolutionForward(d->dnn, &one, c->in, t->in, c->weight, t->weights, c->conv,
                                       (cudnnConvolutionFwdAlgo_t)way->algorithm, d->workspace,
                                       way->workspace, &zero, c->out, t->out);
    if (product == CNN_CUDA_BACK_DATA)
        return cudnnConvolutionBackwardData(d->dnn, &one, c->weight, t->weights, c->out, t->out, c->conv,
                                            (cudnnConvolutionBwdDataAlgo_t)way->algorithm, d->workspace,
                                            way->workspace, &zero, c->in, t->in);
    return cudnnConvolutionBackwardFilter(d->dnn, &one, c->in, t->in, c->out, t->out, c->conv,
                                          (cudnnConvolutionBwdFilterAlgo_t)way->algorithm, d->workspace,
                                          way->workspace, &zero, c->weight, t->weights);
}

void cnn_cuda_classic_finish(struct cnn_cuda_conv_state *c)
{
    if (c->in != NULL)
        cudnnDestroyTensorDescriptor(c->in);
    if (c->out != NULL)
        cudnnDestroyTensorDescriptor(c->out);
    if (c->weight != NULL)
        cudnnDestroyFilterDescriptor(c->weight);
    if (c->conv != NULL)
        cudnnDestroyConvolutionDescriptor(c->conv);
}
