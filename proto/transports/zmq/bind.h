/* bind.h: makes a ZeroMQ socket listen, for the control socket and the lanes. */
#ifndef PS_TRANSPORTS_ZMQ_BIND_H
#define PS_TRANSPORTS_ZMQ_BIND_H

#include <stddef.h>

#include "proto/error.h"
#include "proto/unix_socket.h"

/* url: tcp://HOST:PORT, or ipc://PATH. libzmq would take over an ipc path from a live listener and leave its
 * mode to the umask: here the mode is 0600, a stale socket is replaced and a live one is an error. bound
 * (size bytes) receives the URL with the actual port. *file is set for ipc, else its path is "": pass it to
 * ps_unix_socket_remove after zmq_close. -errno with a sentence. */
int ps_bind(void *zmq_socket, const char *url, char *bound, size_t size, struct ps_unix_socket *file,
            struct ps_error *err);

#endif
