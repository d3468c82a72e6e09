/* blas.h: products of matrices by cuBLASLt. Private to nets/cuda. */
#ifndef CNN_CUDA_BLAS_H
#define CNN_CUDA_BLAS_H

#include "nets/cuda/cuda.h"

/* out [m][n] = a b over k products, by columns: a is [m][k], or with turns_a [k][m]; b likewise. All lie on
 * the device for as long as the net does, or until it is bound to others. */
struct cnn_cuda_factors {
    uint64_t m, n, k;
    bool turns_a, turns_b;
    const void *a, *b; /* of the net's type */
    void *out;
    enum cnn_cuda_type out_type;
    const void *bias;                /* [m], of out's type; NULL: none */
    enum cnn_cuda_epilogue epilogue; /* what may be computed with the product */
};

/* The ways to compute it: an algorithm, with some of the epilogue or all of it. */
#define CNN_CUDA_MOST_ALGORITHMS 3
struct cnn_cuda_multiplication {
    struct cnn_cuda_factors of;
    cublasLtMatrixLayout_t a, b, out;
    cublasLtMatmulDesc_t calls[CNN_CUDA_BIAS_RELU + 1]; /* with each epilogue */
    struct cnn_cuda_algorithm {
        enum cnn_cuda_epilogue epilogue;
        cublasLtMatmulAlgo_t algorithm;
        size_t workspace;
    } ways[CNN_CUDA_MOST_ALGORITHMS * (CNN_CUDA_BIAS_RELU + 1)];
    size_t n, chosen;
};

/* Lists the ways, and raises d->workspace_bytes to what they need. -ENOTSUP if cuBLASLt has none. */
int cnn_cuda_multiplication_init(struct cnn_cuda *d, struct cnn_cuda_layer *l,
                                 const struct cnn_cuda_factors *of, struct cnn_cuda_multiplication *out,
                                 struct ps_error *err);
/* The same product of other memory, which is aligned likewise. */
cublasStatus_t cnn_cuda_multiplication_bind(struct cnn_cuda_multiplication *m,
                                            const struct cnn_cuda_factors *of);
void cnn_cuda_multiplication_finish(struct cnn_cuda_multiplication *m);
/* Chooses a way (search.c), when the workspace is there. A way whose ReLU loses a NaN is not taken. */
int cnn_cuda_multiplication_choose(struct cnn_cuda *d, struct cnn_cuda_layer *l, const char *product,
                                   struct cnn_cuda_multiplication *m, struct ps_error *err);
/* Enqueues the product. The caller computes what it leaves of the epilogue. */
int cnn_cuda_multiply(struct cnn_cuda *d, struct cnn_cuda_layer *l, const struct cnn_cuda_multiplication *m,
                      const char *what, struct ps_error *err);
static inline enum cnn_cuda_epilogue cnn_cuda_multiplied(const struct cnn_cuda_multiplication *m)
{
    return m->ways[m->chosen].epilogue;
}

#endif
