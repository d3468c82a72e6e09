/* Registration of servers: which ones may join, and from which state they start. Runs on the loop. */
#include "server/cluster/internal.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/log.h"
#include "proto/wire/control.h"
#include "server/admissions/admissions.h"

/* Keys that may differ between servers. */
static const char *const own_keys[] = {"servers",   "listen",        "advertise",   "insecure",
                                       "state_dir", "endpoint_file", "tensorboard", "log_level",
                                       "status",    "checkpoint",    "stop",        "auth"};

static bool is_own(const char *key)
{
    for (size_t i = 0; i < sizeof own_keys / sizeof *own_keys; i++)
        if (strcmp(own_keys[i], key) == 0)
            return true;
    return false;
}

static void describe_difference(const char *group, const char *key, const json_t *head, const json_t *other,
                                char *sentence, size_t size)
{
    char *a = json_dumps(head, JSON_ENCODE_ANY | JSON_COMPACT),
         *b = json_dumps(other, JSON_ENCODE_ANY | JSON_COMPACT);
    snprintf(sentence, size, "%s%s%s: found %.80s; the head has %.80s, and all servers must have the same",
             group, group[0] != 0 ? "." : "", key, b != NULL ? b : "nothing", a != NULL ? a : "nothing");
    free(a);
    free(b);
}

void psd_cluster_compare(const char *head_json, const char *other_json, char *sentence, size_t size)
{
    json_t *head = json_loads(head_json, 0, NULL), *other = json_loads(other_json, 0, NULL);
    const char *name, *leaf;
    json_t *value, *inner;
    sentence[0] = 0;
    if (!json_is_object(head) || !json_is_object(other))
        snprintf(sentence, size, "its configuration is not a JSON object");
    json_object_foreach(head, name, value)
    {
        json_t *theirs = json_object_get(other, name);
        if (sentence[0] != 0 || is_own(name) || json_equal(value, theirs))
            continue;
        if (!json_is_object(value))
            describe_difference("", name, value, theirs, sentence, size);
        json_object_foreach(value, leaf, inner)
        {
            if (sentence[0] == 0 && !json_equal(inner, json_object_get(theirs, leaf)))
                describe_difference(name, leaf, inner, json_object_get(theirs, leaf), sentence, size);
        }
    }
    json_decref(head);
    json_decref(other);
}

enum { TAKE_OVER_MS = 1000 }; /* silence after which another process may take a server's slot */

static void send_place(struct psd_cluster *cluster, const struct psd_server *s, enum psd_begin begin,
                       uint64_t version)
{
    Ps__Place p = PS__PLACE__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    p.run = cluster->head.run;
    p.begin = begin;
    p.version = version;
    p.place = s->place;
    p.job = cluster->sessions->job;
    m.what_case = PS__TO_CLIENT__WHAT_PLACE;
    m.place = &p;
    psd_cluster_send(cluster, s, &m);
}

static void place(struct psd_cluster *cluster, struct psd_server *s, enum psd_begin begin, uint64_t version)
{
    s->enlisted = false;
    s->here = begin == PSD_BEGIN_GO_ON;
    psd_membership_away(cluster->job, psd_cluster_lanes(cluster, s), !s->here);
    s->heard_ms = psd_loop_now_ms(cluster->loop);
    send_place(cluster, s, begin, version);
}

static bool among_members(const struct psd_cluster *cluster)
{
    return cluster->job->center != NULL && cluster->job->center->admission->members;
}

bool psd_cluster_server_has_saved(const struct psd_server *s, uint64_t version)
{
    for (uint32_t i = 0; i < s->n_saved; i++)
        if (s->saved[i] == version)
            return true;
    return false;
}

bool psd_cluster_common(const struct psd_cluster *cluster, uint64_t *version)
{
    const struct psd_saved_versions *own =
        psd_checkpointer_versions(cluster->job, cluster->job->center->manifest->hash);
    bool found = false;
    for (uint32_t k = 0; k < own->n; k++) {
        bool common = !found || own->versions[k] > *version;
        for (uint32_t i = 1; i < cluster->cfg->servers.count; i++)
            common = common && psd_cluster_server_has_saved(&cluster->head.servers[i], own->versions[k]);
        if (common) {
            *version = own->versions[k];
            found = true;
        }
    }
    return found;
}

