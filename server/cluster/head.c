/* The head of several servers: its messages to the others, and theirs to it. Runs on the loop. */
#include "server/cluster/internal.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/log.h"
#include "proto/random.h"
#include "proto/wire/control.h"

enum { DISMISS_MS = 5000 }; /* for a server to learn that the job has ended */
#define MOST_BEHIND 4096    /* Orders that a server has not taken; far fewer than an outbox holds */

/* A control message to a client that is held back. There is at most one of each kind for a client. */
struct psd_held_message {
    struct psd_held_message *next;
    int what;        /* PS__TO_CLIENT__WHAT_... */
    uint64_t *after; /* [count]: Orders that each server must have taken first */
    unsigned char peer[256];
    size_t peer_bytes, len;
    unsigned char bytes[];
};

static int make_server(const struct psd_cluster *cluster, struct psd_server *s)
{
    s->urls = calloc((size_t)PSD_MAX_TRANSPORTS * cluster->lanes->n_own, sizeof *s->urls);
    return s->urls != NULL ? 0 : -ENOMEM;
}

int psd_cluster_open(struct psd_cluster *cluster)
{
    struct psd_head *t = &cluster->head;
    t->end = &t->held_messages;
    if (!psd_has_cluster(cluster->cfg))
        return 0;
    t->run = ps_random_u64();
    t->deadline_ms = psd_loop_now_ms(cluster->loop) + (uint64_t)cluster->cfg->servers.wait_s * 1000;
    t->servers = calloc(cluster->cfg->servers.count, sizeof *t->servers);
    for (uint32_t i = 1; t->servers != NULL && i < cluster->cfg->servers.count; i++)
        if (make_server(cluster, &t->servers[i]) < 0)
            return -ENOMEM;
    return t->servers != NULL ? psd_method_change_open(cluster->job) : -ENOMEM;
}

static void drop_held_messages(struct psd_head *t)
{
    while (t->held_messages != NULL) {
        struct psd_held_message *l = t->held_messages;
        t->held_messages = l->next;
        free(l->after);
        free(l);
    }
    t->end = &t->held_messages;
}

void psd_cluster_close(struct psd_cluster *cluster)
{
    drop_held_messages(&cluster->head);
    for (uint32_t i = 1; cluster->head.servers != NULL && i < cluster->cfg->servers.count; i++) {
        free(cluster->head.servers[i].urls);
        psd_outbox_empty(&cluster->head.servers[i].orders);
    }
    free(cluster->head.servers);
    psd_method_change_close(cluster->job);
}

bool psd_cluster_is_complete(const struct psd_cluster *cluster)
{
    return cluster->cfg->servers.count == 1 || cluster->head.complete;
}

uint64_t psd_cluster_newest(const struct psd_cluster *cluster)
{
    uint64_t version = 0;
    for (uint32_t i = 1; i < cluster->cfg->servers.count; i++)
        version = cluster->head.servers[i].version > version ? cluster->head.servers[i].version : version;
    return version;
}

bool psd_cluster_is_unsaved(const struct psd_cluster *cluster)
{
    for (uint32_t i = 1; psd_has_cluster(cluster->cfg) && i < cluster->cfg->servers.count; i++) {
        const struct psd_server *s = &cluster->head.servers[i];
        if (s->here && !psd_cluster_server_has_saved(s, s->version))
            return true;
    }
    return false;
}

void psd_cluster_send(struct psd_cluster *cluster, const struct psd_server *s, const Ps__ToClient *m)
{
    psd_send_now(cluster->sender, s->peer, s->peer_bytes, m);
}

uint32_t psd_cluster_index(const struct psd_cluster *cluster, const struct psd_server *s)
{
    return (uint32_t)(s - cluster->head.servers);
}

uint64_t psd_cluster_lanes(const struct psd_cluster *cluster, const struct psd_server *s)
{
    uint64_t ones = cluster->lanes->n_own < 64 ? (UINT64_C(1) << cluster->lanes->n_own) - 1 : UINT64_MAX;
    return ones << (psd_cluster_index(cluster, s) * cluster->lanes->n_own);
}

void psd_cluster_refuse(struct psd_cluster *cluster, const struct psd_server *s, uint32_t code,
                        const char *why)
{
    psd_send_refusal(cluster->sender,
                     &(struct psd_peer){.id = s->peer, .id_bytes = s->peer_bytes, .address = s->address},
                     code, why);
}

