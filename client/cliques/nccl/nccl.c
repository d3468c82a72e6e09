/* nccl.c: a collective over NCCL, with a ring of sockets beneath.
 *
 * NCCL knows neither deadlines nor names: a call that one member does not make, or makes differently, hangs
 * all others. So a call has three steps, each with a deadline of its own. This member's values are waited
 * for. The members meet in the ring, as for a call that only compares. Then all enqueue the same call, and
 * each polls its own device, the communicator and the ring. What goes wrong in the last step aborts the
 * communicator, which ends the work on the device, and is told to the others over the ring.
 *
 * No member leaves the ring before all have ended their calls, so a connection that ends is a member that is
 * gone. */
#include "client/cliques/nccl/internal.h"

#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "client/session/errors.h"
#include "proto/clock.h"

/* A wait polls this often without sleeping: most are shorter than a nap. In that time it looks at the ring
 * less often. */
enum { POLLS = 200, POLLS_PER_LOOK = 16, NAP_US = 50 };

static void abort_comm(struct psc_nccl *s)
{
    if (s->comm != NULL)
        s->calls->abort(s->comm);
    s->comm = NULL;
}

static int fail_ring(struct psc_nccl *s, int rc, struct ps_error *err)
{
    abort_comm(s);
    return ps_fail(err, rc, "%s", psc_clique_error(s->ring));
}

int psc_nccl_fail(struct psc_nccl *s, const struct psc_collective *op, int rc, struct ps_error *err)
{
    abort_comm(s);
    if (psc_clique_look(s->ring, op, err->text) == PSC_ECLIQUE)
        ps_fail(err, rc, "%s", psc_clique_error(s->ring));
    return rc;
}

static int fail_late(struct psc_nccl *s, const struct psc_collective *op, const char *what, double limit_s,
                     struct ps_error *err)
{
    ps_fail(err, PSC_ECLIQUE, "%s over NCCL has not ended in %.1f s: it was aborted", what, limit_s);
    return psc_nccl_fail(s, op, PSC_ECLIQUE, err);
}

static bool is_given_up(struct psc_nccl *s)
{
    pthread_mutex_lock(&s->lock);
    bool given_up = s->given_up;
    pthread_mutex_unlock(&s->lock);
    return given_up;
}

int psc_nccl_wait(struct psc_nccl *s, const struct psc_collective *op, const char *what, struct ps_error *err)
{
    double begin_s = ps_now_s(), limit_s = s->timeout_ms * 1e-3;
    if (op->until_s > 0 && op->until_s - begin_s < limit_s)
        limit_s = op->until_s > begin_s ? op->until_s - begin_s : 0;
    for (uint32_t i = 0;; i++) {
        int rc = s->calls->advance(s->comm, err);
        if (rc != -EAGAIN)
            return rc == 0 ? PSC_OK : psc_nccl_fail(s, op, PSC_EDEVICE, err);
        if (is_given_up(s)) {
            ps_fail(err, PSC_ECLIQUE, "the clique was closed during a call");
            return psc_nccl_fail(s, op, PSC_ECLIQUE, err);
        }
        if ((i >= POLLS || i % POLLS_PER_LOOK == 0) && (rc = psc_clique_look(s->ring, op, NULL)) != PSC_OK)
            return fail_ring(s, rc, err);
        if (ps_now_s() - begin_s >= limit_s)
            return fail_late(s, op, what, limit_s, err);
        if (i < POLLS)
            sched_yield();
        else
            ps_sleep_us(NAP_US);
    }
}

/* By the ring: a call on memory of the host, or only the comparison. */
static int run_in_ring(struct psc_nccl *s, const struct psc_collective *op, struct ps_error *err)
{
    struct psc_task t = {.op = *op};
    int rc = psc_clique_run(s->ring, &t);
    return rc == PSC_OK ? PSC_OK : fail_ring(s, rc, err);
}

/* All members make this call, and their values are there. */
static int meet(struct psc_nccl *s, const struct psc_collective *op, struct ps_error *err)
{
    struct psc_collective same = *op;
    int rc = op->await != NULL ? op->await(op->await_arg, err) : PSC_OK;
    if (rc != PSC_OK)
        return psc_nccl_fail(s, op, rc, err);
    same.compares = true;
    return run_in_ring(s, &same, err);
}

static int run_on_device(struct psc_nccl *s, const struct psc_collective *op, struct ps_error *err)
{
    int rc = meet(s, op, err);
    if (rc != PSC_OK || op->n == 0)
        return rc;
    if (s->calls->enqueue(s->comm, op, err) != 0)
        return psc_nccl_fail(s, op, PSC_EDEVICE, err);
    return psc_nccl_wait(s, op, psc_call_name(op->kind), err);
}

