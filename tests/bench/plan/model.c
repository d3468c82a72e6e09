#include "tests/bench/plan/model.h"

#include <math.h>
#include <string.h>

const char *const plan_term_names[PLAN_N_TERMS] = {
    [PLAN_UPDATE] = "update", [PLAN_COMPUTE] = "compute",       [PLAN_LATENCY] = "latency",
    [PLAN_WIRE] = "wire",     [PLAN_ARITHMETIC] = "arithmetic", [PLAN_SYNC] = "sync",
};

/* The inputs of the prediction of one iteration. */
struct trip {
    const struct plan_link *link;
    const struct plan_codec *codec;
    const struct plan_job *job;
    double *terms;
};

static void add_allreduce(const struct trip *t, double members)
{
    const struct plan_codec *c = t->codec;
    double n = t->job->n_floats, share = (members - 1) / members, ways = t->link->half_duplex ? 2 : 1;

    if (members < 2)
        return;
    t->terms[PLAN_LATENCY] += 2 * (members - 1) * t->link->alpha_s;
    t->terms[PLAN_WIRE] += ways * 2 * share * n * c->bytes_per_float * t->link->beta_s;
    t->terms[PLAN_ARITHMETIC] += share * n * c->add_s + n * (c->encode_s + c->decode_s);
    t->terms[PLAN_SYNC] += t->link->sync_s;
}

static void add_broadcast(const struct trip *t, double members)
{
    double ways = t->link->half_duplex ? 2 : 1;

    if (members < 2)
        return;
    t->terms[PLAN_LATENCY] += (members - 1) * t->link->alpha_s;
    t->terms[PLAN_WIRE] += ways * t->job->n_floats * sizeof(float) * t->link->beta_s;
}

/* Seconds for both directions on the slower link: the server's, which all share, or a client's own. */
static double both_ways(const struct trip *t, double clients)
{
    const struct plan_link *l = t->link;
    double bytes = t->job->n_floats * t->codec->bytes_per_float;
    double chunk = fmin(t->job->chunk_floats, t->job->n_floats) * t->codec->bytes_per_float;
    double beta = fmax(l->beta_s, clients * l->server_beta_s);

    return l->half_duplex ? 2 * bytes * beta : (bytes + chunk) * beta;
}

static double lanes_work(const struct trip *t)
{
    return t->job->n_floats * (t->codec->add_s + t->codec->encode_s) / t->link->lanes;
}

static void add_server(const struct trip *t, double clients)
{
    t->terms[PLAN_LATENCY] += 2 * t->link->alpha_s;
    t->terms[PLAN_WIRE] += both_ways(t, clients);
    t->terms[PLAN_ARITHMETIC] +=
        clients * lanes_work(t) + t->job->n_floats * (t->codec->encode_s + t->codec->decode_s);
    t->terms[PLAN_SYNC] += clients > 1 ? t->link->sync_s : 0;
}

static double comm_of(const double *terms)
{
    return terms[PLAN_LATENCY] + terms[PLAN_WIRE] + terms[PLAN_ARITHMETIC] + terms[PLAN_SYNC];
}

static enum plan_term largest_of(const double *terms, enum plan_term from, enum plan_term to)
{
    enum plan_term best = from;
    for (enum plan_term k = from; k <= to; k++)
        if (terms[k] > terms[best])
            best = k;
    return best;
}

/* The terms are sequential. */
static void in_turn(struct plan_prediction *p)
{
    p->iteration_s = p->terms[PLAN_UPDATE] + p->terms[PLAN_COMPUTE] + comm_of(p->terms);
    p->largest = largest_of(p->terms, PLAN_UPDATE, PLAN_SYNC);
}

static void predict_sync(const struct trip *t, struct plan_prediction *p)
{
    add_server(t, p->workers);
    in_turn(p);
}

static void predict_d_sync(const struct trip *t, struct plan_prediction *p)
{
    add_allreduce(t, p->clique);
    in_turn(p);
}

static void predict_pipe(const struct trip *t, struct plan_prediction *p)
{
    add_allreduce(t, p->clique);
    double own = p->terms[PLAN_UPDATE] + p->terms[PLAN_COMPUTE], comm = comm_of(p->terms);
    p->iteration_s = fmax(own, comm);
    p->largest = own >= comm ? largest_of(p->terms, PLAN_UPDATE, PLAN_COMPUTE)
                             : largest_of(p->terms, PLAN_LATENCY, PLAN_SYNC);
}

static void predict_cliques(const struct trip *t, struct plan_prediction *p)
{
    add_allreduce(t, p->clique);
    add_server(t, (double)p->workers / p->clique);
    add_broadcast(t, p->clique);
    in_turn(p);
}

/* Each worker runs at its own pace, until the server's link or lanes are saturated. */
static void at_own_pace(const struct trip *t, struct plan_prediction *p, double period)
{
    const struct plan_link *l = t->link;
    double bytes = t->job->n_floats * t->codec->bytes_per_float;
    double wire = (l->half_duplex ? 2 : 1) * bytes * l->server_beta_s * p->workers / period;
    double work = lanes_work(t) * p->workers / period;

    add_server(t, 1);
    for (enum plan_term k = PLAN_LATENCY; k <= PLAN_SYNC; k++)
        p->terms[k] /= period;
    in_turn(p);
    if (fmax(wire, work) <= p->iteration_s)
        return;
    p->largest = wire >= work ? PLAN_WIRE : PLAN_ARITHMETIC;
    p->terms[p->largest] += fmax(wire, work) - p->iteration_s; /* time spent waiting for it */
    p->iteration_s = fmax(wire, work);
}

