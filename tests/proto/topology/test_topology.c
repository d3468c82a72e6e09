/* Placements on machines that hwloc describes. What its synthetic descriptions cannot say, memories of
 * another kind and cores of two kinds, is put into the XML that hwloc makes of them. */
#include "proto/topology/topology.h"

#include <check.h>
#include <errno.h>
#include <hwloc.h>
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

#include "tests/support/unit.h"

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

struct machine {
    const char *name, *synthetic;
    const char *fast;  /* nodes that are MCDRAM: ",1,3," */
    const char *quick; /* CPUs of the faster kind of core; NULL: all cores are of one kind */
};

enum { KNL_QUADRANT, KNL_SNC4, EPYC, LAPTOP, SMALL, FLAT, N_MACHINES };

static const struct machine machines[N_MACHINES] = {
    /* 68 cores in 34 tiles of 1 MiB, 96 GiB DRAM and 16 GiB MCDRAM for all */
    [KNL_QUADRANT] =
        {"KNL, quadrant",
         "pack:1 [numa(memory=103079215104)] [numa(memory=17179869184)] l2:34(size=1048576) core:2 pu:4",
         ",1,", NULL},
    /* 72 cores, and a quarter of either memory for each quarter */
    [KNL_SNC4] =
        {"KNL, SNC-4",
         "pack:1 group:4 [numa(memory=25769803776)] [numa(memory=4294967296)] l2:9(size=1048576) core:2 pu:4",
         ",1,3,5,7,", NULL},
    /* 2 sockets of 4 nodes of 16 cores, 8 to a cache of 32 MiB */
    [EPYC] = {"EPYC, NPS4", "pack:2 group:4 [numa(memory=68719476736)] l3:2(size=33554432) core:8 pu:2", "",
              NULL},
    /* 6 fast cores of two threads, 8 slow ones: CPUs 0 to 11 are fast, and of the 14 synthetic cores of two
     * threads the last 8 are the slow ones */
    [LAPTOP] = {"laptop", "[numa(memory=17179869184)] l3:1(size=25165824) core:14 pu:2", "", "0-11"},
    [SMALL] = {"two cores", "[numa(memory=8589934592)] l3:1(size=33554432) core:2 pu:1", "", NULL},
    /* no cache is described */
    [FLAT] = {"six cores", "[numa(memory=8589934592)] core:6 pu:1", "", NULL},
};

/* The XML of the machine, with the kinds put in. The caller removes the file. */
static void write_xml(const struct machine *m, char *path)
{
    hwloc_topology_t t;
    char *xml = NULL;
    int length, fd = mkstemp(path);
    FILE *f = fdopen(fd, "w");
    ck_assert_ptr_nonnull(f);
    ck_assert_int_eq(hwloc_topology_init(&t), 0);
    ck_assert_int_eq(hwloc_topology_set_synthetic(t, m->synthetic), 0);
    ck_assert_int_eq(hwloc_topology_load(t), 0);
    if (m->quick != NULL) {
        hwloc_bitmap_t quick = hwloc_bitmap_alloc(), slow = hwloc_bitmap_alloc();
        hwloc_bitmap_list_sscanf(quick, m->quick);
        hwloc_bitmap_andnot(slow, hwloc_topology_get_topology_cpuset(t), quick);
        ck_assert_int_eq(hwloc_cpukinds_register(t, slow, 0, 0, NULL, 0), 0);
        ck_assert_int_eq(hwloc_cpukinds_register(t, quick, 1, 0, NULL, 0), 0);
        hwloc_bitmap_free(quick);
        hwloc_bitmap_free(slow);
    }
    ck_assert_int_eq(hwloc_topology_export_xmlbuffer(t, &xml, &length, 0), 0);
    for (char *at = xml, *next; *at != 0; at = next) {
        static const char node[] = "<object type=\"NUMANode\"";
        char number[16];
        unsigned index;
        next = strstr(at + 1, node);
        if (next == NULL)
            next = at + strlen(at);
        bool is_node = strncmp(at, node, strlen(node)) == 0 &&
                       sscanf(at, "<object type=\"NUMANode\" os_index=\"%u\"", &index) == 1;
        snprintf(number, sizeof number, ",%u,", is_node ? index : 0);
        if (is_node && strstr(m->fast, number) != NULL) {
            fprintf(f, "%s subtype=\"MCDRAM\"", node);
            at += strlen(node);
        }
        fwrite(at, 1, (size_t)(next - at), f);
    }
    ck_assert_int_eq(fclose(f), 0);
    hwloc_free_xmlbuffer(t, xml);
    hwloc_topology_destroy(t);
}

