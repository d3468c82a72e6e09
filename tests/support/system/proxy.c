#include "tests/support/system/proxy.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MAX_PORTS = 16, MAX_PAIRS = 128, BUFFER_BYTES = 256 << 10 };

/* One direction of a connection. */
struct flow {
    int from, to;
    size_t begin, end;
    char *bytes; /* [BUFFER_BYTES] */
};

struct pair {
    bool used;
    struct flow flow[2];
};

struct relay {
    size_t n_ports;
    uint16_t ports[MAX_PORTS];
    int listeners[MAX_PORTS];
    struct pair pairs[MAX_PAIRS];
};

uint16_t proxy_port(const char *url)
{
    const char *colon = strrchr(url, ':');
    return colon != NULL ? (uint16_t)atoi(colon + 1) : 0;
}

static struct sockaddr_in address(uint8_t last, uint16_t port)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port)};
    a.sin_addr.s_addr = htonl(0x7f000000u | last);
    return a;
}

static int listen_at(uint16_t port)
{
    int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    struct sockaddr_in a = address(2, port);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    if (bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && listen(fd, 64) == 0)
        return fd;
    fprintf(stderr, "proxy: 127.0.0.2:%u: %s\n", port, strerror(errno));
    close(fd);
    return -1;
}

/* Closes with a reset, so that queued bytes are lost. */
static void drop(struct pair *p)
{
    const struct linger now = {.l_onoff = 1, .l_linger = 0};
    for (int i = 0; i < 2; i++) {
        setsockopt(p->flow[i].from, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        close(p->flow[i].from);
        free(p->flow[i].bytes);
    }
    p->used = false;
}

static void accept_one(struct relay *r, size_t k)
{
    struct sockaddr_in to = address(1, r->ports[k]);
    int one = 1, near, far;
    struct pair *p = r->pairs;
    while (p < r->pairs + MAX_PAIRS && p->used)
        p++;
    if ((near = accept4(r->listeners[k], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) < 0)
        return;
    far = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (p == r->pairs + MAX_PAIRS || connect(far, (struct sockaddr *)&to, sizeof to) != 0) {
        close(near);
        close(far);
        return;
    }
    fcntl(far, F_SETFL, O_NONBLOCK);
    setsockopt(near, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(far, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    *p = (struct pair){
        .used = true,
        .flow = {{near, far, 0, 0, malloc(BUFFER_BYTES)}, {far, near, 0, 0, malloc(BUFFER_BYTES)}}};
}

/* Moves available bytes; false if the connection has ended. */
static bool move(struct flow *f)
{
    for (;;) {
        if (f->begin == f->end) {
            ssize_t n = recv(f->from, f->bytes, BUFFER_BYTES, 0);
            if (n <= 0)
                return n < 0 && errno == EAGAIN;
            f->begin = 0;
            f->end = (size_t)n;
        }
        ssize_t n = send(f->to, f->bytes + f->begin, f->end - f->begin, MSG_NOSIGNAL);
        if (n < 0)
            return errno == EAGAIN;
        f->begin += (size_t)n;
    }
}

static void relay_run(struct relay *r, int command)
{
    struct pollfd fds[1 + MAX_PORTS + 2 * MAX_PAIRS];
    uint8_t byte;
    useconds_t wait_us = 0;
    for (;;) {
        nfds_t n = 0;
        fds[n++] = (struct pollfd){.fd = command, .events = POLLIN};
        for (size_t k = 0; k < r->n_ports; k++)
            fds[n++] = (struct pollfd){.fd = r->listeners[k], .events = POLLIN};
        for (struct pair *p = r->pairs; p < r->pairs + MAX_PAIRS; p++)
            for (int i = 0; i < 2 && p->used; i++) {
                const struct flow *in = &p->flow[i], *out = &p->flow[1 - i];
                fds[n++] = (struct pollfd){.fd = in->from,
                                           .events = (short)((in->begin == in->end ? POLLIN : 0) |
                                                             (out->begin < out->end ? POLLOUT : 0))};
            }
        poll(fds, n, -1);
        if (fds[0].revents != 0) {
            if (read(command, &byte, 1) != 1)
                return;
            wait_us = byte > 0 ? 10000u * byte : wait_us;
            for (struct pair *p = r->pairs; p < r->pairs + MAX_PAIRS; p++)
                if (p->used && byte == 0)
                    drop(p);
            continue;
        }
        usleep(wait_us);
        for (struct pair *p = r->pairs; p < r->pairs + MAX_PAIRS; p++)
            if (p->used && !(move(&p->flow[0]) && move(&p->flow[1])))
                drop(p);
        for (size_t k = 0; k < r->n_ports; k++)
            if (fds[1 + k].revents != 0)
                accept_one(r, k);
    }
}

int proxy_start(struct proxy *p, const uint16_t *ports, size_t n)
{
    static struct relay r;
    int ends[2];
    r.n_ports = n;
    for (size_t k = 0; k < n; k++) {
        r.ports[k] = ports[k];
        if ((r.listeners[k] = listen_at(ports[k])) < 0)
            return -1;
    }
    if (pipe(ends) != 0)
        return -1;
    p->command = ends[1];
    p->pid = fork();
    if (p->pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[1]);
        relay_run(&r, ends[0]);
        _exit(0);
    }
    close(ends[0]);
    for (size_t k = 0; k < n; k++)
        close(r.listeners[k]);
    return p->pid > 0 ? 0 : -1;
}

static void wake_thread(struct proxy *p, uint8_t byte)
{
    if (write(p->command, &byte, 1) != 1)
        abort();
}

void proxy_cut(struct proxy *p)
{
    wake_thread(p, 0);
}

void proxy_slow(struct proxy *p, uint8_t tens_of_ms)
{
    wake_thread(p, tens_of_ms);
}

void proxy_stop(struct proxy *p)
{
    close(p->command);
    kill(p->pid, SIGKILL);
    waitpid(p->pid, NULL, 0);
}
