/* A server that is not the head: executes the head's orders, and reports the events of its own lanes. Runs on
 * the loop. */
#include "server/cluster/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

#include "proto/log.h"
#include "proto/random.h"
#include "proto/transports/zmq/bind.h"
#include "proto/wire/control.h"
#include "proto/zmq_context.h"
#include "server/admissions/admissions.h"
#include "server/config/endpoint.h"

enum { NEWS_MS = 100, ENLIST_MS = 500, SILENT_MS = 3000 };

/* Reads the head's endpoint file at every attempt: the head may have restarted elsewhere. */
static int find_head(struct psd_cluster *cluster, struct ps_error *err)
{
    const char *head = cluster->cfg->servers.head;
    if (head[0] != '@') {
        snprintf(cluster->follower.head_url, sizeof cluster->follower.head_url, "%s", head);
        return 0;
    }
    return psd_endpoint_read(head + 1, cluster->follower.head_url, sizeof cluster->follower.head_url, err);
}

/* ZeroMQ reconnects by itself; this handles a head that has moved. */
static void look_for_head(struct psd_cluster *cluster)
{
    struct psd_follower *f = &cluster->follower;
    char was[sizeof f->head_url];
    struct ps_error err;
    memcpy(was, f->head_url, sizeof was);
    if (find_head(cluster, &err) < 0 || strcmp(was, f->head_url) == 0)
        return; /* a timeout reports it */
    if (was[0] != 0)
        zmq_disconnect(f->socket, was);
    if (ps_connect(f->socket, f->head_url) == 0)
        return;
    if (ps_log_allows(&f->log_limit, "server.connect", "servers"))
        ps_log(PS_LOG_WARN, "server.connect", "cannot connect to the head at '%s': %s", f->head_url,
               zmq_strerror(zmq_errno()));
    f->head_url[0] = 0;
}

static void send_message(struct psd_cluster *cluster, Ps__ToServer__WhatCase what, void *message)
{
    Ps__ToServer m = PS__TO_SERVER__INIT;
    m.what_case = what;
    m.hello = message; /* one of a union of pointers */
    ps_control_send(cluster->follower.socket, &m.base);
}

void psd_follower_enlist(struct psd_cluster *cluster, const ProtobufCBinaryData *nonce)
{
    struct psd_follower *f = &cluster->follower;
    Ps__Enlist m = PS__ENLIST__INIT;
    char urls[PSD_MAX_LANES][320], host[64] = "host", name[100];
    char *list[PSD_MAX_LANES], *configuration = psd_config_json(cluster->cfg);
    struct psd_transports_told told;
    if (configuration == NULL || f->proving) {
        free(configuration);
        return;
    }
    for (uint32_t i = 0; i < cluster->lanes->n_own; i++) {
        snprintf(urls[i], sizeof urls[i], "%s", cluster->lanes->list[i]->ports[0].url);
        list[i] = urls[i];
    }
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "%s:%d", host, (int)getpid());
    m.protocol = PS_PROTOCOL_VERSION;
    m.index = cluster->cfg->servers.index;
    m.count = cluster->cfg->servers.count;
    m.run = f->run;
    m.call = ++f->call;
    m.head = f->head_run;
    m.place = f->place;
    m.name = name;
    m.configuration = configuration;
    m.transport = (char *)(uintptr_t)cluster->lanes->transports.row[0].transport->name;
    m.lanes = list;
    m.n_lanes = cluster->lanes->n_own;
    m.n_roads = psd_transports_list(cluster->lanes, cluster->cfg->window_chunks, &told, &m.roads);
    m.has_center = cluster->job->center_whole;
    m.untouched = !f->served;
    m.manifest_hash = cluster->job->center != NULL ? cluster->job->center->manifest->hash : 0;
    m.version = psd_version(cluster->lanes);
    m.job = cluster->sessions->job;
    m.reached = cluster->job->loss.parts[m.index].reached;
    m.reached_exactly = cluster->job->loss.parts[m.index].exact;
    m.settings = cluster->job->reload.layers.settings;
    m.generation = atomic_load_explicit(&cluster->lanes->shared.generation, memory_order_relaxed);
    const struct psd_saved_versions *saved = psd_checkpointer_versions(cluster->job, m.manifest_hash);
    m.saved = (uint64_t *)(uintptr_t)saved->versions;
    m.n_saved = saved->n;
    if (nonce == NULL)
        send_message(cluster, PS__TO_SERVER__WHAT_ENLIST, &m);
    else if (psd_follower_prove(cluster, &m, nonce) < 0)
        ps_log(PS_LOG_WARN, "server.munge", "no memory for a credential, or the head's nonce is invalid");
    f->said_ms = psd_loop_now_ms(cluster->loop);
    free(configuration);
}

