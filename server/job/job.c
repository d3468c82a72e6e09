/* The job: offers of the initial x, membership, and its end. Runs on the loop. */
#include "server/job/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "proto/clock.h"
#include "proto/log.h"
#include "server/admissions/admissions.h"

void psd_job_update_rates(struct psd_job *job)
{
    uint32_t p = job->cfg->clique.mode == PS_CLIQUE_VECTORS ? psd_sessions_members(job->sessions)
                                                            : psd_sessions_count(job->sessions, false);
    bool sync = ps_admission_find(job->cfg->admission)->merges || job->cfg->clique.mode == PS_CLIQUE_VECTORS;
    float alpha = ps_rule_find(job->cfg->rule)->uses & PS_USES_RATE
                      ? (float)ps_hyper_alpha(&job->cfg->hyper, p, sync)
                      : 0;
    atomic_store_explicit(&job->lanes->shared.alpha, alpha, memory_order_relaxed);
    atomic_store_explicit(&job->lanes->shared.mean_rate, 1.0f / (float)(p > 0 ? p : 1), memory_order_relaxed);
}

struct psd_lane_message psd_lane_message_admit(const struct psd_session *s, enum psd_phase phase,
                                               bool keep_replay)
{
    struct psd_lane_message msg = {.kind = PSD_COMMAND_ADMIT,
                                   .client = s->client,
                                   .incarnation = s->incarnation,
                                   .a = phase,
                                   .b = keep_replay,
                                   .identity = s->identity_id,
                                   .attaches = s->may_attach,
                                   .p = (char *)(uintptr_t)s->identity};
    memcpy(msg.pass, s->pass, sizeof msg.pass);
    return msg;
}

void psd_job_admit(struct psd_job *job, struct psd_session *s, enum psd_phase phase, bool keep_replay)
{
    if (!keep_replay) {
        struct psd_shared *shared = &job->lanes->shared;
        for (uint32_t k = 0; k < PS_MAX_TRACKS; k++)
            atomic_store_explicit(&shared->lanes_done[psd_track_at(shared, s->client, k)], 0,
                                  memory_order_relaxed);
        atomic_store_explicit(&job->lanes->shared.exchanges[s->client], 0, memory_order_relaxed);
        atomic_store_explicit(&job->lanes->shared.clocks[s->client], 0, memory_order_relaxed);
    }
    struct psd_lane_message msg = psd_lane_message_admit(s, phase, keep_replay);
    psd_stats_limit_registered(job);
    psd_tell_lanes(job->lanes, &msg);
}

uint64_t psd_job_clock_of(const struct psd_job *job, const struct psd_session *s)
{
    uint64_t clock = s->clock;
    bool admitted = s->state == PSD_SESSION_ACTIVE || s->state == PSD_SESSION_VACANT;
    for (uint32_t i = 0; admitted && job->center != NULL && i < job->lanes->n; i++) {
        const struct psd_lane_client *c = &job->lanes->list[i]->clients[s->client];
        if (c->clock > clock && psd_lane_serves(job->lanes->list[i], job->center, s->client))
            clock = c->clock;
    }
    return clock;
}

uint64_t psd_job_clock(const struct psd_job *job)
{
    uint64_t furthest = job->resumed_clock;
    for (uint32_t i = 0; i < job->sessions->n_workers_max; i++) {
        uint64_t clock = psd_job_clock_of(job, &job->sessions->slots[i]);
        if (clock > furthest && clock <= PS_MAX_STEPS)
            furthest = clock;
    }
    return furthest;
}

/* The first workers of a job begin at 0, whenever each of them starts. Later ones go on where the furthest
 * is: the rate of the first steps would disturb the center. A worker is late in a resumed job, when another
 * has left or may be lost, and when `workers` of them are there. */
