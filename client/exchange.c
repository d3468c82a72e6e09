/* Moving the vector over all lanes at once, chunk by chunk, with a window of chunks in flight per lane.
 *
 * A transfer outlives its connections: when the server was restarted, or has been silent on the data road for
 * retry_ms, the links are closed (no byte of the caller's vector is read any more), opened anew, and what was
 * not answered is sent again under the same name; the server recognises what had landed. */
#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <sched.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>

#include "client/psc.h"
#include "proto/codec.h"

enum { MAX_BACKOFF = 8 };

/* A small vector's answer comes so soon that to sleep and be woken on another core costs more than the
 * exchange. The caller then looks for it for a moment, giving way to whoever wants the core, before it
 * sleeps. Only this end does so: two that hold a core each keep the I/O threads between them waiting. */
enum { LINGER_FLOATS = 4096, LINGER_US = 100 };
enum { REASON_S = 1 };
#define SLEPT_S 0.5

void psc_links_close(struct psc *c)
{
    struct psc_carriage *carry = &c->carriage;
    for (uint32_t i = 0; i < PS_MAX_LANES; i++)
        if (carry->links.link[i] != NULL) {
            carry->links.transport->link_close(carry->links.link[i]);
            carry->links.link[i] = NULL;
        }
}

static int links_open(struct psc *c)
{
    struct psc_carriage *carry = &c->carriage;
    struct psc_links *l = &carry->links;
    struct ps_road_limits limits = {.max_body_bytes =
                                        carry->road.chunk_floats * sizeof(float) + PS_MAX_SENTENCE,
                                    .window_chunks = carry->road.window_chunks};
    if (l->hub == NULL) {
        l->transport = ps_transport_find(carry->road.transport);
        if (l->transport->hub_create(ps_shard_lanes_met(&c->shard, ps_shard_whole(&c->shard)), &l->hub) < 0)
            return ps_fail(&carry->error, PSC_ESYSTEM, "no descriptors for the data road");
    }
    for (uint32_t i = 0; i < carry->road.n_lanes; i++)
        if (carry->progress[i].answered != NULL &&
            l->transport->link_open(l->hub, carry->road.urls[i], &limits, &l->link[i], &carry->error) < 0)
            return PSC_ESYSTEM;
    return PSC_OK;
}

/* Takes over what the service thread knows. PSC_OK, or how the session ended. */
static int look_around(struct psc *c, bool *joined, bool *moved)
{
    struct psc_carriage *carry = &c->carriage;
    struct psc_shared *s = &c->shared;
    int rc = PSC_OK;
    eventfd_t count;
    eventfd_read(c->wake_fd, &count);
    pthread_mutex_lock(&s->lock);
    *joined = s->state == PSC_STATE_JOINED;
    *moved = s->epoch != carry->links.epoch;
    if (s->give_up)
        rc = ps_fail(&carry->error, PSC_EINVAL, "given up: the handle is being closed");
    else if (s->state == PSC_STATE_ENDED)
        rc = ps_fail(&carry->error, s->result, "%s; the transfer under way did not complete", s->why.text);
    else if (*moved && *joined) {
        if (s->road.n_lanes != carry->road.n_lanes || s->road.chunk_floats != carry->road.chunk_floats)
            rc = ps_fail(&carry->error, PSC_EEVICTED,
                         "the server came back with another lane map: %u lanes, chunks of %u floats",
                         s->road.n_lanes, s->road.chunk_floats);
        else if (strcmp(s->road.rule, carry->road.rule) != 0 ||
                 strcmp(s->road.optimizer, carry->road.optimizer) != 0)
            rc = ps_fail(&carry->error, PSC_EEVICTED,
                         "the server came back with another method, '%s' instead of '%s': join anew",
                         s->road.method, carry->road.method);
        carry->road = s->road;
        carry->links.epoch = s->epoch;
        carry->cut = carry->cut || s->revivals != carry->revivals;
        carry->revivals = s->revivals;
        carry->counts.center_version = s->center_version; /* a restart may have set it back */
        carry->transfer_version = 0;
        if (rc == PSC_OK)
            s->hyper = s->road.hyper;
    }
    pthread_mutex_unlock(&s->lock);
    return rc;
}

