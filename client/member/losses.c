/* A clique continues after the loss of a member (clique.on_loss: shrink).
 *
 * A call of the clique has failed at every member. The remaining members form the clique anew. All of them
 * take the state of the leader where it makes the steps, else that of a member with the most steps. A member
 * that takes the result of the current step in this way has made the step. If no member has made it, all make
 * it again with the gradients of the remaining members; their mean is weighted by samples, as always.
 *
 * Sums in progress are dropped. In a pipeline of K these are the gradients of K - 1 steps, and the pipeline
 * fills anew. Where each member has its own x (rule allreduce_easgd) only the center is taken, or the sum
 * that will move it, from a member that has received the sum but not applied it yet.
 *
 * Only the leader has a session with the server. The others do not know whether its last exchange has landed,
 * so a clique that has lost its leader ends. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/cliques/clique.h"
#include "client/internal.h"
#include "client/member/leader_messages.h"
#include "client/worker/worker.h"
#include "proto/clock.h"

/* The part of a member's state that all members take from one. */
struct place {
    uint64_t clock, applied, exchanged, warmup_steps, save_version, bucket_floats;
    uint32_t knows_warmup, bucket_sums, generation, drains, landed;
    int32_t step_rc;
    float unit;
};

/* STEPS_OF_PATIENCE: the others wait for a member that computes as long as so many steps take. */
enum { STEPS_OF_PATIENCE = 4, MOST_IN_VAIN = 1, MOST_VECTORS = 3 };

static int fail(struct psc *c, int rc)
{
    return ps_fail(&c->error, rc, "%s", psc_clique_error(c->group.q));
}

/* Ends the clique at this member. */
static int end(struct psc *c)
{
    c->group.losses.shrinks = false;
    psc_clique_give_up(c->group.q);
    return PSC_ECLIQUE;
}

static bool is_led(const struct psc *c)
{
    return !c->rule->collective;
}

/* Whether all members have the same x between two steps. */
static bool shares_x(const struct psc *c)
{
    return is_led(c) || c->rule->begin != NULL;
}

int psc_losses_begin(struct psc *c)
{
    struct psc_group *p = &c->group;
    bool can = p->q != NULL && psc_clique_patience_ms(p->q) > 0;
    p->losses.shrinks = p->size > 1 && can && (c->local || c->clique_shrinks);
    if (p->size == 1 || can || !c->clique_shrinks)
        return PSC_OK;
    return ps_fail(
        &c->error, PSC_EUNSUPPORTED,
        "clique.on_loss: found shrink; this clique, over %s, ends with the loss of a member; allowed "
        "are end, and a ring whose own on_loss is shrink",
        psc_clique_kind(p->q));
}

void psc_losses_note_step(struct psc *c)
{
    struct psc_losses *l = &c->group.losses;
    double now = ps_now_s(), took = l->ended_s > 0 ? now - l->ended_s : 0;
    l->longest_s = took > 0.9 * l->longest_s ? took : 0.9 * l->longest_s;
    l->ended_s = now;
    l->in_vain = 0;
}

static uint32_t patience_ms(const struct psc *c)
{
    uint32_t least = psc_clique_patience_ms(c->group.q);
    double ms = STEPS_OF_PATIENCE * 1e3 * c->group.losses.longest_s;
    return ms < least ? least : ms < 1 << 30 ? (uint32_t)ms : 1 << 30;
}

/* Greater at a member that is further. A step may have several sums, of which some were applied. */
static uint64_t progress(const struct psc *c, const struct place *at)
{
    return shares_x(c) ? at->clock * 2 * PSC_MAX_SUMS + at->applied : at->exchanged * 2 + at->landed;
}

static struct place place_of(const struct psc *c)
{
    const struct psc_group *p = &c->group;
    struct place at;
    memset(&at, 0, sizeof at);
    at.clock = c->worker.clock;
    at.applied = p->losses.applied;
    at.exchanged = p->losses.exchanged;
    at.knows_warmup = p->knows_warmup;
    at.warmup_steps = p->warmup_steps;
    at.save_version = p->save_version;
    at.bucket_sums = p->bucket_choice.sums;
    at.bucket_floats = p->bucket_choice.floats;
    at.generation = c->generation;
    at.drains = p->drains;
    at.landed = !shares_x(c) && c->worker.prefetch->landed;
    at.step_rc = p->losses.step_rc;
    at.unit = p->unit;
    return at;
}

