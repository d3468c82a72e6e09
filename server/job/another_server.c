/* A change of the configuration at a server that is not the head; the head's loop decides about it
 * (method_change.c there). First the server tries the change: it repeats the head's checks and allocates the
 * next center. Then, on the head's commands, its lanes close, report the exchanges that have begun, and
 * release the center; when the last one has, the next center takes over. Runs on the loop. */
#include "server/job/job.h"

#include <inttypes.h>
#include <string.h>

#include "proto/log.h"
#include "server/admissions/admissions.h"

int psd_method_change_try(struct psd_job *job, const char *settings, uint32_t generation,
                          struct ps_error *err)
{
    struct psd_method_change *w = &job->method_change;
    bool others;
    psd_changes_tell(job);
    psd_method_change_drop(job);
    if (job->checkpointer.busy) /* ordered in an earlier slot, of which the head knows nothing */
        return ps_fail(err, -EBUSY, "a checkpoint is still being written; try again");
    w->layers.base = job->reload.layers.base;
    if (strlen(settings) >= sizeof w->layers.settings)
        return ps_fail(err, -EINVAL, "the settings are too long for this psd");
    memset(w->layers.settings, 0, sizeof w->layers.settings);
    memcpy(w->layers.settings, settings, strlen(settings));
    int rc = psd_layers_build(job, &w->layers, &w->next, &w->method, &others, err);
    if (rc == 0 && w->method && job->center != NULL && job->center_whole)
        rc =
            psd_center_replace(&w->next, psd_admission_find(w->next.admission), job->center, &w->center, err);
    if (rc < 0)
        return rc;
    w->generation = generation;
    w->phase = PSD_METHOD_CHANGE_DUE;
    return 0;
}

void psd_method_change_drop(struct psd_job *job)
{
    struct psd_method_change *w = &job->method_change;
    if (w->phase == PSD_METHOD_CHANGE_EMPTYING)
        return; /* the lanes have released their slices: the change is complete */
    if (w->phase == PSD_METHOD_CHANGE_CLOSING)
        psd_tell_lanes(job->lanes, &(struct psd_lane_message){.kind = PSD_COMMAND_OPEN});
    psd_center_abandon(w->center);
    w->center = NULL;
    w->phase = PSD_METHOD_CHANGE_NONE;
}

void psd_method_change_make(struct psd_job *job)
{
    struct psd_method_change *w = &job->method_change;
    if (w->phase == PSD_METHOD_CHANGE_NONE)
        return;
    w->phase = PSD_METHOD_CHANGE_NONE;
    if (!w->method) {
        psd_layers_apply(job, &w->layers, &w->next);
        return;
    }
    if (!job->reload.untold)
        psd_history_tell_method(job, &w->next, job->cfg->method, w->generation);
    psd_stats_rule_ends(job);
    *job->cfg = w->next;
    atomic_store_explicit(&job->lanes->shared.generation, w->generation, memory_order_relaxed);
    psd_layers_apply(job, &w->layers, &w->next);
    if (!job->reload.untold)
        ps_log(PS_LOG_INFO, "job.swapped",
               "generation %u: method %s (rule %s, admission %s, optimizer %s), from version %" PRIu64,
               w->generation, job->cfg->method, job->cfg->rule, job->cfg->admission, job->cfg->optimizer,
               psd_version(job->lanes));
}

bool psd_method_change_close_own(struct psd_job *job)
{
    if (job->method_change.phase != PSD_METHOD_CHANGE_DUE || job->method_change.center == NULL)
        return false;
    job->method_change.phase = PSD_METHOD_CHANGE_CLOSING;
    job->method_change.lanes_left = job->lanes->n_own;
    return true;
}

bool psd_method_change_empty_own(struct psd_job *job, uint64_t version)
{
    if (job->method_change.phase != PSD_METHOD_CHANGE_CLOSING)
        return job->method_change.phase ==
               PSD_METHOD_CHANGE_NONE; /* the first worker's model will be dropped */
    job->method_change.phase = PSD_METHOD_CHANGE_EMPTYING;
    job->method_change.lanes_left = job->lanes->n_own;
    atomic_store_explicit(&job->lanes->shared.version, version, memory_order_relaxed);
    return true;
}

void psd_method_change_released_own(struct psd_job *job)
{
    struct psd_center *old = job->center;
    uint64_t moves = 0;
    if (--job->method_change.lanes_left > 0)
        return;
    for (uint32_t i = 0; i < job->lanes->n_own; i++) {
        uint64_t here = atomic_load_explicit(&job->lanes->list[i]->stats.moves, memory_order_relaxed);
        moves = here > moves ? here : moves;
    }
    job->center = job->method_change.center;
    job->method_change.center = NULL;
    psd_center_take_over(job->center, old, psd_version(job->lanes), moves);
    job->center->generation = job->method_change.generation;
    atomic_store_explicit(&job->lanes->shared.rounds, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < job->sessions->n_slots; i++)
        atomic_store_explicit(&job->lanes->shared.clocks[i], 0, memory_order_relaxed);
    psd_method_change_make(job);
    psd_tell_lanes(job->lanes, &(struct psd_lane_message){.kind = PSD_COMMAND_SLICE, .p = job->center});
}
