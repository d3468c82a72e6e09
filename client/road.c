/* Where the server is, and what its Welcome says of the way to it. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/psc.h"

/* "@FILE" is read at every attempt: a restarted server may have another port. */
int psc_road_find(const struct psc *c, char *url, size_t size, struct ps_error *err)
{
    if (c->opt.server[0] != '@') {
        snprintf(url, size, "%s", c->opt.server);
        return 0;
    }
    FILE *f = fopen(c->opt.server + 1, "re");
    if (f == NULL)
        return ps_fail(err, -errno, "endpoint file '%s': %s", c->opt.server + 1, strerror(errno));
    bool got = fgets(url, (int)size, f) != NULL;
    fclose(f);
    url[strcspn(got ? url : "", "\r\n")] = 0;
    return got && url[0] != 0 ? 0
                              : ps_fail(err, -EINVAL, "endpoint file '%s' holds no URL", c->opt.server + 1);
}

static void copy_text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from);
}

/* Whether what the server said can be worked with. */
int psc_road_take(struct psc_road *r, const Ps__Welcome *w, struct ps_error *err)
{
    const Ps__Method *m = w->method;
    if (m == NULL || m->schedule == NULL || w->n_lanes < 1 || w->n_lanes > PS_MAX_LANES ||
        w->window_chunks < 1 || m->schedule->kind > PS_SCHEDULE_INV_SQRT || m->period < 1 ||
        w->incarnation == 0)
        return ps_fail(err, PSC_EUNSUPPORTED, "the server's Welcome is incomplete");
    *r = (struct psc_road){
        .client = w->client,
        .incarnation = w->incarnation,
        .generation = w->generation,
        .n_lanes = (uint32_t)w->n_lanes,
        .chunk_floats = w->chunk_floats,
        .window_chunks = w->window_chunks,
        .rho = m->rho,
        .hyper = {.learning_rate = m->learning_rate,
                  .alpha = m->alpha,
                  .rho = m->rho,
                  .period = m->period,
                  .momentum = m->momentum,
                  .weight_decay = m->weight_decay,
                  .overlap = m->overlap,
                  .schedule = {.kind = (enum ps_schedule_kind)m->schedule->kind,
                               .gamma = m->schedule->gamma,
                               .step_steps = m->schedule->step_steps > 0 ? m->schedule->step_steps : 1,
                               .warmup_steps = m->schedule->warmup_steps}},
    };
    copy_text(r->transport, sizeof r->transport, w->transport);
    copy_text(r->method, sizeof r->method, m->name);
    copy_text(r->rule, sizeof r->rule, m->rule);
    copy_text(r->optimizer, sizeof r->optimizer, m->optimizer);
    copy_text(r->averaging, sizeof r->averaging, m->averaging[0] != 0 ? m->averaging : "none");
    copy_text(r->admission, sizeof r->admission, m->admission);
    for (uint32_t i = 0; i < r->n_lanes; i++)
        copy_text(r->urls[i], sizeof r->urls[i], w->lanes[i]);
    if (ps_transport_find(r->transport) == NULL || ps_rule_find(r->rule) == NULL ||
        psc_optimizer_find(r->optimizer) == NULL)
        return ps_fail(err, PSC_EUNSUPPORTED,
                       "the server uses transport '%s', rule '%s', optimizer '%s'; this library lacks one",
                       r->transport, r->rule, r->optimizer);
    return 0;
}
