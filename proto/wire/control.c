#include "proto/wire/control.h"

#include <errno.h>
#include <stdlib.h>
#include <zmq.h>

/* A few bytes can encode many small structs, so the unpacked size is bounded too. */
#define UNPACKED_MAX_BYTES (4u * PS_CONTROL_MAX_BYTES)

static void *allocate(void *left_arg, size_t size)
{
    size_t *left = left_arg;
    if (size > *left)
        return NULL;
    *left -= size;
    return malloc(size);
}

static void give(void *left_arg, void *p)
{
    (void)left_arg;
    free(p);
}

static ProtobufCMessage *unpack(const ProtobufCMessageDescriptor *type, const void *bytes, size_t len_bytes)
{
    size_t left = UNPACKED_MAX_BYTES;
    ProtobufCAllocator bounded = {.alloc = allocate, .free = give, .allocator_data = &left};
    return len_bytes > PS_CONTROL_MAX_BYTES ? NULL
                                            : protobuf_c_message_unpack(type, &bounded, len_bytes, bytes);
}

Ps__ToServer *ps_control_unpack_to_server(const void *bytes, size_t len_bytes)
{
    return (Ps__ToServer *)unpack(&ps__to_server__descriptor, bytes, len_bytes);
}

Ps__ToClient *ps_control_unpack_to_client(const void *bytes, size_t len_bytes)
{
    return (Ps__ToClient *)unpack(&ps__to_client__descriptor, bytes, len_bytes);
}

void ps_control_free_to_server(Ps__ToServer *m)
{
    ps__to_server__free_unpacked(m, NULL);
}

void ps_control_free_to_client(Ps__ToClient *m)
{
    ps__to_client__free_unpacked(m, NULL);
}

static int pack(const ProtobufCMessage *m, zmq_msg_t *msg)
{
    size_t len_bytes = protobuf_c_message_get_packed_size(m);
    if (len_bytes > PS_CONTROL_MAX_BYTES)
        return -EMSGSIZE;
    if (zmq_msg_init_size(msg, len_bytes) != 0)
        return -ENOMEM;
    protobuf_c_message_pack(m, zmq_msg_data(msg));
    return 0;
}

/* Takes over the message. */
static int send_body(void *socket, zmq_msg_t *msg)
{
    if (zmq_msg_send(msg, socket, ZMQ_DONTWAIT) >= 0)
        return 0;
    int rc = -zmq_errno();
    zmq_msg_close(msg);
    return rc;
}

int ps_control_send(void *socket, const ProtobufCMessage *m)
{
    zmq_msg_t msg;
    int rc = pack(m, &msg);
    return rc == 0 ? send_body(socket, &msg) : rc;
}

int ps_control_send_to(void *socket, const void *peer, size_t peer_bytes, const ProtobufCMessage *m)
{
    zmq_msg_t msg;
    int rc = pack(m, &msg);
    if (rc < 0)
        return rc;
    if (zmq_send(socket, peer, peer_bytes, ZMQ_DONTWAIT | ZMQ_SNDMORE) >= 0)
        return send_body(socket, &msg);
    rc = -zmq_errno();
    zmq_msg_close(&msg);
    return rc;
}
