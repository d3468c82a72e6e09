/* Evaluates a vector on the whole test set and reports the result. */
#include "nets/worker/evaluate/test_set.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "nets/worker/job/events.h"
#include "nets/worker/job/output.h"
#include "nets/worker/job/progress.h"
#include "proto/file.h"
#include "proto/log.h"

int cnn_test_set_check(const struct cnn_job *job)
{
    if (job->info.n_test > 0)
        return CNN_EXIT_OK;
    ps_log(PS_LOG_ERROR, "data.failed", "--data %s: the test set has no images; allowed: 1 or more",
           job->args->data);
    return CNN_EXIT_DATA;
}

static int open_test_set(struct cnn_scorer *s)
{
    struct cnn_job *job = s->job;
    struct ps_error err;
    struct cnn_stream_options opt = {.split = CNN_TEST,
                                     .batch = (uint32_t)job->args->batch,
                                     .height = job->model.height,
                                     .width = job->model.width,
                                     .prefetch = (uint32_t)job->args->prefetch,
                                     .threads = (uint32_t)job->args->data_threads};
    int rc = cnn_test_set_check(job);
    if (rc != CNN_EXIT_OK || cnn_stream_create(job->data, &opt, &s->stream, &err) == 0)
        return rc;
    ps_log(PS_LOG_ERROR, "data.failed", "%s", err.text);
    return CNN_EXIT_INTERNAL;
}

int cnn_scorer_open(struct cnn_scorer *s, struct cnn_job *job)
{
    *s = (struct cnn_scorer){.job = job, .stop = job->stop};
    int rc = cnn_results_open(&s->results, job);
    if (rc == CNN_EXIT_OK)
        rc = cnn_train_sample_open(&s->train, job);
    if (rc == CNN_EXIT_OK)
        rc = open_test_set(s);
    const char *path = job->args->history;
    if (rc != CNN_EXIT_OK || path == NULL)
        return rc;
    rc = cnn_output_is_stdout(path) ? 0 : ps_file_cut_torn_line(path, "{\"t\":");
    s->history = rc == 0 ? fopen(path, "ae") : NULL;
    if (s->history != NULL)
        return CNN_EXIT_OK;
    ps_log(PS_LOG_ERROR, "history.failed", "--history %s: cannot be opened: %s", path,
           strerror(rc < 0 ? -rc : errno));
    return CNN_EXIT_USAGE;
}

void cnn_scorer_close(struct cnn_scorer *s)
{
    if (s->history != NULL)
        fclose(s->history);
    cnn_results_close(&s->results);
    cnn_train_sample_close(&s->train);
    cnn_stream_destroy(s->stream);
}

/* Top-five accuracy means little with ten classes. */
static bool shows_top_5(const struct cnn_scorer *s)
{
    return s->job->model.classes > 10;
}

/* Sums over the test set. */
struct sums {
    double loss;
    uint64_t n, correct, correct_5;
};

static bool gives_up(const struct cnn_scorer *s)
{
    return s->stop != NULL && cnn_stop_asked(s->stop);
}

/* Returns an enum cnn_exit, after logging the cause. */
static int add_up(struct cnn_scorer *s, const float *x, struct sums *sums)
{
    struct cnn_predictions out = {s->results.predicted, NULL};
    struct cnn_batch batch;
    struct cnn_score score;
    int n = 0;
    while (!gives_up(s) && (n = cnn_stream_borrow(s->stream, &batch)) > 0) {
        if (cnn_net_predict(s->job->net, x, &batch, &out, &score) != 0) {
            ps_log(PS_LOG_ERROR, "net.failed", "the net refused the test set");
            return CNN_EXIT_INTERNAL;
        }
        if (out.classes != NULL)
            cnn_confusion_add(&s->results.confusion, batch.labels, out.classes, batch.n);
        sums->loss += score.loss * n;
        sums->correct += score.n_correct;
        sums->correct_5 += score.n_correct_5;
        sums->n += (uint32_t)n;
    }
    if (gives_up(s) || (n == 0 && sums->n > 0))
        return CNN_EXIT_OK;
    ps_log(PS_LOG_ERROR, "data.failed", "%s",
           n < 0 ? cnn_stream_error(s->stream) : "no image of the test set can be read");
    return CNN_EXIT_DATA;
}

