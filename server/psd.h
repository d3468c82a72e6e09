/* psd.h: the daemon. struct psd owns the state of every folder; each folder's header defines its own part. A
 * folder knows only the folders below it; only psd.c and wire.c know all of them. Everything belongs to the
 * loop's thread except what server/lane/lane.h marks as shared.
 *
 * Threads: the loop (libuv: control socket, sessions, timers, signals, status socket), one for each lane
 * (server/lane/lane.h), libzmq's I/O threads, one of libuv's pool while a checkpoint is written, and
 * one that writes the TensorBoard file. The loop
 * and a lane communicate through two queues. */
#ifndef PSD_PSD_H
#define PSD_PSD_H

#include <uv.h>

#include "server/auth/auth.h"
#include "server/cluster/cluster.h"
#include "server/config/config.h"
#include "server/control/control.h"
#include "server/job/job.h"
#include "server/lanes/lanes.h"
#include "server/loop/signals.h"
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
    struct psd_signals signals;
};

/* wire.c. Sets each part's configuration, the parts below it, and its hooks, through which it calls the parts
 * above it. */
void psd_wire(struct psd *d);

struct psd_start {
    bool resume, fresh;
    uint64_t version;                /* of the checkpoint to resume from; UINT64_MAX: the newest */
    char listen[300];                /* address that was bound before a restart; "": as configured */
    struct psd_config_source source; /* source of the configuration, for reloads; outlives psd_run */
    struct psd_config_layers layers; /* layers of the initial configuration; no settings are applied yet */
    bool unset;                      /* resume without the settings made while the job ran */
};

/* psd.c. Runs psd until it stops. Returns the exit code; logs errors. */
int psd_run(const struct psd_config *cfg, const struct psd_start *start);

#endif
