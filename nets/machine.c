#include "nets/machine.h"

#include <errno.h>
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

/* Reads the first line of a file of the process's cgroup (version 2); "" if there is none. */
static void read_cgroup(const char *file, char *text, size_t size)
{
    char group[256] = "", path[400];
    FILE *f = fopen("/proc/self/cgroup", "re");

    text[0] = 0;
    if (f == NULL)
        return;
    if (fscanf(f, "0::%255s", group) != 1)
        group[0] = 0;
    fclose(f);
    snprintf(path, sizeof path, "/sys/fs/cgroup%s/%s", strcmp(group, "/") == 0 ? "" : group, file);
    if (group[0] == 0 || (f = fopen(path, "re")) == NULL)
        return;
    if (fgets(text, (int)size, f) == NULL)
        text[0] = 0;
    fclose(f);
}

/* The number in a file of the cgroup; UINT64_MAX: "max", or no file. */
static uint64_t of_cgroup(const char *file)
{
    char text[64];
    uint64_t n;
    read_cgroup(file, text, sizeof text);
    return sscanf(text, "%" SCNu64, &n) == 1 ? n : UINT64_MAX;
}

uint64_t cnn_machine_bytes(void)
{
    uint64_t free_bytes = available(), limit = of_cgroup("memory.max");
    return limit < free_bytes ? limit : free_bytes;
}

/* Cores in the process's CPU set. sched_getaffinity refuses a set smaller than the kernel's. */
static uint32_t allowed_cores(void)
{
    for (int n_cpus = 1024; n_cpus <= 1 << 20; n_cpus *= 2) {
        cpu_set_t *set = CPU_ALLOC(n_cpus);
        size_t size = CPU_ALLOC_SIZE(n_cpus);
        if (set == NULL)
            return 1;
        int rc = sched_getaffinity(0, size, set), n = rc == 0 ? CPU_COUNT_S(size, set) : 0;
        CPU_FREE(set);
        if (rc == 0)
            return n < 1 ? 1 : (uint32_t)n;
        if (errno != EINVAL)
            return 1;
    }
    return 1;
}

uint32_t cnn_quota_cores(const char *text)
{
    uint64_t quota_us, period_us;
    if (sscanf(text, "%" SCNu64 " %" SCNu64, &quota_us, &period_us) != 2 || period_us == 0)
        return UINT32_MAX;
    uint64_t n = quota_us / period_us + (quota_us % period_us != 0);
    return n < 1 ? 1 : n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

uint32_t cnn_machine_quota(void)
{
    char quota[64] = "";
    read_cgroup("cpu.max", quota, sizeof quota);
    return cnn_quota_cores(quota);
}

uint32_t cnn_machine_cores(void)
{
    uint32_t n = allowed_cores(), most = cnn_machine_quota();
    n = most < n ? most : n;
    return n < CNN_MOST_CORES ? n : CNN_MOST_CORES;
}
