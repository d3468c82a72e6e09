/* malloc_settings.h: the allocator's settings for programs that move chunks. */
#ifndef PS_MALLOC_SETTINGS_H
#define PS_MALLOC_SETTINGS_H

/* libzmq allocates a buffer for each chunk that is received and frees it soon after. glibc would map or trim
 * such blocks and the kernel clear their pages anew each time: 249 MB exchanges then take 1.3 times as long.
 * This keeps them in the process. For main of psd, psworker and psbench; a library does not set this for its
 * host. */
void ps_memory_keep_buffers(void);

#endif
