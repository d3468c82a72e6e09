/* How clients attach to a shm port. Runs in the lane's thread, so nothing here blocks: a hello may arrive in
 * pieces, until its timeout. */
#include "proto/clock.h"
#include "proto/transports/shm/shm.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include "proto/log.h"

enum { ACCEPTS_A_LOOK = 32, PAUSE_MS = 500 };

int ps_shm_listen(struct ps_port *port)
{
    port->paused_until_ns = 0;
    return ps_shm_watch(port, port->file.fd, EPOLLIN, PS_SHM_LISTENER, 0, 0);
}

void ps_shm_half_end(struct ps_port *port, struct ps_shm_half *half)
{
    if (!half->used)
        return;
    half->used = false;
    ps_shm_unwatch(port, half->socket);
    ps_shm_close(&half->socket);
    for (uint32_t i = 0; i < half->n_files; i++)
        ps_shm_close(&half->files[i]);
    half->n_files = 0;
    half->generation++;
    explicit_bzero(half->bytes, sizeof half->bytes);
}

static void refused(struct ps_port *port, const struct ps_shm_half *half, const char *why)
{
    if (ps_log_allows(&port->log_limit, "shm.refused", port->url))
        ps_log(PS_LOG_INFO, "shm.refused", "a link of pid %d, uid %u: %s", (int)half->peer.pid,
               (unsigned)half->peer.uid, why);
}

void ps_shm_halves_expire(struct ps_port *port)
{
    uint64_t now = 0;
    if (port->paused_until_ns != 0 && ps_now_ns() >= port->paused_until_ns)
        ps_shm_listen(port);
    for (size_t i = 0; i < PS_SHM_HALVES; i++) {
        struct ps_shm_half *h = &port->halves[i];
        if (!h->used || (now == 0 ? (now = ps_now_ns()) : now) < h->deadline_ns)
            continue;
        refused(port, h, "its hello took too long");
        ps_shm_half_end(port, h);
    }
}

/* A free one, or the oldest. */
static struct ps_shm_half *find_half(struct ps_port *port)
{
    struct ps_shm_half *oldest = &port->halves[0];
    for (size_t i = 0; i < PS_SHM_HALVES; i++) {
        struct ps_shm_half *h = &port->halves[i];
        if (!h->used)
            return h;
        if (h->deadline_ns < oldest->deadline_ns)
            oldest = h;
    }
    refused(port, oldest, "other clients replaced it before its hello was complete");
    ps_shm_half_end(port, oldest);
    return oldest;
}

static void begin_half(struct ps_port *port, int fd)
{
    struct ps_shm_half *h = find_half(port);
    socklen_t size = sizeof h->peer;
    h->used = true;
    h->socket = fd;
    h->got = 0;
    h->n_files = 0;
    h->deadline_ns = ps_now_ns() + PS_ATTACH_MS * UINT64_C(1000000);
    h->peer = (struct ucred){.pid = 0};
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &h->peer, &size) < 0 ||
        (h->peer.uid != geteuid() && h->peer.uid != 0)) {
        refused(port, h, "it belongs to another user");
        ps_shm_half_end(port, h);
        return;
    }
    if (ps_shm_watch(port, fd, EPOLLIN, PS_SHM_HALF, (uint32_t)(h - port->halves), h->generation) < 0)
        ps_shm_half_end(port, h);
    else
        ps_shm_half_read(port, h); /* most of its hello has usually arrived already */
}

void ps_shm_accept(struct ps_port *port)
{
    for (int i = 0; i < ACCEPTS_A_LOOK; i++) {
        int fd = accept4(port->file.fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0) {
            begin_half(port, fd);
            continue;
        }
        if (errno == EAGAIN || errno == ECONNABORTED || errno == EINTR)
            return;
        ps_log(PS_LOG_WARN, "shm.accept", "%s: cannot accept: %s", port->url, strerror(errno));
        ps_shm_unwatch(port, port->file.fd); /* otherwise it would wake this thread repeatedly */
        port->paused_until_ns = ps_now_ns() + PAUSE_MS * UINT64_C(1000000);
        return;
    }
}

static int check_registered(const struct ps_registered *registered, const struct ps_shm_hello *h,
                            struct ps_error *err)
{
    if (registered == NULL)
        return 0;
    uint64_t most = atomic_load_explicit(&registered->max_bytes, memory_order_relaxed);
    uint64_t others = atomic_load_explicit(&registered->bytes, memory_order_relaxed);
    uint64_t left = most > others ? most - others : 0;
    for (uint32_t i = 0; i < h->n_buffers; i++) {
        if (h->buffer_bytes[i] > left)
            return ps_fail(err, -ENOSPC,
                           "its buffer %u of %llu bytes is more than clients may register: others have "
                           "registered %llu of the %llu bytes that limits.memory_gib leaves for buffers",
                           i, (unsigned long long)h->buffer_bytes[i], (unsigned long long)others,
                           (unsigned long long)most);
        left -= h->buffer_bytes[i];
    }
    return 0;
}

