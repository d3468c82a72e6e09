#include "tests/support/pause.h"
#include "tests/support/system/exchange_workers.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/clock.h"

#define POLL_S      0.005
#define HELD_POLL_S 0.001

float crew_value(uint32_t salt, uint64_t k, uint64_t i)
{
    return (float)(1 + salt % 4 + k % 2 + i % 5);
}

double crew_sum(uint32_t salt, uint64_t count, uint64_t i)
{
    return (double)count * (double)(1 + salt % 4 + i % 5) + (double)(count / 2);
}

static void note(void *page_arg, const char *sentence)
{
    struct crew_page *page = page_arg;
    size_t used = strlen(page->said);
    snprintf(page->said + used, sizeof page->said - used, "%s\n", sentence);
}

static int join(const struct crew_task *task, struct crew_page *page, struct psc **c, float *x)
{
    struct psc_options opt;
    struct psc_tensor tensor = {.name = "x", .n_dims = 1, .shape = {task->floats}};
    psc_options_init(&opt, sizeof opt);
    opt.server = task->server;
    opt.rank = task->rank;
    opt.timeout_ms = task->timeout_ms > 0 ? task->timeout_ms : opt.timeout_ms;
    opt.retry_ms = task->retry_ms > 0 ? task->retry_ms : opt.retry_ms;
    opt.heartbeat_ms = task->heartbeat_ms > 0 ? task->heartbeat_ms : opt.heartbeat_ms;
    opt.log = note;
    opt.log_arg = page;
    int rc = psc_open(&opt, c);
    return rc == PSC_OK ? psc_begin(*c, &tensor, 1, x) : rc;
}

static bool took_effect(const struct psc *c, int rc)
{
    return rc == PSC_OK || (rc == PSC_DRAINED && psc_error(c)[0] == 0);
}

/* The request is read before what it asks for, which may be changed meanwhile by the next one. */
static void stand_still_if_held(struct crew_page *page, struct psc *c)
{
    for (uint64_t request; request = page->request, !page->stop && page->exchanges >= page->held_at;
         test_nap_s(HELD_POLL_S)) {
        if (page->settles && page->held_by != request)
            psc_wait(c, PSC_ALL);
        page->held_by = request;
    }
}

static int exchange_all(const struct crew_task *task, struct crew_page *page, struct psc *c, float *message,
                        float *answer)
{
    int rc = PSC_OK;
    for (uint64_t k = 0; !page->stop && (task->count == 0 || k < task->count); k++) {
        stand_still_if_held(page, c);
        if (page->stop)
            break;
        for (uint64_t i = 0; i < task->floats; i++)
            message[i] = crew_value(task->salt, k, i);
        double begin = test_now_s();
        rc = task->steps ? psc_step(c, answer, message, 1) : psc_exchange(c, message, answer, 1);
        double took_s = test_now_s() - begin;
        if (took_s > page->longest_s)
            page->longest_s = took_s;
        if (!took_effect(c, rc))
            return rc;
        struct psc_info info = {.size = sizeof info};
        psc_info(c, &info);
        page->generation = info.generation;
        page->exchanges++;
        page->drained += rc == PSC_DRAINED;
        if (rc == PSC_DRAINED && !task->ignore_drain)
            return rc;
        if (task->pause_s > 0)
            test_nap_s(task->pause_s);
    }
    return rc;
}

static void work(const struct crew_task *task, struct crew_page *page)
{
    struct psc *c = NULL;
    float *message = calloc(task->floats, sizeof *message), *answer = calloc(task->floats, sizeof *answer);
    page->rc = join(task, page, &c, task->steps ? answer : message);
    page->rank = psc_rank(c);
    page->joined = page->rc == PSC_OK;
    if (page->rc == PSC_OK)
        page->rc = exchange_all(task, page, c, message, answer);
    snprintf(page->error, sizeof page->error, "%s", psc_error(c));
    page->info.size = sizeof page->info;
    psc_info(c, &page->info);
    free(message); /* before psc_close: the library must no longer read the caller's vector */
    free(answer);
    psc_close(c);
    page->ended = true;
}

void crew_start(struct crew_worker *w, const struct crew_task *task)
{
    w->page = mmap(NULL, sizeof *w->page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (w->page == MAP_FAILED)
        abort();
    w->page->rc = PSC_EINVAL;
    w->page->held_at = task->held_at > 0 ? task->held_at : UINT64_MAX;
    w->page->request = 1;
    w->pid = fork();
    if (w->pid != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    work(task, w->page);
    _exit(0);
}

static bool wait_for(const struct crew_worker *w, const _Atomic bool *flag, const _Atomic uint64_t *count,
                     uint64_t least, double seconds)
{
    double deadline = test_now_s() + test_slow_s(seconds);
    while (!(flag != NULL ? *flag : *count >= least)) {
        if (w->page->ended || test_now_s() > deadline)
            return false;
        test_nap_s(POLL_S);
    }
    return true;
}

bool crew_joined(const struct crew_worker *w, double seconds)
{
    return wait_for(w, &w->page->joined, NULL, 0, seconds);
}

bool crew_reaches(const struct crew_worker *w, uint64_t exchanges, double seconds)
{
    return wait_for(w, NULL, &w->page->exchanges, exchanges, seconds);
}

bool crew_has_drained(const struct crew_worker *w, uint64_t exchanges, double seconds)
{
    return wait_for(w, NULL, &w->page->drained, exchanges, seconds);
}

bool crew_has_generation(const struct crew_worker *w, uint64_t generation, double seconds)
{
    return wait_for(w, NULL, &w->page->generation, generation, seconds);
}

bool crew_ended(const struct crew_worker *w, double seconds)
{
    return wait_for(w, &w->page->ended, NULL, 0, seconds);
}

bool crew_stop(struct crew_worker *w, double seconds)
{
    w->page->stop = true;
    bool ended = crew_ended(w, seconds);
    if (!ended)
        kill(w->pid, SIGKILL);
    waitpid(w->pid, NULL, 0);
    return ended;
}

void crew_hold_at(struct crew_worker *w, uint64_t exchanges)
{
    w->page->held_at = exchanges;
    w->page->request++;
}

bool crew_is_held(const struct crew_worker *w, double seconds)
{
    return wait_for(w, NULL, &w->page->held_by, w->page->request, seconds);
}

void crew_signal(const struct crew_worker *w, int signal_number)
{
    if (signal_number == SIGSTOP)
        pause_child(w->pid);
    else
        kill(w->pid, signal_number);
}

void crew_kill(struct crew_worker *w)
{
    kill(w->pid, SIGKILL);
    waitpid(w->pid, NULL, 0);
}
