#include "server/status/http_socket.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "server/config/url.h"

#define BACKLOG 64

static int bound_address(int fd, char *address, size_t size)
{
    struct sockaddr_storage at = {.ss_family = AF_UNSPEC};
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
