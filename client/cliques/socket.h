/* socket.h: the stream sockets of a ring. Addresses are "tcp://HOST:PORT" and "unix:NAME", a name in Linux's
 * abstract space, which no file system holds. All sockets are non-blocking and closed on exec. */
#ifndef PSC_CLIQUES_SOCKET_H
#define PSC_CLIQUES_SOCKET_H

#include <stdbool.h>
#include <stddef.h>

#include "client/cliques/wire.h"

/* Milliseconds until then, for poll: 0 to `most_ms`, rounded up. */
int psc_ms_until(double deadline_s, int most_ms);

/* listen: "tcp://HOST" or "unix:". address receives where others reach it. -EINVAL: not of that form; other
 * -errno. */
int psc_listen(const char *listen, int *fd, char address[PSC_ADDRESS_BYTES], struct ps_error *err);

/* Connects before the deadline; gives up with -ECANCELED when stop_fd becomes readable. -errno with a
 * sentence. */
int psc_connect(const char *address, double deadline_s, int stop_fd, int *fd, struct ps_error *err);

/* The next connection, ready for segments; of a unix socket only this user's own. -EAGAIN: none now. */
int psc_accept(int listen_fd, int *fd);

/* Of a tcp connection that may be idle for long: the system asks the other host now and then, and ends the
 * connection when it has heard nothing for about so long, though never before 3 s. */
void psc_keep_alive(int fd, uint32_t silence_ms);

/* All of `len` bytes, or an error: -ETIMEDOUT, -ECONNRESET (also at the end of the stream), -ECANCELED,
 * other -errno. */
int psc_send_all(int fd, const void *bytes, size_t len, double deadline_s, int stop_fd);
int psc_recv_all(int fd, void *bytes, size_t len, double deadline_s, int stop_fd);

/* Closes after the peer has had a moment to read what was sent last: a socket that is closed with unread
 * bytes takes with it what the peer has not read yet. */
void psc_close_gently(int *fds, size_t n, double seconds);

#endif
