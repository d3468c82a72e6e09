#include "client/internal.h"
#include "client/member/leader_messages.h"
#include "client/worker/worker.h"

#include <stdio.h>
#include <string.h>

static int fail(struct psc *c, int rc)
{
    return ps_fail(&c->error, rc, "%s", psc_clique_error(c->group.q));
}

void psc_leader_message_fill(struct psc *c, struct psc_leader_message *o, int rc)
{
    memset(o, 0, sizeof *o);
    o->rc = rc;
    o->clock = c->worker.clock;
    o->next_key = c->worker.next_key;
    pthread_mutex_lock(&c->session.shared.lock);
    c->group.workers = o->workers = c->session.shared.workers;
    o->save_version =
        c->rule != NULL && psc_has_prefetch(c) ? c->worker.save_version : c->session.shared.save_version;
    o->counts = c->session.shared.counts;
    pthread_mutex_unlock(&c->session.shared.lock);
    o->generation = c->generation;
    o->hyper = c->worker.hyper;
    c->group.drains = c->group.drains || rc == PSC_DRAINED;
    if (rc != PSC_OK)
        snprintf(o->sentence, sizeof o->sentence, "%.360s", c->error.text);
}

int psc_leader_message_send(struct psc *c, struct psc_leader_message *o)
{
    int rc = psc_broadcast(c->group.q, o, sizeof *o, 0);
    return rc == PSC_OK ? PSC_OK : fail(c, rc);
}

int psc_leader_message_wait(struct psc *c)
{
    struct psc_leader_message o;
    memset(&o, 0, sizeof o);
    o.rc = PSC_WAITING;
    return psc_broadcast(c->group.q, &o, sizeof o, 0);
}

int psc_leader_message_send_welcome(struct psc *c)
{
    struct psc_welcome welcome = c->taken; /* the method may have changed again since */
    welcome.hyper = c->worker.hyper;
    /* Transport offers and pass are the leader's own: other members cannot use its addresses. */
    memset(welcome.transport_offers, 0, sizeof welcome.transport_offers);
    welcome.n_transport_offers = 0;
    welcome.pass = (struct ps_pass){0};
    memset(&welcome.message, 0, sizeof welcome.message);
    memset(&welcome.answer, 0, sizeof welcome.answer);
    int rc = psc_broadcast(c->group.q, &welcome, sizeof welcome, 0);
    return rc == PSC_OK ? PSC_OK : fail(c, rc);
}

int psc_leader_message_receive(struct psc *c, struct psc_leader_message *o)
{
    do {
        int rc = psc_broadcast(c->group.q, o, sizeof *o, 0);
        if (rc != PSC_OK)
            return fail(c, rc);
    } while (o->rc == PSC_WAITING);
    pthread_mutex_lock(&c->session.shared.lock);
    c->group.workers = c->session.shared.workers = o->workers;
    c->session.shared.save_version = o->save_version;
    c->session.shared.counts = o->counts;
    c->session.shared.hyper = o->hyper;
    pthread_mutex_unlock(&c->session.shared.lock);
    c->group.drains = c->group.drains || o->rc == PSC_DRAINED;
    if (o->rc < 0 || o->sentence[0] != 0)
        ps_fail(&c->error, o->rc, "rank 0 of the clique: %.360s", o->sentence);
    else if (o->rc == PSC_DRAINED)
        c->error.text[0] = 0; /* it took effect */
    return o->rc;
}

/* From here on a member counts as joined. */
int psc_leader_message_receive_welcome(struct psc *c)
{
    struct psc_welcome welcome;
    int rc = psc_broadcast(c->group.q, &welcome, sizeof welcome, 0);
    if (rc != PSC_OK)
        return fail(c, rc);
    welcome.message = welcome.answer = *ps_codec_find(0); /* this member exchanges nothing */
    welcome.error_feedback = false;
    pthread_mutex_lock(&c->session.shared.lock);
    c->session.shared.welcome = welcome;
    c->session.shared.hyper = welcome.hyper;
    c->session.shared.epoch = 1;
    c->session.shared.state = PSC_STATE_JOINED;
    pthread_mutex_unlock(&c->session.shared.lock);
    return PSC_OK;
}
