/* A change of the configuration at a server that is not the head, whose loop decides (method_change.c there).
 * It is tried first: checked as the head has checked it, and memory is taken for the next center. Then lanes
 * here close, say what has begun, and let go of the center as the head says; the last one's is changed for
 * the next. Runs on the loop. */
#include "server/psd.h"

#include <inttypes.h>
#include <string.h>

#include "proto/log.h"
#include "server/admissions/admissions.h"

int psd_method_change_try(struct psd *d, const char *settings, uint32_t generation, struct ps_error *err)
{
    struct psd_method_change *w = &d->method_change;
    bool others;
    psd_method_change_drop(d);
    w->recipe.base = d->reload.recipe.base;
    if (strlen(settings) >= sizeof w->recipe.settings)
        return ps_fail(err, -EINVAL, "more is set than this psd has room for");
    memset(w->recipe.settings, 0, sizeof w->recipe.settings);
    memcpy(w->recipe.settings, settings, strlen(settings));
    int rc = psd_recipe_cook(d, &w->recipe, &w->next, &w->method, &others, err);
    if (rc == 0 && w->method && d->center != NULL && d->center_whole)
        rc = psd_center_replace(&w->next, psd_admission_find(w->next.admission), d->center, &w->center, err);
    if (rc < 0)
        return rc;
    w->generation = generation;
    w->phase = PSD_METHOD_CHANGE_DUE;
    return 0;
}

void psd_method_change_drop(struct psd *d)
{
    struct psd_method_change *w = &d->method_change;
    if (w->phase == PSD_METHOD_CHANGE_EMPTYING)
        return; /* lanes have let go already: it is made */
    if (w->phase == PSD_METHOD_CHANGE_CLOSING)
        psd_tell_lanes(d, &(struct psd_lane_message){.kind = PSD_COMMAND_OPEN});
    psd_center_abandon(w->center);
    w->center = NULL;
    w->phase = PSD_METHOD_CHANGE_NONE;
}

void psd_method_change_make(struct psd *d)
{
    struct psd_method_change *w = &d->method_change;
    if (w->phase == PSD_METHOD_CHANGE_NONE)
        return;
    w->phase = PSD_METHOD_CHANGE_NONE;
    if (!w->method) {
        psd_recipe_take(d, &w->recipe, &w->next);
        return;
    }
    psd_history_tell(d, PSD_EVENT_METHOD, "method %s after %s, generation %u", w->next.method, d->cfg.method,
                     w->generation);
    d->cfg = w->next;
    atomic_store_explicit(&d->shared.generation, w->generation, memory_order_relaxed);
    psd_recipe_take(d, &w->recipe, &w->next);
    ps_log(PS_LOG_INFO, "job.swapped",
           "generation %u: method %s (rule %s, admission %s, optimizer %s), from version %" PRIu64 " on",
           w->generation, d->cfg.method, d->cfg.rule, d->cfg.admission, d->cfg.optimizer, psd_version(d));
}

bool psd_method_change_close_own(struct psd *d)
{
    if (d->method_change.phase != PSD_METHOD_CHANGE_DUE || d->method_change.center == NULL)
        return false;
    d->method_change.phase = PSD_METHOD_CHANGE_CLOSING;
    d->method_change.lanes_left = d->n_own;
    return true;
}

bool psd_method_change_empty_own(struct psd *d, uint64_t version)
{
    if (d->method_change.phase != PSD_METHOD_CHANGE_CLOSING)
        return d->method_change.phase == PSD_METHOD_CHANGE_NONE; /* the first worker's model goes */
    d->method_change.phase = PSD_METHOD_CHANGE_EMPTYING;
    d->method_change.lanes_left = d->n_own;
    atomic_store_explicit(&d->shared.version, version, memory_order_relaxed);
    return true;
}

void psd_method_change_released_own(struct psd *d)
{
    struct psd_center *old = d->center;
    uint64_t moves = 0;
    if (--d->method_change.lanes_left > 0)
        return;
    for (uint32_t i = 0; i < d->n_own; i++) {
        uint64_t here = atomic_load_explicit(&d->lanes[i]->stats.moves, memory_order_relaxed);
        moves = here > moves ? here : moves;
    }
    d->center = d->method_change.center;
    d->method_change.center = NULL;
    psd_center_take_over(d->center, old, psd_version(d), moves);
    d->center->generation = d->method_change.generation;
    atomic_store_explicit(&d->shared.rounds, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < d->sessions.n_slots; i++)
        atomic_store_explicit(&d->shared.clocks[i], 0, memory_order_relaxed);
    psd_method_change_make(d);
    psd_tell_lanes(d, &(struct psd_lane_message){.kind = PSD_COMMAND_SLICE, .p = d->center});
}
