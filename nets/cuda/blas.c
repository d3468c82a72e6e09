/* blas.c: products of matrices by cuBLASLt. Algorithms are those that its heuristics name, for the alignment
 * that the operands have; the fastest is chosen as for convolutions (search.c). Partial sums are added in
 * float32, in one order. */
#include "nets/cuda/blas.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* An algorithm may count on this many bytes at most. */
#define MOST_ALIGNED 256

static cudaDataType_t blas_type(enum cnn_cuda_type type)
{
    return type == CNN_CUDA_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* Sums are float32 in all. */
static cublasComputeType_t compute_of(const struct cnn_cuda *d)
{
    static const cublasComputeType_t types[] = {
        [CNN_FLOAT32] = CUBLAS_COMPUTE_32F_PEDANTIC, /* factors are not rounded */
        [CNN_TF32] = CUBLAS_COMPUTE_32F_FAST_TF32,
        [CNN_BF16] = CUBLAS_COMPUTE_32F,
    };
    return types[d->precision];
}

static uint32_t alignment_of(const void *p)
{
    uintptr_t lowest = (uintptr_t)p & -(uintptr_t)p;
    return lowest == 0 || lowest > MOST_ALIGNED ? MOST_ALIGNED : (uint32_t)lowest;
}

/* ---- creation */

static cublasStatus_t describe_matrices(const struct cnn_cuda *d, struct cnn_cuda_multiplication *m)
{
    const struct cnn_cuda_factors *f = &m->of;
    const uint64_t a[] = {f->turns_a ? f->k : f->m, f->turns_a ? f->m : f->k},
                   b[] = {f->turns_b ? f->n : f->k, f->turns_b ? f->k : f->n};
    const cudaDataType_t type = blas_type(d->type);
    cublasStatus_t st = cublasLtMatrixLayoutCreate(&m->a, type, a[0], a[1], (int64_t)a[0]);

    if (st == CUBLAS_STATUS_SUCCESS)
        st = cublasLtMatrixLayoutCreate(&m->b, type, b[0], b[1], (int64_t)b[0]);
    return st == CUBLAS_STATUS_SUCCESS
               ? cublasLtMatrixLayoutCreate(&m->out, blas_type(f->out_type), f->m, f->n, (int64_t)f->m)
               : st;
}

static cublasStatus_t describe_call(const struct cnn_cuda *d, struct cnn_cuda_multiplication *m,
                                    enum cnn_cuda_epilogue epilogue)
{
    static const cublasLtEpilogue_t epilogues[] = {CUBLASLT_EPILOGUE_DEFAULT, CUBLASLT_EPILOGUE_BIAS,
                                                   CUBLASLT_EPILOGUE_RELU_BIAS};
    const struct cnn_cuda_factors *f = &m->of;
    const cublasOperation_t a = f->turns_a ? CUBLAS_OP_T : CUBLAS_OP_N,
                            b = f->turns_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    const struct {
        cublasLtMatmulDescAttributes_t name;
        const void *value;
        size_t bytes;
    } all[] = {
        {CUBLASLT_MATMUL_DESC_TRANSA, &a, sizeof a},
        {CUBLASLT_MATMUL_DESC_TRANSB, &b, sizeof b},
        {CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogues[epilogue], sizeof epilogues[0]},
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, &f->bias, sizeof f->bias},
    };
    const size_t n = sizeof all / sizeof all[0] - (epilogue == CNN_CUDA_NOTHING);
    cublasStatus_t st = cublasLtMatmulDescCreate(&m->calls[epilogue], compute_of(d), CUDA_R_32F);

    for (size_t i = 0; i < n && st == CUBLAS_STATUS_SUCCESS; i++)
        st = cublasLtMatmulDescSetAttribute(m->calls[epilogue], all[i].name, all[i].value, all[i].bytes);
    return st;
}

/* What an algorithm may need and do. The partial sums of one that divides k are added in a step of their own,
 * as float32: the other schemes round them to the output's type. */
static cublasStatus_t make_preference(const struct cnn_cuda_factors *f, cublasLtMatmulPreference_t *out)
{
    const size_t workspace = CNN_CUDA_BLAS_WORKSPACE;
    const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t a = alignment_of(f->a), b = alignment_of(f->b), to = alignment_of(f->out);
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } all[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &a, sizeof a},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &b, sizeof b},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &to, sizeof to},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &to, sizeof to},
    };
    cublasStatus_t st = cublasLtMatmulPreferenceCreate(out);

    for (size_t i = 0; i < sizeof all / sizeof all[0] && st == CUBLAS_STATUS_SUCCESS; i++)
        st = cublasLtMatmulPreferenceSetAttribute(*out, all[i].name, all[i].value, all[i].bytes);
    return st;
}

