/* codec.c: the speed of every codec compared with memcpy, the largest error of a message, and that of a sum
 * that is encoded at each hop of a ring. */
#include "proto/clock.h"
#include "tests/bench/codec/codec.h"

#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/codecs/codec.h"
#include "proto/codecs/kernels.h"
#include "tests/bench/options.h"
#include "tests/bench/samples.h"

const char bench_codec_help[] = "codecs: GB/s of float32, the largest error of a message and of a sum";

static const char usage_text[] =
    "usage: psbench codec [--floats 131072] [--members 8] [--rounds 200] [--topk 0.01] [--json]\n"
    "  --floats N   values of a message, 2 to 100000000\n"
    "  --members P  members of the sum, 2 to 1024; each adds its own vector, encoded at every hop\n"
    "  --rounds R   repetitions of each measurement, 1 to 100000; the median counts\n"
    "  --topk F     fraction of the values that topk sends, above 0, at most 1\n";

struct options {
    size_t floats, members, rounds;
    const char *topk; /* its fraction */
    bool json;
};

struct result {
    double encode_gb_s, decode_gb_s, copy_gb_s;
    double add_gb_s; /* 0 for a codec for moves */
    double one, sum; /* the largest errors, relative to the block's largest value and to the sum of those of
                        the members */
    double sum_bound;
};

