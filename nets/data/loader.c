/* Streams of batches, prepared by the caller or in advance by threads. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nets/backend.h"
#include "nets/data/prefetch.h"
#include "nets/data/sampler.h"
#include "nets/data/transform.h"

struct cnn_stream {
    struct cnn_batch_maker maker;
    struct cnn_order order;        /* used by prefetch if there is one */
    struct cnn_prefetch *prefetch; /* NULL: the calling thread prepares batches */
    struct cnn_position at;        /* position after the last batch returned */
    uint32_t batch;
    struct cnn_room room;        /* used without prefetch */
    const struct cnn_pick *lent; /* of the batch lent last */
    void *scratch;
    int failed; /* 0, or the error that is returned until a seek */
    struct ps_error error;
};

static int check_options(const struct cnn_stream_options *opt, struct ps_error *err)
{
    if (opt->batch == 0)
        return ps_fail(err, -EINVAL, "a batch of 0 images; allowed: 1 or more");
    if (opt->batch > INT32_MAX)
        return ps_fail(err, -EINVAL, "a batch of %u images; allowed: 1 to %d", opt->batch, INT32_MAX);
    if (opt->rank >= CNN_MAX_RANKS)
        return ps_fail(err, -EINVAL, "rank %u of a stream; allowed: 0 to %u", opt->rank, CNN_MAX_RANKS - 1);
    if (opt->parts > 0 && opt->part >= opt->parts)
        return ps_fail(err, -EINVAL, "part %u of a batch; allowed: 0 to %u", opt->part, opt->parts - 1);
    if (opt->prefetch > CNN_MAX_PREFETCH)
        return ps_fail(err, -EINVAL, "%u prefetched batches; allowed: 0 to %d", opt->prefetch,
                       CNN_MAX_PREFETCH);
    if (opt->threads > CNN_MAX_DATA_THREADS)
        return ps_fail(err, -EINVAL, "%u threads for data; allowed: 0 to %d", opt->threads,
                       CNN_MAX_DATA_THREADS);
    return 0;
}

static int create_parts(struct cnn_stream *s, const struct cnn_data *data,
                        const struct cnn_stream_options *opt, struct ps_error *err)
{
    int rc = cnn_batch_maker_init(&s->maker, data, opt, err);
    if (rc == 0)
        rc = cnn_order_init(&s->order, &data->info, opt, err);
    if (rc != 0)
        return rc;
    if (opt->prefetch > 0)
        return cnn_prefetch_create(&s->maker, &s->order, opt->batch, opt->prefetch,
                                   opt->threads > 0 ? opt->threads : 1, &s->prefetch, err);
    s->scratch = cnn_batch_maker_scratch(&s->maker);
    if (!cnn_room_init(&s->room, &s->maker, opt->batch) || s->scratch == NULL)
        return ps_fail(err, -ENOMEM, "no memory for a stream over %s", data->info.name);
    return 0;
}

int cnn_stream_create(const struct cnn_data *data, const struct cnn_stream_options *opt,
                      struct cnn_stream **out, struct ps_error *err)
{
    int rc = check_options(opt, err);
    if (rc != 0)
        return rc;
    struct cnn_stream *s = calloc(1, sizeof *s);
    if (s == NULL)
        return ps_fail(err, -ENOMEM, "no memory for a stream over %s", data->info.name);
    s->batch = opt->batch;
    rc = create_parts(s, data, opt, err);
    if (rc != 0)
        cnn_stream_destroy(s);
    else
        *out = s;
    return rc;
}

void cnn_stream_destroy(struct cnn_stream *s)
{
    if (s == NULL)
        return;
    cnn_prefetch_destroy(s->prefetch);
    cnn_order_finish(&s->order);
    cnn_room_finish(&s->room, &s->maker);
    if (s->scratch != NULL)
        cnn_batch_maker_drop_scratch(&s->maker, s->scratch);
    free(s);
}

static int make_batch(struct cnn_stream *s, struct cnn_room *out)
{
    uint32_t n = cnn_order_draw(&s->order, s->batch, s->room.picks);
    for (uint32_t i = 0; i < n; i++) {
        int rc = cnn_batch_maker_image(&s->maker, s->scratch, &s->room, i, &s->error);
        if (rc != 0)
            return rc;
    }
    s->at = s->order.at;
    *out = s->room;
    return (int)n;
}

/* Skips batches without images. */
int cnn_stream_borrow(struct cnn_stream *s, struct cnn_batch *out)
{
    while (s->failed >= 0) {
        struct cnn_room room = {.picks = NULL};
        int n = s->prefetch != NULL ? cnn_prefetch_take(s->prefetch, &room, &s->at, &s->error)
                                    : make_batch(s, &room);
        if (n < 0)
            s->failed = n;
        if (n <= 0)
            return n;
        uint32_t left = cnn_room_close_up(&room, &s->maker, (uint32_t)n);
        cnn_batch_maker_borrow(&s->maker, &room, left, out);
        s->lent = room.picks;
        if (left > 0)
            return (int)left;
    }
    return s->failed;
}

int cnn_stream_peek(struct cnn_stream *s, struct cnn_batch *out)
{
    struct cnn_room room;
    int n = s->prefetch != NULL && s->maker.split == CNN_TRAIN && s->failed == 0
                ? cnn_prefetch_peek(s->prefetch, &room)
                : 0;
    if (n > 0)
        cnn_batch_maker_borrow(&s->maker, &room, (uint32_t)n, out);
    return n;
}

/* [n][C][H][W] from bytes in [C][H][W] or [H][W][C]. */
static void normalise(const struct cnn_batch_maker *m, const struct cnn_batch *b, float *images)
{
    const uint8_t *bytes = b->images;
    const struct cnn_shape s = {m->data->info.channels, m->view.height, m->view.width};
    size_t channels = s.c, places = (size_t)s.h * s.w;
    for (uint32_t i = 0; b->cuts != NULL && i < b->n; i++)
        for (size_t c = 0; c < channels; c++)
            for (size_t at = 0; at < places; at++)
                *images++ = cnn_cut_value(b, s, i, c, at);
    for (uint32_t i = 0; b->cuts == NULL && i < b->n; i++, bytes += m->n_pixels)
        for (size_t c = 0; c < channels; c++)
            for (size_t at = 0; at < places; at++)
                *images++ = b->value_of[c][bytes[b->is_hwc ? at * channels + c : c * places + at]];
}

int cnn_stream_next(struct cnn_stream *s, float *images, uint16_t *labels)
{
    struct cnn_batch lent;
    int n = cnn_stream_borrow(s, &lent);
    if (n <= 0)
        return n;
    normalise(&s->maker, &lent, images);
    memcpy(labels, lent.labels, (size_t)n * sizeof *labels);
    return n;
}

uint32_t cnn_stream_index(const struct cnn_stream *s, uint32_t i)
{
    return s->lent[i].index;
}

const char *cnn_stream_error(const struct cnn_stream *s)
{
    return s->error.text;
}

void cnn_stream_position(const struct cnn_stream *s, struct cnn_position *out)
{
    *out = s->at;
}

int cnn_stream_seek(struct cnn_stream *s, const struct cnn_position *position, struct ps_error *err)
{
    int rc = cnn_order_check(&s->order, position, err);
    if (rc != 0)
        return rc;
    if (s->prefetch != NULL)
        cnn_prefetch_pause(s->prefetch);
    cnn_order_seek(&s->order, position);
    if (s->prefetch != NULL)
        cnn_prefetch_resume(s->prefetch);
    s->at = *position;
    s->failed = 0;
    return 0;
}
