/* Moving the vector over all lanes at once, chunk by chunk, with a window of chunks in flight per lane.
 *
 * A transfer outlives its connections: when the server was restarted, or has been silent on the data
 * connection for retry_ms, the links are closed (no byte of the caller's vector is read any more), opened
 * anew, and what was not answered is sent again under the same name; the server recognises what had landed.
 */
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>

#include "client/internal.h"
#include "client/transfer/internal.h"
#include "proto/clock.h"

/* What is not answered is sent again after retry_ms, and then ever later, at most after so many times that.
 */
enum { MAX_BACKOFF = 8 };

/* Before links that could not be opened are tried again, at most. */
#define NONE_PAUSE_S 1.0

/* A small vector's answer comes so soon that to sleep and be woken on another core costs more than the
 * exchange. The caller then looks for it for a moment, giving way to whoever wants the core, before it
 * sleeps. Only this end does so: two that hold a core each keep the I/O threads between them waiting. */
enum { LINGER_FLOATS = 4096, LINGER_US = 100 };
#define SLEPT_S 0.5

/* Before a link that has told of its end is opened anew, first. */
#define LOST_PAUSE_S 0.02

/* With the lock held: goes over to the transport of the newest Welcome. Within one method it must be the same
 * transport. */
static int take_welcome(struct psc *c)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_shared *s = &c->session.shared;
    int rc = PSC_OK;
    bool swapped = s->welcome.generation != ts->welcome.generation;
    if (s->welcome.chunk_floats != ts->welcome.chunk_floats ||
        (s->welcome.n_lanes != ts->welcome.n_lanes && !swapped))
        rc = ps_fail(&ts->error, PSC_EEVICTED,
                     "the server came back with another lane map: %u lanes, chunks of %u floats",
                     s->welcome.n_lanes, s->welcome.chunk_floats);
    else if (!swapped && (strcmp(s->welcome.rule, ts->welcome.rule) != 0 ||
                          strcmp(s->welcome.optimizer, ts->welcome.optimizer) != 0))
        rc = ps_fail(&ts->error, PSC_EEVICTED,
                     "the server came back with another method, '%s' instead of '%s': join anew",
                     s->welcome.method, ts->welcome.method);
    else if (!swapped &&
             (s->welcome.message != ts->welcome.message || s->welcome.answer != ts->welcome.answer))
        rc = ps_fail(&ts->error, PSC_EEVICTED,
                     "the server came back with codecs %s, %s instead of %s, %s: join anew",
                     s->welcome.message->name, s->welcome.answer->name, ts->welcome.message->name,
                     ts->welcome.answer->name);
    ts->welcome = s->welcome;
    ts->links.epoch = s->epoch;
    ts->links.hopeless = 0;
    ts->links.why[0] = 0;
    ts->cut = ts->cut || s->revivals != ts->revivals;
    ts->begins_anew = ts->begins_anew || s->revivals != ts->revivals;
    ts->revivals = s->revivals;
    ts->swapped = ts->swapped || swapped;
    ts->landed_seq = s->landed_seq;
    ts->counts.center_version = s->center_version; /* a restart may have set it back */
    ts->transfer_version = 0;
    if (rc == PSC_OK)
        s->hyper = s->welcome.hyper;
    return rc;
}

/* Takes over what the service thread knows. PSC_OK, or how the session ended. */
static int look_around(struct psc *c, bool *joined, bool *moved)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_shared *s = &c->session.shared;
    int rc = PSC_OK;
    eventfd_t count;
    eventfd_read(c->session.wake_fd, &count);
    pthread_mutex_lock(&s->lock);
    *joined = s->state == PSC_STATE_JOINED;
    *moved = s->epoch != ts->links.epoch;
    if (s->give_up != PSC_OK)
        rc = ps_fail(&ts->error, s->give_up, "given up: %s",
                     s->give_up == PSC_EINTERRUPTED ? "the caller's wait was interrupted"
                                                    : "the handle is being closed");
    else if (s->state == PSC_STATE_ENDED)
        rc = ps_fail(&ts->error, s->result, "%s; the transfer under way did not complete", s->why.text);
    else if (*moved && *joined)
        rc = take_welcome(c);
    pthread_mutex_unlock(&s->lock);
    return rc;
}

