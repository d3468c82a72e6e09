/* malloc_settings.h: settings of the allocator for programs that transfer chunks. */
#ifndef PS_MALLOC_SETTINGS_H
#define PS_MALLOC_SETTINGS_H

/* libzmq allocates a buffer for each received chunk and frees it soon after. By default glibc maps or trims
 * such blocks, and the kernel clears their pages each time: exchanges of 249 MB then take 1.3 times as long.
 * This keeps the blocks in the process. For main of psd, psworker and psbench; a library must not change this
 * for its host program. */
void ps_memory_keep_buffers(void);

#endif
