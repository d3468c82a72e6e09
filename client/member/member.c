#include "client/internal.h"
#include "client/cliques/clique.h"
#include "client/member/member.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/member/leader_messages.h"
#include "proto/clock.h"
#include "proto/thread.h"

#define PATIENCE_S 0.2

static int fail(struct psc *c, int rc)
{
    return ps_fail(&c->error, rc, "%s", psc_clique_error(c->group.q));
}

/* A fact on which the members must agree, as the error names it. */
struct fact {
    char name[24], value[168];
};

enum { MAX_FACTS = 3 };

static int compare(struct psc *c, const struct fact *mine, const struct fact *theirs, size_t n, int root,
                   int differ)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&mine[i], &theirs[i], sizeof mine[i]) != 0)
            return ps_fail(&c->error, differ,
                           "the clique's members differ in %.24s: rank %d has %.168s, rank %d has %.168s",
                           mine[i].name, root, theirs[i].value, c->group.rank, mine[i].value);
    return PSC_OK;
}

/* Each member broadcasts its facts in turn, so that every member, rank 0 included, can name a member that
 * differs. differ: the result then. */
static int agree(struct psc *c, const struct fact *facts, size_t n, int differ)
{
    struct fact theirs[MAX_FACTS];
    int result = PSC_OK;
    for (int root = 0; root < c->group.size; root++) {
        memcpy(theirs, facts, n * sizeof *facts);
        int rc = psc_broadcast(c->group.q, theirs, n * sizeof *theirs, root);
        if (rc != PSC_OK)
            return fail(c, rc);
        if (result == PSC_OK)
            result = compare(c, facts, theirs, n, root, differ);
    }
    return result;
}

static void *keep(void *arg)
{
    struct psc *c = arg;
    struct psc_keeper *k = &c->group.keeper;
    pthread_mutex_lock(&k->lock);
    while (!k->stop) {
        ps_cond_wait_until(&k->changed, &k->lock, ps_ns_after(PATIENCE_S));
        if (!k->stop && k->busy && ps_now_s() - k->busy_since_s > PATIENCE_S)
            psc_leader_message_wait(c); /* the caller's thread will see the failure, too */
    }
    pthread_mutex_unlock(&k->lock);
    return NULL;
}

static int keeper_start(struct psc *c)
{
    struct psc_keeper *k = &c->group.keeper;
    pthread_mutex_init(&k->lock, NULL);
    ps_cond_init(&k->changed);
    int rc = ps_thread_create(&k->thread, keep, c);
    k->runs = rc == 0;
    if (k->runs)
        return PSC_OK;
    pthread_cond_destroy(&k->changed);
    pthread_mutex_destroy(&k->lock);
    return ps_fail(&c->error, PSC_ESYSTEM, "cannot start the clique's thread: %s", strerror(rc));
}

void psc_group_busy(struct psc *c)
{
    struct psc_keeper *k = &c->group.keeper;
    if (!k->runs)
        return;
    pthread_mutex_lock(&k->lock);
    k->busy = true;
    k->busy_since_s = ps_now_s();
    pthread_mutex_unlock(&k->lock);
}

void psc_group_idle(struct psc *c)
{
    struct psc_keeper *k = &c->group.keeper;
    if (!k->runs)
        return;
    pthread_mutex_lock(&k->lock);
    k->busy = false;
    pthread_mutex_unlock(&k->lock);
}

int psc_group_open(struct psc *c, struct psc_clique *q, const char *method)
{
    struct psc_group *p = &c->group;
    struct fact facts[2] = {{"library", PSD_VERSION}, {"method", "a server's"}};
    p->size = 1;
    if (q != NULL && !psc_clique_is_open(q))
        return ps_fail(&c->error, PSC_ECLIQUE, "options: the clique was not opened: %s", psc_clique_error(q));
    if (q == NULL || psc_clique_size(q) <= 1)
        return PSC_OK;
    if (c->opt.kind != PSC_WORKER)
        return ps_fail(&c->error, PSC_EINVAL, "options: an observer cannot be a member of a clique");
    p->q = q;
    p->rank = psc_clique_rank(q);
    p->size = psc_clique_size(q);
    p->follows = p->rank > 0 && method == NULL;
    if (method != NULL)
        snprintf(facts[1].value, sizeof facts[1].value, "%s", method);
    int rc = agree(c, facts, 2, PSC_ECLIQUE);
    return rc == PSC_OK && method == NULL && p->rank == 0 ? keeper_start(c) : rc;
}

