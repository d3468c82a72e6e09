/* Live swap: another method, for the job that is running, at a boundary that every worker passes.
 *
 * An exchange is of one method in all its chunks. So lanes first close (PSD_COMMAND_CLOSE): they go on with
 * exchanges of which a chunk has landed in some lane, and refuse all others with GENERATION; what waits for
 * others and has not begun is refused too. Whoever an exchange that has begun waits for has begun his own
 * (a round moves a chunk when every member's message is there; a turn comes after those before it have
 * moved), so that all of them become whole, and nothing else moves any more. Then lanes let go of the center
 * (PSD_COMMAND_SLICE without one), its values go over to the new one, and lanes take their slices of that.
 *
 * Everybody is told by a Welcome with the next generation, which names the last exchange of his that is
 * whole: what he sent after it has not landed, in no chunk. The library makes that part of its step again
 * under the new method, and sends what its worker's own steps had come to as it is (PS_FRAME_ADD), so that no
 * update is lost and none lands twice.
 *
 * Where there are several servers, an exchange may have begun at one of them and not at another. Theirs try
 * the change first, all of them (try_others), so that it cannot fail later. When every lane of theirs has
 * closed too, each has said what has begun there; from that the head makes one list and publishes it
 * (PSD_COMMAND_BEGAN), and what was refused before is taken when it comes again. An exchange is whole when it
 * is at each server that it goes to. A server that is lost before lanes are told to let go has the change
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

bool psd_method_change_is_closing(const struct psd *d)
{
    return d->method_change.phase >= PSD_METHOD_CHANGE_CLOSING;
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
                ((parts >> i & 1) == 0 || !psd_exchange_is_later(name, d->cluster.servers[i].whole[client]));
    return whole;
}

/* Whether an exchange of the session has landed in some chunks and not in others. */
static bool is_open(const struct psd *d, const struct psd_session *s)
{
    uint64_t begun = newest(&d->shared.begun[s->client]);
    if (s->state != PSD_SESSION_ACTIVE || !psd_exchange_is_of(begun, s->incarnation))
        return false;
    return psd_has_cluster(d) ? !is_whole_everywhere(d, s->client, begun)
                              : psd_exchange_is_later(begun, newest(&d->shared.whole[s->client]));
}

void psd_method_change_give_up(struct psd *d, uint32_t client, uint64_t name)
{
    psd_exchange_remember(&d->shared.whole[client], name);
    for (uint32_t i = 1; psd_has_cluster(d) && i < d->cfg.servers.count; i++)
        if (psd_exchange_is_later(name, d->cluster.servers[i].whole[client]))
            d->cluster.servers[i].whole[client] = name;
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
    d->method_change.phase = PSD_METHOD_CHANGE_CLOSING;
    d->method_change.lanes_left = d->n_lanes;
    d->method_change.deadline_ms = psd_loop_now_ms(&d->loop) + (uint64_t)d->cfg.limits.silence_s * 1000;
    for (uint32_t i = 1; psd_has_cluster(d) && i < d->cfg.servers.count; i++) {
        memset(d->cluster.servers[i].begun, 0, n * sizeof *d->cluster.servers[i].begun);
        memset(d->cluster.servers[i].whole, 0, n * sizeof *d->cluster.servers[i].whole);
    }
    psd_tell_lanes(d,
                   &(struct psd_lane_message){.kind = PSD_COMMAND_CLOSE, .a = ++d->method_change.closings});
}

/* Of several servers, all of whose lanes have closed: what has begun anywhere is to be finished everywhere.
 */
static void publish_begun(struct psd *d)
{
    for (uint32_t c = 0; psd_has_cluster(d) && c < d->sessions.n_slots; c++) {
        for (uint32_t i = 1; i < d->cfg.servers.count; i++) {
            const struct psd_server *s = &d->cluster.servers[i];
            if (psd_exchange_remember(&d->shared.begun[c], s->begun[c]))
                atomic_store_explicit(&d->shared.parts[c], s->begun[c] << 32 | s->parts[c],
                                      memory_order_release);
        }
        if (is_open(d, &d->sessions.slots[c]))
            d->hooks.command_remote(d, NULL,
                                    &(struct psd_lane_message){.kind = PSD_COMMAND_BEGAN,
                                                               .client = c,
                                                               .a = newest(&d->shared.begun[c])});
    }
}

