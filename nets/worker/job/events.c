#include "nets/worker/job/events.h"

#include <errno.h>
#include <stdio.h>

#include "proto/clock.h"
#include "proto/log.h"
#include "proto/tensorboard/event_file.h"

int cnn_events_open(struct cnn_job *job)
{
    struct ps_error err;
    char run[32] = "evaluator";
    if (job->args->tensorboard == NULL || !cnn_job_tells(job))
        return CNN_EXIT_OK;
    if (!job->args->evaluate)
        snprintf(run, sizeof run, "worker-%u", cnn_job_rank(job));
    int rc = ps_event_file_open(job->args->tensorboard, run, &job->events, &err);
    if (rc == 0)
        return CNN_EXIT_OK;
    ps_log(PS_LOG_ERROR, "tensorboard.failed", "--%s", err.text);
    return rc == -ENOMEM ? CNN_EXIT_INTERNAL : CNN_EXIT_USAGE;
}

void cnn_events_close(struct cnn_job *job)
{
    ps_event_file_close(job->events);
    job->events = NULL;
}

static double now_s(void)
{
    return (double)ps_wall_us() / 1e6;
}

void cnn_events_train(struct cnn_job *job, const struct cnn_progress_state *s)
{
    struct psc_info info = {.size = sizeof info};
    if (job->events == NULL || psc_info(job->psc, &info) < 0)
        return;
    const struct ps_event_value values[] = {
        {"loss", s->loss, NULL},
        {"accuracy", s->accuracy, NULL},
        {"images_per_s", s->rate, NULL},
        {"epoch", s->epoch, NULL},
        {"learning_rate", info.learning_rate, NULL},
        {"center_version", (double)s->center_version, NULL},
        {"exchanges", (double)info.exchanges, NULL},
        {"retries", (double)info.retries, NULL},
        {"sent_bytes", (double)info.bytes_sent, NULL},
        {"received_bytes", (double)info.bytes_received, NULL},
        {"seconds/data", s->time.data, NULL},
        {"seconds/compute", s->time.compute, NULL},
        {"seconds/update", s->time.update, NULL},
        {"seconds/exchange", s->time.exchange, NULL},
    };
    ps_event_file_add(job->events, now_s(), (int64_t)s->step, values, sizeof values / sizeof *values);
}

void cnn_events_test(struct cnn_job *job, const struct psc_metrics *m, double accuracy_5)
{
    const struct ps_event_value values[] = {
        {"test_loss", m->test_loss, NULL},     {"test_accuracy", m->test_accuracy, NULL},
        {"test_accuracy_5", accuracy_5, NULL}, {"train_loss", m->loss, NULL},
        {"train_accuracy", m->accuracy, NULL},
    };
    ps_event_file_add(job->events, now_s(), (int64_t)m->center_version, values,
                      sizeof values / sizeof *values);
}
