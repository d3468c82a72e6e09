/* machine.h: what this machine has to give. Private to nets/. */
#ifndef CNN_MACHINE_H
#define CNN_MACHINE_H

#include <stdint.h>

/* Bytes that the process can take without making others swap or being ended: what the kernel calls available,
 * within the limit of its cgroup. UINT64_MAX where neither can be read. */
uint64_t cnn_machine_bytes(void);

/* The cores that the process may run on: what taskset, Slurm or a container left it. At least 1. */
uint32_t cnn_machine_cores(void);

#endif
