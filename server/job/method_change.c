/* Live swap: another method, for the job that is running, at a boundary that every worker passes.
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
 * Where there are several servers, an exchange may have begun at one of them and not at another. Theirs try
 * the change first, all of them (try_others), so that it cannot fail later. When every lane of theirs has
 * closed too, each has said what has begun there; from that the head makes one list and publishes it
 * (PSD_NOTE_BEGAN), and what was refused before is taken when it comes again. An exchange is whole when it is
 * at each server that it goes to. A server that is lost before lanes are told to let go has the change
 * dropped, and everybody goes on as before; one that is lost later takes it when it comes back.
 *
 * A worker that computes, or is stopped between exchanges, holds nothing up. One whose exchange stays open is
 * waited for silence_s at most. Runs on the loop. */
#include "server/psd.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/log.h"
#include "server/admissions/admissions.h"

bool psd_swap_is_closing(const struct psd *d)
{
    return d->swap.phase >= PSD_SWAP_CLOSING;
}

static uint64_t newest(const _Atomic uint64_t *name)
{
    return atomic_load_explicit(name, memory_order_acquire);
}

/* Whether the exchange is whole at all servers that it goes to, where there are several. */
static bool is_whole_everywhere(const struct psd *d, uint32_t client, uint64_t name)
{
    uint32_t parts = psd_exchange_parts(newest(&d->shared.parts[client]), name);
    bool whole = (parts & 1) == 0 || !psd_exchange_is_later(name, newest(&d->shared.whole[client]));
    for (uint32_t i = 1; i < d->cfg.servers.count; i++)
        whole = whole &&
                ((parts >> i & 1) == 0 || !psd_exchange_is_later(name, d->team.servers[i].whole[client]));
    return whole;
}

/* Whether an exchange of the session has landed in some chunks and not in others. */
static bool is_open(const struct psd *d, const struct psd_session *s)
{
    uint64_t begun = newest(&d->shared.begun[s->client]);
    if (s->state != PSD_SESSION_ACTIVE || !psd_exchange_is_of(begun, s->incarnation))
        return false;
    return psd_has_team(d) ? !is_whole_everywhere(d, s->client, begun)
                           : psd_exchange_is_later(begun, newest(&d->shared.whole[s->client]));
}

void psd_swap_give_up(struct psd *d, uint32_t client, uint64_t name)
{
    psd_exchange_remember(&d->shared.whole[client], name);
    for (uint32_t i = 1; psd_has_team(d) && i < d->cfg.servers.count; i++)
        if (psd_exchange_is_later(name, d->team.servers[i].whole[client]))
            d->team.servers[i].whole[client] = name;
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
    uint32_t n = d->sessions.n_slots;
    d->swap.phase = PSD_SWAP_CLOSING;
    d->swap.lanes_left = d->n_lanes;
    d->swap.deadline_ms = psd_loop_now_ms(&d->loop) + (uint64_t)d->cfg.limits.silence_s * 1000;
    for (uint32_t i = 1; psd_has_team(d) && i < d->cfg.servers.count; i++) {
        memset(d->team.servers[i].begun, 0, n * sizeof *d->team.servers[i].begun);
        memset(d->team.servers[i].whole, 0, n * sizeof *d->team.servers[i].whole);
    }
    psd_tell_lanes(d, &(struct psd_note){.kind = PSD_NOTE_CLOSE, .a = ++d->swap.closings});
}

/* Of several servers, all of whose lanes have closed: what has begun anywhere is to be finished everywhere.
 */
static void publish_begun(struct psd *d)
{
    for (uint32_t c = 0; psd_has_team(d) && c < d->sessions.n_slots; c++) {
        for (uint32_t i = 1; i < d->cfg.servers.count; i++) {
            const struct psd_server *s = &d->team.servers[i];
            if (psd_exchange_remember(&d->shared.begun[c], s->begun[c]))
                atomic_store_explicit(&d->shared.parts[c], s->begun[c] << 32 | s->parts[c],
                                      memory_order_release);
        }
        if (is_open(d, &d->sessions.slots[c]))
            d->hooks.command_remote(
                d, NULL,
                &(struct psd_note){.kind = PSD_NOTE_BEGAN, .client = c, .a = newest(&d->shared.begun[c])});
    }
}

