#include "server/checkpoint/header.h"

#include <errno.h>
#include <inttypes.h>
#include <jansson.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

static const char seal_key[] = "\"psd.seal\":\"";
static const char seal_blank[] = "0000000000000000";
#define SEAL_DIGITS (sizeof seal_blank - 1)

/* The position of the seal. Quotes in JSON strings are escaped, so the key with its quotes is only found
 * where it is a key. */
static char *find_seal(const char *text, size_t len)
{
    char *at = memmem(text, len, seal_key, sizeof seal_key - 1);
    if (at == NULL || (size_t)(at - text) + sizeof seal_key - 1 + SEAL_DIGITS > len)
        return NULL;
    return at + sizeof seal_key - 1;
}

static int compute_seal(const char *text, size_t len, const char *digits_at, char digits[SEAL_DIGITS + 1])
{
    XXH3_state_t *state = XXH3_createState();
    const char *rest = digits_at + SEAL_DIGITS;
    uint64_t length = len;

    if (state == NULL)
        return -ENOMEM;
    XXH3_64bits_reset(state);
    XXH3_64bits_update(state, &length, sizeof length);
    XXH3_64bits_update(state, text, (size_t)(digits_at - text));
    XXH3_64bits_update(state, seal_blank, SEAL_DIGITS);
    XXH3_64bits_update(state, rest, (size_t)(text + len - rest));
    snprintf(digits, SEAL_DIGITS + 1, "%016" PRIx64, (uint64_t)XXH3_64bits_digest(state));
    XXH3_freeState(state);
    return 0;
}

int psd_checkpoint_seal(char *text, size_t len)
{
    char digits[SEAL_DIGITS + 1], *at = find_seal(text, len);
    if (at == NULL)
        return -EINVAL;
    int rc = compute_seal(text, len, at, digits);
    if (rc == 0)
        memcpy(at, digits, SEAL_DIGITS);
    return rc;
}

int psd_checkpoint_seal_check(const char *path, const char *text, size_t len, struct ps_error *err)
{
    char digits[SEAL_DIGITS + 1];
    const char *at = find_seal(text, len);
    if (at == NULL)
        return ps_fail(err, -EBADMSG,
                       "%s: the header has no psd.seal: the file is not a checkpoint of psd, or is damaged",
                       path);
    if (compute_seal(text, len, at, digits) < 0)
        return ps_fail(err, -ENOMEM, "%s: no memory to check it", path);
    if (memcmp(at, digits, SEAL_DIGITS) != 0)
        return ps_fail(err, -EBADMSG, "%s: the header is damaged: psd.seal is %.16s, its %zu bytes give %s",
                       path, at, len, digits);
    return 0;
}

static json_t *entry_to_json(const uint64_t *shape, uint32_t n_dims, uint64_t first, uint64_t n)
{
    json_t *dims = json_array();
    for (uint32_t d = 0; d < n_dims; d++)
        json_array_append_new(dims, json_integer((json_int_t)shape[d]));
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", "F32", "shape", dims, "data_offsets",
                     (json_int_t)first * (json_int_t)sizeof(float),
                     (json_int_t)(first + n) * (json_int_t)sizeof(float));
}

/* -EINVAL: the name is taken. */
static int add_entry(json_t *root, const char *name, json_t *entry, struct ps_error *err)
{
    if (json_object_get(root, name) != NULL) {
        json_decref(entry);
        return ps_fail(err, -EINVAL,
                       "'%.80s' is a tensor, and the name of another one's piece in this part: allowed is "
                       "another name",
                       name);
    }
    return json_object_set_new(root, name, entry) == 0 ? 0 : -ENOMEM;
}

/* The tensor's values in the snapshot: all of them under the tensor's name and shape, a piece as a vector
 * under NAME[FIRST:END], or nothing. */
static int add_tensor(json_t *root, const struct psd_snapshot *s, const struct ps_tensor *t,
                      struct ps_error *err)
{
    struct ps_range all = ps_tensor_range(t), have = ps_range_intersect(all, s->range);
    uint64_t at = have.begin - s->range.begin, first = have.begin - all.begin;
    char name[PS_MAX_NAME_BYTES + 50];
    if (have.count == 0)
        return 0;
    if (have.count == all.count)
        return add_entry(root, t->name, entry_to_json(t->shape, t->n_dims, at, all.count), err);
    snprintf(name, sizeof name, "%s[%" PRIu64 ":%" PRIu64 "]", t->name, first, first + have.count);
    return add_entry(root, name, entry_to_json(&have.count, 1, at, have.count), err);
}

