#include "server/psd.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "proto/log.h"
#include "proto/memory.h"
#include "server/endpoint.h"

enum { TICK_MS = 200, AUTO_LANES_MIN = 2, AUTO_LANES_MAX = 8, CORES_PER_LANE = 4 };

/* A body that is this much too large still gets a sentence; libzmq cuts off a larger one, before psd sees it.
 */
#define OVERSIZE_BYTES (64u << 10)

#define INCARNATION_MASK                                                                                     \
    0x3fffffffu /* where a job's incarnations start: room for many of them and resumes                       \
                 */

/* One datagram to the service manager, if there is one (sd_notify(3)). */
static void notify_service_manager(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    if (path == NULL || (path[0] != '/' && path[0] != '@') || strlen(path) >= sizeof to.sun_path)
        return;
    memcpy(to.sun_path, path, strlen(path));
    if (path[0] == '@')
        to.sun_path[0] = 0;
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&to,
           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(path)));
    close(fd);
}

static uint32_t auto_lanes(void)
{
    long lanes = sysconf(_SC_NPROCESSORS_ONLN) / CORES_PER_LANE;
    return lanes < AUTO_LANES_MIN   ? AUTO_LANES_MIN
           : lanes > AUTO_LANES_MAX ? AUTO_LANES_MAX
                                    : (uint32_t)lanes;
}

/* A resumed job keeps its lane map. */
static uint32_t lanes_wanted(const struct psd *d)
{
    return d->center != NULL ? d->center->cut.n_lanes : d->cfg.lanes;
}

