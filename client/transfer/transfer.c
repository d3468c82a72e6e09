/* Moves the vector over all lanes at once, chunk by chunk, with a window of chunks in flight per lane.
 *
 * A transfer survives its connections. When the server has restarted, or the data connection has been silent
 * for retry_ms, the links are closed (after that the caller's vector is not read any more) and reopened, and
 * what was not answered is sent again under the same name. The server recognises what had landed. */
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>

#include "client/internal.h"
#include "client/transfer/internal.h"
#include "proto/clock.h"

/* Chunks without an answer are sent again after retry_ms, then at growing intervals of up to this many times
 * that. */
enum { MAX_BACKOFF = 8 };

/* Longest pause before links that could not be opened are tried again. */
#define NONE_PAUSE_S 1.0

/* The answer to a small vector arrives so soon that sleeping and waking cost more than the exchange. The
 * caller polls for a moment first, yielding the core to others. Only the client polls: two ends that each
 * hold a core would starve the I/O threads between them. */
enum { LINGER_FLOATS = 4096, LINGER_US = 100 };
#define SLEPT_S 0.5

/* First pause before a link whose peer is gone is reopened. */
#define LOST_PAUSE_S 0.02

static void forget_versions(struct psc_transfer_state *ts)
{
    ts->transfer_version = 0;
    for (uint32_t i = 0; i < ts->n_flights; i++)
        ts->flights[i].version = 0;
}

/* With the lock held: adopts the newest Welcome. Within one method it must agree with the one before. */
static int take_welcome(struct psc *c)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_shared *s = &c->session.shared;
    char names[4][PS_CODEC_TEXT];
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
                     "the server came back with another method, '%s' instead of '%s': join again",
                     s->welcome.method, ts->welcome.method);
    else if (!swapped && (!ps_codec_same(&s->welcome.message, &ts->welcome.message) ||
                          !ps_codec_same(&s->welcome.answer, &ts->welcome.answer)))
        rc = ps_fail(
            &ts->error, PSC_EEVICTED, "the server came back with codecs %s, %s instead of %s, %s: join again",
            ps_codec_text(&s->welcome.message, names[0]), ps_codec_text(&s->welcome.answer, names[1]),
            ps_codec_text(&ts->welcome.message, names[2]), ps_codec_text(&ts->welcome.answer, names[3]));
    if (rc != PSC_OK)
        return rc; /* every later transfer ends so, too: all tables are those of the Welcome before */
    ts->welcome = s->welcome;
    ts->links.epoch = s->epoch;
    ts->links.failed_offers = 0;
    ts->links.why[0] = 0;
    ts->cut = ts->cut || s->revivals != ts->revivals;
    ts->begins_anew = ts->begins_anew || s->revivals != ts->revivals;
    ts->lost_piece = ts->lost_piece && s->revivals == ts->revivals;
    ts->revivals = s->revivals;
    ts->swapped = ts->swapped || swapped;
    ts->tracks = ts->swapped ? ts->tracks : ts->welcome.tracks; /* else the flights' own are needed */
    ts->one_by_one = ts->one_by_one || ts->n_flights > ts->tracks;
    memcpy(ts->landed_seq, s->landed_seq, sizeof ts->landed_seq);
    ts->counts.center_version = s->center_version; /* a restart may have set it back */
    forget_versions(ts);
    s->hyper = s->welcome.hyper;
    return PSC_OK;
}

/* Reads what the service thread has learnt. PSC_OK, or how the session ended. */
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
        rc = ps_fail(&ts->error, s->give_up, "cancelled: %s",
                     s->give_up == PSC_EINTERRUPTED ? "the caller's wait was interrupted"
                                                    : "the handle is being closed");
    else if (s->state == PSC_STATE_ENDED)
        rc = ps_fail(&ts->error, s->result, "%s; the transfer in progress did not complete", s->why.text);
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

/* Whether a transfer that a restart of the server has cut is sent again whole. Where exchanges wait for those
 * of others, chunks that the server lost would never complete a round. What is set would be mixed with the
 * checkpoint. Elsewhere the lost chunks count as lost, with the updates before them. */
static bool is_whole_or_nothing(const struct psc *c, const struct psc_transfer *t)
{
    return t->kind == PS_FRAME_SET || (psc_among_members(c) && psc_transfer_moves(t));
}

