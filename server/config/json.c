#include "server/config/config.h"

#include <jansson.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text.h"
#include "server/config/check_method.h"
#include "server/config/json.h"

json_t *psd_json_text(const char *s)
{
    json_t *text = s[0] != 0 ? json_string(s) : json_null();
    char *valid = text == NULL ? malloc(strlen(s) + 1) : NULL;
    if (valid != NULL) {
        ps_text_copy(valid, strlen(s) + 1, s);
        text = json_string(valid);
        free(valid);
    }
    return text;
}

int psd_json_digits(double v)
{
    enum { MOST = 17 };
    char text[40];
    int digits = 15;
    for (; digits < MOST; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, v);
        if (strtod(text, NULL) == v)
            break;
    }
    return digits;
}

/* A number that stands for a word is written as that word, "none" as null. A switch stays a boolean. */
static json_t *number_to_json(const struct psd_config_key *key, double value)
{
    bool is_word = key->word != NULL && (isnan(value) || value == key->word_value);
    if (key->switches && value <= 1)
        return json_boolean(value > 0);
    if (is_word)
        return strcmp(key->word, "none") == 0 ? json_null() : json_string(key->word);
    return key->type == PSD_CONFIG_DOUBLE ? json_real(value) : json_integer((json_int_t)value);
}

/* Keys that the method does not use are written as "preset", so that the output is a valid configuration. */
static json_t *value_to_json(const struct psd_config_key *key, const struct psd_config *cfg)
{
    const char *at = (const char *)cfg + key->offset;
    unsigned choice;
    json_t *value;
    uint64_t u64;
    uint32_t u32;
    double real;

    if (!key->off && !psd_config_key_used(key, cfg))
        return json_string("preset");
    if (key->offset == offsetof(struct psd_config, admission))
        at = psd_config_clique_admission(cfg);
    switch (key->type) {
    case PSD_CONFIG_GROUP:
        return json_object();
    case PSD_CONFIG_STRING:
    case PSD_CONFIG_WORD:
        value = json_string(at);
        return value != NULL ? value : json_null(); /* a path from --endpoint-file need not be UTF-8 */
    case PSD_CONFIG_CHOICE:
        memcpy(&choice, at, sizeof choice);
        return json_string(key->choices[choice]);
    case PSD_CONFIG_BOOL:
        return json_boolean(*(const bool *)at);
    case PSD_CONFIG_U32:
        memcpy(&u32, at, sizeof u32);
        return number_to_json(key, u32);
    case PSD_CONFIG_U64:
        memcpy(&u64, at, sizeof u64);
        return number_to_json(key, (double)u64); /* ranges end below 2^53 */
    case PSD_CONFIG_DOUBLE:
        memcpy(&real, at, sizeof real);
        return number_to_json(key, real);
    }
    return NULL;
}

/* The object that contains the key; groups precede their keys in the table. */
static json_t *parent_of(json_t *root, const char *name)
{
    char part[64];
    const char *dot;
    json_t *at = root;
    for (; at != NULL && (dot = strchr(name, '.')) != NULL; name = dot + 1) {
        memcpy(part, name, (size_t)(dot - name));
        part[dot - name] = 0;
        at = json_object_get(at, part);
    }
    return at;
}

char *psd_config_json(const struct psd_config *cfg)
{
    json_t *root = json_object();
    char *text = NULL;
    int digits = 0;

    for (const struct psd_config_key *k = psd_config_keys; k->name != NULL; k++) {
        json_t *value = value_to_json(k, cfg);
        int needed = psd_json_digits(json_real_value(value));
        digits = needed > digits ? needed : digits;
        if (json_object_set_new(parent_of(root, k->name), psd_config_key_leaf(k), value) < 0)
            goto done;
    }
    text = json_dumps(root, JSON_INDENT(2) | JSON_REAL_PRECISION(digits));
done:
    json_decref(root);
    return text;
}