/* Adds the fields that every Orders has. */
static void send_orders(struct psd_cluster *cluster, const struct psd_server *s, Ps__Orders *o,
                        uint64_t number)
{
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    o->number = number;
    o->place = s->place;
    o->heard = s->msgs;
    o->alpha = atomic_load_explicit(&cluster->lanes->shared.alpha, memory_order_relaxed);
    o->mean_rate = atomic_load_explicit(&cluster->lanes->shared.mean_rate, memory_order_relaxed);
    o->incarnation = cluster->sessions->incarnation;
    m.what_case = PS__TO_CLIENT__WHAT_ORDERS;
    m.orders = o;
    psd_cluster_send(cluster, s, &m);
}

void psd_cluster_order(struct psd_cluster *cluster, struct psd_server *s, Ps__Orders *o)
{
    if (!s->here || s->lost != NULL)
        return; /* it gets the whole state when it is back */
    int rc = psd_outbox_put(&s->orders, &o->base, psd_loop_now_ms(cluster->loop));
    if (rc == 0)
        send_orders(cluster, s, o, s->orders.sent);
    else
        s->lost = rc == -ENOMEM ? "there is no memory for its orders" : "it does not take its orders";
}

/* Sends the Orders that were not taken again, and a sign of life. */
static void resend_orders(struct psd_cluster *cluster, struct psd_server *s)
{
    Ps__Orders life = PS__ORDERS__INIT;
    if (!s->here)
        return;
    if (psd_outbox_is_due(&s->orders, s->heard_ms, psd_loop_now_ms(cluster->loop)))
        for (struct psd_outbox_item *i = s->orders.first; i != NULL; i = i->next)
            send_orders(cluster, s, (Ps__Orders *)i->message, i->number);
    send_orders(cluster, s, &life, 0);
}

void psd_cluster_order_lanes(struct psd_cluster *cluster, struct psd_server *s,
                             const struct psd_lane_message *msg, uint32_t lane)
{
    struct psd_packed_messages p;
    Ps__Orders o = PS__ORDERS__INIT;
    if (psd_lane_message_pack(msg, lane, &p) == 0) {
        o.note = &p.msg;
        psd_cluster_order(cluster, s, &o);
    } else {
        ps_log(PS_LOG_ERROR, "server.memory", "no memory to send server %u the model",
               psd_cluster_index(cluster, s));
    }
    psd_packed_messages_empty(&p);
}

/* Clears the counters of the previous session. */
static void forget_counters(struct psd_cluster *cluster, uint32_t client)
{
    for (uint32_t i = cluster->lanes->n_own; i < cluster->lanes->n; i++) {
        struct psd_lane_client *c = &cluster->lanes->list[i]->clients[client];
        atomic_store_explicit(&c->clock, 0, memory_order_relaxed);
        atomic_store_explicit(&c->staleness, 0, memory_order_relaxed);
        atomic_store_explicit(&c->waiting_seq, 0, memory_order_relaxed);
        atomic_store_explicit(&c->waiting_chunks, 0, memory_order_relaxed);
        atomic_store_explicit(&c->computes, false, memory_order_relaxed);
        atomic_store_explicit(&c->arrived, 0, memory_order_relaxed);
        atomic_store_explicit(&c->bytes_in, 0, memory_order_relaxed);
        atomic_store_explicit(&c->bytes_out, 0, memory_order_relaxed);
        atomic_store_explicit(&c->last_squares, __builtin_nan(""), memory_order_relaxed);
    }
}

void psd_cluster_notify(struct psd_cluster *cluster, const struct psd_lane *lane,
                        const struct psd_lane_message *msg)
{
    if (!psd_has_cluster(cluster->cfg) || msg->kind == PSD_COMMAND_SNAPSHOT || msg->kind == PSD_COMMAND_STOP)
        return; /* those have their own Orders */
    if (msg->kind == PSD_COMMAND_KEEP && msg->p != NULL)
        return; /* this has its own Orders, too */
    if (msg->kind == PSD_COMMAND_SLICE && msg->p != NULL &&
        (cluster->job->center->resumed != NULL || cluster->job->state == PSD_STATE_READY))
        return; /* those have resumed, or have the next method's center */
    if (msg->kind == PSD_COMMAND_ADMIT && msg->b == 0)
        forget_counters(cluster, msg->client);
    for (uint32_t i = 1; i < cluster->cfg->servers.count; i++)
        if (lane == NULL || lane->index / cluster->lanes->n_own == i)
            psd_cluster_order_lanes(cluster, &cluster->head.servers[i], msg,
                                    lane != NULL ? lane->index : UINT32_MAX);
}

