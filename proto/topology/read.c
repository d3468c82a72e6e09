/* read.c: hwloc's tree as plain numbers. */
#include "proto/topology/topology.h"

#include <errno.h>
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

static int load(const struct ps_topology_source *s, hwloc_topology_t *out, struct ps_error *err)
{
    hwloc_topology_t m = NULL;
    int rc = 0;

    if (hwloc_topology_init(&m) < 0)
        return ps_fail(err, -ENOMEM, "no memory for the machine's topology");
    if (s->synthetic != NULL)
        rc = hwloc_topology_set_synthetic(m, s->synthetic);
    else if (s->xml != NULL)
        rc = hwloc_topology_set_xml(m, s->xml);
    if (rc == 0)
        rc = hwloc_topology_load(m);
    if (rc == 0) {
        *out = m;
        return 0;
    }
    hwloc_topology_destroy(m);
    return ps_fail(err, -EINVAL, "hwloc cannot read the topology of %.200s",
                   s->synthetic != NULL ? s->synthetic
                   : s->xml != NULL     ? s->xml
                                        : "this machine");
}

/* The hardware threads that may be used: hwloc has left out those that the cgroup does not allow. */
static int allowed_cpus(hwloc_topology_t m, const struct ps_topology_source *s, hwloc_bitmap_t allowed,
                        struct ps_error *err)
{
    hwloc_bitmap_copy(allowed, hwloc_topology_get_topology_cpuset(m));
    if (s->synthetic == NULL && s->xml == NULL) {
        hwloc_bitmap_t mask = hwloc_bitmap_alloc();
        if (mask != NULL && hwloc_get_cpubind(m, mask, HWLOC_CPUBIND_THREAD) == 0)
            hwloc_bitmap_and(allowed, allowed, mask);
        hwloc_bitmap_free(mask);
    }
    if (s->cpus != NULL) {
        hwloc_bitmap_t only = hwloc_bitmap_alloc();
        int rc = only != NULL ? hwloc_bitmap_list_sscanf(only, s->cpus) : -1;
        if (rc == 0)
            hwloc_bitmap_and(allowed, allowed, only);
        hwloc_bitmap_free(only);
        if (rc != 0)
            return ps_fail(err, -EINVAL, "\"%.60s\" is no list of CPUs; allowed: such as 0-7,16", s->cpus);
    }
    return 0;
}

/* Leaves the threads of the fastest kind of core among those allowed; kinds are ranked from slow to fast. */
static void keep_fastest(hwloc_topology_t m, hwloc_bitmap_t allowed)
{
    hwloc_bitmap_t kind = hwloc_bitmap_alloc();
    for (int i = hwloc_cpukinds_get_nr(m, 0) - 1; kind != NULL && i >= 0; i--) {
        int efficiency = -1;
        if (hwloc_cpukinds_get_info(m, (unsigned)i, kind, &efficiency, NULL, NULL, 0) < 0 || efficiency < 0)
            break;
        if (hwloc_bitmap_intersects(kind, allowed)) {
            hwloc_bitmap_and(allowed, allowed, kind);
            break;
        }
    }
    hwloc_bitmap_free(kind);
}

/* Cores that have a thread in the set. */
static uint32_t count_cores(hwloc_topology_t m, hwloc_const_bitmap_t set)
{
    uint32_t n = 0;
    for (hwloc_obj_t c = NULL; (c = hwloc_get_next_obj_by_type(m, HWLOC_OBJ_CORE, c)) != NULL;)
        n += hwloc_bitmap_intersects(c->cpuset, set) != 0;
    return n;
}

static bool is_fast(const struct hwloc_obj *node)
{
    return node->subtype != NULL &&
           (strcmp(node->subtype, "MCDRAM") == 0 || strcmp(node->subtype, "HBM") == 0);
}

static bool is_dram(const struct hwloc_obj *node)
{
    return node->subtype == NULL || strcmp(node->subtype, "DRAM") == 0;
}

/* The closest node of the kind: the one for the fewest cores. */
static hwloc_obj_t find_node(hwloc_topology_t m, hwloc_obj_t core, bool (*is_kind)(const struct hwloc_obj *))
{
    hwloc_obj_t best = NULL;
    for (hwloc_obj_t n = NULL; (n = hwloc_get_next_obj_by_type(m, HWLOC_OBJ_NUMANODE, n)) != NULL;)
        if (is_kind(n) && hwloc_bitmap_isincluded(core->cpuset, n->cpuset) &&
            (best == NULL || hwloc_bitmap_weight(n->cpuset) < hwloc_bitmap_weight(best->cpuset)))
            best = n;
    return best;
}

static hwloc_obj_t find_cache(hwloc_topology_t m, hwloc_obj_t core)
{
    static const hwloc_obj_type_t levels[] = {HWLOC_OBJ_L5CACHE, HWLOC_OBJ_L4CACHE, HWLOC_OBJ_L3CACHE,
                                              HWLOC_OBJ_L2CACHE};
    for (size_t i = 0; i < sizeof levels / sizeof *levels; i++) {
        hwloc_obj_t cache = hwloc_get_ancestor_obj_by_type(m, levels[i], core);
        if (cache != NULL)
            return cache->attr->cache.size > 0 ? cache : NULL;
    }
    return NULL;
}

