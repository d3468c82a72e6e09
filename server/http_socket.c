#include "server/http_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "server/url.h"

#define BACKLOG 64

/* Makes way for our socket: removes one that nobody listens at. */
static int clear_path(const struct sockaddr_un *at, struct ps_error *err)
{
    struct stat st;
    int rc = 0;

    if (lstat(at->sun_path, &st) < 0)
        return errno == ENOENT ? 0
                               : ps_fail(err, -errno, "%s: cannot make the status socket: %s", at->sun_path,
                                         strerror(errno));
    if (!S_ISSOCK(st.st_mode))
        return ps_fail(err, -EEXIST, "%s: cannot make the status socket: a file that is no socket is there",
                       at->sun_path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ps_fail(err, -errno, "%s: cannot make a socket: %s", at->sun_path, strerror(errno));
    /* Refused: its owner is gone. Accepted, or a full backlog (EAGAIN): somebody listens. */
    if (connect(fd, (const struct sockaddr *)at, sizeof *at) == 0 || errno != ECONNREFUSED)
        rc = ps_fail(err, -EADDRINUSE, "%s: the status socket is in use by another process", at->sun_path);
    else if (unlink(at->sun_path) < 0 && errno != ENOENT)
        rc = ps_fail(err, -errno, "%s: cannot remove the stale socket: %s", at->sun_path, strerror(errno));
    close(fd);
    return rc;
}

int psd_unix_socket_listen(const char *path, struct psd_unix_socket *out, struct ps_error *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    struct stat st;
    int rc;

    if (path[0] == 0 || strlen(path) >= sizeof at.sun_path)
        return ps_fail(err, -ENAMETOOLONG,
                       "status socket %.200s: the path has %zu bytes; the system allows 1 to %zu", path,
                       strlen(path), sizeof at.sun_path - 1);
    strcpy(at.sun_path, path);
    if ((rc = clear_path(&at, err)) < 0)
        return rc;
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ps_fail(err, -errno, "%s: cannot make a socket: %s", at.sun_path, strerror(errno));
    /* On Linux bind() gives the file the mode of the socket's own inode: 0600 from the start, without a
     * change of the process's umask, which other threads share. */
    if (fchmod(fd, 0600) < 0 || bind(fd, (const struct sockaddr *)&at, sizeof at) < 0) {
        rc = ps_fail(err, -errno, "%s: cannot make the status socket: %s", at.sun_path, strerror(errno));
        close(fd);
        return rc;
    }
    if (stat(path, &st) < 0 || listen(fd, BACKLOG) < 0) {
        rc = ps_fail(err, -errno, "%s: cannot listen at the status socket: %s", at.sun_path, strerror(errno));
        unlink(path);
        close(fd);
        return rc;
    }
    out->fd = fd;
    strcpy(out->path, path);
    out->device = st.st_dev;
    out->inode = st.st_ino;
    return 0;
}

void psd_unix_socket_remove(const struct psd_unix_socket *s)
{
    struct stat st;
    if (lstat(s->path, &st) == 0 && st.st_dev == s->device && st.st_ino == s->inode)
        unlink(s->path);
}

static int bound_address(int fd, char *address, size_t size)
{
    struct sockaddr_storage at;
    socklen_t len = sizeof at;
    char host[64], port[8];

    if (getsockname(fd, (struct sockaddr *)&at, &len) < 0)
        return -errno;
    if (getnameinfo((const struct sockaddr *)&at, len, host, sizeof host, port, sizeof port,
                    NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        return -EINVAL;
    snprintf(address, size, at.ss_family == AF_INET6 ? "tcp://[%s]:%s" : "tcp://%s:%s", host, port);
    return 0;
}

int psd_loopback_listen(const char *text, int *fd_out, char *address, size_t size, struct ps_error *err)
{
    const struct addrinfo hints = {.ai_flags = AI_PASSIVE | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM};
    const int on = 1;
    struct addrinfo *found;
    struct ps_error why;
    struct psd_url url;
    char port[8];
    int rc;

    if (psd_url_parse(text, &url, &why) < 0)
        return ps_fail(err, -EINVAL, "status.http: %s", why.text);
    if (!psd_url_is_loopback(&url))
        return ps_fail(err, -EINVAL,
                       "status.http: %.200s is not loopback; allowed is none or tcp://127.0.0.1:PORT", text);
    snprintf(port, sizeof port, "%u", url.port);
    /* "localhost" is not looked up: what a name server says need not be loopback. */
    const char *host = strcmp(url.host, "localhost") == 0 ? "127.0.0.1" : url.host;
    if ((rc = getaddrinfo(host, port, &hints, &found)) != 0)
        return ps_fail(err, -EINVAL, "status.http: %.200s: %s", text, gai_strerror(rc));
    int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0 ||
        bind(fd, found->ai_addr, found->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0 ||
        bound_address(fd, address, size) < 0) {
        rc = ps_fail(err, -errno, "status.http: cannot listen at %.200s: %s", text, strerror(errno));
        if (fd >= 0)
            close(fd);
    }
    freeaddrinfo(found);
    if (rc == 0)
        *fd_out = fd;
    return rc;
}
