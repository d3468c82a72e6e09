/* Reads YAML into struct psd_config. A text is parsed twice: first as events, which refuses unwanted features
 * (aliases, anchors, tags, several documents, deep nesting) before a tree is built, then as a document, which
 * is walked against the key table. */
#include "server/config/config.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <yaml.h>

#include "server/config/keys.h"

#define MAX_FILE_BYTES (1024 * 1024)
#define MAX_DEPTH      8

struct reader {
    const char *place;       /* the file's path, or "--set" */
    bool lines;              /* errors also name the line */
    const char *key, *value; /* of a single assignment; NULL: of a file */
    const char *text;        /* what is read */
    size_t len;
    yaml_document_t *doc;
    struct psd_config *cfg;
    struct ps_error *err;
    FILE *keys;                          /* psd_config_set_keys: NULL otherwise */
    const struct psd_config_key *sought; /* psd_config_line: NULL otherwise */
    size_t line;                         /* of the sought key, from 1; 0: not found yet */
    size_t n_keys;                       /* that were read; groups do not count */
};

static int fail_at(const struct reader *r, yaml_mark_t mark, const char *key, const char *sentence)
{
    key = key[0] == 0 && r->key != NULL ? r->key : key;
    const char *colon = key[0] != 0 ? ": " : "";
    if (r->lines) {
        struct ps_error found;
        ps_fail(&found, 0, "%s%s%s", key, colon, sentence);
        return psd_config_fail_at(r->err, r->place, mark.line + 1, found.text);
    }
    return ps_fail(r->err, -EINVAL, "%s: %s%s%s", r->place, key, colon, sentence);
}

/* Whether the line of the mark is indented by a tab, which libyaml calls a "character that cannot start any
 * token". */
static bool has_tab(const struct reader *r, yaml_mark_t mark)
{
    const char *at = r->text, *end = r->text + r->len;
    for (size_t line = 0; line < mark.line && at != NULL; line++) {
        at = memchr(at, '\n', (size_t)(end - at));
        at = at != NULL ? at + 1 : NULL;
    }
    while (at != NULL && at < end && *at == ' ')
        at++;
    return at != NULL && at < end && *at == '\t';
}

static int fail_parser(const struct reader *r, const yaml_parser_t *parser)
{
    char sentence[400];
    if (parser->error == YAML_MEMORY_ERROR)
        return ps_fail(r->err, -ENOMEM, "%s: no memory to read it", r->place);
    snprintf(sentence, sizeof sentence, "not YAML: %s%s%s", parser->problem != NULL ? parser->problem : "?",
             parser->context != NULL ? ", " : "", parser->context != NULL ? parser->context : "");
    if (r->key != NULL) /* such as @FILE, where the shell's own quotes do not help */
        snprintf(sentence, sizeof sentence,
                 "found %.60s, which is not YAML: %s; allowed are such characters in quotes: %s='\"%.60s\"'",
                 r->value, parser->problem != NULL ? parser->problem : "?", r->key, r->value);
    yaml_mark_t mark = parser->problem_mark;
    if (parser->error == YAML_SCANNER_ERROR && has_tab(r, mark))
        return fail_at(r, mark, "", "found a tab before the key; allowed are spaces");
    if (parser->error == YAML_READER_ERROR) /* it has an offset but no mark: the bytes are not text */
        snprintf(sentence, sizeof sentence, "not text: %s at byte %zu; allowed is UTF-8",
                 parser->problem != NULL ? parser->problem : "?", parser->problem_offset);
    return fail_at(r, mark, "", sentence);
}

static int check_event(const struct reader *r, const yaml_event_t *e, int *depth, int *documents)
{
    const yaml_char_t *anchor = NULL, *tag = NULL;

    switch (e->type) {
    case YAML_ALIAS_EVENT:
        return fail_at(r, e->start_mark, "", "found an alias (*); allowed are plain values");
    case YAML_DOCUMENT_START_EVENT:
        if (++*documents > 1)
            return fail_at(r, e->start_mark, "", "found a second document (---); allowed is one");
        break;
    case YAML_SCALAR_EVENT:
        anchor = e->data.scalar.anchor;
        tag = e->data.scalar.tag;
        break;
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT:
        anchor = e->type == YAML_SEQUENCE_START_EVENT ? e->data.sequence_start.anchor
                                                      : e->data.mapping_start.anchor;
        tag = e->type == YAML_SEQUENCE_START_EVENT ? e->data.sequence_start.tag : e->data.mapping_start.tag;
        if (++*depth > MAX_DEPTH)
            return fail_at(r, e->start_mark, "", "nested too deeply; allowed are 8 levels");
        break;
    case YAML_SEQUENCE_END_EVENT:
    case YAML_MAPPING_END_EVENT:
        --*depth;
        break;
    default:
        break;
    }
    if (anchor != NULL)
        return fail_at(r, e->start_mark, "", "found an anchor (&); allowed are plain values");
    if (tag != NULL)
        return fail_at(r, e->start_mark, "", "found a tag (!); allowed are plain values");
    return 0;
}