static bool is_answered(const struct psc_lane_progress *p, uint32_t k)
{
    return p->answered[k / 64] >> (k % 64) & 1;
}

/* Everything unanswered is to be sent (again). */
static void rewind_lanes(struct psc *c)
{
    struct psc_carriage *carry = &c->carriage;
    for (uint32_t i = 0; i < carry->road.n_lanes; i++) {
        carry->progress[i].next = carry->progress[i].first;
        carry->progress[i].in_flight = 0;
    }
}

/* Marks the pieces of the scope as unanswered; of an exchange, those that move. */
static void start_lanes(struct psc *c, const struct psc_transfer *t)
{
    struct psc_carriage *carry = &c->carriage;
    bool moves = psc_transfer_moves(t);
    carry->scope = t->tensor != NULL ? ps_tensor_range(t->tensor) : ps_shard_whole(&c->shard);
    for (uint32_t i = 0; i < carry->road.n_lanes; i++) {
        struct psc_lane_progress *p = &carry->progress[i];
        uint32_t n = ps_shard_pieces(&c->shard, i, carry->scope, &p->first);
        p->end = p->first + n;
        p->n_left = 0;
        for (uint32_t k = p->first; k < p->end; k++) {
            bool idle =
                moves && ps_manifest_is_frozen(c->manifest, ps_shard_piece(&c->shard, i, carry->scope, k));
            uint64_t bit = UINT64_C(1) << (k % 64);
            p->answered[k / 64] = idle ? p->answered[k / 64] | bit : p->answered[k / 64] & ~bit;
            p->n_left += !idle;
        }
    }
    rewind_lanes(c);
}

/* The server has lost some of what it had answered. Where exchanges wait for each other, nobody else could go
 * on with those chunks: the whole exchange is sent again. */
static bool is_cut(const struct psc *c, const struct psc_transfer *t)
{
    const struct ps_admission_info *a = ps_admission_find(c->carriage.road.admission);
    return c->carriage.cut && psc_transfer_moves(t) && a != NULL && a->members;
}

static bool all_answered(const struct psc *c)
{
    const struct psc_carriage *carry = &c->carriage;
    for (uint32_t i = 0; i < carry->road.n_lanes; i++)
        if (carry->progress[i].n_left > 0)
            return false;
    return true;
}

static int reopen_links(struct psc *c, const struct psc_transfer *t, bool moved)
{
    struct psc_carriage *carry = &c->carriage;
    if (moved && is_cut(c, t))
        start_lanes(c, t);
    carry->cut = false;
    for (uint32_t i = 0; i < carry->road.n_lanes; i++)
        carry->counts.retries += carry->progress[i].in_flight;
    psc_links_close(c);
    rewind_lanes(c);
    return links_open(c);
}

/* Fills the lane's window. */
static void send_lane(struct psc *c, const struct psc_transfer *t, uint32_t lane)
{
    struct psc_carriage *carry = &c->carriage;
    struct psc_lane_progress *p = &carry->progress[lane];
    unsigned char head[PS_FRAME_BYTES];

    for (; p->next < p->end && p->in_flight < carry->road.window_chunks; p->next++) {
        if (is_answered(p, p->next))
            continue;
        struct ps_range r = ps_shard_piece(&c->shard, lane, carry->scope, p->next);
        struct ps_frame f = {.kind = t->kind,
                             .client = carry->road.client,
                             .incarnation = carry->road.incarnation,
                             .generation = carry->road.generation,
                             .seq = carry->seq,
                             .begin = r.begin,
                             .count = (uint32_t)r.count,
                             .samples = t->samples,
                             .clock = t->clock,
                             .flags = (uint16_t)(t->flags | (t->tensor != NULL ? PS_FLAG_TENSOR : 0)),
                             .code = t->tensor != NULL ? (uint16_t)(t->tensor - c->manifest->tensors) : 0,
                             .center_version = carry->counts.center_version};
        const float *body = t->send != NULL ? t->send + (r.begin - carry->scope.begin) : NULL;
        ps_frame_pack(&f, head);
        if (carry->links.transport->link_send(carry->links.link[lane], head, body, r.count * sizeof(float)) <
            0)
            return; /* the window was overestimated: later */
        p->in_flight++;
        if (body != NULL)
            carry->counts.bytes_sent += r.count * sizeof(float);
    }
}

