/* args.c: the options of psbench exchange. */
#include "tests/bench/exchange/args.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "proto/codecs/codec.h"
#include "proto/transports/transport.h"
#include "tests/bench/options.h"
#include "tests/support/system/servers.h"

static const char usage_text[] =
    "usage: psbench exchange [--transport tcp|ipc|shm|rdma] [--in-place] [--floats 431080] [--workers 1]\n"
    "                        [--seconds 5] [--count N] [--compute-ms 0] [--servers 1] [--lanes 2]\n"
    "                        [--chunk-floats 131072] [--window 2] [--admission fcfs] [--codec raw]\n"
    "                        [--answer-codec raw] [--memory host|cuda] [--curve] [--psd PROGRAM] [--json]\n"
    "  --transport T   tcp on loopback (default), ipc: UNIX sockets, shm: shared memory, rdma\n"
    "  --in-place      x is in psc_alloc's memory, and psc_step exchanges it with rule elastic: over shm "
    "the\n"
    "                  lane updates x in place; the optimizer's time is not counted\n"
    "  --compute-ms M  the worker computes for M ms between two exchanges; not counted\n"
    "  --servers S     psd processes, each with a part of the vector and --lanes lanes\n"
    "  --admission A   fcfs (default) or hogwild\n"
    "  --codec C       encoding of messages: raw (default), fp16, bf16, trunc16 or int8; --answer-codec: "
    "answers\n"
    "  --memory M      where the workers' vectors lie: host (default), or cuda: on a GPU\n"
    "  --curve         with keys: peers authenticate, and the traffic is encrypted\n"
    "  --count N       N exchanges of each worker instead of --seconds\n";

struct number {
    int letter;
    const char *name;
    double min, max;
    uint64_t *whole; /* or */
    double *real;
};

/* 0; 1: not one of these letters; 2: invalid value */
static int take_number(const struct number *rows, size_t n, int letter)
{
    for (size_t i = 0; i < n; i++) {
        const struct number *r = &rows[i];
        double v;
        if (r->letter != letter)
            continue;
        if (!bench_number("exchange", r->name, optarg, r->min, r->max, &v))
            return 2;
        if (r->whole != NULL)
            *r->whole = (uint64_t)v;
        else
            *r->real = v;
        return 0;
    }
    return 1;
}

static int take_codec(const char *name, const char **out)
{
    if (ps_codec_named(optarg) == NULL) {
        fprintf(stderr, "psbench exchange: %s is '%s'; allowed are raw, fp16, bf16, trunc16 and int8\n", name,
                optarg);
        return 2;
    }
    *out = optarg;
    return 0;
}

static int take_transport(const char **out)
{
    if (ps_transport_find(optarg) == NULL) {
        fprintf(stderr, "psbench exchange: --transport is '%s'; allowed are tcp, ipc, shm and rdma\n",
                optarg);
        return 2;
    }
    *out = optarg;
    return 0;
}

static int take_memory(const char **out)
{
    if (strcmp(optarg, "host") != 0 && strcmp(optarg, "cuda") != 0) {
        fprintf(stderr, "psbench exchange: --memory is '%s'; allowed are host and cuda\n", optarg);
        return 2;
    }
    *out = optarg;
    return 0;
}

static int take_option(struct bench_exchange_options *opt, int letter)
{
    switch (letter) {
    case 't':
        return take_transport(&opt->transport);
    case 'm':
        return take_codec("--codec", &opt->codec);
    case 'r':
        return take_codec("--answer-codec", &opt->answer_codec);
    case 'y':
        return take_memory(&opt->memory);
    case 'p':
        opt->psd = optarg;
        return 0;
    case 'a':
        opt->admission = optarg;
        return 0;
    case 'j':
        opt->json = true;
        return 0;
    case 'i':
        opt->in_place = true;
        return 0;
    case 'C':
        opt->curve = true;
        return 0;
    default:
        fputs(usage_text, letter == 'h' ? stdout : stderr);
        return letter == 'h' ? -1 : 2;
    }
}

int bench_exchange_parse(int argc, char **argv, struct bench_exchange_options *opt)
{
    static const struct option longs[] = {{"transport", required_argument, NULL, 't'},
                                          {"in-place", no_argument, NULL, 'i'},
                                          {"floats", required_argument, NULL, 'n'},
                                          {"workers", required_argument, NULL, 'w'},
                                          {"seconds", required_argument, NULL, 's'},
                                          {"count", required_argument, NULL, 'c'},
                                          {"compute-ms", required_argument, NULL, 'M'},
                                          {"lanes", required_argument, NULL, 'l'},
                                          {"servers", required_argument, NULL, 'S'},
                                          {"chunk-floats", required_argument, NULL, 'k'},
                                          {"window", required_argument, NULL, 'W'},
                                          {"psd", required_argument, NULL, 'p'},
                                          {"admission", required_argument, NULL, 'a'},
                                          {"codec", required_argument, NULL, 'm'},
                                          {"answer-codec", required_argument, NULL, 'r'},
                                          {"memory", required_argument, NULL, 'y'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"curve", no_argument, NULL, 'C'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    const struct number numbers[] = {{'n', "--floats", 1, 1e10, &opt->floats, NULL},
                                     {'w', "--workers", 1, BENCH_MAX_WORKERS, &opt->workers, NULL},
                                     {'c', "--count", 1, 1e9, &opt->count, NULL},
                                     {'l', "--lanes", 1, 64, &opt->lanes, NULL},
                                     {'S', "--servers", 1, SERVERS_MOST, &opt->servers, NULL},
                                     {'k', "--chunk-floats", 1024, 1048576, &opt->chunk_floats, NULL},
                                     {'W', "--window", 1, 64, &opt->window, NULL},
                                     {'s', "--seconds", 0.1, 3600, NULL, &opt->seconds},
                                     {'M', "--compute-ms", 0, 10000, NULL, &opt->compute_ms}};
    int letter, rc;
    while ((letter = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        rc = take_number(numbers, sizeof numbers / sizeof *numbers, letter);
        if ((rc == 1 ? take_option(opt, letter) : rc) != 0)
            return rc == 1 ? (letter == 'h' ? -1 : 2) : rc;
    }
    if (optind < argc)
        fprintf(stderr, "psbench exchange: '%s' is not an option\n", argv[optind]);
    return optind < argc ? 2 : 0;
}
