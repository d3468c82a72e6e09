#include "server/job/job.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "proto/clock.h"
#include "proto/log.h"
#include "proto/random.h"

#define WRITE_S 0.2
#define SYNC_S  1

/* Incarnations of a new job start at a random number, so that a worker of another job is not taken for one of
 * this job. The mask leaves room above for many runs. */
#define NAMES_MASK 0x3fffffffu

int psd_journal_open(struct psd_job *job, struct ps_error *err)
{
    struct psd_journal *j = &job->journal;
    return psd_job_file_open(job->cfg->state_dir, &j->file, &j->before, &j->has_before, err);
}

bool psd_journal_is_former(const struct psd_job *job, uint64_t number)
{
    for (size_t i = 0; i < PSD_JOB_FORMER; i++)
        if (number != 0 && job->journal.wanted.former[i] == number)
            return true;
    return false;
}

/* The directory belongs to another job from now on. */
static void remember_former(struct psd_job_record *r, const struct psd_job_record *before, uint64_t job)
{
    memcpy(r->former, before->former, sizeof r->former);
    if (before->job == 0 || before->job == job)
        return;
    memmove(r->former + 1, r->former, sizeof r->former - sizeof *r->former);
    r->former[0] = before->job;
}

/* Reserves the slots of members that may still come back. */
static void reserve_slots(struct psd_job *job, const struct psd_job_record *before)
{
    uint64_t until_ms = psd_loop_now_ms(job->loop) + (uint64_t)job->cfg->limits.silence_s * 1000;
    for (uint32_t i = 0; i < before->n_members; i++) {
        const struct psd_job_member *m = &before->members[i];
        if (m->client >= job->sessions->n_slots)
            continue;
        job->sessions->slots[m->client].awaited = m->incarnation;
        job->sessions->slots[m->client].was_active = i < before->n_active;
        job->sessions->slots[m->client].reserved_until_ms = until_ms;
    }
}

/* For a directory without such a record: the sessions in the checkpoint. */
static void reserve_slots_of_checkpoint(struct psd_job *job)
{
    for (size_t i = 0; i < job->resumed.n_replay; i++)
        if (job->resumed.replay[i].client < job->sessions->n_slots)
            job->sessions->slots[job->resumed.replay[i].client].reserved_until_ms =
                psd_loop_now_ms(job->loop) + (uint64_t)job->cfg->limits.silence_s * 1000;
}

/* Whether the record belongs to the job that is resumed. A checkpoint that was copied to another directory
 * begins a new job there, since its original job may still run. */
bool psd_journal_goes_on(const struct psd_job *job, bool from_checkpoint)
{
    const struct psd_job_record *b = &job->journal.before;
    return job->journal.has_before && b->job != 0 &&
           (!from_checkpoint || job->resumed.job == 0 || job->resumed.job == b->job ||
            job->resumed.job == b->origin);
}

/* Above all incarnations that may have been given out. */
static uint32_t first_name(const struct psd_job *job, bool resume, bool from_checkpoint)
{
    const struct psd_journal *j = &job->journal;
    uint64_t first = resume && j->has_before ? j->before.names_to : 0;
    if (from_checkpoint && job->resumed.incarnation + (uint64_t)PSD_NAMES_BLOCK > first)
        first = job->resumed.incarnation + (uint64_t)PSD_NAMES_BLOCK;
    if (first == 0)
        first = ps_random_u64() & NAMES_MASK;
    return first < UINT32_MAX - PSD_NAMES_BLOCK ? (uint32_t)first : UINT32_MAX;
}

uint32_t psd_journal_generation(const struct psd_job *job)
{
    const struct psd_job_record *b = &job->journal.before;
    uint32_t saved = job->resumed.generation;
    if (!psd_is_head(job->cfg)) /* the head's value; the server asks again when it registers */
        return psd_journal_goes_on(job, true) ? b->generation : saved;
    if (!psd_journal_goes_on(job, true))
        return saved + (strcmp(job->resumed.method, job->cfg->method) != 0);
    uint32_t told = b->generation > saved ? b->generation : saved;
    return told + (b->method != psd_config_method_hash(job->cfg));
}

static void take_method(const struct psd_job *job, struct psd_job_record *r, uint32_t generation)
{
    r->generation = generation;
    r->method = psd_config_method_hash(job->cfg);
    memset(r->settings, 0, sizeof r->settings);
    snprintf(r->settings, sizeof r->settings, "%s", job->reload.layers.settings);
}

uint64_t psd_journal_put_method(struct psd_job *job)
{
    struct psd_journal *j = &job->journal;
    pthread_mutex_lock(&j->lock);
    take_method(job, &j->wanted, atomic_load(&job->lanes->shared.generation));
    pthread_mutex_unlock(&j->lock);
    return psd_journal_put(job);
}

