/* queue.h: notes between the loop and a lane. One thread pushes, one takes; neither ever waits. */
#ifndef PSD_LANE_QUEUE_H
#define PSD_LANE_QUEUE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "proto/transports/transport.h"

enum psd_lane_message_kind {
    /* loop to lane */
    PSD_COMMAND_SLICE,    /* p: struct psd_center, or NULL to let go of it; answered by RELEASED then */
    PSD_COMMAND_ADMIT,    /* client, incarnation, a: enum psd_phase, b: 1 keeps a replay entry of that
                          incarnation;    p: name of the identity, for other servers */
    PSD_COMMAND_END,      /* client, a: the Ps__Code that its later frames are refused with. Of who offers,
                          answered by UNFILLED where FILLED was not said */
    PSD_COMMAND_SNAPSHOT, /* p: struct psd_snapshot; a: under rounds, after how many of them; answered by
                          SNAPPED when the lane has copied all of it, which goes on serving meanwhile */
    PSD_COMMAND_KEEP,     /* p: struct psd_snapshot, whose center is to be the vector that client, incarnation
                          sends;     answered by SNAPPED. p NULL: what has not come of it is not waited for */
    PSD_COMMAND_HOLD,     /* admissions with members: apply nothing until GO; answered by HELD */
    PSD_COMMAND_MEMBERS,  /* p: struct psd_members, valid until the next HOLD is answered */
    PSD_COMMAND_GO,
    PSD_COMMAND_CLOSE_ROUND, /* p: struct psd_members with seqs, whom the round `from` is made of; valid until
                     every lane has said OVER */
    PSD_COMMAND_LATE,  /* client, a: exchange that is in no round, or no longer in the one that is under way,
                       b:  the center after so many rounds is its answer. Settles a BEGUN, or takes back what a
                       CUT  said of one */
    PSD_COMMAND_CLOSE, /* a: a number. The method is about to change: only exchanges that have begun go on;
                       answered by CLOSED */
    PSD_COMMAND_OPEN,  /* it does not change after all: what CLOSE has said no longer holds */
    PSD_COMMAND_STOP,
    /* lane to loop */
    PSD_LANE_FILLED,   /* every chunk of the slice was offered */
    PSD_LANE_UNFILLED, /* who offered has ended before; also of a lane without a slice */
    PSD_LANE_RELEASED,
    PSD_LANE_SNAPPED, /* a: 1 when not all of a vector to keep has come */
    PSD_LANE_HELD,  /* a: the first round that this lane has not begun; without rounds, the slowest's clock */
    PSD_LANE_BEGUN, /* under cuts: client, incarnation, a: exchange that has begun here, b: the least rounds
                       behind the values it was made of. The next one of this client when CUT or LATE has
                       settled this one */
    PSD_LANE_LANDED, /* the same of one that has landed here, before psd was restarted */
    PSD_LANE_OVER,   /* a: the round of the CUT that is over here */
    PSD_LANE_CLOSED, /* a: the number of the CLOSE */
    PSD_LANE_WHOLE, /* after CLOSE: client, incarnation, a: name of the exchange that has landed in every lane
                       of this psd that it goes to; b: 1 when it never will, wherever it goes to */
    PSD_COMMAND_BEGAN, /* between servers, both ways, after CLOSE: client, a: name of its newest exchange that
                       has begun; b: bits of the servers that it goes to */
    PSD_LANE_FAULT,    /* client, incarnation, a: Ps__Code, b: float of PS__CODE__VALUE: the lane ended this
                          session. One for each ADMIT at most */
};

struct psd_lane_message {
    enum psd_lane_message_kind kind;
    uint32_t client;
    uint32_t incarnation;
    uint64_t a, b;
    uint64_t identity; /* of ADMIT: number of who owns the session; 0: peers prove nothing */
    unsigned char pass[PS_PASS_TOKEN_BYTES]; /* of ADMIT: with which links attach, where attaches */
    bool attaches;
    void *p;
};

struct psd_queue {
    _Atomic uint32_t pushed;
    _Alignas(64) _Atomic uint32_t taken;
    int wake_fd;   /* eventfd: readable after a push */
    uint32_t mask; /* the number of notes, a power of two, less 1 */
    struct psd_lane_message *msgs;
};

/* Notes that can be outstanding between the loop and a lane for so many clients: of each that comes, goes or
 * exchanges a few (see the kinds above; sessions that come and go faster than a lane takes its notes are put
 * off), and what is said to all. */
static inline uint32_t psd_queue_commands_for(uint32_t n_slots)
{
    return 7 * n_slots + 512;
}

/* With room for n_notes. -ENOMEM; -errno when the system has no descriptors. */
int psd_queue_init(struct psd_queue *r, uint32_t n_notes);
void psd_queue_finish(struct psd_queue *r);
/* Pushes and wakes the taker. A full queue is a bug of ours. */
void psd_queue_push(struct psd_queue *r, const struct psd_lane_message *msg);
/* Wakes the taker without a note. Any thread. */
void psd_queue_wake(struct psd_queue *r);
bool psd_queue_take(struct psd_queue *r, struct psd_lane_message *msg);
/* Notes that can be pushed now; the taker can only make it more. Pusher's thread. */
uint32_t psd_queue_room(const struct psd_queue *r);
/* Makes wake_fd unreadable; call before taking what is there. */
void psd_queue_calm(struct psd_queue *r);

#endif
