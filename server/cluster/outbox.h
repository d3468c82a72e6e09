/* outbox.h: messages of one direction between two servers that the other end has not taken yet. The transport
 * between them may lose some: a connection breaks, or a queue of ZeroMQ's is full. The sender numbers its
 * messages and keeps each until it is taken; the taker takes them in order, and passes by those that come
 * twice or after one that is missing. What is not taken for a while is sent again. Used by the loop's thread.
 */
#ifndef PSD_CLUSTER_OUTBOX_H
#define PSD_CLUSTER_OUTBOX_H

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdint.h>

#define PSD_OUTBOX_MOST      16384 /* messages that are kept */
#define PSD_OUTBOX_RESEND_MS 1000  /* without one taken */

struct psd_outbox_item {
    struct psd_outbox_item *next;
    uint64_t number;
    ProtobufCMessage *message; /* a copy */
};

/* All zero: empty, and the next number is 1. */
struct psd_outbox {
    struct psd_outbox_item *first, *last;
    uint64_t sent, taken; /* numbers of the last of each */
    uint64_t moved_ms;    /* when one was taken, or the first was put in or sent again */
};

/* Keeps a copy under the next number, which is o->sent then. -ENOMEM; -ENOBUFS: too many are kept. */
int psd_outbox_put(struct psd_outbox *o, const ProtobufCMessage *m, uint64_t now_ms);
/* The other end has taken all up to this number. */
void psd_outbox_taken(struct psd_outbox *o, uint64_t number, uint64_t now_ms);
/* Whether it is time to send all of them again: none was taken for a while, and the other end was heard
 * since. Returns true once for each time. */
bool psd_outbox_is_due(struct psd_outbox *o, uint64_t heard_ms, uint64_t now_ms);
/* Forgets all of them; the next number is 1. */
void psd_outbox_empty(struct psd_outbox *o);

#endif
