/* step.c: enqueues the steps of a net, and waits for them. */
#include "nets/cuda/cuda.h"

#include <string.h>

/* After a failure: the next call reuses the pinned memory. */
static void give_up(struct cnn_cuda *d)
{
    cnn_cuda_wait_for_all(d);
    cnn_cuda_forget_batches(d);
    d->n_ended = d->n_begun;
    d->is_late = false;
}

static int forward(struct cnn_cuda *d, struct ps_error *err)
{
    int rc = cnn_cuda_copy_weights(d, err);

    for (size_t i = 0; i < d->plan->n_layers && rc == 0; i++) {
        struct cnn_cuda_layer *l = &d->layers[i];
        if (l->kind != NULL && (d->is_training || l->plan->is_scored))
            rc = l->kind->forward(d, l, err);
    }
    return rc;
}

/* Loss number `number` of the model. wants_gradient: also computes the gradient of the logits. */
static int run_loss(struct cnn_cuda *d, const struct cnn_cuda_layer *l, size_t number, bool wants_gradient,
                    struct ps_error *err)
{
    const struct cnn_cuda_loss p = {d->plan->model->classes, l->sum[0] != NULL,
                                    wants_gradient ? d->label_smoothing : 0, cnn_loss_weight(l->plan) / d->n};
    return cnn_cuda_check(cu_loss(d->compute, l->is_wide ? CNN_CUDA_FLOAT : d->type, d->type, p, d->n,
                                  l->in[0], d->labels, wants_gradient ? l->din[0] : NULL,
                                  d->rows + number * d->batch),
                          ": loss", l, err);
}

static int add_parts(struct cnn_cuda *d, const struct cnn_cuda_layer *l, struct ps_error *err)
{
    int rc = 0;

    for (uint32_t k = 0; k < l->plan->n_inputs && rc == 0; k++)
        if (l->sum[k] != NULL)
            rc = cnn_cuda_check(cu_add(d->compute, d->type, cnn_cuda_count(d, l->plan->inputs[k].shape),
                                       false, l->sum[k], l->din[k], l->sum[k]),
                                ": backward", l, err);
    return rc;
}

static int back_bucket(struct cnn_cuda *d, const struct cnn_cuda_bucket *b, struct ps_error *err)
{
    size_t loss = b->n_losses;
    int rc = 0;

    for (size_t i = b->end; i-- > b->first && rc == 0;) {
        struct cnn_cuda_layer *l = &d->layers[i];
        if (l->kind == NULL)
            rc = run_loss(d, l, --loss, true, err);
        else if (cnn_goes_back(l->plan)) {
            rc = l->kind->backward(d, l, err);
            if (rc == 0)
                rc = add_parts(d, l, err);
        }
    }
    return rc == 0 ? cnn_cuda_copy_gradients(d, b->first, b->end, err) : rc;
}

/* Enqueues the part of a step from the bucket on, or adds it to the graph being captured. */
static int put_part(struct cnn_cuda *d, const struct cnn_cuda_bucket *b, struct ps_error *err)
{
    const struct cnn_cuda_bucket *end = d->is_whole ? d->buckets + d->n_buckets : b + 1;
    int rc = b == d->buckets ? forward(d, err) : 0;

    for (; b < end && rc == 0; b++)
        rc = back_bucket(d, b, err);
    return rc;
}

/* Captures the part from the bucket on as a graph. If that fails, nothing has run, and the part is enqueued
 * without a graph from then on. */
static void capture_part(struct cnn_cuda *d, struct cnn_cuda_bucket *b)
{
    cudaGraph_t graph = NULL;
    cudaError_t e = cudaStreamBeginCapture(d->compute, cudaStreamCaptureModeThreadLocal);

    if (e == cudaSuccess) {
        int rc = put_part(d, b, NULL);
        e = cudaStreamEndCapture(d->compute, &graph);
        if (rc < 0 && e == cudaSuccess)
            e = cudaErrorUnknown;
    }
    if (e == cudaSuccess)
        e = cudaGraphInstantiate(&b->graph, graph, 0);
    if (graph != NULL)
        cudaGraphDestroy(graph);
    if (e == cudaSuccess)
        return;
    b->graph = NULL;
    d->refuses_capture = true;
    cudaGetLastError(); /* clears the error, which the next launch would report */
}

void cnn_cuda_drop_graphs(struct cnn_cuda *d)
{
    for (size_t i = 0; i < d->n_buckets; i++) {
        if (d->buckets[i].graph != NULL)
            cudaGraphExecDestroy(d->buckets[i].graph);
        d->buckets[i].graph = NULL;
    }
}

static int run_part(struct cnn_cuda *d, struct cnn_cuda_bucket *b, struct ps_error *err)
{
    if (b->graph == NULL && d->has_run && !d->refuses_capture)
        capture_part(d, b);
    return b->graph != NULL
               ? cnn_cuda_check(cudaGraphLaunch(b->graph, d->compute), "launching a graph", NULL, err)
               : put_part(d, b, err);
}

