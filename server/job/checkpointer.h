/* checkpointer.h: checkpoints of a running job: lanes copy, the loop counts, a thread of libuv's pool writes.
 * Loop's thread. */
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

#define PSD_MAX_SAVED 64 /* versions of checkpoints that a server tells of */

/* The newest evaluation of the center that an observer reported. */
struct psd_evaluation {
    double loss, accuracy; /* NaN: none yet */
    uint64_t version;
    bool fresh;                   /* not in the history yet */
    uint64_t offer;               /* the vector that was scored may be had, by this number; 0: not */
    uint32_t client, incarnation; /* from whom */
};

/* What a snapshot is written as. */
enum { PSD_SAVE_NEWEST = 1, PSD_SAVE_BEST = 2 };

/* Versions of the readable checkpoints of a model. */
struct psd_saved_versions {
    bool known;
    uint64_t manifest_hash; /* 0: of whatever model */
    uint32_t n;
    uint64_t versions[PSD_MAX_SAVED];
};

/* The checkpoint with which the job ends. */
enum psd_last_save {
    PSD_LAST_NONE, /* it is not due yet, or there is no center */
    PSD_LAST_DUE,
    PSD_LAST_WRITTEN,
    PSD_LAST_FAILED,
};

struct psd_checkpointer {
    bool busy;
    bool is_last; /* of the write under way: the job ends with it */
    bool still;   /* of the snapshot under way: nobody takes part in rounds yet, and nothing moves */
    enum psd_last_save last;
    uint32_t keep;                /* of the write under way: newest that stay */
    uint64_t round;               /* of a snapshot under merged rounds: after how many */
    uint64_t agreed;              /* its version at all servers, under other rounds; 0: each one's own */
    unsigned what, again;         /* PSD_SAVE_…: under way; asked for while busy */
    struct psd_best best;         /* on disk; accuracy NaN: none */
    struct psd_evaluation better; /* whose vector comes or is written; accuracy NaN: none */
    struct psd_evaluation next;   /* better still, to come after it; accuracy NaN: none */
    uint64_t asked_ms;            /* when the vector was asked for */
    bool lacks;                   /* not all of it has come */
    bool best_is_other;           /* the file that is there is another job's */
    char best_path[400], best_written[400]; /* "" : none; of the write under way, the pool thread's */
    struct ps_error best_error;
    int best_rc;
    uint32_t lanes_left;
    uv_work_t work;
    char directory[300];
    struct psd_aside aside;
    char last_path[400];
    char last_error[512];
    uint64_t last_version, last_unix_s, last_ms;
    uint64_t failures;               /* writes that failed; each is tried again when the next is due */
    struct psd_saved_versions saved; /* as they were after the last write */
    struct psd_saved_versions
        found; /* after the write that is under way; the pool thread's, as is the next */
    char path[400];
    struct ps_error error;
    int rc;
};

int psd_checkpointer_start(struct psd_job *job,
                           struct ps_error *err); /* -EAGAIN: no center yet; asks for one more when busy */
void psd_checkpointer_snapped(struct psd_job *job,
                              bool lacks); /* one lane has copied, or has what it waited for */
/* Tells the lanes, everywhere, to copy; under rounds after so many of them. */
void psd_checkpointer_take(struct psd_job *job, uint64_t round);
/* What the head ordered; -EAGAIN: one is being written, or there is no center. */
int psd_checkpointer_order(struct psd_job *job, const Ps__Snapshot *s, uint64_t round);
/* Whether this psd's last checkpoint is written, when it ends. -EIO with a sentence: what is lost, and why.
 */
int psd_checkpointer_check_end(const struct psd_job *job, struct ps_error *err);
/* The center is new: takes its first checkpoint, where there are to be any. */
void psd_checkpointer_begin(struct psd_job *job);
void psd_checkpointer_check_due(struct psd_job *job);
/* Of this psd's directory. The files are read at the first call, for a model, and after each write, there by
 * the pool thread. */
const struct psd_saved_versions *psd_checkpointer_versions(struct psd_job *job, uint64_t manifest_hash);
/* What was put off while the method changed. */
void psd_checkpointer_go_on(struct psd_job *job);
/* An evaluation came: its vector is asked for when it is the best so far and checkpoint.keep_best. Who offers
 * one is told whether it is wanted, now or when lanes can take it. */
void psd_checkpointer_evaluated(struct psd_job *job, const struct psd_evaluation *e);
/* Gives up a vector that does not come; now: also one that might still. On every tick. */
void psd_checkpointer_check_vector(struct psd_job *job, bool now);
/* Learns of the best checkpoint that is there: the job's own after a resume, or another's. */
void psd_checkpointer_find_best(struct psd_job *job);

/* Whether an evaluation may decide something: a share, of a center that this psd has (after a resume an
 * evaluator may still report one that was lost). */
bool psd_evaluation_counts(const struct psd_job *job, const struct psd_evaluation *e);

#endif
