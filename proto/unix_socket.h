/* unix_socket.h: a listening UNIX socket that is the file it made. */
#ifndef PS_UNIX_SOCKET_H
#define PS_UNIX_SOCKET_H

#include <sys/types.h>

#include "proto/error.h"

#define PS_UNIX_PATH_MAX 107 /* bytes of a path, sun_path of unix(7) without its terminator */

/* Known by its inode, so that only that file is removed. */
struct ps_unix_socket {
    int fd;
    char path[PS_UNIX_PATH_MAX + 1]; /* "": none */
    dev_t device;
    ino_t inode;
};

/* Binds and listens with mode 0600 from the first moment on, non-blocking. A socket file that nobody listens
 * at is replaced. what: "status socket", for sentences. -EADDRINUSE: somebody listens; -EEXIST: the path is
 * no socket; -ENAMETOOLONG; other -errno. */
int ps_unix_socket_listen(const char *path, const char *what, struct ps_unix_socket *out,
                          struct ps_error *err);

/* Removes the file, if it still is ours. Does not close fd. */
void ps_unix_socket_remove(const struct ps_unix_socket *s);

#endif
