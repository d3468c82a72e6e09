/* Checkpoints of a running job: each lane copies its slice into the preallocated snapshot at a chunk
 * boundary; when all have, a thread of libuv's pool writes it. Everything else runs on the loop. */
#include "proto/clock.h"
#include "server/psd.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/log.h"
#include "server/admissions/admissions.h"

/* Of the last checkpoint: whether some servers take no part in it. */
static bool lacks_others(const struct psd *d)
{
    return d->membership.away != 0 || (!psd_is_head(d) && d->state == PSD_STATE_STOPPING);
}

/* Several servers under rounds go on only from a checkpoint that all of them have. One may die before it has
 * written what the others have, so the one before stays; without one of them none is removed. */
static uint32_t how_many_stay(const struct psd *d)
{
    uint32_t keep = d->cfg.checkpoint.keep;
    bool in_common = d->cfg.servers.count > 1 && d->center->admission->rounds;
    if (d->state >= PSD_STATE_DRAINING && lacks_others(d)) {
        ps_log(PS_LOG_WARN, "checkpoint.part", "the last checkpoint is taken without all servers%s",
               in_common ? ": --resume takes the newest one that all of them have" : "");
        return in_common ? UINT32_MAX : keep;
    }
    return in_common && keep < 2 ? 2 : keep;
}

/* Lanes copy at once then, before they hear of the first members. */
static bool nobody_takes_part(const struct psd *d)
{
    return d->center->admission->rounds &&
           (psd_is_head(d) ? !d->membership.started : d->follower.members.n == 0);
}

static void prepare(struct psd *d, unsigned what)
{
    struct psd_checkpointer *v = &d->checkpointer;
    struct psd_snapshot *s = &d->center->snapshot;
    v->busy = true;
    v->lacks = false;
    v->still = nobody_takes_part(d);
    v->is_last = v->last == PSD_LAST_DUE && (what & PSD_SAVE_NEWEST) != 0;
    v->keep = how_many_stay(d);
    v->what = what;
    v->lanes_left = d->n_own;
    if (what & PSD_SAVE_NEWEST)
        v->last_ms = psd_loop_now_ms(&d->loop);
    s->version = psd_version(d);
    s->generation = atomic_load_explicit(&d->shared.generation, memory_order_relaxed);
    s->incarnation = d->sessions.incarnation;
    s->job = d->job;
    s->plateau = (struct psd_saved_plateau){.known = isfinite(d->plateau.best),
                                            .drops = d->plateau.drops,
                                            .since = d->plateau.since,
                                            .best = d->plateau.best};
    s->saved_at_s = ps_wall_us() / 1000000;
}

/* A vector that comes takes the place of the center in the snapshot; nothing else of that is written. */
static void ask_for_vector(struct psd *d, const struct psd_evaluation *e)
{
    struct psd_checkpointer *v = &d->checkpointer;
    v->busy = true;
    v->is_last = v->lacks = false;
    v->what = PSD_SAVE_BEST;
    v->lanes_left = d->n_own;
    v->better = *e;
    v->asked_ms = psd_loop_now_ms(&d->loop);
    psd_tell_lanes(d, &(struct psd_lane_message){.kind = PSD_COMMAND_KEEP,
                                                 .client = e->client,
                                                 .incarnation = e->incarnation,
                                                 .p = &d->center->snapshot});
}

/* The other servers' parts, too. They know before the client does. */
static void start_best(struct psd *d)
{
    struct psd_checkpointer *v = &d->checkpointer;
    struct psd_evaluation e = v->next;
    struct psd_session *s = psd_sessions_find(&d->sessions, e.client, e.incarnation);
    Ps__Snapshot others = PS__SNAPSHOT__INIT;
    v->next.accuracy = NAN;
    if (s == NULL)
        return;
    others.what = PSD_SAVE_BEST;
    others.accuracy = e.accuracy;
    others.evaluated_version = e.version;
    others.client = e.client;
    others.incarnation = e.incarnation;
    ask_for_vector(d, &e);
    d->hooks.save_others(d, &others, 0);
    psd_control_reported(d, s, e.offer, true);
}

