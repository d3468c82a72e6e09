/* psd.h: the daemon. struct psd owns every part and is passed down; all of it belongs to the loop's thread
 * but what server/lane/lane.h says is shared.
 *
 * Threads: the loop (libuv: control socket, sessions, timers, signals, status socket), one for each lane
 * (server/lane/lane.h), libzmq's I/O threads, and one of libuv's pool while a checkpoint is written. The loop
 * and a lane talk through two queues. */
#ifndef PSD_PSD_H
#define PSD_PSD_H

#include <jansson.h>
#include <uv.h>

#include "proto/unix_socket.h"
#include "server/auth/auth.h"
#include "server/center/center.h"
#include "server/config/config.h"
#include "server/config/settings.h"
#include "server/auth/rejected_peers.h"
#include "server/status/http.h"
#include "server/lane/lane.h"
#include "server/loop/timer.h"
#include "server/control/early.h"
#include "server/control/rendezvous.h"
#include "server/job/journal.h"
#include "server/job/loss.h"
#include "server/job/sd_notify.h"
#include "server/job/plateau.h"
#include "server/auth/munge.h"
#include "server/lane/transports.h"
#include "server/session/session.h"
#include "server/state_dir.h"
#include "server/cluster/cluster.h"

enum psd_state {
    PSD_STATE_WAITING,  /* no center yet */
    PSD_STATE_OFFERED,  /* the first worker's x is on its way */
    PSD_STATE_EMPTYING, /* that worker died: lanes let go of the center */
    PSD_STATE_READY,
    PSD_STATE_DRAINING, /* workers are told to stop */
    PSD_STATE_STOPPING, /* last checkpoint */
};

#define PSD_TICK_MS  200
#define PSD_SLEPT_MS 600 /* a look for silence this late means that psd itself stood still: three ticks */

/* The control socket's server end. */
struct psd_control {
    void *context, *socket;
    void *watch;                /* its ps_watch; NULL: none */
    char url[300];              /* as bound */
    struct ps_unix_socket file; /* of ipc */
    uv_poll_t poll;
    uv_prepare_t prepare;
    uv_idle_t more; /* active: messages were left for the loop's next turn */
    struct ps_log_limit log_limit;
    struct psd_early early;
};

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

/* Checkpoints: lanes copy, the loop counts, a pool thread writes. */
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

/* What a record of the history may tell of; the later ones outlive the others where memory is full. */
enum psd_event {
    PSD_EVENT_NONE,
    PSD_EVENT_END,
    PSD_EVENT_JOIN,
    PSD_EVENT_CHECKPOINT,
    PSD_EVENT_METHOD,
    PSD_EVENT_DRAIN
};

/* One line of history.jsonl. */
struct psd_record {
    double t_s; /* unix */
    uint64_t version;
    uint32_t workers;
    double updates_per_s, staleness, loss, test_loss, test_accuracy; /* NaN: not known */
    double center_norm, distance; /* ‖x̃‖, the largest ‖x − x̃‖ */
    enum psd_event kind;
    char *event; /* the sentence, owned by the history; NULL: none */
};

