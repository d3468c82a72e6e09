/* data.c: images/s of a training stream, made when asked for and made ahead, in turn so that a noisy
 * neighbour meets both; medians. The reader takes batches and does nothing else. */
#include "proto/clock.h"
#include "tests/bench/data/data.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nets/data/data.h"

const char bench_data_help[] = "training batches of a data set: images/s, with and without threads";

#define BLOCK_S 0.25
enum { MAX_BLOCKS = 1000 };

struct options {
    const char *data;
    uint32_t side, batch, prefetch, threads;
    double seconds;
    bool json;
};

static void usage(FILE *out)
{
    fputs("usage: psbench data [--data digits] [--side 0] [--batch 64] [--prefetch 4] [--data-threads 1] "
          "[--seconds 5] [--json]\n"
          "  --data: digits, mnist:DIR or cifar10:DIR; --side: of the images, 0: as they are stored\n",
          out);
}

static bool read_number(const char *name, const char *text, double least, double most, double *out)
{
    char *end;
    *out = strtod(text, &end);
    if (end != text && *end == '\0' && *out >= least && *out <= most)
        return true;
    fprintf(stderr, "psbench data: --%s is '%s'; allowed are %g to %g\n", name, text, least, most);
    return false;
}

static bool parse(int argc, char **argv, struct options *o)
{
    static const struct option names[] = {
        {"data", 1, NULL, 'd'},         {"side", 1, NULL, 's'},
        {"batch", 1, NULL, 'b'},        {"prefetch", 1, NULL, 'p'},
        {"data-threads", 1, NULL, 't'}, {"seconds", 1, NULL, 'c'},
        {"json", 0, NULL, 'j'},         {NULL, 0, NULL, 0},
    };
    int found, at;
    double v = 0;
    bool good = true;

    *o = (struct options){.data = "digits", .batch = 64, .prefetch = 4, .threads = 1, .seconds = 5};
    optind = 0;
    while (good && (found = getopt_long(argc, argv, "", names, &at)) != -1) {
        switch (found) {
        case 'd':
            o->data = optarg;
            break;
        case 'j':
            o->json = true;
            break;
        case 's':
            good = read_number("side", optarg, 0, 65536, &v);
            o->side = (uint32_t)v;
            break;
        case 'b':
            good = read_number("batch", optarg, 1, 65536, &v);
            o->batch = (uint32_t)v;
            break;
        case 'p':
            good = read_number("prefetch", optarg, 1, CNN_MAX_PREFETCH, &v);
            o->prefetch = (uint32_t)v;
            break;
        case 't':
            good = read_number("data-threads", optarg, 1, CNN_MAX_DATA_THREADS, &v);
            o->threads = (uint32_t)v;
            break;
        case 'c':
            good = read_number("seconds", optarg, 0.1, 3600, &o->seconds);
            break;
        default:
            good = false;
        }
    }
    if (good && optind < argc)
        fprintf(stderr, "psbench data: '%s' is not an option\n", argv[optind]);
    if (good && optind == argc)
        return true;
    usage(stderr);
    return false;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Images/s over one block; negative errno. */
static double run_block(struct cnn_stream *s, float *images, uint16_t *labels)
{
    double start = ps_now_s(), end = start;
    uint64_t n_images = 0;
    do {
        int n = cnn_stream_next(s, images, labels);
        if (n < 0)
            return n;
        n_images += (uint32_t)n;
        end = ps_now_s();
    } while (end - start < BLOCK_S);
    return (double)n_images / (end - start);
}

/* A stream that is not being read has its queue full and its threads asleep: neither way disturbs the other.
 */
static bool measure(const struct options *o, struct cnn_stream *const streams[2], float *images,
                    uint16_t *labels, double rates[2], struct ps_error *err)
{
    double all[2][MAX_BLOCKS], end = ps_now_s() + o->seconds;
    int n = 0;
    while (n < MAX_BLOCKS && (n < 3 || ps_now_s() < end)) {
        for (int way = 0; way < 2; way++) {
            all[way][n] = run_block(streams[way], images, labels);
            if (all[way][n] < 0) {
                ps_fail(err, -EIO, "%s", cnn_stream_error(streams[way]));
                return false;
            }
        }
        n++;
    }
    for (int way = 0; way < 2; way++) {
        qsort(all[way], (size_t)n, sizeof all[way][0], by_value);
        rates[way] = all[way][n / 2];
    }
    return true;
}

static int run(const struct options *o, const struct cnn_data *data, struct ps_error *err)
{
    struct cnn_stream *streams[2] = {NULL, NULL};
    struct cnn_data_info info;
    double rates[2];
    int rc = 1;
    cnn_data_info(data, &info);
    size_t n_pixels = (size_t)info.channels * info.height * info.width;
    float *images = calloc(o->batch, n_pixels * sizeof *images); /* a view is never larger than the images */
    uint16_t *labels = calloc(o->batch, sizeof *labels);
    struct cnn_stream_options opt = {
        .split = CNN_TRAIN, .seed = 1, .batch = o->batch, .height = o->side, .width = o->side};
    if (images == NULL || labels == NULL)
        goto out;
    if (cnn_stream_create(data, &opt, &streams[0], err) != 0)
        goto out;
    opt.prefetch = o->prefetch;
    opt.threads = o->threads;
    if (cnn_stream_create(data, &opt, &streams[1], err) != 0)
        goto out;
    if (!measure(o, streams, images, labels, rates, err))
        goto out;
    rc = 0;
    if (o->json)
        printf("{\"bench\":\"data\",\"data\":\"%s\",\"batch\":%u,\"prefetch\":%u,\"data_threads\":%u,"
               "\"images_s\":%.1f,\"images_s_prefetch\":%.1f}\n",
               info.name, o->batch, o->prefetch, o->threads, rates[0], rates[1]);
    else
        printf("%s, batch %u\n  by the reader     %10.0f images/s\n  %u made ahead, %u thread%s %8.0f "
               "images/s\n",
               info.name, o->batch, rates[0], o->prefetch, o->threads, o->threads == 1 ? " " : "s", rates[1]);
out:
    cnn_stream_destroy(streams[0]);
    cnn_stream_destroy(streams[1]);
    free(images);
    free(labels);
    return rc;
}

int bench_data(int argc, char **argv)
{
    struct ps_error err = {"no memory for a batch"};
    struct cnn_data *data = NULL;
    struct options o;

    if (argc == 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
        usage(stdout);
        return 0;
    }
    if (!parse(argc, argv, &o))
        return 2;
    int rc = cnn_data_open(o.data, &data, &err);
    if (rc == 0)
        rc = run(&o, data, &err);
    else
        rc = 2;
    if (rc != 0)
        fprintf(stderr, "psbench data: %s\n", err.text);
    cnn_data_close(data);
    return rc;
}
