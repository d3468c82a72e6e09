/* Which servers take part: who enlists, what it has, and with what it is placed. Runs on the loop. */
#include "server/cluster/internal.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/log.h"
#include "proto/wire/control.h"
#include "server/admissions/admissions.h"

/* What is each server's own. */
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

static void say(const char *group, const char *key, const json_t *head, const json_t *other, char *sentence,
                size_t size)
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
        snprintf(sentence, size, "its configuration is no JSON object");
    json_object_foreach(head, name, value)
    {
        json_t *theirs = json_object_get(other, name);
        if (sentence[0] != 0 || is_own(name) || json_equal(value, theirs))
            continue;
        if (!json_is_object(value))
            say("", name, value, theirs, sentence, size);
        json_object_foreach(value, leaf, inner)
        {
            if (sentence[0] == 0 && !json_equal(inner, json_object_get(theirs, leaf)))
                say(name, leaf, inner, json_object_get(theirs, leaf), sentence, size);
        }
    }
    json_decref(head);
    json_decref(other);
}

enum { TAKE_OVER_MS = 1000 }; /* silence after which another may take a server's place */

static void say_place(struct psd_cluster *cluster, const struct psd_server *s, enum psd_begin begin,
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
    say_place(cluster, s, begin, version);
}

static bool among_members(const struct psd_cluster *cluster)
{
    return cluster->job->center != NULL && cluster->job->center->admission->members;
}

static bool has_saved(const struct psd_server *s, uint64_t version)
{
    for (uint32_t i = 0; i < s->n_saved; i++)
        if (s->saved[i] == version)
            return true;
    return false;
}

/* The newest checkpoint that all servers have; false: there is none. */
static bool find_common(struct psd_cluster *cluster, uint64_t *version)
{
    uint64_t own[PSD_MAX_SAVED];
    uint32_t n = psd_checkpoint_versions(cluster->job->checkpointer.directory,
                                         cluster->job->center->manifest->hash, own, PSD_MAX_SAVED);
    bool found = false;
    for (uint32_t k = 0; k < n; k++) {
        bool common = !found || own[k] > *version;
        for (uint32_t i = 1; i < cluster->cfg->servers.count; i++)
            common = common && has_saved(&cluster->head.servers[i], own[k]);
        if (common) {
            *version = own[k];
            found = true;
        }
    }
    return found;
}

/* All servers begin anew, this one too: under rounds from the newest checkpoint of all of them, else from the
 * newest of each. */
static void go_back(struct psd_cluster *cluster, const char *why)
{
    uint64_t version = UINT64_MAX;
    if (cluster->job->center->admission->rounds && !find_common(cluster, &version)) {
        psd_job_fail(cluster->job, PSD_EXIT_CHECKPOINT,
                     "the servers are at different rounds and have no checkpoint of the same one");
        return;
    }
    if (version == UINT64_MAX)
        ps_log(PS_LOG_WARN, "server.back", "%s: every server goes back to its newest checkpoint", why);
    else
        ps_log(PS_LOG_WARN, "server.back", "%s: every server goes back to the checkpoint of version %" PRIu64,
               why, version);
    for (uint32_t i = 1; i < cluster->cfg->servers.count; i++)
        place(cluster, &cluster->head.servers[i], PSD_BEGIN_FROM, version);
    cluster->again = (struct psd_restart_request){true, true, version};
    uv_stop(cluster->loop);
}

/* Whether what the server has goes with what the head has; else it is told to begin otherwise, or refused. */
static bool fits(struct psd_cluster *cluster, struct psd_server *s)
{
    char why[200];
    if (cluster->job->center == NULL && !s->has_center)
        return true;
    if (s->has_center && !s->untouched && s->job != 0 && s->job != cluster->sessions->job &&
        !psd_journal_is_former(cluster->job, s->job)) {
        snprintf(why, sizeof why,
                 "server %u has the part of another job (%016" PRIx64 "); this is %016" PRIx64,
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
    snprintf(why, sizeof why, "server %u %s: it is to begin with --resume and the state directory it had",
             psd_cluster_index(cluster, s),
             s->has_center ? "has the part of another model" : "has no checkpoint, and the job has begun");
    s->enlisted = false;
    psd_cluster_refuse(cluster, s, PS__CODE__MANIFEST, why);
    return false;
}

/* Both as they were loaded; under rounds from checkpoints of the same one. */
static bool is_level(const struct psd_cluster *cluster, const struct psd_server *s)
{
    return cluster->job->center == NULL ||
           (s->untouched && psd_version(cluster->lanes) == cluster->job->resumed_version &&
            (!cluster->job->center->admission->rounds || s->version == cluster->job->resumed_version));
}

/* The lanes of a server that is here are those that it has told of. */
static void take_urls(struct psd_cluster *cluster, const struct psd_server *s)
{
    for (uint32_t k = 0; k < cluster->lanes->transports.n; k++) {
        for (uint32_t i = 0; i < cluster->lanes->n_own; i++) {
            struct psd_lane_port *road =
                &cluster->lanes->list[psd_cluster_index(cluster, s) * cluster->lanes->n_own + i]->ports[k];
            snprintf(road->url, sizeof road->url, "%s", s->urls[k * cluster->lanes->n_own + i]);
        }
        if (s->urls[k * cluster->lanes->n_own][0] == 0)
            ps_log(PS_LOG_INFO, "server.road", "no road %s: server %u (%s) has none",
                   cluster->lanes->transports.row[k].transport->name, psd_cluster_index(cluster, s), s->name);
    }
}

/* It is back, after the job has begun: its lanes learn who is in it, and clients where they are. */
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
    ps_log(PS_LOG_INFO, "server.complete", "all %u servers are here: %u lanes", cluster->cfg->servers.count,
           cluster->lanes->n);
    cluster->completed(cluster->psd);
}

/* Places those who have enlisted, once nobody is missing. */
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
        level = level && is_level(cluster, s);
    }
    if (cluster->head.complete ? among_members(cluster) : among_members(cluster) && !level) {
        go_back(cluster, "a server is back");
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

/* What is set is the head's: a server that has missed it takes it first. */
static bool has_settings(struct psd_cluster *cluster, const struct psd_peer *peer, const Ps__Enlist *m)
{
    Ps__Place p = PS__PLACE__INIT;
    Ps__ToClient to = PS__TO_CLIENT__INIT;
    uint32_t generation = atomic_load_explicit(&cluster->lanes->shared.generation, memory_order_relaxed);
    if (m->generation == generation && strcmp(m->settings, cluster->job->reload.recipe.settings) == 0)
        return true;
    p.run = cluster->head.run;
    p.begin = PSD_BEGIN_TAKE;
    p.settings = cluster->job->reload.recipe.settings;
    p.generation = generation;
    to.what_case = PS__TO_CLIENT__WHAT_PLACE;
    to.place = &p;
    psd_send_now(cluster->sender, peer->id, peer->id_bytes, &to);
    return false;
}

/* Whether a server may enlist; else it is told why not. */
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
                 "%zu lanes over %.20s; the head has %u over %s: set lanes and listen alike", m->n_lanes,
                 m->transport, cluster->lanes->n_own, own_road);
    } else if (own != NULL && m->head == cluster->head.run && has_settings(cluster, peer, m)) {
        psd_cluster_compare(own, m->configuration, sentence, sizeof sentence);
    } else {
        wanted = m->head != cluster->head.run; /* it is told which head this is */
    }
    free(own);
    if (sentence[0] != 0)
        psd_send_refusal(cluster->sender, peer, code, sentence);
    return wanted && sentence[0] == 0;
}