static int start(struct psd *d, unsigned what, struct ps_error *err)
{
    struct psd_checkpointer *v = &d->checkpointer;
    if (!d->center_whole) /* also while draining: an offer cut short is no center */
        return ps_fail(err, -EAGAIN, "there is no center yet: no worker has joined");
    if (d->state == PSD_STATE_STOPPING && (what & PSD_SAVE_NEWEST) != 0)
        v->last = PSD_LAST_DUE;
    if (v->busy || psd_method_change_is_closing(d) || (what == PSD_SAVE_BEST && !d->hooks.others_saved(d))) {
        v->again |= what;
        return 0;
    }
    if (what == PSD_SAVE_BEST) {
        start_best(d);
        return 0;
    }
    v->again |= what & PSD_SAVE_BEST;
    prepare(d, PSD_SAVE_NEWEST);
    if (d->center->admission->rounds && !v->still) {
        psd_membership_save(d);
        return 0;
    }
    psd_checkpointer_take(d, 0);
    return 0;
}

void psd_checkpointer_take(struct psd *d, uint64_t round)
{
    struct psd_checkpointer *v = &d->checkpointer;
    Ps__Snapshot others = PS__SNAPSHOT__INIT;
    others.what = v->what;
    others.last = d->state >= PSD_STATE_DRAINING;
    v->round = round;
    if (psd_is_head(d))
        v->agreed = psd_has_cluster(d) ? psd_version(d) : 0;
    others.version = v->agreed;
    psd_tell_lanes(
        d, &(struct psd_lane_message){.kind = PSD_COMMAND_SNAPSHOT, .a = round, .p = &d->center->snapshot});
    d->hooks.save_others(d, &others, round);
}

int psd_checkpointer_order(struct psd *d, const Ps__Snapshot *s, uint64_t round)
{
    struct psd_checkpointer *v = &d->checkpointer;
    if (!d->center_whole || v->busy)
        return -EAGAIN;
    if ((s->what & PSD_SAVE_BEST) != 0) {
        ask_for_vector(d, &(struct psd_evaluation){.accuracy = s->accuracy,
                                                   .version = s->evaluated_version,
                                                   .client = s->client,
                                                   .incarnation = s->incarnation});
        return 0;
    }
    v->agreed = s->version;
    prepare(d, PSD_SAVE_NEWEST);
    psd_checkpointer_take(d, round);
    return 0;
}

int psd_checkpointer_start(struct psd *d, struct ps_error *err)
{
    return start(d, PSD_SAVE_NEWEST, err);
}

/* Reads headers of files. */
static void find_versions(const struct psd_checkpointer *v, uint64_t manifest_hash,
                          struct psd_saved_versions *found)
{
    found->n = psd_checkpoint_versions(v->directory, manifest_hash, found->versions, PSD_MAX_SAVED);
    found->manifest_hash = manifest_hash;
    found->known = true;
}

const struct psd_saved_versions *psd_checkpointer_versions(struct psd *d, uint64_t manifest_hash)
{
    struct psd_saved_versions *s = &d->checkpointer.saved;
    if (!s->known || s->manifest_hash != manifest_hash)
        find_versions(&d->checkpointer, manifest_hash, s);
    return s;
}

/* Pool thread: touches nothing that the loop may change meanwhile. */
static void write_it(uv_work_t *work)
{
    struct psd *d = work->data;
    struct psd_checkpointer *v = &d->checkpointer;
    struct psd_snapshot *s = &d->center->snapshot;
    s->saved_at_s = psd_checkpoint_stamp(v->directory, s->version, s->saved_at_s);
    if (v->what & PSD_SAVE_BEST) {
        struct psd_snapshot best = *s;
        best.version = best.evaluated_version = v->better.version;
        best.test_accuracy = v->better.accuracy;
        best.evaluated = best.bare = true;
        best.n_state = 0;
        best.has_average = false;
        best.n_replay = 0;
        v->best_rc = psd_checkpoint_write_best(v->directory, &best, v->best_is_other, v->best_written,
                                               sizeof v->best_written, &v->best_error);
    }
    if (v->what & PSD_SAVE_NEWEST)
        v->rc = psd_checkpoint_write(v->directory, s, v->keep, v->path, sizeof v->path, &v->error);
    find_versions(v, d->center->manifest->hash, &v->found);
}

