/* wire.h: the messages of the connection set-up, and rdma URLs. Needs no RDMA library.
 *
 * The private data of the connection manager's messages, little-endian. A request has 56 bytes, the maximum
 * for RDMA_PS_TCP in an InfiniBand REQ:
 *
 *   request: 0 magic  4 version  8 client  12 incarnation  16 token  32 slots  36 rkey  40 slot_bytes  48
 *   address
 *   accept:  0 magic  4 version  8 slots   12 rkey   16 slot_bytes  24 address
 *   reject:  0 magic  4 errno    8 a sentence, zero-terminated
 *
 * A slot holds a header of PS_FRAME_BYTES followed by a body. Slot n of the client receives the answers to
 * slot n of the port. Each message is a write to the other end's slot with its number as immediate data; an
 * empty write with PS_RDMA_DROPPED set means that the message in that slot will not be answered. */
#ifndef PS_TRANSPORTS_RDMA_WIRE_H
#define PS_TRANSPORTS_RDMA_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "proto/error.h"
#include "proto/transports/transport.h"

#define PS_RDMA_MAGIC         0x52445350u /* "PSDR" */
#define PS_RDMA_VERSION       1u
#define PS_RDMA_REQUEST_BYTES 56
#define PS_RDMA_ACCEPT_BYTES  32
#define PS_RDMA_REJECT_BYTES  128 /* at most; 148 fit */
#define PS_RDMA_MAX_SLOTS     1024u
#define PS_RDMA_DROPPED       0x80000000u

/* The slots that the other end may write to. */
struct ps_rdma_slots {
    uint32_t n, rkey;
    uint64_t slot_bytes, address;
};

struct ps_rdma_request {
    uint32_t client, incarnation;
    unsigned char token[PS_PASS_TOKEN_BYTES];
    struct ps_rdma_slots answers;
};

void ps_rdma_request_pack(const struct ps_rdma_request *r, unsigned char *data);
/* -EPROTO with a sentence: not a valid request, another version, or impossible slots. */
int ps_rdma_request_parse(struct ps_rdma_request *r, const void *data, size_t len_bytes,
                          struct ps_error *err);
void ps_rdma_accept_pack(const struct ps_rdma_slots *s, unsigned char *data);
int ps_rdma_accept_parse(struct ps_rdma_slots *s, const void *data, size_t len_bytes, struct ps_error *err);
/* Returns the length. */
size_t ps_rdma_reject_pack(int code, const char *sentence, unsigned char *data);
/* The -errno of a reject and its sentence in *err; -EPROTO: it is not from psd. */
int ps_rdma_reject_parse(const void *data, size_t len_bytes, struct ps_error *err);

/* Compares the tokens in constant time. */
bool ps_rdma_token_is(const unsigned char *token, const unsigned char *other);

/* rdma://HOST:PORT, HOST a name, an IPv4 address, [IPv6], or * (passive only: every interface). Resolves
 * names, which may wait for a name server; -errno with a sentence that names the URL. */
int ps_rdma_resolve(const char *url, bool passive, struct sockaddr_storage *at, socklen_t *len,
                    struct ps_error *err);
/* rdma://HOST:0 for a control socket at tcp://HOST:PORT: the row's lane_url. */
void ps_rdma_lane_url(const char *control_url, uint32_t lane, char *url, size_t size);
/* HOST:PORT of an address, IPv6 in brackets. */
void ps_rdma_address_text(const struct sockaddr *at, char *text, size_t size);

#endif