/* Maps the buffers that the hello registers. The files are closed afterwards. */
static int map_buffers(struct ps_shm_client *c, const struct ps_shm_hello *h, const struct ps_shm_half *half,
                       struct ps_error *err)
{
    if (half->n_files != h->n_buffers)
        return ps_fail(err, -EPROTO, "its hello registers %u buffers with %u files", h->n_buffers,
                       half->n_files);
    int rc = check_registered(c->registered, h, err);
    if (rc < 0)
        return rc;
    for (uint32_t i = 0; i < h->n_buffers; i++) {
        if (!ps_shm_file_is_safe(half->files[i], h->buffer_bytes[i]))
            return ps_fail(err, -EINVAL,
                           "its buffer %u must be a memfd of at least %llu bytes that is sealed against "
                           "shrinking",
                           i, (unsigned long long)h->buffer_bytes[i]);
        void *base = mmap(NULL, h->buffer_bytes[i], PROT_READ | PROT_WRITE, MAP_SHARED, half->files[i], 0);
        if (base == MAP_FAILED)
            return ps_fail(err, -errno, "its buffer %u cannot be mapped: %s", i, strerror(errno));
        c->buffers[i] = base;
        c->buffer_bytes[i] = h->buffer_bytes[i];
        c->n_buffers = i + 1;
        if (c->registered != NULL)
            atomic_fetch_add_explicit(&c->registered->bytes, c->buffer_bytes[i], memory_order_relaxed);
    }
    return 0;
}

/* Compares in constant time. */
static bool tokens_match(const unsigned char *a, const unsigned char *b)
{
    unsigned differ = 0;
    for (size_t i = 0; i < PS_PASS_TOKEN_BYTES; i++)
        differ |= (unsigned)(a[i] ^ b[i]);
    return differ == 0;
}

static struct ps_shm_seat *find_seat(struct ps_port *port, const struct ps_shm_hello *h)
{
    for (uint32_t i = 0; i < port->limits.clients; i++) {
        struct ps_shm_seat *s = &port->seats[i];
        if (s->admitted && s->pass.client == h->client)
            return tokens_match(s->pass.token, h->token) && s->pass.incarnation == h->incarnation ? s : NULL;
    }
    return NULL;
}

static struct ps_shm_shape shape_of(const struct ps_port *port, const struct ps_shm_hello *h)
{
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
    uint32_t window = port->limits.window_chunks < h->window ? port->limits.window_chunks : h->window;
    uint64_t body =
        port->limits.max_body_bytes > PS_MAX_SENTENCE ? port->limits.max_body_bytes : PS_MAX_SENTENCE;
    return (struct ps_shm_shape){window + PS_SHM_SPARE_SLOTS, (body + page - 1) / page * page};
}

/* An epoll instance for the client's bell, on which the client waits. */
static int watch_bell(int bell)
{
    int fd = epoll_create1(EPOLL_CLOEXEC);
    if (fd >= 0 && epoll_ctl(fd, EPOLL_CTL_ADD, bell, &(struct epoll_event){.events = EPOLLIN | EPOLLET}) < 0)
        ps_shm_close(&fd);
    return fd;
}

/* Allocates everything that the client needs; files[]: to be sent to it. */
static int allocate_client(struct ps_port *port, struct ps_shm_client *c, const struct ps_shm_hello *h,
                           int *files, struct ps_error *err)
{
    struct ps_shm_shape shape = shape_of(port, h);
    int rc = ps_shm_region_make(&shape, &c->region, &files[0]);
    if (rc < 0)
        return ps_fail(err, rc, "cannot create its region of %u slots of %llu bytes: %s", shape.n_slots,
                       (unsigned long long)shape.slot_bytes, strerror(-rc));
    if ((c->taken = calloc(shape.n_slots, 1)) == NULL)
        return ps_fail(err, -ENOMEM, "no memory for its slots");
    c->bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->link_bell = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->bell < 0 || c->link_bell < 0 || (files[2] = watch_bell(c->link_bell)) < 0)
        return ps_fail(err, -errno, "cannot create its bells: %s", strerror(errno));
    files[1] = c->bell;
    return 0;
}

/* files NULL: none. Does not block: the socket is new. */
static int send_reply(int fd, const struct ps_shm_reply *r, const int *files)
{
    unsigned char bytes[PS_SHM_REPLY_BYTES];
    union {
        struct cmsghdr first;
        char room[CMSG_SPACE(PS_SHM_REPLY_FILES * sizeof(int))];
    } control = {.room = {0}};
    struct iovec part = {bytes, sizeof bytes};
    struct msghdr m = {.msg_iov = &part, .msg_iovlen = 1};
    if (files != NULL) {
        m.msg_control = control.room;
        m.msg_controllen = sizeof control.room;
        control.first = (struct cmsghdr){.cmsg_len = CMSG_LEN(PS_SHM_REPLY_FILES * sizeof(int)),
                                         .cmsg_level = SOL_SOCKET,
                                         .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(&control.first), files, PS_SHM_REPLY_FILES * sizeof(int));
    }
    ps_shm_reply_pack(r, bytes);
    return sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT) == sizeof bytes ? 0 : -EPIPE;
}

