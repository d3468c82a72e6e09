#include "server/psd.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "proto/clock.h"
#include "proto/log.h"
#include "proto/malloc_settings.h"
#include "server/admissions/admissions.h"
#include "server/config/endpoint.h"
#include "server/job/dynamic_period.h"

enum { AUTO_LANES_MIN = 2, AUTO_LANES_MAX = 8, CORES_PER_LANE = 4 };

/* libzmq accepts bodies up to this much over the limit, so that psd can refuse them with a message. It drops
 * the connection of a peer that sends a larger one. */
#define OVERSIZE_BYTES (64u << 10)

/* PSD_MAX_LANES also bounds the lanes of all servers together. */
static uint32_t auto_lanes(uint32_t servers)
{
    long lanes = sysconf(_SC_NPROCESSORS_ONLN) / CORES_PER_LANE, most = PSD_MAX_LANES / servers;
    most = most < AUTO_LANES_MAX ? most : AUTO_LANES_MAX;
    return lanes < AUTO_LANES_MIN ? AUTO_LANES_MIN : lanes > most ? (uint32_t)most : (uint32_t)lanes;
}

/* The number of lanes of this psd. A resumed job keeps its lane map. */
static uint32_t lanes_wanted(const struct psd *d)
{
    return d->job.center != NULL ? d->job.center->cut.n_lanes / d->cfg.servers.count : d->cfg.lanes;
}

static int open_lanes(struct psd *d, struct ps_error *err)
{
    uint32_t chunk = d->job.center != NULL ? d->job.center->shard.chunk_floats : d->cfg.chunk_floats;
    const struct ps_transport_limits limits = {.max_body_bytes = chunk * sizeof(float) + OVERSIZE_BYTES,
                                               .clients = d->sessions.n_slots};
    int rc = psd_lanes_open(&d->lanes, &d->cfg, d->control.url, lanes_wanted(d), &limits, err);
    psd_stats_limit_registered(&d->job);
    return rc;
}

static void on_lane_note(uv_poll_t *poll, int status, int events)
{
    struct psd *d = poll->data;
    (void)status;
    (void)events;
    struct psd_lane *lane = d->lanes.list[poll - d->lanes.polls];
    if (psd_is_head(&d->cfg))
        psd_job_take_events(&d->job, lane);
    else
        psd_follower_take_events(&d->cluster, lane);
}

static int start_lanes(struct psd *d, struct ps_error *err)
{
    for (uint32_t i = 0; i < d->lanes.n_own; i++) {
        int rc = psd_lane_start(d->lanes.list[i], err);
        if (rc < 0)
            return rc;
        d->lanes.polls[i].data = d;
        uv_poll_init(&d->loop, &d->lanes.polls[i], d->lanes.list[i]->out->wake_fd);
        uv_poll_start(&d->lanes.polls[i], UV_READABLE, on_lane_note);
    }
    return 0;
}

static void end_all(struct psd *d, bool observers)
{
    for (uint32_t i = 0; i < d->sessions.n_slots; i++) {
        struct psd_session *s = &d->sessions.slots[i];
        if (s->state == PSD_SESSION_VACANT || s->observer != observers)
            continue;
        psd_send_error(&d->sender, s, PS__CODE__DRAINING, true,
                       "psd has drained and is stopping: the session has ended");
        psd_job_end(&d->job, s, PS__CODE__DRAINING, "did not leave in time");
    }
}

/* Once the job has drained, or the workers' time is up, writes the last checkpoint on every server that is
 * connected. The part of a silent server is lost; a third signal skips the wait for the servers. Observers
 * may read that center until the deadline. Then psd stops. */