static int add_tensors(json_t *root, const struct psd_snapshot *s, struct ps_error *err)
{
    uint64_t n = s->range.count;
    char name[32];
    int rc;

    for (size_t i = 0; i < s->manifest->n_tensors; i++)
        if ((rc = add_tensor(root, s, &s->manifest->tensors[i], err)) < 0)
            return rc;
    for (uint32_t k = 0; k < s->n_state; k++) {
        snprintf(name, sizeof name, PSD_CHECKPOINT_STATE "%u", k);
        if (json_object_set_new(root, name, entry_to_json(&n, 1, (k + 1) * n, n)) < 0)
            return -ENOMEM;
    }
    if (s->has_average &&
        json_object_set_new(root, PSD_CHECKPOINT_AVERAGE, entry_to_json(&n, 1, (1 + s->n_state) * n, n)) < 0)
        return -ENOMEM;
    return 0;
}

/* Adds json's text as a string and releases json; safetensors allows only strings as metadata. */
static int add_json(json_t *metadata, const char *key, json_t *json)
{
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT) : NULL;
    int rc = text != NULL ? json_object_set_new(metadata, key, json_string(text)) : -1;
    free(text);
    json_decref(json);
    return rc;
}

static int add_number(json_t *metadata, const char *key, uint64_t value)
{
    return json_object_set_new(metadata, key, json_sprintf("%" PRIu64, value));
}

/* An object that maps the tensors' names to the number at this offset of struct ps_tensor, for numbers other
 * than 0. */
static json_t *marks_to_json(const struct ps_manifest *m, size_t offset)
{
    json_t *object = json_object();
    for (size_t i = 0; i < m->n_tensors; i++) {
        uint32_t number = *(const uint32_t *)(const void *)((const char *)&m->tensors[i] + offset);
        if (number != 0)
            json_object_set_new(object, m->tensors[i].name, json_integer(number));
    }
    return object;
}

static bool has_rates(const struct ps_manifest *m)
{
    for (size_t i = 0; i < m->n_tensors; i++)
        if (m->tensors[i].rate_ppm != 0)
            return true;
    return false;
}

/* The whole model, of which the file has a part: names and shapes, in order. */
static json_t *model_to_json(const struct ps_manifest *m)
{
    json_t *list = json_array();
    for (size_t i = 0; i < m->n_tensors; i++) {
        json_t *shape = json_array();
        for (uint32_t k = 0; k < m->tensors[i].n_dims; k++)
            json_array_append_new(shape, json_integer((json_int_t)m->tensors[i].shape[k]));
        json_array_append_new(list, json_pack("[s, o]", m->tensors[i].name, shape));
    }
    return list;
}

/* For a map of several parts. */
static int add_parts(json_t *metadata, const struct psd_snapshot *s)
{
    if (s->map.parts <= 1)
        return 0;
    if (add_number(metadata, "psd.parts", s->map.parts) < 0)
        return -1;
    return s->part == PSD_WHOLE ? 0
                                : add_number(metadata, "psd.part", s->part) |
                                      add_json(metadata, "psd.model", model_to_json(s->manifest));
}

/* Writes each word as 16 hexadecimal digits; repeated words once, followed by "xTIMES,". Usually all chunks
 * of an exchange have landed, or all up to some chunk, so this is short. */
static void bitmap_to_text(const struct psd_replay_entry *e, char *text)
{
    text[0] = 0;
    for (uint32_t w = 0, times; w < e->n_words; w += times) {
        for (times = 1; w + times < e->n_words && e->landed[w + times] == e->landed[w]; times++)
            ;
        text += sprintf(text, "%016" PRIx64, e->landed[w]);
        if (times > 1)
            text += sprintf(text, "x%" PRIu32 ",", times);
    }
}

/* A seq comes from a peer and may exceed a JSON integer, so it is written as text. */
static json_t *replay_to_json(const struct psd_snapshot *s)
{
    json_t *list = json_array();
    for (size_t i = 0; i < s->n_replay; i++) {
        const struct psd_replay_entry *e = &s->replay[i];
        char *bitmap = malloc((size_t)e->n_words * 16 + 1);
        if (bitmap == NULL) {
            json_decref(list);
            return NULL;
        }
        bitmap_to_text(e, bitmap);
        json_t *seq = json_sprintf("%" PRIu64, e->seq);
        json_t *entry = json_pack("[I, I, I, o, s]", (json_int_t)e->client, (json_int_t)e->incarnation,
                                  (json_int_t)e->lane, seq, bitmap);
        if (e->fragment > 0)
            json_array_append_new(entry, json_integer((json_int_t)e->fragment));
        json_array_append_new(list, entry);
        free(bitmap);
    }
    return list;
}

static json_t *counts_to_json(const uint64_t *counts, uint32_t n)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < n; i++)
        json_array_append_new(list, json_integer((json_int_t)counts[i]));
    return list;
}

