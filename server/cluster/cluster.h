/* cluster.h: the servers of one job. Each psd holds a part of the center, which its own lanes serve. Server 0
 * is the head: its loop alone decides (who is in the job, the members of rounds, partial rounds, snapshots,
 * the end), and clients have their sessions there. The others follow: commands to their lanes travel as
 * Orders, events of their lanes as News (proto/ps.proto), so that the files of the loop need not know where a
 * lane is. At the head another server's lane is a struct psd_lane without a thread, with the counters of the
 * last News.
 *
 * Messages between servers may be lost. Orders, and News with a lane's event, are numbered, stored and sent
 * again until the other side has taken them (outbox.h); all other messages describe the present state, which
 * the next one repeats. A slot that the head assigns to a server survives a broken connection: it ends when
 * the server is silent for limits.silence_s, or when another process takes over.
 *
 * A Welcome or a Begun may let a client use a lane. So the head holds them back until every server has taken
 * the Orders before them. Nothing else waits for a server.
 *
 * A server that is lost and comes back resumes from its newest checkpoint, at the clock recorded there, and
 * the job continues. If exchanges wait for each other (rounds, ssp) the parts would then be at different
 * rounds: in that case every server, including the head, restarts from the newest checkpoint that all of them
 * have, as after a restart of psd. */
#ifndef PSD_CLUSTER_CLUSTER_H
#define PSD_CLUSTER_CLUSTER_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <uv.h>

#include "proto/error.h"
#include "ps.pb-c.h"
#include "server/job/job.h"
#include "server/lane/lane.h"
#include "server/session/session.h"
#include "server/loop/timer.h"
#include "server/cluster/outbox.h"

struct psd;

enum psd_begin {
    PSD_BEGIN_GO_ON,  /* with its present state */
    PSD_BEGIN_ANEW,   /* without a center */
    PSD_BEGIN_FROM,   /* from the checkpoint of that version */
    PSD_BEGIN_ENLIST, /* not yet: register with this head first */
    PSD_BEGIN_TAKE,   /* not yet: apply the head's settings first, then register again */
};

/* The head's state of another server. */
struct psd_server {
    bool enlisted; /* it has registered, and has no slot yet */
    bool here;     /* it has a slot */
    uint64_t run, call, place;
    unsigned char peer[256];
    size_t peer_bytes;
    char name[64], address[64];
    char (*urls)[320]; /* [transports of the head][lanes of a server]; "": it lacks the transport */
    struct psd_outbox orders;
    uint64_t msgs;    /* the last numbered News that was taken */
    const char *lost; /* why it will be dropped at the next tick; NULL: it will not */
    uint64_t heard_ms;
    uint64_t n_lost;
    bool has_center, untouched;
    uint64_t manifest_hash, version;
    uint64_t job, reached;         /* the job of its part; the version of that when the previous psd ended */
    bool reached_exactly;          /* otherwise a lower bound */
    uint64_t saved[PSD_MAX_SAVED]; /* versions, in no order */
    uint32_t n_saved;
    bool has_saved;                       /* a checkpoint, as this psd knows: saved_version is its version */
    uint64_t saved_number, saved_version; /* from its last News, as are the next */
    char unsaved[200];                    /* why that one was not written; "": it was */
    uint64_t change;                      /* the last change that it has tried */
    char refused[400];                    /* why it cannot apply it; "": it can */
};

struct psd_held_message;

/* At the head. */
struct psd_head {
    uint64_t run;
    struct psd_server *servers;                    /* [count]; the head's own entry is unused */
    bool complete;                                 /* all have joined */
    struct psd_held_message *held_messages, **end; /* to clients */
    uint64_t deadline_ms;                          /* until all have joined */
    uint64_t dismissed_ms; /* when they were told that the job has ended; 0: not yet */
    uint64_t snapshots;    /* ordered so far */
    uint64_t changes;      /* of the configuration, tried so far */
    uint64_t places;       /* assigned so far */
    uint64_t ticked_ms;
    struct ps_log_limit log_limit;
};

/* At another server. */
struct psd_follower {
    void *context, *socket; /* connected to the head's control socket */
    uv_poll_t poll;
    uv_prepare_t prepare;
    struct psd_timer timer;
    bool placed, served; /* has a slot now; had one before */
    bool proving;        /* munged is creating a credential */
    uint64_t run, head_run, call;
    uint64_t place; /* assigned by the head; 0: none */
    uint64_t taken; /* number of the last Orders */
    struct psd_outbox msgs;
    uint64_t heard_ms, said_ms, began_ms;
    char head_url[320];              /* as last found */
    struct psd_members members, cut; /* as received; lanes read them */
    uint32_t lanes_released, lanes_filled;
    uint64_t saved_number, ordered;
    bool skipped;      /* a snapshot was ordered during the present write */
    char unsaved[200]; /* why the snapshot of saved_number was not written; "": it was */
    uint64_t change;   /* the last one tried */
    char refused[400]; /* why it cannot be applied; "": it can */
    uint32_t lanes_closed;
    Ps__Snapshot waiting; /* ordered during a write: the last one of the job */
    bool has_waiting;
    char stop[256]; /* why it was asked to stop; "": it was not */
    struct ps_log_limit log_limit;
};

/* Requests a restart of this psd, within the process, when the loop has ended. */
struct psd_restart_request {
    bool due, resume;
    uint64_t version; /* of the checkpoint; UINT64_MAX: the newest */
};

