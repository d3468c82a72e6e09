#include "proto/model/manifest.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* Control characters are those of ASCII, and U+0080 to U+009F: U+009B begins a terminal's commands, too. */
static bool name_is_plain(const char *name)
{
    for (const unsigned char *p = (const unsigned char *)name; *p != 0; p++)
        if (*p < 0x20 || *p == 0x7f || (*p == 0xc2 && p[1] >= 0x80 && p[1] < 0xa0))
            return false;
    return true;
}

static int check_tensor(const struct ps_tensor *t, size_t index, uint64_t offset, uint64_t max_floats,
                        uint64_t *end, struct ps_error *err)
{
    if (t->name == NULL || t->name[0] == 0 || strlen(t->name) > PS_MAX_NAME_BYTES || !name_is_plain(t->name))
        return ps_fail(err, -EINVAL, "tensor %zu: a name has 1 to %d bytes and no control characters", index,
                       PS_MAX_NAME_BYTES);
    if (t->n_dims > PS_MAX_DIMS)
        return ps_fail(err, -EINVAL, "tensor %zu '%s': %u dimensions; allowed are 0, a scalar, to %d", index,
                       t->name, t->n_dims, PS_MAX_DIMS);
    if (t->n_dims == 0 && t->shape[0] != 0) /* the caller forgot to set the number of dimensions */
        return ps_fail(err, -EINVAL,
                       "tensor %zu '%s': 0 dimensions, and a size of %llu; allowed are 1 to %d, and a scalar "
                       "without sizes",
                       index, t->name, (unsigned long long)t->shape[0], PS_MAX_DIMS);
    if (t->role > PS_ROLE_FROZEN)
        return ps_fail(err, -EINVAL,
                       "tensor %zu '%s': role %u; allowed are 0 (param), 1 (buffer), 2 (frozen)", index,
                       t->name, t->role);
    if (t->decay > PS_NO_DECAY)
        return ps_fail(err, -EINVAL, "tensor %zu '%s': decay %u; allowed are 0 (decays) and 1 (does not)",
                       index, t->name, t->decay);
    if (t->rate_ppm > PS_MAX_RATE_PPM || (t->rate_ppm != 0 && t->role != PS_ROLE_PARAM))
        return ps_fail(
            err, -EINVAL,
            "tensor %zu '%s': rate %g; allowed are 0.000001 to 1000, and of a buffer or a frozen tensor 1",
            index, t->name, ps_rate_of(t->rate_ppm));
    if (t->offset != offset)
        return ps_fail(err, -EINVAL,
                       "tensor %zu '%s': offset %llu; it must start where the one before it ends, at %llu",
                       index, t->name, (unsigned long long)t->offset, (unsigned long long)offset);
    uint64_t n = 1;
    for (uint32_t d = 0; d < t->n_dims; d++)
        if (t->shape[d] == 0 || __builtin_mul_overflow(n, t->shape[d], &n) || n > max_floats)
            return ps_fail(
                err, -EINVAL,
                "tensor %zu '%s': dimension %u is %llu; sizes are at least 1 and a tensor has at most %llu "
                "values",
                index, t->name, d, (unsigned long long)t->shape[d], (unsigned long long)max_floats);
    if (__builtin_add_overflow(offset, n, end) || *end > max_floats)
        return ps_fail(err, -EINVAL, "tensor %zu '%s' ends at float %llu; the limit (limits.floats) is %llu",
                       index, t->name, (unsigned long long)*end, (unsigned long long)max_floats);
    return 0;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static int check_unique(const struct ps_tensor *tensors, size_t n, struct ps_error *err)
{
    const char **names = malloc(n * sizeof *names);
    int rc = 0;
    if (names == NULL)
        return ps_fail(err, -ENOMEM, "no memory for %zu tensor names", n);
    for (size_t i = 0; i < n; i++)
        names[i] = tensors[i].name;
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = 1; i < n && rc == 0; i++)
        if (strcmp(names[i - 1], names[i]) == 0)
            rc = ps_fail(err, -EINVAL, "two tensors are named '%s'; names are unique", names[i]);
    free(names);
    return rc;
}

static uint64_t hash_tensors(const struct ps_manifest *m)
{
    XXH3_state_t *state = XXH3_createState();
    uint64_t hash = 0;
    if (state == NULL)
        return 0;
    XXH3_64bits_reset(state);
    for (size_t i = 0; i < m->n_tensors; i++) {
        const struct ps_tensor *t = &m->tensors[i];
        XXH3_64bits_update(state, t->name, strlen(t->name) + 1);
        XXH3_64bits_update(state, &t->offset, sizeof t->offset);
        XXH3_64bits_update(state, &t->n_dims, sizeof t->n_dims);
        XXH3_64bits_update(state, t->shape, t->n_dims * sizeof t->shape[0]);
        XXH3_64bits_update(state, &t->role, sizeof t->role);
        XXH3_64bits_update(state, &t->decay, sizeof t->decay);
        if (t->rate_ppm != 0) /* otherwise the hash equals that of versions without rates */
            XXH3_64bits_update(state, &t->rate_ppm, sizeof t->rate_ppm);
    }
    hash = XXH3_64bits_digest(state);
    XXH3_freeState(state);
    return hash;
}

