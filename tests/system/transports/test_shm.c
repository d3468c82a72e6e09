/* The transport of shared memory, with real processes: found by itself, equal to tcp to the last bit, in
 * place and staged; workers killed at any moment leave whole chunks and nothing else behind. */
#include <dirent.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/support/clock.h"
#include "tests/support/system/daemon.h"
#include "tests/support/suite.h"
#include "tests/support/unit.h"
#include "tests/system/step_workers.h"
#include "tests/system/faults/timelapse.h"

enum {
    FLOATS = 60013,
    CHUNK = 4096,
    WORKERS = 3,
    STEPS = 60,
    SETTINGS = 16,
    KILLS = 100,
    NOBODY = 65534,
    WAIT_S = 60
};

#define COMMON                                                                                               \
    "schedule={kind: constant, warmup_steps: 0}", "checkpoint.every_s=0", "chunk_floats=4096", "lanes=2"

static void start(struct daemon *d, const char *const *settings)
{
    ck_assert_int_eq(daemon_prepare(d, NULL, settings), 0);
    ck_assert_int_eq(daemon_start(d, NULL), 0);
}

static const struct psc_tensor tensor = {.name = "x", .n_dims = 1, .shape = {FLOATS}};

static int open_handle(const char *server, const char *transport, int kind, struct psc **c)
{
    struct psc_options opt;
    psc_options_init(&opt, sizeof opt);
    opt.server = server;
    opt.kind = kind;
    opt.transport = transport;
    opt.heartbeat_ms = 50;
    return psc_open(&opt, c);
}

/* A worker whose x is psc_alloc's, all of it `value`. */
static int join(const char *server, const char *transport, float value, struct psc **c, float **x)
{
    int rc = open_handle(server, transport, PSC_WORKER, c);
    if (rc == PSC_OK)
        rc = psc_alloc(*c, FLOATS, x);
    for (int i = 0; rc == PSC_OK && i < FLOATS; i++)
        (*x)[i] = value;
    return rc == PSC_OK ? psc_begin(*c, &tensor, 1, *x) : rc;
}

/* The first worker's, which may come a moment later. */
static void assert_worker(const struct daemon *d, const char *member, const char *begin)
{
    char text[200] = "", path[64];
    double end = test_now_s() + test_slow_s(WAIT_S);
    snprintf(path, sizeof path, "workers.0.%s", member);
    while (strncmp(text, begin, strlen(begin)) != 0 && test_now_s() < end)
        if (!daemon_text(d, "/workers", path, text, sizeof text))
            test_nap_s(0.05);
    ck_assert_msg(strncmp(text, begin, strlen(begin)) == 0, "%s is '%s'; expected '%s'", member, text, begin);
}

START_TEST(the_fastest_road_is_taken_by_itself)
{
    static const struct {
        const char *setting, *wanted, *road;
    } rows[] = {{"transport=auto", "auto", "shm"},
                {"transport=shm", "auto", "shm"},
                {"transport=tcp", "auto", "tcp"},
                {"transport=auto", "tcp", "tcp"}};
    for (size_t i = 0; i < ROWS(rows); i++) {
        const char *const settings[] = {COMMON, "method=async-sgd", rows[i].setting, NULL};
        struct daemon d;
        struct psc *c = NULL;
        struct psc_info info = {.size = sizeof info};
        float *x;
        start(&d, settings);
        ck_assert_int_eq(join(d.endpoint, rows[i].wanted, 1, &c, &x), PSC_OK);
        ck_assert_int_eq(psc_pull(c, NULL, x), PSC_OK);
        assert_worker(&d, "road", rows[i].road);
        ck_assert_int_eq(psc_info(c, &info), PSC_OK);
        ck_assert_str_eq(info.transport, rows[i].road);
        ck_assert(daemon_number(&d, "/workers", "workers.0.sent_bytes") >= FLOATS * 4.0);
        psc_close(c);
        daemon_remove(&d);
    }
}
END_TEST

START_TEST(a_road_that_is_not_offered_is_refused)
{
    const char *const settings[] = {COMMON, "method=async-sgd", "transport=tcp", NULL};
    struct daemon d;
    struct psc *c = NULL;
    float *x;
    start(&d, settings);
    ck_assert_int_eq(join(d.endpoint, "shm", 1, &c, &x), PSC_EUNSUPPORTED);
    ck_assert_str_eq(psc_error(c), "options.transport is 'shm'; the server offers tcp");
    psc_close(c);
    ck_assert_int_eq(open_handle(d.endpoint, "smoke", PSC_WORKER, &c), PSC_EINVAL);
    ck_assert_str_eq(psc_error(c), "options: transport 'smoke'; allowed are auto, tcp, ipc, shm and rdma");
    psc_close(c);
    daemon_remove(&d);
}
END_TEST

