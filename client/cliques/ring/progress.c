/* Runs one collective: moves both directions of every link as far as possible, then polls until one of them
 * is ready. The wait for a neighbour continues as long as its bytes move or its beat is heard, and it comes
 * to the call within step_ms. */
#include <errno.h>
#include <poll.h>
#include <string.h>

#include "client/cliques/ring/ring.h"
#include "proto/clock.h"

/* First give_up or the beat's news; then the next and the previous member of each link. */
enum { STOP, LINKS };

struct waits {
    struct pollfd fds[LINKS + 2 * PSC_MAX_LINKS];
    nfds_t n;
    bool on[PSC_BEAT_DIRECTIONS]; /* who is waited for */
};

static void list_waits(struct psc_ring *r, struct waits *w)
{
    w->fds[STOP] = (struct pollfd){.fd = r->stop_fd, .events = POLLIN};
    w->n = LINKS;
    w->on[PSC_BEAT_NEXT] = w->on[PSC_BEAT_PREV] = false;
    for (uint32_t i = 0; i < r->active; i++) {
        struct psc_ring_link *l = &r->link[i];
        bool out = psc_flow_wants_out(r, l), in = psc_flow_wants_in(r, l);
        w->fds[w->n++] = (struct pollfd){.fd = l->next_quiet && !out ? -1 : l->next,
                                         .events = (short)(POLLIN | (out ? POLLOUT : 0))};
        w->fds[w->n++] = (struct pollfd){.fd = in ? l->prev : -1, .events = POLLIN};
        w->on[PSC_BEAT_NEXT] |= out;
        w->on[PSC_BEAT_PREV] |= in;
    }
}

/* The time at which the neighbour's silence is too long. */
static double end_s(const struct psc_ring *r, enum psc_beat_direction direction)
{
    double heard_s = psc_beat_heard_s(&r->beat, direction);
    return (heard_s > r->moved_s[direction] ? heard_s : r->moved_s[direction]) + r->timeout_ms * 1e-3;
}

static uint32_t rank_of(const struct psc_ring *r, enum psc_beat_direction direction)
{
    return direction == PSC_BEAT_NEXT ? psc_ring_next(r) : psc_ring_prev(r);
}

/* A neighbour that is alive but does not come to the call: it computes, or hangs. Its last beat is read
 * first, so that a process that was itself stopped blames nobody. A neighbour that waits in a call is not
 * away. *until_s: when to check again. */
static int check_step(struct psc_ring *r, enum psc_beat_direction direction, double now, double *until_s)
{
    double step_s = r->step_ms * 1e-3, away_s = (double)psc_beat_away_ms(&r->beat, direction) * 1e-3;
    double end_s = r->begun_s + step_s, soon_s = now + r->timeout_ms * 1e-3;
    if (now >= end_s && away_s >= step_s)
        return psc_ring_fail(r,
                             "rank %u is away from the clique's calls for %.1f s while its process runs: "
                             "it computes or hangs (step_ms: %u)",
                             rank_of(r, direction), away_s, r->step_ms);
    end_s = end_s > soon_s ? end_s : soon_s;
    *until_s = end_s < *until_s ? end_s : *until_s;
    return 0;
}

/* Nothing can be sent or received now. *until_s: when the first silence is too long. */
static int grow_impatient(struct psc_ring *r, const struct waits *w, double *until_s)
{
    double now = ps_now_s();
    *until_s = now + 1e6;
    for (int direction = 0; direction < PSC_BEAT_DIRECTIONS; direction++) {
        r->moved_s[direction] = r->moved[direction] ? now : r->moved_s[direction];
        r->moved[direction] = false;
        if (!w->on[direction])
            continue;
        if (now >= end_s(r, direction)) {
            if (!psc_beat_has_unread(&r->beat, direction))
                return psc_ring_fail(r, "rank %u has been silent for %u ms", rank_of(r, direction),
                                     r->timeout_ms);
            r->moved_s[direction] = now;
        }
        *until_s = end_s(r, direction) < *until_s ? end_s(r, direction) : *until_s;
        int rc = check_step(r, direction, now, until_s);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int wait_for_peers(struct psc_ring *r)
{
    struct waits w;
    double until_s;
    list_waits(r, &w);
    int rc = grow_impatient(r, &w, &until_s);
    if (rc < 0)
        return rc;
    psc_beat_be_here(&r->beat, true);
    int n = ps_poll(w.fds, w.n, psc_ms_until(until_s, 1 << 30));
    psc_beat_be_here(&r->beat, false);
    if (n < 0 && errno != EINTR)
        return psc_ring_fail(r, "poll: %s", strerror(errno));
    if (n <= 0)
        return 0;
    if (w.fds[STOP].revents != 0)
        return r->beat.brought_news ? psc_ring_take_beat_news(r)
                                    : psc_ring_fail(r, "rank %u closed its clique during a call", r->rank);
    for (uint32_t i = 0; i < r->active; i++) {
        const struct pollfd *next = &w.fds[LINKS + 2 * i];
        if ((next->revents & ~POLLOUT) != 0 && (rc = psc_ring_hear_next(r, &r->link[i])) < 0)
            return rc;
    }
    return 0;
}

/* Positive: something moved. */
static int move(struct psc_ring *r, bool *ended)
{
    int into = 0, out_of = 0;
    *ended = true;
    for (uint32_t i = 0; i < r->active; i++) {
        struct psc_ring_link *l = &r->link[i];
        int in = psc_flow_in(r, l), out = in < 0 ? 0 : psc_flow_out(r, l);
        if (in < 0 || out < 0)
            return in < 0 ? in : out;
        into |= in;
        out_of |= out;
        *ended = *ended && psc_flow_ended(&l->in) && psc_flow_ended(&l->out);
    }
    r->moved[PSC_BEAT_PREV] |= into > 0;
    r->moved[PSC_BEAT_NEXT] |= out_of > 0;
    return into | out_of;
}

int psc_ring_run(void *state, const struct psc_collective *op, struct ps_error *err)
{
    struct psc_ring *r = state;
    bool ended = false;
    r->err = err;
    r->seq++;
    r->begun_s = ps_now_s();
    psc_beat_be_here(&r->beat, false);
    int rc = psc_flow_begin(r, op);
    if (rc != PSC_OK) { /* the others would wait for this member, whose beat continues */
        psc_ring_fail(r, "rank %u: %s", r->rank, err->text);
        return rc;
    }
    /* Silence counts from the begin of the call. */
    r->moved[PSC_BEAT_NEXT] = r->moved[PSC_BEAT_PREV] = true;
    while (rc >= 0 && !ended)
        if ((rc = move(r, &ended)) == 0 && !ended)
            rc = wait_for_peers(r);
    return rc < 0 ? rc : PSC_OK;
}