/* Restarts all servers, including this one: under rounds from the newest checkpoint that all of them have,
 * else each from its own newest. */
static void restart_all(struct psd_cluster *cluster, const char *why)
{
    uint64_t version = UINT64_MAX;
    cluster->job->checkpointer.saved.known = false; /* the files that are there now */
    if (cluster->job->center->admission->rounds && !psd_cluster_common(cluster, &version)) {
        psd_job_fail(
            cluster->job, PSD_EXIT_CHECKPOINT,
            "the servers are at different rounds and have no checkpoint of the same one; one that was "
            "written without rounds can be resumed under the method that the job had then");
        return;
    }
    if (version == UINT64_MAX)
        ps_log(PS_LOG_WARN, "server.back", "%s: every server restarts from its newest checkpoint", why);
    else
        ps_log(PS_LOG_WARN, "server.back",
               "%s: every server restarts from the checkpoint of version %" PRIu64, why, version);
    for (uint32_t i = 1; i < cluster->cfg->servers.count; i++)
        place(cluster, &cluster->head.servers[i], PSD_BEGIN_FROM, version);
    cluster->again = (struct psd_restart_request){true, true, version};
    uv_stop(cluster->loop);
}

/* Whether the server's state fits the head's; otherwise it is told to start differently, or refused. */
static bool fits(struct psd_cluster *cluster, struct psd_server *s)
{
    char why[200];
    if (cluster->job->center == NULL && !s->has_center)
        return true;
    if (s->has_center && !s->untouched && s->job != 0 && s->job != cluster->sessions->job &&
        !psd_journal_is_former(cluster->job, s->job)) {
        snprintf(why, sizeof why, "server %u has a part of another job (%016" PRIx64 "); this is %016" PRIx64,
                 psd_cluster_index(cluster, s), s->job, cluster->sessions->job);
        s->enlisted = false;
        psd_cluster_refuse(cluster, s, PS__CODE__MANIFEST, why);
        return false;
    }
    if (cluster->job->center == NULL) {
        place(cluster, s, PSD_BEGIN_ANEW, 0);
        return false;
    }
    if (!s->has_center && s->n_saved > 0) {
        place(cluster, s, PSD_BEGIN_FROM, UINT64_MAX);
        return false;
    }
    if (s->has_center && s->manifest_hash == cluster->job->center->manifest->hash)
        return true;
    snprintf(why, sizeof why, "server %u %s: start it with --resume and its previous state directory",
             psd_cluster_index(cluster, s),
             s->has_center ? "has a part of another model" : "has no checkpoint, and the job has begun");
    s->enlisted = false;
    psd_cluster_refuse(cluster, s, PS__CODE__MANIFEST, why);
    return false;
}

/* Whether both were restored; under rounds from checkpoints of the same version. */
static bool is_at_same_version(const struct psd_cluster *cluster, const struct psd_server *s)
{
    return cluster->job->center == NULL ||
           (s->untouched && psd_version(cluster->lanes) == cluster->job->resumed_version &&
            (!cluster->job->center->admission->rounds || s->version == cluster->job->resumed_version));
}

/* Stores the addresses of the server's lanes. */
static void take_urls(struct psd_cluster *cluster, const struct psd_server *s)
{
    for (uint32_t k = 0; k < cluster->lanes->transports.n; k++) {
        for (uint32_t i = 0; i < cluster->lanes->n_own; i++) {
            struct psd_lane_port *road =
                &cluster->lanes->list[psd_cluster_index(cluster, s) * cluster->lanes->n_own + i]->ports[k];
            snprintf(road->url, sizeof road->url, "%s", s->urls[k * cluster->lanes->n_own + i]);
        }
        if (s->urls[k * cluster->lanes->n_own][0] == 0)
            ps_log(PS_LOG_INFO, "server.road", "transport %s is not available: server %u (%s) lacks it",
                   cluster->lanes->transports.row[k].transport->name, psd_cluster_index(cluster, s), s->name);
    }
}

