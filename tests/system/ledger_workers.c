#include "tests/system/ledger_workers.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/clock.h"

#define POLL_S 0.002

/* Who has made many exchanges goes slowly, at last at 2 s each: a test that stands still for minutes uses
 * nobody's up. */
#define PAUSE_S 0.001

enum { BEAT_MS = 100, RETRY_MS = 500 };

/* What is shared with a process that pulls. */
struct pulled {
    bool ok;
    char error[600];
    float center[LEDGER_FLOATS];
};

static uint64_t first_of(uint32_t number, uint32_t k, uint32_t place)
{
    return ((uint64_t)place * LEDGER_WORKERS + number) * LEDGER_SLOTS + k % LEDGER_SLOTS;
}

static float value_of(uint32_t k)
{
    return (float)(1u << 2 * (k / LEDGER_SLOTS));
}

unsigned ledger_digit(const float *center, uint32_t number, uint32_t k, uint32_t place)
{
    return (unsigned)center[first_of(number, k, place)] >> 2 * (k / LEDGER_SLOTS) & 3;
}

void ledger_name(uint32_t number, char *name, size_t size)
{
    snprintf(name, size, "ledger-%u", number);
}

static void fill(float *message, uint32_t number, uint32_t k, float value)
{
    for (uint32_t place = 0; place < LEDGER_PLACES; place++)
        message[first_of(number, k, place)] = value;
}

static uint16_t landed(const float *answer, uint32_t number, uint32_t k)
{
    unsigned found = 0;
    for (uint32_t place = 0; place < LEDGER_PLACES; place++)
        found |= (ledger_digit(answer, number, k, place) == 1u) << place;
    return (uint16_t)found;
}

static int join(const char *server, int kind, const char *name, struct psc **c, float *x)
{
    struct psc_options opt;
    struct psc_tensor tensor = {.name = "x", .n_dims = 1, .shape = {LEDGER_FLOATS}};
    psc_options_init(&opt, sizeof opt);
    opt.server = server;
    opt.kind = kind;
    opt.rank = -1;
    opt.name = name;
    opt.heartbeat_ms = BEAT_MS;
    opt.retry_ms = RETRY_MS;
    opt.timeout_ms = (uint32_t)(1e3 * test_slow_s(10 * TEST_HANG_S)); /* longer than any test waits */
    int rc = psc_open(&opt, c);
    return rc == PSC_OK ? psc_begin(*c, &tensor, 1, x) : rc;
}

/* One by one until it is told to stop, or a call fails. */
static int exchange_all(uint32_t number, bool steps, struct ledger_page *page, struct psc *c, float *x)
{
    int rc = PSC_OK;
    float *message = calloc(LEDGER_FLOATS, sizeof *message);
    for (uint32_t k = 0; rc == PSC_OK && !page->stop && k < LEDGER_EXCHANGES; k++) {
        fill(message, number, k, steps ? -value_of(k) : value_of(k));
        double begin = test_now_s();
        page->begun = k + 1;
        rc = steps ? psc_step(c, x, message, 1) : psc_exchange(c, message, x, 1);
        double took_s = test_now_s() - begin;
        page->longest_s = took_s > page->longest_s ? took_s : page->longest_s;
        if (rc < 0 || psc_error(c)[0] != 0)
            break;
        page->landed[k] = landed(x, number, k);
        page->answered = k + 1;
        fill(message, number, k, 0);
        test_nap_s(PAUSE_S * (double)(1 << 12 * k / LEDGER_EXCHANGES));
    }
    free(message);
    return rc;
}

static void work(uint32_t number, const char *server, bool steps, struct ledger_page *page)
{
    struct psc *c = NULL;
    char name[40];
    float *x = calloc(LEDGER_FLOATS, sizeof *x);
    ledger_name(number, name, sizeof name);
    page->rc = join(server, PSC_WORKER, name, &c, x);
    page->joined = page->rc == PSC_OK;
    if (page->rc == PSC_OK)
        page->rc = exchange_all(number, steps, page, c, x);
    snprintf(page->error, sizeof page->error, "%s", psc_error(c));
    psc_close(c);
    free(x);
    page->ended = true;
}

static void *share(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        abort();
    return p;
}

/* In the parent its number; 0 in the child, which dies with the parent. */
static pid_t fork_bound(void)
{
    pid_t parent = getpid(), pid = fork();
    if (pid < 0)
        abort();
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() != parent) /* it has died before that */
            _exit(1);
    }
    return pid;
}

void ledger_start(struct ledger_worker *w, uint32_t number, const char *server, bool steps)
{
    *w = (struct ledger_worker){.number = number, .page = share(sizeof *w->page)};
    w->page->rc = PSC_EINVAL;
    w->pid = fork_bound();
    if (w->pid != 0)
        return;
    work(number, server, steps, w->page);
    _exit(0);
}

void ledger_kill(struct ledger_worker *w)
{
    kill(w->pid, SIGKILL);
    waitpid(w->pid, NULL, 0);
    w->pid = 0;
}

void ledger_stop(struct ledger_worker *w)
{
    w->page->stop = true;
}

bool ledger_finish(struct ledger_worker *w, double seconds)
{
    double deadline = test_now_s() + test_slow_s(seconds);
    while (!w->page->ended && test_now_s() < deadline)
        test_nap_s(POLL_S);
    bool ended = w->page->ended;
    ledger_kill(w);
    return ended;
}

bool ledger_pull(const char *server, float *center, char *error, size_t size)
{
    struct pulled *p = share(sizeof *p);
    pid_t pid = fork_bound();
    if (pid == 0) {
        struct psc *c = NULL;
        p->ok = join(server, PSC_OBSERVER, "ledger", &c, p->center) == PSC_OK;
        snprintf(p->error, sizeof p->error, "%s", psc_error(c));
        psc_close(c);
        _exit(0);
    }
    double deadline = test_now_s() + test_slow_s(TEST_HANG_S);
    while (waitpid(pid, NULL, WNOHANG) == 0) {
        if (test_now_s() > deadline) {
            kill(pid, SIGKILL);
            waitpid(pid, NULL, 0);
            snprintf(p->error, sizeof p->error, "it hangs");
            break;
        }
        test_nap_s(POLL_S);
    }
    bool ok = p->ok;
    memcpy(center, p->center, sizeof p->center);
    snprintf(error, size, "%s", p->error);
    munmap(p, sizeof *p);
    return ok;
}
