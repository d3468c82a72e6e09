#include "nets/data/sampler.h"

#include <errno.h>
#include <stdlib.h>

#include "nets/philox.h"

/* Every epoch's order is a function of (seed, rank, epoch) alone, so that a stream may start anywhere. */
static void shuffle(struct cnn_order *o)
{
    struct cnn_random r = cnn_random_start(cnn_philox_key_of(o->seed), o->rank, (uint32_t)o->at.epoch,
                                           (uint32_t)(o->at.epoch >> 32));
    if (o->permutation == NULL)
        return; /* a test split has one order */
    for (uint32_t i = 0; i < o->n; i++)
        o->permutation[i] = i;
    for (uint32_t i = o->n; i > 1; i--) { /* Fisher and Yates */
        uint32_t j = cnn_random_below(&r, i);
        uint32_t swap = o->permutation[i - 1];
        o->permutation[i - 1] = o->permutation[j];
        o->permutation[j] = swap;
    }
}

int cnn_order_init(struct cnn_order *o, const struct cnn_data_info *info,
                   const struct cnn_stream_options *opt, struct ps_error *err)
{
    bool trains = opt->split == CNN_TRAIN;
    *o = (struct cnn_order){.split = opt->split,
                            .seed = trains ? opt->seed : 0,
                            .rank = trains ? opt->rank : 0,
                            .n = (uint32_t)(trains ? info->n_train : info->n_test)};
    if (!trains)
        return 0;
    o->permutation = calloc(o->n, sizeof *o->permutation);
    if (o->permutation == NULL)
        return ps_fail(err, -ENOMEM, "no memory for the order of %u images", o->n);
    shuffle(o);
    return 0;
}

void cnn_order_finish(struct cnn_order *o)
{
    free(o->permutation);
}

int cnn_order_check(const struct cnn_order *o, const struct cnn_position *to, struct ps_error *err)
{
    if (o->split == CNN_TEST && to->epoch != 0)
        return ps_fail(err, -EINVAL, "epoch %llu of a test split; allowed: 0", (unsigned long long)to->epoch);
    if (to->index > o->n)
        return ps_fail(err, -EINVAL, "image %llu of an epoch; allowed: 0 to %u",
                       (unsigned long long)to->index, o->n);
    return 0;
}

void cnn_order_seek(struct cnn_order *o, const struct cnn_position *to)
{
    bool other = to->epoch != o->at.epoch;
    o->at = *to;
    if (other)
        shuffle(o);
}

uint32_t cnn_order_draw(struct cnn_order *o, uint32_t batch, struct cnn_pick *picks)
{
    for (uint32_t i = 0; i < batch; i++) {
        if (o->at.index == o->n) {
            if (o->split == CNN_TEST)
                return i;
            o->at.index = 0;
            o->at.epoch++;
            shuffle(o);
        }
        uint32_t place = (uint32_t)o->at.index++;
        picks[i] = (struct cnn_pick){o->at.epoch, o->permutation != NULL ? o->permutation[place] : place};
    }
    return batch;
}
