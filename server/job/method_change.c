/* Changes the method of the running job at a boundary that every worker passes.
 *
 * An exchange uses one method in all its chunks. So the lanes first close (PSD_COMMAND_CLOSE): they continue
 * exchanges of which a chunk has landed in some lane, and refuse all others with GENERATION, also staged
 * messages of exchanges that have not begun. A member that an exchange waits for has begun its own exchange:
 * a round moves a chunk when every member's message has arrived, and a turn comes after the turns before it
 * have moved. So all exchanges that have begun complete, and nothing else moves. Then the lanes release the
 * center (PSD_COMMAND_SLICE without one), its values move to the new center, and the lanes take their slices
 * of that.
 *
 * Every client gets a Welcome with the next generation, which names its last complete exchange: nothing that
 * it sent after that has landed. The library repeats that part of its step under the new method, and sends
 * its unsent delta, which is added as it is (PS_FRAME_ADD), so that no update is lost and none lands twice.
 *
 * With several servers, an exchange may have begun at one of them and not at another. All other servers first
 * try the change (try_others), so that it cannot fail later. When all their lanes have closed too, each
 * server has reported what has begun there; the head combines these lists and publishes the result
 * (PSD_COMMAND_BEGAN), and chunks that were refused before are then accepted when they are sent again. An
 * exchange is complete when it is at each server that it goes to. If a server is lost before the lanes are
 * told to release the center, the change is dropped and every client continues as before; a server that is
 * lost later applies it when it comes back.
 *
 * A worker that computes, or is stopped between exchanges, delays nothing. One with an open exchange is
 * waited for at most silence_s; those who wait for it have as long again when it is given up. After a restart
 * of psd the change waits as long for the workers of the checkpoint. Runs on the loop. */
#include "server/job/job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/log.h"
#include "server/admissions/admissions.h"

int psd_method_change_open(struct psd_job *job)
{
    uint32_t n = job->sessions->n_slots;
    struct psd_exchanges_elsewhere *all = calloc(job->cfg->servers.count, sizeof *all);
    job->method_change.elsewhere = all;
    for (uint32_t i = 1; all != NULL && i < job->cfg->servers.count; i++) {
        all[i].begun = calloc(n, sizeof *all[i].begun);
        all[i].whole = calloc(n, sizeof *all[i].whole);
        all[i].parts = calloc(n, sizeof *all[i].parts);
        if (all[i].begun == NULL || all[i].whole == NULL || all[i].parts == NULL)
            return -ENOMEM;
    }
    return all != NULL ? 0 : -ENOMEM;
}

void psd_method_change_close(struct psd_job *job)
{
    struct psd_exchanges_elsewhere *all = job->method_change.elsewhere;
    for (uint32_t i = 1; all != NULL && i < job->cfg->servers.count; i++) {
        free(all[i].begun);
        free(all[i].whole);
        free(all[i].parts);
    }
    free(all);
    job->method_change.elsewhere = NULL;
}

bool psd_method_change_is_closing(const struct psd_job *job)
{
    return job->method_change.phase >= PSD_METHOD_CHANGE_CLOSING;
}

static uint64_t newest(const _Atomic uint64_t *name)
{
    return atomic_load_explicit(name, memory_order_acquire);
}

/* Whether the exchange is complete at all servers that it goes to. */
static bool is_whole_everywhere(const struct psd_job *job, uint32_t client, uint64_t name)
{
    uint32_t parts = psd_exchange_parts(newest(&job->lanes->shared.parts[client]), name);
    bool whole = (parts & 1) == 0 || !psd_exchange_is_later(name, newest(&job->lanes->shared.whole[client]));
    for (uint32_t i = 1; i < job->cfg->servers.count; i++)
        whole = whole && ((parts >> i & 1) == 0 ||
                          !psd_exchange_is_later(name, job->method_change.elsewhere[i].whole[client]));
    return whole;
}

