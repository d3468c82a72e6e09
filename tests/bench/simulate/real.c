#include "tests/bench/simulate/real.h"

#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "client/psclient.h"
#include "client/psclique.h"
#include "proto/clock.h"
#include "tests/support/system/daemon.h"

/* Warm-up periods before the measurement; at most some steps of long periods. */
enum { WARM_UPS = 4, MOST_WARM_UP_STEPS = 64, MAX_SETTINGS = 24, SETTING_BYTES = 96, WAIT_S = 120 };

/* CPU seconds of a process's threads. */
struct threads {
    double first, io, others;
};

struct worker {
    int rc;
    bool ready, ended;
    double begin_s, end_s, slept_s, exchange_s, update_s;
    struct threads cpu;
    char error[256];
};

/* Shared by all processes. */
struct page {
    bool go;
    struct worker workers[SIM_REAL_MAX_WORKERS];
};

struct crew {
    const struct sim_real_job *job;
    struct sim_method method;
    struct sim_codecs codecs;
    struct daemon psd;
    char dir[64]; /* for the ring's rendezvous */
    struct page *page;
    pid_t pids[SIM_REAL_MAX_WORKERS];
};

static void nap(double seconds)
{
    struct timespec t = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
    while (nanosleep(&t, &t) != 0)
        continue;
}

static bool read_first(const char *dir, const char *name, const char *file, char *text, size_t size)
{
    char path[400];
    snprintf(path, sizeof path, "%.100s/%.60s/%s", dir, name, file);
    FILE *f = fopen(path, "r");
    if (f == NULL)
        return false;
    bool found = fgets(text, (int)size, f) != NULL;
    fclose(f);
    return found;
}

/* CPU times of ZeroMQ's threads, found by name; of the first thread; of all others. */
static struct threads threads_of(pid_t pid)
{
    struct threads t = {0};
    char dir[64], comm[64], stat[128];
    snprintf(dir, sizeof dir, "/proc/%d/task", (int)pid);
    DIR *d = opendir(dir);
    for (struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        if (e->d_name[0] == '.' || !read_first(dir, e->d_name, "comm", comm, sizeof comm) ||
            !read_first(dir, e->d_name, "schedstat", stat, sizeof stat))
            continue;
        double seconds = strtod(stat, NULL) * 1e-9;
        if (atoi(e->d_name) == (int)pid)
            t.first += seconds;
        else if (strncmp(comm, "ZMQbg/IO", 8) == 0)
            t.io += seconds;
        else
            t.others += seconds;
    }
    if (d != NULL)
        closedir(d);
    return t;
}

static struct threads since(struct threads from, struct threads to)
{
    return (struct threads){to.first - from.first, to.io - from.io, to.others - from.others};
}

static int open_ring(const struct crew *w, int rank, struct psc_clique **q)
{
    struct psc_ring_options opt;
    char place[80];
    snprintf(place, sizeof place, "file:%.64s/ring", w->dir);
    psc_ring_options_init(&opt, sizeof opt);
    opt.members = w->job->workers;
    opt.rank = rank;
    opt.rendezvous = place;
    return psc_ring_open(&opt, q);
}

static int join(const struct crew *w, int rank, struct psc_clique **q, struct psc **c, float *x)
{
    struct psc_tensor tensor = {.name = "x", .n_dims = 1, .shape = {w->job->n_floats}};
    struct psc_options opt;
    struct psc_local local;
    int rc = PSC_OK;
    psc_options_init(&opt, sizeof opt);
    if (w->method.is_clique) {
        psc_local_init(&local, sizeof local, w->method.name);
        local.codec = w->codecs.clique;
        opt.local = &local;
        if ((rc = open_ring(w, rank, q)) != PSC_OK)
            return rc;
        opt.clique = *q;
    } else {
        opt.server = w->psd.endpoint;
        opt.rank = rank;
    }
    if ((rc = psc_open(&opt, c)) != PSC_OK)
        return rc;
    return psc_begin(*c, &tensor, 1, x);
}

static int step_some(const struct crew *w, struct psc *c, float *x, const float *g, uint32_t steps,
                     double *slept_s)
{
    int rc = PSC_OK;
    for (uint32_t i = 0; i < steps && rc == PSC_OK; i++) {
        double begin = ps_now_s();
        if (w->job->sleep_s > 0)
            nap(w->job->sleep_s);
        *slept_s += ps_now_s() - begin;
        rc = psc_step(c, x, g, 1);
    }
    return rc;
}