uint64_t psd_job_first_clock(const struct psd_job *job)
{
    uint32_t wanted = job->cfg->hyper.workers, n = 0;
    uint64_t now_ms = psd_loop_now_ms(job->loop);
    bool late = job->resumed_clock > 0 || job->has_left;
    for (uint32_t i = 0; i < job->sessions->n_workers_max; i++) {
        const struct psd_session *s = &job->sessions->slots[i];
        if (s->state == PSD_SESSION_VACANT)
            continue;
        n++;
        late = late || s->revived || psd_session_is_silent(s, now_ms, job->cfg->limits.silence_s);
    }
    return late || (wanted > 0 && n >= wanted) ? psd_job_clock(job) : 0;
}

/* Longest time that a worker waits until the state directory has recorded it. */
enum { RECORD_MS = 2000 };

static void activate(struct psd_job *job, struct psd_session *s, bool keep_replay)
{
    s->state = PSD_SESSION_ACTIVE;
    s->step = (struct psd_session_step){.awaited = false};
    if (!s->observer)
        psd_journal_wake(job);
    s->recorded = psd_journal_put(job);
    psd_job_admit(job, s, s->observer ? PSD_PHASE_OBSERVING : PSD_PHASE_ACTIVE, keep_replay);
    if (s->told)
        psd_history_tell(job, PSD_EVENT_JOIN, "%s joined as %s %u", s->name,
                         s->observer ? "observer" : "rank", s->client);
    if (s->observer)
        return;
    s->took_part = true;
    psd_membership_joined(job);
}

/* Some rules keep a vector for each of a fixed number of workers. If that is the worker's part of the center,
 * a lost worker cannot be replaced; one that left can continue from the state that it saved. Returns false if
 * the session was refused. */
static bool may_have_rank(struct psd_job *job, struct psd_session *s)
{
    const struct ps_rule_info *rule = ps_rule_find(job->cfg->rule);
    uint32_t p = job->cfg->hyper.workers;
    char why[240];
    if (s->observer || (rule->uses & PS_USES_WORKERS) == 0)
        return true;
    if (s->client >= p)
        snprintf(why, sizeof why, "rank %u: rule %s has a fixed number of %u workers (workers: %u)",
                 s->client, job->cfg->rule, p, p);
    else if (rule->fixed_workers && s->took_part)
        snprintf(why, sizeof why,
                 "rank %u was lost: rule %s keeps its part in the center, so that no new worker can replace "
                 "it; resume psd from a checkpoint, with the state that the workers saved",
                 s->client, job->cfg->rule);
    else
        return true;
    psd_send_error(job->sender, s, PS__CODE__RANK_RANGE, true, why);
    psd_job_end(job, s, PS__CODE__RANK_RANGE, why);
    return false;
}

/* A joining worker may act on Begun, so the state directory must have recorded it first. */
static void send_begun_when_recorded(struct psd_job *job, struct psd_session *s)
{
    s->begun_by_ms = 0;
    if (psd_journal_has(job, s->recorded))
        psd_send_begun(job->sender, s, psd_version(job->lanes));
    else
        s->begun_by_ms = psd_loop_now_ms(job->loop) + RECORD_MS;
}

static uint64_t bytes_beyond(const struct ps_manifest *m, uint64_t window_bytes)
{
    uint64_t bytes = m != NULL ? ps_manifest_most_bytes(m) : 0;
    return bytes > window_bytes ? bytes - window_bytes : 0;
}

/* Whether the manifests of those who wait fit into limits.memory_gib. Who waits has sent no chunk yet: a
 * manifest takes the room of its client's window, which is counted already. */
static bool may_wait(const struct psd_job *job, const struct ps_manifest *m)
{
    struct psd_totals t;
    uint64_t window_bytes = psd_stats_window_bytes(job), bytes = bytes_beyond(m, window_bytes);
    if (bytes == 0)
        return true;
    for (uint32_t i = 0; i < job->sessions->n_slots; i++)
        bytes += bytes_beyond(job->sessions->slots[i].parked, window_bytes);
    psd_stats_totals(job, &t);
    bytes += psd_stats_memory_bytes(&t);
    return (double)bytes <= job->cfg->limits.memory_gib * (double)(1u << 30);
}

