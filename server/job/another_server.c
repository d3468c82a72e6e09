/* A change of the configuration at a server that is not the head, whose loop decides (method_change.c there).
 * It is tried first: checked as the head has checked it, and memory is taken for the next center. Then lanes
 * here close, say what has begun, and let go of the center as the head says; the last one's is changed for
 * the next. Runs on the loop. */
#include "server/psd.h"

#include <inttypes.h>
#include <string.h>

#include "proto/log.h"
#include "server/admissions/admissions.h"

int psd_swap_try(struct psd *d, const char *settings, uint32_t generation, struct ps_error *err)
{
    struct psd_swap *w = &d->swap;
    bool others;
    psd_swap_drop(d);
    w->recipe.base = d->reload.recipe.base;
    if (strlen(settings) >= sizeof w->recipe.settings)
        return ps_fail(err, -EINVAL, "more is set than this psd has room for");
    memset(w->recipe.settings, 0, sizeof w->recipe.settings);
    memcpy(w->recipe.settings, settings, strlen(settings));
    int rc = psd_recipe_cook(d, &w->recipe, &w->next, &w->method, &others, err);
    if (rc == 0 && w->method && d->center != NULL && d->center_whole)
        rc = psd_center_swap(&w->next, psd_admission_find(w->next.admission), d->center, &w->center, err);
    if (rc < 0)
        return rc;
    w->generation = generation;
    w->phase = PSD_SWAP_DUE;
    return 0;
}

void psd_swap_drop(struct psd *d)
{
    struct psd_swap *w = &d->swap;
    if (w->phase == PSD_SWAP_EMPTYING)
        return; /* lanes have let go already: it is made */
    if (w->phase == PSD_SWAP_CLOSING)
        psd_tell_lanes(d, &(struct psd_note){.kind = PSD_NOTE_OPEN});
    psd_center_abandon(w->center);
    w->center = NULL;
    w->phase = PSD_SWAP_NONE;
}

void psd_swap_make(struct psd *d)
{
    struct psd_swap *w = &d->swap;
    if (w->phase == PSD_SWAP_NONE)
        return;
    w->phase = PSD_SWAP_NONE;
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

bool psd_swap_close_own(struct psd *d)
{
    if (d->swap.phase != PSD_SWAP_DUE || d->swap.center == NULL)
        return false;
    d->swap.phase = PSD_SWAP_CLOSING;
    d->swap.lanes_left = d->n_own;
    return true;
}

bool psd_swap_empty_own(struct psd *d, uint64_t version)
{
    if (d->swap.phase != PSD_SWAP_CLOSING)
        return d->swap.phase == PSD_SWAP_NONE; /* the first worker's model goes */
    d->swap.phase = PSD_SWAP_EMPTYING;
    d->swap.lanes_left = d->n_own;
    atomic_store_explicit(&d->shared.version, version, memory_order_relaxed);
    return true;
}

void psd_swap_released_own(struct psd *d)
{
    struct psd_center *old = d->center;
    uint64_t moves = 0;
    if (--d->swap.lanes_left > 0)
        return;
    for (uint32_t i = 0; i < d->n_own; i++) {
        uint64_t here = atomic_load_explicit(&d->lanes[i]->stats.moves, memory_order_relaxed);
        moves = here > moves ? here : moves;
    }
    d->center = d->swap.center;
    d->swap.center = NULL;
    psd_center_take_over(d->center, old, psd_version(d), moves);
    d->center->generation = d->swap.generation;
    atomic_store_explicit(&d->shared.rounds, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < d->sessions.n_slots; i++)
        atomic_store_explicit(&d->shared.clocks[i], 0, memory_order_relaxed);
    psd_swap_make(d);
    psd_tell_lanes(d, &(struct psd_note){.kind = PSD_NOTE_SLICE, .p = d->center});
}
