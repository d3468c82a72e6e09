/* test_set.c: writes a data set's test images as a net takes them: test-set-dump NET DATA PREFIX makes
 * PREFIX.images, float32 [images][C][H][W], and PREFIX.labels, uint16. With SEED RANK BATCH N after these:
 * the first N training batches of the psworker with this --seed, rank and --batch. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "nets/data/data.h"

enum { BATCH = 100 };

static FILE *open_out(const char *prefix, const char *suffix)
{
    char path[4096];
    snprintf(path, sizeof path, "%s.%s", prefix, suffix);
    return fopen(path, "wb");
}

static int fail(const char *what)
{
    fprintf(stderr, "test-set-dump: %s\n", what);
    return 1;
}

/* n_batches: of a training stream, which does not end. An exit status. */
static int write_all(const struct cnn_model *m, struct cnn_data *data, struct cnn_stream_options opt,
                     uint64_t n_batches, FILE *images_out, FILE *labels_out)
{
    const size_t n_pixels = (size_t)m->channels * m->height * m->width;
    float *images = calloc(opt.batch * n_pixels, sizeof *images);
    uint16_t *labels = calloc(opt.batch, sizeof *labels);
    struct cnn_stream *s = NULL;
    struct ps_error err;
    int n = 0;

    opt.height = m->height;
    opt.width = m->width;
    bool made = images != NULL && labels != NULL && cnn_stream_create(data, &opt, &s, &err) == 0;
    for (uint64_t i = 0; made && i < n_batches && (n = cnn_stream_next(s, images, labels)) > 0; i++) {
        fwrite(images, n_pixels * sizeof *images, (size_t)n, images_out);
        fwrite(labels, sizeof *labels, (size_t)n, labels_out);
    }
    cnn_stream_destroy(s);
    free(images);
    free(labels);
    return !made ? fail("no stream of the images") : n >= 0 ? 0 : fail("an image could not be read");
}

int main(int argc, char **argv)
{
    struct cnn_model model;
    struct cnn_data *data = NULL;
    struct ps_error err;

    struct cnn_stream_options opt = {.split = CNN_TEST, .batch = BATCH};
    uint64_t n_batches = UINT64_MAX;

    if (argc != 4 && argc != 8) {
        fprintf(stderr, "usage: test-set-dump NET DATA PREFIX [SEED RANK BATCH N]\n");
        return 2;
    }
    if (argc == 8) {
        opt = (struct cnn_stream_options){.split = CNN_TRAIN,
                                          .seed = strtoull(argv[4], NULL, 10),
                                          .rank = (uint32_t)strtoul(argv[5], NULL, 10),
                                          .batch = (uint32_t)strtoul(argv[6], NULL, 10)};
        n_batches = strtoull(argv[7], NULL, 10);
    }
    if (cnn_model_read(argv[1], &model, &err) < 0 || cnn_data_open(argv[2], &data, &err) < 0 ||
        cnn_data_fits(data, &model, &err) < 0) {
        cnn_data_close(data);
        return fail(err.text);
    }
    FILE *images = open_out(argv[3], "images"), *labels = open_out(argv[3], "labels");
    int rc = images != NULL && labels != NULL ? write_all(&model, data, opt, n_batches, images, labels)
                                              : fail("its files cannot be made");
    if ((images != NULL && fclose(images) != 0) | (labels != NULL && fclose(labels) != 0))
        rc = fail("its files cannot be written");
    cnn_data_close(data);
    return rc;
}