int psd_journal_begin(struct psd_job *job, bool resume, struct ps_error *err)
{
    struct psd_journal *j = &job->journal;
    bool from_checkpoint = job->resumed_from[0] != 0;
    bool same = resume && psd_journal_goes_on(job, from_checkpoint);
    job->sessions->job = same                    ? j->before.job
                         : psd_is_head(job->cfg) ? ps_random_u64()
                                                 : 0; /* a follower gets it from the head */
    /* A new job from a checkpoint of another has a schedule of its own. */
    bool same_clock = same && from_checkpoint && job->resumed.job == job->sessions->job;
    job->resumed_clock = same_clock ? job->resumed.clock : 0;
    job->names_before = job->sessions->incarnation = first_name(job, resume, from_checkpoint);
    if (job->names_before == UINT32_MAX)
        return ps_fail(err, -ERANGE, "%s: the job has used up its incarnations (2^32 sessions)",
                       job->cfg->state_dir);
    if (same && from_checkpoint)
        reserve_slots(job, &j->before);
    else if (from_checkpoint)
        reserve_slots_of_checkpoint(job);
    psd_loss_begin(job, same ? &j->before : NULL);

    struct psd_job_record *r = &j->wanted;
    *r = (struct psd_job_record){.job = job->sessions->job,
                                 .version = job->resumed_version,
                                 .names_to = job->names_before + PSD_NAMES_BLOCK};
    remember_former(r, &j->before, job->sessions->job);
    take_method(job, r, job->resumed.generation);
    r->origin = from_checkpoint && job->resumed.job != job->sessions->job ? job->resumed.job : 0;
    j->idle = true;
    if (same) {
        r->version = j->before.version;
        r->ended = j->before.ended;
        r->blind = j->before.blind;
        memcpy(r->parts, j->before.parts, sizeof r->parts);
        r->n_active = j->before.n_active;
        r->n_members = j->before.n_members;
        memcpy(r->members, j->before.members, sizeof r->members);
    }
    int rc = psd_job_file_write(&j->file, r);
    if (rc == 0)
        rc = psd_job_file_sync(&j->file);
    atomic_store(&j->names_written, r->names_to);
    return rc == 0 ? 0
                   : ps_fail(err, rc, "%s/" PSD_JOB_FILE ": cannot write it: %s", job->cfg->state_dir,
                             strerror(-rc));
}

/* All members, and those of the previous run that may still come back. */
static void list_members(const struct psd_job *job, struct psd_job_record *r)
{
    uint64_t now = psd_loop_now_ms(job->loop);
    r->n_members = 0;
    for (uint32_t i = 0; i < job->sessions->n_slots && r->n_members < PSD_JOB_MEMBERS; i++) {
        const struct psd_session *s = &job->sessions->slots[i];
        if (s->state == PSD_SESSION_ACTIVE || s->state == PSD_SESSION_OFFERING)
            r->members[r->n_members++] = (struct psd_job_member){i, s->incarnation};
    }
    r->n_active = r->n_members;
    r->blind = job->loss.left_blind;
    memcpy(r->parts, job->loss.left_saw, sizeof r->parts);
    for (uint32_t i = 0; i < job->sessions->n_slots && r->n_members < PSD_JOB_MEMBERS; i++) {
        const struct psd_session *s = &job->sessions->slots[i];
        if (s->state == PSD_SESSION_VACANT && s->awaited != 0 && now < s->reserved_until_ms)
            r->members[r->n_members++] = (struct psd_job_member){i, s->awaited};
    }
}

void psd_journal_wake(struct psd_job *job)
{
    struct psd_journal *j = &job->journal;
    if (!j->runs || !j->idle)
        return;
    pthread_mutex_lock(&j->lock);
    j->idle = false;
    j->wanted.ended = 0;
    pthread_mutex_unlock(&j->lock);
}

uint64_t psd_journal_put(struct psd_job *job)
{
    struct psd_journal *j = &job->journal;
    if (!j->runs)
        return 0;
    pthread_mutex_lock(&j->lock);
    if (!j->idle)
        list_members(job, &j->wanted);
    j->wanted.job = job->sessions->job;
    uint64_t change = ++j->asked;
    ps_cond_wake(&j->changed);
    pthread_mutex_unlock(&j->lock);
    return change;
}

bool psd_journal_has(const struct psd_job *job, uint64_t change)
{
    return atomic_load_explicit(&job->journal.written, memory_order_acquire) >= change;
}

bool psd_journal_has_saved(const struct psd_job *job, uint64_t change)
{
    return atomic_load_explicit(&job->journal.saved, memory_order_acquire) >= change;
}

int psd_journal_failure(const struct psd_job *job, uint64_t change)
{
    const struct psd_journal *j = &job->journal;
    if (atomic_load_explicit(&j->tried, memory_order_acquire) < change || psd_journal_has_saved(job, change))
        return 0;
    return atomic_load(&j->failure);
}

bool psd_journal_has_names(struct psd_job *job)
{
    struct psd_journal *j = &job->journal;
    uint32_t given = job->sessions->incarnation, to = atomic_load(&j->names_written);
    if (to - given <= PSD_NAMES_BLOCK / 2 && j->wanted.names_to == to && to < UINT32_MAX - PSD_NAMES_BLOCK) {
        pthread_mutex_lock(&j->lock);
        j->wanted.names_to += PSD_NAMES_BLOCK;
        pthread_mutex_unlock(&j->lock);
        psd_journal_put(job);
    }
    return given < to;
}