/* An epilogue without an algorithm is no error. */
static void list_ways(struct cnn_cuda *d, struct cnn_cuda_multiplication *m, enum cnn_cuda_epilogue epilogue,
                      cublasLtMatmulPreference_t preference)
{
    cublasLtMatmulHeuristicResult_t found[CNN_CUDA_MOST_ALGORITHMS];
    int n = 0;

    if (cublasLtMatmulAlgoGetHeuristic(d->blas, m->calls[epilogue], m->a, m->b, m->out, m->out, preference,
                                       CNN_CUDA_MOST_ALGORITHMS, found, &n) != CUBLAS_STATUS_SUCCESS)
        return;
    for (int i = 0; i < n; i++) {
        if (found[i].state != CUBLAS_STATUS_SUCCESS || found[i].workspaceSize > CNN_CUDA_BLAS_WORKSPACE)
            continue;
        m->ways[m->n++] = (struct cnn_cuda_algorithm){epilogue, found[i].algo, found[i].workspaceSize};
        if (found[i].workspaceSize > d->workspace_bytes)
            d->workspace_bytes = found[i].workspaceSize;
    }
}

int cnn_cuda_multiplication_init(struct cnn_cuda *d, struct cnn_cuda_layer *l,
                                 const struct cnn_cuda_factors *of, struct cnn_cuda_multiplication *out,
                                 struct ps_error *err)
{
    cublasLtMatmulPreference_t preference = NULL;

    out->of = *of;
    cublasStatus_t st = describe_matrices(d, out);
    if (st == CUBLAS_STATUS_SUCCESS)
        st = make_preference(of, &preference);
    for (int e = (int)of->epilogue; e >= 0 && st == CUBLAS_STATUS_SUCCESS; e--) {
        st = describe_call(d, out, (enum cnn_cuda_epilogue)e);
        if (st == CUBLAS_STATUS_SUCCESS)
            list_ways(d, out, (enum cnn_cuda_epilogue)e, preference);
    }
    if (preference != NULL)
        cublasLtMatmulPreferenceDestroy(preference);
    if (st == CUBLAS_STATUS_SUCCESS && out->n == 0)
        return ps_fail(err, -ENOTSUP,
                       "layer %s: cuBLASLt has no algorithm for a product of %llu x %llu x %llu",
                       l->plan->spec->name, (unsigned long long)of->m, (unsigned long long)of->n,
                       (unsigned long long)of->k);
    return cnn_cuda_check_blas(st, ": describing it", l, err);
}

cublasStatus_t cnn_cuda_multiplication_bind(struct cnn_cuda_multiplication *m,
                                            const struct cnn_cuda_factors *of)
{
    cublasStatus_t st = CUBLAS_STATUS_SUCCESS;

    m->of = *of;
    for (int e = CNN_CUDA_BIAS; e <= CNN_CUDA_BIAS_RELU && st == CUBLAS_STATUS_SUCCESS; e++)
        if (m->calls[e] != NULL)
            st = cublasLtMatmulDescSetAttribute(m->calls[e], CUBLASLT_MATMUL_DESC_BIAS_POINTER, &of->bias,
                                                sizeof of->bias);
    return st;
}

void cnn_cuda_multiplication_finish(struct cnn_cuda_multiplication *m)
{
    cublasLtMatrixLayout_t const layouts[] = {m->a, m->b, m->out};

    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        if (layouts[i] != NULL)
            cublasLtMatrixLayoutDestroy(layouts[i]);
    for (int e = 0; e <= CNN_CUDA_BIAS_RELU; e++)
        if (m->calls[e] != NULL)
            cublasLtMatmulDescDestroy(m->calls[e]);
}

/* ---- running and choosing */

static cublasStatus_t run(struct cnn_cuda *d, const struct cnn_cuda_multiplication *m, size_t way)
{
    const float one = 1, zero = 0;
    const struct cnn_cuda_factors *f = &m->of;
    const struct cnn_cuda_algorithm *w = &m->ways[way];

    return cublasLtMatmul(d->blas, m->calls[w->epilogue], &one, f->a, m->a, f->b, m->b, &zero, f->out, m->out,
                          f->out, m->out, &w->algorithm, d->workspace, w->workspace, d->compute);
}

int cnn_cuda_multiply(struct cnn_cuda *d, struct cnn_cuda_layer *l, const struct cnn_cuda_multiplication *m,
                      const char *what, struct ps_error *err)
{
    return cnn_cuda_check_blas(run(d, m, m->chosen), what, l, err);
}