/* Another user may use psd, but not its memory. */
START_TEST(who_may_not_attach_falls_back_and_says_why)
{
    const char *const settings[] = {COMMON, "method=async-sgd", "transport=auto", NULL};
    struct daemon d;
    char url[100] = "";
    if (geteuid() != 0)
        return; /* only root can become another user */
    start(&d, settings);
    ck_assert(daemon_text(&d, "/status", "listen", url, sizeof url));
    pid_t pid = fork();
    if (pid == 0) {
        struct psc *c = NULL;
        float *x;
        if (setgid(NOBODY) != 0 || setuid(NOBODY) != 0 || join(url, NULL, 1, &c, &x) != PSC_OK)
            _exit(1);
        pause();
    }
    assert_worker(&d, "road", "tcp");
    assert_worker(&d, "road_why", "shm: ");
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    daemon_remove(&d);
}
END_TEST

struct ending {
    float *center;
    uint64_t digests[WORKERS];
};

static struct ending run_job(const char *const *method, const char *transport, int workers, bool alloc)
{
    struct daemon d;
    struct stepper team[WORKERS];
    struct ending e;
    const char *settings[SETTINGS + 1] = {transport};
    for (int i = 0; method[i] != NULL; i++)
        settings[1 + i] = method[i];
    start(&d, settings);
    for (int i = 0; i < workers; i++) {
        const struct stepper_task task = {.server = d.endpoint,
                                          .rank = i,
                                          .floats = FLOATS,
                                          .steps = STEPS,
                                          .samples = 1,
                                          .alloc = alloc,
                                          .steady = true};
        stepper_start(&team[i], &task);
    }
    for (int i = 0; i < workers; i++) {
        ck_assert(stepper_finish(&team[i], WAIT_S));
        ck_assert_msg(team[i].page->rc == PSC_OK, "%s: %s", method[4], team[i].page->error);
        e.digests[i] = team[i].page->digest;
    }
    e.center = stepper_center(&d, FLOATS);
    daemon_remove(&d);
    return e;
}

static void assert_same(const struct ending *a, const struct ending *b, const char *what, int workers)
{
    for (int i = 0; i < FLOATS; i++)
        ck_assert_msg(memcmp(&a->center[i], &b->center[i], sizeof *a->center) == 0,
                      "%s: center[%d] is %.9g, then %.9g", what, i, (double)a->center[i],
                      (double)b->center[i]);
    for (int i = 0; i < workers; i++)
        ck_assert_msg(a->digests[i] == b->digests[i], "%s: rank %d ended at another x", what, i);
}

/* One worker alone is deterministic under every admission; several are under rounds and in turns. */
START_TEST(runs_end_as_they_do_over_tcp)
{
    static const struct {
        int workers;
        const char *settings[SETTINGS];
    } rows[] = {
        {1, {COMMON, "method=async-easgd", "alpha=0.3", "period=1"}},
        {1, {COMMON, "method=eamsgd", "alpha=0.3", "period=2"}},
        {1, {COMMON, "method=eamsgd", "alpha=0.3", "period=1", "overlap=true"}},
        {1, {COMMON, "method=hogwild-easgd", "alpha=0.3", "period=1"}},
        {1,
         {COMMON, "method=async-easgd", "alpha=0.3", "period=1", "codec.message=int8", "codec.answer=fp16"}},
        {1, {COMMON, "method=async-msgd"}},
        {1, {COMMON, "method=downpour", "period=2"}},
        {1, {COMMON, "method=dc-asgd", "workers=1"}},
        {WORKERS, {COMMON, "method=original-easgd", "workers=3", "alpha=0.3", "period=1"}},
        {WORKERS, {COMMON, "method=sync-easgd", "workers=3", "beta=0.9", "period=1"}},
        {WORKERS, {COMMON, "method=sync-sgd", "workers=3", "codec.message=int8"}},
        {WORKERS, {COMMON, "method=diloco", "workers=3", "period=6", "fragments=4"}},
        {WORKERS, {COMMON, "method=admm", "workers=3", "rho=2.5"}},
    };
    for (size_t i = 0; i < ROWS(rows); i++) {
        int workers = rows[i].workers;
        struct ending tcp = run_job(rows[i].settings, "transport=tcp", workers, false);
        struct ending staged = run_job(rows[i].settings, "transport=shm", workers, false);
        struct ending in_place = run_job(rows[i].settings, "transport=shm", workers, true);
        ck_assert_float_ne(tcp.center[0], tcp.center[1]);
        assert_same(&tcp, &staged, rows[i].settings[4], workers);
        assert_same(&tcp, &in_place, rows[i].settings[4], workers);
        free(tcp.center);
        free(staged.center);
        free(in_place.center);
    }
}
END_TEST

