#include "server/center.h"

#include "proto/log.h"
#include "server/admissions/admissions.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

/* Whole pages of zeros, huge ones where the system has them. */
static float *vector_create(uint64_t n_floats)
{
    size_t len_bytes = n_floats * sizeof(float);
    float *v = aligned_alloc(2u << 20, (len_bytes + (2u << 20) - 1) & ~(((size_t)2 << 20) - 1));
    if (v == NULL)
        return NULL;
    madvise(v, len_bytes, MADV_HUGEPAGE);
    memset(v, 0, len_bytes);
    return v;
}

uint64_t psd_center_bytes(uint64_t n_floats, const struct psd_rule *rule,
                          const struct ps_averaging *averaging, uint32_t workers)
{
    uint64_t n_vectors = 1 + (uint64_t)rule->n_state + (averaging->rate != NULL);
    uint64_t n_seen = rule->takes_seen ? workers : 0; /* not in the snapshot */
    return (2 * n_vectors + n_seen) * n_floats * sizeof(float);
}

static int check_memory(const struct psd_config *cfg, uint64_t n_floats, const struct psd_rule *rule,
                        struct ps_error *err)
{
    const struct ps_averaging *averaging = ps_averaging_find(cfg->averaging);
    double need_gib =
        (double)psd_center_bytes(n_floats, rule, averaging, cfg->hyper.workers) / (double)(1u << 30);
    if (need_gib > cfg->limits.memory_gib)
        return ps_fail(
            err, -E2BIG,
            "a model of %llu floats needs %.2f GiB for center, snapshot and state; limits.memory_gib is %.2f",
            (unsigned long long)n_floats, need_gib, cfg->limits.memory_gib);
    return 0;
}

static int snapshot_create(struct psd_center *c, const struct psd_config *cfg)
{
    struct psd_snapshot *s = &c->snapshot;
    s->manifest = c->manifest;
    s->n_state = c->rule->n_state;
    s->has_average = c->z != NULL;
    s->lanes = c->cut.n_lanes;
    s->chunk_floats = c->shard.chunk_floats;
    memcpy(s->method, cfg->method, sizeof s->method);
    memcpy(s->rule, cfg->rule, sizeof s->rule);
    s->center = vector_create(c->manifest->n_floats);
    s->state = calloc(PSD_MAX_STATE, sizeof *s->state);
    s->lane_clocks = calloc(s->lanes, sizeof *s->lane_clocks);
    if (s->center == NULL || s->state == NULL || s->lane_clocks == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->n_state; i++)
        if ((s->state[i] = vector_create(c->manifest->n_floats)) == NULL)
            return -ENOMEM;
    if (s->has_average && (s->average = vector_create(c->manifest->n_floats)) == NULL)
        return -ENOMEM;
    return 0;
}

static struct psd_center *center_new(const struct psd_config *cfg, struct ps_manifest *manifest,
                                     uint32_t lanes, uint32_t chunk_floats)
{
    struct psd_center *c = calloc(1, sizeof *c);
    if (c == NULL) {
        ps_manifest_destroy(manifest);
        return NULL;
    }
    c->manifest = manifest;
    c->rule = psd_rule_find(cfg->rule);
    c->info = ps_rule_find(cfg->rule);
    c->averaging = ps_averaging_find(cfg->averaging);
    c->hyper = cfg->hyper;
    c->window_chunks = cfg->window_chunks;
    c->admission = psd_admission_find(cfg->admission);
    c->cut = (struct ps_shard){manifest->n_floats, lanes, chunk_floats};
    c->shard = c->cut;
    if (c->admission->whole_lanes)
        c->shard.n_lanes = 1;
    c->lanes_used = ps_shard_lanes_met(&c->shard, ps_shard_whole(&c->shard));
    for (uint32_t i = 0; i < c->shard.n_lanes; i++)
        c->lanes_moving += ps_manifest_moving(manifest, &c->shard, i, ps_shard_whole(&c->shard)) > 0;
    return c;
}

uint32_t psd_center_row(const struct psd_center *c, uint32_t lane)
{
    return c->admission->whole_lanes ? 0 : lane;
}

/* What a client saw before it sees anything is the center. */
static int seen_create(struct psd_center *c)
{
    uint32_t n = c->rule->takes_seen ? c->hyper.workers : 0;
    if (n == 0)
        return 0;
    if ((c->seen = calloc(n, sizeof *c->seen)) == NULL)
        return -ENOMEM;
    for (c->n_seen = 0; c->n_seen < n; c->n_seen++) {
        float *v = vector_create(c->manifest->n_floats);
        if (v == NULL)
            return -ENOMEM;
        memcpy(v, c->x, c->manifest->n_floats * sizeof *v);
        c->seen[c->n_seen] = v;
    }
    return 0;
}

