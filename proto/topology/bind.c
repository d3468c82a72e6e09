/* bind.c: threads and their memory go to where a placement has them. */
#include "proto/topology/topology.h"

#include <errno.h>
#include <hwloc.h>
#include <string.h>

static int bind_cpus(const struct ps_topology *t, uint32_t first, uint32_t n, struct ps_error *err)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    int rc = set != NULL ? 0 : -ENOMEM;
    for (uint32_t i = 0; i < n && rc == 0; i++)
        rc = hwloc_bitmap_set(set, t->cores[first + i].cpu) < 0 ? -ENOMEM : 0;
    if (rc == 0 && hwloc_set_cpubind(t->machine, set, HWLOC_CPUBIND_THREAD) < 0)
        rc = -errno;
    hwloc_bitmap_free(set);
    return rc == 0 ? 0
                   : ps_fail(err, rc, "a thread cannot be bound to CPU %u and %u that follow: %s",
                             t->cores[first].cpu, n - 1, strerror(-rc));
}

static int bind_memory(const struct ps_topology *t, int32_t node, struct ps_error *err)
{
    hwloc_bitmap_t set = hwloc_bitmap_alloc();
    int rc = set != NULL && hwloc_bitmap_only(set, (unsigned)node) == 0 ? 0 : -ENOMEM;
    if (rc == 0 && hwloc_set_membind(t->machine, set, HWLOC_MEMBIND_BIND,
                                     HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET) < 0)
        rc = -errno;
    hwloc_bitmap_free(set);
    return rc == 0 ? 0 : ps_fail(err, rc, "memory cannot be bound to NUMA node %d: %s", node, strerror(-rc));
}

int ps_topology_bind(const struct ps_topology *t, const struct ps_placement *p, uint32_t part,
                     struct ps_error *err)
{
    if (t->machine == NULL)
        return ps_fail(err, -ENOTSUP, "the topology is not this machine's");
    int rc = bind_cpus(t, p->parts[part].first_core, p->threads, err);
    return rc == 0 && p->parts[part].node >= 0 ? bind_memory(t, p->parts[part].node, err) : rc;
}

int ps_topology_bind_group(const struct ps_topology *t, enum ps_near near, uint32_t group,
                           struct ps_error *err)
{
    const struct ps_near_group *g = &t->groups[near][group];
    if (t->machine == NULL)
        return ps_fail(err, -ENOTSUP, "the topology is not this machine's");
    return bind_cpus(t, g->first_core, g->n_cores, err);
}

int ps_topology_pin(const struct ps_topology *t, const struct ps_placement *p, uint32_t part, uint32_t index,
                    struct ps_error *err)
{
    if (t->machine == NULL)
        return ps_fail(err, -ENOTSUP, "the topology is not this machine's");
    return bind_cpus(t, p->parts[part].first_core + index, 1, err);
}
