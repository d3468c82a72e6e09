/* lanes.h: all lanes of the job, as the loop knows them: those of this psd, and at the head also those of the
 * other servers. Commands to a lane of this psd go through its queue, commands to other lanes as Orders.
 * Loop's thread, except what lane.h marks as shared. */
#ifndef PSD_LANES_LANES_H
#define PSD_LANES_LANES_H

#include <stdatomic.h>
#include <stdint.h>
#include <uv.h>

#include "server/lane/lane.h"
#include "server/lane/queue.h"
#include "server/lane/shared.h"
#include "server/lanes/transports.h"

struct psd;
struct psd_config;

struct psd_lanes {
    struct psd_shared shared;
    struct psd_transports transports;
    struct psd_lane **list; /* [n]: its own; at the head followed by the other servers' */
    uint32_t n, n_own;
    struct ps_topology topology; /* n_cores 0: one memory node, and lanes are not bound */
    uv_poll_t *polls;            /* [n_own]: wake the loop for events of the lanes */
    /* Sends a command to a lane of another server, or to all of them if lane is NULL. NULL: there are
     * none. */
    void (*command_remote)(struct psd *psd, const struct psd_lane *lane, const struct psd_lane_message *msg);
    struct psd *psd; /* for command_remote */
};

/* Creates `want` lanes of this psd, and at the head the loop's state of the other servers' lanes. Fills in
 * limits.window_chunks. Starts no lane. -errno with a sentence; call psd_lanes_stop and psd_lanes_finish
 * either way. */
int psd_lanes_open(struct psd_lanes *lanes, const struct psd_config *cfg, const char *control_url,
                   uint32_t want, const struct ps_transport_limits *limits, struct ps_error *err);
/* Stops the lanes, whether or not they were started; their polls must be closed. */
void psd_lanes_stop(struct psd_lanes *lanes);
/* After the loop has ended: polls are handles of the loop. */
void psd_lanes_finish(struct psd_lanes *lanes);

void psd_tell_lane(struct psd_lanes *lanes, const struct psd_lane *lane, const struct psd_lane_message *msg);
void psd_tell_lanes(struct psd_lanes *lanes, const struct psd_lane_message *msg);
/* To the lanes of other servers. */
void psd_tell_other_lanes(struct psd_lanes *lanes, const struct psd_lane_message *msg);

static inline uint64_t psd_version(const struct psd_lanes *lanes)
{
    return atomic_load_explicit(&lanes->shared.version, memory_order_relaxed);
}

#endif
