/* save_format.h: the format of a psc_save file, which holds a worker's part of a job.
 *
 * All numbers are little-endian. The parts of a file, without gaps:
 * - the head, PSC_STATE_HEAD_BYTES, before version 6 PSC_STATE_SHORT_BYTES;
 * - the caller's vector, [n_floats] float32;
 * - for each flag before PSC_STATE_LANDED that is set, in the order of the flags, the vector of the library
 *   that it names (enum psc_vector), [n_floats] float32;
 * - `means` vectors, [n_floats] float32: the means of a pipeline (pipe-sgd) of more than 2, without the
 *   oldest, which is the prefetched answer;
 * - for each flag behind PSC_STATE_LANDED that is set, in the order of the flags, its vector, [n_floats]
 *   float32;
 * - the table of exchanges, and a byte for each chunk, as versions 7 and 8 say;
 * - the caller's extra bytes;
 * - XXH3-64 of all bytes before it, 8 bytes.
 *
 * The head, as offset, name and size in bytes. Other bytes are 0. The magic is "PSDSTATE".
 *
 *    0 magic 8             8 version 4         12 flags 4
 *   16 manifest hash 8    24 n_floats 8        32 clock 8
 *   40 exchanges 8        48 center_version 8  56 extra_bytes 8
 *   64 rate 4, a float32  72 method 32        104 rule 32
 *  136 optimizer 32      168 since 8          176 period 4
 *  180 fragment 4        184 fragments 4      188 means 4
 *
 * Version 6 has the message of an exchange whose answer was not applied yet, so that a server that came back
 * from an older checkpoint gets it again. Its head continues:
 *
 *  192 first 8           200 version of the answer 8                   208 samples 4
 *
 * Version 7 has the messages of several exchanges, of a fragment each. Its head continues:
 *
 *  212 exchanges 4
 *
 * Instead of first, version of the answer, samples and rate, which are 0, a table follows the vectors. For
 * each exchange, in the order in which they began:
 *
 *    0 first 8             8 version of the answer 8
 *   16 samples 4          20 fragment 4        24 rate 4, a float32
 *
 * Version 8 has what answers that are moves have told of the center, and may have one message, or several
 * with the table. Its head continues:
 *
 *  216 chunks 4
 *
 * For each chunk, lane by lane, there is a byte of enum psc_state_chunk bits.
 *
 * Version 9 has one message, or several with the table, and the run of the server that answered it: a version
 * of one run is not that of another. What answers have told is there with PSC_STATE_KNOWN; else there are 0
 * chunks. Its head continues:
 *
 *  220 run 8
 *
 * With a table this is 0, and each exchange continues:
 *
 *   28 run 8
 *
 * Version 9 is written if there is a message; otherwise version 8 if there are chunks, version 5 if there are
 * means, and version 4 if not, which has 0 at offset 188. The others are also read. In version 2 all bytes
 * from 168 on are 0. */
#ifndef PSC_SAVE_FORMAT_H
#define PSC_SAVE_FORMAT_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/model/method.h"

#define PSC_STATE_HEAD_BYTES     228 /* the longest */
#define PSC_STATE_EXCHANGE_BYTES 36  /* the longest */
#define PSC_STATE_SHORT_BYTES    192
#define PSC_STATE_VERSION        9
#define PSC_STATE_OLDEST         2

enum { PSC_STATE_VECTORS = 7, PSC_STATE_MAX_MEANS = PS_MAX_PIPELINE - 2 };

enum {
    PSC_STATE_X = 1 << 0, /* the worker's own x, if it differs from the caller's vector */
    PSC_STATE_V = 1 << 1,
    PSC_STATE_START = 1 << 2,
    PSC_STATE_LAMBDA = 1 << 3,
    PSC_STATE_Z = 1 << 4,
    PSC_STATE_AHEAD = 1 << 5, /* the prefetched answer, unless PSC_STATE_X has it */
    PSC_STATE_ERROR = 1 << 6, /* error feedback. In versions 2 and 3 this bit is PSC_STATE_LANDED */
    PSC_STATE_LANDED = 1 << PSC_STATE_VECTORS,    /* an exchange has ended that no step has applied yet */
    PSC_STATE_MESSAGE = PSC_STATE_LANDED << 1,    /* its message; since version 6 */
    PSC_STATE_SENT_ERROR = PSC_STATE_LANDED << 2, /* the error feedback when it began; since version 6 */
    PSC_STATE_KNOWN = PSC_STATE_LANDED << 3,      /* the center as the last answers have told it; version 8 */
    PSC_STATE_SENT_KNOWN = PSC_STATE_LANDED << 4, /* the same when the message's exchange began */
};

