#include "proto/model/method.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

const struct ps_rule_info ps_rules[] = {
    {"elastic", PS_MESSAGE_X, PS_HALF_ELASTIC, PS_USES_RATE | PS_USES_PERIOD, .worker_steps = true,
     .drops = PS_USES_MERGE}, /* a round sums its messages */
    {"add", PS_MESSAGE_DELTA, PS_HALF_ADOPT, PS_USES_PERIOD | PS_USES_DYNAMIC | PS_USES_FRAGMENTS,
     .worker_steps = true, .drops = PS_USES_MERGE},
    {"sgd", PS_MESSAGE_GRADIENT, PS_HALF_ADOPT, PS_USES_WEIGHT},
    {"momentum", PS_MESSAGE_GRADIENT, PS_HALF_ADOPT, PS_USES_MOMENTUM | PS_USES_WEIGHT},
    {"mdownpour", PS_MESSAGE_GRADIENT, PS_HALF_ADOPT, PS_USES_MOMENTUM | PS_USES_WEIGHT},
    {"adagrad", PS_MESSAGE_GRADIENT, PS_HALF_ADOPT, PS_USES_EPSILON | PS_USES_WEIGHT},
    {"adam", PS_MESSAGE_GRADIENT, PS_HALF_ADOPT,
     PS_USES_MOMENTUM | PS_USES_BETA2 | PS_USES_EPSILON | PS_USES_WEIGHT},
    {"admm", PS_MESSAGE_ADMM, PS_HALF_ADMM, PS_USES_RHO | PS_USES_WORKERS, .fixed_workers = true,
     .drops = PS_USES_MERGE},
    {"outer-nesterov", PS_MESSAGE_DELTA, PS_HALF_ADOPT,
     PS_USES_PERIOD | PS_USES_OUTER | PS_USES_DYNAMIC | PS_USES_FRAGMENTS, .worker_steps = true},
    {"delayed-nesterov", PS_MESSAGE_DELTA, PS_HALF_ADOPT,
     PS_USES_PERIOD | PS_USES_OUTER | PS_USES_DELAY | PS_USES_DYNAMIC | PS_USES_FRAGMENTS,
     .worker_steps = true, .counts_moves = true},
    {"dc-asgd", PS_MESSAGE_GRADIENT, PS_HALF_ADOPT, PS_USES_WEIGHT | PS_USES_COMPENSATION | PS_USES_WORKERS,
     .keeps_seen = true},
    {"hold", PS_MESSAGE_X, PS_HALF_CLIQUE, PS_USES_PIPELINE, .worker_steps = true, .in_clique = true},
    {"sum", PS_MESSAGE_GRADIENT, PS_HALF_CALLER, 0, .drops = PS_USES_MERGE},
    {.name = NULL},
};

const struct ps_admission_info ps_admissions[] = {
    {"fcfs", 0, .members = false, .keys = true, .fragments = true},
    {"hogwild", 0, .members = false, .keys = true, .fragments = true, .whole_lanes = true},
    {"round-robin", PS_USES_SERIAL | PS_USES_WORKERS, .members = true, .keys = true},
    {"backup", PS_USES_BACKUP | PS_USES_MERGE | PS_USES_WORKERS, .drops = PS_USES_WEIGHT, .members = true,
     .merges = true, .drops_late = true},
    {"quorum", PS_USES_QUORUM | PS_USES_MERGE | PS_USES_WORKERS, .drops = PS_USES_WEIGHT, .members = true,
     .merges = true, .drops_late = true},
    {"ssp", PS_USES_SLACK | PS_USES_WORKERS, .members = true, .keys = true},
    {"sync", PS_USES_MERGE | PS_USES_WORKERS, .drops = PS_USES_WEIGHT, .members = true, .merges = true,
     .keys = true, .fragments = true}, /* all gradients of a round are for the same center */
    {.name = NULL},
};

