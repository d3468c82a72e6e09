/* One process of those that test_mpi starts under mpirun: `mpi_member MODE [ARG]`. Says on stdout, in one
 * line, how it went: "rank R: …". Knows MPI, and opens a clique on MPI_COMM_WORLD; in mode world it does not,
 * and libpsclient loads what it needs. */
#include <mpi.h>

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#include "client/psclique_mpi.h"
#include "tests/client/cliques/collective_cases.h"

/* In the modes whose subject is silence, and in all others, where a slow machine is not to be taken for one.
 */
enum { SILENCE_MS = 2000, PATIENCE_MS = 60000 };

static int world_rank;

/* One write, so that the lines of several processes do not mix. */
static void say(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

static void say(const char *fmt, ...)
{
    char line[900];
    va_list ap;
    int n = snprintf(line, sizeof line, "rank %d: ", world_rank);
    va_start(ap, fmt);
    n += vsnprintf(line + n, sizeof line - (size_t)n - 1, fmt, ap);
    va_end(ap);
    line[n++] = '\n';
    if (write(STDOUT_FILENO, line, (size_t)n) != n)
        _exit(3);
}

static void check(bool good, const char *what)
{
    if (good)
        return;
    say("WRONG: %s", what);
    MPI_Abort(MPI_COMM_WORLD, 3);
}

static bool lacks_memory;

void *__libc_malloc(size_t size); /* glibc's own */

/* Of everything in this process. */
void *malloc(size_t size)
{
    return lacks_memory && size >= 100000 ? NULL : __libc_malloc(size);
}

/* Values whose sums depend on the order in which they are added. */
static float value(int rank, size_t i)
{
    uint32_t h = (uint32_t)(i * 2654435761u + (uint32_t)rank * 40503u);
    h ^= h >> 15, h *= 2246822519u, h ^= h >> 13;
    return ldexpf((float)(h % 16777216) - 8388608.0f, (int)(h >> 28) - 20);
}

static void fill(float *x, size_t n, int rank)
{
    for (size_t i = 0; i < n; i++)
        x[i] = value(rank, i);
}

/* Near the sum in double, at the rounding of a few float additions. */
static bool is_sum(const float *x, size_t n, int members)
{
    for (size_t i = 0; i < n; i++) {
        double sum = 0, size = 0;
        for (int r = 0; r < members; r++) {
            sum += (double)value(r, i);
            size += fabs((double)value(r, i));
        }
        if (!(fabs((double)x[i] - sum) <= size * members * 6e-8))
            return false;
    }
    return true;
}

static uint64_t hash_of(const void *data, size_t len)
{
    const unsigned char *p = data;
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < len; i++)
        h = (h ^ p[i]) * 1099511628211u;
    return h;
}

