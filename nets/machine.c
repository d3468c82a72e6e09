#include "nets/machine.h"

#include <inttypes.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>

static uint64_t available(void)
{
    uint64_t kib = UINT64_MAX / 1024;
    char line[128];
    FILE *f = fopen("/proc/meminfo", "re");

    if (f == NULL)
        return UINT64_MAX;
    while (fgets(line, sizeof line, f) != NULL && sscanf(line, "MemAvailable: %" SCNu64, &kib) != 1)
        continue;
    fclose(f);
    return kib * 1024;
}

/* The number in a file of the process' own cgroup (version 2); UINT64_MAX: "max", or there is none. */
static uint64_t of_cgroup(const char *file)
{
    char group[256] = "", path[400];
    uint64_t n = UINT64_MAX;
    FILE *f = fopen("/proc/self/cgroup", "re");

    if (f == NULL)
        return n;
    if (fscanf(f, "0::%255s", group) != 1)
        group[0] = 0;
    fclose(f);
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", strcmp(group, "/") == 0 ? "" : group, file);
    if (group[0] == 0 || (f = fopen(path, "re")) == NULL)
        return n;
    if (fscanf(f, "%" SCNu64, &n) != 1)
        n = UINT64_MAX;
    fclose(f);
    return n;
}

uint64_t cnn_machine_bytes(void)
{
    uint64_t free_bytes = available(), limit = of_cgroup("memory.max");
    return limit < free_bytes ? limit : free_bytes;
}

uint32_t cnn_machine_cores(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : 1;
    return n < 1 ? 1 : (uint32_t)n;
}