static void log_failed(struct psd_checkpointer *v, const struct ps_error *err)
{
    v->failures++;
    memcpy(v->last_error, err->text, sizeof v->last_error);
    ps_log(PS_LOG_ERROR, "checkpoint.failed", "%s; the checkpoints before it are as they were", err->text);
}

static void newest_written(struct psd *d)
{
    struct psd_checkpointer *v = &d->checkpointer;
    if (v->is_last)
        v->last = v->rc < 0 ? PSD_LAST_FAILED : PSD_LAST_WRITTEN;
    if (v->rc < 0) {
        log_failed(v, &v->error);
        return;
    }
    memcpy(v->last_path, v->path, sizeof v->last_path);
    v->last_error[0] = 0;
    v->last_version = d->center->snapshot.version;
    v->last_unix_s = d->center->snapshot.saved_at_s;
    ps_log(PS_LOG_INFO, "checkpoint.written", "version %" PRIu64 ": %s", v->last_version, v->last_path);
    psd_history_tell(d, PSD_EVENT_CHECKPOINT, "checkpoint of version %" PRIu64, v->last_version);
    if (psd_is_head(d) && !d->center->admission->rounds) /* there the round's answers have */
        psd_control_save(d, v->last_version);
}

/* A failed one is forgotten: the next evaluation as good tries again. */
static void best_written(struct psd *d)
{
    struct psd_checkpointer *v = &d->checkpointer;
    const struct psd_evaluation *e = &v->better;
    if (v->best_rc < 0) {
        log_failed(v, &v->best_error);
    } else {
        v->best = (struct psd_best){e->accuracy, e->version, e->version, d->center->snapshot.saved_at_s,
                                    d->center->manifest->hash};
        v->best_is_other = false;
        memcpy(v->best_path, v->best_written, sizeof v->best_path);
        ps_log(PS_LOG_INFO, "checkpoint.best",
               "test accuracy %.4f at version %" PRIu64 ": the vector that was scored is kept as %s",
               e->accuracy, e->version, v->best_path);
        psd_history_tell(d, PSD_EVENT_CHECKPOINT, "best so far: test accuracy %.4f at version %" PRIu64,
                         e->accuracy, e->version);
    }
    v->better.accuracy = NAN;
}

static void written(uv_work_t *work, int status)
{
    struct psd *d = work->data;
    struct psd_checkpointer *v = &d->checkpointer;
    (void)status;
    free(d->center->snapshot.replay);
    d->center->snapshot.replay = NULL;
    d->center->snapshot.n_replay = 0;
    v->busy = false;
    v->saved = v->found;
    if (v->what & PSD_SAVE_BEST)
        best_written(d);
    if (v->what & PSD_SAVE_NEWEST)
        newest_written(d);
    psd_checkpointer_go_on(d);
    psd_method_change_check(d);
    d->hooks.saved(d);
}

void psd_checkpointer_go_on(struct psd *d)
{
    unsigned again = d->checkpointer.again;
    d->checkpointer.again = 0;
    if (again != 0 && !d->checkpointer.busy)
        start(d, again, NULL);
}

/* The lanes' replay tables in one array. Their bitmaps stay the lanes', unchanged until the next snapshot. */
static int gather_replay(struct psd *d)
{
    struct psd_snapshot *s = &d->center->snapshot;
    size_t n = 0;
    for (uint32_t i = 0; i < d->n_own; i++)
        n += d->lanes[i]->n_snap_replay;
    s->replay = calloc(n + 1, sizeof *s->replay);
    s->n_replay = 0;
    if (s->replay == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < d->n_own; i++) {
        if (d->lanes[i]->n_snap_replay > 0) /* a lane without a slice has no table */
            memcpy(s->replay + s->n_replay, d->lanes[i]->snap_replay,
                   d->lanes[i]->n_snap_replay * sizeof *s->replay);
        s->n_replay += d->lanes[i]->n_snap_replay;
    }
    return 0;
}

