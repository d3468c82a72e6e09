/* Checkpoints of a running job. Each lane copies its slice into the preallocated snapshot at a chunk
 * boundary; when all lanes have, a thread of libuv's pool writes it. Everything else runs on the loop. */
#include "proto/clock.h"
#include "server/job/job.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/log.h"
#include "server/admissions/admissions.h"

/* Whether some servers are missing from the last checkpoint. */
static bool lacks_others(const struct psd_job *job)
{
    return job->membership.away != 0 || (!psd_is_head(job->cfg) && job->state == PSD_STATE_STOPPING);
}

/* Several servers under rounds can only resume from a checkpoint that all of them have. */
static bool resumes_in_common(const struct psd_job *job)
{
    return job->cfg->servers.count > 1 && job->center->admission->rounds;
}

/* One server may die before it has written what the others have, so the previous checkpoint is kept; while a
 * server is missing none is removed. */
static uint32_t how_many_to_keep(const struct psd_job *job)
{
    uint32_t keep = job->cfg->checkpoint.keep;
    bool in_common = resumes_in_common(job);
    if (job->state >= PSD_STATE_DRAINING && lacks_others(job)) {
        ps_log(PS_LOG_WARN, "checkpoint.part", "the last checkpoint does not include all servers%s",
               in_common ? ": --resume uses the newest one that all of them have" : "");
        return in_common ? UINT32_MAX : keep;
    }
    return in_common && keep < 2 ? 2 : keep;
}

/* Lanes then copy at once, before they receive the first members. */
static bool nobody_takes_part(const struct psd_job *job)
{
    return job->center->admission->rounds &&
           (psd_is_head(job->cfg) ? !job->membership.started : !job->hooks.has_members(job->psd));
}

static void prepare(struct psd_job *job, unsigned what)
{
    struct psd_checkpointer *v = &job->checkpointer;
    struct psd_snapshot *s = &job->center->snapshot;
    v->busy = true;
    v->lacks = false;
    v->still = nobody_takes_part(job);
    v->is_last = v->last == PSD_LAST_DUE && (what & PSD_SAVE_NEWEST) != 0;
    v->keep = how_many_to_keep(job);
    v->what = what;
    v->lanes_left = job->lanes->n_own;
    if (what & PSD_SAVE_NEWEST)
        v->last_ms = psd_loop_now_ms(job->loop);
    s->version = psd_version(job->lanes);
    s->generation = atomic_load_explicit(&job->lanes->shared.generation, memory_order_relaxed);
    s->incarnation = job->sessions->incarnation;
    s->job = job->sessions->job;
    s->plateau = psd_plateau_to_save(job);
    s->clock = psd_job_clock(job);
    s->saved_at_s = ps_wall_us() / 1000000;
}

/* The received vector replaces the center in the snapshot; nothing else of the snapshot is written. */
static void ask_for_vector(struct psd_job *job, const struct psd_evaluation *e)
{
    struct psd_checkpointer *v = &job->checkpointer;
    v->busy = true;
    v->is_last = v->lacks = false;
    v->what = PSD_SAVE_BEST;
    v->lanes_left = job->lanes->n_own;
    v->better = *e;
    v->asked_ms = psd_loop_now_ms(job->loop);
    psd_tell_lanes(job->lanes, &(struct psd_lane_message){.kind = PSD_COMMAND_KEEP,
                                                          .client = e->client,
                                                          .incarnation = e->incarnation,
                                                          .p = &job->center->snapshot});
}

/* Also starts the other servers' parts. They learn of it before the client does. */
static void start_best(struct psd_job *job)
{
    struct psd_checkpointer *v = &job->checkpointer;
    struct psd_evaluation e = v->next;
    struct psd_session *s = psd_sessions_find(job->sessions, e.client, e.incarnation);
    Ps__Snapshot others = PS__SNAPSHOT__INIT;
    v->next.accuracy = NAN;
    if (s == NULL)
        return;
    others.what = PSD_SAVE_BEST;
    others.accuracy = e.accuracy;
    others.evaluated_version = e.version;
    others.client = e.client;
    others.incarnation = e.incarnation;
    ask_for_vector(job, &e);
    job->hooks.save_others(job->psd, &others, 0);
    psd_send_reported(job->sender, s, e.offer, true);
}

