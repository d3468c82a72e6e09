/* A change of the settings on several servers (server/job/method_change.c). The head tells the others to try,
 * drop or apply it and collects their results; the others carry that out, and catch up on changes that they
 * have missed. Runs on the loop. */
#include "server/cluster/internal.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/log.h"

static void order_change(struct psd_cluster *cluster, Ps__Change *c)
{
    c->number = cluster->head.changes;
    for (uint32_t i = 1; i < cluster->cfg->servers.count; i++) {
        Ps__Orders o = PS__ORDERS__INIT;
        o.change = c;
        psd_cluster_order(cluster, &cluster->head.servers[i], &o);
    }
}

int psd_cluster_check_here(const struct psd_cluster *cluster, struct ps_error *err)
{
    for (uint32_t i = 1; i < cluster->cfg->servers.count; i++)
        if (!cluster->head.servers[i].here || cluster->head.servers[i].lost != NULL)
            return ps_fail(err, -EAGAIN,
                           "server %u of %u is not connected; a change applies to all servers or to none", i,
                           cluster->cfg->servers.count);
    return 0;
}

int psd_cluster_try(struct psd_cluster *cluster, uint32_t generation, struct ps_error *err)
{
    Ps__Change c = PS__CHANGE__INIT;
    int rc = psd_cluster_check_here(cluster, err);
    char *configuration = rc == 0 ? psd_config_json(&cluster->job->method_change.next) : NULL;
    if (rc < 0)
        return rc;
    if (configuration == NULL)
        return ps_fail(err, -ENOMEM, "no memory for messages to the other servers");
    cluster->head.changes++;
    c.step = PS__CHANGE__STEP__TRY;
    c.settings = cluster->job->method_change.layers.settings;
    c.generation = generation;
    c.configuration = configuration;
    order_change(cluster, &c);
    free(configuration);
    return 0;
}

void psd_cluster_drop(struct psd_cluster *cluster)
{
    Ps__Change c = PS__CHANGE__INIT;
    c.step = PS__CHANGE__STEP__DROP;
    order_change(cluster, &c);
}

void psd_cluster_make(struct psd_cluster *cluster)
{
    Ps__Change c = PS__CHANGE__INIT;
    c.step = PS__CHANGE__STEP__MAKE;
    order_change(cluster, &c);
}

/* Whether all servers have tried the change. */
void psd_cluster_check_change(struct psd_cluster *cluster)
{
    char why[500];
    for (uint32_t i = 1; i < cluster->cfg->servers.count; i++)
        if (cluster->head.servers[i].change != cluster->head.changes)
            return;
    for (uint32_t i = 1; i < cluster->cfg->servers.count; i++) {
        const struct psd_server *s = &cluster->head.servers[i];
        if (s->refused[0] == 0)
            continue;
        snprintf(why, sizeof why, "server %u (%s): %s", i, s->name, s->refused);
        psd_method_change_tried(cluster->job, why);
        return;
    }
    psd_method_change_tried(cluster->job, NULL);
}

/* Exchanges of a server whose lanes are closing. */
void psd_cluster_take_exchange(struct psd_cluster *cluster, struct psd_server *s, const Ps__Note *n)
{
    struct psd_exchanges_elsewhere *there =
        &cluster->job->method_change.elsewhere[psd_cluster_index(cluster, s)];
    uint64_t *newest = n->kind == PSD_COMMAND_BEGAN ? there->begun : there->whole;
    if (n->client >= cluster->sessions->n_slots ||
        (newest[n->client] != 0 && !psd_exchange_is_later(n->a, newest[n->client])))
        return;
    newest[n->client] = n->a;
    if (n->kind == PSD_COMMAND_BEGAN)
        there->parts[n->client] = (uint32_t)n->b;
    else if (n->b != 0)
        psd_method_change_give_up(cluster->job, n->client, n->a);
}