/* The control road says why a session was ended, and may be a moment later than the lanes. */
static bool is_told_why(struct psc *c)
{
    struct psc_shared *s = &c->shared;
    struct timespec end;
    int rc = 0;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += REASON_S;
    pthread_mutex_lock(&s->lock);
    while (rc == 0 && s->state != PSC_STATE_ENDED)
        rc = pthread_cond_timedwait(&s->changed, &s->lock, &end);
    bool told = s->state == PSC_STATE_ENDED;
    pthread_mutex_unlock(&s->lock);
    return told;
}

/* What an error frame means for the transfer. A restarted server is waited for: the service thread is on it.
 */
static int take_error(struct psc *c, const struct ps_frame *f, const struct ps_message *m)
{
    struct psc_carriage *carry = &c->carriage;
    if (f->code == PS__CODE__NO_SESSION || f->code == PS__CODE__NOT_BEGUN ||
        (f->code == PS__CODE__EVICTED && is_told_why(c)))
        return PSC_OK;
    return ps_fail(&carry->error, psc_result_of_code(f->code),
                   "the server refused floats %" PRIu64 " +%u: %.*s", f->begin, f->count,
                   (int)(m->body_bytes < PS_MAX_SENTENCE ? m->body_bytes : PS_MAX_SENTENCE),
                   (const char *)m->body);
}

/* The floats of an answer, which the transport may have put at any address. */
static const float *floats_of(struct psc *c, const struct ps_message *m)
{
    struct psc_carriage *carry = &c->carriage;
    if ((uintptr_t)m->body % sizeof(float) == 0)
        return (const float *)(const void *)m->body;
    memcpy(carry->scratch, m->body, m->body_bytes);
    return carry->scratch;
}

static int take_answer(struct psc *c, const struct psc_transfer *t, uint32_t lane, const struct ps_message *m)
{
    struct psc_carriage *carry = &c->carriage;
    struct psc_lane_progress *p = &carry->progress[lane];
    struct ps_frame f;
    if (ps_frame_parse(&f, m->head, m->head_bytes, &carry->error) < 0)
        return PSC_EUNSUPPORTED;
    if (f.seq != carry->seq)
        return PSC_OK; /* of a transfer that was given up */
    if (f.kind == PS_FRAME_ERROR)
        return take_error(c, &f, m);
    struct ps_range r = {f.begin, f.count};
    int64_t k = ps_shard_find(&c->shard, lane, carry->scope, r);
    size_t want = t->landed != NULL ? ps_codec_find(0)->payload_bytes(f.count) : 0;
    if (f.kind != PS_FRAME_ANSWER || k < 0 || m->body_bytes != want)
        return ps_fail(&carry->error, PSC_EUNSUPPORTED,
                       "lane %u answered floats %" PRIu64 " +%u with %zu bytes; expected %zu", lane, f.begin,
                       f.count, m->body_bytes, want);
    if (is_answered(p, (uint32_t)k))
        return PSC_OK;
    r.begin -= carry->scope.begin;
    if (t->landed != NULL)
        t->landed(c, r, floats_of(c, m), f.rate, t->target);
    p->answered[k / 64] |= UINT64_C(1) << (k % 64);
    p->n_left--;
    p->in_flight -= p->in_flight > 0;
    if (f.center_version >= carry->transfer_version) /* lanes answer in any order */
        carry->transfer_version = carry->counts.center_version = f.center_version;
    if (psc_transfer_moves(t))
        carry->counts.rate = f.rate;
    if ((f.flags & PS_FLAG_SAVE) && f.center_version > carry->save_version)
        carry->save_version = f.center_version; /* of the lane that was the last to end the round */
    carry->counts.bytes_received += m->body_bytes;
    return PSC_OK;
}