static int check_moving(const struct ps_tensor *tensors, size_t n, struct ps_error *err)
{
    for (size_t i = 0; i < n; i++)
        if (tensors[i].role != PS_ROLE_FROZEN)
            return 0;
    return ps_fail(err, -EINVAL, "all %zu tensors are frozen: nothing is left to train", n);
}

struct ps_range ps_tensor_range(const struct ps_tensor *t)
{
    struct ps_range r = {t->offset, 1};
    for (uint32_t d = 0; d < t->n_dims; d++)
        r.count *= t->shape[d];
    return r;
}

/* Decay makes no difference for frozen tensors. */
static bool joins(const struct ps_segment *s, const struct ps_tensor *t)
{
    return s->role == t->role && s->rate_ppm == t->rate_ppm &&
           (s->decay == t->decay || t->role == PS_ROLE_FROZEN);
}

static int make_segments(struct ps_manifest *m)
{
    if ((m->segments = calloc(m->n_tensors, sizeof *m->segments)) == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < m->n_tensors; i++) {
        const struct ps_tensor *t = &m->tensors[i];
        struct ps_range r = ps_tensor_range(t);
        if (m->n_segments > 0 && joins(&m->segments[m->n_segments - 1], t))
            m->segments[m->n_segments - 1].range.count += r.count;
        else
            m->segments[m->n_segments++] = (struct ps_segment){r, t->role, t->decay, t->rate_ppm};
    }
    return 0;
}

int ps_manifest_create(const struct ps_tensor *tensors, size_t n_tensors, uint64_t max_floats,
                       struct ps_manifest **out, struct ps_error *err)
{
    uint64_t end = 0;
    int rc;

    if (n_tensors < 1 || n_tensors > PS_MAX_TENSORS)
        return ps_fail(err, -EINVAL, "%zu tensors; allowed are 1 to %d", n_tensors, PS_MAX_TENSORS);
    for (size_t i = 0; i < n_tensors; i++)
        if ((rc = check_tensor(&tensors[i], i, end, max_floats, &end, err)) < 0)
            return rc;
    if ((rc = check_unique(tensors, n_tensors, err)) < 0 || (rc = check_moving(tensors, n_tensors, err)) < 0)
        return rc;

    struct ps_manifest *m = calloc(1, sizeof *m);
    if (m == NULL || (m->tensors = calloc(n_tensors, sizeof *m->tensors)) == NULL)
        goto no_memory;
    m->n_floats = end;
    for (size_t i = 0; i < n_tensors; i++) {
        m->tensors[i] = tensors[i];
        m->tensors[i].name = strdup(tensors[i].name);
        m->n_tensors = i + 1;
        if (m->tensors[i].name == NULL)
            goto no_memory;
    }
    if (make_segments(m) < 0)
        goto no_memory;
    m->hash = hash_tensors(m);
    *out = m;
    return 0;

no_memory:
    ps_manifest_destroy(m);
    return ps_fail(err, -ENOMEM, "no memory for a manifest of %zu tensors", n_tensors);
}

void ps_manifest_destroy(struct ps_manifest *m)
{
    if (m == NULL)
        return;
    for (size_t i = 0; i < m->n_tensors; i++)
        free(m->tensors[i].name);
    free(m->tensors);
    free(m->segments);
    free(m);
}

static void describe(const struct ps_tensor *t, char *text, size_t size)
{
    int n = snprintf(text, size, "'%.64s' [", t->name);
    for (uint32_t d = 0; d < t->n_dims && n > 0 && (size_t)n < size; d++)
        n +=
            snprintf(text + n, size - (size_t)n, "%s%llu", d > 0 ? "," : "", (unsigned long long)t->shape[d]);
    if (n > 0 && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, "]%s%s",
                      t->role == PS_ROLE_PARAM    ? ""
                      : t->role == PS_ROLE_BUFFER ? " buffer"
                                                  : " frozen",
                      t->decay == PS_NO_DECAY ? " without decay" : "");
    if (t->rate_ppm != 0 && n > 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n, " at rate %g", ps_rate_of(t->rate_ppm));
}

static bool same_tensor(const struct ps_tensor *a, const struct ps_tensor *b)
{
    return strcmp(a->name, b->name) == 0 && a->offset == b->offset && a->n_dims == b->n_dims &&
           a->role == b->role && a->decay == b->decay && a->rate_ppm == b->rate_ppm &&
           memcmp(a->shape, b->shape, a->n_dims * sizeof a->shape[0]) == 0;
}

