/* session.h: the clients in the job. Owned by the loop; lanes learn of sessions by commands. */
#ifndef PSD_SESSION_SESSION_H
#define PSD_SESSION_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/model/manifest.h"
#include "proto/transports/transport.h"

struct psd_grant;

#define PSD_MAX_MEMBERS 1024 /* of a clique */

enum psd_session_state {
    PSD_SESSION_VACANT,
    PSD_SESSION_JOINING,  /* welcomed; its Begin has not arrived */
    PSD_SESSION_PARKED,   /* its Begin waits for a center */
    PSD_SESSION_OFFERING, /* sends the initial x */
    PSD_SESSION_ACTIVE,
};

/* The last report of a client; NaN: unknown. */
struct psd_metrics {
    double loss, accuracy, samples_per_second;
};

/* The speed of a worker and its period. */
struct psd_session_speed {
    uint32_t incarnation;    /* of the session that it belongs to */
    double steps_per_second; /* of computation only; 0: unknown */
    uint32_t period;         /* as planned; 0: not yet */
};

/* Whether others wait for a member's next step; see server/job/slow_steps.c. */
struct psd_session_step {
    bool awaited;
    uint64_t seen;     /* its steps, at the last look */
    uint64_t since_ms; /* loop's clock: awaited since then without a step */
};

struct psd_session {
    enum psd_session_state state;
    bool observer;
    uint32_t client;                         /* index in the table; a worker's rank */
    uint32_t incarnation;                    /* of the present or last session here; 0: never used */
    uint64_t token;                          /* of its first Hello; 0: none */
    bool revived;                            /* it began in an earlier run of psd */
    unsigned char pass[PS_PASS_TOKEN_BYTES]; /* the token that links show to attach to lanes */
    bool may_attach;                         /* it has a token */
    char transport[16];                      /* of its data connection, as last reported; "": not yet */
    char transport_reason[160];              /* why it does not use a faster one; "": none */
    char name[64];
    char net[64];   /* name of its model, as reported; "": none */
    char data[128]; /* name of its data set */
    uint64_t steps; /* planned steps; 0: unknown */
    uint32_t heartbeat_ms;
    bool at_next_step; /* its library applies an answer at the next step, whatever parameters.overlap says */
    char address[64];
    char identity[64];       /* authenticated identity; "": none, peers are not authenticated */
    uint64_t identity_id;    /* its number (server/auth/auth.h); 0: none */
    unsigned char peer[256]; /* identity at the control socket */
    size_t peer_bytes;
    uint64_t last_heard_ms; /* loop's clock */
    uint64_t joined_ms, ended_ms;
    char end[96]; /* why the last session here ended; incarnation, name, address, metrics and so on describe
                     that session */
    uint64_t reserved_until_ms; /* after a restart: until then the slot is reserved for a client of the
                                   checkpoint; 0: it is not, or had a session since */
    uint32_t awaited;      /* while it is vacant: the earlier session for which it is reserved; 0: none */
    bool was_active;       /* that session was active */
    uint64_t recorded;     /* the journal's change that includes the session */
    uint64_t begun_by_ms;  /* send Begun when that change is written, or at this time; 0: it was sent */
    uint64_t clock;        /* the worker's t, as last told */
    uint64_t first_clock;  /* the same when it began, unless it has loaded a state; see psd_job_first_clock */
    uint32_t members;      /* of the clique that a worker leads, including itself; at least 1 */
    uint32_t members_left; /* of those, after losses */
    bool told;             /* the log and the history tell of its begin and end */
    uint32_t n_roads_told; /* times that transport_reason has changed */
    bool took_part;        /* a worker of this rank takes part in this run of psd, or did and was lost */
    struct ps_manifest *parked; /* of PSD_SESSION_PARKED, owned */
    struct psd_metrics metrics;
    struct psd_session_speed speed;
    struct psd_session_step step;
    struct {
        uint32_t incarnation; /* of the session that it belongs to */
        uint64_t number;      /* 0: none yet */
        bool answered, wanted;
    } offer; /* the last vector that it has offered for the best checkpoint */
    struct {
        uint32_t incarnation; /* of the session that it belongs to */
        uint64_t number;      /* 0: none yet */
        bool waits;           /* at a barrier */
        bool sets;            /* the change of a SetMethod was requested */
        bool done;            /* answered, with `refused` */
        char refused[400];    /* "": it was done */
    } request;                /* its last Barrier or SetMethod */
    uint64_t barrier;         /* the last barrier that it has passed; PSD_NO_BARRIER; 0: unknown */
};

