/* http_socket.h: the listening sockets of the status server. Private to server/http.c. */
#ifndef PSD_HTTP_SOCKET_H
#define PSD_HTTP_SOCKET_H

#include <stddef.h>
#include <sys/types.h>

#include "proto/error.h"

/* A UNIX socket that is the file it made, so that only that one is removed. */
struct psd_unix_socket {
    int fd;
    char path[108];
    dev_t device;
    ino_t inode;
};

/* Binds and listens with mode 0600 from the first moment on. A socket file that nobody listens at is
 * replaced. -EADDRINUSE: somebody does; -EEXIST: the path is no socket; -ENAMETOOLONG; other -errno. */
int psd_unix_socket_listen(const char *path, struct psd_unix_socket *out, struct ps_error *err);

/* Removes the file, if it still is ours. Does not close fd. */
void psd_unix_socket_remove(const struct psd_unix_socket *s);

/* Listens at tcp://HOST:PORT, loopback only. *fd is the socket, address (size bytes) the URL that was bound,
 * with the port that the system chose for 0. */
int psd_loopback_listen(const char *url, int *fd, char *address, size_t size, struct ps_error *err);

#endif
