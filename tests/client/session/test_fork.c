/* What the process around the library does: it forks, and it gets signals. */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/psclique.h"
#include "tests/client/psd_fixture.h"

enum { N = 3000 };

static const struct psc_tensor model = {"model", 0, {N}, 1, PSC_PARAM};
static float own[N], g[N];
static uint64_t ticket, version;
static size_t extra_bytes;
static struct psc_info info = {.size = sizeof info};
static const struct psc_metrics metrics = {.size = sizeof metrics};

#define CALL(name, expression)                                                                               \
    static int name(struct psc *c)                                                                           \
    {                                                                                                        \
        return expression;                                                                                   \
    }
CALL(call_begin, psc_begin(c, &model, 1, own))
CALL(call_alloc, psc_alloc(c, N, &(float *){NULL}))
CALL(call_keep, psc_keep(c, own, &(struct psc_memory *){NULL}))
CALL(call_step, psc_step(c, own, g, 1))
CALL(call_exchange, psc_exchange(c, own, g, 1))
CALL(call_init, psc_init(c, NULL, own))
CALL(call_pull, psc_pull(c, NULL, own))
CALL(call_pull_average, psc_pull_average(c, NULL, own))
CALL(call_push, psc_push(c, NULL, own, 1))
CALL(call_pushpull, psc_pushpull(c, "model", own, g, 1))
CALL(call_exchange_start, psc_exchange_start(c, own, g, 1, &ticket))
CALL(call_init_start, psc_init_start(c, NULL, own, &ticket))
CALL(call_pull_start, psc_pull_start(c, NULL, own, &ticket))
CALL(call_pull_average_start, psc_pull_average_start(c, NULL, own, &ticket))
CALL(call_push_start, psc_push_start(c, NULL, own, 1, &ticket))
CALL(call_pushpull_start, psc_pushpull_start(c, NULL, own, g, 1, &ticket))
CALL(call_wait, psc_wait(c, PSC_ALL))
CALL(call_stop, psc_stop(c))
CALL(call_point, psc_point(c, own))
CALL(call_save, psc_save(c, "/tmp/psd-test-fork", own, NULL, 0))
CALL(call_load, psc_load(c, "/tmp/psd-test-fork", own, NULL, 0, &extra_bytes))
CALL(call_saved_version, psc_saved_version(c, "/tmp/psd-test-fork", &version))
CALL(call_report, psc_report(c, &metrics))
CALL(call_info, psc_info(c, &info))

static const struct {
    const char *name;
    int (*call)(struct psc *c);
} calls[] = {{"psc_begin", call_begin},
             {"psc_alloc", call_alloc},
             {"psc_keep", call_keep},
             {"psc_step", call_step},
             {"psc_exchange", call_exchange},
             {"psc_init", call_init},
             {"psc_pull", call_pull},
             {"psc_pull_average", call_pull_average},
             {"psc_push", call_push},
             {"psc_pushpull", call_pushpull},
             {"psc_exchange_start", call_exchange_start},
             {"psc_init_start", call_init_start},
             {"psc_pull_start", call_pull_start},
             {"psc_pull_average_start", call_pull_average_start},
             {"psc_push_start", call_push_start},
             {"psc_pushpull_start", call_pushpull_start},
             {"psc_wait", call_wait},
             {"psc_stop", call_stop},
             {"psc_point", call_point},
             {"psc_save", call_save},
             {"psc_load", call_load},
             {"psc_saved_version", call_saved_version},
             {"psc_report", call_report},
             {"psc_info", call_info}};

/* Exits with 0, or says which call was not refused. */
static void try_all(struct psc *c, const char *parent)
{
    for (size_t i = 0; i < ROWS(calls); i++) {
        int rc = calls[i].call(c);
        bool told = strstr(psc_error(c), parent) != NULL && strstr(psc_error(c), "forked") != NULL &&
                    strstr(psc_error(c), calls[i].name) == psc_error(c);
        if (rc != PSC_EINVAL || !told) {
            fprintf(stderr, "%s: %s, %s\n", calls[i].name, psc_result_name(rc), psc_error(c));
            _exit(1);
        }
    }
    bool knows_nothing = psc_rank(c) == -1 && psc_size(c) == 0;
    psc_close(c); /* of the child alone */
    _exit(knows_nothing ? 0 : 2);
}

/* How the child ended; one that hangs is killed. */
static int await_child(pid_t pid)
{
    int status = 0;
    double end = unit_now_s() + UNIT_HANG_S / 2.0;
    pid_t ended = 0;
    while ((ended = waitpid(pid, &status, WNOHANG)) == 0 && unit_now_s() < end)
        unit_nap_ms(2);
    if (ended == 0) {
        kill(pid, SIGKILL);
        waitpid(pid, &status, 0);
    }
    return status;
}