void psc_group_close(struct psc *c)
{
    struct psc_keeper *k = &c->group.keeper;
    if (k->runs) {
        pthread_mutex_lock(&k->lock);
        k->stop = true;
        ps_cond_wake(&k->changed);
        pthread_mutex_unlock(&k->lock);
        pthread_join(k->thread, NULL);
        pthread_cond_destroy(&k->changed);
        pthread_mutex_destroy(&k->lock);
    }
    if (psc_sum_is_pending(&c->group) && c->group.q != NULL)
        psc_sum_await_newest(c);
    for (int i = 0; i < PSC_MAX_SUMS; i++)
        psc_group_free(c, c->group.pipeline[i]);
    psc_group_free(c, c->group.sum);
    psc_group_free(c, c->group.copy);
    psc_collectives_finish(c);
}

static uint64_t n_frozen(const struct ps_manifest *m)
{
    uint64_t n = 0;
    for (size_t i = 0; i < m->n_segments; i++)
        n += m->segments[i].role == PS_ROLE_FROZEN ? m->segments[i].range.count : 0;
    return n;
}

int psc_group_agree_on_model(struct psc *c, int rc)
{
    struct fact model = {.name = "model"};
    if (c->group.size == 1)
        return rc;
    if (rc == PSC_OK)
        snprintf(model.value, sizeof model.value,
                 "%" PRIu64 " floats, of these %" PRIu64 " frozen, hash %016" PRIx64, c->manifest->n_floats,
                 n_frozen(c->manifest), c->manifest->hash);
    else
        snprintf(model.value, sizeof model.value, "none: %.150s", c->error.text);
    int agreed = agree(c, &model, 1, PSC_ECLIQUE);
    return rc != PSC_OK ? rc : agreed;
}

int psc_group_agree_on_clock(struct psc *c)
{
    struct fact clock = {.name = "t"};
    if (c->group.size == 1)
        return PSC_OK;
    snprintf(clock.value, sizeof clock.value, "%" PRIu64, c->worker.clock);
    return agree(c, &clock, 1, PSC_EINVAL);
}

int psc_group_share_welcome(struct psc *c, int rc)
{
    struct psc_leader_message o;
    if (c->group.size == 1 || c->local)
        return rc;
    psc_leader_message_fill(c, &o, rc);
    if (!c->group.follows) {
        int sent = psc_leader_message_send(c, &o);
        if (sent == PSC_OK && rc >= 0)
            sent = psc_leader_message_send_welcome(c);
        return rc != PSC_OK ? rc : sent;
    }
    if ((rc = psc_leader_message_receive(c, &o)) < 0)
        return rc;
    int got = psc_leader_message_receive_welcome(c);
    return got == PSC_OK ? rc : got;
}

int psc_group_use_algorithm(struct psc *c)
{
    if (c->group.size == 1 || c->clique_algorithm[0] == 0)
        return PSC_OK;
    int rc = psc_clique_use(c->group.q, c->clique_algorithm);
    return rc == PSC_OK ? PSC_OK : fail(c, rc);
}

/* The first sum, of no values, shows before training whether every member has the codec. */
int psc_group_share_x(struct psc *c, float *x)
{
    if (c->group.size == 1)
        return PSC_OK;
    int rc = psc_group_broadcast(c, x, c->manifest->n_floats);
    return rc == PSC_OK ? psc_group_sum(c, PSC_ALLREDUCE, x, 0) : rc;
}

int psc_group_prepare(struct psc *c)
{
    struct psc_group *p = &c->group;
    bool leads = p->size > 1 && !c->rule->collective;
    bool copies = c->rule->collective && p->rank == 0 && !c->local;
    if (leads && p->sum == NULL)
        p->sum = psc_group_alloc(c);
    if (copies && p->copy == NULL)
        p->copy = psc_group_alloc(c);
    if ((leads && p->sum == NULL) || (copies && p->copy == NULL))
        return ps_fail(&c->error, PSC_ENOMEM, "no memory for the clique's vectors of %" PRIu64 " floats",
                       c->shard.n_floats);
    int rc = psc_collectives_prepare(c);
    return rc == PSC_OK && copies ? psc_async_start(c) : rc;
}

bool psc_group_sums_to_leader(const struct psc *c)
{
    return !c->rule->collective && c->optimizer == &psc_optimizer_none;
}