static void stop_when_possible(struct psd *d)
{
    bool now = psd_loop_now_ms(&d->loop) >= d->job.drain_deadline_ms || d->job.n_stops > 1;
    if (psd_method_change_is_closing(&d->job) && !(now && d->job.state == PSD_STATE_DRAINING))
        return; /* brief: the lanes are being handed over */
    if (d->job.state == PSD_STATE_DRAINING && (psd_sessions_count(&d->sessions, false) == 0 || now)) {
        /* Or rounds would go on with the members that end last. */
        psd_tell_lanes(&d->lanes, &(struct psd_lane_message){.kind = PSD_COMMAND_HOLD, .a = 1});
        end_all(d, false);
        d->job.state = PSD_STATE_STOPPING;
        psd_checkpointer_start(&d->job, NULL);
    }
    bool saved =
        !d->job.checkpointer.busy &&
        d->job.checkpointer.pending == 0; /* a pending request waits for the end of the method change */
    if (d->job.state == PSD_STATE_STOPPING && saved &&
        (psd_cluster_has_saved(&d->cluster) || d->job.n_stops > 2) &&
        (psd_sessions_count(&d->sessions, true) == 0 || now)) {
        end_all(d, true);
        if (psd_cluster_dismiss(&d->cluster))
            uv_stop(&d->loop);
    }
}

/* Every server's manager waits for the end of a reload, and for signs of life. */
static void tell_manager(struct psd *d)
{
    if (d->job.notify.reloading && d->job.method_change.phase == PSD_METHOD_CHANGE_NONE)
        psd_notify_ready(&d->job.notify);
    psd_notify_watch(&d->job.notify, d->lanes.list, d->lanes.n_own, psd_loop_now_ms(&d->loop));
}

static void on_tick(struct psd_timer *timer)
{
    struct psd *d = timer->data;
    if (!psd_is_head(&d->cfg)) {
        psd_stats_limit_registered(&d->job);
        psd_follower_tick(&d->cluster);
        tell_manager(d);
        return;
    }
    psd_cluster_tick(&d->cluster);
    psd_job_check_silence(&d->job);
    psd_steps_check(&d->job);
    psd_journal_tell_begun(&d->job);
    psd_rendezvous_tick(&d->control.rendezvous, psd_loop_now_ms(&d->loop));
    psd_dynamic_period_plan(&d->job);
    if (!d->job.membership.started)
        psd_membership_joined(&d->job); /* workers that were expected may have run out of time */
    psd_method_change_check(&d->job);
    psd_plateau_tick(&d->job);
    psd_checkpointer_check_due(&d->job);
    psd_checkpointer_check_vector(
        &d->job, d->job.state == PSD_STATE_STOPPING &&
                     (psd_loop_now_ms(&d->loop) >= d->job.drain_deadline_ms || d->job.n_stops > 1));
    psd_stop_check(&d->job);
    psd_history_tick(&d->job);
    stop_when_possible(d);
    tell_manager(d);
}

static void on_stop(void *arg, int number)
{
    struct psd *d = arg;
    d->job.n_stops++;
    if (!psd_is_head(&d->cfg)) {
        psd_follower_stop(&d->cluster, number == SIGTERM ? "SIGTERM" : "SIGINT");
        return;
    }
    psd_job_drain(&d->job, number == SIGTERM ? "SIGTERM" : "SIGINT");
    if (d->job.n_stops > 1)
        ps_log(PS_LOG_WARN, "job.stopping", "a second signal: checkpoint and exit at once");
    stop_when_possible(d);
}

static void on_hangup(void *arg, int number)
{
    struct psd *d = arg;
    (void)number;
    psd_reload(&d->job, &(struct ps_error){""});
}

/* The same as psctl checkpoint, for a batch system that can only signal the process. Of several servers the
 * head alone decides: lanes of another one would wait for a command of the head that never comes. */
static void on_checkpoint(void *arg, int number)
{
    struct psd *d = arg;
    struct ps_error err;
    (void)number;
    if (!psd_is_head(&d->cfg))
        ps_log(PS_LOG_WARN, "checkpoint.refused",
               "SIGUSR1: this is server %u of %u: signal server 0, the head, which saves all parts",
               d->cfg.servers.index, d->cfg.servers.count);
    else if (psd_checkpointer_start(&d->job, &err) < 0)
        ps_log(PS_LOG_WARN, "checkpoint.refused", "SIGUSR1: %s", err.text);
}

static const struct psd_signal_row signal_rows[] = {
    {SIGTERM, on_stop}, {SIGINT, on_stop}, {SIGHUP, on_hangup}, {SIGUSR1, on_checkpoint}};

static void log_skipped(const char *sentence)
{
    ps_log(PS_LOG_WARN, "checkpoint.damaged", "%s; trying the one before", sentence);
}

