/* job_file.h: what the state directory keeps between checkpoints: DIR/job.
 *
 * A checkpoint is as old as checkpoint.every_s. A psd that is killed and resumed has to know more: whose job
 * this is, which names it has given, who was in it, and how far it had come. All of that is one record of
 * fixed size. The file holds two copies, each with a checksum. A write goes to the copy that is not the
 * newest one on disk, so that one of them is whole at every moment, and it needs no new disk space.
 *
 * - job: drawn at random when a job begins. It is in the checkpoints, in Hello and in Welcome.
 * - names_to: incarnations up to here may have been given. It is on disk before one of them is given, in
 *   blocks, so that the names of a later run begin beyond it.
 * - members: the sessions that take part, and after them those of the run before that may still come back. A
 *   worker is told Begun when it is in the file (server/job/record/journal.h).
 * - generation, method: a method that psd comes back with is of the next generation when it is another one,
 * so that workers go over to it as in a change while psd runs.
 * - settings: what was set while the job runs, which is above the configuration that psd is started with.
 * - parts, blind: the record of another server may be older than this one, which has somebody left.
 * - version: of the center, at most a second old. It stays that of the run before until somebody takes part
 * in this one.
 *
 * Works on one file at a time; no thread of its own. */
#ifndef PSD_CHECKPOINT_JOB_FILE_H
#define PSD_CHECKPOINT_JOB_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/model/shard.h"
#include "server/config/settings.h"

#define PSD_JOB_FILE    "job"
#define PSD_JOB_MEMBERS 1088 /* limits.clients at most, and observers */
#define PSD_JOB_FORMER  8

struct psd_job_member {
    uint32_t client, incarnation;
};

struct psd_job_record {
    uint64_t job;    /* 0: none yet */
    uint64_t origin; /* of whose checkpoint, copied here, it began; 0: of none */
    uint64_t
        former[PSD_JOB_FORMER]; /* jobs that had this directory before and are over; newest first, 0: none */
    uint64_t version;           /* that the center had reached */
    uint64_t method;            /* what its generation was of: psd_config_method_hash */
    uint32_t names_to;
    uint32_t ended; /* 1: psd ended by itself: version is exact */
    uint32_t n_active, n_members;
    uint32_t generation; /* of the method that workers were last told */
    uint32_t blind;      /* 1: somebody who has left could not tell of every server's part */
    struct psd_job_member members[PSD_JOB_MEMBERS];
    uint64_t parts[PS_MAX_PARTS]; /* of several servers: the version that who left had seen of each one's */
    char settings[PSD_SETTINGS_BYTES]; /* server/config/settings.h; zero bytes behind it */
};

struct psd_job_file {
    char path[400];
    int fd;          /* -1: closed */
    uint64_t number; /* of the last write */
    unsigned next;   /* the copy that the next write goes to */
    bool unsynced;   /* the last write was not brought to disk */
};

/* Opens DIR/job, and makes it when it is missing. *out is the newest record that is whole; *found is false
 * when there is none, then *out is all 0. -errno with a sentence. */
int psd_job_file_open(const char *dir, struct psd_job_file *f, struct psd_job_record *out, bool *found,
                      struct ps_error *err);
/* The record survives the process when this returns 0. -errno: the file holds what it held. One that somebody
 * has removed is made anew. */
int psd_job_file_write(struct psd_job_file *f, const struct psd_job_record *r);
/* And now the machine. */
int psd_job_file_sync(struct psd_job_file *f);
void psd_job_file_close(struct psd_job_file *f);

#endif
