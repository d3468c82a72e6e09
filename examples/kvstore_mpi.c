/* The loops of Mamidala et al. 2018 (MXNET-MPI), figures 6 to 8, on a small regression:
 *
 *     cc kvstore_mpi.c $(pkg-config --cflags --libs psclient)
 *     psd --set rule=sum --set admission=sync --set optimizer=none --set workers=2
 *     ./a.out sync|async|elastic @endpoint [CLIQUE MEMBERS]
 *
 * Without CLIQUE a worker is a client of the server: the paper's dist-SGD, dist-ASGD and dist-ESGD. With it,
 * MEMBERS processes that name the same CLIQUE are one client: mpi-SGD, mpi-ASGD and mpi-ESGD. They meet
 * through psd; psc_mpi_world_open of psclique_mpi.h makes such a clique from MPI's processes. */
#include <psclient.h>
#include <psclique.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHTS = 4, N = WEIGHTS + 1, BATCH = 16, STEPS = 2048, PERIOD = 32 };

static const float eta = 0.1f, truth[N] = {3, -2, 0.5f, 1, -1};

/* The keys: their names, and where their values lie in the vector. */
static const struct psc_tensor keys[] = {{.name = "weight", .n_dims = 1, .shape = {WEIGHTS}, .offset = 0},
                                         {.name = "bias", .n_dims = 1, .shape = {1}, .offset = WEIGHTS}};
enum { KEYS = sizeof keys / sizeof *keys };

struct worker {
    struct psc *kv;
    struct psc_clique *clique; /* NULL: none */
    unsigned seed;
    float x[N], g[N];
};

static float draw(struct worker *w)
{
    w->seed = w->seed * 1664525u + 1013904223u;
    return (float)(w->seed >> 8) / (float)(1 << 24) * 2 - 1;
}

/* The gradient of the mean of (x u - y)^2 / 2 over a batch. */
static void gradient(struct worker *w)
{
    memset(w->g, 0, sizeof w->g);
    for (int b = 0; b < BATCH; b++) {
        float u[N] = {0}, error = 0;
        for (int i = 0; i < N; i++) {
            u[i] = i < WEIGHTS ? draw(w) : 1;
            error += (w->x[i] - truth[i]) * u[i];
        }
        for (int i = 0; i < N; i++)
            w->g[i] += error * u[i] / BATCH;
    }
}

/* Members of a clique: that of the clique; workers: of all. */
static int members(const struct worker *w)
{
    return w->clique != NULL ? psc_clique_size(w->clique) : 1;
}

static int workers(const struct worker *w)
{
    struct psc_info info = {.size = sizeof info};
    psc_info(w->kv, &info);
    return (int)info.workers;
}

/* The worker of rank 0 sets the server's method, before any of them goes on. In a clique all members call. */
static int set_method(struct worker *w, const char *lines)
{
    int rc = psc_workers_barrier(w->kv);
    if (rc == PSC_OK && psc_rank(w->kv) == 0)
        rc = psc_set_method(w->kv, lines);
    return rc == PSC_OK ? psc_workers_barrier(w->kv) : rc;
}

/* The result is the center when all have made their steps, however far apart they were. */
static int take_center(struct worker *w)
{
    int rc = psc_workers_barrier(w->kv);
    return rc == PSC_OK ? psc_pull(w->kv, NULL, w->x) : rc;
}

/* Figure 6: the server adds up the gradients of a round, and each worker makes the step. */
static int run_sync(struct worker *w)
{
    float sum[N] = {0}, rescale = eta / (float)workers(w);
    int rc = PSC_OK;
    for (int t = 0; t < STEPS && rc == PSC_OK; t++) {
        gradient(w);
        for (int k = 0; k < KEYS && rc == PSC_OK; k++)
            if ((rc = psc_push(w->kv, keys[k].name, w->g + keys[k].offset, BATCH)) == PSC_OK)
                rc = psc_pull(w->kv, keys[k].name, sum + keys[k].offset);
        for (int i = 0; i < N && rc == PSC_OK; i++)
            w->x[i] -= rescale * sum[i];
    }
    return rc;
}

/* Figure 7: the server makes the step with each gradient as it comes. */
static int run_async(struct worker *w)
{
    int rc = set_method(w, "rule=sgd\nadmission=fcfs\nworkers=any\nlearning_rate=0.1\nwarmup_steps=0\n");
    for (int t = 0; t < STEPS && rc == PSC_OK; t++) {
        gradient(w);
        for (int k = 0; k < KEYS && rc == PSC_OK; k++)
            if ((rc = psc_push(w->kv, keys[k].name, w->g + keys[k].offset, BATCH)) == PSC_OK)
                rc = psc_pull(w->kv, keys[k].name, w->x + keys[k].offset);
    }
    return rc == PSC_OK ? take_center(w) : rc;
}