/* The server is back after the job has begun: its lanes get the clients of the job, and the clients their
 * addresses. */
static void bring_up_to_date(struct psd_cluster *cluster, struct psd_server *s)
{
    take_urls(cluster, s);
    for (uint32_t i = 0; i < cluster->sessions->n_slots; i++) {
        const struct psd_session *c = &cluster->sessions->slots[i];
        struct psd_lane_message msg =
            psd_lane_message_admit(c, c->observer ? PSD_PHASE_OBSERVING : PSD_PHASE_ACTIVE, true);
        if (c->incarnation == 0)
            continue;
        if (c->state != PSD_SESSION_ACTIVE) {
            msg.kind = PSD_COMMAND_END;
            msg.a = PS__CODE__NO_SESSION;
        }
        psd_cluster_order_lanes(cluster, s, &msg, UINT32_MAX);
    }
    if (s->untouched && s->has_center)
        psd_loss_of_server_later(cluster->job, psd_cluster_index(cluster, s), s->version, s->reached,
                                 s->reached_exactly);
    ps_log(PS_LOG_INFO, "server.joined",
           "server %u (%s) is back at version %" PRIu64 "; the head is at %" PRIu64,
           psd_cluster_index(cluster, s), s->name, s->version, psd_version(cluster->lanes));
    cluster->job->hooks.welcome_all(cluster->psd);
}

static void become_complete(struct psd_cluster *cluster)
{
    for (uint32_t i = 1; i < cluster->cfg->servers.count; i++) {
        struct psd_server *s = &cluster->head.servers[i];
        place(cluster, s, PSD_BEGIN_GO_ON, 0);
        take_urls(cluster, s);
        if (s->untouched && s->has_center)
            psd_loss_of_server(cluster->job, i, s->version, s->reached, s->reached_exactly);
    }
    cluster->head.complete = true;
    ps_log(PS_LOG_INFO, "server.complete", "all %u servers have joined: %u lanes",
           cluster->cfg->servers.count, cluster->lanes->n);
    cluster->completed(cluster->psd);
}

/* Gives slots to the registered servers, once none is missing. */
static void consider(struct psd_cluster *cluster)
{
    bool level = true;
    for (uint32_t i = 1; i < cluster->cfg->servers.count; i++)
        if (!cluster->head.servers[i].enlisted && !cluster->head.servers[i].here)
            return;
    for (uint32_t i = 1; i < cluster->cfg->servers.count; i++) {
        struct psd_server *s = &cluster->head.servers[i];
        if (s->enlisted && !fits(cluster, s))
            return;
        level = level && is_at_same_version(cluster, s);
    }
    if (cluster->head.complete ? among_members(cluster) : among_members(cluster) && !level) {
        restart_all(cluster, "a server is back");
        return;
    }
    if (!cluster->head.complete) {
        become_complete(cluster);
        return;
    }
    for (uint32_t i = 1; i < cluster->cfg->servers.count; i++)
        if (cluster->head.servers[i].enlisted) {
            place(cluster, &cluster->head.servers[i], PSD_BEGIN_GO_ON, 0);
            bring_up_to_date(cluster, &cluster->head.servers[i]);
        }
}

/* The head's settings apply: a server that has missed them applies them first. */
static bool has_settings(struct psd_cluster *cluster, const struct psd_peer *peer, const Ps__Enlist *m)
{
    Ps__Place p = PS__PLACE__INIT;
    Ps__ToClient to = PS__TO_CLIENT__INIT;
    uint32_t generation = atomic_load_explicit(&cluster->lanes->shared.generation, memory_order_relaxed);
    if (m->generation == generation && strcmp(m->settings, cluster->job->reload.layers.settings) == 0)
        return true;
    p.run = cluster->head.run;
    p.begin = PSD_BEGIN_TAKE;
    p.settings = cluster->job->reload.layers.settings;
    p.generation = generation;
    to.what_case = PS__TO_CLIENT__WHAT_PLACE;
    to.place = &p;
    psd_send_now(cluster->sender, peer->id, peer->id_bytes, &to);
    return false;
}

