#include "server/center/center.h"

#include "proto/transports/transport.h"
#include "proto/model/fragment.h"
#include "proto/log.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE_BYTES ((size_t)2 << 20)

float *psd_vector_create(uint64_t n_floats, struct ps_range own)
{
    size_t len_bytes = n_floats * sizeof(float);
    float *v = aligned_alloc(PAGE_BYTES, (len_bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1));
    if (v == NULL)
        return NULL;
    madvise(v, len_bytes, MADV_HUGEPAGE);
    /* malloc may have used these pages before: this makes the system zero them when they are next touched. */
    if (madvise(v, (len_bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1), MADV_DONTNEED) != 0)
        memset(v + own.begin, 0, own.count * sizeof(float)); /* the pages are locked */
    return v;
}

uint64_t psd_center_bytes(uint64_t n_floats, const struct psd_rule *rule,
                          const struct ps_averaging *averaging, uint32_t workers)
{
    uint64_t n_vectors = 1 + (uint64_t)rule->n_state + (averaging->rate != NULL);
    uint64_t n_seen = rule->takes_seen ? workers : 0; /* not part of the snapshot */
    return (2 * n_vectors + n_seen) * n_floats * sizeof(float);
}

double psd_memory_gib_for(uint64_t bytes)
{
    return (double)((bytes * 100 + (1u << 30) - 1) >> 30) / 100;
}

int psd_center_check_memory(const struct psd_config *cfg, uint64_t n_floats, const struct psd_rule *rule,
                            struct ps_error *err)
{
    const struct ps_averaging *averaging = ps_averaging_find(cfg->averaging);
    uint64_t need = psd_center_bytes(n_floats, rule, averaging, cfg->hyper.workers);
    struct ps_codec answer;
    if (ps_codec_of(cfg->codec.answer, &answer) == NULL && answer.for_moves)
        need += cfg->hyper.workers * n_floats * sizeof(float);
    if ((double)need <= cfg->limits.memory_gib * (double)(1u << 30))
        return 0;
    return ps_fail(
        err, -E2BIG,
        "a model of %llu floats needs %.2f GiB for center, snapshot and state; limits.memory_gib is %g",
        (unsigned long long)n_floats, psd_memory_gib_for(need), cfg->limits.memory_gib);
}

int psd_center_check_fragments(const struct ps_hyper *h, const struct ps_shard *shard, struct ps_error *err)
{
    uint64_t most = ps_fragments_most(shard);
    if (h->fragments <= 1 || h->fragments <= most)
        return 0;
    return ps_fail(err, -EINVAL,
                   "parameters.fragments: found %u; the model's %llu floats have %llu chunks in %u lanes; "
                   "allowed is 1 to %llu (a smaller chunk_floats, now %u, makes more of them)",
                   h->fragments, (unsigned long long)shard->n_floats, (unsigned long long)most,
                   shard->n_lanes, (unsigned long long)most, shard->chunk_floats);
}

int psd_center_count_fragments(struct psd_center *c)
{
    struct psd_snapshot *s = &c->snapshot;
    if (c->hyper.fragments <= 1)
        return 0;
    s->fragments = c->hyper.fragments;
    s->fragment_moves = calloc((size_t)c->cut.n_lanes * s->fragments, sizeof *s->fragment_moves);
    return s->fragment_moves != NULL ? 0 : -ENOMEM;
}

static int snapshot_create(struct psd_center *c, const struct psd_config *cfg)
{
    struct psd_snapshot *s = &c->snapshot;
    s->manifest = c->manifest;
    s->n_state = c->rule->n_state;
    s->has_average = c->z != NULL;
    s->map = (struct psd_map){c->cut.n_lanes, c->cut.chunk_floats, c->cut.n_parts};
    s->part = cfg->servers.count > 1 ? cfg->servers.index : PSD_WHOLE;
    s->range = c->own;
    memcpy(s->method, cfg->method, sizeof s->method);
    memcpy(s->rule, cfg->rule, sizeof s->rule);
    memcpy(s->averaging, cfg->averaging, sizeof s->averaging);
    s->delay = psd_center_delay(c);
    s->center = psd_vector_create(c->manifest->n_floats, c->own);
    s->state = calloc(PSD_MAX_STATE, sizeof *s->state);
    s->lane_clocks = calloc(s->map.lanes, sizeof *s->lane_clocks);
    s->lane_moves = calloc(s->map.lanes, sizeof *s->lane_moves);
    if (s->center == NULL || s->state == NULL || s->lane_clocks == NULL || s->lane_moves == NULL ||
        psd_center_count_fragments(c) < 0)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->n_state; i++)
        if ((s->state[i] = psd_vector_create(c->manifest->n_floats, c->own)) == NULL)
            return -ENOMEM;
    if (s->has_average && (s->average = psd_vector_create(c->manifest->n_floats, c->own)) == NULL)
        return -ENOMEM;
    return 0;
}

