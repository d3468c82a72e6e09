/* session.h: the session with the server, and the thread that keeps it alive.
 *
 * The service thread (control_thread.c) owns the control socket: it sends Hello and heartbeats, and
 * reconnects. Everything it shares with other threads is struct psc_shared, under its lock. It writes to
 * wake_fd when something has changed that a waiting transfer must see; other threads write to command_fd
 * (psc_session_poke) when the service thread has something to do. */
#ifndef PSC_SESSION_SESSION_H
#define PSC_SESSION_SESSION_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/psclient.h"
#include "client/session/control_socket.h"
#include "client/session/errors.h"
#include "client/session/welcome.h"
#include "proto/error.h"
#include "proto/model/manifest.h"
#include "proto/model/method.h"
#include "proto/model/shard.h"

enum psc_state {
    PSC_STATE_CONNECTING, /* no Welcome yet, or none since the server was lost */
    PSC_STATE_JOINED,
    PSC_STATE_ENDED, /* for good: see result */
};

/* Counters of the data connection, as psc_info reports them. */
struct psc_counts {
    uint64_t exchanges, retries, bytes_sent, bytes_received;
    uint64_t center_version; /* of the last answer */
    float rate;              /* as the server last applied it */
};

struct psc_shared {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* CLOCK_MONOTONIC */
    enum psc_state state;
    int result; /* of PSC_STATE_ENDED */
    struct ps_error why;
    struct ps_error trouble; /* why the server could not be reached at the last attempt; "": it was found */
    uint64_t epoch;          /* number of Welcomes so far: links of an older one are dead */
    struct psc_welcome welcome;
    uint32_t workers;
    uint64_t job;                    /* the server's job that we are in; 0: not known */
    uint64_t center_version;         /* the newest seen */
    uint64_t versions[PS_MAX_PARTS]; /* of each part, as the last transfer that touched it saw */
    _Atomic bool under_way;          /* an exchange is in progress, or was cut; set without the lock */
    uint64_t clock;                  /* t, for heartbeats */
    uint64_t ended;          /* the number of the last transfer that has ended, but for pulls; 0: none */
    double steps_per_second; /* without the time that exchanges took, for heartbeats; 0: not known */
    /* For heartbeats: the transport of the links, and why no better one is in use. */
    char transport[16], transport_why[160];
    bool beat_now;   /* send a heartbeat at once */
    uint32_t period; /* the period that the server last sent this worker; 0: none */
    bool draining;
    bool begun, offer;                  /* Begun has arrived; it asked for our x */
    bool parked;                        /* the server has said that Begin waits */
    const struct ps_manifest *manifest; /* to send Begin with; the caller's, unchanged until close */
    bool send_begin, send_leave, stop;
    bool has_report;
    struct psc_metrics report;
    bool keeps_best;         /* the server may want the vector behind an evaluation */
    uint64_t report_offer;   /* the number of the vector that `report` offers; 0: none */
    uint64_t n_offers;       /* so far */
    uint64_t answered_offer; /* the last offer that the server has answered */
    bool offer_wanted;       /* its answer */
    struct {
        uint64_t number;   /* of the last request of the caller's; 0: none yet */
        uint64_t answered; /* of the last that the server has answered */
        bool is_barrier;   /* else lines of settings */
        bool send;         /* send it, or send it again */
        const char *lines; /* the caller's, until it is answered */
        char refused[400]; /* the answer */
    } request;
    uint64_t barrier;   /* the last barrier that is behind us, as the server numbers them; 0: unknown */
    bool has_nonfinite; /* a vector was refused: the server is to be told */
    uint64_t nonfinite_clock, nonfinite_index;
    uint64_t reconnects;
    uint64_t revivals;     /* times that the server came back from a checkpoint */
    uint64_t revival;      /* of the last Welcome; 0: the session was never revived in that server's run */
    uint64_t save_version; /* the center's version when the server last asked to save */
    uint64_t heard;        /* answers to heartbeats, and Welcomes */
    uint64_t beats;        /* heartbeats sent */
    /* Exchanges on each track up to this one had landed when the newest Welcome was sent. */
    uint64_t landed_seq[PS_MAX_TRACKS];
    uint64_t waiting_seq;     /* the exchange of which the server last said that it holds chunks back */
    uint32_t waiting_chunks;  /* how many */
    int give_up;              /* the transfer in progress is to end with this result; PSC_OK: it continues */
    struct ps_hyper hyper;    /* of the welcome that transfers use */
    struct psc_counts counts; /* as of the last transfer */
};

struct psc_session {
    const struct psc_options *opt; /* the handle's */
    struct psc_proof proof;
    uint64_t token;                /* tells this handle's Hellos from others' */
    uint32_t members;              /* of the clique that this client stands for, as it joined */
    _Atomic uint32_t members_left; /* of those, after losses; 0: all */
    pid_t owner;                   /* the process that opened the handle */
    struct psc_shared shared;
    bool ready;     /* shared.lock and shared.changed exist */
    int wake_fd;    /* service thread to the thread that runs a transfer */
    int command_fd; /* other threads to the service thread */
    pthread_t thread;
    bool runs;
    bool interrupted; /* options.go_on has ended a wait */
    double asked_s;   /* when options.go_on was last called */
    /* Written by the thread that runs transfers: the server holds all that is in flight for other workers. */
    atomic_bool held;
};

/* Starts the service thread. PSC_OK, or PSC_ESYSTEM with a sentence. */
int psc_session_start(struct psc_session *s, struct ps_error *err);
/* Leaves the job and ends the thread; nothing if it does not run. */
void psc_session_stop(struct psc_session *s);
/* The same, before the handle is closed: the session is over, and later calls end with `result` and the
 * sentence. */
void psc_session_leave(struct psc_session *s, int result, const char *sentence);
/* Wakes the service thread: shared has something for it to do. */
void psc_session_poke(struct psc_session *s);
/* Passes a sentence to the caller's log (options.log). Not with the lock held. */
void psc_session_say(struct psc_session *s, const char *sentence);

/* For the caller's thread, without locks. Asks options.go_on, at most about ten times a second, whether the
 * wait is to continue. If not, the transfer in progress and every later call end with PSC_EINTERRUPTED. */
void psc_ask_to_go_on(struct psc_session *s);
/* How long a wait may last before psc_ask_to_go_on is called again. */
double psc_ask_again_s(const struct psc_session *s);
/* Ends the transfer in progress, and those queued behind it, with `result`, unless an earlier call gave
 * another. */
void psc_give_up(struct psc_session *s, int result);

/* PSC_EINVAL with a sentence in a child of fork: it has a copy of the handle, but none of its threads. */
int psc_check_process(const struct psc_session *s, const char *call, struct ps_error *err);
/* The same, and PSC_EINTERRUPTED when an earlier call was interrupted: only psc_close is allowed then. */
int psc_check_use(const struct psc_session *s, const char *call, struct ps_error *err);

#endif