/* incarnation 0: of the slot's newest exchange. */
static bool is_open_on(const struct psd_job *job, uint32_t client, uint32_t incarnation, uint32_t track)
{
    const struct psd_shared *shared = &job->lanes->shared;
    size_t at = psd_track_at(shared, client, track);
    uint64_t begun = newest(&shared->begun[at]);
    if (begun == 0 || (incarnation != 0 && !psd_exchange_is_of(begun, incarnation)) ||
        psd_exchange_is_later(newest(&shared->over[client]), begun))
        return false;
    if (psd_has_cluster(job->cfg))
        return !is_whole_everywhere(job, client, begun);
    return psd_exchange_is_later(begun, newest(&shared->whole[at]));
}

/* Whether an exchange of the slot's session has landed in some chunks and not in others. With several servers
 * all are on track 0. */
static bool has_open(const struct psd_job *job, const struct psd_session *s)
{
    bool open = false;
    for (uint32_t k = 0; k < (psd_has_cluster(job->cfg) ? 1 : PS_MAX_TRACKS); k++)
        open = open || is_open_on(job, s->client, s->incarnation, k);
    return open;
}

static bool is_open(const struct psd_job *job, const struct psd_session *s)
{
    return s->state == PSD_SESSION_ACTIVE && has_open(job, s);
}

/* A worker of the checkpoint that has not come back may have an exchange there that has landed in part. Only
 * the method that it began under can complete it, so a change waits for the worker, while its slot is
 * reserved. */
static bool expects_some(const struct psd_job *job)
{
    for (uint32_t i = 0; i < job->sessions->n_workers_max; i++) {
        const struct psd_session *s = &job->sessions->slots[i];
        if (s->state == PSD_SESSION_VACANT && s->incarnation == 0 &&
            s->reserved_until_ms > psd_loop_now_ms(job->loop))
            return true;
    }
    return false;
}

/* Those that were not back in time cannot complete such an exchange any more, and it must not land again. */
static void refuse_who_is_late(struct psd_job *job)
{
    for (uint32_t i = 0; i < job->sessions->n_slots; i++) {
        struct psd_session *s = &job->sessions->slots[i];
        if (s->state != PSD_SESSION_VACANT || s->incarnation != 0 || !has_open(job, s))
            continue;
        for (uint32_t k = 0; k < PS_MAX_TRACKS; k++) {
            size_t at = psd_track_at(&job->lanes->shared, i, k);
            uint32_t of = (uint32_t)(newest(&job->lanes->shared.begun[at]) >> 32);
            s->incarnation = of > s->incarnation ? of : s->incarnation;
        }
        s->ended_ms = psd_loop_now_ms(job->loop);
        snprintf(s->end, sizeof s->end, "the method changed before it came back");
        ps_log(
            PS_LOG_WARN, "session.late",
            "rank %u (incarnation %u) of the checkpoint has not come back within limits.silence_s, with an "
            "exchange that has landed in part: the method changes without it, and it is refused from now on",
            i, s->incarnation);
    }
}

void psd_method_change_give_up(struct psd_job *job, uint32_t client, uint64_t name)
{
    psd_exchange_remember(&job->lanes->shared.whole[client], name);
    for (uint32_t i = 1; psd_has_cluster(job->cfg) && i < job->cfg->servers.count; i++)
        if (psd_exchange_is_later(name, job->method_change.elsewhere[i].whole[client]))
            job->method_change.elsewhere[i].whole[client] = name;
}

static uint32_t count_open(const struct psd_job *job)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < job->sessions->n_slots; i++)
        n += is_open(job, &job->sessions->slots[i]);
    return n;
}

static void set_deadline(struct psd_job *job)
{
    job->method_change.deadline_ms = psd_loop_now_ms(job->loop) + (uint64_t)job->cfg->limits.silence_s * 1000;
}

