/* The training loop: batch, gradient, psc_step. */
#include "nets/worker/run.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nets/training/gradient.h"
#include "nets/worker/evaluate/evaluate_local.h"
#include "nets/worker/job/events.h"
#include "nets/worker/job/progress.h"
#include "nets/worker/job/train_state.h"
#include "proto/clock.h"
#include "proto/log.h"

enum { MAX_BAD_IN_A_ROW = 10 };
#define REPORT_EVERY_S 2.0

/* The gradient of a step, where it leaves in parts. */
struct parts {
    bool begun;
    int rc;
    uint32_t sent;          /* parts */
    uint64_t held_at, held; /* the part with the first trained value */
};

struct training {
    struct cnn_job *job;
    struct cnn_stream *stream;
    float *g;
    struct parts parts;
    struct cnn_accumulator accumulator;
    uint64_t step, clock;   /* clock: the library's */
    uint32_t rank;          /* as training began: losses in a clique change it */
    uint64_t passed;        /* images of all workers so far: each step counts for all workers */
    uint32_t workers;       /* largest number of workers since this one began; at least 1 */
    uint64_t draws;         /* gradients computed */
    uint64_t saved_version; /* the center's version when the state was last saved */
    unsigned bad_in_a_row;  /* steps without a finite loss or vector */
    bool data_failed;
    double started, data_s, compute_s;
    double aside_s; /* spent on evaluations; not training time */
    bool may_examine;
    struct cnn_local_evaluation exam;
    struct cnn_meter shown, reported, whole;
    struct cnn_progress progress;
};

/* The training clock: it stops during evaluations. */
static double now_of(const struct training *t)
{
    return ps_now_s() - t->aside_s;
}

static bool is_alone(const struct training *t)
{
    return t->job->args->method != NULL;
}

/* Without a server, one of the training processes evaluates: of those that are left. */
static bool is_examiner(const struct training *t)
{
    return is_alone(t) && (!cnn_job_is_shared(t->job) || psc_clique_rank(t->job->clique.q) == 0);
}

static bool examines(const struct training *t)
{
    return t->may_examine;
}

static uint32_t batch_of(const struct training *t)
{
    return (uint32_t)t->job->args->batch;
}

/* Images of a step. */
static uint32_t images_of(const struct training *t)
{
    return batch_of(t) * (uint32_t)t->job->args->accumulate;
}

/* A worker that has finished and left still counts, so that all workers make equally many steps. */
static void count_workers(struct training *t)
{
    struct psc_info info = {.size = sizeof info};
    if (psc_info(t->job->psc, &info) == PSC_OK && info.workers > t->workers)
        t->workers = info.workers;
}

/* The step after which training ends. With --epochs it assumes that no more workers join. */
static uint64_t last_step(const struct training *t)
{
    const struct cnn_worker_args *a = t->job->args;
    if (a->steps != 0)
        return a->steps;
    uint64_t wanted = a->epochs * t->job->info.n_train, a_step = (uint64_t)images_of(t) * t->workers;
    return t->passed < wanted ? t->step + (wanted - t->passed + a_step - 1) / a_step : t->step;
}

static void training_finish(struct training *t)
{
    cnn_accumulator_finish(&t->accumulator);
    cnn_job_free_vector(t->job, t->g);
    cnn_net_announce(t->job->net, NULL); /* which may read a batch of the stream: fails as the step did */
    cnn_stream_destroy(t->stream);
    if (examines(t))
        cnn_local_evaluation_close(&t->exam);
}

/* Returns an enum cnn_exit. */
static int begin_examinations(struct training *t)
{
    if (examines(t) || !is_examiner(t))
        return CNN_EXIT_OK;
    t->may_examine = true;
    return cnn_local_evaluation_open(&t->exam, t->job);
}

static struct cnn_train_state place_of(const struct training *t)
{
    struct cnn_train_state place = {.steps = t->step,
                                    .draws = t->draws,
                                    .seed = t->job->args->seed,
                                    .batch = batch_of(t),
                                    .rank = t->rank,
                                    .passed = t->passed};
    cnn_stream_position(t->stream, &place.position);
    return place;
}