static void measure(const struct crew *w, struct worker *me, struct psc *c, float *x, const float *g)
{
    struct psc_info before = {.size = sizeof before}, after = {.size = sizeof after};
    double ignored = 0;
    uint64_t warm_ups = WARM_UPS * (uint64_t)w->method.period;
    warm_ups = warm_ups < MOST_WARM_UP_STEPS ? warm_ups : MOST_WARM_UP_STEPS;
    me->rc = step_some(w, c, x, g, (uint32_t)warm_ups, &ignored);
    me->ready = true;
    while (!__atomic_load_n(&w->page->go, __ATOMIC_ACQUIRE))
        nap(0.0005);
    psc_info(c, &before);
    struct threads from = threads_of(getpid());
    me->begin_s = ps_now_s();
    if (me->rc == PSC_OK)
        me->rc = step_some(w, c, x, g, w->job->steps, &me->slept_s);
    me->end_s = ps_now_s();
    me->cpu = since(from, threads_of(getpid()));
    psc_info(c, &after);
    me->exchange_s = after.exchange_seconds - before.exchange_seconds;
    me->update_s = after.update_seconds - before.update_seconds;
    if (me->rc == PSC_OK)
        me->rc = psc_wait(c, PSC_ALL);
}

static void be_worker(const struct crew *w, int rank)
{
    struct worker *me = &w->page->workers[rank];
    struct psc *c = NULL;
    struct psc_clique *q = NULL;
    float *x = calloc(w->job->n_floats, sizeof *x), *g = malloc(w->job->n_floats * sizeof *g);
    for (uint64_t i = 0; g != NULL && i < w->job->n_floats; i++)
        g[i] = 1e-9f * (float)(i % 1000);
    me->rc = x != NULL && g != NULL ? join(w, rank, &q, &c, x) : PSC_ENOMEM;
    if (me->rc == PSC_OK)
        measure(w, me, c, x, g);
    snprintf(me->error, sizeof me->error, "%s",
             c != NULL   ? psc_error(c)
             : q != NULL ? psc_clique_error(q)
                         : "");
    me->ready = true;
    psc_close(c);
    psc_clique_close(q);
    me->ended = true;
    _exit(0);
}

static bool start(struct crew *w)
{
    pid_t parent = getpid();
    fflush(stdout);
    for (uint32_t i = 0; i < w->job->workers; i++) {
        w->page->workers[i].rc = PSC_ESYSTEM;
        if ((w->pids[i] = fork()) == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() == parent)
                be_worker(w, (int)i);
            _exit(1);
        }
        if (w->pids[i] < 0)
            return false;
    }
    return true;
}

static bool all(const struct crew *w, bool ended)
{
    for (uint32_t i = 0; i < w->job->workers; i++) {
        const volatile struct worker *k = &w->page->workers[i];
        if (!(ended ? k->ended : k->ready))
            return false;
    }
    return true;
}

static bool wait_for(const struct crew *w, bool ended, double seconds)
{
    double deadline = ps_now_s() + seconds;
    while (!all(w, ended)) {
        if (ps_now_s() > deadline) {
            fprintf(stderr, "psbench plan: %s: the real workers did not %s within %.0f s\n", w->job->method,
                    ended ? "end" : "begin", seconds);
            return false;
        }
        nap(0.002);
    }
    return true;
}

static bool went_well(const struct crew *w)
{
    for (uint32_t i = 0; i < w->job->workers; i++) {
        const struct worker *k = &w->page->workers[i];
        if (k->rc == PSC_OK)
            continue;
        fprintf(stderr, "psbench plan: %s: real worker %u: %s: %s\n", w->job->method, i,
                psc_result_name(k->rc), k->error);
        return false;
    }
    return true;
}

static double staleness_of(struct daemon *d)
{
    char *text = daemon_ask(d, "GET", "/metrics");
    double sum = NAN, count = NAN;
    for (const char *at = text; at != NULL && *at != 0; at = strchr(at, '\n'), at += at != NULL) {
        sscanf(at, "psd_update_staleness_sum %lf", &sum);
        sscanf(at, "psd_update_staleness_count %lf", &count);
    }
    free(text);
    return sum / count;
}