/* Finds the lanes of this psd, and how many of them are used and moving. */
static void find_own(struct psd_center *c, const struct psd_config *cfg)
{
    bool alone = cfg->servers.count == 1;
    c->own_lanes = alone ? c->shard.n_lanes : c->shard.n_lanes / c->shard.n_parts;
    c->first_lane = alone ? 0 : cfg->servers.index * c->own_lanes;
    c->own = alone ? ps_shard_whole(&c->shard) : ps_shard_part(&c->shard, cfg->servers.index);
    for (uint32_t i = 0; i < c->shard.n_lanes; i++) {
        bool own = i >= c->first_lane && i < c->first_lane + c->own_lanes;
        bool used = ps_shard_slice(&c->shard, i).count > 0;
        bool moves = ps_manifest_moving(c->manifest, &c->shard, i, ps_shard_whole(&c->shard)) > 0;
        c->lanes_used += used;
        c->lanes_moving += moves;
        c->parts_used |= used ? 1u << psd_center_part(c, i) : 0;
        c->parts_moving |= moves ? 1u << psd_center_part(c, i) : 0;
        c->own_used += used && own;
        c->own_moving += moves && own;
    }
}

static uint32_t most_in_flight(const struct psd_config *cfg)
{
    size_t n;
    const struct ps_transport *const *rows = ps_transport_rows(&n);
    uint32_t most = cfg->window_chunks;
    for (size_t i = 0; i < n; i++) {
        uint32_t window = ps_transport_window(rows[i], cfg->window_chunks);
        most = window > most ? window : most;
    }
    return most;
}

int psd_center_new(const struct psd_config *cfg, const struct psd_admission *admission,
                   struct ps_manifest *manifest, const struct psd_map *map, struct psd_center **out,
                   struct ps_error *err)
{
    struct psd_center *c = calloc(1, sizeof *c);
    if (c == NULL)
        return ps_fail(err, -ENOMEM, "no memory for a center");
    c->manifest = manifest;
    c->rule = psd_rule_find(cfg->rule);
    c->info = ps_rule_find(cfg->rule);
    c->averaging = ps_averaging_find(cfg->averaging);
    c->hyper = cfg->hyper;
    ps_codec_of(cfg->codec.message, &c->message_codec); /* they were checked with the configuration */
    ps_codec_of(cfg->codec.answer, &c->answer_codec);
    c->window_chunks = cfg->window_chunks;
    c->most_in_flight = most_in_flight(cfg);
    c->admission = admission;
    c->whole_lanes = ps_admission_find(cfg->admission)->whole_lanes;
    c->cut = (struct ps_shard){manifest->n_floats, map->lanes, map->chunk_floats, 0, {0}};
    int rc = ps_shard_valid(&c->cut)
                 ? ps_manifest_cut(manifest, map->parts, &c->cut, err)
                 : ps_fail(err, -EINVAL, "the lane map is not possible: %u lanes, chunks of %u floats",
                           map->lanes, map->chunk_floats);
    if (rc < 0) {
        free(c);
        return rc;
    }
    c->shard = c->cut;
    if (c->whole_lanes) {
        c->shard.n_lanes = c->shard.n_parts = 1;
        size_t most_parts = ps_shard_n_chunks(&c->shard, 0) + manifest->n_tensors; /* of tensors in chunks */
        if ((c->moved = calloc(most_parts, sizeof *c->moved)) == NULL) {
            free(c);
            return ps_fail(err, -ENOMEM, "no memory for a center");
        }
    }
    find_own(c, cfg);
    *out = c;
    return 0;
}

uint32_t psd_center_row(const struct psd_center *c, uint32_t lane)
{
    return c->whole_lanes ? 0 : lane;
}