/* Consumes m. */
static void park(struct psd_job *job, struct psd_session *s, struct ps_manifest *m, const char *reason)
{
    ps_manifest_destroy(s->parked);
    s->parked = NULL;
    if (!may_wait(job, m)) {
        const char *why = "the models of those who wait for the center exceed limits.memory_gib";
        ps_manifest_destroy(m);
        psd_send_error(job->sender, s, PS__CODE__LIMIT, true, why);
        psd_job_end(job, s, PS__CODE__LIMIT, why);
        return;
    }
    s->state = PSD_SESSION_PARKED;
    s->parked = m;
    psd_send_parked(job->sender, s, reason);
}

/* Hands the center to the lanes. */
static void hand_out(struct psd_job *job)
{
    job->lanes_filled = job->lanes_unfilled = job->lanes_released = 0;
    psd_tell_lanes(job->lanes, &(struct psd_lane_message){.kind = PSD_COMMAND_SLICE, .p = job->center});
}

static void take_offer(struct psd_job *job, struct psd_session *s, struct ps_manifest *m)
{
    struct ps_error err;
    int rc = psd_center_create(job->cfg, psd_admission_find(job->cfg->admission), m, &job->center, &err);
    if (rc < 0) {
        psd_send_error(job->sender, s, PS__CODE__LIMIT, true, err.text);
        psd_job_end(job, s, PS__CODE__LIMIT, err.text);
        return;
    }
    job->center->generation = atomic_load_explicit(&job->lanes->shared.generation, memory_order_relaxed);
    job->state = PSD_STATE_OFFERED;
    s->state = PSD_SESSION_OFFERING;
    hand_out(job);
    psd_job_admit(job, s, PSD_PHASE_OFFERING, false);
    if (s->told)
        ps_log(PS_LOG_INFO, "job.offered", "%s offers a model of %" PRIu64 " floats in %zu tensors", s->name,
               job->center->manifest->n_floats, job->center->manifest->n_tensors);
    psd_journal_wake(job); /* with its last chunk it may exchange */
    s->recorded = psd_journal_put(job);
    send_begun_when_recorded(job, s);
}

/* Consumes m. False: it differs from the job's model, and the session has ended. */
static bool fits(struct psd_job *job, struct psd_session *s, struct ps_manifest *m)
{
    struct ps_error err, why;
    const struct ps_manifest *own = job->center->manifest;
    int rc = ps_manifest_compare(m, own, &err);
    if (rc < 0)
        ps_fail(&why, 0,
                "another model than the job's, %" PRIu64 " floats in %zu tensors instead of %" PRIu64
                " in %zu: %s; use the job's (psworker --net), or start another psd for this model",
                m->n_floats, m->n_tensors, own->n_floats, own->n_tensors, err.text);
    ps_manifest_destroy(m);
    if (rc < 0) {
        psd_send_error(job->sender, s, PS__CODE__MANIFEST, true, why.text);
        psd_job_end(job, s, PS__CODE__MANIFEST, why.text);
    }
    return rc == 0;
}

static void join(struct psd_job *job, struct psd_session *s, struct ps_manifest *m)
{
    if (!fits(job, s, m))
        return;
    activate(job, s, false);
    if (s->told)
        ps_log(PS_LOG_INFO, "session.joined", "%s joined as %s %u at version %" PRIu64, s->name,
               s->observer ? "observer" : "rank", s->client, psd_version(job->lanes));
    if (s->told && s->first_clock > 0)
        ps_log(PS_LOG_INFO, "session.late",
               "%s (rank %u) begins at step %" PRIu64
               ", where the furthest worker is, unless it loads a state",
               s->name, s->client, s->first_clock);
    send_begun_when_recorded(job, s);
}

