#include "client/cliques/rendezvous/pending_peers.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/clock.h"

static const double hello_s = 5; /* time limit of a hello */

void psc_pending_peers_init(struct psc_pending_peers *p, int listen_fd, int stop_fd)
{
    p->listen_fd = listen_fd;
    p->stop_fd = stop_fd;
    p->n = 0;
}

void psc_pending_peers_finish(struct psc_pending_peers *p)
{
    while (p->n > 0)
        close(p->guests[--p->n].fd);
}

void psc_turn_away(int fd, uint8_t kind, const char *text)
{
    struct psc_reply r = {.kind = kind, .rank = -1};
    unsigned char bytes[PSC_REPLY_BYTES];
    snprintf(r.text, sizeof r.text, "%s", text);
    psc_reply_pack(&r, bytes);
    psc_send_all(fd, bytes, sizeof bytes, ps_now_s(), -1);
    shutdown(fd, SHUT_WR);
    close(fd);
}

static void forget(struct psc_pending_peers *p, size_t i)
{
    p->guests[i] = p->guests[--p->n];
}

static void let_in(struct psc_pending_peers *p)
{
    int fd;
    while (p->n < PSC_PORCH_ROOM && psc_accept(p->listen_fd, &fd) == 0) {
        p->guests[p->n].fd = fd;
        p->guests[p->n].got = 0;
        p->guests[p->n].until_s = ps_now_s() + hello_s;
        p->n++;
    }
}

/* 0: the hello is complete, and the peer is no longer pending. */
static int hear(struct psc_pending_peers *p, size_t i, int *fd, struct psc_hello *hello)
{
    struct ps_error err;
    ssize_t k = recv(p->guests[i].fd, p->guests[i].bytes + p->guests[i].got,
                     PSC_HELLO_BYTES - p->guests[i].got, MSG_DONTWAIT);
    if (k < 0 && (errno == EAGAIN || errno == EINTR) && ps_now_s() < p->guests[i].until_s)
        return -EAGAIN;
    if (k <= 0) {
        close(p->guests[i].fd);
        forget(p, i);
        return -EAGAIN;
    }
    if ((p->guests[i].got += (size_t)k) < PSC_HELLO_BYTES)
        return -EAGAIN;
    int who = p->guests[i].fd, rc = psc_hello_parse(hello, p->guests[i].bytes, &err);
    forget(p, i);
    if (rc < 0)
        psc_turn_away(who, PSC_REPLY_REFUSED, err.text);
    else
        *fd = who;
    return rc < 0 ? -EAGAIN : 0;
}

int psc_pending_peers_wait(struct psc_pending_peers *p, double deadline_s, int *fd, struct psc_hello *hello)
{
    struct pollfd polls[PSC_PORCH_ROOM + 2];
    for (;;) {
        let_in(p);
        for (size_t i = p->n; i > 0; i--)
            if (hear(p, i - 1, fd, hello) == 0)
                return 0;
        int ms = psc_ms_until(deadline_s, 1000); /* at most a second, so that peers are dropped in time */
        if (ms == 0)
            return -EAGAIN;
        polls[0] = (struct pollfd){.fd = p->stop_fd, .events = POLLIN};
        polls[1] = (struct pollfd){.fd = p->n < PSC_PORCH_ROOM ? p->listen_fd : -1, .events = POLLIN};
        for (size_t i = 0; i < p->n; i++)
            polls[i + 2] = (struct pollfd){.fd = p->guests[i].fd, .events = POLLIN};
        if (ps_poll(polls, (nfds_t)p->n + 2, ms) < 0 && errno != EINTR)
            return -errno;
        if (polls[0].revents != 0)
            return -ECANCELED;
    }
}
