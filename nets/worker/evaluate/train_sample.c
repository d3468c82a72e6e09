#include "nets/worker/evaluate/train_sample.h"

#include <inttypes.h>
#include <math.h>

#include "proto/log.h"

int cnn_train_sample_open(struct cnn_train_sample *t, struct cnn_job *job)
{
    struct ps_error err;
    struct cnn_stream_options opt = {.split = CNN_TRAIN,
                                     .seed = job->args->seed,
                                     .rank = CNN_MAX_RANKS - 1,
                                     .batch = (uint32_t)job->args->batch,
                                     .height = job->model.height,
                                     .width = job->model.width};
    *t = (struct cnn_train_sample){.job = job};
    if (job->args->train_sample == 0)
        return CNN_EXIT_OK;
    if (job->args->train_sample > job->info.n_train) {
        ps_log(PS_LOG_ERROR, "data.failed",
               "--train-sample: %" PRIu64 "; allowed: the %" PRIu64 " images of the training set",
               job->args->train_sample, job->info.n_train);
        return CNN_EXIT_USAGE;
    }
    if (cnn_stream_create(job->data, &opt, &t->stream, &err) == 0)
        return CNN_EXIT_OK;
    ps_log(PS_LOG_ERROR, "data.failed", "%s", err.text);
    return CNN_EXIT_INTERNAL;
}

void cnn_train_sample_close(struct cnn_train_sample *t)
{
    cnn_stream_destroy(t->stream);
}

/* Scores the next images of the sample, at most `most`. */
static int score_batch(struct cnn_train_sample *t, const float *x, uint64_t most, uint32_t *n,
                       struct cnn_score *score)
{
    struct cnn_job *job = t->job;
    struct cnn_batch batch;
    int got = cnn_stream_borrow(t->stream, &batch);
    if (got < 0) {
        ps_log(PS_LOG_ERROR, "data.failed", "%s", cnn_stream_error(t->stream));
        return CNN_EXIT_DATA;
    }
    batch.n = *n = (uint64_t)got < most ? (uint32_t)got : (uint32_t)most;
    if (cnn_net_score_of(job->net, x, &batch, score) == 0)
        return CNN_EXIT_OK;
    ps_log(PS_LOG_ERROR, "net.failed", "%s", cnn_net_error(job->net));
    return CNN_EXIT_INTERNAL;
}

int cnn_train_sample_score(struct cnn_train_sample *t, struct cnn_stop *stop, const float *x, double *loss,
                           double *accuracy)
{
    const struct cnn_position begin = {0};
    uint64_t all = t->job->args->train_sample, correct = 0;
    struct ps_error err;
    double sum = 0;
    *loss = *accuracy = NAN;
    if (t->stream == NULL)
        return CNN_EXIT_OK;
    if (cnn_stream_seek(t->stream, &begin, &err) != 0) {
        ps_log(PS_LOG_ERROR, "data.failed", "%s", err.text);
        return CNN_EXIT_INTERNAL;
    }
    for (uint64_t at = 0; at < all;) {
        struct cnn_score score;
        uint32_t n;
        if (stop != NULL && cnn_stop_asked(stop))
            return CNN_EXIT_OK;
        int rc = score_batch(t, x, all - at, &n, &score);
        if (rc != CNN_EXIT_OK)
            return rc;
        sum += score.loss * n;
        correct += score.n_correct;
        at += n;
    }
    *loss = sum / (double)all;
    *accuracy = (double)correct / (double)all;
    return CNN_EXIT_OK;
}
