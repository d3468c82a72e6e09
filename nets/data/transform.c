#include "nets/data/transform.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* The crop of the padded stored image. */
struct cut {
    uint32_t top, left;
    bool mirrored;
};

int cnn_batch_maker_init(struct cnn_batch_maker *m, const struct cnn_data *data,
                         const struct cnn_stream_options *opt, struct ps_error *err)
{
    const struct cnn_data_info *info = &data->info;
    bool trains = opt->split == CNN_TRAIN;
    *m = (struct cnn_batch_maker){
        .data = data, .split = opt->split, .seed = trains ? opt->seed : 0, .rank = trains ? opt->rank : 0};
    int rc = cnn_data_view(data, opt->height, opt->width, &m->view, err);
    if (rc != 0)
        return rc;
    m->n_stored = (size_t)info->channels * info->height * info->width;
    m->n_pixels = (size_t)info->channels * m->view.height * m->view.width;
    for (uint32_t c = 0; c < info->channels; c++)
        for (int v = 0; v < 256; v++)
            m->value_of[c][v] = ((float)v / 255.0f - data->type->mean[c]) / data->type->deviation[c];
    return 0;
}

/* Uniform in [0, n) from one word; for n below 2^16 the bias is below 2^-16. */
static uint32_t scaled(uint32_t word, uint32_t n)
{
    return (uint32_t)((uint64_t)word * n >> 32);
}

static struct cut pick_cut(const struct cnn_batch_maker *m, const struct cnn_image_id *id)
{
    const struct cnn_view *v = &m->view;
    uint32_t places_y = m->data->info.height + 2 * v->pad - v->height + 1;
    uint32_t places_x = m->data->info.width + 2 * v->pad - v->width + 1;
    if (m->split == CNN_TEST)
        return (struct cut){places_y / 2, places_x / 2, false};
    struct cnn_philox_block b = cnn_image_draw(id, 0);
    return (struct cut){scaled(b.v[0], places_y), scaled(b.v[1], places_x), v->flips && b.v[2] >> 31 != 0};
}

/* stored: the row of `width` bytes, NULL in the padding; from: the first column, may be negative (padding).
 * Pixels outside the row are black. */
static void cut_row(const uint8_t *stored, uint32_t width, int32_t from, uint32_t n, bool mirrored,
                    uint8_t *out)
{
    int32_t at = mirrored ? from + (int32_t)n - 1 : from, step = mirrored ? -1 : 1;
    if (stored != NULL && !mirrored && from >= 0 && (uint32_t)from + n <= width) {
        memcpy(out, stored + from, n);
        return;
    }
    for (uint32_t x = 0; x < n; x++, at += step)
        out[x] = stored != NULL && (uint32_t)at < width ? stored[at] : 0;
}

static void cut_out(const struct cnn_batch_maker *m, struct cut cut, const uint8_t *stored, uint8_t *image)
{
    const struct cnn_data_info *info = &m->data->info;
    const struct cnn_view *v = &m->view;
    int32_t left = (int32_t)cut.left - (int32_t)v->pad;
    for (uint32_t c = 0; c < info->channels; c++)
        for (uint32_t y = 0; y < v->height; y++, image += v->width) {
            uint32_t row = cut.top + y - v->pad; /* above the image it wraps to a value >= the height */
            const uint8_t *bytes =
                row < info->height ? stored + ((size_t)c * info->height + row) * info->width : NULL;
            cut_row(bytes, info->width, left, v->width, cut.mirrored, image);
        }
}

void *cnn_batch_maker_scratch(const struct cnn_batch_maker *m)
{
    return m->data->type->make != NULL ? m->data->type->scratch(m->data->self) : malloc(m->n_stored);
}

void cnn_batch_maker_drop_scratch(const struct cnn_batch_maker *m, void *scratch)
{
    if (m->data->type->make != NULL)
        m->data->type->drop_scratch(scratch);
    else
        free(scratch);
}

static int make_image(const struct cnn_batch_maker *m, void *scratch, const struct cnn_image_id *id,
                      uint8_t *pixels, uint16_t *label, struct ps_error *err)
{
    const struct cnn_data_type *type = m->data->type;
    if (type->make != NULL)
        return type->make(m->data->self, scratch, id, &m->view, pixels, label, err);
    int rc = type->image(m->data->self, id, scratch, label, err);
    if (rc == 0)
        cut_out(m, pick_cut(m, id), scratch, pixels);
    return rc;
}

int cnn_batch_maker_image(const struct cnn_batch_maker *m, void *scratch, const struct cnn_room *room,
                          uint32_t i, struct ps_error *err)
{
    const struct cnn_pick *pick = &room->picks[i];
    struct cnn_image_id id = {m->split, m->seed, m->rank, pick->epoch, pick->index};
    uint32_t n = (uint32_t)m->data->info.n_train;
    if (m->data->type->expect != NULL && pick->expected != CNN_NO_IMAGE)
        m->data->type->expect(m->data->self, m->split, pick->expected);
    int rc = make_image(m, scratch, &id, room->images + i * m->n_pixels, &room->labels[i], err);
    room->left_out[i] = rc == CNN_IMAGE_LEFT_OUT && m->split == CNN_TEST;
    /* A training batch stays full: the next image of the set replaces the unreadable one. */
    for (uint32_t k = 1; rc == CNN_IMAGE_LEFT_OUT && m->split == CNN_TRAIN; k++) {
        if (k == n)
            return ps_fail(err, -EBADMSG, "none of the %u training images of %s can be read", n,
                           m->data->info.name);
        id.index = id.index + 1 < n ? id.index + 1 : 0;
        rc = make_image(m, scratch, &id, room->images + i * m->n_pixels, &room->labels[i], err);
    }
    return rc < 0 ? rc : 0;
}

uint32_t cnn_room_close_up(const struct cnn_room *room, const struct cnn_batch_maker *m, uint32_t n)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (room->left_out[i])
            continue;
        if (kept < i) {
            memcpy(room->images + kept * m->n_pixels, room->images + i * m->n_pixels, m->n_pixels);
            room->labels[kept] = room->labels[i];
        }
        kept++;
    }
    return kept;
}

bool cnn_room_init(struct cnn_room *room, const struct cnn_batch_maker *m, uint32_t batch)
{
    *room = (struct cnn_room){.picks = calloc(batch, sizeof *room->picks),
                              .images = calloc(batch, m->n_pixels),
                              .labels = calloc(batch, sizeof *room->labels),
                              .left_out = calloc(batch, sizeof *room->left_out)};
    return room->picks != NULL && room->images != NULL && room->labels != NULL && room->left_out != NULL;
}

void cnn_room_finish(struct cnn_room *room)
{
    free(room->picks);
    free(room->images);
    free(room->labels);
    free(room->left_out);
}

void cnn_batch_maker_borrow(const struct cnn_batch_maker *m, const struct cnn_room *room, uint32_t n,
                            struct cnn_batch *out)
{
    *out = (struct cnn_batch){.images = room->images,
                              .pixels = CNN_PIXELS_BYTE,
                              .is_hwc = m->data->type->make != NULL,
                              .value_of = m->value_of,
                              .labels = room->labels,
                              .n = n};
}