/* The server came back from a checkpoint without some chunks that it had answered: also transfers that are
 * complete and behind one that is not are sent again. A lossy message is the same bytes again, whose loss is
 * in the error feedback already. */
static void start_cut(struct psc *c)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    for (uint32_t i = 0; i < ts->n_flights; i++)
        if (!ts->flights[i].over && is_whole_or_nothing(c, &ts->flights[i].t)) {
            psc_moved_restore(c, &ts->flights[i]);
            psc_pieces_start_again(c, &ts->flights[i]);
        }
}

/* When the server is lost, workers may be at different fragments or keys, and each would wait for all others:
 * everyone restarts with the first. Returns whether this transfer is of a later one. One that the checkpoint
 * has is a part of its last round: only answers are missing. */
static bool starts_over(struct psc *c, const struct psc_flight *f)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    bool cycles = f->t.is_fragment || f->t.round != PSC_ROUND_NONE;
    if (!ts->begins_anew || !cycles || !psc_transfer_moves(&f->t))
        return false;
    ts->begins_anew = false;
    return psc_among_members(c) && (f->t.fragment > 0 || f->t.round == PSC_ROUND_LATER) &&
           !psc_flight_has_landed(ts, f);
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

/* The same by the device that has the vector. */
static int search_device(const struct psc *c, const struct psc_work *work, const struct psc_transfer *t,
                         struct ps_range at, uint64_t *bad, struct ps_error *err)
{
    const struct psc_memory_kind *kind = c->memory.kind;
    uint64_t scope_at = psc_scope_of(c, t).begin;
    kind->search_begin(work->queue);
    for (struct ps_role_run p = ps_role_run_first(c->manifest, at); p.range.count > 0;
         p = ps_role_run_next(p, at))
        if (!psc_transfer_spares_frozen(t) || p.segment->role != PS_ROLE_FROZEN)
            kind->search(work->queue, t->send + (p.range.begin - scope_at), p.range.count, p.range.begin);
    return psc_device_result(kind->search_end(work->queue, bad, err));
}

/* work: of the calling thread. */
static int find_bad(struct psc *c, const struct psc_work *work, const struct psc_transfer *t,
                    struct ps_range at, const char *then, struct ps_error *err)
{
    struct ps_range scope = psc_scope_of(c, t);
    struct search s = {.c = c, .t = t, .scope_at = scope.begin, .begin = at.begin, .bad = UINT64_MAX};
    uint64_t bad = UINT64_MAX;
    if (c->memory.device != NULL) {
        int rc = search_device(c, work, t, at, &bad, err);
        if (rc != PSC_OK)
            return rc;
    } else {
        psc_team_run(c->team, at.count, search_piece, &s);
        bad = s.bad;
    }
    return bad == UINT64_MAX ? PSC_OK : refuse_value(c, t, scope, bad, then, err);
}

int psc_transfer_find_bad(struct psc *c, const struct psc_transfer *t, struct ps_range at, const char *then,
                          struct ps_error *err)
{
    return find_bad(c, &c->transfer_state.work, t, at, then, err);
}

static int check_all(struct psc *c, const struct psc_work *work, const struct psc_transfer *t,
                     struct ps_error *err)
{
    return t->send == NULL || t->name == NULL
               ? PSC_OK
               : find_bad(c, work, t, psc_scope_of(c, t), "nothing was sent", err);
}

bool psc_watch(struct psc *c, const float *message, struct ps_range part)
{
    if (c->memory.device != NULL)
        c->memory.kind->watch(c->work.queue, message + part.begin, part.count, part.begin);
    return c->memory.device != NULL;
}

int psc_transfer_check(struct psc *c, const struct psc_transfer *t, struct ps_error *err)
{
    uint64_t bad = UINT64_MAX;
    if (!t->watched)
        return check_all(c, &c->work, t, err);
    int rc = psc_device_result(c->memory.kind->search_end(c->work.queue, &bad, err));
    return rc != PSC_OK || bad == UINT64_MAX
               ? rc
               : refuse_value(c, t, psc_scope_of(c, t), bad, "nothing was sent", err);
}

/* Before the first byte is sent. In place the lanes check each value as they move it, which saves one pass
 * over memory. Not where other workers' exchanges wait for this one: a part of it would have arrived. */
