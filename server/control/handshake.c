/* Handles Hello: starts a session, or continues one after a lost connection or a restart of psd. */
#include "server/control/control.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "proto/log.h"
#include "proto/text.h"
#include "server/config/endpoint.h"

static void refusef(struct psd_control *control, const struct psd_peer *peer, uint32_t code, const char *fmt,
                    ...) __attribute__((format(printf, 4, 5)));

static void refusef(struct psd_control *control, const struct psd_peer *peer, uint32_t code, const char *fmt,
                    ...)
{
    char sentence[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(sentence, sizeof sentence, fmt, ap);
    va_end(ap);
    psd_send_refusal(control->sender, peer, code, sentence);
}

static void set_peer(struct psd_control *control, struct psd_session *s, const struct psd_peer *peer,
                     const Ps__Hello *m)
{
    s->peer_bytes = peer->id_bytes < sizeof s->peer ? peer->id_bytes : 0;
    memcpy(s->peer, peer->id, s->peer_bytes);
    s->last_heard_ms = psd_loop_now_ms(control->loop);
    ps_text_copy(s->name, sizeof s->name, m->name[0] != 0 ? m->name : "unnamed");
    ps_text_copy(s->net, sizeof s->net, m->net);
    ps_text_copy(s->data, sizeof s->data, m->data);
    s->heartbeat_ms = m->heartbeat_ms;
    s->at_next_step = !m->observer && !m->lands_later;
    s->steps = m->steps <= PS_MAX_STEPS ? m->steps : 0;
    ps_text_copy(s->address, sizeof s->address, peer->address);
    s->members = m->members > 1 ? m->members : 1;
    s->members_left = s->members_left < s->members && s->members_left > 0 ? s->members_left : s->members;
    psd_auth_bind(s, peer);
}

static void fill_method(const struct psd_control *control, Ps__Method *m, Ps__Schedule *schedule)
{
    const struct ps_hyper *h = &control->cfg->hyper;
    m->name = (char *)(uintptr_t)control->cfg->method;
    m->rule = (char *)(uintptr_t)control->cfg->rule;
    m->optimizer = (char *)(uintptr_t)control->cfg->optimizer;
    m->dynamic_period = h->dynamic_period;
    m->fragments = h->fragments;
    m->mix = h->mix;
    m->learning_rate = h->learning_rate;
    m->period = h->period;
    m->workers = h->workers;
    m->momentum = h->momentum;
    m->alpha = (double)atomic_load_explicit(&control->lanes->shared.alpha, memory_order_relaxed);
    m->weight_decay = h->weight_decay;
    m->overlap = h->overlap > 0;
    m->overlap_steps = h->overlap;
    m->serial = h->serial;
    m->rho = isnan(h->rho) ? 0 : h->rho;
    m->clique_mode = control->cfg->clique.mode;
    m->clique_codec = (char *)(uintptr_t)control->cfg->clique.codec;
    m->clique_algorithm = (char *)(uintptr_t)control->cfg->clique.algorithm;
    m->clique_on_loss = (char *)(uintptr_t)control->cfg->clique.on_loss;
    m->publish = control->cfg->clique.publish;
    m->bucket_floats = control->cfg->clique.bucket_floats;
    m->pipeline = h->pipeline;
    m->pipeline_warmup = h->pipeline_warmup;
    m->pipeline_warmup_epochs = h->pipeline_warmup_epochs;
    m->unsent_rate = ps_hyper_unsent_rate(h, ps_rule_find(control->cfg->rule));
    m->averaging = (char *)(uintptr_t)control->cfg->averaging;
    m->admission = (char *)(uintptr_t)control->cfg->admission;
    schedule->kind = h->schedule.kind;
    schedule->gamma = h->schedule.gamma;
    schedule->step_steps = h->schedule.step_steps;
    schedule->warmup_steps = h->schedule.warmup_steps;
    schedule->total_steps = h->schedule.total_steps;
    schedule->floor = h->schedule.floor;
    schedule->milestones = (uint64_t *)(uintptr_t)h->schedule.milestones;
    schedule->n_milestones = h->schedule.n_milestones;
    schedule->factors = (double *)(uintptr_t)h->schedule.factors;
    schedule->n_factors = h->schedule.n_factors;
    schedule->drops = h->schedule.drops;
    m->schedule = schedule;
    m->message_codec = (char *)(uintptr_t)control->cfg->codec.message;
    m->answer_codec = (char *)(uintptr_t)control->cfg->codec.answer;
    m->error_feedback = control->cfg->codec.error_feedback;
}

/* The newest exchange of the session on the track that has landed. */
static uint64_t landed_on(const struct psd_control *control, const struct psd_session *s, uint32_t track)
{
    const struct psd_shared *shared = &control->lanes->shared;
    _Atomic uint64_t *whole = &shared->whole[psd_track_at(shared, s->client, track)];
    return psd_exchange_seq(atomic_load_explicit(whole, memory_order_acquire), s->incarnation, 0);
}

static void welcome(struct psd_control *control, const struct psd_session *s, bool resumed, bool revived)
{
    Ps__Method method = PS__METHOD__INIT;
    Ps__Schedule schedule = PS__SCHEDULE__INIT;
    Ps__Welcome w = PS__WELCOME__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    struct psd_transports_told told;
    char *lanes[PS_MAX_LANES];
    uint32_t used[PS_MAX_LANES];
    uint64_t landed[PS_MAX_TRACKS];

    bool whole_lanes = ps_admission_find(control->cfg->admission)->whole_lanes;
    uint32_t n_lanes = whole_lanes ? 1 : control->lanes->n;
    for (uint32_t i = 0; i < n_lanes; i++) {
        used[i] = whole_lanes ? s->client % control->lanes->n : i;
        lanes[i] = control->lanes->list[used[i]]->ports[0].url;
    }
    psd_transports_publish(control->lanes, control->cfg->window_chunks, s->may_attach ? s->pass : NULL, used,
                           n_lanes, &told, &w);
    fill_method(control, &method, &schedule);
    w.client = s->client;
    w.incarnation = s->incarnation;
    w.workers = psd_sessions_count(control->sessions, false);
    w.method = &method;
    w.generation = atomic_load_explicit(&control->lanes->shared.generation, memory_order_relaxed);
    w.center_version = psd_version(control->lanes);
    w.transport = (char *)(uintptr_t)control->lanes->transports.row[0].transport->name;
    w.lanes = lanes;
    w.n_lanes = n_lanes;
    w.parts =
        control->job->center != NULL ? control->job->center->shard.n_parts : control->cfg->servers.count;
    w.chunk_floats =
        control->job->center != NULL ? control->job->center->shard.chunk_floats : control->cfg->chunk_floats;
    w.window_chunks = control->cfg->window_chunks;
    w.silence_ms = control->cfg->limits.silence_s * 1000;
    w.resumed = resumed;
    w.job = control->sessions->job;
    w.revived = revived;
    w.keeps_best = control->cfg->checkpoint.keep_best && s->observer;
    w.takes_known = true;
    w.revival = s->revived ? control->job->started_unix_ms : 0;
    for (uint32_t k = 0; k < PS_MAX_TRACKS; k++) {
        landed[k] = landed_on(control, s, k);
        w.landed_seq = landed[k] > w.landed_seq ? landed[k] : w.landed_seq;
    }
    w.landed_on_tracks = landed;
    w.n_landed_on_tracks = PS_MAX_TRACKS;
    w.tracks = psd_tracks_of(&control->cfg->hyper, w.parts);
    w.clock = s->first_clock;
    w.shares_since = control->job->shares_since;
    w.run = control->job->started_unix_ms;
    w.resumed_version = control->job->resumed_version;
    m.what_case = PS__TO_CLIENT__WHAT_WELCOME;
    m.welcome = &w;
    psd_send_to(control->sender, s->peer, s->peer_bytes, &m);
}

void psd_hello_again(struct psd_control *control)
{
    for (uint32_t i = 0; i < control->sessions->n_slots; i++)
        if (control->sessions->slots[i].state != PSD_SESSION_VACANT)
            welcome(control, &control->sessions->slots[i], true, false);
}

/* The slot for a new client, or NULL after answering with an error. */
static struct psd_session *choose_slot(struct psd_control *control, const struct psd_peer *peer,
                                       const Ps__Hello *m)
{
    struct psd_sessions *t = control->sessions;
    if (m->observer || m->any_rank) {
        const uint64_t *ranks = m->observer ? NULL : psd_auth_ranks(peer);
        struct psd_session *s = psd_sessions_vacant(t, m->observer, ranks, psd_loop_now_ms(control->loop));
        if (s == NULL && ranks != NULL)
            refusef(control, peer, PS__CODE__RANK_TAKEN,
                    "all ranks that %s may have (ranks= of the allow-list) are taken", peer->identity);
        else if (s == NULL)
            refusef(control, peer, PS__CODE__FULL, "all %u slots for %s are taken",
                    m->observer ? PSD_OBSERVERS : t->n_workers_max,
                    m->observer ? "observers" : "workers (limits.clients)");
        return s;
    }
    if (m->rank >= t->n_workers_max) {
        refusef(control, peer, PS__CODE__RANK_RANGE, "rank %u; allowed are 0 to %u (limits.clients)", m->rank,
                t->n_workers_max - 1);
        return NULL;
    }
    const struct psd_session *owner = &t->slots[m->rank];
    if (owner->state != PSD_SESSION_VACANT) {
        refusef(
            control, peer, PS__CODE__RANK_TAKEN,
            "rank %u is taken by %s, last heard from %.1f s ago; if that has died, the rank is free after "
            "%u s of silence (limits.silence_s)",
            m->rank, owner->name, 1e-3 * (double)(psd_loop_now_ms(control->loop) - owner->last_heard_ms),
            control->cfg->limits.silence_s);
        return NULL;
    }
    return &t->slots[m->rank];
}

static bool memory_allows(struct psd_control *control, const struct psd_peer *peer)
{
    struct psd_totals t;
    psd_stats_totals(control->job, &t);
    uint64_t need = psd_stats_memory_bytes(&t) + psd_stats_window_bytes(control->job);
    double limit = control->cfg->limits.memory_gib * (double)(1u << 30);
    if ((double)need <= limit)
        return true;
    refusef(
        control, peer, PS__CODE__FULL,
        "one more client could make psd use %.2f GiB; limits.memory_gib is %g, and must be at least as much",
        psd_memory_gib_for(need), control->cfg->limits.memory_gib);
    return false;
}

/* Each session needs room for a few commands in its lanes' queues (admitted, admitted again, ended). A client
 * that joins while a busy lane has too little room left is refused for now, so that the queues never
 * overflow. */
static bool lanes_keep_up(struct psd_control *control, const struct psd_peer *peer)
{
    for (uint32_t i = 0; i < control->lanes->n_own; i++)
        if (psd_queue_room(control->lanes->list[i]->in) < 4 * control->sessions->n_slots) {
            refusef(control, peer, PS__CODE__FULL,
                    "sessions start and end faster than lane %u can follow; try again", i);
            return false;
        }
    if (psd_cluster_keeps_up(control->cluster))
        return true;
    refusef(control, peer, PS__CODE__FULL,
            "sessions start and end faster than the other servers can follow; try again");
    return false;
}

/* If the workers are one clique, its leader is the only client that moves the center. */
static bool is_of_the_clique(struct psd_control *control, const struct psd_peer *peer, const Ps__Hello *m)
{
    bool alone = ps_method_is_one_clique(ps_rule_find(control->cfg->rule), control->cfg->clique.mode);
    for (uint32_t i = 0; alone && !m->observer && i < control->sessions->n_workers_max; i++)
        if (control->sessions->slots[i].state != PSD_SESSION_VACANT) {
            refusef(control, peer, PS__CODE__FULL,
                    "the workers of method %s are one clique, which %s already leads; join it as a member",
                    control->cfg->method, control->sessions->slots[i].name);
            return false;
        }
    return true;
}

static void start_session(struct psd_control *control, const struct psd_peer *peer, const Ps__Hello *m)
{
    struct psd_session *s = psd_sessions_find_token(control->sessions, m->token);
    if (s != NULL && s->observer == (m->observer != 0)) { /* a repeated Hello; the client has not begun yet */
        set_peer(control, s, peer, m);
        welcome(control, s, false, false);
        return;
    }
    if (control->job->state >= PSD_STATE_DRAINING) {
        refusef(control, peer, PS__CODE__DRAINING, "psd is draining: no new joins");
        return;
    }
    if (!psd_journal_has_names(control->job)) {
        refusef(control, peer, PS__CODE__FULL,
                "sessions start faster than the state directory can record; try again");
        return;
    }
    if (!is_of_the_clique(control, peer, m) || !lanes_keep_up(control, peer) ||
        !memory_allows(control, peer) || (s = choose_slot(control, peer, m)) == NULL)
        return;
    s->members_left = 0;
    s->clock = s->first_clock = s->observer ? 0 : psd_job_first_clock(control->job);
    set_peer(control, s, peer, m);
    s->awaited = 0;
    s->reserved_until_ms = 0;
    s->was_active = false;
    s->barrier = PSD_NO_BARRIER;
    s->incarnation = ++control->sessions->incarnation;
    s->token = m->token;
    s->revived = false;
    s->may_attach = psd_transports_new_pass(s->pass);
    s->state = PSD_SESSION_JOINING;
    s->joined_ms = psd_loop_now_ms(control->loop);
    s->told = psd_sessions_may_tell(control->sessions, s->joined_ms);
    s->n_roads_told = 0;
    s->metrics = (struct psd_metrics){NAN, NAN, NAN};
    psd_job_update_rates(control->job);
    ps_log(PS_LOG_DEBUG, "session.hello", "%s at %s is %s %u, incarnation %u", s->name, s->address,
           s->observer ? "observer" : "rank", s->client, s->incarnation);
    welcome(control, s, false, false);
}

/* The last session of the slot in an earlier run, as far as this run knows. Earlier sessions of the slot have
 * ended. */
static uint32_t newest_known(const struct psd_control *control, uint32_t client)
{
    uint32_t newest = control->sessions->slots[client].awaited;
    for (size_t i = 0; i < control->job->resumed.n_replay; i++)
        if (control->job->resumed.replay[i].client == client &&
            control->job->resumed.replay[i].incarnation > newest)
            newest = control->job->resumed.replay[i].incarnation;
    return newest;
}

static bool may_go_on(struct psd_control *control, const struct psd_peer *peer, const Ps__Hello *m)
{
    const struct psd_session *s = &control->sessions->slots[m->client];
    if (s->incarnation == m->incarnation && s->state == PSD_SESSION_VACANT) {
        refusef(control, peer, PS__CODE__EVICTED, "the session of client %u, incarnation %u, has ended",
                m->client, m->incarnation);
        return false;
    }
    if (s->incarnation != 0) {
        refusef(control, peer, PS__CODE__STALE, "incarnation %u is stale: client %u is in its incarnation %u",
                m->incarnation, m->client, s->incarnation);
        return false;
    }
    uint32_t newest = newest_known(control, m->client);
    if (m->incarnation < newest) {
        refusef(control, peer, PS__CODE__STALE, "incarnation %u is stale: client %u was at incarnation %u",
                m->incarnation, m->client, newest);
        return false;
    }
    if (control->job->resumed_from[0] == 0 || m->incarnation > control->job->names_before) {
        refusef(control, peer, PS__CODE__NO_SESSION, "client %u, incarnation %u, has no session here%s",
                m->client, m->incarnation,
                control->job->resumed_from[0] == 0
                    ? ": psd was started without --resume, or found no checkpoint"
                    : "");
        return false;
    }
    if (control->job->center == NULL || control->job->center->manifest->hash != m->manifest_hash) {
        refusef(control, peer, PS__CODE__MANIFEST,
                "client %u joined with another model than the checkpoint's", m->client);
        return false;
    }
    const struct ps_rule_info *rule = ps_rule_find(control->cfg->rule);
    if (!s->observer && (rule->uses & PS_USES_WORKERS) != 0 && m->client >= control->cfg->hyper.workers) {
        refusef(control, peer, PS__CODE__RANK_RANGE,
                "rank %u: rule %s has a fixed number of %u workers (workers: %u)", m->client, rule->name,
                control->cfg->hyper.workers, control->cfg->hyper.workers);
        return false;
    }
    return true;
}

/* Continues a worker's session of the job after psd was restarted from its checkpoint. */
static void revive_session(struct psd_control *control, const struct psd_peer *peer, const Ps__Hello *m)
{
    struct psd_session *s = &control->sessions->slots[m->client];
    s->incarnation = m->incarnation;
    s->reserved_until_ms = 0;
    s->barrier = m->barrier >> 32 <= control->job->names_before ? m->barrier : 0; /* else it is made up */
    if (!s->observer && s->barrier > control->sessions->barrier)
        control->sessions->barrier = s->barrier;
    s->token = 0;
    s->first_clock = 0; /* it began long ago */
    s->revived = true;
    s->may_attach = psd_transports_new_pass(s->pass);
    s->state = PSD_SESSION_ACTIVE;
    s->joined_ms = psd_loop_now_ms(control->loop);
    s->told = true; /* once for each slot */
    s->metrics = (struct psd_metrics){NAN, NAN, NAN};
    s->members_left = 0;
    set_peer(control, s, peer, m);
    psd_loss_revived(control->job, s, m);
    if (!s->observer)
        psd_journal_wake(control->job);
    s->recorded = psd_journal_put(control->job);
    psd_job_admit(control->job, s, s->observer ? PSD_PHASE_OBSERVING : PSD_PHASE_ACTIVE, true);
    psd_job_update_rates(control->job);
    if (!s->observer) {
        s->took_part = control->job->membership.revived = true;
        psd_membership_joined(control->job);
    }
    ps_log(PS_LOG_INFO, "session.revived",
           "%s continues as %s %u; it has seen version %" PRIu64 ", the checkpoint has %" PRIu64, s->name,
           s->observer ? "observer" : "rank", s->client, m->center_version, control->job->resumed_version);
    welcome(control, s, true, true);
}

static void go_on(struct psd_control *control, const struct psd_peer *peer, const Ps__Hello *m)
{
    if (m->client >= control->sessions->n_slots ||
        control->sessions->slots[m->client].observer != (m->observer != 0)) {
        refusef(control, peer, PS__CODE__NO_SESSION, "client %u has no session here", m->client);
        return;
    }
    struct psd_session *s = psd_sessions_find(control->sessions, m->client, m->incarnation);
    if (s != NULL) {
        set_peer(control, s, peer, m);
        if (ps_log_allows(&control->reconnected, "session.reconnected", "clients that came back"))
            ps_log(PS_LOG_INFO, "session.reconnected", "%s reconnected as %s %u", s->name,
                   s->observer ? "observer" : "rank", s->client);
        welcome(control, s, s->state == PSD_SESSION_ACTIVE || s->state == PSD_SESSION_OFFERING, false);
        return;
    }
    if (control->job->state >= PSD_STATE_DRAINING)
        refusef(control, peer, PS__CODE__DRAINING, "psd is draining: no new joins");
    else if (may_go_on(control, peer, m))
        revive_session(control, peer, m);
}

static bool has_codec(const Ps__Hello *m, const char *name)
{
    for (size_t i = 0; i < m->n_codecs; i++)
        if (ps_codec_is(name, m->codecs[i]))
            return true;
    return strcmp(name, "raw") == 0; /* everybody's */
}

/* An observer only pulls, and pulls are raw. */
static bool codecs_allow(struct psd_control *control, const struct psd_peer *peer, const Ps__Hello *m)
{
    char list[120] = "raw", name[24], who[64];
    size_t used = strlen(list);
    if (m->observer ||
        (has_codec(m, control->cfg->codec.message) && has_codec(m, control->cfg->codec.answer)))
        return true;
    for (size_t i = 0; i < m->n_codecs && used < sizeof list; i++) {
        ps_text_copy(name, sizeof name, m->codecs[i]);
        if (strcmp(name, "raw") != 0)
            used += (size_t)snprintf(list + used, sizeof list - used, ", %s", name);
    }
    ps_text_copy(who, sizeof who, m->name[0] != 0 ? m->name : "unnamed");
    refusef(control, peer, PS__CODE__CODEC,
            "codec.message is %s, codec.answer %s; the library of '%s' has only %s",
            control->cfg->codec.message, control->cfg->codec.answer, who, list);
    return false;
}

/* A library that cannot would take the answer at the next step. */
static bool overlap_allows(struct psd_control *control, const struct psd_peer *peer, const Ps__Hello *m)
{
    char overlap[PS_OVERLAP_TEXT], who[64];
    if (m->observer || m->lands_later || control->cfg->hyper.overlap <= 1)
        return true;
    ps_text_copy(who, sizeof who, m->name[0] != 0 ? m->name : "unnamed");
    refusef(control, peer, PS__CODE__VERSION,
            "parameters.overlap is %s; the library of '%s' is older and has only true and false",
            ps_overlap_text(control->cfg->hyper.overlap, overlap), who);
    return false;
}

void psd_hello(struct psd_control *control, const struct psd_peer *peer, const Ps__Hello *m)
{
    if (control->auth->munge.on && m->protocol == PS_PROTOCOL_VERSION)
        psd_munge_hello(control->auth, peer, m);
    else
        psd_hello_proved(control, peer, m);
}

/* A worker that has lost its psd may reach another psd at the same address. Only this psd knows the earlier
 * jobs of its state directory, which are over. */
static bool is_of_this_job(struct psd_control *control, const struct psd_peer *peer, const Ps__Hello *m)
{
    char sentence[200];
    if (m->incarnation == 0 || m->job == 0 || m->job == control->sessions->job)
        return true;
    if (psd_journal_is_former(control->job, m->job)) {
        snprintf(sentence, sizeof sentence,
                 "client %u, incarnation %u, has no session here: psd was started without --resume",
                 m->client, m->incarnation);
        psd_send_refusal_of(control->sender, peer, m->job, PS__CODE__NO_SESSION, sentence);
    } else {
        refusef(control, peer, PS__CODE__JOB,
                "client %u, incarnation %u, is of job %016" PRIx64 "; this is %016" PRIx64, m->client,
                m->incarnation, m->job, control->sessions->job);
    }
    return false;
}

void psd_hello_proved(struct psd_control *control, const struct psd_peer *peer, const Ps__Hello *m)
{
    if (m->protocol != PS_PROTOCOL_VERSION)
        refusef(control, peer, PS__CODE__VERSION, "protocol version %u; this psd speaks %d", m->protocol,
                PS_PROTOCOL_VERSION);
    else if (m->members > PSD_MAX_MEMBERS)
        refusef(control, peer, PS__CODE__MALFORMED, "a clique of %u members; allowed are at most %d",
                m->members, PSD_MAX_MEMBERS);
    else if (!is_of_this_job(control, peer, m) || !codecs_allow(control, peer, m) ||
             !overlap_allows(control, peer, m) || !psd_auth_hello(control->auth, peer, m))
        return;
    else if (m->incarnation != 0)
        go_on(control, peer, m);
    else
        start_session(control, peer, m);
}
