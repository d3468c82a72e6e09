/* What a Hello means: a new session, or one taken up again after a lost connection or a restart of psd. */
#include "server/psd.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/log.h"
#include "server/endpoint.h"

static void refusef(struct psd *d, const struct psd_peer *peer, uint32_t code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

static void refusef(struct psd *d, const struct psd_peer *peer, uint32_t code, const char *fmt, ...)
{
    char sentence[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    psd_control_refuse(d, peer, code, sentence);
}

/* Bytes of the UTF-8 character at p; 0 for what is none, or a control character. */
static size_t character_bytes(const unsigned char *p)
{
    size_t n = p[0] < 0x80 ? 1 : p[0] >> 5 == 0x6 ? 2 : p[0] >> 4 == 0xe ? 3 : p[0] >> 3 == 0x1e ? 4 : 0;
    uint32_t c = n < 2 ? p[0] : p[0] & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (p[i] >> 6 != 2)
            return 0;
        c = c << 6 | (p[i] & 0x3f);
    }
    bool too_long = (n == 2 && c < 0x80) || (n == 3 && c < 0x800) || (n == 4 && c < 0x10000);
    bool allowed = c >= 0x20 && (c < 0x7f || c >= 0xa0) && c <= 0x10ffff && !(c >= 0xd800 && c < 0xe000);
    return allowed && !too_long ? n : 0;
}

/* A peer's text, fit for logs, terminals and JSON. */
static void copy_text(char *to, size_t size, const char *from)
{
    size_t used = 0;
    while (*from != 0) {
        size_t n = character_bytes((const unsigned char *)from), step = n > 0 ? n : 1;
        if (used + step >= size)
            break;
        memcpy(to + used, n > 0 ? from : "?", step);
        used += step;
        from += step;
    }
    to[used] = 0;
}

static void set_peer(struct psd *d, struct psd_session *s, const struct psd_peer *peer, const Ps__Hello *m)
{
    s->peer_bytes = peer->id_bytes < sizeof s->peer ? peer->id_bytes : 0;
    memcpy(s->peer, peer->id, s->peer_bytes);
    s->last_heard_ms = uv_now(&d->loop);
    copy_text(s->name, sizeof s->name, m->name[0] != 0 ? m->name : "unnamed");
    copy_text(s->address, sizeof s->address, peer->address);
}

static void fill_method(const struct psd *d, Ps__Method *m, Ps__Schedule *schedule)
{
    const struct ps_hyper *h = &d->cfg.hyper;
    m->name = (char *)(uintptr_t)d->cfg.method;
    m->rule = (char *)(uintptr_t)d->cfg.rule;
    m->optimizer = (char *)(uintptr_t)d->cfg.optimizer;
    m->learning_rate = h->learning_rate;
    m->period = h->period;
    m->momentum = h->momentum;
    m->alpha = (double)atomic_load_explicit(&d->shared.alpha, memory_order_relaxed);
    m->weight_decay = h->weight_decay;
    m->overlap = h->overlap;
    m->rho = isnan(h->rho) ? 0 : h->rho;
    m->averaging = (char *)(uintptr_t)d->cfg.averaging;
    m->admission = (char *)(uintptr_t)d->cfg.admission;
    schedule->kind = h->schedule.kind;
    schedule->gamma = h->schedule.gamma;
    schedule->step_steps = h->schedule.step_steps;
    schedule->warmup_steps = h->schedule.warmup_steps;
    m->schedule = schedule;
}

static void welcome(struct psd *d, const struct psd_session *s, bool resumed, bool revived)
{
    Ps__Method method = PS__METHOD__INIT;
    Ps__Schedule schedule = PS__SCHEDULE__INIT;
    Ps__Welcome w = PS__WELCOME__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    char urls[PS_MAX_LANES][320];
    char *lanes[PS_MAX_LANES];

    bool whole_lanes = psd_admission_find(d->cfg.admission)->whole_lanes;
    uint32_t n_lanes = whole_lanes ? 1 : d->n_lanes;
    for (uint32_t i = 0; i < n_lanes; i++) {
        const struct psd_lane *lane = d->lanes[whole_lanes ? s->client % d->n_lanes : i];
        psd_endpoint_advertised(d->transport->port_url(lane->port), d->cfg.advertise, urls[i],
                                sizeof urls[i]);
        lanes[i] = urls[i];
    }
    fill_method(d, &method, &schedule);
    w.client = s->client;
    w.incarnation = s->incarnation;
    w.workers = psd_sessions_count(&d->sessions, false);
    w.method = &method;
    w.generation = atomic_load_explicit(&d->shared.generation, memory_order_relaxed);
    w.center_version = psd_version(d);
    w.transport = (char *)(uintptr_t)d->transport->name;
    w.lanes = lanes;
    w.n_lanes = n_lanes;
    w.chunk_floats = d->center != NULL ? d->center->shard.chunk_floats : d->cfg.chunk_floats;
    w.window_chunks = d->cfg.window_chunks;
    w.silence_ms = d->cfg.limits.silence_s * 1000;
    w.resumed = resumed;
    w.revived = revived;
    m.what_case = PS__TO_CLIENT__WHAT_WELCOME;
    m.welcome = &w;
    psd_control_send_to(d, s->peer, s->peer_bytes, &m);
}

/* The slot a new client gets, or NULL when the answer was an error. */
static struct psd_session *choose_slot(struct psd *d, const struct psd_peer *peer, const Ps__Hello *m)
{
    struct psd_sessions *t = &d->sessions;
    if (m->observer || m->any_rank) {
        struct psd_session *s = psd_sessions_vacant(t, m->observer, uv_now(&d->loop));
        if (s == NULL)
            refusef(d, peer, PS__CODE__FULL, "all %u places for %s are taken",
                    m->observer ? PSD_OBSERVERS : t->n_workers_max,
                    m->observer ? "observers" : "workers (limits.clients)");
        return s;
    }
    if (m->rank >= t->n_workers_max) {
        refusef(d, peer, PS__CODE__RANK_RANGE, "rank %u; allowed are 0 to %u (limits.clients)", m->rank,
                t->n_workers_max - 1);
        return NULL;
    }
    if (t->slots[m->rank].state != PSD_SESSION_VACANT) {
        refusef(d, peer, PS__CODE__RANK_TAKEN, "rank %u is taken by %s", m->rank, t->slots[m->rank].name);
        return NULL;
    }
    return &t->slots[m->rank];
}

static bool memory_allows(struct psd *d, const struct psd_peer *peer)
{
    struct psd_totals t;
    psd_stats_totals(d, &t);
    double need = (double)(t.center_bytes + t.snapshot_bytes + t.state_bytes + t.average_bytes +
                           t.replay_bytes + t.window_bytes + psd_stats_window_bytes(d));
    double limit = d->cfg.limits.memory_gib * (double)(1u << 30);
    if (need <= limit)
        return true;
    refusef(d, peer, PS__CODE__FULL, "one more client could make psd use %.2f GiB; limits.memory_gib is %.2f",
            need / (1u << 30), d->cfg.limits.memory_gib);
    return false;
}

/* A session still owes its lanes a few notes (admitted, admitted again, ended). Those who come and go faster
 * than a busy lane takes its notes are put off, so that the room for everyone's is never used up. */
static bool lanes_keep_up(struct psd *d, const struct psd_peer *peer)
{
    for (uint32_t i = 0; i < d->n_lanes; i++)
        if (psd_ring_room(d->lanes[i]->in) < 4 * d->sessions.n_slots) {
            refusef(d, peer, PS__CODE__FULL, "sessions come and go faster than lane %u can follow: try again",
                    i);
            return false;
        }
    return true;
}

static void start_session(struct psd *d, const struct psd_peer *peer, const Ps__Hello *m)
{
    struct psd_session *s = psd_sessions_find_token(&d->sessions, m->token);
    if (s != NULL &&
        s->observer == (m->observer != 0)) { /* it asked before, and has not begun as far as it knows */
        set_peer(d, s, peer, m);
        welcome(d, s, false, false);
        return;
    }
    if (d->state >= PSD_STATE_DRAINING) {
        refusef(d, peer, PS__CODE__DRAINING, "psd is draining: no new joins");
        return;
    }
    if (!lanes_keep_up(d, peer) || !memory_allows(d, peer) || (s = choose_slot(d, peer, m)) == NULL)
        return;
    set_peer(d, s, peer, m);
    s->incarnation = ++d->sessions.incarnation;
    s->token = m->token;
    s->state = PSD_SESSION_JOINING;
    s->joined_ms = uv_now(&d->loop);
    s->clock = 0;
    s->metrics = (struct psd_metrics){NAN, NAN, NAN};
    psd_job_update_rates(d);
    ps_log(PS_LOG_DEBUG, "session.hello", "%s at %s is %s %u, incarnation %u", s->name, s->address,
           s->observer ? "observer" : "rank", s->client, s->incarnation);
    welcome(d, s, false, false);
}

static bool may_go_on(struct psd *d, const struct psd_peer *peer, const Ps__Hello *m)
{
    const struct psd_session *s = &d->sessions.slots[m->client];
    if (s->incarnation == m->incarnation && s->state == PSD_SESSION_VACANT) {
        refusef(d, peer, PS__CODE__EVICTED, "the session of client %u, incarnation %u, has ended", m->client,
                m->incarnation);
        return false;
    }
    if (s->incarnation != 0) {
        refusef(d, peer, PS__CODE__STALE, "incarnation %u is stale: client %u is in its incarnation %u",
                m->incarnation, m->client, s->incarnation);
        return false;
    }
    if (d->resumed_from[0] == 0 || m->incarnation > d->resumed.incarnation + PSD_INCARNATION_SLACK) {
        refusef(d, peer, PS__CODE__NO_SESSION, "client %u, incarnation %u, has no session here%s", m->client,
                m->incarnation,
                d->resumed_from[0] == 0 ? ": psd was started without --resume, or found no checkpoint" : "");
        return false;
    }
    if (d->center == NULL || d->center->manifest->hash != m->manifest_hash) {
        refusef(d, peer, PS__CODE__MANIFEST, "client %u had joined with another model than the checkpoint's",
                m->client);
        return false;
    }
    const struct ps_rule_info *rule = ps_rule_find(d->cfg.rule);
    if (!s->observer && (rule->uses & PS_USES_WORKERS) != 0 && m->client >= d->cfg.hyper.workers) {
        refusef(d, peer, PS__CODE__RANK_RANGE,
                "rank %u: rule %s has %u workers from the start to the end (workers: %u)", m->client,
                rule->name, d->cfg.hyper.workers, d->cfg.hyper.workers);
        return false;
    }
    return true;
}

/* psd was restarted from its checkpoint; the worker was in the job before. */
static void revive_session(struct psd *d, const struct psd_peer *peer, const Ps__Hello *m)
{
    struct psd_session *s = &d->sessions.slots[m->client];
    s->incarnation = m->incarnation;
    s->token = 0;
    s->state = PSD_SESSION_ACTIVE;
    s->joined_ms = uv_now(&d->loop);
    s->metrics = (struct psd_metrics){NAN, NAN, NAN};
    set_peer(d, s, peer, m);
    if (m->center_version > d->resumed_version && m->center_version - d->resumed_version > d->lost_updates)
        d->lost_updates = m->center_version - d->resumed_version;
    psd_job_admit(d, s, s->observer ? PSD_PHASE_OBSERVING : PSD_PHASE_ACTIVE, true);
    psd_job_update_rates(d);
    if (!s->observer) {
        s->took_part = d->membership.revived = true;
        psd_membership_joined(d);
    }
    ps_log(PS_LOG_INFO, "session.revived",
           "%s goes on as %s %u; it had seen version %" PRIu64 ", the checkpoint holds %" PRIu64, s->name,
           s->observer ? "observer" : "rank", s->client, m->center_version, d->resumed_version);
    welcome(d, s, true, true);
}

static void go_on(struct psd *d, const struct psd_peer *peer, const Ps__Hello *m)
{
    if (m->client >= d->sessions.n_slots || d->sessions.slots[m->client].observer != (m->observer != 0)) {
        refusef(d, peer, PS__CODE__NO_SESSION, "client %u has no session here", m->client);
        return;
    }
    struct psd_session *s = psd_sessions_find(&d->sessions, m->client, m->incarnation);
    if (s != NULL) {
        set_peer(d, s, peer, m);
        ps_log(PS_LOG_INFO, "session.reconnected", "%s is back as %s %u", s->name,
               s->observer ? "observer" : "rank", s->client);
        welcome(d, s, s->state == PSD_SESSION_ACTIVE || s->state == PSD_SESSION_OFFERING, false);
        return;
    }
    if (d->state >= PSD_STATE_DRAINING)
        refusef(d, peer, PS__CODE__DRAINING, "psd is draining: no new joins");
    else if (may_go_on(d, peer, m))
        revive_session(d, peer, m);
}

void psd_hello(struct psd *d, const struct psd_peer *peer, const Ps__Hello *m)
{
    if (m->protocol != PS_PROTOCOL_VERSION)
        refusef(d, peer, PS__CODE__VERSION, "protocol version %u; this psd speaks %d", m->protocol,
                PS_PROTOCOL_VERSION);
    else if (m->incarnation != 0)
        go_on(d, peer, m);
    else
        start_session(d, peer, m);
}
