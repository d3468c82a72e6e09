#include "nets/data/sampler.h"

#include <errno.h>
#include <stdlib.h>

#include "nets/data/orders.h"

enum { TEST_AHEAD = 256 }; /* how far ahead images of a test split are announced */

static void fill(struct cnn_order *o)
{
    if (o->permutation != NULL) /* a test split has one order */
        cnn_order_kinds[o->sampling.kind].fill(o);
}

/* The sampling in use: the set's default unless one is requested. */
static struct cnn_sampling sampling_of(const struct cnn_data_info *info, const struct cnn_stream_options *opt)
{
    struct cnn_sampling s = opt->sampling;
    if (s.kind == CNN_SAMPLING_DEFAULT)
        s = (struct cnn_sampling){.kind = info->is_sequential ? CNN_SAMPLING_BUFFER : CNN_SAMPLING_SHUFFLE,
                                  .buffer = CNN_SAMPLING_IMAGES};
    return s;
}

int cnn_order_init(struct cnn_order *o, const struct cnn_data_info *info,
                   const struct cnn_stream_options *opt, struct ps_error *err)
{
    bool trains = opt->split == CNN_TRAIN;
    *o = (struct cnn_order){.split = opt->split,
                            .seed = trains ? opt->seed : 0,
                            .rank = trains ? opt->rank : 0,
                            .n = (uint32_t)(trains ? info->n_train : info->n_test),
                            .part = trains && opt->parts > 0 ? opt->part : 0,
                            .parts = trains && opt->parts > 0 ? opt->parts : 1,
                            .sampling = sampling_of(info, opt)};
    if (!trains)
        return 0;
    o->permutation = calloc(o->n, sizeof *o->permutation);
    o->scratch = calloc(cnn_order_kinds[o->sampling.kind].n_scratch(o) + 1, sizeof *o->scratch);
    if (o->permutation == NULL || o->scratch == NULL)
        return ps_fail(err, -ENOMEM, "no memory for the order of %u images", o->n);
    fill(o);
    return 0;
}

void cnn_order_finish(struct cnn_order *o)
{
    free(o->permutation);
    free(o->scratch);
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
        fill(o);
}

/* The image to announce at `place` of the order: the one that the buffer reads next. */
static uint32_t expected_at(const struct cnn_order *o, uint32_t place)
{
    if (o->permutation == NULL)
        return place + TEST_AHEAD < o->n ? place + TEST_AHEAD : CNN_NO_IMAGE;
    if (o->sampling.kind != CNN_SAMPLING_BUFFER || o->n - place <= o->sampling.buffer)
        return CNN_NO_IMAGE;
    return (uint32_t)(((uint64_t)o->start + place + o->sampling.buffer) % o->n);
}

/* False at the end of a test split. */
static bool draw_one(struct cnn_order *o, struct cnn_pick *pick)
{
    if (o->at.index == o->n) {
        if (o->split == CNN_TEST)
            return false;
        o->at.index = 0;
        o->at.epoch++;
        fill(o);
    }
    uint32_t place = (uint32_t)o->at.index++;
    *pick = (struct cnn_pick){o->at.epoch, o->permutation != NULL ? o->permutation[place] : place,
                              expected_at(o, place)};
    return true;
}

uint32_t cnn_order_draw(struct cnn_order *o, uint32_t batch, struct cnn_pick *picks)
{
    struct cnn_pick others;
    for (uint32_t part = 0; part < o->parts; part++)
        for (uint32_t i = 0; i < batch; i++)
            if (!draw_one(o, part == o->part ? &picks[i] : &others))
                return i;
    return batch;
}
