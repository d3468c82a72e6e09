/* The training loop: batch, gradient, psc_step. */
#include "nets/worker/run.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nets/worker/job/events.h"
#include "nets/worker/job/train_state.h"
#include "nets/worker/training.h"
#include "proto/clock.h"
#include "proto/log.h"

enum { MAX_BAD_IN_A_ROW = 10 };
#define REPORT_EVERY_S 2.0

/* The training clock: it stops during evaluations. */
static double now_of(const struct cnn_training *t)
{
    return ps_now_s() - t->aside_s;
}

static bool is_alone(const struct cnn_training *t)
{
    return t->job->args->method != NULL;
}

/* Without a server, one of the training processes evaluates: of those that are left. */
static bool is_examiner(const struct cnn_training *t)
{
    return is_alone(t) && (!cnn_job_is_shared(t->job) || psc_clique_rank(t->job->clique.q) == 0);
}

static bool examines(const struct cnn_training *t)
{
    return t->may_examine;
}

/* A worker that has finished and left still counts, so that all workers make equally many steps. */
static void count_workers(struct cnn_training *t)
{
    struct psc_info info = {.size = sizeof info};
    if (psc_info(t->job->psc, &info) == PSC_OK && info.workers > t->workers)
        t->workers = info.workers;
}

/* The step after which training ends. With --epochs it assumes that no more workers join. */
static uint64_t last_step(const struct cnn_training *t)
{
    const struct cnn_worker_args *a = t->job->args;
    if (a->steps != 0)
        return a->steps;
    uint64_t wanted = a->epochs * t->job->info.n_train,
             a_step = (uint64_t)cnn_training_images(t) * t->workers;
    return t->passed < wanted ? t->step + (wanted - t->passed + a_step - 1) / a_step : t->step;
}

static void training_finish(struct cnn_training *t)
{
    cnn_accumulator_finish(&t->accumulator);
    cnn_training_drop(t);
    cnn_job_free_vector(t->job, t->g);
    free(t->before.buffers);
    cnn_net_announce(t->job->net, NULL); /* which may read a batch of the stream: fails as the step did */
    cnn_stream_destroy(t->stream);
    if (examines(t))
        cnn_local_evaluation_close(&t->exam);
}

/* Returns an enum cnn_exit. */
static int begin_examinations(struct cnn_training *t)
{
    if (examines(t) || !is_examiner(t))
        return CNN_EXIT_OK;
    t->may_examine = true;
    return cnn_local_evaluation_open(&t->exam, t->job);
}

static uint32_t parts_of(const struct cnn_job *job)
{
    return job->partition != NULL ? job->partition->all->placement.n : 1;
}

static struct cnn_train_state place_of(const struct cnn_training *t)
{
    struct cnn_train_state place = {.steps = t->step,
                                    .draws = t->draws,
                                    .seed = t->job->args->seed,
                                    .batch = cnn_training_batch(t),
                                    .rank = t->rank,
                                    .passed = t->passed,
                                    .parts = parts_of(t->job),
                                    .accumulate = t->job->args->accumulate};
    cnn_stream_position(t->stream, &place.position);
    return place;
}

/* A failed save is only logged; training continues. A failure of the last save changes the exit status. */
static int save(struct cnn_training *t)
{
    const char *path = t->job->args->state;
    struct cnn_train_state place = place_of(t);
    int rc = cnn_train_state_save(t->job->psc, path, t->job->x, &place, &t->saved);
    if (rc < 0)
        ps_log(PS_LOG_WARN, "state.not_saved", "%s (%s)", psc_error(t->job->psc), psc_result_name(rc));
    else
        ps_log(PS_LOG_INFO, "state.saved", "%s: after %" PRIu64 " steps", path, t->step);
    return rc;
}

/* Whether psd has written a checkpoint since the last time. */
static bool is_save_asked(struct cnn_training *t)
{
    struct psc_info info = {.size = sizeof info};
    if (t->job->args->state == NULL || psc_info(t->job->psc, &info) < 0 ||
        info.save_version == t->saved_version)
        return false;
    t->saved_version = info.save_version;
    return true;
}