/* A failed save is only logged; training continues. A failure of the last save changes the exit status. */
static int save(struct training *t)
{
    const char *path = t->job->args->state;
    struct cnn_train_state place = place_of(t);
    int rc = cnn_train_state_save(t->job->psc, path, t->job->x, &place);
    if (rc < 0)
        ps_log(PS_LOG_WARN, "state.not_saved", "%s (%s)", psc_error(t->job->psc), psc_result_name(rc));
    else
        ps_log(PS_LOG_INFO, "state.saved", "%s: after %" PRIu64 " steps", path, t->step);
    return rc;
}

/* Saves when psd has written a checkpoint since the last time. */
static void save_if_asked(struct training *t)
{
    struct psc_info info = {.size = sizeof info};
    if (t->job->args->state == NULL || psc_info(t->job->psc, &info) < 0 ||
        info.save_version == t->saved_version)
        return;
    t->saved_version = info.save_version;
    save(t);
}

/* Resumes from the state file. Returns an enum cnn_exit. */
static int resume(struct training *t)
{
    const char *path = t->job->args->state;
    struct psc_clique *q = cnn_job_is_shared(t->job) ? t->job->clique.q : NULL;
    struct cnn_train_state place = place_of(t);
    struct ps_error err;
    bool loaded = false;
    int rc = cnn_train_state_load(t->job->psc, q, path, t->job->x, &place, &loaded);
    if (rc != CNN_EXIT_OK || !loaded)
        return rc;
    if (cnn_stream_seek(t->stream, &place.position, &err) != 0) {
        ps_log(PS_LOG_ERROR, "state.failed", "--state: %s: %s", path, err.text);
        return CNN_EXIT_USAGE;
    }
    t->step = place.steps;
    t->draws = place.draws;
    t->passed = place.passed > 0 ? place.passed : t->step * images_of(t) * t->workers;
    ps_log(PS_LOG_INFO, "state.loaded", "%s: resuming after %" PRIu64 " steps", path, t->step);
    return CNN_EXIT_OK;
}

static int training_init(struct training *t, struct cnn_job *job)
{
    struct ps_error err;
    *t = (struct training){.job = job, .workers = 1, .rank = cnn_job_rank(job)};
    count_workers(t);
    struct cnn_stream_options opt = {.split = CNN_TRAIN,
                                     .seed = job->args->seed,
                                     .rank = t->rank,
                                     .batch = batch_of(t),
                                     .height = job->model.height,
                                     .width = job->model.width,
                                     .prefetch = (uint32_t)job->args->prefetch,
                                     .threads = (uint32_t)job->args->data_threads};
    if (job->partition != NULL) {
        opt.part = job->partition->index;
        opt.parts = job->partition->all->placement.n;
    }
    cnn_sampling_read(job->args->sampling, &opt.sampling, NULL); /* args.c has validated it */
    cnn_job_place_batches(job, &opt);
    if (cnn_stream_create(job->data, &opt, &t->stream, &err) != 0) {
        ps_log(PS_LOG_ERROR, "data.failed", "%s", err.text);
        return CNN_EXIT_INTERNAL;
    }
    t->g = cnn_job_vector(job);
    if (t->g == NULL ||
        cnn_accumulator_init(&t->accumulator, job->n_floats, (uint32_t)job->args->accumulate) < 0) {
        ps_log(PS_LOG_ERROR, "net.failed", "no memory for a gradient of %zu floats", job->n_floats);
        return CNN_EXIT_INTERNAL;
    }
    int rc = resume(t);
    if (rc == CNN_EXIT_OK)
        rc = begin_examinations(t);
    if (rc != CNN_EXIT_OK)
        return rc;
    /* Workers of one job drop different elements. */
    cnn_net_seed(job->net, job->args->seed + ((uint64_t)t->rank << 32), t->draws);
    t->clock = psc_clock(job->psc);
    t->started = ps_now_s();
    cnn_meter_start(&t->shown, t->started);
    cnn_meter_start(&t->reported, t->started);
    cnn_meter_start(&t->whole, t->started);
    cnn_progress_init(&t->progress, stdout, job->args->json, t->started);
    if (job->partition != NULL) /* last: what was started so far may run on all of the partition's cores */
        cnn_partition_pin(job->partition, job->net);
    return CNN_EXIT_OK;
}