/* Whether a server of several can resume from this checkpoint: it must be its own part, or the whole center
 * with a lane map for as many servers. */
static int check_part(const struct psd *d, struct ps_error *err)
{
    const struct psd_snapshot *s = &d->job.resumed;
    uint32_t n = d->cfg.servers.count, i = d->cfg.servers.index;
    if ((n == 1 && s->part == PSD_WHOLE) ||
        (n > 1 && s->map.parts == n && (s->part == PSD_WHOLE || s->part == i)))
        return 0;
    if (s->part == PSD_WHOLE)
        return ps_fail(
            err, -EINVAL,
            "%s: this is the whole center, partitioned for %u servers, and servers.count is %u; allowed is "
            "%u, or the parts that %u servers have written and psctl merge puts together",
            d->job.resumed_from, s->map.parts, n, s->map.parts, n);
    return ps_fail(
        err, -EINVAL,
        "%s: this is part %u of %u, and this is server %u of %u; allowed is that part, or the whole that "
        "psctl merge makes of the parts",
        d->job.resumed_from, s->part, s->map.parts, i, n);
}

static int read_newest(struct psd *d, struct ps_error *err)
{
    return psd_checkpoint_read_newest(d->job.checkpointer.directory, d->cfg.limits.floats, &d->job.resumed,
                                      d->job.resumed_from, sizeof d->job.resumed_from, log_skipped, err);
}

/* The head chooses among the versions in the servers' file names and headers. If the values of the chosen one
 * are damaged, it is set aside, and this server starts from another one: the head then chooses again. With no
 * other one the server ends, and nothing is set aside. */
static int read_another(struct psd *d, uint64_t damaged, struct ps_error *err)
{
    struct ps_error why;
    if (read_newest(d, &why) < 0)
        return -EBADMSG;
    log_skipped(err->text);
    return psd_checkpoint_set_aside(d->job.checkpointer.directory, damaged, err);
}

/* *version: the one to read, UINT64_MAX for the newest; what it becomes if that one is damaged. */
static int read_checkpoint(struct psd *d, uint64_t *version, struct ps_error *err)
{
    uint64_t wanted = *version;
    if (wanted == UINT64_MAX)
        return read_newest(d, err);
    int rc =
        psd_checkpoint_read_version(d->job.checkpointer.directory, wanted, d->cfg.limits.floats,
                                    &d->job.resumed, d->job.resumed_from, sizeof d->job.resumed_from, err);
    if (rc != -EBADMSG)
        return rc;
    *version = UINT64_MAX;
    return read_another(d, wanted, err);
}

/* Finds the checkpoint to resume from. Sets d->resumed_from to "" if there is none. */
static int find_checkpoint(struct psd *d, uint64_t *wanted, struct ps_error *err)
{
    uint64_t version = *wanted;
    int rc = read_checkpoint(d, wanted, err);
    struct psd_best best;
    if (rc == -ENOENT && psd_checkpoint_read_best(d->job.checkpointer.directory, &best, NULL) == 0)
        return ps_fail(
            err, -ENOENT,
            "%s holds only best.safetensors, which has the best vector but no state to resume from: "
            "begin a new job with it (psd(8) has an example), or use --fresh to begin another",
            d->job.checkpointer.directory);
    if (rc == -ENOENT && version == UINT64_MAX) {
        ps_log(PS_LOG_INFO, "checkpoint.none", "%s holds no checkpoint: the job starts from the beginning",
               d->job.checkpointer.directory);
        d->job.resumed_from[0] = 0;
        return 0;
    }
    return rc < 0 ? rc : check_part(d, err);
}

