/* cluster.h: the servers of one job. Each psd holds a part of the center, which its own lanes serve; server 0
 * is the head: its loop alone decides (who is in the job, the members of rounds, cuts, snapshots, the end),
 * and clients have their sessions there. The others follow: what the head's loop tells a lane of theirs
 * travels as Orders, what such a lane tells the loop as News (proto/ps.proto), so that the loop's own files
 * do not know which lane is where. At the head another server's lane is a struct psd_lane without a thread,
 * whose counters are as the last News had them.
 *
 * Messages between servers may be lost. Orders, and News that have a note of a lane, are numbered, kept and
 * sent again until the other end has taken them (outbox.h); all others say how things stand, and the next one
 * says it again. A place that the head gives to a server outlives a broken connection: it ends when the
 * server is silent for limits.silence_s, or when its process is another.
 *
 * A Welcome or a Begun may let a client turn to a lane. So the head holds them back until every server has
 * taken the Orders before them. Nothing else waits for a server.
 *
 * A server that is lost and comes back begins from its newest checkpoint, at the clock that this states, and
 * the job goes on. Where exchanges wait for each other (rounds, ssp) that would leave the parts at different
 * rounds: there every server, the head too, begins anew from the newest checkpoint that all of them have, as
 * after a restart of psd. */
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
    PSD_BEGIN_GO_ON,  /* as it is */
    PSD_BEGIN_ANEW,   /* without a center */
    PSD_BEGIN_FROM,   /* from the checkpoint of that version */
    PSD_BEGIN_ENLIST, /* not yet: it is to enlist with this head */
    PSD_BEGIN_TAKE,   /* not yet: it is to take what is set at the head, and enlist again */
};

/* Another server, as the head sees it. */
struct psd_server {
    bool enlisted; /* it has said what it has, and is not placed yet */
    bool here;     /* placed */
    uint64_t run, call, place;
    unsigned char peer[256];
    size_t peer_bytes;
    char name[64], address[64];
    char (*urls)[320]; /* [transports of the head][lanes of a server]; "": it has no such transport */
    struct psd_outbox orders;
    uint64_t msgs;    /* the last numbered News that was taken */
    const char *lost; /* at the next tick: why; NULL: it is not */
    uint64_t heard_ms;
    uint64_t n_lost;
    bool has_center, untouched;
    uint64_t manifest_hash, version;
    uint64_t job, reached; /* that its part is of; the version that it had when the psd before ended */
    bool reached_exactly;  /* else it may have been more */
    uint64_t saved[PSD_MAX_SAVED]; /* versions, in no order */
    uint32_t n_saved;
    uint64_t saved_number, saved_version; /* as its last News had them, as are the next */
    char unsaved[200];                    /* why that one is not written; "" : it is */
    uint64_t change;                      /* the last that it has tried */
    char refused[400];                    /* why not; "" : it may be made */
};

struct psd_held_message;

/* Of the head. */
struct psd_head {
    uint64_t run;
    struct psd_server *servers;                    /* [count]; the head's own is unused */
    bool complete;                                 /* all have been here */
    struct psd_held_message *held_messages, **end; /* to clients, held back */
    uint64_t deadline_ms;                          /* until all have come */
    uint64_t dismissed_ms; /* when they were told that the job has ended; 0: not yet */
    uint64_t snapshots;    /* ordered so far */
    uint64_t changes;      /* of the configuration, tried so far */
    uint64_t places;       /* given so far */
    uint64_t ticked_ms;
    struct ps_log_limit log_limit;
};

/* Of another server. */
struct psd_follower {
    void *context, *socket; /* to the head's control socket */
    uv_poll_t poll;
    uv_prepare_t prepare;
    struct psd_timer timer;
    bool placed, served; /* now; ever */
    bool proving;        /* munged makes a credential */
    uint64_t run, head_run, call;
    uint64_t place; /* as the head gave it; 0: none */
    uint64_t taken; /* Orders */
    struct psd_outbox msgs;
    uint64_t heard_ms, said_ms, began_ms;
    char head_url[320];              /* as it was last found */
    struct psd_members members, cut; /* as told; lanes read them */
    uint32_t lanes_released, lanes_filled;
    uint64_t saved_number, ordered;
    char unsaved[200]; /* why the snapshot of saved_number is not written; "" : it is */
    uint64_t change;   /* the last that was tried */
    char refused[400]; /* why it may not be made; "" : it may */
    uint32_t lanes_closed;
    Ps__Snapshot waiting; /* ordered while one is being written: the last of the job */
    bool has_waiting;
    char stop[256]; /* why it was asked to stop; "" : it was not */
    struct ps_log_limit log_limit;
};

/* Begins this psd anew, within the process, when the loop has ended. */
struct psd_restart_request {
    bool due, resume;
    uint64_t version; /* of the checkpoint; UINT64_MAX: the newest */
};

