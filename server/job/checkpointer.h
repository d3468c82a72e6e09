/* checkpointer.h: checkpoints of a running job: lanes copy, the loop coordinates, a thread of libuv's pool
 * writes. Loop's thread. */
#ifndef PSD_JOB_CHECKPOINTER_H
#define PSD_JOB_CHECKPOINTER_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "proto/error.h"
#include "ps.pb-c.h"
#include "server/checkpoint/checkpoint.h"
#include "server/checkpoint/state_dir.h"

struct psd_job;

#define PSD_MAX_SAVED 64 /* largest number of checkpoint versions that a server reports */

/* The newest evaluation of the center that an observer reported. */
struct psd_evaluation {
    double loss, accuracy; /* NaN: none yet */
    uint64_t version;
    bool fresh;                   /* not in the history yet */
    uint64_t offer;               /* number by which the evaluated vector can be requested; 0: not offered */
    uint32_t client, incarnation; /* the evaluator's session */
};

/* Files that a snapshot is written to. */
enum { PSD_SAVE_NEWEST = 1, PSD_SAVE_BEST = 2 };

/* Versions of the readable checkpoints of a model. */
struct psd_saved_versions {
    bool known;
    uint64_t manifest_hash; /* 0: of any model */
    uint32_t n;
    uint64_t versions[PSD_MAX_SAVED];
};

/* The state of the job's last checkpoint. */
enum psd_last_save {
    PSD_LAST_NONE, /* not due yet, or there is no center */
    PSD_LAST_DUE,
    PSD_LAST_WRITTEN,
    PSD_LAST_FAILED,
};

struct psd_checkpointer {
    bool busy;
    bool is_last; /* for the current write: it is the job's last */
    bool still;   /* for the current snapshot: no worker takes part in rounds yet, and nothing moves */
    enum psd_last_save last;
    uint32_t keep;   /* for the current write: how many of the newest files to keep, */
    bool has_common; /* and under rounds, with several servers, the version that all of them have */
    uint64_t common;
    uint64_t round;         /* for a snapshot under aggregated rounds: after how many */
    uint64_t agreed;        /* its version at all servers, under other rounds; 0: each server uses its own */
    unsigned what, pending; /* PSD_SAVE_… bits: in progress; requested while busy */
    struct psd_best best;   /* on disk; accuracy NaN: none */
    struct psd_evaluation better; /* its vector is being received or written; accuracy NaN: none */
    struct psd_evaluation next;   /* an even better one, to be saved next; accuracy NaN: none */
    uint64_t asked_ms;            /* when the vector was requested */
    bool lacks;                   /* part of it is missing */
    bool best_is_other;           /* the present file belongs to another job */
    char best_path[400],
        best_written[400]; /* "": none; best_written belongs to the pool thread during a write */
    struct ps_error best_error;
    int best_rc;
    uint32_t lanes_left;
    uv_work_t work;
    char directory[300];
    struct psd_aside aside;
    char last_path[400];
    char last_error[512];
    uint64_t last_version, last_unix_s, last_ms;
    uint64_t failures;               /* failed writes; each is repeated when the next checkpoint is due */
    struct psd_saved_versions saved; /* after the last write */
    /* after the write in progress; belongs to the pool thread, as does the next */
    struct psd_saved_versions found;
    char path[400];
    struct ps_error error;
    int rc;
};

/* Starts a checkpoint; if one is being written, requests one more after it. -EAGAIN: no center yet. */
int psd_checkpointer_start(struct psd_job *job, struct ps_error *err);
/* One lane has copied, or has received its part; lacks: some of the part is missing. */
void psd_checkpointer_snapped(struct psd_job *job, bool lacks);
/* Tells the lanes of all servers to copy; under rounds after this many. */
void psd_checkpointer_take(struct psd_job *job, uint64_t round);
/* Carries out the head's order; -EAGAIN: a write is in progress, or there is no center. */
int psd_checkpointer_order(struct psd_job *job, const Ps__Snapshot *s, uint64_t round);
/* Whether this psd's last checkpoint was written; called when psd stops. -EIO with a sentence: what is lost,
 * and why. */
int psd_checkpointer_check_end(const struct psd_job *job, struct ps_error *err);
/* Takes the first checkpoint of a new center, or of its first rounds, if checkpoints are configured. */
void psd_checkpointer_begin(struct psd_job *job);
/* The checkpoint that the job was resumed from is the newest one. */
void psd_checkpointer_resumed(struct psd_job *job);
void psd_checkpointer_check_due(struct psd_job *job);
/* The versions in this psd's directory. The files are read at the first call for a model, and by the pool
 * thread after each write. */
const struct psd_saved_versions *psd_checkpointer_versions(struct psd_job *job, uint64_t manifest_hash);
/* Starts what was postponed during a method change. */
void psd_checkpointer_go_on(struct psd_job *job);
/* Handles an evaluation. Requests its vector if it is the best so far and checkpoint.keep_best is set. An
 * evaluator that offers a vector is told whether it is wanted, at once or when the lanes can take it. */
void psd_checkpointer_evaluated(struct psd_job *job, const struct psd_evaluation *e);
/* Abandons a vector that does not arrive; now: also one that still might. Call on every tick. */
void psd_checkpointer_check_vector(struct psd_job *job, bool now);
/* Reads the present best checkpoint: the job's own after a resume, or another job's. */
void psd_checkpointer_find_best(struct psd_job *job);

/* Whether decisions may use the evaluation: its accuracy is between 0 and 1, and its center is one that this
 * psd has had. After a resume an evaluator may still report a center that was lost. */
bool psd_evaluation_counts(const struct psd_job *job, const struct psd_evaluation *e);

#endif
