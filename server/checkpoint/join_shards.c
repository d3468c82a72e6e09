#include "server/checkpoint/join_shards.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "server/checkpoint/header.h"

enum { MOST_VERSIONS = 1024 };

struct shards {
    size_t n;
    char (*dirs)[4096];         /* [n]: directories of checkpoints */
    struct psd_snapshot *parts; /* [n]; sorted by part later */
    uint64_t (*versions)[MOST_VERSIONS];
    uint32_t *n_versions;
};

static bool has_version(const struct shards *m, size_t i, uint64_t version)
{
    for (uint32_t k = 0; k < m->n_versions[i]; k++)
        if (m->versions[i][k] == version)
            return true;
    return false;
}

/* False: no version is common to all. */
static bool find_common(const struct shards *m, uint64_t *version)
{
    bool found = false;
    for (uint32_t k = 0; k < m->n_versions[0]; k++) {
        bool common = !found || m->versions[0][k] > *version;
        for (size_t i = 1; i < m->n && common; i++)
            common = has_version(m, i, m->versions[0][k]);
        if (common) {
            *version = m->versions[0][k];
            found = true;
        }
    }
    return found;
}

static int read_parts(struct shards *m, struct ps_error *err)
{
    char path[4096];
    uint64_t version;
    int rc = 0;
    for (size_t i = 0; i < m->n; i++) {
        m->n_versions[i] = psd_checkpoint_versions(m->dirs[i], 0, m->versions[i], MOST_VERSIONS);
        if (m->n_versions[i] == 0)
            return ps_fail(err, -ENOENT, "%s: no readable checkpoint", m->dirs[i]);
    }
    bool common = find_common(m, &version);
    for (size_t i = 0; i < m->n && rc == 0; i++)
        rc = psd_checkpoint_read_version(m->dirs[i], common ? version : m->versions[i][0], UINT64_MAX,
                                         &m->parts[i], path, sizeof path, err);
    return rc;
}

/* Whether the part fits the first one, and its index is the expected one. */
static int check_part(const struct shards *m, size_t i, struct ps_error *err)
{
    const struct psd_snapshot *a = &m->parts[0], *b = &m->parts[i];
    if (b->part == PSD_WHOLE)
        return ps_fail(err, -EINVAL, "%s: its checkpoint is not a part; there is nothing to merge",
                       m->dirs[i]);
    if (b->map.parts != m->n)
        return ps_fail(err, -EINVAL,
                       "%s: part %u of %u; found are %zu directories: one is needed for each part",
                       m->dirs[i], b->part, b->map.parts, m->n);
    if (a->manifest->hash != b->manifest->hash)
        return ps_fail(err, -EINVAL, "%s: a part of another model than that in %s", m->dirs[i], m->dirs[0]);
    if (a->map.lanes != b->map.lanes || a->map.chunk_floats != b->map.chunk_floats ||
        strcmp(a->rule, b->rule) != 0 || a->n_state != b->n_state || a->has_average != b->has_average)
        return ps_fail(err, -EINVAL, "%s: lane map, rule (%s) or averaging differ from those in %s (%s)",
                       m->dirs[i], b->rule, m->dirs[0], a->rule);
    if (a->job != 0 && b->job != 0 && a->job != b->job)
        return ps_fail(err, -EINVAL, "%s: a part of another job than that in %s", m->dirs[i], m->dirs[0]);
    for (size_t k = 0; k < i; k++)
        if (m->parts[k].part == b->part)
            return ps_fail(err, -EINVAL, "%s: part %u of %u is also in %s", m->dirs[i], b->part, b->map.parts,
                           m->dirs[k]);
    return 0;
}

static int by_part(const void *a, const void *b)
{
    const struct psd_snapshot *x = a, *y = b;
    return (x->part > y->part) - (x->part < y->part);
}

static void take_values(float *to, const float *from, struct ps_range r)
{
    memcpy(to + r.begin, from + r.begin, r.count * sizeof *to);
}

/* Merges a part into the head's; its entries of lane_clocks, lane_moves and fragment_moves are for its own
 * lanes. */