static void close_lanes(struct psd_job *job)
{
    uint32_t n = job->sessions->n_slots;
    job->method_change.phase = PSD_METHOD_CHANGE_CLOSING;
    job->method_change.lanes_left = job->lanes->n;
    job->method_change.n_open = 0;
    set_deadline(job);
    for (uint32_t i = 1; psd_has_cluster(job->cfg) && i < job->cfg->servers.count; i++) {
        memset(job->method_change.elsewhere[i].begun, 0, n * sizeof *job->method_change.elsewhere[i].begun);
        memset(job->method_change.elsewhere[i].whole, 0, n * sizeof *job->method_change.elsewhere[i].whole);
    }
    psd_tell_lanes(job->lanes,
                   &(struct psd_lane_message){.kind = PSD_COMMAND_CLOSE, .a = ++job->method_change.closings});
}

/* With several servers, after all lanes have closed: what has begun at any server must be completed at every
 * server. */
static void publish_begun(struct psd_job *job)
{
    for (uint32_t c = 0; psd_has_cluster(job->cfg) && c < job->sessions->n_slots; c++) {
        for (uint32_t i = 1; i < job->cfg->servers.count; i++) {
            const struct psd_exchanges_elsewhere *s = &job->method_change.elsewhere[i];
            if (psd_exchange_remember(&job->lanes->shared.begun[c], s->begun[c]))
                atomic_store_explicit(&job->lanes->shared.parts[c], s->begun[c] << 32 | s->parts[c],
                                      memory_order_release);
        }
        if (is_open(job, &job->sessions->slots[c]))
            psd_tell_other_lanes(job->lanes,
                                 &(struct psd_lane_message){.kind = PSD_COMMAND_BEGAN,
                                                            .client = c,
                                                            .a = newest(&job->lanes->shared.begun[c])});
    }
}

/* Combines the servers' complete exchanges, which are reported to the clients. */
static void gather_whole(struct psd_job *job)
{
    for (uint32_t i = 1; psd_has_cluster(job->cfg) && i < job->cfg->servers.count; i++)
        for (uint32_t c = 0; c < job->sessions->n_slots; c++)
            psd_exchange_remember(&job->lanes->shared.whole[c], job->method_change.elsewhere[i].whole[c]);
}

/* Without rounds each server's checkpoints are of its own version, and servers under rounds cannot go on from
 * them together: until the next checkpoint is due the job would end with the loss of any of them. */
static bool needs_checkpoint(const struct psd_job *job, const struct psd_admission *was)
{
    return psd_has_cluster(job->cfg) && psd_is_head(job->cfg) && job->center != NULL &&
           job->center->admission->rounds && !was->rounds;
}

/* The change takes effect; lanes have the new center, if there is one. */
static void finish(struct psd_job *job)
{
    struct psd_method_change *w = &job->method_change;
    bool again = w->again;
    char was[sizeof job->cfg->method];
    const struct psd_admission *admission = psd_admission_find(job->cfg->admission);
    snprintf(was, sizeof was, "%s", job->cfg->method);
    bool keeps_shares =
        strcmp(job->cfg->rule, w->next.rule) == 0 && job->cfg->hyper.workers == w->next.hyper.workers;
    psd_stats_rule_ends(job);
    *job->cfg = w->next;
    job->reload.layers = w->layers;
    ps_log_set_lowest((enum ps_log_level)ps_log_level_parse(job->cfg->log_level));
    w->phase = PSD_METHOD_CHANGE_NONE;
    w->again = w->agreed = false;
    w->n_changes++;
    uint32_t generation =
        atomic_fetch_add_explicit(&job->lanes->shared.generation, 1, memory_order_relaxed) + 1;
    if (!keeps_shares)
        job->shares_since = generation;
    job->reload.recorded = psd_journal_put_method(job);
    psd_job_method_changed(job, keeps_shares);
    job->hooks.welcome_all(job->psd);
    psd_set_conclude(job, "");
    psd_membership_method_changed(job, keeps_shares);
    if (job->center != NULL)
        psd_job_unpark(job); /* they join the set that is published */
    psd_checkpointer_go_on(job);
    if (needs_checkpoint(job, admission))
        psd_checkpointer_begin(job);
    if (!job->reload.untold) {
        ps_log(
            PS_LOG_INFO, "job.swapped",
            "generation %u: method %s (rule %s, admission %s, optimizer %s) after %s, from version %" PRIu64,
            generation, job->cfg->method, job->cfg->rule, job->cfg->admission, job->cfg->optimizer, was,
            psd_version(job->lanes));
        psd_history_tell_method(job, job->cfg, was, generation);
    }
    if (again)
        psd_reload(job, &(struct ps_error){""});
}

