/* The gradient of a step: over one batch or several, and leaving in parts where that is possible. */
#include "nets/worker/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "nets/net.h"
#include "proto/clock.h"
#include "proto/log.h"

/* Sleeps for the rest of --step-ms, unless a signal requests a stop. */
static void linger(const struct cnn_training *t, double begun)
{
    double left_s = (double)t->job->args->step_ms / 1e3 - (ps_now_s() - begun);
    if (left_s > 0)
        cnn_stop_wait(t->job->stop, left_s);
}

/* Whether parts of the gradient may leave before the rest is computed: members of a clique sum them, or psd
 * moves the center by them, and nothing is done to the whole of it. */
static bool leaves_in_parts(const struct cnn_training *t)
{
    struct psc_info info = {.size = sizeof info};
    return t->accumulator.sum == NULL && isnan(t->job->args->clip_norm) &&
           psc_info(t->job->psc, &info) == PSC_OK && info.early != 0;
}

static void update_buffers(struct cnn_training *t)
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
    struct cnn_training *t = arg;
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
static int begin_parts(struct cnn_training *t)
{
    struct cnn_job *job = t->job;
    t->parts = (struct cnn_gradient_parts){0};
    if (!leaves_in_parts(t))
        return PSC_OK;
    int rc = psc_step_begin(job->psc, job->x, t->g, cnn_training_images(t));
    t->parts.begun = rc == PSC_OK;
    return rc;
}

/* A device uploads the batch after the present one, if it is there already, beside the step. */
static int announce_next(struct cnn_training *t)
{
    struct cnn_batch next;
    return cnn_stream_peek(t->stream, &next) > 0 ? cnn_net_announce(t->job->net, &next) : 0;
}

static int next_batch(struct cnn_training *t, struct cnn_batch *out)
{
    double begun = ps_now_s();
    int n = cnn_stream_borrow(t->stream, out);
    t->data_s += ps_now_s() - begun;
    if (n >= 0)
        return PSC_OK;
    ps_log(PS_LOG_ERROR, "data.failed", "%s", cnn_stream_error(t->stream));
    t->data_failed = true;
    return PSC_EINVAL;
}

static int fail_net(struct cnn_training *t)
{
    ps_log(PS_LOG_ERROR, "net.failed", "%s", cnn_net_error(t->job->net));
    cnn_training_drop(t);
    return PSC_EINVAL;
}

/* Computes the gradient of the next batch into t->g and its score, and updates the running statistics.
 * PSC_OK, or PSC_EINVAL after logging the cause; or as psc_step_begin. */
static int compute(struct cnn_training *t, struct cnn_score *score)
{
    struct cnn_job *job = t->job;
    const struct cnn_ready ready = {send_part, t};
    struct cnn_batch batch;
    int rc = next_batch(t, &batch);
    double begun = ps_now_s();
    rc = rc == PSC_OK ? begin_parts(t) : rc;
    if (rc != PSC_OK)
        return rc;
    if (announce_next(t) != 0 ||
        cnn_net_gradient_of(job->net, job->x, &batch, t->g, t->parts.begun ? &ready : NULL, score) != 0)
        return fail_net(t);
    t->draws++;
    linger(t, begun);
    t->compute_s += ps_now_s() - begun;
    if (!t->parts.begun && (isfinite(score->loss) || cnn_job_is_shared(job)))
        update_buffers(t);
    return PSC_OK;
}

bool cnn_training_is_late(const struct cnn_training *t)
{
    return t->job->on_device && t->job->clique.q == NULL;
}

/* The statistics move before the loss is known: where it is not finite, x is of no use any more. */
int cnn_training_begin(struct cnn_training *t)
{
    struct cnn_job *job = t->job;
    struct cnn_batch batch;
    int rc = next_batch(t, &batch);
    double begun = ps_now_s();
    if (rc != PSC_OK)
        return rc;
    if (announce_next(t) != 0 || cnn_net_gradient_begin(job->net, job->x, &batch, t->g, NULL) != 0)
        return fail_net(t);
    t->draws++;
    t->begun++;
    update_buffers(t);
    linger(t, begun);
    t->compute_s += ps_now_s() - begun;
    return PSC_OK;
}

int cnn_training_end(struct cnn_training *t, struct cnn_score *score)
{
    double begun = ps_now_s();
    if (cnn_net_gradient_end(t->job->net, score) != 0)
        return fail_net(t);
    t->begun--;
    t->compute_s += ps_now_s() - begun;
    return PSC_OK;
}

void cnn_training_drop(struct cnn_training *t)
{
    struct cnn_score score;
    while (cnn_net_gradient_end(t->job->net, &score) == 0)
        ;
    t->begun = 0;
}

/* Copies the buffers of x to `kept`, or back. Returns how many values they have. */
static size_t copy_buffers(const struct cnn_job *job, float *kept, bool back)
{
    size_t n = 0;
    for (size_t i = 0; i < job->n_params; i++) {
        if (job->params[i].role != CNN_BUFFER)
            continue;
        float *x = job->x + job->params[i].offset;
        size_t count = cnn_param_count(&job->params[i]);
        if (kept != NULL)
            memcpy(back ? x : kept + n, back ? kept + n : x, count * sizeof *x);
        n += count;
    }
    return n;
}

int cnn_training_mark(struct cnn_training *t)
{
    struct cnn_job *job = t->job;
    struct cnn_step_begin *b = &t->before;
    b->clock = psc_clock(job->psc);
    b->draws = t->draws;
    cnn_stream_position(t->stream, &b->position);
    if (job->args->state == NULL || job->on_device)
        return PSC_OK;
    if (b->buffers == NULL &&
        (b->buffers = malloc((copy_buffers(job, NULL, false) + 1) * sizeof(float))) == NULL) {
        ps_log(PS_LOG_ERROR, "net.failed", "no memory for the buffers of a step");
        return PSC_ENOMEM;
    }
    copy_buffers(job, b->buffers, false);
    return PSC_OK;
}

bool cnn_training_take_back(struct cnn_training *t)
{
    const struct cnn_step_begin *b = &t->before;
    t->draws = b->draws;
    cnn_stream_seek(t->stream, &b->position, NULL); /* valid: the stream was there */
    return copy_buffers(t->job, b->buffers, true) == 0 || b->buffers != NULL;
}

int cnn_training_gradient(struct cnn_training *t, struct cnn_score *sum)
{
    bool shared = cnn_job_is_shared(t->job); /* then all draw as many batches */
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
    } while ((isfinite(sum->loss) || shared) && !cnn_accumulator_add(&t->accumulator, t->g));
    sum->loss /= n;
    if (!isnan(t->job->args->clip_norm))
        cnn_gradient_clip(t->job->params, t->job->n_params, t->g, t->job->args->clip_norm);
    return PSC_OK;
}

int cnn_training_step(struct cnn_training *t)
{
    struct cnn_job *job = t->job;
    if (!t->parts.begun)
        return psc_step(job->psc, job->x, t->g, cnn_training_images(t));
    int rc = t->parts.rc == PSC_OK ? psc_ready(job->psc, t->parts.held_at, t->parts.held) : t->parts.rc;
    return rc == PSC_OK ? psc_step_end(job->psc) : rc;
}

/* The members sum only what is trained; g may lie on a device. */
int cnn_training_spoil(struct cnn_training *t)
{
    const float bad = NAN;
    return psc_write(t->job->psc, t->g + first_trained(t->job), &bad, 1);
}