/* What clients are told has landed: at whichever server. */
static void gather_whole(struct psd *d)
{
    for (uint32_t i = 1; psd_has_team(d) && i < d->cfg.servers.count; i++)
        for (uint32_t c = 0; c < d->sessions.n_slots; c++)
            psd_exchange_remember(&d->shared.whole[c], d->team.servers[i].whole[c]);
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
    ps_log_set_lowest((enum ps_log_level)ps_log_level_parse(d->cfg.log_level));
    w->phase = PSD_SWAP_NONE;
    w->again = w->agreed = false;
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

static void change_hands(struct psd *d)
{
    struct psd_center *old = d->center;
    uint64_t moves = 0;
    for (uint32_t i = 0; i < d->n_lanes; i++) {
        uint64_t here = atomic_load_explicit(&d->lanes[i]->stats.moves, memory_order_relaxed);
        moves = here > moves ? here : moves;
    }
    d->center = d->swap.center;
    d->swap.center = NULL;
    psd_center_take_over(d->center, old, psd_version(d), moves);
    finish(d);
}

static uint64_t mask_of(uint32_t n_lanes)
{
    return n_lanes < 64 ? (UINT64_C(1) << n_lanes) - 1 : UINT64_MAX;
}

/* All servers go on from one version: rounds are counted from it. What lanes here have counted is final. */
static void empty_others(struct psd *d)
{
    uint64_t version = psd_version(d);
    for (uint32_t i = 1; i < d->cfg.servers.count; i++)
        version = d->team.servers[i].version > version ? d->team.servers[i].version : version;
    atomic_store_explicit(&d->shared.version, version, memory_order_relaxed);
    d->hooks.command_remote(d, NULL, &(struct psd_note){.kind = PSD_NOTE_SLICE, .a = version});
}

static void note_released(struct psd *d, uint64_t lanes)
{
    struct psd_swap *w = &d->swap;
    uint64_t own = mask_of(d->n_own), before = w->released;
    w->released |= lanes;
    if (psd_has_team(d) && (before & own) != own && (w->released & own) == own)
        empty_others(d);
    if (w->phase == PSD_SWAP_EMPTYING && w->released == mask_of(d->n_lanes))
        change_hands(d);
}

void psd_swap_released(struct psd *d, const struct psd_lane *lane)
{
    note_released(d, UINT64_C(1) << lane->index);
}

static void close_or_go_on(struct psd *d)
{
    struct psd_swap *w = &d->swap;
    if (w->phase != PSD_SWAP_CLOSING || w->lanes_left > 0 || !is_quiet(d))
        return;
    w->phase = PSD_SWAP_EMPTYING;
    w->released = 0;
    gather_whole(d);
    for (uint32_t i = 0; i < d->n_own; i++) /* the others' when these have: empty_others */
        psd_ring_push(d->lanes[i]->in, &(struct psd_note){.kind = PSD_NOTE_SLICE});
}

void psd_swap_closed(struct psd *d, uint64_t number)
{
    if (number != d->swap.closings)
        return; /* of a change that was dropped */
    if (--d->swap.lanes_left == 0 && d->swap.phase == PSD_SWAP_CLOSING)
        publish_begun(d);
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

/* It was valid when it was asked for, and cannot be made. */
static void refuse(struct psd *d, const char *why)
{
    struct psd_swap *w = &d->swap;
    if (psd_has_team(d))
        d->hooks.drop_others(d);
    psd_center_abandon(w->center);
    w->center = NULL;
    w->phase = PSD_SWAP_NONE;
    w->agreed = false;
    d->reload.n_refused++;
    ps_fail(&d->reload.last, 0, "%s", why);
    ps_log(PS_LOG_ERROR, "reload.refused", "%s; the method stays %s", why, d->cfg.method);
    psd_history_tell(d, PSD_EVENT_METHOD, "what was set is refused: %s", why);
    if (w->again) {
        w->again = false;
        psd_reload(d, &(struct ps_error){""});
    }
}

/* Whether the others have still to try it, as things are now. */
static bool must_ask(const struct psd *d)
{
    return psd_has_team(d) && !(d->swap.agreed && d->swap.with_center == (d->state != PSD_STATE_WAITING));
}

static void ask(struct psd *d)
{
    struct psd_swap *w = &d->swap;
    struct ps_error err;
    uint32_t generation = atomic_load_explicit(&d->shared.generation, memory_order_relaxed);
    w->phase = PSD_SWAP_ASKING;
    w->with_center = d->state != PSD_STATE_WAITING;
    if (d->hooks.try_others(d, generation + w->method, &err) < 0)
        refuse(d, err.text);
}

/* Lanes have no part in it. */
static void make_at_once(struct psd *d)
{
    struct psd_swap *w = &d->swap;
    if (psd_has_team(d))
        d->hooks.make_others(d);
    if (w->method) {
        finish(d);
        return;
    }
    w->phase = PSD_SWAP_NONE;
    w->agreed = false;
    psd_recipe_take(d, &w->recipe, &w->next);
}

static void begin_if_possible(struct psd *d)
{
    struct ps_error err;
    bool ready = d->state == PSD_STATE_READY && !d->saver.busy && !d->membership.holding &&
                 (!psd_has_team(d) || d->hooks.others_saved(d));
    if (d->state != PSD_STATE_WAITING && !ready)
        return;
    if (must_ask(d)) {
        ask(d);
    } else if (d->state == PSD_STATE_WAITING || !d->swap.method) {
        make_at_once(d);
    } else if (make_center(d, &err) < 0) { /* the model has come meanwhile, and it does not fit */
        refuse(d, err.text);
    } else {
        close_lanes(d);
    }
}

void psd_swap_tried(struct psd *d, const char *refused)
{
    if (d->swap.phase != PSD_SWAP_ASKING)
        return;
    if (refused != NULL) {
        refuse(d, refused);
        return;
    }
    d->swap.phase = PSD_SWAP_DUE;
    d->swap.agreed = true;
    begin_if_possible(d);
}

void psd_swap_server_lost(struct psd *d, uint64_t lanes, const char *who)
{
    char why[300];
    bool closing = d->swap.phase == PSD_SWAP_CLOSING;
    if (d->swap.phase == PSD_SWAP_EMPTYING) {
        note_released(d, lanes); /* it takes the change when it comes back */
        return;
    }
    if (d->swap.phase != PSD_SWAP_ASKING && !closing)
        return;
    snprintf(why, sizeof why, "%s was lost while the configuration was to change", who);
    if (closing)
        psd_tell_lanes(d, &(struct psd_note){.kind = PSD_NOTE_OPEN});
    refuse(d, why);
    if (!closing)
        return;
    psd_saver_go_on(d);
    psd_job_unpark(d);
}

void psd_swap_check(struct psd *d)
{
    if (!psd_is_head(d))
        return; /* the head's loop decides */
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
    if (psd_has_team(d) && (d->swap.phase == PSD_SWAP_ASKING || d->swap.agreed))
        d->hooks.drop_others(d);
    d->swap.phase = PSD_SWAP_NONE;
    d->swap.agreed = false;
    psd_center_abandon(d->swap.center);
    d->swap.center = NULL;
}

static int begin(struct psd *d, const struct psd_config *next, const struct psd_recipe *recipe, bool method,
                 struct ps_error *err)
{
    if (psd_swap_is_closing(d)) {
        d->swap.again = true;
        return 0;
    }
    psd_swap_cancel(d);
    d->swap.next = *next;
    d->swap.recipe = *recipe;
    d->swap.method = method;
    int rc = method ? make_center(d, err) : 0;
    if (rc < 0)
        return rc;
    d->swap.phase = PSD_SWAP_DUE;
    begin_if_possible(d);
    return 0;
}

int psd_swap_begin(struct psd *d, const struct psd_config *next, const struct psd_recipe *recipe,
                   struct ps_error *err)
{
    return begin(d, next, recipe, true, err);
}

/* Whether they are all here is known at once. */
int psd_swap_begin_all(struct psd *d, const struct psd_config *next, const struct psd_recipe *recipe,
                       bool method, struct ps_error *err)
{
    int rc = d->hooks.check_others(d, err);
    return rc < 0 ? rc : begin(d, next, recipe, method, err);
}