static void hand_over(struct psd_job *job)
{
    struct psd_center *old = job->center;
    uint64_t moves = 0;
    for (uint32_t i = 0; i < job->lanes->n; i++) {
        uint64_t here = atomic_load_explicit(&job->lanes->list[i]->stats.moves, memory_order_relaxed);
        moves = here > moves ? here : moves;
    }
    job->center = job->method_change.center;
    job->method_change.center = NULL;
    psd_center_take_over(job->center, old, psd_version(job->lanes), moves);
    finish(job);
}

static uint64_t mask_of(uint32_t n_lanes)
{
    return n_lanes < 64 ? (UINT64_C(1) << n_lanes) - 1 : UINT64_MAX;
}

/* All servers continue from one version, since rounds are counted from it. The lanes' counts here are
 * final. */
static void empty_others(struct psd_job *job)
{
    uint64_t version = psd_stats_version(job);
    atomic_store_explicit(&job->lanes->shared.version, version, memory_order_relaxed);
    psd_tell_other_lanes(job->lanes, &(struct psd_lane_message){.kind = PSD_COMMAND_SLICE, .a = version});
}

static void note_released(struct psd_job *job, uint64_t lanes)
{
    struct psd_method_change *w = &job->method_change;
    uint64_t own = mask_of(job->lanes->n_own), before = w->released;
    w->released |= lanes;
    if (psd_has_cluster(job->cfg) && (before & own) != own && (w->released & own) == own)
        empty_others(job);
    if (w->phase == PSD_METHOD_CHANGE_EMPTYING && w->released == mask_of(job->lanes->n))
        hand_over(job);
}

void psd_method_change_released(struct psd_job *job, const struct psd_lane *lane)
{
    note_released(job, UINT64_C(1) << lane->index);
}

static void close_or_go_on(struct psd_job *job)
{
    struct psd_method_change *w = &job->method_change;
    if (w->phase != PSD_METHOD_CHANGE_CLOSING || w->lanes_left > 0 || count_open(job) > 0)
        return;
    w->phase = PSD_METHOD_CHANGE_EMPTYING;
    w->released = 0;
    refuse_who_is_late(job);
    gather_whole(job);
    for (uint32_t i = 0; i < job->lanes->n_own; i++) /* the other servers' lanes follow in empty_others */
        psd_queue_push(job->lanes->list[i]->in, &(struct psd_lane_message){.kind = PSD_COMMAND_SLICE});
}

void psd_method_change_closed(struct psd_job *job, uint64_t number)
{
    if (number != job->method_change.closings)
        return; /* from a change that was dropped */
    if (--job->method_change.lanes_left == 0 && job->method_change.phase == PSD_METHOD_CHANGE_CLOSING)
        publish_begun(job);
    close_or_go_on(job);
}

/* Whether an exchange is open because its client is silent. Others may only wait for it. */
static bool is_one_silent(const struct psd_job *job)
{
    for (uint32_t i = 0; i < job->sessions->n_slots; i++)
        if (is_open(job, &job->sessions->slots[i]) && psd_job_is_silent(job, &job->sessions->slots[i]))
            return true;
    return false;
}