void psd_cluster_save(struct psd_cluster *cluster, const Ps__Snapshot *snapshot, uint64_t round)
{
    struct psd_lane_message msg = {.kind = PSD_COMMAND_SNAPSHOT, .a = round};
    if (!psd_has_cluster(cluster->cfg))
        return;
    Ps__Snapshot s = *snapshot;
    s.number = ++cluster->head.snapshots;
    for (uint32_t i = 1; i < cluster->cfg->servers.count; i++) {
        struct psd_packed_messages p;
        Ps__Orders o = PS__ORDERS__INIT;
        psd_lane_message_pack(&msg, UINT32_MAX, &p);
        o.note = &p.msg;
        o.snapshot = &s;
        psd_cluster_order(cluster, &cluster->head.servers[i], &o);
    }
}

bool psd_cluster_has_saved(const struct psd_cluster *cluster)
{
    for (uint32_t i = 1; psd_has_cluster(cluster->cfg) && i < cluster->cfg->servers.count; i++)
        if (cluster->head.servers[i].here && cluster->head.servers[i].saved_number < cluster->head.snapshots)
            return false;
    return true;
}

int psd_cluster_check_saved(const struct psd_cluster *cluster, struct ps_error *err)
{
    for (uint32_t i = 1; psd_has_cluster(cluster->cfg) && i < cluster->cfg->servers.count; i++) {
        const struct psd_server *s = &cluster->head.servers[i];
        bool settled = s->saved_number >= cluster->head.snapshots;
        char newest[40] = "none known to the head";
        if (cluster->head.snapshots == 0 || (settled && s->unsaved[0] == 0))
            continue;
        if (s->has_saved)
            snprintf(newest, sizeof newest, "version %" PRIu64, s->saved_version);
        return ps_fail(err, -EIO, "server %u (%s): %s; its newest checkpoint: %s", i, s->name,
                       settled   ? s->unsaved
                       : s->here ? "it has not reported that its part is written"
                                 : "it is lost, and has not written its part",
                       newest);
    }
    return 0;
}

static bool is_behind(const struct psd_cluster *cluster, const uint64_t *after)
{
    for (uint32_t i = 1; i < cluster->cfg->servers.count; i++) {
        const struct psd_server *s = &cluster->head.servers[i];
        if (s->here && s->orders.taken < (after != NULL ? after[i] : s->orders.sent))
            return true;
    }
    return false;
}

bool psd_cluster_dismiss(struct psd_cluster *cluster)
{
    struct psd_head *t = &cluster->head;
    if (!psd_has_cluster(cluster->cfg))
        return true;
    for (uint32_t i = 1; t->dismissed_ms == 0 && i < cluster->cfg->servers.count; i++) {
        Ps__Orders o = PS__ORDERS__INIT;
        o.stop = true;
        psd_cluster_order(cluster, &t->servers[i], &o);
        if (t->servers[i].enlisted)
            psd_cluster_refuse(cluster, &t->servers[i], PS__CODE__DRAINING, "the job has ended");
    }
    if (t->dismissed_ms == 0)
        t->dismissed_ms = psd_loop_now_ms(cluster->loop);
    return !is_behind(cluster, NULL) || psd_loop_now_ms(cluster->loop) > t->dismissed_ms + DISMISS_MS;
}

bool psd_cluster_keeps_up(const struct psd_cluster *cluster)
{
    for (uint32_t i = 1; psd_has_cluster(cluster->cfg) && i < cluster->cfg->servers.count; i++) {
        const struct psd_server *s = &cluster->head.servers[i];
        if (s->here && s->orders.sent - s->orders.taken > MOST_BEHIND)
            return false;
    }
    return true;
}

static void drop_held_message(struct psd_head *t, struct psd_held_message **at)
{
    struct psd_held_message *l = *at;
    if ((*at = l->next) == NULL)
        t->end = at;
    free(l->after);
    free(l);
}

/* Whether a message must wait. Messages to a client stay in order. Heartbeats are answered at once, since a
 * server that does not respond must not make the head appear dead. A held message of the same kind is
 * replaced. */
