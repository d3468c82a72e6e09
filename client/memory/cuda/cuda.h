/* cuda.h: the state of a GPU's memory, which the files of the module share. Private to client/memory/cuda. */
#ifndef PSC_MEMORY_CUDA_CUDA_H
#define PSC_MEMORY_CUDA_CUDA_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>

#include "client/memory/memory.h"

struct psc_queue {
    struct psc_device *device;
    cudaStream_t stream;
    cudaEvent_t end;           /* of finish */
    unsigned long long *first; /* of a search, on the device */
    unsigned long long *found; /* pinned: copied from there */
};

struct psc_device {
    int index;
    bool own_stream; /* PSC_COMPUTE is not the caller's */
    uint32_t timeout_ms;
    struct psc_queue queues[PSC_N_QUEUES];
    cudaEvent_t order[PSC_N_QUEUES][PSC_N_QUEUES]; /* [first][later] */
    pthread_mutex_t lock;                          /* of all below */
    struct ps_error why;                           /* the first failure */
    _Atomic bool failed;                           /* there is one */
    void **blocks;                                 /* allocated */
    size_t n_blocks, most_blocks;
};

/* Makes the handle's device that of the calling thread. */
void psc_cuda_enter(struct psc_device *d);
/* Keeps the first failure. Returns whether e is one. */
bool psc_cuda_failed(struct psc_device *d, cudaError_t e, const char *what);

/* vec.c */
extern const struct psc_kernels psc_cuda_kernels;

#endif
