/* Decodes a checkpoint's header. Everything from disk is checked before it is used. */
#include "server/checkpoint/header.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "proto/model/fragment.h"

/* The input and output of a decoding step. */
struct decoder {
    const char *path;
    uint64_t data_bytes;
    json_t *root, *metadata; /* metadata is a part of root */
    struct psd_snapshot *out;
    struct ps_error *err;
};

/* One named entry of the header. */
struct piece {
    const char *name;    /* a part of root */
    uint64_t begin, end; /* bytes */
    uint64_t shape[PS_MAX_DIMS];
    uint32_t n_dims;
};

#define damaged(d, fmt, ...) ps_fail((d)->err, -EBADMSG, "%s: " fmt, (d)->path, __VA_ARGS__)

static int parse_u64(const char *text, uint64_t max, uint64_t *out)
{
    if (text[0] == 0 || strlen(text) > 20 || strspn(text, "0123456789") != strlen(text))
        return -EINVAL;
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno != 0 || value > max)
        return -EINVAL;
    *out = value;
    return 0;
}

enum {
    HEX_DIGITS = 16,       /* of a word */
    MOST_EXCHANGES = 16384 /* more than all clients that psd admits have under way */
};

static int parse_hex(const char *text, uint64_t *out)
{
    uint64_t value = 0;
    for (int i = 0; i < HEX_DIGITS; i++) {
        const char *digits = "0123456789abcdef", *at = text[i] != 0 ? strchr(digits, text[i]) : NULL;
        if (at == NULL)
            return -EINVAL;
        value = value << 4 | (uint64_t)(at - digits);
    }
    *out = value;
    return 0;
}

static bool get_integer(const json_t *json, uint64_t max, uint64_t *out)
{
    if (!json_is_integer(json) || json_integer_value(json) < 0 || (uint64_t)json_integer_value(json) > max)
        return false;
    *out = (uint64_t)json_integer_value(json);
    return true;
}

static int get_text(const struct decoder *d, const char *key, const char **out)
{
    const json_t *value = json_object_get(d->metadata, key);
    if (!json_is_string(value))
        return damaged(d, "the header's %s is %s; it must be a string", key,
                       value == NULL ? "missing" : "not a string");
    *out = json_string_value(value);
    return 0;
}

static int get_number(const struct decoder *d, const char *key, uint64_t min, uint64_t max, uint64_t *out)
{
    const char *text;
    int rc = get_text(d, key, &text);
    if (rc == 0 && (parse_u64(text, max, out) < 0 || *out < min))
        rc =
            damaged(d, "the header's %s is '%.40s'; allowed is %" PRIu64 " to %" PRIu64, key, text, min, max);
    return rc;
}

static int get_word(const struct decoder *d, const char *key, char *out, size_t size)
{
    const char *text;
    int rc = get_text(d, key, &text);
    if (rc < 0)
        return rc;
    if (strlen(text) >= size)
        return damaged(d, "the header's %s has %zu bytes; allowed are at most %zu", key, strlen(text),
                       size - 1);
    strcpy(out, text);
    return 0;
}

/* Metadata that is JSON in a string. */
static int get_json(const struct decoder *d, const char *key, json_t **out)
{
    const char *text;
    json_error_t why;
    int rc = get_text(d, key, &text);
    if (rc == 0 && (*out = json_loads(text, JSON_REJECT_DUPLICATES, &why)) == NULL)
        rc = damaged(d, "the header's %s is not JSON: %.80s at byte %d", key, why.text, why.position);
    return rc;
}