static void take_place(struct psc *c, const struct place *at)
{
    struct psc_group *p = &c->group;
    if (shares_x(c))
        c->worker.clock = at->clock;
    p->losses.applied = at->applied;
    p->losses.exchanged = at->exchanged;
    p->losses.step_rc = at->step_rc;
    p->knows_warmup = at->knows_warmup != 0;
    p->warmup_steps = at->warmup_steps;
    p->save_version = at->save_version;
    p->bucket_choice.sums = at->bucket_sums;
    p->bucket_choice.floats = at->bucket_floats;
    p->bucket_choice.now.n = 0;
    p->drains = at->drains != 0;
    p->unit = at->unit;
}

/* If a dropped sum carried a request to save, a later sum carries it again. */
static void drop_sums(struct psc_group *p)
{
    for (uint64_t k = p->sums_landed; k < p->sums_begun; k++)
        if (p->sums[k % PSC_MAX_SUMS].says_save)
            p->told_version = UINT64_MAX;
    p->sums_landed = p->sums_dropped = p->sums_begun;
}

static void take_ranks(struct psc *c)
{
    struct psc_group *p = &c->group;
    if (p->keeper.runs)
        pthread_mutex_lock(&p->keeper.lock);
    p->rank = psc_clique_rank(p->q);
    p->size = psc_clique_size(p->q);
    if (p->keeper.runs)
        pthread_mutex_unlock(&p->keeper.lock);
}

static int check_leader(struct psc *c)
{
    uint32_t has_session = !c->group.follows;
    if (c->local)
        return PSC_OK;
    int rc = psc_broadcast(c->group.q, &has_session, sizeof has_session, 0);
    if (rc != PSC_OK)
        return fail(c, rc);
    if (has_session != 0)
        return PSC_OK;
    ps_fail(&c->error, PSC_ECLIQUE,
            "rank 0 of the clique is lost, and with it the session with the server: only it knew whether its "
            "last "
            "exchange has landed, so the clique ends");
    return end(c);
}

/* The leader's method may have changed in the current step. */
static int share_method(struct psc *c, uint32_t generation)
{
    int rc = c->group.follows ? psc_leader_message_receive_welcome(c) : psc_leader_message_send_welcome(c);
    return rc == PSC_OK && c->generation != generation ? c->group.losses.adopt_method(c) : rc;
}

/* The vectors that a member takes from one whose state is `at`. An exchange that is under way moves the
 * leader's own x, and the x ahead of it only in the next step: both are taken as they are. */
static size_t list_vectors(struct psc *c, float *x, const struct place *at, float *list[MOST_VECTORS])
{
    size_t n = 0;
    if (psc_has_prefetch(c))
        psc_async_await(c, c->worker.prefetch->ticket);
    float *own = psc_own_x(c, x);
    list[n++] = shares_x(c) ? own : c->worker.vectors[at->landed ? PSC_VECTOR_PREFETCHED : PSC_VECTOR_START];
    if (shares_x(c) && c->worker.vectors[PSC_VECTOR_V] != NULL)
        list[n++] = c->worker.vectors[PSC_VECTOR_V];
    if (shares_x(c) && own != x)
        list[n++] = x;
    return n;
}

/* Moves the member's own x, too, by the sum that has moved `center`. */
static void take_center(struct psc *c, float *x, const float *center)
{
    float *own = psc_own_x(c, x), *was = c->worker.vectors[PSC_VECTOR_START];
    if (own != x)
        psc_copy_buffers(c, own, x);
    for (size_t i = 0; i < c->manifest->n_segments; i++) {
        const struct ps_segment *s = &c->manifest->segments[i];
        uint64_t at = s->range.begin;
        if (s->role != PS_ROLE_FROZEN)
            c->vec->elastic(own + at, was + at, (float)c->worker.hyper.alpha, s->range.count);
    }
    memcpy(was, center, c->shard.n_floats * sizeof *was);
    if (own != x)
        psc_copy_buffers(c, x, own);
    c->worker.prefetch->landed = false;
    c->group.losses.exchange_made = true;
}

static void take_vectors(struct psc *c, float *x, const struct place *at, float *const list[], size_t n,
                         const float *got)
{
    if (!shares_x(c) && !at->landed) {
        take_center(c, x, got);
        return;
    }
    for (size_t i = 0; i < n; i++)
        memcpy(list[i], got + i * c->shard.n_floats, c->shard.n_floats * sizeof *got);
    if (!shares_x(c))
        c->worker.prefetch->landed = true;
}

