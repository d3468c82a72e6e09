/* launch.h: the kernels' launchers. Each enqueues work in a stream and returns the error of the launch.
 * Private to client/memory/cuda. */
#ifndef PSC_MEMORY_CUDA_LAUNCH_H
#define PSC_MEMORY_CUDA_LAUNCH_H

#include <stdint.h>

#include <cuda_runtime_api.h>

#include "client/memory/cuda/codes.h"
#include "client/memory/cuda/passes.h"

#ifdef __cplusplus
extern "C" {
#endif

cudaError_t psc_cuda_passes(cudaStream_t s, const struct psc_passes *passes);
cudaError_t psc_cuda_search(cudaStream_t s, uint64_t n, const float *x, uint64_t at,
                            unsigned long long *first);
/* All pieces are of one form. */
cudaError_t psc_cuda_encode(cudaStream_t s, const struct psc_code *code);
cudaError_t psc_cuda_feed_back(cudaStream_t s, const struct psc_code *code);
cudaError_t psc_cuda_take(cudaStream_t s, const struct psc_code *code);
cudaError_t psc_cuda_decode(cudaStream_t s, uint64_t n, float *x, const unsigned char *payload,
                            uint32_t form);

#ifdef __cplusplus
}
#endif
#endif