/* number: of the event; 0: there is none. */
static void send_news(struct psd_cluster *cluster, const Ps__Note *msg, uint64_t number, bool with_counters)
{
    struct psd_follower *f = &cluster->follower;
    Ps__News m = PS__NEWS__INIT;
    m.number = number;
    m.index = cluster->cfg->servers.index;
    m.run = f->run;
    m.place = f->place;
    m.taken = f->taken;
    m.note = (Ps__Note *)(uintptr_t)msg;
    m.version = psd_version(cluster->lanes);
    m.saved_number = f->saved_number;
    m.unsaved = f->unsaved;
    m.has_saved = cluster->job->checkpointer.last_path[0] != 0;
    m.saved_version = cluster->job->checkpointer.last_version;
    m.change = f->change;
    m.refused = f->refused;
    m.stop = f->stop;
    if (with_counters && (m.lanes = psd_news_of_lanes(cluster)) != NULL)
        m.n_lanes = cluster->lanes->n_own;
    send_message(cluster, PS__TO_SERVER__WHAT_NEWS, &m);
    psd_news_free(m.lanes, cluster->lanes->n_own);
    f->said_ms = psd_loop_now_ms(cluster->loop);
}

void psd_follower_restart(struct psd_cluster *cluster, bool resume, uint64_t version)
{
    cluster->again = (struct psd_restart_request){true, resume, version};
    uv_stop(cluster->loop);
}

/* Drops all state received from the head, which sends it again. */
static void leave_slot(struct psd_cluster *cluster)
{
    struct psd_follower *f = &cluster->follower;
    f->placed = false;
    f->place = f->taken = f->change = 0;
    psd_outbox_empty(&f->msgs);
    psd_method_change_drop(cluster->job);
}

static void enter_slot(struct psd_cluster *cluster, uint64_t place)
{
    struct psd_follower *f = &cluster->follower;
    if (f->place != place) {
        leave_slot(cluster);
        f->place = place;
        ps_log(PS_LOG_INFO, "server.placed", "the head at %s has registered this server as %u of %u",
               f->head_url, cluster->cfg->servers.index, cluster->cfg->servers.count);
    }
    f->placed = f->served = true;
}

static void on_place(struct psd_cluster *cluster, const Ps__Place *m)
{
    struct psd_follower *f = &cluster->follower;
    if (m->begin == PSD_BEGIN_ENLIST) {
        if (m->run != f->head_run)
            leave_slot(cluster);
        f->head_run = m->run;
        psd_follower_enlist(cluster, NULL);
    } else if (m->run != f->head_run) {
        return; /* not requested */
    } else if (m->begin == PSD_BEGIN_GO_ON) {
        enter_slot(cluster, m->place);
        cluster->sessions->job = m->job;
        psd_journal_wake(cluster->job);
        psd_journal_put(cluster->job);
    } else if (m->begin == PSD_BEGIN_TAKE) {
        leave_slot(cluster);
        psd_follower_take_settings(cluster, m);
    } else if (m->begin == PSD_BEGIN_ANEW) {
        ps_log(PS_LOG_WARN, "server.anew",
               "the head begins a new job: this server drops its part of the previous one");
        psd_follower_restart(cluster, false, UINT64_MAX);
    } else {
        ps_log(PS_LOG_WARN, "server.back", "the head restarts every server from a checkpoint");
        psd_follower_restart(cluster, true, m->version);
    }
}

