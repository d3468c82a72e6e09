/* The evaluator: takes the center, or the average that follows it, again and again and runs the whole test
 * set. */
#include "nets/worker/worker.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nets/worker/progress.h"
#include "proto/log.h"

#define LEAVE_S 5.0 /* workers of a draining job leave within a step */
#define LOOK_S  0.2

struct evaluation {
    struct cnn_job *job;
    float *images; /* the whole test set */
    uint8_t *labels;
    uint64_t n;
    double started;
    FILE *history;      /* NULL: none */
    const char *vector; /* what is evaluated: "center" or "average" */
};

static int load_test_set(struct evaluation *e)
{
    struct cnn_job *job = e->job;
    struct cnn_stream *stream = NULL;
    struct cnn_error err;
    struct cnn_stream_options opt = {.split = CNN_TEST,
                                     .batch = (uint32_t)job->args->batch,
                                     .height = job->model->height,
                                     .width = job->model->width};
    int got = 0;
    e->images = calloc(job->info.n_test, job->n_pixels * sizeof *e->images);
    e->labels = calloc(job->info.n_test, sizeof *e->labels);
    if (e->images == NULL || e->labels == NULL)
        cnn_fail(&err, -ENOMEM, "no memory for the %" PRIu64 " images of the test set", job->info.n_test);
    else if (cnn_stream_create(job->data, &opt, &stream, &err) == 0) {
        while ((got = cnn_stream_next(stream, e->images + e->n * job->n_pixels, e->labels + e->n)) > 0)
            e->n += (uint32_t)got;
        if (got < 0)
            cnn_fail(&err, got, "%s", cnn_stream_error(stream));
        cnn_stream_destroy(stream);
        if (got == 0)
            return CNN_EXIT_OK;
    }
    ps_log(PS_LOG_ERROR, "data.failed", "%s", err.text);
    return got < 0 ? CNN_EXIT_DATA : CNN_EXIT_INTERNAL;
}

static int evaluation_init(struct evaluation *e, struct cnn_job *job)
{
    *e = (struct evaluation){.job = job, .started = cnn_now()};
    int rc = load_test_set(e);
    const char *path = job->args->history;
    if (rc != CNN_EXIT_OK || path == NULL)
        return rc;
    e->history = fopen(path, "ae");
    if (e->history == NULL) {
        ps_log(PS_LOG_ERROR, "history.failed", "--history %s: cannot be opened: %s", path, strerror(errno));
        return CNN_EXIT_USAGE;
    }
    return CNN_EXIT_OK;
}

static void evaluation_finish(struct evaluation *e)
{
    if (e->history != NULL)
        fclose(e->history);
    free(e->images);
    free(e->labels);
}

static int score_center(struct evaluation *e, double *loss, double *accuracy)
{
    struct cnn_job *job = e->job;
    double loss_sum = 0;
    uint64_t correct = 0;
    for (uint64_t at = 0; at < e->n;) {
        uint64_t n = e->n - at < job->args->batch ? e->n - at : job->args->batch;
        struct cnn_score score;
        int rc = cnn_net_score(job->net, job->x, e->images + at * job->n_pixels, e->labels + at, (uint32_t)n,
                               &score);
        if (rc != 0)
            return rc;
        loss_sum += score.loss * (double)n;
        correct += score.n_correct;
        at += n;
    }
    *loss = loss_sum / (double)e->n;
    *accuracy = (double)correct / (double)e->n;
    return 0;
}

static void write_json(FILE *out, double t, const char *vector, const struct psc_metrics *m)
{
    fprintf(out, "{\"t\":%.3f,\"center_version\":%" PRIu64, t, m->center_version);
    cnn_json_number(out, "test_loss", m->test_loss);
    cnn_json_number(out, "test_accuracy", m->test_accuracy);
    fprintf(out, ",\"vector\":\"%s\"}\n", vector);
    fflush(out);
}

static void tell(struct evaluation *e, double t, const struct psc_metrics *m)
{
    if (e->job->args->json) {
        write_json(stdout, t, e->vector, m);
    } else {
        printf("%7.1f s  %s %" PRIu64 "  test accuracy %.4f  loss %.4f\n", t, e->vector, m->center_version,
               m->test_accuracy, m->test_loss);
        fflush(stdout);
    }
    if (e->history != NULL)
        write_json(e->history, t, e->vector, m);
}

/* The average where the job has one: it is what averaging is for. */
static int pull(struct evaluation *e)
{
    struct cnn_job *job = e->job;
    struct psc_info info = {.size = sizeof info};
    psc_info(job->psc, &info);
    bool average = !job->args->center && strcmp(info.averaging, "none") != 0;
    e->vector = average ? "average" : "center";
    return average ? psc_pull_average(job->psc, NULL, job->x) : psc_pull(job->psc, NULL, job->x);
}

/* Scores job->x, which pull has just filled. */
static int evaluate_center(struct evaluation *e)
{
    struct psc_info info = {.size = sizeof info};
    struct psc_metrics m = {.size = sizeof m, .loss = NAN, .accuracy = NAN, .samples_per_second = NAN};
    double t = cnn_now() - e->started;
    psc_info(e->job->psc, &info);
    m.center_version = info.center_version;
    if (score_center(e, &m.test_loss, &m.test_accuracy) != 0) {
        ps_log(PS_LOG_ERROR, "net.failed", "the net refused the test set");
        return CNN_EXIT_INTERNAL;
    }
    tell(e, t, &m);
    psc_report(e->job->psc,
               &m); /* a lost report is no reason to stop; the next pull learns of a lost server */
    return CNN_EXIT_OK;
}

/* The last center is the one that the last worker has left. */
static void wait_for_workers(struct cnn_job *job)
{
    double end = cnn_now() + LEAVE_S;
    while (psc_size(job->psc) > 0 && cnn_now() < end && !cnn_stop_wait(job->stop, LOOK_S))
        continue;
}

/* On a drain or a signal the center is looked at a last time, so that the history ends with the result;
 * unless the server was gone sooner. */
static int loop(struct evaluation *e, bool last)
{
    struct cnn_job *job = e->job;
    double next = cnn_now();
    last |= job->args->once;
    for (;;) {
        int rc = pull(e);
        if (rc < 0)
            return cnn_job_fail(job, "evaluating ended", rc);
        if (rc == PSC_DRAINED && *psc_error(job->psc) != '\0') { /* x is not the center */
            ps_log(PS_LOG_INFO, "evaluate.drained", "the server has drained and is gone: %s",
                   psc_error(job->psc));
            return CNN_EXIT_OK;
        }
        if (rc == PSC_DRAINED && !last) {
            ps_log(PS_LOG_INFO, "evaluate.drained", "the server is draining: this is the last evaluation");
            wait_for_workers(job);
            last = true;
            continue;
        }
        rc = evaluate_center(e);
        if (rc != CNN_EXIT_OK || last)
            return rc;
        next += job->args->every_s;
        double now = cnn_now();
        next = next < now ? now : next;
        last = cnn_stop_wait(job->stop, next - now);
    }
}

int cnn_evaluate(struct cnn_job *job, bool drained)
{
    struct evaluation e;
    int rc = evaluation_init(&e, job);
    if (rc == CNN_EXIT_OK)
        rc = loop(&e, drained);
    evaluation_finish(&e);
    return rc;
}