/* The pinned memory of the gradient that begins next, or of a score. */
static struct cnn_cuda_begun *next_of(struct cnn_cuda *d)
{
    return &d->begun[d->n_begun % CNN_MOST_BEGUN];
}

/* Enqueues the copy of losses after all other work. */
static int fetch_scores(struct cnn_cuda *d, size_t n_losses, struct ps_error *err)
{
    return cnn_cuda_check(cu_rows(d->compute, (uint32_t)n_losses * d->batch, d->rows, next_of(d)->rows),
                          "fetching the loss", NULL, err);
}

/* Enqueues the copy of the batch's statistics: after the first bucket's part and before its g, they arrive
 * with it. */
static int fetch_statistics(struct cnn_cuda *d, struct ps_error *err)
{
    cudaError_t e = d->n_stats == 0 ? cudaSuccess
                                    : cudaMemcpyAsync(d->host.stats, d->stats, d->n_stats * sizeof *d->stats,
                                                      cudaMemcpyDeviceToHost, d->compute);
    return cnn_cuda_check(e, "fetching the statistics", NULL, err);
}

/* The weighted mean of a loss over its n rows, summed in the order of the images. */
static struct cnn_score score_of(const struct cnn_layer *l, const struct cnn_cuda_row *rows, uint32_t n)
{
    struct cnn_score s = {0};
    double sum = 0;

    for (uint32_t i = 0; i < n; i++) {
        sum += rows[i].loss;
        s.n_correct += rows[i].rank == 0;
        s.n_correct_5 += rows[i].rank < 5;
    }
    s.loss = cnn_loss_weight(l) * (sum / n);
    return s;
}

/* One part and graph for the whole step, where no bucket is wanted before the others. */
static void choose_parts(struct cnn_cuda *d, const float *g)
{
    bool is_whole = d->is_late && g == d->g;

    if (is_whole != d->is_whole)
        cnn_cuda_drop_graphs(d);
    d->is_whole = is_whole;
}

static int put_gradient(struct cnn_cuda *d, const struct cnn_gradient_call *call, struct ps_error *err)
{
    int rc = cnn_cuda_use_vectors(d, call->x, call->g, err);

    choose_parts(d, call->g);
    if (rc == 0)
        rc = cnn_cuda_send_step(d, call->draw, err);
    if (rc == 0)
        rc = cnn_cuda_send_batch(d, call->batch, err);
    if (rc == 0)
        rc = cnn_cuda_send_vector(d, call->x, err);
    if (rc == 0)
        rc = cnn_cuda_send_ahead(d, err);
    for (size_t i = 0; i < d->n_buckets && rc == 0; i++) {
        if (i == 0 || !d->is_whole)
            rc = run_part(d, &d->buckets[i], err);
        if (rc == 0 && i == 0 && !d->keeps_statistics)
            rc = fetch_statistics(d, err);
        if (rc == 0)
            rc = cnn_cuda_fetch_bucket(d, &d->buckets[i], call->g, err);
    }
    if (rc == 0)
        rc = fetch_scores(d, d->n_losses, err);
    if (rc == 0)
        rc = cnn_cuda_join_buckets(d, err);
    return rc == 0
               ? cnn_cuda_check(cudaEventRecord(next_of(d)->done, d->compute), "ending a gradient", NULL, err)
               : rc;
}

/* Where g is wanted before the end of the gradient. */
static int hand_out(struct cnn_cuda *d, const struct cnn_gradient_call *call, struct ps_error *err)
{
    int rc = 0;

    for (size_t i = 0; i < d->n_buckets && rc == 0; i++)
        rc = cnn_cuda_hand_out_bucket(d, &d->buckets[i], call, err);
    return rc == 0 ? cnn_cuda_check(cudaStreamSynchronize(d->compute), "a gradient", NULL, err) : rc;
}

int cnn_cuda_begin(void *state, const struct cnn_gradient_call *call, struct ps_error *err)
{
    struct cnn_cuda *d = state;

    d->is_training = true;
    d->n = d->batch;
    d->label_smoothing = call->label_smoothing;
    d->is_late = call->ready == NULL && cnn_cuda_owns(call->x) && cnn_cuda_owns(call->g);
    d->keeps_statistics = d->is_late;
    int rc = put_gradient(d, call, err);
    if (rc == 0)
        rc = d->is_late ? cnn_cuda_leave_batch(d, err) : hand_out(d, call, err);
    if (rc < 0) {
        give_up(d);
        return rc;
    }
    d->has_run = true;
    d->n_begun++;
    return 0;
}

