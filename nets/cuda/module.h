/* module.h: how the module psnets-cuda shows its row, so that nothing but it depends on CUDA. It is a part of
 * the build that loads it: another version's is refused. Private to nets/cuda. */
#ifndef CNN_CUDA_MODULE_H
#define CNN_CUDA_MODULE_H

#include "nets/backend.h"

#define CNN_CUDA_LIBRARY "libpsnets-cuda.so"
#define CNN_CUDA_SYMBOL  "cnn_cuda_module"

struct cnn_cuda_module {
    const char *version;  /* PSD_VERSION */
    size_t backend_bytes; /* sizeof backend */
    struct cnn_backend backend;
};

/* The one symbol that the module exports. */
extern const struct cnn_cuda_module cnn_cuda_module __attribute__((visibility("default")));

#endif
