/* socket_monitor.h: reports handshakes of a ZeroMQ socket: libzmq itself reports failed ones to neither
 * end. */
#ifndef PS_SECURITY_SOCKET_MONITOR_H
#define PS_SECURITY_SOCKET_MONITOR_H

#include <stddef.h>
#include <stdint.h>

enum ps_watch_kind {
    PS_WATCH_OPEN,     /* value: the descriptor */
    PS_WATCH_SHAKEN,   /* the handshake succeeded */
    PS_WATCH_REFUSED,  /* ZAP refused the key; value: its status, such as 400 */
    PS_WATCH_MISMATCH, /* only one end uses CURVE */
    PS_WATCH_BROKEN,   /* the handshake failed otherwise: the peer closed the connection or speaks another
                          protocol */
    PS_WATCH_CLOSED,   /* value: the descriptor */
};

struct ps_watch_event {
    enum ps_watch_kind kind;
    uint32_t value;
};

/* Monitors the socket; call it before it connects or binds. *watch is a ZeroMQ socket that is readable when
 * there are events; it belongs to the caller's thread. -errno. */
int ps_watch_open(void *context, void *zmq_socket, void **watch);
/* Reads the next event: 0, or -EAGAIN: there is none. */
int ps_watch_take(void *watch, struct ps_watch_event *event);
/* Ends monitoring; call it before the socket is closed, in the socket's thread. watch may be NULL. */
void ps_watch_close(void *zmq_socket, void *watch);

#endif