/* Exchanges that every lane has ended since it began to copy. One that died in the middle of its last one may
 * have ended it in some of them only. */
static uint64_t ended_since(const struct psd *d)
{
    uint64_t fewest = UINT64_MAX;
    for (uint32_t i = 0; i < d->n_own; i++) {
        uint64_t clock = atomic_load_explicit(&d->lanes[i]->stats.clock, memory_order_acquire),
                 copied = d->center->snapshot.lane_clocks[d->lanes[i]->index];
        if (d->lanes[i]->n_chunks > 0 && clock - copied < fewest)
            fewest = clock - copied;
    }
    return fewest != UINT64_MAX ? fewest : 0;
}

/* A round's snapshot is younger than the request. Lanes may have gone on since they copied; where nobody was
 * left, they copied before the round that was asked for. All servers give the snapshot of a round one
 * version, by which they find it again: where rounds do not merge they may have counted differently, since
 * who dies has ended its last exchange at some of them, and it is what the head had when it asked. That is
 * never more than the snapshot has. */
static uint64_t version_of_round(const struct psd *d)
{
    uint64_t now = psd_version(d), round = d->checkpointer.round;
    if (d->center->admission->merges)
        return round > 0 && now > round ? round : now;
    if (d->checkpointer.agreed > 0)
        return d->checkpointer.agreed;
    uint64_t since = ended_since(d);
    return since < now ? now - since : 0;
}

/* What has come of it is not written: the snapshot is free again. */
static void give_up_vector(struct psd *d)
{
    struct psd_checkpointer *v = &d->checkpointer;
    ps_log(PS_LOG_WARN, "checkpoint.best",
           "test accuracy %.4f at version %" PRIu64
           ": the vector that was scored has not come whole, and is not kept",
           v->better.accuracy, v->better.version);
    v->better.accuracy = NAN;
    v->busy = false;
    psd_checkpointer_go_on(d);
    psd_method_change_check(d);
    d->hooks.saved(d);
}

void psd_checkpointer_snapped(struct psd *d, bool lacks)
{
    struct psd_checkpointer *v = &d->checkpointer;
    v->lacks = v->lacks || lacks;
    if (--v->lanes_left > 0)
        return;
    v->rc = v->best_rc = 0;
    if (v->lacks) {
        give_up_vector(d);
        return;
    }
    bool newest = (v->what & PSD_SAVE_NEWEST) != 0;
    if (newest && d->center->admission->rounds && !v->still)
        d->center->snapshot.version = version_of_round(d);
    v->work.data = d;
    if ((newest && gather_replay(d) < 0) || uv_queue_work(&d->loop, &v->work, write_it, written) != 0) {
        v->rc = ps_fail(&v->error, -ENOMEM, "no memory to write a checkpoint");
        v->best_rc = ps_fail(&v->best_error, -ENOMEM, "no memory to write the best checkpoint");
        written(&v->work, 0);
    }
}

void psd_checkpointer_check_vector(struct psd *d, bool now)
{
    struct psd_checkpointer *v = &d->checkpointer;
    const struct psd_evaluation *e = &v->better;
    uint64_t limit_ms = (uint64_t)d->cfg.limits.silence_s * 1000;
    if (v->again == PSD_SAVE_BEST && !v->busy)
        psd_checkpointer_go_on(d);
    if (!v->busy || v->what != PSD_SAVE_BEST || v->lanes_left == 0 || v->lacks)
        return;
    bool gone = psd_is_head(d) && psd_sessions_find(&d->sessions, e->client, e->incarnation) == NULL;
    if (now || gone || psd_loop_now_ms(&d->loop) > v->asked_ms + limit_ms)
        psd_tell_lanes(d, &(struct psd_lane_message){.kind = PSD_COMMAND_KEEP});
}

/* What there is to go on from. */
static void name_newest(const struct psd *d, char *text, size_t size)
{
    const struct psd_checkpointer *v = &d->checkpointer;
    if (v->last_path[0] != 0)
        snprintf(text, size, "version %" PRIu64 ", %s", v->last_version, v->last_path);
    else if (d->resumed_from[0] != 0)
        snprintf(text, size, "version %" PRIu64 ", %s", d->resumed_version, d->resumed_from);
    else
        snprintf(text, size, "none");
}

