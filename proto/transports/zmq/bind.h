/* bind.h: makes a ZeroMQ socket listen or connect, for the control socket and the lanes. IPv6 is on only for
 * an address in brackets: a name is that of an IPv4 address at both ends, and "*" stands for those. */
#ifndef PS_TRANSPORTS_ZMQ_BIND_H
#define PS_TRANSPORTS_ZMQ_BIND_H

#include <stddef.h>
#include <stdint.h>

#include "proto/error.h"
#include "proto/unix_socket.h"

/* url: tcp://HOST:PORT, HOST also a network interface, or ipc://PATH. libzmq would take over an ipc path from
 * a live listener and leave its mode to the umask: here the mode is 0600, a stale socket is replaced and a
 * live one is an error. bound (size bytes) receives the URL with the actual port. *file is set for ipc, else
 * its path is "": pass it to ps_unix_socket_remove after zmq_close. -errno with a sentence. */
int ps_bind(void *zmq_socket, const char *url, char *bound, size_t size, struct ps_unix_socket *file,
            struct ps_error *err);
/* As zmq_connect. */
int ps_connect(void *zmq_socket, const char *url);
/* Puts the IPv4 address in place of the host name of tcp://NAME:PORT, and waits for that until ps_now_ns
 * reaches until_ns; copies any other URL. -ENOENT, with a sentence: the name does not resolve, or not in
 * time. */
int ps_resolve_url(const char *url, uint64_t until_ns, char *out, size_t size, struct ps_error *err);

#endif
