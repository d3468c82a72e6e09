#include "client/cliques/socket.h"

#include <errno.h>
#include <math.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "proto/clock.h"
#include "proto/resolve.h"

static const char tcp_scheme[] = "tcp://", unix_scheme[] = "unix:";

/* The backlog: all members may connect at once. */
enum { BACKLOG = PSC_MAX_MEMBERS + PSC_MAX_LINKS };

int psc_ms_until(double deadline_s, int most_ms)
{
    double ms = ceil((deadline_s - ps_now_s()) * 1e3);
    return ms <= 0 ? 0 : ms < most_ms ? (int)ms : most_ms;
}

static bool starts_with(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

/* Where members share cores, one sends until its socket is full, and then another one runs: of a larger
 * buffer more moves at each turn. Data in flight still stays in a processor's cache. The system may allow
 * less. Set before connect and listen, which fix tcp's window. */
static void tune(int fd, int family)
{
    int one = 1, room = 4 << 20;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    if (family != AF_UNIX)
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

/* An address without its port. */
static bool is_same_host(const struct sockaddr_storage *a, const struct sockaddr_storage *b)
{
    if (a->ss_family != b->ss_family)
        return false;
    if (a->ss_family == AF_INET6)
        return memcmp(&((const struct sockaddr_in6 *)a)->sin6_addr,
                      &((const struct sockaddr_in6 *)b)->sin6_addr, sizeof(struct in6_addr)) == 0;
    return a->ss_family == AF_INET && ((const struct sockaddr_in *)a)->sin_addr.s_addr ==
                                          ((const struct sockaddr_in *)b)->sin_addr.s_addr;
}

/* Within a machine there is no network to protect, and congestion controls that pace (bbr) take three times
 * as long. Between machines the system's choice stays. */
static void tune_connection(int fd)
{
    static const char *const plain[] = {"cubic", "reno"};
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t len = sizeof here, other = sizeof there;
    if (getsockname(fd, (struct sockaddr *)&here, &len) < 0 ||
        getpeername(fd, (struct sockaddr *)&there, &other) < 0 || !is_same_host(&here, &there))
        return;
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++)
        if (setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, plain[i], (socklen_t)strlen(plain[i])) == 0)
            return;
}

static int new_socket(int family)
{
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd >= 0)
        tune(fd, family);
    return fd;
}

/* "HOST" or "HOST:PORT"; [..] around an IPv6 address. */
static int resolve(const char *text, bool with_port, uint64_t until_ns, struct addrinfo **out,
                   struct ps_error *err)
{
    const struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    char host[PSC_ADDRESS_BYTES], *at = host, *end;
    const char *port = "0";
    if (strlen(text) >= sizeof host)
        return ps_fail(err, -EINVAL, "address '%.60s...' is longer than %zu bytes", text, sizeof host - 1);
    strcpy(host, text);
    if (with_port) {
        if ((end = strrchr(host, ':')) == NULL)
            return ps_fail(err, -EINVAL, "address '%s' has no port", text);
        *end = 0;
        port = end + 1;
    }
    if (host[0] == '[' && (end = strchr(host, ']')) != NULL && end[1] == 0) {
        at = host + 1;
        *end = 0;
    } else if (strpbrk(host, ":/[]") != NULL || host[0] == 0) {
        return ps_fail(err, -EINVAL, "'%s' is not a host", text);
    }
    return ps_resolve(at, port, &hints, until_ns, out, err);
}

static int listen_tcp(const char *host, int *out, char *address, struct ps_error *err)
{
    struct sockaddr_storage bound = {0};
    socklen_t len = sizeof bound;
    struct addrinfo *where;
    char port[8] = "";
    int rc = resolve(host, false, ps_ns_after(1e-3 * PS_RESOLVE_MS), &where, err);
    if (rc < 0)
        return rc;
    int fd = new_socket(where->ai_family);
    bool bad = fd < 0 || bind(fd, where->ai_addr, where->ai_addrlen) < 0 || listen(fd, BACKLOG) < 0 ||
               getsockname(fd, (struct sockaddr *)&bound, &len) < 0 ||
               getnameinfo((struct sockaddr *)&bound, len, NULL, 0, port, sizeof port, NI_NUMERICSERV) != 0;
    if (bad)
        rc = ps_fail(err, -errno, "cannot listen at tcp://%s: %s", host, strerror(errno));
    freeaddrinfo(where);
    if (bad) {
        if (fd >= 0)
            close(fd);
        return rc;
    }
    snprintf(address, PSC_ADDRESS_BYTES, "tcp://%.100s:%s", host, port);
    *out = fd;
    return 0;
}

