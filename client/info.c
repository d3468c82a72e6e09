/* psc_info and the other getters. */
#include <stdio.h>
#include <string.h>

#include "client/internal.h"
#include "client/worker/worker.h"

int psc_rank(const struct psc *c)
{
    struct psc *open = (struct psc *)(uintptr_t)c;
    int rank = -1;
    if (psc_check_process(&open->session, "psc_rank", &open->error) != PSC_OK || !c->session.ready ||
        c->opt.kind != PSC_WORKER)
        return -1;
    pthread_mutex_lock(&open->session.shared.lock);
    if (c->session.shared.epoch > 0)
        rank = (int)c->session.shared.welcome.client;
    pthread_mutex_unlock(&open->session.shared.lock);
    return rank;
}

int psc_size(const struct psc *c)
{
    struct psc *open = (struct psc *)(uintptr_t)c;
    if (psc_check_process(&open->session, "psc_size", &open->error) != PSC_OK || !c->session.ready)
        return 0;
    pthread_mutex_lock(&open->session.shared.lock);
    int size = (int)c->session.shared.workers;
    pthread_mutex_unlock(&open->session.shared.lock);
    return size;
}

uint64_t psc_clock(const struct psc *c)
{
    return c->worker.clock;
}

/* With the lock held: the transport in use, or, before the first link, the one that always works. */
static const char *transport_of(const struct psc *c)
{
    const struct psc_welcome *r = &c->session.shared.welcome;
    if (c->session.shared.transport[0] != 0)
        return c->session.shared.transport;
    return r->n_transport_offers > 0 ? r->transport_offers[r->n_transport_offers - 1].transport->name
                                     : "none";
}

/* With the lock held. Members of a clique read it from the same message, so that all end after the same step.
 */
static uint32_t workers_of(const struct psc *c)
{
    uint32_t clients = c->group.size > 1 ? c->group.workers : c->session.shared.workers;
    if (c->worker.hyper.workers > 0)
        clients = c->worker.hyper.workers;
    return (clients > 0 ? clients : 1) * (uint32_t)(c->group.size > 1 ? c->group.size : 1);
}

int psc_info(const struct psc *c, struct psc_info *info)
{
    struct psc *open = (struct psc *)(uintptr_t)c;
    struct psc_info full;
    size_t size = info != NULL ? info->size : 0;
    int rc = psc_check_process(&open->session, "psc_info", &open->error);

    if (rc != PSC_OK)
        return rc;
    if (size < sizeof info->size || size > 65536)
        return ps_fail(&open->error, PSC_EINVAL,
                       "psc_info: set info->size to sizeof (struct psc_info) first");
    memset(&full, 0, sizeof full);
    if (c->session.ready) {
        pthread_mutex_lock(&open->session.shared.lock);
        const struct psc_welcome *r = &c->session.shared.welcome;
        const struct psc_counts *n = &c->session.shared.counts;
        full.exchanges = n->exchanges;
        full.retries = n->retries;
        full.bytes_sent = n->bytes_sent;
        full.bytes_received = n->bytes_received;
        full.center_version = n->center_version > c->session.shared.center_version
                                  ? n->center_version
                                  : c->session.shared.center_version;
        full.save_version = c->session.shared.save_version;
        if (c->rule != NULL && c->rule->collective)
            full.save_version = c->group.save_version;
        else if (c->rule != NULL && psc_has_prefetch(c))
            full.save_version = c->worker.save_version;
        full.workers = workers_of(c);
        full.reconnects = c->session.shared.reconnects;
        full.generation = r->generation;
        full.period = r->hyper.dynamic_period && c->worker.pacing.period > 0 ? c->worker.pacing.period
                                                                             : r->hyper.period;
        full.learning_rate =
            c->session.shared.epoch > 0
                ? ps_schedule_rate(&r->hyper.schedule, r->hyper.learning_rate, c->worker.clock)
                : 0;
        full.alpha = c->rule_info != NULL && (c->rule_info->uses & PS_USES_RATE) != 0 ? (double)n->rate : 0;
        snprintf(full.method, sizeof full.method, "%s", r->method);
        snprintf(full.optimizer, sizeof full.optimizer, "%s", r->optimizer);
        snprintf(full.averaging, sizeof full.averaging, "%s", r->averaging);
        snprintf(full.transport, sizeof full.transport, "%s", transport_of(open));
        pthread_mutex_unlock(&open->session.shared.lock);
    }
    if (c->local)
        full.center_version = c->worker.clock; /* without a server, only steps move x */
    full.early = c->begun && c->opt.kind == PSC_WORKER && psc_leaves_early(c);
    if (c->begun && psc_sums_gradients(c))
        full.bucket_floats = psc_gather_bucket(c);
    full.n_floats = c->shard.n_floats;
    full.exchange_seconds = c->worker.exchange_s;
    full.update_seconds = c->worker.update_s;
    memcpy(info, &full, size < sizeof full ? size : sizeof full);
    info->size = size;
    return PSC_OK;
}

const char *psc_error(const struct psc *c)
{
    return c != NULL ? c->error.text : "no memory for a handle";
}

const char *psc_result_name(int result)
{
    static const struct {
        int result;
        const char *name;
    } names[] = {
        {PSC_OK, "PSC_OK"},
        {PSC_DRAINED, "PSC_DRAINED"},
        {PSC_EINVAL, "PSC_EINVAL"},
        {PSC_ENOMEM, "PSC_ENOMEM"},
        {PSC_EGONE, "PSC_EGONE"},
        {PSC_EEVICTED, "PSC_EEVICTED"},
        {PSC_EVALUE, "PSC_EVALUE"},
        {PSC_EMANIFEST, "PSC_EMANIFEST"},
        {PSC_ERANK, "PSC_ERANK"},
        {PSC_EREFUSED, "PSC_EREFUSED"},
        {PSC_EUNSUPPORTED, "PSC_EUNSUPPORTED"},
        {PSC_ESYSTEM, "PSC_ESYSTEM"},
        {PSC_EDAMAGED, "PSC_EDAMAGED"},
        {PSC_ECLIQUE, "PSC_ECLIQUE"},
        {PSC_EAUTH, "PSC_EAUTH"},
        {PSC_EINTERRUPTED, "PSC_EINTERRUPTED"},
        {PSC_EDEVICE, "PSC_EDEVICE"},
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (names[i].result == result)
            return names[i].name;
    return "unknown result";
}