static int decode_piece(const struct decoder *d, const char *name, const json_t *entry, struct piece *p)
{
    const json_t *shape = json_object_get(entry, "shape"), *at = json_object_get(entry, "data_offsets");
    const char *dtype = json_string_value(json_object_get(entry, "dtype"));
    uint64_t bytes = sizeof(float);

    p->name = name;
    if (dtype == NULL || strcmp(dtype, "F32") != 0)
        return damaged(d, "tensor '%.60s': its dtype is %.20s; allowed is F32", name,
                       dtype != NULL ? dtype : "missing");
    if (!json_is_array(shape) || json_array_size(shape) > PS_MAX_DIMS)
        return damaged(d, "tensor '%.60s': %zu dimensions; allowed is a list of 0, a scalar, to %d", name,
                       json_array_size(shape), PS_MAX_DIMS);
    p->n_dims = (uint32_t)json_array_size(shape);
    for (uint32_t i = 0; i < p->n_dims; i++)
        if (!get_integer(json_array_get(shape, i), UINT64_MAX, &p->shape[i]) || p->shape[i] == 0 ||
            __builtin_mul_overflow(bytes, p->shape[i], &bytes) || bytes > d->data_bytes)
            return damaged(d,
                           "tensor '%.60s': dimension %u is not a size that fits into the file's %" PRIu64
                           " bytes of data",
                           name, i, d->data_bytes);
    if (json_array_size(at) != 2 || !get_integer(json_array_get(at, 0), d->data_bytes, &p->begin) ||
        !get_integer(json_array_get(at, 1), d->data_bytes, &p->end))
        return damaged(
            d, "tensor '%.60s': data_offsets are not two positions in the file's %" PRIu64 " bytes of data",
            name, d->data_bytes);
    if (p->end < p->begin || p->end - p->begin != bytes)
        return damaged(
            d, "tensor '%.60s': data_offsets %" PRIu64 " to %" PRIu64 "; its shape needs %" PRIu64 " bytes",
            name, p->begin, p->end, bytes);
    return 0;
}

