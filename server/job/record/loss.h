/* loss.h: updates that a restart of psd from a checkpoint has lost: those that workers had answers for, and
 * the center that psd goes on from has not. Never said to be fewer than they are.
 *
 * Lost is what the center had reached, less what the checkpoint has. What it had reached is known
 * - exactly, where psd ended by itself: the record in DIR/job says it;
 * - at most, when everybody who was in the job has come back: each tells the newest version it has seen, and
 *   whether an exchange was under way, of which some chunks may be lost. All others' updates are in the
 * record's version;
 * - else not: the record's version, and what those who came back have seen, is the least. So it is where
 *   there is no checkpoint yet: all is lost, and nobody's place was kept.
 * Without rounds a checkpoint may have some more than its version says, of exchanges that were under way
 * while it was copied: they count as lost all the same, in the least too. Each server's part is counted by
 * itself. What two servers lost is counted twice, but under rounds, where all of them go back to the same
 * one. */
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
    bool exact;   /* `reached` is what it was */
    uint64_t from, reached;
};

struct psd_loss {
    bool has_record;    /* of those who were in the job */
    bool blind;         /* somebody has come back and could not tell of every server */
    uint32_t n_awaited; /* who were in it and have not come back */
    uint64_t under_way; /* exchanges of which a part may be lost */
    struct psd_part_loss parts[PS_MAX_PARTS];
    uint64_t known[PS_MAX_PARTS]; /* that other servers' parts had reached at least, by the head's record */
    uint64_t left_saw[PS_MAX_PARTS]; /* that who has left this run had seen of them */
    bool left_blind;                 /* somebody has left and did not tell of every server */
    uint64_t later;                  /* of servers that were lost while the head ran, at least */
    bool later_is_unknown;
};

struct psd_lost {
    enum psd_loss_kind kind;
    uint64_t least, most; /* most: but of PSD_LOSS_UNKNOWN */
};

/* This psd begins. before: what the run before left, NULL: nothing of this job. */
void psd_loss_begin(struct psd_job *job, const struct psd_job_record *before);
/* A session of the run before goes on. */
void psd_loss_revived(struct psd_job *job, struct psd_session *s, const Ps__Hello *m);
/* A worker is about to be out of the job. Another server's record may be older than what it has seen of that
 * one's part: it tells (Leave), or it is blind. NULL: it was ended; who was long silent has seen nothing new.
 */
void psd_loss_left(struct psd_job *job, const struct psd_session *s, const Ps__Leave *m);
/* Another server has resumed its part: with the head, or (later) while the head ran; then no worker is asked
 * what it has seen. */
void psd_loss_of_server(struct psd_job *job, uint32_t index, uint64_t from, uint64_t reached, bool exact);
void psd_loss_of_server_later(struct psd_job *job, uint32_t index, uint64_t from, uint64_t reached,
                              bool exact);
struct psd_lost psd_loss_told(const struct psd_job *job);
/* "exact", "at most", "unknown" */
const char *psd_loss_kind_name(enum psd_loss_kind kind);

#endif