static int parse(int argc, char **argv, struct options *opt)
{
    static const struct option longs[] = {{"floats", required_argument, NULL, 'n'},
                                          {"members", required_argument, NULL, 'p'},
                                          {"rounds", required_argument, NULL, 'r'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"topk", required_argument, NULL, 'k'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    int letter;
    while ((letter = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        bool fine = letter == 'n'   ? bench_digits("codec", "--floats", optarg, 2, 100000000, &opt->floats)
                    : letter == 'p' ? bench_digits("codec", "--members", optarg, 2, 1024, &opt->members)
                    : letter == 'r' ? bench_digits("codec", "--rounds", optarg, 1, 100000, &opt->rounds)
                                    : true;
        opt->topk = letter == 'k' ? optarg : opt->topk;
        opt->json = opt->json || letter == 'j';
        if (letter == 'h' || letter == '?')
            fputs(usage_text, letter == 'h' ? stdout : stderr);
        if (letter == 'h')
            return -1;
        if (!fine || letter == '?')
            return 2;
    }
    if (optind < argc)
        fprintf(stderr, "psbench codec: '%s' is not an option\n", argv[optind]);
    return optind < argc ? 2 : 0;
}

/* Normally distributed, like gradients and weights approximately are (Box, Muller 1958); the same in every
 * run. */
static float roll(uint64_t *state)
{
    double u[2];
    for (int i = 0; i < 2; i++) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        u[i] = ((double)(*state >> 11) + 0.5) * 0x1p-53;
    }
    return (float)(sqrt(-2 * log(u[0])) * cos(6.283185307179586 * u[1]));
}

static bool measure_speed(const struct options *opt, const struct ps_codec *c, const float *x, float *y,
                          unsigned char *payload, struct result *r)
{
    double gb = (double)opt->floats * sizeof *x * 1e-9;
    double *took[4] = {NULL};
    bool fine = true;
    for (int k = 0; k < 4; k++)
        fine = (took[k] = malloc(opt->rounds * sizeof **took)) != NULL && fine;
    for (size_t i = 0; fine && i < opt->rounds; i++) {
        double t[5] = {ps_now_s()};
        c->encode(c, payload, x, opt->floats), t[1] = ps_now_s();
        c->decode(c, y, payload, opt->floats), t[2] = ps_now_s();
        if (c->add != NULL)
            c->add(c, y, payload, opt->floats);
        t[3] = ps_now_s();
        memcpy(y, x, opt->floats * sizeof *x), t[4] = ps_now_s();
        for (int k = 0; k < 4; k++)
            took[k][i] = t[k + 1] - t[k];
    }
    if (fine) {
        r->encode_gb_s = gb / bench_median(took[0], opt->rounds);
        r->decode_gb_s = gb / bench_median(took[1], opt->rounds);
        r->add_gb_s = c->add != NULL ? gb / bench_median(took[2], opt->rounds) : 0;
        r->copy_gb_s = gb / bench_median(took[3], opt->rounds);
    }
    for (int k = 0; k < 4; k++)
        free(took[k]);
    return fine;
}

/* The largest |x| in the block of value i. */
static double size_of(const struct ps_codec *c, const float *x, size_t n, size_t i)
{
    size_t first = i - i % c->error.block, end = n - first < c->error.block ? n : first + c->error.block;
    double largest = 0;
    for (size_t k = first; k < end; k++)
        largest = fmax(largest, fabs((double)x[k]));
    return largest;
}

/* The relative error beyond the absolute part of the bound, which matters only for values near 0. */
static double part_of(const struct ps_codec *c, double error, double hops, double size)
{
    return fmax(0, fabs(error) - hops * c->error.absolute) / size;
}

/* x: the vector of member 0; those of the others come from the same generator. larger: the sum of the
 * members' block sizes. */
static void measure_errors(const struct options *opt, const struct ps_codec *c, float *x, float *sum,
                           double *exact, double *larger, unsigned char *payload, struct result *r)
{
    uint64_t state = 1;
    size_t n = opt->floats;
    memset(sum, 0, n * sizeof *sum);
    for (size_t m = 0; m < opt->members; m++) {
        for (size_t i = 0; i < n; i++)
            sum[i] += x[i] = roll(&state);
        for (size_t i = 0; i < n; i++) {
            exact[i] = (m > 0 ? exact[i] : 0) + (double)x[i];
            larger[i] = (m > 0 ? larger[i] : 0) + (i % c->error.block == 0 ? size_of(c, x, n, i) : 0);
        }
        c->encode(c, payload, sum, n);
        c->decode(c, sum, payload, n);
        for (size_t i = 0; m == 0 && i < n; i++)
            r->one =
                fmax(r->one, part_of(c, (double)sum[i] - (double)x[i], 1, larger[i - i % c->error.block]));
    }
    for (size_t i = 0; i < n && !c->for_moves; i++)
        r->sum = fmax(r->sum, part_of(c, (double)sum[i] - exact[i], (double)opt->members,
                                      larger[i - i % c->error.block]));
    r->sum_bound =
        c->for_moves ? 0
                     : pow(1 + c->error.relative, (double)opt->members) - 1 + (double)opt->members * 0x1p-24;
}

/* JSON has no number for what a codec for moves has not: 0. */
static void print(const struct options *opt, const struct ps_codec *c, const struct result *r)
{
    char name[PS_CODEC_TEXT];
    ps_codec_text(c, name);
    if (opt->json)
        printf("{\"bench\":\"codec\",\"codec\":\"%s\",\"floats\":%zu,\"bytes\":%zu,\"encode_gb_s\":%.2f,"
               "\"decode_"
               "gb_s\":%.2f,\"add_gb_s\":%.2f,\"memcpy_gb_s\":%.2f,\"error\":%.3g,\"error_bound\":%.3g,"
               "\"members\":%zu,\"sum_error\":%.3g,\"sum_error_bound\":%.3g}\n",
               name, opt->floats, c->payload_bytes(c, opt->floats), r->encode_gb_s, r->decode_gb_s,
               r->add_gb_s, r->copy_gb_s, r->one, c->error.relative, opt->members, r->sum, r->sum_bound);
    else
        printf("%-9s %8.1f %8.1f %8.1f %8.1f   %9.2e  %9.2e   %9.2e  %9.2e\n", name, r->encode_gb_s,
               r->decode_gb_s, r->add_gb_s, r->copy_gb_s, r->one, c->error.relative, r->sum, r->sum_bound);
}

int bench_codec(int argc, char **argv)
{
    struct options opt = {.floats = 131072, .members = 8, .rounds = 200, .topk = "0.01"};
    size_t n_rows;
    const struct ps_codec *const *rows = ps_codec_rows(&n_rows);
    int rc = parse(argc, argv, &opt);
    if (rc != 0)
        return rc < 0 ? 0 : rc;
    struct ps_codec topk;
    char named[64];
    snprintf(named, sizeof named, "topk:%s", opt.topk);
    const char *wrong = ps_codec_of(named, &topk);
    if (wrong != NULL) {
        fprintf(stderr, "psbench codec: --topk is '%s': %s\n", opt.topk, wrong);
        return 2;
    }
    float *x = calloc(opt.floats, sizeof *x), *y = calloc(opt.floats, sizeof *y);
    double *exact = calloc(opt.floats, sizeof *exact), *larger = calloc(opt.floats, sizeof *larger);
    unsigned char *payload = calloc(opt.floats, sizeof *x);
    bool fine = x != NULL && y != NULL && exact != NULL && larger != NULL && payload != NULL;
    if (fine && !opt.json)
        printf("%zu floats, kernels %s; GB/s of float32; errors of one message relative to the value (int8, "
               "int4: its block's\n"
               "largest), of a sum over %zu members to the sum of theirs, each with its bound\n"
               "codec       encode   decode      add   memcpy     error      bound       of sum     bound\n",
               opt.floats, ps_codec_kernels_best()->name, opt.members);
    for (size_t k = 0; fine && k < n_rows; k++) {
        const struct ps_codec *c = ps_codec_is("topk", rows[k]->name) ? &topk : rows[k];
        struct result r = {0};
        measure_errors(&opt, c, x, y, exact, larger, payload, &r);
        fine = measure_speed(&opt, c, x, y, payload, &r);
        if (fine)
            print(&opt, c, &r);
    }
    if (!fine)
        fprintf(stderr, "psbench codec: no memory for %zu floats\n", opt.floats);
    free(x);
    free(y);
    free(exact);
    free(larger);
    free(payload);
    return fine ? 0 : 1;
}
