/* save_format.h: a worker's own part of a job as bytes: what psc_save writes and psc_load reads.
 *
 * A head, little-endian, then vectors of n_floats float32 each: the caller's, and for
 * each flag below PSC_STATE_LANDED that is set, in the order of the flags, what the library keeps (enum
 * psc_vector); then the caller's extra bytes; then XXH3-64 over all before it.
 *
 *   0 magic        8 version     12 flags       16 manifest hash   24 n_floats    32 clock
 *  40 exchanges   48 center_version             56 extra_bytes     64 rate        72 method[32]
 * 104 rule[32]   136 optimizer[32]             168 since        176 period       180 fragment     184
 * fragments    188 means
 *
 * Before the extra bytes stand so many vectors more as `means` says: the means of a pipeline of more than two
 * behind the first, which is the prefetched answer. With none of them the version is 4, and 188 zeros.
 *
 * Version 6 has the message of an exchange whose answer was not applied yet, so that a server that came back
 * from before it gets it again: the vectors of PSC_STATE_MESSAGE and PSC_STATE_SENT_ERROR before the extra
 * bytes, and a head of PSC_STATE_HEAD_BYTES that goes on:
 *
 * 192 first      200 version of the answer    208 samples
 *
 * The others have a head of PSC_STATE_SHORT_BYTES. Versions 2 and 3 are read too. Of version 2 everything
 * from 168 on is zeros. */
#ifndef PSC_SAVE_FORMAT_H
#define PSC_SAVE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/model/method.h"

#define PSC_STATE_HEAD_BYTES  216 /* the longest */
#define PSC_STATE_SHORT_BYTES 192
#define PSC_STATE_VERSION     6
#define PSC_STATE_OLDEST      2

enum { PSC_STATE_VECTORS = 7, PSC_STATE_MAX_MEANS = PS_MAX_PIPELINE - 2 };

enum {
    PSC_STATE_X = 1 << 0, /* the worker's own x, apart from the caller's vector */
    PSC_STATE_V = 1 << 1,
    PSC_STATE_START = 1 << 2,
    PSC_STATE_LAMBDA = 1 << 3,
    PSC_STATE_Z = 1 << 4,
    PSC_STATE_AHEAD = 1 << 5, /* the prefetched answer; else X has it */
    PSC_STATE_ERROR = 1 << 6, /* error feedback; from version 4 on: before, LANDED had this bit */
    PSC_STATE_LANDED = 1 << PSC_STATE_VECTORS,    /* an exchange has ended that no step has applied yet */
    PSC_STATE_MESSAGE = PSC_STATE_LANDED << 1,    /* its message; from version 6 on */
    PSC_STATE_SENT_ERROR = PSC_STATE_LANDED << 2, /* the error feedback when it began */
};

struct psc_state_head {
    uint32_t version; /* 0: the oldest that has what there is, 4 to 6 */
    uint32_t flags;
    uint64_t manifest_hash, n_floats, clock, exchanges, center_version, extra_bytes;
    float rate; /* of that exchange */
    char method[32], rule[32], optimizer[32];
    uint64_t since;    /* steps since the last exchange, of rules that take x - start; from version 3 on */
    uint32_t period;   /* dynamic period in use; 0: the method's */
    uint32_t fragment; /* the next of `fragments`; `fragments` is at least 1 from version 3 on */
    uint32_t fragments;
    uint32_t means; /* at most PSC_STATE_MAX_MEANS */
    /* With PSC_STATE_MESSAGE: clock of the first step that may apply the answer, the center's version with
     * the message in it, and the message's samples. */
    uint64_t first, answer_version;
    uint32_t samples;
};

/* Positions in the bytes of a whole file, at any alignment. NULL: absent. */
struct psc_state_parts {
    const unsigned char *at, *vectors[PSC_STATE_VECTORS], *means, *message, *sent_error, *extra;
};

/* bytes: PSC_STATE_HEAD_BYTES. Names are cut to fit. Returns how many of them are the head. */
size_t psc_state_pack(const struct psc_state_head *h, void *bytes);

/* Reads the head of a file of file_bytes, of which `bytes` are the first len_bytes. -EINVAL with a sentence:
 * not a psc_save file, another format version, or fields that are impossible or do not fit the length. */
int psc_state_parse(struct psc_state_head *h, const void *bytes, size_t len_bytes, uint64_t file_bytes,
                    struct ps_error *err);

/* Checks a whole file, checksum included, and finds its parts. */
int psc_state_decode(struct psc_state_head *h, struct psc_state_parts *parts, const void *bytes,
                     size_t len_bytes, struct ps_error *err);

#endif
