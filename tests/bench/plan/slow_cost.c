/* The CPU time of an exchange, measured here by a short run: a psd and two workers over loopback TCP, without
 * that of their own steps. What the kernel does for a process is in its time, so only a network card's
 * interrupts are missing. Other programs change little of it. */
#include <errno.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/psclient.h"
#include "tests/bench/plan/slow.h"
#include "tests/bench/slow/slow.h"
#include "tests/support/clock.h"
#include "tests/support/system/daemon.h"

enum { WORKERS = 2, PERIOD = 2, WARM = 3, EXCHANGES = 6, MOST_FLOATS = 8 << 20 };
#define NAP_S 0.001

/* Shared with the workers' processes. */
struct page {
    _Atomic bool goes; /* psd's time until now is known */
    struct {
        _Atomic bool warm, done, ended;
        double own_s, others_s;
        char error[200];
    } worker[WORKERS];
};

struct run {
    struct daemon psd;
    struct page *page;
    pid_t pid[WORKERS];
    uint64_t n; /* floats */
    char text[5][48];
    const char *settings[16];
};

static double cpu_s(int who)
{
    struct rusage u;
    getrusage(who, &u);
    return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
           1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
}

struct own {
    uint64_t n;
    double cpu_s;
};

static void own_step(void *arg, float *x, const float *g, double learning_rate)
{
    struct own *own = arg;
    double begin_s = cpu_s(RUSAGE_THREAD);
    (void)learning_rate;
    for (uint64_t i = 0; i < own->n; i++)
        x[i] -= g[i];
    own->cpu_s += cpu_s(RUSAGE_THREAD) - begin_s;
}

static int join(const struct run *r, struct psc **c, float *x, struct own *own)
{
    struct psc_tensor tensor = {.name = "x", .n_dims = 1, .shape = {r->n}};
    struct psc_options opt;
    psc_options_init(&opt, sizeof opt);
    opt.server = r->psd.endpoint;
    opt.own_step = own_step;
    opt.own_step_arg = own;
    int rc = psc_open(&opt, c);
    return rc == PSC_OK ? psc_begin(*c, &tensor, 1, x) : rc;
}

static int exchanges(struct psc *c, float *x, const float *g, int n)
{
    int rc = PSC_OK;
    for (int i = 0; i < n * PERIOD && rc == PSC_OK; i++)
        rc = psc_step(c, x, g, 1);
    return rc == PSC_OK ? psc_wait(c, PSC_ALL) : rc;
}

/* The first answers are whole in any codec, and touch the memory. */
static void work(const struct run *r, int i)
{
    struct page *p = r->page;
    float *x = calloc(r->n, sizeof *x), *g = malloc(r->n * sizeof *g);
    struct own own = {.n = r->n};
    struct psc *c = NULL;
    for (uint64_t k = 0; g != NULL && k < r->n; k++)
        g[k] = bench_slow_gradient(k);
    int rc = x == NULL || g == NULL ? PSC_ENOMEM : join(r, &c, x, &own);
    if (rc == PSC_OK)
        rc = exchanges(c, x, g, WARM);
    p->worker[i].warm = rc == PSC_OK;
    while (rc == PSC_OK && !p->goes)
        test_nap_s(NAP_S);
    double own_s = cpu_s(RUSAGE_THREAD), all_s = cpu_s(RUSAGE_SELF), step_s = own.cpu_s;
    if (rc == PSC_OK)
        rc = exchanges(c, x, g, EXCHANGES);
    own_s = cpu_s(RUSAGE_THREAD) - own_s;
    p->worker[i].own_s = own_s - (own.cpu_s - step_s);
    p->worker[i].others_s = cpu_s(RUSAGE_SELF) - all_s - own_s;
    snprintf(p->worker[i].error, sizeof p->worker[i].error, "%s",
             c != NULL ? psc_error(c) : psc_result_name(rc));
    p->worker[i].done = rc == PSC_OK;
    while (rc == PSC_OK && p->goes) /* leaving costs psd time */
        test_nap_s(NAP_S);
    psc_close(c);
    free(x);
    free(g);
    p->worker[i].ended = true;
}

static int fail(const struct run *r, int i)
{
    fprintf(stderr, "psbench plan: the CPU time of an exchange cannot be measured: %.150s\n",
            r->page->worker[i].error);
    return -EIO;
}

/* Until every worker is warm, or done. */
static int await(const struct run *r, bool done)
{
    for (int i = 0; i < WORKERS; i++)
        while (!(done ? r->page->worker[i].done : r->page->worker[i].warm)) {
            if (r->page->worker[i].ended)
                return fail(r, i);
            test_nap_s(NAP_S);
        }
    return 0;
}

static int start(struct run *r, const struct ps_codec *codec, double chunk_floats)
{
    static const char *const given[] = {"method=diloco",   "optimizer=external",  "workers=2",
                                        "period=2",        "overlap=2",           "lanes=2",
                                        "window_chunks=4", "checkpoint.every_s=0"};
    char name[PS_CODEC_TEXT];
    size_t n = 0;
    for (; n < sizeof given / sizeof *given; n++)
        r->settings[n] = given[n];
    ps_codec_text(codec, name);
    snprintf(r->text[0], sizeof *r->text, "codec.message=%s", name);
    snprintf(r->text[1], sizeof *r->text, "codec.answer=%s", name);
    snprintf(r->text[2], sizeof *r->text, "codec.error_feedback=%s", codec->in_place ? "false" : "true");
    snprintf(r->text[3], sizeof *r->text, "chunk_floats=%.0f", chunk_floats);
    for (int i = 0; i < 4; i++)
        r->settings[n++] = r->text[i];
    if (daemon_prepare(&r->psd, NULL, r->settings) < 0 || daemon_start(&r->psd, NULL) < 0)
        return -EIO;
    for (int i = 0; i < WORKERS; i++)
        if ((r->pid[i] = fork()) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            work(r, i);
            _exit(0);
        } else if (r->pid[i] < 0) {
            return -errno;
        }
    return 0;
}

static void finish(struct run *r)
{
    r->page->goes = false;
    for (int i = 0; i < WORKERS; i++)
        if (r->pid[i] > 0) {
            if (!r->page->worker[i].done)
                kill(r->pid[i], SIGKILL);
            waitpid(r->pid[i], NULL, 0);
        }
    daemon_remove(&r->psd);
    munmap(r->page, sizeof *r->page);
}

static void take(const struct run *r, double psd_s, struct slow_cost *out)
{
    double values = (double)WORKERS * EXCHANGES * (double)r->n;
    *out = (struct slow_cost){.server_s = psd_s / values};
    for (int i = 0; i < WORKERS; i++) {
        out->own_s += r->page->worker[i].own_s / values;
        out->others_s += r->page->worker[i].others_s / values;
    }
}

int slow_measure_cost(const struct ps_codec *codec, double n_floats, double chunk_floats,
                      struct slow_cost *out)
{
    struct run r = {.n = (uint64_t)fmin(n_floats, MOST_FLOATS)};
    r.page = mmap(NULL, sizeof *r.page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r.page == MAP_FAILED)
        return -errno;
    int rc = start(&r, codec, chunk_floats);
    rc = rc == 0 ? await(&r, false) : rc;
    double psd_s = rc == 0 ? daemon_cpu_s(r.psd.pid) : 0;
    r.page->goes = rc == 0;
    rc = rc == 0 ? await(&r, true) : rc;
    if (rc == 0)
        take(&r, daemon_cpu_s(r.psd.pid) - psd_s, out);
    finish(&r);
    return rc;
}