struct psd_history {
    struct psd_record *records;
    size_t n, max;
    int fd;                /* of history.jsonl; a thread of libuv's pool writes it */
    char *lines, *written; /* the loop's, [n_bytes]; the pool thread's while it writes, [n_written] */
    size_t n_bytes, n_written;
    uv_work_t work;
    bool writing;
    int rc;           /* of the write that is over: -errno */
    uint64_t n_lost;  /* lines that it has not written */
    uint64_t dropped; /* lines that are not in the file, in this run of psd */
    uint64_t last_version, last_ms;
    uint64_t last_t_ms; /* unix, of the newest record */
    uint64_t last_stale_sum, last_stale_count;
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

/* How far a change of the method is. See server/job/method_change.c. */
enum psd_method_change_phase {
    PSD_METHOD_CHANGE_NONE,
    PSD_METHOD_CHANGE_DUE,      /* the center is not ready, or is being saved */
    PSD_METHOD_CHANGE_ASKING,   /* the other servers try it */
    PSD_METHOD_CHANGE_CLOSING,  /* lanes finish what has begun and take nothing else */
    PSD_METHOD_CHANGE_EMPTYING, /* they let go of the old center */
};

/* Of what a configuration is made. */
struct psd_recipe {
    struct psd_config base;            /* as the file and the options gave it, not settled */
    char settings[PSD_SETTINGS_BYTES]; /* above it: what was set while the job runs */
};

struct psd_method_change {
    enum psd_method_change_phase phase;
    bool again;                /* a reload came meanwhile */
    struct psd_config next;    /* to be in force */
    struct psd_recipe recipe;  /* of that */
    struct psd_center *center; /* made for it; NULL while there is none to go on from */
    bool method;               /* changes; else only what does not concern lanes */
    bool agreed;               /* of several servers: the others have tried it, */
    bool with_center;          /* with a center, or without one */
    uint32_t generation;       /* of it, at a server that is not the head */
    uint64_t closings;         /* so far: numbers of CLOSE */
    uint32_t lanes_left;
    uint64_t released; /* bits of lanes that have let go of the center */
    uint64_t deadline_ms;
    uint64_t n_changes;
};

/* The configuration that is read again, and what is set above it; see server/job/reload.c. */
struct psd_reloader {
    struct psd_config_source source;
    struct psd_recipe recipe; /* of the configuration in force */
    uint64_t recorded;        /* the change that psd_journal_has when DIR/job has the settings */
    uint64_t n_applied, n_unchanged, n_refused;
    struct ps_error last; /* of the last one; "" : it was fine */
};

/* Who takes part, and where the lanes stand. See server/job/membership.c. */
struct psd_membership {
    bool started; /* the first set is out */
    bool revived; /* a session of the psd before goes on */
    bool holding; /* lanes have been asked to hold */
    bool join_due, save_due;
    uint64_t owed;  /* bits of lanes that have not said that they hold */
    uint64_t away;  /* of lanes of servers that are lost */
    uint64_t first; /* round that no lane has begun; without rounds, the slowest's clock */
    struct psd_members members;
};

/* Rounds that are made of some members' messages. See server/job/partial_rounds.c. */
struct psd_partial_client;
struct psd_partial_rounds {
    struct psd_partial_client *clients; /* [n_slots] */
    uint32_t *candidates, n;            /* for the open round, as they came */
    struct psd_members cut;             /* of the round closed last; lanes read it while it is under way */
    uint64_t lanes_under_way;           /* bits of those that are not through it */
    uint64_t n_closed;                  /* rounds, in this run of psd */
    bool grace_is_over;                 /* of the open round */
    uint64_t dropped;                   /* exchanges that were late */
    struct psd_timer timer;             /* of the open round's grace, or of looks at the one under way */
};

/* What a folder asks of one above it. Filled in by psd_run. */
struct psd_hooks {
    /* session/: whether the message waits until lanes elsewhere have heard what was told before it. */
    bool (*holds_back)(struct psd *d, const unsigned char *peer, size_t peer_bytes, const Ps__ToClient *m);
    /* auth/: the peer has proved who it is. */
    void (*proved)(struct psd *d, const struct psd_peer *peer, const Ps__Hello *m);
    void (*proved_server)(struct psd *d, const struct psd_peer *peer, const Ps__Enlist *m);
    /* job/, cluster/: Welcome, to everybody who has a session. */
    void (*welcome_all)(struct psd *d);
    /* job/: the checkpoint is written, or failed; the other servers write theirs, and have; a lane elsewhere
     * is told, or all of them where lane is NULL. */
    void (*saved)(struct psd *d);
    void (*save_others)(struct psd *d, const Ps__Snapshot *snapshot, uint64_t round);
    bool (*others_saved)(const struct psd *d);
    void (*command_remote)(struct psd *d, const struct psd_lane *lane, const struct psd_lane_message *msg);
    /* job/: the other servers try what d->swap is to change, of this generation: psd_method_change_tried
     * tells how it went. And they drop it, or make it. Before: whether all are here; -EAGAIN with a sentence:
     * one is not.
     */
    int (*check_others)(const struct psd *d, struct ps_error *err);
    int (*try_others)(struct psd *d, uint32_t generation, struct ps_error *err);
    void (*drop_others)(struct psd *d);
    void (*make_others)(struct psd *d);
    /* cluster/: all servers are here, clients may come. */
    void (*complete)(struct psd *d);
};

struct psd {
    struct psd_config cfg;
    struct psd_hooks hooks;
    uv_loop_t loop;
    enum psd_state state;
    struct psd_shared shared;
    struct psd_transports transports;
    struct psd_lane **lanes; /* [n_lanes]: its own, at the head followed by other servers' */
    uint32_t n_lanes, n_own;
    uv_poll_t *lane_polls; /* [n_own]: notes from the lanes */
    struct psd_cluster cluster;
    struct psd_follower follower;
    struct psd_restart_request again;
    int exit_code; /* of psd_job_fail */
    struct psd_center *center;
    bool center_whole;           /* every value of it has come, from an offer or a checkpoint */
    struct psd_snapshot resumed; /* what --resume read; its replay table */
    char resumed_from[400];
    uint64_t resumed_version;
    uint64_t job;          /* which it is, over all runs of psd; 0 at a follower: not known yet */
    uint32_t names_before; /* incarnations up to here were given by runs before this */
    struct psd_journal journal;
    struct psd_loss loss;
    uint32_t lanes_filled, lanes_unfilled, lanes_released;
    struct psd_sessions sessions;
    struct psd_control control;
    struct psd_auth auth;
    struct psd_rejected_peers rejected_peers;
    struct psd_munge munge;
    struct psd_rendezvous rendezvous;
    struct psd_membership membership;
    struct psd_partial_rounds partial_rounds;
    struct psd_method_change method_change;
    struct psd_plateau plateau;
    struct psd_reloader reload;
    struct psd_checkpointer checkpointer;
    struct psd_history history;
    struct psd_evaluation evaluation;
    struct psd_nonfinite nonfinite;
    const char *stop_met;   /* the condition of `stop` that was; NULL: none */
    char drain_reason[256]; /* "" : not draining */
    struct ps_error end;    /* why the job has not ended well; "" : it has, or it has not ended */
    struct psd_http *http;
    int state_lock; /* state_dir.h */
    struct psd_timer tick;
    struct psd_notify notify;
    uv_signal_t sigterm, sigint, sighup, sigusr1;
    uint64_t started_ms, drain_deadline_ms;
    uint64_t ready_ms; /* when the center was */
    uint64_t started_unix_ms;
    uint64_t checked_ms; /* when silence was last looked for */
    uint32_t n_stops;    /* SIGTERMs and drains */
    uint64_t rejected_control[PSD_N_CODES];
};

struct psd_start {
    bool resume, fresh;
    uint64_t version;                /* of the checkpoint to resume; UINT64_MAX: the newest */
    char listen[300];                /* where it was bound before it began anew; "" : as configured */
    struct psd_config_source source; /* of the configuration, for reloads; outlives psd_run */
    struct psd_recipe recipe;        /* of the configuration that psd begins with; nothing is set yet */
    bool unset;                      /* resume without what was set while the job ran */
};

/* Exit codes of psd. */
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

/* psd.c: everything up and until the end. Returns the exit code; logs what failed. */
int psd_run(const struct psd_config *cfg, const struct psd_start *start);

/* server/job/job.c: the center's life and membership; tells the lanes. */
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

/* server/job/slow_steps.c: ends sessions of members that take no step while others wait for them, where
 * limits.step_s says so. On every tick. */
void psd_steps_check(struct psd *d);
/* For how long others have waited for the session's next step. 0: nobody does. */
uint64_t psd_steps_awaited_ms(const struct psd *d, const struct psd_session *s);

/* server/job/membership.c: a job with members begins when there are enough; they change between rounds.
 * Nothing to do under other admissions. */
int psd_membership_init(struct psd *d); /* -ENOMEM */
void psd_membership_finish(struct psd *d);
void psd_membership_joined(struct psd *d); /* a worker has become active, or may have become enough */
void psd_membership_reset(struct psd *d);  /* the lanes have let go of the center */
void psd_membership_save(struct psd *d);   /* the lanes copy the center after a round that none has begun */
void psd_membership_held(struct psd *d, const struct psd_lane *lane, uint64_t first);
/* The server of these lanes (bits) is lost, or back. While psd drains nothing waits for lanes that are away.
 */
void psd_membership_away(struct psd *d, uint64_t lanes, bool away);
void psd_membership_drain(struct psd *d); /* psd drains from now on */
/* The method has changed: begins anew with everyone who is active. */
void psd_membership_method_changed(struct psd *d);

/* server/job/another_server.c, at a server that is not the head: tries what the head says is to be set, which
 * is kept for psd_method_change_make and the lanes' notes; drops it; makes it. -EINVAL and others: it cannot.
 */
int psd_method_change_try(struct psd *d, const char *settings, uint32_t generation, struct ps_error *err);
void psd_method_change_drop(struct psd *d);
void psd_method_change_make(struct psd *d);
/* Notes of the head to all lanes here, before they are told: CLOSE; let go of the center, which is of this
 * version then. False: nothing was tried, and they are not told. */
bool psd_method_change_close_own(struct psd *d);
bool psd_method_change_empty_own(struct psd *d, uint64_t version);
/* A lane here has let go of the center: the last one's change is made, and lanes have the next. */
void psd_method_change_released_own(struct psd *d);
/* What the recipe makes, against the configuration in force: whether the method changes, or other keys.
 * -EINVAL with a sentence: it is not valid, or may not change. */
int psd_recipe_cook(struct psd *d, const struct psd_recipe *recipe, struct psd_config *next, bool *method,
                    bool *others, struct ps_error *err);
/* From now on the configuration in force is of this recipe: all of it but the method's keys. */
void psd_recipe_take(struct psd *d, const struct psd_recipe *recipe, const struct psd_config *next);

/* server/job/reload.c: reads the configuration again and puts it in force, the method by a swap. 1: it does;
 * 0: nothing has changed; -EINVAL and others: it was refused and nothing changes. */
int psd_reload(struct psd *d, struct ps_error *err);
/* The same of the configuration in force with these lines of KEY=VALUE above it, or without what was set for
 * these keys; the file is not read. What is set is kept for a resume. -EBUSY: the method changes just now. */
int psd_set(struct psd *d, const char *lines, struct ps_error *err);
int psd_unset(struct psd *d, const char *keys, struct ps_error *err);
/* What is set, or will be when the change of the method that is due has been made. */
const char *psd_settings_now(const struct psd *d);
/* When psd goes on with a job: what was set while that ran, from its record, into d->cfg. -EINVAL: it does
 * not go with the configuration. */
int psd_settings_resume(struct psd *d, bool from_checkpoint, struct ps_error *err);

/* server/job/method_change.c: changes the method of the running job to what `next` says, which is made of the
 * recipe. -E2BIG, -ENOMEM: nothing changes. */
int psd_method_change_begin(struct psd *d, const struct psd_config *next, const struct psd_recipe *recipe,
                            struct ps_error *err);
/* The same where there are other servers, also of keys that are not the method's: they try it first. */
int psd_method_change_begin_all(struct psd *d, const struct psd_config *next, const struct psd_recipe *recipe,
                                bool method, struct ps_error *err);
/* All others have tried it; refused: one of them cannot, and says why. NULL: they can. */
void psd_method_change_tried(struct psd *d, const char *refused);
/* Another server, which has these lanes (bits), is lost: a change that can still be dropped is. */
void psd_method_change_server_lost(struct psd *d, uint64_t lanes, const char *who);
/* Nothing more of the exchange will land, at no server. */
void psd_method_change_give_up(struct psd *d, uint32_t client, uint64_t name);
/* Whether lanes are about to change hands: nobody joins, nothing is saved, no set of members is made. */
bool psd_method_change_is_closing(const struct psd *d);
void psd_method_change_check(struct psd *d); /* what it waited for may have come; on every tick */
void psd_method_change_closed(struct psd *d, uint64_t number);
void psd_method_change_released(struct psd *d, const struct psd_lane *lane);
void psd_method_change_cancel(struct psd *d); /* psd drains or ends: a swap that has not begun is dropped */

/* server/job/partial_rounds.c: which exchanges make a round, under admissions that do not wait for all.
 * Nothing to do under others.
 */
int psd_partial_rounds_init(struct psd *d); /* -ENOMEM */
void psd_partial_rounds_finish(struct psd *d);
void psd_partial_rounds_reset(struct psd *d); /* the lanes have let go of the center */
/* Notes of a lane: an exchange has begun there; it is through the round. */
void psd_partial_rounds_begun(struct psd *d, const struct psd_lane *lane, const struct psd_lane_message *msg);
void psd_partial_rounds_over(struct psd *d, const struct psd_lane *lane, uint64_t round);
void psd_partial_rounds_forget(struct psd *d,
                               uint32_t client); /* its session has ended, and the lanes know */
void psd_partial_rounds_consider(struct psd *d); /* there are other members */
/* Exchanges of the client's session that came too late for their round. */
uint64_t psd_partial_rounds_dropped(const struct psd *d, uint32_t client);

/* server/control/control.c */
/* listen: "" : as configured. */
int psd_control_open(struct psd *d, const char *listen, struct ps_error *err);
/* All servers are here: hears the Hellos that came before. */
void psd_control_take_early(struct psd *d);
void psd_control_close(struct psd *d);
void psd_control_begun(struct psd *d, struct psd_session *s, bool offer);
void psd_control_parked(struct psd *d, struct psd_session *s, const char *reason);
void psd_control_error(struct psd *d, const struct psd_session *s, uint32_t code, bool fatal,
                       const char *sentence);
void psd_control_drain(struct psd *d, const char *reason);
/* Whether the vector that s has offered is wanted. */
void psd_control_reported(struct psd *d, struct psd_session *s, uint64_t offer, bool wanted);
/* Asks every worker to save its part beside the center's checkpoint of this version. */
void psd_control_save(struct psd *d, uint64_t version);

/* server/control/handshake.c: Hello, new and taken up again. */
void psd_hello(struct psd *d, const struct psd_peer *peer, const Ps__Hello *m);
/* Of a peer whose identity is known, where that is asked for. */
void psd_hello_proved(struct psd *d, const struct psd_peer *peer, const Ps__Hello *m);
void psd_control_refuse(struct psd *d, const struct psd_peer *peer, uint32_t code, const char *sentence);
/* To a client of that job. */
void psd_control_refuse_of(struct psd *d, const struct psd_peer *peer, uint64_t job, uint32_t code,
                           const char *sentence);
/* Welcome, to everybody who has a session. */
void psd_hello_again(struct psd *d);
/* To a client: after what lanes were told before, wherever they are. */
int psd_control_send_to(struct psd *d, const unsigned char *peer, size_t peer_bytes, const Ps__ToClient *m);
/* At once. */
int psd_control_send_now(struct psd *d, const unsigned char *peer, size_t peer_bytes, const Ps__ToClient *m);
int psd_control_send_bytes(struct psd *d, const unsigned char *peer, size_t peer_bytes, const void *bytes,
                           size_t len);

/* server/job/checkpointer.c */
int psd_checkpointer_start(struct psd *d,
                           struct ps_error *err); /* -EAGAIN: no center yet; asks for one more when busy */
void psd_checkpointer_snapped(struct psd *d, bool lacks); /* one lane has copied, or has what it waited for */
/* Tells the lanes, everywhere, to copy; under rounds after so many of them. */
void psd_checkpointer_take(struct psd *d, uint64_t round);
/* What the head ordered; -EAGAIN: one is being written, or there is no center. */
int psd_checkpointer_order(struct psd *d, const Ps__Snapshot *s, uint64_t round);
/* Whether this psd's last checkpoint is written, when it ends. -EIO with a sentence: what is lost, and why.
 */
int psd_checkpointer_check_end(const struct psd *d, struct ps_error *err);
/* The center is new: takes its first checkpoint, where there are to be any. */
void psd_checkpointer_begin(struct psd *d);
void psd_checkpointer_check_due(struct psd *d);
/* Of this psd's directory. The files are read at the first call, for a model, and after each write, there by
 * the pool thread. */
const struct psd_saved_versions *psd_checkpointer_versions(struct psd *d, uint64_t manifest_hash);
/* What was put off while the method changed. */
void psd_checkpointer_go_on(struct psd *d);
/* An evaluation came: its vector is asked for when it is the best so far and checkpoint.keep_best. Who offers
 * one is told whether it is wanted, now or when lanes can take it. */
void psd_checkpointer_evaluated(struct psd *d, const struct psd_evaluation *e);
/* Gives up a vector that does not come; now: also one that might still. On every tick. */
void psd_checkpointer_check_vector(struct psd *d, bool now);
/* Learns of the best checkpoint that is there: the job's own after a resume, or another's. */
void psd_checkpointer_find_best(struct psd *d);

/* server/job/stop_conditions.c: drains the job when a condition of `stop` is met. */
void psd_stop_check(struct psd *d);

/* server/job/nonfinite.c: remembers, logs and shows the first non-finite value. s: whose vector it was;
 * clock: its t; index: of the value in the flat vector, UINT64_MAX when not known; sent: a lane refused it,
 * else the worker's library did. Loop's thread. */
void psd_job_note_nonfinite(struct psd *d, const struct psd_session *s, uint64_t clock, uint64_t index,
                            bool sent);

/* server/job/stats.c: sums over lanes, and the history. */
struct psd_totals {
    uint64_t chunks, replays, pulled, set;
    uint64_t bytes_in[PSD_MAX_TRANSPORTS], bytes_out[PSD_MAX_TRANSPORTS];
    uint64_t rejected[PSD_N_CODES], rejected_sum;
    uint64_t staleness[PSD_STALENESS_BUCKETS], staleness_sum;
    uint64_t center_bytes, snapshot_bytes, state_bytes, average_bytes, window_bytes, replay_bytes;
    uint64_t lent_bytes; /* of clients' own memory, where lanes work in it in place */
};
void psd_stats_totals(const struct psd *d, struct psd_totals *t);
/* Of all that counts against limits.memory_gib. */
uint64_t psd_stats_memory_bytes(const struct psd_totals *t);
/* Tells lanes how much of limits.memory_gib clients may lend. */
void psd_stats_limit_lent(struct psd *d);
/* What a client's window may take in psd: received and not yet sent. */
uint64_t psd_stats_window_bytes(const struct psd *d);
/* Of a client's last exchange: *distance is ‖x − x̃‖, *update ‖update‖; NaN where the rule's message does not
 * tell or there was none. Returns whether either is known. Loop's thread. */
bool psd_stats_norms(const struct psd *d, uint32_t client, double *distance, double *update);
/* Chunks of the client's exchange *seq that lanes hold back, among members, until others' have come. */
uint32_t psd_stats_waiting(const struct psd *d, uint32_t client, uint64_t *seq);
double psd_stats_center_norm(const struct psd *d); /* ‖x̃‖; NaN: not known */
json_t *psd_json_record(const struct psd_record *r);
int psd_history_open(struct psd *d, struct ps_error *err);
void psd_history_close(struct psd *d);
void psd_history_tick(struct psd *d);
/* Whether lines wait for the disk: not to be closed then, but for a failed write. */
bool psd_history_is_writing(const struct psd *d);
/* A record at once. */
void psd_history_add(struct psd *d);
/* The same, of an event. */
void psd_history_tell(struct psd *d, enum psd_event kind, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* server/status/status.c, server/status/metrics.c: what the status socket answers. */
extern const struct psd_http_route psd_routes[];
/* Answers those who wait for psd's end: it ends now, and d->end says whether well. */
void psd_tell_end(struct psd *d);
char *psd_metrics_text(struct psd *d);

/* Whether this is server 0; whether it has others to lead. */
static inline bool psd_is_head(const struct psd *d)
{
    return d->cfg.servers.index == 0;
}

static inline bool psd_has_cluster(const struct psd *d)
{
    return d->cfg.servers.count > 1 && psd_is_head(d);
}

static inline uint64_t psd_version(const struct psd *d)
{
    return atomic_load_explicit(&d->shared.version, memory_order_relaxed);
}

/* Whether an evaluation may decide something: a share, of a center that this psd has (after a resume an
 * evaluator may still report one that was lost). */
static inline bool psd_evaluation_counts(const struct psd *d, const struct psd_evaluation *e)
{
    return e->accuracy >= 0 && e->accuracy <= 1 && e->version <= psd_version(d);
}

#endif