void psd_job_begin(struct psd_job *job, struct psd_session *s, struct ps_manifest *m)
{
    /* A client whose Begun was lost with its connection asks again. */
    if (s->state == PSD_SESSION_ACTIVE || s->state == PSD_SESSION_OFFERING) {
        if (!fits(job, s, m))
            return;
        send_begun_when_recorded(job, s);
        return;
    }
    if (!may_have_rank(job, s)) {
        ps_manifest_destroy(m);
        return;
    }
    switch (job->state) {
    case PSD_STATE_WAITING:
        if (s->observer)
            park(job, s, m, "no worker has offered a model yet");
        else
            take_offer(job, s, m);
        break;
    case PSD_STATE_OFFERED:
    case PSD_STATE_EMPTYING:
        park(job, s, m, "the first worker is sending its parameters");
        break;
    case PSD_STATE_READY:
        if (psd_method_change_is_closing(job))
            park(job, s, m, "the method is changing");
        else
            join(job, s, m);
        break;
    default:
        ps_manifest_destroy(m);
        psd_send_error(job->sender, s, PS__CODE__DRAINING, true, "psd is draining: no new joins");
        psd_job_end(job, s, PS__CODE__DRAINING, "psd is draining");
    }
}

/* Handles waiting Begins as if they had just arrived. */
void psd_job_unpark(struct psd_job *job)
{
    for (uint32_t i = 0; i < job->sessions->n_slots; i++) {
        struct psd_session *s = &job->sessions->slots[i];
        if (s->state != PSD_SESSION_PARKED)
            continue;
        struct ps_manifest *m = s->parked;
        s->parked = NULL;
        s->state = PSD_SESSION_JOINING;
        psd_job_begin(job, s, m);
    }
}

static void become_ready(struct psd_job *job)
{
    job->state = PSD_STATE_READY;
    job->center_whole = true;
    psd_checkpointer_begin(job);
    for (uint32_t i = 0; i < job->sessions->n_slots; i++)
        if (job->sessions->slots[i].state == PSD_SESSION_OFFERING)
            activate(job, &job->sessions->slots[i], true); /* the lanes already let it exchange */
    job->ready_ms = job->history.last_ms = psd_loop_now_ms(job->loop);
    ps_log(PS_LOG_INFO, "job.ready", "the center is ready: %" PRIu64 " floats on %u lanes, method %s",
           job->center->manifest->n_floats, job->center->lanes_used, job->cfg->method);
    psd_job_unpark(job);
}

void psd_job_resume(struct psd_job *job)
{
    job->state = PSD_STATE_READY;
    job->center_whole = true;
    job->ready_ms = job->history.last_ms = psd_loop_now_ms(job->loop);
    hand_out(job);
    ps_log(PS_LOG_INFO, "job.resumed", "the center of version %" PRIu64 " was restored from %s",
           job->resumed_version, job->resumed_from);
}

/* Under admissions with members nobody moves the center before they are all there. */
static bool has_no_part_yet(const struct psd_job *job, const struct psd_session *s)
{
    bool had_one = s->revived && job->shares_since == 0; /* before psd was restarted */
    return job->center != NULL && job->center->admission->members && !job->membership.started && !had_one;
}

/* The others go on, but to another limit. */
static void warn_of_part(const struct psd_job *job, const struct psd_session *s)
{
    if (ps_rule_find(job->cfg->rule)->fixed_workers && s->client < job->cfg->hyper.workers)
        ps_log(
            PS_LOG_WARN, "session.part",
            "rank %u was lost: rule %s keeps its part in the center, to which the others are drawn from now "
            "on; without it: resume psd from a checkpoint, with the state that the workers saved",
            s->client, job->cfg->rule);
}