static int check_values(struct psc *c, const struct psc_transfer *t)
{
    c->transfer_state.unchecked = c->transfer_state.in_place && !psc_among_members(c);
    return c->transfer_state.unchecked ? PSC_OK
                                       : check_all(c, &c->transfer_state.work, t, &c->transfer_state.error);
}

/* The device has looked for them as it encoded. */
static int check_coded(struct psc *c, const struct psc_transfer *t)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    uint64_t bad = UINT64_MAX;
    ts->unchecked = false;
    int rc = t->name != NULL ? psc_coded_searched(c, &bad, &ts->error) : PSC_OK;
    if (rc == PSC_OK && bad == UINT64_MAX)
        return PSC_OK;
    psc_wire_withdraw(c);
    return rc != PSC_OK ? rc : refuse_value(c, t, ts->scope, bad, "nothing was sent", &ts->error);
}

static int reopen_links(struct psc *c, bool moved)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    const struct psc_flight *oldest = psc_flight_oldest(ts);
    const struct psc_transfer *t = &oldest->t;
    uint32_t in_flight = 0;
    bool cut = moved && ts->cut;
    ts->cut = false;
    if (starts_over(c, oldest))
        return ps_fail(&ts->error, PSC_ABORTED,
                       "the server came back from a checkpoint: the round begins again with its first key");
    if (cut)
        start_cut(c);
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

/* A newer Welcome arrived during the transfer. */
static int pass_over_chunks(struct psc *c, bool moved)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    int rc = ts->swapped ? psc_flights_take_swap(c) : PSC_OK;
    if (rc == PSC_OK)
        rc = psc_flights_check(c);
    return rc == PSC_OK ? reopen_links(c, moved) : rc;
}

/* Prepares to reopen the links. Lanes first finish what they have begun in place, because it must not be done
 * twice. To be called until links.leaving is false. */
static int leave(struct psc *c, bool moved)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_links *l = &ts->links;
    uint64_t version = ts->counts.center_version;
    l->leaving = true;
    l->new_welcome = l->new_welcome || moved;
    bool settled = psc_links_settle(c);
    int rc = psc_pieces_take(c);
    if (settled)
        psc_moved_settle(c);
    if (l->new_welcome) { /* from the current server, which may have been set back */
        ts->counts.center_version = version;
        forget_versions(ts);
    }
    return rc != PSC_OK || !settled || psc_pieces_all_answered(c) ? rc : pass_over_chunks(c, l->new_welcome);
}

/* How long this process was stopped since the last call: that time is not silence of the server. */
static double own_sleep_s(const struct psc *c, double *looked_s)
{
    double now = ps_now_s(), passed = now - *looked_s;
    *looked_s = now;
    return passed > SLEPT_S + c->opt.retry_ms / 1e3 ? passed : 0;
}

/* Polls for a small vector's answers for a moment. */
static int linger(struct psc *c, bool *progress)
{
    double end = ps_now_s() + LINGER_US * 1e-6;
    int rc = PSC_OK;
    do {
        sched_yield();
        rc = psc_pieces_pump(c, progress);
    } while (rc == PSC_OK && !psc_pieces_all_answered(c) && ps_now_s() < end);
    return rc;
}

/* Not for transports whose links_wait decides that itself. */
static bool lingers(const struct psc *c)
{
    const struct ps_transport *t = c->transfer_state.links.transport;
    return t != NULL && t->port_rest == NULL;
}

/* Waits for a link or the service thread, for at most a part of the time between retries. */
static void wait_for_news(struct psc *c)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    int ms = ts->refused || ts->links.leaving ? 1 : (int)(c->opt.retry_ms / 4) + 1;
    int ask_ms = (int)(psc_ask_again_s(&c->session) * 1e3);
    ms = ms < ask_ms ? ms : ask_ms;
    if (ts->links.transport != NULL && !ts->links.leaving && !ts->links.none)
        ts->links.transport->links_wait(ts->links.link, ts->welcome.n_lanes, c->session.wake_fd, ms);
    else
        ps_poll(&(struct pollfd){.fd = c->session.wake_fd, .events = POLLIN}, 1, ms);
}

/* Whether everything in flight waits at the server for other workers (rounds): it is not lost, and the wait
 * is not silence. Reports about a connection that is gone do not count. */