static int take_part(struct psd_snapshot *all, struct psd_snapshot *part)
{
    take_values(all->center, part->center, part->range);
    for (uint32_t k = 0; k < all->n_state; k++)
        take_values(all->state[k], part->state[k], part->range);
    if (all->has_average)
        take_values(all->average, part->average, part->range);
    for (uint32_t i = 0; i < all->map.lanes; i++) {
        all->lane_clocks[i] += part->lane_clocks[i];
        all->lane_moves[i] += part->lane_moves[i];
    }
    bool known = all->fragment_moves != NULL && part->fragment_moves != NULL;
    all->fragments = known && all->fragments == part->fragments ? all->fragments : 0;
    for (uint32_t i = 0; i < all->map.lanes * all->fragments; i++)
        all->fragment_moves[i] += part->fragment_moves[i];
    if (all->fragments == 0) { /* the lanes' counts tell them approximately */
        free(all->fragment_moves);
        all->fragment_moves = NULL;
    }
    void *more = realloc(all->replay, (all->n_replay + part->n_replay + 1) * sizeof *all->replay);
    if (more == NULL)
        return -ENOMEM;
    all->replay = more;
    if (part->n_replay > 0)
        memcpy(all->replay + all->n_replay, part->replay, part->n_replay * sizeof *all->replay);
    all->n_replay += part->n_replay;
    part->n_replay = 0; /* the bitmaps now belong to `all` */
    return 0;
}

/* Creates OUT/checkpoints, which must not contain a checkpoint that a resume would use instead. */
static int make_directory(const char *out, char *dir, size_t size, struct ps_error *err)
{
    uint64_t version;
    int rc = psd_checkpoint_make_directory(out);
    if (rc >= 0)
        rc = (size_t)snprintf(dir, size, "%s/checkpoints", out) < size ? psd_checkpoint_make_directory(dir)
                                                                       : -ENAMETOOLONG;
    if (rc < 0)
        return ps_fail(err, rc, "%s: cannot make it: %s", out, strerror(-rc));
    if (psd_checkpoint_versions(dir, 0, &version, 1) > 0)
        return ps_fail(err, -EEXIST, "%s: already holds checkpoints; allowed is a new directory", dir);
    return 0;
}

static int join_parts(struct shards *m, const char *out, struct psd_merged *merged, struct ps_error *err)
{
    char dir[4096];
    int rc = read_parts(m, err);
    for (size_t i = 0; i < m->n && rc == 0; i++)
        rc = check_part(m, i, err);
    if (rc < 0)
        return rc;
    qsort(m->parts, m->n, sizeof *m->parts, by_part);
    struct psd_snapshot *all = &m->parts[0];
    *merged = (struct psd_merged){
        .version = all->version, .low = all->version, .high = all->version, .parts = all->map.parts};
    for (size_t i = 1; i < m->n; i++) {
        merged->low = m->parts[i].version < merged->low ? m->parts[i].version : merged->low;
        merged->high = m->parts[i].version > merged->high ? m->parts[i].version : merged->high;
        if (take_part(all, &m->parts[i]) < 0)
            return ps_fail(err, -ENOMEM, "no memory for the replay table");
    }
    all->part = PSD_WHOLE;
    all->range = (struct ps_range){0, all->manifest->n_floats};
    if ((rc = make_directory(out, dir, sizeof dir, err)) < 0)
        return rc;
    return psd_checkpoint_write(dir, all, UINT32_MAX, NULL, merged->path, sizeof merged->path, err);
}

int psd_join_shards(const char *out, char *const *dirs, size_t n, struct psd_merged *merged,
                    struct ps_error *err)
{
    struct shards m = {.n = n,
                       .dirs = calloc(n + 1, sizeof *m.dirs),
                       .parts = calloc(n + 1, sizeof *m.parts),
                       .versions = calloc(n + 1, sizeof *m.versions),
                       .n_versions = calloc(n + 1, sizeof *m.n_versions)};
    int rc = n < 1 ? ps_fail(err, -EINVAL, "no state directory to merge from") : 0;
    if (rc == 0 && (m.dirs == NULL || m.parts == NULL || m.versions == NULL || m.n_versions == NULL))
        rc = ps_fail(err, -ENOMEM, "no memory for %zu parts", n);
    for (size_t i = 0; i < n && rc == 0; i++)
        if ((size_t)snprintf(m.dirs[i], sizeof m.dirs[i], "%s/checkpoints", dirs[i]) >= sizeof m.dirs[i])
            rc = ps_fail(err, -ENAMETOOLONG, "%.200s...: the path is too long", dirs[i]);
    if (rc == 0)
        rc = join_parts(&m, out, merged, err);
    for (size_t i = 0; m.parts != NULL && i < n; i++)
        psd_snapshot_finish(&m.parts[i]);
    free(m.dirs);
    free(m.parts);
    free(m.versions);
    free(m.n_versions);
    return rc;
}