static void read_machine(int machine, const char *cpus, uint32_t quota, struct ps_topology *out)
{
    struct ps_error err = {""};
    char path[] = "/tmp/psd-topology-XXXXXX";
    write_xml(&machines[machine], path);
    int rc = ps_topology_read(&(struct ps_topology_source){.xml = path, .cpus = cpus, .quota_cores = quota},
                              out, &err);
    unlink(path);
    ck_assert_msg(rc == 0, "%s: %s", machines[machine].name, err.text);
}

START_TEST(machines_are_what_they_are)
{
    static const struct {
        int machine;
        uint32_t cores, caches, fast, nodes, slower, siblings;
    } rows[] = {
        {KNL_QUADRANT, 68, 34, 1, 1, 0, 204}, {KNL_SNC4, 72, 36, 4, 4, 0, 216}, {EPYC, 128, 16, 0, 8, 0, 128},
        {LAPTOP, 6, 1, 0, 1, 8, 6},           {SMALL, 2, 1, 0, 1, 0, 0},        {FLAT, 6, 0, 0, 1, 0, 0},
    };
    for (size_t i = 0; i < ROWS(rows); i++) {
        struct ps_topology t;
        read_machine(rows[i].machine, NULL, 0, &t);
        ck_assert_uint_eq(t.n_cores, rows[i].cores);
        ck_assert_uint_eq(t.n_groups[PS_NEAR_CACHE], rows[i].caches);
        ck_assert_uint_eq(t.n_groups[PS_NEAR_FAST], rows[i].fast);
        ck_assert_uint_eq(t.n_groups[PS_NEAR_NODE], rows[i].nodes);
        ck_assert_uint_eq(t.n_slower, rows[i].slower);
        ck_assert_uint_eq(t.n_siblings, rows[i].siblings);
        for (enum ps_near near = 0; near < PS_N_NEARS; near++) {
            uint32_t n = 0;
            for (uint32_t g = 0; g < t.n_groups[near]; g++) {
                ck_assert_uint_eq(t.groups[near][g].first_core, n);
                n += t.groups[near][g].n_cores;
            }
            ck_assert(t.n_groups[near] == 0 || n == t.n_cores);
        }
        ps_topology_finish(&t);
    }
}
END_TEST

/* One thread of a core, of those that the mask allows; the quota takes the first cores. */
START_TEST(masks_and_quotas_are_honoured)
{
    static const struct {
        int machine;
        const char *cpus;
        uint32_t quota, cores, first, last, over, siblings;
    } rows[] = {
        {EPYC, "16-47", 0, 16, 16, 46, 0, 16}, /* the second node's cores */
        {EPYC, "1,3,5,256", 0, 3, 1, 5, 0, 0}, /* the second thread of each */
        {EPYC, NULL, 10, 10, 0, 18, 118, 10},  /* cpu.max 1000000 100000 */
        {EPYC, "0-7", 10, 4, 0, 6, 0, 4},      /* the mask is the smaller */
        {LAPTOP, "12-27", 0, 8, 12, 26, 0, 8}, /* the mask leaves slow cores alone: they are used */
        {LAPTOP, "10-27", 0, 1, 10, 10, 0, 1}, /* one fast core is left */
    };
    for (size_t i = 0; i < ROWS(rows); i++) {
        struct ps_topology t;
        read_machine(rows[i].machine, rows[i].cpus, rows[i].quota, &t);
        ck_assert_uint_eq(t.n_cores, rows[i].cores);
        ck_assert_uint_eq(t.cores[0].cpu, rows[i].first);
        ck_assert_uint_eq(t.cores[t.n_cores - 1].cpu, rows[i].last);
        ck_assert_uint_eq(t.n_over_quota, rows[i].over);
        ck_assert_uint_eq(t.n_siblings, rows[i].siblings);
        ps_topology_finish(&t);
    }
}
END_TEST

/* AlexNet of 249 MB with a copy of CIFAR of 687 MB, as You et al. have it; and smaller and larger ones. */
#define THEIRS (936 * UINT64_C(1000000))

struct placement_row {
    int machine;
    uint32_t given, given_threads; /* 0: auto */
    uint64_t fixed, image;
    uint32_t batch;
    uint32_t n, threads, idle;
    enum ps_near near;
    bool fits, spans;
    uint32_t last_core; /* the first of the last partition's */
    int32_t last_node;
    const char *why;
};