/* The same bits at every member, by way of MPI itself. */
static bool same_everywhere(const void *data, size_t len)
{
    uint64_t own = hash_of(data, len), least, most;
    MPI_Allreduce(&own, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&own, &most, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    return least == most;
}

static void check_sums(struct psc_clique *q, float *x, size_t n)
{
    int rank = psc_clique_rank(q), members = psc_clique_size(q), root = (int)(n % (size_t)members);
    fill(x, n, rank);
    check(psc_allreduce(q, x, n, NULL) == PSC_OK, psc_clique_error(q));
    check(is_sum(x, n, members), "a sum is wrong");
    uint64_t first = hash_of(x, n * sizeof *x);
    check(same_everywhere(x, n * sizeof *x), "members end with different bits");
    fill(x, n, rank);
    check(psc_allreduce(q, x, n, "raw") == PSC_OK, psc_clique_error(q));
    check(hash_of(x, n * sizeof *x) == first, "the same call gave other bits");
    fill(x, n, rank);
    check(psc_reduce(q, x, n, root, NULL) == PSC_OK, psc_clique_error(q));
    check(rank != root || is_sum(x, n, members), "a reduced sum is wrong");
    fill(x, n, rank);
    check(psc_broadcast(q, x, n * sizeof *x, root) == PSC_OK, psc_clique_error(q));
    for (size_t i = 0; i < n; i++)
        check(x[i] == value(root, i), "a broadcast brought something else");
}

static void mode_sums(struct psc_clique *q)
{
    static const size_t sizes[] = {0, 1, 2, 3, 7, 1000, 65537, 1 << 20};
    float *x = malloc(((size_t)1 << 20) * sizeof *x), *y[3];
    uint64_t ticket;
    struct timespec nap = {0, 1000000};

    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        check_sums(q, x, sizes[i]);
    check(strcmp(psc_clique_kind(q), "mpi") == 0, "kind");
    for (int k = 0; k < 3; k++) {
        y[k] = malloc(5000 * sizeof *y[k]);
        fill(y[k], 5000, psc_clique_rank(q));
        check(psc_allreduce_start(q, y[k], 5000, NULL, &ticket) == PSC_OK, psc_clique_error(q));
    }
    nanosleep(&nap, NULL);
    check(psc_clique_wait(q, ticket) == PSC_OK && is_sum(y[2], 5000, psc_clique_size(q)),
          "in the background");
    check(psc_barrier_start(q, NULL) == PSC_OK && psc_clique_wait(q, 0) == PSC_OK, "barrier");
    for (int k = 0; k < 3; k++)
        check(memcmp(y[k], y[0], 5000 * sizeof **y) == 0, "three of the same");
    for (int k = 0; k < 3; k++)
        free(y[k]);
    free(x);
    say("good");
}

/* More than one piece: 2^24 floats and a few. */
static void mode_pieces(struct psc_clique *q)
{
    size_t n = ((size_t)1 << 24) + 5, bytes = ((size_t)1 << 24) * 2 + 3;
    float *x = malloc(n * sizeof *x);
    unsigned char *b = malloc(bytes);
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(psc_clique_rank(q) + 1) + (float)(i % 7);
    check(psc_allreduce(q, x, n, NULL) == PSC_OK, psc_clique_error(q));
    int p = psc_clique_size(q);
    for (size_t i = 0; i < n; i++)
        check(x[i] == (float)(p * (p + 1) / 2) + (float)p * (float)(i % 7), "a sum in pieces is wrong");
    memset(b, psc_clique_rank(q), bytes);
    check(psc_broadcast(q, b, bytes, p - 1) == PSC_OK && b[0] == p - 1 && b[bytes - 1] == p - 1, "broadcast");
    free(x);
    free(b);
    say("good");
}

/* Rank 1 does something else than the rest: all are told, and later calls fail the same way. */
static void mode_disagree(struct psc_clique *q, const char *how)
{
    float x[10] = {0};
    int odd = psc_clique_rank(q) == 1, rc;
    if (strcmp(how, "count") == 0)
        rc = psc_allreduce(q, x, odd ? 9 : 10, NULL);
    else if (strcmp(how, "codec") == 0)
        rc = psc_allreduce(q, x, 10, odd ? "fp16" : "int8");
    else if (strcmp(how, "kind") == 0)
        rc = odd ? psc_barrier(q) : psc_allreduce(q, x, 10, NULL);
    else if (strcmp(how, "root") == 0)
        rc = psc_broadcast(q, x, sizeof x, odd);
    else if (odd)
        return; /* "closed": this one goes, and main closes */
    else
        rc = psc_reduce(q, x, 10, 0, NULL);
    say("%d %s", rc, psc_clique_error(q));
    check(rc == PSC_ECLIQUE && psc_barrier(q) == PSC_ECLIQUE, "a broken clique goes on");
}

/* Sums in a codec: those of a ring of the same ranks, bit for bit, in one call and by stripes. */
static void check_coded_parts(struct psc_clique *q, struct psc_clique *ring, const char *codec, size_t n,
                              float *x, float *want)
{
    size_t members = (size_t)psc_clique_size(q), own = n * (size_t)psc_clique_rank(q);
    struct psc_collective_options o;
    psc_collective_options_init(&o, sizeof o);
    o.kind = PSC_REDUCE_SCATTER;
    o.codec = codec;
    o.n = n;
    fill(x, n * members, psc_clique_rank(q));
    fill(want, n * members, psc_clique_rank(q));
    o.out = x;
    check(psc_collective_run(q, &o) == PSC_OK, psc_clique_error(q));
    o.out = want;
    check(psc_collective_run(ring, &o) == PSC_OK, psc_clique_error(ring));
    check(memcmp(x + own, want + own, n * sizeof *x) == 0, "a part of a sum has other bits than the ring's");
}

static void check_coded(struct psc_clique *q, struct psc_clique *ring, const char *codec, size_t n)
{
    int rank = psc_clique_rank(q), root = (int)(n % (size_t)psc_clique_size(q));
    float *x = malloc((n + 1) * sizeof *x), *want = malloc((n + 1) * sizeof *want);
    fill(x, n, rank);
    fill(want, n, rank);
    check(psc_allreduce(q, x, n, codec) == PSC_OK, psc_clique_error(q));
    check(psc_allreduce(ring, want, n, codec) == PSC_OK, psc_clique_error(ring));
    check(memcmp(x, want, n * sizeof *x) == 0, "a sum has other bits than the ring's");
    check(same_everywhere(x, n * sizeof *x), "members end with different bits");
    fill(x, n, rank);
    fill(want, n, rank);
    check(psc_reduce(q, x, n, root, codec) == PSC_OK, psc_clique_error(q));
    check(psc_reduce(ring, want, n, root, codec) == PSC_OK, psc_clique_error(ring));
    check(rank != root || memcmp(x, want, n * sizeof *x) == 0,
          "a reduced sum has other bits than the ring's");
    check_coded_parts(q, ring, codec, n / (size_t)psc_clique_size(q), x, want);
    free(x);
    free(want);
}

/* Collectives of every type and operation. */
static void mode_collectives(struct psc_clique *q)
{
    static const size_t sizes[] = {0, 5, 3001};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *wrong = collective_cases_run(q, sizes[i]);
        check(wrong == NULL, wrong);
    }
    say("good");
}

