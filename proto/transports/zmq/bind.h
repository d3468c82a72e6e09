/* bind.h: makes a ZeroMQ socket listen, the control socket's and the lanes' alike. */
#ifndef PS_TRANSPORTS_ZMQ_BIND_H
#define PS_TRANSPORTS_ZMQ_BIND_H

#include <stddef.h>

#include "proto/error.h"
#include "proto/unix_socket.h"

/* url: tcp://HOST:PORT, or ipc://PATH. libzmq would take an ipc path from whoever listens there and leave its
 * mode to the umask: here it is mode 0600, a stale one is replaced and a live one is an error. bound (size
 * bytes) is the URL with what the system chose. *file is set for ipc, else its path is "": after zmq_close
 * pass it to ps_unix_socket_remove. -errno with a sentence. */
int ps_bind(void *zmq_socket, const char *url, char *bound, size_t size, struct ps_unix_socket *file,
            struct ps_error *err);

#endif