/* A worker of a round is checked before a part of its exchange arrives, without which others would wait. */
START_TEST(a_value_that_is_not_finite_is_refused_in_place)
{
    static const struct {
        const char *method, *admission, *what;
    } rows[] = {{"method=async-easgd", "admission=fcfs", "it was not exchanged"},
                {"method=original-easgd", "admission=round-robin", "nothing was sent"},
                {"method=async-easgd", "admission=ssp", "nothing was sent"}};
    static float g[FLOATS], center[FLOATS];
    for (size_t k = 0; k < sizeof rows / sizeof *rows; k++) {
        const char *const settings[] = {
            COMMON, rows[k].method, rows[k].admission, "alpha=0.5", "period=1", "transport=shm", NULL};
        struct daemon d;
        struct psc *c = NULL;
        char says[160];
        float *x;
        start(&d, settings);
        ck_assert_int_eq(join(d.endpoint, "shm", 1, &c, &x), PSC_OK);
        ck_assert_int_eq(psc_step(c, x, g, 1), PSC_OK);
        x[FLOATS - 7] = NAN;
        ck_assert_int_eq(psc_step(c, x, g, 1), PSC_EVALUE);
        snprintf(says, sizeof says, "[60006], in tensor 'x', is not finite: %s", rows[k].what);
        ck_assert_msg(strstr(psc_error(c), says) != NULL, "%s: %s", rows[k].admission, psc_error(c));
        ck_assert_int_eq(psc_pull(c, NULL, center), PSC_OK);
        for (int i = 0; i < FLOATS; i++)
            ck_assert_msg(center[i] == 1.0f, "%s: center[%d] is %g", rows[k].admission, i, (double)center[i]);
        ck_assert_int_eq(psc_pull(c, NULL, x), PSC_OK); /* the session goes on */
        ck_assert_int_eq(psc_step(c, x, g, 1), PSC_OK);
        psc_close(c);
        daemon_remove(&d);
    }
}
END_TEST

static unsigned count_in(const char *path)
{
    unsigned n = 0;
    DIR *dir = opendir(path);
    ck_assert_ptr_nonnull(dir);
    while (readdir(dir) != NULL)
        n++;
    closedir(dir);
    return n;
}

/* Open files, and mappings of shared memory, of psd. */
struct holdings {
    unsigned files, mappings;
};

static struct holdings holdings_of(const struct daemon *d)
{
    char path[64], line[600];
    struct holdings h = {0};
    snprintf(path, sizeof path, "/proc/%d/fd", (int)d->pid);
    h.files = count_in(path);
    snprintf(path, sizeof path, "/proc/%d/maps", (int)d->pid);
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f) != NULL)
        h.mappings += strstr(line, "memfd:") != NULL;
    fclose(f);
    return h;
}

/* Exchanges a vector of equal values until it is killed; odd ones staged, even ones in place. It stands still
 * until SIGCONT: it is forked before this process has threads, since one of those may hold a lock of the
 * allocator, which the address sanitizer's never gives back to a child. */
static pid_t prepare_victim(const struct daemon *d, int number, float *const counter)
{
    int status;
    pid_t pid = fork();
    if (pid != 0) {
        ck_assert(waitpid(pid, &status, WUNTRACED) == pid && WIFSTOPPED(status));
        return pid;
    }
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    raise(SIGSTOP);
    struct psc *c = NULL;
    static float own[FLOATS], g[FLOATS];
    float *x;
    if (join(d->endpoint, "shm", (float)number, &c, &x) != PSC_OK)
        _exit(1);
    for (int i = 0; number % 2 == 1 && i < FLOATS; i++)
        own[i] = x[i];
    *counter = 1;
    for (int t = 1; psc_step(c, number % 2 == 1 ? own : x, g, 1) == PSC_OK; t++)
        if (t % 5 == 0) /* away from the center again */
            for (int i = 0; i < FLOATS; i++)
                (number % 2 == 1 ? own : x)[i] = (float)(number * t % 1000);
    _exit(1);
}

/* Every message has one value in each chunk: so has the center, where chunks land whole or not at all. */
static void assert_whole(const float *center, int k)
{
    int changes = 0, chunks = 2 * ((FLOATS + 1) / 2 / CHUNK + 1);
    for (int i = 1; i < FLOATS; i++)
        changes += memcmp(&center[i], &center[i - 1], sizeof *center) != 0;
    ck_assert_msg(changes < chunks, "after kill %d: %d changes of value in %d chunks", k, changes, chunks);
}