const struct ps_optimizer_info ps_optimizers[] = {
    {"none", .steps = false, 0},
    {"sgd", .steps = true, 0},
    {"heavy-ball", .steps = true, PS_USES_MOMENTUM},
    {"nesterov", .steps = true, PS_USES_MOMENTUM},
    {"external", .steps = true, 0, .callers = true},
    {.name = NULL},
};

/* A float has 24 bits: z would stop once the share of one x is below its last digit, after some million
 * updates. So from 8,192 on every second x counts, for two; from 16,384 on every fourth, for four; and so on.
 */
static double rate_mean(double averaging_rate, uint64_t t)
{
    enum { FEWEST = 4096 };
    uint64_t n = t + 1, mask;
    unsigned shift = 0;
    (void)averaging_rate;
    while (n >> shift >= 2 * FEWEST)
        shift++;
    mask = (UINT64_C(1) << shift) - 1;
    return (n & mask) == 0 ? 1.0 / (double)(n >> shift) : 0;
}

static double rate_moving(double averaging_rate, uint64_t t)
{
    (void)t;
    return averaging_rate;
}

const struct ps_averaging ps_averagings[] = {
    {"none", 0, NULL},
    {"mean", 0, rate_mean},
    {"moving", PS_USES_AVERAGING_RATE, rate_moving},
    {.name = NULL},
};

#define ZHANG    "Zhang, Choromanska, LeCun 2015, "
#define YOU      "You, Buluc, Demmel 2017, "
#define MAMIDALA "Mamidala et al. 2018 (MXNET-MPI), "
#define LI       "Li et al. 2018 (Pipe-SGD), "

const struct ps_method ps_methods[] = {
    {"original-easgd", "elastic", "round-robin", "sgd", "none",
     YOU "Algorithm 1 (Original EASGD*; with overlap Original EASGD)"},
    {"async-easgd", "elastic", "fcfs", "sgd", "none", ZHANG "Algorithm 1"},
    {"async-measgd", "elastic", "fcfs", "heavy-ball", "none", YOU "eq. 5-6"},
    {"eamsgd", "elastic", "fcfs", "nesterov", "none", ZHANG "Algorithm 2"},
    {"hogwild-easgd", "elastic", "hogwild", "sgd", "none", YOU "Hogwild EASGD"},
    {"sync-easgd", "elastic", "sync", "sgd", "none", YOU "eq. 1-2 (Sync EASGD)"},
    {"sync-sgd", "sgd", "sync", "none", "none", "dist-SGD of Mamidala et al.; PS-Sync of Li et al."},
    {"async-sgd", "sgd", "fcfs", "none", "none", YOU "Async SGD; dist-ASGD of Mamidala et al."},
    {"hogwild-sgd", "sgd", "hogwild", "none", "none", "Recht, Re, Wright, Niu 2011, Algorithm 1"},
    {"ssp-sgd", "sgd", "ssp", "none", "none", "Ho et al. 2013, SSP"},
    {"backup-sgd", "sgd", "backup", "none", "none",
     "Chen et al. 2016, revisiting distributed synchronous SGD, section 3"},
    {"async-msgd", "momentum", "fcfs", "none", "none", YOU "eq. 3-4"},
    {"downpour", "add", "fcfs", "sgd", "none", ZHANG "Algorithm 3"},
    {"adownpour", "add", "fcfs", "sgd", "mean", ZHANG "section 5"},
    {"mvadownpour", "add", "fcfs", "sgd", "moving", ZHANG "section 5"},
    {"mdownpour", "mdownpour", "fcfs", "none", "none", ZHANG "Algorithms 4-5"},
    {"admm", "admm", "round-robin", "none", "none", ZHANG "eq. 9-11"},
    {"diloco", "outer-nesterov", "sync", "nesterov", "none", "Douillard et al. 2023 (DiLoCo), Algorithm 1"},
    {"async-local-sgd", "delayed-nesterov", "fcfs", "nesterov", "none",
     "Liu et al. 2024, Delayed Nesterov of Asynchronous Local-SGD"},
    {"staleness-sgd", "sgd", "fcfs", "none", "none",
     "Zhang, Gupta, Lian, Liu 2016, staleness-aware async-SGD"},
    {"dc-asgd", "dc-asgd", "fcfs", "none", "none", "Zheng et al. 2017 (DC-ASGD)"},
    {"mpi-sgd", "sgd", "sync", "none", "none", MAMIDALA "mpi-SGD: dist-SGD of cliques"},
    {"mpi-asgd", "sgd", "fcfs", "none", "none", MAMIDALA "mpi-ASGD: dist-ASGD of cliques"},
    {"mpi-esgd", "elastic", "fcfs", "sgd", "none", MAMIDALA "mpi-ESGD: elastic averaging of cliques"},
    {"d-sync", "hold", "fcfs", "sgd", "none", LI "D-Sync, section 2"},
    {"pipe-sgd", "hold", "fcfs", "sgd", "none", LI "Algorithm 1 (Pipe-SGD)"},
    {"sgd", NULL, NULL, "sgd", "none", "Robbins, Monro 1951"},
    {"msgd", NULL, NULL, "nesterov", "none", "Nesterov 1983; " ZHANG "section 5"},
    {"asgd", NULL, NULL, "sgd", "mean", "Polyak, Juditsky 1992; " ZHANG "section 5"},
    {"mvasgd", NULL, NULL, "sgd", "moving", ZHANG "section 5"},
    {.name = NULL},
};

