#include "tests/nets/worker/fake_server.h"

#include "client/psclique_mpi.h"
#include "client/psclique_nccl.h"
#include "client/psclique_vectors.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "client/psclient.h"
#include "nets/worker/job/job.h"

struct fake_plan fake_plan;
struct fake_seen fake_seen;

struct psc {
    struct cnn_job *job;
    uint64_t clock;
    size_t n;
    float *center, *x;
    struct {
        float *x;
        const float *g;
        size_t n_samples, ready_from;
    } begun;
};

void psc_options_init_sized(struct psc_options *opt, size_t size, size_t tensor_size)
{
    *opt = (struct psc_options){.size = size, .rank = -1, .tensor_size = tensor_size};
}

void psc_local_init(struct psc_local *local, size_t size, const char *method)
{
    *local = (struct psc_local){.size = size, .method = method, .momentum = 0.9, .averaging_rate = 0.001};
}

int psc_open(const struct psc_options *opt, struct psc **out)
{
    fake_seen.kind = opt->kind;
    fake_seen.rank = opt->rank;
    if (opt->local != NULL)
        fake_seen.local = *opt->local;
    *out = calloc(1, sizeof **out);
    if (*out == NULL)
        return PSC_ENOMEM;
    (*out)->job = opt->go_on_arg;
    return fake_plan.open;
}

int psc_alloc(struct psc *c, size_t n_floats, float **x)
{
    *x = c->x = calloc(n_floats, sizeof **x);
    return c->x != NULL ? PSC_OK : PSC_ENOMEM;
}

int psc_begin(struct psc *c, const struct psc_tensor *tensors, size_t n_tensors, float *x)
{
    fake_seen.n_tensors = n_tensors;
    fake_seen.x_first = x[0];
    for (size_t i = 0; i < n_tensors; i++) {
        uint64_t n = 1;
        fake_seen.rates += tensors[i].rate;
        fake_seen.n_frozen += tensors[i].role == PSC_FROZEN;
        if (tensors[i].offset != c->n)
            return PSC_EINVAL;
        for (uint32_t d = 0; d < tensors[i].n_dims; d++)
            n *= tensors[i].shape[d];
        c->n += n;
    }
    c->center = malloc(c->n * sizeof *x);
    if (c->center == NULL)
        return PSC_ENOMEM;
    memcpy(c->center, x, c->n * sizeof *x);
    return fake_plan.begin;
}