static struct cnn_progress_state state_of(const struct training *t, const struct cnn_meter *m, double now)
{
    struct psc_info info = {.size = sizeof info};
    psc_info(t->job->psc, &info);
    return (struct cnn_progress_state){
        .rank = (int)t->rank,
        .step = t->step,
        .last_step = last_step(t),
        .epoch = (double)t->passed / (double)t->job->info.n_train,
        .loss = cnn_meter_loss(m),
        .accuracy = cnn_meter_accuracy(m),
        .rate = cnn_meter_rate(m, now),
        .center_version = info.center_version,
        .time = {t->data_s, t->compute_s, info.update_seconds, info.exchange_seconds, now - t->started},
    };
}

static void report(struct training *t, double now)
{
    struct psc_metrics m = {.size = sizeof m,
                            .loss = cnn_meter_loss(&t->reported),
                            .accuracy = cnn_meter_accuracy(&t->reported),
                            .samples_per_second = cnn_meter_rate(&t->reported, now),
                            .test_loss = NAN,
                            .test_accuracy = NAN,
                            .steps = last_step(t)};
    psc_report(t->job->psc, &m); /* errors are ignored: the next step reports a lost server */
    if (t->reported.steps > 0) {
        struct cnn_progress_state s = state_of(t, &t->reported, now);
        cnn_events_train(t->job, &s);
    }
    cnn_meter_start(&t->reported, now);
}

static void print_progress(struct training *t, double now)
{
    if (!cnn_job_tells(t->job))
        return;
    if (now - t->reported.since >= REPORT_EVERY_S)
        report(t, now);
    if (cnn_progress_is_due(&t->progress, now)) {
        struct cnn_progress_state s = state_of(t, &t->shown, now);
        cnn_progress_show(&t->progress, &s, now);
        cnn_meter_start(&t->shown, now);
    }
}

/* Called when a loss or a vector is not finite; nothing was sent. Restarts from the center, at most
 * MAX_BAD_IN_A_ROW - 1 times in a row. Returns the result of psc_pull, or PSC_EVALUE to give up. */
static int start_over(struct training *t, const char *what)
{
    t->bad_in_a_row++;
    if (t->bad_in_a_row >= MAX_BAD_IN_A_ROW) {
        ps_log(PS_LOG_ERROR, "train.diverged",
               "%s at step %" PRIu64
               ", %u times in a row: training has diverged; a smaller learning_rate or a "
               "warm-up may help",
               what, t->step, t->bad_in_a_row);
        return PSC_EVALUE;
    }
    if (is_alone(t)) {
        ps_log(PS_LOG_ERROR, "train.diverged",
               "%s at step %" PRIu64
               ": training has diverged; a smaller --learning-rate or --warmup may help",
               what, t->step);
        return PSC_EVALUE;
    }
    ps_log(PS_LOG_WARN, "train.not_finite", "%s at step %" PRIu64 ": continuing from the center", what,
           t->step);
    return psc_pull(t->job->psc, NULL, t->job->x);
}

/* Sleeps for the rest of --step-ms, unless a signal requests a stop. */
static void linger(const struct training *t, double begun)
{
    double left_s = (double)t->job->args->step_ms / 1e3 - (ps_now_s() - begun);
    if (left_s > 0)
        cnn_stop_wait(t->job->stop, left_s);
}

/* Whether parts of the gradient may leave before the rest is computed: members of a clique sum them, or psd
 * moves the center by them, and nothing is done to the whole of it. */
static bool leaves_in_parts(const struct training *t)
{
    struct psc_info info = {.size = sizeof info};
    return t->accumulator.sum == NULL && isnan(t->job->args->clip_norm) &&
           psc_info(t->job->psc, &info) == PSC_OK && info.early != 0;
}

static void update_buffers(struct training *t)
{
    cnn_freeze_update_buffers(&t->job->freeze, t->job->net, t->job->x);
}

