#include "nets/worker/job/clique.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "client/psclique_mpi.h"
#include "client/psclique_nccl.h"

static int open_by(int (*open)(const struct psc_ring_options *, struct psc_clique **), const char *on_loss,
                   const struct cnn_worker_args *a, struct cnn_clique *out, struct ps_error *err)
{
    struct psc_ring_options opt;
    char meets[PATH_MAX + sizeof "psd:@"];
    psc_ring_options_init(&opt, sizeof opt);
    if (snprintf(meets, sizeof meets, "psd:%s", a->server != NULL ? a->server : "") >= (int)sizeof meets)
        return ps_fail(err, PSC_EINVAL, "--server: longer than %d bytes", PATH_MAX);
    opt.members = (uint32_t)a->members;
    opt.rank = (int32_t)a->member;
    opt.rendezvous = a->rendezvous != NULL ? a->rendezvous : meets;
    opt.name = a->clique_name;
    if (a->clique_listen != NULL)
        opt.listen = a->clique_listen;
    opt.links = (uint32_t)a->links;
    if (a->algorithm != NULL)
        opt.algorithm = a->algorithm;
    opt.on_loss = on_loss;
    opt.timeout_ms = (uint32_t)(a->clique_timeout_s * 1e3);
    opt.step_ms = (uint32_t)(a->clique_step_s * 1e3);
    opt.key_file = a->key;
    opt.server_key = a->server_key;
    int rc = open(&opt, &out->q);
    if (rc != PSC_OK)
        ps_fail(err, 0, "%s", out->q != NULL ? psc_clique_error(out->q) : "no memory for a clique");
    return rc;
}

static int open_ring(const struct cnn_worker_args *a, struct cnn_clique *out, struct ps_error *err)
{
    /* With a server its clique.on_loss decides, which is known when all are connected. */
    const char *on_loss = a->on_loss != NULL ? a->on_loss : a->server != NULL ? "shrink" : "end";
    return open_by(psc_ring_open, on_loss, a, out, err);
}

/* With the thread's GPU, as the backend. */
static int open_nccl(const struct cnn_worker_args *a, struct cnn_clique *out, struct ps_error *err)
{
    return open_by(psc_nccl_open, "end", a, out, err);
}

/* Splits the processes of mpirun into cliques of consecutive ranks. */
static int open_mpi(const struct cnn_worker_args *a, struct cnn_clique *out, struct ps_error *err)
{
    struct psc_mpi_options opt;
    psc_mpi_options_init(&opt, sizeof opt);
    opt.timeout_ms = (uint32_t)(a->clique_timeout_s * 1e3);
    int rc = psc_mpi_world_open(&opt, (uint32_t)a->members, &out->world);
    if (rc != PSC_OK)
        return ps_fail(err, rc, "%s",
                       out->world != NULL ? psc_mpi_world_error(out->world) : "no memory for a clique");
    out->q = psc_mpi_world_clique(out->world);
    return PSC_OK;
}

static const struct {
    const char *name;
    int (*open)(const struct cnn_worker_args *a, struct cnn_clique *out, struct ps_error *err);
    bool meets;     /* members find each other by the options; otherwise the launcher connects them */
    bool on_device; /* it sums vectors of a GPU, and no others */
} kinds[] = {{"ring", open_ring, .meets = true},
             {"mpi", open_mpi, .meets = false},
             {"nccl", open_nccl, .meets = true, .on_device = true}};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static int kind_of(const struct cnn_worker_args *a)
{
    for (int i = 0; i < N_KINDS; i++)
        if (strcmp(kinds[i].name, a->clique) == 0)
            return i;
    return -1;
}

bool cnn_clique_is_on_device(const struct cnn_worker_args *a)
{
    return a->clique != NULL && kind_of(a) >= 0 && kinds[kind_of(a)].on_device;
}

