/* A step of a clique whose members share x: the leader makes it, and the others follow. */

#include "client/internal.h"
#include "client/member/leader_messages.h"
#include "client/worker/worker.h"

static int broadcast(struct psc *c, float *v)
{
    return psc_group_broadcast(c, v, c->shard.n_floats);
}

/* A step moves no frozen value of x; a change of the method may take all of x from the center. */
static int broadcast_x(struct psc *c, const struct psc_leader_message *o, float *own)
{
    struct ps_range r = ps_shard_whole(&c->shard);
    if (!o->welcome_follows)
        r = ps_manifest_trim(c->manifest, r);
    return psc_group_broadcast(c, own + r.begin, r.count);
}

/* Sends the vectors that the leader's message announces. */
static int give(struct psc *c, struct psc_leader_message *o, float *x)
{
    int rc = psc_leader_message_send(c, o);
    if (rc == PSC_OK && o->mean_follows)
        rc = broadcast(c, c->group.sum);
    if (rc == PSC_OK && o->welcome_follows)
        rc = psc_leader_message_send_welcome(c);
    if (rc == PSC_OK && o->x_follows)
        rc = broadcast_x(c, o, psc_own_x(c, x));
    if (rc == PSC_OK && o->v_follows)
        rc = broadcast(c, c->worker.vectors[PSC_VECTOR_V]);
    return rc;
}

static void fill_own_step(const struct psc *c, struct psc_leader_message *o)
{
    const struct psc_own_step *own = &c->group.own_step;
    o->own_step = own->is_due;
    o->own_rate = own->rate;
    o->mean_follows = own->is_due && own->lacks_mean;
}

/* Whatever became of the step under it. A change that failed is tried again: the other members hear of it
 * then. */
static bool has_new_method(const struct psc *c, uint32_t generation)
{
    return c->generation != generation && !psc_change_has_failed(c);
}

/* Sends the message with what has changed since the last one. */
static int share(struct psc *c, struct psc_leader_message *o, float *x)
{
    o->welcome_follows = has_new_method(c, c->group.told_generation);
    o->x_follows = o->welcome_follows || (o->rc >= 0 && c->pulled);
    o->v_follows = o->welcome_follows && c->worker.vectors[PSC_VECTOR_V] != NULL;
    c->group.told_generation = c->generation;
    c->pulled = false;
    return give(c, o, x);
}

/* If the clique fails here, it does at the end of the step, too. */
void psc_group_own_step_begins(struct psc *c, float *x)
{
    struct psc_leader_message o;
    psc_group_idle(c);
    psc_leader_message_fill(c, &o, PSC_OK);
    o.own_step_next = true;
    fill_own_step(c, &o);
    c->group.own_step.is_due = false;
    share(c, &o, x);
    psc_group_busy(c);
}

/* After a vector that is not finite the next step restarts from where the caller continues. */
static void diverge(struct psc *c, int rc)
{
    c->worker.restart = c->worker.restart || rc == PSC_EVALUE;
}

static int lead(struct psc *c, float *x, int gathered)
{
    struct psc_leader_message o;
    uint64_t clock = c->worker.clock;
    int rc = gathered;
    c->pulled = false;
    c->group.told_generation = c->generation;
    c->group.own_step = (struct psc_own_step){.lacks_mean = psc_group_sums_to_leader(c)};
    psc_group_busy(c);
    if (rc == PSC_OK) {
        psc_gather_buffers(c, x, c->group.sum);
        rc = psc_step_alone(c, x, c->group.sum, c->group.n_samples);
    }
    psc_group_idle(c);
    psc_leader_message_fill(c, &o, rc);
    o.has_stepped = c->optimizer->step != NULL && c->worker.clock > clock;
    fill_own_step(c, &o);
    c->group.losses.step_rc = rc;
    int given = share(c, &o, x);
    diverge(c, rc);
    return given == PSC_OK ? rc : given;
}

int psc_group_adopt_method(struct psc *c)
{
    struct psc_welcome welcome;
    pthread_mutex_lock(&c->session.shared.lock);
    welcome = c->session.shared.welcome;
    pthread_mutex_unlock(&c->session.shared.lock);
    psc_take_method(c, &welcome);
    psc_vectors_drop_but(c, psc_vectors_of(c));
    return psc_step_prepare(c);
}

/* Changes to the leader's new method; the leader sends its vectors. */
static int take_method(struct psc *c)
{
    int rc = psc_leader_message_receive_welcome(c);
    return rc == PSC_OK ? psc_group_adopt_method(c) : rc;
}