static int check_events(const struct reader *r, const char *text, size_t len)
{
    yaml_parser_t parser;
    yaml_event_t event;
    int depth = 0, documents = 0, rc = 0;
    bool end = false;

    if (!yaml_parser_initialize(&parser))
        return ps_fail(r->err, -ENOMEM, "%s: no memory to read it", r->place);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    while (rc == 0 && !end) {
        if (!yaml_parser_parse(&parser, &event)) {
            rc = fail_parser(r, &parser);
            break;
        }
        rc = check_event(r, &event, &depth, &documents);
        end = event.type == YAML_STREAM_END_EVENT;
        yaml_event_delete(&event);
    }
    yaml_parser_delete(&parser);
    return rc;
}

static int walk_mapping(struct reader *r, const yaml_node_t *mapping, const char *group);

static bool is_empty(const yaml_node_t *node)
{
    return node->type == YAML_SCALAR_NODE && node->data.scalar.length == 0 &&
           node->data.scalar.style == YAML_PLAIN_SCALAR_STYLE;
}

/* Writes the assignment in one line. No value has control characters. */
static void write_key(FILE *f, const struct psd_config_key *key, const char *value, bool quoted)
{
    fprintf(f, "%s=%s", key->name, quoted ? "\"" : "");
    for (const char *at = value; *at != 0; at++)
        fprintf(f, "%s%c", quoted && (*at == '"' || *at == '\\') ? "\\" : "", *at);
    fputs(quoted ? "\"\n" : "\n", f);
}

static int read_node(struct reader *r, const struct psd_config_key *key, const yaml_node_t *node)
{
    struct ps_error sentence;
    char allowed[160], text[256];

    if (key->type == PSD_CONFIG_GROUP && (node->type == YAML_MAPPING_NODE || is_empty(node)))
        return node->type == YAML_MAPPING_NODE ? walk_mapping(r, node, key->name) : 0;
    if (key->type == PSD_CONFIG_GROUP || node->type != YAML_SCALAR_NODE) {
        psd_config_value_allowed(key, allowed, sizeof allowed);
        snprintf(text, sizeof text, "found a %s; allowed is %s",
                 node->type == YAML_MAPPING_NODE    ? "mapping"
                 : node->type == YAML_SEQUENCE_NODE ? "list"
                                                    : "single value",
                 allowed);
        return fail_at(r, node->start_mark, key->name, text);
    }
    const char *value = (const char *)node->data.scalar.value;
    bool quoted = node->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    if (psd_config_value_read(key, value, node->data.scalar.length, quoted, r->cfg, &sentence) < 0)
        return fail_at(r, node->start_mark, key->name, sentence.text);
    if (r->keys != NULL)
        write_key(r->keys, key, value, quoted);
    r->n_keys++;
    return 0;
}

static int fail_unknown(const struct reader *r, yaml_mark_t mark, const char *group, const char *name)
{
    char keys[400], near[120] = "", text[640];
    const char *dot = strrchr(name, '.');
    const struct psd_config_key *nearest = psd_config_key_nearest(group, dot != NULL ? dot + 1 : name);

    psd_config_key_list(group, keys, sizeof keys);
    if (strchr(name, ':') != NULL)
        snprintf(near, sizeof near, "a space must follow the colon; ");
    else if (nearest != NULL)
        snprintf(near, sizeof near, "did you mean %s? ", nearest->name);
    snprintf(text, sizeof text, "found an unknown key '%.60s'; %sallowed here: %s", name, near, keys);
    return fail_at(r, mark, group, text);
}

/* --set and psctl set take "parameters.period"; in a file that would be one word. */
static int fail_dotted(const struct reader *r, yaml_mark_t mark, const struct psd_config_key *row)
{
    char text[300];
    const char *leaf = psd_config_key_leaf(row);
    snprintf(text, sizeof text, "found dots in a key; allowed in a file is %s in the mapping %.*s", leaf,
             (int)(leaf - row->name - 1), row->name);
    return fail_at(r, mark, row->name, text);
}

