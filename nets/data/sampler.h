/* sampler.h: the order in which images of a data set are used. Private to data/. */
#ifndef CNN_DATA_SAMPLER_H
#define CNN_DATA_SAMPLER_H

#include <stdbool.h>

#include "nets/data/data.h"

enum { CNN_NO_IMAGE = UINT32_MAX };

/* One image of a batch. */
struct cnn_pick {
    uint64_t epoch;
    uint32_t index;    /* of the image in its split */
    uint32_t expected; /* an image that is needed later, to be announced; CNN_NO_IMAGE: none */
};

struct cnn_order {
    enum cnn_split split;
    uint64_t seed;
    uint32_t rank, n;       /* n: images per epoch */
    uint32_t part, parts;   /* only this part of each drawn batch is given; parts at least 1 */
    struct cnn_position at; /* of the next pick */
    uint32_t *permutation;  /* [n], of epoch at.epoch; NULL for the test split */
    struct cnn_sampling sampling;
    uint32_t start;    /* buffer: the first image of the epoch */
    uint32_t *scratch; /* buffer: its contents; loaders: the order of all chunks */
};

/* Starts at the first image. -ENOMEM. */
int cnn_order_init(struct cnn_order *o, const struct cnn_data_info *info,
                   const struct cnn_stream_options *opt, struct ps_error *err);
void cnn_order_finish(struct cnn_order *o);

/* Checks a position. -EINVAL with a sentence that names what is allowed. */
int cnn_order_check(const struct cnn_order *o, const struct cnn_position *to, struct ps_error *err);
void cnn_order_seek(struct cnn_order *o, const struct cnn_position *to); /* to: a checked position */

/* Writes the next picks [batch], as many for each part. Returns their number, fewer than batch only at the
 * end of a test split. Cannot fail. */
uint32_t cnn_order_draw(struct cnn_order *o, uint32_t batch, struct cnn_pick *picks);

#endif
