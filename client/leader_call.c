/* The explicit calls in a clique: every member makes the same call, the leader sends for all, and what it
 * receives goes to the others. Where the rule takes gradients the leader sends their mean, weighted by
 * samples, as psc_step does; under rule sum their sum. Where it takes x, or moves of x, which members share,
 * it sends its own. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/internal.h"
#include "client/worker/worker.h"

enum { TEXT = 200 };

static int fail(struct psc *c, int rc)
{
    return ps_fail(&c->error, rc, "%s", psc_clique_error(c->group.q));
}

static int tell_of_others(struct psc *c, const char *what, float n_failed, float ranks)
{
    if (n_failed > 1)
        return ps_fail(&c->error, PSC_ECLIQUE,
                       "%s: %.0f members of the clique make another call, or failed in it: nothing was sent",
                       what, (double)n_failed);
    return ps_fail(&c->error, PSC_ECLIQUE,
                   "%s, at rank %d of the clique: rank %.0f makes another call, or failed in it: nothing was "
                   "sent",
                   what, c->group.rank, (double)ranks);
}

int psc_group_agree_on_call(struct psc *c, const char *what, int rc, float *samples)
{
    char first[TEXT] = "", mine[TEXT] = "";
    snprintf(mine, sizeof mine, "%s", what);
    memcpy(first, mine, sizeof first);
    int got = psc_broadcast(c->group.q, first, sizeof first, 0);
    if (got != PSC_OK)
        return fail(c, got);
    first[TEXT - 1] = 0;
    if (rc == PSC_OK && strcmp(first, mine) != 0)
        rc = ps_fail(
            &c->error, PSC_ECLIQUE,
            "the clique's members make different calls: rank 0 makes %s, rank %d %s: nothing was sent", first,
            c->group.rank, mine);
    float words[3] = {samples != NULL ? *samples : 0, rc < 0, rc < 0 ? (float)c->group.rank : 0};
    if ((got = psc_allreduce(c->group.q, words, 3, NULL)) != PSC_OK)
        return fail(c, got);
    if (samples != NULL)
        *samples = words[0];
    return rc < 0 || !(words[1] > 0) ? rc : tell_of_others(c, what, words[1], words[2]);
}

/* Whether the members' messages are added up. */
static bool adds_up(const struct psc *c, const struct psc_call *h)
{
    return psc_call_is_message(h) && c->rule_info->message == PS_MESSAGE_GRADIENT;
}

/* What the members' values of a role become: their mean, or under rule sum their sum. */
static bool is_mean(const struct psc *c, const struct ps_segment *s)
{
    return c->rule_info->half != PS_HALF_CALLER || s->role == PS_ROLE_BUFFER;
}

/* Multiplies the values that are to become a mean. */
static void scale_means(struct psc *c, struct ps_range r, float factor)
{
    psc_passes_begin(&c->work);
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r))
        if (is_mean(c, p.segment))
            psc_scale(&c->work, c->group.sum + p.range.begin, factor, p.range.count);
    psc_passes_end(&c->work);
}

static void put(struct psc *c, struct ps_range r, const float *message)
{
    psc_passes_begin(&c->work);
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); p.range.count > 0;
         p = ps_role_run_next(p, r)) {
        float *to = c->group.sum + p.range.begin;
        if (p.segment->role == PS_ROLE_FROZEN)
            psc_zero(&c->work, to, p.range.count);
        else
            psc_copy(&c->work, to, message + (p.range.begin - r.begin), p.range.count);
    }
    psc_passes_end(&c->work);
}

/* The leader's c->group.sum becomes what it sends of r. */
static int gather(struct psc *c, struct ps_range r, const struct psc_call *h, float samples)
{
    struct psc_group *p = &c->group;
    psc_unit_take(p, samples);
    struct ps_range part = psc_sum_part(c, r);
    put(c, r, h->send);
    scale_means(c, r, (float)h->n_samples * p->unit);
    int rc = psc_group_sum(c, PSC_REDUCE, p->sum + part.begin, part.count);
    if (rc == PSC_OK)
        scale_means(c, r, 1 / samples / p->unit);
    return rc;
}

/* Frozen values of an answer stay as they are. */
static int share_answer(struct psc *c, struct ps_range r, const struct psc_call *h)
{
    int rc = PSC_OK;
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); rc == PSC_OK && p.range.count > 0;
         p = ps_role_run_next(p, r))
        if (!psc_call_is_message(h) || p.segment->role != PS_ROLE_FROZEN)
            rc = psc_group_broadcast(c, h->answer + (p.range.begin - r.begin), p.range.count);
    return rc;
}

static int lead(struct psc *c, const struct psc_call *h, struct ps_range r, float samples)
{
    struct psc_call for_all = *h;
    uint32_t generation = c->generation;
    for_all.alone = true;
    if (adds_up(c, h)) {
        for_all.send = c->group.sum + r.begin;
        for_all.n_samples = (size_t)samples;
    }
    psc_group_busy(c);
    int rc = psc_call_alone(c, &for_all);
    psc_group_idle(c);
    return psc_group_give_result(c, rc, generation, c->worker.caller_x);
}

static int follow(struct psc *c)
{
    int rc = psc_group_take_result(c, c->worker.caller_x);
    psc_refresh(c);
    return rc;
}

