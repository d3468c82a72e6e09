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

/* LAST_ANSWERS: the least that a codec's answers need, each with 1/13 of what is left, to be exact. */
enum { BEAT_MS = 100, RETRY_MS = 500, LAST_ANSWERS = 10, KEY_FLOATS = LEDGER_FLOATS / LEDGER_KEYS };
#define ALL_PLACES ((uint16_t)-1)
_Static_assert(LEDGER_PLACES == 16, "bits of ALL_PLACES");

static const char *const keys[LEDGER_KEYS] = {"a", "b", "c", "d"};

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
    float value = center[first_of(number, k, place)]; /* a codec loses less than 1/2 of it */
    return value > 0 ? (unsigned)(value + 0.5f) >> 2 * (k / LEDGER_SLOTS) & 3 : 0;
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

int ledger_join(const char *server, int kind, const char *name, uint32_t retry_ms, struct psc **c, float *x)
{
    struct psc_options opt;
    struct psc_tensor tensors[LEDGER_KEYS] = {{.name = NULL}};
    for (uint64_t i = 0; i < LEDGER_KEYS; i++)
        tensors[i] = (struct psc_tensor){
            .name = keys[i], .offset = i * KEY_FLOATS, .n_dims = 1, .shape = {KEY_FLOATS}};
    psc_options_init(&opt, sizeof opt);
    opt.server = server;
    opt.kind = kind;
    opt.rank = -1;
    opt.name = name;
    opt.heartbeat_ms = BEAT_MS;
    opt.retry_ms = retry_ms;
    opt.timeout_ms = (uint32_t)(1e3 * test_slow_s(10 * TEST_HANG_S)); /* longer than any test waits */
    int rc = psc_open(&opt, c);
    return rc == PSC_OK ? psc_begin(*c, tensors, LEDGER_KEYS, x) : rc;
}

/* A worker within its process. */
struct ledger {
    const struct ledger_course *course;
    struct ledger_page *page;
    struct psc *c;
    uint32_t number;
    float *x, *message;
};

static int by_exchange(struct ledger *l)
{
    return psc_exchange(l->c, l->message, l->x, 1);
}

static int by_step(struct ledger *l)
{
    return psc_step(l->c, l->x, l->message, 1);
}

static int by_keys(struct ledger *l)
{
    const float *messages[LEDGER_KEYS];
    float *answers[LEDGER_KEYS];
    for (uint64_t i = 0; i < LEDGER_KEYS; i++) {
        messages[i] = l->message + i * KEY_FLOATS;
        answers[i] = l->x + i * KEY_FLOATS;
    }
    return psc_pushpull_keys(l->c, keys, LEDGER_KEYS, messages, answers, 1);
}

/* PSC_OK, also when some keys of it were refused, or what ends the worker. */
static int call(struct ledger *l, bool *refused)
{
    static int (*const ways[LEDGER_WAYS])(struct ledger *) = {
        [LEDGER_BY_EXCHANGE] = by_exchange, [LEDGER_BY_STEP] = by_step, [LEDGER_BY_KEYS] = by_keys};
    double begin = test_now_s();
    int rc = ways[l->course->way](l);
    double took_s = test_now_s() - begin;
    l->page->longest_s = took_s > l->page->longest_s ? took_s : l->page->longest_s;
    *refused = rc == PSC_EREFUSED && l->course->way == LEDGER_BY_KEYS;
    if (*refused)
        return PSC_OK;
    return rc == PSC_OK && psc_error(l->c)[0] != 0 ? PSC_EINVAL : rc;
}

/* So many moves of zeros, and what was begun is answered. */
static int rest(struct ledger *l, uint32_t n)
{
    struct ledger_page *page = l->page;
    bool refused;
    for (uint32_t i = 0; i < n; i++) {
        int rc = call(l, &refused);
        if (rc != PSC_OK)
            return rc;
    }
    for (uint32_t k = page->answered; k < page->begun; k++)
        page->landed[k] = l->course->drops || page->refused[k] ? 0 : ALL_PLACES;
    page->answered = page->begun;
    return PSC_OK;
}

