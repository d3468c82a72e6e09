#include "server/config/keys.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/text.h"

static void list_words(const char *const *words, char *text, size_t size)
{
    text[0] = 0;
    for (; *words != NULL; words++)
        ps_text_join(text, size, ", ", *words);
}

void psd_config_value_allowed(const struct psd_config_key *key, char *text, size_t size)
{
    bool whole = key->type == PSD_CONFIG_U32 || key->type == PSD_CONFIG_U64;
    switch (key->type) {
    case PSD_CONFIG_GROUP:
        snprintf(text, size, "a mapping of keys (KEY: VALUE)");
        break;
    case PSD_CONFIG_STRING:
        if (key->allowed != NULL)
            snprintf(text, size, "%s", key->allowed);
        else
            snprintf(text, size, "a text of at most %zu bytes without control characters", key->size - 1);
        break;
    case PSD_CONFIG_BOOL:
        snprintf(text, size, "true or false");
        break;
    case PSD_CONFIG_WORD:
    case PSD_CONFIG_CHOICE:
        list_words(key->choices, text, size);
        break;
    case PSD_CONFIG_U32:
    case PSD_CONFIG_U64:
    case PSD_CONFIG_DOUBLE:
        snprintf(text, size, "a %snumber %s %.16g%s %.16g%s%s%s", whole ? "whole " : "",
                 key->above_min ? "above" : "from", key->min,
                 key->below_max   ? ", below"
                 : key->above_min ? " up to"
                                  : " to",
                 key->max, key->switches ? ", true, false" : "", key->word != NULL ? " or " : "",
                 key->word != NULL ? key->word : "");
        break;
    }
    if (key->fallback != NULL) {
        size_t used = strlen(text);
        snprintf(text + used, size - used, " or preset");
    }
}

/* A whole number consists of digits only: no sign, no 0x, no 1e3. */
static int read_whole(const char *text, uint64_t *out)
{
    if (text[0] == 0 || strspn(text, "0123456789") != strlen(text))
        return -EINVAL;
    errno = 0;
    unsigned long long value = strtoull(text, NULL, 10);
    if (errno != 0)
        return -ERANGE;
    *out = value;
    return 0;
}

static int read_real(const char *text, double *out)
{
    char *end;
    if (text[0] == 0 || strspn(text, "0123456789+-.eE") != strlen(text))
        return -EINVAL;
    double value = strtod(text, &end);
    if (end == text || *end != 0 || !isfinite(value))
        return -EINVAL;
    *out = value;
    return 0;
}

/* Where a bound itself is excluded so is what becomes it as a float, as which the value is used. */
static bool in_range(const struct psd_config_key *key, double value)
{
    return (key->below_max ? (float)value < (float)key->max : value <= key->max) &&
           (key->above_min ? (float)value > (float)key->min : value >= key->min);
}

/* A parsed value before it is stored. */
union value {
    char text[256];
    bool flag;
    uint32_t u32;
    uint64_t u64;
    double real;
    unsigned choice;
};

/* Whether the text is a word that stands for a number. */
static bool read_word(const struct psd_config_key *key, const char *text, double *out)
{
    if (key->switches && (strcmp(text, "true") == 0 || strcmp(text, "false") == 0)) {
        *out = text[0] == 't';
        return true;
    }
    if (key->word == NULL ||
        (strcmp(text, key->word) != 0 && !(strcmp(key->word, "none") == 0 && strcmp(text, "null") == 0)))
        return false;
    *out = key->word_value;
    return true;
}

static int read_number(const struct psd_config_key *key, const char *text, union value *v)
{
    uint64_t whole = 0;
    double real = 0;

    if (read_word(key, text, &real)) {
        whole = isnan(real) ? 0 : (uint64_t)real;
    } else if (key->type == PSD_CONFIG_DOUBLE ? read_real(text, &real) < 0 : read_whole(text, &whole) < 0) {
        return -EINVAL;
    } else if (!in_range(key, key->type == PSD_CONFIG_DOUBLE ? real : (double)whole)) {
        return -ERANGE;
    }
    if (key->type == PSD_CONFIG_DOUBLE)
        v->real = real;
    else if (key->type == PSD_CONFIG_U64)
        v->u64 = whole;
    else
        v->u32 = (uint32_t)whole;
    return 0;
}

static int read_choice(const struct psd_config_key *key, const char *text, union value *v)
{
    for (const char *const *c = key->choices; *c != NULL; c++)
        if (strcmp(*c, text) == 0) {
            if (key->type == PSD_CONFIG_CHOICE)
                v->choice = (unsigned)(c - key->choices);
            else
                strcpy(v->text, text);
            return 0;
        }
    return -EINVAL;
}

