/* outbox.h: messages in one direction between two servers that the other side has not taken yet. The
 * connection may lose messages: it breaks, or a queue of ZeroMQ is full. The sender numbers its messages and
 * stores each until it is taken; the receiver takes them in order, and ignores repeats and those after a
 * missing one. Messages that are not taken for a while are sent again. Used by the loop's thread. */
#ifndef PSD_CLUSTER_OUTBOX_H
#define PSD_CLUSTER_OUTBOX_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#define PSD_OUTBOX_MOST      16384 /* messages that are stored */
#define PSD_OUTBOX_RESEND_MS 1000  /* without progress */

struct psd_outbox_item {
    struct psd_outbox_item *next;
    uint64_t number;
    ProtobufCMessage *message; /* a copy */
};

/* All zero: empty, and the next number is 1. */
struct psd_outbox {
    struct psd_outbox_item *first, *last;
    uint64_t sent, taken; /* number of the last message sent, and of the last one taken */
    uint64_t moved_ms;    /* when a message was taken, or the first was put in or sent again */
};

/* Stores a copy under the next number, which is then o->sent. -ENOMEM; -ENOBUFS: too many are stored. */
int psd_outbox_put(struct psd_outbox *o, const ProtobufCMessage *m, uint64_t now_ms);
/* The other side has taken all messages up to this number. */
void psd_outbox_taken(struct psd_outbox *o, uint64_t number, uint64_t now_ms);
/* Whether it is time to send all of them again: none was taken for a while, and the other side was heard
 * since. Returns true once for each time. */
bool psd_outbox_is_due(struct psd_outbox *o, uint64_t heard_ms, uint64_t now_ms);
/* Drops all of them; the next number is 1. */
void psd_outbox_empty(struct psd_outbox *o);

#endif