/* What clients are told has landed: at whichever server. */
static void gather_whole(struct psd *d)
{
    for (uint32_t i = 1; psd_has_cluster(d) && i < d->cfg.servers.count; i++)
        for (uint32_t c = 0; c < d->sessions.n_slots; c++)
            psd_exchange_remember(&d->shared.whole[c], d->cluster.servers[i].whole[c]);
}

/* In force from now on; lanes have the new center, if there is one. */
static void finish(struct psd *d)
{
    struct psd_method_change *w = &d->method_change;
    bool again = w->again;
    char was[sizeof d->cfg.method];
    snprintf(was, sizeof was, "%s", d->cfg.method);
    d->cfg = w->next;
    d->reload.recipe = w->recipe;
    ps_log_set_lowest((enum ps_log_level)ps_log_level_parse(d->cfg.log_level));
    w->phase = PSD_METHOD_CHANGE_NONE;
    w->again = w->agreed = false;
    w->n_changes++;
    uint32_t generation = atomic_fetch_add_explicit(&d->shared.generation, 1, memory_order_relaxed) + 1;
    d->reload.recorded = psd_journal_put_method(d);
    psd_job_method_changed(d);
    d->hooks.welcome_all(d);
    psd_membership_method_changed(d);
    psd_checkpointer_go_on(d);
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
    d->center = d->method_change.center;
    d->method_change.center = NULL;
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
        version = d->cluster.servers[i].version > version ? d->cluster.servers[i].version : version;
    atomic_store_explicit(&d->shared.version, version, memory_order_relaxed);
    d->hooks.command_remote(d, NULL, &(struct psd_lane_message){.kind = PSD_COMMAND_SLICE, .a = version});
}

static void note_released(struct psd *d, uint64_t lanes)
{
    struct psd_method_change *w = &d->method_change;
    uint64_t own = mask_of(d->n_own), before = w->released;
    w->released |= lanes;
    if (psd_has_cluster(d) && (before & own) != own && (w->released & own) == own)
        empty_others(d);
    if (w->phase == PSD_METHOD_CHANGE_EMPTYING && w->released == mask_of(d->n_lanes))
        change_hands(d);
}

void psd_method_change_released(struct psd *d, const struct psd_lane *lane)
{
    note_released(d, UINT64_C(1) << lane->index);
}

static void close_or_go_on(struct psd *d)
{
    struct psd_method_change *w = &d->method_change;
    if (w->phase != PSD_METHOD_CHANGE_CLOSING || w->lanes_left > 0 || !is_quiet(d))
        return;
    w->phase = PSD_METHOD_CHANGE_EMPTYING;
    w->released = 0;
    gather_whole(d);
    for (uint32_t i = 0; i < d->n_own; i++) /* the others' when these have: empty_others */
        psd_queue_push(d->lanes[i]->in, &(struct psd_lane_message){.kind = PSD_COMMAND_SLICE});
}

void psd_method_change_closed(struct psd *d, uint64_t number)
{
    if (number != d->method_change.closings)
        return; /* of a change that was dropped */
    if (--d->method_change.lanes_left == 0 && d->method_change.phase == PSD_METHOD_CHANGE_CLOSING)
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
    if (d->method_change.center != NULL || d->state != PSD_STATE_READY)
        return 0;
    return psd_center_replace(&d->method_change.next, psd_admission_find(d->method_change.next.admission),
                              d->center, &d->method_change.center, err);
}

/* It was valid when it was asked for, and cannot be made. */
static void refuse(struct psd *d, const char *why)
{
    struct psd_method_change *w = &d->method_change;
    if (psd_has_cluster(d))
        d->hooks.drop_others(d);
    psd_center_abandon(w->center);
    w->center = NULL;
    w->phase = PSD_METHOD_CHANGE_NONE;
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
    return psd_has_cluster(d) &&
           !(d->method_change.agreed && d->method_change.with_center == (d->state != PSD_STATE_WAITING));
}

static void ask(struct psd *d)
{
    struct psd_method_change *w = &d->method_change;
    struct ps_error err;
    uint32_t generation = atomic_load_explicit(&d->shared.generation, memory_order_relaxed);
    w->phase = PSD_METHOD_CHANGE_ASKING;
    w->with_center = d->state != PSD_STATE_WAITING;
    if (d->hooks.try_others(d, generation + w->method, &err) < 0)
        refuse(d, err.text);
}