/* Takes the vectors only when all have arrived, because the source may be lost meanwhile. */
static int share_vectors(struct psc *c, float *x, const struct place *at, uint32_t source, bool takes)
{
    struct psc_group *p = &c->group;
    float *list[MOST_VECTORS], *got = NULL;
    size_t n = list_vectors(c, x, at, list), bytes = c->shard.n_floats * sizeof *got;
    bool gives = p->rank == (int)source;
    int rc = PSC_OK;
    if (!gives && (got = malloc(n * bytes)) == NULL)
        return ps_fail(&c->error, PSC_ENOMEM, "no memory to take the vectors of rank %u of the clique",
                       source);
    for (size_t i = 0; i < n && rc == PSC_OK; i++)
        rc = psc_broadcast(p->q, gives ? list[i] : got + i * c->shard.n_floats, bytes, (int)source);
    if (rc == PSC_OK && takes && !gives)
        take_vectors(c, x, at, list, n, got);
    free(got);
    return rc == PSC_OK ? PSC_OK : fail(c, rc);
}

/* All members are connected: brings them to one state. */
static int agree(struct psc *c, float *x, const struct psc_shrunk *left)
{
    struct place mine = place_of(c), at = mine;
    int rc = check_leader(c);
    if (rc == PSC_OK)
        rc = psc_group_use_algorithm(c);
    if (rc == PSC_OK && (rc = psc_broadcast(c->group.q, &at, sizeof at, (int)left->source)) != PSC_OK)
        return fail(c, rc);
    if (rc == PSC_OK && is_led(c))
        rc = share_method(c, at.generation);
    if (rc == PSC_OK && (is_led(c) || left->behind > 0))
        rc = share_vectors(c, x, &at, left->source, is_led(c) || progress(c, &at) > progress(c, &mine));
    if (rc == PSC_OK)
        take_place(c, &at);
    return rc;
}

static void tell(struct psc *c, uint32_t lost)
{
    char text[160];
    struct psc_shared *s = &c->session.shared;
    snprintf(text, sizeof text,
             "the clique has lost %" PRIu32 " of its members; %d %s on, after step %" PRIu64, lost,
             c->group.size, c->group.size > 1 ? "go" : "goes", c->worker.clock);
    if (lost > 0)
        psc_session_say(&c->session, text);
    if (c->local || c->group.follows || lost == 0)
        return;
    c->session.members_left = (uint32_t)c->group.size;
    pthread_mutex_lock(&s->lock);
    s->beat_now = true;
    pthread_mutex_unlock(&s->lock);
    psc_session_poke(&c->session);
}

int psc_losses_go_on(struct psc *c, float *x)
{
    struct psc_group *p = &c->group;
    struct ps_error why = c->error;
    uint32_t lost = 0;
    int rc;
    do {
        struct psc_shrunk left = {0};
        struct place at = place_of(c);
        rc = psc_clique_shrink(p->q, progress(c, &at), patience_ms(c), &left);
        if (rc == PSC_EINVAL) { /* no call of the clique has failed: the members disagree */
            c->error = why;
            return end(c);
        }
        if (rc != PSC_OK) {
            fail(c, rc);
            return end(c);
        }
        p->losses.formed++;
        drop_sums(p);
        take_ranks(c);
        lost += left.lost;
        rc = agree(c, x, &left);
    } while (psc_losses_may_go_on(p, rc));
    if (rc != PSC_OK)
        return rc;
    tell(c, lost);
    p->losses.in_vain = lost > 0 ? 0 : p->losses.in_vain + 1;
    if (p->losses.in_vain <= MOST_IN_VAIN)
        return PSC_OK;
    c->error = why; /* no member is missing: the call would fail again */
    return end(c);
}

int psc_losses_retry(struct psc *c, float *x, int (*call)(struct psc *c, float *x))
{
    int rc = call(c, x);
    while (psc_losses_may_go_on(&c->group, rc)) {
        rc = psc_losses_go_on(c, x);
        if (rc != PSC_OK ||
            c->group.losses.in_vain > 0) /* the others make another step, without this member */
            break;
        rc = call(c, x);
    }
    return rc;
}

int psc_losses_leave(struct psc *c)
{
    if (!c->group.losses.shrinks || c->group.size == 1)
        return PSC_OK;
    int rc = psc_barrier(c->group.q);
    return rc == PSC_OK ? PSC_OK : fail(c, rc);
}
