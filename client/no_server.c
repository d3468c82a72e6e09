/* A handle without a server: p = 1, for the methods whose row in ps_methods has no rule. The options take the
 * place of Welcome; apart from transfers everything is as with a server. */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "client/internal.h"
#include "proto/codecs/codec.h"
#include "proto/text.h"

void psc_local_init(struct psc_local *local, size_t size, const char *method)
{
    const struct psc_local defaults = {.size = size,
                                       .method = method,
                                       .learning_rate = 0.05,
                                       .momentum = 0.9,
                                       .averaging_rate = 0.001,
                                       .schedule = "constant",
                                       .gamma = 0.1,
                                       .step_steps = 10000,
                                       .codec = "raw",
                                       .pipeline = 2,
                                       .total_steps = 10000};
    memset(local, 0, size);
    memcpy(local, &defaults, size < sizeof defaults ? size : sizeof defaults);
}

static bool is_of_clique(const struct ps_method *m)
{
    return m->rule != NULL && ps_rule_find(m->rule)->in_clique;
}

static bool needs_server(const struct ps_method *m)
{
    return m->rule != NULL && !is_of_clique(m);
}

static int check_method(struct psc *c, const struct psc_local *l)
{
    char allowed[128] = "";
    const struct ps_method *m = l->method != NULL ? ps_method_find(l->method) : NULL;
    if (m != NULL && !needs_server(m))
        return PSC_OK;
    for (m = ps_methods; m->name != NULL; m++)
        if (!needs_server(m))
            ps_text_join(allowed, sizeof allowed, ", ", m->name);
    return ps_fail(&c->error, PSC_EINVAL, "local: method '%.60s' needs a server; allowed without one: %s",
                   l->method != NULL ? l->method : "", allowed);
}

static int check_numbers(struct psc *c, const struct psc_local *l)
{
    const struct {
        const char *name, *allowed;
        double value;
        bool fine;
    } rows[] = {
        {"learning_rate", "above 0, at most 1000", l->learning_rate,
         l->learning_rate > 0 && l->learning_rate <= 1000},
        {"momentum", "0 to below 1", l->momentum, l->momentum >= 0 && l->momentum < 1},
        {"averaging_rate", "above 0, at most 1", l->averaging_rate,
         l->averaging_rate > 0 && l->averaging_rate <= 1},
        {"weight_decay", "0 to 1", l->weight_decay, l->weight_decay >= 0 && l->weight_decay <= 1},
        {"gamma", "0 to 1000", l->gamma, l->gamma >= 0 && l->gamma <= 1000},
        {"step_steps", "at least 1", (double)l->step_steps, l->step_steps >= 1},
        {"pipeline", "1 to 16", l->pipeline, l->pipeline >= 1 && l->pipeline <= PS_MAX_PIPELINE},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!rows[i].fine)
            return ps_fail(&c->error, PSC_EINVAL, "local: %s %g; allowed: %s", rows[i].name, rows[i].value,
                           rows[i].allowed);
    return PSC_OK;
}

static struct ps_schedule schedule_of(const struct psc_local *l)
{
    struct ps_schedule s = {.kind = (enum ps_schedule_kind)ps_schedule_parse(l->schedule),
                            .gamma = l->gamma,
                            .step_steps = l->step_steps,
                            .warmup_steps = l->warmup_steps,
                            .total_steps = l->total_steps,
                            .floor = l->floor,
                            .n_milestones = l->n_milestones,
                            .factors = {l->gamma},
                            .n_factors = 1};
    for (uint32_t k = 0; k < l->n_milestones; k++)
        s.milestones[k] = l->milestones[k];
    return s;
}

/* The schedule `plateau` needs a server, which lowers the rate. */
static int check_schedule(struct psc *c, const struct psc_local *l)
{
    int kind = l->schedule != NULL ? ps_schedule_parse(l->schedule) : -EINVAL;
    if (kind < 0 || kind == PS_SCHEDULE_PLATEAU)
        return ps_fail(&c->error, PSC_EINVAL,
                       "local: schedule '%.60s'%s; allowed: constant, step, inv-sqrt, cosine, multi-step",
                       l->schedule != NULL ? l->schedule : "", kind < 0 ? "" : " needs a server");
    if (l->n_milestones > PSC_MAX_MILESTONES)
        return ps_fail(&c->error, PSC_EINVAL, "local: n_milestones %u; allowed: at most %d", l->n_milestones,
                       PSC_MAX_MILESTONES);
    struct ps_schedule s = schedule_of(l);
    const char *wants = ps_schedule_wants(&s);
    return wants == NULL
               ? PSC_OK
               : ps_fail(&c->error, PSC_EINVAL, "local: schedule %s; allowed: %s", l->schedule, wants);
}