/* What is searched: struct cnn_cuda_candidates. A way is timed with the kernels for what it leaves of the
 * epilogue. */
struct candidates {
    struct cnn_cuda *d;
    const struct cnn_cuda_multiplication *m;
};

/* An algorithm has no name: a hash of its bytes (FNV-1a). */
static void name_way(void *arg, size_t way, char *to, size_t bytes)
{
    static const char *const epilogues[] = {"", "+bias", "+bias+relu"};
    const struct candidates *k = arg;
    const struct cnn_cuda_algorithm *w = &k->m->ways[way];
    unsigned char raw[sizeof w->algorithm];
    uint64_t hash = 14695981039346656037u;

    memcpy(raw, &w->algorithm, sizeof raw);
    for (size_t i = 0; i < sizeof raw; i++)
        hash = (hash ^ raw[i]) * 1099511628211u;
    snprintf(to, bytes, "lt:%016llx%s", (unsigned long long)hash, epilogues[w->epilogue]);
}

static int run_candidate(void *arg, size_t way)
{
    const struct candidates *k = arg;
    const struct cnn_cuda_factors *f = &k->m->of;
    const enum cnn_cuda_epilogue computed = k->m->ways[way].epilogue;
    const size_t n = f->m * f->n;
    cudaError_t e = cudaSuccess;

    if (run(k->d, k->m, way) != CUBLAS_STATUS_SUCCESS)
        return -EIO;
    if (f->epilogue >= CNN_CUDA_BIAS && computed < CNN_CUDA_BIAS)
        e = cu_bias(k->d->compute, f->out_type, n, (uint32_t)f->m, k->d->x, f->out);
    if (e == cudaSuccess && f->epilogue == CNN_CUDA_BIAS_RELU && computed < CNN_CUDA_BIAS_RELU)
        e = cu_activate(k->d->compute, f->out_type, n, CNN_CUDA_RELU, 0, f->out, f->out);
    return e == cudaSuccess ? 0 : -EIO;
}

/* Whether a bias of NaN comes out of a way's ReLU. cuBLASLt does not say what it does. Nothing of the net has
 * run: its memory may be written. */
static bool keeps_nan(struct cnn_cuda *d, const struct cnn_cuda_multiplication *m, size_t way)
{
    const struct cnn_cuda_factors *f = &m->of;
    const size_t bytes = f->out_type == CNN_CUDA_BF16 ? sizeof(struct cnn_cuda_bf16) : sizeof(float);
    uint32_t bits = 0;
    cudaError_t e = cudaMemsetAsync((void *)(uintptr_t)f->bias, 0xff, f->m * bytes, d->compute);

    if (e != cudaSuccess || run(d, m, way) != CUBLAS_STATUS_SUCCESS)
        return false;
    e = cudaMemcpyAsync(d->host.logits, f->out, bytes, cudaMemcpyDeviceToHost, d->compute);
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(d->compute);
    if (e != cudaSuccess) {
        cudaGetLastError();
        return false;
    }
    memcpy((char *)&bits + sizeof bits - bytes, d->host.logits, bytes); /* a bf16 is the upper half */
    float value;
    memcpy(&value, &bits, sizeof value);
    return isnan(value);
}

int cnn_cuda_multiplication_choose(struct cnn_cuda *d, struct cnn_cuda_layer *l, const char *product,
                                   struct cnn_cuda_multiplication *m, struct ps_error *err)
{
    const struct cnn_cuda_factors *f = &m->of;
    struct candidates k = {d, m};
    char problem[256];
    size_t n = 0;

    for (size_t i = 0; i < m->n; i++)
        if (m->ways[i].epilogue != CNN_CUDA_BIAS_RELU || keeps_nan(d, m, i))
            m->ways[n++] = m->ways[i];
    m->n = n;
    if (n == 0)
        return ps_fail(err, -ENOTSUP, "layer %s: cuBLASLt has no algorithm that works", l->plan->spec->name);
    snprintf(problem, sizeof problem,
             "fc %s cublasLt %zu precision %d m %llu n %llu k %llu out %d epilogue %d%s", product,
             cublasLtGetVersion(), (int)d->precision, (unsigned long long)f->m, (unsigned long long)f->n,
             (unsigned long long)f->k, (int)f->out_type, (int)f->epilogue, d->any_order ? " any order" : "");
    m->chosen = cnn_cuda_search(d, problem, &(struct cnn_cuda_candidates){&k, m->n, name_way, run_candidate});
    return 0;
}
