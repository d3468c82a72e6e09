/* registered_memory.h: memory that messages' bodies lie in for longer than one message, so that a transport
 * can reach it. */
#ifndef PS_TRANSPORTS_REGISTERED_MEMORY_H
#define PS_TRANSPORTS_REGISTERED_MEMORY_H

#include <stddef.h>

#include "proto/error.h"

enum { PS_MAX_BUFFERS = 4 }; /* lent to one hub */

enum ps_buffer_kind {
    PS_BUFFER_HOST,   /* this process's own: rdma registers it */
    PS_BUFFER_SHARED, /* a sealed memfd, which another process can map: shm works in it in place */
    PS_BUFFER_DEVICE, /* a GPU's, its dma-buf in fd: no transport takes it yet */
};

struct ps_buffer {
    enum ps_buffer_kind kind;
    void *base;
    size_t bytes; /* as asked for; what is mapped is whole pages */
    int fd;       /* -1: none */
};

/* Zeroed memory of the kind SHARED, page aligned, whose size is sealed: F_SEAL_SHRINK, F_SEAL_GROW,
 * F_SEAL_SEAL. A child of fork does not have it. Where memfd_create is not allowed, of the kind HOST. -ENOMEM
 * with a sentence. Free with ps_buffer_free. */
int ps_buffer_alloc(size_t bytes, struct ps_buffer *out, struct ps_error *err);
/* Gives b, which is SHARED, memory of its own anew, at the same address and with the same values: who has
 * mapped what it was writes there to nobody. -ENOMEM: nothing has changed. Of values that another process
 * writes meanwhile it has the one before or the one after. */
int ps_buffer_renew(struct ps_buffer *b, struct ps_error *err);
/* Forgets *b; of one that holds nothing ({0}) too. */
void ps_buffer_free(struct ps_buffer *b);

#endif
