#include "nets/net.h"

#include <stdlib.h>
#include <unistd.h>

void cnn_threads_sleep(char **argv)
{
    char path[4096];
    if (getenv("OMP_WAIT_POLICY") != NULL || setenv("OMP_WAIT_POLICY", "passive", 0) < 0)
        return;
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n < 0)
        return;
    path[n] = 0;
    execv(path, argv);
}
