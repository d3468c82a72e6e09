/* Parses and validates Welcome. */
#include "client/session/welcome.h"

#include <stdio.h>
#include <string.h>

#include "client/optimizers/optimizers.h"
#include "client/psclient.h"
#include "proto/model/fragment.h"
#include "proto/text.h"

static void copy_text(char *to, size_t size, const char *from)
{
    snprintf(to, size, "%s", from);
}

size_t psc_codec_names(char *names[PSC_MAX_CODECS])
{
    size_t n;
    const struct ps_codec *const *rows = ps_codec_rows(&n);
    n = n < PSC_MAX_CODECS ? n : PSC_MAX_CODECS;
    for (size_t i = 0; i < n; i++)
        names[i] = (char *)(uintptr_t)rows[i]->name;
    return n;
}

static bool take_codec(struct ps_codec *c, const char *name)
{
    return ps_codec_of(name[0] != 0 ? name : "raw", c) == NULL;
}

static int refuse_codecs(const Ps__Method *m, struct ps_error *err)
{
    char list[120] = "";
    size_t n;
    const struct ps_codec *const *rows = ps_codec_rows(&n);
    for (size_t i = 0; i < n; i++)
        ps_text_join(list, sizeof list, ", ", rows[i]->name);
    return ps_fail(err, PSC_EUNSUPPORTED,
                   "the server has codec.message '%.20s', codec.answer '%.20s'; this library has %s",
                   m->message_codec, m->answer_codec, list);
}

static void take_pass(struct psc_welcome *r, const Ps__Welcome *w)
{
    r->pass = (struct ps_pass){.client = w->client, .incarnation = w->incarnation};
    if (w->pass.len == sizeof r->pass.token)
        memcpy(r->pass.token, w->pass.data, w->pass.len);
}

/* Skips a transport that this library lacks, or that does not reach every lane. */
static bool take_transport_offer(struct psc_welcome *r, const char *transport, char *const *lanes,
                                 size_t n_lanes, uint32_t window)
{
    struct psc_transport_offer *offer = &r->transport_offers[r->n_transport_offers];
    const struct ps_transport *row = ps_transport_find(transport);
    if (row == NULL || r->n_transport_offers == PSC_MAX_TRANSPORT_OFFERS || n_lanes != r->n_lanes ||
        window < 1)
        return false;
    offer->transport = row;
    offer->window_chunks = window;
    for (uint32_t i = 0; i < r->n_lanes; i++)
        copy_text(offer->urls[i], sizeof offer->urls[i], lanes[i]);
    r->n_transport_offers++;
    return true;
}

/* The fields of the schedules that need more than the first three kinds. */
static bool take_schedule(struct ps_schedule *s, const Ps__Schedule *m)
{
    if (m->n_milestones > PS_MAX_MILESTONES || m->n_factors > PS_MAX_MILESTONES)
        return false;
    s->total_steps = m->total_steps;
    s->floor = m->floor;
    s->n_milestones = (uint32_t)m->n_milestones;
    s->n_factors = (uint32_t)m->n_factors;
    s->drops = m->drops < m->n_factors ? m->drops : (uint32_t)m->n_factors;
    for (uint32_t k = 0; k < s->n_milestones; k++)
        s->milestones[k] = m->milestones[k];
    for (uint32_t k = 0; k < s->n_factors; k++)
        s->factors[k] = m->factors[k];
    return ps_schedule_wants(s) == NULL;
}

/* The answer lands before the next exchange begins. */
static bool takes_overlap(const Ps__Method *m)
{
    return m->overlap_steps <= m->period || m->overlap_steps == PS_OVERLAP_AUTO;
}

static bool is_complete(const Ps__Welcome *w)
{
    const Ps__Method *m = w->method;
    return m != NULL && m->schedule != NULL && w->n_lanes >= 1 && w->n_lanes <= PS_MAX_LANES &&
           w->window_chunks >= 1 && m->schedule->kind < PS_N_SCHEDULES && m->period >= 1 &&
           w->incarnation != 0 && m->fragments <= PS_MAX_FRAGMENTS && m->fragments <= m->period &&
           takes_overlap(m) && w->tracks <= PS_MAX_TRACKS && w->parts <= PS_MAX_PARTS &&
           (w->parts <= 1 || w->n_lanes % w->parts == 0) && m->clique_mode <= PS_CLIQUE_VECTORS &&
           m->pipeline <= PS_MAX_PIPELINE && m->mix >= 0 && m->mix < 1;
}

