#include "nets/worker/evaluate/evaluate.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nets/worker/evaluate/results.h"
#include "nets/worker/evaluate/test_set.h"
#include "proto/log.h"

struct prediction {
    struct cnn_job *job;
    struct cnn_stream *stream;
    float *images, *probabilities; /* of a batch */
    uint16_t *labels, *classes;
    struct cnn_results results;
    uint64_t n, n_correct;
    const char *vector;
    uint64_t version;
};

static int open_all(struct prediction *p)
{
    struct cnn_job *job = p->job;
    size_t batch = job->args->batch;
    struct ps_error err;
    struct cnn_stream_options opt = {
        .split = CNN_TEST, .batch = (uint32_t)batch, .height = job->model.height, .width = job->model.width};
    p->images = malloc(batch * job->n_pixels * sizeof *p->images);
    p->probabilities = malloc(batch * job->model.classes * sizeof *p->probabilities);
    p->labels = malloc(batch * sizeof *p->labels);
    p->classes = malloc(batch * sizeof *p->classes);
    if (p->images == NULL || p->probabilities == NULL || p->labels == NULL || p->classes == NULL)
        ps_fail(&err, -ENOMEM, "no memory for a batch of %zu images", batch);
    else if (cnn_stream_create(job->data, &opt, &p->stream, &err) == 0)
        return cnn_results_open(&p->results, job);
    ps_log(PS_LOG_ERROR, "data.failed", "%s", err.text);
    return CNN_EXIT_INTERNAL;
}

static void close_all(struct prediction *p)
{
    cnn_results_close(&p->results);
    cnn_stream_destroy(p->stream);
    free(p->images);
    free(p->probabilities);
    free(p->labels);
    free(p->classes);
}

/* Gets the vector for the predictions into job->x. */
static int take_vector(struct prediction *p)
{
    struct cnn_job *job = p->job;
    struct psc_info info = {.size = sizeof info};
    p->vector = "first point";
    if (job->psc == NULL)
        return CNN_EXIT_OK;
    psc_info(job->psc, &info);
    bool average = !job->args->center && strcmp(info.averaging, "none") != 0;
    p->vector = average ? "average" : "center";
    int rc = average ? psc_pull_average(job->psc, NULL, job->x) : psc_pull(job->psc, NULL, job->x);
    if (rc < 0 || (rc == PSC_DRAINED && *psc_error(job->psc) != '\0')) /* x does not hold the center */
        return cnn_job_fail(job, "cannot predict", rc < 0 ? rc : PSC_EGONE);
    psc_info(job->psc, &info);
    p->version = info.center_version;
    return CNN_EXIT_OK;
}

static void write_head(const struct prediction *p)
{
    fputs("index,label,predicted", stdout);
    for (uint32_t k = 0; k < p->job->model.classes; k++)
        printf(",p%u", k);
    putchar('\n');
}

/* A net whose outputs overflow has none: JSON has no NaN. */
static void write_probability(float p, bool json)
{
    if (isfinite(p))
        printf("%.9g", (double)p);
    else
        fputs(json ? "null" : "nan", stdout);
}

static void write_class(uint16_t class, float p, bool json)
{
    if (class == CNN_NO_CLASS && isnan(p))
        fputs(json ? "null" : "nan", stdout);
    else
        printf("%u", class);
}

/* The index is that of the set, whatever was left out before. */
static void write_line(const struct prediction *p, uint32_t i)
{
    bool json = p->job->args->json;
    uint32_t classes = p->job->model.classes;
    const float *probability = p->probabilities + (size_t)i * classes;
    printf(json ? "{\"index\":%u,\"label\":%u,\"predicted\":" : "%u,%u,", cnn_stream_index(p->stream, i),
           p->labels[i]);
    write_class(p->classes[i], probability[0], json);
    fputs(json ? ",\"probabilities\":[" : "", stdout);
    for (uint32_t k = 0; k < classes; k++) {
        fputs(json && k == 0 ? "" : ",", stdout);
        write_probability(probability[k], json);
    }
    puts(json ? "]}" : "");
}

static int predict_batch(struct prediction *p, uint32_t n)
{
    struct cnn_job *job = p->job;
    struct cnn_batch batch = {.images = p->images, .labels = p->labels, .n = n};
    struct cnn_predictions out = {p->classes, p->probabilities};
    struct cnn_score score;
    if (cnn_net_predict(job->net, job->x, &batch, &out, &score) != 0) {
        ps_log(PS_LOG_ERROR, "net.failed", "%s", cnn_net_error(job->net));
        return CNN_EXIT_INTERNAL;
    }
    for (uint32_t i = 0; i < n; i++)
        write_line(p, i);
    if (p->results.predicted != NULL)
        cnn_confusion_add(&p->results.confusion, p->labels, p->classes, n);
    p->n += n;
    p->n_correct += score.n_correct;
    if (fflush(stdout) == 0 && ferror(stdout) == 0)
        return CNN_EXIT_OK;
    ps_log(PS_LOG_ERROR, "predict.failed", "predictions cannot be written: %s", strerror(errno));
    return CNN_EXIT_INTERNAL;
}

/* Status 1: who reads the lines must not take them for all. */
static int stop(const struct prediction *p)
{
    ps_log(PS_LOG_ERROR, "predict.stopped",
           "a signal asked to stop: %" PRIu64 " images were predicted, not all", p->n);
    return CNN_EXIT_INTERNAL;
}

static int predict_all(struct prediction *p)
{
    int got, rc = CNN_EXIT_OK;
    if (!p->job->args->json)
        write_head(p);
    while (rc == CNN_EXIT_OK && (got = cnn_stream_next(p->stream, p->images, p->labels)) != 0) {
        if (got < 0) {
            ps_log(PS_LOG_ERROR, "data.failed", "%s", cnn_stream_error(p->stream));
            return CNN_EXIT_DATA;
        }
        rc = predict_batch(p, (uint32_t)got);
        if (rc == CNN_EXIT_OK && cnn_stop_asked(p->job->stop))
            return stop(p);
    }
    if (rc == CNN_EXIT_OK && p->n == 0) {
        ps_log(PS_LOG_ERROR, "data.failed", "no image of the test set can be read");
        return CNN_EXIT_DATA;
    }
    if (rc == CNN_EXIT_OK && p->results.predicted != NULL &&
        cnn_results_write(&p->results, p->vector, p->version) < 0)
        rc = CNN_EXIT_INTERNAL;
    return rc;
}

int cnn_predict(struct cnn_job *job, bool drained)
{
    struct prediction p = {.job = job};
    if (drained) {
        ps_log(PS_LOG_ERROR, "predict.drained", "nothing was predicted: %s", psc_error(job->psc));
        return CNN_EXIT_SERVER;
    }
    int rc = cnn_test_set_check(job);
    if (rc == CNN_EXIT_OK)
        rc = open_all(&p);
    if (rc == CNN_EXIT_OK)
        rc = take_vector(&p);
    if (rc == CNN_EXIT_OK && (rc = predict_all(&p)) == CNN_EXIT_OK)
        ps_log(PS_LOG_INFO, "predict.done", "%" PRIu64 " images by the %s: accuracy %.4f", p.n, p.vector,
               (double)p.n_correct / (double)p.n);
    close_all(&p);
    return rc;
}
