/* cuda.h: the state of a GPU's memory, which the files of the module share. Private to client/memory/cuda. */
#ifndef PSC_MEMORY_CUDA_CUDA_H
#define PSC_MEMORY_CUDA_CUDA_H

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <stdatomic.h>

#include "client/memory/cuda/codes.h"
#include "client/memory/cuda/passes.h"
#include "client/memory/memory.h"

struct psc_queue {
    struct psc_device *device;
    cudaStream_t stream;
    cudaEvent_t end;           /* of finish */
    unsigned long long *first; /* of a search, on the device */
    unsigned long long *found; /* pinned: copied from there */
    /* What passes write here is searched: [n_watched], of which the first has the index watched_at. */
    const float *watched;
    size_t n_watched;
    uint64_t watched_at;
    unsigned open;            /* begin without end: passes are gathered */
    struct psc_passes passes; /* not launched yet */
};

struct psc_device {
    int index;
    bool own_stream; /* PSC_COMPUTE is not the caller's */
    uint32_t timeout_ms;
    struct psc_queue queues[PSC_N_QUEUES];
    cudaEvent_t order[PSC_N_QUEUES][PSC_N_QUEUES]; /* [first][later] */
    struct psc_code_segment *segments;             /* [n_segments], on the device: the manifest's */
    uint32_t n_segments;
    pthread_mutex_t lock; /* of all below */
    struct ps_error why;  /* the first failure */
    _Atomic bool failed;  /* there is one */
    void **blocks;        /* allocated */
    size_t n_blocks, most_blocks;
};

/* Makes the handle's device that of the calling thread. */
void psc_cuda_enter(struct psc_device *d);
/* Keeps the first failure. Returns whether e is one. */
bool psc_cuda_failed(struct psc_device *d, cudaError_t e, const char *what);

/* The functions of psc_memory_kind of these names. */
int psc_cuda_alloc(struct psc_device *d, size_t bytes, void **out, struct ps_error *err);
int psc_cuda_finish(struct psc_queue *q, struct ps_error *err);
int psc_cuda_check(struct psc_device *d, struct ps_error *err);

/* vec.c. */
extern const struct psc_kernels psc_cuda_kernels;

/* codes.c, for psc_memory_kind. */
bool psc_cuda_codes(const struct ps_codec *codec);
int psc_cuda_learn(struct psc_device *d, const struct ps_manifest *m, struct ps_error *err);
void psc_cuda_encode_pieces(struct psc_queue *q, const struct psc_coding *coding,
                            const struct psc_coded *pieces, size_t n);
void psc_cuda_feed_back_pieces(struct psc_queue *q, const struct psc_coding *coding,
                               const struct psc_coded *pieces, size_t n);
void psc_cuda_decode_floats(struct psc_queue *q, const struct ps_codec *codec, float *x, const void *payload,
                            size_t n);
void psc_cuda_take_piece(struct psc_queue *q, const struct psc_coding *coding, const struct psc_coded *piece);

#endif
