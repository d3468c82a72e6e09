/* psd's lanes on a machine of several NUMA nodes, which hwloc is told that this one is: each lane runs on the
 * cores of one node. */
#include <dirent.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/system/daemon.h"
#include "tests/support/suite.h"

static const char *const settings[] = {"method=async-sgd", "lanes=2", NULL};

/* The CPUs on which psd's thread of that name may run; 0: there is no such thread. */
static int cpus_of(const struct daemon *d, const char *name, cpu_set_t *set)
{
    char path[300], comm[32] = "";
    int n = 0;
    snprintf(path, sizeof path, "/proc/%d/task", (int)d->pid);
    DIR *tasks = opendir(path);
    ck_assert_ptr_nonnull(tasks);
    for (struct dirent *e; (e = readdir(tasks)) != NULL && n == 0;) {
        snprintf(path, sizeof path, "/proc/%d/task/%.20s/comm", (int)d->pid, e->d_name);
        FILE *f = fopen(path, "re");
        if (f == NULL)
            continue;
        if (fscanf(f, "%31s", comm) == 1 && strcmp(comm, name) == 0 &&
            sched_getaffinity(atoi(e->d_name), sizeof *set, set) == 0)
            n = CPU_COUNT(set);
        fclose(f);
    }
    closedir(tasks);
    return n;
}

/* The same, as soon as the thread has its name, which it takes after it has bound itself. */
static int cpus_when_begun(const struct daemon *d, const char *name, cpu_set_t *set)
{
    int n = 0;
    for (double end = test_now_s() + test_slow_s(TEST_HANG_S); n == 0 && test_now_s() < end; test_nap_s(0.01))
        n = cpus_of(d, name, set);
    return n;
}

/* The thread binds itself when it begins. */
static bool comes_to(const struct daemon *d, const char *name, int cpu)
{
    cpu_set_t set;
    for (double end = test_now_s() + test_slow_s(TEST_HANG_S); test_now_s() < end; test_nap_s(0.01))
        if (cpus_of(d, name, &set) == 1)
            return CPU_ISSET(cpu, &set);
    return false;
}

START_TEST(each_lane_runs_on_the_cores_of_one_node)
{
    struct daemon d = {0};
    ck_assert_int_eq(setenv("HWLOC_SYNTHETIC", "numa:2 core:1 pu:1", 1), 0);
    ck_assert_int_eq(setenv("HWLOC_THISSYSTEM", "1", 1), 0);
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    ck_assert(comes_to(&d, "psd-lane-0", 0));
    ck_assert(comes_to(&d, "psd-lane-1", 1));
    ck_assert(daemon_will_log(&d, "2 lanes over the cores of 2 NUMA nodes", test_slow_s(TEST_HANG_S)));
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, test_slow_s(TEST_HANG_S)), 0);
    daemon_remove(&d);
}
END_TEST

/* On one node nobody is bound. */
START_TEST(one_node_binds_nobody)
{
    struct daemon d = {0};
    cpu_set_t set, own;
    ck_assert_int_eq(setenv("HWLOC_SYNTHETIC", "numa:1 core:2 pu:1", 1), 0);
    ck_assert_int_eq(setenv("HWLOC_THISSYSTEM", "1", 1), 0);
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    ck_assert_int_eq(sched_getaffinity(0, sizeof own, &own), 0);
    ck_assert_int_eq(cpus_when_begun(&d, "psd-lane-1", &set), CPU_COUNT(&own));
    ck_assert_uint_eq(daemon_logged(&d, "NUMA nodes"), 0);
    ck_assert_int_eq(daemon_stop(&d, SIGTERM, test_slow_s(TEST_HANG_S)), 0);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {one_node_binds_nobody, each_lane_runs_on_the_cores_of_one_node};
    cpu_set_t own;
    /* Lanes cannot be bound to CPUs that the test may not use. */
    bool has_both = sched_getaffinity(0, sizeof own, &own) == 0 && CPU_ISSET(0, &own) && CPU_ISSET(1, &own);
    return suite_run("nodes", tests, has_both ? 2 : 1, 2 * TEST_HANG_S);
}