struct psd_cluster {
    /* The parts that it uses. */
    struct psd_config *cfg;
    uv_loop_t *loop;
    struct psd_lanes *lanes;
    struct psd_sessions *sessions;
    struct psd_sender *sender;
    struct psd_auth *auth;
    struct psd_job *job;
    /* All servers have joined; clients may join. */
    void (*completed)(struct psd *psd);
    struct psd *psd; /* for completed */

    struct psd_head head;
    struct psd_follower follower;
    struct psd_restart_request again;
};

/* head.c, at the head. With a single server these functions do nothing. -ENOMEM. */
int psd_cluster_open(struct psd_cluster *cluster);
void psd_cluster_close(struct psd_cluster *cluster);
/* Whether clients may join: all servers have. */
bool psd_cluster_is_complete(const struct psd_cluster *cluster);
/* The newest version that another server has reported. */
uint64_t psd_cluster_newest(const struct psd_cluster *cluster);
/* Whether a connected server is at a version of which it has no checkpoint. */
bool psd_cluster_is_unsaved(const struct psd_cluster *cluster);
void psd_cluster_news(struct psd_cluster *cluster, const struct psd_peer *peer, const Ps__News *m);
/* Sends a command to one lane, or, with NULL, to all lanes of the other servers. */
void psd_cluster_notify(struct psd_cluster *cluster, const struct psd_lane *lane,
                        const struct psd_lane_message *msg);
/* Orders the other servers' snapshots. */
void psd_cluster_save(struct psd_cluster *cluster, const Ps__Snapshot *snapshot, uint64_t round);
/* Takes over the message if it must wait; else returns false. */
bool psd_cluster_holds_back(struct psd_cluster *cluster, const unsigned char *peer, size_t peer_bytes,
                            const Ps__ToClient *m);
/* Whether the other servers can take a few commands for every client. */
bool psd_cluster_keeps_up(const struct psd_cluster *cluster);
void psd_cluster_tick(struct psd_cluster *cluster);
/* Changes of the configuration, see psd_job_hooks. */
int psd_cluster_check_here(const struct psd_cluster *cluster, struct ps_error *err);
int psd_cluster_try(struct psd_cluster *cluster, uint32_t generation, struct ps_error *err);
void psd_cluster_drop(struct psd_cluster *cluster);
void psd_cluster_make(struct psd_cluster *cluster);
/* Whether every connected server has completed the last snapshot, or failed to. */
bool psd_cluster_has_saved(const struct psd_cluster *cluster);
/* Whether all other servers have written their part of it. -EIO with a sentence: which one has not, and
 * why. */
int psd_cluster_check_saved(const struct psd_cluster *cluster, struct ps_error *err);
/* The job has ended: tells the other servers, repeatedly. Returns whether they know, or their time is up. */
bool psd_cluster_dismiss(struct psd_cluster *cluster);

/* register.c. A server registers with a description of its state, and gets a slot or a refusal. */
void psd_cluster_register(struct psd_cluster *cluster, const struct psd_peer *peer, const Ps__Enlist *m);
/* The newest checkpoint that all servers have; false: none. */
bool psd_cluster_common(const struct psd_cluster *cluster, uint64_t *version);

/* follower.c, at another server. */
int psd_follower_open(struct psd_cluster *cluster, struct ps_error *err);
void psd_follower_close(struct psd_cluster *cluster);
void psd_follower_take_events(struct psd_cluster *cluster, struct psd_lane *lane);
void psd_follower_tick(struct psd_cluster *cluster);
void psd_follower_stop(struct psd_cluster *cluster, const char *why); /* asks the head to end the job */
bool psd_follower_has_members(const struct psd_cluster *cluster);     /* whether its lanes have members */
void psd_follower_saved(struct psd_cluster *cluster);                 /* a snapshot was written, or failed */
/* Tells a client that connected here the address of the head. */
void psd_follower_redirect(struct psd_cluster *cluster, const struct psd_peer *peer);

/* messages.c: commands and events as protobuf messages. */
struct psd_packed_messages {
    Ps__Note msg;
    Ps__NoteMembers members;
    Ps__Tensor *tensors, **list;
};
/* lane: its index; UINT32_MAX: all. -ENOMEM. The result points into *msg until it is emptied. */
int psd_lane_message_pack(const struct psd_lane_message *msg, uint32_t lane, struct psd_packed_messages *out);
void psd_packed_messages_empty(struct psd_packed_messages *p);
/* Copies the members of a message to m, whose arrays have n_slots entries; false: they are out of range. */
bool psd_lane_message_members(const Ps__NoteMembers *from, uint32_t n_slots, struct psd_members *m);
/* News of this psd's own lanes, as an allocated array of n_lanes; NULL: no memory. */
Ps__LaneNews **psd_news_of_lanes(const struct psd_cluster *cluster);
void psd_news_free(Ps__LaneNews **lanes, uint32_t n_lanes);
/* Copies such News to the counters of another server's lane. */
void psd_news_take(const struct psd_cluster *cluster, struct psd_lane *lane, const Ps__LaneNews *news);

/* status.c */
void psd_cluster_metrics(FILE *f, const struct psd_cluster *cluster);

/* Finds a difference between two servers' configurations among the keys that must agree; "": none. */
void psd_cluster_compare(const char *head_json, const char *other_json, char *sentence, size_t size);

/* status.c: the servers of the job; this one first if it is not the head. */
json_t *psd_cluster_json(const struct psd_cluster *cluster);

#endif
