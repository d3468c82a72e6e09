#include "proto/unix_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/clock.h"

enum { BACKLOG = 128, LOCK_TRIES = 100, LOCK_PAUSE_MS = 10 };

_Static_assert(PS_UNIX_PATH_MAX == sizeof((struct sockaddr_un *)0)->sun_path - 1, "matches sun_path");

/* Two programs that start at the same moment must not each take the other's socket for a stale one, so a
 * program locks the directory while it creates a socket. If another process never releases the lock (the
 * directory may be shared), continues without it. -1: not locked. */
static int hold_directory(const char *path)
{
    char copy[PS_UNIX_PATH_MAX + 1];
    strcpy(copy, path);
    int fd = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int i = 0; fd >= 0 && i < LOCK_TRIES && flock(fd, LOCK_EX | LOCK_NB) != 0; i++)
        ps_sleep_us(LOCK_PAUSE_MS * 1000);
    return fd;
}

/* Removes a socket that no process listens on. */
static int clear_path(const struct sockaddr_un *at, const char *what, struct ps_error *err)
{
    struct stat st;
    int rc = 0;

    if (lstat(at->sun_path, &st) < 0)
        return errno == ENOENT ? 0
                               : ps_fail(err, -errno, "%s: cannot create the %s: %s", at->sun_path, what,
                                         strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return ps_fail(err, -EEXIST, "%s: cannot create the %s: a file that is not a socket is there",
                       at->sun_path, what);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ps_fail(err, -errno, "%s: cannot create a socket: %s", at->sun_path, strerror(errno));
    /* Refused: its owner is gone. Accepted, or a full backlog (EAGAIN): a process listens. */
    int why = connect(fd, (const struct sockaddr *)at, sizeof *at) == 0 ? 0 : errno;
    if (why == EACCES)
        rc = ps_fail(
            err, -EACCES,
            "%s: cannot create the %s: the socket that is there belongs to user %ld, and may be in use",
            at->sun_path, what, (long)st.st_uid);
    else if (why != ECONNREFUSED)
        rc = ps_fail(err, -EADDRINUSE, "%s: the %s is in use by another process", at->sun_path, what);
    else if (unlink(at->sun_path) < 0 && errno != ENOENT)
        rc = ps_fail(err, -errno, "%s: cannot remove the stale socket: %s", at->sun_path, strerror(errno));
    close(fd);
    return rc;
}

static int bind_and_listen(const struct sockaddr_un *at, const char *what, struct ps_unix_socket *out,
                           struct ps_error *err)
{
    struct stat st;
    int rc, fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ps_fail(err, -errno, "%s: cannot create a socket: %s", at->sun_path, strerror(errno));
    /* On Linux bind() gives the file the mode of the socket's own inode: 0600 from the start, without
     * changing the process's umask, which other threads share. */
    if (fchmod(fd, 0600) < 0 || bind(fd, (const struct sockaddr *)at, sizeof *at) < 0) {
        rc = ps_fail(err, -errno, "%s: cannot create the %s: %s", at->sun_path, what, strerror(errno));
        close(fd);
        return rc;
    }
    if (stat(at->sun_path, &st) < 0 || listen(fd, BACKLOG) < 0) {
        rc = ps_fail(err, -errno, "%s: cannot listen at the %s: %s", at->sun_path, what, strerror(errno));
        unlink(at->sun_path);
        close(fd);
        return rc;
    }
    *out = (struct ps_unix_socket){.fd = fd, .device = st.st_dev, .inode = st.st_ino};
    strcpy(out->path, at->sun_path);
    return 0;
}

int ps_unix_socket_listen(const char *path, const char *what, struct ps_unix_socket *out,
                          struct ps_error *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    int rc, held;

    if (path[0] == 0 || strlen(path) > PS_UNIX_PATH_MAX)
        return ps_fail(err, -ENAMETOOLONG, "%s %.200s: the path has %zu bytes; the system allows 1 to %d",
                       what, path, strlen(path), PS_UNIX_PATH_MAX);
    strcpy(at.sun_path, path);
    held = hold_directory(path);
    if ((rc = clear_path(&at, what, err)) == 0)
        rc = bind_and_listen(&at, what, out, err);
    if (held >= 0)
        close(held);
    return rc;
}

void ps_unix_socket_remove(const struct ps_unix_socket *s)
{
    struct stat st;
    if (s->path[0] != 0 && lstat(s->path, &st) == 0 && st.st_dev == s->device && st.st_ino == s->inode)
        unlink(s->path);
}
