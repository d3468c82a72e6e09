#include "tests/cuda/members.h"

#include <cuda_runtime_api.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct trace *members_share(void)
{
    void *p = mmap(NULL, MOST_MEMBERS * sizeof(struct trace), PROT_READ | PROT_WRITE,
                   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(p != MAP_FAILED);
    return p;
}

void members_run(int members, int killed, void (*run)(int rank, void *arg), void *arg)
{
    pid_t pids[MOST_MEMBERS];
    for (int r = 0; r < members; r++) {
        pids[r] = fork();
        ck_assert_int_ge(pids[r], 0);
        if (pids[r] == 0) {
            run(r, arg);
            _exit(0);
        }
    }
    for (int r = 0; r < members; r++) {
        int status = 0;
        ck_assert_int_eq(waitpid(pids[r], &status, 0), pids[r]);
        if (r == killed)
            ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        else
            ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "member %d ended with status %#x", r,
                          (unsigned)status);
    }
}

struct device {
    int rank;
    void (*run)(int rank, void *arg);
    void *arg;
    pthread_t thread;
};

static void *run_device(void *arg)
{
    struct device *d = arg;
    ck_assert_int_eq(cudaSetDevice(d->rank), cudaSuccess);
    d->run(d->rank, d->arg);
    return NULL;
}

void members_run_threads(int members, void (*run)(int rank, void *arg), void *arg)
{
    struct device devices[MOST_MEMBERS];
    for (int r = 0; r < members; r++) {
        devices[r] = (struct device){.rank = r, .run = run, .arg = arg};
        ck_assert_int_eq(pthread_create(&devices[r].thread, NULL, run_device, &devices[r]), 0);
    }
    for (int r = 0; r < members; r++)
        ck_assert_int_eq(pthread_join(devices[r].thread, NULL), 0);
}

void member_open_clique(struct member *m)
{
    struct psc_ring_options opt;
    psc_ring_options_init(&opt, sizeof opt);
    opt.members = (uint32_t)m->members;
    opt.rank = m->rank;
    opt.rendezvous = m->meets;
    opt.listen = "unix:";
    opt.algorithm = m->on_device ? "ring" : "tree";
    opt.timeout_ms = m->timeout_ms > 0 ? m->timeout_ms : opt.timeout_ms;
    int rc = m->on_device ? psc_nccl_open(&opt, &m->q) : psc_ring_open(&opt, &m->q);
    ck_assert_msg(rc == PSC_OK, "%s", psc_clique_error(m->q));
}

void member_open(struct member *m)
{
    struct psc_options opt;
    struct psc_local local;
    psc_options_init(&opt, sizeof opt);
    psc_local_init(&local, sizeof local, m->row->local);
    local.weight_decay = 0.01;
    local.learning_rate = 0.0625;
    local.bucket_floats = 3000;
    local.pipeline = m->row->pipeline > 0 ? m->row->pipeline : local.pipeline;
    opt.server = m->server;
    opt.local = m->server == NULL ? &local : NULL;
    opt.retry_ms = RIG_RETRY_MS;
    opt.heartbeat_ms = RIG_HEARTBEAT_MS;
    opt.clique = m->q;
    opt.memory = m->on_device ? "cuda" : NULL;
    ck_assert_msg(psc_open(&opt, &m->c) == PSC_OK, "%s: %s", m->row->name, psc_error(m->c));
}

void member_begin(struct member *m)
{
    static _Thread_local float start[N];
    struct dice dice = {25};
    for (int i = 0; i < N; i++)
        start[i] = dice_float(&dice);
    assert_ok(m->c, psc_alloc(m->c, N, &m->x));
    assert_ok(m->c, psc_alloc(m->c, N, &m->g));
    assert_ok(m->c, psc_write(m->c, m->x, start, N));
    ck_assert_msg(psc_begin(m->c, rig_model, RIG_TENSORS, m->x) == PSC_OK, "%s: %s", m->row->name,
                  psc_error(m->c));
}

/* The program changes the buffers before each step. */
static void see(struct member *m, struct dice *dice)
{
    static _Thread_local float seen[N];
    for (size_t i = 0; i < RIG_TENSORS; i++) {
        const struct psc_tensor *b = &rig_model[i];
        if (b->role != PSC_BUFFER)
            continue;
        for (uint64_t k = 0; k < b->shape[0]; k++)
            seen[k] = dice_float(dice);
        assert_ok(m->c, psc_write(m->c, m->x + b->offset, seen, b->shape[0]));
    }
}

static int step_in_parts(struct member *m, size_t n_samples)
{
    enum { PART = 2500 };
    int rc = psc_step_begin(m->c, m->x, m->g, n_samples);
    for (int at = N - PART; at >= 0 && rc == PSC_OK; at -= PART)
        rc = psc_ready(m->c, (uint64_t)at, PART);
    return rc == PSC_OK ? psc_step_end(m->c) : rc;
}

int member_step(struct member *m, int t)
{
    static _Thread_local float g[N];
    struct dice dice = {1000 * (uint64_t)t + 77 * (uint64_t)m->rank};
    size_t n_samples = 8 + (size_t)m->rank;
    see(m, &dice);
    for (int i = 0; i < N; i++)
        g[i] = dice_float(&dice);
    assert_ok(m->c, psc_write(m->c, m->g, g, N));
    return m->row->parts ? step_in_parts(m, n_samples) : psc_step(m->c, m->x, m->g, n_samples);
}

void member_train(struct member *m, struct trace *out)
{
    for (int t = 0; t < STEPS; t++) {
        int rc = member_step(m, t);
        ck_assert_msg(rc == PSC_OK, "%s, rank %d, step %d: %s: %s", m->row->name, m->rank, t,
                      psc_result_name(rc), psc_error(m->c));
    }
    assert_ok(m->c, psc_wait(m->c, PSC_ALL));
    assert_ok(m->c, psc_read(m->c, out->x, m->x, N));
    assert_ok(m->c, psc_point(m->c, m->g));
    assert_ok(m->c, psc_read(m->c, out->own, m->g, N));
    assert_ok(m->c, psc_pull(m->c, NULL, m->g));
    assert_ok(m->c, psc_read(m->c, out->center, m->g, N));
}

void member_close(struct member *m)
{
    psc_close(m->c);
    psc_clique_close(m->q);
}
