#include "server/lane/rounds.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/clock.h"
#include "proto/log.h"

enum { BATCH = 64, IDLE_MS = 1000 };

static void free_tables(struct psd_shared *s)
{
    free(s->lanes_done);
    free(s->exchanges);
    free(s->clocks);
    free(s->begun);
    free(s->whole);
    free(s->over);
    free(s->parts);
    s->lanes_done = s->exchanges = s->clocks = s->begun = s->whole = s->over = s->parts = NULL;
}

int psd_shared_init(struct psd_shared *s, uint32_t n_slots, uint32_t n_lanes)
{
    *s = (struct psd_shared){.n_slots = n_slots, .n_lanes = n_lanes};
    size_t n_tracks = (size_t)n_slots * PS_MAX_TRACKS;
    s->lanes_done = calloc(n_tracks, sizeof *s->lanes_done);
    s->exchanges = calloc(n_slots, sizeof *s->exchanges);
    s->clocks = calloc(n_slots, sizeof *s->clocks);
    s->begun = calloc(n_tracks, sizeof *s->begun);
    s->whole = calloc(n_tracks, sizeof *s->whole);
    s->over = calloc(n_slots, sizeof *s->over);
    s->parts = calloc(n_slots, sizeof *s->parts);
    if (s->lanes_done != NULL && s->exchanges != NULL && s->clocks != NULL && s->begun != NULL &&
        s->whole != NULL && s->over != NULL && s->parts != NULL &&
        pthread_barrier_init(&s->snapshot, NULL, n_lanes) == 0)
        return 0;
    free_tables(s);
    return -ENOMEM;
}

void psd_shared_finish(struct psd_shared *s)
{
    if (s->lanes_done != NULL)
        pthread_barrier_destroy(&s->snapshot);
    free_tables(s);
}

static void queue_destroy(struct psd_queue *queue)
{
    if (queue != NULL)
        psd_queue_finish(queue);
    free(queue);
}

static int queue_create(uint32_t n_notes, struct psd_queue **out)
{
    *out = aligned_alloc(64, sizeof **out);
    return *out != NULL ? psd_queue_init(*out, n_notes) : -ENOMEM;
}

int psd_lane_create(const struct psd_lane_options *opt, struct psd_lane **out, struct ps_error *err)
{
    int rc = -ENOMEM;
    struct psd_lane *lane = calloc(1, sizeof *lane);
    if (lane == NULL)
        return ps_fail(err, rc, "no memory for lane %u", opt->index);
    lane->index = opt->index;
    atomic_init(&lane->registered.max_bytes, UINT64_MAX);
    lane->shared = opt->shared;
    atomic_init(&lane->stats.center_squares, NAN);
    lane->clients = calloc(opt->shared->n_slots, sizeof *lane->clients);
    uint32_t n_notes = psd_queue_commands_for(opt->shared->n_slots);
    if (lane->clients == NULL) {
        ps_fail(err, rc, "no memory for lane %u", opt->index);
        goto free_lane;
    }
    if ((rc = queue_create(n_notes, &lane->in)) < 0 || (rc = queue_create(n_notes, &lane->out)) < 0) {
        ps_fail(err, rc, "lane %u: no memory or descriptor for its queues: %s", opt->index, strerror(-rc));
        goto free_lane;
    }
    *out = lane;
    return 0;

free_lane:
    queue_destroy(lane->in);
    queue_destroy(lane->out);
    free(lane->clients);
    free(lane);
    return rc;
}

int psd_lane_create_remote(uint32_t index, struct psd_shared *shared, struct psd_lane **out,
                           struct ps_error *err)
{
    struct psd_lane *lane = calloc(1, sizeof *lane);
    if (lane == NULL || (lane->clients = calloc(shared->n_slots, sizeof *lane->clients)) == NULL) {
        free(lane);
        return ps_fail(err, -ENOMEM, "no memory for lane %u", index);
    }
    lane->index = index;
    lane->shared = shared;
    atomic_init(&lane->stats.center_squares, NAN);
    *out = lane;
    return 0;
}

int psd_lane_add_port(struct psd_lane *lane, const struct ps_transport *transport, struct ps_hub *hub,
                      const char *url, const struct ps_transport_limits *limits, struct ps_error *err)
{
    if (lane->n_ports == PSD_MAX_TRANSPORTS)
        return ps_fail(err, -ENOSPC, "lane %u already has %d transports", lane->index, PSD_MAX_TRANSPORTS);
    struct psd_lane_port *port = &lane->ports[lane->n_ports];
    struct ps_transport_limits own = *limits;
    own.registered = &lane->registered;
    int rc = transport->port_open(hub, url, &own, &port->port, err);
    if (rc < 0)
        return rc;
    port->transport = transport;
    snprintf(port->url, sizeof port->url, "%s", transport->port_url(port->port));
    lane->n_ports++;
    return 0;
}

