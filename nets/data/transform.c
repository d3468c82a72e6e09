#include "nets/data/transform.h"

#include "nets/philox.h"

/* Where an image is cut out of the stored one with its pad. */
struct cut {
    uint32_t top, left;
    bool mirrored;
};

int cnn_maker_init(struct cnn_maker *m, const struct cnn_data *data, const struct cnn_stream_options *opt,
                   struct ps_error *err)
{
    const struct cnn_data_info *info = &data->info;
    bool trains = opt->split == CNN_TRAIN;
    *m = (struct cnn_maker){
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

/* Uniform in [0, n) out of one word; with n below 2^16 its bias is below 2^-16. */
static uint32_t scaled(uint32_t word, uint32_t n)
{
    return (uint32_t)((uint64_t)word * n >> 32);
}

/* The top bit beside the rank keeps these draws apart from those of the order. */
static struct cut pick_cut(const struct cnn_maker *m, const struct cnn_pick *pick)
{
    const struct cnn_view *v = &m->view;
    uint32_t places_y = m->data->info.height + 2 * v->pad - v->height + 1;
    uint32_t places_x = m->data->info.width + 2 * v->pad - v->width + 1;
    if (m->split == CNN_TEST)
        return (struct cut){places_y / 2, places_x / 2, false};
    struct cnn_philox_block b =
        cnn_philox((struct cnn_philox_block){{pick->index, m->rank | 1u << 31, (uint32_t)pick->epoch,
                                              (uint32_t)(pick->epoch >> 32)}},
                   cnn_philox_key_of(m->seed));
    return (struct cut){scaled(b.v[0], places_y), scaled(b.v[1], places_x), v->flips && b.v[2] >> 31 != 0};
}

/* stored: the row of `width` bytes, NULL within the pad; from: the first column to take, which may be before
 * 0 (the pad); pixels beyond are black. */
static void cut_row(const float *value_of, const uint8_t *stored, uint32_t width, int32_t from, uint32_t n,
                    bool mirrored, float *out)
{
    int32_t at = mirrored ? from + (int32_t)n - 1 : from, step = mirrored ? -1 : 1;
    for (uint32_t x = 0; x < n; x++, at += step)
        out[x] = value_of[stored != NULL && (uint32_t)at < width ? stored[at] : 0];
}

int cnn_maker_image(const struct cnn_maker *m, const struct cnn_pick *pick, uint8_t *stored, float *image,
                    uint16_t *label, struct ps_error *err)
{
    const struct cnn_data_info *info = &m->data->info;
    const struct cnn_view *v = &m->view;
    struct cnn_image_id id = {m->split, m->seed, m->rank, pick->epoch, pick->index};
    int rc = m->data->type->image(m->data->self, &id, stored, label, err);
    if (rc != 0)
        return rc;
    struct cut cut = pick_cut(m, pick);
    int32_t left = (int32_t)cut.left - (int32_t)v->pad;
    for (uint32_t c = 0; c < info->channels; c++)
        for (uint32_t y = 0; y < v->height; y++, image += v->width) {
            uint32_t row = cut.top + y - v->pad; /* wraps above the image: not below the height */
            const uint8_t *bytes =
                row < info->height ? stored + ((size_t)c * info->height + row) * info->width : NULL;
            cut_row(m->value_of[c], bytes, info->width, left, v->width, cut.mirrored, image);
        }
    return 0;
}
