#include "server/lane_rounds.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "proto/log.h"

enum { BATCH = 64, IDLE_MS = 1000 };

int psd_shared_init(struct psd_shared *s, uint32_t n_slots, uint32_t n_lanes)
{
    *s = (struct psd_shared){.n_slots = n_slots, .n_lanes = n_lanes};
    s->lanes_done = calloc(n_slots, sizeof *s->lanes_done);
    s->exchanges = calloc(n_slots, sizeof *s->exchanges);
    s->clocks = calloc(n_slots, sizeof *s->clocks);
    if (s->lanes_done != NULL && s->exchanges != NULL && s->clocks != NULL &&
        pthread_barrier_init(&s->snapshot, NULL, n_lanes) == 0)
        return 0;
    free(s->lanes_done);
    free(s->exchanges);
    free(s->clocks);
    s->lanes_done = s->exchanges = s->clocks = NULL;
    return -ENOMEM;
}

void psd_shared_finish(struct psd_shared *s)
{
    if (s->lanes_done != NULL)
        pthread_barrier_destroy(&s->snapshot);
    free(s->lanes_done);
    free(s->exchanges);
    free(s->clocks);
}

bool psd_lane_serves(const struct psd_lane *lane, const struct psd_center *center, uint32_t client)
{
    return center->admission->whole_lanes ? client % lane->shared->n_lanes == lane->index
                                          : ps_shard_slice(&center->shard, lane->index).count > 0;
}

int psd_lane_create(const struct psd_lane_options *opt, struct psd_lane **out, struct ps_error *err)
{
    int rc = -ENOMEM;
    struct psd_lane *lane = calloc(1, sizeof *lane);
    if (lane == NULL)
        return ps_fail(err, rc, "no memory for lane %u", opt->index);
    lane->index = opt->index;
    lane->shared = opt->shared;
    lane->transport = opt->transport;
    atomic_init(&lane->stats.center_squares, NAN);
    lane->clients = calloc(opt->shared->n_slots, sizeof *lane->clients);
    lane->in = aligned_alloc(64, (sizeof *lane->in + 63) & ~(size_t)63);
    lane->out = aligned_alloc(64, (sizeof *lane->out + 63) & ~(size_t)63);
    if (lane->clients == NULL || lane->in == NULL || lane->out == NULL) {
        ps_fail(err, rc, "no memory for lane %u", opt->index);
        goto free_lane;
    }
    if ((rc = psd_ring_init(lane->in)) < 0 || (rc = psd_ring_init(lane->out)) < 0) {
        ps_fail(err, rc, "lane %u: no descriptor for its notes: %s", opt->index, strerror(-rc));
        goto free_lane;
    }
    if ((rc = lane->transport->port_open(opt->hub, opt->url, &opt->limits, &lane->port, err)) < 0)
        goto finish_rings;
    *out = lane;
    return 0;

finish_rings:
    psd_ring_finish(lane->in);
    psd_ring_finish(lane->out);
free_lane:
    free(lane->in);
    free(lane->out);
    free(lane->clients);
    free(lane);
    return rc;
}

/* Receives until nothing is there, so that waiting on the port's descriptor is safe; looks at notes once a
 * batch. */
static void *run(void *arg)
{
    struct psd_lane *lane = arg;
    struct pollfd fds[] = {{.fd = lane->transport->port_fd(lane->port), .events = POLLIN},
                           {.fd = lane->in->wake_fd, .events = POLLIN}};
    struct psd_arrival a;

    while (!lane->stop) {
        int n = 0, rc = 0;
        psd_lane_take_notes(lane);
        while (n < BATCH && !lane->stop &&
               ((rc = lane->transport->port_recv(lane->port, &a.message)) == 0 || rc == -EBADMSG)) {
            psd_lane_serve(lane, &a, rc);
            n++;
        }
        if (n < BATCH && !lane->stop)
            poll(fds, 2, IDLE_MS);
    }
    return NULL;
}

int psd_lane_start(struct psd_lane *lane, struct ps_error *err)
{
    int rc = pthread_create(&lane->thread, NULL, run, lane);
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
        psd_ring_push(lane->in, &(struct psd_note){.kind = PSD_NOTE_STOP});
        pthread_join(lane->thread, NULL);
    }
    psd_rounds_destroy(lane);
    lane->transport->port_close(lane->port);
    psd_ring_finish(lane->in);
    psd_ring_finish(lane->out);
    free(lane->in);
    free(lane->out);
    free(lane->bitmaps);
    free(lane->snap_bitmaps);
    free(lane->snap_replay);
    free(lane->moves);
    free(lane->offered);
    free(lane->scratch);
    free(lane->clients);
    free(lane);
}

uint64_t psd_lane_replay_bytes(const struct psd_lane *lane)
{
    return (uint64_t)lane->shared->n_slots *
           (sizeof *lane->clients + sizeof *lane->snap_replay + 2ull * lane->n_words * sizeof(uint64_t));
}
