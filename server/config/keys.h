/* keys.h: the table of configuration keys, and how a row's value is read and described.
 *
 * Private to server/config/ and its tests. The YAML reader, --set, the defaults and the JSON output all use
 * this table; configs/psd.yaml is tested against it. */
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
    size_t offset;              /* in struct psd_config */
    size_t size;                /* strings: bytes including the terminator */
    double min, max;            /* numbers; both inclusive unless above_min */
    bool above_min, below_max;  /* min, or max, itself is excluded */
    const char *word;           /* numbers: a word that is also allowed; NULL: none */
    double word_value;          /* what it stands for */
    bool switches;              /* whole numbers: false stands for 0 and true for 1, whatever the range */
    const char *const *choices; /* allowed words, ends with NULL */
    bool (*takes)(const char *text); /* strings: whether this one is allowed; NULL: any is */
    const char *allowed;             /* for errors: what `takes` allows */
    const char *value;               /* the default, as written in the file; NULL for a group */
    const char *help;
    /* for a method's parameters: the value if the key is `preset` and the preset gives none. The row's
     * default is then "preset", and `given` records whether the user set it */
    const char *fallback;
    /* Which parts of a method use the key. A method that does not use it refuses it, unless the row has `off`
     * and the value is the fallback, which then means "disabled". */
    unsigned uses; /* any of enum ps_uses; 0: every method, or as `chooser` says */
    /* NULL, or an earlier PSD_CONFIG_CHOICE row: this key is used only if the choice there is one of the bits
     * 1 << index in `chosen`. */
    const char *chooser;
    unsigned chosen;
    bool off;
};

/* Ends with a row whose name is NULL. */
extern const struct psd_config_key psd_config_keys[];

/* The row of this name, or NULL. `len` bytes of name are compared. */
const struct psd_config_key *psd_config_key_find(const char *name, size_t len);

/* The row of this name, or the only one whose last part it is, such as "period". NULL: none, or several. */
const struct psd_config_key *psd_config_key_short(const char *name, size_t len);

/* Writes "a.x, b.x": the keys whose last part is the name. */
void psd_config_key_list_short(const char *name, size_t len, char *text, size_t size);

/* diff.c. Whether the key, or the group, belongs to the method. */
bool psd_config_is_of_method(const struct psd_config_key *k);

/* The last part of the row's name: "kind". */
const char *psd_config_key_leaf(const struct psd_config_key *key);

/* Writes "a, b, c": the keys directly in the group. */
void psd_config_key_list(const char *group, char *text, size_t size);

/* Levenshtein distance; words longer than any key are far from everything. */
size_t psd_config_distance(const char *a, const char *b);

/* The key that a user who wrote `leaf` into the group probably meant: the same word in another group, a key
 * known by this name in other programs, the nearest word in this group, or a very near one in another. NULL:
 * none is near. */
const struct psd_config_key *psd_config_key_nearest(const char *group, const char *leaf);

/* The line of the file that gives the key or group, from 1. 0: none, or the file is not valid. */
size_t psd_config_line(const char *path, const struct psd_config_key *key);

/* psd_config_set, with errors that start with "PLACE: ". */
int psd_config_set_as(const char *place, struct psd_config *cfg, const char *assignment,
                      struct ps_error *err);

/* The same. *keys: allocated lines KEY=VALUE with full names, one for each key that the assignment sets: the
 * mapping of a group may set several, or none. */
int psd_config_set_keys(const char *place, struct psd_config *cfg, const char *assignment, char **keys,
                        struct ps_error *err);

/* Parses a scalar into the row's member of cfg. `quoted`: it was quoted, so it is a string whatever it looks
 * like. -EINVAL: "found …; allowed is …", without the place and the key. */
int psd_config_value_read(const struct psd_config_key *key, const char *text, size_t len, bool quoted,
                          struct psd_config *cfg, struct ps_error *err);

/* For rows with a fallback: whether a file or --set gave a value other than `preset`. */
bool psd_config_key_given(const struct psd_config_key *key, const struct psd_config *cfg);

/* Bytes of the row's member of struct psd_config. */
size_t psd_config_key_bytes(const struct psd_config_key *key);

/* Writes what the row allows, such as "a number from 1 to 64 or auto". */
void psd_config_value_allowed(const struct psd_config_key *key, char *text, size_t size);

#endif
