#include "nets/net.h"

#include <stdlib.h>
#include <unistd.h>

void cnn_threads_sleep(char **argv)
{
    if (getenv("OMP_WAIT_POLICY") != NULL || setenv("OMP_WAIT_POLICY", "passive", 0) < 0)
        return;
    execv("/proc/self/exe", argv);
}