/* Tries to apply the head's settings here. */
static int try_change(struct psd_cluster *cluster, const Ps__Change *m, struct ps_error *err)
{
    char sentence[400] = "";
    int rc = psd_method_change_try(cluster->job, m->settings, m->generation, err);
    char *own = rc == 0 ? psd_config_json(&cluster->job->method_change.next) : NULL;
    if (rc < 0)
        return rc;
    if (own == NULL)
        snprintf(sentence, sizeof sentence, "no memory for the configuration");
    else
        psd_cluster_compare(m->configuration, own, sentence, sizeof sentence);
    free(own);
    if (sentence[0] == 0)
        return 0;
    psd_method_change_drop(cluster->job);
    return ps_fail(err, -EINVAL, "%s", sentence);
}

/* A change of all servers' configuration; the head learns the result from News. */
void psd_follower_take_change(struct psd_cluster *cluster, const Ps__Change *m)
{
    struct psd_follower *f = &cluster->follower;
    struct ps_error err = {""};
    if (m->step == PS__CHANGE__STEP__DROP) {
        psd_method_change_drop(cluster->job);
    } else if (m->step == PS__CHANGE__STEP__MAKE) {
        psd_method_change_make(cluster->job);
    } else {
        f->change = m->number;
        f->refused[0] = 0;
        if (try_change(cluster, m, &err) < 0)
            snprintf(f->refused, sizeof f->refused, "%.*s", (int)sizeof f->refused - 1, err.text);
    }
}

/* The head's settings, and the generation of its method. If there is a center it belongs to another method,
 * so this server restarts from its newest checkpoint under the new one. */
void psd_follower_take_settings(struct psd_cluster *cluster, const Ps__Place *m)
{
    struct ps_error err;
    struct psd_config_layers layers = {.base = cluster->job->reload.layers.base};
    struct psd_config next = layers.base, changed;
    bool method, others;
    snprintf(layers.settings, sizeof layers.settings, "%s", m->settings);
    if (psd_layers_build(cluster->job, &layers, &next, &method, &others, &err) < 0) {
        psd_job_fail(cluster->job, PSD_EXIT_CONFIG, err.text);
        return;
    }
    ps_log(PS_LOG_WARN, "server.settings",
           "the head has generation %u of the method; its settings are applied here: %s", m->generation,
           m->settings[0] != 0 ? layers.settings : "nothing");
    changed = *cluster->cfg;
    *cluster->cfg = next;
    atomic_store_explicit(&cluster->lanes->shared.generation, m->generation, memory_order_relaxed);
    psd_layers_apply(cluster->job, &layers, &next);
    if (cluster->job->center == NULL) {
        psd_follower_enlist(cluster, NULL);
        return;
    }
    *cluster->cfg = changed; /* of the center that is dropped here */
    psd_follower_restart(cluster, true, UINT64_MAX);
}

/* Reports which exchanges have begun here, and which of them are complete; no others begin. */
void psd_follower_report_exchanges(struct psd_cluster *cluster, const struct psd_lane *lane)
{
    for (uint32_t c = 0; c < cluster->sessions->n_slots; c++) {
        uint64_t begun = atomic_load_explicit(&cluster->lanes->shared.begun[c], memory_order_acquire),
                 whole = atomic_load_explicit(&cluster->lanes->shared.whole[c], memory_order_acquire),
                 parts = atomic_load_explicit(&cluster->lanes->shared.parts[c], memory_order_acquire);
        if (whole != 0)
            psd_follower_report(cluster, lane,
                                &(struct psd_lane_message){.kind = PSD_LANE_WHOLE, .client = c, .a = whole});
        if (begun != 0)
            psd_follower_report(cluster, lane,
                                &(struct psd_lane_message){.kind = PSD_COMMAND_BEGAN,
                                                           .client = c,
                                                           .a = begun,
                                                           .b = psd_exchange_parts(parts, begun)});
    }
}
