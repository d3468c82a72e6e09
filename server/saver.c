/* Checkpoints of a running job: each lane copies its slice into the preallocated snapshot at a chunk
 * boundary; when all have, a thread of libuv's pool writes it. Everything else runs on the loop. */
#include "server/psd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/log.h"

int psd_saver_start(struct psd *d, struct ps_error *err)
{
    struct psd_saver *v = &d->saver;
    if (!d->center_whole) /* also while draining: an offer cut short is no center */
        return ps_fail(err, -EAGAIN, "there is no center yet: no worker has joined");
    if (v->busy) {
        v->again = true;
        return 0;
    }
    v->busy = true;
    v->lanes_left = d->n_lanes;
    v->last_ms = uv_now(&d->loop);
    d->center->snapshot.version = psd_version(d);
    d->center->snapshot.generation = atomic_load_explicit(&d->shared.generation, memory_order_relaxed);
    d->center->snapshot.incarnation = d->sessions.incarnation;
    d->center->snapshot.saved_at_s = (uint64_t)time(NULL);
    for (uint32_t i = 0; i < d->n_lanes; i++)
        psd_ring_push(d->lanes[i]->in,
                      &(struct psd_note){.kind = PSD_NOTE_SNAPSHOT, .p = &d->center->snapshot});
    return 0;
}

/* Pool thread. */
static void write_it(uv_work_t *work)
{
    struct psd *d = work->data;
    struct psd_saver *v = &d->saver;
    struct psd_snapshot *s = &d->center->snapshot;
    s->saved_at_s = psd_checkpoint_stamp(v->directory, s->version, s->saved_at_s);
    v->rc = psd_checkpoint_write(v->directory, s, d->cfg.checkpoint.keep, v->path, sizeof v->path, &v->error);
}

static void written(uv_work_t *work, int status)
{
    struct psd *d = work->data;
    struct psd_saver *v = &d->saver;
    (void)status;
    free(d->center->snapshot.replay);
    d->center->snapshot.replay = NULL;
    d->center->snapshot.n_replay = 0;
    v->busy = false;
    if (v->rc < 0) {
        v->failures++;
        memcpy(v->last_error, v->error.text, sizeof v->last_error);
        ps_log(PS_LOG_ERROR, "checkpoint.failed", "%s; the checkpoints before it are as they were",
               v->error.text);
    } else {
        memcpy(v->last_path, v->path, sizeof v->last_path);
        v->last_error[0] = 0;
        v->last_version = d->center->snapshot.version;
        v->last_unix_s = d->center->snapshot.saved_at_s;
        ps_log(PS_LOG_INFO, "checkpoint.written", "version %" PRIu64 ": %s", v->last_version, v->last_path);
    }
    if (v->again) {
        v->again = false;
        psd_saver_start(d, NULL);
    }
}

/* The lanes' replay tables in one array. Their bitmaps stay the lanes', unchanged until the next snapshot. */
static int gather_replay(struct psd *d)
{
    struct psd_snapshot *s = &d->center->snapshot;
    size_t n = 0;
    for (uint32_t i = 0; i < d->n_lanes; i++)
        n += d->lanes[i]->n_snap_replay;
    s->replay = calloc(n + 1, sizeof *s->replay);
    s->n_replay = 0;
    if (s->replay == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < d->n_lanes; i++) {
        memcpy(s->replay + s->n_replay, d->lanes[i]->snap_replay,
               d->lanes[i]->n_snap_replay * sizeof *s->replay);
        s->n_replay += d->lanes[i]->n_snap_replay;
    }
    return 0;
}

void psd_saver_snapped(struct psd *d)
{
    struct psd_saver *v = &d->saver;
    if (--v->lanes_left > 0)
        return;
    v->work.data = d;
    v->rc = gather_replay(d);
    if (v->rc < 0 || uv_queue_work(&d->loop, &v->work, write_it, written) != 0) {
        ps_fail(&v->error, -ENOMEM, "no memory to write a checkpoint");
        v->rc = -ENOMEM;
        written(&v->work, 0);
    }
}

void psd_saver_check_due(struct psd *d)
{
    uint64_t every_ms = (uint64_t)d->cfg.checkpoint.every_s * 1000;
    if (every_ms == 0 || d->state != PSD_STATE_READY || d->saver.busy ||
        uv_now(&d->loop) - d->saver.last_ms < every_ms)
        return;
    if (psd_version(d) == d->saver.last_version && d->saver.last_path[0] != 0)
        return; /* nothing has moved */
    psd_saver_start(d, NULL);
}