static int check_clique(struct psc *c, const struct psc_local *l, const struct psc_clique *clique)
{
    const struct ps_method *m = ps_method_find(l->method);
    char known[96];
    if (clique != NULL && psc_clique_size(clique) > 1 && !is_of_clique(m))
        return ps_fail(&c->error, PSC_EINVAL,
                       "local: method '%s' is for a single worker; allowed in a clique: d-sync, pipe-sgd",
                       m->name);
    if (l->codec != NULL && ps_codec_named_for_values(l->codec) != NULL)
        return PSC_OK;
    ps_codec_list_for_values(known, sizeof known);
    return ps_fail(&c->error, PSC_EINVAL, "local: codec '%.30s'; allowed: %s",
                   l->codec != NULL ? l->codec : "", known);
}

static struct psc_welcome welcome_of(const struct psc_local *l, const struct ps_method *m)
{
    struct psc_welcome welcome = {.incarnation = 1,
                                  .n_lanes = 1,
                                  .n_parts = 1,
                                  .chunk_floats = 1024,
                                  .message = *ps_codec_find(0),
                                  .answer = *ps_codec_find(0),
                                  .hyper = {.learning_rate = l->learning_rate,
                                            .alpha = NAN,
                                            .rho = NAN,
                                            .beta = NAN,
                                            .period = 1,
                                            .momentum = l->momentum,
                                            .averaging_rate = l->averaging_rate,
                                            .pipeline = strcmp(m->name, "pipe-sgd") == 0 ? l->pipeline : 1,
                                            .pipeline_warmup = l->pipeline_warmup,
                                            .weight_decay = l->weight_decay,
                                            .schedule = schedule_of(l)}};
    welcome.bucket_floats = l->bucket_floats;
    snprintf(welcome.method, sizeof welcome.method, "%s", m->name);
    if (is_of_clique(m))
        snprintf(welcome.rule, sizeof welcome.rule, "%s", m->rule);
    else
        snprintf(welcome.rule, sizeof welcome.rule, "none:%s", m->name); /* tells the methods' states apart */
    snprintf(welcome.clique_codec, sizeof welcome.clique_codec, "%s", l->codec);
    snprintf(welcome.optimizer, sizeof welcome.optimizer, "%s", m->optimizer);
    snprintf(welcome.averaging, sizeof welcome.averaging, "%s", m->averaging);
    snprintf(welcome.admission, sizeof welcome.admission, "none");
    return welcome;
}

/* FNV-1a over the numbers of cosine and multi-step, because a list would be too long. */
static uint32_t digest_of(const struct psc_local *l)
{
    uint64_t numbers[PSC_MAX_MILESTONES + 2] = {l->total_steps};
    unsigned char bytes[sizeof numbers];
    uint32_t hash = 2166136261u;
    memcpy(&numbers[1], &l->floor, sizeof l->floor);
    memcpy(&numbers[2], l->milestones, l->n_milestones * sizeof *l->milestones);
    memcpy(bytes, numbers, sizeof bytes);
    for (size_t i = 0; i < sizeof bytes; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    return hash;
}

/* The settings that all members must share, in one line. */
static void describe(const struct psc_local *l, char *text, size_t size)
{
    char buckets[24] = "auto";
    if (l->bucket_floats > 0)
        snprintf(buckets, sizeof buckets, "%llu", (unsigned long long)l->bucket_floats);
    snprintf(
        text, size,
        "%s: eta %g %s %g %llu %llu %08x, momentum %g, averaging %g, decay %g, pipeline %u %llu, codec %s, "
        "buckets %s",
        l->method, l->learning_rate, l->schedule, l->gamma, (unsigned long long)l->step_steps,
        (unsigned long long)l->warmup_steps, digest_of(l), l->momentum, l->averaging_rate, l->weight_decay,
        l->pipeline, (unsigned long long)l->pipeline_warmup, l->codec, buckets);
}

int psc_local_open(struct psc *c, const struct psc_local *given, struct psc_clique *clique)
{
    struct psc_local l;
    int rc;
    if (given->size < offsetof(struct psc_local, learning_rate) || given->size > 4096)
        return ps_fail(&c->error, PSC_EINVAL, "local: call psc_local_init first");
    psc_local_init(&l, sizeof l, NULL);
    if ((rc = psc_take_struct(&l, sizeof l, given, given->size, "local", &c->error)) != PSC_OK ||
        (rc = check_method(c, &l)) != PSC_OK || (rc = check_numbers(c, &l)) != PSC_OK ||
        (rc = check_schedule(c, &l)) != PSC_OK || (rc = check_clique(c, &l, clique)) != PSC_OK)
        return rc;
    char text[168]; /* a fact's */
    describe(&l, text, sizeof text);
    if ((rc = psc_group_open(c, clique, text)) != PSC_OK)
        return rc;
    const struct ps_method *m = ps_method_find(l.method);
    c->local = true;
    c->averaging = ps_averaging_find(m->averaging);
    c->session.shared.welcome = welcome_of(&l, m);
    c->session.shared.epoch = 1;
    c->session.shared.workers = 1;
    c->session.shared.state = PSC_STATE_JOINED;
    return PSC_OK;
}
