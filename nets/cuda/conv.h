/* conv.h: a convolution, and the ways to compute its products. Private to nets/cuda. */
#ifndef CNN_CUDA_CONV_H
#define CNN_CUDA_CONV_H

#include "nets/cuda/cuda.h"

/* One way to compute a product. */
struct cnn_cuda_way {
    enum { CNN_CUDA_BY_GRAPH, CNN_CUDA_BY_CLASSIC, CNN_CUDA_BY_OWN } by; /* own: kernels.cuh */
    enum cnn_cuda_epilogue epilogue;                                     /* that it computes, too */
    size_t plan;                                                         /* graph: in plans[epilogue] */
    int algorithm;                                                       /* classic */
    cudnnMathType_t math; /* classic: that the descriptor must have */
    size_t workspace;
};

#define CNN_CUDA_MOST_WAYS 16
struct cnn_cuda_ways {
    struct cnn_cuda_way ways[CNN_CUDA_MOST_WAYS];
    size_t n, chosen;
    struct cnn_cuda_plans plans[CNN_CUDA_BIAS_RELU + 1]; /* with each epilogue */
};

struct cnn_cuda_conv_state {
    cudnnTensorDescriptor_t in, out;
    cudnnFilterDescriptor_t weight;
    cudnnConvolutionDescriptor_t conv;
    struct cnn_cuda_ways products[CNN_CUDA_N_PRODUCTS];
    enum cnn_cuda_epilogue epilogue; /* of the forward product, within its plan or after it */
    struct cnn_cuda_window window;
    /* Copies of the weights and of their gradient, in cuDNN's order and the net's type, and of the bias: a
     * plan is bound to them, and not to x and g, of which there may be others at each call. */
    void *weights, *gradient, *bias;
};

/* What a product reads and writes: it computes one of the three from the others. */
struct cnn_cuda_tensors {
    void *in, *weights, *out;
};

/* classic.c: cuDNN's classic calls, for paddings that are the same at both ends. describe makes the
 * descriptors. list adds algorithms, fastest first as the library estimates, that are deterministic and round
 * to no less than the precision. */
cudnnStatus_t cnn_cuda_classic_describe(const struct cnn_cuda *d, struct cnn_cuda_conv_state *c);
void cnn_cuda_classic_list(struct cnn_cuda *d, struct cnn_cuda_conv_state *c, enum cnn_cuda_product product);
cudnnStatus_t cnn_cuda_classic_run(struct cnn_cuda *d, struct cnn_cuda_conv_state *c,
                                   enum cnn_cuda_product product, const struct cnn_cuda_way *way,
                                   const struct cnn_cuda_tensors *t);
void cnn_cuda_classic_finish(struct cnn_cuda_conv_state *c);

#endif