/* Before a client has seen the center, its `seen` is the center: zeros, unless the job is resumed. */
static int seen_create(struct psd_center *c, bool resumed)
{
    uint32_t n = psd_center_sees(c);
    if (n == 0)
        return 0;
    if ((c->seen = calloc(n, sizeof *c->seen)) == NULL)
        return -ENOMEM;
    for (c->n_seen = 0; c->n_seen < n; c->n_seen++) {
        float *v = psd_vector_create(c->manifest->n_floats, c->own);
        if (v == NULL)
            return -ENOMEM;
        if (resumed && c->rule->takes_seen)
            memcpy(v + c->own.begin, c->x + c->own.begin, c->own.count * sizeof *v);
        c->seen[c->n_seen] = v;
    }
    return 0;
}

int psd_center_create(const struct psd_config *cfg, const struct psd_admission *admission,
                      struct ps_manifest *manifest, struct psd_center **out, struct ps_error *err)
{
    struct psd_map map = {cfg->lanes * cfg->servers.count, cfg->chunk_floats, cfg->servers.count};
    struct psd_center *c;
    int rc = psd_center_new(cfg, admission, manifest, &map, &c, err);
    if (rc < 0) {
        ps_manifest_destroy(manifest);
        return rc;
    }
    if ((rc = psd_center_check_memory(cfg, c->own.count, c->rule, err)) < 0 ||
        (rc = psd_center_check_fragments(&c->hyper, &c->shard, err)) < 0) {
        psd_center_destroy(c);
        return rc;
    }
    bool ok = (c->x = psd_vector_create(c->manifest->n_floats, c->own)) != NULL;
    for (uint32_t i = 0; ok && i < c->rule->n_state; i++)
        ok = (c->state[i] = psd_vector_create(c->manifest->n_floats, c->own)) != NULL;
    if (ok && c->averaging->rate != NULL)
        ok = (c->z = psd_vector_create(c->manifest->n_floats, c->own)) != NULL;
    if (!ok || seen_create(c, false) < 0 || snapshot_create(c, cfg) < 0) {
        rc = ps_fail(err, -ENOMEM, "no memory for a center of %llu floats",
                     (unsigned long long)c->manifest->n_floats);
        psd_center_destroy(c);
        return rc;
    }
    *out = c;
    return 0;
}

/* How often the rule has moved the values. With fragments a lane's own count has all of theirs. */
static uint64_t moves_of(const struct psd_snapshot *s)
{
    return s->fragment_moves != NULL ? psd_most(s->fragment_moves, s->map.lanes * s->fragments)
                                     : psd_most(s->lane_moves, s->map.lanes);
}

static bool has_rule_of(const struct psd_center *c, const struct psd_snapshot *s)
{
    return strcmp(s->rule, c->rule->name) == 0 && s->n_state == c->rule->n_state;
}

/* Whether the checkpoint's average goes on: it is of the same averaging, and counts the moves of the same
 * rule. */
static bool is_average_of(const struct psd_center *c, const struct psd_snapshot *s)
{
    bool same = s->averaging[0] == 0 || strcmp(s->averaging, c->averaging->name) == 0;
    return c->averaging->rate != NULL && s->has_average && same && has_rule_of(c, s);
}

/* Keeps the rule's state if the rule is the same; else it starts from zero, as after a method change. So it
 * does where an average starts, because both count the same moves. */
static int resume_state(struct psd_center *c, struct psd_snapshot *s, bool keeps_average)
{
    bool same_rule = has_rule_of(c, s), same = same_rule && (c->averaging->rate == NULL || keeps_average);
    if (!same_rule)
        ps_log(PS_LOG_WARN, "resume.state",
               "the checkpoint is of rule %s: rule %s starts from its center, and the state of %s (%u "
               "vectors) is dropped",
               s->rule, c->rule->name, s->rule, s->n_state);
    else if (!same && s->n_state > 0)
        ps_log(PS_LOG_WARN, "resume.state",
               "averaging %s starts: rule %s starts from the checkpoint's center, too, and its state (%u "
               "vectors) is dropped",
               c->averaging->name, c->rule->name, s->n_state);
    for (uint32_t i = 0; i < c->rule->n_state; i++) {
        c->state[i] = same ? s->state[i] : psd_vector_create(c->manifest->n_floats, c->own);
        if (c->state[i] == NULL)
            return -ENOMEM;
        if (same)
            s->state[i] = NULL;
    }
    for (uint32_t i = 0; i < s->n_state; i++) {
        free(s->state[i]); /* of another rule */
        s->state[i] = NULL;
    }
    c->starts_sum = same && s->delay != 0 && s->delay != psd_center_delay(c);
    c->moves = same ? moves_of(s) : 0;
    if (!same)
        memset(s->lane_moves, 0, s->map.lanes * sizeof *s->lane_moves);
    if (!same && s->fragment_moves != NULL)
        memset(s->fragment_moves, 0, (size_t)s->map.lanes * s->fragments * sizeof *s->fragment_moves);
    return 0;
}

