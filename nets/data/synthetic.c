/* synthetic:CxHxW:CLASSES, generated images of any size, for nets whose data is not available. Every class is
 * a grating of its own frequency, direction and colours, with noise. A net learns it in a few steps; the
 * accuracy says nothing about photographs. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "nets/data/dataset.h"
#include "nets/philox.h"

enum { MAX_SIDE = 4096, N_TRAIN = 60000, N_TEST = 512 };

struct synthetic {
    struct cnn_data_info info;
};

static bool read_part(const char **text, uint32_t most, char end, uint32_t *out)
{
    char *stop;
    unsigned long v = strtoul(*text, &stop, 10);

    if (**text < '1' || **text > '9' || *stop != end || v > most)
        return false;
    *out = (uint32_t)v;
    *text = stop + (end != '\0');
    return true;
}

static int synthetic_open(const char *arg, const struct cnn_data_options *opt, struct cnn_data_info *info,
                          void **self, struct ps_error *err)
{
    (void)opt;
    struct cnn_data_info found = {.name = "synthetic", .n_train = N_TRAIN, .n_test = N_TEST};
    const char *text = arg != NULL ? arg : "";

    if (!read_part(&text, CNN_MAX_CHANNELS, 'x', &found.channels) ||
        !read_part(&text, MAX_SIDE, 'x', &found.height) || !read_part(&text, MAX_SIDE, ':', &found.width) ||
        !read_part(&text, CNN_MAX_CLASSES, '\0', &found.classes) || found.classes < 2)
        return ps_fail(
            err, -EINVAL,
            "data set synthetic: \"%.80s\"; allowed: CxHxW:CLASSES such as 3x224x224:1000, 1 to %d "
            "channels, sides to %d, 2 to %d classes",
            arg != NULL ? arg : "", CNN_MAX_CHANNELS, MAX_SIDE, CNN_MAX_CLASSES);
    struct synthetic *s = malloc(sizeof *s);
    if (s == NULL)
        return ps_fail(err, -ENOMEM, "no memory for data set synthetic");
    s->info = *info = found;
    *self = s;
    return 0;
}

/* The grating of a class: the phase step per column and per row, in units of 2^-32 periods, and the
 * brightness of its colours. */
struct grating {
    uint32_t across, down, phase;
    int32_t colour[CNN_MAX_CHANNELS];
};

static struct grating grating_of(const struct cnn_data_info *info, uint16_t label, uint32_t phase)
{
    const struct cnn_philox_key key = {{0x73796e74, 0x68657469}}; /* "syntheti" */
    struct cnn_philox_block a = cnn_philox((struct cnn_philox_block){{label, 0, 0, 0}}, key);
    struct cnn_philox_block b = cnn_philox((struct cnn_philox_block){{label, 1, 0, 0}}, key);
    struct grating g = {.phase = phase};
    /* 1 to 8 periods over the image */
    g.across = (UINT32_MAX / info->width) * (1 + a.v[0] % 8);
    g.down = (UINT32_MAX / info->height) * (1 + a.v[1] % 8);
    for (int c = 0; c < CNN_MAX_CHANNELS; c++)
        g.colour[c] = (int32_t)(b.v[c] % 81) - 40;
    return g;
}

/* A triangle wave of -64 to 64. It uses only integers, so that the bytes are the same on every machine. */
static int32_t wave(uint32_t phase)
{
    int32_t at = (int32_t)(phase >> 24); /* 0 to 255 */
    return at < 128 ? at - 64 : 191 - at;
}

static int synthetic_image(const void *self, const struct cnn_image_id *id, uint8_t *pixels, uint16_t *label,
                           struct ps_error *err)
{
    const struct cnn_data_info *info = &((const struct synthetic *)self)->info;
    const struct cnn_philox_key key = {{0x6e6f6973, (uint32_t)id->seed}}; /* "nois" */
    struct cnn_philox_block at = {{0, id->index, (uint32_t)id->epoch, id->rank | (uint32_t)id->split << 31}};
    struct cnn_philox_block noise = cnn_philox(at, key);
    uint32_t n = 0;

    (void)err;
    *label = (uint16_t)(id->index % info->classes);
    struct grating g = grating_of(info, *label, noise.v[0]);
    for (uint32_t c = 0; c < info->channels; c++)
        for (uint32_t y = 0; y < info->height; y++) {
            uint32_t phase = g.phase + y * g.down;
            for (uint32_t x = 0; x < info->width; x++, phase += g.across, n++) {
                if (n % 16 == 0) { /* one block gives 16 bytes of noise */
                    at.v[0] = 1 + n / 16;
                    noise = cnn_philox(at, key);
                }
                int32_t grain = (int32_t)(noise.v[n / 4 % 4] >> n % 4 * 8 & 0xff) / 8 - 16;
                *pixels++ = (uint8_t)(128 + wave(phase) + g.colour[c] / 2 + grain);
            }
        }
    return 0;
}

const struct cnn_data_type cnn_data_synthetic = {
    .name = "synthetic",
    .usage = "synthetic:CxHxW:CLASSES",
    .mean = {0.5f, 0.5f, 0.5f, 0.5f},
    .deviation = {0.2f, 0.2f, 0.2f, 0.2f},
    .open = synthetic_open,
    .close = free,
    .image = synthetic_image,
};