static int walk_mapping(struct reader *r, const yaml_node_t *mapping, const char *group)
{
    const yaml_node_pair_t *first = mapping->data.mapping.pairs.start, *end = mapping->data.mapping.pairs.top;
    char name[128];
    int rc;

    for (const yaml_node_pair_t *p = first; p < end; p++) {
        const yaml_node_t *key = yaml_document_get_node(r->doc, p->key);
        const yaml_node_t *value = yaml_document_get_node(r->doc, p->value);
        if (key->type != YAML_SCALAR_NODE)
            return fail_at(r, key->start_mark, group, "found a list or mapping as a key; allowed are words");
        const char *word = (const char *)key->data.scalar.value;
        int len = snprintf(name, sizeof name, "%s%s%s", group, group[0] != 0 ? "." : "", word);
        const struct psd_config_key *row = len < (int)sizeof name && strlen(word) == key->data.scalar.length
                                               ? psd_config_key_find(name, (size_t)len)
                                               : NULL;
        if (row == NULL)
            return fail_unknown(r, key->start_mark, group, word);
        if (strchr(word, '.') != NULL)
            return fail_dotted(r, key->start_mark, row);
        if (row == r->sought)
            r->line = key->start_mark.line + 1;
        /* All keys before this one are in the table and distinct, so the table bounds the loop. */
        for (const yaml_node_pair_t *q = first; q < p; q++) {
            const yaml_node_t *other = yaml_document_get_node(r->doc, q->key);
            if (strcmp((const char *)other->data.scalar.value, word) == 0) {
                snprintf(name, sizeof name, "found the key twice, first on line %zu; allowed is once",
                         other->start_mark.line + 1);
                return fail_at(r, key->start_mark, row->name, name);
            }
        }
        if ((rc = read_node(r, row, value)) < 0)
            return rc;
    }
    return 0;
}

/* The value of an assignment is blank, or a comment to YAML. */
static int fail_empty(const struct reader *r)
{
    const yaml_mark_t nowhere = {0};
    return fail_at(r, nowhere, "",
                   "found nothing after '='; allowed is KEY=VALUE, a value that begins with # in quotes");
}

/* Parses the text as the row's value, or as the whole configuration if row is NULL. */
static int read_text(struct reader *r, const struct psd_config_key *row, const char *text, size_t len)
{
    yaml_parser_t parser;
    yaml_document_t doc;
    int rc;

    r->text = text;
    r->len = len;
    if ((rc = check_events(r, text, len)) < 0)
        return rc;
    if (!yaml_parser_initialize(&parser))
        return ps_fail(r->err, -ENOMEM, "%s: no memory to read it", r->place);
    yaml_parser_set_input_string(&parser, (const unsigned char *)text, len);
    if (!yaml_parser_load(&parser, &doc)) {
        rc = fail_parser(r, &parser);
        goto delete_parser;
    }
    r->doc = &doc;
    const yaml_node_t *root = yaml_document_get_root_node(&doc);
    if (root == NULL || is_empty(root))
        rc = row != NULL ? fail_empty(r) : 0; /* a file of comments only: the defaults apply */
    else if (row != NULL)
        rc = read_node(r, row, root);
    else if (root->type == YAML_MAPPING_NODE)
        rc = walk_mapping(r, root, "");
    else
        rc = fail_at(
            r, root->start_mark, "",
            "found no keys; allowed is a mapping of keys: lines KEY: VALUE, with a space after the colon");
    r->doc = NULL;
    yaml_document_delete(&doc);
delete_parser:
    yaml_parser_delete(&parser);
    return rc;
}

int psd_config_read_text(struct psd_config *cfg, const char *place, const char *text, size_t len,
                         struct ps_error *err)
{
    struct reader r = {.place = place, .lines = true, .cfg = cfg, .err = err};
    return read_text(&r, NULL, text, len);
}

/* Reads at most MAX_FILE_BYTES + 1 bytes, so that the caller can detect a longer file. */
static int read_bytes(int fd, char *text, size_t *len)
{
    *len = 0;
    while (*len < MAX_FILE_BYTES + 1) {
        ssize_t n = read(fd, text + *len, MAX_FILE_BYTES + 1 - *len);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return -errno;
        if (n == 0)
            break;
        *len += (size_t)n;
    }
    return 0;
}

static int read_file(struct reader *r)
{
    const char *path = r->place;
    struct ps_error *err = r->err;
    struct stat st;
    size_t len;
    int rc;

    /* O_NONBLOCK: opening a FIFO by mistake must not hang the start. */
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return ps_fail(err, -errno, "%s: cannot read the configuration: %s", path, strerror(errno));
    char *text = malloc(MAX_FILE_BYTES + 1);
    if (text == NULL) {
        rc = ps_fail(err, -ENOMEM, "%s: no memory to read it", path);
        goto close_file;
    }
    if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        rc = ps_fail(err, -EINVAL, "%s: not a regular file", path);
    else if ((rc = read_bytes(fd, text, &len)) < 0)
        rc = ps_fail(err, rc, "%s: cannot read the configuration: %s", path, strerror(-rc));
    else if (len > MAX_FILE_BYTES)
        rc = ps_fail(err, -EFBIG, "%s: more than %d bytes, which is the limit", path, MAX_FILE_BYTES);
    else
        rc = read_text(r, NULL, text, len);
    free(text);
close_file:
    close(fd);
    return rc;
}