/* Whether the server may register; sends it the reason if not. */
static bool is_wanted(struct psd_cluster *cluster, const struct psd_peer *peer, const Ps__Enlist *m)
{
    char sentence[400] = "";
    uint32_t code = PS__CODE__MALFORMED;
    bool wanted = true;
    char *own = psd_config_json(cluster->cfg);
    const char *own_road = cluster->lanes->transports.row[0].transport->name;
    if (m->protocol != PS_PROTOCOL_VERSION) {
        code = PS__CODE__VERSION;
        snprintf(sentence, sizeof sentence, "protocol version %u; the head speaks %d", m->protocol,
                 PS_PROTOCOL_VERSION);
    } else if (!psd_has_cluster(cluster->cfg)) {
        snprintf(sentence, sizeof sentence, "this psd is not the head of several servers (servers.count: %u)",
                 cluster->cfg->servers.count);
    } else if (m->count != cluster->cfg->servers.count) {
        snprintf(sentence, sizeof sentence, "servers.count: found %u; the head has %u", m->count,
                 cluster->cfg->servers.count);
    } else if (m->index == 0 || m->index >= cluster->cfg->servers.count) {
        code = PS__CODE__RANK_RANGE;
        snprintf(sentence, sizeof sentence,
                 "server %u; with servers.count %u allowed are 1 to %u beside the head", m->index,
                 cluster->cfg->servers.count, cluster->cfg->servers.count - 1);
    } else if (m->n_lanes != cluster->lanes->n_own || strcmp(m->transport, own_road) != 0) {
        snprintf(sentence, sizeof sentence,
                 "%zu lanes over %.20s; the head has %u over %s: set lanes and listen to the same",
                 m->n_lanes, m->transport, cluster->lanes->n_own, own_road);
    } else if (own != NULL && m->head == cluster->head.run && has_settings(cluster, peer, m)) {
        psd_cluster_compare(own, m->configuration, sentence, sizeof sentence);
    } else {
        wanted = m->head != cluster->head.run; /* it gets the identity of this head */
    }
    free(own);
    if (sentence[0] != 0)
        psd_send_refusal(cluster->sender, peer, code, sentence);
    return wanted && sentence[0] == 0;
}

/* A process that was killed may be replaced before its silence is noticed; two that are alive conflict. */
static bool slot_is_free(struct psd_cluster *cluster, const struct psd_peer *peer, const struct psd_server *s,
                         uint64_t run)
{
    if (!(s->here || s->enlisted) || s->run == run ||
        psd_loop_now_ms(cluster->loop) - s->heard_ms > TAKE_OVER_MS)
        return true;
    if (ps_log_allows(&cluster->head.log_limit, "server.taken", "servers"))
        ps_log(PS_LOG_WARN, "server.taken", "%s registers as server %u, whose slot %s has", peer->address,
               psd_cluster_index(cluster, s), s->name);
    return false;
}

/* Transports that the head lacks are not offered to clients. */
static void take_transport(const struct psd_cluster *cluster, struct psd_server *s, const Ps__Road *road)
{
    uint32_t k = psd_transports_find(&cluster->lanes->transports, road->transport);
    for (uint32_t i = 0; k > 0 && k < cluster->lanes->transports.n &&
                         road->n_lanes == cluster->lanes->n_own && i < cluster->lanes->n_own;
         i++)
        snprintf(s->urls[k * cluster->lanes->n_own + i], sizeof *s->urls, "%s", road->lanes[i]);
}

static void set_peer(struct psd_cluster *cluster, struct psd_server *s, const struct psd_peer *peer,
                     const Ps__Enlist *m)
{
    s->call = m->call;
    s->heard_ms = psd_loop_now_ms(cluster->loop);
    s->peer_bytes = peer->id_bytes < sizeof s->peer ? peer->id_bytes : 0;
    memcpy(s->peer, peer->id, s->peer_bytes);
}