static const struct placement_row placements[] = {
    /* figure 12: 16 parts. 64 would need more than the MCDRAM has, and so would 32 */
    {KNL_QUADRANT, 0, 0, THEIRS, 10000, 256, 16, 4, 4, PS_NEAR_FAST, true, false, 60, 1,
     "not 32: their copies"},
    {KNL_SNC4, 0, 0, THEIRS, 10000, 256, 16, 4, 8, PS_NEAR_FAST, true, false, 66, 7, "MCDRAM"},
    /* four times as large: one to a quarter */
    {KNL_SNC4, 0, 0, 4 * THEIRS, 0, 256, 4, 18, 0, PS_NEAR_FAST, true, false, 54, 7,
     "4 partitions of 18 cores"},
    /* too large for MCDRAM: DRAM */
    {KNL_SNC4, 0, 0, 10 * GIB, 0, 256, 8, 9, 0, PS_NEAR_NODE, true, false, 63, 6, "NUMA node"},
    {KNL_QUADRANT, 0, 0, 12 * GIB, 0, 256, 1, 68, 0, PS_NEAR_FAST, true, false, 0, 1, "not 2: their copies"},
    /* a part of the batch below 8 images is not made */
    {KNL_QUADRANT, 0, 0, MIB, 0, 64, 8, 8, 4, PS_NEAR_FAST, true, false, 56, 1, "not 16: their parts"},
    /* each cache holds two copies */
    {EPYC, 0, 0, 7 * MIB, 100000, 256, 32, 4, 0, PS_NEAR_CACHE, true, false, 124, 7, "last-level cache"},
    {EPYC, 0, 0, 20 * MIB, 0, 256, 16, 8, 0, PS_NEAR_CACHE, true, false, 120, 7, "not 32"},
    {EPYC, 0, 0, 100 * MIB, MIB, 512, 64, 2, 0, PS_NEAR_NODE, true, false, 126, 7, "NUMA node"},
    {EPYC, 0, 0, 40 * GIB, 0, 256, 8, 16, 0, PS_NEAR_NODE, true, false, 112, 7, "8 partitions of 16 cores"},
    {EPYC, 0, 0, 100 * GIB, 0, 256, 1, 128, 0, PS_NEAR_NODE, true, true, 0, -1, "no memory that is near"},
    /* the batch of 72 is no multiple of 16 or 32 and leaves 9 parts to 8 nodes: cores would be idle */
    {EPYC, 0, 0, 100 * MIB, 0, 72, 8, 16, 0, PS_NEAR_NODE, true, false, 112, 7, "not 9"},
    /* given: as asked, and told whether it fits */
    {EPYC, 4, 0, 7 * MIB, 0, 256, 4, 32, 0, PS_NEAR_NODE, true, true, 96, -1, "across memories"},
    {EPYC, 8, 2, 100 * GIB, 0, 256, 8, 2, 112, PS_NEAR_NODE, false, false, 112, 7, "do not fit"},
    {EPYC, 128, 0, 7 * MIB, 0, 128, 128, 1, 0, PS_NEAR_NODE, true, false, 127, 7, "128 partitions"},
    /* the six fast cores */
    {LAPTOP, 0, 0, 10 * MIB, 0, 96, 2, 3, 0, PS_NEAR_CACHE, true, false, 3, 0, "not 3: their copies"},
    {LAPTOP, 0, 0, 100 * MIB, 0, 96, 6, 1, 0, PS_NEAR_NODE, true, false, 5, 0, "NUMA node"},
    {SMALL, 0, 0, 10 * MIB, 0, 64, 2, 1, 0, PS_NEAR_CACHE, true, false, 1, 0, "2 partitions of 1 core:"},
    {SMALL, 0, 0, 10 * MIB, 0, 65, 1, 2, 0, PS_NEAR_CACHE, true, false, 0, 0, "1 partition of 2 cores"},
    {SMALL, 0, 0, 6 * GIB, 0, 64, 1, 2, 0, PS_NEAR_NODE, true, false, 0, 0, "1 partition"},
    /* of six cores four would be busy: 2 leaves none idle */
    {FLAT, 0, 0, MIB, 0, 64, 2, 3, 0, PS_NEAR_NODE, true, false, 3, 0, "not 4: they would leave too many"},
    {FLAT, 4, 0, MIB, 0, 64, 4, 1, 2, PS_NEAR_NODE, true, false, 3, 0, "4 partitions of 1 core"},
    {FLAT, 0, 2, MIB, 0, 96, 3, 2, 0, PS_NEAR_NODE, true, false, 4, 0, "3 partitions of 2 cores"},
};