static int start(struct psd_job *job, unsigned what, struct ps_error *err)
{
    struct psd_checkpointer *v = &job->checkpointer;
    if (!job->center_whole) /* also while draining: an incomplete offer is not a center */
        return ps_fail(err, -EAGAIN, "there is no center yet: no worker has joined");
    if (job->state == PSD_STATE_STOPPING && (what & PSD_SAVE_NEWEST) != 0)
        v->last = PSD_LAST_DUE;
    if (v->busy || psd_method_change_is_closing(job) ||
        (what == PSD_SAVE_BEST && !job->hooks.others_saved(job->psd))) {
        v->pending |= what;
        return 0;
    }
    if (what == PSD_SAVE_BEST) {
        start_best(job);
        return 0;
    }
    v->pending |= what & PSD_SAVE_BEST;
    prepare(job, PSD_SAVE_NEWEST);
    if (job->center->admission->rounds && !v->still) {
        psd_membership_save(job);
        return 0;
    }
    psd_checkpointer_take(job, 0);
    return 0;
}

void psd_checkpointer_take(struct psd_job *job, uint64_t round)
{
    struct psd_checkpointer *v = &job->checkpointer;
    Ps__Snapshot others = PS__SNAPSHOT__INIT;
    /* One server's disk may fail while the others write on, or not even be readable: then it is still the one
     * before. */
    if (psd_has_cluster(job->cfg) && resumes_in_common(job))
        v->has_common = job->hooks.common(job->psd, &v->common) || v->has_common;
    others.has_common = v->has_common;
    others.common = v->common;
    others.what = v->what;
    others.last = job->state >= PSD_STATE_DRAINING;
    v->round = round;
    if (psd_is_head(job->cfg))
        v->agreed = psd_has_cluster(job->cfg) ? psd_version(job->lanes) : 0;
    others.version = v->agreed;
    psd_tell_lanes(job->lanes, &(struct psd_lane_message){
                                   .kind = PSD_COMMAND_SNAPSHOT, .a = round, .p = &job->center->snapshot});
    job->hooks.save_others(job->psd, &others, round);
}

int psd_checkpointer_order(struct psd_job *job, const Ps__Snapshot *s, uint64_t round)
{
    struct psd_checkpointer *v = &job->checkpointer;
    if (!job->center_whole || v->busy)
        return -EAGAIN;
    if ((s->what & PSD_SAVE_BEST) != 0) {
        ask_for_vector(job, &(struct psd_evaluation){.accuracy = s->accuracy,
                                                     .version = s->evaluated_version,
                                                     .client = s->client,
                                                     .incarnation = s->incarnation});
        return 0;
    }
    v->agreed = s->version;
    v->has_common = s->has_common;
    v->common = s->common;
    prepare(job, PSD_SAVE_NEWEST);
    psd_checkpointer_take(job, round);
    return 0;
}

int psd_checkpointer_start(struct psd_job *job, struct ps_error *err)
{
    return start(job, PSD_SAVE_NEWEST, err);
}

/* Reads the headers of the files. */
static void find_versions(const struct psd_checkpointer *v, uint64_t manifest_hash,
                          struct psd_saved_versions *found)
{
    found->n = psd_checkpoint_versions(v->directory, manifest_hash, found->versions, PSD_MAX_SAVED);
    found->manifest_hash = manifest_hash;
    found->known = true;
}

const struct psd_saved_versions *psd_checkpointer_versions(struct psd_job *job, uint64_t manifest_hash)
{
    struct psd_saved_versions *s = &job->checkpointer.saved;
    if (!s->known || s->manifest_hash != manifest_hash)
        find_versions(&job->checkpointer, manifest_hash, s);
    return s;
}

/* Pool thread: uses nothing that the loop may change meanwhile. */
static void write_it(uv_work_t *work)
{
    struct psd_job *job = work->data;
    struct psd_checkpointer *v = &job->checkpointer;
    struct psd_snapshot *s = &job->center->snapshot;
    if ((v->what & PSD_SAVE_NEWEST) == 0) /* else it was taken at that time */
        s->saved_at_s = ps_wall_us() / 1000000;
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
        v->rc = psd_checkpoint_write(v->directory, s, v->keep, v->has_common ? &v->common : NULL, v->path,
                                     sizeof v->path, &v->error);
    find_versions(v, job->center->manifest->hash, &v->found);
}

static void log_failed(struct psd_checkpointer *v, const struct ps_error *err)
{
    v->failures++;
    memcpy(v->last_error, err->text, sizeof v->last_error);
    ps_log(PS_LOG_ERROR, "checkpoint.failed", "%s; the previous checkpoints are unchanged", err->text);
}