int psd_config_read(struct psd_config *cfg, const char *path, struct ps_error *err)
{
    struct reader r = {.place = path, .lines = true, .cfg = cfg, .err = err};
    return read_file(&r);
}

int psd_config_read_again(struct psd_config *cfg, const char *path, struct ps_error *err)
{
    struct reader r = {.place = path, .lines = true, .cfg = cfg, .err = err};
    int rc = read_file(&r);
    if (rc < 0 || r.n_keys > 0)
        return rc;
    return ps_fail(err, -EINVAL,
                   "%s: found no keys; allowed on a reload is a file with at least one, such as method",
                   path);
}

size_t psd_config_line(const char *path, const struct psd_config_key *key)
{
    struct psd_config unused;
    struct reader r = {.place = path, .lines = true, .cfg = &unused, .sought = key};
    return read_file(&r) < 0 ? 0 : r.line;
}

/* keys: NULL, or where the assignments of the single keys are written. */
static int set(const char *place, struct psd_config *cfg, const char *assignment, FILE *keys,
               struct ps_error *err)
{
    struct reader r = {.place = place, .lines = false, .cfg = cfg, .err = err, .keys = keys};
    const yaml_mark_t nowhere = {0};
    const char *equals = strchr(assignment, '=');
    char name[128], group[128] = "", several[200];

    if (equals == NULL || equals == assignment)
        return ps_fail(err, -EINVAL, "%s: found '%.100s'; allowed is KEY=VALUE", place, assignment);
    if (strlen(equals) > MAX_FILE_BYTES)
        return ps_fail(err, -EFBIG, "%s: a value of more than %d bytes", place, MAX_FILE_BYTES);
    const struct psd_config_key *row = psd_config_key_short(assignment, (size_t)(equals - assignment));
    if (row == NULL) {
        psd_config_key_list_short(assignment, (size_t)(equals - assignment), several, sizeof several);
        if (several[0] != 0)
            return ps_fail(err, -EINVAL, "%s: found %.*s, which several keys end in; allowed are %s", place,
                           (int)(equals - assignment), assignment, several);
        snprintf(name, sizeof name, "%.*s", (int)(equals - assignment < 120 ? equals - assignment : 120),
                 assignment);
        const char *dot = strrchr(name, '.');
        const struct psd_config_key *parent =
            dot != NULL ? psd_config_key_find(name, (size_t)(dot - name)) : NULL;
        if (parent != NULL && parent->type == PSD_CONFIG_GROUP)
            snprintf(group, sizeof group, "%s", parent->name);
        return fail_unknown(&r, nowhere, group, group[0] != 0 ? dot + 1 : name);
    }
    struct ps_error why;
    if (equals[1] == 0 && row->type == PSD_CONFIG_STRING) {
        if (psd_config_value_read(row, "", 0, true, cfg, &why) < 0)
            return fail_at(&r, nowhere, row->name, why.text);
        if (keys != NULL)
            write_key(keys, row, "", false);
        return 0;
    }
    if (equals[1] == 0)
        return fail_at(&r, nowhere, row->name, "found no value after '='");
    r.key = row->name;
    r.value = equals + 1;
    return read_text(&r, row, equals + 1, strlen(equals + 1));
}

int psd_config_set(struct psd_config *cfg, const char *assignment, struct ps_error *err)
{
    return psd_config_set_as("--set", cfg, assignment, err);
}

int psd_config_set_as(const char *place, struct psd_config *cfg, const char *assignment, struct ps_error *err)
{
    return set(place, cfg, assignment, NULL, err);
}

int psd_config_set_keys(const char *place, struct psd_config *cfg, const char *assignment, char **keys,
                        struct ps_error *err)
{
    char *text = NULL;
    size_t size;
    FILE *f = open_memstream(&text, &size);
    if (f == NULL)
        return ps_fail(err, -ENOMEM, "%s: no memory to read it", place);
    int rc = set(place, cfg, assignment, f, err);
    if (fclose(f) != 0 && rc == 0)
        rc = ps_fail(err, -ENOMEM, "%s: no memory to read it", place);
    if (rc == 0)
        *keys = text;
    else
        free(text);
    return rc;
}