/* No core twice, and each partition in the group that its node says. */
static void check_cores(const struct ps_topology *t, const struct ps_placement *p)
{
    for (uint32_t i = 0; i < p->n; i++) {
        uint32_t first = p->parts[i].first_core, end = first + p->threads;
        ck_assert_uint_le(end, i + 1 < p->n ? p->parts[i + 1].first_core : t->n_cores);
        ck_assert_int_eq(p->parts[i].node < 0, p->spans);
        for (uint32_t c = first; c < end && !p->spans; c++) {
            uint32_t group = t->cores[c].group[p->near];
            ck_assert_int_eq(t->groups[p->near][group].node, p->parts[i].node);
            ck_assert_uint_eq(group, t->cores[first].group[p->near]);
        }
    }
}

START_TEST(partitions_lie_as_the_table_says)
{
    const struct placement_row *row = &placements[_i];
    const struct ps_need need = {
        .fixed_bytes = row->fixed, .image_bytes = row->image, .batch = row->batch, .least_images = 8};
    struct ps_topology t;
    struct ps_placement p;
    struct ps_error err = {""};

    read_machine(row->machine, NULL, 0, &t);
    int rc = ps_place(&t, row->given, row->given_threads, &need, &p, &err);
    ck_assert_msg(rc == 0, "%s", err.text);
    ck_assert_msg(p.n == row->n && p.threads == row->threads, "%s", p.why);
    ck_assert_uint_eq(p.n_idle, row->idle);
    ck_assert_msg(p.near == row->near, "%s", p.why);
    ck_assert_int_eq(p.fits, row->fits);
    ck_assert_int_eq(p.spans, row->spans);
    ck_assert_uint_eq(p.bytes, row->fixed + row->image * (row->batch / row->n));
    ck_assert_uint_eq(p.parts[p.n - 1].first_core, row->last_core);
    ck_assert_int_eq(p.parts[p.n - 1].node, row->last_node);
    assert_says(p.why, row->why);
    check_cores(&t, &p);
    ps_placement_finish(&p);
    ps_topology_finish(&t);
}
END_TEST

/* 1 core of one node and 7 of another are left: both partitions lie in the other, and neither across. */
START_TEST(uneven_groups_are_shared_evenly)
{
    struct ps_topology t;
    struct ps_placement p;
    struct ps_error err = {""};
    const struct ps_need need = {.fixed_bytes = MIB, .batch = 64, .least_images = 8};

    read_machine(EPYC, "0-1,32-45", 0, &t);
    ck_assert_uint_eq(t.n_groups[PS_NEAR_NODE], 2);
    ck_assert_int_eq(ps_place(&t, 2, 0, &need, &p, &err), 0);
    ck_assert_uint_eq(p.threads, 3);
    ck_assert_uint_eq(p.parts[0].first_core, 1);
    ck_assert_uint_eq(p.parts[1].first_core, 4);
    ps_placement_finish(&p);
    ps_topology_finish(&t);
}
END_TEST

/* psd's lanes: each on one node, neighbours together. */
START_TEST(threads_share_the_nodes)
{
    static const struct {
        uint32_t n, group[8];
    } rows[] = {{1, {0}}, {2, {0, 4}}, {3, {0, 2, 5}}, {8, {0, 1, 2, 3, 4, 5, 6, 7}}};
    struct ps_topology t;

    read_machine(EPYC, NULL, 0, &t);
    for (size_t i = 0; i < ROWS(rows); i++)
        for (uint32_t k = 0; k < rows[i].n; k++)
            ck_assert_uint_eq(ps_topology_share(&t, PS_NEAR_NODE, k, rows[i].n), rows[i].group[k]);
    ck_assert_uint_eq(ps_topology_share(&t, PS_NEAR_NODE, 63, 64), 7);
    ps_topology_finish(&t);
}
END_TEST