bool psc_among_members(const struct psc *c)
{
    const struct ps_admission_info *a = ps_admission_find(c->transfer_state.welcome.admission);
    return a != NULL && a->members;
}

/* The server has lost some of what it had answered. Where exchanges wait for each other, nobody else could go
 * on with those chunks: the whole exchange is sent again. */
static bool is_cut(const struct psc *c, const struct psc_transfer *t)
{
    return c->transfer_state.cut && psc_transfer_moves(t) && psc_among_members(c);
}

/* Workers may have been at different fragments when the server was lost, each of which would wait for all:
 * everyone begins with the first. Whether this transfer is another's. */
static bool starts_over(struct psc *c, const struct psc_transfer *t)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    if (!ts->begins_anew || !t->is_fragment || !psc_transfer_moves(t))
        return false;
    ts->begins_anew = false;
    return psc_among_members(c) && t->fragment > 0;
}

static int refuse_value(struct psc *c, const struct psc_transfer *t, struct ps_range scope, uint64_t at,
                        const char *then, struct ps_error *err)
{
    struct psc_shared *s = &c->session.shared;
    pthread_mutex_lock(&s->lock);
    if (!s->has_nonfinite) { /* the server wants the first */
        s->has_nonfinite = true;
        s->nonfinite_clock = t->clock;
        s->nonfinite_index = at;
    }
    pthread_mutex_unlock(&s->lock);
    psc_session_poke(&c->session);
    return ps_fail(err, PSC_EVALUE, "%s[%" PRIu64 "], in tensor '%s', is not finite: %s", t->name,
                   at - scope.begin, ps_manifest_tensor(c->manifest, at)->name, then);
}

struct search {
    const struct psc *c;
    const struct psc_transfer *t;
    uint64_t scope_at, begin;
    _Atomic uint64_t bad; /* the first that is not finite; UINT64_MAX: none is */
};

static void search_piece(void *arg, uint64_t begin, uint64_t count)
{
    struct search *s = arg;
    const struct psc *c = s->c;
    struct ps_range r = {s->begin + begin, count};
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r)) {
        if (psc_transfer_spares_frozen(s->t) && p.segment->role == PS_ROLE_FROZEN)
            continue;
        size_t bad = c->vec->first_nonfinite(s->t->send + (p.range.begin - s->scope_at), p.range.count);
        uint64_t at = p.range.begin + bad, first = atomic_load(&s->bad);
        if (bad == p.range.count)
            continue;
        while (at < first && !atomic_compare_exchange_weak(&s->bad, &first, at))
            ;
        return;
    }
}

int psc_transfer_find_bad(struct psc *c, const struct psc_transfer *t, struct ps_range at, const char *then,
                          struct ps_error *err)
{
    struct ps_range scope = psc_scope_of(c, t);
    struct search s = {.c = c, .t = t, .scope_at = scope.begin, .begin = at.begin, .bad = UINT64_MAX};
    psc_team_run(c->team, at.count, search_piece, &s);
    return s.bad == UINT64_MAX ? PSC_OK : refuse_value(c, t, scope, s.bad, then, err);
}

int psc_transfer_check(struct psc *c, const struct psc_transfer *t, struct ps_error *err)
{
    return t->send == NULL || t->name == NULL
               ? PSC_OK
               : psc_transfer_find_bad(c, t, psc_scope_of(c, t), "nothing was sent", err);
}

/* Before the first byte leaves. In place the lanes look at each value as they move it: one pass over memory
 * less. */
static int check_values(struct psc *c, const struct psc_transfer *t)
{
    c->transfer_state.unchecked = c->transfer_state.in_place;
    return c->transfer_state.unchecked ? PSC_OK : psc_transfer_check(c, t, &c->transfer_state.error);
}

