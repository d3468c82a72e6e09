/* look.c: what a member of a ring can know about the others between two calls, while they wait for each other
 * elsewhere: on GPUs. Members do not leave meanwhile, so a connection that has ended is a member that is
 * gone. */
#include <errno.h>
#include <sys/socket.h>

#include "client/cliques/ring/ring.h"
#include "proto/clock.h"

/* 0: the connection stands; -errno. */
static int connection(int fd)
{
    char byte;
    ssize_t n = recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return 0;
    return n == 0 ? -ECONNRESET : -errno;
}

/* Neighbours, by their links; the next one may have reported an error. */
static int look_at_links(struct psc_ring *r)
{
    int rc = 0;
    for (uint32_t i = 0; i < r->links && rc == 0; i++) {
        struct psc_ring_link *l = &r->link[i];
        int next = connection(l->next), prev = connection(l->prev);
        if (next < 0 || prev < 0)
            return psc_ring_lost(r, next < 0 ? psc_ring_next(r) : psc_ring_prev(r), next < 0 ? next : prev);
        rc = psc_ring_hear_next(r, l);
    }
    return rc;
}

/* Silence counts from the last call of the ring on. Of a process that was stopped itself the beats are still
 * unread. */
static int look_for_silence(struct psc_ring *r)
{
    double now = ps_now_s(), limit_s = r->timeout_ms * 1e-3;
    for (uint32_t peer = 0; peer < r->beat.n_peers; peer++) {
        double heard_s = psc_beat_heard_s(&r->beat, peer);
        heard_s = heard_s > r->begun_s ? heard_s : r->begun_s;
        if (now < heard_s + limit_s || psc_beat_has_unread(&r->beat, peer))
            continue;
        r->suspect = 1 + r->beat.peer[peer].rank;
        return psc_ring_fail(r, "rank %u has been silent for %u ms", r->beat.peer[peer].rank, r->timeout_ms);
    }
    return 0;
}

static int look(struct psc_ring *r, const char *failed)
{
    if (r->given_up)
        return psc_ring_fail(r, "rank %u closed its clique during a call", r->rank);
    if (r->beat.brought_news)
        return psc_ring_take_beat_news(r);
    int rc = look_at_links(r);
    if (rc == 0 && failed != NULL)
        rc = psc_ring_fail(r, "rank %u: %.250s", r->rank, failed);
    return rc == 0 ? look_for_silence(r) : rc;
}

int psc_ring_look(struct psc_ring *r, const struct psc_collective *op, const char *failed,
                  struct ps_error *err)
{
    r->op = op;
    r->err = err;
    psc_beat_be_here(&r->beat, 0);
    return look(r, failed) == 0 ? PSC_OK : PSC_ECLIQUE;
}