START_TEST(what_cannot_be_is_refused)
{
    static const struct {
        uint32_t partitions, threads, batch;
        const char *says;
    } rows[] = {{7, 0, 70, "7 partitions of 1 threads; this process may use 6 cores"},
                {3, 3, 60, "3 partitions of 3 threads"},
                {4, 0, 62, "cannot divide a batch of 62 images; allowed: 1, 2"},
                {0, 7, 60, "1 partitions of 7 threads"}};
    struct ps_topology t;
    struct ps_placement p;
    struct ps_error err = {""};

    read_machine(FLAT, NULL, 0, &t);
    for (size_t i = 0; i < ROWS(rows); i++) {
        const struct ps_need need = {.fixed_bytes = MIB, .batch = rows[i].batch, .least_images = 8};
        ck_assert_int_lt(ps_place(&t, rows[i].partitions, rows[i].threads, &need, &p, &err), 0);
        assert_says(err.text, rows[i].says);
    }
    ps_topology_finish(&t);
    ck_assert_int_lt(ps_topology_read(&(struct ps_topology_source){.synthetic = "no machine"}, &t, &err), 0);
    assert_says(err.text, "no machine");
    ck_assert_int_lt(
        ps_topology_read(&(struct ps_topology_source){.synthetic = "core:2 pu:1", .cpus = "x"}, &t, &err), 0);
    assert_says(err.text, "no list of CPUs");
    ck_assert_int_lt(
        ps_topology_read(&(struct ps_topology_source){.synthetic = "core:2 pu:1", .cpus = "7"}, &t, &err), 0);
    assert_says(err.text, "no core of 7");
}
END_TEST

/* The memory that the process may take limits auto, where the machine has more. */
START_TEST(the_limit_of_the_process_counts)
{
    const struct ps_need need = {
        .fixed_bytes = GIB, .batch = 256, .least_images = 8, .limit_bytes = 17 * GIB};
    struct ps_topology t;
    struct ps_placement p;
    struct ps_error err = {""};

    read_machine(EPYC, NULL, 0, &t);
    ck_assert_int_eq(ps_place(&t, 0, 0, &need, &p, &err), 0);
    ck_assert_uint_eq(p.n, 16);
    assert_says(p.why, "not 32: their copies would exceed");
    ps_placement_finish(&p);
    ps_topology_finish(&t);
}
END_TEST

/* This machine: threads run where they were put, and so do those that they start. */
START_TEST(threads_are_bound)
{
    const struct ps_need need = {.fixed_bytes = MIB, .batch = 64, .least_images = 1};
    struct ps_topology t;
    struct ps_placement p;
    struct ps_error err = {""};
    cpu_set_t set;

    ck_assert_int_eq(ps_topology_read(&(struct ps_topology_source){.synthetic = NULL}, &t, &err), 0);
    ck_assert_int_eq(ps_place(&t, 1, 0, &need, &p, &err), 0);
    int rc = ps_topology_bind(&t, &p, 0, &err);
    ck_assert_msg(rc == 0 || rc == -EPERM || rc == -ENOSYS, "%s", err.text);
    ck_assert_int_eq(sched_getaffinity(0, sizeof set, &set), 0);
    ck_assert_int_eq(CPU_COUNT(&set), (int)t.n_cores);
    rc = ps_topology_pin(&t, &p, 0, t.n_cores - 1, &err);
    ck_assert_msg(rc == 0, "%s", err.text);
    ck_assert_int_eq(sched_getaffinity(0, sizeof set, &set), 0);
    ck_assert_int_eq(CPU_COUNT(&set), 1);
    ck_assert(CPU_ISSET(t.cores[t.n_cores - 1].cpu, &set));
    ps_placement_finish(&p);
    ps_topology_finish(&t);
    /* What is left to the thread is all that is seen now. */
    ck_assert_int_eq(ps_topology_read(&(struct ps_topology_source){.synthetic = NULL}, &t, &err), 0);
    ck_assert_uint_eq(t.n_cores, 1);
    ps_topology_finish(&t);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("proto-topology");
    TCase *tc = tcase_create("topology");
    tcase_add_test(tc, machines_are_what_they_are);
    tcase_add_test(tc, masks_and_quotas_are_honoured);
    tcase_add_loop_test(tc, partitions_lie_as_the_table_says, 0, (int)ROWS(placements));
    tcase_add_test(tc, uneven_groups_are_shared_evenly);
    tcase_add_test(tc, threads_share_the_nodes);
    tcase_add_test(tc, what_cannot_be_is_refused);
    tcase_add_test(tc, the_limit_of_the_process_counts);
    tcase_add_test(tc, threads_are_bound);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