/* Takes what lanes have answered and refills their windows. *progress: whether there was anything. */
static int pump(struct psc *c, const struct psc_transfer *t, bool *progress)
{
    struct psc_carriage *carry = &c->carriage;
    struct ps_message m;
    for (uint32_t lane = 0; lane < carry->road.n_lanes; lane++) {
        int rc;
        if (carry->links.link[lane] == NULL)
            continue;
        while ((rc = carry->links.transport->link_recv(carry->links.link[lane], &m)) == 0 || rc == -EBADMSG) {
            int result = take_answer(c, t, lane, &m);
            carry->links.transport->message_drop(&m);
            if (result != PSC_OK)
                return result;
            *progress = true;
            send_lane(c, t, lane);
        }
        send_lane(c, t, lane);
    }
    return PSC_OK;
}

/* How long this process stood still (was stopped) since it last looked: no silence of the server's. */
static double own_sleep_s(const struct psc *c, double *looked_s)
{
    double now = psc_now_s(), passed = now - *looked_s;
    *looked_s = now;
    return passed > SLEPT_S + c->opt.retry_ms / 1e3 ? passed : 0;
}

/* Looks for a small vector's answers for a moment. */
static int linger(struct psc *c, const struct psc_transfer *t, bool *progress)
{
    double end = psc_now_s() + LINGER_US * 1e-6;
    int rc = PSC_OK;
    do {
        sched_yield();
        rc = pump(c, t, progress);
    } while (rc == PSC_OK && !all_answered(c) && psc_now_s() < end);
    return rc;
}

/* Until a link or the service thread has something to say, for a part of the time between retries. */
static void wait_for_news(struct psc *c)
{
    struct psc_carriage *carry = &c->carriage;
    int ms = (int)c->opt.retry_ms / 4 + 1;
    if (carry->links.transport != NULL)
        carry->links.transport->links_wait(carry->links.link, carry->road.n_lanes, c->wake_fd, ms);
    else
        poll(&(struct pollfd){.fd = c->wake_fd, .events = POLLIN}, 1, ms);
}

/* Whether everything that is on its way waits at the server for other workers (rounds): it is not lost, and
 * that is not silence. What the server said of a connection that is gone does not count. */
static bool is_parked(struct psc *c)
{
    struct psc_carriage *carry = &c->carriage;
    struct psc_shared *s = &c->shared;
    uint32_t in_flight = 0;
    for (uint32_t i = 0; i < carry->road.n_lanes; i++)
        in_flight += carry->progress[i].in_flight;
    pthread_mutex_lock(&s->lock);
    bool parked = s->state == PSC_STATE_JOINED && s->waiting_seq == carry->seq && in_flight > 0 &&
                  s->waiting_chunks == in_flight;
    pthread_mutex_unlock(&s->lock);
    return parked;
}

/* Connects, waits, resends: until every chunk is answered, or the session ends, or the data road stays
 * silent. */
static int run(struct psc *c, const struct psc_transfer *t)
{
    struct psc_carriage *carry = &c->carriage;
    double last_progress_s = psc_now_s(), next_retry_s = last_progress_s + c->opt.retry_ms / 1e3;
    double looked_s = last_progress_s;
    uint32_t backoff = 1;
    bool joined, moved;
    int rc;

    if ((rc = look_around(c, &joined, &moved)) != PSC_OK ||
        (moved && joined && (rc = reopen_links(c, t, true)) != PSC_OK))
        return rc;
    while (true) {
        bool progress = false;
        if ((rc = pump(c, t, &progress)) != PSC_OK || all_answered(c))
            return rc;
        if (!t->patient && carry->scope.count <= LINGER_FLOATS &&
            ((rc = linger(c, t, &progress)) != PSC_OK || all_answered(c)))
            return rc;
        wait_for_news(c);
        if (progress) {
            last_progress_s = psc_now_s();
            backoff = 1;
            next_retry_s = last_progress_s + c->opt.retry_ms / 1e3;
        }
        if ((rc = look_around(c, &joined, &moved)) != PSC_OK)
            return rc;
        double slept_s = own_sleep_s(c, &looked_s);
        last_progress_s += slept_s;
        double now = psc_now_s();
        if (is_parked(c)) {
            last_progress_s = now;
            next_retry_s = now + c->opt.retry_ms / 1e3;
        }
        if (now - last_progress_s > c->opt.timeout_ms / 1e3)
            return ps_fail(&carry->error, PSC_EGONE,
                           "the data road has been silent for %.1f s (timeout_ms: %u)", now - last_progress_s,
                           c->opt.timeout_ms);
        if (joined && (moved || now > next_retry_s)) {
            backoff = moved || backoff >= MAX_BACKOFF ? backoff : backoff * 2;
            next_retry_s = now + backoff * c->opt.retry_ms / 1e3;
            if ((rc = reopen_links(c, t, moved)) != PSC_OK)
                return rc;
        }
    }
}