/* Takes the first worker's model. */
static void take_model(struct psd_cluster *cluster, const Ps__Note *n)
{
    struct ps_manifest *manifest;
    struct ps_error err;
    int rc = psd_manifest_of(cluster->cfg, n->tensors, n->n_tensors, &manifest, &err);
    if (rc < 0 || psd_center_create(cluster->cfg, psd_admission_find(cluster->cfg->admission), manifest,
                                    &cluster->job->center, &err) < 0) {
        psd_job_fail(cluster->job, PSD_EXIT_SYSTEM, err.text); /* the head learns that this server is gone */
        return;
    }
    cluster->job->center->generation =
        atomic_load_explicit(&cluster->lanes->shared.generation, memory_order_relaxed);
    cluster->job->state = PSD_STATE_OFFERED;
    cluster->follower.lanes_filled = cluster->follower.lanes_released = 0;
    psd_tell_lanes(cluster->lanes,
                   &(struct psd_lane_message){.kind = PSD_COMMAND_SLICE, .p = cluster->job->center});
}

static bool take_members(struct psd_cluster *cluster, const Ps__Note *n, struct psd_lane_message *msg)
{
    struct psd_members *m =
        n->kind == PSD_COMMAND_CLOSE_ROUND ? &cluster->follower.cut : &cluster->follower.members;
    msg->p = m;
    return psd_lane_message_members(n->members, cluster->sessions->n_slots, m);
}

static void take_snapshot(struct psd_cluster *cluster, const Ps__Note *n, const Ps__Snapshot *s)
{
    struct psd_follower *f = &cluster->follower;
    if (s == NULL)
        return;
    f->ordered = s->number;
    if (s->last && cluster->job->center_whole)
        cluster->job->checkpointer.last = PSD_LAST_DUE;
    if (psd_checkpointer_order(cluster->job, s, n->a) == 0)
        return;
    if (s->last) {
        f->waiting = *s;
        f->has_waiting = true;
        return;
    }
    bool busy = cluster->job->center_whole;
    const char *why = busy ? "the previous one is still being written" : "there is no center yet";
    ps_log(PS_LOG_WARN, "checkpoint.skipped", "%s", why);
    if (busy) { /* the head hears of it when that one is written: until then the snapshot is in use */
        f->skipped = true;
        return;
    }
    snprintf(f->unsaved, sizeof f->unsaved, "%s", why);
    f->saved_number = s->number;
}

bool psd_follower_has_members(const struct psd_cluster *cluster)
{
    return cluster->follower.members.n > 0;
}

void psd_follower_saved(struct psd_cluster *cluster)
{
    struct psd_follower *f = &cluster->follower;
    if (psd_is_head(cluster->cfg))
        return;
    bool again = f->has_waiting, skipped = f->skipped;
    f->has_waiting = f->skipped = false;
    if (again && psd_checkpointer_order(cluster->job, &f->waiting, 0) == 0)
        return;
    f->saved_number = f->ordered;
    snprintf(f->unsaved, sizeof f->unsaved, "%.*s", (int)sizeof f->unsaved - 1,
             cluster->job->checkpointer.rc < 0 ? cluster->job->checkpointer.error.text
             : skipped                         ? "the previous one was still being written"
                                               : "");
    send_news(cluster, NULL, 0, false);
}

