/* job.h: the job: whose x the center began with, who may move it, when it ends. The contract of server/job,
 * whose other headers it includes. Loop's thread. */
#ifndef PSD_JOB_JOB_H
#define PSD_JOB_JOB_H

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

#include "ps.pb-c.h"
#include "server/auth/auth.h"
#include "server/center/center.h"
#include "server/config/config.h"
#include "server/job/checkpointer.h"
#include "server/job/record/history.h"
#include "server/job/record/journal.h"
#include "server/job/record/loss.h"
#include "server/job/membership.h"
#include "server/job/method_change.h"
#include "server/job/partial_rounds.h"
#include "server/job/plateau.h"
#include "server/job/reload.h"
#include "server/job/sd_notify.h"
#include "server/job/record/stats.h"
#include "server/job/record/tensorboard.h"
#include "server/lanes/lanes.h"
#include "server/session/send.h"
#include "server/session/session.h"

struct psd;

#define PSD_TICK_MS  200
#define PSD_SLEPT_MS 600 /* a look for silence this late means that psd itself stood still: three ticks */

/* Exit codes of psd: why a job cannot go on, for psd_job_fail; the others are psd.c's. */
enum {
    PSD_EXIT_OK = 0,
    PSD_EXIT_CONFIG = 2,
    PSD_EXIT_STATE_DIR = 3,
    PSD_EXIT_BIND = 4,
    PSD_EXIT_CHECKPOINT = 5,
    PSD_EXIT_SERVERS = 6,
    PSD_EXIT_UNSAVED = 7,
    PSD_EXIT_SYSTEM = 1
};

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

/* What the job asks of the folders above it. Filled in by psd_wire; `psd` is psd_job.psd. */
struct psd_job_hooks {
    /* Welcome, to everybody who has a session. */
    void (*welcome_all)(struct psd *psd);
    /* The checkpoint is written, or failed; the other servers write theirs, and have. */
    void (*saved)(struct psd *psd);
    void (*save_others)(struct psd *psd, const Ps__Snapshot *snapshot, uint64_t round);
    bool (*others_saved)(const struct psd *psd);
    /* The other servers try what the change of the method is to change, of this generation:
     * psd_method_change_tried tells how it went. And they drop it, or make it. Before: whether all are here;
     * -EAGAIN with a sentence: one is not. */
    int (*check_others)(const struct psd *psd, struct ps_error *err);
    int (*try_others)(struct psd *psd, uint32_t generation, struct ps_error *err);
    void (*drop_others)(struct psd *psd);
    void (*make_others)(struct psd *psd);
    /* Whether all servers have been here; the newest version that another one has told of. */
    bool (*is_complete)(const struct psd *psd);
    uint64_t (*newest_of_others)(const struct psd *psd);
    /* At a server that is not the head: whether its lanes know of members. */
    bool (*has_members)(const struct psd *psd);
};

struct psd_job {
    /* What it works with. */
    struct psd_config *cfg; /* in force; a reload or a change of the method puts another there */
    uv_loop_t *loop;
    struct psd_lanes *lanes;
    struct psd_sessions *sessions;
    struct psd_sender *sender;
    struct psd_auth *auth;
    struct psd_job_hooks hooks;
    struct psd *psd; /* for the hooks */

    enum psd_state state;
    struct psd_center *center;
    bool center_whole;           /* every value of it has come, from an offer or a checkpoint */
    struct psd_snapshot resumed; /* what --resume read; its replay table */
    char resumed_from[400];
    uint64_t resumed_version;
    uint32_t names_before; /* incarnations up to here were given by runs before this */
    struct psd_journal journal;
    struct psd_loss loss;
    uint32_t lanes_filled, lanes_unfilled, lanes_released;
    struct psd_membership membership;
    struct psd_partial_rounds partial_rounds;
    struct psd_method_change method_change;
    struct psd_plateau plateau;
    struct psd_reloader reload;
    struct psd_checkpointer checkpointer;
    struct psd_history history;
    struct psd_tensorboard tensorboard;
    struct psd_evaluation evaluation;
    struct psd_nonfinite nonfinite;
    struct psd_notify notify;
    const char *stop_met;   /* the condition of `stop` that was; NULL: none */
    char drain_reason[256]; /* "" : not draining */
    int exit_code;          /* of psd_job_fail */
    uint32_t n_stops;       /* SIGTERMs and drains */
    struct ps_error end;    /* why the job has not ended well; "" : it has, or it has not ended */
    uint64_t started_ms, started_unix_ms, drain_deadline_ms;
    uint64_t ready_ms;   /* when the center was */
    uint64_t checked_ms; /* when silence was last looked for */
};

/* job.c: the center's life and membership; tells the lanes. */
void psd_job_begin(struct psd_job *job, struct psd_session *s, struct ps_manifest *m); /* takes m */
void psd_job_resume(struct psd_job *job);
/* The command that admits it. */
struct psd_lane_message psd_lane_message_admit(const struct psd_session *s, enum psd_phase phase,
                                               bool keep_replay);
void psd_job_admit(struct psd_job *job, struct psd_session *s, enum psd_phase phase, bool keep_replay);
/* Ends the session: lanes refuse its frames with `code` from now on, its slot is free. */
void psd_job_end(struct psd_job *job, struct psd_session *s, uint32_t code, const char *why);
void psd_job_take_notes(struct psd_job *job, struct psd_lane *lane);
void psd_job_take_message(struct psd_job *job, struct psd_lane *lane, const struct psd_lane_message *msg);
/* It cannot go on: everyone is told, and psd ends with this code. */
void psd_job_fail(struct psd_job *job, int code, const char *why);
void psd_job_update_rates(struct psd_job *job);
/* Another method is in force: hands its center out, if there is one, and lets in who waited. */
void psd_job_method_changed(struct psd_job *job);
/* Those whose Begin waited for a change of the method. */
void psd_job_unpark(struct psd_job *job);
void psd_job_drain(struct psd_job *job, const char *why);
void psd_job_check_silence(struct psd_job *job);
static inline bool psd_job_is_silent(const struct psd_job *job, const struct psd_session *s)
{
    return psd_session_is_silent(s, psd_loop_now_ms(job->loop), job->cfg->limits.silence_s);
}
/* Live workers, or observers, that are silent. */
static inline uint32_t psd_job_count_silent(const struct psd_job *job, bool observer)
{
    return psd_sessions_count_silent(job->sessions, observer, psd_loop_now_ms(job->loop),
                                     job->cfg->limits.silence_s);
}

/* Remembers, logs and shows the first non-finite value. s: whose vector it was;
 * clock: its t; index: of the value in the flat vector, UINT64_MAX when not known; sent: a lane refused it,
 * else the worker's library did. Loop's thread. */
void psd_job_note_nonfinite(struct psd_job *job, const struct psd_session *s, uint64_t clock, uint64_t index,
                            bool sent);

/* slow_steps.c: ends sessions of members that take no step while others wait for them, where
 * limits.step_s says so. On every tick. */
void psd_steps_check(struct psd_job *job);
/* For how long others have waited for the session's next step. 0: nobody does. */
uint64_t psd_steps_awaited_ms(const struct psd_job *job, const struct psd_session *s);

/* stop_conditions.c: drains the job when a condition of `stop` is met. */
void psd_stop_check(struct psd_job *job);

#endif