static int by_begin(const void *a, const void *b)
{
    const struct piece *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

static int decode_pieces(const struct decoder *d, struct piece *pieces, size_t n)
{
    const char *name;
    json_t *entry;
    size_t i = 0;
    uint64_t end = 0;
    int rc;

    json_object_foreach(d->root, name, entry)
    {
        if (entry != d->metadata && (rc = decode_piece(d, name, entry, &pieces[i++])) < 0)
            return rc;
    }
    qsort(pieces, n, sizeof *pieces, by_begin);
    for (i = 0; i < n; i++) {
        if (pieces[i].begin != end)
            return damaged(d,
                           "tensor '%.60s' starts at byte %" PRIu64 " of the data; it must start where the "
                           "one before it ends, at %" PRIu64,
                           pieces[i].name, pieces[i].begin, end);
        end = pieces[i].end;
    }
    if (end != d->data_bytes)
        return damaged(d, "the tensors end at byte %" PRIu64 " of the data; the file has %" PRIu64, end,
                       d->data_bytes);
    return 0;
}

static bool is_state(const struct piece *p)
{
    return strncmp(p->name, PSD_CHECKPOINT_STATE, strlen(PSD_CHECKPOINT_STATE)) == 0;
}

/* The state vectors are the last pieces, in order, each as long as the center. */
static int check_state(const struct decoder *d, const struct piece *pieces, size_t n, uint64_t n_floats)
{
    for (size_t k = 0; k < n; k++) {
        const char *number = pieces[k].name + strlen(PSD_CHECKPOINT_STATE);
        uint64_t index;
        if (parse_u64(number, PSD_CHECKPOINT_MAX_STATE, &index) < 0 || index != k ||
            n > PSD_CHECKPOINT_MAX_STATE)
            return damaged(d, "tensor '%.60s' is in the place of " PSD_CHECKPOINT_STATE "%zu of at most %d",
                           pieces[k].name, k, PSD_CHECKPOINT_MAX_STATE);
        if (pieces[k].n_dims != 1 || pieces[k].shape[0] != n_floats)
            return damaged(d, "tensor '%.60s': a state vector is as long as the center, [%" PRIu64 "]",
                           pieces[k].name, n_floats);
    }
    return 0;
}

static int check_average(const struct decoder *d, const struct piece *p, uint64_t n_floats)
{
    if (p->n_dims != 1 || p->shape[0] != n_floats)
        return damaged(d, "tensor '%.60s': the average is as long as the center, [%" PRIu64 "]", p->name,
                       n_floats);
    return 0;
}

/* Properties of tensors beside their shape: an object in the header that maps names to numbers; a tensor that
 * is not in it has 0. */
struct mark {
    const char *key, *what;
    uint64_t max;
    size_t offset; /* of the uint32_t in struct ps_tensor */
    bool optional;
};

static const struct mark marks[] = {
    {"psd.roles", "role", PS_ROLE_FROZEN, offsetof(struct ps_tensor, role), false},
    {"psd.decay", "decay", PS_NO_DECAY, offsetof(struct ps_tensor, decay), true},
    {"psd.rates", "rate", PS_MAX_RATE_PPM, offsetof(struct ps_tensor, rate_ppm), true},
};

static int decode_mark(const struct decoder *d, const struct mark *mark, struct ps_tensor *tensors, size_t n)
{
    json_t *object = NULL;
    size_t used = 0;
    uint64_t number;

    if (mark->optional && json_object_get(d->metadata, mark->key) == NULL)
        return 0;
    int rc = get_json(d, mark->key, &object);

    if (rc < 0)
        return rc;
    for (size_t i = 0; i < n && rc == 0; i++) {
        const json_t *value = json_object_get(object, tensors[i].name);
        if (value == NULL)
            continue;
        used++;
        if (!get_integer(value, mark->max, &number))
            rc = damaged(d, "the header's %s has no %s for tensor '%.60s'; allowed are 0 to %" PRIu64,
                         mark->key, mark->what, tensors[i].name, mark->max);
        else
            *(uint32_t *)(void *)((char *)&tensors[i] + mark->offset) = (uint32_t)number;
    }
    if (rc == 0 && used != json_object_size(object))
        rc = damaged(d, "the header's %s names %zu tensors; %zu of them exist", mark->key,
                     json_object_size(object), used);
    json_decref(object);
    return rc;
}

/* Makes the manifest from the tensors and their marks, and checks it. */
static int make_manifest(const struct decoder *d, struct ps_tensor *tensors, size_t n, uint64_t n_floats)
{
    struct ps_error why;
    int rc = 0;
    for (size_t i = 0; i < sizeof marks / sizeof *marks && rc == 0; i++)
        rc = decode_mark(d, &marks[i], tensors, n);
    if (rc == 0 && ((rc = ps_manifest_create(tensors, n, n_floats, &d->out->manifest, &why)) < 0 ||
                    (rc = psd_checkpoint_check_manifest(d->out->manifest, &why)) < 0))
        rc = ps_fail(d->err, rc == -ENOMEM ? rc : -EBADMSG, "%s: %s", d->path, why.text);
    return rc;
}

/* Makes the model from the entries. */
static int model_of_pieces(const struct decoder *d, const struct piece *pieces, size_t n)
{
    struct ps_tensor *tensors = calloc(n, sizeof *tensors);
    if (tensors == NULL)
        return ps_fail(d->err, -ENOMEM, "%s: no memory for %zu tensors", d->path, n);
    for (size_t i = 0; i < n; i++) {
        tensors[i].name = (char *)pieces[i].name; /* ps_manifest_create copies it and does not write to it */
        tensors[i].offset = pieces[i].begin / sizeof(float);
        tensors[i].n_dims = pieces[i].n_dims;
        memcpy(tensors[i].shape, pieces[i].shape, sizeof tensors[i].shape);
    }
    int rc = make_manifest(d, tensors, n, pieces[n - 1].end / sizeof(float));
    free(tensors);
    d->out->range = (struct ps_range){0, pieces[n - 1].end / sizeof(float)};
    return rc;
}

/* One [name, shape] of psd.model, whose values begin at float *at of the vector. */
static int decode_tensor(const struct decoder *d, size_t i, const json_t *entry, uint64_t max_floats,
                         uint64_t *at, struct ps_tensor *t)
{
    const json_t *shape = json_array_get(entry, 1);
    uint64_t n = 1;
    t->name = (char *)json_string_value(json_array_get(entry, 0)); /* as above */
    t->offset = *at;
    t->n_dims = (uint32_t)json_array_size(shape);
    if (json_array_size(entry) != 2 || t->name == NULL || !json_is_array(shape) ||
        json_array_size(shape) > PS_MAX_DIMS)
        return damaged(d, "the header's psd.model: entry %zu is not [name, shape]", i);
    if (*at >= max_floats)
        return damaged(d,
                       "the header's psd.model: '%.60s' begins above the limit (limits.floats: %" PRIu64 ")",
                       t->name, max_floats);
    for (uint32_t k = 0; k < t->n_dims; k++)
        if (!get_integer(json_array_get(shape, k), max_floats, &t->shape[k]) || t->shape[k] == 0 ||
            __builtin_mul_overflow(n, t->shape[k], &n) || n > max_floats - *at)
            return damaged(
                d, "the header's psd.model: '%.60s' ends above the limit (limits.floats: %" PRIu64 ")",
                t->name, max_floats);
    *at += n;
    return 0;
}

static int decode_model(const struct decoder *d, uint64_t max_floats)
{
    json_t *list;
    uint64_t at = 0;
    int rc = get_json(d, "psd.model", &list);
    if (rc < 0)
        return rc;
    size_t n = json_array_size(list);
    struct ps_tensor *tensors = NULL;
    if (n < 1 || n > PS_MAX_TENSORS)
        rc = damaged(d, "the header's psd.model has %zu tensors; allowed are 1 to %d", n, PS_MAX_TENSORS);
    else if ((tensors = calloc(n, sizeof *tensors)) == NULL)
        rc = ps_fail(d->err, -ENOMEM, "%s: no memory for %zu tensors", d->path, n);
    for (size_t i = 0; i < n && rc == 0; i++)
        rc = decode_tensor(d, i, json_array_get(list, i), max_floats, &at, &tensors[i]);
    if (rc == 0)
        rc = make_manifest(d, tensors, n, at);
    free(tensors);
    json_decref(list);
    return rc;
}

/* Whether entry p is the part's piece of the tensor. */
static bool is_piece(const struct piece *p, const struct ps_tensor *t, struct ps_range part)
{
    struct ps_range all = ps_tensor_range(t), have = ps_range_intersect(all, part);
    uint64_t first = have.begin - all.begin;
    char name[PS_MAX_NAME_BYTES + 50];
    if (have.count == all.count)
        return strcmp(p->name, t->name) == 0 && p->n_dims == t->n_dims &&
               memcmp(p->shape, t->shape, t->n_dims * sizeof *t->shape) == 0;
    snprintf(name, sizeof name, "%s[%" PRIu64 ":%" PRIu64 "]", t->name, first, first + have.count);
    return strcmp(p->name, name) == 0 && p->n_dims == 1 && p->shape[0] == have.count;
}

/* Checks that the entries are the part's pieces of the model in psd.model. */
static int check_pieces(const struct decoder *d, const struct piece *pieces, size_t n)
{
    struct psd_snapshot *s = d->out;
    const struct ps_manifest *m = s->manifest;
    struct ps_shard cut = {m->n_floats, s->map.lanes, s->map.chunk_floats, 0, {0}};
    struct ps_error why = {"the lane map is not possible"};
    size_t k = 0;
    if (!ps_shard_valid(&cut) || ps_manifest_cut(m, s->map.parts, &cut, &why) < 0)
        return damaged(d, "%s", why.text);
    s->range = ps_shard_part(&cut, s->part);
    for (size_t i = 0; i < m->n_tensors; i++) {
        if (ps_range_intersect(ps_tensor_range(&m->tensors[i]), s->range).count == 0)
            continue;
        if (k == n || !is_piece(&pieces[k], &m->tensors[i], s->range))
            return damaged(d, "part %u of %u needs values of tensor '%.60s'; found is '%.60s'", s->part,
                           s->map.parts, m->tensors[i].name, k < n ? pieces[k].name : "nothing");
        k++;
    }
    return k == n
               ? 0
               : damaged(d, "part %u of %u has no values of '%.60s'", s->part, s->map.parts, pieces[k].name);
}

static int decode_tensors(const struct decoder *d, uint64_t max_floats)
{
    size_t n = json_object_size(d->root) - 1, n_state = 0;
    bool average;
    int rc;

    if (n < 1 || n > PS_MAX_TENSORS + PSD_CHECKPOINT_MAX_STATE + 1)
        return damaged(d, "%zu tensors; allowed are 1 to %d", n, PS_MAX_TENSORS);
    struct piece *pieces = calloc(n, sizeof *pieces);
    if (pieces == NULL)
        return ps_fail(d->err, -ENOMEM, "%s: no memory for %zu tensors", d->path, n);
    if ((rc = decode_pieces(d, pieces, n)) == 0) {
        average = strcmp(pieces[n - 1].name, PSD_CHECKPOINT_AVERAGE) == 0;
        n -= average;
        while (n > 0 && is_state(&pieces[n - 1])) {
            n--;
            n_state++;
        }
        uint64_t n_floats = n > 0 ? pieces[n - 1].end / sizeof(float) : 0;
        if (n == 0)
            rc = damaged(d, "%zu of psd's own vectors and no tensor of a model", n_state + average);
        else if (n_floats > max_floats)
            rc = ps_fail(d->err, -EFBIG, "%s: %" PRIu64 " values; the limit (limits.floats) is %" PRIu64,
                         d->path, n_floats, max_floats);
        else if ((rc = check_state(d, pieces + n, n_state, n_floats)) == 0 && average)
            rc = check_average(d, &pieces[n + n_state], n_floats);
        if (rc == 0 && d->out->part == PSD_WHOLE)
            rc = model_of_pieces(d, pieces, n);
        else if (rc == 0 && (rc = decode_model(d, max_floats)) == 0)
            rc = check_pieces(d, pieces, n);
        d->out->n_state = (uint32_t)n_state;
        d->out->has_average = average;
    }
    free(pieces);
    return rc;
}

/* `each` for each lane. */
static int take_counts(const struct decoder *d, const char *key, const json_t *counts, uint32_t each,
                       uint64_t **out)
{
    uint32_t n = d->out->map.lanes * each;
    int rc = 0;
    if (json_array_size(counts) != n) {
        rc = damaged(d, "the header's %s has %zu values; psd.lanes is %u", key, json_array_size(counts),
                     d->out->map.lanes);
    } else if ((*out = calloc(n, sizeof **out)) == NULL) {
        rc = ps_fail(d->err, -ENOMEM, "%s: no memory for %u lanes", d->path, n);
    } else {
        for (uint32_t i = 0; i < n && rc == 0; i++)
            if (!get_integer(json_array_get(counts, i), INT64_MAX, &(*out)[i]))
                rc = damaged(d, "the header's %s: value %u is not a count", key, i);
    }
    return rc;
}

static int decode_counts(const struct decoder *d, const char *key, uint64_t **out)
{
    json_t *counts;
    int rc = get_json(d, key, &counts);
    if (rc < 0)
        return rc;
    rc = take_counts(d, key, counts, 1, out);
    json_decref(counts);
    return rc;
}

/* As many for each lane as the job had fragments. */
static int decode_fragment_moves(const struct decoder *d)
{
    static const char key[] = "psd.fragment_moves";
    json_t *counts;
    int rc = json_object_get(d->metadata, key) != NULL ? get_json(d, key, &counts) : 1;
    if (rc != 0)
        return rc < 0 ? rc : 0;
    size_t each = json_array_size(counts) / d->out->map.lanes;
    if (each < 1 || each > PS_MAX_FRAGMENTS)
        rc = damaged(d, "the header's %s has %zu values for %u lanes", key, json_array_size(counts),
                     d->out->map.lanes);
    else
        rc = take_counts(d, key, counts, (uint32_t)each, &d->out->fragment_moves);
    d->out->fragments = rc == 0 ? (uint32_t)each : 0;
    json_decref(counts);
    return rc;
}

/* Checkpoints of older versions have one count for both, since their method never changed. */
static int decode_clocks(const struct decoder *d)
{
    bool has_moves = json_object_get(d->metadata, "psd.moves") != NULL;
    int rc = decode_counts(d, "psd.clocks", &d->out->lane_clocks);
    rc = rc < 0 ? rc : decode_counts(d, has_moves ? "psd.moves" : "psd.clocks", &d->out->lane_moves);
    return rc < 0 ? rc : decode_fragment_moves(d);
}

/* A lane has at most all chunks of the vector, plus one for each boundary between lanes. */
static uint64_t most_words(const struct psd_snapshot *s)
{
    uint64_t chunks = s->manifest->n_floats / s->map.chunk_floats + s->map.lanes + 1;
    return chunks / 64 + 1;
}

/* Reads the words of a bitmap, as replay_to_json (header_encode.c) writes them, into out (NULL: only counts
 * them). -EINVAL: not a bitmap; -E2BIG: more than `most` words. */
static int64_t read_bitmap(const char *text, uint64_t most, uint64_t *out)
{
    uint64_t n = 0, word, times;
    for (; *text != 0; n += times) {
        if (parse_hex(text, &word) < 0)
            return -EINVAL;
        text += HEX_DIGITS;
        times = 1;
        if (*text == 'x') {
            char number[21];
            size_t digits = strspn(text + 1, "0123456789");
            if (digits >= sizeof number || text[1 + digits] != ',')
                return -EINVAL;
            memcpy(number, text + 1, digits);
            number[digits] = 0;
            if (parse_u64(number, UINT64_MAX, &times) < 0 || times == 0)
                return -EINVAL;
            text += 1 + digits + 1;
        }
        if (times > most - n)
            return -E2BIG;
        for (uint64_t k = 0; k < times && out != NULL; k++)
            out[n + k] = word;
    }
    return (int64_t)n;
}

/* *words_left: words that this and all later entries may have. */
static int decode_bitmap(const struct decoder *d, size_t i, const char *text, uint64_t *words_left,
                         struct psd_replay_entry *e)
{
    uint64_t most = most_words(d->out) < *words_left ? most_words(d->out) : *words_left;
    int64_t n = read_bitmap(text, most, NULL);
    if (n == -EINVAL)
        return damaged(
            d, "the header's psd.replay: entry %zu has a bitmap without words of 16 hexadecimal digits", i);
    if (n < 0)
        return damaged(d, "the header's psd.replay: entry %zu has a bitmap of more than %" PRIu64 " words", i,
                       most);
    *words_left -= (uint64_t)n;
    e->n_words = (uint32_t)n;
    if (n > 0 && (e->landed = calloc((size_t)n, sizeof *e->landed)) == NULL)
        return ps_fail(d->err, -ENOMEM, "%s: no memory for the replay table", d->path);
    read_bitmap(text, most, e->landed);
    return 0;
}

static int decode_entry(const struct decoder *d, size_t i, const json_t *json, uint64_t *words_left,
                        struct psd_replay_entry *e)
{
    const char *seq = json_string_value(json_array_get(json, 3));
    const char *bitmap = json_string_value(json_array_get(json, 4));
    uint64_t client, incarnation, lane, fragment = 0;
    size_t n = json_array_size(json);

    if ((n != 5 && n != 6) ||
        (n == 6 && !get_integer(json_array_get(json, 5), PS_MAX_FRAGMENTS, &fragment)) ||
        !get_integer(json_array_get(json, 0), UINT32_MAX, &client) ||
        !get_integer(json_array_get(json, 1), UINT32_MAX, &incarnation) ||
        !get_integer(json_array_get(json, 2), d->out->map.lanes - 1, &lane) || seq == NULL ||
        parse_u64(seq, UINT64_MAX, &e->seq) < 0 || bitmap == NULL)
        return damaged(
            d, "the header's psd.replay: entry %zu is not [client, incarnation, lane, seq, bitmap, fragment]",
            i);
    e->client = (uint32_t)client;
    e->incarnation = (uint32_t)incarnation;
    e->lane = (uint32_t)lane;
    e->fragment = (uint32_t)fragment;
    return decode_bitmap(d, i, bitmap, words_left, e);
}

/* The table is bounded by the header's own bytes, which are already in memory; its bitmaps by the size that
 * this many exchanges could have. */
static int decode_replay(const struct decoder *d)
{
    struct psd_snapshot *s = d->out;
    json_t *list;
    uint64_t words_left = MOST_EXCHANGES * (most_words(s) + s->map.lanes);
    int rc = get_json(d, "psd.replay", &list);

    if (rc < 0)
        return rc;
    size_t n = json_array_size(list);
    if (!json_is_array(list))
        rc = damaged(d, "the header's psd.replay is not a list%s", "");
    else if (n > 0 && (s->replay = calloc(n, sizeof *s->replay)) == NULL)
        rc = ps_fail(d->err, -ENOMEM, "%s: no memory for the replay table", d->path);
    for (size_t i = 0; i < n && rc == 0; i++) {
        s->n_replay = i + 1; /* psd_snapshot_finish also frees a partly decoded entry */
        rc = decode_entry(d, i, json_array_get(list, i), &words_left, &s->replay[i]);
    }
    json_decref(list);
    return rc;
}

/* Only in a best checkpoint. Accuracies are written with nine decimals. */
static int decode_evaluation(const struct decoder *d)
{
    struct psd_snapshot *s = d->out;
    const char *text;
    char *end;
    int rc;

    s->bare = json_object_get(d->metadata, "psd.bare") != NULL;
    if (json_object_get(d->metadata, "psd.test_accuracy") == NULL)
        return 0;
    if ((rc = get_text(d, "psd.test_accuracy", &text)) < 0 ||
        (rc = get_number(d, "psd.evaluated_version", 0, UINT64_MAX, &s->evaluated_version)) < 0)
        return rc;
    s->test_accuracy = strtod(text, &end);
    if (text[0] == 0 || strspn(text, "0123456789.") != strlen(text) || *end != 0 || s->test_accuracy > 1)
        return damaged(d, "the header's psd.test_accuracy is '%.40s'; allowed is 0 to 1", text);
    s->evaluated = true;
    return 0;
}

/* Only present if the map has several parts. */
static int decode_parts(const struct decoder *d)
{
    uint64_t parts = 1, part = PSD_WHOLE;
    int rc = 0;
    if (json_object_get(d->metadata, "psd.parts") != NULL)
        rc = get_number(d, "psd.parts", 2, PS_MAX_PARTS, &parts);
    if (rc == 0 && json_object_get(d->metadata, "psd.part") != NULL)
        rc = get_number(d, "psd.part", 0, parts - 1, &part);
    d->out->map.parts = (uint32_t)parts;
    d->out->part = (uint32_t)part;
    return rc;
}

/* Absent from older files. */
static int decode_job(const struct decoder *d)
{
    const char *hex;
    int rc;
    if (json_object_get(d->metadata, "psd.job") == NULL)
        return 0;
    if ((rc = get_text(d, "psd.job", &hex)) < 0)
        return rc;
    if (strlen(hex) != 16 || parse_hex(hex, &d->out->job) < 0)
        return damaged(d, "the header's psd.job is '%.40s'; it has 16 hexadecimal digits", hex);
    return 0;
}

/* Absent from older files. */
static int decode_clock(const struct decoder *d)
{
    return json_object_get(d->metadata, "psd.clock") == NULL
               ? 0
               : get_number(d, "psd.clock", 1, PS_MAX_STEPS, &d->out->clock);
}

/* Absent from older files, and without an average. */
static int decode_averaging(const struct decoder *d)
{
    return json_object_get(d->metadata, "psd.averaging") == NULL
               ? 0
               : get_word(d, "psd.averaging", d->out->averaging, sizeof d->out->averaging);
}

/* Absent from older files, and with other rules. */
static int decode_delay(const struct decoder *d)
{
    uint64_t delay = 0;
    int rc = json_object_get(d->metadata, "psd.delay") == NULL
                 ? 0
                 : get_number(d, "psd.delay", 1, UINT32_MAX, &delay);
    d->out->delay = (uint32_t)delay;
    return rc;
}

/* Absent from older files, and with other schedules. */
static int decode_plateau(const struct decoder *d)
{
    struct psd_saved_plateau *p = &d->out->plateau;
    const char *text;
    int rc, n = 0;
    if (json_object_get(d->metadata, "psd.plateau") == NULL)
        return 0;
    if ((rc = get_text(d, "psd.plateau", &text)) < 0)
        return rc;
    char drops[10], since[10];
    p->known = sscanf(text, "%9[0-9] %9[0-9] %lf%n", drops, since, &p->best, &n) == 3 && text[n] == 0 &&
               __builtin_isfinite(p->best);
    p->drops = p->known ? (uint32_t)strtoul(drops, NULL, 10) : 0;
    p->since = p->known ? (uint32_t)strtoul(since, NULL, 10) : 0;
    if (!p->known)
        return damaged(d, "the header's psd.plateau is '%.60s'; allowed are two counts and a number", text);
    return json_object_get(d->metadata, "psd.watch") == NULL
               ? 0
               : get_word(d, "psd.watch", p->watch, sizeof p->watch);
}

static int decode_metadata(const struct decoder *d, uint64_t *checksum)
{
    struct psd_snapshot *s = d->out;
    uint64_t format, generation, incarnation, lanes, chunk_floats;
    const char *hex;
    int rc;

    if ((rc = get_number(d, "psd.format", 1, 1, &format)) < 0 ||
        (rc = get_word(d, "psd.method", s->method, sizeof s->method)) < 0 ||
        (rc = get_word(d, "psd.rule", s->rule, sizeof s->rule)) < 0 ||
        (rc = get_number(d, "psd.version", 0, UINT64_MAX, &s->version)) < 0 ||
        (rc = get_number(d, "psd.generation", 0, UINT32_MAX, &generation)) < 0 ||
        (rc = get_number(d, "psd.incarnation", 0, UINT32_MAX, &incarnation)) < 0 ||
        (rc = get_number(d, "psd.saved_at", 0, UINT64_MAX, &s->saved_at_s)) < 0 ||
        (rc = get_number(d, "psd.lanes", 1, PSD_MAX_LANES, &lanes)) < 0 ||
        (rc = get_number(d, "psd.chunk_floats", 1, PSD_MAX_CHUNK_FLOATS, &chunk_floats)) < 0 ||
        (rc = decode_parts(d)) < 0 || (rc = decode_job(d)) < 0 || (rc = decode_plateau(d)) < 0 ||
        (rc = decode_clock(d)) < 0 || (rc = decode_averaging(d)) < 0 || (rc = decode_delay(d)) < 0 ||
        (rc = get_text(d, "psd.checksum", &hex)) < 0)
        return rc;
    if (strlen(hex) != 16 || parse_hex(hex, checksum) < 0)
        return damaged(d, "the header's psd.checksum is '%.40s'; it has 16 hexadecimal digits", hex);
    s->generation = (uint32_t)generation;
    s->incarnation = (uint32_t)incarnation;
    s->map.lanes = (uint32_t)lanes;
    s->map.chunk_floats = (uint32_t)chunk_floats;
    return 0;
}

int psd_checkpoint_decode(const char *path, const char *text, size_t len, uint64_t data_bytes,
                          uint64_t max_floats, struct psd_snapshot *out, uint64_t *checksum,
                          struct ps_error *err)
{
    struct psd_snapshot s = {.manifest = NULL};
    struct decoder d = {.path = path, .data_bytes = data_bytes, .out = &s, .err = err};
    json_error_t why;
    int rc = psd_checkpoint_seal_check(path, text, len, err);

    if (rc < 0)
        return rc;
    d.root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &why);
    d.metadata = json_object_get(d.root, "__metadata__");
    if (d.root == NULL)
        rc = damaged(&d, "the header is not JSON: %.80s at byte %d", why.text, why.position);
    else if (!json_is_object(d.metadata))
        rc = damaged(&d, "the header has no object '%s'", "__metadata__");
    else if ((rc = decode_metadata(&d, checksum)) == 0 && (rc = decode_evaluation(&d)) == 0 &&
             (rc = decode_tensors(&d, max_floats)) == 0 && (rc = decode_clocks(&d)) == 0)
        rc = decode_replay(&d);
    json_decref(d.root);
    if (rc < 0)
        psd_snapshot_finish(&s);
    else
        *out = s;
    return rc;
}