static void store_registration(struct psd_cluster *cluster, struct psd_server *s, const struct psd_peer *peer,
                               const Ps__Enlist *m)
{
    s->run = m->run;
    set_peer(cluster, s, peer, m);
    snprintf(s->name, sizeof s->name, "%s", m->name);
    snprintf(s->address, sizeof s->address, "%s", peer->address);
    memset(s->urls, 0, (size_t)PSD_MAX_TRANSPORTS * cluster->lanes->n_own * sizeof *s->urls);
    for (size_t i = 0; i < m->n_lanes; i++)
        snprintf(s->urls[i], sizeof s->urls[i], "%s", m->lanes[i]);
    for (size_t i = 0; i < m->n_roads; i++)
        take_transport(cluster, s, m->roads[i]);
    s->place = ++cluster->head.places;
    psd_outbox_empty(&s->orders);
    s->msgs = 0;
    s->saved_number = cluster->head.snapshots; /* snapshots ordered before do not concern it */
    s->unsaved[0] = 0;
    s->change = 0;
    s->refused[0] = 0;
    s->has_center = m->has_center;
    s->untouched = m->untouched;
    s->manifest_hash = m->manifest_hash;
    s->reached = s->version > m->reached && s->n_lost > 0 ? s->version : m->reached; /* from News */
    s->reached_exactly = m->reached_exactly;
    s->version = m->version;
    s->job = m->job;
    for (s->n_saved = 0; s->n_saved < PSD_MAX_SAVED && s->n_saved < m->n_saved; s->n_saved++)
        s->saved[s->n_saved] = m->saved[s->n_saved];
}

/* Whether the server keeps its slot: its connection broke, or it does not know of the slot yet. One that has
 * dropped its state gets everything again. */
static bool has_place(const struct psd_server *s, const Ps__Enlist *m)
{
    bool untold = s->orders.taken == 0 && s->msgs == 0;
    return s->here && s->run == m->run && (s->place == m->place || untold);
}

/* An Enlist addressed to an earlier run of the head arrived late, and describes a server that no longer
 * exists. */
static void send_run(struct psd_cluster *cluster, const struct psd_peer *peer)
{
    Ps__Place p = PS__PLACE__INIT;
    Ps__ToClient m = PS__TO_CLIENT__INIT;
    p.run = cluster->head.run;
    p.begin = PSD_BEGIN_ENLIST;
    m.what_case = PS__TO_CLIENT__WHAT_PLACE;
    m.place = &p;
    psd_send_now(cluster->sender, peer->id, peer->id_bytes, &m);
}

void psd_cluster_register(struct psd_cluster *cluster, const struct psd_peer *peer, const Ps__Enlist *m)
{
    if (cluster->again.due || !is_wanted(cluster, peer, m))
        return;
    struct psd_server *s = &cluster->head.servers[m->index];
    if (m->head != cluster->head.run) {
        send_run(cluster, peer);
        return;
    }
    if ((s->here || s->enlisted) && s->run == m->run && m->call <= s->call)
        return; /* a broken connection has delayed it */
    if (has_place(s, m)) {
        set_peer(cluster, s, peer, m);
        send_place(cluster, s, PSD_BEGIN_GO_ON, 0);
        return;
    }
    if (!slot_is_free(cluster, peer, s, m->run) || cluster->job->state >= PSD_STATE_DRAINING)
        return; /* the server asks again */
    bool is_new = !s->enlisted || s->run != m->run;
    if (s->here)
        psd_cluster_lose(cluster, s,
                         s->run != m->run ? "another process has replaced it" : "it has dropped its state");
    if (psd_method_change_is_closing(cluster->job) || !has_settings(cluster, peer, m))
        return; /* the settings may have changed with its loss, or will: it asks again */
    store_registration(cluster, s, peer, m);
    s->enlisted = true;
    if (is_new)
        ps_log(PS_LOG_INFO, "server.enlisted", "server %u is %s at %s", m->index, s->name, s->address);
    consider(cluster);
}