static int move(struct ledger *l, uint32_t k)
{
    struct ledger_page *page = l->page;
    const struct ledger_course *course = l->course;
    bool falls = course->gradients || course->way == LEDGER_BY_STEP;
    fill(l->message, l->number, k, falls ? -value_of(k) : value_of(k));
    page->begun = k + 1;
    int rc = call(l, &page->refused[k]);
    fill(l->message, l->number, k, 0);
    if (rc != PSC_OK || k < course->behind)
        return rc;
    uint32_t its = k - course->behind;
    if (page->refused[its])
        page->landed[its] = 0;
    else if (course->behind > 0 || course->lossy)
        page->landed[its] = course->drops ? 0 : ALL_PLACES;
    else
        page->landed[its] = landed(l->x, l->number, k);
    page->answered = its + 1;
    return PSC_OK;
}

/* One by one until it is told to stop, or a call fails. Where a codec's error is relative to the largest
 * value, values of another digit begin when nothing is owed. */
static int move_all(struct ledger *l)
{
    struct ledger_page *page = l->page;
    uint32_t enough = 2 * l->course->behind + 2;
    int rc = PSC_OK;
    for (uint32_t k = 0; rc == PSC_OK && !page->stop && k < LEDGER_EXCHANGES; k++) {
        if (k > 0 && k % LEDGER_SLOTS == 0)
            rc = rest(l, enough);
        if (rc == PSC_OK)
            rc = move(l, k);
        test_nap_s(PAUSE_S * (double)(1 << 12 * k / LEDGER_EXCHANGES));
    }
    if (rc == PSC_OK)
        rc = rest(l, enough);
    page->rested = rc == PSC_OK;
    while (rc == PSC_OK && !page->end) {
        rc = rest(l, 1);
        test_nap_s(PAUSE_S);
    }
    return rc == PSC_OK ? rest(l, enough * LAST_ANSWERS) : rc;
}

static void work(uint32_t number, const char *server, const struct ledger_course *course,
                 struct ledger_page *page)
{
    struct ledger l = {.course = course, .page = page, .number = number};
    char name[40];
    l.x = calloc(LEDGER_FLOATS, sizeof *l.x);
    l.message = calloc(LEDGER_FLOATS, sizeof *l.message);
    ledger_name(number, name, sizeof name);
    page->rc = ledger_join(server, PSC_WORKER, name, RETRY_MS, &l.c, l.x);
    page->joined = page->rc == PSC_OK;
    if (page->rc == PSC_OK)
        page->rc = move_all(&l);
    snprintf(page->error, sizeof page->error, "%s", psc_error(l.c));
    memcpy(page->x, l.x, sizeof page->x);
    psc_close(l.c);
    free(l.x);
    free(l.message);
    page->ended = true;
}

static void *share(size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED)
        abort();
    return p;
}

pid_t ledger_fork(void)
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

void ledger_start(struct ledger_worker *w, uint32_t number, const char *server,
                  const struct ledger_course *course)
{
    *w = (struct ledger_worker){.number = number, .page = share(sizeof *w->page)};
    w->page->rc = PSC_EINVAL;
    w->pid = ledger_fork();
    if (w->pid != 0)
        return;
    work(number, server, course, w->page);
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

bool ledger_rests(const struct ledger_worker *w, double seconds)
{
    double deadline = test_now_s() + test_slow_s(seconds);
    while (!w->page->rested && !w->page->ended && test_now_s() < deadline)
        test_nap_s(POLL_S);
    return w->page->rested;
}

void ledger_end(struct ledger_worker *w)
{
    w->page->end = true;
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
    pid_t pid = ledger_fork();
    if (pid == 0) {
        struct psc *c = NULL;
        p->ok = ledger_join(server, PSC_OBSERVER, "ledger", RETRY_MS, &c, p->center) == PSC_OK;
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