int ps_manifest_compare(const struct ps_manifest *mine, const struct ps_manifest *job, struct ps_error *err)
{
    size_t n = mine->n_tensors < job->n_tensors ? mine->n_tensors : job->n_tensors;
    char a[180], b[180];

    for (size_t i = 0; i < n; i++)
        if (!same_tensor(&mine->tensors[i], &job->tensors[i])) {
            describe(&mine->tensors[i], a, sizeof a);
            describe(&job->tensors[i], b, sizeof b);
            return ps_fail(err, -EINVAL, "tensor %zu: %s here, %s in the job", i, a, b);
        }
    if (mine->n_tensors != job->n_tensors)
        return ps_fail(err, -EINVAL, "%zu tensors here, %zu in the job", mine->n_tensors, job->n_tensors);
    return 0;
}

int64_t ps_manifest_find(const struct ps_manifest *m, const char *name)
{
    for (size_t i = 0; i < m->n_tensors; i++)
        if (strcmp(m->tensors[i].name, name) == 0)
            return (int64_t)i;
    return -1;
}

const struct ps_tensor *ps_manifest_tensor(const struct ps_manifest *m, uint64_t at)
{
    size_t low = 0, high = m->n_tensors; /* tensors[low].offset <= at, and high's is not */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (m->tensors[middle].offset <= at)
            low = middle;
        else
            high = middle;
    }
    return &m->tensors[low];
}

const struct ps_segment *ps_manifest_segment(const struct ps_manifest *m, uint64_t at)
{
    size_t low = 0, high = m->n_segments - 1; /* the result is in [low, high] */
    while (low < high) {
        size_t middle = (low + high + 1) / 2;
        if (m->segments[middle].range.begin <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return &m->segments[low];
}

bool ps_manifest_is_frozen(const struct ps_manifest *m, struct ps_range r)
{
    const struct ps_segment *s = ps_manifest_segment(m, r.begin);
    return s->role == PS_ROLE_FROZEN && r.begin + r.count <= s->range.begin + s->range.count;
}

/* Beside a frozen segment there is none. */
struct ps_range ps_manifest_trim(const struct ps_manifest *m, struct ps_range r)
{
    if (r.count == 0 || ps_manifest_is_frozen(m, r))
        return (struct ps_range){r.begin, 0};
    uint64_t begin = r.begin, end = r.begin + r.count;
    const struct ps_segment *first = ps_manifest_segment(m, begin), *last = ps_manifest_segment(m, end - 1);
    if (first->role == PS_ROLE_FROZEN)
        begin = first->range.begin + first->range.count;
    if (last->role == PS_ROLE_FROZEN)
        end = last->range.begin;
    return (struct ps_range){begin, end - begin};
}

/* The boundary between two tensors that is nearest to float `at`. */
static uint64_t nearest_boundary(const struct ps_manifest *m, uint64_t at)
{
    const struct ps_tensor *t = ps_manifest_tensor(m, at);
    struct ps_range r = ps_tensor_range(t);
    return at - r.begin < r.begin + r.count - at ? r.begin : r.begin + r.count;
}

int ps_manifest_cut(const struct ps_manifest *m, uint32_t n_parts, struct ps_shard *s, struct ps_error *err)
{
    if (n_parts < 1 || n_parts > PS_MAX_PARTS || s->n_lanes % n_parts != 0)
        return ps_fail(err, -EINVAL, "%u lanes in %u parts; allowed are 1 to %d parts of as many lanes each",
                       s->n_lanes, n_parts, PS_MAX_PARTS);
    uint64_t share = m->n_floats / n_parts;
    if (n_parts > 1 && m->n_floats < (uint64_t)2 * PS_SHARD_ALIGN * s->n_lanes)
        return ps_fail(err, -EINVAL,
                       "a model of %llu floats is too small for %u servers of %u lanes: at least %u floats",
                       (unsigned long long)m->n_floats, n_parts, s->n_lanes / n_parts,
                       2 * PS_SHARD_ALIGN * s->n_lanes);
    s->n_parts = n_parts;
    s->part_at[0] = 0;
    for (uint32_t i = 1; i < n_parts; i++) {
        uint64_t even = share * i / PS_SHARD_ALIGN * PS_SHARD_ALIGN;
        uint64_t at = nearest_boundary(m, even), off = at > even ? at - even : even - at;
        s->part_at[i] = off <= share / 8 ? at : even;
    }
    for (uint32_t i = 0; n_parts > 1 && i < n_parts; i++)
        if (ps_manifest_is_frozen(m, ps_shard_part(s, i)))
            return ps_fail(err, -EINVAL,
                           "the model cannot be divided among %u servers: all %llu floats of server %u "
                           "are frozen",
                           n_parts, (unsigned long long)ps_shard_part(s, i).count, i);
    return 0;
}

uint32_t ps_manifest_moving(const struct ps_manifest *m, const struct ps_shard *s, uint32_t lane,
                            struct ps_range scope)
{
    uint32_t first, n = ps_shard_pieces(s, lane, scope, &first), moving = 0;
    for (uint32_t k = first; k < first + n; k++)
        moving += !ps_manifest_is_frozen(m, ps_shard_piece(s, lane, scope, k));
    return moving;
}