static struct psc *join(const struct daemon *d, const char *transport, float **x)
{
    struct psc_options opt;
    struct psc *c;
    psc_options_init(&opt, sizeof opt);
    opt.server = d->endpoint;
    opt.transport = transport;
    opt.retry_ms = RIG_RETRY_MS;
    opt.heartbeat_ms = 100;
    ck_assert_msg(psc_open(&opt, &c) == PSC_OK, "%s", psc_error(c));
    assert_ok(c, psc_alloc(c, N, x));
    for (int i = 0; i < N; i++)
        (*x)[i] = 4;
    assert_ok(c, psc_begin(c, &model, 1, *x));
    return c;
}

static const char *const transports[] = {"tcp", "shm"};

START_TEST(a_forked_child_is_refused_and_its_parent_goes_on)
{
    const char *const settings[] = {"method=async-easgd", "alpha=0.5", "period=1", "transport=auto", NULL};
    struct psc_info now = {.size = sizeof now};
    struct daemon d;
    char parent[32];
    float *x;
    rig_start(&d, settings);
    struct psc *c = join(&d, transports[_i], &x);
    assert_ok(c, psc_step(c, x, g, 1));
    snprintf(parent, sizeof parent, "process %d", (int)getpid());
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0)
        try_all(c, parent);
    ck_assert_int_eq(await_child(pid), 0);
    for (int i = 0; i < 3; i++)
        assert_ok(c, psc_step(c, x, g, 1));
    assert_ok(c, psc_pull(c, NULL, own));
    ck_assert_int_eq(psc_info(c, &now), PSC_OK);
    ck_assert_uint_eq(now.center_version, 4);
    ck_assert_uint_eq(now.retries + now.reconnects, 0);
    psc_close(c);
    daemon_remove(&d);
}
END_TEST

/* What a server may work in is not the child's to write. */
START_TEST(memory_of_psc_alloc_is_not_inherited)
{
    const char *const settings[] = {"method=async-sgd", NULL};
    struct daemon d;
    float *x;
    rig_start(&d, settings);
    struct psc *c = join(&d, "tcp", &x);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        signal(SIGSEGV, SIG_DFL);
        *(volatile float *)x = 77;
        _exit(0);
    }
    int status = await_child(pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    ck_assert_float_eq(x[0], 4);
    psc_close(c);
    daemon_remove(&d);
}
END_TEST

/* Also on the transport where the server works in it. */
START_TEST(a_kept_vector_outlives_its_handle)
{
    const char *const settings[] = {"method=async-easgd", "alpha=0.5", "period=1", "transport=auto", NULL};
    struct psc_memory *kept, *other = NULL;
    struct daemon d;
    float *x;
    rig_start(&d, settings);
    struct psc *c = join(&d, transports[_i], &x);
    ck_assert_int_eq(psc_keep(c, x + 1, &other), PSC_EINVAL);
    assert_says(psc_error(c), "psc_keep: allowed is a vector of psc_alloc");
    assert_ok(c, psc_keep(c, x, &kept));
    ck_assert_int_eq(psc_keep(c, x, &other), PSC_EINVAL);
    ck_assert_ptr_null(other);
    psc_memory_free(kept);
    x[0] = 5; /* the handle's again */
    assert_ok(c, psc_keep(c, x, &kept));
    assert_ok(c, psc_step(c, x, g, 1));
    psc_close(c);
    ck_assert_float_eq(x[1], 4);
    x[1] = 77;
    pid_t pid = fork();
    if (pid == 0) {
        psc_memory_free(kept); /* not the child's */
        _exit(0);
    }
    ck_assert_int_eq(await_child(pid), 0);
    ck_assert_float_eq(x[1], 77);
    psc_memory_free(kept);
    psc_memory_free(NULL);
    daemon_remove(&d);
}
END_TEST