static int resume(struct psd *d, uint64_t version, struct ps_error *err)
{
    if (version != UINT64_MAX)
        psd_checkpoint_forget_after(d->job.checkpointer.directory, &d->job.resumed);
    d->job.resumed_version = d->job.resumed.version;
    psd_checkpointer_resumed(&d->job);
    psd_plateau_resume(&d->job); /* the checkpoint's drops are part of the method */
    d->job.resumed.generation = psd_journal_generation(&d->job);
    if (strcmp(d->job.resumed.rule, d->cfg.rule) != 0)
        d->job.shares_since = d->job.resumed.generation;
    d->job.history.last_version = d->job.resumed.version;
    uint32_t lanes = d->job.resumed.map.lanes / d->cfg.servers.count;
    if (lanes != d->cfg.lanes || d->job.resumed.map.chunk_floats != d->cfg.chunk_floats)
        ps_log(
            PS_LOG_WARN, "checkpoint.lanes",
            "the checkpoint's lane map is kept: %u lanes, chunk_floats %u (the configuration says %u and %u)",
            lanes, d->job.resumed.map.chunk_floats, d->cfg.lanes, d->cfg.chunk_floats);
    return psd_center_resume(&d->cfg, psd_admission_find(d->cfg.admission), &d->job.resumed, &d->job.center,
                             err);
}

/* Resumes the job of the state directory. Returns an exit code. */
static int resume_job(struct psd *d, const struct psd_start *start)
{
    struct ps_error err;
    uint64_t version = start->version;
    int rc = find_checkpoint(d, &version, &err);
    bool found = d->job.resumed_from[0] != 0;
    if (rc == 0 && !start->unset && psd_settings_resume(&d->job, found, &err) < 0) {
        ps_log(PS_LOG_ERROR, "start.settings", "%s", err.text);
        return PSD_EXIT_CONFIG;
    }
    if (rc == 0 && found)
        rc = resume(d, version, &err);
    if (rc == 0)
        return PSD_EXIT_OK;
    ps_log(PS_LOG_ERROR, "start.checkpoint", "%s", err.text);
    return PSD_EXIT_CHECKPOINT;
}

/* Sets up everything that needs no network: state directory, memory, checkpoint. Returns an exit code. */
static int set_up(struct psd *d, const struct psd_start *start)
{
    struct ps_error err = {""};
    d->job.history.fd = d->state_lock = d->job.journal.file.fd = -1;
    d->job.evaluation = (struct psd_evaluation){.loss = NAN, .accuracy = NAN};
    d->job.plateau.best = NAN;
    int rc = psd_auth_set_up(&d->auth, &err);
    if (rc < 0) {
        ps_log(PS_LOG_ERROR, "start.auth", "%s", err.text);
        return PSD_EXIT_CONFIG;
    }
    rc = psd_state_lock(d->cfg.state_dir, &d->state_lock, &err);
    if (rc < 0) {
        ps_log(PS_LOG_ERROR, "start.state_dir", "%s", err.text);
        return PSD_EXIT_STATE_DIR;
    }
    snprintf(d->job.checkpointer.directory, sizeof d->job.checkpointer.directory, "%s/checkpoints",
             d->cfg.state_dir);
    if (psd_state_checkpoints(d->cfg.state_dir, start->resume, start->fresh, &d->job.checkpointer.aside,
                              &err) < 0) {
        ps_log(PS_LOG_ERROR, "start.state_dir", "%s", err.text);
        return PSD_EXIT_STATE_DIR;
    }
    if (d->job.checkpointer.aside.n > 0)
        ps_log(PS_LOG_WARN, "checkpoint.aside",
               "a new job begins: the %u previous checkpoints, the newest of version %" PRIu64
               ", were moved to %s",
               d->job.checkpointer.aside.n, d->job.checkpointer.aside.newest, d->job.checkpointer.aside.path);
    if (psd_journal_open(&d->job, &err) < 0) {
        ps_log(PS_LOG_ERROR, "start.state_dir", "%s", err.text);
        return PSD_EXIT_STATE_DIR;
    }
    if (psd_history_open(&d->job, &err) < 0 || psd_sessions_init(&d->sessions, d->cfg.limits.clients) < 0 ||
        psd_membership_init(&d->job) < 0) {
        ps_log(PS_LOG_ERROR, "start.memory", "%s",
               err.text[0] != 0 ? err.text : "no memory for the sessions");
        return PSD_EXIT_SYSTEM;
    }
    if (start->resume && (rc = resume_job(d, start)) != PSD_EXIT_OK)
        return rc;
    if (psd_journal_begin(&d->job, start->resume, &err) < 0) {
        ps_log(PS_LOG_ERROR, "start.state_dir", "%s", err.text);
        return PSD_EXIT_STATE_DIR;
    }
    if (psd_shared_init(&d->lanes.shared, d->sessions.n_slots, lanes_wanted(d)) < 0) {
        ps_log(PS_LOG_ERROR, "start.memory", "no memory for the state that the lanes share");
        return PSD_EXIT_SYSTEM;
    }
    atomic_store(&d->lanes.shared.version, d->job.resumed_version);
    atomic_store(&d->lanes.shared.generation, d->job.resumed.generation);
    psd_job_update_rates(&d->job);
    psd_checkpointer_find_best(&d->job);
    psd_history_tell_remark(&d->job);
    return PSD_EXIT_OK;
}

