/* conv.c: convolutions with cuDNN, or with our own kernels for shapes that it does not support. The
 * implementation and algorithm are chosen when the net is created, separately for each of the three products.
 *
 * cuDNN's legacy API has one padding per dimension. If the two ends differ, the input is copied into a zeroed
 * buffer first. */
#include "nets/cuda/cuda.h"

#include <errno.h>

/* How one product is computed. */
struct product {
    bool is_own; /* computed by kernels.cuh */
    int algorithm;
    cudnnMathType_t math; /* that the descriptor must have for it */
    size_t workspace;
};

struct conv {
    cudnnTensorDescriptor_t in, out;
    cudnnFilterDescriptor_t weight;
    cudnnConvolutionDescriptor_t conv;
    struct product forward, back_data, back_weights;
    struct cnn_cuda_window window; /* as run: over the padded input, if there is one */
    struct cnn_cuda_window pad;    /* input -> padded input */
    bool is_padded, is_turned;     /* is_turned: weights are copied from x to another order or type */
    void *weights;                 /* in cuDNN's order; NULL: x is used */
};

static bool pads_differ(const struct cnn_layer *l)
{
    return l->window.pad[0] != l->window.pad_end[0] || l->window.pad[1] != l->window.pad_end[1];
}

static size_t padded_bytes(const struct cnn_layer *l, const struct cnn_setup *setup)
{
    const struct cnn_window *w = &l->window;
    size_t h = (size_t)l->in.h + w->pad[0] + w->pad_end[0],
           wide = (size_t)l->in.w + w->pad[1] + w->pad_end[1];
    return pads_differ(l) ? setup->batch * h * wide * l->in.c * cnn_cuda_value_bytes(setup->precision) : 0;
}

/* The padded input is kept for the weights' gradient. Its gradient is computed padded, too. */
static void needs(const struct cnn_setup *setup, const struct cnn_layer *l, struct cnn_needs *out)
{
    size_t padded = padded_bytes(l, setup);

    if (padded == 0) {
        out->back_reads_in = l->trains ? CNN_READS_VALUE : CNN_READS_NOTHING;
        return;
    }
    out->kept_bytes = padded;
    out->back_work_bytes = l->wants_din ? padded : 0;
}

static void set_windows(const struct cnn_layer *l, uint32_t batch, struct conv *c)
{
    c->window = c->pad = cnn_cuda_window_of(l, batch);
    c->is_padded = pads_differ(l);
    if (!c->is_padded)
        return;
    c->pad.out = c->pad.in;
    c->pad.out.h += l->window.pad[0] + l->window.pad_end[0];
    c->pad.out.w += l->window.pad[1] + l->window.pad_end[1];
    c->window.in = c->pad.out;
    for (int d = 0; d < 2; d++)
        c->window.pad[d] = c->window.pad_end[d] = 0;
}

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

static cudnnStatus_t describe(const struct cnn_cuda *d, struct conv *c)
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

/* Accepts an algorithm if it is available, deterministic, and does not round to less than the net's
 * precision. The descriptor forbids such rounding as well; at float32, algorithms of the default math type
 * follow the descriptor. CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION, which may round to half, is never accepted.
 */
static bool is_good(const struct cnn_cuda *d, cudnnStatus_t status, cudnnDeterminism_t determinism,
                    cudnnMathType_t math)
{
    return status == CUDNN_STATUS_SUCCESS && determinism == CUDNN_DETERMINISTIC &&
           (math == CUDNN_FMA_MATH || math == CUDNN_DEFAULT_MATH ||
            (math == CUDNN_TENSOR_OP_MATH && d->precision != CNN_FLOAT32));
}

/* Sets the descriptor for an algorithm: at float32 always the same. */
static cudnnStatus_t use_math(const struct cnn_cuda *d, struct conv *c, cudnnMathType_t math)
{
    return d->precision != CNN_FLOAT32 ? cudnnSetConvolutionMathType(c->conv, math) : CUDNN_STATUS_SUCCESS;
}

/* Accepts an algorithm that fits into the workspace. */
static bool takes(struct product *p, cudnnStatus_t status, const size_t *bytes, int algorithm,
                  cudnnMathType_t math)
{
    if (status != CUDNN_STATUS_SUCCESS || *bytes > CNN_CUDA_WORKSPACE)
        return false;
    *p = (struct product){false, algorithm, math, *bytes};
    return true;
}

/* The next three functions take the first acceptable algorithm: the library sorts them by estimated speed. */
static void choose_forward(struct cnn_cuda *d, struct conv *c)
{
    cudnnConvolutionFwdAlgoPerf_t f[MOST_ALGORITHMS];
    size_t bytes = 0;
    int n = 0;

    c->forward.is_own = true;
    if (use_math(d, c, math_of(d)) != CUDNN_STATUS_SUCCESS ||
        cudnnGetConvolutionForwardAlgorithm_v7(d->dnn, c->in, c->weight, c->conv, c->out, MOST_ALGORITHMS, &n,
                                               f) != CUDNN_STATUS_SUCCESS)
        return;
    for (int i = 0; i < n; i++)
        if (is_good(d, f[i].status, f[i].determinism, f[i].mathType) &&
            use_math(d, c, f[i].mathType) == CUDNN_STATUS_SUCCESS &&
            takes(&c->forward,
                  cudnnGetConvolutionForwardWorkspaceSize(d->dnn, c->in, c->weight, c->conv, c->out,
                                                          f[i].algo, &bytes),
                  &bytes, (int)f[i].algo, f[i].mathType))
            return;
}