static void predict_async(const struct trip *t, struct plan_prediction *p)
{
    at_own_pace(t, p, 1);
}

static void predict_easgd(const struct trip *t, struct plan_prediction *p)
{
    at_own_pace(t, p, t->job->period);
}

const struct plan_method plan_methods[] = {
    {"sync-sgd", "sync-sgd (PS-Sync)", .every_gradient = true, .is_exact = true},
    {"d-sync", "d-sync", .every_gradient = true, .is_exact = true, .is_clique = true},
    {"mpi-sgd", "mpi-sgd", .every_gradient = true, .is_exact = true, .has_clique_size = true},
    {"pipe-sgd", "pipe-sgd", .every_gradient = true, .is_clique = true},
    {"async-sgd", "async-sgd", .every_gradient = true},
    {"async-easgd", "async-easgd"},
};
const size_t plan_n_methods = sizeof plan_methods / sizeof *plan_methods;

/* Indexed like plan_methods. */
static void (*const predictors[])(const struct trip *t, struct plan_prediction *p) = {
    predict_sync, predict_d_sync, predict_cliques, predict_pipe, predict_async, predict_easgd,
};
_Static_assert(sizeof predictors / sizeof *predictors == sizeof plan_methods / sizeof *plan_methods,
               "a predictor for each method");

/* The profile with its times in seconds. */
static struct ps_profile timed(const struct plan_job *job, struct ps_ready_point *points)
{
    size_t n = job->profile->n_points;
    for (size_t k = 0; k < n; k++)
        points[k] = (struct ps_ready_point){job->profile->points[k].begin,
                                            job->profile->points[k].at_s * job->compute_s};
    return (struct ps_profile){points, n, job->profile->n_floats};
}

static void cut_by_layers(const struct ps_iteration *it, const struct plan_job *job,
                          struct plan_prediction *out)
{
    struct ps_ready_point points[PLAN_MAX_LAYERS];
    struct ps_profile p = timed(job, points);
    out->buckets = ps_best_profiled(it, &p, !out->method->is_exact, 1, PLAN_MOST_BUCKETS);
    out->bucketed_s = ps_profiled_s(it, &p, ps_bucket_floats(p.n_floats, out->buckets, 1));
}

static void cut(const struct trip *t, uint32_t members, struct plan_prediction *out)
{
    const struct plan_codec *c = t->codec;
    const struct ps_iteration it = {.update_s = t->job->update_s,
                                    .forward_s = t->job->compute_s / 3,
                                    .backward_s = t->job->compute_s * 2 / 3,
                                    .n_bytes = t->job->n_floats * c->bytes_per_float,
                                    .alpha_s = t->link->alpha_s,
                                    .beta_s = (t->link->half_duplex ? 2 : 1) * t->link->beta_s,
                                    .gamma_s = c->add_s / c->bytes_per_float,
                                    .sync_s = t->link->sync_s,
                                    .members = members};
    if (t->job->profile != NULL) {
        cut_by_layers(&it, t->job, out);
    } else {
        out->buckets = ps_best_buckets(&it, !out->method->is_exact, PLAN_MOST_BUCKETS);
        out->bucketed_s = ps_bucketed_s(&it, out->buckets);
    }
    if (!out->method->is_exact)
        out->bucketed_s = fmax(it.update_s + t->job->compute_s, ps_comm_s(&it, out->buckets));
}

void plan_predict(const struct plan_method *method, const struct plan_link *link,
                  const struct plan_codec *codec, const struct plan_job *job, uint32_t workers,
                  uint32_t clique, struct plan_prediction *out)
{
    struct trip t = {link, codec, job, out->terms};

    *out = (struct plan_prediction){.method = method, .codec = codec, .workers = workers};
    out->clique = method->is_clique ? workers : method->has_clique_size ? clique : 1;
    out->terms[PLAN_UPDATE] = job->update_s;
    out->terms[PLAN_COMPUTE] = job->compute_s;
    predictors[method - plan_methods](&t, out);
    if (method->is_clique && workers > 1)
        cut(&t, workers, out);
    out->comm_s = comm_of(out->terms);
    out->images_s = workers * (double)job->batch / out->iteration_s;
    out->efficiency = (job->update_s + job->compute_s) / out->iteration_s;
}

const struct plan_prediction *plan_choose(const struct plan_prediction *all, size_t n, uint32_t workers)
{
    const struct plan_prediction *found = NULL;
    double best = 0;

    for (size_t i = 0; i < n; i++)
        if (all[i].workers == workers && all[i].method->every_gradient)
            best = fmax(best, all[i].images_s);
    for (int any = 0; any < 2; any++)
        for (size_t i = 0; i < n && found == NULL; i++)
            if (all[i].workers == workers && all[i].method->every_gradient &&
                (all[i].method->is_exact || any) && all[i].images_s >= 0.97 * best)
                found = &all[i];
    return found;
}
