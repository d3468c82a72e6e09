/* zmq.h: the ZeroMQ transport, which the rows tcp and ipc share. They differ in where a lane listens. */
#ifndef PS_TRANSPORTS_ZMQ_ZMQ_H
#define PS_TRANSPORTS_ZMQ_ZMQ_H

#include "proto/transports/transport.h"

int ps_zmq_hub_create(uint32_t io_threads, struct ps_hub **out);
void ps_zmq_hub_destroy(struct ps_hub *hub);
void ps_zmq_hub_secure(struct ps_hub *hub, const struct ps_curve_pair *pair, const char *server_key);
void *ps_zmq_hub_context(struct ps_hub *hub);
int ps_zmq_port_open(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                     struct ps_port **out, struct ps_error *err);
void ps_zmq_port_close(struct ps_port *port);
const char *ps_zmq_port_url(const struct ps_port *port);
void *ps_zmq_port_watch(const struct ps_port *port);
int ps_zmq_port_fd(const struct ps_port *port);
int ps_zmq_port_recv(struct ps_port *port, struct ps_message *m);
uint64_t ps_zmq_message_sender(const struct ps_message *m);
void ps_zmq_message_describe(const struct ps_message *m, char *text, size_t size);
int ps_zmq_message_body(struct ps_message *m, size_t len_bytes);
int ps_zmq_port_reply(struct ps_port *port, struct ps_message *m);
void ps_zmq_message_drop(struct ps_message *m);
void ps_zmq_message_move(struct ps_message *to, struct ps_message *m);
int ps_zmq_link_open(struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                     struct ps_link **out, struct ps_error *err);
void ps_zmq_link_close(struct ps_link *link);
int ps_zmq_link_send(struct ps_link *link, const void *head, const void *body, size_t body_bytes);
int ps_zmq_link_recv(struct ps_link *link, struct ps_message *m);
int ps_zmq_links_wait(struct ps_link *const *links, size_t n, int extra_fd, int timeout_ms);

/* The members of a row that are the same for all of ZeroMQ's transports. */
#define PS_ZMQ_MEMBERS                                                                                       \
    .hub_create = ps_zmq_hub_create, .hub_destroy = ps_zmq_hub_destroy, .hub_secure = ps_zmq_hub_secure,     \
    .hub_context = ps_zmq_hub_context, .port_open = ps_zmq_port_open, .port_close = ps_zmq_port_close,       \
    .port_url = ps_zmq_port_url, .port_fd = ps_zmq_port_fd, .port_recv = ps_zmq_port_recv,                   \
    .port_watch = ps_zmq_port_watch, .message_sender = ps_zmq_message_sender,                                \
    .message_describe = ps_zmq_message_describe, .message_body = ps_zmq_message_body,                        \
    .port_reply = ps_zmq_port_reply, .message_drop = ps_zmq_message_drop,                                    \
    .message_move = ps_zmq_message_move, .link_open = ps_zmq_link_open, .link_close = ps_zmq_link_close,     \
    .link_send = ps_zmq_link_send, .link_recv = ps_zmq_link_recv, .links_wait = ps_zmq_links_wait

#endif
