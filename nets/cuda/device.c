/* device.c: error messages and memory. */
#include "nets/cuda/cuda.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char *name_of(const struct cnn_cuda_layer *l)
{
    return l != NULL ? l->plan->spec->name : "";
}

int cnn_cuda_check(cudaError_t error, const char *what, const struct cnn_cuda_layer *l, struct ps_error *err)
{
    if (error == cudaSuccess)
        return 0;
    return ps_fail(err, error == cudaErrorMemoryAllocation ? -ENOMEM : -EIO, "%s%s%s: CUDA: %s",
                   l != NULL ? "layer " : "", name_of(l), what, cudaGetErrorString(error));
}

int cnn_cuda_check_dnn(cudnnStatus_t status, const char *what, const struct cnn_cuda_layer *l,
                       struct ps_error *err)
{
    if (status == CUDNN_STATUS_SUCCESS)
        return 0;
    return ps_fail(err, -EIO, "%s%s%s: cuDNN: %s", l != NULL ? "layer " : "", name_of(l), what,
                   cudnnGetErrorString(status));
}

int cnn_cuda_check_blas(cublasStatus_t status, const char *what, const struct cnn_cuda_layer *l,
                        struct ps_error *err)
{
    if (status == CUBLAS_STATUS_SUCCESS)
        return 0;
    return ps_fail(err, -EIO, "%s%s%s: cuBLASLt: %s", l != NULL ? "layer " : "", name_of(l), what,
                   cublasLtGetStatusString(status));
}

static int keep_block(struct cnn_cuda *d, void *at, bool is_pinned, struct ps_error *err)
{
    if (d->n_blocks == d->most_blocks) {
        size_t most = d->most_blocks > 0 ? 2 * d->most_blocks : 64;
        struct cnn_cuda_block *more = realloc(d->blocks, most * sizeof *more);
        if (more == NULL) {
            if (is_pinned)
                cudaFreeHost(at);
            else
                cudaFree(at);
            return ps_fail(err, -ENOMEM, "no memory for the cuda backend");
        }
        d->blocks = more;
        d->most_blocks = most;
    }
    d->blocks[d->n_blocks++] = (struct cnn_cuda_block){at, is_pinned};
    return 0;
}

int cnn_cuda_alloc(struct cnn_cuda *d, size_t bytes, void *out, struct ps_error *err)
{
    void *at = NULL;
    cudaError_t error = cudaMalloc(&at, bytes > 0 ? bytes : 1);

    if (error != cudaSuccess)
        return ps_fail(err, error == cudaErrorMemoryAllocation ? -ENOMEM : -EIO,
                       "%.0f MiB of GPU memory: CUDA: %s", (double)bytes / (1024 * 1024),
                       cudaGetErrorString(error));
    int rc = keep_block(d, at, false, err);
    if (rc == 0) {
        memcpy(out, &at, sizeof at);
        d->own_bytes += bytes;
    }
    return rc;
}

int cnn_cuda_alloc_pinned(struct cnn_cuda *d, size_t bytes, void *out, struct ps_error *err)
{
    void *at = NULL;
    cudaError_t error = cudaHostAlloc(&at, bytes > 0 ? bytes : 1, cudaHostAllocDefault);

    if (error != cudaSuccess)
        return ps_fail(err, error == cudaErrorMemoryAllocation ? -ENOMEM : -EIO,
                       "%.0f MiB of pinned memory: CUDA: %s", (double)bytes / (1024 * 1024),
                       cudaGetErrorString(error));
    int rc = keep_block(d, at, true, err);
    if (rc == 0)
        memcpy(out, &at, sizeof at);
    return rc;
}