void psd_job_end(struct psd_job *job, struct psd_session *s, uint32_t code, const char *why)
{
    if (s->told)
        ps_log(code == PS__CODE__OK ? PS_LOG_INFO : PS_LOG_WARN, "session.ended",
               "%s (%s %u, incarnation %u): %s", s->name, s->observer ? "observer" : "rank", s->client,
               s->incarnation, why);
    bool was_in = s->state == PSD_SESSION_ACTIVE;
    bool offered = s->state == PSD_SESSION_OFFERING; /* the lanes may have let it exchange already */
    if (code != PS__CODE__OK)
        psd_loss_left(job, s, NULL);
    s->state = PSD_SESSION_VACANT;
    job->has_left = job->has_left || ((was_in || offered) && !s->observer);
    if (was_in && s->told)
        psd_history_tell(job, PSD_EVENT_END, "%s (%s %u): %s", s->name, s->observer ? "observer" : "rank",
                         s->client, why);
    s->took_part = s->took_part && code != PS__CODE__OK && !has_no_part_yet(job, s);
    if (was_in && s->took_part && job->state == PSD_STATE_READY)
        warn_of_part(job, s);
    s->begun_by_ms = 0;
    s->ended_ms = psd_loop_now_ms(job->loop);
    snprintf(s->end, sizeof s->end, "%s", why);
    ps_manifest_destroy(s->parked);
    s->parked = NULL;
    psd_tell_lanes(job->lanes,
                   &(struct psd_lane_message){.kind = PSD_COMMAND_END,
                                              .client = s->client,
                                              .a = code == PS__CODE__OK ? PS__CODE__NO_SESSION : code});
    psd_partial_rounds_forget(job, s->client);
    psd_job_update_rates(job);
    psd_method_change_check(job);
    psd_journal_put(job);
}

/* Ranks that came between the request and the change, when another rule was in force. */
static void end_ranks_beyond(struct psd_job *job)
{
    for (uint32_t i = job->cfg->hyper.workers; i < job->sessions->n_workers_max; i++)
        if (job->sessions->slots[i].state != PSD_SESSION_VACANT)
            may_have_rank(job, &job->sessions->slots[i]);
}

void psd_job_method_changed(struct psd_job *job, bool keeps_shares)
{
    end_ranks_beyond(job);
    psd_job_update_rates(job);
    if (job->center == NULL)
        return;
    atomic_store_explicit(&job->lanes->shared.rounds, 0, memory_order_relaxed);
    for (uint32_t i = 0; i < job->sessions->n_slots; i++) {
        struct psd_session *s = &job->sessions->slots[i];
        atomic_store_explicit(&job->lanes->shared.clocks[i], 0, memory_order_relaxed);
        s->took_part = (s->took_part && keeps_shares) || (s->state == PSD_SESSION_ACTIVE && !s->observer);
    }
    hand_out(job);
}

static void released(struct psd_job *job, const struct psd_lane *lane)
{
    if (psd_method_change_is_closing(job)) {
        psd_method_change_released(job, lane);
        return;
    }
    if (++job->lanes_released < job->lanes->n)
        return;
    psd_center_destroy(job->center);
    job->center = NULL;
    psd_membership_reset(job);
    if (job->state != PSD_STATE_EMPTYING)
        return; /* a drain began meanwhile and continues */
    job->state = PSD_STATE_WAITING;
    if (ps_log_allows(&job->sender->log_limit, "job.withdrawn", "offers"))
        ps_log(PS_LOG_WARN, "job.withdrawn",
               "the first worker left before it had sent its parameters; the next worker's will be used");
    psd_job_unpark(job);
}

/* Each lane reports once whether it has its part of the offer: when the part is complete, or when the
 * offering worker's session has ended. These events may arrive in any order relative to the worker's last
 * message. */
static void check_offer(struct psd_job *job)
{
    bool whole = job->center != NULL && job->lanes_filled == job->center->lanes_used;
    if (whole && job->state == PSD_STATE_OFFERED) {
        become_ready(job);
    } else if (whole && job->state == PSD_STATE_DRAINING) {
        job->center_whole = true; /* so that it is saved */
    } else if (job->state == PSD_STATE_OFFERED && job->lanes_filled + job->lanes_unfilled == job->lanes->n) {
        job->state = PSD_STATE_EMPTYING;
        psd_tell_lanes(job->lanes, &(struct psd_lane_message){.kind = PSD_COMMAND_SLICE});
    }
}

