/* header.h: the header of a checkpoint file. Private to server/checkpoint/ and its tests.
 *
 * A file is: 8 bytes little-endian length of the header, the header (JSON, padded with spaces so that the
 * data starts at a multiple of 8), the data: model tensors back to back, then the state vectors, then the
 * average.
 *
 * Two checksums cover every byte. psd.checksum is XXH3-64 over the data. psd.seal is XXH3-64 over the
 * header's length and text with the seal's own digits as zeros; it is checked before the JSON is parsed. */
#ifndef PSD_CHECKPOINT_HEADER_H
#define PSD_CHECKPOINT_HEADER_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"
#include "server/checkpoint/checkpoint.h"
#include "server/config/config.h"

#define PSD_CHECKPOINT_MAX_HEADER 100000000 /* bytes; safetensors' own bound */
#define PSD_CHECKPOINT_MAX_STATE  16        /* state vectors of a rule; the rules have at most two */
#define PSD_CHECKPOINT_STATE      "psd.state."
#define PSD_CHECKPOINT_AVERAGE    "psd.average"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors data is little-endian");

/* The header's text for the snapshot, padded and sealed; the caller frees it. -EINVAL, -EFBIG, -ENOMEM. */
int psd_checkpoint_encode(const struct psd_snapshot *s, uint64_t checksum, char **text, size_t *len,
                          struct ps_error *err);

/* Writes the seal's digits into a header's text. -EINVAL: the text has no seal to fill in. */
int psd_checkpoint_seal(char *text, size_t len);

/* -EBADMSG: the text has no seal, or its seal does not match its bytes. */
int psd_checkpoint_seal_check(const char *path, const char *text, size_t len, struct ps_error *err);

/* Checks the seal, then the whole text for consistency with itself and data_bytes; fills *out except for the
 * vectors' values (NULL; n_state and has_average are set). -EBADMSG: damaged; -EFBIG: more than max_floats;
 * -ENOMEM. Sentences start with the path. */
int psd_checkpoint_decode(const char *path, const char *text, size_t len, uint64_t data_bytes,
                          uint64_t max_floats, struct psd_snapshot *out, uint64_t *checksum,
                          struct ps_error *err);

/* Opens the file and decodes its header; *data_at is the offset of the data. The caller closes *fd and
 * finishes *out. -errno if it cannot be opened. */
int psd_checkpoint_open(const char *path, uint64_t max_floats, struct psd_snapshot *out, int *fd,
                        uint64_t *data_at, uint64_t *checksum, struct ps_error *err);

/* The vectors in the order of the file: the center, each state vector, the average. */
static inline uint32_t psd_checkpoint_n_vectors(const struct psd_snapshot *s)
{
    return 1 + s->n_state + s->has_average;
}

static inline const char *psd_checkpoint_vector_name(const struct psd_snapshot *s, uint32_t k)
{
    return k == 0 ? "center" : k <= s->n_state ? "rule's state" : "average";
}

static inline const float *psd_checkpoint_vector(const struct psd_snapshot *s, uint32_t k)
{
    return k == 0 ? s->center : k <= s->n_state ? s->state[k - 1] : s->average;
}

/* The index of the first value that is NaN or infinite, or n. */
size_t psd_checkpoint_find_nonfinite(const float *x, size_t n);

#endif