static hwloc_obj_t find_near(hwloc_topology_t m, enum ps_near near, hwloc_obj_t core)
{
    switch (near) {
    case PS_NEAR_CACHE:
        return find_cache(m, core);
    case PS_NEAR_FAST:
        return find_node(m, core, is_fast);
    default:
        return find_node(m, core, is_dram);
    }
}

static int32_t node_of(hwloc_topology_t m, enum ps_near near, hwloc_obj_t memory, hwloc_obj_t core)
{
    hwloc_obj_t node = near == PS_NEAR_CACHE ? find_node(m, core, is_dram) : memory;
    return node != NULL ? (int32_t)node->os_index : -1;
}

/* The core's group of one kind. Cores come in the order of the tree, in which groups are contiguous. */
static void join_group(struct ps_topology *t, hwloc_topology_t m, enum ps_near near, hwloc_obj_t core,
                       hwloc_obj_t memory, bool is_new)
{
    struct ps_core *c = &t->cores[t->n_cores];
    if (is_new) {
        struct ps_near_group *g = &t->groups[near][t->n_groups[near]++];
        g->bytes = near == PS_NEAR_CACHE ? memory->attr->cache.size : memory->attr->numanode.local_memory;
        g->node = node_of(m, near, memory, core);
        g->first_core = t->n_cores;
    }
    c->group[near] = t->n_groups[near] - 1;
    t->groups[near][c->group[near]].n_cores++;
}

/* Goes through the cores. Those beyond the quota are counted. */
static void take_cores(struct ps_topology *t, hwloc_topology_t m, hwloc_const_bitmap_t allowed, uint32_t most)
{
    hwloc_obj_t last[PS_N_NEARS] = {NULL};
    bool has[PS_N_NEARS] = {true, true, true};
    for (hwloc_obj_t o = NULL; (o = hwloc_get_next_obj_by_type(m, HWLOC_OBJ_CORE, o)) != NULL;) {
        int cpu = -1, n_threads = 0;
        for (int i = hwloc_bitmap_first(o->cpuset); i >= 0; i = hwloc_bitmap_next(o->cpuset, i))
            if (hwloc_bitmap_isset(allowed, (unsigned)i)) {
                cpu = cpu < 0 ? i : cpu;
                n_threads++;
            }
        if (cpu < 0)
            continue;
        if (t->n_cores == most) {
            t->n_over_quota++;
            continue;
        }
        t->n_siblings += (uint32_t)(n_threads - 1);
        t->cores[t->n_cores].cpu = (uint32_t)cpu;
        for (enum ps_near near = 0; near < PS_N_NEARS; near++) {
            hwloc_obj_t memory = find_near(m, near, o);
            has[near] = has[near] && memory != NULL;
            if (has[near])
                join_group(t, m, near, o, memory, memory != last[near]);
            last[near] = memory;
        }
        t->n_cores++;
    }
    for (enum ps_near near = 0; near < PS_N_NEARS; near++)
        if (!has[near])
            t->n_groups[near] = 0;
}

static int fill(struct ps_topology *t, hwloc_topology_t m, const struct ps_topology_source *s,
                struct ps_error *err)
{
    hwloc_bitmap_t allowed = hwloc_bitmap_alloc();
    int rc = allowed != NULL ? allowed_cpus(m, s, allowed, err)
                             : ps_fail(err, -ENOMEM, "no memory for the machine's topology");
    if (rc == 0) {
        uint32_t all = count_cores(m, allowed);
        keep_fastest(m, allowed);
        uint32_t n = count_cores(m, allowed);
        t->n_slower = all - n;
        t->cores = calloc(n + 1, sizeof *t->cores);
        bool good = t->cores != NULL;
        for (enum ps_near near = 0; near < PS_N_NEARS; near++)
            good = (t->groups[near] = calloc(n + 1, sizeof *t->groups[near])) != NULL && good;
        if (!good)
            rc = ps_fail(err, -ENOMEM, "no memory for the topology of %u cores", n);
        else if (n == 0)
            rc = ps_fail(err, -EINVAL, "no core of %.60s is one that this process may use",
                         s->cpus != NULL ? s->cpus : "this machine");
        else
            take_cores(t, m, allowed, s->quota_cores > 0 ? s->quota_cores : n);
    }
    hwloc_bitmap_free(allowed);
    return rc;
}

int ps_topology_read(const struct ps_topology_source *source, struct ps_topology *out, struct ps_error *err)
{
    struct ps_topology t = {.n_cores = 0};
    hwloc_topology_t m = NULL;
    int rc = load(source, &m, err);

    if (rc < 0)
        return rc;
    rc = fill(&t, m, source, err);
    if (rc == 0 && source->synthetic == NULL && source->xml == NULL)
        t.machine = m;
    else
        hwloc_topology_destroy(m);
    if (rc < 0)
        ps_topology_finish(&t);
    else
        *out = t;
    return rc;
}

void ps_topology_finish(struct ps_topology *t)
{
    if (t->machine != NULL)
        hwloc_topology_destroy(t->machine);
    for (enum ps_near near = 0; near < PS_N_NEARS; near++)
        free(t->groups[near]);
    free(t->cores);
    *t = (struct ps_topology){.n_cores = 0};
}
