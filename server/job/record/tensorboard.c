#include "server/job/record/tensorboard.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "server/job/job.h"

/* Limits of the buckets of ‖x − x̃‖: 243 of them. */
#define DISTANCE_LOWEST  1e-5
#define DISTANCE_HIGHEST 1e6
#define DISTANCE_GROWTH  1.11

/* Those of psd_lane_stats: bucket k is below 2^k, and values are whole. */
static void init_staleness(struct ps_histogram *h)
{
    *h = (struct ps_histogram){.n_buckets = PSD_STALENESS_BUCKETS};
    for (int k = 0; k < PSD_STALENESS_BUCKETS; k++)
        h->limits[k] = ldexp(1, k) - 0.5;
}

int psd_tensorboard_open(struct psd_job *job, struct ps_error *err)
{
    struct psd_tensorboard *t = &job->tensorboard;
    if (job->cfg->tensorboard[0] == 0 || !psd_is_head(job->cfg))
        return 0;
    ps_histogram_init(&t->distance, DISTANCE_LOWEST, DISTANCE_HIGHEST, DISTANCE_GROWTH);
    init_staleness(&t->staleness);
    t->n_clients = job->sessions->n_workers_max;
    t->last_distance = calloc(t->n_clients, sizeof *t->last_distance);
    if (t->last_distance == NULL)
        return ps_fail(err, -ENOMEM, "tensorboard: no memory for the distances of %u workers", t->n_clients);
    return ps_event_file_open(job->cfg->tensorboard, "psd", &t->file, err);
}

void psd_tensorboard_close(struct psd_job *job)
{
    ps_event_file_close(job->tensorboard.file);
    free(job->tensorboard.last_distance);
    job->tensorboard = (struct psd_tensorboard){.file = NULL};
}

void psd_tensorboard_look(struct psd_job *job)
{
    struct psd_tensorboard *t = &job->tensorboard;
    double distance, update;
    for (uint32_t i = 0; t->file != NULL && i < t->n_clients; i++) {
        const struct psd_session *s = &job->sessions->slots[i];
        if (s->state != PSD_SESSION_ACTIVE || psd_job_is_silent(job, s) ||
            !psd_stats_norms(job, i, &distance, &update) || distance == t->last_distance[i])
            continue;
        t->last_distance[i] = distance;
        ps_histogram_add(&t->distance, distance);
    }
}

/* What the lanes have counted since the last time. The values themselves are not known: min and max are those
 * of the buckets, and the squares are left out, which TensorBoard does not show. */
static void count_staleness(struct psd_job *job)
{
    struct psd_tensorboard *t = &job->tensorboard;
    struct ps_histogram *h = &t->staleness;
    struct psd_totals now;
    psd_stats_totals(job, &now);
    ps_histogram_clear(h);
    for (int k = 0; k < PSD_STALENESS_BUCKETS; k++) {
        h->counts[k] = now.staleness[k] - t->last_staleness[k];
        if (h->counts[k] == 0)
            continue;
        h->min = h->n == 0 ? floor(ldexp(1, k - 1)) : h->min;
        h->max = ldexp(1, k) - 1;
        h->n += h->counts[k];
    }
    h->sum = (double)(now.staleness_sum - t->last_staleness_sum);
    memcpy(t->last_staleness, now.staleness, sizeof t->last_staleness);
    t->last_staleness_sum = now.staleness_sum;
}

void psd_tensorboard_add(struct psd_job *job, const struct psd_record *r)
{
    struct psd_tensorboard *t = &job->tensorboard;
    if (t->file == NULL)
        return;
    count_staleness(job);
    const struct ps_event_value values[] = {
        {"workers", r->workers, NULL},
        {"updates_per_s", r->updates_per_s, NULL},
        {"staleness", r->staleness, NULL},
        {"loss", r->loss, NULL},
        {"test_loss", r->test_loss, NULL},
        {"test_accuracy", r->test_accuracy, NULL},
        {"center_norm", r->center_norm, NULL},
        {"distance", r->distance, NULL},
        {"distance_of_exchanges", 0, &t->distance},
        {"staleness_of_exchanges", 0, &t->staleness},
    };
    ps_event_file_add(t->file, r->t_s, (int64_t)r->version, values, sizeof values / sizeof *values);
    ps_histogram_clear(&t->distance);
}