/* Autobind: the system chooses a free name, a zero and five digits. */
static int listen_unix(int *out, char *address, struct ps_error *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    socklen_t len = sizeof at;
    int fd = new_socket(AF_UNIX);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at.sun_family) < 0 || listen(fd, BACKLOG) < 0 ||
        getsockname(fd, (struct sockaddr *)&at, &len) < 0) {
        int rc = ps_fail(err, -errno, "cannot listen at a unix socket: %s", strerror(errno));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    int name = (int)(len - offsetof(struct sockaddr_un, sun_path)) - 1;
    snprintf(address, PSC_ADDRESS_BYTES, "%s%.*s", unix_scheme, name, at.sun_path + 1);
    *out = fd;
    return 0;
}

int psc_listen(const char *listen, int *fd, char address[PSC_ADDRESS_BYTES], struct ps_error *err)
{
    if (strcmp(listen, unix_scheme) == 0)
        return listen_unix(fd, address, err);
    if (starts_with(listen, tcp_scheme) && strlen(listen) < 100)
        return listen_tcp(listen + strlen(tcp_scheme), fd, address, err);
    return ps_fail(err, -EINVAL, "listen is '%.100s'; allowed are tcp://HOST and unix:", listen);
}

/* 0 when one of `events` has occurred. */
static int wait_for(int fd, short events, double deadline_s, int stop_fd)
{
    struct pollfd p[] = {{.fd = fd, .events = events}, {.fd = stop_fd, .events = POLLIN}};
    int n;
    do
        n = ps_poll(p, 2, psc_ms_until(deadline_s, 1 << 30));
    while (n < 0 && errno == EINTR);
    if (n < 0)
        return -errno;
    return n == 0 ? -ETIMEDOUT : p[1].revents != 0 ? -ECANCELED : 0;
}

static int finish_connect(int fd, double deadline_s, int stop_fd)
{
    int error = 0, rc = wait_for(fd, POLLOUT, deadline_s, stop_fd);
    socklen_t len = sizeof error;
    if (rc < 0)
        return rc;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &len) < 0 ? -errno : -error;
}

static int connect_to(const struct sockaddr *to, socklen_t len, double deadline_s, int stop_fd, int *out)
{
    int rc = 0, fd = new_socket(to->sa_family);
    if (fd < 0)
        return -errno;
    if (connect(fd, to, len) < 0)
        rc = errno == EINPROGRESS ? finish_connect(fd, deadline_s, stop_fd) : -errno;
    if (rc < 0) {
        close(fd);
        return rc;
    }
    tune_connection(fd);
    *out = fd;
    return 0;
}

static int connect_tcp(const char *host, double deadline_s, int stop_fd, int *fd, struct ps_error *err)
{
    struct addrinfo *where;
    int rc = resolve(host, true, ps_ns_after(deadline_s - ps_now_s()), &where, err);
    if (rc < 0)
        return rc;
    rc = connect_to(where->ai_addr, where->ai_addrlen, deadline_s, stop_fd, fd);
    freeaddrinfo(where);
    return rc == 0 ? 0 : ps_fail(err, rc, "cannot connect to tcp://%s: %s", host, strerror(-rc));
}

static int connect_unix(const char *name, double deadline_s, int stop_fd, int *fd, struct ps_error *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    size_t len = strlen(name);
    if (len < 1 || len > sizeof at.sun_path - 1)
        return ps_fail(err, -EINVAL, "'%s%.60s' is not the name of a unix socket", unix_scheme, name);
    memcpy(at.sun_path + 1, name, len);
    int rc = connect_to((struct sockaddr *)&at, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + len),
                        deadline_s, stop_fd, fd);
    return rc == 0 ? 0 : ps_fail(err, rc, "cannot connect to %s%s: %s", unix_scheme, name, strerror(-rc));
}

