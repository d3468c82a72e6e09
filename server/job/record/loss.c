#include "server/job/job.h"

#include <string.h>

#include "server/admissions/admissions.h"

/* A server's record is at most this old, unless its disk fails (server/job/record/journal.h). */
#define RECORD_LATE_MS 2000

static struct psd_part_loss *own_part(struct psd_job *job)
{
    return &job->loss.parts[job->cfg->servers.index];
}

/* Workers that were in the job before. */
static uint32_t count_workers(const struct psd_job *job, const struct psd_job_record *before)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < before->n_active; i++)
        n += before->members[i].client < job->sessions->n_workers_max;
    return n;
}

void psd_loss_begin(struct psd_job *job, const struct psd_job_record *before)
{
    struct psd_loss *l = &job->loss;
    bool from_checkpoint = job->resumed_from[0] != 0;
    *l = (struct psd_loss){.has_record = before != NULL};
    if (before != NULL) {
        l->blind = before->blind != 0;
        memcpy(l->known, before->parts, sizeof l->known);
    }
    if (!from_checkpoint && (before == NULL || (before->version == 0 && before->n_active == 0)))
        return;
    *own_part(job) = (struct psd_part_loss){.resumed = true,
                                            .exact = before != NULL && before->ended,
                                            .from = job->resumed_version,
                                            .reached = before != NULL ? before->version : 0};
    if (!from_checkpoint) /* no slots are reserved, so those workers do not come back to report */
        l->n_awaited = count_workers(job, before);
    for (uint32_t i = 0; from_checkpoint && i < job->sessions->n_slots; i++)
        l->n_awaited += job->sessions->slots[i].was_active && !job->sessions->slots[i].observer;
}

static void saw(struct psd_part_loss *p, uint64_t version)
{
    if (p->resumed && !p->exact && version > p->reached)
        p->reached = version;
}

void psd_loss_revived(struct psd_job *job, struct psd_session *s, const Ps__Hello *m)
{
    struct psd_loss *l = &job->loss;
    uint32_t n = job->cfg->servers.count;
    bool awaited = s->awaited == m->incarnation, was_active = s->was_active;
    s->awaited = 0;
    s->was_active = false;
    if (s->observer || (awaited && !was_active)) /* what that worker had seen was lost earlier */
        return;
    l->n_awaited -= awaited && l->n_awaited > 0;
    l->under_way += m->under_way != 0;
    if (n == 1)
        saw(own_part(job), m->center_version);
    for (uint32_t i = 0; n > 1 && i < n; i++) {
        if (i < m->n_versions)
            saw(&l->parts[i], m->versions[i]);
        else
            l->blind = true;
    }
}

void psd_loss_left(struct psd_job *job, const struct psd_session *s, const Ps__Leave *m)
{
    struct psd_loss *l = &job->loss;
    uint32_t n = job->cfg->servers.count, told = m != NULL && m->n_versions < n ? (uint32_t)m->n_versions : n;
    if (n == 1 || s->observer || s->state != PSD_SESSION_ACTIVE)
        return;
    if (m == NULL)
        told = psd_loop_now_ms(job->loop) - s->last_heard_ms < RECORD_LATE_MS ? 0 : n;
    l->left_blind = l->left_blind || told < n;
    for (uint32_t i = 0; m != NULL && i < told; i++)
        if (m->versions[i] > l->left_saw[i])
            l->left_saw[i] = m->versions[i];
}

void psd_loss_of_server(struct psd_job *job, uint32_t index, uint64_t from, uint64_t reached, bool exact)
{
    if (!exact && reached < job->loss.known[index])
        reached = job->loss.known[index];
    job->loss.parts[index] =
        (struct psd_part_loss){.resumed = true, .exact = exact, .from = from, .reached = reached};
}

void psd_loss_of_server_later(struct psd_job *job, uint32_t index, uint64_t from, uint64_t reached,
                              bool exact)
{
    if (!exact && reached < job->loss.left_saw[index])
        reached = job->loss.left_saw[index];
    job->loss.known[index] = job->loss.left_saw[index] = 0; /* it resumes from a lower version */
    job->loss.later += reached > from ? reached - from : 0;
    job->loss.later_is_unknown = job->loss.later_is_unknown || !exact;
}

/* Interrupted exchanges, as far as known. */
static uint64_t n_interrupted(const struct psd_job *job)
{
    uint64_t n = job->loss.under_way + job->loss.n_awaited;
    return psd_admission_find(job->cfg->admission)->rounds && n > 1 ? 1 : n;
}

struct psd_lost psd_loss_told(const struct psd_job *job)
{
    const struct psd_loss *l = &job->loss;
    struct psd_lost told = {.kind = PSD_LOSS_EXACT};
    bool resumed = false, exact = true, rounds = psd_admission_find(job->cfg->admission)->rounds;
    for (uint32_t i = 0; i < job->cfg->servers.count; i++) {
        const struct psd_part_loss *p = &l->parts[i];
        uint64_t lost = p->resumed && p->reached > p->from ? p->reached - p->from : 0;
        told.least = !rounds ? told.least + lost : lost > told.least ? lost : told.least;
        resumed = resumed || p->resumed;
        exact = exact && (!p->resumed || p->exact);
    }
    told.most = told.least;
    bool here =
        !psd_has_cluster(job->cfg) || job->hooks.is_complete(job->psd); /* all servers have reported theirs */
    if (resumed) {
        uint64_t cut = n_interrupted(job);
        told.most += cut;
        if (!l->has_record || !here || (!exact && (l->n_awaited > 0 || l->blind)))
            told.kind = PSD_LOSS_UNKNOWN;
        else if (!exact || cut > 0)
            told.kind = PSD_LOSS_AT_MOST;
    }
    told.least += l->later;
    told.most += l->later;
    if (l->later_is_unknown)
        told.kind = PSD_LOSS_UNKNOWN;
    return told;
}

const char *psd_loss_kind_name(enum psd_loss_kind kind)
{
    static const char *const names[] = {
        [PSD_LOSS_EXACT] = "exact", [PSD_LOSS_AT_MOST] = "at most", [PSD_LOSS_UNKNOWN] = "unknown"};
    return names[kind];
}