static void take_note(struct psd_cluster *cluster, const Ps__Note *n, const Ps__Snapshot *snapshot)
{
    struct psd_lane_message msg = {.kind = (enum psd_lane_message_kind)n->kind,
                                   .client = n->client,
                                   .incarnation = n->incarnation,
                                   .a = n->a,
                                   .b = n->b};
    uint32_t first = cluster->cfg->servers.index * cluster->lanes->n_own;
    bool for_all = n->lane == UINT32_MAX;
    if (n->client >= cluster->sessions->n_slots ||
        (!for_all && (n->lane < first || n->lane >= first + cluster->lanes->n_own)))
        return;
    switch (n->kind) {
    case PSD_COMMAND_SNAPSHOT:
        take_snapshot(cluster, n, snapshot);
        return;
    case PSD_COMMAND_SLICE:
        if (n->n_tensors > 0) {
            if (cluster->job->center == NULL)
                take_model(cluster, n);
            return;
        }
        if (!psd_method_change_empty_own(cluster->job, n->a))
            return;
        break;
    case PSD_COMMAND_CLOSE:
        if (!psd_method_change_close_own(cluster->job))
            return;
        cluster->follower.lanes_closed = 0;
        cluster->job->method_change.closings = n->a;
        break;
    case PSD_COMMAND_OPEN:
        psd_method_change_drop(cluster->job); /* which tells them */
        return;
    case PSD_COMMAND_BEGAN: /* lanes read it there */
        psd_exchange_remember(&cluster->lanes->shared.begun[n->client], n->a);
        return;
    case PSD_COMMAND_MEMBERS:
    case PSD_COMMAND_CLOSE_ROUND:
        if (!take_members(cluster, n, &msg))
            return;
        break;
    case PSD_COMMAND_ADMIT:
        msg.identity = psd_auth_id_of(cluster->auth, n->identity);
        msg.attaches = n->pass.len == sizeof msg.pass;
        if (msg.attaches)
            memcpy(msg.pass, n->pass.data, sizeof msg.pass);
        if (n->b == 0) {
            atomic_store_explicit(&cluster->lanes->shared.lanes_done[n->client], 0, memory_order_relaxed);
            atomic_store_explicit(&cluster->lanes->shared.exchanges[n->client], 0, memory_order_relaxed);
            atomic_store_explicit(&cluster->lanes->shared.clocks[n->client], 0, memory_order_relaxed);
        }
        break;
    case PSD_COMMAND_END:
    case PSD_COMMAND_KEEP: /* p NULL: stop waiting for chunks */
    case PSD_COMMAND_HOLD:
    case PSD_COMMAND_GO:
    case PSD_COMMAND_LATE:
        break;
    default:
        return; /* never sent by a head */
    }
    if (for_all)
        psd_tell_lanes(cluster->lanes, &msg);
    else
        psd_tell_lane(cluster->lanes, cluster->lanes->list[n->lane - first], &msg);
}

static void on_orders(struct psd_cluster *cluster, const Ps__Orders *m)
{
    struct psd_follower *f = &cluster->follower;
    if (!f->placed || (m->place != 0 && m->place != f->place))
        return; /* for an earlier slot: the head learns of it by News, and sends the present slot */
    psd_outbox_taken(&f->msgs, m->heard, f->heard_ms);
    if (m->number > f->taken + 1) {
        if (ps_log_allows(&f->log_limit, "server.gap", "servers"))
            ps_log(PS_LOG_WARN, "server.gap",
                   "orders %" PRIu64 " to %" PRIu64 " of the head were lost; it will send them again",
                   f->taken + 1, m->number - 1);
        return;
    }
    bool again = m->number <= f->taken;
    f->taken = again ? f->taken : m->number;
    atomic_store_explicit(&cluster->lanes->shared.alpha, m->alpha, memory_order_relaxed);
    atomic_store_explicit(&cluster->lanes->shared.mean_rate, m->mean_rate, memory_order_relaxed);
    cluster->sessions->incarnation = m->incarnation;
    if (m->number == 0)
        return;
    if (m->note != NULL && !again)
        take_note(cluster, m->note, m->snapshot);
    if (m->change != NULL && !again)
        psd_follower_take_change(cluster, m->change);
    if (m->stop) {
        ps_log(PS_LOG_INFO, "server.dismissed", "the head reports that the job has ended");
        cluster->job->state = PSD_STATE_STOPPING;
        uv_stop(cluster->loop);
    }
    send_news(cluster, NULL, 0, false);
}

static void on_error(struct psd_cluster *cluster, const Ps__Error *m)
{
    struct psd_follower *f = &cluster->follower;
    if (cluster->job->center_whole && m->job != 0 && cluster->sessions->job != 0 &&
        m->job != cluster->sessions->job) {
        if (ps_log_allows(&f->log_limit, "server.foreign", "servers"))
            ps_log(PS_LOG_WARN, "server.foreign", "a psd of another job answers at %s; waiting for the head",
                   f->head_url);
        f->placed = false;
        return;
    }
    if (m->code == PS__CODE__NO_SESSION) { /* the connection broke, or another head answers */
        f->placed = false;
        return;
    }
    if (m->code == PS__CODE__AUTH && f->served) { /* the head's munged, which has vouched for it, fails */
        if (ps_log_allows(&f->log_limit, "server.refused", "servers"))
            ps_log(PS_LOG_WARN, "server.refused", "the head at %s: %s; asking again", f->head_url,
                   m->sentence);
        f->placed = false;
        return;
    }
    psd_job_fail(cluster->job, m->code == PS__CODE__MANIFEST ? PSD_EXIT_CHECKPOINT : PSD_EXIT_CONFIG,
                 m->sentence);
}

