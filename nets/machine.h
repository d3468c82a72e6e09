/* machine.h: the memory and cores available to this process. Private to nets/. */
#ifndef CNN_MACHINE_H
#define CNN_MACHINE_H

#include <stdint.h>

/* Bytes that the process can allocate without swapping or being killed: the kernel's MemAvailable, limited by
 * the memory limit of the cgroup. UINT64_MAX if neither can be read. */
uint64_t cnn_machine_bytes(void);

/* The cores that the process may run on, within the CPU set and quota from taskset, Slurm or a container. 1
 * to CNN_MOST_CORES, the most threads that a net takes. */
enum { CNN_MOST_CORES = 1024 };
uint32_t cnn_machine_cores(void);

/* The quota of the process's cgroup, in cores, rounded up; UINT32_MAX: none. */
uint32_t cnn_machine_quota(void);

/* The cores that a cgroup's cpu.max allows ("150000 100000": quota and period in microseconds), rounded up,
 * at least 1. UINT32_MAX: no limit. */
uint32_t cnn_quota_cores(const char *text);

#endif
