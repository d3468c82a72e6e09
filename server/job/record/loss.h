/* loss.h: counts the updates lost by a restart of psd from a checkpoint: those that workers had answers for,
 * and that the restored center lacks. The count is never too low.
 *
 * It is the version that the center had reached, minus the checkpoint's version. The reached version is known
 * - exactly, if psd stopped by itself: the record in DIR/job has it;
 * - at most, if every worker that was in the job has come back: each reports the newest version that it has
 * seen, and whether an exchange was under way, some of whose chunks may be lost. The record's version
 * includes all other workers' updates;
 * - otherwise not: the least is the record's version, or what the returned workers have seen. This also
 * applies without a checkpoint: everything is lost, and no slots were reserved.
 * Without rounds a checkpoint may contain more than its version, from exchanges that were under way during
 * the copy; they still count as lost, in the least too. Each server's part is counted separately, so updates
 * that two servers lost are counted twice, except under rounds, where all servers resume from the same
 * version. */
#ifndef PSD_JOB_RECORD_LOSS_H
#define PSD_JOB_RECORD_LOSS_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/model/shard.h"
#include "ps.pb-c.h"
#include "server/checkpoint/job_file.h"

struct psd_job;
struct psd_session;

enum psd_loss_kind { PSD_LOSS_EXACT, PSD_LOSS_AT_MOST, PSD_LOSS_UNKNOWN };

/* A server's part of the center. */
struct psd_part_loss {
    bool resumed; /* in this run of the head, with the others */
    bool exact;   /* `reached` is exact */
    uint64_t from, reached;
};

struct psd_loss {
    bool has_record;    /* of the members of the job */
    bool blind;         /* a worker has come back and could not report every server's version */
    uint32_t n_awaited; /* former members that have not come back */
    uint64_t under_way; /* exchanges of which a part may be lost */
    struct psd_part_loss parts[PS_MAX_PARTS];
    uint64_t known[PS_MAX_PARTS];    /* lower bounds of the versions of other servers' parts, from the head's
                                        record */
    uint64_t left_saw[PS_MAX_PARTS]; /* versions of them seen by workers that have left this run */
    bool left_blind;                 /* a worker has left without reporting every server's version */
    uint64_t later;                  /* of servers that were lost while the head ran; a lower bound */
    bool later_is_unknown;
};

struct psd_lost {
    enum psd_loss_kind kind;
    uint64_t least, most; /* most: not for PSD_LOSS_UNKNOWN */
};

/* This psd starts. before: the record of the previous run; NULL: none of this job. */
void psd_loss_begin(struct psd_job *job, const struct psd_job_record *before);
/* A session of the previous run continues. */
void psd_loss_revived(struct psd_job *job, struct psd_session *s, const Ps__Hello *m);
/* A worker leaves the job. Another server's record may be older than what the worker has seen of that
 * server's part, so its Leave reports it; without one the loss is blind. NULL: its session was ended by psd;
 * a worker that was silent for long has seen nothing new. */
void psd_loss_left(struct psd_job *job, const struct psd_session *s, const Ps__Leave *m);
/* Another server has resumed its part: together with the head, or (later) while the head ran; then no worker
 * is asked what it has seen. */
void psd_loss_of_server(struct psd_job *job, uint32_t index, uint64_t from, uint64_t reached, bool exact);
void psd_loss_of_server_later(struct psd_job *job, uint32_t index, uint64_t from, uint64_t reached,
                              bool exact);
struct psd_lost psd_loss_told(const struct psd_job *job);
/* "exact", "at most", "unknown" */
const char *psd_loss_kind_name(enum psd_loss_kind kind);

#endif
