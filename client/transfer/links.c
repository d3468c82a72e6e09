/* Opens the data links: over the first transport in Welcome's list on which every lane accepts us, else over
 * the listener's. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/internal.h"
#include "client/transfer/internal.h"
#include "proto/clock.h"

enum { SETTLE_NAP_US = 100 };

bool psc_links_settle(struct psc *c)
{
    struct psc_links *l = &c->transfer_state.links;
    bool settled = true;
    for (uint32_t i = 0; i < PS_MAX_LANES; i++)
        if (l->link[i] != NULL && l->transport->link_settle != NULL &&
            l->transport->link_settle(l->link[i], &l->cut[i]) < 0)
            settled = false;
    return settled;
}

/* After a failed transfer: drops answers that no call waits for. */
static void drain(struct psc_links *l)
{
    struct ps_message m;
    for (uint32_t i = 0; i < PS_MAX_LANES; i++)
        while (l->link[i] != NULL && l->transport->link_recv(l->link[i], &m) == 0)
            l->transport->message_drop(&m);
}

/* False: a lane has begun to work in the vector and does not finish. */
static bool await_settled(struct psc *c)
{
    uint64_t end_ns = ps_now_ns() + PS_ATTACH_MS * UINT64_C(1000000);
    while (!psc_links_settle(c)) {
        drain(&c->transfer_state.links);
        if (ps_now_ns() >= end_ns)
            return psc_links_settle(c);
        ps_sleep_us(SETTLE_NAP_US);
    }
    return true;
}

static void close_hubs(struct psc_links *l)
{
    for (uint32_t i = 0; i < l->n_hubs; i++)
        l->hubs[i].transport->hub_destroy(l->hubs[i].hub);
    l->n_hubs = 0;
}

/* Gives the vector new memory. The lane may still write to the old memory, which is not read any more. */
static void part_from_vector(struct psc *c)
{
    struct ps_error err = {""};
    uintptr_t at = (uintptr_t)c->transfer_state.registered;
    close_hubs(&c->transfer_state.links); /* they have registered the old memory */
    for (uint32_t i = 0; i < PS_MAX_BUFFERS; i++) {
        struct ps_buffer *b = &c->buffers[i];
        bool holds = psc_has_buffer(c, i) && at >= (uintptr_t)b->base && at < (uintptr_t)b->base + b->bytes;
        if (holds && psc_stage_renew(c, b, &err) < 0)
            psc_session_say(&c->session, err.text);
    }
}

/* Lets a device read the link's messages. Where that is not possible they are copied. */
static void pin(struct psc *c, uint32_t lane)
{
    struct psc_links *l = &c->transfer_state.links;
    struct ps_error why;
    size_t bytes;
    void *base;
    if (c->memory.device == NULL || l->transport->link_memory == NULL)
        return;
    l->transport->link_memory(l->link[lane], &base, &bytes);
    if (c->memory.kind->pin(c->memory.device, base, bytes, &why) == 0)
        l->pinned[lane] = base;
}

static void close_link(struct psc *c, uint32_t lane)
{
    struct psc_links *l = &c->transfer_state.links;
    if (l->pinned[lane] != NULL)
        c->memory.kind->unpin_idle(c->memory.device, l->pinned[lane]);
    l->pinned[lane] = NULL;
    if (l->link[lane] != NULL)
        l->transport->link_close(l->link[lane]);
    l->link[lane] = NULL;
    l->cut[lane] = NULL;
}

void psc_links_close(struct psc *c)
{
    struct psc_links *l = &c->transfer_state.links;
    bool settled = await_settled(c);
    psc_stage_let_go(c);
    for (uint32_t i = 0; i < PS_MAX_LANES; i++)
        close_link(c, i);
    l->lost = l->leaving = l->new_welcome = false;
    if (!settled)
        part_from_vector(c);
}

void psc_links_finish(struct psc *c)
{
    struct psc_links *l = &c->transfer_state.links;
    psc_links_close(c);
    close_hubs(l);
}

/* Registers the worker's buffers. A transport that cannot register them copies, which is impossible only for
 * the memory of a device. */
static int register_buffers(struct psc *c, struct psc_hub *h, struct ps_error *err)
{
    const struct ps_transport *t = h->transport;
    for (uint32_t i = 0; i < PS_MAX_BUFFERS; i++) {
        const struct ps_buffer *b = &c->buffers[i];
        if (!psc_has_buffer(c, i) || (h->registered >> i & 1) != 0)
            continue;
        int rc = t->hub_register != NULL ? t->hub_register(h->hub, b, err) : -ENOTSUP;
        if (rc == -ENOTSUP && b->kind == PS_BUFFER_DEVICE)
            return ps_fail(err, rc, "transport %s does not reach a device's memory", t->name);
        if (rc < 0 && rc != -ENOTSUP)
            return rc;
        h->registered |= 1u << i;
    }
    return 0;
}

unsigned psc_links_registered(const struct psc *c)
{
    const struct psc_links *l = &c->transfer_state.links;
    for (uint32_t i = 0; i < l->n_hubs; i++)
        if (l->hubs[i].transport == l->transport)
            return l->hubs[i].registered;
    return 0;
}

static struct psc_hub *hub_of(struct psc *c, const struct ps_transport *t, struct ps_error *err)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_links *l = &ts->links;
    for (uint32_t i = 0; i < l->n_hubs; i++)
        if (l->hubs[i].transport == t)
            return &l->hubs[i];
    struct psc_hub *h = &l->hubs[l->n_hubs];
    uint32_t lanes = ps_shard_lanes_met(&ts->shard, ps_shard_whole(&ts->shard));
    if (l->n_hubs == PSC_MAX_TRANSPORT_OFFERS || t->hub_create(lanes, &h->hub) < 0) {
        ps_fail(err, 0, "no descriptors for the data connection");
        return NULL;
    }
    h->transport = t;
    h->registered = 0;
    l->n_hubs++;
    return h;
}