static void choose_back_data(struct cnn_cuda *d, struct conv *c)
{
    cudnnConvolutionBwdDataAlgoPerf_t f[MOST_ALGORITHMS];
    size_t bytes = 0;
    int n = 0;

    c->back_data.is_own = true;
    if (use_math(d, c, math_of(d)) != CUDNN_STATUS_SUCCESS ||
        cudnnGetConvolutionBackwardDataAlgorithm_v7(d->dnn, c->weight, c->out, c->conv, c->in,
                                                    MOST_ALGORITHMS, &n, f) != CUDNN_STATUS_SUCCESS)
        return;
    for (int i = 0; i < n; i++)
        if (is_good(d, f[i].status, f[i].determinism, f[i].mathType) &&
            use_math(d, c, f[i].mathType) == CUDNN_STATUS_SUCCESS &&
            takes(&c->back_data,
                  cudnnGetConvolutionBackwardDataWorkspaceSize(d->dnn, c->weight, c->out, c->conv, c->in,
                                                               f[i].algo, &bytes),
                  &bytes, (int)f[i].algo, f[i].mathType))
            return;
}

static void choose_back_weights(struct cnn_cuda *d, struct conv *c)
{
    cudnnConvolutionBwdFilterAlgoPerf_t f[MOST_ALGORITHMS];
    size_t bytes = 0;
    int n = 0;

    c->back_weights.is_own = true;
    if (use_math(d, c, math_of(d)) != CUDNN_STATUS_SUCCESS ||
        cudnnGetConvolutionBackwardFilterAlgorithm_v7(d->dnn, c->in, c->out, c->conv, c->weight,
                                                      MOST_ALGORITHMS, &n, f) != CUDNN_STATUS_SUCCESS)
        return;
    for (int i = 0; i < n; i++)
        if (is_good(d, f[i].status, f[i].determinism, f[i].mathType) &&
            use_math(d, c, f[i].mathType) == CUDNN_STATUS_SUCCESS &&
            takes(&c->back_weights,
                  cudnnGetConvolutionBackwardFilterWorkspaceSize(d->dnn, c->in, c->out, c->conv, c->weight,
                                                                 f[i].algo, &bytes),
                  &bytes, (int)f[i].algo, f[i].mathType))
            return;
}

/* Weights of one channel or one tap are already in cuDNN's order. But cuDNN reads 16 bytes at a time, and
 * weights in x may not be aligned. */
static bool needs_turning(const struct cnn_cuda *d, const struct cnn_layer *l)
{
    return d->type != CNN_CUDA_FLOAT || l->weight_at * sizeof(float) % 16 != 0 ||
           (l->weight_shape[1] > 1 && l->weight_shape[2] * l->weight_shape[3] > 1);
}

static void use_workspace(struct cnn_cuda *d, const struct product *p)
{
    if (p->workspace > d->workspace_bytes)
        d->workspace_bytes = p->workspace;
}

static int create(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    struct conv *c = l->state;
    const struct cnn_layer *p = l->plan;

    set_windows(p, d->batch, c);
    int rc = cnn_cuda_check_dnn(describe(d, c), ": describing it", l, err);
    if (rc < 0)
        return rc;
    choose_forward(d, c);
    use_workspace(d, &c->forward);
    if (p->wants_din) {
        choose_back_data(d, c);
        use_workspace(d, &c->back_data);
    }
    if (p->trains) {
        choose_back_weights(d, c);
        use_workspace(d, &c->back_weights);
    }
    c->is_turned = needs_turning(d, p);
    return c->is_turned ? cnn_cuda_alloc(d, p->n_weights * d->value_bytes, &c->weights, err) : 0;
}

static void destroy(struct cnn_cuda_layer *l)
{
    struct conv *c = l->state;

    if (c->in != NULL)
        cudnnDestroyTensorDescriptor(c->in);
    if (c->out != NULL)
        cudnnDestroyTensorDescriptor(c->out);
    if (c->weight != NULL)
        cudnnDestroyFilterDescriptor(c->weight);
    if (c->conv != NULL)
        cudnnDestroyConvolutionDescriptor(c->conv);
}

static int run_forward(struct cnn_cuda *d, struct cnn_cuda_layer *l, const void *in, const void *weights,
                       struct ps_error *err)
{
    struct conv *c = l->state;
    const float one = 1, zero = 0;

    if (c->forward.is_own)
        return cnn_cuda_check(cu_conv(d->compute, d->type, c->window, in, weights, l->out), ": forward", l,
                              err);
    int rc = cnn_cuda_check_dnn(use_math(d, c, c->forward.math), ": forward", l, err);
    if (rc < 0)
        return rc;
    return cnn_cuda_check_dnn(cudnnConvolutionForward(d->dnn, &one, c->in, in, c->weight, weights, c->conv,
                                                      (cudnnConvolutionFwdAlgo_t)c->forward.algorithm,
                                                      d->workspace, c->forward.workspace, &zero, c->out,
                                                      l->out),
                              ": forward", l, err);
}

