/* wire.h: the handshake of the shm transport, with its two messages in little-endian, and the validity of
 * requests, as pure functions. */
#ifndef PS_TRANSPORTS_SHM_WIRE_H
#define PS_TRANSPORTS_SHM_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "proto/transports/transport.h"
#include "proto/wire/frame.h"

#define PS_SHM_MAGIC   0x314d5350u /* "PSM1" */
#define PS_SHM_VERSION 3

enum {
    PS_SHM_HELLO_BYTES = 72,
    PS_SHM_REPLY_BYTES = 32,
    PS_SHM_MAX_WINDOW = 4096, /* slots a client may have */
};

/* From the link, once, with the descriptors of its buffers. */
struct ps_shm_hello {
    uint32_t client, incarnation;
    unsigned char token[PS_PASS_TOKEN_BYTES];
    uint32_t window;    /* requests in flight that it asks for, 1 to PS_SHM_MAX_WINDOW */
    uint32_t n_buffers; /* up to PS_MAX_BUFFERS */
    uint64_t buffer_bytes[PS_MAX_BUFFERS];
};

/* From the port, once. If status is 0, with the descriptors of the region, of the port's bell, and of an
 * event that wakes the link. */
struct ps_shm_reply {
    uint32_t status; /* an errno */
    uint32_t n_slots;
    uint64_t slot_bytes;
};

/* out: PS_SHM_HELLO_BYTES, PS_SHM_REPLY_BYTES. */
void ps_shm_hello_pack(const struct ps_shm_hello *h, unsigned char *out);
void ps_shm_reply_pack(const struct ps_shm_reply *r, unsigned char *out);
/* -EPROTO with a sentence for another magic or values out of range; -EPROTONOSUPPORT for another version. */
int ps_shm_hello_parse(struct ps_shm_hello *h, const unsigned char *in, struct ps_error *err);
int ps_shm_reply_parse(struct ps_shm_reply *r, const unsigned char *in, struct ps_error *err);

/* Sizes of a region, as the port has set them. */
struct ps_shm_shape {
    uint32_t n_slots;
    uint64_t slot_bytes; /* whole pages */
};

#define PS_SHM_STAGED  UINT32_MAX /* buffer: the body is in the slot */
#define PS_SHM_DROPPED UINT64_MAX /* bytes of an answer: there is none; the slot is free again */

/* An entry of a ring, read into private memory. */
struct ps_shm_note {
    uint32_t slot;
    uint32_t buffer; /* PS_SHM_STAGED, or the number of the registered buffer that contains the body */
    uint64_t offset; /* in that buffer */
    uint64_t bytes;  /* of the body */
    bool copies;     /* a request's: the body in the buffer is to be copied to the slot, and left alone */
    unsigned char head[PS_FRAME_BYTES];
};

/* Checks that a request refers to an existing slot, buffer and range. taken[slot]: the port has it. -EPROTO
 * with a sentence. */
int ps_shm_request_check(const struct ps_shm_note *n, const struct ps_shm_shape *shape,
                         const unsigned char *taken, const uint64_t *buffer_bytes, uint32_t n_buffers,
                         struct ps_error *err);

#endif