struct psd_cluster {
    /* What it works with. */
    struct psd_config *cfg;
    uv_loop_t *loop;
    struct psd_lanes *lanes;
    struct psd_sessions *sessions;
    struct psd_sender *sender;
    struct psd_auth *auth;
    struct psd_job *job;
    /* All servers are here, clients may come. */
    void (*completed)(struct psd *psd);
    struct psd *psd; /* for completed */

    struct psd_head head;
    struct psd_follower follower;
    struct psd_restart_request again;
};

/* head.c, at the head. With one server none of them does anything. -ENOMEM. */
int psd_cluster_open(struct psd_cluster *cluster);
void psd_cluster_close(struct psd_cluster *cluster);
/* Whether clients may come: all servers have been here. */
bool psd_cluster_is_complete(const struct psd_cluster *cluster);
/* The newest version that another server has told of. */
uint64_t psd_cluster_newest(const struct psd_cluster *cluster);
void psd_cluster_news(struct psd_cluster *cluster, const struct psd_peer *peer, const Ps__News *m);
/* A note for one lane, or with NULL for all of the other servers'. */
void psd_cluster_notify(struct psd_cluster *cluster, const struct psd_lane *lane,
                        const struct psd_lane_message *msg);
/* The others' snapshots. */
void psd_cluster_save(struct psd_cluster *cluster, const Ps__Snapshot *snapshot, uint64_t round);
/* Takes the message over when it has to wait; else false. */
bool psd_cluster_holds_back(struct psd_cluster *cluster, const unsigned char *peer, size_t peer_bytes,
                            const Ps__ToClient *m);
/* Whether the others can take a few notes for every client. */
bool psd_cluster_keeps_up(const struct psd_cluster *cluster);
void psd_cluster_tick(struct psd_cluster *cluster);
/* Changes of the configuration, as psd_job_hooks has them. */
int psd_cluster_check_here(const struct psd_cluster *cluster, struct ps_error *err);
int psd_cluster_try(struct psd_cluster *cluster, uint32_t generation, struct ps_error *err);
void psd_cluster_drop(struct psd_cluster *cluster);
void psd_cluster_make(struct psd_cluster *cluster);
/* Whether every server that is here has settled the last snapshot. */
bool psd_cluster_has_saved(const struct psd_cluster *cluster);
/* Whether all other servers have written their part of it. -EIO with a sentence: who has not, and why. */
int psd_cluster_check_saved(const struct psd_cluster *cluster, struct ps_error *err);
/* The job has ended: tells the others, and again and again whether they know, or have had their time. */
bool psd_cluster_dismiss(struct psd_cluster *cluster);

/* register.c. A server says what it has, and is placed or told why not. */
void psd_cluster_register(struct psd_cluster *cluster, const struct psd_peer *peer, const Ps__Enlist *m);

/* follower.c, at another server. */
int psd_follower_open(struct psd_cluster *cluster, struct ps_error *err);
void psd_follower_close(struct psd_cluster *cluster);
void psd_follower_take_events(struct psd_cluster *cluster, struct psd_lane *lane);
void psd_follower_tick(struct psd_cluster *cluster);
void psd_follower_stop(struct psd_cluster *cluster, const char *why); /* asks the head to end the job */
bool psd_follower_has_members(const struct psd_cluster *cluster);     /* whether its lanes know of any */
void psd_follower_saved(struct psd_cluster *cluster);                 /* the saver is done with one */
/* A client that came here is told where the head is. */
void psd_follower_redirect(struct psd_cluster *cluster, const struct psd_peer *peer);

/* messages.c: notes as they travel. */
struct psd_packed_messages {
    Ps__Note msg;
    Ps__NoteMembers members;
    Ps__Tensor *tensors, **list;
};
/* lane: its index; UINT32_MAX: all. -ENOMEM. The parcel points into the note until emptied. */
int psd_lane_message_pack(const struct psd_lane_message *msg, uint32_t lane, struct psd_packed_messages *out);
void psd_packed_messages_empty(struct psd_packed_messages *p);
/* The members of a note, into m, whose arrays have room for n_slots; false when they are out of range. */
bool psd_lane_message_members(const Ps__NoteMembers *from, uint32_t n_slots, struct psd_members *m);
/* What News says of this psd's own lanes, into which an array of n_lanes is allocated; NULL: no memory. */
Ps__LaneNews **psd_news_of_lanes(const struct psd_cluster *cluster);
void psd_news_free(Ps__LaneNews **lanes, uint32_t n_lanes);
/* The same into the counters of another server's lane. */
void psd_news_take(const struct psd_cluster *cluster, struct psd_lane *lane, const Ps__LaneNews *news);

/* status.c */
void psd_cluster_metrics(FILE *f, const struct psd_cluster *cluster);

/* A difference between two servers' configurations, in what they must agree on: "" : none. */
void psd_cluster_compare(const char *head_json, const char *other_json, char *sentence, size_t size);

/* status.c: the servers of the job, this one first where it is not the head. */
json_t *psd_cluster_json(const struct psd_cluster *cluster);

#endif