int psd_center_create(const struct psd_config *cfg, struct ps_manifest *manifest, struct psd_center **out,
                      struct ps_error *err)
{
    int rc = check_memory(cfg, manifest->n_floats, psd_rule_find(cfg->rule), err);
    if (rc < 0) {
        ps_manifest_destroy(manifest);
        return rc;
    }
    struct psd_center *c = center_new(cfg, manifest, cfg->lanes, cfg->chunk_floats);
    if (c == NULL)
        return ps_fail(err, -ENOMEM, "no memory for a center");
    bool ok = (c->x = vector_create(c->manifest->n_floats)) != NULL;
    for (uint32_t i = 0; ok && i < c->rule->n_state; i++)
        ok = (c->state[i] = vector_create(c->manifest->n_floats)) != NULL;
    if (ok && c->averaging->rate != NULL)
        ok = (c->z = vector_create(c->manifest->n_floats)) != NULL;
    if (!ok || seen_create(c) < 0 || snapshot_create(c, cfg) < 0) {
        rc = ps_fail(err, -ENOMEM, "no memory for a center of %llu floats",
                     (unsigned long long)c->manifest->n_floats);
        psd_center_destroy(c);
        return rc;
    }
    *out = c;
    return 0;
}

/* The checkpoint's average where both have one. */
static int resume_average(struct psd_center *c, struct psd_snapshot *s)
{
    if (c->averaging->rate == NULL && s->has_average) {
        ps_log(PS_LOG_INFO, "resume.average", "averaging is none: the checkpoint's average is dropped");
        free(s->average);
    } else if (s->has_average) {
        c->z = s->average;
    } else if (c->averaging->rate != NULL) {
        if ((c->z = vector_create(c->manifest->n_floats)) == NULL)
            return -ENOMEM;
        memcpy(c->z, c->x, c->manifest->n_floats * sizeof *c->z);
        ps_log(PS_LOG_INFO, "resume.average",
               "the checkpoint has no average: averaging %s starts at its center", c->averaging->name);
    }
    s->average = NULL;
    s->has_average = false;
    return 0;
}

int psd_center_resume(const struct psd_config *cfg, struct psd_snapshot *s, struct psd_center **out,
                      struct ps_error *err)
{
    const struct psd_rule *rule = psd_rule_find(cfg->rule);
    struct ps_shard shard = {s->manifest->n_floats, s->lanes, s->chunk_floats};
    int rc;

    if (s->n_state != rule->n_state || (rule->n_state > 0 && strcmp(s->rule, rule->name) != 0))
        return ps_fail(err, -EINVAL,
                       "the checkpoint holds the state of rule '%s' (%u vectors); rule '%s' needs %u",
                       s->rule, s->n_state, rule->name, rule->n_state);
    if (!ps_shard_valid(&shard))
        return ps_fail(err, -EINVAL,
                       "the checkpoint's lane map is not possible: %u lanes, chunks of %u floats", s->lanes,
                       s->chunk_floats);
    if ((rc = check_memory(cfg, s->manifest->n_floats, rule, err)) < 0)
        return rc;
    struct psd_center *c = center_new(cfg, s->manifest, s->lanes, s->chunk_floats);
    s->manifest = NULL;
    if (c == NULL)
        return ps_fail(err, -ENOMEM, "no memory for a center");
    c->x = s->center;
    s->center = NULL;
    for (uint32_t i = 0; i < s->n_state; i++) {
        c->state[i] = s->state[i];
        s->state[i] = NULL;
    }
    c->resumed = s;
    if (resume_average(c, s) < 0 || seen_create(c) < 0 || snapshot_create(c, cfg) < 0) {
        psd_center_destroy(c);
        return ps_fail(err, -ENOMEM, "no memory for a snapshot of the center");
    }
    *out = c;
    return 0;
}

void psd_center_destroy(struct psd_center *c)
{
    if (c == NULL)
        return;
    for (uint32_t i = 0; i < PSD_MAX_STATE; i++)
        free(c->state[i]);
    for (uint32_t i = 0; i < c->n_seen; i++)
        free(c->seen[i]);
    free(c->seen);
    free(c->z);
    c->snapshot.manifest = NULL; /* shared with the center's */
    psd_snapshot_finish(&c->snapshot);
    ps_manifest_destroy(c->manifest);
    free(c->x);
    free(c);
}
