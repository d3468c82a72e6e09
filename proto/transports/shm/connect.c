/* How a link of shm connects to a port: it says hello and waits for the reply. */
#include "proto/clock.h"
#include "proto/transports/shm/shm.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

enum { RETRY_MS = 2 /* a port's queue of connections is full */ };

static int left_ms(uint64_t end_ns)
{
    uint64_t now = ps_now_ns();
    return now < end_ns ? (int)((end_ns - now) / 1000000) + 1 : 0;
}

/* A connected socket. */
static int connect_to(const char *url, uint64_t end_ns, int *out, struct ps_error *err)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const char *path = ps_shm_path(url);
    if (path == NULL || path[0] == 0 || strlen(path) > PS_UNIX_PATH_MAX)
        return ps_fail(err, -EINVAL,
                       "%.300s: not an address of a lane; allowed is shm://PATH, PATH of 1 to %d bytes", url,
                       PS_UNIX_PATH_MAX);
    strcpy(at.sun_path, path);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return ps_fail(err, -errno, "cannot create a socket for %s: %s", url, strerror(errno));
    while (connect(fd, (struct sockaddr *)&at, sizeof at) < 0) {
        int why = errno;
        if ((why == EAGAIN || why == EINTR) && left_ms(end_ns) > 0) {
            ps_sleep_us(RETRY_MS * 1000L);
            continue;
        }
        close(fd);
        if (why == EAGAIN || why == EINTR)
            return ps_fail(err, -ETIMEDOUT, "%s: the lane accepted no connection within %d ms", url,
                           PS_ATTACH_MS);
        bool none = why == ENOENT || why == ECONNREFUSED || why == ENOTDIR || why == EACCES;
        return ps_fail(err, none ? -EHOSTUNREACH : -why, "%s: this user can reach no lane there: %s", url,
                       strerror(why));
    }
    *out = fd;
    return 0;
}

/* The pass is sent to psd's user and root only. */
static int check_owner(int fd, const char *url, struct ps_error *err)
{
    struct ucred peer;
    socklen_t size = sizeof peer;
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) < 0)
        return ps_fail(err, -errno, "%s: cannot find its owner: %s", url, strerror(errno));
    if (peer.uid != geteuid() && peer.uid != 0 && geteuid() != 0)
        return ps_fail(err, -EHOSTUNREACH, "%s belongs to user %u; allowed are %u and root", url,
                       (unsigned)peer.uid, (unsigned)geteuid());
    return 0;
}

static int say_hello(int fd, const char *url, const struct ps_hub *hub,
                     const struct ps_transport_limits *limits, struct ps_error *err)
{
    struct ps_shm_hello h = {.client = hub->pass.client,
                             .incarnation = hub->pass.incarnation,
                             .window = limits->window_chunks,
                             .n_buffers = hub->n_buffers};
    unsigned char bytes[PS_SHM_HELLO_BYTES];
    union {
        struct cmsghdr first;
        char room[CMSG_SPACE(PS_MAX_BUFFERS * sizeof(int))];
    } control = {.room = {0}};
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};

    memcpy(h.token, hub->pass.token, sizeof h.token);
    if (h.n_buffers > 0) {
        m.msg_control = control.room;
        m.msg_controllen = CMSG_SPACE(h.n_buffers * sizeof(int));
        control.first = (struct cmsghdr){.cmsg_len = CMSG_LEN(h.n_buffers * sizeof(int)),
                                         .cmsg_level = SOL_SOCKET,
                                         .cmsg_type = SCM_RIGHTS};
    }
    for (uint32_t i = 0; i < h.n_buffers; i++) {
        h.buffer_bytes[i] = hub->buffers[i].bytes;
        memcpy(CMSG_DATA(&control.first) + i * sizeof(int), &hub->buffers[i].fd, sizeof(int));
    }
    ps_shm_hello_pack(&h, bytes);
    ssize_t n = sendmsg(fd, &m, MSG_NOSIGNAL);
    explicit_bzero(&h, sizeof h);
    explicit_bzero(bytes, sizeof bytes);
    return n == sizeof bytes
               ? 0
               : ps_fail(err, -EHOSTUNREACH, "%s: cannot send the hello: %s", url, strerror(errno));
}

/* Reads the next bytes of the reply and the files that come with them. 0 at its end, -EAGAIN. */
static ssize_t receive_reply(int fd, unsigned char *to, size_t room, int *files)
{
    union {
        struct cmsghdr first;
        char room[CMSG_SPACE(PS_SHM_REPLY_FILES * sizeof(int))];
    } control;
    struct iovec part = {to, room};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.room,
                       .msg_controllen = sizeof control.room};
    ssize_t n = recvmsg(fd, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *c = n > 0 ? CMSG_FIRSTHDR(&m) : NULL;
    if (c != NULL && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
        size_t n_files = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < n_files && i < PS_SHM_REPLY_FILES; i++) {
            ps_shm_close(&files[i]);
            memcpy(&files[i], CMSG_DATA(c) + i * sizeof(int), sizeof(int));
        }
    }
    return n < 0 ? -errno : n;
}

static int refusal(const struct ps_shm_reply *r, const char *url, struct ps_error *err)
{
    int rc = -(int)r->status;
    if (rc == -EACCES)
        return ps_fail(err, rc, "%s: psd does not know this client's pass", url);
    return ps_fail(err, rc, "%s: psd does not attach this client: %s; its log says more", url, strerror(-rc));
}

static int await_reply(int fd, const char *url, uint64_t end_ns, struct ps_shm_reply *r, int *files,
                       struct ps_error *err)
{
    unsigned char bytes[PS_SHM_REPLY_BYTES];
    for (size_t got = 0; got < sizeof bytes;) {
        ssize_t n = receive_reply(fd, bytes + got, sizeof bytes - got, files);
        if (n == 0 || (n < 0 && n != -EAGAIN && n != -EINTR))
            return ps_fail(err, -EHOSTUNREACH, "%s: the lane closed the connection: %s", url,
                           n == 0 ? "end of file" : strerror((int)-n));
        if (n > 0) {
            got += (size_t)n;
            continue;
        }
        int ms = left_ms(end_ns);
        if (ms == 0)
            return ps_fail(err, -ETIMEDOUT, "%s: the lane did not answer within %d ms", url, PS_ATTACH_MS);
        ps_poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, ms);
    }
    int rc = ps_shm_reply_parse(r, bytes, err);
    if (rc < 0)
        return rc;
    if (r->status != 0)
        return refusal(r, url, err);
    for (size_t i = 0; i < PS_SHM_REPLY_FILES; i++)
        if (files[i] < 0)
            return ps_fail(err, -EPROTO, "%s: the lane's reply lacks files", url);
    return 0;
}

int ps_shm_connect(const struct ps_hub *hub, const char *url, const struct ps_transport_limits *limits,
                   int *socket, struct ps_shm_reply *reply, int *files, struct ps_error *err)
{
    uint64_t end = ps_now_ns() + PS_ATTACH_MS * UINT64_C(1000000);
    int rc = connect_to(url, end, socket, err);
    if (rc == 0)
        rc = check_owner(*socket, url, err);
    if (rc == 0)
        rc = say_hello(*socket, url, hub, limits, err);
    return rc == 0 ? await_reply(*socket, url, end, reply, files, err) : rc;
}
