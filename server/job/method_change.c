/* Live swap (DESIGN 5): another method, for the job that is running, at a boundary that every worker passes.
 *
 * An exchange is of one method in all its chunks. So lanes first close (PSD_NOTE_CLOSE): they go on with
 * exchanges of which a chunk has landed in some lane, and refuse all others with GENERATION; what waits for
 * others and has not begun is refused too. Whoever an exchange that has begun waits for has begun his own
 * (a round moves a chunk when every member's message is there; a turn comes after those before it have
 * moved), so that all of them become whole, and nothing else moves any more. Then lanes let go of the center
 * (PSD_NOTE_SLICE without one), its values go over to the new one, and lanes take their slices of that.
 *
 * Everybody is told by a Welcome with the next generation, which names the last exchange of his that is
 * whole: what he sent after it has not landed, in no chunk. The library makes that part of its step again
 * under the new method, and sends what its worker's own steps had come to as it is (PS_FRAME_ADD), so that no
 * update is lost and none lands twice.
 *
 * A worker that computes, or is stopped between exchanges, holds nothing up. One whose exchange stays open is
 * waited for silence_s at most. Runs on the loop. */
#include "server/psd.h"

#include <inttypes.h>
#include <stdio.h>

#include "proto/log.h"
#include "server/admissions/admissions.h"

bool psd_swap_is_closing(const struct psd *d)
{
    return d->swap.phase >= PSD_SWAP_CLOSING;
}

/* Whether an exchange of the session has landed in some chunks and not in others. */
static bool is_open(const struct psd *d, const struct psd_session *s)
{
    uint64_t begun = atomic_load_explicit(&d->shared.begun[s->client], memory_order_acquire),
             whole = atomic_load_explicit(&d->shared.whole[s->client], memory_order_acquire);
    return s->state == PSD_SESSION_ACTIVE && psd_exchange_is_of(begun, s->incarnation) &&
           psd_exchange_is_later(begun, whole);
}

static bool is_quiet(const struct psd *d)
{
    for (uint32_t i = 0; i < d->sessions.n_slots; i++)
        if (is_open(d, &d->sessions.slots[i]))
            return false;
    return true;
}

static void close_lanes(struct psd *d)
{
    d->swap.phase = PSD_SWAP_CLOSING;
    d->swap.lanes_left = d->n_lanes;
    d->swap.deadline_ms = psd_loop_now_ms(&d->loop) + (uint64_t)d->cfg.limits.silence_s * 1000;
    psd_tell_lanes(d, &(struct psd_note){.kind = PSD_NOTE_CLOSE});
}

/* In force from now on; lanes have the new center, if there is one. */
static void finish(struct psd *d)
{
    struct psd_swap *w = &d->swap;
    bool again = w->again;
    char was[sizeof d->cfg.method];
    snprintf(was, sizeof was, "%s", d->cfg.method);
    d->cfg = w->next;
    d->reload.recipe = w->recipe;
    w->phase = PSD_SWAP_NONE;
    w->again = false;
    w->n_swaps++;
    uint32_t generation = atomic_fetch_add_explicit(&d->shared.generation, 1, memory_order_relaxed) + 1;
    d->reload.recorded = psd_journal_put_method(d);
    psd_job_swapped(d);
    d->hooks.welcome_all(d);
    psd_membership_swapped(d);
    psd_saver_go_on(d);
    ps_log(PS_LOG_INFO, "job.swapped",
           "generation %u: method %s (rule %s, admission %s, optimizer %s) after %s, from version %" PRIu64
           " on",
           generation, d->cfg.method, d->cfg.rule, d->cfg.admission, d->cfg.optimizer, was, psd_version(d));
    psd_history_tell(d, PSD_EVENT_METHOD, "method %s after %s, generation %u", d->cfg.method, was,
                     generation);
    if (again)
        psd_reload(d, &(struct ps_error){""});
}

void psd_swap_released(struct psd *d)
{
    struct psd_center *old = d->center;
    uint64_t moves = 0;
    if (++d->lanes_released < d->n_lanes)
        return;
    for (uint32_t i = 0; i < d->n_lanes; i++) {
        uint64_t here = atomic_load_explicit(&d->lanes[i]->stats.moves, memory_order_relaxed);
        moves = here > moves ? here : moves;
    }
    d->center = d->swap.center;
    d->swap.center = NULL;
    psd_center_take_over(d->center, old, psd_version(d), moves);
    finish(d);
}

static void close_or_go_on(struct psd *d)
{
    struct psd_swap *w = &d->swap;
    if (w->phase != PSD_SWAP_CLOSING || w->lanes_left > 0 || !is_quiet(d))
        return;
    w->phase = PSD_SWAP_EMPTYING;
    d->lanes_released = 0;
    psd_tell_lanes(d, &(struct psd_note){.kind = PSD_NOTE_SLICE});
}

void psd_swap_closed(struct psd *d)
{
    d->swap.lanes_left--;
    close_or_go_on(d);
}

/* Who does not finish what he has begun is not waited for beyond what silence is allowed. */
static void evict_late(struct psd *d)
{
    char why[160];
    for (uint32_t i = 0; i < d->sessions.n_slots; i++) {
        struct psd_session *s = &d->sessions.slots[i];
        if (!is_open(d, s))
            continue;
        snprintf(why, sizeof why,
                 "its exchange stayed open for %u s while the method was to change (limits.silence_s)",
                 d->cfg.limits.silence_s);
        psd_control_error(d, s, PS__CODE__EVICTED, true, why);
        psd_job_end(d, s, PS__CODE__EVICTED, why);
    }
}

/* The center made for the next method must go on from the one there is. */
static int make_center(struct psd *d, struct ps_error *err)
{
    if (d->swap.center != NULL || d->state != PSD_STATE_READY)
        return 0;
    return psd_center_swap(&d->swap.next, psd_admission_find(d->swap.next.admission), d->center,
                           &d->swap.center, err);
}

static void begin_if_possible(struct psd *d)
{
    struct ps_error err;
    if (d->state == PSD_STATE_WAITING) {
        finish(d);
    } else if (d->state == PSD_STATE_READY && !d->saver.busy && !d->membership.holding) {
        if (make_center(d, &err) < 0) { /* the model has come meanwhile, and it does not fit */
            d->swap.phase = PSD_SWAP_NONE;
            d->reload.n_refused++;
            d->reload.last = err;
            ps_log(PS_LOG_ERROR, "reload.refused", "%s; the method stays %s", err.text, d->cfg.method);
            return;
        }
        close_lanes(d);
    }
}

void psd_swap_check(struct psd *d)
{
    if (d->swap.phase == PSD_SWAP_DUE)
        begin_if_possible(d);
    if (d->swap.phase == PSD_SWAP_CLOSING && psd_loop_now_ms(&d->loop) > d->swap.deadline_ms)
        evict_late(d);
    close_or_go_on(d);
}

void psd_swap_cancel(struct psd *d)
{
    if (psd_swap_is_closing(d))
        return;
    d->swap.phase = PSD_SWAP_NONE;
    psd_center_abandon(d->swap.center);
    d->swap.center = NULL;
}

int psd_swap_begin(struct psd *d, const struct psd_config *next, const struct psd_recipe *recipe,
                   struct ps_error *err)
{
    if (psd_swap_is_closing(d)) {
        d->swap.again = true;
        return 0;
    }
    psd_swap_cancel(d);
    d->swap.next = *next;
    d->swap.recipe = *recipe;
    int rc = make_center(d, err);
    if (rc < 0)
        return rc;
    d->swap.phase = PSD_SWAP_DUE;
    begin_if_possible(d);
    return 0;
}