/* Opens a link to every lane that has a part of the vector. -errno with a sentence. */
static int open_offer(struct psc *c, const struct psc_transport_offer *offer, struct ps_error *err)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_links *l = &ts->links;
    const struct psc_welcome *welcome = &ts->welcome;
    struct ps_transport_limits limits = {.max_body_bytes =
                                             welcome->chunk_floats * sizeof(float) + PS_MAX_SENTENCE,
                                         .window_chunks = offer->window_chunks};
    struct psc_hub *h = hub_of(c, offer->transport, err);
    int rc = h != NULL ? register_buffers(c, h, err) : -ENOMEM;
    if (rc == 0 && offer->transport->hub_pass != NULL)
        offer->transport->hub_pass(h->hub, &welcome->pass);
    if (rc == 0 && welcome->server_key[0] != 0)
        offer->transport->hub_secure(h->hub, &c->session.proof.own, welcome->server_key);
    l->transport = offer->transport;
    l->window_chunks = offer->window_chunks;
    for (uint32_t i = 0; rc == 0 && i < welcome->n_lanes; i++)
        if (ts->progress[i].answered != NULL &&
            (rc = offer->transport->link_open(h->hub, offer->urls[i], &limits, &l->link[i], err)) == 0)
            pin(c, i);
    if (rc < 0)
        psc_links_close(c);
    return rc;
}

/* Reports the transport to the server, for its status pages. */
static void note_transport(struct psc *c, const char *transport, const char *why)
{
    struct psc_shared *s = &c->session.shared;
    pthread_mutex_lock(&s->lock);
    bool news = strcmp(s->transport, transport) != 0 || strcmp(s->transport_why, why) != 0;
    snprintf(s->transport, sizeof s->transport, "%s", transport);
    snprintf(s->transport_why, sizeof s->transport_why, "%s", why);
    s->beat_now = s->beat_now || news;
    pthread_mutex_unlock(&s->lock);
    if (news)
        psc_session_poke(&c->session);
}

static bool is_auto(const struct psc *c)
{
    return strcmp(c->transport, "auto") == 0;
}

static bool is_wanted(const struct psc *c, const struct psc_transport_offer *offer)
{
    return is_auto(c) || strcmp(c->transport, offer->transport->name) == 0;
}

static int refuse(struct psc *c, const char *why)
{
    const struct psc_welcome *welcome = &c->transfer_state.welcome;
    char list[80] = "";
    size_t used = 0;
    for (uint32_t k = 0; k < welcome->n_transport_offers && used < sizeof list; k++)
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", k > 0 ? ", " : "",
                                 welcome->transport_offers[k].transport->name);
    return ps_fail(&c->transfer_state.error, PSC_EUNSUPPORTED,
                   "options.transport is '%s'; the server offers %s%s%s", c->transport, list,
                   why[0] != 0 ? ": " : "", why);
}

/* Whether another attempt may succeed. While a server is down its lanes are, too. But if the server is alive
 * and its lanes were never reachable, they never will be: they are on another machine, or not for this user.
 */
static bool may_pass(struct psc *c, int rc)
{
    enum { BEATS = 2 }; /* the first may have been sent before */
    struct psc_links *l = &c->transfer_state.links;
    struct psc_shared *s = &c->session.shared;
    enum psc_remedy remedy = psc_remedy_of(rc);
    if (remedy != PSC_REMEDY_SERVER || l->worked)
        return remedy == PSC_REMEDY_SERVER || (remedy == PSC_REMEDY_TIME && (l->worked || rc == -ETIMEDOUT));
    pthread_mutex_lock(&s->lock);
    if (l->heard == 0)
        l->heard = s->heard;
    bool lives = s->heard >= l->heard + BEATS;
    s->beat_now = true;
    pthread_mutex_unlock(&s->lock);
    psc_session_poke(&c->session);
    return !lives;
}

static int open_none(struct psc *c, int rc, const char *why)
{
    struct psc_links *l = &c->transfer_state.links;
    if (why != l->why)
        snprintf(l->why, sizeof l->why, "%s", why);
    l->none = rc < 0 && may_pass(c, rc);
    if (l->none)
        return PSC_OK;
    return is_auto(c) ? ps_fail(&c->transfer_state.error, PSC_ESYSTEM, "no data connection: %s", why)
                      : refuse(c, why);
}

int psc_links_open(struct psc *c)
{
    struct psc_transfer_state *ts = &c->transfer_state;
    struct psc_links *l = &ts->links;
    const struct psc_welcome *welcome = &ts->welcome;
    struct ps_error err = {""};
    char why[160] = "";
    int last = 0;
    l->none = false;
    for (uint32_t k = 0; k < welcome->n_transport_offers; k++) {
        const struct psc_transport_offer *offer = &welcome->transport_offers[k];
        if (!is_wanted(c, offer) || (l->failed_offers >> k & 1) != 0)
            continue;
        int rc = open_offer(c, offer, &err);
        if (rc == 0) {
            note_transport(c, offer->transport->name, why[0] != 0 ? why : l->why);
            l->worked = true;
            return PSC_OK;
        }
        last = rc;
        snprintf(why, sizeof why, "%s: %.140s", offer->transport->name, err.text);
        if (is_auto(c) && k + 1 < welcome->n_transport_offers && rc != -ETIMEDOUT) {
            /* Fall back to the next transport; one that is only slow is tried again next time. */
            l->failed_offers |= 1u << k;
            snprintf(l->why, sizeof l->why, "%s", why);
        }
    }
    return open_none(c, last, why[0] != 0 ? why : l->why);
}