static void faulted(struct psd_job *job, const struct psd_lane_message *msg)
{
    struct psd_session *s = psd_sessions_find(job->sessions, msg->client, msg->incarnation);
    const char *name = protobuf_c_enum_descriptor_get_value(&ps__code__descriptor, (int)msg->a)->name;
    char why[128];
    if (s == NULL)
        return;
    if (msg->a == PS__CODE__VALUE)
        psd_job_note_nonfinite(job, s, s->clock, msg->b, true);
    snprintf(why, sizeof why,
             msg->a == PS__CODE__VALUE ? "its values, or the center with them, are not finite (%s)"
                                       : "a lane refused its data (%s)",
             name);
    psd_send_error(job->sender, s, (uint32_t)msg->a, true, why);
    psd_job_end(job, s, (uint32_t)msg->a, why);
}

void psd_job_take_message(struct psd_job *job, struct psd_lane *lane, const struct psd_lane_message *msg)
{
    switch (msg->kind) {
    case PSD_LANE_FILLED:
        job->lanes_filled++;
        check_offer(job);
        break;
    case PSD_LANE_UNFILLED:
        job->lanes_unfilled++;
        check_offer(job);
        break;
    case PSD_LANE_RELEASED:
        released(job, lane);
        break;
    case PSD_LANE_SNAPPED:
        psd_checkpointer_snapped(job, msg->a != 0);
        break;
    case PSD_LANE_HELD:
        psd_membership_held(job, lane, msg->a);
        break;
    case PSD_LANE_BEGUN:
    case PSD_LANE_LANDED:
        psd_partial_rounds_begun(job, lane, msg);
        break;
    case PSD_LANE_OVER:
        psd_partial_rounds_over(job, lane, msg->a);
        break;
    case PSD_LANE_CLOSED:
        psd_method_change_closed(job, msg->a);
        break;
    case PSD_LANE_WHOLE:
        if (msg->b != 0)
            psd_method_change_give_up(job, msg->client, msg->a);
        psd_method_change_check(job);
        break;
    default:
        faulted(job, msg);
    }
}

void psd_job_take_events(struct psd_job *job, struct psd_lane *lane)
{
    struct psd_lane_message msg;
    psd_queue_calm(lane->out);
    while (psd_queue_take(lane->out, &msg))
        psd_job_take_message(job, lane, &msg);
}

void psd_job_fail(struct psd_job *job, int code, const char *why)
{
    if (job->exit_code != 0)
        return;
    ps_log(PS_LOG_ERROR, "job.failed", "%s", why);
    job->exit_code = code;
    ps_fail(&job->end, 0, "%s", why);
    for (uint32_t i = 0; i < job->sessions->n_slots; i++)
        if (job->sessions->slots[i].state != PSD_SESSION_VACANT)
            psd_send_error(job->sender, &job->sessions->slots[i], PS__CODE__DRAINING, true, why);
    uv_stop(job->loop);
}

static void discount(uint64_t *since_ms, uint64_t slept_ms, uint64_t now)
{
    *since_ms += slept_ms - PSD_TICK_MS;
    *since_ms = *since_ms < now ? *since_ms : now;
}

/* Where every iteration is a little late, once a minute. */
static void tell_pause(struct psd_job *job, uint64_t slept_ms, uint64_t now)
{
    enum { LONG_MS = 2000, EVERY_MS = 60000 };
    if (slept_ms < LONG_MS && job->slept_said_ms != 0 && now - job->slept_said_ms < EVERY_MS)
        return;
    job->slept_said_ms = now;
    ps_log(PS_LOG_WARN, "job.slept",
           "psd was paused for %.1f s, which does not count as silence of its peers", (double)slept_ms / 1e3);
}

/* While psd was paused (a stopped process, an overloaded machine) it received no messages, so the pause
 * beyond one tick does not count as silence of the peers, nor as time that a change of the method or a
 * restart has waited for them. The tick does count, so that a psd whose every iteration is late still evicts
 * silent peers, only later. */
