#include "proto/malloc_settings.h"

#include <malloc.h>

void ps_memory_keep_buffers(void)
{
    mallopt(M_MMAP_THRESHOLD, 32 << 20); /* far above a chunk */
    mallopt(M_TRIM_THRESHOLD, 64 << 20);
}