/* Seeks the stream to its start at once: its threads prepare the first batches while the net trains. */
static int score_all(struct cnn_scorer *s, const float *x, struct psc_metrics *m)
{
    struct sums sums = {0};
    int rc = add_up(s, x, &sums);
    cnn_stream_seek(s->stream, &(struct cnn_position){0, 0}, NULL); /* valid in every stream */
    if (rc != CNN_EXIT_OK)
        return rc;
    m->test_loss = sums.loss / (double)sums.n;
    m->test_accuracy = (double)sums.correct / (double)sums.n;
    s->accuracy_5 = (double)sums.correct_5 / (double)sums.n;
    return CNN_EXIT_OK;
}

static void write_json(const struct cnn_scorer *s, FILE *out, double t, const char *vector,
                       const struct psc_metrics *m)
{
    fprintf(out, "{\"t\":%.3f,\"center_version\":%" PRIu64, t, m->center_version);
    cnn_json_number(out, "test_loss", m->test_loss);
    cnn_json_number(out, "test_accuracy", m->test_accuracy);
    if (shows_top_5(s))
        cnn_json_number(out, "test_accuracy_5", s->accuracy_5);
    if (s->train.stream != NULL) {
        cnn_json_number(out, "train_loss", m->loss);
        cnn_json_number(out, "train_accuracy", m->accuracy);
    }
    fprintf(out, ",\"vector\":\"%s\"}\n", vector);
    fflush(out);
}

/* Uses the descriptor, because stdio may keep bytes after a failed write. A line that cannot be written
 * completely is removed. */
static int append(int fd, const char *line, size_t len)
{
    struct stat before;
    size_t at = 0;
    int rc = fstat(fd, &before) == 0 ? ps_file_append(fd, line, len, &at) : -errno;
    if (rc < 0 && at > 0 && ftruncate(fd, before.st_size) < 0)
        return -errno;
    return rc;
}

static void write_history(struct cnn_scorer *s, const char *vector, double t, const struct psc_metrics *m)
{
    char *line = NULL;
    size_t len = 0;
    FILE *text = open_memstream(&line, &len);
    if (text != NULL)
        write_json(s, text, t, vector, m);
    int rc = text != NULL && fclose(text) == 0 ? append(fileno(s->history), line, len) : -ENOMEM;
    free(line);
    if (rc == 0)
        return;
    s->lacks = true;
    ps_log(PS_LOG_ERROR, "history.failed", "--history %s: a line cannot be written: %s",
           s->job->args->history, strerror(-rc));
}

int cnn_scorer_end(const struct cnn_scorer *s, int rc)
{
    if (rc != CNN_EXIT_OK || !s->lacks)
        return rc;
    ps_log(PS_LOG_ERROR, "history.lacks", "--history or --confusion is incomplete: see the errors above");
    return CNN_EXIT_INTERNAL;
}

static void report_score(struct cnn_scorer *s, const char *vector, double t, const struct psc_metrics *m)
{
    if (s->job->args->json) {
        write_json(s, stdout, t, vector, m);
    } else {
        printf("%7.1f s  %s %" PRIu64 "  test accuracy %.4f", t, vector, m->center_version, m->test_accuracy);
        if (shows_top_5(s))
            printf("  top five %.4f", s->accuracy_5);
        printf("  loss %.4f", m->test_loss);
        if (s->train.stream != NULL)
            printf("  training accuracy %.4f  loss %.4f", m->accuracy, m->loss);
        putchar('\n');
        fflush(stdout);
    }
    if (s->history != NULL)
        write_history(s, vector, t, m);
}

/* A part of the test set is not the test set. */
static void give_up(struct cnn_scorer *s)
{
    if (s->results.predicted != NULL)
        cnn_confusion_clear(&s->results.confusion);
    ps_log(PS_LOG_INFO, "evaluate.stopped",
           "a signal asked to stop: the evaluation under way ends without a result");
}

int cnn_scorer_tell(struct cnn_scorer *s, const char *vector, const float *x, double t, struct psc_metrics *m)
{
    int rc = score_all(s, x, m);
    if (rc == CNN_EXIT_OK)
        rc = cnn_train_sample_score(&s->train, s->stop, x, &m->loss, &m->accuracy);
    if (rc != CNN_EXIT_OK)
        return rc;
    s->is_given_up = gives_up(s);
    if (s->is_given_up) {
        give_up(s);
        return CNN_EXIT_OK;
    }
    report_score(s, vector, t, m);
    cnn_events_test(s->job, m, shows_top_5(s) ? s->accuracy_5 : NAN);
    if (s->results.predicted != NULL && cnn_results_write(&s->results, vector, m->center_version) < 0)
        s->lacks = true;
    return CNN_EXIT_OK;
}
