/* fc.c: fully connected layers with cuBLAS on the flat vectors. cuBLAS matrices are column-major: a row-major
 * [a][b] is its [b][a] matrix. An input with several positions is transposed to [channel][place] first. */
#include "nets/cuda/cuda.h"

static bool is_turned(const struct cnn_layer *l)
{
    return l->in.c > 1 && (size_t)l->in.h * l->in.w > 1;
}

static void needs(const struct cnn_setup *setup, const struct cnn_layer *l, struct cnn_needs *out)
{
    size_t bytes = cnn_shape_count(l->in) * setup->batch * cnn_cuda_value_bytes(setup->precision);

    out->out_bytes = cnn_cuda_is_wide(setup->plan, l) ? sizeof(float) : 0;
    if (!is_turned(l)) {
        out->back_reads_in = l->trains ? CNN_READS_VALUE : CNN_READS_NOTHING;
        return;
    }
    out->kept_bytes = bytes;
    out->back_work_bytes = l->wants_din ? bytes : 0;
}

struct fc {
    void *weights; /* in bf16; NULL: x is used */
};

static int create(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    struct fc *f = l->state;
    return d->type == CNN_CUDA_FLOAT
               ? 0
               : cnn_cuda_alloc(d, l->plan->n_weights * d->value_bytes, &f->weights, err);
}

static const void *weights_of(const struct cnn_cuda *d, const struct cnn_cuda_layer *l)
{
    const struct fc *f = l->state;
    return f->weights != NULL ? f->weights : d->x + l->plan->weight_at;
}

/* A matrix as cuBLAS takes it. */
struct matrix {
    const void *at;
    cublasOperation_t op;
    int stride;
};

static cudaDataType_t blas_type(enum cnn_cuda_type type)
{
    return type == CNN_CUDA_BF16 ? CUDA_R_16BF : CUDA_R_32F;
}

/* out [m][n] = a b over k products, by columns; a and b are of the net's type. The handle's math mode says
 * how factors are rounded; sums are float32. */
static int multiply(struct cnn_cuda *d, struct cnn_cuda_layer *l, int m, int n, int k, struct matrix a,
                    struct matrix b, enum cnn_cuda_type out_type, void *out, const char *what,
                    struct ps_error *err)
{
    const float one = 1, zero = 0;
    const cudaDataType_t type = blas_type(d->type);
    const cublasComputeType_t compute =
        d->precision == CNN_FLOAT32 ? CUBLAS_COMPUTE_32F_PEDANTIC : CUBLAS_COMPUTE_32F;

    return cnn_cuda_check_blas(cublasGemmEx(d->blas, a.op, b.op, m, n, k, &one, a.at, type, a.stride, b.at,
                                            type, b.stride, &zero, out, blas_type(out_type), m, compute,
                                            CUBLAS_GEMM_DEFAULT),
                               what, l, err);
}

static enum cnn_cuda_type out_type(const struct cnn_cuda *d, const struct cnn_cuda_layer *l)
{
    return l->is_wide ? CNN_CUDA_FLOAT : d->type;
}

static int forward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    const struct cnn_layer *p = l->plan;
    const int n_out = (int)p->out.c, n_in = (int)p->fan_in;
    const struct fc *f = l->state;
    const void *in = l->in[0];
    cudaError_t e = cudaSuccess;

    if (is_turned(p)) {
        e = cu_turn(d->compute, d->type, cnn_cuda_count(d, p->in), p->in.h * p->in.w, p->in.c, in, l->kept);
        in = l->kept;
    }
    if (e == cudaSuccess && f->weights != NULL)
        e = cu_turn_in(d->compute, d->type, p->n_weights, 1, 1, d->x + p->weight_at, f->weights);
    int rc = cnn_cuda_check(e, ": forward", l, err);
    if (rc == 0)
        rc = multiply(d, l, n_out, (int)d->batch, n_in, (struct matrix){weights_of(d, l), CUBLAS_OP_T, n_in},
                      (struct matrix){in, CUBLAS_OP_N, n_in}, out_type(d, l), l->out, ": forward", err);
    if (rc < 0 || p->n_biases == 0)
        return rc;
    return cnn_cuda_check(
        cu_bias(d->compute, out_type(d, l), cnn_cuda_count(d, p->out), p->out.c, d->x + p->bias_at, l->out),
        ": forward", l, err);
}

static int back_weights(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    const struct cnn_layer *p = l->plan;
    const int n_out = (int)p->out.c, n_in = (int)p->fan_in;
    const void *in = is_turned(p) ? l->kept : l->in[0];
    int rc = multiply(d, l, n_in, n_out, (int)d->batch, (struct matrix){in, CUBLAS_OP_N, n_in},
                      (struct matrix){l->dout, CUBLAS_OP_T, n_out}, CNN_CUDA_FLOAT, d->g + p->weight_at,
                      ": backward", err);

    if (rc < 0 || p->n_biases == 0)
        return rc;
    return cnn_cuda_check(
        cu_bias_back(d->compute, d->type, d->batch, p->out.c, l->dout, d->part, d->g + p->bias_at),
        ": backward", l, err);
}

static int backward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    const struct cnn_layer *p = l->plan;
    const int n_out = (int)p->out.c, n_in = (int)p->fan_in;
    void *din = is_turned(p) ? l->back_work : l->din[0];
    int rc = p->trains ? back_weights(d, l, err) : 0;

    if (rc < 0 || l->din[0] == NULL)
        return rc;
    rc = multiply(d, l, n_in, (int)d->batch, n_out, (struct matrix){weights_of(d, l), CUBLAS_OP_N, n_in},
                  (struct matrix){l->dout, CUBLAS_OP_N, n_out}, d->type, din, ": backward", err);
    if (rc < 0 || !is_turned(p))
        return rc;
    return cnn_cuda_check(
        cu_turn(d->compute, d->type, cnn_cuda_count(d, p->in), p->in.c, p->in.h * p->in.w, din, l->din[0]),
        ": backward", l, err);
}

const struct cnn_cuda_kind cnn_cuda_fc = {sizeof(struct fc), needs, create, NULL, forward, backward};