/* Where the vector's first value lies that training moves. */
static uint64_t first_trained(const struct cnn_job *job)
{
    size_t i = 0;
    while (i + 1 < job->n_params && job->params[i].role != CNN_PARAM)
        i++;
    return job->params[i].offset;
}

/* A struct cnn_ready. The batch's statistics are known before the first part of g is. The part with the first
 * trained value waits until the loss is known; before it there are only frozen ones and buffers. */
static void send_part(void *arg, uint64_t offset, uint64_t n)
{
    struct training *t = arg;
    if (t->parts.sent == 0)
        update_buffers(t);
    t->parts.sent++;
    uint64_t first = first_trained(t->job);
    if (offset <= first && first < offset + n) {
        t->parts.held_at = offset;
        t->parts.held = n;
    } else if (t->parts.rc == PSC_OK)
        t->parts.rc = psc_ready(t->job->psc, offset, n);
}

/* The first half of psc_step, where the gradient leaves in parts. */
static int begin_parts(struct training *t)
{
    struct cnn_job *job = t->job;
    t->parts = (struct parts){0};
    if (!leaves_in_parts(t))
        return PSC_OK;
    int rc = psc_step_begin(job->psc, job->x, t->g, images_of(t));
    t->parts.begun = rc == PSC_OK;
    return rc;
}

/* A device uploads the batch after the present one, if it is there already, beside the step. */
static int announce_next(struct training *t)
{
    struct cnn_batch next;
    return cnn_stream_peek(t->stream, &next) > 0 ? cnn_net_announce(t->job->net, &next) : 0;
}

/* Computes the gradient of the next batch into t->g and its score, and updates the running statistics.
 * PSC_OK, or PSC_EINVAL after logging the cause; or as psc_step_begin. */
static int compute(struct training *t, struct cnn_score *score)
{
    struct cnn_job *job = t->job;
    const struct cnn_ready ready = {send_part, t};
    double t0 = ps_now_s();
    struct cnn_batch batch;
    int n = cnn_stream_borrow(t->stream, &batch);
    double t1 = ps_now_s();
    if (n < 0) {
        ps_log(PS_LOG_ERROR, "data.failed", "%s", cnn_stream_error(t->stream));
        t->data_failed = true;
        return PSC_EINVAL;
    }
    int rc = begin_parts(t);
    if (rc != PSC_OK)
        return rc;
    if (announce_next(t) != 0 ||
        cnn_net_gradient_of(job->net, job->x, &batch, t->g, t->parts.begun ? &ready : NULL, score) != 0) {
        ps_log(PS_LOG_ERROR, "net.failed", "%s", cnn_net_error(job->net));
        return PSC_EINVAL;
    }
    t->draws++;
    linger(t, t1);
    double t2 = ps_now_s();
    t->data_s += t1 - t0;
    t->compute_s += t2 - t1;
    if (!t->parts.begun && (isfinite(score->loss) || cnn_job_is_shared(job)))
        update_buffers(t);
    return PSC_OK;
}

/* Computes the step's gradient, over all its batches, into t->g. Stops after a batch whose loss is not
 * finite. */
static int compute_all(struct training *t, struct cnn_score *sum)
{
    uint32_t n = 0;
    int rc;
    *sum = (struct cnn_score){.loss = 0};
    cnn_accumulator_clear(&t->accumulator);
    do {
        struct cnn_score score;
        if ((rc = compute(t, &score)) != PSC_OK)
            return rc;
        sum->loss += score.loss;
        sum->n_correct += score.n_correct;
        n++;
    } while (isfinite(sum->loss) && !cnn_accumulator_add(&t->accumulator, t->g));
    sum->loss /= n;
    if (!isnan(t->job->args->clip_norm))
        cnn_gradient_clip(t->job->params, t->job->n_params, t->g, t->job->args->clip_norm);
    return PSC_OK;
}

/* psc_step, of which some may be done. */
static int end_step(struct training *t)
{
    struct cnn_job *job = t->job;
    if (!t->parts.begun)
        return psc_step(job->psc, job->x, t->g, images_of(t));
    int rc = t->parts.rc == PSC_OK ? psc_ready(job->psc, t->parts.held_at, t->parts.held) : t->parts.rc;
    return rc == PSC_OK ? psc_step_end(job->psc) : rc;
}