/* Ends the sessions with open exchanges that are silent, or if none is, all with open exchanges. */
static void evict_late(struct psd_job *job)
{
    char why[160];
    bool silent = is_one_silent(job);
    for (uint32_t i = 0; i < job->sessions->n_slots; i++) {
        struct psd_session *s = &job->sessions->slots[i];
        if (!is_open(job, s) || (silent && !psd_job_is_silent(job, s)))
            continue;
        snprintf(why, sizeof why,
                 "its exchange stayed open for %u s during a method change (limits.silence_s)",
                 job->cfg->limits.silence_s);
        psd_send_error(job->sender, s, PS__CODE__EVICTED, true, why);
        psd_job_end(job, s, PS__CODE__EVICTED, why);
    }
}

/* A client that does not complete its exchange is waited for no longer than limits.silence_s. Those who
 * waited for it can go on when it is given up: each end of an open exchange gives the others as long again.
 */
static void look_after_open(struct psd_job *job)
{
    struct psd_method_change *w = &job->method_change;
    uint32_t n = count_open(job);
    if (n < w->n_open)
        set_deadline(job);
    w->n_open = n;
    if (psd_loop_now_ms(job->loop) > w->deadline_ms)
        evict_late(job);
}

/* Creates the next center; it must be able to take over from the present one. */
static int make_center(struct psd_job *job, struct ps_error *err)
{
    if (job->method_change.center != NULL || job->state != PSD_STATE_READY)
        return 0;
    return psd_center_replace(&job->method_change.next, psd_admission_find(job->method_change.next.admission),
                              job->center, &job->method_change.center, err);
}

/* The change was valid when it was requested, but is not possible now. */
static void refuse(struct psd_job *job, const char *why)
{
    struct psd_method_change *w = &job->method_change;
    if (psd_has_cluster(job->cfg))
        job->hooks.drop_others(job->psd);
    psd_center_abandon(w->center);
    w->center = NULL;
    w->phase = PSD_METHOD_CHANGE_NONE;
    w->agreed = false;
    job->reload.n_refused++;
    ps_fail(&job->reload.last, 0, "%s", why);
    psd_set_conclude(job, why);
    if (!job->reload.untold) {
        ps_log(PS_LOG_ERROR, "reload.refused", "%s; the method stays %s", why, job->cfg->method);
        psd_history_tell(job, PSD_EVENT_METHOD, "the change was refused: %s", why);
    }
    if (w->again) {
        w->again = false;
        psd_reload(job, &(struct ps_error){""});
    }
}

/* Whether the other servers have still to try it, in the present state. */
static bool must_ask(const struct psd_job *job)
{
    return psd_has_cluster(job->cfg) && !(job->method_change.agreed && job->method_change.with_center ==
                                                                           (job->state != PSD_STATE_WAITING));
}

static void ask(struct psd_job *job)
{
    struct psd_method_change *w = &job->method_change;
    struct ps_error err;
    uint32_t generation = atomic_load_explicit(&job->lanes->shared.generation, memory_order_relaxed);
    w->phase = PSD_METHOD_CHANGE_ASKING;
    w->with_center = job->state != PSD_STATE_WAITING;
    if (job->hooks.try_others(job->psd, generation + w->method, &err) < 0)
        refuse(job, err.text);
}

/* Applies a change that does not concern the lanes. */
static void make_at_once(struct psd_job *job)
{
    struct psd_method_change *w = &job->method_change;
    if (psd_has_cluster(job->cfg))
        job->hooks.make_others(job->psd);
    if (w->method) {
        finish(job);
        return;
    }
    w->phase = PSD_METHOD_CHANGE_NONE;
    w->agreed = false;
    psd_layers_apply(job, &w->layers, &w->next);
    psd_set_conclude(job, "");
}