int cnn_cuda_end(void *state, struct cnn_score *out, struct ps_error *err)
{
    struct cnn_cuda *d = state;
    const struct cnn_cuda_begun *b = &d->begun[d->n_ended % CNN_MOST_BEGUN];
    const struct cnn_cuda_row *rows = b->rows;
    struct cnn_score sum = {0};
    int rc = cnn_cuda_check(cudaEventSynchronize(b->done), "a gradient", NULL, err);

    if (rc < 0) {
        give_up(d);
        return rc;
    }
    d->n_ended++;
    d->is_late = d->is_late && d->n_ended < d->n_begun;
    for (size_t i = 0; i < d->plan->n_layers; i++) {
        if (d->layers[i].kind != NULL)
            continue;
        struct cnn_score s = score_of(&d->plan->layers[i], rows, d->batch);
        rows += d->batch;
        sum.loss += s.loss;
        if (i == d->plan->main_loss) {
            sum.n_correct = s.n_correct;
            sum.n_correct_5 = s.n_correct_5;
        }
    }
    *out = sum;
    return 0;
}

static size_t logit_bytes(const struct cnn_cuda *d)
{
    return d->layers[d->plan->main_loss].is_wide ? sizeof(float) : d->value_bytes;
}

static double logit_at(const struct cnn_cuda *d, size_t i)
{
    if (logit_bytes(d) == sizeof(float))
        return (double)((const float *)d->host.logits)[i];
    uint32_t bits = (uint32_t)((const struct cnn_cuda_bf16 *)d->host.logits)[i].bits << 16;
    float f;
    memcpy(&f, &bits, sizeof f);
    return (double)f;
}

static void predict(struct cnn_cuda *d, uint32_t n, const struct cnn_predictions *out)
{
    uint32_t classes = d->plan->model->classes;

    for (uint32_t i = 0; i < n; i++) {
        for (uint32_t k = 0; k < classes; k++)
            d->z[k] = logit_at(d, (size_t)i * classes + k);
        cnn_softmax_predict(classes, d->z, d->z + classes, i, out);
    }
}

static int put_score(struct cnn_cuda *d, const float *x, const struct cnn_batch *batch, bool wants_logits,
                     struct ps_error *err)
{
    const struct cnn_cuda_layer *main_loss = &d->layers[d->plan->main_loss];
    int rc = cnn_cuda_use_vectors(d, x, NULL, err);

    if (rc == 0)
        rc = cnn_cuda_send_batch(d, batch, err);
    if (rc == 0)
        rc = cnn_cuda_send_vector(d, x, err);
    if (rc == 0)
        rc = forward(d, err);
    if (rc == 0)
        rc = run_loss(d, main_loss, 0, false, err);
    if (rc == 0 && wants_logits)
        rc = cnn_cuda_check(cudaMemcpyAsync(d->host.logits, main_loss->in[0],
                                            (size_t)batch->n * d->plan->model->classes * logit_bytes(d),
                                            cudaMemcpyDeviceToHost, d->compute),
                            "fetching the outputs", NULL, err);
    if (rc == 0)
        rc = fetch_scores(d, 1, err);
    return rc;
}

int cnn_cuda_score(void *state, const float *x, const struct cnn_batch *batch,
                   const struct cnn_predictions *out, struct cnn_score *score, struct ps_error *err)
{
    struct cnn_cuda *d = state;
    bool wants_logits = out->classes != NULL || out->probabilities != NULL;

    d->is_training = false;
    d->n = batch->n;
    int rc = put_score(d, x, batch, wants_logits, err);
    if (rc == 0)
        rc = cnn_cuda_check(cudaStreamSynchronize(d->compute), "a score", NULL, err);
    if (rc < 0) {
        give_up(d);
        return rc;
    }
    *score = score_of(&d->plan->layers[d->plan->main_loss], next_of(d)->rows, batch->n);
    if (wants_logits)
        predict(d, batch->n, out);
    return 0;
}

void cnn_cuda_update_buffers(void *state, float *x)
{
    struct cnn_cuda *d = state;
    const double *stats = d->host.stats;

    if (d->n_norms == 0)
        return;
    /* Where these fail, the next call fails likewise, and tells it. */
    if (cnn_cuda_owns(x)) {
        if (cu_norm_move(d->compute, (uint32_t)d->n_norms, d->running, d->stats, x) == cudaSuccess &&
            !d->is_late)
            cudaStreamSynchronize(d->compute);
        return;
    }
    if (d->keeps_statistics && fetch_statistics(d, NULL) == 0)
        cudaEventRecord(d->buckets[0].arrived, d->compute);
    if (cudaEventSynchronize(d->buckets[0].arrived) != cudaSuccess) /* after the statistics */
        return;
    d->keeps_statistics = false;
    for (size_t i = 0; i < d->plan->n_layers; i++) {
        const struct cnn_layer *l = &d->plan->layers[i];
        for (uint32_t c = 0; c < l->n_buffers; c++)
            cnn_batchnorm_move(l, c, stats[c], stats[l->n_buffers + c], (size_t)d->batch * l->in.h * l->in.w,
                               x);
        stats += 2 * l->n_buffers;
    }
}