static void newest_written(struct psd_job *job)
{
    struct psd_checkpointer *v = &job->checkpointer;
    if (v->is_last)
        v->last = v->rc < 0 ? PSD_LAST_FAILED : PSD_LAST_WRITTEN;
    if (v->rc < 0) {
        log_failed(v, &v->error);
        return;
    }
    memcpy(v->last_path, v->path, sizeof v->last_path);
    v->last_error[0] = 0;
    v->last_version = job->center->snapshot.version;
    v->last_unix_s = job->center->snapshot.saved_at_s;
    ps_log(PS_LOG_INFO, "checkpoint.written", "version %" PRIu64 ": %s", v->last_version, v->last_path);
    psd_history_tell(job, PSD_EVENT_CHECKPOINT, "checkpoint of version %" PRIu64, v->last_version);
    if (psd_is_head(job->cfg) &&
        !job->center->admission->rounds) /* under rounds the answers of the round ask workers to save */
        psd_send_save(job->sender, v->last_version);
}

/* After a failure the best so far is forgotten, so that the next evaluation that is as good tries again. */
static void best_written(struct psd_job *job)
{
    struct psd_checkpointer *v = &job->checkpointer;
    const struct psd_evaluation *e = &v->better;
    if (v->best_rc < 0) {
        log_failed(v, &v->best_error);
    } else {
        v->best = (struct psd_best){e->accuracy, e->version, e->version, job->center->snapshot.saved_at_s,
                                    job->center->manifest->hash};
        v->best_is_other = false;
        memcpy(v->best_path, v->best_written, sizeof v->best_path);
        ps_log(PS_LOG_INFO, "checkpoint.best",
               "test accuracy %.4f at version %" PRIu64 ": the evaluated vector was saved as %s", e->accuracy,
               e->version, v->best_path);
        psd_history_tell(job, PSD_EVENT_CHECKPOINT, "best so far: test accuracy %.4f at version %" PRIu64,
                         e->accuracy, e->version);
    }
    v->better.accuracy = NAN;
}

static void written(uv_work_t *work, int status)
{
    struct psd_job *job = work->data;
    struct psd_checkpointer *v = &job->checkpointer;
    (void)status;
    free(job->center->snapshot.replay);
    job->center->snapshot.replay = NULL;
    job->center->snapshot.n_replay = 0;
    v->busy = false;
    v->saved = v->found;
    if (v->what & PSD_SAVE_BEST)
        best_written(job);
    if (v->what & PSD_SAVE_NEWEST)
        newest_written(job);
    psd_checkpointer_go_on(job);
    psd_method_change_check(job);
    job->hooks.saved(job->psd);
}

void psd_checkpointer_go_on(struct psd_job *job)
{
    unsigned pending = job->checkpointer.pending;
    job->checkpointer.pending = 0;
    if (pending != 0 && !job->checkpointer.busy)
        start(job, pending, NULL);
}

/* Copies the entries of the lanes' replay tables into one array. Their bitmaps still belong to the lanes,
 * which do not change them until the next snapshot. */
static int gather_replay(struct psd_job *job)
{
    struct psd_snapshot *s = &job->center->snapshot;
    size_t n = 0;
    for (uint32_t i = 0; i < job->lanes->n_own; i++)
        n += job->lanes->list[i]->n_snap_replay;
    s->replay = calloc(n + 1, sizeof *s->replay);
    s->n_replay = 0;
    if (s->replay == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < job->lanes->n_own; i++) {
        if (job->lanes->list[i]->n_snap_replay > 0) /* a lane without a slice has no table */
            memcpy(s->replay + s->n_replay, job->lanes->list[i]->snap_replay,
                   job->lanes->list[i]->n_snap_replay * sizeof *s->replay);
        s->n_replay += job->lanes->list[i]->n_snap_replay;
    }
    return 0;
}

/* Exchanges that every lane has completed since it began to copy: the minimum, since a worker that died
 * during its last exchange may have completed it in only some of the lanes. */
static uint64_t ended_since(const struct psd_job *job)
{
    uint64_t fewest = UINT64_MAX;
    for (uint32_t i = 0; i < job->lanes->n_own; i++) {
        uint64_t clock = atomic_load_explicit(&job->lanes->list[i]->stats.clock, memory_order_acquire),
                 copied = job->center->snapshot.lane_clocks[job->lanes->list[i]->index];
        if (job->lanes->list[i]->n_chunks > 0 && clock - copied < fewest)
            fewest = clock - copied;
    }
    return fewest != UINT64_MAX ? fewest : 0;
}

