/* Streams: which image comes next, and the normalisation of its bytes. */
#include "nets/data/philox.h"
#include "nets/data/set.h"

#include <errno.h>
#include <stdlib.h>

struct cnn_stream {
    const struct cnn_data *data;
    struct cnn_image_id next; /* of the next image, but for the index of a training split */
    uint32_t position;        /* of the next image in this epoch */
    uint32_t n;               /* images an epoch */
    uint32_t batch;
    size_t n_pixels;
    uint32_t *order; /* training: the epoch's permutation; NULL for test */
    uint8_t *pixels; /* of one image */
    float value_of[256];
};

/* Every epoch's order is a function of (seed, rank, epoch) alone, so that a stream may start anywhere. */
static void shuffle(struct cnn_stream *s)
{
    struct cnn_random r = cnn_random_start(cnn_philox_key_of(s->next.seed), s->next.rank,
                                           (uint32_t)s->next.epoch, (uint32_t)(s->next.epoch >> 32));
    for (uint32_t i = 0; i < s->n; i++)
        s->order[i] = i;
    for (uint32_t i = s->n; i > 1; i--) { /* Fisher and Yates */
        uint32_t j = cnn_random_below(&r, i);
        uint32_t swap = s->order[i - 1];
        s->order[i - 1] = s->order[j];
        s->order[j] = swap;
    }
}

int cnn_stream_create(const struct cnn_data *data, enum cnn_split split, uint64_t seed, uint32_t rank,
                      uint32_t batch, struct cnn_stream **out, struct cnn_error *err)
{
    const struct cnn_data_info *info = &data->info;
    if (batch == 0)
        return cnn_fail(err, -EINVAL, "a batch of 0 images; allowed: 1 or more");
    if (rank >= CNN_MAX_RANKS)
        return cnn_fail(err, -EINVAL, "rank %u of a stream; allowed: 0 to %u", rank, CNN_MAX_RANKS - 1);

    struct cnn_stream *s = calloc(1, sizeof *s);
    if (s == NULL)
        goto no_memory;
    s->data = data;
    s->next.split = split;
    s->batch = batch;
    s->n = (uint32_t)(split == CNN_TRAIN ? info->n_train : info->n_test);
    s->n_pixels = (size_t)info->channels * info->height * info->width;
    s->pixels = malloc(s->n_pixels);
    if (s->pixels == NULL)
        goto no_memory;
    for (int v = 0; v < 256; v++)
        s->value_of[v] = ((float)v / 255.0f - 0.1307f) / 0.3081f;
    if (split == CNN_TRAIN) {
        s->next.seed = seed;
        s->next.rank = rank;
        s->order = calloc(s->n, sizeof *s->order);
        if (s->order == NULL)
            goto no_memory;
        shuffle(s);
    }
    *out = s;
    return 0;

no_memory:
    cnn_stream_destroy(s);
    return cnn_fail(err, -ENOMEM, "no memory for a stream over %s", info->name);
}

void cnn_stream_destroy(struct cnn_stream *s)
{
    if (s == NULL)
        return;
    free(s->order);
    free(s->pixels);
    free(s);
}

uint32_t cnn_stream_next(struct cnn_stream *s, float *images, uint8_t *labels)
{
    for (uint32_t i = 0; i < s->batch; i++) {
        if (s->position == s->n) {
            if (s->order == NULL)
                return i;
            s->position = 0;
            s->next.epoch++;
            shuffle(s);
        }
        s->next.index = s->order != NULL ? s->order[s->position] : s->position;
        s->position++;
        s->data->type->image(s->data->self, &s->next, s->pixels, &labels[i]);
        float *image = images + i * s->n_pixels;
        for (size_t k = 0; k < s->n_pixels; k++)
            image[k] = s->value_of[s->pixels[k]];
    }
    return s->batch;
}

uint64_t cnn_stream_epoch(const struct cnn_stream *s)
{
    return s->next.epoch;
}
