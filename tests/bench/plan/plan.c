/* plan.c: measures what was not given, predicts, and recommends a method. */
#include "tests/bench/plan/plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "proto/codecs/codec.h"
#include "tests/bench/plan/cores.h"
#include "tests/bench/plan/slow.h"
#include "tests/bench/simulate/simulate.h"

const char bench_plan_help[] = "iteration time of each method, clique and codec, from a model of the link";

struct plan {
    struct plan_options opt;
    struct plan_link link;
    struct plan_codec codecs[PLAN_MAX_CODECS];
    struct plan_job job;
    struct ps_ready_point points[PLAN_MAX_LAYERS];
    struct ps_profile profile;
    double gamma_s, fit_error; /* fit_error: NaN if the link was given */
    struct plan_prediction *rows;
    size_t n_rows;
};

/* gamma is the sum of the raw codec. If it is given, the other codecs keep their measured difference to
 * it. */
static int find_codecs(struct plan *p)
{
    struct plan_codec raw;
    if (plan_measure_codec(&p->opt, ps_codec_named("raw"), &raw) < 0)
        return -1;
    p->gamma_s = isnan(p->opt.gamma_s) ? raw.add_s : p->opt.gamma_s;
    for (size_t i = 0; i < p->opt.n_codecs; i++) {
        struct plan_codec *c = &p->codecs[i];
        if (p->opt.codecs[i] == ps_codec_named("raw"))
            *c = raw;
        else if (plan_measure_codec(&p->opt, p->opt.codecs[i], c) < 0)
            return -1;
        c->add_s = fmax(c->add_s - raw.add_s, 0) + p->gamma_s;
    }
    return 0;
}

static int find_link(struct plan *p)
{
    const struct plan_options *o = &p->opt;
    struct plan_link *l = &p->link;

    p->fit_error = NAN;
    *l = (struct plan_link){.lanes = o->lanes, .half_duplex = o->half_duplex};
    if ((isnan(o->alpha_s) || isnan(o->beta_s)) &&
        plan_measure_link(o, plan_n_floats(o), p->gamma_s, l, &p->fit_error) < 0)
        return -1;
    l->alpha_s = isnan(o->alpha_s) ? l->alpha_s : o->alpha_s;
    l->beta_s = isnan(o->beta_s) ? l->beta_s : o->beta_s;
    l->sync_s = isnan(o->sync_s) ? l->sync_s : o->sync_s;
    l->server_beta_s = isnan(o->server_beta_s) ? l->beta_s : o->server_beta_s;
    return 0;
}

static int find_job(struct plan *p)
{
    const struct plan_options *o = &p->opt;
    p->job = (struct plan_job){.chunk_floats = o->chunk_floats, .batch = o->batch, .period = o->period};
    p->job.n_floats = plan_n_floats(o);
    if (plan_read_profile(o, p->points, &p->profile))
        p->job.profile = &p->profile;
    return plan_measure_compute(o, &p->job.compute_s, &p->job.update_s);
}

static void predict(struct plan *p, const struct plan_method *m, uint32_t workers, uint32_t clique)
{
    for (size_t i = 0; i < p->opt.n_codecs; i++)
        plan_predict(m, &p->link, &p->codecs[i], &p->job, workers, clique, &p->rows[p->n_rows++]);
}

static int predict_all(struct plan *p)
{
    const struct plan_options *o = &p->opt;
    size_t most = o->n_workers * plan_n_methods * o->n_codecs * (o->n_cliques + 1);

    if ((p->rows = calloc(most, sizeof *p->rows)) == NULL) {
        fputs("psbench plan: no memory for the table\n", stderr);
        return -1;
    }
    for (size_t w = 0; w < o->n_workers; w++)
        for (size_t m = 0; m < plan_n_methods; m++) {
            uint32_t workers = o->workers[w];
            if (!plan_methods[m].has_clique_size)
                predict(p, &plan_methods[m], workers, 1);
            for (size_t q = 0; q < o->n_cliques && plan_methods[m].has_clique_size; q++)
                if (o->cliques[q] > 1 && o->cliques[q] < workers && workers % o->cliques[q] == 0)
                    predict(p, &plan_methods[m], workers, o->cliques[q]);
        }
    return 0;
}

