/* queue.h: messages between the loop and a lane: commands and events. One thread pushes, one takes; neither
 * ever waits. */
#ifndef PSD_LANE_QUEUE_H
#define PSD_LANE_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/transports/transport.h"

enum psd_lane_message_kind {
    /* loop to lane */
    PSD_COMMAND_SLICE,    /* p: struct psd_center; NULL: release it, answered by RELEASED */
    PSD_COMMAND_ADMIT,    /* client, incarnation, a: enum psd_phase, b: 1 keeps a replay entry of that
                             incarnation; p: name of the identity, for other servers */
    PSD_COMMAND_END,      /* client, a: the Ps__Code with which later frames are refused. For the worker that
                             offers: answered by UNFILLED unless FILLED was sent */
    PSD_COMMAND_SNAPSHOT, /* p: struct psd_snapshot; a: under rounds, after how many. Answered by SNAPPED when
                             the lane has copied everything; it serves meanwhile */
    PSD_COMMAND_KEEP,     /* p: struct psd_snapshot, whose center receives the vector that client, incarnation
                             sends; answered by SNAPPED. p NULL: stop waiting for missing chunks */
    PSD_COMMAND_HOLD, /* with members: apply nothing until GO; answered by HELD. a: 1 at once, and no answer:
                         all sessions end */
    PSD_COMMAND_MEMBERS, /* p: struct psd_members, valid until the next HOLD is answered */
    PSD_COMMAND_GO,
    PSD_COMMAND_CLOSE_ROUND, /* p: struct psd_members with seqs, the members of round `from`; valid until
                                every lane has sent OVER */
    PSD_COMMAND_LATE, /* client, a: an exchange that is in no round, or no longer in the current one; b: it is
                         answered with the center after this many rounds. Settles a BEGUN, or revokes a
                         CLOSE_ROUND for one member */
    PSD_COMMAND_CLOSE, /* a: a number. The method is about to change: only exchanges that have begun are
                          accepted; answered by CLOSED */
    PSD_COMMAND_OPEN,  /* the change was dropped: revokes CLOSE */
    PSD_COMMAND_STOP,
    /* lane to loop */
    PSD_LANE_FILLED,   /* every chunk of the slice was offered */
    PSD_LANE_UNFILLED, /* the offering worker's session ended before that; also from a lane without a slice */
    PSD_LANE_RELEASED,
    PSD_LANE_SNAPPED, /* a: 1 if part of a received vector is missing */
    PSD_LANE_HELD,    /* a: the first round that this lane has not begun; without rounds, the slowest member's
                         clock */
    PSD_LANE_BEGUN,  /* in partial rounds: client, incarnation, a: exchange that has begun here, b: the fewest
                        rounds in the values it is based on. The client's next one follows when CLOSE_ROUND or
                        LATE has settled this one */
    PSD_LANE_LANDED, /* the same for an exchange that had landed here before psd was restarted */
    PSD_LANE_OVER,   /* a: the round of a CLOSE_ROUND that has ended here */
    PSD_LANE_CLOSED, /* a: the number of the CLOSE */
    PSD_LANE_WHOLE, /* after CLOSE: client, incarnation, a: name of the exchange that has landed in every lane
                       of this psd that it goes to; b: 1 if it never will, at any server */
    PSD_COMMAND_BEGAN, /* between servers, in both directions, after CLOSE: client, a: name of its newest
                          exchange that has begun; b: the servers that it goes to, as bits */
    PSD_LANE_FAULT,    /* client, incarnation, a: Ps__Code, b: float of PS__CODE__VALUE: the lane ended this
                          session. At most one for each ADMIT */
};

struct psd_lane_message {
    enum psd_lane_message_kind kind;
    uint32_t client;
    uint32_t incarnation;
    uint64_t a, b;
    uint64_t identity; /* of ADMIT: the identity that owns the session; 0: peers are not authenticated */
    unsigned char pass[PS_PASS_TOKEN_BYTES]; /* of ADMIT: the token with which links attach, if `attaches` */
    bool attaches;
    void *p;
};

struct psd_queue {
    _Atomic uint32_t pushed;
    _Alignas(64) _Atomic uint32_t taken;
    int wake_fd;   /* eventfd: readable after a push */
    uint32_t mask; /* number of messages, a power of two, minus 1 */
    struct psd_lane_message *msgs;
};

/* Messages that can be outstanding between the loop and a lane for this many clients: a few for each client
 * that joins, leaves or exchanges (see the kinds above), and those for all clients. Sessions that come and go
 * faster than a lane takes its commands are delayed. */
static inline uint32_t psd_queue_commands_for(uint32_t n_slots)
{
    return 7 * n_slots + 512;
}

/* A queue with room for n_notes messages. -ENOMEM; -errno if the system has no descriptors. */
int psd_queue_init(struct psd_queue *r, uint32_t n_notes);
void psd_queue_finish(struct psd_queue *r);
/* Pushes and wakes the taker. A full queue is a bug of psd. */
void psd_queue_push(struct psd_queue *r, const struct psd_lane_message *msg);
/* Wakes the taker without a message. Any thread. */
void psd_queue_wake(struct psd_queue *r);
bool psd_queue_take(struct psd_queue *r, struct psd_lane_message *msg);
/* Messages that can be pushed now; the taker only increases it. Pusher's thread. */
uint32_t psd_queue_room(const struct psd_queue *r);
/* Makes wake_fd unreadable; call before taking messages. */
void psd_queue_calm(struct psd_queue *r);

#endif