/* Opens the sockets and starts the threads. Returns an exit code. */
static int open_sockets(struct psd *d, const struct psd_start *start)
{
    struct ps_error err = {""};
    char socket_path[600];

    if (psd_transports_open(&d->lanes.transports, &d->cfg, d->auth.curve, lanes_wanted(d), &err) < 0 ||
        psd_auth_guard_data(&d->auth, &d->lanes.transports, &err) < 0 ||
        psd_control_open(&d->control, start->listen, &err) < 0 || open_lanes(d, &err) < 0 ||
        psd_auth_watch(&d->auth, d->control.watch, &d->lanes, &err) < 0 ||
        psd_cluster_open(&d->cluster) < 0 || psd_follower_open(&d->cluster, &err) < 0) {
        ps_log(PS_LOG_ERROR, "start.listen", "%s", err.text);
        return PSD_EXIT_BIND;
    }
    if (d->cfg.status.socket[0] == '/')
        snprintf(socket_path, sizeof socket_path, "%s", d->cfg.status.socket);
    else
        snprintf(socket_path, sizeof socket_path, "%s/%s", d->cfg.state_dir, d->cfg.status.socket);
    if (psd_http_create(&d->loop, socket_path, d->cfg.status.http, psd_routes, &d->status, &d->status.http,
                        &err) < 0) {
        ps_log(PS_LOG_ERROR, "start.status", "%s", err.text);
        return PSD_EXIT_BIND;
    }
    if (psd_notify_init(&d->job.notify, d->lanes.n_own, psd_loop_now_ms(&d->loop)) < 0) {
        ps_log(PS_LOG_ERROR, "start.memory", "no memory to watch the lanes");
        return PSD_EXIT_SYSTEM;
    }
    if (start_lanes(d, &err) < 0 || psd_journal_start(&d->job, &err) < 0) {
        ps_log(PS_LOG_ERROR, "start.lanes", "%s", err.text);
        return PSD_EXIT_SYSTEM;
    }
    if (d->job.center != NULL && !psd_has_cluster(&d->cfg))
        psd_job_resume(&d->job);
    return PSD_EXIT_OK;
}

static int fail_signals(int rc)
{
    ps_log(PS_LOG_ERROR, "start.signals", "cannot wait for signals: %s", strerror(-rc));
    return PSD_EXIT_SYSTEM;
}

/* Returns an exit code. */
static int start_timers_and_signals(struct psd *d)
{
    static const int ends_psd[2] = {SIGTERM, SIGINT};
    d->job.checked_ms = psd_loop_now_ms(&d->loop);
    psd_timer_init(&d->loop, &d->tick, d);
    psd_timer_start(&d->tick, on_tick, PSD_TICK_MS, PSD_TICK_MS);
    int rc = psd_signals_keep(ends_psd, 2);
    if (rc == 0)
        rc = psd_signals_start(&d->signals, &d->loop, signal_rows, sizeof signal_rows / sizeof *signal_rows,
                               d);
    return rc < 0 ? fail_signals(rc) : PSD_EXIT_OK;
}

/* Other servers also find the head by its endpoint file, and leave it to the head if it is theirs, too. A
 * worker that connects before all servers have joined waits. */
static int write_endpoint(struct psd *d)
{
    struct ps_error err;
    char url[320];
    psd_endpoint_advertised(d->control.url, d->cfg.advertise, url, sizeof url);
    if (d->cfg.endpoint_file[0] == 0 || psd_endpoint_is_of_head(&d->cfg) ||
        psd_endpoint_write(d->cfg.endpoint_file, url, psd_auth_public_key(&d->auth), &err) == 0)
        return PSD_EXIT_OK;
    ps_log(PS_LOG_ERROR, "start.endpoint_file", "%s", err.text);
    return PSD_EXIT_BIND;
}