static bool has_to_wait(struct psd_cluster *cluster, const unsigned char *peer, size_t peer_bytes, int what)
{
    struct psd_head *t = &cluster->head;
    bool gates = what == PS__TO_CLIENT__WHAT_WELCOME || what == PS__TO_CLIENT__WHAT_BEGUN ||
                 what == PS__TO_CLIENT__WHAT_REPORTED,
         behind = false;
    if (what == PS__TO_CLIENT__WHAT_ALIVE)
        return false;
    for (struct psd_held_message **at = &t->held_messages; *at != NULL;) {
        bool same = (*at)->peer_bytes == peer_bytes && memcmp((*at)->peer, peer, peer_bytes) == 0;
        behind = behind || same;
        if (same && (*at)->what == what)
            drop_held_message(t, at);
        else
            at = &(*at)->next;
    }
    return behind || (gates && is_behind(cluster, NULL));
}

bool psd_cluster_holds_back(struct psd_cluster *cluster, const unsigned char *peer, size_t peer_bytes,
                            const Ps__ToClient *m)
{
    struct psd_head *t = &cluster->head;
    if (!psd_has_cluster(cluster->cfg) || !has_to_wait(cluster, peer, peer_bytes, m->what_case))
        return false;
    size_t len = ps__to_client__get_packed_size(m);
    struct psd_held_message *l = malloc(sizeof *l + len);
    uint64_t *after = calloc(cluster->cfg->servers.count, sizeof *after);
    if (l == NULL || after == NULL || peer_bytes > sizeof l->peer) {
        free(l);
        free(after);
        return true; /* as if the connection had lost it */
    }
    for (uint32_t i = 1; i < cluster->cfg->servers.count; i++)
        after[i] = t->servers[i].orders.sent;
    *l =
        (struct psd_held_message){.what = m->what_case, .after = after, .peer_bytes = peer_bytes, .len = len};
    memcpy(l->peer, peer, peer_bytes);
    ps__to_client__pack(m, l->bytes);
    *t->end = l;
    t->end = &l->next;
    return true;
}

static void send_held_messages(struct psd_cluster *cluster)
{
    struct psd_head *t = &cluster->head;
    while (t->held_messages != NULL && !is_behind(cluster, t->held_messages->after)) {
        struct psd_held_message *l = t->held_messages;
        psd_send_bytes(cluster->sender, l->peer, l->peer_bytes, l->bytes, l->len);
        drop_held_message(t, &t->held_messages);
    }
}

void psd_cluster_lose(struct psd_cluster *cluster, struct psd_server *s, const char *why)
{
    char who[100];
    s->here = false;
    s->lost = NULL;
    s->n_lost++;
    psd_outbox_empty(&s->orders);
    ps_log(PS_LOG_WARN, "server.lost", "server %u (%s) is lost: %s; waiting for its part of the center",
           psd_cluster_index(cluster, s), s->name, why);
    if (cluster->job->state == PSD_STATE_OFFERED || cluster->job->state == PSD_STATE_EMPTYING)
        psd_job_fail(cluster->job, PSD_EXIT_SERVERS,
                     "a server was lost before its part of the initial parameters had arrived");
    psd_membership_away(cluster->job, psd_cluster_lanes(cluster, s), true);
    snprintf(who, sizeof who, "server %u (%s)", psd_cluster_index(cluster, s), s->name);
    psd_method_change_server_lost(cluster->job, psd_cluster_lanes(cluster, s), who);
    send_held_messages(cluster); /* nothing waits any more for what it has not taken */
}

static void take_note(struct psd_cluster *cluster, uint32_t index, const Ps__Note *n)
{
    struct psd_lane_message msg = {.kind = (enum psd_lane_message_kind)n->kind,
                                   .client = n->client,
                                   .incarnation = n->incarnation,
                                   .a = n->a,
                                   .b = n->b};
    bool lanes_own = n->lane < cluster->lanes->n && n->lane / cluster->lanes->n_own == index;
    bool known = n->kind == PSD_LANE_FILLED || n->kind == PSD_LANE_UNFILLED || n->kind == PSD_LANE_RELEASED ||
                 n->kind == PSD_LANE_HELD || n->kind == PSD_LANE_BEGUN || n->kind == PSD_LANE_LANDED ||
                 n->kind == PSD_LANE_OVER || n->kind == PSD_LANE_CLOSED ||
                 (n->kind == PSD_LANE_FAULT && n->a < PSD_N_CODES &&
                  protobuf_c_enum_descriptor_get_value(&ps__code__descriptor, (int)n->a) != NULL);
    if (lanes_own && known && n->client < cluster->sessions->n_slots)
        psd_job_take_message(cluster->job, cluster->lanes->list[n->lane], &msg);
}

