/* machine.h: what this machine has to give. Private to nets/. */
#ifndef CNN_MACHINE_H
#define CNN_MACHINE_H

#include <stdint.h>

/* Bytes that the process can take without making others swap or being ended: what the kernel calls available,
 * within the limit of its cgroup. UINT64_MAX where neither can be read. */
uint64_t cnn_machine_bytes(void);

/* The cores that the process may run on: what taskset, Slurm or a container's set and quota left it. 1 to
 * CNN_MOST_CORES, the most threads that a net takes. */
enum { CNN_MOST_CORES = 1024 };
uint32_t cnn_machine_cores(void);

/* The quota of the process's cgroup, in cores, rounded up; UINT32_MAX: none. */
uint32_t cnn_machine_quota(void);

/* What a cgroup's cpu.max ("150000 100000": microseconds in each so many) lets run at once, rounded up, at
 * least 1; UINT32_MAX: as many as there are. */
uint32_t cnn_quota_cores(const char *text);

#endif