/* A barrier's number: the highest incarnation given out when it was passed, above 32 bits of a count. Whoever
 * has passed none took part in all from its own incarnation on, so nobody needs to know the last one. */
#define PSD_NO_BARRIER 1

/* A peer at the control socket: its address there, in id_bytes bytes. */
struct psd_peer {
    const unsigned char *id;
    size_t id_bytes;
    const char *address;
    /* of the peer's key; NULL: peers have no keys. Valid during this iteration of the loop */
    const struct psd_grant *grant;
    const char *identity; /* authenticated identity; NULL: none */
};

struct psd_sessions {
    struct psd_session *slots; /* [n_slots]: workers first, by rank, then observers */
    uint32_t n_workers_max, n_slots;
    uint32_t incarnation; /* the highest given out */
    uint64_t job;         /* the job's number over all runs of psd; 0 at a follower: not known yet */
    uint64_t barrier;     /* the job's last barrier; PSD_NO_BARRIER. After a restart as workers have told */
    /* psd_sessions_may_tell: those told of, less two a second up to told_ms; and those not told of since
     * untold_ms. */
    uint64_t n_told, told_ms, n_untold, untold_ms;
};

int psd_sessions_init(struct psd_sessions *s, uint32_t clients);
void psd_sessions_finish(struct psd_sessions *s);

/* Whether no message was received for five of its heartbeats, at least 5 s, at most half of limits.silence_s:
 * it may be gone or paused. It remains in the job until silence_s has passed, but status output does not
 * count it. */
bool psd_session_is_silent(const struct psd_session *s, uint64_t now_ms, uint32_t silence_s);
uint32_t psd_sessions_count_silent(const struct psd_sessions *s, bool observer, uint64_t now_ms,
                                   uint32_t silence_s);

/* Whether the log and the history tell of a session that begins now: of the begin of all slots and again of
 * all, and beyond that of two a second. A program that joins and leaves in a loop would fill the disk. Logs
 * once a minute how many they have left out. */
bool psd_sessions_may_tell(struct psd_sessions *s, uint64_t now_ms);

/* The live session of (client, incarnation), or NULL. */
struct psd_session *psd_sessions_find(struct psd_sessions *s, uint32_t client, uint32_t incarnation);
/* The live session that began with this token, or NULL. */
struct psd_session *psd_sessions_find_token(struct psd_sessions *s, uint64_t token);
/* The lowest slot of the kind that is vacant and not reserved, among these ranks (a bitmap; NULL: any); NULL
 * if there is none. */
struct psd_session *psd_sessions_vacant(struct psd_sessions *s, bool observer, const uint64_t *ranks,
                                        uint64_t now_ms);
/* Whether a worker of an earlier run may still come back. */
bool psd_sessions_await_worker(const struct psd_sessions *s, uint64_t now_ms);
/* Number of live workers (p) or observers. */
uint32_t psd_sessions_count(const struct psd_sessions *s, bool observer);
/* Number of those workers, counting all members of the cliques that they lead. */
uint32_t psd_sessions_members(const struct psd_sessions *s);
uint32_t psd_sessions_count_in(const struct psd_sessions *s, bool observer, enum psd_session_state state);

#endif
