/* ring.c: times processes that sum vectors over a ring. */
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#include "client/psclique.h"
#include "proto/clock.h"
#include "tests/bench/allreduce/allreduce.h"
#include "tests/bench/allreduce/gradient.h"

enum { MAX_RANKS = 64, WARM_UPS = 2 };

struct page {
    double seconds[MAX_RANKS][BENCH_MAX_REPEATS];
    double max_error, max_sum;
    int rc[MAX_RANKS];
    char error[MAX_RANKS][600];
};

static int sum_parts(struct psc_clique *q, const char *codec, const struct bench_parts *parts, float *x)
{
    int rc = PSC_OK;
    for (size_t k = 0; k < parts->n && rc == PSC_OK; k++) {
        rc = psc_allreduce(q, x, parts->counts[k], codec);
        x += parts->counts[k];
    }
    return rc;
}

static void measure_error(const struct bench_crowd *c, const float *x, size_t n, struct page *page)
{
    for (size_t i = 0; i < n; i++) {
        double sum = 0;
        for (int r = 0; r < c->ranks; r++)
            sum += (double)bench_gradient(r, i);
        page->max_error = fmax(page->max_error, fabs((double)x[i] - sum));
        page->max_sum = fmax(page->max_sum, fabs(sum));
    }
}

static int repeat(const struct bench_crowd *c, struct psc_clique *q, const struct bench_parts *parts,
                  size_t total, struct page *page)
{
    int rank = psc_clique_rank(q), rc = PSC_OK;
    float *x = malloc(total * sizeof *x + 4), *from = malloc(total * sizeof *x + 4);
    if (x == NULL || from == NULL)
        rc = PSC_ENOMEM;
    for (size_t i = 0; i < total && rc == PSC_OK; i++)
        from[i] = bench_gradient(rank, i);
    for (int k = -WARM_UPS; k < c->repeats && rc == PSC_OK; k++) {
        memcpy(x, from, total * sizeof *x);
        if ((rc = psc_barrier(q)) != PSC_OK)
            break;
        double begin = ps_now_s();
        for (int call = 0; call < (k < 0 ? 1 : c->calls) && rc == PSC_OK; call++)
            rc = sum_parts(q, c->codec, parts, x);
        if (k >= 0)
            page->seconds[rank][k] = (ps_now_s() - begin) / c->calls;
        if (k == -1 && rank == 0)
            measure_error(c, x, total, page);
    }
    free(x);
    free(from);
    return rc;
}

static void be_rank(const struct bench_crowd *c, const struct bench_parts *parts, int rank, const char *place,
                    struct page *page)
{
    struct psc_ring_options opt;
    struct psc_clique *q;
    size_t total = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (size_t k = 0; k < parts->n; k++)
        total += parts->counts[k];
    psc_ring_options_init(&opt, sizeof opt);
    opt.members = (uint32_t)c->ranks;
    opt.rank = rank;
    opt.rendezvous = place;
    opt.listen = strcmp(c->road, "unix") == 0 ? "unix:" : "tcp://127.0.0.1";
    opt.algorithm = c->algorithm;
    opt.links = c->links;
    opt.segment_bytes = c->segment_bytes;
    page->rc[rank] = psc_ring_open(&opt, &q);
    if (page->rc[rank] == PSC_OK)
        page->rc[rank] = repeat(c, q, parts, total, page);
    snprintf(page->error[rank], sizeof page->error[rank], "%s", psc_clique_error(q));
    psc_clique_close(q);
    _exit(0);
}

static bool collect(const struct bench_crowd *c, const struct page *page, struct bench_times *out)
{
    for (int r = 0; r < c->ranks; r++)
        if (page->rc[r] != PSC_OK) {
            fprintf(stderr, "psbench allreduce: rank %d: %s: %s\n", r, psc_result_name(page->rc[r]),
                    page->error[r]);
            return false;
        }
    for (int k = 0; k < c->repeats; k++) {
        out->seconds[k] = 0;
        for (int r = 0; r < c->ranks; r++)
            out->seconds[k] = fmax(out->seconds[k], page->seconds[r][k]);
    }
    out->max_error = page->max_error;
    out->max_sum = page->max_sum;
    return true;
}

bool bench_ring(const struct bench_crowd *c, const struct bench_parts *parts, struct bench_times *out)
{
    char dir[] = "/tmp/psbench-XXXXXX", place[64];
    struct page *page = mmap(NULL, sizeof *page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    pid_t pids[MAX_RANKS];
    if (page == MAP_FAILED || mkdtemp(dir) == NULL) {
        perror("psbench allreduce");
        return false;
    }
    snprintf(place, sizeof place, "file:%s/ring", dir);
    fflush(stdout);
    for (int r = 0; r < c->ranks; r++) {
        page->rc[r] = PSC_ESYSTEM; /* the result of a process that dies */
        if ((pids[r] = fork()) == 0)
            be_rank(c, parts, r, place, page);
    }
    for (int r = 0; r < c->ranks; r++)
        if (pids[r] > 0)
            waitpid(pids[r], NULL, 0);
    rmdir(dir);
    bool whole = collect(c, page, out);
    munmap(page, sizeof *page);
    return whole;
}
