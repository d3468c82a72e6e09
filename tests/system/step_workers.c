#include "tests/system/step_workers.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/clock.h"
#include "tests/support/unit.h"

#define POLL_S 0.002

enum { STEADY_BEAT_MS = 8000, STEADY_RETRY_MS = 60000 };

static struct dice dice_of(uint64_t seed, uint64_t rank, uint64_t t)
{
    struct dice d = {seed};
    d.state = dice_bits(&d) ^ rank;
    d.state = dice_bits(&d) ^ t;
    return d;
}

void stepper_first_point(float *x, uint64_t n)
{
    struct dice d = dice_of(1, 0, 0);
    for (uint64_t i = 0; i < n; i++)
        x[i] = dice_float(&d);
}

/* *x: as given, or the memory that the task asks for. */
static int join(const struct stepper_task *task, int kind, struct psc **c, float **x)
{
    struct psc_options opt;
    struct psc_tensor tensor = {.name = "x", .n_dims = 1, .shape = {task->floats}};
    psc_options_init(&opt, sizeof opt);
    opt.server = task->server;
    opt.kind = kind;
    opt.rank = task->rank;
    opt.heartbeat_ms = task->steady ? STEADY_BEAT_MS : 300;
    opt.retry_ms = task->steady ? STEADY_RETRY_MS : opt.retry_ms;
    opt.key_file = task->key_file;
    opt.server_key = task->server_key;
    int rc = psc_open(&opt, c);
    if (rc == PSC_OK && task->alloc && (rc = psc_alloc(*c, task->floats, x)) == PSC_OK)
        stepper_first_point(*x, task->floats);
    return rc == PSC_OK ? psc_begin(*c, &tensor, 1, *x) : rc;
}

static void gradient(uint64_t rank, uint64_t t, const float *x, float *g, uint64_t n)
{
    struct dice d = dice_of(2, rank, t);
    for (uint64_t i = 0; i < n; i++)
        g[i] = 0.5f * x[i] + dice_float(&d);
}

/* The server asked for it at a version that has not been saved yet. */
static int save_if_asked(const struct stepper_task *task, struct stepper_page *page, struct psc *c,
                         const float *x)
{
    struct psc_info info = {.size = sizeof info};
    psc_info(c, &info);
    if (task->save[0] == 0 || info.save_version == page->saved)
        return PSC_OK;
    int rc = psc_save(c, task->save, x, NULL, 0);
    page->saved_at = psc_clock(c);
    if (rc == PSC_OK)
        page->saved = info.save_version;
    return rc;
}

static int step_all(const struct stepper_task *task, struct stepper_page *page, struct psc *c, float *x,
                    float *g)
{
    int rc = PSC_OK;
    struct dice naps = {(uint64_t)(test_now_s() * 1e9) ^ (uint64_t)getpid()};
    for (uint64_t t; rc == PSC_OK && (t = psc_clock(c)) < page->end_at;) {
        double from = test_now_s();
        page->begun = t + 1;
        gradient((uint64_t)task->rank, t, x, g, task->floats);
        if (task->nap_us > 0)
            test_nap_s(1e-6 * (double)dice_below(&naps, task->nap_us));
        while (t >= page->held_at)
            test_nap_s(POLL_S);
        page->computes_from[t % STEPPER_TIMES] = from;
        page->until[t % STEPPER_TIMES] = test_now_s();
        rc = psc_step(c, x, g, task->samples);
        if (rc == PSC_OK)
            rc = save_if_asked(task, page, c, x);
        page->steps = psc_clock(c);
    }
    if (rc == PSC_OK)
        rc = psc_wait(c, PSC_ALL);
    return rc == PSC_OK && task->save_last ? psc_save(c, task->save, x, NULL, 0) : rc;
}

static uint64_t digest(const float *x, uint64_t n)
{
    struct dice d = {0};
    for (uint64_t i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], sizeof bits);
        d.state = dice_bits(&d) ^ bits;
    }
    return dice_bits(&d);
}

static void work(const struct stepper_task *task, struct stepper_page *page)
{
    struct psc *c = NULL;
    float *own = calloc(task->floats, sizeof *own), *x = own, *g = calloc(task->floats, sizeof *g);
    stepper_first_point(x, task->floats);
    page->rc = join(task, PSC_WORKER, &c, &x);
    if (page->rc == PSC_OK && task->load)
        page->rc = psc_load(c, task->save, x, NULL, 0, NULL);
    page->joined = page->rc == PSC_OK;
    if (page->rc == PSC_OK)
        page->rc = step_all(task, page, c, x, g);
    snprintf(page->error, sizeof page->error, "%s", psc_error(c));
    page->digest = digest(x, task->floats);
    psc_close(c);
    free(own);
    free(g);
    page->ended = true;
}

void stepper_start(struct stepper *s, const struct stepper_task *task)
{
    s->page = mmap(NULL, sizeof *s->page, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s->page == MAP_FAILED)
        abort();
    s->page->rc = PSC_EINVAL;
    s->page->end_at = task->steps;
    s->page->held_at = task->held_at > 0 ? task->held_at : UINT64_MAX;
    s->pid = fork();
    if (s->pid != 0)
        return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    work(task, s->page);
    _exit(0);
}

/* joined: the flag must be set; saved and steps are at least these. */
static bool wait_for(const struct stepper *s, bool joined, uint64_t steps, uint64_t saved, double seconds)
{
    double deadline = test_now_s() + test_slow_s(seconds);
    while (s->page->joined < joined || s->page->steps < steps || s->page->saved < saved) {
        if (s->page->ended || test_now_s() > deadline)
            return false;
        test_nap_s(POLL_S);
    }
    return true;
}

bool stepper_joined(const struct stepper *s, double seconds)
{
    return wait_for(s, true, 0, 0, seconds);
}

bool stepper_reaches(const struct stepper *s, uint64_t steps, double seconds)
{
    return wait_for(s, true, steps, 0, seconds);
}

bool stepper_begins(const struct stepper *s, uint64_t step, double seconds)
{
    double deadline = test_now_s() + test_slow_s(seconds);
    while (s->page->begun < step) {
        if (s->page->ended || test_now_s() > deadline)
            return false;
        test_nap_s(POLL_S);
    }
    return true;
}

bool stepper_saved(const struct stepper *s, double seconds)
{
    return wait_for(s, true, 0, 1, seconds);
}

void stepper_hold_at(struct stepper *s, uint64_t steps)
{
    s->page->held_at = steps;
}

void stepper_end_at(struct stepper *s, uint64_t steps)
{
    s->page->end_at = steps;
}

bool stepper_finish(struct stepper *s, double seconds)
{
    double deadline = test_now_s() + test_slow_s(seconds);
    while (!s->page->ended && test_now_s() < deadline)
        test_nap_s(POLL_S);
    bool ended = s->page->ended;
    if (!ended)
        kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
    return ended;
}

void stepper_kill(struct stepper *s)
{
    kill(s->pid, SIGKILL);
    waitpid(s->pid, NULL, 0);
}

float *stepper_center(const struct daemon *d, uint64_t floats)
{
    struct psc *c = NULL;
    float *x = calloc(floats, sizeof *x);
    const struct stepper_task task = {.server = d->endpoint, .rank = -1, .floats = floats};
    int rc = join(&task, PSC_OBSERVER, &c, &x);
    ck_assert_msg(rc == PSC_OK, "%s: %s", psc_result_name(rc), psc_error(c));
    psc_close(c);
    return x;
}