void psd_cluster_news(struct psd_cluster *cluster, const struct psd_peer *peer, const Ps__News *m)
{
    struct psd_server *s =
        psd_has_cluster(cluster->cfg) && m->index > 0 && m->index < cluster->cfg->servers.count
            ? &cluster->head.servers[m->index]
            : NULL;
    /* A message from a slot that it has lost may arrive when it has the next one. */
    bool former = s != NULL && m->place != 0 && m->place != s->place;
    if (s == NULL || !s->here || s->run != m->run || former || s->peer_bytes != peer->id_bytes ||
        memcmp(s->peer, peer->id, peer->id_bytes) != 0 || m->taken > s->orders.sent) {
        psd_send_refusal(cluster->sender, peer, PS__CODE__NO_SESSION,
                         "news of a server that is not registered here: register again");
        return;
    }
    s->heard_ms = psd_loop_now_ms(cluster->loop);
    psd_outbox_taken(&s->orders, m->taken, s->heard_ms);
    s->version = m->version;
    s->change = m->change;
    snprintf(s->refused, sizeof s->refused, "%s", m->refused);
    if (m->saved_number >= s->saved_number) { /* not of a snapshot before its slot */
        s->saved_number = m->saved_number;
        snprintf(s->unsaved, sizeof s->unsaved, "%s", m->unsaved);
    }
    if (m->has_saved) {
        s->has_saved = true;
        s->saved_version = m->saved_version;
    }
    if (m->has_saved && !psd_cluster_server_has_saved(s, m->saved_version))
        s->saved[s->n_saved < PSD_MAX_SAVED ? s->n_saved++ : cluster->head.snapshots % PSD_MAX_SAVED] =
            m->saved_version;
    if (m->note != NULL && m->number == s->msgs + 1) { /* others are repeats, or will be repeated */
        s->msgs++;
        if (m->note->kind == PSD_COMMAND_BEGAN || m->note->kind == PSD_LANE_WHOLE)
            psd_cluster_take_exchange(cluster, s, m->note);
        else
            take_note(cluster, m->index, m->note);
    }
    psd_cluster_check_change(cluster);
    psd_method_change_check(cluster->job); /* open exchanges may be complete now */
    for (size_t k = 0; k < m->n_lanes && k < cluster->lanes->n_own; k++)
        psd_news_take(cluster, cluster->lanes->list[m->index * cluster->lanes->n_own + k], m->lanes[k]);
    send_held_messages(cluster);
    if (m->stop[0] != 0)
        psd_job_drain(cluster->job, "another server was asked to stop");
}

static void name_missing(const struct psd_cluster *cluster, char *list, size_t size)
{
    size_t used = 0;
    list[0] = 0;
    for (uint32_t i = 1; i < cluster->cfg->servers.count && used < size; i++)
        if (!cluster->head.servers[i].enlisted)
            used += (size_t)snprintf(list + used, size - used, "%s%u", used > 0 ? ", " : "", i);
}

/* A pause of the head, beyond one tick, does not count as silence of the servers. */
static void discount_own_pause(struct psd_cluster *cluster, uint64_t now)
{
    uint64_t slept_ms = now - cluster->head.ticked_ms;
    bool first = cluster->head.ticked_ms == 0;
    cluster->head.ticked_ms = now;
    for (uint32_t i = 1; !first && slept_ms >= PSD_SLEPT_MS && i < cluster->cfg->servers.count; i++)
        cluster->head.servers[i].heard_ms += slept_ms;
}

void psd_cluster_tick(struct psd_cluster *cluster)
{
    uint64_t now = psd_loop_now_ms(cluster->loop);
    char missing[120], why[200];
    if (!psd_has_cluster(cluster->cfg))
        return;
    if (!cluster->head.complete && now > cluster->head.deadline_ms) {
        name_missing(cluster, missing, sizeof missing);
        snprintf(why, sizeof why, "of %u servers these have not registered within %u s (servers.wait_s): %s",
                 cluster->cfg->servers.count, cluster->cfg->servers.wait_s, missing);
        psd_job_fail(cluster->job, PSD_EXIT_SERVERS, why);
        return;
    }
    discount_own_pause(cluster, now);
    for (uint32_t i = 1; i < cluster->cfg->servers.count; i++) {
        struct psd_server *s = &cluster->head.servers[i];
        if (s->here && now > s->heard_ms + (uint64_t)cluster->cfg->limits.silence_s * 1000)
            s->lost = "it is silent";
        if (s->here && s->lost != NULL)
            psd_cluster_lose(cluster, s, s->lost);
        resend_orders(cluster, s);
    }
}
