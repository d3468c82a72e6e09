/* socket_monitor.h: what becomes of a ZeroMQ socket's connections: libzmq itself tells neither end that a
 * handshake has failed. */
#ifndef PS_SECURITY_SOCKET_MONITOR_H
#define PS_SECURITY_SOCKET_MONITOR_H

#include <stddef.h>
#include <stdint.h>

enum ps_watch_kind {
    PS_WATCH_OPEN,     /* value: the descriptor */
    PS_WATCH_SHAKEN,   /* the handshake succeeded */
    PS_WATCH_REFUSED,  /* ZAP did not let the key in; value: its status, such as 400 */
    PS_WATCH_MISMATCH, /* one end wants CURVE and the other does not */
    PS_WATCH_BROKEN,   /* the handshake failed otherwise: the other end hung up or speaks something else */
    PS_WATCH_CLOSED,   /* value: the descriptor */
};

struct ps_watch_event {
    enum ps_watch_kind kind;
    uint32_t value;
};

/* Watches the socket, before it connects or binds. *watch is a ZeroMQ socket, readable when there are events;
 * it belongs to the caller's thread. -errno. */
int ps_watch_open(void *context, void *zmq_socket, void **watch);
/* The next event. 0, or -EAGAIN: there is none. */
int ps_watch_take(void *watch, struct ps_watch_event *event);
/* Before the socket is closed, by the socket's thread. watch may be NULL. */
void ps_watch_close(void *zmq_socket, void *watch);

#endif
