/* journal.h: keeps DIR/job (server/checkpoint/job_file.h) up to date in its own thread, so that a slow disk
 * delays neither the loop nor a lane.
 *
 * The loop passes on changes (who is in the job, which incarnations may be given out). The thread adds the
 * center's current version, and writes changes at least every 200 ms. It syncs the file at once if the
 * members or incarnations changed, else once a second. A worker may act on Begun, so Begun waits until the
 * record has the worker: every worker that has moved the center is in the record, and the other updates are
 * in its version. A write that fails is logged, and nothing waits for it. */
#ifndef PSD_JOB_RECORD_JOURNAL_H
#define PSD_JOB_RECORD_JOURNAL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "proto/error.h"
#include "server/checkpoint/job_file.h"

struct psd_job;

/* Incarnations of a run start above those that may have been given out before, in blocks of this size. */
#define PSD_NAMES_BLOCK (1u << 16)

struct psd_journal {
    struct psd_job_file file;     /* the thread's while it runs */
    struct psd_job_record before; /* left by the previous run */
    bool has_before;
    pthread_t thread;
    bool runs, ready;     /* lock, condition and handle exist */
    pthread_mutex_t lock; /* protects everything below */
    pthread_cond_t changed;
    struct psd_job_record wanted;
    bool idle; /* no worker has taken part in this run: the record describes the previous one */
    bool stop;
    uint64_t asked;                 /* number of changes so far; the loop's */
    _Atomic uint64_t written;       /* changes that are in the file, or could not be written */
    _Atomic uint64_t saved;         /* changes that are in the file and synced */
    _Atomic uint64_t tried;         /* changes that were written and synced, or failed */
    _Atomic int failure;            /* -errno of the last write and sync; 0: none */
    _Atomic uint32_t names_written; /* names_to of the record in the file */
    const _Atomic uint64_t *version;
    uv_async_t news; /* `written` has increased */
};

/* Reads the record of the previous run. -errno with a sentence. */
int psd_journal_open(struct psd_job *job, struct ps_error *err);
/* Writes this run's first record, with its job and incarnations, before it returns. resume: the job of
 * job->resumed, if there is a checkpoint, and of the previous run if that was the same job; else a new
 * job. */
int psd_journal_begin(struct psd_job *job, bool resume, struct ps_error *err);
int psd_journal_start(struct psd_job *job, struct ps_error *err);
/* The members of the job, or its properties, have changed. Returns the number of the change, for
 * psd_journal_has. */
uint64_t psd_journal_put(struct psd_job *job);
/* The method or the settings have changed. Returns the number of the change, as psd_journal_put. */
uint64_t psd_journal_put_method(struct psd_job *job);
/* Whether the previous run was of the job that is resumed. */
bool psd_journal_goes_on(const struct psd_job *job, bool from_checkpoint);
/* The generation with which the job continues, from job->resumed. */
uint32_t psd_journal_generation(const struct psd_job *job);
/* A worker takes part in this run: from now on the record describes it. */
void psd_journal_wake(struct psd_job *job);
bool psd_journal_has(const struct psd_job *job, uint64_t change);
/* Whether the change is on disk. It may still come there after a failure: the thread tries again. */
bool psd_journal_has_saved(const struct psd_job *job, uint64_t change);
/* -errno: the change could not be saved so far; 0: it is on disk, or on the way. */
int psd_journal_failure(const struct psd_job *job, uint64_t change);
/* Sends Begun to clients that are in the file by now, or have waited long enough. */
void psd_journal_tell_begun(struct psd_job *job);
/* Whether another incarnation may be given out; requests more in time. */
bool psd_journal_has_names(struct psd_job *job);
/* The lanes have stopped: records the final version. */
void psd_journal_close(struct psd_job *job);
/* Whether this is a job that had this state directory before, and is over. */
bool psd_journal_is_former(const struct psd_job *job, uint64_t number);

#endif