static int take_vectors(struct psc *c, const struct psc_leader_message *o, float *x)
{
    int rc = PSC_OK;
    if (o->x_follows && (rc = broadcast_x(c, o, psc_own_x(c, x))) != PSC_OK)
        return rc;
    if (o->v_follows)
        rc = broadcast(c, c->worker.vectors[PSC_VECTOR_V]);
    if (rc == PSC_OK && o->x_follows)
        psc_own_lookahead(c, x, ps_shard_whole(&c->shard));
    return rc;
}

/* Takes what follows the leader's message. */
static int take(struct psc *c, const struct psc_leader_message *o, float *x)
{
    int rc = o->welcome_follows ? take_method(c) : PSC_OK;
    if (rc != PSC_OK)
        return rc;
    psc_own_x(c, x);
    c->worker.clock = o->clock;
    return take_vectors(c, o, x);
}

/* Under whichever method the leader makes it, and from the same x: the state of the program's optimizer
 * cannot be sent. */
static int follow_own_step(struct psc *c, float *x, const struct psc_leader_message *o)
{
    int rc = o->mean_follows ? broadcast(c, c->group.sum) : PSC_OK;
    if (rc == PSC_OK && o->own_step_next)
        rc = take(c, o, x);
    else if (rc == PSC_OK && o->own_step)
        psc_gather_buffers(c, x, c->group.sum);
    if (rc == PSC_OK && o->own_step)
        psc_external_step(c, x, c->group.sum, o->own_rate);
    return rc;
}

/* The leader's steps, repeated with the same mean, give the same bits. After a change of method the leader
 * sends its vectors instead. */
static int follow(struct psc *c, float *x, int gathered)
{
    struct psc_leader_message o = {.rc = PSC_OK};
    int rc = psc_leader_message_receive(c, &o), taken = PSC_OK;
    if (rc == o.rc && (taken = follow_own_step(c, x, &o)) != PSC_OK)
        return taken;
    if (rc == o.rc && o.own_step_next)
        rc = psc_leader_message_receive(c, &o);
    bool fails = rc < 0 || gathered < 0;
    if (rc != o.rc || (fails && !o.welcome_follows)) {
        diverge(c, rc);
        return rc;
    }
    psc_refresh(c);
    if (!o.welcome_follows && o.has_stepped) {
        psc_own_x(c, x);
        c->worker.clock = o.clock - 1;
        psc_gather_buffers(c, x, c->group.sum);
        psc_gradient_decay(c, x, c->group.sum);
        psc_own_step(c, x, c->group.sum);
    }
    taken = take(c, &o, x);
    diverge(c, rc);
    return taken == PSC_OK ? rc : taken;
}

int psc_group_step(struct psc *c, float *x)
{
    int rc = psc_sum_finish(c);
    if (rc != PSC_OK && rc != PSC_EVALUE)
        return rc;
    return c->group.follows ? follow(c, x, rc) : lead(c, x, rc);
}

/* Where the members share x every member has the center; else the leader pulls it. */
int psc_group_pull(struct psc *c, float *x)
{
    struct psc_leader_message o;
    int rc;
    if (c->rule->collective) {
        const float *center = c->rule->center(c, c->worker.caller_x);
        if (center != x)
            psc_copy(&c->work, x, center, c->shard.n_floats);
        if (x == c->worker.caller_x)
            psc_start_over(c);
        return PSC_OK;
    }
    if (c->group.follows) {
        if ((rc = psc_leader_message_receive(c, &o)) >= 0 && x == c->worker.caller_x)
            psc_start_over(c);
    } else {
        psc_group_busy(c);
        rc = psc_pull_alone(c, x);
        psc_group_idle(c);
        psc_leader_message_fill(c, &o, rc);
        int given = psc_leader_message_send(c, &o);
        rc = given == PSC_OK ? rc : given;
    }
    int got = rc >= 0 ? broadcast(c, x) : rc;
    return got < 0 ? got : rc;
}

int psc_group_give_result(struct psc *c, int rc, uint32_t generation, float *x)
{
    struct psc_leader_message o;
    psc_leader_message_fill(c, &o, rc);
    o.welcome_follows = o.x_follows = has_new_method(c, generation);
    o.v_follows = o.welcome_follows && c->worker.vectors[PSC_VECTOR_V] != NULL;
    int given = give(c, &o, x);
    return given == PSC_OK ? rc : given;
}

int psc_group_take_result(struct psc *c, float *x)
{
    struct psc_leader_message o = {.rc = PSC_OK};
    int rc = psc_leader_message_receive(c, &o), taken = PSC_OK;
    if (rc != o.rc)
        return rc; /* the clique has failed */
    if (o.welcome_follows && (taken = take_method(c)) != PSC_OK)
        return taken;
    c->worker.clock = o.clock;
    c->worker.next_key = o.next_key;
    taken = take_vectors(c, &o, x);
    return taken == PSC_OK ? rc : taken;
}
