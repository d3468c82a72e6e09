/* psd.h: the daemon. struct psd owns every part and is passed down; all of it belongs to the loop's thread
 * but what server/lane/lane.h says is shared.
 *
 * Threads: the loop (libuv: control socket, sessions, timers, signals, status socket), one for each lane
 * (server/lane/lane.h), libzmq's I/O threads, and one of libuv's pool while a checkpoint is written. The loop
 * and a lane talk through two queues. */
#ifndef PSD_PSD_H
#define PSD_PSD_H

#include <uv.h>

#include "server/auth/auth.h"
#include "server/auth/munge.h"
#include "server/auth/rejected_peers.h"
#include "server/cluster/cluster.h"
#include "server/config/config.h"
#include "server/control/control.h"
#include "server/job/job.h"
#include "server/lane/transports.h"
#include "server/session/send.h"
#include "server/status/status.h"

#define PSD_TICK_MS  200
#define PSD_SLEPT_MS 600 /* a look for silence this late means that psd itself stood still: three ticks */

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

#endif