int psd_checkpointer_check_end(const struct psd *d, struct ps_error *err)
{
    const struct psd_checkpointer *v = &d->checkpointer;
    char newest[500];
    if (v->last == PSD_LAST_DUE || v->last == PSD_LAST_FAILED) {
        name_newest(d, newest, sizeof newest);
        return ps_fail(err, -EIO,
                       "the last checkpoint is not written, and what the center has gained since the one "
                       "before it is lost: %.300s; the one before it: %.400s",
                       v->last == PSD_LAST_DUE ? "psd was told to end before it was" : v->error.text, newest);
    }
    return 0;
}

/* So that --resume finds a center from the beginning: before anybody takes part in a round, which may be
 * long. */
void psd_checkpointer_begin(struct psd *d)
{
    d->checkpointer.last_ms = psd_loop_now_ms(&d->loop);
    if (d->cfg.checkpoint.every_s > 0)
        psd_checkpointer_start(d, NULL);
}

void psd_checkpointer_check_due(struct psd *d)
{
    uint64_t every_ms = (uint64_t)d->cfg.checkpoint.every_s * 1000;
    if (every_ms == 0 || d->state != PSD_STATE_READY || d->checkpointer.busy ||
        psd_loop_now_ms(&d->loop) - d->checkpointer.last_ms < every_ms)
        return;
    if (psd_version(d) == d->checkpointer.last_version && d->checkpointer.last_path[0] != 0)
        return; /* nothing has moved */
    psd_checkpointer_start(d, NULL);
}

static void answer_offer(struct psd *d, const struct psd_evaluation *e, bool wanted)
{
    struct psd_session *s = psd_sessions_find(&d->sessions, e->client, e->incarnation);
    if (e->offer != 0 && s != NULL)
        psd_control_reported(d, s, e->offer, wanted);
}

bool psd_evaluation_counts(const struct psd *d, const struct psd_evaluation *e)
{
    return e->accuracy >= 0 && e->accuracy <= 1 && e->version <= psd_version(d);
}

/* Evaluations that come while something is being saved wait as one: the best of them. */
void psd_checkpointer_evaluated(struct psd *d, const struct psd_evaluation *e)
{
    struct psd_checkpointer *v = &d->checkpointer;
    bool best = d->cfg.checkpoint.keep_best && psd_evaluation_counts(d, e) &&
                !(e->accuracy <= v->best.accuracy) && !(e->accuracy <= v->better.accuracy) &&
                !(e->accuracy <= v->next.accuracy);
    if (best && e->offer == 0 && ps_log_allows(&d->control.log_limit, "checkpoint.best", "evaluations"))
        ps_log(PS_LOG_WARN, "checkpoint.best",
               "test accuracy %.4f at version %" PRIu64
               " is not kept: the evaluator does not offer the vector that it has scored",
               e->accuracy, e->version);
    if (!best || e->offer == 0 || !d->center_whole) {
        answer_offer(d, e, false);
        return;
    }
    if (!isnan(v->next.accuracy))
        answer_offer(d, &v->next, false);
    v->next = *e;
    start(d, PSD_SAVE_BEST, NULL);
}

void psd_checkpointer_find_best(struct psd *d)
{
    struct psd_checkpointer *v = &d->checkpointer;
    struct psd_best best;
    struct ps_error err;
    v->best.accuracy = v->better.accuracy = v->next.accuracy = NAN;
    int rc = psd_checkpoint_read_best(v->directory, &best, &err);
    if (rc == -ENOENT)
        return;
    if (rc < 0) {
        ps_log(PS_LOG_WARN, "checkpoint.damaged", "%s; the next evaluation's replaces it", err.text);
        return;
    }
    v->best_is_other = d->center == NULL || d->center->manifest->hash != best.manifest_hash;
    if (v->best_is_other) {
        ps_log(PS_LOG_INFO, "checkpoint.best", "%s has the best of another job, which will be set aside",
               v->directory);
        return;
    }
    v->best = best;
    snprintf(v->best_path, sizeof v->best_path, "%s/best.safetensors", v->directory);
}
