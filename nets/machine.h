/* machine.h: what this machine has to give. Private to nets/. */
#ifndef CNN_MACHINE_H
#define CNN_MACHINE_H

#include <stdint.h>

/* Bytes that the process can take without making others swap or being ended: what the kernel calls available,
 * within the limit of its cgroup. UINT64_MAX where neither can be read. */
uint64_t cnn_machine_bytes(void);

#endif