/* The center's version in a round's snapshot, which was taken after the request. Lanes may have advanced
 * since they copied; if no member was left, they copied before the requested round. All servers give the
 * snapshot of a round the same version, by which they find it again. If rounds are not aggregated the
 * servers' own counts may differ, since a worker that dies has completed its last exchange at only some of
 * them; then it is the head's version at the time of the request, which is never higher than the
 * snapshot's. */
static uint64_t version_of_round(const struct psd_job *job)
{
    uint64_t now = psd_version(job->lanes), round = job->checkpointer.round;
    if (job->center->admission->merges)
        return round > 0 && now > round ? round : now;
    if (job->checkpointer.agreed > 0)
        return job->checkpointer.agreed;
    uint64_t since = ended_since(job);
    return since < now ? now - since : 0;
}

/* Of the last checkpoint: psd, or its worker, may have ended within a round that some chunks have completed.
 */
static void warn_of_parts(const struct psd_job *job)
{
    uint64_t least = UINT64_MAX, most = 0;
    for (uint32_t i = 0; i < job->lanes->n_own; i++) {
        const struct psd_lane *lane = job->lanes->list[i];
        least = lane->snap_least < least ? lane->snap_least : least;
        most = lane->snap_most > most ? lane->snap_most : most;
    }
    if (least < most)
        ps_log(PS_LOG_WARN, "checkpoint.parts",
               "the last checkpoint, version %" PRIu64
               ", holds parts of an exchange whose other parts did not arrive: workers that go on from their "
               "states make it again, and these parts are applied twice",
               job->center->snapshot.version);
}

/* The received part is not written: the snapshot is free again. */
static void give_up_vector(struct psd_job *job)
{
    struct psd_checkpointer *v = &job->checkpointer;
    ps_log(PS_LOG_WARN, "checkpoint.best",
           "test accuracy %.4f at version %" PRIu64
           ": the evaluated vector did not arrive completely, and is not saved",
           v->better.accuracy, v->better.version);
    v->better.accuracy = NAN;
    v->busy = false;
    psd_checkpointer_go_on(job);
    psd_method_change_check(job);
    job->hooks.saved(job->psd);
}

void psd_checkpointer_snapped(struct psd_job *job, bool lacks)
{
    struct psd_checkpointer *v = &job->checkpointer;
    v->lacks = v->lacks || lacks;
    if (--v->lanes_left > 0)
        return;
    v->rc = v->best_rc = 0;
    if (v->lacks) {
        give_up_vector(job);
        return;
    }
    bool newest = (v->what & PSD_SAVE_NEWEST) != 0;
    if (newest && job->center->admission->rounds && !v->still)
        job->center->snapshot.version = version_of_round(job);
    if (newest && v->is_last && job->center->admission->rounds)
        warn_of_parts(job);
    v->work.data = job;
    if ((newest && gather_replay(job) < 0) || uv_queue_work(job->loop, &v->work, write_it, written) != 0) {
        v->rc = ps_fail(&v->error, -ENOMEM, "no memory to write a checkpoint");
        v->best_rc = ps_fail(&v->best_error, -ENOMEM, "no memory to write the best checkpoint");
        written(&v->work, 0);
    }
}

void psd_checkpointer_check_vector(struct psd_job *job, bool now)
{
    struct psd_checkpointer *v = &job->checkpointer;
    const struct psd_evaluation *e = &v->better;
    uint64_t limit_ms = (uint64_t)job->cfg->limits.silence_s * 1000;
    if (v->pending == PSD_SAVE_BEST && !v->busy)
        psd_checkpointer_go_on(job);
    if (!v->busy || v->what != PSD_SAVE_BEST || v->lanes_left == 0 || v->lacks)
        return;
    bool gone = psd_is_head(job->cfg) && psd_sessions_find(job->sessions, e->client, e->incarnation) == NULL;
    if (now || gone || psd_loop_now_ms(job->loop) > v->asked_ms + limit_ms)
        psd_tell_lanes(job->lanes, &(struct psd_lane_message){.kind = PSD_COMMAND_KEEP});
}

/* The newest checkpoint to resume from. */
static void name_newest(const struct psd_checkpointer *v, char *text, size_t size)
{
    if (v->last_path[0] != 0)
        snprintf(text, size, "version %" PRIu64 ", %s", v->last_version, v->last_path);
    else
        snprintf(text, size, "none");
}

int psd_checkpointer_check_end(const struct psd_job *job, struct ps_error *err)
{
    const struct psd_checkpointer *v = &job->checkpointer;
    char newest[500];
    if (v->last == PSD_LAST_DUE || v->last == PSD_LAST_FAILED) {
        name_newest(v, newest, sizeof newest);
        return ps_fail(err, -EIO,
                       "the last checkpoint was not written, and all updates since the previous one are "
                       "lost: %.300s; the previous one: %.400s",
                       v->last == PSD_LAST_DUE ? "psd was told to exit before it was written" : v->error.text,
                       newest);
    }
    return 0;
}