START_TEST(killed_workers_leave_whole_chunks_and_nothing_else)
{
    const char *const settings[] = {COMMON,          "method=async-easgd", "alpha=0.5", "period=1",
                                    "transport=shm", TIMELAPSE_SILENCE,    NULL};
    struct daemon d;
    struct psc *c = NULL;
    float *counter = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0), *x;
    static float center[FLOATS];
    struct dice dice = {.state = 20260722};
    pid_t victims[KILLS];
    ck_assert_int_eq(daemon_prepare(&d, NULL, settings), 0);
    struct shim_page *page = timelapse_prepare(&d);
    ck_assert_int_eq(daemon_start(&d, NULL), 0);
    shim_unset();
    for (int k = 1; k <= KILLS; k++)
        victims[k - 1] = prepare_victim(&d, k, counter);
    ck_assert_int_eq(join(d.endpoint, "shm", 0, &c, &x), PSC_OK); /* the first x is 0 */
    ck_assert_int_eq(psc_pull(c, NULL, x), PSC_OK);
    struct holdings before = holdings_of(&d);
    for (int k = 1; k <= KILLS; k++) {
        *counter = 0;
        pid_t pid = victims[k - 1];
        kill(pid, SIGCONT);
        double end = test_now_s() + test_slow_s(WAIT_S);
        while (*(volatile float *)counter == 0 && waitpid(pid, NULL, WNOHANG) == 0 && test_now_s() < end)
            test_nap_s(0.001);
        ck_assert_float_eq(*(volatile float *)counter, 1);
        test_nap_s(1e-6 * (double)dice_below(&dice, 8000));
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        ck_assert_int_eq(psc_pull(c, NULL, center), PSC_OK); /* others are not in the least disturbed */
        assert_whole(center, k);
    }
    ck_assert_float_gt(center[0], 0);
    double end = test_now_s() + test_slow_s(WAIT_S);
    struct holdings after = holdings_of(&d);
    while ((after.files > before.files || after.mappings > before.mappings) && test_now_s() < end) {
        ck_assert(shim_pass(page, &d, 1, (const int[]){0}, 1));
        after = holdings_of(&d);
    }
    ck_assert_uint_eq(after.files, before.files);
    ck_assert_uint_eq(after.mappings, before.mappings);
    psc_close(c);
    daemon_remove(&d);
    munmap(counter, 4096);
}
END_TEST

/* Whoever wants shared memory alone waits for psd as everybody does: killed and resumed, and stopped. */
START_TEST(shm_alone_outlives_a_restart_and_a_stop_of_psd)
{
    const char *const settings[] = {COMMON,     "method=async-easgd", "alpha=0.5",
                                    "period=1", "transport=shm",      NULL};
    static float g[FLOATS];
    struct psc_info info = {.size = sizeof info};
    struct daemon d;
    struct psc *c = NULL;
    float *x;
    start(&d, settings);
    ck_assert_int_eq(join(d.endpoint, "shm", 1, &c, &x), PSC_OK);
    ck_assert_int_eq(psc_step(c, x, g, 1), PSC_OK);
    ck_assert(daemon_checkpoint(&d, WAIT_S));
    for (int k = 0; k < 2; k++) {
        daemon_stop(&d, SIGKILL, WAIT_S);
        ck_assert_int_eq(daemon_start(&d, "--resume"), 0);
        ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "%s", psc_error(c));
    }
    pid_t waker = fork(); /* attaching is given up once meanwhile, at least */
    if (waker == 0) {
        test_nap_s(3);
        kill(d.pid, SIGCONT);
        _exit(0);
    }
    kill(d.pid, SIGSTOP);
    ck_assert_msg(psc_step(c, x, g, 1) == PSC_OK, "%s", psc_error(c));
    waitpid(waker, NULL, 0);
    ck_assert_int_eq(psc_info(c, &info), PSC_OK);
    ck_assert_str_eq(info.transport, "shm");
    for (int i = 0; i < FLOATS; i++)
        ck_assert_float_eq(x[i], 1);
    psc_close(c);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    const TTest *const tests[] = {
        the_fastest_road_is_taken_by_itself,
        a_road_that_is_not_offered_is_refused,
        who_may_not_attach_falls_back_and_says_why,
        runs_end_as_they_do_over_tcp,
        a_value_that_is_not_finite_is_refused_in_place,
        killed_workers_leave_whole_chunks_and_nothing_else,
        shm_alone_outlives_a_restart_and_a_stop_of_psd,
    };
    return suite_run("shm", tests, sizeof tests / sizeof *tests, 500);
}
