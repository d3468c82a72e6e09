/* transform.h: makes the images of a stream: cropped and mirrored bytes. Private to data/.
 *
 * A maker is constant after init: any number of threads may use it, each with its own scratch. */
#ifndef CNN_DATA_TRANSFORM_H
#define CNN_DATA_TRANSFORM_H

#include "nets/data/dataset.h"
#include "nets/data/sampler.h"

struct cnn_batch_maker {
    const struct cnn_data *data;
    struct cnn_view view;
    enum cnn_split split;
    uint64_t seed;
    uint32_t rank;
    size_t n_stored, n_pixels; /* bytes of one image, as stored and as made */
    bool leaves_cuts;          /* images are made as they are stored */
    struct cnn_batch_memory memory;
    float value_of[CNN_MAX_CHANNELS][256];
};

/* -EINVAL for a size that the set does not support, with the supported sizes. */
int cnn_batch_maker_init(struct cnn_batch_maker *m, const struct cnn_data *data,
                         const struct cnn_stream_options *opt, struct ps_error *err);

/* The scratch of one thread. NULL if out of memory. */
void *cnn_batch_maker_scratch(const struct cnn_batch_maker *m);
void cnn_batch_maker_drop_scratch(const struct cnn_batch_maker *m, void *scratch);

/* Memory for the images of one batch. */
struct cnn_room {
    struct cnn_pick *picks; /* [batch]: which images they are */
    uint8_t *images;        /* [batch][n_pixels] */
    uint16_t *labels;       /* [batch] */
    bool *left_out;         /* [batch]: could not be read */
    struct cnn_cut *cuts;   /* [batch]; NULL: images are made cut */
};

bool cnn_room_init(struct cnn_room *room, const struct cnn_batch_maker *m,
                   uint32_t batch); /* false: out of memory */
void cnn_room_finish(struct cnn_room *room, const struct cnn_batch_maker *m);

/* Makes image i of the batch. 0, or a negative errno of the data set with a sentence. */
int cnn_batch_maker_image(const struct cnn_batch_maker *m, void *scratch, const struct cnn_room *room,
                          uint32_t i, struct ps_error *err);

/* Removes left-out images from the first n. Returns how many remain. */
uint32_t cnn_room_close_up(const struct cnn_room *room, const struct cnn_batch_maker *m, uint32_t n);

/* Fills *out, which borrows n images from the room. */
void cnn_batch_maker_borrow(const struct cnn_batch_maker *m, const struct cnn_room *room, uint32_t n,
                            struct cnn_batch *out);

#endif
