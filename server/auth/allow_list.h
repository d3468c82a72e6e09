/* allow_list.h: the allow-list: the keys that psd accepts, and their rights. One line for each key:
 *
 *   Z85PUBLIC NAME [role=worker|observer|any] [ranks=0-3,7]  # comment
 *
 * The loop's thread. */
#ifndef PSD_AUTH_ALLOW_LIST_H
#define PSD_AUTH_ALLOW_LIST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/security/curve.h"
#include "server/rights/rights.h"

enum { PSD_ALLOW_RANKS = 1024, PSD_ALLOW_MAX = 65536 }; /* PSD_ALLOW_MAX: lines with a key */

struct psd_grant {
    unsigned char key[PS_CURVE_KEY_BYTES];
    char name[PS_CURVE_NAME_MAX + 1];
    enum psd_role role;
    bool some_ranks; /* only the ranks in `ranks` */
    uint64_t ranks[PSD_ALLOW_RANKS / 64];
    /* Identifies (key, name) while psd runs; never 0 after psd_allow_number, and never reused. */
    uint64_t id;
};

struct psd_allow {
    struct psd_grant *grants; /* [n], sorted by key */
    size_t n;
    uint32_t *by_id; /* [n]: indices, sorted by id */
};

/* Reads the file. An error names file, line, what was found and what is allowed, and leaves *list unchanged.
 * Keys and names are unique; the name `psd` is reserved, and psd's own key needs no line. -EACCES if others
 * than its owner and root may write the file. */
int psd_allow_read(const char *path, const struct ps_curve_pair *own, struct psd_allow *list,
                   struct ps_error *err);
/* The same for a text in memory, which errors name as `place`. */
int psd_allow_parse(const char *place, const char *text, size_t len, const struct ps_curve_pair *own,
                    struct psd_allow *list, struct ps_error *err);
void psd_allow_finish(struct psd_allow *list);

/* Gives each grant its id: that of the same key and name in `before` (may be NULL), else a new one above
 * *last. */
void psd_allow_number(struct psd_allow *list, const struct psd_allow *before, uint64_t *last);

/* NULL: not in the list. */
const struct psd_grant *psd_allow_find_key(const struct psd_allow *list, const void *key);
const struct psd_grant *psd_allow_find_id(const struct psd_allow *list, uint64_t id);
const struct psd_grant *psd_allow_find_name(const struct psd_allow *list, const char *name);

static inline bool psd_grant_has_rank(const struct psd_grant *g, uint32_t rank)
{
    return !g->some_ranks || (rank < PSD_ALLOW_RANKS && (g->ranks[rank / 64] >> (rank % 64) & 1) != 0);
}

/* Writes "0-3, 7", or "any". */
void psd_grant_ranks(const struct psd_grant *g, char *text, size_t size);

#endif
