/* checkpoint.h: a center on disk, as safetensors files.
 *
 * DIR/center-<version, 12 digits>.safetensors, each written to a temporary name, fsynced and renamed,
 * followed by an fsync of the directory. Model tensors are F32 entries by manifest name, rule-state vectors
 * are F32 entries "psd.state.<k>", the average that follows the center is "psd.average". Metadata (strings):
 * psd.format (1), psd.version (of the center), psd.method, psd.rule, psd.generation, psd.incarnation,
 * psd.saved_at (unix seconds), psd.lanes, psd.chunk_floats, psd.roles, psd.decay, psd.rates (millionths; of
 * tensors that have one), psd.clocks, psd.moves, psd.fragment_moves (with fragments; older files lack it)
 * and psd.replay (JSON), psd.test_accuracy and psd.evaluated_version (best only), psd.averaging (with an
 * average; older files lack it), psd.bare (best only: the file has the evaluated vector and no state to
 * resume from; older files lack it), psd.job (16 hex digits; older files lack it), psd.clock (the furthest
 * worker's t, if it is known; older files lack it), psd.delay (of a rule with a sum of moves; older files
 * lack it), psd.plateau ("DROPS SINCE BEST", only with schedule plateau), psd.watch (the loss that BEST is
 * of; older files lack it), psd.checksum (XXH3-64 of all data bytes, hex), psd.seal (XXH3-64 of the header,
 * hex). The two hashes detect a change of any byte. Works on one snapshot at a time; has no thread of its
 * own. */
#ifndef PSD_CHECKPOINT_CHECKPOINT_H
#define PSD_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/model/manifest.h"

/* A replay entry of one lane and client: the client's last exchange, and which of its chunks in the lane have
 * landed. */
struct psd_replay_entry {
    uint32_t client;
    uint32_t incarnation;
    uint32_t lane;
    uint64_t seq;
    uint64_t *landed; /* bitmap over the lane's chunks, 64 a word; owned by the snapshot */
    uint32_t n_words;
    /* Counted from 1, if the client may have others under way beside it: an entry for each of them. Else 0.
     */
    uint32_t fragment;
};

/* The lane map: the partition of the vector. */
struct psd_map {
    uint32_t lanes, chunk_floats; /* lanes of all parts */
    uint32_t parts;               /* at least 1 */
};

#define PSD_WHOLE UINT32_MAX /* as a part's index: all parts */

struct psd_snapshot {
    struct ps_manifest *manifest; /* owned; of the whole vector */
    uint32_t part;                /* the part of the map that it contains, or PSD_WHOLE */
    struct ps_range range;        /* of the part's values */
    float *center;                /* [n_floats], owned */
    float **state;                /* [n_state][n_floats], owned */
    uint32_t n_state;
    bool has_average;
    float *average; /* [n_floats], owned; NULL unless has_average */
    char method[32], rule[32];
    char averaging[32]; /* of the average; "": older files do not say */
    uint64_t job;       /* its job; 0: not in the file */
    uint32_t delay;     /* of the state's sum of moves; 0: there is none, or older files do not say */
    uint32_t generation;
    uint32_t incarnation; /* the highest given out */
    uint64_t version;     /* center version */
    uint64_t clock;       /* the furthest worker's t; 0: not known */
    uint64_t saved_at_s;  /* unix time */
    struct psd_map map;
    uint64_t *lane_clocks; /* [map.lanes], owned; 0 for lanes of other parts */
    uint64_t *lane_moves;  /* [lanes], owned: how often the rule has moved the values since its state began */
    /* [lanes][fragments], owned: the same for the lane's values of each fragment; NULL: not known */
    uint64_t *fragment_moves;
    uint32_t fragments;
    struct psd_replay_entry *replay;
    size_t n_replay;
    struct psd_saved_plateau {
        bool known;
        uint32_t drops, since;
        double best;
        char watch[16];         /* the loss that `best` is of; "": older files do not say */
    } plateau;                  /* server/job/plateau.h */
    bool bare;                  /* only the center, with no state to resume from */
    bool evaluated;             /* saved because of its evaluation: the next two are set */
    double test_accuracy;       /* 0 to 1 */
    uint64_t evaluated_version; /* that was evaluated; `version` may include a few more exchanges */
};

/* The checkpoint of the center with the best evaluation. */
struct psd_best {
    double accuracy; /* NaN: there is none */
    uint64_t evaluated_version, version, saved_at_s;
    uint64_t manifest_hash; /* of its model */
};