bool ps_method_is_one_clique(const struct ps_rule_info *rule, enum ps_clique_mode mode)
{
    return rule->in_clique || mode == PS_CLIQUE_VECTORS;
}

#define FIND(rows)                                                                                           \
    for (size_t i = 0; (rows)[i].name != NULL; i++)                                                          \
        if (strcmp((rows)[i].name, name) == 0)                                                               \
            return &(rows)[i];                                                                               \
    return NULL

const struct ps_rule_info *ps_rule_find(const char *name)
{
    FIND(ps_rules);
}

const struct ps_admission_info *ps_admission_find(const char *name)
{
    FIND(ps_admissions);
}

const struct ps_optimizer_info *ps_optimizer_find(const char *name)
{
    FIND(ps_optimizers);
}

const struct ps_averaging *ps_averaging_find(const char *name)
{
    FIND(ps_averagings);
}

const struct ps_method *ps_method_find(const char *name)
{
    FIND(ps_methods);
}

static double rate_constant(const struct ps_schedule *s, double eta, uint64_t t)
{
    (void)s;
    (void)t;
    return eta;
}

static double rate_step(const struct ps_schedule *s, double eta, uint64_t t)
{
    return eta * pow(s->gamma, (double)(t / s->step_steps));
}

static double rate_inv_sqrt(const struct ps_schedule *s, double eta, uint64_t t)
{
    return eta / sqrt(1.0 + s->gamma * (double)t);
}

static double rate_cosine(const struct ps_schedule *s, double eta, uint64_t t)
{
    double part = t < s->total_steps ? (double)t / (double)s->total_steps : 1;
    return eta * (s->floor + (1 - s->floor) * (1 + cos(acos(-1.0) * part)) / 2);
}

/* After `drops` of them. */
static double rate_dropped(const struct ps_schedule *s, double eta, uint32_t drops)
{
    for (uint32_t k = 0; k < drops && s->n_factors > 0; k++)
        eta *= s->factors[k < s->n_factors ? k : s->n_factors - 1];
    return eta;
}

static double rate_multi_step(const struct ps_schedule *s, double eta, uint64_t t)
{
    uint32_t drops = 0;
    while (drops < s->n_milestones && s->milestones[drops] <= t)
        drops++;
    return rate_dropped(s, eta, drops);
}

static double rate_plateau(const struct ps_schedule *s, double eta, uint64_t t)
{
    (void)t;
    return rate_dropped(s, eta, s->drops);
}