/* A process that was killed may be followed by the next before its silence is noticed; two that live are one
 * too many. */
static bool place_is_free(struct psd_cluster *cluster, const struct psd_peer *peer,
                          const struct psd_server *s, uint64_t run)
{
    if (!(s->here || s->enlisted) || s->run == run ||
        psd_loop_now_ms(cluster->loop) - s->heard_ms > TAKE_OVER_MS)
        return true;
    if (ps_log_allows(&cluster->head.log_limit, "server.taken", "servers"))
        ps_log(PS_LOG_WARN, "server.taken", "%s says that it is server %u, whose place %s has", peer->address,
               psd_cluster_index(cluster, s), s->name);
    return false;
}

/* Of a transport that the head lacks nobody is told. */
static void take_road(const struct psd_cluster *cluster, struct psd_server *s, const Ps__Road *road)
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

static void take_in(struct psd_cluster *cluster, struct psd_server *s, const struct psd_peer *peer,
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
        take_road(cluster, s, m->roads[i]);
    s->place = ++cluster->head.places;
    psd_outbox_empty(&s->orders);
    s->msgs = 0;
    s->saved_number = cluster->head.snapshots; /* of what was ordered before, it owes nothing */
    s->unsaved[0] = 0;
    s->change = 0;
    s->refused[0] = 0;
    s->has_center = m->has_center;
    s->untouched = m->untouched;
    s->manifest_hash = m->manifest_hash;
    s->reached = s->version > m->reached && s->n_lost > 0 ? s->version : m->reached; /* as News had it */
    s->reached_exactly = m->reached_exactly;
    s->version = m->version;
    s->job = m->job;
    for (s->n_saved = 0; s->n_saved < PSD_MAX_SAVED && s->n_saved < m->n_saved; s->n_saved++)
        s->saved[s->n_saved] = m->saved[s->n_saved];
}

/* Whether the server goes on in the place that it has: its connection broke, or it has not heard of the place
 * yet. One that has given up what it was told of it is told all anew. */
static bool has_place(const struct psd_server *s, const Ps__Enlist *m)
{
    bool untold = s->orders.taken == 0 && s->msgs == 0;
    return s->here && s->run == m->run && (s->place == m->place || untold);
}

/* An Enlist that was said to the head before this one, and came late, tells of a server that is no more. */
static void say_run(struct psd_cluster *cluster, const struct psd_peer *peer)
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
        say_run(cluster, peer);
        return;
    }
    if ((s->here || s->enlisted) && s->run == m->run && m->call <= s->call)
        return; /* a connection that broke has held it back */
    if (has_place(s, m)) {
        set_peer(cluster, s, peer, m);
        say_place(cluster, s, PSD_BEGIN_GO_ON, 0);
        return;
    }
    if (!place_is_free(cluster, peer, s, m->run) || cluster->job->state >= PSD_STATE_DRAINING)
        return; /* it asks again */
    bool is_new = !s->enlisted || s->run != m->run;
    if (s->here)
        psd_cluster_lose(cluster, s,
                         s->run != m->run ? "another process has taken its place" : "it has lost its place");
    if (psd_method_change_is_closing(cluster->job) || !has_settings(cluster, peer, m))
        return; /* what is set may have changed with its loss, or will: it asks again */
    take_in(cluster, s, peer, m);
    s->enlisted = true;
    if (is_new)
        ps_log(PS_LOG_INFO, "server.enlisted", "server %u is %s at %s", m->index, s->name, s->address);
    consider(cluster);
}
