/* psd.h: the daemon. struct psd owns the state of every folder, which that folder's header
 * defines. Each folder knows those below it, and nobody but psd.c and wire.c knows all of them. All of it
 * belongs to the loop's thread but what server/lane/lane.h says is shared.
 *
 * Threads: the loop (libuv: control socket, sessions, timers, signals, status socket), one for each lane
 * (server/lane/lane.h), libzmq's I/O threads, one of libuv's pool while a checkpoint is written, and one that
 * writes TensorBoard's file where it is asked for. The loop
 * and a lane talk through two queues. */
#ifndef PSD_PSD_H
#define PSD_PSD_H

#include <uv.h>

#include "server/auth/auth.h"
#include "server/cluster/cluster.h"
#include "server/config/config.h"
#include "server/control/control.h"
#include "server/job/job.h"
#include "server/lanes/lanes.h"
#include "server/loop/timer.h"
#include "server/session/send.h"
#include "server/status/status.h"

struct psd {
    struct psd_config cfg;
    uv_loop_t loop;
    struct psd_lanes lanes;
    struct psd_sessions sessions;
    struct psd_sender sender;
    struct psd_auth auth;
    struct psd_job job;
    struct psd_cluster cluster;
    struct psd_control control;
    struct psd_status status;
    int state_lock; /* checkpoint/state_dir.h */
    struct psd_timer tick;
    uv_signal_t sigterm, sigint, sighup, sigusr1;
};

/* wire.c. With its configuration: each part knows those below it, and asks those above it by its hooks. */
void psd_wire(struct psd *d);

struct psd_start {
    bool resume, fresh;
    uint64_t version;                /* of the checkpoint to resume; UINT64_MAX: the newest */
    char listen[300];                /* where it was bound before it began anew; "" : as configured */
    struct psd_config_source source; /* of the configuration, for reloads; outlives psd_run */
    struct psd_recipe recipe;        /* of the configuration that psd begins with; nothing is set yet */
    bool unset;                      /* resume without what was set while the job ran */
};

/* psd.c: everything up and until the end. Returns the exit code; logs what failed. */
int psd_run(const struct psd_config *cfg, const struct psd_start *start);

#endif
