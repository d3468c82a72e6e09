/* session.h: who is in the job. Owned by the loop; lanes are told by notes. */
#ifndef PSD_SESSION_SESSION_H
#define PSD_SESSION_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/model/manifest.h"
#include "proto/transports/transport.h"

struct psd_grant;

#define PSD_MAX_MEMBERS 1024                /* of a clique */
#define PSD_MAX_STEPS   (UINT64_C(1) << 48) /* that a worker may mean to take */

enum psd_session_state {
    PSD_SESSION_VACANT,
    PSD_SESSION_JOINING,  /* welcomed; its Begin has not come */
    PSD_SESSION_PARKED,   /* its Begin waits until there is a center */
    PSD_SESSION_OFFERING, /* sends the initial x */
    PSD_SESSION_ACTIVE,
};

/* What a client last reported; NaN: not known. */
struct psd_metrics {
    double loss, accuracy, samples_per_second;
};

/* How fast a worker computes, and how often it exchanges. */
struct psd_session_pace {
    uint32_t incarnation;    /* whose it is */
    double steps_per_second; /* of computing alone; 0: not known */
    uint32_t period;         /* as planned; 0: not yet */
};

/* Whether others wait for a member's next step; see server/job/slow_steps.c. */
struct psd_session_step {
    bool awaited;
    uint64_t seen;     /* of its steps, at the last look */
    uint64_t since_ms; /* loop's clock: it has been waited for since then, and taken none */
};

struct psd_session {
    enum psd_session_state state;
    bool observer;
    uint32_t client;                         /* index in the table; the rank of a worker */
    uint32_t incarnation;                    /* of the session now or last here; 0: never used */
    uint64_t token;                          /* of its first Hello; 0: none */
    bool revived;                            /* it began in a run of psd before this one */
    unsigned char pass[PS_PASS_TOKEN_BYTES]; /* shown by links that attach to lanes */
    bool may_attach;                         /* it has one */
    char road[16];                           /* as it last said of its data connection; "": not yet */
    char road_why[160];                      /* and why not a faster one; "": there is none */
    char name[64];
    char net[64];   /* what it trains, as it says; "": it does not */
    char data[128]; /* and on what */
    uint64_t steps; /* that it means to take; 0: it does not say */
    uint32_t heartbeat_ms;
    char address[64];
    char identity[64];       /* who it has proved to be; "": nobody, peers prove nothing */
    uint64_t identity_id;    /* its number (server/auth/auth.h); 0: none */
    unsigned char peer[256]; /* identity at the control socket */
    size_t peer_bytes;
    uint64_t last_heard_ms; /* loop's clock */
    uint64_t joined_ms, ended_ms;
    char end[96]; /* why the last session here ended; incarnation, name, address, metrics and so on are its */
    uint64_t
        reserved_until_ms; /* after a restart: the slot of a client in the checkpoint, which may come back */
    uint32_t awaited;     /* while it is vacant: the session of a run before whose place it is; 0: nobody's */
    bool was_active;      /* that took part in the last one */
    uint64_t recorded;    /* the journal's change that has the session */
    uint64_t begun_by_ms; /* Begun is to be said when that is written, at the latest then; 0: it has been */
    uint64_t clock;
    uint32_t members;           /* of the clique that a worker leads, itself included; at least 1 */
    bool took_part;             /* a worker of this rank takes part in this run of psd, or did and was lost */
    struct ps_manifest *parked; /* of PSD_SESSION_PARKED, owned */
    struct psd_metrics metrics;
    struct psd_session_pace tempo;
    struct psd_session_step step;
    struct {
        uint32_t incarnation; /* whose it is */
        uint64_t number;      /* 0: none yet */
        bool answered, wanted;
    } offer; /* the last vector that it has offered for the best checkpoint */
};

/* Where it is at the control socket, in id_bytes bytes. */
struct psd_peer {
    const unsigned char *id;
    size_t id_bytes;
    const char *address;
    const struct psd_grant *grant; /* of the key that it has shown; NULL: peers show none. This turn's */
    const char *identity;          /* who it has proved to be; NULL: nobody */
};

struct psd_sessions {
    struct psd_session *slots; /* [n_slots]: workers first, by rank, then observers */
    uint32_t n_workers_max, n_slots;
    uint32_t incarnation; /* the highest given out */
    uint64_t job;         /* theirs, over all runs of psd; 0 at a follower: not known yet */
};

int psd_sessions_init(struct psd_sessions *s, uint32_t clients);
void psd_sessions_finish(struct psd_sessions *s);

/* Not heard for five of its heartbeats, at least 5 s, at most half of silence_s (limits.silence_s): it may be
 * gone, or stand still. It is in the job until silence_s has passed, and what is shown of the job does not
 * count it. */
bool psd_session_is_silent(const struct psd_session *s, uint64_t now_ms, uint32_t silence_s);
uint32_t psd_sessions_count_silent(const struct psd_sessions *s, bool observer, uint64_t now_ms,
                                   uint32_t silence_s);

/* The live session of (client, incarnation), or NULL. */
struct psd_session *psd_sessions_find(struct psd_sessions *s, uint32_t client, uint32_t incarnation);
/* The live session that began with this token, or NULL. */
struct psd_session *psd_sessions_find_token(struct psd_sessions *s, uint64_t token);
/* A slot of the kind that is vacant and not reserved, of these ranks (a bitmap; NULL: of any): the lowest, or
 * NULL when there is none. */
struct psd_session *psd_sessions_vacant(struct psd_sessions *s, bool observer, const uint64_t *ranks,
                                        uint64_t now_ms);
/* Live workers (p) or observers. */
uint32_t psd_sessions_count(const struct psd_sessions *s, bool observer);
/* Those workers, each with the members of the clique that it leads. */
uint32_t psd_sessions_members(const struct psd_sessions *s);
uint32_t psd_sessions_count_in(const struct psd_sessions *s, bool observer, enum psd_session_state state);

#endif
