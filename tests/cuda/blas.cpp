// blas.cpp: cuBLASLt's product, of matrices by columns, with a bias and a ReLU behind it.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <utility>
#include <vector>

#include <cublasLt.h>

#include "tests/cuda/products.h"
#include "tests/cuda/standin.h"

using standin::fail;
using standin::numbers_at;
using standin::Type;

namespace
{

const cublasStatus_t OK = CUBLAS_STATUS_SUCCESS, BAD = CUBLAS_STATUS_INVALID_VALUE,
                     NOT_SUPPORTED = CUBLAS_STATUS_NOT_SUPPORTED;
const size_t WORKSPACE = 3000; // every algorithm wants so much, and spoils it

// In the order that the heuristics name them; those that the preference excludes are left out.
enum Algorithm { UNUSABLE, HUGE_ONE, SUMS_IN_OUTPUT, LOSES_NAN, GOOD, ALSO_GOOD, N_ALGORITHMS };

// The descriptors: attributes by name.
struct Described {
    cublasComputeType_t compute{};
    std::map<int, std::vector<char>> attributes;

    template <class T> T get(int name, T otherwise) const
    {
        auto it = attributes.find(name);
        if (it != attributes.end())
            memcpy(&otherwise, it->second.data(), sizeof otherwise);
        return otherwise;
    }
    cublasStatus_t set(int name, const void *value, size_t bytes)
    {
        attributes[name].assign(static_cast<const char *>(value), static_cast<const char *>(value) + bytes);
        return OK;
    }
};

struct Layout {
    Type type;
    uint64_t rows, columns;
    int64_t ld;
    bool is_known; // the stand-in has the type
    // Numbers from the first to the last.
    size_t span() const
    {
        return size_t(columns - 1) * size_t(ld) + size_t(rows);
    }
};

// What an algorithm was named for: cublasLtMatmulAlgo_t::data.
struct Named {
    uint64_t algorithm, alignment_a, alignment_b, alignment_out, epilogue, m, n, k;
};
static_assert(sizeof(Named) == sizeof(cublasLtMatmulAlgo_t));

template <class T, class Handle> T *of(Handle h)
{
    return reinterpret_cast<T *>(h);
}

bool turns(const Described &d, cublasLtMatmulDescAttributes_t name)
{
    return d.get<int32_t>(name, CUBLAS_OP_N) != CUBLAS_OP_N;
}

uint64_t inner(const Described &d, const Layout &a)
{
    return turns(d, CUBLASLT_MATMUL_DESC_TRANSA) ? a.rows : a.columns;
}

// The sizes agree, and the types are of cuBLASLt's table for float32 sums: two factors of one type, and a
// result of it or in float32.
bool is_supported(const Described &d, const Layout &a, const Layout &b, const Layout &out)
{
    bool turns_a = turns(d, CUBLASLT_MATMUL_DESC_TRANSA), turns_b = turns(d, CUBLASLT_MATMUL_DESC_TRANSB);
    uint64_t k = inner(d, a);
    bool is_float = a.type == Type::Float;
    bool sums =
        d.compute == CUBLAS_COMPUTE_32F ||
        (is_float && (d.compute == CUBLAS_COMPUTE_32F_PEDANTIC || d.compute == CUBLAS_COMPUTE_32F_FAST_TF32));
    return a.is_known && b.is_known && out.is_known && a.type == b.type && sums &&
           (!is_float || out.type == Type::Float) && (turns_a ? a.columns : a.rows) == out.rows &&
           (turns_b ? b.columns : b.rows) == k && (turns_b ? b.rows : b.columns) == out.columns;
}

bool is_aligned(const void *p, uint64_t alignment)
{
    return reinterpret_cast<uintptr_t>(p) % alignment == 0;
}

} // namespace