static void begin_if_possible(struct psd_job *job)
{
    struct ps_error err;
    bool ready = job->state == PSD_STATE_READY && !job->checkpointer.busy && !job->membership.holding &&
                 !(job->method_change.method && expects_some(job)) &&
                 (!psd_has_cluster(job->cfg) || job->hooks.others_saved(job->psd));
    if (job->state != PSD_STATE_WAITING && !ready)
        return;
    if (must_ask(job)) {
        ask(job);
    } else if (job->state == PSD_STATE_WAITING || !job->method_change.method) {
        make_at_once(job);
    } else if (make_center(job, &err) <
               0) { /* the model has arrived meanwhile, and the change does not fit it */
        refuse(job, err.text);
    } else {
        close_lanes(job);
    }
}

void psd_method_change_tried(struct psd_job *job, const char *refused)
{
    if (job->method_change.phase != PSD_METHOD_CHANGE_ASKING)
        return;
    if (refused != NULL) {
        refuse(job, refused);
        return;
    }
    job->method_change.phase = PSD_METHOD_CHANGE_DUE;
    job->method_change.agreed = true;
    begin_if_possible(job);
}

void psd_method_change_server_lost(struct psd_job *job, uint64_t lanes, const char *who)
{
    char why[300];
    bool closing = job->method_change.phase == PSD_METHOD_CHANGE_CLOSING;
    if (job->method_change.phase == PSD_METHOD_CHANGE_EMPTYING) {
        note_released(job, lanes); /* the server applies the change when it comes back */
        return;
    }
    if (job->method_change.phase != PSD_METHOD_CHANGE_ASKING && !closing)
        return;
    snprintf(why, sizeof why, "%s was lost during the change of the configuration", who);
    if (closing)
        psd_tell_lanes(job->lanes, &(struct psd_lane_message){.kind = PSD_COMMAND_OPEN});
    refuse(job, why);
    if (!closing)
        return;
    psd_checkpointer_go_on(job);
    psd_job_unpark(job);
}

void psd_method_change_check(struct psd_job *job)
{
    if (!psd_is_head(job->cfg))
        return; /* the head's loop decides */
    if (job->method_change.phase == PSD_METHOD_CHANGE_DUE)
        begin_if_possible(job);
    if (job->method_change.phase == PSD_METHOD_CHANGE_CLOSING)
        look_after_open(job);
    close_or_go_on(job);
}

void psd_method_change_cancel(struct psd_job *job)
{
    if (psd_method_change_is_closing(job))
        return;
    if (psd_has_cluster(job->cfg) &&
        (job->method_change.phase == PSD_METHOD_CHANGE_ASKING || job->method_change.agreed))
        job->hooks.drop_others(job->psd);
    job->method_change.phase = PSD_METHOD_CHANGE_NONE;
    job->method_change.agreed = false;
    psd_center_abandon(job->method_change.center);
    job->method_change.center = NULL;
}

static int begin(struct psd_job *job, const struct psd_config *next, const struct psd_config_layers *layers,
                 bool method, struct ps_error *err)
{
    if (psd_method_change_is_closing(job)) {
        job->method_change.again = true;
        return 0;
    }
    psd_method_change_cancel(job);
    job->method_change.next = *next;
    job->method_change.layers = *layers;
    job->method_change.method = method;
    int rc = method ? make_center(job, err) : 0;
    if (rc < 0)
        return rc;
    job->method_change.phase = PSD_METHOD_CHANGE_DUE;
    begin_if_possible(job);
    return 0;
}

int psd_method_change_begin(struct psd_job *job, const struct psd_config *next,
                            const struct psd_config_layers *layers, struct ps_error *err)
{
    return begin(job, next, layers, true, err);
}

/* Whether all other servers are connected is known at once. */
int psd_method_change_begin_all(struct psd_job *job, const struct psd_config *next,
                                const struct psd_config_layers *layers, bool method, struct ps_error *err)
{
    int rc = job->hooks.check_others(job->psd, err);
    return rc < 0 ? rc : begin(job, next, layers, method, err);
}
