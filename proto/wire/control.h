/* control.h: packs and unpacks the control messages of ps.proto within bounds. */
#ifndef PS_WIRE_CONTROL_H
#define PS_WIRE_CONTROL_H

#include <stddef.h>

#include "ps.pb-c.h"

#define PS_CONTROL_MAX_BYTES (16u << 20) /* of a message; a manifest of 65536 tensors fits */

/* NULL if the bytes are not such a message, or would unpack into more than four times PS_CONTROL_MAX_BYTES.
 * Free with the matching function. */
Ps__ToServer *ps_control_unpack_to_server(const void *bytes, size_t len_bytes);
void ps_control_free_to_server(Ps__ToServer *m);
Ps__ToClient *ps_control_unpack_to_client(const void *bytes, size_t len_bytes);
void ps_control_free_to_client(Ps__ToClient *m);

/* Sends m as one part of a message on a ZeroMQ socket, without waiting. 0 or -errno (EAGAIN, EHOSTUNREACH,
 * EMSGSIZE). */
int ps_control_send(void *socket, const ProtobufCMessage *m);
/* The same to a peer of a ROUTER socket. The message is packed before the peer's identity is sent: an
 * identity that no message follows would make the next one, of another peer, this peer's. */
int ps_control_send_to(void *socket, const void *peer, size_t peer_bytes, const ProtobufCMessage *m);

#endif
