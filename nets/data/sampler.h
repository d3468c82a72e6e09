/* sampler.h: which image of a data set comes next. Private to data/. */
#ifndef CNN_DATA_SAMPLER_H
#define CNN_DATA_SAMPLER_H

#include <stdbool.h>

#include "nets/data/data.h"

enum { CNN_NO_IMAGE = UINT32_MAX };

/* One image of a batch to be made. */
struct cnn_pick {
    uint64_t epoch;
    uint32_t index;    /* of the image in its split */
    uint32_t expected; /* one that comes some time later, in the set's order; CNN_NO_IMAGE: none */
};

struct cnn_order {
    enum cnn_split split;
    uint64_t seed;
    uint32_t rank, n; /* n: images an epoch */
    uint32_t part,
        parts; /* of each batch that is drawn, the picks of this part are given; parts at least 1 */
    struct cnn_position at; /* of the next pick */
    uint32_t *permutation;  /* [n], of epoch at.epoch; NULL for the test split */
    struct cnn_sampling sampling;
    uint32_t start;    /* buffer: the image that its epoch begins with */
    uint32_t *scratch; /* buffer: what it holds; loaders: the order of all chunks */
};

/* Stands at the start. -ENOMEM. */
int cnn_order_init(struct cnn_order *o, const struct cnn_data_info *info,
                   const struct cnn_stream_options *opt, struct ps_error *err);
void cnn_order_finish(struct cnn_order *o);

/* -EINVAL names what is allowed, and nothing has moved. */
int cnn_order_check(const struct cnn_order *o, const struct cnn_position *to, struct ps_error *err);
void cnn_order_seek(struct cnn_order *o, const struct cnn_position *to); /* one that was checked */

/* The next picks [batch], of as many for each part. Returns how many: fewer only at the end of a test split.
 * Cannot fail. */
uint32_t cnn_order_draw(struct cnn_order *o, uint32_t batch, struct cnn_pick *picks);

#endif