static void announce(struct psd *d)
{
    char url[320];
    psd_endpoint_advertised(d->control.url, d->cfg.advertise, url, sizeof url);
    ps_log(PS_LOG_INFO, "start.ready",
           "psd %s listens on %s: method %s, %u lanes, %s kernels, state in %s, authentication %s",
           PSD_VERSION, url, d->cfg.method, d->lanes.n, ps_vec_best()->name, d->cfg.state_dir,
           psd_auth_name(&d->auth));
    if (d->auth.munge.on && !d->auth.curve)
        ps_log(PS_LOG_WARN, "start.munge",
               "auth.munge without auth.key: the user of a joining peer is known, but data frames are not "
               "authenticated, and "
               "nothing is encrypted");
    if (d->cfg.insecure)
        ps_log(PS_LOG_WARN, "start.insecure", "insecure: true: %s",
               d->auth.curve ? "it is not needed because auth.key is set"
                             : "any peer that can reach psd may join the job and change its center, and "
                               "nothing is encrypted");
    const char *page = psd_http_address(d->status.http);
    if (page[0] != 0)
        ps_log(PS_LOG_INFO, "start.page", "the live page is at http%s/", page + strlen("tcp"));
    psd_notify_ready(&d->job.notify);
}

static int open_tensorboard(struct psd *d)
{
    struct ps_error err;
    int rc = psd_tensorboard_open(&d->job, &err);
    if (rc == 0)
        return PSD_EXIT_OK;
    ps_log(PS_LOG_ERROR, "start.tensorboard", "%s", err.text);
    return rc == -ENOMEM ? PSD_EXIT_SYSTEM : PSD_EXIT_CONFIG;
}