START_TEST(a_clique_is_its_processes_own)
{
    struct psc_ring_options opt;
    struct psc_clique *q;
    psc_ring_options_init(&opt, sizeof opt);
    opt.members = 1;
    opt.rendezvous = "file:/tmp/psd-test-fork-ring";
    ck_assert_int_eq(psc_ring_open(&opt, &q), PSC_OK);
    pid_t pid = fork();
    if (pid == 0) {
        bool refused = psc_allreduce(q, own, N, NULL) == PSC_EINVAL &&
                       strstr(psc_clique_error(q), "forked") != NULL && psc_barrier(q) == PSC_EINVAL &&
                       psc_broadcast(q, own, 8, 0) == PSC_EINVAL &&
                       psc_barrier_start(q, &ticket) == PSC_EINVAL && psc_clique_wait(q, 0) == PSC_EINVAL;
        psc_clique_close(q);
        _exit(refused ? 0 : 1);
    }
    ck_assert_int_eq(await_child(pid), 0);
    ck_assert_int_eq(psc_barrier(q), PSC_OK);
    psc_clique_close(q);
}
END_TEST

static pthread_barrier_t both, looked;

/* A member of a ring of two; it takes no signals itself, being the test's. */
static void *be_member(void *arg)
{
    struct psc_ring_options opt;
    struct psc_clique *q;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, NULL);
    psc_ring_options_init(&opt, sizeof opt);
    opt.members = 2;
    opt.rendezvous = arg;
    assert_quick(psc_ring_open(&opt, &q) == PSC_OK);
    assert_quick(psc_barrier_start(q, NULL) == PSC_OK); /* its thread runs */
    pthread_barrier_wait(&both);
    pthread_barrier_wait(&looked);
    psc_clique_close(q);
    return NULL;
}

static unsigned long long blocked_of(const char *task)
{
    char path[300], line[200];
    unsigned long long mask = 0;
    snprintf(path, sizeof path, "/proc/self/task/%s/status", task);
    FILE *f = fopen(path, "r");
    ck_assert_ptr_nonnull(f);
    while (fgets(line, sizeof line, f) != NULL)
        sscanf(line, "SigBlk: %llx", &mask);
    fclose(f);
    return mask;
}

/* All threads but this one. */
static unsigned assert_deaf(void)
{
    static const int signals[] = {SIGHUP,  SIGINT,  SIGTERM, SIGUSR1, SIGUSR2,
                                  SIGALRM, SIGCHLD, SIGPROF, SIGWINCH};
    unsigned n = 0;
    DIR *dir = opendir("/proc/self/task");
    for (struct dirent *e; (e = readdir(dir)) != NULL;) {
        if (e->d_name[0] == '.' || atoi(e->d_name) == (int)getpid())
            continue;
        for (size_t i = 0; i < ROWS(signals); i++)
            ck_assert_msg((blocked_of(e->d_name) >> (signals[i] - 1) & 1) != 0, "thread %s takes signal %d",
                          e->d_name, signals[i]);
        n++;
    }
    closedir(dir);
    return n;
}

START_TEST(no_thread_of_the_library_takes_signals)
{
    const char *const settings[] = {"method=async-sgd", NULL};
    char place[64];
    pthread_t members[2];
    struct daemon d;
    sigset_t before, after;
    float *x;
    pthread_sigmask(SIG_SETMASK, NULL, &before);
    rig_start(&d, settings);
    struct psc *c = join(&d, "tcp", &x);
    assert_ok(c, psc_pull_start(c, NULL, own, &ticket));
    assert_ok(c, psc_wait(c, ticket));
    snprintf(place, sizeof place, "file:/tmp/psd-test-fork-%d", (int)getpid());
    pthread_barrier_init(&both, NULL, 3);
    pthread_barrier_init(&looked, NULL, 3);
    for (int i = 0; i < 2; i++)
        ck_assert_int_eq(pthread_create(&members[i], NULL, be_member, place), 0);
    pthread_barrier_wait(&both);
    ck_assert_uint_ge(assert_deaf(), 2 + 2 + 2); /* members, their cliques', service and async thread */
    pthread_barrier_wait(&looked);
    for (int i = 0; i < 2; i++)
        pthread_join(members[i], NULL);
    pthread_sigmask(SIG_SETMASK, NULL, &after);
    for (int s = 1; s < SIGRTMAX; s++)
        ck_assert_int_eq(sigismember(&before, s), sigismember(&after, s));
    psc_close(c);
    daemon_remove(&d);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("client-fork");
    TCase *tc = tcase_create("fork");
    tcase_add_loop_test(tc, a_forked_child_is_refused_and_its_parent_goes_on, 0, ROWS(transports));
    tcase_add_test(tc, memory_of_psc_alloc_is_not_inherited);
    tcase_add_loop_test(tc, a_kept_vector_outlives_its_handle, 0, ROWS(transports));
    tcase_add_test(tc, a_clique_is_its_processes_own);
    tcase_add_test(tc, no_thread_of_the_library_takes_signals);
    suite_add_tcase(suite, tc);
    return unit_run(suite);
}