static void discount_own_pause(struct psd_job *job, uint64_t now)
{
    uint64_t looked_ms = job->checked_ms, slept_ms = now - looked_ms;
    job->checked_ms = now;
    if (slept_ms < PSD_SLEPT_MS)
        return;
    tell_pause(job, slept_ms, now);
    for (uint32_t i = 0; i < job->sessions->n_slots; i++) {
        struct psd_session *s = &job->sessions->slots[i];
        discount(&s->last_heard_ms, slept_ms, now);
        discount(&s->step.since_ms, slept_ms, now);
        if (s->reserved_until_ms > looked_ms)
            s->reserved_until_ms += slept_ms - PSD_TICK_MS;
    }
    job->method_change.deadline_ms += slept_ms - PSD_TICK_MS;
}

void psd_job_check_silence(struct psd_job *job)
{
    uint64_t now = psd_loop_now_ms(job->loop), limit_ms = (uint64_t)job->cfg->limits.silence_s * 1000;
    char why[96];
    discount_own_pause(job, now);
    for (uint32_t i = 0; i < job->sessions->n_slots; i++) {
        struct psd_session *s = &job->sessions->slots[i];
        if (s->state == PSD_SESSION_VACANT || now <= s->last_heard_ms + limit_ms)
            continue;
        snprintf(why, sizeof why, "silent for %.1f s (limits.silence_s: %u)",
                 (double)(now - s->last_heard_ms) / 1e3, job->cfg->limits.silence_s);
        psd_send_error(job->sender, s, PS__CODE__EVICTED, true, why);
        psd_job_end(job, s, PS__CODE__EVICTED, why);
    }
}

void psd_job_drain(struct psd_job *job, const char *why)
{
    if (job->state == PSD_STATE_DRAINING || job->state == PSD_STATE_STOPPING)
        return;
    ps_log(PS_LOG_INFO, "job.draining", "%s: %u workers are told to stop, %u s at most", why,
           psd_sessions_count(job->sessions, false), job->cfg->limits.drain_s);
    psd_method_change_cancel(job);
    job->state = PSD_STATE_DRAINING;
    job->drain_deadline_ms = psd_loop_now_ms(job->loop) + (uint64_t)job->cfg->limits.drain_s * 1000;
    snprintf(job->drain_reason, sizeof job->drain_reason, "%s", why);
    psd_send_drain(job->sender, why);
    psd_membership_drain(job);
    psd_history_tell(job, PSD_EVENT_DRAIN, "%s", job->drain_reason);
}

/* The tensor that contains the value; "" if unknown. */
static const char *tensor_of(const struct psd_job *job, uint64_t index)
{
    const struct ps_manifest *m = job->center != NULL ? job->center->manifest : NULL;
    return m != NULL && index < m->n_floats ? ps_manifest_tensor(m, index)->name : "";
}

void psd_job_note_nonfinite(struct psd_job *job, const struct psd_session *s, uint64_t clock, uint64_t index,
                            bool sent)
{
    struct psd_nonfinite *f = &job->nonfinite;
    char place[64 + PS_MAX_NAME_BYTES] = "";

    if (f->seen)
        return;
    *f = (struct psd_nonfinite){.seen = true,
                                .rank = s->client,
                                .incarnation = s->incarnation,
                                .clock = clock,
                                .version = psd_version(job->lanes),
                                .index = index,
                                .t_s = 1e-6 * (double)ps_wall_us(),
                                .sent = sent};
    snprintf(f->name, sizeof f->name, "%s", s->name);
    snprintf(f->tensor, sizeof f->tensor, "%s", tensor_of(job, index));
    if (f->tensor[0] != 0)
        snprintf(place, sizeof place, ", value %" PRIu64 " (tensor '%s')", index, f->tensor);
    ps_log(PS_LOG_WARN, "job.nonfinite",
           "the first value that is not finite: rank %u (%s, incarnation %u) at its t = %" PRIu64
           ", version %" PRIu64 "%s; %s",
           f->rank, f->name, f->incarnation, f->clock, f->version, place,
           sent ? "it was sent and refused" : "its library did not send it");
}