static int reopen_links(struct psc *c, const struct psc_transfer *t, bool moved)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    uint32_t in_flight = 0;
    if (moved && is_cut(c, t))
        psc_pieces_start(c, t);
    ts->cut = false;
    if (starts_over(c, t))
        return PSC_ABORTED;
    for (uint32_t i = 0; i < ts->welcome.n_lanes; i++)
        in_flight += ts->progress[i].in_flight;
    ts->counts.retries += in_flight;
    ts->resent = ts->resent || in_flight > 0;
    psc_links_close(c);
    psc_pieces_rewind(c);
    int rc = psc_links_open(c);
    psc_pieces_choose(c, t);
    return rc == PSC_OK && ts->unchecked ? check_values(c, t) : rc;
}

/* What the transport of the new method has otherwise: lanes, codecs. */
static int prepare_for_road(struct psc *c)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    bool same_map = ts->shard.n_lanes == ts->welcome.n_lanes;
    if (!same_map)
        psc_links_close(c); /* of the lanes that were */
    int rc = same_map ? psc_wire_prepare(c, &ts->error) : psc_lanes_prepare(c, &ts->error);
    ts->swapped = rc != PSC_OK;
    ts->refused = false;
    return rc;
}

/* The method has changed. An exchange is of one method in all its chunks: this one has landed whole, and what
 * was not answered of it is pulled; or it has not, in no chunk. What no rule applies begins anew. */
static int take_swap(struct psc *c, struct psc_transfer *t)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    uint32_t behind = (uint32_t)ts->seq - (uint32_t)ts->landed_seq; /* the server tells 32 bits of it */
    bool landed = t->kind != PS_FRAME_PULL && ts->landed_seq != 0 && (int32_t)behind <= 0;
    bool same_map = ts->shard.n_lanes == ts->welcome.n_lanes;
    if (landed && psc_transfer_moves(t))
        psc_wire_landed_whole(c, t);
    int rc = prepare_for_road(c);
    if (rc != PSC_OK)
        return rc;
    if (!landed && psc_transfer_moves(t))
        return PSC_OK; /* its message is of the method before: check_generation */
    if (landed) {
        t->kind = PS_FRAME_PULL;
        t->send = NULL;
        ts->cover = psc_cover_of(c, t);
    }
    if (!landed || !same_map)
        psc_pieces_start(c, t);
    for (uint32_t i = 0; i < ts->welcome.n_lanes && landed && t->landed == NULL; i++)
        ts->progress[i].n_left = 0; /* it asked for no answer */
    return PSC_OK;
}

/* A rule's message is for the method that it was made for. */
static int check_generation(struct psc *c, const struct psc_transfer *t)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    if (!psc_transfer_moves(t) || t->generation == ts->welcome.generation)
        return PSC_OK;
    return ps_fail(&ts->error, PSC_METHOD_CHANGED,
                   "the method has changed to '%s': nothing of this has landed", ts->welcome.method);
}

/* The transport has changed under the transfer. */
static int pass_over_chunks(struct psc *c, struct psc_transfer *t, bool moved)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    int rc = ts->swapped ? take_swap(c, t) : PSC_OK;
    if (rc == PSC_OK)
        rc = check_generation(c, t);
    return rc == PSC_OK ? reopen_links(c, t, moved) : rc;
}

/* The links are to be opened anew. What lanes have begun in the vector they finish first, and it is done: it
 * must not be done again. Until then this is to be called again. */
static int leave(struct psc *c, struct psc_transfer *t, bool moved)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_links *l = &ts->links;
    uint64_t version = ts->counts.center_version;
    l->leaving = true;
    l->anew = l->anew || moved;
    bool settled = psc_links_settle(c);
    int rc = psc_pieces_take(c, t);
    if (l->anew) { /* of the server that is there now, which may have been set back */
        ts->counts.center_version = version;
        ts->transfer_version = 0;
    }
    return rc != PSC_OK || !settled || psc_pieces_all_answered(c) ? rc : pass_over_chunks(c, t, l->anew);
}

/* How long this process stood still (was stopped) since it last looked: no silence of the server's. */
static double own_sleep_s(const struct psc *c, double *looked_s)
{
    double now = ps_now_s(), passed = now - *looked_s;
    *looked_s = now;
    return passed > SLEPT_S + c->opt.retry_ms / 1e3 ? passed : 0;
}

