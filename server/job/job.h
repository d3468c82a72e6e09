/* job.h: the job: offers of the initial x, membership, and its end. The contract of server/job, whose other
 * headers it includes. Loop's thread. */
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

#define PSD_TICK_MS 200
#define PSD_SLEPT_MS                                                                                         \
    600 /* a check for silence that is late by this much (three ticks) means that psd itself was paused */

/* Exit codes of psd if a job cannot continue, for psd_job_fail; psd.h has the others. */
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
    PSD_STATE_OFFERED,  /* the first worker is sending its x */
    PSD_STATE_EMPTYING, /* that worker died: the lanes release the center */
    PSD_STATE_READY,
    PSD_STATE_DRAINING, /* workers were told to stop */
    PSD_STATE_STOPPING, /* last checkpoint */
};

/* The first value that was not finite. */
struct psd_nonfinite {
    bool seen;
    char name[64];
    uint32_t rank, incarnation;
    uint64_t clock, version;            /* the worker's t; the center's version when psd learned of it */
    uint64_t index;                     /* in the flat vector; UINT64_MAX: unknown */
    char tensor[PS_MAX_NAME_BYTES + 1]; /* that contains it; "": unknown */
    double t_s;                         /* unix */
    bool sent; /* false: the worker's library refused its own vector and sent nothing */
};

/* The job's calls to the folders above it. Set by psd_wire; `psd` is psd_job.psd. */
struct psd_job_hooks {
    /* Sends a Welcome to every client with a session. */
    void (*welcome_all)(struct psd *psd);
    /* saved: the checkpoint was written, or failed. save_others: the other servers write theirs.
     * others_saved: whether they have. others_unsaved: whether one is at a version of which it has no
     * checkpoint. common: the newest version that all servers have; false: none. */
    void (*saved)(struct psd *psd);
    void (*save_others)(struct psd *psd, const Ps__Snapshot *snapshot, uint64_t round);
    bool (*others_saved)(const struct psd *psd);
    bool (*others_unsaved)(const struct psd *psd);
    bool (*common)(const struct psd *psd, uint64_t *version);
    /* check_others: whether all other servers are connected; -EAGAIN with a sentence: one is not. try_others:
     * they try the change of the method with this generation; psd_method_change_tried reports the result.
     * drop_others, make_others: they drop it, or apply it. */
    int (*check_others)(const struct psd *psd, struct ps_error *err);
    int (*try_others)(struct psd *psd, uint32_t generation, struct ps_error *err);
    void (*drop_others)(struct psd *psd);
    void (*make_others)(struct psd *psd);
    /* Whether all servers have joined; the newest version that another server has reported. */
    bool (*is_complete)(const struct psd *psd);
    uint64_t (*newest_of_others)(const struct psd *psd);
    /* At a server that is not the head: whether its lanes have members. */
    bool (*has_members)(const struct psd *psd);
};

struct psd_job {
    /* The parts that it uses. */
    struct psd_config *cfg; /* in force; a reload or a method change replaces its content */
    uv_loop_t *loop;
    struct psd_lanes *lanes;
    struct psd_sessions *sessions;
    struct psd_sender *sender;
    struct psd_auth *auth;
    struct psd_job_hooks hooks;
    struct psd *psd; /* for the hooks */

    enum psd_state state;
    struct psd_center *center;
    bool center_whole;           /* all values have arrived, from an offer or a checkpoint */
    struct psd_snapshot resumed; /* the checkpoint that --resume read, with its replay table */
    char resumed_from[400];
    uint64_t resumed_version;
    uint64_t resumed_clock; /* of the same job: the furthest worker's then; 0: not known */
    uint32_t names_before;  /* incarnations up to this one were given out by earlier runs */
    bool has_left;          /* a worker of this run, by itself or because it was lost */
    uint32_t shares_since;  /* generation with which the workers' parts in the center began; 0: not known */
    uint64_t applied[PS_N_RULES]; /* under rules that were in force before: see psd_stats_applied */
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
    const char *stop_met;   /* the condition of `stop` that was met; NULL: none */
    char drain_reason[256]; /* "": not draining */
    int exit_code;          /* of psd_job_fail */
    uint32_t n_stops;       /* number of SIGTERMs and drains */
    struct ps_error end;    /* why the job ended with an error; "": it did not, or has not ended */
    uint64_t started_ms, started_unix_ms, drain_deadline_ms;
    uint64_t ready_ms;      /* when the center became ready */
    uint64_t checked_ms;    /* last check for silence */
    uint64_t slept_said_ms; /* when the log last said that psd was paused; 0: never */
};

/* job.c: the center's life cycle and membership; informs the lanes. */
void psd_job_begin(struct psd_job *job, struct psd_session *s, struct ps_manifest *m); /* consumes m */
void psd_job_resume(struct psd_job *job);
/* A worker's t, as psd last heard of it: the present worker's, or the slot's last one's. */
uint64_t psd_job_clock_of(const struct psd_job *job, const struct psd_session *s);
/* The furthest worker's, of those present, those that are gone, and those of the checkpoint. */
uint64_t psd_job_clock(const struct psd_job *job);
/* The clock with which a new worker begins. */
uint64_t psd_job_first_clock(const struct psd_job *job);
/* The command that admits the session. */
struct psd_lane_message psd_lane_message_admit(const struct psd_session *s, enum psd_phase phase,
                                               bool keep_replay);
void psd_job_admit(struct psd_job *job, struct psd_session *s, enum psd_phase phase, bool keep_replay);
/* Ends the session: from now on lanes refuse its frames with `code`, and its slot is free. */
void psd_job_end(struct psd_job *job, struct psd_session *s, uint32_t code, const char *why);
void psd_job_take_events(struct psd_job *job, struct psd_lane *lane);
void psd_job_take_message(struct psd_job *job, struct psd_lane *lane, const struct psd_lane_message *msg);
/* The job cannot continue: tells every client, and psd exits with this code. */
void psd_job_fail(struct psd_job *job, int code, const char *why);
void psd_job_update_rates(struct psd_job *job);
/* Another method is in force: hands its center to the lanes, if there is one, and admits waiting clients.
 * keeps_shares: the center still has the parts of workers that were lost. */
void psd_job_method_changed(struct psd_job *job, bool keeps_shares);
/* Admits clients whose Begin waited for a method change. */
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

/* Stores, logs and reports the first non-finite value. s: the session whose vector it was in; clock: its t;
 * index: of the value in the flat vector, UINT64_MAX if unknown; sent: a lane refused it, else the worker's
 * library did. Loop's thread. */
void psd_job_note_nonfinite(struct psd_job *job, const struct psd_session *s, uint64_t clock, uint64_t index,
                            bool sent);

/* slow_steps.c: ends sessions of members that take no step while others wait for them, if limits.step_s is
 * set. Call on every tick. */
void psd_steps_check(struct psd_job *job);
/* How long others have waited for the session's next step, in milliseconds. 0: none waits. */
uint64_t psd_steps_awaited_ms(const struct psd_job *job, const struct psd_session *s);

/* stop_conditions.c: drains the job when a condition of `stop` is met. */
void psd_stop_check(struct psd_job *job);

#endif