/* Saves the new center at once, so that --resume finds one even if psd stops before the first round, which
 * may take long, is complete. */
void psd_checkpointer_begin(struct psd_job *job)
{
    job->checkpointer.last_ms = psd_loop_now_ms(job->loop);
    if (job->cfg->checkpoint.every_s > 0)
        psd_checkpointer_start(job, NULL);
}

void psd_checkpointer_resumed(struct psd_job *job)
{
    struct psd_checkpointer *v = &job->checkpointer;
    snprintf(v->last_path, sizeof v->last_path, "%s", job->resumed_from);
    v->last_version = job->resumed.version;
    v->last_unix_s = job->resumed.saved_at_s;
}

/* Without rounds, exchanges of named tensors may have moved another server's part alone. Under rounds every
 * server takes part in each, and its version may differ from its checkpoint's, which is the head's. */
static bool has_changed(const struct psd_job *job)
{
    const struct psd_checkpointer *v = &job->checkpointer;
    return v->last_path[0] == 0 || psd_version(job->lanes) != v->last_version ||
           (psd_has_cluster(job->cfg) && !job->center->admission->rounds &&
            job->hooks.others_unsaved(job->psd));
}

void psd_checkpointer_check_due(struct psd_job *job)
{
    uint64_t every_ms = (uint64_t)job->cfg->checkpoint.every_s * 1000;
    if (every_ms == 0 || job->state != PSD_STATE_READY || job->checkpointer.busy ||
        psd_loop_now_ms(job->loop) - job->checkpointer.last_ms < every_ms)
        return;
    if (has_changed(job))
        psd_checkpointer_start(job, NULL);
}

static void answer_offer(struct psd_job *job, const struct psd_evaluation *e, bool wanted)
{
    struct psd_session *s = psd_sessions_find(job->sessions, e->client, e->incarnation);
    if (e->offer != 0 && s != NULL)
        psd_send_reported(job->sender, s, e->offer, wanted);
}

bool psd_evaluation_counts(const struct psd_job *job, const struct psd_evaluation *e)
{
    return e->accuracy >= 0 && e->accuracy <= 1 && e->version <= psd_stats_version(job);
}

/* Evaluations that arrive while something is being saved are merged into one request, the best of them. */
void psd_checkpointer_evaluated(struct psd_job *job, const struct psd_evaluation *e)
{
    struct psd_checkpointer *v = &job->checkpointer;
    bool best = job->cfg->checkpoint.keep_best && psd_evaluation_counts(job, e) &&
                !(e->accuracy <= v->best.accuracy) && !(e->accuracy <= v->better.accuracy) &&
                !(e->accuracy <= v->next.accuracy);
    if (best && e->offer == 0 && ps_log_allows(&job->sender->log_limit, "checkpoint.best", "evaluations"))
        ps_log(PS_LOG_WARN, "checkpoint.best",
               "test accuracy %.4f at version %" PRIu64
               " is not saved: the evaluator does not offer the vector that it evaluated",
               e->accuracy, e->version);
    if (!best || e->offer == 0 || !job->center_whole) {
        answer_offer(job, e, false);
        return;
    }
    if (!isnan(v->next.accuracy))
        answer_offer(job, &v->next, false);
    v->next = *e;
    start(job, PSD_SAVE_BEST, NULL);
}

void psd_checkpointer_find_best(struct psd_job *job)
{
    struct psd_checkpointer *v = &job->checkpointer;
    struct psd_best best;
    struct ps_error err;
    v->best.accuracy = v->better.accuracy = v->next.accuracy = NAN;
    int rc = psd_checkpoint_read_best(v->directory, &best, &err);
    if (rc == -ENOENT)
        return;
    if (rc < 0) {
        ps_log(PS_LOG_WARN, "checkpoint.damaged", "%s; the next evaluation's checkpoint replaces it",
               err.text);
        return;
    }
    v->best_is_other = job->center == NULL || job->center->manifest->hash != best.manifest_hash;
    if (v->best_is_other) {
        ps_log(PS_LOG_INFO, "checkpoint.best", "%s is another job's best checkpoint, and will be renamed",
               v->directory);
        return;
    }
    v->best = best;
    snprintf(v->best_path, sizeof v->best_path, "%s/best.safetensors", v->directory);
}
