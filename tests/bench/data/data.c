/* data.c: images/s of a training stream with and without prefetch and, for photographs, of the JPEG library
 * alone. The measurements alternate, so that other load affects all of them; medians count, for the library
 * the median of ratios of neighbours. The reader only takes batches. */
#include "proto/clock.h"
#include "tests/bench/data/data.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>

#include "nets/data/data.h"
#include "tests/bench/data/jpegs.h"
#include "tests/bench/options.h"
#include "tests/bench/samples.h"

const char bench_data_help[] = "training batches of a data set: images/s, with and without threads";

#define BLOCK_S 0.1
enum { MAX_BLOCKS = 1000, JPEGS_AT_ONCE = 16 };
enum { BY_READER, DECODE_ALONE, AHEAD, N_WAYS };

struct options {
    const char *data, *view;
    uint32_t side, batch, prefetch, threads;
    double seconds;
    bool json;
};

static void usage(FILE *out)
{
    fputs("usage: psbench data [--data digits] [--side 0] [--batch 64] [--prefetch 4] [--data-threads 1] "
          "[--seconds 5] [--view crop] [--json]\n"
          "  --data: digits, mnist:DIR, cifar10:DIR or images:DIR; --side: size of the images, 0: as stored, "
          "or 224;\n"
          "  --view: of images, as in psworker. JPEG images are also decoded with libjpeg-turbo alone: "
          "the "
          "same files, from\n"
          "  memory, at the same scale, on one thread\n",
          out);
}

