/* Runs one collective: both directions of every link as far as they go, then a poll until one of them can go
 * on. No wait is longer than timeout_ms without a byte moved. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "client/cliques/ring/ring.h"
#include "proto/clock.h"

enum { BEATS = 4 }; /* WAITING is said so often before a silence is too long */

/* First who gives up; then of each link the next member and the previous one. */
struct waits {
    struct pollfd fds[1 + 2 * PSC_MAX_LINKS];
    nfds_t n;
};

static void list_waits(struct psc_ring *r, struct waits *w)
{
    w->fds[0] = (struct pollfd){.fd = r->stop_fd, .events = POLLIN};
    w->n = 1;
    for (uint32_t i = 0; i < r->active; i++) {
        struct psc_ring_link *l = &r->link[i];
        short out = psc_flow_wants_out(r, l) ? POLLOUT : 0;
        w->fds[w->n++] =
            (struct pollfd){.fd = l->next_quiet && out == 0 ? -1 : l->next, .events = (short)(POLLIN | out)};
        w->fds[w->n++] = (struct pollfd){.fd = psc_flow_wants_in(r, l) ? l->prev : -1, .events = POLLIN};
    }
}

static double patience_s(const struct psc_ring *r)
{
    return r->timeout_ms * 1e-3;
}

/* When a silence is too long. */
static double end_s(const struct psc_ring *r)
{
    return r->moved_s + patience_s(r);
}

/* Nothing can come or go now. */
static int grow_impatient(struct psc_ring *r)
{
    double now = ps_now_s();
    if (now >= end_s(r))
        return psc_ring_fail(r, "rank %u has been silent for %u ms", r->blamed, r->timeout_ms);
    if (now >= r->beat_s) {
        psc_ring_say_waiting(r);
        r->beat_s = now + patience_s(r) / BEATS;
    }
    return 0;
}

static int wait_for_peers(struct psc_ring *r)
{
    struct waits w;
    int rc = grow_impatient(r);
    if (rc < 0)
        return rc;
    list_waits(r, &w);
    int n = ps_poll(w.fds, w.n, psc_ms_until(r->beat_s < end_s(r) ? r->beat_s : end_s(r), 1 << 30));
    if (n < 0 && errno != EINTR)
        return psc_ring_fail(r, "poll: %s", strerror(errno));
    if (n <= 0)
        return 0;
    if (w.fds[0].revents != 0)
        return psc_ring_fail(r, "rank %u closed its clique during a call", r->rank);
    for (uint32_t i = 0; i < r->active; i++) {
        const struct pollfd *next = &w.fds[1 + 2 * i];
        if ((next->revents & ~POLLOUT) != 0 && (rc = psc_ring_hear_next(r, &r->link[i])) < 0)
            return rc;
    }
    return 0;
}

/* Positive: something moved. */
static int move(struct psc_ring *r, bool *ended)
{
    int moved = 0;
    *ended = true;
    for (uint32_t i = 0; i < r->active; i++) {
        struct psc_ring_link *l = &r->link[i];
        int in = psc_flow_in(r, l), out = in < 0 ? 0 : psc_flow_out(r, l);
        if (in < 0 || out < 0)
            return in < 0 ? in : out;
        moved |= in | out;
        *ended = *ended && psc_flow_ended(&l->in) && psc_flow_ended(&l->out) && l->notice_left == 0;
    }
    return moved;
}

int psc_ring_run(void *state, const struct psc_collective *op, struct ps_error *err)
{
    struct psc_ring *r = state;
    bool ended = false, fresh = true;
    r->err = err;
    r->seq++;
    r->blamed = psc_ring_prev(r);
    int rc = psc_flow_begin(r, op);
    while (rc >= 0 && !ended) {
        if ((rc = move(r, &ended)) > 0 || fresh) {
            r->moved_s = ps_now_s();
            r->beat_s = r->moved_s + patience_s(r) / BEATS;
            fresh = false;
        }
        if (rc == 0 && !ended)
            rc = wait_for_peers(r);
    }
    return rc < 0 ? rc : PSC_OK;
}
