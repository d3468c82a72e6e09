/* unix_socket.h: a listening UNIX socket and its file. */
#ifndef PS_UNIX_SOCKET_H
#define PS_UNIX_SOCKET_H

#include <sys/types.h>

#include "proto/error.h"

#define PS_UNIX_PATH_MAX 107 /* bytes of a path, sun_path of unix(7) without its terminator */

/* Identified by its inode, so that only the file that was created is removed. */
struct ps_unix_socket {
    int fd;
    char path[PS_UNIX_PATH_MAX + 1]; /* "": none */
    dev_t device;
    ino_t inode;
};

/* Binds and listens, with mode 0600 from the start, non-blocking. Replaces a socket file that no process
 * listens on. what: "status socket", for messages. -EADDRINUSE: a process listens; -EEXIST: the path is not a
 * socket; -ENAMETOOLONG; other -errno. */
int ps_unix_socket_listen(const char *path, const char *what, struct ps_unix_socket *out,
                          struct ps_error *err);

/* Removes the file, if it is still the same one. Does not close fd. */
void ps_unix_socket_remove(const struct ps_unix_socket *s);

#endif