/* Rank 1 makes another call: nothing is written. */
static void mode_differ(struct psc_clique *q, const char *how)
{
    double x[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
    bool odd = psc_clique_rank(q) == 1;
    struct psc_collective_options o;
    psc_collective_options_init(&o, sizeof o);
    o.type = odd && strcmp(how, "type") == 0 ? PSC_INT64 : PSC_FLOAT64;
    o.operation = odd && strcmp(how, "operation") == 0 ? PSC_MIN : PSC_SUM;
    o.n = 10;
    o.out = x;
    int rc = psc_collective_run(q, &o);
    for (int i = 0; i < 10; i++)
        check(x[i] == i, "a call that differs has written");
    say("%d %s", rc, psc_clique_error(q));
}

/* Rank 1 does not come to a call that has a deadline of its own. */
static void mode_deadline(struct psc_clique *q)
{
    float x = 1;
    struct psc_collective_options o;
    psc_collective_options_init(&o, sizeof o);
    o.n = 1;
    o.out = &x;
    o.timeout_ms = 300;
    if (psc_clique_rank(q) == 1)
        pause();
    psc_collective_run(q, &o);
    say("NEVER: the call has ended");
}

static void mode_coded(struct psc_clique *q, const char *place)
{
    static const char *const codecs[] = {"fp16", "bf16", "trunc16", "int8"};
    static const size_t sizes[] = {0, 1, 3, 15, 17, 1000, 32768, 65537, 1 << 20, 2500007};
    struct psc_ring_options opt;
    struct psc_clique *ring;
    psc_ring_options_init(&opt, sizeof opt);
    opt.members = (uint32_t)psc_clique_size(q);
    opt.rank = psc_clique_rank(q);
    opt.rendezvous = place;
    check(psc_ring_open(&opt, &ring) == PSC_OK, psc_clique_error(ring));
    for (size_t k = 0; k < sizeof codecs / sizeof *codecs; k++)
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
            check_coded(q, ring, codecs[k], sizes[i]);
    psc_clique_close(ring);
    say("good");
}

/* What no kind of clique takes. */
/* One member has no room for the payloads of a sum. */
static void mode_memory(struct psc_clique *q)
{
    float x[10] = {1};
    lacks_memory = world_rank == 1;
    int rc = psc_allreduce(q, x, 10, "int8");
    lacks_memory = false;
    check(rc == (world_rank == 1 ? PSC_ENOMEM : PSC_ECLIQUE), psc_clique_error(q));
    say("%s", psc_clique_error(q));
}

static void mode_codec(struct psc_clique *q)
{
    float x[10] = {1};
    int rc = psc_allreduce(q, x, 10, "topk");
    say("%d %s", rc, psc_clique_error(q));
    rc = psc_allreduce(q, x, 10, NULL); /* a refused argument breaks nothing */
    check(rc == PSC_OK && x[0] == (float)psc_clique_size(q), "after a refused codec");
}

static void on_silence(void *arg, const char *sentence)
{
    say("callback %s: %s", (const char *)arg, sentence);
    _exit(5);
}

/* Rank 1 stops, as by SIGSTOP or a dead machine, before its third sum (first way) or dies there. */
static void mode_silent(struct psc_clique *q, int sig)
{
    float x[1000] = {0};
    for (int k = 0; k < 5; k++) {
        if (k == 2 && psc_clique_rank(q) == 1)
            raise(sig);
        int rc = psc_allreduce(q, x, 1000, NULL);
        check(rc == PSC_OK, psc_clique_error(q));
    }
    say("NEVER: all five sums were made");
}

static void stop_self(int sig)
{
    (void)sig;
    raise(SIGSTOP);
}

/* Rank 1 is stopped at any moment of many long sums. */
static void mode_stopped(struct psc_clique *q)
{
    const struct itimerval soon = {.it_value = {.tv_usec = 300000}};
    const size_t n = (size_t)1 << 22;
    float *x = calloc(n, sizeof *x);
    signal(SIGALRM, stop_self);
    if (psc_clique_rank(q) == 1)
        setitimer(ITIMER_REAL, &soon, NULL);
    for (;;)
        check(psc_allreduce(q, x, n, NULL) == PSC_OK, psc_clique_error(q));
}

/* In cliques of `members`, without any call of MPI in this program. */
static int mode_world(uint32_t members)
{
    struct psc_mpi_options opt;
    struct psc_mpi_world *w;
    struct psc_mpi_place place;
    struct psc_clique *q;
    float x = 1;

    psc_mpi_options_init(&opt, sizeof opt);
    opt.timeout_ms = PATIENCE_MS;
    int rc = psc_mpi_world_open(&opt, members, &w);
    psc_mpi_world_place(w, &place);
    world_rank = place.rank;
    q = psc_mpi_world_clique(w);
    if (rc != PSC_OK) {
        say("%d %s", rc, psc_mpi_world_error(w));
    } else {
        x = (float)(place.rank + 1);
        rc = psc_allreduce(q, &x, 1, NULL);
        say("%d clique %d of %d, rank %d of %d, sum %g", rc, place.clique, place.cliques, psc_clique_rank(q),
            psc_clique_size(q), (double)x);
    }
    psc_mpi_world_close(w);
    return rc == PSC_OK ? 0 : 4;
}

static bool is_of_silence(const char *mode)
{
    static const char *const modes[] = {"silent", "stopped", "callback", "killed"};
    bool found = false;
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        found = found || strcmp(mode, modes[i]) == 0;
    return found;
}

static void run_mode(struct psc_clique *q, const char *mode, const char *arg)
{
    if (strcmp(mode, "sums") == 0)
        mode_sums(q);
    else if (strcmp(mode, "pieces") == 0)
        mode_pieces(q);
    else if (strcmp(mode, "disagree") == 0)
        mode_disagree(q, arg);
    else if (strcmp(mode, "coded") == 0)
        mode_coded(q, arg);
    else if (strcmp(mode, "collectives") == 0)
        mode_collectives(q);
    else if (strcmp(mode, "differ") == 0)
        mode_differ(q, arg);
    else if (strcmp(mode, "deadline") == 0)
        mode_deadline(q);
    else if (strcmp(mode, "memory") == 0)
        mode_memory(q);
    else if (strcmp(mode, "codec") == 0)
        mode_codec(q);
    else if (strcmp(mode, "stopped") == 0)
        mode_stopped(q);
    else
        mode_silent(q, strcmp(mode, "killed") == 0 ? SIGKILL : SIGSTOP);
}

int main(int argc, char **argv)
{
    const char *mode = argc > 1 ? argv[1] : "", *arg = argc > 2 ? argv[2] : "";
    static char word[] = "of mine";
    struct psc_mpi_options opt;
    struct psc_clique *q;
    int level;

    if (strcmp(mode, "world") == 0)
        return mode_world((uint32_t)strtoul(arg, NULL, 10));
    MPI_Init_thread(&argc, &argv, strcmp(mode, "level") == 0 ? MPI_THREAD_FUNNELED : MPI_THREAD_SERIALIZED,
                    &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &world_rank);
    psc_mpi_options_init(&opt, sizeof opt);
    opt.timeout_ms = is_of_silence(mode) ? SILENCE_MS : PATIENCE_MS;
    if (strcmp(mode, "callback") == 0 || strcmp(mode, "deadline") == 0) {
        opt.on_silence = on_silence;
        opt.silence_arg = word;
    }
    int rc = psc_mpi_open(&opt, MPI_COMM_WORLD, &q);
    if (rc != PSC_OK)
        say("%d %s", rc, psc_clique_error(q));
    else
        run_mode(q, mode, arg);
    psc_clique_close(q);
    MPI_Finalize();
    return 0;
}
