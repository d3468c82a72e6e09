/* launch.h: the kernels' launchers. Each enqueues work in a stream and returns the error of the launch.
 * Private to client/memory/cuda. */
#ifndef PSC_MEMORY_CUDA_LAUNCH_H
#define PSC_MEMORY_CUDA_LAUNCH_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t psc_cuda_axpy(cudaStream_t s, uint64_t n, float *y, const float *x, float a);
cudaError_t psc_cuda_scale(cudaStream_t s, uint64_t n, float *x, float a);
cudaError_t psc_cuda_copy(cudaStream_t s, uint64_t n, float *to, const float *from);
cudaError_t psc_cuda_subtract(cudaStream_t s, uint64_t n, float *out, const float *x, const float *y);
cudaError_t psc_cuda_decay(cudaStream_t s, uint64_t n, float *out, const float *g, const float *x,
                           float lambda);
cudaError_t psc_cuda_elastic(cudaStream_t s, uint64_t n, float *x, const float *center, float a);
cudaError_t psc_cuda_rebase(cudaStream_t s, uint64_t n, float *x, float *start, const float *center);
cudaError_t psc_cuda_heavy_ball(cudaStream_t s, uint64_t n, float *x, float *v, const float *g, float eta,
                                float mu);
cudaError_t psc_cuda_nesterov(cudaStream_t s, uint64_t n, float *at, float *x, float *v, const float *g,
                              float eta, float delta);
cudaError_t psc_cuda_admm_message(cudaStream_t s, uint64_t n, float *m, const float *x, const float *lambda,
                                  const float *g, float eta, float pull, float scale);
cudaError_t psc_cuda_admm_land(cudaStream_t s, uint64_t n, float *x, float *lambda, const float *center,
                               const float *g, float eta, float pull, float scale);
cudaError_t psc_cuda_admm_restart(cudaStream_t s, uint64_t n, float *x, float *lambda, const float *center);
cudaError_t psc_cuda_search(cudaStream_t s, uint64_t n, const float *x, uint64_t at,
                            unsigned long long *first);

#ifdef __cplusplus
}
#endif
#endif
