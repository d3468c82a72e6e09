/* turns.c: ranks of one contender of tests/bench/allreduce/peers.py. Between its turns every rank waits for
 * its FIFO and uses no CPU time, so that contenders take turns in one run.
 *
 * A command is a line "FLOATS CALLS". The ranks fill their vectors with ones, wait for each other, and make
 * the calls. Rank 0 prints the seconds of a call, at the last rank. Every sum is checked. */
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/psclique.h"
#include "proto/clock.h"
#include "tests/bench/allreduce/allreduce.h"

struct turns {
    struct psc_clique *q;
    size_t floats; /* of x */
    float *x;
};

static int fail(const struct turns *t, const char *what)
{
    fprintf(stderr, "psbench allreduce: rank %d: %s: %s\n", psc_clique_rank(t->q), what,
            psc_clique_error(t->q));
    return 1;
}

/* A vector of another size is new memory: a first call touches and connects what it needs. */
static int prepare(struct turns *t, size_t floats)
{
    if (floats == t->floats)
        return PSC_OK;
    free(t->x);
    t->x = malloc(floats * sizeof *t->x);
    t->floats = floats;
    if (t->x == NULL)
        return PSC_ENOMEM;
    memset(t->x, 0, floats * sizeof *t->x);
    return psc_allreduce(t->q, t->x, floats, NULL);
}

static int take_turn(struct turns *t, size_t floats, int calls)
{
    struct psc_collective_options last;
    int rc = prepare(t, floats);
    for (size_t i = 0; i < floats && rc == PSC_OK; i++)
        t->x[i] = 1;
    rc = rc == PSC_OK ? psc_barrier(t->q) : rc;
    double begin = ps_now_s();
    for (int k = 0; k < calls && rc == PSC_OK; k++)
        rc = psc_allreduce(t->q, t->x, floats, NULL);
    double took = (ps_now_s() - begin) / calls;
    psc_collective_options_init(&last, sizeof last);
    last.type = PSC_FLOAT64;
    last.operation = PSC_MAX;
    last.n = 1;
    last.out = &took;
    rc = rc == PSC_OK ? psc_collective_run(t->q, &last) : rc;
    if (rc != PSC_OK)
        return fail(t, psc_result_name(rc));
    float sum = powf((float)psc_clique_size(t->q), (float)calls);
    if (t->x[0] != sum || t->x[floats - 1] != sum)
        return fail(t, "the sum is wrong");
    if (psc_clique_rank(t->q) == 0)
        printf("%.9f\n", took);
    fflush(stdout);
    return 0;
}

static int be_rank(const struct bench_crowd *c, int rank, const char *prefix)
{
    struct psc_ring_options opt;
    struct turns t = {.floats = 0};
    char line[64], fifo[200], place[200];
    size_t floats;
    int calls, rc = 0;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    snprintf(fifo, sizeof fifo, "%s.%d", prefix, rank);
    snprintf(place, sizeof place, "file:%s.ring", prefix);
    psc_ring_options_init(&opt, sizeof opt);
    opt.members = (uint32_t)c->ranks;
    opt.rank = rank;
    opt.rendezvous = place;
    opt.listen = strcmp(c->road, "unix") == 0 ? "unix:" : "tcp://127.0.0.1";
    opt.algorithm = c->algorithm;
    opt.links = c->links;
    opt.segment_bytes = c->segment_bytes;
    int opened = psc_ring_open(&opt, &t.q);
    FILE *in = fopen(fifo, "re");
    if (opened != PSC_OK || in == NULL)
        return fail(&t, opened != PSC_OK ? psc_result_name(opened) : fifo);
    while (rc == 0 && fgets(line, sizeof line, in) != NULL)
        rc = sscanf(line, "%zu %d", &floats, &calls) == 2 && floats > 0 && calls > 0
                 ? take_turn(&t, floats, calls)
                 : fail(&t, "not a command");
    fclose(in);
    free(t.x);
    psc_clique_close(t.q);
    return rc;
}

int bench_turns(const struct bench_crowd *c, const char *prefix)
{
    pid_t pids[BENCH_MAX_RANKS];
    int failed = 0, status;
    for (int r = 0; r < c->ranks; r++)
        if ((pids[r] = fork()) == 0)
            exit(be_rank(c, r, prefix));
    for (int r = 0; r < c->ranks; r++)
        failed |= pids[r] < 0 || waitpid(pids[r], &status, 0) < 0 || status != 0;
    return failed;
}
