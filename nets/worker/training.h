/* training.h: the state of a training loop (train.c), and the gradient of its steps (gradient.c). */
#ifndef CNN_WORKER_TRAINING_H
#define CNN_WORKER_TRAINING_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "nets/data/data.h"
#include "nets/training/gradient.h"
#include "nets/worker/evaluate/evaluate_local.h"
#include "nets/worker/job/job.h"
#include "nets/worker/job/progress.h"

/* The gradient of a step, where it leaves in parts. */
struct cnn_gradient_parts {
    bool begun;
    int rc;
    uint32_t sent;          /* parts */
    uint64_t held_at, held; /* the part with the first trained value */
};

/* Where a step began, to make it again. */
struct cnn_step_begin {
    uint64_t clock; /* the library's */
    uint64_t draws;
    struct cnn_position position;
    float *buffers; /* of x, one after the other; NULL: not kept */
};

struct cnn_training {
    struct cnn_job *job;
    struct cnn_stream *stream;
    float *g;
    struct cnn_gradient_parts parts;
    struct cnn_accumulator accumulator;
    uint64_t step, clock; /* clock: the library's */
    uint32_t rank;        /* as training began: losses in a clique change it */
    uint64_t passed;      /* images of all workers so far: each step counts for all workers */
    uint32_t workers;     /* largest number of workers since this one began; at least 1 */
    uint64_t draws;       /* gradients computed, or begun */
    uint32_t begun;       /* steps whose scores are not known yet: neither `step` nor a meter counts them */
    struct cnn_step_begin before;
    bool untaken;           /* psd ended within the last step, which does not count */
    bool lost;              /* and x is not what it was before: there is nothing to save */
    uint64_t saved_version; /* the center's version when the state was last saved */
    struct stat saved;      /* of cnn_train_state_save */
    unsigned bad_in_a_row;  /* steps without a finite loss or vector */
    bool data_failed;
    double started, data_s, compute_s;
    double aside_s; /* spent on evaluations; not training time */
    bool may_examine;
    struct cnn_local_evaluation exam;
    struct cnn_meter shown, reported, whole;
    struct cnn_progress progress;
};

static inline uint32_t cnn_training_batch(const struct cnn_training *t)
{
    return (uint32_t)t->job->args->batch;
}

/* Images of a step. */
static inline uint32_t cnn_training_images(const struct cnn_training *t)
{
    return cnn_training_batch(t) * (uint32_t)t->job->args->accumulate;
}

/* Called before a step: keeps in t->before where it begins. PSC_OK, or PSC_ENOMEM after logging it. */
int cnn_training_mark(struct cnn_training *t);
/* Returns to there, as if the step had not begun, where it has moved at most the buffers of x. False: they
 * are on a device, and not as they were. */
bool cnn_training_take_back(struct cnn_training *t);

/* Computes the gradient of the next step into t->g, and its score; parts of it may leave meanwhile. Stops
 * after a batch whose loss is not finite, unless others share the step. PSC_OK; PSC_EINVAL after logging the
 * cause; or as psc_step_begin.
 */
int cnn_training_gradient(struct cnn_training *t, struct cnn_score *score);
/* Whether the score of a step may be known when the next has begun: x and g lie on a device, and nothing is
 * done to them but in the net's stream. Then a step is cnn_training_begin, for a gradient in t->g,
 * cnn_training_step, and later cnn_training_end for its score. Results as of cnn_training_gradient; after a
 * failure nothing is begun. */
bool cnn_training_is_late(const struct cnn_training *t);
int cnn_training_begin(struct cnn_training *t);
int cnn_training_end(struct cnn_training *t, struct cnn_score *score);
/* Ends what was begun: those steps do not count. */
void cnn_training_drop(struct cnn_training *t);
/* Makes all members refuse the step. */
int cnn_training_spoil(struct cnn_training *t);
/* psc_step with that gradient, or the rest of it. */
int cnn_training_step(struct cnn_training *t);

#endif
