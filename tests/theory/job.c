#include "tests/theory/job.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/psclient.h"
#include "tests/support/system/daemon.h"

/* What is sent again is answered with the center of that moment, not of its round: another sequence of
 * vectors. Nothing gets lost here, so nobody sends or connects again while a slow machine merely takes its
 * time. */
enum { TIMEOUT_MS = 600000, RETRY_MS = 240000, HEARTBEAT_MS = 30000 };

struct crowd {
    const struct job *job;
    struct daemon daemon;
    pthread_barrier_t arrived, go_on;
    float **x; /* of each worker */
};

struct member {
    struct crowd *crowd;
    unsigned rank;
    pthread_t thread;
};

void settings_init(struct settings *s, const char *method)
{
    *s = (struct settings){0};
    settings_add(s, "method=%s", method);
    settings_add(s, "schedule={kind: constant, warmup_steps: 0}");
    settings_add(s, "checkpoint.every_s=0");
    settings_add(s, "lanes=2");
    settings_add(s, "chunk_floats=16384");
    settings_add(s, "limits.silence_s=600"); /* a thread that waits for a cpu is not evicted */
}

void settings_add(struct settings *s, const char *format, ...)
{
    va_list args;
    if (s->n >= SETTINGS_MAX)
        abort();
    va_start(args, format);
    int len = vsnprintf(s->text[s->n], SETTING_BYTES, format, args);
    va_end(args);
    if (len >= SETTING_BYTES)
        abort();
    s->list[s->n] = s->text[s->n];
    s->n++;
}

/* Threads of the others still run: nothing is torn down but psd and its directory. */
static _Noreturn void fail(struct crowd *crowd, const char *call, const struct psc *c, int rc)
{
    fprintf(stderr, "theory: %s: %s: %s; psd with", call, psc_result_name(rc), psc_error(c));
    for (int i = 0; i < crowd->job->settings->n; i++)
        fprintf(stderr, " %s", crowd->job->settings->list[i]);
    fprintf(stderr, " wrote:\n");
    daemon_show_log(&crowd->daemon);
    daemon_remove(&crowd->daemon);
    _exit(EXIT_FAILURE);
}

static struct psc *join(struct crowd *crowd, int kind, int rank, float *x)
{
    const struct psc_tensor model = {"x", 0, {crowd->job->n}, 1, PSC_PARAM, PSC_NO_DECAY};
    struct psc_options opt;
    struct psc *c = NULL;
    psc_options_init(&opt, sizeof opt);
    opt.server = crowd->daemon.endpoint;
    opt.kind = kind;
    opt.rank = rank;
    opt.timeout_ms = TIMEOUT_MS;
    opt.retry_ms = RETRY_MS;
    opt.heartbeat_ms = HEARTBEAT_MS;
    int rc = psc_open(&opt, &c);
    if (rc != PSC_OK)
        fail(crowd, "psc_open", c, rc);
    if ((rc = psc_begin(c, &model, 1, x)) != PSC_OK)
        fail(crowd, "psc_begin", c, rc);
    return c;
}

static float *vector(size_t n)
{
    float *v = calloc(n, sizeof *v);
    if (v == NULL)
        abort();
    return v;
}

static void *work(void *member_arg)
{
    struct member *m = member_arg;
    struct crowd *crowd = m->crowd;
    const struct job *job = crowd->job;
    float *x = crowd->x[m->rank], *g = vector(job->n);
    uint64_t t = 0;
    int rc;
    job->offer(job->arg, x, job->n);
    struct psc *c = join(crowd, PSC_WORKER, (int)m->rank, x);
    if (job->start != NULL)
        job->start(job->arg, m->rank, x, job->n);
    pthread_barrier_wait(&crowd->go_on);
    for (size_t i = 0; i < job->n_stops; i++) {
        for (; t < job->stops[i]; t++) {
            job->gradient(job->arg, m->rank, t, x, g, job->n);
            if ((rc = psc_step(c, x, g, 1)) != PSC_OK)
                fail(crowd, "psc_step", c, rc);
        }
        if ((rc = psc_wait(c, PSC_ALL)) != PSC_OK)
            fail(crowd, "psc_wait", c, rc);
        pthread_barrier_wait(&crowd->arrived);
        pthread_barrier_wait(&crowd->go_on);
    }
    psc_close(c);
    free(g);
    return NULL;
}

/* The main thread's part: looks whenever all have stopped. */
static void watch(struct crowd *crowd)
{
    const struct job *job = crowd->job;
    float *center = vector(job->n), *average = vector(job->n);
    int rc;
    struct psc *observer = join(crowd, PSC_OBSERVER, -1, center);
    pthread_barrier_wait(&crowd->go_on);
    for (size_t i = 0; i < job->n_stops; i++) {
        pthread_barrier_wait(&crowd->arrived);
        if ((rc = psc_pull(observer, NULL, center)) != PSC_OK)
            fail(crowd, "psc_pull", observer, rc);
        if (job->averages && (rc = psc_pull_average(observer, NULL, average)) != PSC_OK)
            fail(crowd, "psc_average", observer, rc);
        job->look(job->arg, job->stops[i], center, job->averages ? average : NULL, crowd->x, job->n);
        pthread_barrier_wait(&crowd->go_on);
    }
    psc_close(observer);
    free(center);
    free(average);
}

void job_run(const struct job *job)
{
    struct crowd crowd = {.job = job, .x = calloc(job->p, sizeof *crowd.x)};
    struct member *members = calloc(job->p, sizeof *members);
    if (daemon_prepare(&crowd.daemon, NULL, job->settings->list) != 0 ||
        daemon_start(&crowd.daemon, NULL) != 0)
        fail(&crowd, "daemon_start", NULL, PSC_ESYSTEM);
    pthread_barrier_init(&crowd.arrived, NULL, job->p + 1);
    pthread_barrier_init(&crowd.go_on, NULL, job->p + 1);
    for (unsigned r = 0; r < job->p; r++) {
        crowd.x[r] = vector(job->n);
        members[r] = (struct member){.crowd = &crowd, .rank = r};
        if (pthread_create(&members[r].thread, NULL, work, &members[r]) != 0)
            fail(&crowd, "pthread_create", NULL, PSC_ESYSTEM);
    }
    watch(&crowd);
    for (unsigned r = 0; r < job->p; r++) {
        pthread_join(members[r].thread, NULL);
        free(crowd.x[r]);
    }
    pthread_barrier_destroy(&crowd.arrived);
    pthread_barrier_destroy(&crowd.go_on);
    daemon_remove(&crowd.daemon);
    free(crowd.x);
    free(members);
}