/* Returns false if there was no message, or if an order must wait until lanes have room for it. */
static bool receive_one(struct psd_cluster *cluster)
{
    struct psd_follower *f = &cluster->follower;
    zmq_msg_t msg;
    for (uint32_t i = 0; i < cluster->lanes->n_own; i++)
        if (psd_queue_room(cluster->lanes->list[i]->in) < 4 * cluster->sessions->n_slots + 16)
            return false;
    zmq_msg_init(&msg);
    if (cluster->again.due || zmq_msg_recv(&msg, f->socket, ZMQ_DONTWAIT) < 0) {
        zmq_msg_close(&msg);
        return false;
    }
    Ps__ToClient *m = ps_control_unpack_to_client(zmq_msg_data(&msg), zmq_msg_size(&msg));
    zmq_msg_close(&msg);
    if (m == NULL)
        return true;
    f->heard_ms = psd_loop_now_ms(cluster->loop);
    if (m->what_case == PS__TO_CLIENT__WHAT_PLACE)
        on_place(cluster, m->place);
    else if (m->what_case == PS__TO_CLIENT__WHAT_ORDERS)
        on_orders(cluster, m->orders);
    else if (m->what_case == PS__TO_CLIENT__WHAT_ERROR)
        on_error(cluster, m->error);
    else if (m->what_case == PS__TO_CLIENT__WHAT_CHALLENGE)
        psd_follower_enlist(cluster, &m->challenge->nonce);
    ps_control_free_to_client(m);
    return true;
}

static void receive(struct psd_cluster *cluster)
{
    for (int i = 0; i < 64 && receive_one(cluster); i++)
        ;
}

static void on_readable(uv_poll_t *poll, int status, int events)
{
    (void)status;
    (void)events;
    receive(poll->data);
}

static void on_prepare(uv_prepare_t *prepare)
{
    receive(prepare->data);
}

/* Receives whatever ZeroMQ's descriptor has signalled, and sends what is due. */
static void on_timer(struct psd_timer *timer)
{
    struct psd_cluster *cluster = timer->data;
    struct psd_follower *f = &cluster->follower;
    uint64_t now = psd_loop_now_ms(cluster->loop);
    receive(cluster);
    bool silent = now > f->heard_ms + SILENT_MS;
    if (f->placed && psd_outbox_is_due(&f->msgs, f->heard_ms, now))
        for (struct psd_outbox_item *i = f->msgs.first; i != NULL; i = i->next)
            send_news(cluster, (Ps__Note *)i->message, i->number, false);
    if (f->placed && !silent)
        send_news(cluster, NULL, 0, true);
    if ((!f->placed || silent) && now - f->said_ms >= ENLIST_MS) { /* it may have restarted elsewhere */
        look_for_head(cluster);
        psd_follower_enlist(cluster, NULL);
    }
}

/* Stops without the head: saves its own part and ends. No round completes any more, so the lanes drop the
 * members, and copy at once what was to be copied after a round. */
static void stop_alone(struct psd_cluster *cluster)
{
    struct psd_follower *f = &cluster->follower;
    cluster->job->state = PSD_STATE_STOPPING;
    cluster->job->checkpointer.last = cluster->job->center_whole ? PSD_LAST_DUE : PSD_LAST_NONE;
    psd_checkpointer_check_vector(cluster->job, true);
    for (uint32_t i = 0; i < cluster->sessions->n_slots; i++)
        psd_tell_lanes(cluster->lanes, &(struct psd_lane_message){
                                           .kind = PSD_COMMAND_END, .client = i, .a = PS__CODE__DRAINING});
    Ps__Snapshot s = PS__SNAPSHOT__INIT;
    s.what = PSD_SAVE_NEWEST;
    if (psd_checkpointer_order(cluster->job, &s, 0) < 0 && cluster->job->checkpointer.busy) {
        f->waiting = s;
        f->has_waiting = true;
    }
}

