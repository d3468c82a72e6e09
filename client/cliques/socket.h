/* socket.h: the stream sockets of a ring. Addresses are "tcp://HOST:PORT" and "unix:NAME", a name in Linux's
 * abstract namespace. All sockets are non-blocking and closed on exec. */
#ifndef PSC_CLIQUES_SOCKET_H
#define PSC_CLIQUES_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

#include "client/cliques/wire.h"

/* Milliseconds until deadline_s, for poll: 0 to `most_ms`, rounded up. */
int psc_ms_until(double deadline_s, int most_ms);

/* listen: "tcp://HOST" or "unix:". address receives the address for the other members. -EINVAL: not of that
 * form; other -errno. */
int psc_listen(const char *listen, int *fd, char address[PSC_ADDRESS_BYTES], struct ps_error *err);

/* Connects before the deadline; gives up with -ECANCELED when stop_fd becomes readable. -errno with a
 * sentence. */
int psc_connect(const char *address, double deadline_s, int stop_fd, int *fd, struct ps_error *err);

/* Accepts the next connection, set up for segments; on a unix socket only from this user. -EAGAIN: none now.
 */
int psc_accept(int listen_fd, int *fd);

/* Keepalive for a tcp connection that may be idle for long: the system probes the other host and ends the
 * connection after about this much silence, but never before 3 s. */
void psc_keep_alive(int fd, uint32_t silence_ms);

/* Transfers all `len` bytes, or returns an error: -ETIMEDOUT, -ECONNRESET (also at the end of the stream),
 * -ECANCELED, other -errno. */
int psc_send_all(int fd, const void *bytes, size_t len, double deadline_s, int stop_fd);
int psc_recv_all(int fd, void *bytes, size_t len, double deadline_s, int stop_fd);

/* Whether the peer has closed the connection, or it is broken. Unread bytes: not yet. */
bool psc_has_ended(int fd);

/* The same, also with unread bytes. */
bool psc_is_closing(int fd);

/* Closes after a moment in which the peer can read what was sent last: closing a socket with unread bytes
 * discards data that the peer has not read. */
void psc_close_gently(int *fds, size_t n, double seconds);

#endif
