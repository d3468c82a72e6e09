/* job.h: the job: whose x the center began with, who may move it, when it ends. The contract of server/job,
 * whose other headers it includes. Loop's thread. */
#ifndef PSD_JOB_JOB_H
#define PSD_JOB_JOB_H

#include <stdbool.h>
#include <stdint.h>

#include "server/center/center.h"
#include "server/job/checkpointer.h"
#include "server/job/history.h"
#include "server/job/journal.h"
#include "server/job/loss.h"
#include "server/job/membership.h"
#include "server/job/method_change.h"
#include "server/job/partial_rounds.h"
#include "server/job/plateau.h"
#include "server/job/reload.h"
#include "server/job/sd_notify.h"
#include "server/job/stats.h"
#include "server/lane/lane.h"
#include "server/session/session.h"

struct psd;

enum psd_state {
    PSD_STATE_WAITING,  /* no center yet */
    PSD_STATE_OFFERED,  /* the first worker's x is on its way */
    PSD_STATE_EMPTYING, /* that worker died: lanes let go of the center */
    PSD_STATE_READY,
    PSD_STATE_DRAINING, /* workers are told to stop */
    PSD_STATE_STOPPING, /* last checkpoint */
};

/* Who was the first to have a value that is not finite. */
struct psd_nonfinite {
    bool seen;
    char name[64];
    uint32_t rank, incarnation;
    uint64_t clock, version;            /* the worker's t; the center's version when psd learnt of it */
    uint64_t index;                     /* in the flat vector; UINT64_MAX: not known */
    char tensor[PS_MAX_NAME_BYTES + 1]; /* it lies in; "" : not known */
    double t_s;                         /* unix */
    bool sent; /* false: the worker's library refused its own vector, nothing was sent */
};

/* job.c: the center's life and membership; tells the lanes. */
void psd_job_begin(struct psd *d, struct psd_session *s, struct ps_manifest *m); /* takes m */
void psd_job_resume(struct psd *d);
void psd_job_admit(struct psd *d, struct psd_session *s, enum psd_phase phase, bool keep_replay);
/* Ends the session: lanes refuse its frames with `code` from now on, its slot is free. */
void psd_job_end(struct psd *d, struct psd_session *s, uint32_t code, const char *why);
/* Tells those whose Begun has waited for the journal. */
void psd_job_tell_begun(struct psd *d);
void psd_job_take_notes(struct psd *d, struct psd_lane *lane);
void psd_job_take_message(struct psd *d, struct psd_lane *lane, const struct psd_lane_message *msg);
/* It cannot go on: everyone is told, and psd ends with this code. */
void psd_job_fail(struct psd *d, int code, const char *why);
void psd_job_update_rates(struct psd *d);
/* Another method is in force: hands its center out, if there is one, and lets in who waited. */
void psd_job_method_changed(struct psd *d);
/* Those whose Begin waited for a change of the method. */
void psd_job_unpark(struct psd *d);
void psd_job_drain(struct psd *d, const char *why);
void psd_job_check_silence(struct psd *d);
/* Not heard for five of its heartbeats, at least 5 s, at most half of limits.silence_s: it may be gone, or
 * stand still. It is in the job until silence_s has passed, and what is shown of the job does not count it.
 */
bool psd_job_is_silent(const struct psd *d, const struct psd_session *s);
/* Live workers, or observers, that are silent. */
uint32_t psd_job_count_silent(const struct psd *d, bool observer);

/* Remembers, logs and shows the first non-finite value. s: whose vector it was;
 * clock: its t; index: of the value in the flat vector, UINT64_MAX when not known; sent: a lane refused it,
 * else the worker's library did. Loop's thread. */
void psd_job_note_nonfinite(struct psd *d, const struct psd_session *s, uint64_t clock, uint64_t index,
                            bool sent);

/* lane_commands.c: what the loop tells lanes, wherever they are. */
struct psd_lane_message psd_lane_message_admit(const struct psd_session *s, enum psd_phase phase,
                                               bool keep_replay);
void psd_tell_lanes(struct psd *d, const struct psd_lane_message *msg);
void psd_tell_lane(struct psd *d, const struct psd_lane *lane, const struct psd_lane_message *msg);

/* slow_steps.c: ends sessions of members that take no step while others wait for them, where
 * limits.step_s says so. On every tick. */
void psd_steps_check(struct psd *d);
/* For how long others have waited for the session's next step. 0: nobody does. */
uint64_t psd_steps_awaited_ms(const struct psd *d, const struct psd_session *s);

/* stop_conditions.c: drains the job when a condition of `stop` is met. */
void psd_stop_check(struct psd *d);

#endif