void psd_follower_tick(struct psd_cluster *cluster)
{
    struct psd_follower *f = &cluster->follower;
    struct ps_error err;
    char why[700];
    bool stopping =
        f->stop[0] != 0 && (!f->placed || psd_loop_now_ms(cluster->loop) > cluster->job->drain_deadline_ms ||
                            cluster->job->n_stops > 1);
    psd_checkpointer_check_vector(cluster->job, false);
    if (stopping && cluster->job->state != PSD_STATE_STOPPING)
        stop_alone(cluster);
    if (stopping && !cluster->job->checkpointer.busy)
        uv_stop(cluster->loop);
    if (f->served || f->placed ||
        psd_loop_now_ms(cluster->loop) < f->began_ms + (uint64_t)cluster->cfg->servers.wait_s * 1000)
        return;
    snprintf(why, sizeof why,
             "the head (servers.head: %.256s) has not registered this server within %u s%s%.300s",
             cluster->cfg->servers.head, cluster->cfg->servers.wait_s,
             find_head(cluster, &err) < 0 ? ": " : "", find_head(cluster, &err) < 0 ? err.text : "");
    psd_job_fail(cluster->job, PSD_EXIT_SERVERS, why);
}

void psd_follower_stop(struct psd_cluster *cluster, const char *why)
{
    struct psd_follower *f = &cluster->follower;
    if (f->stop[0] == 0)
        cluster->job->drain_deadline_ms =
            psd_loop_now_ms(cluster->loop) + (uint64_t)(cluster->cfg->limits.drain_s + 5) * 1000;
    snprintf(f->stop, sizeof f->stop, "%s", why);
    ps_log(PS_LOG_INFO, "server.stopping", "%s: asking the head to end the job", why);
    if (f->placed)
        send_news(cluster, NULL, 0, false);
    psd_follower_tick(cluster);
}

void psd_follower_report(struct psd_cluster *cluster, const struct psd_lane *lane,
                         const struct psd_lane_message *msg)
{
    struct psd_follower *f = &cluster->follower;
    struct psd_packed_messages p;
    if (f->place == 0)
        return;
    bool with_counters = msg->kind != PSD_LANE_BEGUN && msg->kind != PSD_LANE_OVER &&
                         msg->kind != PSD_COMMAND_BEGAN && msg->kind != PSD_LANE_WHOLE;
    psd_lane_message_pack(msg, lane->index, &p); /* packing a lane's event does not allocate */
    if (psd_outbox_put(&f->msgs, &p.msg.base, psd_loop_now_ms(cluster->loop)) < 0) {
        ps_log(PS_LOG_WARN, "server.notes", "too many events that the head has not taken: restarting");
        leave_slot(cluster);
    } else if (f->placed) {
        send_news(cluster, &p.msg, f->msgs.sent, with_counters);
    }
}

/* This server's own reaction to the event. */
static void handle_locally(struct psd_cluster *cluster, const struct psd_lane *lane,
                           const struct psd_lane_message *msg)
{
    struct psd_follower *f = &cluster->follower;
    if (msg->kind == PSD_LANE_SNAPPED) {
        psd_checkpointer_snapped(cluster->job, msg->a != 0);
    } else if (msg->kind == PSD_LANE_FILLED && cluster->job->center != NULL &&
               ++f->lanes_filled == cluster->job->center->own_used) {
        cluster->job->state = PSD_STATE_READY;
        cluster->job->center_whole = true;
    } else if (msg->kind == PSD_LANE_CLOSED && msg->a == cluster->job->method_change.closings &&
               ++f->lanes_closed == cluster->lanes->n_own) {
        psd_follower_report_exchanges(cluster, lane);
    } else if (msg->kind == PSD_LANE_RELEASED &&
               cluster->job->method_change.phase == PSD_METHOD_CHANGE_EMPTYING) {
        psd_method_change_released_own(cluster->job);
    } else if (msg->kind == PSD_LANE_RELEASED && ++f->lanes_released == cluster->lanes->n_own) {
        psd_center_destroy(cluster->job->center);
        cluster->job->center = NULL;
        cluster->job->center_whole = false;
        cluster->job->state = PSD_STATE_WAITING;
    }
}

