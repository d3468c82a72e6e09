/* open.c: opens a clique over NCCL: the module, the ring, the unique id, the communicator. */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/cliques/nccl/internal.h"
#include "client/memory/memory.h"
#include "client/psclique_nccl.h"
#include "client/session/errors.h"

/* While the communicator is made: named in errors. */
static const struct psc_collective opening = {.kind = PSC_BARRIER};

static int find_calls(const struct psc_nccl_calls **out, struct ps_error *err)
{
    void *library = psc_module_load(PSC_NCCL_LIBRARY);
    if (library == NULL)
        return ps_fail(err, PSC_EUNSUPPORTED,
                       "a clique over nccl needs " PSC_NCCL_LIBRARY
                       ", which is built if CUDA and NCCL are installed: %.250s",
                       dlerror());
    const struct psc_nccl_module *found = dlsym(library, PSC_NCCL_SYMBOL);
    if (found == NULL || strcmp(found->version, PSD_VERSION) != 0 ||
        found->calls_bytes != sizeof found->calls)
        return ps_fail(err, PSC_EUNSUPPORTED,
                       PSC_NCCL_LIBRARY " is of another build than this libpsclient, which is " PSD_VERSION);
    *out = &found->calls;
    return PSC_OK;
}

static int check_options(const struct psc_ring_options *given, struct psc_ring_options *opt,
                         struct ps_error *err)
{
    psc_ring_options_init(opt, sizeof *opt);
    if (given == NULL || given->size < offsetof(struct psc_ring_options, name) || given->size > 4096)
        return ps_fail(err, PSC_EINVAL, "nccl: call psc_ring_options_init first");
    int rc = psc_take_struct(opt, sizeof *opt, given, given->size, "nccl", err);
    if (rc != PSC_OK)
        return rc;
    opt->size = sizeof *opt;
    if (opt->algorithm == NULL || strcmp(opt->algorithm, "ring") != 0)
        return ps_fail(err, PSC_EINVAL, "nccl: algorithm is '%.32s'; NCCL has its own; allowed is ring",
                       opt->algorithm != NULL ? opt->algorithm : "");
    if (opt->on_loss == NULL || strcmp(opt->on_loss, "end") != 0)
        return ps_fail(err, PSC_EINVAL,
                       "nccl: on_loss is '%.32s'; a clique over nccl cannot shrink; allowed is end",
                       opt->on_loss != NULL ? opt->on_loss : "");
    return PSC_OK;
}

/* What member 0 sends to all. */
struct id_message {
    int32_t rc;
    struct psc_nccl_id id;
    char sentence[200];
};

static int share_id(struct psc_nccl *s, struct psc_nccl_id *id, struct ps_error *err)
{
    struct id_message m;
    memset(&m, 0, sizeof m);
    if (psc_clique_rank(s->ring) == 0 && (m.rc = s->calls->make_id(&m.id, err)) != 0)
        memcpy(m.sentence, err->text, sizeof m.sentence - 1);
    int rc = psc_broadcast(s->ring, &m, sizeof m, 0);
    if (rc != PSC_OK)
        return ps_fail(err, rc, "%s", psc_clique_error(s->ring));
    m.sentence[sizeof m.sentence - 1] = 0;
    if (m.rc != 0)
        return ps_fail(err, PSC_EDEVICE, "rank 0: %s", m.sentence);
    *id = m.id;
    return PSC_OK;
}

static int result_of(int rc)
{
    return rc == -ENOTSUP ? PSC_EUNSUPPORTED : rc == -ENOMEM ? PSC_ENOMEM : PSC_EDEVICE;
}

/* A member that fails tells the others, which wait for it. */
static int connect_members(struct psc_nccl *s, struct ps_error *err)
{
    struct psc_nccl_id id;
    int rc = share_id(s, &id, err);
    if (rc != PSC_OK)
        return rc;
    rc = s->calls->begin(&id, psc_clique_rank(s->ring), psc_clique_size(s->ring), &s->comm, &s->device, err);
    return rc == 0 ? psc_nccl_wait(s, &opening, "connecting", err)
                   : psc_nccl_fail(s, &opening, result_of(rc), err);
}

static struct psc_nccl *create(const struct psc_nccl_calls *calls, const struct psc_ring_options *opt)
{
    struct psc_nccl *s = calloc(1, sizeof *s);
    if (s == NULL)
        return NULL;
    s->calls = calls;
    s->timeout_ms = opt->timeout_ms;
    pthread_mutex_init(&s->lock, NULL);
    return s;
}

static int open_nccl(const struct psc_ring_options *given, struct psc_clique **out, struct ps_error *err)
{
    struct psc_ring_options opt;
    const struct psc_nccl_calls *calls = NULL;
    int rc = check_options(given, &opt, err);
    if (rc != PSC_OK || (rc = find_calls(&calls, err)) != PSC_OK)
        return rc;
    struct psc_nccl *s = create(calls, &opt);
    if (s == NULL)
        return ps_fail(err, PSC_ENOMEM, "no memory for a clique over nccl");
    if ((rc = psc_ring_open(&opt, &s->ring)) != PSC_OK)
        ps_fail(err, rc, "%s", psc_clique_error(s->ring));
    else
        rc = connect_members(s, err);
    if (rc == PSC_OK)
        return psc_clique_create(&psc_clique_nccl, s, psc_clique_rank(s->ring), psc_clique_size(s->ring),
                                 out);
    s->broken = true;
    psc_nccl_destroy(s);
    return rc;
}

int psc_nccl_open(const struct psc_ring_options *opt, struct psc_clique **out)
{
    struct ps_error err = {""};
    *out = NULL;
    int rc = open_nccl(opt, out, &err);
    if (rc != PSC_OK && *out == NULL)
        *out = psc_clique_failed(&err);
    return rc;
}
