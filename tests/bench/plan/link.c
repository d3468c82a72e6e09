/* link.c: measures allreduces of several sizes between two processes over loopback, for the fit. */
#include <errno.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/psclique.h"
#include "proto/clock.h"
#include "tests/bench/plan/plan.h"
#include "tests/bench/samples.h"

enum { MEMBERS = 2, MAX_TURNS = 200, LEAST_TURNS = 5, TIMEOUT_MS = 20000 };

/* One float for alpha; for beta the job's vector and large parts of it. One beta stands for caches and
 * memory, so it is fitted at the sizes where it is used. */
enum { MAX_FLOATS = 1 << 26 };
static const size_t shares[] = {MAX_FLOATS, 4, 2, 1};
enum { N_SIZES = sizeof shares / sizeof *shares };

static size_t size_of(double n_floats, size_t i)
{
    size_t n = (size_t)(n_floats < MAX_FLOATS ? n_floats : MAX_FLOATS) / shares[i];
    return n > 0 ? n : 1;
}

/* Rank 0 sends a flag before each sum that tells whether there is another, so that both make the same
 * calls. */
static int time_size(struct psc_clique *q, float *x, size_t n, double seconds, double *median)
{
    double times[MAX_TURNS], end = ps_now_s() + seconds;
    int turns = 0, rc;

    for (;;) {
        uint8_t more = turns < MAX_TURNS && (turns < LEAST_TURNS || ps_now_s() < end);
        if ((rc = psc_broadcast(q, &more, 1, 0)) != PSC_OK)
            return rc;
        if (!more)
            break;
        memset(x, 0, n * sizeof *x);
        if ((rc = psc_barrier(q)) != PSC_OK)
            return rc;
        double begin = ps_now_s();
        if ((rc = psc_allreduce(q, x, n, NULL)) != PSC_OK)
            return rc;
        if (turns < MAX_TURNS)
            times[turns++] = ps_now_s() - begin;
    }
    *median = bench_median(times, (size_t)turns);
    return PSC_OK;
}

/* One member: opens the ring, measures every size, and closes. samples: [N_SIZES], written by rank 0. */
static int measure(int rank, const char *rendezvous, const struct plan_options *o, double n_floats,
                   struct plan_sample *samples)
{
    struct psc_ring_options opt;
    struct psc_clique *q = NULL;
    float *x = malloc(size_of(n_floats, N_SIZES - 1) * sizeof *x);
    int rc = PSC_ENOMEM;

    psc_ring_options_init(&opt, sizeof opt);
    opt.members = MEMBERS;
    opt.rank = rank;
    opt.rendezvous = rendezvous;
    opt.timeout_ms = TIMEOUT_MS;
    if (x != NULL && (rc = psc_ring_open(&opt, &q)) == PSC_OK)
        for (size_t i = 0; i < N_SIZES && rc == PSC_OK; i++) {
            size_t n = size_of(n_floats, i);
            samples[i] = (struct plan_sample){MEMBERS, (double)(n * sizeof(float)), 0};
            rc = time_size(q, x, n, o->seconds / N_SIZES, &samples[i].seconds);
        }
    if (rc != PSC_OK && rank == 0)
        fprintf(stderr, "psbench plan: the measured ring: %s\n",
                q != NULL ? psc_clique_error(q) : psc_result_name(rc));
    psc_clique_close(q);
    free(x);
    return rc;
}

static int with_other(const char *rendezvous, const struct plan_options *o, double n_floats,
                      struct plan_sample *samples)
{
    pid_t self = getpid(), other = fork();
    int status, rc;

    if (other < 0) {
        fprintf(stderr, "psbench plan: cannot start a process: %s\n", strerror(errno));
        return -1;
    }
    if (other == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        _exit(getppid() != self || measure(1, rendezvous, o, n_floats, samples) != PSC_OK ? 1 : 0);
    }
    rc = measure(0, rendezvous, o, n_floats, samples);
    if (rc != PSC_OK)
        kill(other, SIGKILL);
    waitpid(other, &status, 0);
    return rc == PSC_OK ? 0 : -1;
}

int plan_measure_link(const struct plan_options *o, double n_floats, double gamma_s, struct plan_link *link,
                      double *error)
{
    char dir[] = "/tmp/psbench-plan-XXXXXX", rendezvous[64];
    struct plan_sample samples[N_SIZES];
    int rc;

    if (mkdtemp(dir) == NULL) {
        fprintf(stderr, "psbench plan: %s: %s\n", dir, strerror(errno));
        return -1;
    }
    snprintf(rendezvous, sizeof rendezvous, "file:%s/ring", dir);
    rc = with_other(rendezvous, o, n_floats, samples);
    rmdir(dir);
    if (rc == 0 && plan_fit(samples, N_SIZES, gamma_s, o->half_duplex, link, error) < 0) {
        fputs("psbench plan: the measured times do not fit the model of a link; give --alpha-us and --gb-s\n",
              stderr);
        return -1;
    }
    return rc;
}