static int run_back_data(struct cnn_cuda *d, struct cnn_cuda_layer *l, const void *weights, void *din,
                         struct ps_error *err)
{
    struct conv *c = l->state;
    const float one = 1, zero = 0;

    if (c->back_data.is_own)
        return cnn_cuda_check(cu_conv_back_data(d->compute, d->type, c->window, weights, l->dout, din),
                              ": backward", l, err);
    int rc = cnn_cuda_check_dnn(use_math(d, c, c->back_data.math), ": backward", l, err);
    if (rc < 0)
        return rc;
    return cnn_cuda_check_dnn(
        cudnnConvolutionBackwardData(d->dnn, &one, c->weight, weights, c->out, l->dout, c->conv,
                                     (cudnnConvolutionBwdDataAlgo_t)c->back_data.algorithm, d->workspace,
                                     c->back_data.workspace, &zero, c->in, din),
        ": backward", l, err);
}

static int run_back_weights(struct cnn_cuda *d, struct cnn_cuda_layer *l, const void *in, void *dweights,
                            struct ps_error *err)
{
    struct conv *c = l->state;
    const float one = 1, zero = 0;

    if (c->back_weights.is_own)
        return cnn_cuda_check(cu_conv_back_weights(d->compute, d->type, c->window, in, l->dout, dweights),
                              ": backward", l, err);
    int rc = cnn_cuda_check_dnn(use_math(d, c, c->back_weights.math), ": backward", l, err);
    if (rc < 0)
        return rc;
    return cnn_cuda_check_dnn(
        cudnnConvolutionBackwardFilter(d->dnn, &one, c->in, in, c->out, l->dout, c->conv,
                                       (cudnnConvolutionBwdFilterAlgo_t)c->back_weights.algorithm,
                                       d->workspace, c->back_weights.workspace, &zero, c->weight, dweights),
        ": backward", l, err);
}

/* The weights in the order that the products read. */
static const void *weights_of(const struct cnn_cuda *d, const struct cnn_cuda_layer *l)
{
    const struct conv *c = l->state;
    return c->is_turned ? c->weights : d->x + l->plan->weight_at;
}

static int forward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    struct conv *c = l->state;
    const struct cnn_layer *p = l->plan;
    const uint32_t deep = (uint32_t)p->weight_shape[1],
                   taps = (uint32_t)(p->weight_shape[2] * p->weight_shape[3]);
    cudaError_t e = cudaSuccess;

    if (c->is_turned)
        e = cu_turn_in(d->compute, d->type, p->n_weights, deep, taps, d->x + p->weight_at, c->weights);
    if (e == cudaSuccess && c->is_padded)
        e = cu_pad(d->compute, d->type, c->pad, l->in[0], l->kept);
    int rc = cnn_cuda_check(e, ": forward", l, err);
    if (rc == 0)
        rc = run_forward(d, l, c->is_padded ? l->kept : l->in[0], weights_of(d, l), err);
    if (rc < 0 || p->n_biases == 0)
        return rc;
    return cnn_cuda_check(
        cu_bias(d->compute, d->type, cnn_cuda_count(d, p->out), p->out.c, d->x + p->bias_at, l->out),
        ": forward", l, err);
}

static int back_weights(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    struct conv *c = l->state;
    const struct cnn_layer *p = l->plan;
    const uint32_t deep = (uint32_t)p->weight_shape[1],
                   taps = (uint32_t)(p->weight_shape[2] * p->weight_shape[3]);
    void *dweights = c->is_turned ? d->turned : d->g + p->weight_at;
    int rc = run_back_weights(d, l, c->is_padded ? l->kept : l->in[0], dweights, err);
    cudaError_t e = cudaSuccess;

    if (rc < 0)
        return rc;
    if (c->is_turned)
        e = cu_turn_out(d->compute, d->type, p->n_weights, taps, deep, d->turned, d->g + p->weight_at);
    if (e == cudaSuccess && p->n_biases > 0)
        e = cu_bias_back(d->compute, d->type, (uint64_t)d->batch * p->out.h * p->out.w, p->out.c, l->dout,
                         d->part, d->g + p->bias_at);
    return cnn_cuda_check(e, ": backward", l, err);
}

static int backward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    struct conv *c = l->state;
    int rc = l->plan->trains ? back_weights(d, l, err) : 0;

    if (rc < 0 || l->din[0] == NULL)
        return rc;
    rc = run_back_data(d, l, weights_of(d, l), c->is_padded ? l->back_work : l->din[0], err);
    if (rc < 0 || !c->is_padded)
        return rc;
    return cnn_cuda_check(cu_crop(d->compute, d->type, c->pad, l->back_work, l->din[0]), ": backward", l,
                          err);
}

const struct cnn_cuda_kind cnn_cuda_conv = {sizeof(struct conv), needs, create, destroy, forward, backward};