int psc_connect(const char *address, double deadline_s, int stop_fd, int *fd, struct ps_error *err)
{
    if (starts_with(address, unix_scheme))
        return connect_unix(address + strlen(unix_scheme), deadline_s, stop_fd, fd, err);
    if (starts_with(address, tcp_scheme))
        return connect_tcp(address + strlen(tcp_scheme), deadline_s, stop_fd, fd, err);
    return ps_fail(err, -EINVAL, "'%.60s' is not the address of a member", address);
}

/* Any process on this machine may connect to an abstract name. */
static bool is_own_user(int fd)
{
    struct ucred who;
    socklen_t len = sizeof who;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &len) == 0 && who.uid == geteuid();
}

int psc_accept(int listen_fd, int *out)
{
    struct sockaddr_storage from = {0};
    socklen_t len = sizeof from;
    int fd;
    for (;;) {
        if ((fd = accept4(listen_fd, (struct sockaddr *)&from, &len, SOCK_CLOEXEC | SOCK_NONBLOCK)) < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            return -errno;
        }
        if (from.ss_family != AF_UNIX || is_own_user(fd))
            break;
        close(fd);
    }
    tune(fd, from.ss_family);
    tune_connection(fd);
    *out = fd;
    return 0;
}

void psc_keep_alive(int fd, uint32_t silence_ms)
{
    enum { ASKS = 4 }; /* the silence is divided into this many probes; the first is sent after one part */
    int one = 1, asks = ASKS - 1, apart_s = (int)(silence_ms / 1000 / ASKS);
    apart_s = apart_s < 1 ? 1 : apart_s;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &apart_s, sizeof apart_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &apart_s, sizeof apart_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &asks, sizeof asks);
}

int psc_send_all(int fd, const void *bytes, size_t len, double deadline_s, int stop_fd)
{
    const unsigned char *at = bytes;
    while (len > 0) {
        ssize_t k = send(fd, at, len, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (k > 0) {
            at += k;
            len -= (size_t)k;
            continue;
        }
        if (errno != EAGAIN && errno != EINTR)
            return errno == EPIPE ? -ECONNRESET : -errno;
        int rc = wait_for(fd, POLLOUT, deadline_s, stop_fd);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int psc_recv_all(int fd, void *bytes, size_t len, double deadline_s, int stop_fd)
{
    unsigned char *at = bytes;
    while (len > 0) {
        ssize_t k = recv(fd, at, len, MSG_DONTWAIT);
        if (k > 0) {
            at += k;
            len -= (size_t)k;
            continue;
        }
        if (k == 0)
            return -ECONNRESET;
        if (errno != EAGAIN && errno != EINTR)
            return -errno;
        int rc = wait_for(fd, POLLIN, deadline_s, stop_fd);
        if (rc < 0)
            return rc;
    }
    return 0;
}

bool psc_has_ended(int fd)
{
    char byte;
    ssize_t k = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    return k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR);
}

bool psc_is_closing(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLRDHUP};
    return ps_poll(&p, 1, 0) > 0 && p.revents != 0;
}

/* Reads to the end of the stream, or until there are no bytes. True at the end. */
static bool discard(int fd)
{
    char bytes[65536];
    ssize_t k;
    do
        k = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    while (k > 0 || (k < 0 && errno == EINTR));
    return k == 0 || errno != EAGAIN;
}

void psc_close_gently(int *fds, size_t n, double seconds)
{
    double deadline = ps_now_s() + seconds;
    for (size_t i = 0; i < n; i++)
        if (fds[i] >= 0)
            shutdown(fds[i], SHUT_WR);
    for (size_t i = 0; i < n; i++) {
        if (fds[i] < 0)
            continue;
        while (!discard(fds[i]) && wait_for(fds[i], POLLIN, deadline, -1) == 0)
            ;
        close(fds[i]);
        fds[i] = -1;
    }
}