static int check_alone(const struct cnn_worker_args *a, struct ps_error *err)
{
    const struct {
        const char *name;
        bool given;
    } rows[] = {{"members", a->members != 0},
                {"member", a->member >= 0},
                {"rendezvous", a->rendezvous != NULL},
                {"clique-name", a->clique_name != NULL},
                {"clique-listen", a->clique_listen != NULL},
                {"links", a->links != 0},
                {"algorithm", a->algorithm != NULL},
                {"on-loss", a->on_loss != NULL},
                {"clique-timeout", a->clique_timeout_s != 0},
                {"clique-step", a->clique_step_s != 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given)
            return ps_fail(err, -EINVAL, "--%s: given without --clique; allowed: with it", rows[i].name);
    return 0;
}

static int check_meeting(const struct cnn_worker_args *a, bool meets, struct ps_error *err)
{
    const struct {
        const char *name;
        bool given;
    } rows[] = {{"member", a->member >= 0},
                {"rendezvous", a->rendezvous != NULL},
                {"clique-name", a->clique_name != NULL},
                {"clique-listen", a->clique_listen != NULL},
                {"links", a->links != 0},
                {"algorithm", a->algorithm != NULL},
                {"on-loss", a->on_loss != NULL},
                {"clique-step", a->clique_step_s != 0}};
    if (a->members == 0)
        return ps_fail(err, -EINVAL,
                       "--members: not given; allowed with --clique %s: a number from 1 to 1024", a->clique);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (rows[i].given && !meets)
            return ps_fail(
                err, -EINVAL,
                "--%s: given with --clique %s, which takes it from mpirun; allowed: with ring and nccl",
                rows[i].name, a->clique);
    if (a->member >= (int64_t)a->members)
        return ps_fail(err, -EINVAL, "--member: \"%lld\"; allowed: a number from 0 to %llu",
                       (long long)a->member, (unsigned long long)a->members - 1);
    if (meets && a->rendezvous == NULL && a->server == NULL)
        return ps_fail(err, -EINVAL,
                       "--rendezvous: not given; allowed: file:PATH, or psd:URL (the default with --server)");
    return 0;
}

int cnn_clique_check(const struct cnn_worker_args *a, struct ps_error *err)
{
    if (a->clique == NULL)
        return check_alone(a, err);
    int kind = kind_of(a);
    if (kind < 0)
        return ps_fail(err, -EINVAL, "--clique: \"%.60s\"; allowed: ring, mpi, nccl", a->clique);
    if (a->evaluate)
        return ps_fail(err, -EINVAL, "--clique: given with --evaluate; allowed: for training");
    if (a->algorithm != NULL && strcmp(a->algorithm, "ring") != 0 && strcmp(a->algorithm, "tree") != 0 &&
        strcmp(a->algorithm, "auto") != 0)
        return ps_fail(err, -EINVAL, "--algorithm: \"%.60s\"; allowed: ring, tree, auto", a->algorithm);
    if (a->algorithm != NULL && kinds[kind].on_device && strcmp(a->algorithm, "ring") != 0)
        return ps_fail(err, -EINVAL,
                       "--algorithm: \"%.60s\" with --clique %s, which has its own; allowed: ring",
                       a->algorithm, a->clique);
    if (a->on_loss != NULL && strcmp(a->on_loss, "end") != 0 && strcmp(a->on_loss, "shrink") != 0)
        return ps_fail(err, -EINVAL, "--on-loss: \"%.60s\"; allowed: end, shrink", a->on_loss);
    if (a->on_loss != NULL && strcmp(a->on_loss, "shrink") == 0 && a->devices != NULL)
        return ps_fail(err, -EINVAL, "--on-loss: shrink with --devices; allowed: end");
    if (a->on_loss != NULL && strcmp(a->on_loss, "shrink") == 0 && kinds[kind].on_device)
        return ps_fail(err, -EINVAL, "--on-loss: shrink with --clique %s; allowed: end", a->clique);
    return check_meeting(a, kinds[kind].meets, err);
}

int cnn_clique_open(const struct cnn_worker_args *a, struct cnn_clique *out, struct ps_error *err)
{
    *out = (struct cnn_clique){.q = NULL};
    return a->clique != NULL ? kinds[kind_of(a)].open(a, out, err) : PSC_OK;
}

void cnn_clique_close(struct cnn_clique *clique)
{
    if (clique->world != NULL)
        psc_mpi_world_close(clique->world);
    else
        psc_clique_close(clique->q);
}
