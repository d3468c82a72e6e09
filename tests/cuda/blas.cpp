// blas.cpp: cuBLAS's product, of matrices by columns. Where the math mode permits tf32, factors are rounded
// to it.
#include <cublas_v2.h>

#include "tests/cuda/products.h"
#include "tests/cuda/standin.h"

using standin::numbers_at;
using standin::Type;

struct cublasContext {
    cudaStream_t stream;
    cublasMath_t math;
};

// Whether the stand-in has the type.
static bool read_type(cudaDataType_t type, Type &out)
{
    out = type == CUDA_R_16BF ? Type::Bf16 : Type::Float;
    return type == CUDA_R_16BF || type == CUDA_R_32F;
}

// Numbers from the first to the last of a matrix whose columns lie ld apart.
static size_t span(int rows, int columns, int ld)
{
    return size_t(columns - 1) * size_t(ld) + size_t(rows);
}

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
    numbers_at(at, bytes, "cublasSetWorkspace");
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

cublasStatus_t cublasGemmEx(cublasHandle_t h, cublasOperation_t ta, cublasOperation_t tb, int m, int n, int k,
                            const void *alpha, const void *a, cudaDataType_t a_type, int lda, const void *b,
                            cudaDataType_t b_type, int ldb, const void *beta, void *c, cudaDataType_t c_type,
                            int ldc, cublasComputeType_t compute, cublasGemmAlgo_t)
{
    Type in, in_b, out;
    bool turns_a = ta != CUBLAS_OP_N, turns_b = tb != CUBLAS_OP_N;
    if (lda < (turns_a ? k : m) || ldb < (turns_b ? n : k) || ldc < m)
        return CUBLAS_STATUS_INVALID_VALUE;
    // Those of cuBLAS's table for float32 sums: two factors of one type, and a result of it or in float32.
    if (!read_type(a_type, in) || !read_type(b_type, in_b) || !read_type(c_type, out) || in != in_b ||
        (in == Type::Float && out != Type::Float) || (in != Type::Float && compute != CUBLAS_COMPUTE_32F) ||
        (compute != CUBLAS_COMPUTE_32F && compute != CUBLAS_COMPUTE_32F_PEDANTIC))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    size_t in_a = turns_a ? span(k, m, lda) : span(m, k, lda),
           n_b = turns_b ? span(n, k, ldb) : span(k, n, ldb);
    const void *pa = numbers_at(a, in_a * bytes_of(in), "cublasGemmEx's A");
    const void *pb = numbers_at(b, n_b * bytes_of(in), "cublasGemmEx's B");
    void *pc = numbers_at(c, span(m, n, ldc) * bytes_of(out), "cublasGemmEx's C");
    double al = double(*static_cast<const float *>(alpha)), be = double(*static_cast<const float *>(beta));
    bool rounds = h->math == CUBLAS_TF32_TENSOR_OP_MATH && compute != CUBLAS_COMPUTE_32F_PEDANTIC;
    return standin::put(h->stream, "cublasGemmEx",
                        [=] {
                            std::vector<float> x = standin::read_numbers(pa, in_a, in, rounds),
                                               y = standin::read_numbers(pb, n_b, in, rounds);
                            size_t step_a = turns_a ? 1 : size_t(lda), step_b = turns_b ? size_t(ldb) : 1;
                            std::vector<double> column(size_t(m), 0.0);
                            for (int j = 0; j < n; j++) {
                                for (int i = 0; i < m; i++) {
                                    const float *xi = x.data() + size_t(i) * (turns_a ? size_t(lda) : 1);
                                    const float *yj = y.data() + size_t(j) * (turns_b ? 1 : size_t(ldb));
                                    double sum = 0;
                                    for (size_t l = 0; l < size_t(k); l++)
                                        sum += double(xi[l * step_a]) * double(yj[l * step_b]);
                                    column[size_t(i)] = sum;
                                }
                                standin::write_numbers(static_cast<char *>(pc) +
                                                           size_t(j) * size_t(ldc) * bytes_of(out),
                                                       column, out, al, be);
                            }
                        }) == cudaSuccess
               ? CUBLAS_STATUS_SUCCESS
               : CUBLAS_STATUS_EXECUTION_FAILED;
}
}