/* Frees what the snapshot owns, not the struct. The struct may be zeroed. */
void psd_snapshot_finish(struct psd_snapshot *s);

/* The requirements on a manifest beyond ps_manifest_create, so that it can be written: names are UTF-8, and
 * none is "__metadata__", "psd.average" or "psd.state.…". Call it when a manifest is offered. -EINVAL with a
 * sentence that names the tensor. */
int psd_checkpoint_check_manifest(const struct ps_manifest *m, struct ps_error *err);

/* The psd.saved_at for a checkpoint of this version: now_s, or, if the wall clock was set back, a time that
 * makes it newer than every readable checkpoint in the directory. */
uint64_t psd_checkpoint_stamp(const char *dir, uint64_t version, uint64_t now_s);

/* Writes s as DIR/center-….safetensors and then deletes all but the `keep` newest readable ones of the same
 * job and model (never the one just written; keep 0 counts as 1). The version *spare is not deleted; NULL:
 * none. Files with a damaged header are neither counted nor deleted. path (size bytes) receives the name.
 * -errno with a sentence; the directory is then unchanged, except that it may have the new file if only the
 * fsync of the directory failed. A snapshot with a value that is not finite is refused with -EINVAL. Removes
 * temporary files of writers that died. Callable from any thread, one at a time per directory. */
int psd_checkpoint_write(const char *dir, const struct psd_snapshot *s, uint32_t keep, const uint64_t *spare,
                         char *path, size_t size, struct ps_error *err);

/* Writes s, which is evaluated, as DIR/best.safetensors and replaces the previous one; like
 * psd_checkpoint_write, but deletes no other file. set_aside: the previous one belongs to another job and is
 * kept as DIR/best-<unix seconds>.safetensors. */
int psd_checkpoint_write_best(const char *dir, const struct psd_snapshot *s, bool set_aside, char *path,
                              size_t size, struct ps_error *err);

/* Reads the header of DIR/best.safetensors. -ENOENT: there is none; else as psd_checkpoint_read. */
int psd_checkpoint_read_best(const char *dir, struct psd_best *out, struct ps_error *err);

/* Reads one file. -EBADMSG if it is damaged: the sentence names file, place, found and allowed. -EFBIG for
 * more than max_floats values. Every length is checked against the file's size before use; allocations are
 * bounded by both. Non-finite values count as damage. */
int psd_checkpoint_read(const char *path, uint64_t max_floats, struct psd_snapshot *out,
                        struct ps_error *err);

/* Reads the newest readable checkpoint of the directory: the newest by psd.saved_at, then by version; skips
 * best.safetensors if it is bare. Reports each damaged file that it skips through `skipped` (may be NULL).
 * -ENOENT: there is no checkpoint file; -EBADMSG: none of the files is readable; other errors (no permission,
 * more than max_floats) end the search. */
int psd_checkpoint_read_newest(const char *dir, uint64_t max_floats, struct psd_snapshot *out, char *path,
                               size_t size, void (*skipped)(const char *sentence), struct ps_error *err);

/* The same for the readable one of this version; the newest if there are several. -ENOENT: there is none. */
int psd_checkpoint_read_version(const char *dir, uint64_t version, uint64_t max_floats,
                                struct psd_snapshot *out, char *path, size_t size, struct ps_error *err);

/* Creates a directory in its parent. Its entry there survives a power cut as the files in it do, where the
 * system can do that. 1: created; 0: it was there; -errno. */
int psd_checkpoint_make_directory(const char *path);

/* Renames the checkpoint of that version to NAME.damaged, which is no checkpoint. -errno with a sentence. */
int psd_checkpoint_set_aside(const char *dir, uint64_t version, struct ps_error *err);

/* Versions of the readable checkpoints of the model, newest first, at most max; returns how many. */
uint32_t psd_checkpoint_versions(const char *dir, uint64_t manifest_hash, uint64_t *out, uint32_t max);

/* Deletes the later versions of the snapshot's job, except the best: the job resumes from the snapshot, so
 * they no longer belong to its history. Logs what it deletes. */
void psd_checkpoint_forget_after(const char *dir, const struct psd_snapshot *s);

/* *n: the number of checkpoints in the directory, including the best and damaged ones; *newest: the version
 * of the newest readable one, 0 if there is none. The best one only counts as that if it is alone. -errno
 * with a sentence. */
int psd_checkpoint_count(const char *dir, uint32_t *n, uint64_t *newest, struct ps_error *err);

#endif