/* As another process with the same --state does, at another time. */
static void take_file(const char *path)
{
    const struct timespec times[2] = {{.tv_sec = 1}, {.tv_sec = 1}};
    char other[128];
    snprintf(other, sizeof other, "%s.other", path);
    int fd = open(other, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    futimens(fd, times);
    close(fd);
    rename(other, path);
}

int psc_step(struct psc *c, float *x, const float *g, size_t n_samples)
{
    double squares = 0;
    for (size_t i = 0; i < c->n; i++)
        squares += (double)g[i] * (double)g[i];
    fake_seen.g_norm = fmax(fake_seen.g_norm, sqrt(squares));
    fake_seen.n_samples = n_samples;
    fake_seen.steps++;
    if (fake_seen.steps == fake_plan.raise_at)
        kill(getpid(), SIGTERM);
    if (fake_plan.taken != NULL && fake_seen.steps == fake_plan.ask_at + 1)
        take_file(fake_plan.taken);
    bool planned = fake_plan.step_from != 0 && fake_seen.steps >= fake_plan.step_from;
    if (planned && (fake_plan.step != PSC_DRAINED || fake_plan.error != NULL))
        return fake_plan.step;
    c->clock++;
    fake_seen.x_sum = 0;
    for (size_t i = 0; i < c->n; i++) {
        x[i] -= fake_plan.rate * g[i];
        fake_seen.x_sum += x[i];
    }
    return planned ? PSC_DRAINED : PSC_OK;
}

int psc_step_begin(struct psc *c, float *x, const float *g, size_t n_samples)
{
    c->begun.x = x;
    c->begun.g = g;
    c->begun.n_samples = n_samples;
    c->begun.ready_from = c->n;
    return PSC_OK;
}

/* From the last to the first. */
int psc_ready(struct psc *c, uint64_t first, uint64_t count)
{
    if (first + count != c->begun.ready_from)
        return PSC_EINVAL;
    c->begun.ready_from = first;
    return PSC_OK;
}

int psc_step_end(struct psc *c)
{
    return c->begun.ready_from == 0 ? psc_step(c, c->begun.x, c->begun.g, c->begun.n_samples) : PSC_EINVAL;
}

static void raise_and_wait(const struct psc *c)
{
    kill(getpid(), SIGTERM);
    while (!cnn_stop_wait(c->job->stop, 1))
        continue;
}

int psc_pull(struct psc *c, const char *tensor, float *x)
{
    (void)tensor;
    fake_seen.pulls++;
    if (fake_seen.pulls == fake_plan.raise_at_pull)
        raise_and_wait(c);
    if (fake_plan.moves)
        c->center[0] += 1;
    for (size_t i = 0; i < c->n; i++)
        x[i] = fake_plan.diverged ? NAN : c->center[i];
    return fake_plan.pull_from != 0 && fake_seen.pulls >= fake_plan.pull_from ? fake_plan.pull : PSC_OK;
}

int psc_pull_average(struct psc *c, const char *tensor, float *z)
{
    (void)tensor;
    fake_seen.averages++;
    memcpy(z, c->center, c->n * sizeof *z);
    return PSC_OK;
}

int psc_saved_version(struct psc *c, const char *path, uint64_t *center_version)
{
    (void)c;
    (void)path;
    *center_version = 0;
    return PSC_OK;
}

int psc_read(struct psc *c, float *host, const float *x, size_t n_floats)
{
    (void)c;
    memcpy(host, x, n_floats * sizeof *x);
    return PSC_OK;
}

int psc_write(struct psc *c, float *x, const float *host, size_t n_floats)
{
    (void)c;
    memcpy(x, host, n_floats * sizeof *x);
    return PSC_OK;
}

int psc_point(struct psc *c, float *x)
{
    fake_seen.points++;
    fake_seen.saves_before = fake_seen.saves;
    if (fake_seen.points == fake_plan.raise_at_pull)
        raise_and_wait(c);
    memcpy(x, c->center, c->n * sizeof *x);
    return PSC_OK;
}

int psc_wait(struct psc *c, uint64_t ticket)
{
    (void)c;
    (void)ticket;
    fake_seen.waits++;
    return PSC_OK;
}

int psc_save(struct psc *c, const char *path, const float *x, const void *extra, size_t extra_bytes)
{
    FILE *f = fopen(path, "we");
    fake_seen.saves++;
    if (f == NULL)
        return PSC_ESYSTEM;
    fwrite(x, sizeof *x, c->n, f);
    fwrite(extra, 1, extra_bytes, f);
    fclose(f);
    return PSC_OK;
}

int psc_load(struct psc *c, const char *path, float *x, void *extra, size_t room_bytes, size_t *extra_bytes)
{
    FILE *f = fopen(path, "re");
    fake_seen.loads++;
    if (f == NULL || fake_plan.load != PSC_OK || fread(x, sizeof *x, c->n, f) != c->n) {
        if (f != NULL)
            fclose(f);
        return fake_plan.load;
    }
    *extra_bytes = fread(extra, 1, room_bytes, f);
    fclose(f);
    return PSC_OK;
}

int psc_report(struct psc *c, const struct psc_metrics *m)
{
    (void)c;
    fake_seen.reports++;
    fake_seen.test_accuracy = m->test_accuracy;
    fake_seen.loss = m->loss;
    fake_seen.steps_wanted = m->steps;
    return PSC_OK;
}

int psc_size(const struct psc *c)
{
    (void)c;
    return 0; /* the others have left */
}

int psc_rank(const struct psc *c)
{
    (void)c;
    return fake_seen.kind == PSC_OBSERVER ? -1 : 0;
}

uint64_t psc_clock(const struct psc *c)
{
    return c->clock;
}

int psc_info(const struct psc *c, struct psc_info *info)
{
    *info = (struct psc_info){.size = info->size, .n_floats = c->n, .center_version = fake_seen.steps};
    snprintf(info->averaging, sizeof info->averaging, "%s",
             fake_plan.averaging != NULL ? fake_plan.averaging : "none");
    info->workers = fake_plan.workers > 0 ? fake_plan.workers : 1;
    if (fake_plan.joined > 0 && fake_seen.steps >= fake_plan.join_at)
        info->workers = fake_plan.joined;
    info->early = fake_plan.early;
    info->save_version = fake_plan.ask_at != 0 && fake_seen.steps >= fake_plan.ask_at ? fake_plan.ask_at : 0;
    return PSC_OK;
}

const char *psc_error(const struct psc *c)
{
    (void)c;
    return fake_plan.error != NULL ? fake_plan.error : "";
}

const char *psc_result_name(int result)
{
    (void)result;
    return "PSC_FAKE";
}

void psc_close(struct psc *c)
{
    fake_seen.closes++;
    if (c != NULL) {
        free(c->center);
        free(c->x);
    }
    free(c);
}

int psc_stop(struct psc *c)
{
    (void)c;
    return PSC_DRAINED;
}

/* There are no cliques here. */
void psc_ring_options_init(struct psc_ring_options *opt, size_t size)
{
    memset(opt, 0, size);
    opt->size = size;
}

int psc_ring_open(const struct psc_ring_options *opt, struct psc_clique **out)
{
    snprintf(fake_seen.rendezvous, sizeof fake_seen.rendezvous, "%s", opt->rendezvous);
    *out = NULL;
    return PSC_ENOMEM;
}

int psc_nccl_open(const struct psc_ring_options *opt, struct psc_clique **out)
{
    return psc_ring_open(opt, out);
}

void psc_threads_options_init(struct psc_threads_options *opt, size_t size)
{
    memset(opt, 0, size);
    opt->size = size;
}

int psc_threads_open(const struct psc_threads_options *opt, struct psc_clique **out)
{
    (void)opt;
    (void)out;
    return PSC_ENOMEM;
}

void psc_devices_options_init(struct psc_devices_options *opt, size_t size)
{
    memset(opt, 0, size);
    opt->size = size;
}

int psc_devices_open(struct psc_clique *q, const struct psc_devices_options *opt, struct psc_clique **out)
{
    (void)q;
    (void)opt;
    (void)out;
    return PSC_ENOMEM;
}

int psc_clique_rank(const struct psc_clique *q)
{
    (void)q;
    return 0;
}

int psc_clique_size(const struct psc_clique *q)
{
    (void)q;
    return 1;
}

const char *psc_clique_error(const struct psc_clique *q)
{
    (void)q;
    return "";
}

void psc_collective_options_init(struct psc_collective_options *opt, size_t size)
{
    *opt = (struct psc_collective_options){.size = size};
}

int psc_collective_run(struct psc_clique *q, const struct psc_collective_options *opt)
{
    (void)q;
    (void)opt;
    return PSC_ECLIQUE; /* the fake has no other members */
}

void psc_clique_close(struct psc_clique *q)
{
    (void)q;
}

void psc_mpi_options_init(struct psc_mpi_options *opt, size_t size)
{
    memset(opt, 0, size);
    opt->size = size;
}

int psc_mpi_world_open(const struct psc_mpi_options *opt, uint32_t members, struct psc_mpi_world **out)
{
    (void)opt;
    (void)members;
    *out = NULL;
    return PSC_ENOMEM;
}

struct psc_clique *psc_mpi_world_clique(const struct psc_mpi_world *w)
{
    (void)w;
    return NULL;
}

const char *psc_mpi_world_error(const struct psc_mpi_world *w)
{
    (void)w;
    return "";
}

void psc_mpi_world_close(struct psc_mpi_world *w)
{
    (void)w;
}