/* Counts a step with n images, of this partition or of the undivided worker. */
static void count_step(struct training *t, const struct cnn_score *score, uint32_t n)
{
    const struct cnn_partition *p = t->job->partition;
    double loss_sum = 0;
    uint64_t steps = 0, images = 0, correct = 0;
    struct cnn_meter *meters[] = {&t->shown, &t->reported, &t->whole};
    if (p != NULL && p->index == 0)
        cnn_partition_take(p, &loss_sum, &steps, &images, &correct);
    for (size_t i = 0; i < sizeof meters / sizeof *meters; i++) {
        cnn_meter_add(meters[i], score->loss, score->n_correct, n);
        cnn_meter_add_steps(meters[i], loss_sum, steps, correct, images);
    }
}

/* Makes all members refuse the step. They sum only what is trained; g may lie on a device. */
static int spoil(struct training *t)
{
    const float bad = NAN;
    return psc_write(t->job->psc, t->g + first_trained(t->job), &bad, 1);
}

/* Steps of the library since the last one: more than one where a member that was ahead has made them when a
 * clique lost a member; 0 after a restart from the center. */
static uint64_t steps_made(struct training *t)
{
    uint64_t clock = psc_clock(t->job->psc), n = clock > t->clock ? clock - t->clock : 1;
    t->clock = clock;
    return n;
}

/* One step. PSC_OK to continue, PSC_DRAINED, or a negative PSC_E…. */
static int train_step(struct training *t)
{
    struct cnn_job *job = t->job;
    struct cnn_score score;
    uint32_t n = images_of(t);
    int rc = compute_all(t, &score);
    if (rc != PSC_OK)
        return rc;
    if (!isfinite(score.loss) && !cnn_job_is_shared(job) && !t->parts.begun)
        return start_over(t, "the loss is not finite");
    if (!isfinite(score.loss) && cnn_job_is_shared(job))
        rc = spoil(t);
    else if (!cnn_job_tells(job)) /* before the sum, after which the first partition reads the counts */
        cnn_partition_count(job->partition, &score, n);

    rc = rc == PSC_OK ? end_step(t) : rc;
    if (rc == PSC_EVALUE)
        return start_over(t, "the vector to send is not finite");
    if (rc < 0)
        return rc;
    t->bad_in_a_row = 0;
    uint64_t made = steps_made(t);
    t->step += made;
    count_workers(t);
    t->passed += made * n * t->workers;
    count_step(t, &score, n);
    return rc;
}

static void say_end(struct training *t, const char *how)
{
    if (!cnn_job_tells(t->job))
        return;
    double now = now_of(t);
    struct cnn_progress_state s = state_of(t, t->shown.steps > 0 ? &t->shown : &t->whole, now);
    s.rate = cnn_meter_rate(&t->whole, now);
    if (t->reported.steps > 0)
        report(t, now);
    cnn_progress_end(&t->progress, &s, how);
}

/* Completes what is under way: an overlapped exchange, or the last sums of a pipeline. */
static void complete(struct training *t)
{
    if (psc_wait(t->job->psc, PSC_ALL) < 0)
        ps_log(PS_LOG_WARN, "train.last_exchange", "the last exchange did not complete: %s",
               psc_error(t->job->psc));
}

/* Whether the others may go on after the loss of a member, until all have completed what is under way: the
 * state of one that had saved before would be of another point than theirs. */
static bool completes_first(const struct cnn_worker_args *a)
{
    return a->clique != NULL &&
           (a->server != NULL || (a->on_loss != NULL && strcmp(a->on_loss, "shrink") == 0));
}

/* Steps of others that this member has taken over meanwhile, as it leaves a clique that goes on. */
static void take_over_steps(struct training *t)
{
    uint64_t clock = psc_clock(t->job->psc), made = clock > t->clock ? clock - t->clock : 0;
    t->clock = clock;
    t->step += made;
    t->passed += made * images_of(t) * t->workers;
}

/* Saves the state, as a rule with what is under way, so that a run that resumes applies it when an
 * uninterrupted one does. Returns an enum cnn_exit. */
