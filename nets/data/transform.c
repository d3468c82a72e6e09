#include "nets/data/transform.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

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
    m->memory = opt->memory;
    m->leaves_cuts = opt->leaves_cuts && data->type->make == NULL && data->type->views != NULL;
    if (m->leaves_cuts)
        m->n_pixels = m->n_stored;
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

static struct cnn_cut pick_cut(const struct cnn_batch_maker *m, const struct cnn_image_id *id)
{
    const struct cnn_view *v = &m->view;
    uint32_t places_y = m->data->info.height + 2 * v->pad - v->height + 1;
    uint32_t places_x = m->data->info.width + 2 * v->pad - v->width + 1;
    int32_t pad = (int32_t)v->pad;
    if (m->split == CNN_TEST)
        return (struct cnn_cut){(int32_t)(places_y / 2) - pad, (int32_t)(places_x / 2) - pad, 0};
    struct cnn_philox_block b = cnn_image_draw(id, 0);
    return (struct cnn_cut){(int32_t)scaled(b.v[0], places_y) - pad, (int32_t)scaled(b.v[1], places_x) - pad,
                            v->flips && b.v[2] >> 31 != 0};
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

static void cut_out(const struct cnn_batch_maker *m, struct cnn_cut cut, const uint8_t *stored,
                    uint8_t *image)
{
    const struct cnn_data_info *info = &m->data->info;
    const struct cnn_view *v = &m->view;
    for (uint32_t c = 0; c < info->channels; c++)
        for (uint32_t y = 0; y < v->height; y++, image += v->width) {
            uint32_t row = (uint32_t)cut.top + y; /* above the image it wraps to a value >= the height */
            const uint8_t *bytes =
                row < info->height ? stored + ((size_t)c * info->height + row) * info->width : NULL;
            cut_row(bytes, info->width, cut.left, v->width, cut.mirrored != 0, image);
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
                      const struct cnn_room *room, uint32_t i, struct ps_error *err)
{
    const struct cnn_data_type *type = m->data->type;
    uint8_t *pixels = room->images + i * m->n_pixels;
    if (type->make != NULL)
        return type->make(m->data->self, scratch, id, &m->view, pixels, &room->labels[i], err);
    struct cnn_cut cut = pick_cut(m, id);
    if (m->leaves_cuts) {
        room->cuts[i] = cut;
        return type->image(m->data->self, id, pixels, &room->labels[i], err);
    }
    int rc = type->image(m->data->self, id, scratch, &room->labels[i], err);
    if (rc == 0)
        cut_out(m, cut, scratch, pixels);
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
    int rc = make_image(m, scratch, &id, room, i, err);
    room->left_out[i] = rc == CNN_IMAGE_LEFT_OUT && m->split == CNN_TEST;
    /* A training batch stays full: the next image of the set replaces the unreadable one. */
    for (uint32_t k = 1; rc == CNN_IMAGE_LEFT_OUT && m->split == CNN_TRAIN; k++) {
        if (k == n)
            return ps_fail(err, -EBADMSG, "none of the %u training images of %s can be read", n,
                           m->data->info.name);
        id.index = id.index + 1 < n ? id.index + 1 : 0;
        rc = make_image(m, scratch, &id, room, i, err);
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
            room->picks[kept] = room->picks[i];
            if (room->cuts != NULL)
                room->cuts[kept] = room->cuts[i];
        }
        kept++;
    }
    return kept;
}

/* Where a cache line begins, so that images may begin there too. */
static void *make_room(const struct cnn_batch_memory *memory, size_t bytes)
{
    enum { LINE = 64 };
    return memory->alloc != NULL ? memory->alloc(memory->arg, bytes)
                                 : aligned_alloc(LINE, (bytes / LINE + 1) * LINE);
}

static void drop_room(const struct cnn_batch_memory *memory, void *p)
{
    if (p != NULL && memory->free != NULL)
        memory->free(memory->arg, p);
    else
        free(p);
}

bool cnn_room_init(struct cnn_room *room, const struct cnn_batch_maker *m, uint32_t batch)
{
    *room = (struct cnn_room){.picks = calloc(batch, sizeof *room->picks),
                              .images = make_room(&m->memory, batch * m->n_pixels),
                              .labels = make_room(&m->memory, batch * sizeof *room->labels),
                              .left_out = calloc(batch, sizeof *room->left_out)};
    if (m->leaves_cuts)
        room->cuts = make_room(&m->memory, batch * sizeof *room->cuts);
    return room->picks != NULL && room->images != NULL && room->labels != NULL && room->left_out != NULL &&
           (room->cuts != NULL || !m->leaves_cuts);
}

void cnn_room_finish(struct cnn_room *room, const struct cnn_batch_maker *m)
{
    free(room->picks);
    drop_room(&m->memory, room->images);
    drop_room(&m->memory, room->labels);
    free(room->left_out);
    drop_room(&m->memory, room->cuts);
}

void cnn_batch_maker_borrow(const struct cnn_batch_maker *m, const struct cnn_room *room, uint32_t n,
                            struct cnn_batch *out)
{
    *out = (struct cnn_batch){.images = room->images,
                              .pixels = CNN_PIXELS_BYTE,
                              .is_hwc = m->data->type->make != NULL,
                              .value_of = m->value_of,
                              .labels = room->labels,
                              .n = n,
                              .cuts = room->cuts,
                              .stored_height = m->data->info.height,
                              .stored_width = m->data->info.width};
}