/* The thread's own state. */
struct writer {
    struct psd_job_record record;
    uint64_t change;
    double synced_s;
    int failed;
};

static void log_result(const struct psd_job *job, struct writer *w, int rc)
{
    if (rc < 0 && w->failed == 0)
        ps_log(
            PS_LOG_ERROR, "journal.failed",
            "%s/" PSD_JOB_FILE
            ": cannot write it: %s; a resume would not know changes among the workers since the last write",
            job->cfg->state_dir, strerror(-rc));
    else if (rc == 0 && w->failed != 0)
        ps_log(PS_LOG_INFO, "journal.written", "%s/" PSD_JOB_FILE " can be written again",
               job->cfg->state_dir);
    w->failed = rc;
}

static void bring_up_to_date(struct psd_job *job, struct writer *w, uint64_t change, bool idle)
{
    struct psd_journal *j = &job->journal;
    uint64_t version = idle ? w->record.version : atomic_load_explicit(j->version, memory_order_relaxed);
    bool changed = change != w->change;
    if (!changed && version == w->record.version && !j->file.unsynced && w->failed == 0)
        return;
    w->record.version = version;
    int rc = psd_job_file_write(&j->file, &w->record);
    if (rc == 0)
        atomic_store(&j->names_written, w->record.names_to);
    w->change = change;
    if (changed) {
        atomic_store_explicit(&j->written, change, memory_order_release);
        uv_async_send(&j->news);
    }
    if (rc == 0 && (changed || ps_now_s() - w->synced_s >= SYNC_S)) {
        rc = psd_job_file_sync(&j->file);
        w->synced_s = ps_now_s();
    }
    atomic_store(&j->failure, rc);
    if (rc == 0 && !j->file.unsynced)
        atomic_store_explicit(&j->saved, change, memory_order_release);
    atomic_store_explicit(&j->tried, change, memory_order_release);
    log_result(job, w, rc);
}

static void *writer_thread(void *arg)
{
    struct psd_job *job = arg;
    struct psd_journal *j = &job->journal;
    struct writer w = {.record = {.job = 0}};
    bool stop = false;
    while (!stop) {
        pthread_mutex_lock(&j->lock);
        if (!j->stop && j->asked == w.change)
            ps_cond_wait_until(&j->changed, &j->lock, ps_ns_after(WRITE_S));
        stop = j->stop;
        uint64_t change = j->asked, version = w.record.version;
        bool idle = j->idle;
        w.record = j->wanted;
        w.record.version = idle ? j->wanted.version : version;
        pthread_mutex_unlock(&j->lock);
        bring_up_to_date(job, &w, change, idle);
    }
    return NULL;
}

/* Sends Begun to clients that waited for the record. */
void psd_journal_tell_begun(struct psd_job *job)
{
    uint64_t now = psd_loop_now_ms(job->loop);
    for (uint32_t i = 0; i < job->sessions->n_slots; i++) {
        struct psd_session *s = &job->sessions->slots[i];
        if (s->begun_by_ms == 0 || (s->state != PSD_SESSION_ACTIVE && s->state != PSD_SESSION_OFFERING))
            continue;
        if (!psd_journal_has(job, s->recorded) && now < s->begun_by_ms)
            continue;
        s->begun_by_ms = 0;
        psd_send_begun(job->sender, s, psd_version(job->lanes));
    }
}

static void on_news(uv_async_t *news)
{
    psd_journal_tell_begun(news->data);
}

int psd_journal_start(struct psd_job *job, struct ps_error *err)
{
    struct psd_journal *j = &job->journal;
    pthread_mutex_init(&j->lock, NULL);
    ps_cond_init(&j->changed);
    j->ready = true;
    j->version = &job->lanes->shared.version;
    j->news.data = job;
    int rc = -uv_async_init(job->loop, &j->news, on_news);
    if (rc == 0)
        rc = pthread_create(&j->thread, NULL, writer_thread, job);
    j->runs = rc == 0;
    return rc == 0 ? 0 : ps_fail(err, -rc, "cannot start the journal's thread: %s", strerror(rc));
}

static void stop_thread(struct psd_journal *j)
{
    if (!j->runs)
        return;
    pthread_mutex_lock(&j->lock);
    j->stop = true;
    ps_cond_wake(&j->changed);
    pthread_mutex_unlock(&j->lock);
    pthread_join(j->thread, NULL);
}

void psd_journal_close(struct psd_job *job)
{
    struct psd_journal *j = &job->journal;
    bool ran = j->runs;
    stop_thread(j);
    if (ran && !j->idle) {
        list_members(job, &j->wanted);
        j->wanted.version = psd_version(job->lanes);
        j->wanted.ended = 1;
        if (psd_job_file_write(&j->file, &j->wanted) == 0)
            psd_job_file_sync(&j->file);
    }
    j->runs = false;
    psd_job_file_close(&j->file);
    if (!j->ready)
        return;
    pthread_cond_destroy(&j->changed);
    pthread_mutex_destroy(&j->lock);
    j->ready = false;
}