static bool parse(int argc, char **argv, struct options *o)
{
    static const struct option names[] = {
        {"data", 1, NULL, 'd'},     {"side", 1, NULL, 's'},         {"batch", 1, NULL, 'b'},
        {"prefetch", 1, NULL, 'p'}, {"data-threads", 1, NULL, 't'}, {"seconds", 1, NULL, 'c'},
        {"json", 0, NULL, 'j'},     {"view", 1, NULL, 'v'},         {NULL, 0, NULL, 0},
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
        case 'v':
            o->view = optarg;
            break;
        case 'j':
            o->json = true;
            break;
        case 's':
            good = bench_number("data", "--side", optarg, 0, 65536, &v);
            o->side = (uint32_t)v;
            break;
        case 'b':
            good = bench_number("data", "--batch", optarg, 1, 65536, &v);
            o->batch = (uint32_t)v;
            break;
        case 'p':
            good = bench_number("data", "--prefetch", optarg, 1, CNN_MAX_PREFETCH, &v);
            o->prefetch = (uint32_t)v;
            break;
        case 't':
            good = bench_number("data", "--data-threads", optarg, 1, CNN_MAX_DATA_THREADS, &v);
            o->threads = (uint32_t)v;
            break;
        case 'c':
            good = bench_number("data", "--seconds", optarg, 0.1, 3600, &o->seconds);
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

/* Images per second of wall time and of this thread's CPU time; other load does not affect the second. */
struct rate {
    double wall, cpu;
};

static double thread_s(void)
{
    struct rusage u;
    getrusage(RUSAGE_THREAD, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

/* One source of images. Returns the number of images of a call, or a negative errno. */
struct way {
    struct cnn_stream *stream; /* NULL: jpegs */
    struct bench_jpegs *jpegs;
    uint32_t n_ready; /* batches that are ready when a block begins; not counted */
};

static int draw(const struct way *way)
{
    struct cnn_batch batch;
    if (way->stream != NULL)
        return cnn_stream_borrow(way->stream, &batch);
    for (int i = 0; i < JPEGS_AT_ONCE; i++)
        bench_jpegs_decode(way->jpegs);
    return JPEGS_AT_ONCE;
}

/* Measures one block: of this thread's CPU time, or of wall time where other threads do the work. False if
 * the stream failed. */
static bool run_block(const struct way *way, struct rate *out)
{
    for (uint32_t i = 0; i < way->n_ready; i++)
        if (draw(way) < 0)
            return false;
    double start = ps_now_s(), cpu_start = thread_s(), wall, cpu;
    uint64_t n_images = 0;
    do {
        int n = draw(way);
        if (n < 0)
            return false;
        n_images += (uint32_t)n;
        wall = ps_now_s() - start;
        cpu = thread_s() - cpu_start;
    } while ((way->n_ready > 0 ? wall : cpu) < BLOCK_S);
    *out = (struct rate){(double)n_images / wall, (double)n_images / cpu};
    return true;
}

static bool is_there(const struct way *way)
{
    return way->stream != NULL || way->jpegs != NULL;
}

/* One block of each way, in order; a way that is not there: 0. */
static bool run_blocks(const struct way ways[N_WAYS], struct rate rates[N_WAYS], struct ps_error *err)
{
    for (uint32_t i = 0; i < N_WAYS; i++) {
        rates[i] = (struct rate){0, 0};
        if (is_there(&ways[i]) && !run_block(&ways[i], &rates[i])) {
            ps_fail(err, -EIO, "%s", cnn_stream_error(ways[i].stream));
            return false;
        }
    }
    return true;
}

/* A stream that is not being read has a full queue and sleeping threads, so it does not disturb the other.
 * *part: the rate of the reader, as a part of the library's. */
static bool measure(const struct options *o, const struct way ways[N_WAYS], struct rate rates[N_WAYS],
                    double *part, struct ps_error *err)
{
    static double wall[N_WAYS][MAX_BLOCKS], cpu[N_WAYS][MAX_BLOCKS], parts[MAX_BLOCKS];
    double end = ps_now_s() + o->seconds;
    int n = 0;
    for (; n < MAX_BLOCKS && (n < 3 || ps_now_s() < end); n++) {
        struct rate found[N_WAYS];
        if (!run_blocks(ways, found, err))
            return false;
        for (uint32_t way = 0; way < N_WAYS; way++) {
            wall[way][n] = found[way].wall;
            cpu[way][n] = found[way].cpu;
        }
        parts[n] = found[DECODE_ALONE].cpu > 0 ? found[BY_READER].cpu / found[DECODE_ALONE].cpu : 0;
    }
    for (uint32_t way = 0; way < N_WAYS; way++)
        rates[way] = (struct rate){bench_median(wall[way], (size_t)n), bench_median(cpu[way], (size_t)n)};
    *part = bench_median(parts, (size_t)n);
    return true;
}

/* alone: the rate of libjpeg-turbo; 0: not measured. */
static void print(const struct options *o, const char *name, const struct rate rates[N_WAYS], double part)
{
    const struct rate alone = rates[DECODE_ALONE], reader = rates[BY_READER];
    if (o->json) {
        printf("{\"bench\":\"data\",\"data\":\"%s\",\"batch\":%u,\"prefetch\":%u,\"data_threads\":%u,"
               "\"images_s\":%.1f,\"images_s_prefetch\":%.1f",
               name, o->batch, o->prefetch, o->threads, reader.wall, rates[AHEAD].wall);
        if (alone.wall > 0)
            printf(
                ",\"images_cpu_s\":%.1f,\"images_cpu_s_libjpeg_turbo\":%.1f,\"part_of_libjpeg_turbo\":%.3f",
                reader.cpu, alone.cpu, part);
        printf("}\n");
        return;
    }
    printf("%s, batch %u\n  by the reader     %10.0f images/s\n  %u prefetched, %u thread%s %8.0f images/s\n",
           name, o->batch, reader.wall, o->prefetch, o->threads, o->threads == 1 ? " " : "s",
           rates[AHEAD].wall);
    if (alone.wall > 0)
        printf(
            "  a second of one thread: %.0f images read, decoded, scaled, cropped and flipped; libjpeg-turbo "
            "alone decodes\n  %.0f of the same files at the same scale: %.1f %%\n",
            reader.cpu, alone.cpu, 100 * part);
}

static int run_measurement(const struct options *o, const struct cnn_data *data, struct ps_error *err)
{
    struct cnn_stream *streams[2] = {NULL, NULL};
    struct bench_jpegs *jpegs = NULL;
    struct cnn_data_info info;
    struct rate rates[N_WAYS] = {{0, 0}};
    double part;
    int rc = 1;
    cnn_data_get_info(data, &info);
    struct cnn_stream_options opt = {
        .split = CNN_TRAIN, .seed = 1, .batch = o->batch, .height = o->side, .width = o->side};
    if (cnn_stream_create(data, &opt, &streams[0], err) != 0)
        goto out;
    opt.prefetch = o->prefetch;
    opt.threads = o->threads;
    if (cnn_stream_create(data, &opt, &streams[1], err) != 0 ||
        bench_jpegs_open(data, o->side, &jpegs, err) != 0)
        goto out;
    const struct way ways[N_WAYS] = {[BY_READER] = {streams[0], NULL, 0},
                                     [DECODE_ALONE] = {NULL, jpegs, 0},
                                     [AHEAD] = {streams[1], NULL, o->prefetch + 1}};
    if (!measure(o, ways, rates, &part, err))
        goto out;
    rc = 0;
    print(o, info.name, rates, part);
out:
    bench_jpegs_close(jpegs);
    cnn_stream_destroy(streams[0]);
    cnn_stream_destroy(streams[1]);
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
    struct cnn_data_options opt = {.view = o.view, .max_damaged = CNN_MAX_DAMAGED};
    int rc = cnn_data_open_with(o.data, &opt, &data, &err);
    if (rc == 0)
        rc = run_measurement(&o, data, &err);
    else
        rc = 2;
    if (rc != 0)
        fprintf(stderr, "psbench data: %s\n", err.text);
    cnn_data_close(data);
    return rc;
}
