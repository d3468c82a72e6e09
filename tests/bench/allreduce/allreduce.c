/* allreduce.c: options, measurements and output. */
#include "tests/bench/allreduce/allreduce.h"

#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/psclique_vectors.h"
#include "proto/codecs/codec.h"
#include "tests/bench/plan/plan.h"
#include "tests/bench/samples.h"

const char bench_allreduce_help[] = "sums over the ring of libpsclient, compared with MPI_Allreduce";

static const char usage_text[] =
    "usage: psbench allreduce [--road tcp|unix] [--floats 431080] [--ranks 2] [--codec raw|all|NAME]\n"
    "                         [--algorithm ring|tree|auto] [--links 1]\n"
    "                         [--segment 0] [--busy 0] [--repeat 7] [--small] [--no-mpi] [--json]\n"
    "                         [--vectors D [--part N] [--link RATE] [--member K --rendezvous file:PATH\n"
    "                         --listen tcp://HOST]] [--turns PREFIX]\n"
    "  --road R     tcp on loopback (default), or unix: UNIX sockets, compared with MPI's shared memory\n"
    "  --busy N     N further processes that only use CPU time\n"
    "  --vectors D  D vectors of every member, in parts that overlap, compared with one part\n"
    "  --part N     floats of a part; 0: the library's choice (0)\n"
    "  --link RATE  of every member, such as 10gbit: prints the time that the link alone takes\n"
    "  --member K   this process is member K alone; the others are started likewise, on other hosts\n"
    "  --turns PREFIX  for peers.py: the ranks over the ring read lines FLOATS CALLS from FIFOs PREFIX.RANK\n"
    "  --small      the gradients of LeNet and AlexNet, each as one vector and as one vector per tensor\n";

enum { MAX_BUSY = 64 };

struct options {
    struct bench_crowd crowd;
    uint64_t floats, ranks, repeats, links, segment, busy;
    uint64_t vectors, part, member;
    const char *rendezvous, *listen, *turns;
    double beta_s; /* of --link; NaN */
    bool small, no_mpi, json, is_member;
};

/* Gradients by tensor, weight and bias of each layer: Caffe's LeNet, and AlexNet without groups. */
static const struct {
    const char *net;
    struct bench_parts tensors;
} nets[] = {{"lenet", {8, {500, 20, 25000, 50, 400000, 500, 5000, 10}}},
            {"alexnet",
             {16,
              {34848, 96, 614400, 256, 884736, 384, 1327104, 384, 884736, 256, 37748736, 4096, 16777216, 4096,
               4096000, 1000}}}};

static bool parse_number(const char *option, const char *text, double min, double max, uint64_t *out)
{
    char *end;
    double v = strtod(text, &end);
    if (*text != 0 && *end == 0 && v >= min && v <= max && v == floor(v)) {
        *out = (uint64_t)v;
        return true;
    }
    fprintf(stderr, "psbench allreduce: %s is '%s'; allowed are %.0f to %.0f\n", option, text, min, max);
    return false;
}

static bool check_codec(const char *name)
{
    size_t n;
    const struct ps_codec *const *rows = ps_codec_value_rows(&n);
    if (strcmp(name, "all") == 0 || ps_codec_named_for_values(name) != NULL)
        return true;
    fprintf(stderr, "psbench allreduce: --codec is '%s'; allowed are all", name);
    for (size_t i = 0; i < n; i++)
        fprintf(stderr, ", %s", rows[i]->name);
    fprintf(stderr, "\n");
    return false;
}

static int check_vectors(const struct options *o)
{
    const struct {
        const char *name;
        bool given;
    } needs[] = {{"--part", o->part != 0},
                 {"--member", o->is_member},
                 {"--rendezvous", o->rendezvous != NULL},
                 {"--listen", o->listen != NULL},
                 {"--link", !isnan(o->beta_s)}};
    for (size_t i = 0; i < sizeof needs / sizeof *needs; i++)
        if (o->vectors == 0 && needs[i].given) {
            fprintf(stderr, "psbench allreduce: %s: given without --vectors\n", needs[i].name);
            return 2;
        }
    if (o->is_member && (o->member >= o->ranks || o->rendezvous == NULL)) {
        fprintf(stderr, "psbench allreduce: --member: allowed are 0 to --ranks less 1, with --rendezvous\n");
        return 2;
    }
    if (o->vectors > 0 && (o->small || strcmp(o->crowd.codec, "all") == 0)) {
        fprintf(stderr, "psbench allreduce: --vectors: given with --small or --codec all\n");
        return 2;
    }
    return 0;
}