static const struct {
    const char *name;
    double (*rate)(const struct ps_schedule *s, double eta, uint64_t t);
} schedules[PS_N_SCHEDULES] = {
    [PS_SCHEDULE_CONSTANT] = {"constant", rate_constant},
    [PS_SCHEDULE_STEP] = {"step", rate_step},
    [PS_SCHEDULE_INV_SQRT] = {"inv-sqrt", rate_inv_sqrt},
    [PS_SCHEDULE_COSINE] = {"cosine", rate_cosine},
    [PS_SCHEDULE_MULTI_STEP] = {"multi-step", rate_multi_step},
    [PS_SCHEDULE_PLATEAU] = {"plateau", rate_plateau},
};

int ps_schedule_parse(const char *name)
{
    for (int i = 0; i < (int)(sizeof schedules / sizeof *schedules); i++)
        if (strcmp(name, schedules[i].name) == 0)
            return i;
    return -EINVAL;
}

static bool rises(const struct ps_schedule *s)
{
    for (uint32_t k = 0; k < s->n_milestones; k++)
        if (s->milestones[k] <= (k > 0 ? s->milestones[k - 1] : 0))
            return false;
    return true;
}

static bool are_factors(const struct ps_schedule *s)
{
    for (uint32_t k = 0; k < s->n_factors; k++)
        if (!(s->factors[k] > 0 && s->factors[k] <= 1))
            return false;
    return s->n_factors >= 1 && s->n_factors <= PS_MAX_MILESTONES;
}

const char *ps_schedule_wants(const struct ps_schedule *s)
{
    if (s->kind == PS_SCHEDULE_COSINE && (s->total_steps < 1 || !(s->floor >= 0 && s->floor <= 1)))
        return "total_steps of at least 1, floor from 0 to 1";
    if (s->kind == PS_SCHEDULE_MULTI_STEP &&
        (s->n_milestones < 1 || s->n_milestones > PS_MAX_MILESTONES || !rises(s)))
        return "milestones, 1 to 16 steps that rise, such as 30000, 60000";
    if (s->kind == PS_SCHEDULE_MULTI_STEP && (!are_factors(s) || s->n_factors > s->n_milestones))
        return "factors above 0 up to 1, one for each milestone or fewer, such as 0.2, 0.5";
    if (s->kind == PS_SCHEDULE_PLATEAU && !are_factors(s))
        return "factors, 1 to 16 above 0 up to 1, such as 0.2, 0.5";
    return NULL;
}

double ps_schedule_rate(const struct ps_schedule *s, double eta, uint64_t t)
{
    double rate = schedules[s->kind].rate(s, eta, t);
    if (t < s->warmup_steps)
        rate *= (double)(t + 1) / (double)s->warmup_steps;
    return rate;
}

double ps_weight(enum ps_weight_kind kind, double power, uint64_t staleness)
{
    if (kind == PS_WEIGHT_CONST || staleness <= 1)
        return 1;
    return kind == PS_WEIGHT_INVERSE ? 1 / (double)staleness : pow((double)staleness, -power);
}

const char *ps_overlap_text(uint32_t overlap, char text[PS_OVERLAP_TEXT])
{
    if (overlap <= 1)
        snprintf(text, PS_OVERLAP_TEXT, "%s", overlap == 0 ? "false" : "true");
    else if (overlap == PS_OVERLAP_AUTO)
        snprintf(text, PS_OVERLAP_TEXT, "auto");
    else
        snprintf(text, PS_OVERLAP_TEXT, "%" PRIu32, overlap);
    return text;
}

double ps_hyper_alpha(const struct ps_hyper *h, uint32_t p, bool sync)
{
    if (!isnan(h->alpha))
        return h->alpha;
    if (!isnan(h->rho))
        return h->learning_rate * h->rho;
    return h->beta / ((double)(p > 0 ? p : 1) * (sync ? 1.0 : (double)h->period));
}

double ps_hyper_unsent_rate(const struct ps_hyper *h, const struct ps_rule_info *rule)
{
    if ((rule->uses & PS_USES_OUTER) == 0)
        return 1;
    return h->outer_learning_rate / (rule->uses & PS_USES_DELAY ? h->delay : 1);
}