static bool begin(struct psc_nccl *s)
{
    pthread_mutex_lock(&s->lock);
    s->calls_now = !s->given_up;
    bool begun = s->calls_now;
    pthread_mutex_unlock(&s->lock);
    return begun;
}

static void end(struct psc_nccl *s, int rc)
{
    pthread_mutex_lock(&s->lock);
    s->calls_now = false;
    s->broken = s->broken || rc != PSC_OK;
    pthread_mutex_unlock(&s->lock);
}

static int run(void *state, const struct psc_collective *op, struct ps_error *err)
{
    struct psc_nccl *s = state;
    if (!begin(s))
        return ps_fail(err, PSC_ECLIQUE, "the clique is being closed");
    int rc = op->on_device && !op->compares ? run_on_device(s, op, err) : run_in_ring(s, op, err);
    end(s, rc);
    return rc;
}

/* What NCCL does as psclique.h has it. Its minima and maxima treat NaN and -0 otherwise, and its sums of half
 * types round otherwise. */
static int check_values(const struct psc_collective *op, struct ps_error *err)
{
    bool halves = op->type == PSC_FLOAT16 || op->type == PSC_BFLOAT16;
    if (!psc_call_reduces(op->kind))
        return PSC_OK;
    if (op->operation != PSC_SUM)
        return ps_fail(err, PSC_EUNSUPPORTED, "%s: operation %s of a GPU's vector; allowed over nccl is sum",
                       psc_call_name(op->kind), psc_operation_name(op->operation));
    if (halves)
        return ps_fail(err, PSC_EUNSUPPORTED,
                       "%s: a sum of %s in a GPU's vector; allowed over nccl are float32, float64, int32 and "
                       "int64",
                       psc_call_name(op->kind), psc_values_of(op->type)->name);
    if (op->codec != NULL && strcmp(op->codec->name, "raw") != 0)
        return ps_fail(err, PSC_EUNSUPPORTED,
                       "%s: codec '%s'; NCCL sends values as they are: allowed over nccl is raw",
                       psc_call_name(op->kind), op->codec->name);
    return PSC_OK;
}

static int check_device(void *state, const struct psc_collective *op, struct ps_error *err)
{
    struct psc_nccl *s = state;
    int rc = check_values(op, err);
    if (rc != PSC_OK || op->n == 0)
        return rc;
    rc = s->calls->check(s->device, op, err);
    return rc == 0 ? PSC_OK : rc == -EINVAL ? PSC_EINVAL : PSC_EDEVICE;
}

/* A call in progress is abandoned; without one the ring is still needed to leave. */
static void give_up(void *state)
{
    struct psc_nccl *s = state;
    pthread_mutex_lock(&s->lock);
    bool interrupts = s->calls_now;
    s->given_up = true;
    s->broken = s->broken || interrupts;
    pthread_mutex_unlock(&s->lock);
    if (interrupts)
        psc_clique_give_up(s->ring);
}

/* All members leave together: whoever left before would look as if it had died. */
static int leave(struct psc_nccl *s)
{
    const struct psc_collective barrier = {.kind = PSC_BARRIER, .until_s = ps_now_s() + s->timeout_ms * 1e-3};
    struct psc_task t = {.op = barrier};
    struct ps_error err = {""};
    int rc = psc_clique_run(s->ring, &t);
    if (rc != PSC_OK || s->calls->finish(s->comm, &err) != 0)
        return PSC_ECLIQUE;
    double end_s = ps_now_s() + s->timeout_ms * 1e-3;
    while ((rc = s->calls->advance(s->comm, &err)) == -EAGAIN && ps_now_s() < end_s)
        ps_sleep_us(NAP_US);
    return rc == 0 ? PSC_OK : PSC_ECLIQUE;
}

void psc_nccl_destroy(struct psc_nccl *s)
{
    if (s->comm != NULL && !s->broken && leave(s) == PSC_OK) {
        s->calls->destroy(s->comm);
        s->comm = NULL;
    }
    abort_comm(s);
    psc_clique_close(s->ring);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

static void destroy(void *state)
{
    psc_nccl_destroy(state);
}

const struct psc_clique_ops psc_clique_nccl = {.size = sizeof(struct psc_clique_ops),
                                               .name = "nccl",
                                               .any_thread = true,
                                               .run = run,
                                               .check_device = check_device,
                                               .give_up = give_up,
                                               .destroy = destroy};
