/* module.h: the interface of the module psclient-cuda, so that only the module depends on CUDA. Module and
 * library must be of the same build: another version is refused. Private to client/memory. */
#ifndef PSC_MEMORY_CUDA_MODULE_H
#define PSC_MEMORY_CUDA_MODULE_H

#include "client/memory/memory.h"

#define PSC_CUDA_LIBRARY "libpsclient-cuda.so"
#define PSC_CUDA_SYMBOL  "psc_cuda_module"

struct psc_cuda_module {
    const char *version; /* PSD_VERSION */
    size_t kind_bytes;   /* sizeof kind */
    struct psc_memory_kind kind;
};

/* The only exported symbol of the module. */
extern const struct psc_cuda_module psc_cuda_module __attribute__((visibility("default")));

#endif