static bool is_parked(struct psc *c)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_shared *s = &c->session.shared;
    uint32_t in_flight = 0;
    for (uint32_t i = 0; i < ts->shard.n_lanes; i++)
        in_flight += ts->progress[i].in_flight;
    pthread_mutex_lock(&s->lock);
    bool parked = s->state == PSC_STATE_JOINED && psc_flight_find(ts, s->waiting_seq) != NULL &&
                  in_flight > 0 && s->waiting_chunks == in_flight;
    pthread_mutex_unlock(&s->lock);
    return parked;
}

/* The remaining pieces are sent when this worker's caller has computed: no peer is silent. */
static bool waits_for_caller(const struct psc *c)
{
    const struct psc_transfer_state *ts = &c->transfer_state;
    const struct psc_transfer *t = &ts->flights[0].t;
    bool in_flight = false;
    for (uint32_t i = 0; i < ts->shard.n_lanes; i++)
        in_flight = in_flight || ts->progress[i].in_flight > 0;
    return !in_flight && (psc_keeps_turn(c, t) || psc_pieces_are_held(c, t));
}

/* Timing of the transfer: the last progress, and the next retry. */
struct pace {
    double progress_s, retry_s, looked_s;
    struct psc_retry retry; /* of what was sent */
    bool hastened;          /* links are gone, and retry_s is for reopening them */
    double held_s;          /* since when the server holds what is in flight */
};

static double pace_next(const struct psc *c, struct pace *p)
{
    double first = c->opt.retry_ms / 1e3;
    return psc_retry_next(&p->retry, first, MAX_BACKOFF * first);
}

static void pace_begin(const struct psc *c, struct pace *p)
{
    p->progress_s = ps_now_s();
    psc_retry_reset(&p->retry);
    p->retry_s = p->progress_s + pace_next(c, p);
    p->hastened = false;
}

/* A wait for other workers is told after HELD_S, and then when one takes twice as long. */
#define HELD_S 10.0

/* Notes that everything in flight waits at the server for other workers, or no longer does. */
static void note_held(struct psc *c, struct pace *p, bool held, double now)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    if (held != atomic_load_explicit(&c->session.held, memory_order_relaxed)) {
        atomic_store_explicit(&c->session.held, held, memory_order_relaxed);
        p->held_s = now;
    }
    if (!held || now - p->held_s < fmax(HELD_S, 2 * ts->held_told_s))
        return;
    ts->held_told_s = now - p->held_s;
    char sentence[160];
    snprintf(sentence, sizeof sentence,
             "the server has held this worker's message for %.0f s: it waits for those of other workers",
             ts->held_told_s);
    psc_session_say(&c->session, sentence);
}

/* Links that are gone, or could not be opened, are retried sooner than chunks are sent again. */
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

/* Links are gone, and are to be reopened soon. */
static bool is_cut_off(const struct psc *c, const struct pace *p)
{
    const struct psc_links *l = &c->transfer_state.links;
    return l->lost || l->none || p->hastened;
}

static int silent_for(struct psc *c, double silent_s)
{
    const struct psc_links *l = &c->transfer_state.links;
    return ps_fail(&c->transfer_state.error, PSC_EGONE,
                   "the data connection has been silent for %.1f s (timeout_ms: %u)%s%s", silent_s,
                   c->opt.timeout_ms, l->none ? "; " : "", l->none ? l->why : "");
}

/* Takes what has arrived and sends what the windows allow. */
static int turn(struct psc *c, bool joined, bool *progress)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    const struct psc_transfer *t = &ts->flights[0].t;
    if (t->gate != NULL && atomic_load_explicit(&t->gate->withdrawn, memory_order_acquire))
        return ps_fail(&ts->error, PSC_EVALUE, "the rest of the message was withdrawn");
    if (ts->links.leaving)
        return joined ? leave(c, false) : PSC_OK;
    int rc = psc_pieces_pump(c, progress);
    if (rc == PSC_OK && !psc_pieces_all_answered(c) && !t->in_background &&
        ts->flights[0].scope.count <= LINGER_FLOATS && lingers(c))
        rc = linger(c, progress);
    return rc;
}

/* Connects, sends, waits and resends, until every chunk is answered, the session ends, or the data connection
 * has been silent for too long. */