/* Lanes have no part in it. */
static void make_at_once(struct psd *d)
{
    struct psd_method_change *w = &d->method_change;
    if (psd_has_cluster(d))
        d->hooks.make_others(d);
    if (w->method) {
        finish(d);
        return;
    }
    w->phase = PSD_METHOD_CHANGE_NONE;
    w->agreed = false;
    psd_recipe_take(d, &w->recipe, &w->next);
}

static void begin_if_possible(struct psd *d)
{
    struct ps_error err;
    bool ready = d->state == PSD_STATE_READY && !d->checkpointer.busy && !d->membership.holding &&
                 (!psd_has_cluster(d) || d->hooks.others_saved(d));
    if (d->state != PSD_STATE_WAITING && !ready)
        return;
    if (must_ask(d)) {
        ask(d);
    } else if (d->state == PSD_STATE_WAITING || !d->method_change.method) {
        make_at_once(d);
    } else if (make_center(d, &err) < 0) { /* the model has come meanwhile, and it does not fit */
        refuse(d, err.text);
    } else {
        close_lanes(d);
    }
}

void psd_method_change_tried(struct psd *d, const char *refused)
{
    if (d->method_change.phase != PSD_METHOD_CHANGE_ASKING)
        return;
    if (refused != NULL) {
        refuse(d, refused);
        return;
    }
    d->method_change.phase = PSD_METHOD_CHANGE_DUE;
    d->method_change.agreed = true;
    begin_if_possible(d);
}

void psd_method_change_server_lost(struct psd *d, uint64_t lanes, const char *who)
{
    char why[300];
    bool closing = d->method_change.phase == PSD_METHOD_CHANGE_CLOSING;
    if (d->method_change.phase == PSD_METHOD_CHANGE_EMPTYING) {
        note_released(d, lanes); /* it takes the change when it comes back */
        return;
    }
    if (d->method_change.phase != PSD_METHOD_CHANGE_ASKING && !closing)
        return;
    snprintf(why, sizeof why, "%s was lost while the configuration was to change", who);
    if (closing)
        psd_tell_lanes(d, &(struct psd_lane_message){.kind = PSD_COMMAND_OPEN});
    refuse(d, why);
    if (!closing)
        return;
    psd_checkpointer_go_on(d);
    psd_job_unpark(d);
}

void psd_method_change_check(struct psd *d)
{
    if (!psd_is_head(d))
        return; /* the head's loop decides */
    if (d->method_change.phase == PSD_METHOD_CHANGE_DUE)
        begin_if_possible(d);
    if (d->method_change.phase == PSD_METHOD_CHANGE_CLOSING &&
        psd_loop_now_ms(&d->loop) > d->method_change.deadline_ms)
        evict_late(d);
    close_or_go_on(d);
}

void psd_method_change_cancel(struct psd *d)
{
    if (psd_method_change_is_closing(d))
        return;
    if (psd_has_cluster(d) && (d->method_change.phase == PSD_METHOD_CHANGE_ASKING || d->method_change.agreed))
        d->hooks.drop_others(d);
    d->method_change.phase = PSD_METHOD_CHANGE_NONE;
    d->method_change.agreed = false;
    psd_center_abandon(d->method_change.center);
    d->method_change.center = NULL;
}

static int begin(struct psd *d, const struct psd_config *next, const struct psd_recipe *recipe, bool method,
                 struct ps_error *err)
{
    if (psd_method_change_is_closing(d)) {
        d->method_change.again = true;
        return 0;
    }
    psd_method_change_cancel(d);
    d->method_change.next = *next;
    d->method_change.recipe = *recipe;
    d->method_change.method = method;
    int rc = method ? make_center(d, err) : 0;
    if (rc < 0)
        return rc;
    d->method_change.phase = PSD_METHOD_CHANGE_DUE;
    begin_if_possible(d);
    return 0;
}

int psd_method_change_begin(struct psd *d, const struct psd_config *next, const struct psd_recipe *recipe,
                            struct ps_error *err)
{
    return begin(d, next, recipe, true, err);
}

/* Whether they are all here is known at once. */
int psd_method_change_begin_all(struct psd *d, const struct psd_config *next, const struct psd_recipe *recipe,
                                bool method, struct ps_error *err)
{
    int rc = d->hooks.check_others(d, err);
    return rc < 0 ? rc : begin(d, next, recipe, method, err);
}
