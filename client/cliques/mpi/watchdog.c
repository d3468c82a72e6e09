#include "client/cliques/mpi/watchdog.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "proto/clock.h"
#include "proto/thread.h"

enum { LOOKS = 8, LOOK_MAX_MS = 1000 }; /* checks per timeout; the longest time between two */

struct psc_watchdog {
    struct psc_mpi_options opt;
    char who[64];
    pthread_t thread;
    pthread_mutex_t lock; /* guards the members below */
    pthread_cond_t changed;
    bool stop, waits, told;
    char what[160];
    uint64_t waited_ms;
    uint32_t limit_ms;
};

static void end_process(const char *sentence)
{
    dprintf(STDERR_FILENO, "libpsclique-mpi: %s; the process ends\n", sentence);
    _exit(PSC_MPI_EXIT_SILENT);
}

/* With the lock held; releases it while waiting. */
static void report_silence(struct psc_watchdog *w)
{
    char sentence[400];
    snprintf(sentence, sizeof sentence, "%s: %s: a member has been silent for %.1f s (timeout_ms: %u)",
             w->who, w->what, (double)w->waited_ms / 1e3, w->limit_ms);
    w->told = true;
    pthread_mutex_unlock(&w->lock);
    if (w->opt.on_silence != NULL)
        w->opt.on_silence(w->opt.silence_arg, sentence);
    else
        end_process(sentence);
    pthread_mutex_lock(&w->lock);
}

/* With the lock. */
static uint64_t look_of(const struct psc_watchdog *w)
{
    uint64_t look_ms = w->limit_ms / LOOKS + 1;
    return look_ms < LOOK_MAX_MS ? look_ms : LOOK_MAX_MS;
}

/* Checks a few times per timeout. The time between two checks counts as at most two intervals: a stop of this
 * process does not count as silence of the others. */
static void *watch(void *arg)
{
    struct psc_watchdog *w = arg;
    uint64_t look_ms, before, passed;

    pthread_mutex_lock(&w->lock);
    for (before = ps_now_ms(); !w->stop; before += passed) {
        look_ms = look_of(w);
        ps_cond_wait_until(&w->changed, &w->lock, ps_now_ns() + look_ms * 1000000);
        passed = ps_now_ms() - before;
        w->waited_ms += w->waits ? (passed < 2 * look_ms ? passed : 2 * look_ms) : 0;
        if (w->waits && !w->told && w->waited_ms > w->limit_ms)
            report_silence(w);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

int psc_watchdog_create(const struct psc_mpi_options *opt, const char *who, struct psc_watchdog **out)
{
    struct psc_watchdog *w = calloc(1, sizeof *w);

    if (w == NULL)
        return PSC_ENOMEM;
    w->opt = *opt;
    w->limit_ms = opt->timeout_ms;
    snprintf(w->who, sizeof w->who, "%s", who);
    pthread_mutex_init(&w->lock, NULL);
    ps_cond_init(&w->changed);
    if (ps_thread_create(&w->thread, watch, w) != 0) {
        pthread_cond_destroy(&w->changed);
        pthread_mutex_destroy(&w->lock);
        free(w);
        return PSC_ESYSTEM;
    }
    *out = w;
    return PSC_OK;
}

void psc_watchdog_wait(struct psc_watchdog *w, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    pthread_mutex_lock(&w->lock);
    vsnprintf(w->what, sizeof w->what, fmt, ap);
    w->waits = true;
    w->waited_ms = 0;
    pthread_mutex_unlock(&w->lock);
    va_end(ap);
}

void psc_watchdog_limit(struct psc_watchdog *w, uint32_t limit_ms)
{
    pthread_mutex_lock(&w->lock);
    if (limit_ms < w->limit_ms)
        ps_cond_wake(&w->changed); /* it looks more often from now on */
    w->limit_ms = limit_ms;
    pthread_mutex_unlock(&w->lock);
}

void psc_watchdog_rest(struct psc_watchdog *w)
{
    pthread_mutex_lock(&w->lock);
    w->waits = false;
    pthread_mutex_unlock(&w->lock);
}

void psc_watchdog_destroy(struct psc_watchdog *w)
{
    if (w == NULL)
        return;
    pthread_mutex_lock(&w->lock);
    w->stop = true;
    ps_cond_wake(&w->changed);
    pthread_mutex_unlock(&w->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->changed);
    pthread_mutex_destroy(&w->lock);
    free(w);
}