static void average(struct crew *w, struct threads psd, struct sim_real_times *out)
{
    double n = w->job->workers, steps = n * w->job->steps;
    *out = (struct sim_real_times){.server_io_s = psd.io / steps, .lane_s = psd.others / steps};
    for (uint32_t i = 0; i < w->job->workers; i++) {
        const struct worker *k = &w->page->workers[i];
        out->iteration_s += (k->end_s - k->begin_s) / steps;
        out->slept_s += k->slept_s / steps;
        out->exchange_s += k->exchange_s / steps;
        out->update_s += k->update_s / steps;
        out->caller_s += k->cpu.first / steps;
        out->client_io_s += (w->method.is_clique ? k->cpu.others : k->cpu.io) / steps;
    }
    out->staleness = w->method.is_clique ? NAN : staleness_of(&w->psd);
}

static int run_workers(struct crew *w, struct sim_real_times *out)
{
    struct threads before = {0}, after = {0};
    double longest = WAIT_S + 20 * w->job->steps * (w->job->sleep_s * w->job->workers + 1e-3);
    bool fine = start(w) && wait_for(w, false, longest);
    if (fine) {
        before = w->method.is_clique ? before : threads_of(w->psd.pid);
        __atomic_store_n(&w->page->go, true, __ATOMIC_RELEASE);
        fine = wait_for(w, true, longest);
        after = w->method.is_clique ? after : threads_of(w->psd.pid);
    }
    for (uint32_t i = 0; i < w->job->workers; i++) {
        if (!fine && w->pids[i] > 0)
            kill(w->pids[i], SIGKILL);
        if (w->pids[i] > 0)
            waitpid(w->pids[i], NULL, 0);
    }
    if (fine && (fine = went_well(w)))
        average(w, since(before, after), out);
    return fine ? 0 : -1;
}

/* Runs "METHOD:KEY=VALUE,..." with psd. */
static int run_with_psd(struct crew *w, struct sim_real_times *out)
{
    const struct sim_real_job *j = w->job;
    char words[MAX_SETTINGS][SETTING_BYTES];
    const char *settings[MAX_SETTINGS + 1] = {NULL}, *at = strchr(j->method, ':');
    size_t n = 0;
    int rc = -1;
    snprintf(words[n++], SETTING_BYTES, "method=%s", w->method.name);
    snprintf(words[n++], SETTING_BYTES, "lanes=%u", j->lanes);
    snprintf(words[n++], SETTING_BYTES, "window_chunks=%u", j->window);
    snprintf(words[n++], SETTING_BYTES, "chunk_floats=%u", j->chunk_floats);
    snprintf(words[n++], SETTING_BYTES, "checkpoint.every_s=0");
    snprintf(words[n++], SETTING_BYTES, "limits.memory_gib=64");
    if (w->method.takes_workers)
        snprintf(words[n++], SETTING_BYTES, "workers=%u", j->workers);
    for (at = at != NULL ? at + 1 : NULL; at != NULL && *at != 0 && n < MAX_SETTINGS;) {
        size_t len = strcspn(at, ",");
        snprintf(words[n++], SETTING_BYTES, "%.*s", (int)len, at);
        at += len + (at[len] == ',');
    }
    for (size_t i = 0; i < n; i++)
        settings[i] = words[i];
    if (daemon_prepare(&w->psd, j->psd, settings) == 0 && daemon_start(&w->psd, NULL) == 0)
        rc = run_workers(w, out);
    daemon_remove(&w->psd);
    return rc;
}

static int run_ring(struct crew *w, struct sim_real_times *out)
{
    snprintf(w->dir, sizeof w->dir, "/tmp/psbench-sim-XXXXXX");
    if (mkdtemp(w->dir) == NULL) {
        perror("psbench plan: /tmp");
        return -1;
    }
    int rc = run_workers(w, out);
    rmdir(w->dir);
    return rc;
}

int sim_real_run(const struct sim_real_job *job, struct sim_real_times *out)
{
    struct crew w = {.job = job};
    struct ps_error err;
    int rc;
    if (sim_method_read(job->method, job->workers, &w.method, &w.codecs, &err) < 0) {
        fprintf(stderr, "psbench plan: %s\n", err.text);
        return -1;
    }
    w.page = mmap(NULL, sizeof *w.page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (w.page == MAP_FAILED) {
        perror("psbench plan: memory");
        return -1;
    }
    rc = w.method.is_clique ? run_ring(&w, out) : run_with_psd(&w, out);
    munmap(w.page, sizeof *w.page);
    return rc;
}