static struct ps_hyper hyper_of(const Ps__Method *m)
{
    return (struct ps_hyper){
        .learning_rate = m->learning_rate,
        .alpha = m->alpha,
        .rho = m->rho,
        .period = m->period,
        .workers = m->workers,
        .momentum = m->momentum,
        .weight_decay = m->weight_decay,
        .overlap = m->overlap_steps > 0 ? m->overlap_steps
                   : m->overlap         ? 1u
                                        : 0u,
        .serial = m->serial,
        .dynamic_period = m->dynamic_period,
        .fragments = m->fragments > 1 ? m->fragments : 1,
        .mix = m->mix,
        .pipeline = m->pipeline > 1 ? m->pipeline : 1,
        .pipeline_warmup = m->pipeline_warmup,
        .pipeline_warmup_epochs = m->pipeline_warmup_epochs > 0 ? m->pipeline_warmup_epochs : 0,
        .schedule = {.kind = (enum ps_schedule_kind)m->schedule->kind,
                     .gamma = m->schedule->gamma,
                     .step_steps = m->schedule->step_steps > 0 ? m->schedule->step_steps : 1,
                     .warmup_steps = m->schedule->warmup_steps}};
}

int psc_welcome_take(struct psc_welcome *r, const Ps__Welcome *w, struct ps_error *err)
{
    const Ps__Method *m = w->method;
    if (!is_complete(w))
        return ps_fail(err, PSC_EUNSUPPORTED, "the server's Welcome is incomplete");
    if (w->clock > PS_MAX_STEPS)
        return ps_fail(err, PSC_EUNSUPPORTED,
                       "the server's Welcome has a clock of %llu steps; allowed are 0 to %llu",
                       (unsigned long long)w->clock, (unsigned long long)PS_MAX_STEPS);
    *r = (struct psc_welcome){
        .client = w->client,
        .incarnation = w->incarnation,
        .generation = w->generation,
        .n_lanes = (uint32_t)w->n_lanes,
        .n_parts = w->parts > 1 ? w->parts : 1,
        .chunk_floats = w->chunk_floats,
        .clique_mode = (enum ps_clique_mode)m->clique_mode,
        .publish = m->publish > 0 ? m->publish : 1,
        .bucket_floats = m->bucket_floats,
        .unsent_rate = m->unsent_rate > 0 ? m->unsent_rate : 1,
        .error_feedback = m->error_feedback,
        .shares_since = w->shares_since,
        .clock = w->clock,
        .takes_known = w->takes_known,
        .tracks = w->tracks > 1 ? w->tracks : 1,
        .run = w->run,
        .resumed_version = w->resumed_version,
        .hyper = hyper_of(m),
    };
    if (!take_schedule(&r->hyper.schedule, m->schedule))
        return ps_fail(err, PSC_EUNSUPPORTED, "the server's learning-rate schedule is not valid");
    if (!take_codec(&r->message, m->message_codec) || !take_codec(&r->answer, m->answer_codec))
        return refuse_codecs(m, err);
    copy_text(r->method, sizeof r->method, m->name);
    copy_text(r->rule, sizeof r->rule, m->rule);
    copy_text(r->optimizer, sizeof r->optimizer, m->optimizer);
    copy_text(r->averaging, sizeof r->averaging, m->averaging[0] != 0 ? m->averaging : "none");
    copy_text(r->admission, sizeof r->admission, m->admission);
    copy_text(r->clique_codec, sizeof r->clique_codec, m->clique_codec[0] != 0 ? m->clique_codec : "raw");
    copy_text(r->clique_algorithm, sizeof r->clique_algorithm, m->clique_algorithm);
    r->clique_shrinks = strcmp(m->clique_on_loss, "shrink") == 0;
    take_pass(r, w);
    for (size_t k = 0; k < w->n_roads; k++)
        take_transport_offer(r, w->roads[k]->transport, w->roads[k]->lanes, w->roads[k]->n_lanes,
                             w->roads[k]->window_chunks);
    bool reached = take_transport_offer(r, w->transport, w->lanes, w->n_lanes, w->window_chunks);
    if (!reached || ps_rule_find(r->rule) == NULL || psc_optimizer_find(r->optimizer) == NULL)
        return ps_fail(
            err, PSC_EUNSUPPORTED,
            "the server uses transport '%.20s', rule '%s', optimizer '%s'; this library lacks one of them",
            w->transport, r->rule, r->optimizer);
    return 0;
}