/* The tensor that float `at` lies in. */
static const struct ps_tensor *tensor_at(const struct ps_manifest *m, uint64_t at)
{
    size_t low = 0, high = m->n_tensors; /* tensors[low].offset <= at, and high's is not */
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (m->tensors[middle].offset <= at)
            low = middle;
        else
            high = middle;
    }
    return &m->tensors[low];
}

static int refuse_value(struct psc *c, const struct psc_transfer *t, struct ps_range scope, uint64_t at,
                        struct ps_error *err)
{
    struct psc_shared *s = &c->shared;
    pthread_mutex_lock(&s->lock);
    if (!s->has_nonfinite) { /* the server wants the first */
        s->has_nonfinite = true;
        s->nonfinite_clock = t->clock;
        s->nonfinite_index = at;
    }
    pthread_mutex_unlock(&s->lock);
    psc_service_poke(c);
    return ps_fail(err, PSC_EVALUE, "%s[%" PRIu64 "], in tensor '%s', is not finite: nothing was sent",
                   t->name, at - scope.begin, tensor_at(c->manifest, at)->name);
}

int psc_transfer_check(struct psc *c, const struct psc_transfer *t, struct ps_error *err)
{
    struct ps_range scope = t->tensor != NULL ? ps_tensor_range(t->tensor) : ps_shard_whole(&c->shard);
    if (t->send == NULL || t->name == NULL)
        return PSC_OK;
    for (struct psc_part p = psc_first_part(c->manifest, scope); p.range.count > 0;
         p = psc_next_part(p, scope)) {
        if (psc_transfer_moves(t) && p.segment->role == PS_ROLE_FROZEN)
            continue;
        size_t bad = c->vec->first_nonfinite(t->send + (p.range.begin - scope.begin), p.range.count);
        if (bad < p.range.count)
            return refuse_value(c, t, scope, p.range.begin + bad, err);
    }
    return PSC_OK;
}

/* Lets psc_info see what the transfer did. */
static void publish(struct psc *c)
{
    struct psc_shared *s = &c->shared;
    pthread_mutex_lock(&s->lock);
    s->counts = c->carriage.counts;
    if (s->counts.center_version > s->center_version)
        s->center_version = s->counts.center_version;
    if (c->carriage.save_version != 0)
        s->save_version = c->carriage.save_version;
    c->carriage.save_version = 0;
    pthread_mutex_unlock(&s->lock);
}

int psc_transfer_run(struct psc *c, const struct psc_transfer *t)
{
    struct psc_carriage *carry = &c->carriage;
    int rc = psc_transfer_check(c, t, &carry->error);
    if (rc != PSC_OK)
        return rc;
    carry->seq++;
    carry->transfer_version = 0;
    start_lanes(c, t);
    if ((rc = run(c, t)) != PSC_OK) { /* a drain may end it too: nothing sent may still be on its way */
        psc_links_close(c);
        carry->links.epoch = 0;
    }
    carry->counts.exchanges += rc == PSC_OK && psc_transfer_moves(t);
    publish(c);
    return rc;
}