static int read_text(const struct psd_config_key *key, const char *text, union value *v)
{
    for (const unsigned char *p = (const unsigned char *)text; *p != 0; p++)
        if (*p < 0x20 || *p == 0x7f)
            return -EINVAL;
    if (strlen(text) >= key->size)
        return -ERANGE;
    if (key->takes != NULL && !key->takes(text))
        return -EINVAL;
    strcpy(v->text, text);
    return 0;
}

static int read_value(const struct psd_config_key *key, const char *text, bool quoted, union value *v)
{
    if (quoted && key->type != PSD_CONFIG_STRING && key->type != PSD_CONFIG_WORD &&
        key->type != PSD_CONFIG_CHOICE)
        return -EINVAL;
    switch (key->type) {
    case PSD_CONFIG_GROUP:
        return -EINVAL;
    case PSD_CONFIG_STRING:
        return read_text(key, text, v);
    case PSD_CONFIG_WORD:
    case PSD_CONFIG_CHOICE:
        return read_choice(key, text, v);
    case PSD_CONFIG_BOOL:
        if (strcmp(text, "true") != 0 && strcmp(text, "false") != 0)
            return -EINVAL;
        v->flag = text[0] == 't';
        return 0;
    case PSD_CONFIG_U32:
    case PSD_CONFIG_U64:
    case PSD_CONFIG_DOUBLE:
        return read_number(key, text, v);
    }
    return -EINVAL;
}

static void store(const struct psd_config_key *key, const union value *v, struct psd_config *cfg)
{
    char *at = (char *)cfg + key->offset;
    switch (key->type) {
    case PSD_CONFIG_GROUP:
        break;
    case PSD_CONFIG_STRING:
    case PSD_CONFIG_WORD: /* clears the whole member, so that equal configurations have equal bytes */
        memset(at, 0, key->size);
        memcpy(at, v->text, strlen(v->text));
        break;
    case PSD_CONFIG_CHOICE:
        memcpy(at, &v->choice, sizeof v->choice);
        break;
    case PSD_CONFIG_BOOL:
        memcpy(at, &v->flag, sizeof v->flag);
        break;
    case PSD_CONFIG_U32:
        memcpy(at, &v->u32, sizeof v->u32);
        break;
    case PSD_CONFIG_U64:
        memcpy(at, &v->u64, sizeof v->u64);
        break;
    case PSD_CONFIG_DOUBLE:
        memcpy(at, &v->real, sizeof v->real);
        break;
    }
}

size_t psd_config_key_bytes(const struct psd_config_key *key)
{
    const union value *v = NULL;
    switch (key->type) {
    case PSD_CONFIG_STRING:
    case PSD_CONFIG_WORD:
        return key->size;
    case PSD_CONFIG_CHOICE:
        return sizeof v->choice;
    case PSD_CONFIG_BOOL:
        return sizeof v->flag;
    case PSD_CONFIG_U32:
        return sizeof v->u32;
    case PSD_CONFIG_U64:
        return sizeof v->u64;
    case PSD_CONFIG_DOUBLE:
        return sizeof v->real;
    case PSD_CONFIG_GROUP:
        break;
    }
    return 0;
}

bool psd_config_key_given(const struct psd_config_key *key, const struct psd_config *cfg)
{
    return cfg->given[key - psd_config_keys];
}

int psd_config_value_read(const struct psd_config_key *key, const char *text, size_t len, bool quoted,
                          struct psd_config *cfg, struct ps_error *err)
{
    union value v;
    char allowed[160];
    const char *mark = quoted ? "\"" : "";

    memset(&v, 0, sizeof v);
    psd_config_value_allowed(key, allowed, sizeof allowed);
    if (memchr(text, 0, len) != NULL)
        return ps_fail(err, -EINVAL, "found a text with a zero byte in it; allowed is %s", allowed);
    if (len == 0 && !quoted)
        return ps_fail(err, -EINVAL, "found nothing; allowed is %s", allowed);
    if (key->fallback != NULL) {
        bool given = quoted || strcmp(text, "preset") != 0;
        cfg->given[key - psd_config_keys] = given;
        text = given ? text : key->fallback;
    }
    if (read_value(key, text, quoted, &v) < 0)
        return ps_fail(err, -EINVAL, "found %s%.80s%s%s; allowed is %s", mark, text, len > 80 ? "…" : "",
                       mark, allowed);
    store(key, &v, cfg);
    return 0;
}