/* Looks for a small vector's answers for a moment. */
static int linger(struct psc *c, const struct psc_transfer *t, bool *progress)
{
    double end = ps_now_s() + LINGER_US * 1e-6;
    int rc = PSC_OK;
    do {
        sched_yield();
        rc = psc_pieces_pump(c, t, progress);
    } while (rc == PSC_OK && !psc_pieces_all_answered(c) && ps_now_s() < end);
    return rc;
}

/* Transports that clients attach to know better when that is worth it: links_wait does it. */
static bool lingers(const struct psc *c)
{
    const struct ps_transport *t = c->transfer_state.links.transport;
    return t != NULL && t->port_rest == NULL;
}

/* Until a link or the service thread has something to say, for a part of the time between retries. */
static void wait_for_news(struct psc *c)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    int ms = ts->refused || ts->links.leaving ? 1 : (int)c->opt.retry_ms / 4 + 1;
    int ask_ms = (int)(psc_ask_again_s(&c->session) * 1e3);
    ms = ms < ask_ms ? ms : ask_ms;
    if (ts->links.transport != NULL && !ts->links.leaving && !ts->links.none)
        ts->links.transport->links_wait(ts->links.link, ts->welcome.n_lanes, c->session.wake_fd, ms);
    else
        ps_poll(&(struct pollfd){.fd = c->session.wake_fd, .events = POLLIN}, 1, ms);
}

/* Whether everything that is on its way waits at the server for other workers (rounds): it is not lost, and
 * that is not silence. What the server said of a connection that is gone does not count. */
static bool is_parked(struct psc *c)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_shared *s = &c->session.shared;
    uint32_t in_flight = 0;
    for (uint32_t i = 0; i < ts->welcome.n_lanes; i++)
        in_flight += ts->progress[i].in_flight;
    pthread_mutex_lock(&s->lock);
    bool parked = s->state == PSC_STATE_JOINED && s->waiting_seq == ts->seq && in_flight > 0 &&
                  s->waiting_chunks == in_flight;
    pthread_mutex_unlock(&s->lock);
    return parked;
}

/* When the transfer under way was last heard of, and when what is missing is asked for again. */
struct pace {
    double progress_s, retry_s, looked_s;
    struct psc_retry retry; /* of what was sent */
    bool hastened;          /* links are gone: retry_s is for them */
};

static void pace_begin(const struct psc *c, struct pace *p)
{
    p->progress_s = ps_now_s();
    psc_retry_reset(&p->retry);
    p->retry_s =
        p->progress_s + psc_retry_next(&p->retry, c->opt.retry_ms / 1e3, MAX_BACKOFF * c->opt.retry_ms / 1e3);
    p->hastened = false;
}

/* Links that are gone, or could not be opened, are tried sooner than what was sent is sent again. */
static void hasten(struct psc *c, struct pace *p, double now)
{
    struct psc_links *l = &c->transfer_state.links;
    bool missing = l->lost || l->none;
    l->lost = false;
    if (!missing || p->hastened)
        return;
    double at = now + psc_retry_next(&l->retry, LOST_PAUSE_S, NONE_PAUSE_S);
    p->retry_s = at < p->retry_s || l->none ? at : p->retry_s;
    p->hastened = true;
}

static int silent_for(struct psc *c, double silent_s)
{
    const struct psc_links *l = &c->transfer_state.links;
    return ps_fail(&c->transfer_state.error, PSC_EGONE,
                   "the data connection has been silent for %.1f s (timeout_ms: %u)%s%s", silent_s,
                   c->opt.timeout_ms, l->none ? "; " : "", l->none ? l->why : "");
}

/* Takes what has come and sends what may be sent. */
static int turn(struct psc *c, struct psc_transfer *t, bool joined, bool *progress)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    if (ts->links.leaving)
        return joined ? leave(c, t, false) : PSC_OK;
    int rc = psc_pieces_pump(c, t, progress);
    if (rc == PSC_OK && !psc_pieces_all_answered(c) && !t->patient && ts->scope.count <= LINGER_FLOATS &&
        lingers(c))
        rc = linger(c, t, progress);
    return rc;
}

/* Connects, waits, resends: until every chunk is answered, or the session ends, or the data connection stays
 * silent. */
