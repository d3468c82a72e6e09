#include "tests/bench/data/jpegs.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <turbojpeg.h>

#include "nets/data/images/images.h"

enum { MOST = 4096, STEP = 1237 }; /* from one image to the next; imitates a shuffled set */

struct jpeg {
    uint8_t *bytes;
    size_t len;
    int width, height; /* as decoded */
};

struct bench_jpegs {
    tjhandle handle;
    struct jpeg rows[MOST];
    uint32_t n;
    uint64_t at;
    uint8_t
        *memory; /* for a picture at an odd address, where libjpeg-turbo is fastest: see images/decode.c */
};

/* Reads one image and its scale of decoding; false if it is not a JPEG or damaged. */
static bool read_one(const struct cnn_images *set, uint32_t index, const struct cnn_view *view,
                     struct cnn_images_scratch *scratch, struct jpeg *out)
{
    const struct cnn_image_id id = {.split = CNN_TRAIN, .seed = 1, .index = index};
    struct cnn_draws draws = {.id = &id};
    uint32_t width, height;
    size_t len;
    if (cnn_images_read(set, &set->list.of[CNN_TRAIN].rows[index], scratch, &len, NULL) != 0 ||
        cnn_picture_find(scratch->file, len, NULL) != &cnn_picture_jpeg ||
        cnn_picture_size(&cnn_picture_jpeg, &scratch->decoder, scratch->file, len, &width, &height, NULL) !=
            0)
        return false;
    struct cnn_window window = cnn_images_window(set, &id, view, width, height, &draws);
    tjscalingfactor factor = {1, (int)cnn_window_scale(&window, width, height)};
    *out = (struct jpeg){.bytes = malloc(len),
                         .len = len,
                         .width = TJSCALED((int)width, factor),
                         .height = TJSCALED((int)height, factor)};
    if (out->bytes != NULL)
        memcpy(out->bytes, scratch->file, len);
    return out->bytes != NULL;
}

int bench_jpegs_open(const struct cnn_data *data, uint32_t side, struct bench_jpegs **out,
                     struct ps_error *err)
{
    struct cnn_images_scratch scratch = {{0}};
    struct cnn_view view;
    size_t most = 0;
    *out = NULL;
    if (data->type != &cnn_data_images)
        return 0;
    const struct cnn_images *set = data->self;
    const struct cnn_entries *e = &set->list.of[CNN_TRAIN];
    struct bench_jpegs *b = calloc(1, sizeof *b);
    int rc = cnn_data_view(data, side, side, &view, err);
    if (rc != 0 || b == NULL) {
        free(b);
        return rc;
    }
    for (uint32_t i = 0; i < e->n && b->n < MOST; i += e->n / MOST + 1)
        if (read_one(set, i, &view, &scratch, &b->rows[b->n])) {
            size_t bytes = 3 * (size_t)b->rows[b->n].width * (size_t)b->rows[b->n].height;
            most = bytes > most ? bytes : most;
            b->n++;
        }
    cnn_decoder_finish(&scratch.decoder);
    free(scratch.file);
    b->handle = tjInitDecompress();
    b->memory = malloc(most + 1);
    if (b->n > 0 && b->handle != NULL && b->memory != NULL)
        *out = b;
    else
        bench_jpegs_close(b);
    return 0;
}

void bench_jpegs_close(struct bench_jpegs *b)
{
    if (b == NULL)
        return;
    for (uint32_t i = 0; i < b->n; i++)
        free(b->rows[i].bytes);
    if (b->handle != NULL)
        tjDestroy(b->handle);
    free(b->memory);
    free(b);
}

void bench_jpegs_decode(struct bench_jpegs *b)
{
    const struct jpeg *j = &b->rows[b->at++ * STEP % b->n];
    tjDecompress2(b->handle, j->bytes, j->len, b->memory + 1, j->width, 0, j->height, TJPF_RGB, 0);
}
