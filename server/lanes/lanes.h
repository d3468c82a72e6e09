/* lanes.h: all lanes of the job, as the loop has them: those of this psd, and at the head behind them those
 * of the other servers. What the loop tells a lane goes through a queue to one of this psd, by Orders to
 * another. Loop's thread, but what lane.h says is shared. */
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
    struct psd_lane **list; /* [n]: its own, at the head followed by other servers' */
    uint32_t n, n_own;
    struct ps_topology topology; /* n_cores 0: the machine has one memory, and lanes run anywhere */
    uv_poll_t *polls;            /* [n_own]: notes from the lanes */
    /* Tells a lane of another server, or all of them where lane is NULL. NULL: there are none. */
    void (*command_remote)(struct psd *psd, const struct psd_lane *lane, const struct psd_lane_message *msg);
    struct psd *psd; /* for command_remote */
};

/* `want` lanes of this psd, and at the head what the loop keeps of other servers'. limits: window_chunks is
 * filled in. None is started. -errno with a sentence; psd_lanes_stop and psd_lanes_finish either way.
 */
int psd_lanes_open(struct psd_lanes *lanes, const struct psd_config *cfg, const char *control_url,
                   uint32_t want, const struct ps_transport_limits *limits, struct ps_error *err);
/* Ends them, whether or not they were started; their polls are closed. */
void psd_lanes_stop(struct psd_lanes *lanes);
/* When the loop has ended: polls are handles of it. */
void psd_lanes_finish(struct psd_lanes *lanes);

void psd_tell_lane(struct psd_lanes *lanes, const struct psd_lane *lane, const struct psd_lane_message *msg);
void psd_tell_lanes(struct psd_lanes *lanes, const struct psd_lane_message *msg);
/* Those of other servers. */
void psd_tell_other_lanes(struct psd_lanes *lanes, const struct psd_lane_message *msg);

static inline uint64_t psd_version(const struct psd_lanes *lanes)
{
    return atomic_load_explicit(&lanes->shared.version, memory_order_relaxed);
}

#endif