static int run_flights(struct psc *c, const struct psc_followers *followers)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct pace pace = {.looked_s = ps_now_s(), .retry = {.dice = c->session.token ^ ts->seq}};
    bool joined, moved;
    int rc;

    pace_begin(c, &pace);
    if ((rc = look_around(c, &joined, &moved)) != PSC_OK ||
        (moved && joined && (rc = pass_over_chunks(c, true)) != PSC_OK) ||
        (rc = psc_flights_check(c)) != PSC_OK)
        return rc;
    while (true) {
        bool progress = false;
        psc_flights_join(c, followers);
        if ((rc = turn(c, joined, &progress)) != PSC_OK)
            return rc;
        psc_flights_retire(c, followers, PSC_OK);
        if (ts->n_flights == 1 && psc_flight_has_ended(c, &ts->flights[0]))
            return PSC_OK;
        wait_for_news(c);
        if (progress) {
            pace_begin(c, &pace);
            psc_retry_reset(&ts->links.retry);
        }
        if (!ts->flights[0].t.in_background)
            psc_ask_to_go_on(&c->session);
        if ((rc = look_around(c, &joined, &moved)) != PSC_OK)
            return rc;
        pace.progress_s += own_sleep_s(c, &pace.looked_s);
        double now = ps_now_s();
        bool parked = is_parked(c);
        note_held(c, &pace, parked, now);
        if (parked || (waits_for_caller(c) && !is_cut_off(c, &pace)))
            pace_begin(c, &pace);
        else if (waits_for_caller(c))
            pace.progress_s = now;
        if (now - pace.progress_s > c->opt.timeout_ms / 1e3)
            return silent_for(c, now - pace.progress_s);
        hasten(c, &pace, now);
        if (joined && (moved || now > pace.retry_s)) {
            pace.hastened = false;
            pace.retry_s = now + pace_next(c, &pace);
            if ((rc = leave(c, moved)) != PSC_OK)
                return rc;
        }
    }
}

/* Before it begins: a psc result. A device looks for bad values as it encodes. */
static int prepare(struct psc *c, const struct psc_transfer *t)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    ts->resent = false;
    /* The method may have changed just as the last transfer was answered. */
    int rc = ts->swapped ? psc_flights_prepare(c) : PSC_OK;
    if (rc != PSC_OK)
        return rc;
    psc_pieces_choose(c, t);
    return psc_coded_is_for(c, t) ? PSC_OK : check_values(c, t);
}

/* Marks the transfer as the only one in progress. A psc result. */
static int begin(struct psc *c, const struct psc_transfer *t)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    if (t->restarts && c->worker.vectors[PSC_VECTOR_ERROR] != NULL)
        psc_zero(&ts->work, c->worker.vectors[PSC_VECTOR_ERROR], c->shard.n_floats);
    ts->transfer_version = 0;
    memset(ts->part_versions, 0, sizeof ts->part_versions);
    ts->begun = ts->refused = ts->one_by_one = false;
    ts->n_flights = 0;
    psc_flight_begin(c, t);
    psc_pieces_rewind(c);
    int rc = psc_coded_is_for(c, t) ? check_coded(c, t) : PSC_OK;
    if (rc != PSC_OK)
        ts->n_flights = 0;
    else
        atomic_store_explicit(&c->session.shared.under_way,
                              (t->kind != PS_FRAME_PULL && t->kind != PS_FRAME_OFFER) || ts->lost_piece,
                              memory_order_relaxed);
    return rc;
}

/* One that could not begin. */
static int end_unbegun(struct psc *c, const struct psc_followers *followers, int rc)
{
    struct psc_flight f = {.rc = rc, .error = c->transfer_state.error, .rate = c->transfer_state.counts.rate};
    if (followers != NULL)
        followers->ended(c, &f);
    return rc;
}

int psc_transfer_run(struct psc *c, const struct psc_transfer *t, const struct psc_followers *followers)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    int rc = prepare(c, t);
    if (rc == PSC_OK)
        rc = begin(c, t);
    if (rc != PSC_OK)
        return end_unbegun(c, followers, rc);
    atomic_store_explicit(&c->session.held, false, memory_order_relaxed);
    rc = run_flights(c, followers);
    atomic_store_explicit(&c->session.held, false, memory_order_relaxed);
    if (rc != PSC_OK || ts->links.leaving) {
        /* This includes the end of a drain: nothing may remain in flight. */
        psc_links_close(c);
        ts->links.epoch = 0;
    }
    psc_flights_retire(c, followers, rc);
    psc_flights_end(c, followers);
    return rc;
}