void psd_follower_take_events(struct psd_cluster *cluster, struct psd_lane *lane)
{
    struct psd_lane_message msg;
    psd_queue_calm(lane->out);
    while (psd_queue_take(lane->out, &msg)) {
        handle_locally(cluster, lane, &msg);
        if (msg.kind != PSD_LANE_SNAPPED)
            psd_follower_report(cluster, lane, &msg);
    }
}

void psd_follower_redirect(struct psd_cluster *cluster, const struct psd_peer *peer)
{
    Ps__Elsewhere e = PS__ELSEWHERE__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    if (cluster->follower.head_url[0] == 0)
        return; /* the client asks again */
    e.url = cluster->follower.head_url;
    e.job = cluster->sessions->job;
    m.what_case = PS__TO_CLIENT__WHAT_ELSEWHERE;
    m.elsewhere = &e;
    psd_send_now(cluster->sender, peer->id, peer->id_bytes, &m);
}

static int make_members(struct psd_cluster *cluster)
{
    struct psd_follower *f = &cluster->follower;
    uint32_t n = cluster->sessions->n_slots;
    f->members.ranks = calloc(n, sizeof *f->members.ranks);
    f->cut.ranks = calloc(n, sizeof *f->cut.ranks);
    f->cut.seqs = calloc(n, sizeof *f->cut.seqs);
    return f->members.ranks != NULL && f->cut.ranks != NULL && f->cut.seqs != NULL ? 0 : -ENOMEM;
}

int psd_follower_open(struct psd_cluster *cluster, struct ps_error *err)
{
    struct psd_follower *f = &cluster->follower;
    int linger_ms = 500, one = 1, fd; /* for the last message: that it knows of the end */
    int64_t max_bytes = PS_CONTROL_MAX_BYTES;
    size_t size = sizeof fd;
    if (psd_is_head(cluster->cfg))
        return 0;
    if (make_members(cluster) < 0 || (f->context = ps_zmq_context_new(1)) == NULL ||
        (f->socket = zmq_socket(f->context, ZMQ_DEALER)) == NULL ||
        zmq_getsockopt(f->socket, ZMQ_FD, &fd, &size) != 0)
        return ps_fail(err, -ENOMEM, "no memory or descriptors for the connection to the head");
    /* Messages that cannot be sent now are not queued. */
    zmq_setsockopt(f->socket, ZMQ_IMMEDIATE, &one, sizeof one);
    zmq_setsockopt(f->socket, ZMQ_LINGER, &linger_ms, sizeof linger_ms);
    zmq_setsockopt(f->socket, ZMQ_MAXMSGSIZE, &max_bytes, sizeof max_bytes);
    if (cluster->auth->curve &&
        ps_curve_connect(f->socket, &cluster->auth->pair, cluster->auth->pair.public_key) != 0)
        return ps_fail(err, -EINVAL, "auth.key: no key pair to authenticate at the head");
    f->run = ps_random_u64();
    f->poll.data = f->prepare.data = cluster;
    f->began_ms = psd_loop_now_ms(cluster->loop);
    uv_poll_init(cluster->loop, &f->poll, fd);
    uv_poll_start(&f->poll, UV_READABLE, on_readable);
    uv_prepare_init(cluster->loop, &f->prepare);
    uv_prepare_start(&f->prepare, on_prepare);
    psd_timer_init(cluster->loop, &f->timer, cluster);
    psd_timer_start(&f->timer, on_timer, 0, NEWS_MS);
    return 0;
}

void psd_follower_close(struct psd_cluster *cluster)
{
    struct psd_follower *f = &cluster->follower;
    if (f->poll.data != NULL) {
        uv_close((uv_handle_t *)&f->poll, NULL);
        uv_close((uv_handle_t *)&f->prepare, NULL);
        psd_timer_close(&f->timer, NULL);
    }
    if (f->socket != NULL)
        zmq_close(f->socket);
    f->socket = NULL;
    if (f->context != NULL)
        ps_zmq_context_end(f->context);
    psd_outbox_empty(&f->msgs);
    free(f->members.ranks);
    free(f->cut.ranks);
    free(f->cut.seqs);
}
