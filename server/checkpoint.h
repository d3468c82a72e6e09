/* checkpoint.h: a center on disk, as safetensors files.
 *
 * DIR/center-<version, 12 digits>.safetensors, each written to a temporary name, fsynced, renamed, and the
 * directory fsynced. Model tensors are F32 entries by manifest name, rule-state vectors are F32 entries
 * "psd.state.<k>". Metadata (strings): psd.version, psd.method, psd.generation, psd.incarnation, psd.saved_at
 * (unix seconds), psd.lanes, psd.chunk_floats, psd.clocks and psd.replay (JSON), psd.checksum (XXH3 of all
 * data bytes, hex). Works on one snapshot at a time; no thread of its own. */
#ifndef PSD_CHECKPOINT_H
#define PSD_CHECKPOINT_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/manifest.h"

/* What one lane remembers of one client: the last exchange and which of the lane's chunks of it have landed.
 */
struct psd_replay_entry {
    uint32_t client;
    uint32_t incarnation;
    uint32_t lane;
    uint64_t seq;
    uint64_t *landed; /* bitmap over the lane's chunks, 64 a word; owned by the snapshot */
    uint32_t n_words;
};

struct psd_snapshot {
    struct ps_manifest *manifest; /* owned */
    float *center;                /* [n_floats], owned */
    float **state;                /* [n_state][n_floats], owned */
    uint32_t n_state;
    char method[32], rule[32];
    uint32_t generation;
    uint32_t incarnation; /* the highest given out */
    uint64_t version;     /* center version */
    uint64_t saved_at_s;  /* unix time */
    uint32_t lanes;       /* the lane map: how the vector was cut */
    uint32_t chunk_floats;
    uint64_t *lane_clocks; /* [lanes], owned */
    struct psd_replay_entry *replay;
    size_t n_replay;
};

/* Frees what the snapshot owns, not the struct. A zeroed one is fine. */
void psd_snapshot_finish(struct psd_snapshot *s);

/* Writes s as DIR/center-….safetensors and then deletes all but the `keep` newest readable ones (never the
 * one just written; keep 0 counts as 1). path (size bytes) receives the name. -errno with a sentence; the
 * directory then holds what it held before. Callable from any thread, one at a time per directory. */
int psd_checkpoint_write(const char *dir, const struct psd_snapshot *s, uint32_t keep, char *path,
                         size_t size, struct ps_error *err);

/* Reads one file. -EBADMSG for a damaged one: the sentence names file, place, found and allowed. Never trusts
 * a length before checking it against the file's size; max_floats bounds what is allocated. */
int psd_checkpoint_read(const char *path, uint64_t max_floats, struct psd_snapshot *out,
                        struct ps_error *err);

/* Reads the newest readable checkpoint of the directory. Each damaged one met on the way is reported through
 * `skipped` (may be NULL). -ENOENT: there is no checkpoint file; -EBADMSG: there are, and none is readable.
 */
int psd_checkpoint_read_newest(const char *dir, uint64_t max_floats, struct psd_snapshot *out, char *path,
                               size_t size, void (*skipped)(const char *sentence), struct ps_error *err);

#endif
