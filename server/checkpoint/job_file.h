/* job_file.h: the job's state between checkpoints: DIR/job.
 *
 * A checkpoint is up to checkpoint.every_s old. A psd that is killed and resumed must know more: the job, the
 * incarnations that were given out, its members, and its progress. All of that is one record of fixed size.
 * The file has two copies, each with a checksum. A write replaces the copy that is not the newest one on
 * disk, so one copy is always complete, and no new disk space is needed.
 *
 * - job: drawn at random when a job begins. It is in checkpoints, Hello and Welcome.
 * - names_to: incarnations up to here may have been given out. It is on disk before any of them is, in
 * blocks, so a later run can start above it.
 * - members: the sessions that take part, followed by those of the previous run that may still come back. A
 * worker gets Begun when it is in the file (server/job/record/journal.h).
 * - generation, method: if psd comes back with another method, that gets the next generation, so that workers
 * switch to it as during a method change.
 * - settings: made while the job runs; they override psd's configuration.
 * - parts, blind: what workers that have left had seen of other servers, whose records may be older than this
 * one.
 * - version: of the center, at most a second old. It remains that of the previous run until a worker takes
 * part in this one.
 *
 * Works on one file at a time; has no thread of its own. */
#ifndef PSD_CHECKPOINT_JOB_FILE_H
#define PSD_CHECKPOINT_JOB_FILE_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/model/shard.h"
#include "server/config/settings.h"

#define PSD_JOB_FILE    "job"
#define PSD_JOB_MEMBERS 1088 /* at most limits.clients, and observers */
#define PSD_JOB_FORMER  8

struct psd_job_member {
    uint32_t client, incarnation;
};

struct psd_job_record {
    uint64_t job;    /* 0: none yet */
    uint64_t origin; /* the job of the checkpoint, copied here, from which it began; 0: none */
    uint64_t former[PSD_JOB_FORMER]; /* earlier jobs of this directory, newest first, 0: none */
    uint64_t version;                /* of the center */
    uint64_t method;                 /* psd_config_method_hash of the generation's method */
    uint32_t names_to;
    uint32_t ended; /* 1: psd stopped by itself: version is exact */
    uint32_t n_active, n_members;
    uint32_t generation; /* of the last method that workers were told */
    uint32_t blind;      /* 1: a worker has left that could not report every server's part */
    struct psd_job_member members[PSD_JOB_MEMBERS];
    uint64_t parts[PS_MAX_PARTS]; /* with several servers: for each, the version that workers that have left
                                     had seen */
    char settings[PSD_SETTINGS_BYTES]; /* server/config/settings.h; padded with zero bytes */
};

struct psd_job_file {
    char path[400];
    int fd;          /* -1: closed */
    uint64_t number; /* of the last write */
    unsigned next;   /* the copy that the next write replaces */
    bool unsynced;   /* the last write was not synced to disk */
};

/* Opens DIR/job, and creates it if it is missing. *out is the newest complete record; *found is false if
 * there is none, and *out is then all 0. -errno with a sentence. */
int psd_job_file_open(const char *dir, struct psd_job_file *f, struct psd_job_record *out, bool *found,
                      struct ps_error *err);
/* Writes the record so that it survives the process. -errno: the file is unchanged. If the file was removed
 * it is created again. */
int psd_job_file_write(struct psd_job_file *f, const struct psd_job_record *r);
/* Syncs the record to disk, so that it survives a crash of the machine. */
int psd_job_file_sync(struct psd_job_file *f);
void psd_job_file_close(struct psd_job_file *f);

#endif