static int leave_well(struct training *t)
{
    bool completes = completes_first(t->job->args);
    if (t->step == 0)
        return CNN_EXIT_OK;
    if (completes) {
        complete(t);
        take_over_steps(t);
    }
    bool is_saved = t->job->args->state == NULL || save(t) >= 0;
    if (!completes)
        complete(t);
    if (is_saved)
        return CNN_EXIT_OK;
    ps_log(PS_LOG_ERROR, "state.lost",
           "--state: the final state is not saved; a resume uses the previous one, if any");
    return CNN_EXIT_INTERNAL;
}

/* Without a server: evaluates if it is due. Returns an enum cnn_exit. */
static int examine(struct training *t, bool last)
{
    int begun = begin_examinations(t);
    if (begun != CNN_EXIT_OK || !examines(t))
        return begun;
    double begin = ps_now_s();
    int rc = cnn_local_evaluation_take(&t->exam, t->step, now_of(t) - t->started, last);
    t->aside_s += ps_now_s() - begin;
    return rc;
}

/* Whether a signal ends training before the next step. The members of a clique stop after the same one: then
 * psc_step says when. */
static bool stops(const struct training *t)
{
    return cnn_stop_asked(t->job->stop) && psc_stop(t->job->psc) == PSC_DRAINED;
}

/* Logs why training stops before its last step, and returns how it ends, in a word. */
static const char *say_stop(const struct training *t)
{
    bool asked = cnn_stop_asked(t->job->stop), served = t->job->args->server != NULL;
    const char *why = asked     ? "a signal asked to stop"
                      : !served ? "another member of the clique was asked to stop"
                      : cnn_job_is_shared(t->job)
                          ? "the server is draining, or another member of the clique was asked to stop"
                          : "the server is draining";
    ps_log(PS_LOG_INFO, asked || !served ? "train.stopped" : "train.drained",
           "%s: stopped after %" PRIu64 " steps", why, t->step);
    return asked || !served ? "stopped" : "drained";
}

/* Runs until the last step, a drain, a signal or a failure. */
static int loop(struct training *t, bool drained)
{
    int rc = PSC_OK, failed = CNN_EXIT_OK;
    const char *how = "finished";
    bool ended = drained;
    while (!ended && t->step < last_step(t)) {
        if ((ended = stops(t)))
            break;
        rc = train_step(t);
        if (rc < 0)
            break;
        ended = rc == PSC_DRAINED;
        save_if_asked(t);
        print_progress(t, now_of(t));
        if ((failed = examine(t, false)) != CNN_EXIT_OK)
            break;
    }
    if (ended)
        how = say_stop(t);
    if (rc >= 0 && failed == CNN_EXIT_OK) {
        int unsaved = leave_well(t);
        failed = examine(t, true);
        failed = failed != CNN_EXIT_OK ? failed : unsaved;
        if (examines(t))
            failed = cnn_scorer_end(&t->exam.scorer, failed);
    }
    say_end(t, rc < 0 || failed != CNN_EXIT_OK ? "failed" : how);
    if (failed != CNN_EXIT_OK)
        return failed;
    if (rc == PSC_EVALUE)
        return CNN_EXIT_DIVERGED;
    if (t->data_failed)
        return CNN_EXIT_DATA;
    return rc < 0 ? cnn_job_fail(t->job, "training ended", rc) : CNN_EXIT_OK;
}

int cnn_train(struct cnn_job *job, bool drained)
{
    struct training t;
    int rc = training_init(&t, job);
    if (rc == CNN_EXIT_OK && job->args->clique != NULL)
        ps_log(PS_LOG_INFO, "clique.begun", "member %d of a clique of %d begins to train",
               psc_clique_rank(job->clique.q), psc_clique_size(job->clique.q));
    if (rc == CNN_EXIT_OK && job->args->steps == 0 && cnn_job_tells(job))
        report(&t, now_of(&t)); /* the number of steps in --epochs is known now */
    if (rc == CNN_EXIT_OK)
        rc = loop(&t, drained);
    training_finish(&t);
    return rc;
}