static int check_samples(struct psc *c, const struct psc_call *h)
{
    return !psc_call_is_message(h) || h->n_samples > 0
               ? PSC_OK
               : ps_fail(
                     &c->error, PSC_EINVAL,
                     "%s: n_samples is 0; allowed in a clique are 1 and more: its mean is weighted by them",
                     h->call);
}

static void name_of(const struct psc_call *h, char *text, size_t size)
{
    if (h->tensor == NULL)
        snprintf(text, size, "%s of the whole vector", h->call);
    else
        snprintf(text, size, "%s of key '%.127s'", h->call, h->tensor);
}

int psc_group_call(struct psc *c, const struct psc_call *h)
{
    struct psc_transfer t = {.kind = 0};
    char what[TEXT];
    float samples = (float)h->n_samples;
    int rc = psc_call_make(c, h, &t);
    rc = rc == PSC_OK ? check_samples(c, h) : rc;
    if (psc_check_no_open_step(c, h->call) != PSC_OK ||
        psc_check_use(&c->session, h->call, &c->error) != PSC_OK)
        return rc; /* every member has a step begun, or this one makes no calls any more */
    name_of(h, what, sizeof what);
    if ((rc = psc_group_agree_on_call(c, what, rc, &samples)) != PSC_OK)
        return rc;
    struct ps_range r = psc_tensor_scope(c, t.tensor);
    if (adds_up(c, h) && (rc = gather(c, r, h, samples)) != PSC_OK)
        return rc;
    rc = c->group.follows ? follow(c) : lead(c, h, r, samples);
    int shared = rc >= 0 && h->answer != NULL ? share_answer(c, r, h) : PSC_OK;
    return shared == PSC_OK ? rc : shared;
}

/* The first values of r between frozen ones; count 0: there are none. */
static struct ps_range first_moving(const struct psc *c, struct ps_range r)
{
    struct ps_range found = {r.begin + r.count, 0};
    for (struct ps_role_run p = ps_role_run_first(c->manifest, r); r.count > 0 && p.range.count > 0;
         p = ps_role_run_next(p, r)) {
        bool moves = p.segment->role != PS_ROLE_FROZEN;
        if (!moves && found.count > 0)
            break;
        if (moves && found.count == 0)
            found.begin = p.range.begin;
        found.count += moves ? p.range.count : 0;
    }
    return found;
}

static struct ps_range next_moving(const struct psc *c, struct ps_range r, struct ps_range before)
{
    uint64_t end = before.begin + before.count;
    return first_moving(c, (struct ps_range){end, r.begin + r.count - end});
}

static int check_finite(struct psc *c, const struct psc_call *h, struct ps_range r)
{
    for (struct ps_range p = first_moving(c, r); p.count > 0; p = next_moving(c, r, p)) {
        uint64_t bad;
        int rc = psc_vector_search(c, h->send + (p.begin - r.begin), p.count, &bad);
        if (rc != PSC_OK)
            return rc;
        if (bad != UINT64_MAX)
            return ps_fail(&c->error, PSC_EVALUE,
                           "the message[%" PRIu64 "], in tensor '%s', is not finite: nothing was sent",
                           p.begin - r.begin + bad, ps_manifest_tensor(c->manifest, p.begin + bad)->name);
    }
    return PSC_OK;
}

static int check_local(struct psc *c, const struct psc_call *h, struct ps_range *r)
{
    int rc = psc_check_vectors(c, h->call, h->send, h->answer);
    if (rc != PSC_OK)
        return rc;
    const struct ps_tensor *tensor;
    if ((rc = psc_call_find_tensor(c, h, &tensor)) != PSC_OK)
        return rc;
    *r = psc_tensor_scope(c, tensor);
    if ((rc = psc_call_check_overlap(c, h, r->count)) != PSC_OK ||
        (rc = psc_call_check_moves(c, h, tensor)) != PSC_OK)
        return rc;
    return check_finite(c, h, *r);
}

int psc_local_check(struct psc *c, const struct psc_call *h)
{
    struct ps_range r;
    return check_local(c, h, &r);
}

int psc_local_pushpull(struct psc *c, const struct psc_call *h)
{
    struct ps_range r = {0, 0};
    char what[TEXT];
    int rc = psc_check_use(&c->session, h->call, &c->error);
    rc = rc == PSC_OK ? psc_check_no_open_step(c, h->call) : rc;
    if (rc != PSC_OK)
        return rc; /* of this member alone: see psc_group_call */
    rc = check_local(c, h, &r);
    name_of(h, what, sizeof what);
    if (c->begun && c->group.size > 1)
        rc = psc_group_agree_on_call(c, what, rc, NULL);
    if (rc != PSC_OK)
        return rc;
    c->error.text[0] = 0;
    for (struct ps_range p = first_moving(c, r); rc == PSC_OK && p.count > 0; p = next_moving(c, r, p)) {
        float *answer = h->answer + (p.begin - r.begin);
        psc_copy(&c->work, answer, h->send + (p.begin - r.begin), p.count);
        if (c->group.size > 1)
            rc = psc_group_sum(c, PSC_ALLREDUCE, answer, p.count);
    }
    return psc_work_end(c, rc);
}