static void complete(struct psd *d)
{
    if (d->job.center != NULL)
        psd_job_resume(&d->job);
    announce(d);
    psd_control_take_early(&d->control);
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

/* After the loop was stopped early: leaves signals to the next loop, starts no new writes, and completes a
 * checkpoint and history lines that are being written. */
static void finish_writes(struct psd *d)
{
    psd_signals_stop(&d->signals);
    d->job.state = PSD_STATE_STOPPING;
    d->job.checkpointer.pending = 0;
    if (d->tick.data != NULL)
        psd_timer_stop(&d->tick);
    if (d->job.partial_rounds.timer.data != NULL)
        psd_timer_stop(&d->job.partial_rounds.timer); /* its callback reads the lanes */
    while ((d->job.checkpointer.busy && d->job.checkpointer.lanes_left == 0) ||
           psd_history_is_writing(&d->job))
        uv_run(&d->loop, UV_RUN_ONCE);
}

/* Whether every server of the job has saved its part of the center. */
static int check_end(struct psd *d)
{
    struct ps_error why;
    int rc = psd_checkpointer_check_end(&d->job, &d->job.end);
    if (rc < 0 || d->job.checkpointer.last != PSD_LAST_WRITTEN ||
        psd_cluster_check_saved(&d->cluster, &why) == 0)
        return rc;
    return ps_fail(&d->job.end, -EIO,
                   "the last checkpoint lacks a part, whose changes since the previous one are lost: %.400s",
                   why.text);
}

/* Other requests are served while the end is told: they read the lanes, and may begin writes. */
static void tear_down(struct psd *d)
{
    if (d->status.http != NULL)
        psd_tell_end(&d->status);
    finish_writes(d);
    psd_rejected_peers_close(&d->auth.rejected);
    for (uint32_t i = 0; i < d->lanes.n_own; i++) /* before their descriptors are closed */
        if (d->lanes.polls[i].data != NULL)
            uv_close((uv_handle_t *)&d->lanes.polls[i], NULL);
    psd_lanes_stop(&d->lanes);
    psd_journal_close(&d->job);
    psd_zap_close(&d->auth.data);
    psd_transports_close(&d->lanes.transports);
    psd_http_destroy(d->status.http);
    psd_control_close(&d->control);
    psd_follower_close(&d->cluster);
    uv_run(&d->loop, UV_RUN_NOWAIT);
    uv_walk(&d->loop, close_handle, NULL);
    uv_run(&d->loop, UV_RUN_DEFAULT);
    uv_loop_close(&d->loop);
    psd_lanes_finish(&d->lanes);
    psd_center_abandon(d->job.method_change.center);
    psd_center_destroy(d->job.center);
    psd_snapshot_finish(&d->job.resumed);
    psd_auth_finish(&d->auth);
    psd_rejected_peers_finish(&d->auth.rejected);
    psd_sessions_finish(&d->sessions);
    psd_membership_finish(&d->job);
    psd_history_close(&d->job);
    psd_tensorboard_close(&d->job);
    psd_notify_finish(&d->job.notify);
    psd_shared_finish(&d->lanes.shared);
    psd_cluster_close(&d->cluster);
    if (d->state_lock >= 0)
        psd_state_unlock(d->state_lock);
}

static int run_once(const struct psd_config *cfg, struct psd_start *start, struct psd_restart_request *again)
{
    struct psd *d = calloc(1, sizeof *d);
    if (d == NULL || uv_loop_init(&d->loop) != 0) {
        ps_log(PS_LOG_ERROR, "start.memory", "no memory to start");
        free(d);
        return PSD_EXIT_SYSTEM;
    }
    d->cfg = *cfg;
    psd_wire(d);
    d->cluster.completed = complete;
    d->job.reload.source = start->source;
    d->job.reload.layers.base = start->layers.base;
    if (d->cfg.lanes == 0)
        d->cfg.lanes = auto_lanes(d->cfg.servers.count);
    d->job.started_unix_ms = ps_wall_us() / 1000;
    d->job.started_ms = psd_loop_now_ms(&d->loop);
    int code = set_up(d, start);
    if (code == PSD_EXIT_OK)
        code = open_sockets(d, start);
    if (code == PSD_EXIT_OK)
        code = open_tensorboard(d);
    if (code == PSD_EXIT_OK)
        code = start_timers_and_signals(d);
    if (code == PSD_EXIT_OK)
        code = write_endpoint(d);
    if (code == PSD_EXIT_OK) {
        if (!psd_has_cluster(&d->cfg))
            announce(d);
        uv_run(&d->loop, UV_RUN_DEFAULT);
        if (d->job.evaluation.fresh)
            psd_history_add(&d->job);
        code = d->job.exit_code;
        *again = d->cluster.again;
        start->layers.base = d->job.reload.layers.base;
        snprintf(start->listen, sizeof start->listen, "%s", d->control.url);
        if (again->due)
            psd_notify_restarting();
        else
            psd_notify_stopping();
        finish_writes(d);
        if (d->job.history.dropped > 0)
            ps_log(PS_LOG_WARN, "history.lacks", "history.jsonl lacks %" PRIu64 " lines of this run",
                   d->job.history.dropped);
        if (!again->due && check_end(d) < 0) {
            ps_log(PS_LOG_ERROR, "stop.unsaved", "%s", d->job.end.text);
            code = code == PSD_EXIT_OK ? PSD_EXIT_UNSAVED : code;
        }
        ps_log(PS_LOG_INFO, "stop", "psd stops at version %" PRIu64 "%s", psd_version(&d->lanes),
               again->due ? ", and restarts" : "");
    }
    tear_down(d);
    free(d);
    return code;
}

int psd_run(const struct psd_config *given_cfg, const struct psd_start *given)
{
    struct psd_start start = *given;
    struct psd_config cfg = *given_cfg;
    struct psd_restart_request again = {.due = false};
    static const int from_now_on[2] = {SIGHUP, SIGUSR1}; /* the others may end a psd that starts */
    int code = PSD_EXIT_OK, rc = psd_signals_keep(from_now_on, 2);
    if (rc < 0)
        return fail_signals(rc);
    ps_memory_keep_buffers();
    start.version = UINT64_MAX;
    start.listen[0] = 0;
    do {
        again.due = false;
        code = run_once(&cfg, &start, &again);
        cfg = start.layers.base;
        psd_config_settle(&cfg, NULL, NULL); /* cannot fail: it was valid when it was applied */
        start.unset = false;
        start.resume = again.resume;
        start.fresh = !again.resume;
        start.version = again.version;
    } while (code == PSD_EXIT_OK && again.due);
    return code;
}