enum psc_state_chunk {
    PSC_STATE_IS_KNOWN = 1,  /* the server may answer with what has changed */
    PSC_STATE_WAS_KNOWN = 2, /* the same when the message's exchange began */
};

struct psc_state_head {
    uint32_t version; /* psc_state_pack writes this one. 0: the oldest that has all parts, 4 to 9 */
    uint32_t flags;
    uint64_t manifest_hash, n_floats, clock, exchanges, center_version, extra_bytes;
    float rate; /* alpha of the exchange of PSC_STATE_LANDED */
    char method[32], rule[32], optimizer[32];
    uint64_t since;    /* steps since the last exchange, for rules that send x - start; from version 3 on */
    uint32_t period;   /* the dynamic period in use. 0: the method's period */
    uint32_t fragment; /* the next fragment, below `fragments`, which is at least 1 from version 3 on */
    uint32_t fragments;
    uint32_t means; /* at most PSC_STATE_MAX_MEANS */
    /* With PSC_STATE_MESSAGE: clock of the first step that may apply the answer, the center's version with
     * the message in it, and the message's samples. */
    uint64_t first, answer_version;
    uint32_t samples;
    uint32_t n_under_way; /* exchanges of the table; 0: there is none. At most `fragments` */
    uint32_t chunks;      /* with PSC_STATE_KNOWN: of the vector; else 0 */
    uint64_t run;         /* of the server that answered; 0: not known, or in the table */
};

/* An exchange of the table. */
struct psc_state_exchange {
    uint64_t first, answer_version;
    uint32_t samples, fragment;
    float rate;
    uint64_t run;
};

/* Pointers into the bytes of a whole file, of any alignment. NULL: the part is absent. `at` is the caller's
 * vector. */
struct psc_state_parts {
    const unsigned char *at, *vectors[PSC_STATE_VECTORS], *means, *message, *sent_error, *known, *sent_known,
        *under_way, *chunks, *extra;
};

/* Writes the head to bytes, [PSC_STATE_HEAD_BYTES]. Names are cut to 31 bytes. Returns the bytes of the head.
 */
size_t psc_state_pack(const struct psc_state_head *h, void *bytes);

/* Of a format version from 2 to 9. */
size_t psc_state_head_bytes(uint32_t version);
/* Of an exchange of the table. */
size_t psc_state_exchange_bytes(const struct psc_state_head *h);

/* Writes an exchange of the table to bytes, [psc_state_exchange_bytes]; reads one. Reading returns 0, or
 * -EINVAL with a sentence: it cannot be an exchange of this head. */
void psc_state_pack_exchange(const struct psc_state_head *h, const struct psc_state_exchange *e, void *bytes);
int psc_state_parse_exchange(const struct psc_state_head *h, struct psc_state_exchange *e, const void *bytes,
                             struct ps_error *err);

/* Reads the head of a file of file_bytes bytes. bytes: the first len_bytes of the file. Returns 0, or -EINVAL
 * with a sentence: it is not a psc_save file, or of another format version, or fields of the head are
 * impossible or do not fit file_bytes. */
int psc_state_parse(struct psc_state_head *h, const void *bytes, size_t len_bytes, uint64_t file_bytes,
                    struct ps_error *err);

/* Checks a whole file, including the checksum, and finds its parts. bytes: [len_bytes], which `parts` points
 * into. Returns 0, or -EINVAL with a sentence, as psc_state_parse does. */
int psc_state_decode(struct psc_state_head *h, struct psc_state_parts *parts, const void *bytes,
                     size_t len_bytes, struct ps_error *err);

#endif
