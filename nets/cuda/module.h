/* module.h: the interface of the module psnets-cuda, so that only the module depends on CUDA. Module and
 * program must be of the same build: another version is refused. Private to nets/cuda. */
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

/* The only exported symbol of the module. */
extern const struct cnn_cuda_module cnn_cuda_module __attribute__((visibility("default")));

#endif
