/* transform.h: makes images of a stream: cut, mirrored, normalised. Private to data/.
 *
 * A maker is not written after its init: any number of threads may make images with it, each with a `stored`
 * buffer of its own. */
#ifndef CNN_DATA_TRANSFORM_H
#define CNN_DATA_TRANSFORM_H

#include "nets/data/dataset.h"
#include "nets/data/sampler.h"

struct cnn_maker {
    const struct cnn_data *data;
    struct cnn_view view;
    enum cnn_split split;
    uint64_t seed;
    uint32_t rank;
    size_t n_stored, n_pixels; /* of one image: bytes as stored, floats as made */
    float value_of[CNN_MAX_CHANNELS][256];
};

/* -EINVAL for a size that the set does not give, with those that it does. */
int cnn_maker_init(struct cnn_maker *m, const struct cnn_data *data, const struct cnn_stream_options *opt,
                   struct ps_error *err);

/* stored: [n_stored], for the maker's own use; image: [n_pixels]. 0, or negative errno of the data set with a
 * sentence. */
int cnn_maker_image(const struct cnn_maker *m, const struct cnn_pick *pick, uint8_t *stored, float *image,
                    uint16_t *label, struct ps_error *err);

#endif
