/* fc.c: fully connected layers with cuBLAS on the flat vectors. cuBLAS matrices are column-major: a row-major
 * [a][b] is its [b][a] matrix. An input with several positions is transposed to [channel][place] first. */
#include "nets/cuda/cuda.h"

static bool is_turned(const struct cnn_layer *l)
{
    return l->in.c > 1 && (size_t)l->in.h * l->in.w > 1;
}

static void needs(const struct cnn_setup *setup, const struct cnn_layer *l, struct cnn_needs *out)
{
    size_t bytes = cnn_shape_count(l->in) * setup->batch * sizeof(float);

    if (!is_turned(l)) {
        out->back_reads_in = l->trains ? CNN_READS_VALUE : CNN_READS_NOTHING;
        return;
    }
    out->kept_bytes = bytes;
    out->back_work_bytes = l->wants_din ? bytes : 0;
}

static int forward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    const struct cnn_layer *p = l->plan;
    const int n_out = (int)p->out.c, n_in = (int)p->fan_in, batch = (int)d->batch;
    const float one = 1, zero = 0, *in = l->in[0];
    cudaError_t e = cudaSuccess;

    if (is_turned(p)) {
        e = cu_turn(d->compute, cnn_cuda_count(d, p->in), p->in.h * p->in.w, p->in.c, in, l->kept);
        in = l->kept;
    }
    int rc = cnn_cuda_check(e, ": forward", l, err);
    if (rc == 0)
        rc = cnn_cuda_check_blas(cublasSgemm(d->blas, CUBLAS_OP_T, CUBLAS_OP_N, n_out, batch, n_in, &one,
                                             d->x + p->weight_at, n_in, in, n_in, &zero, l->out, n_out),
                                 ": forward", l, err);
    if (rc < 0 || p->n_biases == 0)
        return rc;
    return cnn_cuda_check(cu_bias(d->compute, cnn_cuda_count(d, p->out), p->out.c, d->x + p->bias_at, l->out),
                          ": forward", l, err);
}

static int back_weights(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    const struct cnn_layer *p = l->plan;
    const int n_out = (int)p->out.c, n_in = (int)p->fan_in, batch = (int)d->batch;
    const float one = 1, zero = 0, *in = is_turned(p) ? l->kept : l->in[0];
    int rc = cnn_cuda_check_blas(cublasSgemm(d->blas, CUBLAS_OP_N, CUBLAS_OP_T, n_in, n_out, batch, &one, in,
                                             n_in, l->dout, n_out, &zero, d->g + p->weight_at, n_in),
                                 ": backward", l, err);

    if (rc < 0 || p->n_biases == 0)
        return rc;
    return cnn_cuda_check(cu_bias_back(d->compute, d->batch, p->out.c, l->dout, d->part, d->g + p->bias_at),
                          ": backward", l, err);
}

static int backward(struct cnn_cuda *d, struct cnn_cuda_layer *l, struct ps_error *err)
{
    const struct cnn_layer *p = l->plan;
    const int n_out = (int)p->out.c, n_in = (int)p->fan_in, batch = (int)d->batch;
    const float one = 1, zero = 0;
    float *din = is_turned(p) ? l->back_work : l->din[0];
    int rc = p->trains ? back_weights(d, l, err) : 0;

    if (rc < 0 || l->din[0] == NULL)
        return rc;
    rc = cnn_cuda_check_blas(cublasSgemm(d->blas, CUBLAS_OP_N, CUBLAS_OP_N, n_in, batch, n_out, &one,
                                         d->x + p->weight_at, n_in, l->dout, n_out, &zero, din, n_in),
                             ": backward", l, err);
    if (rc < 0 || !is_turned(p))
        return rc;
    return cnn_cuda_check(
        cu_turn(d->compute, cnn_cuda_count(d, p->in), p->in.c, p->in.h * p->in.w, din, l->din[0]),
        ": backward", l, err);
}

const struct cnn_cuda_kind cnn_cuda_fc = {0, needs, NULL, NULL, forward, backward};
