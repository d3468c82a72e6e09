/* checkpoint.h: a center on disk, as safetensors files.
 *
 * DIR/center-<version, 12 digits>.safetensors, each written to a temporary name, fsynced, renamed, and the
 * directory fsynced. Model tensors are F32 entries by manifest name, rule-state vectors are F32 entries
 * "psd.state.<k>", the average that follows the center is "psd.average". Metadata (strings): psd.format (1),
 * psd.version (of the center), psd.method, psd.rule, psd.generation, psd.incarnation, psd.saved_at (unix
 * seconds), psd.lanes, psd.chunk_floats, psd.roles, psd.decay, psd.rates (millionths; of tensors that have
 * one), psd.clocks, psd.moves and psd.replay (JSON), psd.test_accuracy and psd.evaluated_version (best only),
 * psd.bare (best only: it has the vector that was scored, and nothing that a job could go on from; files of
 * before have none), psd.job (16 hex digits; files of before have none), psd.plateau ("DROPS SINCE BEST", of
 * a schedule that watches for one), psd.checksum (XXH3-64 of all data bytes, hex), psd.seal (XXH3-64 of the
 * header, hex): a change of any byte is found. Works on one snapshot at a time; no thread of its own. */
#ifndef PSD_CHECKPOINT_CHECKPOINT_H
#define PSD_CHECKPOINT_CHECKPOINT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/model/manifest.h"

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

/* The lane map: how the vector is cut. */
struct psd_map {
    uint32_t lanes, chunk_floats; /* lanes of all parts */
    uint32_t parts;               /* at least 1 */
};

#define PSD_WHOLE UINT32_MAX /* for a part's index: all of them */

struct psd_snapshot {
    struct ps_manifest *manifest; /* owned; of the whole vector */
    uint32_t part;                /* of the map whose values it has, or PSD_WHOLE */
    struct ps_range range;        /* of those values */
    float *center;                /* [n_floats], owned */
    float **state;                /* [n_state][n_floats], owned */
    uint32_t n_state;
    bool has_average;
    float *average; /* [n_floats], owned; NULL unless has_average */
    char method[32], rule[32];
    uint64_t job; /* that it is of; 0: the file does not say */
    uint32_t generation;
    uint32_t incarnation; /* the highest given out */
    uint64_t version;     /* center version */
    uint64_t saved_at_s;  /* unix time */
    struct psd_map map;
    uint64_t *lane_clocks; /* [map.lanes], owned; of lanes of other parts 0 */
    uint64_t *lane_moves; /* [lanes], owned: how often the rule has moved the values, since its state began */
    struct psd_replay_entry *replay;
    size_t n_replay;
    struct psd_saved_plateau {
        bool known;
        uint32_t drops, since;
        double best;
    } plateau;                  /* server/job/plateau.h */
    bool bare;                  /* the center alone, with nothing to go on from */
    bool evaluated;             /* saved for its evaluation: the two below are set */
    double test_accuracy;       /* 0 to 1 */
    uint64_t evaluated_version; /* that was evaluated; `version` may be some exchanges newer */
};

/* The checkpoint of the center that evaluated best. */
struct psd_best {
    double accuracy; /* NaN: there is none */
    uint64_t evaluated_version, version, saved_at_s;
    uint64_t manifest_hash; /* of the model it belongs to */
};

/* Frees what the snapshot owns, not the struct. A zeroed one is fine. */
void psd_snapshot_finish(struct psd_snapshot *s);

/* What a manifest must hold beyond ps_manifest_create so that it can be written: names in UTF-8, none of them
 * "__metadata__", "psd.average" or "psd.state.…". Call it when a job's manifest is offered. -EINVAL names the
 * tensor. */
int psd_checkpoint_check_manifest(const struct ps_manifest *m, struct ps_error *err);

/* The psd.saved_at for a checkpoint of this version: now_s, or, where the wall clock has gone back, what
 * makes it newer than every readable one in the directory. */
uint64_t psd_checkpoint_stamp(const char *dir, uint64_t version, uint64_t now_s);

/* Writes s as DIR/center-….safetensors and then deletes all but the `keep` newest readable ones of the same
 * job and model (never the one just written; keep 0 counts as 1). Files whose header is damaged are neither
 * counted nor deleted. path (size bytes) receives the name. -errno with a sentence; the directory then holds
 * what it held before (after a failed fsync of the directory: that, or the new file as well). A snapshot with
 * a value that is not finite is refused with -EINVAL. Temporary files of writers that died are removed.
 * Callable from any thread, one at a time per directory. */
int psd_checkpoint_write(const char *dir, const struct psd_snapshot *s, uint32_t keep, char *path,
                         size_t size, struct ps_error *err);

/* Writes s, which is evaluated, as DIR/best.safetensors in place of the one that is there; like
 * psd_checkpoint_write, but no other file is deleted. set_aside: the one that is there is another job's and
 * stays, as DIR/best-<unix seconds>.safetensors. */
int psd_checkpoint_write_best(const char *dir, const struct psd_snapshot *s, bool set_aside, char *path,
                              size_t size, struct ps_error *err);

/* What the header of DIR/best.safetensors says. -ENOENT: there is none; else as psd_checkpoint_read. */
int psd_checkpoint_read_best(const char *dir, struct psd_best *out, struct ps_error *err);

/* Reads one file. -EBADMSG for a damaged one: the sentence names file, place, found and allowed. -EFBIG for
 * more than max_floats values. Never trusts a length before checking it against the file's size; what is
 * allocated is bounded by both. Non-finite values are damage. */
int psd_checkpoint_read(const char *path, uint64_t max_floats, struct psd_snapshot *out,
                        struct ps_error *err);

/* Reads the newest readable checkpoint of the directory: newest by psd.saved_at, then by version;
 * best.safetensors is passed by where it is bare. Each damaged one met on the way is reported
 * through `skipped` (may be NULL). -ENOENT: there is no checkpoint file; -EBADMSG: there are, and none is
 * readable; others (no permission, beyond max_floats) end the search.
 */
int psd_checkpoint_read_newest(const char *dir, uint64_t max_floats, struct psd_snapshot *out, char *path,
                               size_t size, void (*skipped)(const char *sentence), struct ps_error *err);

/* The same of the readable one of this version; newest where there are several. -ENOENT: there is none. */
int psd_checkpoint_read_version(const char *dir, uint64_t version, uint64_t max_floats,
                                struct psd_snapshot *out, char *path, size_t size, struct ps_error *err);

/* Versions of the readable checkpoints of the model, at most max of them, newest first; how many. */
uint32_t psd_checkpoint_versions(const char *dir, uint64_t manifest_hash, uint64_t *out, uint32_t max);

/* Deletes those of the snapshot's job that are of later versions, but the best: the job has gone back to it,
 * and they are of what is undone. Logs what it deletes. */
void psd_checkpoint_forget_after(const char *dir, const struct psd_snapshot *s);

/* How many checkpoints the directory has, the best and damaged ones too; *newest: the version of the newest
 * that is readable, 0: none is. */
uint32_t psd_checkpoint_count(const char *dir, uint64_t *newest);

#endif