static int run_transfer(struct psc *c, struct psc_transfer *t)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct pace pace = {.looked_s = ps_now_s(), .retry = {.dice = c->session.token ^ ts->seq}};
    bool joined, moved;
    int rc;

    pace_begin(c, &pace);
    if ((rc = look_around(c, &joined, &moved)) != PSC_OK ||
        (moved && joined && (rc = pass_over_chunks(c, t, true)) != PSC_OK) ||
        (rc = check_generation(c, t)) != PSC_OK)
        return rc;
    while (true) {
        bool progress = false;
        if ((rc = turn(c, t, joined, &progress)) != PSC_OK || psc_pieces_all_answered(c))
            return rc;
        wait_for_news(c);
        if (progress) {
            pace_begin(c, &pace);
            psc_retry_reset(&ts->links.retry);
        }
        if (!t->patient)
            psc_ask_to_go_on(&c->session);
        if ((rc = look_around(c, &joined, &moved)) != PSC_OK)
            return rc;
        pace.progress_s += own_sleep_s(c, &pace.looked_s);
        double now = ps_now_s();
        if (is_parked(c))
            pace_begin(c, &pace);
        if (now - pace.progress_s > c->opt.timeout_ms / 1e3)
            return silent_for(c, now - pace.progress_s);
        hasten(c, &pace, now);
        if (joined && (moved || now > pace.retry_s)) {
            pace.hastened = false;
            pace.retry_s =
                now + psc_retry_next(&pace.retry, c->opt.retry_ms / 1e3, MAX_BACKOFF * c->opt.retry_ms / 1e3);
            if ((rc = leave(c, t, moved)) != PSC_OK)
                return rc;
        }
    }
}

/* Lets psc_info see what the transfer did. */
static void publish(struct psc *c)
{
    struct psc_shared *s = &c->session.shared;
    pthread_mutex_lock(&s->lock);
    s->counts = c->transfer_state.counts;
    for (uint32_t i = 0; i < c->transfer_state.welcome.n_parts; i++)
        if (c->transfer_state.part_versions[i] != 0)
            s->versions[i] = c->transfer_state.part_versions[i];
    if (s->counts.center_version > s->center_version)
        s->center_version = s->counts.center_version;
    if (c->transfer_state.save_version != 0)
        s->save_version = c->transfer_state.save_version;
    c->transfer_state.save_version = 0;
    pthread_mutex_unlock(&s->lock);
}

int psc_transfer_run(struct psc *c, const struct psc_transfer *t)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_transfer under_way = *t;
    ts->resent = false;
    /* The last transfer may have been answered just when the method changed. */
    int rc = ts->swapped ? prepare_for_road(c) : PSC_OK;
    if (rc != PSC_OK)
        return rc;
    psc_pieces_choose(c, t);
    if ((rc = check_values(c, t)) != PSC_OK)
        return rc;
    ts->seq += (uint32_t)ts->seq == UINT32_MAX ? 2 : 1; /* as landed_seq of Welcome wants it */
    if (t->anew && c->worker.vectors[PSC_VECTOR_ERROR] != NULL)
        memset(c->worker.vectors[PSC_VECTOR_ERROR], 0,
               c->shard.n_floats * sizeof *c->worker.vectors[PSC_VECTOR_ERROR]);
    ts->transfer_version = 0;
    memset(ts->part_versions, 0, sizeof ts->part_versions);
    ts->begun = ts->refused = false;
    atomic_store_explicit(&c->session.shared.under_way, t->kind != PS_FRAME_PULL && t->kind != PS_FRAME_OFFER,
                          memory_order_relaxed);
    psc_pieces_start(c, t);
    if ((rc = run_transfer(c, &under_way)) != PSC_OK || ts->links.leaving) {
        /* A drain may end it too: nothing sent may still be on its way. */
        psc_links_close(c);
        ts->links.epoch = 0;
    }
    ts->counts.exchanges += rc == PSC_OK && psc_transfer_moves(t);
    publish(c);
    atomic_store_explicit(&c->session.shared.under_way, false, memory_order_release);
    return rc;
}