/* Every PERIOD steps the parameters and the center move towards each other. psc_pushpull answers the center
 * as it was before, with which both sides move (Zhang et al. 2015, eq. 5-6). */
static int meet_the_center(struct worker *w)
{
    float center[N] = {0};
    struct psc_info info = {.size = sizeof info};
    int rc = PSC_OK;
    for (int k = 0; k < KEYS && rc == PSC_OK; k++)
        rc = psc_pushpull(w->kv, keys[k].name, w->x + keys[k].offset, center + keys[k].offset, BATCH);
    psc_info(w->kv, &info);
    for (int i = 0; i < N && rc == PSC_OK; i++)
        w->x[i] -= (float)info.alpha * (w->x[i] - center[i]);
    return rc;
}

/* Figure 8. Members of a clique share x: they step by the sum of their gradients. */
static int run_elastic(struct worker *w)
{
    float rescale = eta / (float)members(w);
    int rc = set_method(w, "rule=elastic\nadmission=fcfs\nworkers=any\noptimizer=sgd\nalpha=0.25\n");
    for (int t = 0; t < STEPS && rc == PSC_OK; t++) {
        gradient(w);
        if (t % PERIOD == 0)
            rc = meet_the_center(w);
        if (rc == PSC_OK && w->clique != NULL)
            rc = psc_allreduce(w->clique, w->g, N, NULL);
        for (int i = 0; i < N && rc == PSC_OK; i++)
            w->x[i] -= rescale * w->g[i];
    }
    return rc == PSC_OK ? take_center(w) : rc;
}

static const struct {
    const char *name;
    int (*run)(struct worker *w);
} modes[] = {{"sync", run_sync}, {"async", run_async}, {"elastic", run_elastic}};

static int run(struct worker *w, const char *mode)
{
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (strcmp(modes[i].name, mode) == 0)
            return modes[i].run(w);
    fprintf(stderr, "mode '%s'; allowed are sync, async, elastic\n", mode);
    return PSC_EINVAL;
}

static int join(struct worker *w, const char *server, const char *clique, int n_members)
{
    char meeting[600];
    struct psc_ring_options ring;
    struct psc_options opt;
    psc_ring_options_init(&ring, sizeof ring);
    snprintf(meeting, sizeof meeting, "psd:%s", server);
    ring.members = (uint32_t)n_members;
    ring.rank = -1;
    ring.rendezvous = meeting;
    ring.name = clique;
    if (clique != NULL && psc_ring_open(&ring, &w->clique) != PSC_OK)
        return PSC_ECLIQUE;
    psc_options_init(&opt, sizeof opt);
    opt.server = server;
    opt.clique = w->clique;
    int rc = psc_open(&opt, &w->kv);
    if (rc == PSC_OK)
        rc = psc_begin(w->kv, keys, KEYS, w->x);
    w->seed = 1 + (unsigned)psc_rank(w->kv) * (unsigned)members(w) +
              (w->clique != NULL ? (unsigned)psc_clique_rank(w->clique) : 0);
    return rc;
}

int main(int argc, char **argv)
{
    struct worker w = {.kv = NULL};
    if (argc != 3 && argc != 5) {
        fprintf(stderr, "usage: %s sync|async|elastic SERVER [CLIQUE MEMBERS]\n", argv[0]);
        return 2;
    }
    int rc = join(&w, argv[2], argc == 5 ? argv[3] : NULL, argc == 5 ? atoi(argv[4]) : 1);
    if (rc == PSC_OK)
        rc = run(&w, argv[1]);
    if (rc == PSC_OK)
        rc = psc_workers_barrier(w.kv);
    if (rc == PSC_OK)
        printf("x: %.3f %.3f %.3f %.3f %+.3f\n", (double)w.x[0], (double)w.x[1], (double)w.x[2],
               (double)w.x[3], (double)w.x[4]);
    else
        fprintf(stderr, "%s: %s\n", psc_result_name(rc),
                w.kv != NULL       ? psc_error(w.kv)
                : w.clique != NULL ? psc_clique_error(w.clique)
                                   : "");
    psc_close(w.kv);
    psc_clique_close(w.clique);
    return rc != PSC_OK;
}
