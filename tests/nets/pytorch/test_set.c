/* test_set.c: writes a data set's test images as a net takes them: test-set-dump NET DATA PREFIX makes
 * PREFIX.images, float32 [images][C][H][W], and PREFIX.labels, uint16. */
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

/* All of it; an exit status. */
static int write_all(const struct cnn_model *m, struct cnn_data *data, FILE *images_out, FILE *labels_out)
{
    struct cnn_stream_options opt = {
        .split = CNN_TEST, .batch = BATCH, .height = m->height, .width = m->width};
    const size_t n_pixels = (size_t)m->channels * m->height * m->width;
    float *images = calloc(BATCH * n_pixels, sizeof *images);
    struct cnn_stream *s = NULL;
    struct ps_error err;
    uint16_t labels[BATCH];
    int n = -1;

    if (images == NULL || cnn_stream_create(data, &opt, &s, &err) < 0) {
        free(images);
        return fail("no stream of the test set");
    }
    while ((n = cnn_stream_next(s, images, labels)) > 0) {
        fwrite(images, n_pixels * sizeof *images, (size_t)n, images_out);
        fwrite(labels, sizeof *labels, (size_t)n, labels_out);
    }
    cnn_stream_destroy(s);
    free(images);
    return n == 0 ? 0 : fail("an image could not be read");
}

int main(int argc, char **argv)
{
    struct cnn_model model;
    struct cnn_data *data = NULL;
    struct ps_error err;

    if (argc != 4) {
        fprintf(stderr, "usage: test-set-dump NET DATA PREFIX\n");
        return 2;
    }
    if (cnn_model_read(argv[1], &model, &err) < 0 || cnn_data_open(argv[2], &data, &err) < 0 ||
        cnn_data_fits(data, &model, &err) < 0) {
        cnn_data_close(data);
        return fail(err.text);
    }
    FILE *images = open_out(argv[3], "images"), *labels = open_out(argv[3], "labels");
    int rc = images != NULL && labels != NULL ? write_all(&model, data, images, labels)
                                              : fail("its files cannot be made");
    if ((images != NULL && fclose(images) != 0) | (labels != NULL && fclose(labels) != 0))
        rc = fail("its files cannot be written");
    cnn_data_close(data);
    return rc;
}