static int open_lanes(struct psd *d, struct ps_error *err)
{
    char url[300];
    uint32_t want = lanes_wanted(d);
    uint32_t chunk = d->center != NULL ? d->center->shard.chunk_floats : d->cfg.chunk_floats;
    struct psd_lane_options opt = {
        .url = url,
        .transport = d->transport,
        .hub = d->hub,
        .limits = {.max_body_bytes = chunk * sizeof(float) + OVERSIZE_BYTES,
                   .window_chunks = d->cfg.window_chunks},
        .shared = &d->shared,
    };
    d->lanes = calloc(want, sizeof *d->lanes);
    d->lane_polls = calloc(want, sizeof *d->lane_polls);
    if (d->lanes == NULL || d->lane_polls == NULL)
        return ps_fail(err, -ENOMEM, "no memory for %u lanes", want);
    for (; d->n_lanes < want; d->n_lanes++) {
        opt.index = d->n_lanes;
        d->transport->lane_url(d->control.url, d->n_lanes, url, sizeof url);
        int rc = psd_lane_create(&opt, &d->lanes[d->n_lanes], err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static void on_lane_note(uv_poll_t *poll, int status, int events)
{
    struct psd *d = poll->data;
    (void)status;
    (void)events;
    psd_job_take_notes(d, d->lanes[poll - d->lane_polls]);
}

static int start_lanes(struct psd *d, struct ps_error *err)
{
    for (uint32_t i = 0; i < d->n_lanes; i++) {
        int rc = psd_lane_start(d->lanes[i], err);
        if (rc < 0)
            return rc;
        d->lane_polls[i].data = d;
        uv_poll_init(&d->loop, &d->lane_polls[i], d->lanes[i]->out->wake_fd);
        uv_poll_start(&d->lane_polls[i], UV_READABLE, on_lane_note);
    }
    return 0;
}

static void end_all(struct psd *d, bool observers)
{
    for (uint32_t i = 0; i < d->sessions.n_slots; i++) {
        struct psd_session *s = &d->sessions.slots[i];
        if (s->state == PSD_SESSION_VACANT || s->observer != observers)
            continue;
        psd_control_error(d, s, PS__CODE__DRAINING, true, "psd has drained and ends: the session is over");
        psd_job_end(d, s, PS__CODE__DRAINING, "did not leave in time");
    }
}

/* Drained, or the workers' time is up: the last checkpoint. Observers may look at that center until the time
 * is up; then the end. */
static void stop_when_possible(struct psd *d)
{
    bool now = uv_now(&d->loop) >= d->drain_deadline_ms || d->n_stops > 1;
    if (d->state == PSD_STATE_DRAINING && (psd_sessions_count(&d->sessions, false) == 0 || now)) {
        end_all(d, false);
        d->state = PSD_STATE_STOPPING;
        psd_saver_start(d, NULL);
    }
    if (d->state == PSD_STATE_STOPPING && !d->saver.busy &&
        (psd_sessions_count(&d->sessions, true) == 0 || now)) {
        end_all(d, true);
        uv_stop(&d->loop);
    }
}

static void on_tick(uv_timer_t *timer)
{
    struct psd *d = timer->data;
    psd_job_check_silence(d);
    if (!d->membership.started)
        psd_membership_joined(d); /* those who were expected may have had their time */
    psd_saver_check_due(d);
    psd_stop_check(d);
    psd_history_tick(d);
    stop_when_possible(d);
}

static void on_signal(uv_signal_t *handle, int signal_number)
{
    struct psd *d = handle->data;
    d->n_stops++;
    psd_job_drain(d, signal_number == SIGTERM ? "SIGTERM" : "SIGINT");
    if (d->n_stops > 1)
        ps_log(PS_LOG_WARN, "job.stopping", "a second signal: checkpoint and exit at once");
    stop_when_possible(d);
}

static void log_skipped(const char *sentence)
{
    ps_log(PS_LOG_WARN, "checkpoint.damaged", "%s; trying the one before", sentence);
}

static int resume(struct psd *d, struct ps_error *err)
{
    int rc = psd_checkpoint_read_newest(d->saver.directory, d->cfg.limits.floats, &d->resumed,
                                        d->resumed_from, sizeof d->resumed_from, log_skipped, err);
    if (rc == -ENOENT) {
        ps_log(PS_LOG_INFO, "checkpoint.none", "%s holds no checkpoint: the job starts anew",
               d->saver.directory);
        d->resumed_from[0] = 0;
        return 0;
    }
    if (rc < 0)
        return rc;
    d->resumed_version = d->resumed.version;
    d->history.last_version = d->resumed.version;
    /* Sessions that began after the checkpoint have numbers up to here: they are not given out again. */
    d->sessions.incarnation = d->resumed.incarnation + PSD_INCARNATION_SLACK;
    for (size_t i = 0; i < d->resumed.n_replay; i++)
        if (d->resumed.replay[i].client < d->sessions.n_slots)
            d->sessions.slots[d->resumed.replay[i].client].reserved_until_ms =
                uv_now(&d->loop) + (uint64_t)d->cfg.limits.silence_s * 1000;
    if (d->resumed.lanes != d->cfg.lanes || d->resumed.chunk_floats != d->cfg.chunk_floats)
        ps_log(
            PS_LOG_WARN, "checkpoint.lanes",
            "the checkpoint's lane map is kept: %u lanes, chunk_floats %u (the configuration says %u and %u)",
            d->resumed.lanes, d->resumed.chunk_floats, d->cfg.lanes, d->cfg.chunk_floats);
    return psd_center_resume(&d->cfg, &d->resumed, &d->center, err);
}

/* State directory, memory, checkpoint: what needs no network. Returns an exit code. */
static int set_up(struct psd *d, const struct psd_start *start)
{
    struct ps_error err = {""};
    d->history.fd = d->state_lock = -1;
    d->evaluation = (struct psd_evaluation){.loss = NAN, .accuracy = NAN};
    int rc = psd_state_lock(d->cfg.state_dir, &d->state_lock, &err);
    if (rc < 0) {
        ps_log(PS_LOG_ERROR, "start.state_dir", "%s", err.text);
        return PSD_EXIT_STATE_DIR;
    }
    snprintf(d->saver.directory, sizeof d->saver.directory, "%s/checkpoints", d->cfg.state_dir);
    if (mkdir(d->saver.directory, 0700) != 0 && errno != EEXIST) {
        ps_log(PS_LOG_ERROR, "start.state_dir", "%s: %s", d->saver.directory, strerror(errno));
        return PSD_EXIT_STATE_DIR;
    }
    if (psd_history_open(d, &err) < 0 || psd_sessions_init(&d->sessions, d->cfg.limits.clients) < 0 ||
        psd_membership_init(d) < 0) {
        ps_log(PS_LOG_ERROR, "start.memory", "%s",
               err.text[0] != 0 ? err.text : "no memory for the sessions");
        return PSD_EXIT_SYSTEM;
    }
    /* A worker of an earlier job must not be taken for one of this job's. */
    if (getrandom(&d->sessions.incarnation, sizeof d->sessions.incarnation, GRND_NONBLOCK) < 0)
        d->sessions.incarnation = (uint32_t)time(NULL) ^ (uint32_t)getpid() << 16;
    d->sessions.incarnation &= INCARNATION_MASK;
    if (start->resume && resume(d, &err) < 0) {
        ps_log(PS_LOG_ERROR, "start.checkpoint", "%s", err.text);
        return PSD_EXIT_CHECKPOINT;
    }
    if (psd_shared_init(&d->shared, d->sessions.n_slots, lanes_wanted(d)) < 0) {
        ps_log(PS_LOG_ERROR, "start.memory", "no memory for what the lanes share");
        return PSD_EXIT_SYSTEM;
    }
    atomic_store(&d->shared.version, d->resumed_version);
    psd_job_update_rates(d);
    psd_saver_find_best(d);
    return PSD_EXIT_OK;
}

/* Sockets and threads. Returns an exit code. */
static int open_up(struct psd *d)
{
    struct ps_error err = {""};
    char socket_path[600];

    d->transport = ps_transport_of_url(d->cfg.listen);
    if (d->transport->hub_create(lanes_wanted(d), &d->hub) < 0 || psd_control_open(d, &err) < 0 ||
        open_lanes(d, &err) < 0) {
        ps_log(PS_LOG_ERROR, "start.listen", "%s", err.text);
        return PSD_EXIT_BIND;
    }
    if (d->cfg.status.socket[0] == '/')
        snprintf(socket_path, sizeof socket_path, "%s", d->cfg.status.socket);
    else
        snprintf(socket_path, sizeof socket_path, "%s/%s", d->cfg.state_dir, d->cfg.status.socket);
    if (psd_http_create(&d->loop, socket_path, d->cfg.status.http, psd_routes, d, &d->http, &err) < 0) {
        ps_log(PS_LOG_ERROR, "start.status", "%s", err.text);
        return PSD_EXIT_BIND;
    }
    if (start_lanes(d, &err) < 0) {
        ps_log(PS_LOG_ERROR, "start.lanes", "%s", err.text);
        return PSD_EXIT_SYSTEM;
    }
    if (d->center != NULL)
        psd_job_resume(d);
    return PSD_EXIT_OK;
}

static void start_timers(struct psd *d)
{
    d->tick.data = d->sigterm.data = d->sigint.data = d;
    d->checked_ms = uv_now(&d->loop);
    uv_timer_init(&d->loop, &d->tick);
    uv_timer_start(&d->tick, on_tick, TICK_MS, TICK_MS);
    uv_signal_init(&d->loop, &d->sigterm);
    uv_signal_start(&d->sigterm, on_signal, SIGTERM);
    uv_signal_init(&d->loop, &d->sigint);
    uv_signal_start(&d->sigint, on_signal, SIGINT);
}

static int announce(struct psd *d)
{
    struct ps_error err;
    char url[320];
    psd_endpoint_advertised(d->control.url, d->cfg.advertise, url, sizeof url);
    if (d->cfg.endpoint_file[0] != 0 && psd_endpoint_write(d->cfg.endpoint_file, url, &err) < 0) {
        ps_log(PS_LOG_ERROR, "start.endpoint_file", "%s", err.text);
        return PSD_EXIT_BIND;
    }
    ps_log(PS_LOG_INFO, "start.ready", "psd %s listens on %s: method %s, %u lanes, %s kernels, state in %s",
           PSD_VERSION, url, d->cfg.method, d->n_lanes, ps_vec_best()->name, d->cfg.state_dir);
    const char *page = psd_http_address(d->http);
    if (page[0] != 0)
        ps_log(PS_LOG_INFO, "start.page", "the live page is at http%s/", page + strlen("tcp"));
    notify_service_manager("READY=1");
    return PSD_EXIT_OK;
}

static void close_handle(uv_handle_t *handle, void *arg)
{
    (void)arg;
    if (!uv_is_closing(handle))
        uv_close(handle, NULL);
}

static void tear_down(struct psd *d)
{
    for (uint32_t i = 0; i < d->n_lanes; i++)
        psd_lane_destroy(d->lanes[i]);
    if (d->hub != NULL)
        d->transport->hub_destroy(d->hub);
    if (d->http != NULL)
        psd_http_destroy(d->http);
    psd_control_close(d);
    uv_run(&d->loop, UV_RUN_NOWAIT);
    uv_walk(&d->loop, close_handle, NULL);
    uv_run(&d->loop, UV_RUN_DEFAULT);
    uv_loop_close(&d->loop);
    free(d->lanes);
    free(d->lane_polls);
    psd_center_destroy(d->center);
    psd_snapshot_finish(&d->resumed);
    psd_sessions_finish(&d->sessions);
    psd_membership_finish(d);
    psd_history_close(d);
    psd_shared_finish(&d->shared);
    if (d->state_lock >= 0)
        psd_state_unlock(d->state_lock);
}

int psd_run(const struct psd_config *cfg, const struct psd_start *start)
{
    struct psd *d = calloc(1, sizeof *d);
    if (d == NULL || uv_loop_init(&d->loop) != 0) {
        ps_log(PS_LOG_ERROR, "start.memory", "no memory to start");
        free(d);
        return PSD_EXIT_SYSTEM;
    }
    ps_memory_keep_buffers();
    d->cfg = *cfg;
    if (d->cfg.lanes == 0)
        d->cfg.lanes = auto_lanes();
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    d->started_unix_ms = (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
    d->started_ms = uv_now(&d->loop);
    int code = set_up(d, start);
    if (code == PSD_EXIT_OK)
        code = open_up(d);
    if (code == PSD_EXIT_OK) {
        start_timers(d);
        code = announce(d);
    }
    if (code == PSD_EXIT_OK) {
        uv_run(&d->loop, UV_RUN_DEFAULT);
        if (d->evaluation.fresh)
            psd_history_add(d, NULL);
        notify_service_manager("STOPPING=1");
        ps_log(PS_LOG_INFO, "stop", "psd ends at version %" PRIu64, psd_version(d));
    }
    tear_down(d);
    free(d);
    return code;
}