static void print_inputs(const struct plan *p)
{
    const struct plan_job *j = &p->job;
    const struct plan_link *l = &p->link;

    printf("%s%s%.0f floats, batch %u: compute %.3f ms, update %.3f ms an iteration\n",
           p->opt.net != NULL ? p->opt.net : "", p->opt.net != NULL ? ", " : "", j->n_floats, j->batch,
           j->compute_s * 1e3, j->update_s * 1e3);
    printf("link: alpha %.2f us, %.3f GB/s one way%s, S %.2f us; psd's own %.3f GB/s", l->alpha_s * 1e6,
           1e-9 / l->beta_s, l->half_duplex ? " or the other" : "", l->sync_s * 1e6, 1e-9 / l->server_beta_s);
    if (isfinite(p->fit_error))
        printf("; fitted to a ring of two here, median error %.0f %%", 100 * p->fit_error);
    putchar('\n');
    for (size_t i = 0; i < p->opt.n_codecs; i++)
        printf("codec %-8s %.3f bytes a float; encode %.2f, decode %.2f, add %.2f ns a float\n",
               p->codecs[i].name, p->codecs[i].bytes_per_float, p->codecs[i].encode_s * 1e9,
               p->codecs[i].decode_s * 1e9, p->codecs[i].add_s * 1e9);
}

static void print_row(const struct plan_prediction *r)
{
    printf("  %7u  %-20s %6u  %-8s %12.3f %12.3f %12.0f %11.3f  %s\n", r->workers, r->method->title,
           r->clique, r->codec->name, r->comm_s * 1e3, r->iteration_s * 1e3, r->images_s, r->efficiency,
           plan_term_names[r->largest]);
}

/* clique.bucket_floats. */
static double bucket_floats(const struct plan *p, const struct plan_prediction *r)
{
    return ceil(p->job.n_floats / r->buckets);
}

static void print_row_json(const struct plan *p, const struct plan_prediction *r)
{
    printf("{\"bench\":\"plan\",\"workers\":%u,\"method\":\"%s\",\"clique\":%u,\"codec\":\"%s\",", r->workers,
           r->method->name, r->clique, r->codec->name);
    for (int k = 0; k < PLAN_N_TERMS; k++)
        printf("\"%s_ms\":%.6f,", plan_term_names[k], r->terms[k] * 1e3);
    if (r->buckets > 0)
        printf("\"bucket_floats\":%.0f,\"bucketed_ms\":%.6f,", bucket_floats(p, r), r->bucketed_s * 1e3);
    printf("\"comm_ms\":%.6f,\"iteration_ms\":%.6f,\"images_s\":%.3f,\"efficiency\":%.6f,\"largest\":\"%s\","
           "\"period\":%u}\n",
           r->comm_s * 1e3, r->iteration_s * 1e3, r->images_s, r->efficiency, plan_term_names[r->largest],
           r->method->every_gradient ? 1 : p->opt.period);
}

/* The fastest prediction for that number of workers of a method that does not apply every gradient, if faster
 * than `r`. */
static const struct plan_prediction *faster_one(const struct plan *p, const struct plan_prediction *r)
{
    const struct plan_prediction *best = NULL;
    for (size_t i = 0; i < p->n_rows; i++)
        if (p->rows[i].workers == r->workers && !p->rows[i].method->every_gradient &&
            p->rows[i].images_s > 1.03 * (best != NULL ? best->images_s : r->images_s))
            best = &p->rows[i];
    return best;
}

