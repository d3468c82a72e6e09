/* Membership: decided here once, so that every lane derives the same order from it.
 *
 * The first round begins when `workers` of them are active (any, or after a restart of psd that some of them
 * lived through: once those that the checkpoint knew are back or have had their time). Later a set changes
 * between rounds: lanes hold (PSD_COMMAND_HOLD), each says which round it has not begun, and the new set is
 * valid from the latest of these. A checkpoint is the center after that round, so that its answers can tell
 * the workers to save their own part. Who ends needs no hold: a lane takes him out of every round that is not
 * complete.
 *
 * Without rounds (ssp) the same holds of clocks: each lane says the clock of the slowest, and who is new
 * starts with the highest of these, the same in every lane; a checkpoint needs no hold.
 *
 * Lanes of a server that is lost are waited for: when it is back, all servers begin anew from what they have
 * in common. But a psd that drains takes no server back, and waits for none that is lost. Runs on the loop.
 */
#include "server/psd.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "proto/log.h"
#include "server/admissions/admissions.h"

_Static_assert(PSD_MAX_LANES <= 64, "psd_membership.owed has a bit for each lane");

static bool has_members(const struct psd *d)
{
    return d->center != NULL && d->center->admission->members;
}

int psd_membership_init(struct psd *d)
{
    d->membership.members.ranks = calloc(d->sessions.n_slots, sizeof *d->membership.members.ranks);
    return d->membership.members.ranks != NULL ? psd_partial_rounds_init(d) : -ENOMEM;
}

void psd_membership_finish(struct psd *d)
{
    free(d->membership.members.ranks);
    psd_partial_rounds_finish(d);
}

void psd_membership_reset(struct psd *d)
{
    struct psd_membership *m = &d->membership;
    *m = (struct psd_membership){.away = m->away, .members = {.ranks = m->members.ranks}};
    psd_partial_rounds_reset(d);
}

/* Everyone who is active. Slots are in order of rank. */
static void publish(struct psd *d, uint64_t from)
{
    struct psd_members *m = &d->membership.members;
    m->from = from;
    m->n = 0;
    for (uint32_t i = 0; i < d->sessions.n_workers_max; i++)
        if (d->sessions.slots[i].state == PSD_SESSION_ACTIVE)
            m->ranks[m->n++] = i;
    ps_log(PS_LOG_INFO, "round.members", "%u workers take part from %s %" PRIu64 " on", m->n,
           d->center->admission->rounds ? "round" : "clock", from);
    psd_tell_lanes(d, &(struct psd_lane_message){.kind = PSD_COMMAND_MEMBERS, .p = m});
    psd_partial_rounds_consider(d);
}

/* Workers of the checkpoint that may still come back. */
static bool expects_some(const struct psd *d)
{
    for (uint32_t i = 0; i < d->sessions.n_workers_max; i++)
        if (d->sessions.slots[i].state == PSD_SESSION_VACANT &&
            d->sessions.slots[i].reserved_until_ms > psd_loop_now_ms(&d->loop))
            return true;
    return false;
}

static bool are_enough(const struct psd *d)
{
    uint32_t wanted = d->cfg.hyper.workers, n = 0;
    for (uint32_t i = 0; i < d->sessions.n_workers_max; i++)
        n += d->sessions.slots[i].state == PSD_SESSION_ACTIVE;
    /* Workers that lived on while psd was away wait for those who did not no longer than silence allows. */
    bool may_begin = n > 0 && !expects_some(d);
    return (wanted > 0 && n >= wanted) || ((wanted == 0 || d->membership.revived) && may_begin);
}

/* All that are waited for have said that they hold. */
static void all_hold(struct psd *d)
{
    struct psd_membership *m = &d->membership;
    if (m->join_due)
        publish(d, m->first);
    if (m->save_due)
        psd_checkpointer_take(d, m->first + 1);
    m->holding = m->join_due = m->save_due = false;
    psd_tell_lanes(d, &(struct psd_lane_message){.kind = PSD_COMMAND_GO});
    psd_method_change_check(d);
}

static void check_all_hold(struct psd *d)
{
    struct psd_membership *m = &d->membership;
    if (d->state >= PSD_STATE_DRAINING)
        m->owed &= ~m->away;
    if (m->holding && m->owed == 0)
        all_hold(d);
}

static void hold(struct psd *d)
{
    struct psd_membership *m = &d->membership;
    if (m->holding)
        return;
    m->holding = true;
    m->owed = d->n_lanes < 64 ? (UINT64_C(1) << d->n_lanes) - 1 : UINT64_MAX;
    m->first = 0;
    psd_tell_lanes(d, &(struct psd_lane_message){.kind = PSD_COMMAND_HOLD});
    check_all_hold(d);
}

void psd_membership_joined(struct psd *d)
{
    struct psd_membership *m = &d->membership;
    if (!has_members(d) || psd_method_change_is_closing(d))
        return; /* the next method's begins with everyone who is active */
    if (m->started) {
        m->join_due = true;
        hold(d);
    } else if (are_enough(d)) {
        m->started = true;
        publish(d, 0);
        psd_tell_lanes(d, &(struct psd_lane_message){.kind = PSD_COMMAND_GO});
    }
}

void psd_membership_save(struct psd *d)
{
    d->membership.save_due = true;
    hold(d);
}

void psd_membership_method_changed(struct psd *d)
{
    psd_membership_reset(d);
    if (!has_members(d) || psd_sessions_count_in(&d->sessions, false, PSD_SESSION_ACTIVE) == 0)
        return;
    d->membership.started = true;
    publish(d, 0);
    psd_tell_lanes(d, &(struct psd_lane_message){.kind = PSD_COMMAND_GO});
}

void psd_membership_held(struct psd *d, const struct psd_lane *lane, uint64_t first)
{
    struct psd_membership *m = &d->membership;
    uint64_t bit = UINT64_C(1) << lane->index;
    if (!m->holding || (m->owed & bit) == 0)
        return; /* it was given up */
    m->owed &= ~bit;
    if (first > m->first)
        m->first = first;
    check_all_hold(d);
}

void psd_membership_away(struct psd *d, uint64_t lanes, bool away)
{
    struct psd_membership *m = &d->membership;
    m->away = away ? m->away | lanes : m->away & ~lanes;
    check_all_hold(d);
}

void psd_membership_drain(struct psd *d)
{
    check_all_hold(d);
}