static int measure_vectors(const struct options *o)
{
    const struct bench_vectors v = {.vectors = o->vectors,
                                    .floats = o->floats,
                                    .part_floats = o->part,
                                    .ranks = o->ranks,
                                    .member = o->is_member ? (int64_t)o->member : -1,
                                    .repeats = (int)o->repeats,
                                    .codec = o->crowd.codec,
                                    .algorithm = o->crowd.algorithm,
                                    .rendezvous = o->rendezvous,
                                    .listen = o->listen != NULL                    ? o->listen
                                              : strcmp(o->crowd.road, "unix") == 0 ? "unix:"
                                                                                   : "tcp://127.0.0.1",
                                    .links = (uint32_t)o->links,
                                    .segment_bytes = (uint32_t)o->segment,
                                    .beta_s = o->beta_s,
                                    .json = o->json};
    return bench_vectors(&v);
}

/* 0; -1: help was requested; 2: usage. */
static int parse(int argc, char **argv, struct options *o)
{
    static const struct option longs[] = {{"road", required_argument, NULL, 'r'},
                                          {"floats", required_argument, NULL, 'n'},
                                          {"ranks", required_argument, NULL, 'p'},
                                          {"codec", required_argument, NULL, 'c'},
                                          {"algorithm", required_argument, NULL, 'a'},
                                          {"links", required_argument, NULL, 'l'},
                                          {"segment", required_argument, NULL, 's'},
                                          {"busy", required_argument, NULL, 'b'},
                                          {"repeat", required_argument, NULL, 'k'},
                                          {"vectors", required_argument, NULL, 'v'},
                                          {"part", required_argument, NULL, 'P'},
                                          {"member", required_argument, NULL, 'm'},
                                          {"rendezvous", required_argument, NULL, 'R'},
                                          {"listen", required_argument, NULL, 'L'},
                                          {"link", required_argument, NULL, 'B'},
                                          {"turns", required_argument, NULL, 'T'},
                                          {"small", no_argument, NULL, 'S'},
                                          {"no-mpi", no_argument, NULL, 'M'},
                                          {"json", no_argument, NULL, 'j'},
                                          {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    const struct {
        int letter;
        const char *name;
        double min, max;
        uint64_t *to;
    } numbers[] = {{'n', "--floats", 0, 1e10, &o->floats},
                   {'p', "--ranks", 1, BENCH_MAX_RANKS, &o->ranks},
                   {'l', "--links", 1, 16, &o->links},
                   {'s', "--segment", 0, 4 << 20, &o->segment},
                   {'b', "--busy", 0, MAX_BUSY, &o->busy},
                   {'k', "--repeat", 1, BENCH_MAX_REPEATS, &o->repeats},
                   {'v', "--vectors", 1, PSC_MAX_VECTORS, &o->vectors},
                   {'P', "--part", 0, 1e10, &o->part},
                   {'m', "--member", 0, BENCH_MAX_RANKS - 1, &o->member}};
    int letter;
    while ((letter = getopt_long(argc, argv, "", longs, NULL)) != -1) {
        for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
            if (numbers[i].letter == letter &&
                !parse_number(numbers[i].name, optarg, numbers[i].min, numbers[i].max, numbers[i].to))
                return 2;
        if (letter == 'r' && strcmp(o->crowd.road = optarg, "tcp") != 0 && strcmp(optarg, "unix") != 0) {
            fprintf(stderr, "psbench allreduce: --road is '%s'; allowed are tcp and unix\n", optarg);
            return 2;
        }
        if (letter == 'c' && !check_codec(o->crowd.codec = optarg))
            return 2;
        if (letter == 'a' && strcmp(o->crowd.algorithm = optarg, "ring") != 0 &&
            strcmp(optarg, "tree") != 0 && strcmp(optarg, "auto") != 0) {
            fprintf(stderr, "psbench allreduce: --algorithm is '%s'; allowed are ring, tree and auto\n",
                    optarg);
            return 2;
        }
        if (letter == 'B' && !plan_read_link("link", optarg, &o->beta_s))
            return 2;
        o->rendezvous = letter == 'R' ? optarg : o->rendezvous;
        o->listen = letter == 'L' ? optarg : o->listen;
        o->turns = letter == 'T' ? optarg : o->turns;
        o->is_member = o->is_member || letter == 'm';
        o->small = o->small || letter == 'S';
        o->no_mpi = o->no_mpi || letter == 'M';
        o->json = o->json || letter == 'j';
        if (letter == 'h' || letter == '?') {
            fputs(usage_text, letter == 'h' ? stdout : stderr);
            return letter == 'h' ? -1 : 2;
        }
    }
    if (optind < argc)
        fprintf(stderr, "psbench allreduce: '%s' is not an option\n", argv[optind]);
    return optind < argc ? 2 : check_vectors(o);
}

struct spread {
    double median_ms, min_ms, max_ms;
};

static struct spread spread_of(struct bench_times *t, int n)
{
    bench_sort(t->seconds, (size_t)n);
    double middle = n % 2 ? t->seconds[n / 2] : (t->seconds[n / 2 - 1] + t->seconds[n / 2]) / 2;
    return (struct spread){middle * 1e3, t->seconds[0] * 1e3, t->seconds[n - 1] * 1e3};
}

static double bytes_of(const struct bench_parts *parts)
{
    double floats = 0;
    for (size_t k = 0; k < parts->n; k++)
        floats += (double)parts->counts[k];
    return floats * sizeof(float);
}

static const char *mpi_name(const struct options *o)
{
    return strcmp(o->crowd.road, "tcp") == 0 ? "MPI over tcp" : "MPI over shared memory";
}

static void print_json(const struct options *o, const char *what, const struct bench_parts *parts,
                       const struct spread *ring, const struct bench_times *t, const struct spread *mpi)
{
    printf("{\"bench\":\"allreduce\",\"vector\":\"%s\",\"floats\":%.0f,\"messages\":%zu,\"ranks\":%d,"
           "\"road\":\"%s\","
           "\"codec\":\"%s\",\"algorithm\":\"%s\",\"links\":%u,\"segment_bytes\":%u,\"busy\":%llu,"
           "\"repeats\":%d,\"calls\":%d,"
           "\"ring_ms\":%.4f,"
           "\"ring_min_ms\":%.4f,\"ring_max_ms\":%.4f,\"gb_s\":%.3f,\"max_error\":%.3g,\"max_sum\":%.6g",
           what, bytes_of(parts) / sizeof(float), parts->n, o->crowd.ranks, o->crowd.road, o->crowd.codec,
           o->crowd.algorithm, o->crowd.links, o->crowd.segment_bytes, (unsigned long long)o->busy,
           o->crowd.repeats, o->crowd.calls, ring->median_ms, ring->min_ms, ring->max_ms,
           bytes_of(parts) * 1e-6 / ring->median_ms, t->max_error, t->max_sum);
    if (mpi != NULL)
        printf(",\"mpi_ms\":%.4f,\"mpi_min_ms\":%.4f,\"mpi_max_ms\":%.4f,\"speedup\":%.3f", mpi->median_ms,
               mpi->min_ms, mpi->max_ms, mpi->median_ms / ring->median_ms);
    printf("}\n");
}

static void print_text(const struct options *o, const char *what, const struct bench_parts *parts,
                       const struct spread *ring, const struct bench_times *t, const struct spread *mpi,
                       const char *why)
{
    double mb = bytes_of(parts) * 1e-6;
    printf("%s, %zu message%s, %.2f MB, %d ranks, %s, %s, %u link%s, segments of %u bytes (0: default), %llu "
           "busy, "
           "median "
           "of %d runs of %d calls\n",
           what, parts->n, parts->n > 1 ? "s" : "", mb, o->crowd.ranks, o->crowd.road, o->crowd.codec,
           o->crowd.links, o->crowd.links > 1 ? "s" : "", o->crowd.segment_bytes, (unsigned long long)o->busy,
           o->crowd.repeats, o->crowd.calls);
    printf("  %-22s %9.3f ms (%.3f to %.3f), %.2f GB/s; largest error of a sum %.3g, of sums up to %.3g\n",
           o->crowd.algorithm, ring->median_ms, ring->min_ms, ring->max_ms, mb / ring->median_ms,
           t->max_error, t->max_sum);
    if (mpi != NULL)
        printf("  %-22s %9.3f ms (%.3f to %.3f), %.2f GB/s; the ring is %.2f times as fast\n", mpi_name(o),
               mpi->median_ms, mpi->min_ms, mpi->max_ms, mb / mpi->median_ms,
               mpi->median_ms / ring->median_ms);
    else
        printf("  %-22s not measured: %s\n", mpi_name(o), why);
}

/* Enough calls, 64 MB in total, that the effects of scheduling show under load, but not so many that repeated
 * sums overflow float32. */
static int calls_of(const struct bench_crowd *c, const struct bench_parts *parts)
{
    double calls = 64e6 / fmax(bytes_of(parts), 1), most = c->ranks > 1 ? 100 / log2(c->ranks) : 100;
    return (int)fmax(1, fmin(calls, most));
}

static bool measure(struct options *o, const char *what, const struct bench_parts *parts)
{
    static struct bench_times ring_times, mpi_times;
    const char *why = "--no-mpi";
    struct spread ring, mpi;
    o->crowd.calls = calls_of(&o->crowd, parts);
    if (!bench_ring(&o->crowd, parts, &ring_times))
        return false;
    ring = spread_of(&ring_times, o->crowd.repeats);
    bool has_mpi = !o->no_mpi && bench_mpi(&o->crowd, parts, &mpi_times, &why);
    if (has_mpi)
        mpi = spread_of(&mpi_times, o->crowd.repeats);
    if (o->json)
        print_json(o, what, parts, &ring, &ring_times, has_mpi ? &mpi : NULL);
    else
        print_text(o, what, parts, &ring, &ring_times, has_mpi ? &mpi : NULL, why);
    fflush(stdout);
    return true;
}

/* One large message against many small ones: You, Buluc, Demmel 2017, figure 10. */
static bool measure_small(struct options *o)
{
    for (size_t i = 0; i < sizeof nets / sizeof *nets; i++) {
        struct bench_parts whole = {1, {(size_t)(bytes_of(&nets[i].tensors) / sizeof(float))}};
        if (!measure(o, nets[i].net, &whole) || !measure(o, nets[i].net, &nets[i].tensors))
            return false;
    }
    return true;
}

static bool measure_one(struct options *o)
{
    struct bench_parts one = {1, {o->floats}};
    return o->small ? measure_small(o) : measure(o, "one vector", &one);
}

static bool measure_codecs(struct options *o)
{
    size_t n;
    const struct ps_codec *const *rows = ps_codec_value_rows(&n);
    if (strcmp(o->crowd.codec, "all") != 0)
        return measure_one(o);
    for (size_t i = 0; i < n; i++) {
        o->crowd.codec = rows[i]->name;
        if (!measure_one(o))
            return false;
    }
    return true;
}

static void burn(void)
{
    volatile double x = 1;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;)
        x = x * 1.0000001 + 1e-9;
}

int bench_allreduce(int argc, char **argv)
{
    struct options o = {.crowd = {.road = "tcp", .codec = "raw", .algorithm = "ring"},
                        .floats = 431080,
                        .ranks = 2,
                        .repeats = 7,
                        .links = 1,
                        .beta_s = NAN};
    pid_t busy[MAX_BUSY];
    int rc = parse(argc, argv, &o);
    if (rc != 0)
        return rc < 0 ? 0 : rc;
    o.crowd.ranks = (int)o.ranks;
    o.crowd.repeats = (int)o.repeats;
    o.crowd.links = (uint32_t)o.links;
    o.crowd.segment_bytes = (uint32_t)o.segment;
    if (o.turns != NULL)
        return bench_turns(&o.crowd, o.turns);
    for (uint64_t i = 0; i < o.busy; i++)
        if ((busy[i] = fork()) == 0)
            burn();
    bool measured = o.vectors > 0 ? measure_vectors(&o) == 0 : measure_codecs(&o);
    for (uint64_t i = 0; i < o.busy; i++)
        if (busy[i] > 0) {
            kill(busy[i], SIGKILL);
            waitpid(busy[i], NULL, 0);
        }
    return measured ? 0 : 1;
}
