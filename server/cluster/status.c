/* Several servers in /status and /metrics. */
#include <inttypes.h>
#include <stdio.h>

#include "server/config/json.h"
#include "server/cluster/cluster.h"

static json_t *integer(uint64_t v)
{
    return json_integer((json_int_t)v);
}

static json_t *server_json(uint32_t index, const char *name, const char *state, uint64_t version,
                           const uint64_t *saved, uint64_t n_lost, uint64_t behind)
{
    return json_pack("{s:o, s:o, s:s, s:o, s:o, s:o, s:o}", "index", integer(index), "name",
                     psd_json_text(name), "state", state, "version", integer(version), "checkpoint",
                     saved != NULL ? integer(*saved) : json_null(), "lost", integer(n_lost), "orders_behind",
                     integer(behind));
}

json_t *psd_cluster_json(const struct psd_cluster *cluster)
{
    json_t *list = json_array();
    uint32_t index = cluster->cfg->servers.index;
    const struct psd_checkpointer *own = &cluster->job->checkpointer;
    json_array_append_new(
        list,
        server_json(index, index == 0 ? "head" : "",
                    psd_is_head(cluster->cfg) || cluster->follower.placed ? "here" : "waits",
                    psd_version(cluster->lanes), own->last_path[0] != 0 ? &own->last_version : NULL, 0, 0));
    for (uint32_t i = 1; psd_has_cluster(cluster->cfg) && i < cluster->cfg->servers.count; i++) {
        const struct psd_server *s = &cluster->head.servers[i];
        const char *state = s->here ? "here" : s->enlisted ? "waits" : s->n_lost > 0 ? "lost" : "missing";
        json_array_append_new(list, server_json(i, s->name, state, s->version,
                                                s->has_saved ? &s->saved_version : NULL, s->n_lost,
                                                s->orders.sent - s->orders.taken));
    }
    return json_pack("{s:o, s:o, s:o, s:o}", "count", integer(cluster->cfg->servers.count), "index",
                     integer(index), "head", psd_json_text(cluster->follower.head_url), "list", list);
}

void psd_cluster_metrics(FILE *f, const struct psd_cluster *cluster)
{
    fprintf(f,
            "# HELP psd_server_up 1: the server of that index is connected; 0: psd waits for its part of the "
            "center.\n"
            "# TYPE psd_server_up gauge\npsd_server_up{server=\"%u\"} 1\n",
            cluster->cfg->servers.index);
    for (uint32_t i = 1; psd_has_cluster(cluster->cfg) && i < cluster->cfg->servers.count; i++)
        fprintf(f, "psd_server_up{server=\"%u\"} %d\n", i, cluster->head.servers[i].here);
    fprintf(f,
            "# HELP psd_server_version Exchanges applied to the server's part of the center.\n"
            "# TYPE psd_server_version gauge\npsd_server_version{server=\"%u\"} %" PRIu64 "\n",
            cluster->cfg->servers.index, psd_version(cluster->lanes));
    for (uint32_t i = 1; psd_has_cluster(cluster->cfg) && i < cluster->cfg->servers.count; i++)
        fprintf(f, "psd_server_version{server=\"%u\"} %" PRIu64 "\n", i, cluster->head.servers[i].version);
}
