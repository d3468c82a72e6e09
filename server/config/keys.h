/* keys.h: the one table of configuration keys, and how a row's value is read and described.
 *
 * Private to server/config/ and its tests. Everything that knows a key by name goes through this table: the
 * YAML reader, --set, the defaults and the JSON view; configs/psd.yaml is tested against it. */
#ifndef PSD_CONFIG_KEYS_H
#define PSD_CONFIG_KEYS_H

#include <stdbool.h>
#include <stddef.h>

#include "proto/error.h"
#include "server/config/config.h"

enum psd_config_type {
    PSD_CONFIG_GROUP,  /* a mapping; its keys follow it in the table as "group.key" */
    PSD_CONFIG_STRING, /* char[size] */
    PSD_CONFIG_BOOL,
    PSD_CONFIG_U32,
    PSD_CONFIG_U64,
    PSD_CONFIG_DOUBLE,
    PSD_CONFIG_WORD,   /* char[size], one of `choices` */
    PSD_CONFIG_CHOICE, /* an enum: the index of one of `choices` */
};

enum psd_config_applies { PSD_CONFIG_RELOAD, PSD_CONFIG_RESTART };

struct psd_config_key {
    const char *name; /* with dots: "parameters.schedule.kind" */
    enum psd_config_type type;
    enum psd_config_applies applies;
    size_t offset;                   /* in struct psd_config */
    size_t size;                     /* strings: bytes with the terminator */
    double min, max;                 /* numbers; both inclusive unless above_min */
    bool above_min, below_max;       /* min, or max, itself is not allowed */
    const char *word;                /* numbers: a word that is allowed besides; NULL: none */
    double word_value;               /* what it stands for */
    const char *const *choices;      /* words that are allowed, NULL at the end */
    bool (*takes)(const char *text); /* strings: whether it may be this; NULL: any */
    const char *allowed;             /* what it takes */
    const char *value;               /* the default, as the file would give it; NULL for a group */
    const char *help;
    const char *fallback; /* parameters of a method: the value where `preset` stands and no preset gives one.
                             The row's default is then "preset", and it is known whether it was given */
    /* Who uses the key. A method that does not refuses it, but for the fallback of a row with `off`, which
     * says that there is no such thing. */
    unsigned uses; /* enum ps_uses, any of them; 0: everybody, or as `chooser` says */
    /* NULL, or a PSD_CONFIG_CHOICE row before this one: who chose otherwise there than one of the bits 1 <<
     * index in `chosen` does not use it. */
    const char *chooser;
    unsigned chosen;
    bool off;
};

/* Ends with a row whose name is NULL. */
extern const struct psd_config_key psd_config_keys[];

/* The row of this name, or NULL. `len` bytes of name are compared. */
const struct psd_config_key *psd_config_key_find(const char *name, size_t len);

/* The row of this name, or the first whose last part it is: "period". NULL: there is none. */
const struct psd_config_key *psd_config_key_short(const char *name, size_t len);

/* The last part of the row's name: "kind". */
const char *psd_config_key_leaf(const struct psd_config_key *key);

/* True when key stands directly in the group named so; "" is the top level. */
bool psd_config_key_in_group(const struct psd_config_key *key, const char *group);

/* Writes "a, b, c": the keys that stand directly in the group. */
void psd_config_key_list(const char *group, char *text, size_t size);

/* Levenshtein's distance; words that are longer than any key are near nothing. */
size_t psd_config_distance(const char *a, const char *b);

/* The key that somebody who wrote `leaf` into the group may have meant: the same word in another group, that
 * for which other programs have this word, or the nearest word in this one. NULL: none is near. */
const struct psd_config_key *psd_config_key_nearest(const char *group, const char *leaf);

/* psd_config_set, with errors that start with "PLACE: ". */
int psd_config_set_as(const char *place, struct psd_config *cfg, const char *assignment,
                      struct ps_error *err);

/* Reads a scalar's text into the row's member of cfg. `quoted`: it stood in quotes, so it is a string
 * whatever it looks like. -EINVAL: "found …; allowed is …", without the place and the key. */
int psd_config_value_read(const struct psd_config_key *key, const char *text, size_t len, bool quoted,
                          struct psd_config *cfg, struct ps_error *err);

/* Rows with a fallback: whether a file or --set gave another value than `preset`. */
bool psd_config_key_given(const struct psd_config_key *key, const struct psd_config *cfg);

/* Bytes of the row's member of struct psd_config. */
size_t psd_config_key_bytes(const struct psd_config_key *key);

/* "a number from 1 to 64 or auto": what the row allows. */
void psd_config_value_allowed(const struct psd_config_key *key, char *text, size_t size);

#endif
