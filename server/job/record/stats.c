#include "server/job/job.h"

#include <math.h>
#include <string.h>

#include "proto/wire/frame.h"

/* Whether a staged message needs a buffer for its floats in addition to its body: if either direction is
 * encoded, or if the body is not private and is part of an aggregated round. */
static bool stages_beside(const struct psd_job *job, const struct ps_transport *t)
{
    const struct ps_admission_info *a = ps_admission_find(job->cfg->admission);
    return (a->members &&
            (strcmp(job->cfg->codec.message, "raw") != 0 || strcmp(job->cfg->codec.answer, "raw") != 0)) ||
           (a->merges && t->shares);
}

uint64_t psd_stats_window_bytes(const struct psd_job *job)
{
    uint32_t chunk = job->center != NULL ? job->center->shard.chunk_floats : job->cfg->chunk_floats;
    uint64_t lane_floats = job->center != NULL ? ps_shard_slice(&job->center->shard, 0).count : UINT64_MAX;
    if (chunk > lane_floats)
        chunk = (uint32_t)lane_floats;
    uint64_t most_bytes = 0; /* a client uses one transport at a time */
    for (uint32_t k = 0; k < job->lanes->transports.n; k++) {
        const struct ps_transport *t = job->lanes->transports.row[k].transport;
        uint64_t place_bytes = chunk * sizeof(float) * (stages_beside(job, t) ? 2 : 1) + PS_FRAME_BYTES;
        uint64_t bytes = (ps_transport_window(t, job->cfg->window_chunks) + t->spare) * place_bytes;
        most_bytes = bytes > most_bytes ? bytes : most_bytes;
    }
    return job->lanes->n_own * most_bytes;
}

bool psd_stats_norms(const struct psd_job *job, uint32_t client, double *distance, double *update)
{
    double squares = NAN, rate = 0;
    for (uint32_t i = 0; job->center != NULL && i < job->lanes->n; i++) {
        const struct psd_lane_client *c = &job->lanes->list[i]->clients[client];
        double part = atomic_load_explicit(&c->last_squares, memory_order_relaxed);
        if (isnan(part) || !psd_lane_serves(job->lanes->list[i], job->center, client))
            continue;
        squares = part + (isnan(squares) ? 0 : squares);
        rate = (double)atomic_load_explicit(&c->last_rate, memory_order_relaxed);
    }
    bool tells = job->center != NULL && job->center->info->message == PS_MESSAGE_X;
    *distance = tells ? sqrt(squares) : NAN;
    *update = rate * sqrt(squares);
    return !isnan(squares);
}

/* Where exchanges of fragments are under way beside each other, lanes hold chunks of different ones. */
uint32_t psd_stats_waiting(const struct psd_job *job, uint32_t client, uint64_t *seq)
{
    uint32_t chunks = 0;
    *seq = 0;
    for (uint32_t i = 0; i < job->lanes->n; i++) {
        const struct psd_lane_client *c = &job->lanes->list[i]->clients[client];
        bool several = job->lanes->list[i]->n_tracks > 1;
        uint64_t here = atomic_load_explicit(&c->waiting_seq, memory_order_relaxed);
        if (here < *seq && !several)
            continue;
        chunks = here > *seq && !several ? 0 : chunks;
        chunks += atomic_load_explicit(&c->waiting_chunks, memory_order_relaxed);
        *seq = here > *seq ? here : *seq;
    }
    return chunks;
}

double psd_stats_center_norm(const struct psd_job *job)
{
    double squares = NAN;
    for (uint32_t i = 0; job->center != NULL && i < job->lanes->n; i++) {
        double part = atomic_load_explicit(&job->lanes->list[i]->stats.center_squares, memory_order_relaxed);
        if (!isnan(part) && job->center->whole_lanes)
            return sqrt(part); /* each lane has seen the whole vector */
        if (!isnan(part))
            squares = part + (isnan(squares) ? 0 : squares);
    }
    return sqrt(squares);
}

