/* registered_memory.h: memory for message bodies that exists longer than one message, so that a transport can
 * register it. */
#ifndef PS_TRANSPORTS_REGISTERED_MEMORY_H
#define PS_TRANSPORTS_REGISTERED_MEMORY_H

#include <stddef.h>

#include "proto/error.h"

enum { PS_MAX_BUFFERS = 4 }; /* registered with one hub */

enum ps_buffer_kind {
    PS_BUFFER_HOST,   /* private memory: rdma registers it */
    PS_BUFFER_SHARED, /* a sealed memfd that another process can map: shm accesses it in place */
    PS_BUFFER_DEVICE, /* memory of a GPU, its dma-buf in fd: no transport supports it yet */
};

struct ps_buffer {
    enum ps_buffer_kind kind;
    void *base;
    size_t bytes; /* as requested; the mapping is whole pages */
    int fd;       /* -1: none */
};

/* Zeroed memory of the kind SHARED, page aligned, whose size is sealed: F_SEAL_SHRINK, F_SEAL_GROW,
 * F_SEAL_SEAL. A child of fork does not have it. Where memfd_create is not allowed, of the kind HOST. -ENOMEM
 * with a sentence. Free with ps_buffer_free. */
int ps_buffer_alloc(size_t bytes, struct ps_buffer *out, struct ps_error *err);
/* Gives b, which is SHARED, new memory at the same address with the same values: processes that have mapped
 * the old memory no longer affect it. -ENOMEM: nothing has changed. A value that another process writes
 * meanwhile is the old or the new one. */
int ps_buffer_renew(struct ps_buffer *b, struct ps_error *err);
/* Frees the memory and clears *b; an empty one ({0}) is allowed. */
void ps_buffer_free(struct ps_buffer *b);

#endif