/* Serves one batch of messages from the transport. Returns whether more may be waiting. */
static bool serve(struct psd_lane *lane, const struct psd_lane_port *port)
{
    struct psd_arrival a = {.port = port};
    int rc;
    for (int n = 0; n < BATCH && !lane->stop; n++) {
        if ((rc = port->transport->port_recv(port->port, &a.message)) != 0 && rc != -EBADMSG)
            return false;
        psd_lane_serve(lane, &a, rc);
    }
    return true;
}

/* Before the lane sleeps: lets the transports poll a last time. Returns whether a message has arrived; after
 * that the descriptors signal new ones. */
static bool prepare_sleep(struct psd_lane *lane)
{
    bool more = false;
    for (uint32_t i = 0; i < lane->n_ports; i++)
        if (lane->ports[i].transport->port_rest != NULL)
            more = lane->ports[i].transport->port_rest(lane->ports[i].port) || more;
    return more;
}

/* Does a part of the lane's background work, between two batches of messages. */
static bool work_in_background(struct psd_lane *lane)
{
    lane->stop_ns = 0;
    if (!lane->memory.due && lane->snap.to == NULL)
        return false;
    uint64_t begin_ns = ps_now_ns();
    bool more = psd_lane_memory_go_on(lane);
    more = psd_lane_copy_more(lane) || more;
    psd_lane_note_stop(lane, begin_ns);
    return more;
}

bool psd_lane_turn(struct psd_lane *lane)
{
    bool more = false;
    psd_count(&lane->stats.beats, 1);
    psd_lane_take_commands(lane);
    for (uint32_t i = lane->n_ports; i-- > 0;) /* the fastest first */
        more = serve(lane, &lane->ports[i]) || more;
    return work_in_background(lane) || more;
}

/* Before it touches its slice: pages come from the node of the thread that touches them first. */
static void bind_to_node(const struct psd_lane *lane)
{
    struct ps_error err;
    if (lane->topology != NULL && ps_topology_bind_group(lane->topology, PS_NEAR_NODE, lane->node, &err) != 0)
        ps_log(PS_LOG_WARN, "lanes.not_bound", "lane %u runs where the system puts it: %s", lane->index,
               err.text);
}

/* Receives until the transports are empty, so that it is safe to wait on their descriptors; looks at commands
 * once a batch. */
static void *lane_thread(void *arg)
{
    struct psd_lane *lane = arg;
    struct pollfd fds[PSD_MAX_TRANSPORTS + 1] = {{.fd = lane->in->wake_fd, .events = POLLIN}};
    char name[16]; /* as tools such as top show it */

    bind_to_node(lane);
    snprintf(name, sizeof name, "psd-lane-%u", lane->index % 1000);
    pthread_setname_np(pthread_self(), name);
    for (uint32_t i = 0; i < lane->n_ports; i++)
        fds[1 + i] =
            (struct pollfd){.fd = lane->ports[i].transport->port_fd(lane->ports[i].port), .events = POLLIN};
    while (!lane->stop)
        if (!psd_lane_turn(lane) && !lane->stop && !prepare_sleep(lane)) {
            ps_poll(fds, 1 + lane->n_ports, IDLE_MS);
            lane->stop_ns = 0;
        }
    return NULL;
}

int psd_lane_start(struct psd_lane *lane, struct ps_error *err)
{
    int rc = pthread_create(&lane->thread, NULL, lane_thread, lane);
    if (rc != 0) {
        lane->thread = 0;
        return ps_fail(err, -rc, "cannot start the thread of lane %u: %s", lane->index, strerror(rc));
    }
    return 0;
}

void psd_lane_destroy(struct psd_lane *lane)
{
    if (lane == NULL)
        return;
    if (lane->thread != 0) {
        psd_queue_push(lane->in, &(struct psd_lane_message){.kind = PSD_COMMAND_STOP});
        pthread_join(lane->thread, NULL);
    }
    psd_rounds_destroy(lane);
    for (uint32_t i = 0; i < lane->n_ports; i++)
        lane->ports[i].transport->port_close(lane->ports[i].port);
    queue_destroy(lane->in);
    queue_destroy(lane->out);
    psd_lane_free_tables(lane);
    free(lane->clients);
    free(lane);
}

uint64_t psd_lane_replay_bytes(const struct psd_lane *lane)
{
    return lane->staging_bytes + (uint64_t)lane->shared->n_slots *
                                     (sizeof *lane->clients + lane->n_tracks * sizeof *lane->snap_replay +
                                      (1 + (uint64_t)lane->n_tracks) * lane->n_words * sizeof(uint64_t));
}