void psd_stats_totals(const struct psd_job *job, struct psd_totals *t)
{
    *t = (struct psd_totals){0};
    for (uint32_t i = 0; i < job->lanes->n; i++) {
        struct psd_lane_stats *s = &job->lanes->list[i]->stats;
        t->chunks += s->chunks;
        t->replays += s->replays;
        t->pulled += s->pulled;
        t->set += s->set;
        for (int k = 0; k < PSD_MAX_TRANSPORTS; k++) {
            t->bytes_in[k] += s->bytes_in[k];
            t->bytes_out[k] += s->bytes_out[k];
        }
        t->staleness_sum += s->staleness_sum;
        for (int k = 0; k < PSD_STALENESS_BUCKETS; k++)
            t->staleness[k] += s->staleness[k];
        for (int k = 0; k < PSD_N_CODES; k++)
            t->rejected[k] += s->rejected[k];
    }
    for (uint32_t i = 0; i < job->lanes->n_own; i++)
        t->replay_bytes += psd_lane_replay_bytes(job->lanes->list[i]);
    for (int k = 0; k < PSD_N_CODES; k++) {
        t->rejected[k] += job->sender->rejected[k];
        t->rejected_sum += t->rejected[k];
    }
    for (uint32_t i = 0; i < job->lanes->n_own; i++) { /* every lane maps the same memory */
        uint64_t registered =
            atomic_load_explicit(&job->lanes->list[i]->registered.bytes, memory_order_relaxed);
        t->registered_bytes = registered > t->registered_bytes ? registered : t->registered_bytes;
    }
    if (job->center != NULL) {
        uint64_t n_bytes = job->center->own.count * sizeof(float);
        t->center_bytes = n_bytes;
        t->state_bytes = n_bytes * job->center->rule->n_state;
        t->average_bytes = job->center->z != NULL ? n_bytes : 0;
        t->snapshot_bytes = t->center_bytes + t->state_bytes + t->average_bytes;
        t->state_bytes += n_bytes * job->center->n_seen; /* not in checkpoints */
    }
    t->window_bytes = psd_stats_window_bytes(job) * (psd_sessions_count(job->sessions, false) +
                                                     (uint64_t)psd_sessions_count(job->sessions, true));
}

uint64_t psd_stats_version(const struct psd_job *job)
{
    uint64_t own = psd_version(job->lanes),
             theirs = psd_has_cluster(job->cfg) ? job->hooks.newest_of_others(job->psd) : 0;
    return theirs > own ? theirs : own;
}

uint64_t psd_stats_applied_sum(const struct psd_job *job)
{
    return psd_version(job->lanes) - job->resumed_version;
}

/* Whatever no earlier rule has applied. */
static uint64_t applied_lately(const struct psd_job *job)
{
    uint64_t n = psd_stats_applied_sum(job);
    for (size_t k = 0; k < PS_N_RULES; k++)
        n -= job->applied[k];
    return n;
}

static size_t present_rule(const struct psd_job *job)
{
    return (size_t)(ps_rule_find(job->cfg->rule) - ps_rules);
}

uint64_t psd_stats_applied(const struct psd_job *job, size_t rule)
{
    return job->applied[rule] + (rule == present_rule(job) ? applied_lately(job) : 0);
}

void psd_stats_rule_ends(struct psd_job *job)
{
    job->applied[present_rule(job)] += applied_lately(job);
}

uint64_t psd_stats_memory_bytes(const struct psd_totals *t)
{
    return t->center_bytes + t->snapshot_bytes + t->state_bytes + t->average_bytes + t->window_bytes +
           t->replay_bytes + t->registered_bytes;
}

void psd_stats_limit_registered(struct psd_job *job)
{
    struct psd_totals t;
    psd_stats_totals(job, &t);
    const double limit_bytes = job->cfg->limits.memory_gib * (double)(1u << 30);
    const double own_bytes = (double)(psd_stats_memory_bytes(&t) - t.registered_bytes);
    const uint64_t left = limit_bytes > own_bytes ? (uint64_t)(limit_bytes - own_bytes) : 0;
    for (uint32_t i = 0; i < job->lanes->n_own; i++)
        atomic_store_explicit(&job->lanes->list[i]->registered.max_bytes, left, memory_order_relaxed);
}