/* From now on the socket only reports that the peer is gone, and the bell that it has sent something. */
static int seat_client(struct ps_port *port, struct ps_shm_client *c, struct ps_shm_seat *seat, int *socket)
{
    c->seat = (uint32_t)(seat - port->seats);
    if (seat->client != NULL) /* a link that was reopened before the end of the old one was noticed */
        ps_shm_detach(seat->client);
    ps_shm_unwatch(port, *socket);
    if (ps_shm_watch(port, *socket, EPOLLRDHUP, PS_SHM_SOCKET, c->seat, seat->generation) < 0)
        return -ENOMEM;
    if (ps_shm_watch(port, c->bell, EPOLLIN | EPOLLET, PS_SHM_BELL, c->seat, seat->generation) < 0) {
        ps_shm_unwatch(port, *socket);
        return -ENOMEM;
    }
    c->port = port;
    c->pass = seat->pass;
    c->active_at = PS_SHM_RESTS;
    c->refs = 1;
    c->socket = *socket;
    *socket = -1;
    seat->client = c;
    ps_shm_client_wake(c);
    return 0;
}

/* Attaches a client after its complete hello. -errno with a sentence: nothing was attached. */
static int attach(struct ps_port *port, struct ps_shm_half *half, const struct ps_shm_hello *h,
                  struct ps_error *err)
{
    int files[PS_SHM_REPLY_FILES] = {-1, -1, -1}, rc;
    struct ps_shm_seat *seat = find_seat(port, h);
    struct ps_shm_client *c = calloc(1, sizeof *c);
    if (seat == NULL || c == NULL) {
        free(c);
        return seat == NULL ? ps_fail(err, -EACCES, "its pass for client %u is not known", h->client)
                            : ps_fail(err, -ENOMEM, "no memory for it");
    }
    c->socket = c->bell = c->link_bell = -1;
    c->peer = half->peer;
    c->cpu = PS_SHM_RESTS;
    c->registered = port->limits.registered;
    if ((rc = map_buffers(c, h, half, err)) < 0 || (rc = allocate_client(port, c, h, files, err)) < 0)
        goto out;
    struct ps_shm_reply reply = {0, c->region.shape.n_slots, c->region.shape.slot_bytes};
    if ((rc = send_reply(half->socket, &reply, files)) < 0 ||
        (rc = seat_client(port, c, seat, &half->socket)) < 0)
        ps_fail(err, rc, "it cannot be attached: %s", strerror(-rc));
out:
    ps_shm_close(&files[0]);
    ps_shm_close(&files[2]);
    if (rc < 0)
        ps_shm_client_free(c);
    return rc;
}

static void finish_half(struct ps_port *port, struct ps_shm_half *half)
{
    struct ps_shm_hello hello;
    struct ps_error err;
    int rc = ps_shm_hello_parse(&hello, half->bytes, &err);
    if (rc == 0)
        rc = attach(port, half, &hello, &err);
    if (rc < 0) {
        refused(port, half, err.text);
        send_reply(half->socket, &(struct ps_shm_reply){.status = (uint32_t)-rc}, NULL);
    }
    ps_shm_half_end(port, half);
}

/* Receives the files that come with a part of a hello. False: too many. */
static bool take_files(struct ps_shm_half *half, struct msghdr *m)
{
    bool good = !(m->msg_flags & MSG_CTRUNC);
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c != NULL; c = CMSG_NXTHDR(m, c)) {
        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        for (size_t at = CMSG_LEN(0); at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) {
            int fd;
            memcpy(&fd, (unsigned char *)c + at, sizeof fd);
            if (half->n_files < PS_MAX_BUFFERS)
                half->files[half->n_files++] = fd;
            else
                good = (close(fd), false);
        }
    }
    return good;
}

void ps_shm_half_read(struct ps_port *port, struct ps_shm_half *half)
{
    union {
        struct cmsghdr first;
        char room[CMSG_SPACE(PS_MAX_BUFFERS * sizeof(int))];
    } control;
    struct iovec part = {half->bytes + half->got, sizeof half->bytes - half->got};
    struct msghdr m = {.msg_iov = &part,
                       .msg_iovlen = 1,
                       .msg_control = control.room,
                       .msg_controllen = sizeof control.room};
    ssize_t n = recvmsg(half->socket, &m, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0 || !take_files(half, &m)) {
        refused(port, half,
                n <= 0 ? "it disconnected before its hello was complete" : "its hello has too many files");
        ps_shm_half_end(port, half);
        return;
    }
    half->got += (size_t)n;
    if (half->got == sizeof half->bytes)
        finish_half(port, half);
}
