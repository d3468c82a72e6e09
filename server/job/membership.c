/* Membership: decided here, so that every lane derives the same order from it.
 *
 * The first round begins when `workers` of them are active. If that is `any`, or after a restart of psd that
 * some workers survived, it begins once the workers of the checkpoint are back or their time has run out.
 * Later the set changes between rounds: the lanes hold (PSD_COMMAND_HOLD), each reports the first round that
 * it has not begun, and the new set is valid from the latest of these. A checkpoint has the center after that
 * round, so that its answers can tell the workers to save their own part. A member that ends needs no hold:
 * lanes remove it from every round that is not complete.
 *
 * Without rounds (ssp) the same applies to clocks: each lane reports the clock of the slowest member, and new
 * members start with the highest of these, the same in every lane; a checkpoint needs no hold.
 *
 * The lanes of a lost server are waited for: when it is back, all servers restart from the newest version
 * that they have in common. A draining psd takes no server back and waits for no lost one. Runs on the
 * loop. */
#include "server/job/job.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "proto/log.h"
#include "server/admissions/admissions.h"

_Static_assert(PSD_MAX_LANES <= 64, "psd_membership.awaited has a bit for each lane");

static bool has_members(const struct psd_job *job)
{
    return job->center != NULL && job->center->admission->members;
}

int psd_membership_init(struct psd_job *job)
{
    job->membership.members.ranks = calloc(job->sessions->n_slots, sizeof *job->membership.members.ranks);
    return job->membership.members.ranks != NULL ? psd_partial_rounds_init(job) : -ENOMEM;
}

void psd_membership_finish(struct psd_job *job)
{
    free(job->membership.members.ranks);
    psd_partial_rounds_finish(job);
}

void psd_membership_reset(struct psd_job *job)
{
    struct psd_membership *m = &job->membership;
    *m = (struct psd_membership){.away = m->away, .members = {.ranks = m->members.ranks}};
    psd_partial_rounds_reset(job);
}

/* The set is every active worker. Slots are in order of rank. */
static void publish(struct psd_job *job, uint64_t from)
{
    struct psd_members *m = &job->membership.members;
    m->from = from;
    m->n = 0;
    for (uint32_t i = 0; i < job->sessions->n_workers_max; i++)
        if (job->sessions->slots[i].state == PSD_SESSION_ACTIVE)
            m->ranks[m->n++] = i;
    if (ps_log_allows(&job->sender->log_limit, "round.members", "changes of the members"))
        ps_log(PS_LOG_INFO, "round.members", "%u workers take part from %s %" PRIu64, m->n,
               job->center->admission->rounds ? "round" : "clock", from);
    psd_tell_lanes(job->lanes, &(struct psd_lane_message){.kind = PSD_COMMAND_MEMBERS, .p = m});
    psd_partial_rounds_consider(job);
}

/* Whether workers of the checkpoint may still come back. */
static bool expects_some(const struct psd_job *job)
{
    for (uint32_t i = 0; i < job->sessions->n_workers_max; i++)
        if (job->sessions->slots[i].state == PSD_SESSION_VACANT &&
            job->sessions->slots[i].reserved_until_ms > psd_loop_now_ms(job->loop))
            return true;
    return false;
}

static uint32_t count_active(const struct psd_job *job)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < job->sessions->n_workers_max; i++)
        n += job->sessions->slots[i].state == PSD_SESSION_ACTIVE;
    return n;
}

static bool are_enough(const struct psd_job *job)
{
    uint32_t wanted = job->cfg->hyper.workers, n = count_active(job);
    /* Workers that survived a restart of psd wait at most silence_s for the others of the checkpoint. */
    bool may_begin = n > 0 && !expects_some(job);
    return (wanted > 0 && n >= wanted) || ((wanted == 0 || job->membership.revived) && may_begin);
}

/* Called when all awaited lanes hold. */
static void all_hold(struct psd_job *job)
{
    struct psd_membership *m = &job->membership;
    if (m->join_due)
        publish(job, m->first);
    if (m->save_due)
        psd_checkpointer_take(job, m->first + 1);
    m->holding = m->join_due = m->save_due = false;
    psd_tell_lanes(job->lanes, &(struct psd_lane_message){.kind = PSD_COMMAND_GO});
    psd_method_change_check(job);
}

static void check_all_hold(struct psd_job *job)
{
    struct psd_membership *m = &job->membership;
    if (job->state >= PSD_STATE_DRAINING)
        m->awaited &= ~m->away;
    if (m->holding && m->awaited == 0)
        all_hold(job);
}

static void hold(struct psd_job *job)
{
    struct psd_membership *m = &job->membership;
    if (m->holding)
        return;
    m->holding = true;
    m->awaited = job->lanes->n < 64 ? (UINT64_C(1) << job->lanes->n) - 1 : UINT64_MAX;
    m->first = 0;
    psd_tell_lanes(job->lanes, &(struct psd_lane_message){.kind = PSD_COMMAND_HOLD});
    check_all_hold(job);
}

void psd_membership_joined(struct psd_job *job)
{
    struct psd_membership *m = &job->membership;
    if (!has_members(job) || psd_method_change_is_closing(job))
        return; /* the next method starts with every active worker */
    if (m->started) {
        m->join_due = true;
        hold(job);
    } else if (are_enough(job)) {
        m->started = true;
        publish(job, 0);
        psd_tell_lanes(job->lanes, &(struct psd_lane_message){.kind = PSD_COMMAND_GO});
    } else if (psd_membership_awaits(job) > 0 &&
               ps_log_allows(&job->sender->log_limit, "round.waits", "workers that wait for others")) {
        ps_log(PS_LOG_INFO, "round.waits",
               "%u of %u workers are there (workers): the first %s waits for the others", count_active(job),
               psd_membership_awaits(job), job->center->admission->rounds ? "round" : "step");
    }
}

uint32_t psd_membership_awaits(const struct psd_job *job)
{
    const struct psd_membership *m = &job->membership;
    uint32_t wanted = job->cfg->hyper.workers;
    return has_members(job) && !m->started && !m->revived && count_active(job) < wanted ? wanted : 0;
}

void psd_membership_save(struct psd_job *job)
{
    job->membership.save_due = true;
    hold(job);
}

void psd_membership_method_changed(struct psd_job *job, bool keeps_shares)
{
    psd_membership_reset(job);
    if (!has_members(job) || psd_sessions_count_in(job->sessions, false, PSD_SESSION_ACTIVE) == 0)
        return;
    if (job->center->info->fixed_workers && !keeps_shares && !are_enough(job))
        return; /* one that joined later would begin at a center that the others have moved */
    job->membership.started = true;
    publish(job, 0);
    psd_tell_lanes(job->lanes, &(struct psd_lane_message){.kind = PSD_COMMAND_GO});
}

void psd_membership_held(struct psd_job *job, const struct psd_lane *lane, uint64_t first)
{
    struct psd_membership *m = &job->membership;
    uint64_t bit = UINT64_C(1) << lane->index;
    if (!m->holding || (m->awaited & bit) == 0)
        return; /* the hold was abandoned */
    m->awaited &= ~bit;
    if (first > m->first)
        m->first = first;
    check_all_hold(job);
}

void psd_membership_away(struct psd_job *job, uint64_t lanes, bool away)
{
    struct psd_membership *m = &job->membership;
    m->away = away ? m->away | lanes : m->away & ~lanes;
    check_all_hold(job);
}

void psd_membership_drain(struct psd_job *job)
{
    check_all_hold(job);
}