static void sentence_of(const struct plan *p, const struct plan_prediction *r, char *text, size_t size)
{
    static const char *const meaning[PLAN_N_TERMS] = {
        [PLAN_UPDATE] = "the local update",
        [PLAN_COMPUTE] = "forward and backward",
        [PLAN_LATENCY] = "the messages' latency",
        [PLAN_WIRE] = "the bytes on the link",
        [PLAN_ARITHMETIC] = "adding, encoding and decoding",
        [PLAN_SYNC] = "synchronisation",
    };
    const struct plan_prediction *faster = faster_one(p, r);
    double share = r->terms[r->largest] / r->iteration_s;
    int n = snprintf(text, size,
                     "%u worker%s: %s with codec %s, %.0f images/s (%.0f %% of %u alone); the largest part "
                     "of its iteration is %s (%s, %.0f %%)",
                     r->workers, r->workers == 1 ? "" : "s", r->method->name, r->codec->name, r->images_s,
                     100 * r->efficiency, r->workers, meaning[r->largest], plan_term_names[r->largest],
                     100 * fmin(share, 1));
    if (r->buckets > 0 && n > 0 && (size_t)n < size)
        n += snprintf(text + n, size - (size_t)n, "; clique.bucket_floats: %.0f, %u bucket%s, %.3f ms",
                      bucket_floats(p, r), r->buckets, r->buckets == 1 ? "" : "s", r->bucketed_s * 1e3);
    if (faster != NULL && n > 0 && (size_t)n < size)
        snprintf(text + n, size - (size_t)n,
                 "; %s with period %u would make %.0f, but the center sees its workers only so often",
                 faster->method->name, p->opt.period, faster->images_s);
}

static void print_choices(const struct plan *p)
{
    char text[600];
    for (size_t w = 0; w < p->opt.n_workers; w++) {
        sentence_of(p, plan_choose(p->rows, p->n_rows, p->opt.workers[w]), text, sizeof text);
        printf("%s\n", text);
    }
}

static void print_summary_json(const struct plan *p)
{
    char text[600];
    printf("{\"bench\":\"plan\",\"summary\":true,\"floats\":%.0f,\"batch\":%u,\"compute_ms\":%.6f,"
           "\"update_ms\":%.6f,\"alpha_us\":%.4f,\"gb_s\":%.6f,\"server_gb_s\":%.6f,\"sync_us\":%.4f,"
           "\"gamma_ns\":%.4f,\"half_duplex\":%s,",
           p->job.n_floats, p->job.batch, p->job.compute_s * 1e3, p->job.update_s * 1e3,
           p->link.alpha_s * 1e6, 1e-9 / p->link.beta_s, 1e-9 / p->link.server_beta_s, p->link.sync_s * 1e6,
           p->gamma_s * 1e9, p->link.half_duplex ? "true" : "false");
    if (isfinite(p->fit_error))
        printf("\"fit_error\":%.4f,\"choices\":[", p->fit_error);
    else
        printf("\"fit_error\":null,\"choices\":[");
    for (size_t w = 0; w < p->opt.n_workers; w++) {
        const struct plan_prediction *r = plan_choose(p->rows, p->n_rows, p->opt.workers[w]);
        sentence_of(p, r, text, sizeof text);
        printf("%s{\"workers\":%u,\"method\":\"%s\",\"clique\":%u,\"codec\":\"%s\",\"why\":\"%s\"}",
               w > 0 ? "," : "", r->workers, r->method->name, r->clique, r->codec->name, text);
    }
    puts("]}");
}

static void print(const struct plan *p)
{
    if (!p->opt.json) {
        print_inputs(p);
        printf("  %7s  %-20s %6s  %-8s %12s %12s %12s %11s  %s\n", "workers", "method", "clique", "codec",
               "comm ms", "iteration ms", "images/s", "efficiency", "largest");
    }
    for (size_t i = 0; i < p->n_rows; i++)
        if (p->opt.json)
            print_row_json(p, &p->rows[i]);
        else
            print_row(&p->rows[i]);
    if (p->opt.json)
        print_summary_json(p);
    else
        print_choices(p);
}

int bench_plan(int argc, char **argv)
{
    struct plan p = {0};
    int rc;

    if (sim_is_asked(argc, argv))
        return bench_simulate(argc, argv);
    if (slow_is_asked(argc, argv))
        return bench_slow(argc, argv);
    if (cores_is_asked(argc, argv))
        return bench_cores(argc, argv);
    rc = plan_parse(argc, argv, &p.opt);
    if (rc != 0)
        return rc > 0 ? 0 : 2;
    rc = find_codecs(&p) < 0 || find_link(&p) < 0 || find_job(&p) < 0 || predict_all(&p) < 0;
    if (rc == 0)
        print(&p);
    free(p.rows);
    return rc;
}
