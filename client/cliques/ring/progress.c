/* Runs one collective: moves everything as far as possible, then polls until something is ready. The wait for
 * a neighbour continues as long as its bytes move or its beat is heard, and it comes to the call within
 * step_ms. The algorithm defines how segments move; the ring's is in this file. */
#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "client/cliques/ring/ring.h"
#include "proto/clock.h"

/* After STOP: the next and the previous member of each link. */
enum { STOP, LINKS };

/* Of look_again. */
enum { LOOKS = 200, MISSES = 250, RESTS = 250 };

static void list_waits(struct psc_ring *r, struct psc_waits *w)
{
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
static double end_s(const struct psc_ring *r, uint32_t peer)
{
    double heard_s = psc_beat_heard_s(&r->beat, peer);
    return (heard_s > r->moved_s[peer] ? heard_s : r->moved_s[peer]) + r->timeout_ms * 1e-3;
}

static uint32_t rank_of(const struct psc_ring *r, uint32_t peer)
{
    return r->beat.peer[peer].rank;
}

static void suspect(struct psc_ring *r, uint32_t peer)
{
    r->suspect = 1 + rank_of(r, peer);
}

/* The neighbour waits in a call that sends nothing here: this one by another algorithm, or a later one. Bytes
 * that it sent before have had time to arrive. Without this check members that make different calls by
 * different algorithms could wait for each other for ever. Within one algorithm heads show the difference. */
static int check_call(struct psc_ring *r, uint32_t peer, double now, double *until_s)
{
    uint64_t theirs = psc_beat_waits_in(&r->beat, peer), ours = psc_beat_call(r->seq, r->by->kind);
    bool is_behind = (int32_t)((uint32_t)(theirs >> 8) - (uint32_t)(ours >> 8)) < 0;
    if (r->tree == NULL || theirs == 0 || theirs == ours || is_behind) {
        r->elsewhere_s[peer] = 0;
        return 0;
    }
    if (r->elsewhere_s[peer] < r->moved_s[peer])
        r->elsewhere_s[peer] = now;
    double end_s = r->elsewhere_s[peer] + r->timeout_ms * 1e-3;
    if (now < end_s) {
        *until_s = end_s < *until_s ? end_s : *until_s;
        return 0;
    }
    return psc_ring_fail(r,
                         "members make different calls: rank %u waits in call %" PRIu64
                         ", by the %s, rank %u in call %" PRIu64 ", by the %s",
                         rank_of(r, peer), theirs >> 8, psc_algorithm_name((uint8_t)((theirs & 0xff) - 1)),
                         r->rank, ours >> 8, psc_algorithm_name(r->by->kind));
}

/* A neighbour that is alive but does not come to the call: it computes, or hangs. Its last beat is read
 * first, so that a process that was stopped itself does not blame others. A neighbour that waits in a call is
 * not away. *until_s: when to check again. */
static int check_step(struct psc_ring *r, uint32_t peer, double now, double *until_s)
{
    double step_s = r->step_ms * 1e-3, away_s = (double)psc_beat_away_ms(&r->beat, peer) * 1e-3;
    double end_s = r->begun_s + step_s, soon_s = now + r->timeout_ms * 1e-3;
    if (now >= end_s && away_s >= step_s)
        return suspect(r, peer),
               psc_ring_fail(r,
                             "rank %u has made no call of the clique for %.1f s although its process runs: "
                             "it computes or hangs (step_ms: %u)",
                             rank_of(r, peer), away_s, r->step_ms);
    end_s = end_s > soon_s ? end_s : soon_s;
    *until_s = end_s < *until_s ? end_s : *until_s;
    return 0;
}

/* The call has a deadline of its own. */
static int check_deadline(struct psc_ring *r, const struct psc_waits *w, double now, double *until_s)
{
    uint32_t peer = 0;
    if (r->op->until_s == 0)
        return 0;
    if (now < r->op->until_s) {
        *until_s = r->op->until_s < *until_s ? r->op->until_s : *until_s;
        return 0;
    }
    while (peer + 1 < r->beat.n_peers && !w->on[peer])
        peer++;
    return psc_ring_fail(r, "the call did not end within its timeout_ms: rank %u still waits for rank %u",
                         r->rank, rank_of(r, peer));
}

/* Nothing can be sent or received now. *until_s: when the first silence is too long. */
static int grow_impatient(struct psc_ring *r, const struct psc_waits *w, double *until_s)
{
    double now = ps_now_s();
    *until_s = now + 1e6;
    for (uint32_t peer = 0; peer < r->beat.n_peers; peer++) {
        r->moved_s[peer] = r->moved[peer] ? now : r->moved_s[peer];
        r->moved[peer] = false;
        if (!w->on[peer])
            continue;
        if (now >= end_s(r, peer)) {
            if (!psc_beat_has_unread(&r->beat, peer))
                return suspect(r, peer),
                       psc_ring_fail(r, "rank %u has been silent for %u ms", rank_of(r, peer), r->timeout_ms);
            r->moved_s[peer] = now;
        }
        *until_s = end_s(r, peer) < *until_s ? end_s(r, peer) : *until_s;
        int rc = check_step(r, peer, now, until_s);
        if (rc == 0)
            rc = check_call(r, peer, now, until_s);
        if (rc < 0)
            return rc;
    }
    return check_deadline(r, w, now, until_s);
}

/* News of the next member. */
static int hear(struct psc_ring *r, const struct psc_waits *w)
{
    int rc;
    for (uint32_t i = 0; i < r->active; i++) {
        const struct pollfd *next = &w->fds[LINKS + 2 * i];
        if ((next->revents & ~POLLOUT) != 0 && (rc = psc_ring_hear_next(r, &r->link[i])) < 0)
            return rc;
    }
    return 0;
}

/* give_up, or what the beat has heard. */
static int take_news(struct psc_ring *r)
{
    return r->beat.brought_news ? psc_ring_take_beat_news(r)
                                : psc_ring_fail(r, "rank %u closed its clique during a call", r->rank);
}

/* A member that comes late to a call which the other has given up would find all that it needs. */
static int look_for_news(struct psc_ring *r)
{
    struct pollfd stop = {.fd = r->stop_fd, .events = POLLIN};
    bool swaps = r->by == &psc_algorithm_ring && r->schedule.swaps;
    return swaps && ps_poll(&stop, 1, 0) > 0 ? take_news(r) : 0;
}

static int wait_for_peers(struct psc_ring *r)
{
    struct psc_waits w = {.fds = {[STOP] = {.fd = r->stop_fd, .events = POLLIN}}, .n = LINKS};
    double until_s;
    r->by->list_waits(r, &w);
    int rc = grow_impatient(r, &w, &until_s);
    if (rc < 0)
        return rc;
    psc_beat_be_here(&r->beat, psc_beat_call(r->seq, r->by->kind));
    int n = ps_poll(w.fds, w.n, psc_ms_until(until_s, 1 << 30));
    psc_beat_be_here(&r->beat, 0);
    if (n < 0 && errno != EINTR)
        return psc_ring_fail(r, "poll: %s", strerror(errno));
    if (n <= 0)
        return 0;
    if (w.fds[STOP].revents != 0)
        return take_news(r);
    return r->by->hear != NULL ? r->by->hear(r, &w) : 0;
}

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

const struct psc_algorithm psc_algorithm_ring = {.kind = PSC_ALGORITHM_RING,
                                                 .begin = psc_flow_begin,
                                                 .move = move,
                                                 .list_waits = list_waits,
                                                 .hear = hear};

/* A neighbour on a core of its own answers within microseconds, less than it takes to wake a thread. So the
 * call looks again for some 40 us before it sleeps, unless the caller computes meanwhile. Two members on one
 * core look in vain, but within milliseconds the system sees that both want to run, and moves one. If it does
 * not, half of the waits sleep at once. */
static int look_again(struct psc_ring *r, bool *ended)
{
    int rc = 0;
    if (!r->has_cores || !r->op->is_waited_for || r->rests > 0) {
        r->rests -= r->rests > 0;
        return 0;
    }
    for (uint32_t i = 0; i < LOOKS && rc == 0 && !*ended; i++)
        rc = r->by->move(r, ended);
    bool in_vain = rc == 0 && !*ended;
    r->misses = in_vain ? r->misses + 1 : 0;
    r->rests = r->misses > MISSES ? RESTS : 0;
    return rc;
}

int psc_ring_run(void *state, const struct psc_collective *op, struct ps_error *err)
{
    struct psc_ring *r = state;
    bool ended = false;
    r->err = err;
    r->seq++;
    r->begun_s = ps_now_s();
    psc_beat_be_here(&r->beat, 0);
    r->op = op;
    r->unit_bytes = psc_values_of(op->type)->bytes;
    r->plain = op->compares || op->codec == NULL || op->codec->in_place;
    r->n = op->compares ? 0 : op->n * (psc_call_has_parts(op->kind) ? r->members : 1);
    r->by = psc_ring_choose(r);
    int rc = r->by->begin(r);
    if (rc != PSC_OK) { /* the others would wait for this member, whose beat continues */
        psc_ring_fail(r, "rank %u: %s", r->rank, err->text);
        return rc;
    }
    /* Silence counts from the beginning of the call. */
    for (uint32_t peer = 0; peer < r->beat.n_peers; peer++) {
        r->moved[peer] = true;
        r->elsewhere_s[peer] = 0;
    }
    rc = look_for_news(r);
    while (rc >= 0 && !ended)
        if ((rc = r->by->move(r, &ended)) == 0 && !ended && (rc = look_again(r, &ended)) == 0 && !ended)
            rc = wait_for_peers(r);
    return rc < 0 ? rc : PSC_OK;
}