extern "C" {

cublasStatus_t cublasLtCreate(cublasLtHandle_t *h)
{
    *h = reinterpret_cast<cublasLtHandle_t>(new char);
    return OK;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    delete of<char>(h);
    return OK;
}

size_t cublasLtGetVersion()
{
    return CUBLAS_VERSION;
}

const char *cublasLtGetStatusString(cublasStatus_t)
{
    return "an error of the stand-in";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    auto *d = new Described;
    d->compute = compute;
    *out = reinterpret_cast<cublasLtMatmulDesc_t>(d);
    return scale == CUDA_R_32F ? OK : NOT_SUPPORTED;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    delete of<Described>(d);
    return OK;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t bytes)
{
    return of<Described>(d)->set(name, value, bytes);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = reinterpret_cast<cublasLtMatmulPreference_t>(new Described);
    return OK;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    delete of<Described>(p);
    return OK;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void *value, size_t bytes)
{
    return of<Described>(p)->set(name, value, bytes);
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type, uint64_t rows,
                                          uint64_t columns, int64_t ld)
{
    *out = reinterpret_cast<cublasLtMatrixLayout_t>(new Layout{type == CUDA_R_16BF ? Type::Bf16 : Type::Float,
                                                               rows, columns, ld,
                                                               type == CUDA_R_16BF || type == CUDA_R_32F});
    return rows > 0 && columns > 0 && ld >= int64_t(rows) ? OK : BAD;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    delete of<Layout>(l);
    return OK;
}

// STANDIN_CUBLAS=none: no algorithm. An algorithm counts on the alignment that the preference names: 256 by
// default.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t call,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t out,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t found[], int *n)
{
    const auto &d = *of<Described>(call), &p = *of<Described>(preference);
    const auto &la = *of<Layout>(a), &lb = *of<Layout>(b), &lo = *of<Layout>(out);
    const char *has = getenv("STANDIN_CUBLAS");
    *n = 0;
    if (!is_supported(d, la, lb, lo) || (has != nullptr && strcmp(has, "none") == 0))
        return NOT_SUPPORTED;
    auto epilogue = d.get<cublasLtEpilogue_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
    auto workspace = p.get<size_t>(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, 0);
    auto schemes =
        p.get<uint32_t>(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, CUBLASLT_REDUCTION_SCHEME_MASK);
    for (int i = 0; i < N_ALGORITHMS && *n < most; i++) {
        if ((i == HUGE_ONE && workspace < size_t(1) << 40) || workspace < WORKSPACE ||
            (i == SUMS_IN_OUTPUT && (schemes & CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE) == 0) ||
            (i == LOSES_NAN && epilogue != CUBLASLT_EPILOGUE_RELU_BIAS))
            continue;
        Named named = {uint64_t(i),
                       p.get<uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, 256),
                       p.get<uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, 256),
                       p.get<uint32_t>(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, 256),
                       uint64_t(epilogue),
                       lo.rows,
                       lo.columns,
                       inner(d, la)};
        auto &to = found[(*n)++];
        to = {};
        memcpy(&to.algo, &named, sizeof named);
        to.workspaceSize = i == HUGE_ONE ? size_t(1) << 40 : WORKSPACE;
        to.state = i == UNUSABLE ? NOT_SUPPORTED : OK;
    }
    return OK;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t call, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t, void *out,
                              cublasLtMatrixLayout_t out_layout, const cublasLtMatmulAlgo_t *algorithm,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    const Described &d = *of<Described>(call);
    const Layout la = *of<Layout>(a_layout), lb = *of<Layout>(b_layout), lo = *of<Layout>(out_layout);
    Named named;
    if (algorithm == nullptr)
        fail("cublasLtMatmul: without an algorithm"); // it would ask its heuristics at each call
    memcpy(&named, algorithm, sizeof named);
    auto epilogue = d.get<cublasLtEpilogue_t>(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_DEFAULT);
    if (!is_supported(d, la, lb, lo) || workspace_bytes < WORKSPACE || named.algorithm == UNUSABLE ||
        named.epilogue != uint64_t(epilogue) || named.m != lo.rows || named.n != lo.columns ||
        named.k != inner(d, la) || c != out)
        return BAD;
    if (!is_aligned(a, named.alignment_a) || !is_aligned(b, named.alignment_b) ||
        !is_aligned(out, named.alignment_out))
        fail("cublasLtMatmul: the algorithm was named for matrices at multiples of %u, %u and %u",
             unsigned(named.alignment_a), unsigned(named.alignment_b), unsigned(named.alignment_out));
    bool has_bias = (epilogue & CUBLASLT_EPILOGUE_BIAS) != 0,
         has_relu = epilogue == CUBLASLT_EPILOGUE_RELU_BIAS;
    const void *bias = d.get<const void *>(CUBLASLT_MATMUL_DESC_BIAS_POINTER, nullptr);
    const void *pa = numbers_at(a, la.span() * bytes_of(la.type), "cublasLtMatmul's A"),
               *pb = numbers_at(b, lb.span() * bytes_of(lb.type), "cublasLtMatmul's B"),
               *pbias = has_bias ? numbers_at(bias, lo.rows * bytes_of(lo.type), "cublasLtMatmul's bias")
                                 : nullptr;
    void *po = numbers_at(out, lo.span() * bytes_of(lo.type), "cublasLtMatmul's D");
    void *pw = numbers_at(workspace, WORKSPACE, "cublasLtMatmul's workspace");
    double al = double(*static_cast<const float *>(alpha)), be = double(*static_cast<const float *>(beta));
    bool rounds = d.compute == CUBLAS_COMPUTE_32F_FAST_TF32, loses_nan = named.algorithm == LOSES_NAN;
    size_t m = lo.rows, n = lo.columns, k = named.k;
    size_t row_a = 1, step_a = size_t(la.ld), column_b = size_t(lb.ld), step_b = 1;
    if (turns(d, CUBLASLT_MATMUL_DESC_TRANSA))
        std::swap(row_a, step_a);
    if (turns(d, CUBLASLT_MATMUL_DESC_TRANSB))
        std::swap(column_b, step_b);
    return standin::put(stream, "cublasLtMatmul",
                        [=] {
                            std::vector<float> x = standin::read_numbers(pa, la.span(), la.type, rounds),
                                               y = standin::read_numbers(pb, lb.span(), lb.type, rounds), add;
                            if (has_bias)
                                add = standin::read_numbers(pbias, m, lo.type);
                            memset(pw, 0xff, WORKSPACE);
                            std::vector<double> column(m);
                            for (size_t j = 0; j < n; j++) {
                                for (size_t i = 0; i < m; i++) {
                                    const float *xi = x.data() + i * row_a, *yj = y.data() + j * column_b;
                                    double sum = 0;
                                    for (size_t l = 0; l < k; l++)
                                        sum += double(xi[l * step_a]) * double(yj[l * step_b]);
                                    if (has_bias)
                                        sum = double(float(sum) + add[i]);
                                    if (has_relu && (sum < 0 || (loses_nan && sum != sum)))
                                        sum = 0;
                                    column[i] = sum;
                                }
                                standin::write_numbers(static_cast<char *>(po) +
                                                           j * size_t(lo.ld) * bytes_of(lo.type),
                                                       column, lo.type, al, be);
                            }
                        }) == cudaSuccess
               ? OK
               : CUBLAS_STATUS_EXECUTION_FAILED;
}
}
