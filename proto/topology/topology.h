/* topology.h: the cores and memories that a process may use, and how it divides them into partitions.
 *
 * ps_topology_read asks hwloc and keeps plain numbers: the cores of the fastest kind that the cgroup's CPU
 * set, the affinity mask and the quota leave, with one hardware thread of each; and for each kind of near
 * memory the groups of cores that share one. ps_place is a pure function of those numbers. */
#ifndef PS_TOPOLOGY_TOPOLOGY_H
#define PS_TOPOLOGY_TOPOLOGY_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

/* Near memories, the fastest first. */
enum ps_near {
    PS_NEAR_CACHE, /* the last level of cache */
    PS_NEAR_FAST,  /* MCDRAM or HBM that is addressed as memory */
    PS_NEAR_NODE,  /* the DRAM of a NUMA node */
    PS_N_NEARS,
};

struct ps_core {
    uint32_t cpu;               /* the operating system's number of the hardware thread in use */
    uint32_t group[PS_N_NEARS]; /* in groups[kind]; 0 where there is none of the kind */
};

/* One near memory. Its cores are neighbours in `cores`. */
struct ps_near_group {
    uint64_t bytes;
    int32_t
        node; /* the operating system's number of the NUMA node; of a cache, the node with its cores' DRAM */
    uint32_t first_core, n_cores;
};

struct ps_topology {
    uint32_t n_cores; /* at least 1 */
    struct ps_core *cores;
    /* n_groups 0: not every core has such a memory */
    uint32_t n_groups[PS_N_NEARS];
    struct ps_near_group *groups[PS_N_NEARS];
    /* Left out: cores of a slower kind, cores beyond the quota, and further hardware threads of a core. */
    uint32_t n_slower, n_over_quota, n_siblings;
    void *machine; /* hwloc's handle, for ps_topology_bind; NULL: not of this machine */
};

struct ps_topology_source {
    const char *synthetic; /* hwloc's description of a machine; NULL */
    const char *xml;       /* the path of hwloc's XML; NULL */
    /* With neither it is this machine, as the calling thread may use it. */
    const char *cpus;     /* such as "0-7,16": of these only; NULL: of all */
    uint32_t quota_cores; /* that may run at once; 0: no quota */
};

/* -EINVAL: a description that hwloc does not take, or no core is left; -ENOMEM. Each with a sentence. */
int ps_topology_read(const struct ps_topology_source *source, struct ps_topology *out, struct ps_error *err);
void ps_topology_finish(struct ps_topology *t);

/* What a job needs. A partition with a part of `batch` / P images takes
 * fixed_bytes + image_bytes * batch / P. */
struct ps_need {
    uint64_t fixed_bytes;  /* weights, gradient and the copy of the data */
    uint64_t image_bytes;  /* activations */
    uint32_t batch;        /* images of all partitions together */
    uint32_t least_images; /* of a part, for partitions 0 */
    uint64_t limit_bytes;  /* of all partitions together, for partitions 0; 0: none */
};

/* Cores [first_core, first_core + threads) of the topology. */
struct ps_partition {
    uint32_t first_core;
    int32_t node; /* to which its memory is bound; -1: its cores lie in several groups */
};

struct ps_placement {
    uint32_t n, threads;        /* partitions; cores and threads of each */
    enum ps_near near;          /* the memory that they were measured by */
    bool fits;                  /* each group's near memory holds its partitions */
    bool spans;                 /* there are fewer partitions than groups */
    uint64_t bytes;             /* of one partition */
    uint32_t n_idle;            /* cores that no partition has */
    struct ps_partition *parts; /* [n] */
    char why[400];              /* a sentence */
};

/* partitions 0: the largest number P whose copies of weights and data fit the near memory (You, Buluc, Demmel
 * 2017, figure 12, of the MCDRAM of one KNL). Near memories are tried from the fastest on; the first is taken
 * whose every group holds at least one partition. P divides the batch, leaves each part least_images, and
 * leaves at most an eighth of the cores idle. If no number does, P is 1.
 *
 * partitions > 0: that number, whether the near memory holds them or not. Each lies in one group if there are
 * at least as many partitions as groups. All have the same number of threads, because a step ends with its
 * slowest partition.
 *
 * threads: of each partition; 0: as many as there are cores for. -EINVAL names the number, and what is
 * allowed; -ENOMEM. */
int ps_place(const struct ps_topology *t, uint32_t partitions, uint32_t threads, const struct ps_need *need,
             struct ps_placement *out, struct ps_error *err);
void ps_placement_finish(struct ps_placement *p);
const char *ps_near_name(enum ps_near near);

/* The calling thread, and threads that it creates later, run on the partition's cores and allocate memory
 * from its node. -EPERM and others with a sentence, where the system does not allow that: all works without.
 */
int ps_topology_bind(const struct ps_topology *t, const struct ps_placement *p, uint32_t part,
                     struct ps_error *err);
/* The group of thread i of n that share the cores evenly: neighbours lie together. */
uint32_t ps_topology_share(const struct ps_topology *t, enum ps_near near, uint32_t i, uint32_t n);
/* The calling thread, and threads that it creates later, run on the cores of that group. -errno with a
 * sentence. */
int ps_topology_bind_group(const struct ps_topology *t, enum ps_near near, uint32_t group,
                           struct ps_error *err);
/* The calling thread alone runs on the partition's core `index`, below threads. */
int ps_topology_pin(const struct ps_topology *t, const struct ps_placement *p, uint32_t part, uint32_t index,
                    struct ps_error *err);

#endif