static json_t *metadata_to_json(const struct psd_snapshot *s, uint64_t checksum)
{
    json_t *m = json_object();
    int bad =
        json_object_set_new(m, "psd.seal", json_string(seal_blank)) < 0 ||
        json_object_set_new(m, "psd.format", json_string("1")) < 0 ||
        json_object_set_new(m, "psd.method", json_string(s->method)) < 0 ||
        json_object_set_new(m, "psd.rule", json_string(s->rule)) < 0 ||
        add_number(m, "psd.version", s->version) < 0 || add_number(m, "psd.generation", s->generation) < 0 ||
        add_number(m, "psd.incarnation", s->incarnation) < 0 ||
        add_number(m, "psd.saved_at", s->saved_at_s) < 0 || add_number(m, "psd.lanes", s->map.lanes) < 0 ||
        add_number(m, "psd.chunk_floats", s->map.chunk_floats) < 0 ||
        json_object_set_new(m, "psd.checksum", json_sprintf("%016" PRIx64, checksum)) < 0 ||
        add_json(m, "psd.roles", marks_to_json(s->manifest, offsetof(struct ps_tensor, role))) < 0 ||
        add_json(m, "psd.decay", marks_to_json(s->manifest, offsetof(struct ps_tensor, decay))) < 0;
    if (has_rates(s->manifest))
        bad = bad ||
              add_json(m, "psd.rates", marks_to_json(s->manifest, offsetof(struct ps_tensor, rate_ppm))) < 0;
    if (s->job != 0)
        bad = bad || json_object_set_new(m, "psd.job", json_sprintf("%016" PRIx64, s->job)) < 0;
    bad = bad || add_parts(m, s) < 0 ||
          add_json(m, "psd.clocks", counts_to_json(s->lane_clocks, s->map.lanes)) < 0 ||
          add_json(m, "psd.moves", counts_to_json(s->lane_moves, s->map.lanes)) < 0;
    if (s->fragment_moves != NULL)
        bad = bad || add_json(m, "psd.fragment_moves",
                              counts_to_json(s->fragment_moves, s->map.lanes * s->fragments)) < 0;
    if (s->plateau.known)
        bad = bad || json_object_set_new(m, "psd.plateau",
                                         json_sprintf("%u %u %.17g", s->plateau.drops, s->plateau.since,
                                                      s->plateau.best)) < 0;
    if (s->plateau.known && s->plateau.watch[0] != 0)
        bad = bad || json_object_set_new(m, "psd.watch", json_string(s->plateau.watch)) < 0;
    if (s->n_state > 0 && s->delay > 0)
        bad = bad || add_number(m, "psd.delay", s->delay) < 0;
    if (s->clock > 0)
        bad = bad || add_number(m, "psd.clock", s->clock) < 0;
    if (s->has_average && s->averaging[0] != 0)
        bad = bad || json_object_set_new(m, "psd.averaging", json_string(s->averaging)) < 0;
    if (s->bare)
        bad = bad || add_number(m, "psd.bare", 1) < 0;
    if (s->evaluated)
        bad = bad || add_number(m, "psd.evaluated_version", s->evaluated_version) < 0 ||
              json_object_set_new(m, "psd.test_accuracy", json_sprintf("%.9f", s->test_accuracy)) < 0;
    if (bad || add_json(m, "psd.replay", replay_to_json(s)) < 0) {
        json_decref(m);
        return NULL;
    }
    return m;
}

int psd_checkpoint_encode(const struct psd_snapshot *s, uint64_t checksum, char **text, size_t *len,
                          struct ps_error *err)
{
    json_t *root = json_object(), *metadata = metadata_to_json(s, checksum);
    char *dump = NULL, *padded = NULL;
    int rc = -ENOMEM;

    if (metadata != NULL && json_object_set_new(root, "__metadata__", metadata) == 0 &&
        (rc = add_tensors(root, s, err)) == 0)
        dump = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    if (rc == -EINVAL)
        return rc;
    rc = -ENOMEM;
    if (dump == NULL)
        return ps_fail(err, rc, "no memory for a checkpoint's header of %zu tensors", s->manifest->n_tensors);
    size_t n = strlen(dump), n_padded = (n + 7) / 8 * 8;
    if (n_padded > PSD_CHECKPOINT_MAX_HEADER) {
        rc = ps_fail(err, -EFBIG,
                     "a header of %zu bytes; safetensors allows %d: fewer, larger chunks (chunk_floats) make "
                     "it smaller",
                     n_padded, PSD_CHECKPOINT_MAX_HEADER);
    } else if ((padded = realloc(dump, n_padded)) != NULL) {
        memset(padded + n, ' ', n_padded - n);
        rc = psd_checkpoint_seal(padded, n_padded);
        dump = NULL;
    }
    if (rc < 0) {
        free(dump);
        free(padded);
        return rc == -EFBIG ? rc
                            : ps_fail(err, rc, "no memory for a checkpoint's header of %zu bytes", n_padded);
    }
    *text = padded;
    *len = n_padded;
    return 0;
}
