#include "server/lanes/lanes.h"

#include <errno.h>
#include <stdlib.h>

#include "proto/log.h"
#include "server/config/config.h"

static int open_own(struct psd_lanes *lanes, const struct psd_config *cfg, const char *control_url,
                    uint32_t want, const struct ps_transport_limits *limits, struct ps_error *err)
{
    struct psd_lane_options opt = {.shared = &lanes->shared};
    int rc = 0;
    while (rc == 0 && lanes->n_own < want) {
        struct psd_lane **lane = &lanes->list[lanes->n_own];
        opt.index = cfg->servers.index * want + lanes->n_own;
        if ((rc = psd_lane_create(&opt, lane, err)) < 0)
            return rc;
        rc =
            psd_transports_open_lane(&lanes->transports, cfg, control_url, *lane, lanes->n_own, *limits, err);
        lanes->n = ++lanes->n_own;
    }
    return rc;
}

/* At the head, appends the other servers' lanes in order. */
static int open_others(struct psd_lanes *lanes, const struct psd_config *cfg, struct ps_error *err)
{
    int rc = 0;
    uint32_t all = psd_is_head(cfg) ? lanes->n_own * cfg->servers.count : lanes->n_own;
    for (; lanes->n < all && rc == 0; lanes->n += rc == 0)
        rc = psd_lane_create_remote(lanes->n, &lanes->shared, &lanes->list[lanes->n], err);
    return rc;
}

/* Where the machine has several memories, each lane to the cores of one: its slice will lie there. */
static void place_own(struct psd_lanes *lanes)
{
    const struct ps_topology_source here = {.quota_cores = 0};
    struct ps_error err;
    if (ps_topology_read(&here, &lanes->topology, &err) != 0) {
        ps_log(PS_LOG_WARN, "lanes.not_bound", "lanes run where the system puts them: %s", err.text);
        return;
    }
    uint32_t n_nodes = lanes->topology.n_groups[PS_NEAR_NODE];
    if (n_nodes < 2) {
        ps_topology_finish(&lanes->topology);
        return;
    }
    for (uint32_t i = 0; i < lanes->n_own; i++) {
        lanes->list[i]->topology = &lanes->topology;
        lanes->list[i]->node = ps_topology_share(&lanes->topology, PS_NEAR_NODE, i, lanes->n_own);
    }
    ps_log(PS_LOG_INFO, "lanes.placed", "%u lanes over the cores of %u NUMA nodes, each with its slice",
           lanes->n_own, n_nodes);
}

int psd_lanes_open(struct psd_lanes *lanes, const struct psd_config *cfg, const char *control_url,
                   uint32_t want, const struct ps_transport_limits *limits, struct ps_error *err)
{
    lanes->list = calloc((size_t)want * cfg->servers.count, sizeof *lanes->list);
    lanes->polls = calloc(want, sizeof *lanes->polls);
    if (lanes->list == NULL || lanes->polls == NULL)
        return ps_fail(err, -ENOMEM, "no memory for %u lanes", want);
    int rc = open_own(lanes, cfg, control_url, want, limits, err);
    if (rc == 0)
        place_own(lanes);
    return rc < 0 ? rc : open_others(lanes, cfg, err);
}

void psd_lanes_stop(struct psd_lanes *lanes)
{
    for (uint32_t i = 0; i < lanes->n; i++)
        psd_lane_destroy(lanes->list[i]);
    ps_topology_finish(&lanes->topology);
}

void psd_lanes_finish(struct psd_lanes *lanes)
{
    free(lanes->list);
    free(lanes->polls);
}

void psd_tell_lane(struct psd_lanes *lanes, const struct psd_lane *lane, const struct psd_lane_message *msg)
{
    if (lane->in != NULL)
        psd_queue_push(lane->in, msg);
    else
        lanes->command_remote(lanes->psd, lane, msg);
}

void psd_tell_lanes(struct psd_lanes *lanes, const struct psd_lane_message *msg)
{
    for (uint32_t i = 0; i < lanes->n_own; i++)
        psd_queue_push(lanes->list[i]->in, msg);
    psd_tell_other_lanes(lanes, msg);
}

void psd_tell_other_lanes(struct psd_lanes *lanes, const struct psd_lane_message *msg)
{
    if (lanes->command_remote != NULL)
        lanes->command_remote(lanes->psd, NULL, msg);
}