/* Resumes from the state file. Returns an enum cnn_exit. */
static int resume(struct cnn_training *t)
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
    t->passed = place.passed > 0 ? place.passed : t->step * cnn_training_images(t) * t->workers;
    ps_log(PS_LOG_INFO, "state.loaded", "%s: resuming after %" PRIu64 " steps", path, t->step);
    return CNN_EXIT_OK;
}

/* drained: psd let the worker in no more. It loads no state, and leaves its file to the next run. */
static int training_init(struct cnn_training *t, struct cnn_job *job, bool drained)
{
    struct ps_error err;
    *t = (struct cnn_training){.job = job, .workers = 1, .rank = cnn_job_rank(job)};
    count_workers(t);
    struct cnn_stream_options opt = {.split = CNN_TRAIN,
                                     .seed = job->args->seed,
                                     .rank = t->rank,
                                     .batch = cnn_training_batch(t),
                                     .height = job->model.height,
                                     .width = job->model.width,
                                     .prefetch = (uint32_t)job->args->prefetch,
                                     .threads = (uint32_t)job->args->data_threads};
    if (job->partition != NULL) {
        opt.part = job->partition->index;
        opt.parts = parts_of(job);
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
    int rc = drained ? CNN_EXIT_OK : resume(t);
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

static struct cnn_progress_state state_of(const struct cnn_training *t, const struct cnn_meter *m, double now)
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

/* As psd counts them: from the step of the job's schedule at which this worker began. */
static uint64_t last_clock(const struct cnn_training *t)
{
    return last_step(t) + (t->clock > t->step ? t->clock - t->step : 0);
}

static void report(struct cnn_training *t, double now)
{
    struct psc_metrics m = {.size = sizeof m,
                            .loss = cnn_meter_loss(&t->reported),
                            .accuracy = cnn_meter_accuracy(&t->reported),
                            .samples_per_second = cnn_meter_rate(&t->reported, now),
                            .test_loss = NAN,
                            .test_accuracy = NAN,
                            .steps = last_clock(t)};
    psc_report(t->job->psc, &m); /* errors are ignored: the next step reports a lost server */
    if (t->reported.steps > 0) {
        struct cnn_progress_state s = state_of(t, &t->reported, now);
        cnn_events_train(t->job, &s);
    }
    cnn_meter_start(&t->reported, now);
}

static void print_progress(struct cnn_training *t, double now)
{
    if (!cnn_job_tells(t->job) || t->whole.steps == 0)
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
static int start_over(struct cnn_training *t, const char *what)
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

/* Counts a step with n images, of this partition or of the undivided worker. */
static void count_step(struct cnn_training *t, const struct cnn_score *score, uint32_t n)
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

/* Steps of the library since the last one: more than one where a member that was ahead has made them when a
 * clique lost a member; 0 after a restart from the center. */
static uint64_t steps_made(struct cnn_training *t)
{
    uint64_t clock = psc_clock(t->job->psc), n = clock > t->clock ? clock - t->clock : 1;
    t->clock = clock;
    return n;
}

/* After a step of the library: it counts. */
static void pass_step(struct cnn_training *t, const struct cnn_score *score)
{
    uint32_t n = cnn_training_images(t);
    uint64_t made = steps_made(t);
    t->bad_in_a_row = 0;
    t->step += made;
    count_workers(t);
    t->passed += made * n * t->workers;
    count_step(t, score, n);
}

/* Takes the scores of the steps that were made but for the last `left`. PSC_OK; otherwise nothing is begun
 * any more, and it is as train_step. After a loss that is not finite nothing is begun either: its step and
 * those behind it do not count. */
static int take_scores(struct cnn_training *t, uint32_t left)
{
    struct cnn_score score;
    int rc = PSC_OK;
    while (rc == PSC_OK && t->begun > left) {
        rc = cnn_training_end(t, &score);
        if (rc == PSC_OK && !isfinite(score.loss)) {
            cnn_training_drop(t);
            t->clock = psc_clock(t->job->psc);
            return start_over(t, "the loss is not finite");
        }
        if (rc == PSC_OK)
            pass_step(t, &score);
    }
    return rc;
}

/* The library has refused to send a vector that is not finite: for the loss, if that is not finite either. */
static int refuse_step(struct cnn_training *t)
{
    struct cnn_score score;
    int rc = cnn_training_end(t, &score);
    return rc != PSC_OK ? rc
                        : start_over(t, isfinite(score.loss) ? "the vector to send is not finite"
                                                             : "the loss is not finite");
}

/* Whether psd ended before it had taken the step: the library has not counted it. */
static bool is_untaken(const struct cnn_training *t, int rc)
{
    return rc == PSC_DRAINED && psc_clock(t->job->psc) == t->before.clock;
}

/* train_step where the device goes on while the host takes the score of the step before: begins the next
 * step, or takes the score of the last. */
static int late_step(struct cnn_training *t)
{
    if (t->step + t->begun >= last_step(t))
        return take_scores(t, 0);
    int rc = cnn_training_begin(t);
    int taken = take_scores(t, rc == PSC_OK ? 1 : 0);
    if (taken != PSC_OK || t->begun == 0)
        return taken < 0 || rc == PSC_OK ? taken : rc;
    rc = cnn_training_step(t);
    if (rc == PSC_EVALUE)
        return refuse_step(t);
    if (rc < 0 || is_untaken(t, rc))
        cnn_training_drop(t);
    if (rc != PSC_DRAINED)
        return rc;
    taken = take_scores(t, 0);
    return taken < 0 ? taken : rc;
}

/* One step. PSC_OK to continue, PSC_DRAINED, or a negative PSC_E…. */
static int train_step(struct cnn_training *t)
{
    struct cnn_job *job = t->job;
    struct cnn_score score;
    int rc = cnn_training_gradient(t, &score);
    if (rc != PSC_OK)
        return rc;
    if (!isfinite(score.loss) && !cnn_job_is_shared(job) && !t->parts.begun)
        return start_over(t, "the loss is not finite");
    if (!isfinite(score.loss) && cnn_job_is_shared(job))
        rc = cnn_training_spoil(t);
    else if (!cnn_job_tells(job)) /* before the sum, after which the first partition reads the counts */
        cnn_partition_count(job->partition, &score, cnn_training_images(t));

    rc = rc == PSC_OK ? cnn_training_step(t) : rc;
    if (rc == PSC_EVALUE)
        return start_over(t, "the vector to send is not finite");
    if (rc >= 0 && !is_untaken(t, rc))
        pass_step(t, &score);
    return rc;
}

/* train_step or late_step. One that psd has not taken is as if it had not begun: a resume makes it again. */
static int next_step(struct cnn_training *t)
{
    int rc = cnn_training_mark(t);
    if (rc != PSC_OK)
        return rc;
    rc = cnn_training_is_late(t) ? late_step(t) : train_step(t);
    t->untaken = is_untaken(t, rc);
    t->lost = t->untaken && !cnn_training_take_back(t);
    return rc;
}

static void say_end(struct cnn_training *t, const char *how)
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
static void complete(struct cnn_training *t)
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
static void take_over_steps(struct cnn_training *t)
{
    uint64_t clock = psc_clock(t->job->psc), made = clock > t->clock ? clock - t->clock : 0;
    t->clock = clock;
    t->step += made;
    t->passed += made * cnn_training_images(t) * t->workers;
}

static void say_lost(const struct cnn_training *t)
{
    if (t->job->args->state != NULL)
        ps_log(PS_LOG_WARN, "state.lost",
               "--state: what was done since the last save is not saved: a resume goes on from there, if "
               "there is one");
}

/* Saves the state, as a rule with what is under way, so that a run that resumes applies it when an
 * uninterrupted one does. Returns an enum cnn_exit. */
static int leave_well(struct cnn_training *t)
{
    bool completes = completes_first(t->job->args);
    if (t->step == 0)
        return CNN_EXIT_OK;
    if (t->lost) {
        say_lost(t);
        return CNN_EXIT_OK;
    }
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

/* Without a server: evaluates if it is due at `now`. Returns an enum cnn_exit. */
static int examine(struct cnn_training *t, double now, bool last)
{
    int begun = begin_examinations(t);
    if (begun != CNN_EXIT_OK || !examines(t))
        return begun;
    double begin = ps_now_s();
    int rc = cnn_local_evaluation_take(&t->exam, t->step, now - t->started, last);
    t->aside_s += ps_now_s() - begin;
    return rc;
}

/* Saves and evaluates where it is due, when the scores of all steps are taken. As train_step; *failed: an
 * enum cnn_exit. */
static int between_steps(struct cnn_training *t, int *failed)
{
    double now = now_of(t);
    bool saves = is_save_asked(t);
    bool is_due = examines(t) && cnn_local_evaluation_is_due(&t->exam, t->step + t->begun, now - t->started);
    int rc = saves || is_due ? take_scores(t, 0) : PSC_OK;
    if (rc < 0)
        return rc;
    if (saves && !t->lost)
        save(t);
    print_progress(t, now_of(t));
    *failed = examine(t, now, false);
    return PSC_OK;
}

/* Whether a signal ends training before the next step. The members of a clique stop after the same one: then
 * psc_step says when. */
static bool stops(const struct cnn_training *t)
{
    return cnn_stop_asked(t->job->stop) && psc_stop(t->job->psc) == PSC_DRAINED;
}

/* Logs why training stops before its last step, and returns how it ends, in a word. */
static const char *say_stop(const struct cnn_training *t)
{
    bool asked = cnn_stop_asked(t->job->stop), served = t->job->args->server != NULL;
    const char *why = asked     ? "a signal asked to stop"
                      : !served ? "another member of the clique was asked to stop"
                      : cnn_job_is_shared(t->job)
                          ? "the server is draining, or another member of the clique was asked to stop"
                          : "the server is draining";
    ps_log(PS_LOG_INFO, asked || !served ? "train.stopped" : "train.drained",
           "%s: stopped after %" PRIu64 " steps%s%s", why, t->step, t->untaken ? ", within the next: " : "",
           t->untaken ? psc_error(t->job->psc) : "");
    return asked || !served ? "stopped" : "drained";
}

/* Whether a step failed because a stop ended the wait for other workers; of a partition, the first one's. */
static bool is_left_waiting(const struct cnn_training *t, int rc)
{
    return (rc == PSC_EINTERRUPTED || (rc == PSC_ECLIQUE && t->job->partition != NULL)) &&
           cnn_stop_asked(t->job->stop);
}

/* Training that ends so has no state of its last step. Returns an enum cnn_exit. */
static int leave_waiting(const struct cnn_training *t)
{
    ps_log(PS_LOG_INFO, "train.stopped",
           "a signal asked to stop: stopped after %" PRIu64 " steps, within the next: %s", t->step,
           psc_error(t->job->psc));
    say_lost(t);
    return CNN_EXIT_OK;
}

/* Without psd nothing was saved meanwhile, and x is that of the last step. The members of a clique would save
 * different steps. */
static void save_before_failing(struct cnn_training *t)
{
    const struct cnn_worker_args *a = t->job->args;
    if (a->state != NULL && a->server == NULL && !cnn_job_is_shared(t->job) && t->step > 0 && t->begun == 0)
        save(t);
}

/* Runs until the last step, a drain, a signal or a failure. */
static int loop(struct cnn_training *t, bool drained)
{
    int rc = PSC_OK, failed = CNN_EXIT_OK;
    const char *how = "finished";
    bool ended = drained;
    while (!ended && t->step < last_step(t)) {
        if ((ended = stops(t)))
            break;
        if ((rc = next_step(t)) < 0)
            break;
        ended = rc == PSC_DRAINED;
        if ((rc = between_steps(t, &failed)) < 0 || failed != CNN_EXIT_OK)
            break;
    }
    if (rc >= 0 && failed == CNN_EXIT_OK)
        rc = take_scores(t, 0);
    if (is_left_waiting(t, rc)) {
        say_end(t, "stopped");
        return leave_waiting(t);
    }
    if (ended)
        how = say_stop(t);
    if (rc >= 0 && failed == CNN_EXIT_OK) {
        int unsaved = leave_well(t);
        failed = examine(t, now_of(t), true);
        failed = failed != CNN_EXIT_OK ? failed : unsaved;
        if (examines(t))
            failed = cnn_scorer_end(&t->exam.scorer, failed);
    }
    if (t->data_failed || failed != CNN_EXIT_OK)
        save_before_failing(t);
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
    struct cnn_training t;
    int rc = training_init(&t, job, drained);
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
