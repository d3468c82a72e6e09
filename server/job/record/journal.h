/* journal.h: who brings DIR/job (server/checkpoint/job_file.h) up to date: a thread of its own, so that a
 * slow disk holds up neither the loop nor a lane.
 *
 * The loop hands over what changed (who is in the job, which names may be given). The thread adds the
 * center's version as it is then, and writes what is new at least every 200 ms. It brings the file to disk at
 * once when the members or the names changed, else once a second. What a worker is told by Begun it may act
 * on, so that waits until the record has it: whoever has moved the center is in the record, and what all
 * others have done is in its version. A write that fails is logged, and nobody waits for it. */
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

/* The names of a run begin beyond those that may have been given before, in blocks of so many. */
#define PSD_NAMES_BLOCK (1u << 16)

struct psd_journal {
    struct psd_job_file file;     /* the thread's while it runs */
    struct psd_job_record before; /* what the run before left */
    bool has_before;
    pthread_t thread;
    bool runs, ready;     /* lock, condition and handle exist */
    pthread_mutex_t lock; /* of all below */
    pthread_cond_t changed;
    struct psd_job_record wanted;
    bool idle; /* nobody has taken part in this run: the record is about the one before */
    bool stop;
    uint64_t asked;                 /* changes so far; the loop's */
    _Atomic uint64_t written;       /* that the file has, or that could not be written */
    _Atomic uint32_t names_written; /* names_to of the record in the file */
    const _Atomic uint64_t *version;
    uv_async_t news; /* `written` has grown */
};

/* Reads what the run before left. -errno with a sentence. */
int psd_journal_open(struct psd_job *job, struct ps_error *err);
/* This run's first record is in the file when it returns: the job that it is of, names to give. resume: from
 * job->resumed, if that is a checkpoint, and from what the run before left of the same job; else a new job.
 */
int psd_journal_begin(struct psd_job *job, bool resume, struct ps_error *err);
int psd_journal_start(struct psd_job *job, struct ps_error *err);
/* Who is in the job has changed, or what the job is. Returns the change that psd_journal_has knows. */
uint64_t psd_journal_put(struct psd_job *job);
/* The method has changed, or what is set. Returns the change, as psd_journal_put. */
uint64_t psd_journal_put_method(struct psd_job *job);
/* Whether what the run before left is of the job that is resumed. */
bool psd_journal_goes_on(const struct psd_job *job, bool from_checkpoint);
/* The generation that the job goes on with, from job->resumed. */
uint32_t psd_journal_generation(const struct psd_job *job);
/* Somebody takes part in this run: from now on the record is about it. */
void psd_journal_wake(struct psd_job *job);
bool psd_journal_has(const struct psd_job *job, uint64_t change);
/* Tells Begun to those who are in the file by now, or have waited for it long enough. */
void psd_journal_tell_begun(struct psd_job *job);
/* Whether one more name may be given; asks for more of them in time. */
bool psd_journal_has_names(struct psd_job *job);
/* The lanes have ended: the version is what the job reached. */
void psd_journal_close(struct psd_job *job);
/* Whether the job had this state directory, and is over. */
bool psd_journal_is_former(const struct psd_job *job, uint64_t number);

#endif