/* Keeps the checkpoint's average, or starts one at its center. */
static int resume_average(struct psd_center *c, struct psd_snapshot *s, bool keeps)
{
    if (keeps) {
        c->z = s->average;
    } else if (c->averaging->rate != NULL) {
        if ((c->z = psd_vector_create(c->manifest->n_floats, c->own)) == NULL)
            return -ENOMEM;
        memcpy(c->z + c->own.begin, c->x + c->own.begin, c->own.count * sizeof *c->z);
        ps_log(PS_LOG_INFO, "resume.average", "the checkpoint has %s: averaging %s starts at its center",
               s->has_average ? "the average of another averaging or rule" : "no average",
               c->averaging->name);
    } else if (s->has_average) {
        ps_log(PS_LOG_INFO, "resume.average", "averaging is none: the checkpoint's average is dropped");
    }
    if (!keeps)
        free(s->average);
    s->average = NULL;
    s->has_average = false;
    return 0;
}

int psd_center_resume(const struct psd_config *cfg, const struct psd_admission *admission,
                      struct psd_snapshot *s, struct psd_center **out, struct ps_error *err)
{
    struct psd_center *c;
    int rc = psd_center_new(cfg, admission, s->manifest, &s->map, &c, err);
    if (rc < 0)
        return rc;
    if ((rc = psd_center_check_memory(cfg, c->own.count, c->rule, err)) < 0) {
        psd_center_abandon(c); /* the snapshot still owns the manifest */
        return rc;
    }
    s->manifest = NULL;
    c->x = s->center;
    s->center = NULL;
    c->resumed = s;
    if ((rc = psd_center_check_fragments(&c->hyper, &c->shard, err)) < 0) {
        psd_center_destroy(c);
        return rc;
    }
    c->generation = s->generation;
    c->version = s->version;
    bool keeps = is_average_of(c, s); /* before its state is taken */
    if (resume_state(c, s, keeps) < 0 || resume_average(c, s, keeps) < 0 || seen_create(c, true) < 0 ||
        snapshot_create(c, cfg) < 0) {
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
    free(c->moved);
    free(c->z);
    c->snapshot.manifest = NULL; /* the center owns it */
    psd_snapshot_finish(&c->snapshot);
    ps_manifest_destroy(c->manifest);
    free(c->x);
    free(c);
}

int psd_manifest_of(const struct psd_config *cfg, Ps__Tensor *const *given, size_t n,
                    struct ps_manifest **out, struct ps_error *err)
{
    struct ps_tensor *tensors = calloc(n + 1, sizeof *tensors);
    int rc = 0;
    if (tensors == NULL)
        return ps_fail(err, -ENOMEM, "no memory for %zu tensors", n);
    for (size_t i = 0; i < n && rc == 0; i++) {
        const Ps__Tensor *t = given[i];
        if (t->n_shape > PS_MAX_DIMS)
            rc = ps_fail(err, -EINVAL, "tensor %zu: %zu dimensions; allowed are 0 to %d", i, t->n_shape,
                         PS_MAX_DIMS);
        else {
            tensors[i] = (struct ps_tensor){t->name, t->offset, {0},        (uint32_t)t->n_shape,
                                            t->role, t->decay,  t->rate_ppm};
            for (size_t k = 0; k < t->n_shape; k++)
                tensors[i].shape[k] = t->shape[k];
        }
    }
    if (rc == 0)
        rc = ps_manifest_create(tensors, n, cfg->limits.floats, out, err);
    if (rc == 0 && (rc = psd_checkpoint_check_manifest(*out, err)) < 0)
        ps_manifest_destroy(*out);
    free(tensors);
    return rc;
}
