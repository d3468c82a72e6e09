/* slow.c: psbench plan --slow: prints the candidates and the configuration of the best. */
#include "tests/bench/plan/slow.h"

#include <stdlib.h>

static void print_row(const struct slow_candidate *c, bool json)
{
    char codec[PS_CODEC_TEXT], overlap[16];
    ps_codec_text(c->codec, codec);
    slow_overlap_text(c->overlap, overlap);
    if (json)
        printf("{\"bench\":\"plan-slow\",\"period\":%u,\"codec\":\"%s\",\"fragments\":%u,\"overlap\":%u,"
               "\"window\":%u,\"exchange_ms\":%.3f,\"busy_ms\":%.3f,\"bytes\":%.0f,\"share\":%.6f}\n",
               c->period, codec, c->fragments, c->overlap, c->window, c->exchange_s * 1e3, c->busy_s * 1e3,
               c->bytes, c->share);
    else
        printf("  %7u  %-10s %9u  %7s  %6u  %12.1f %10.2f %12.1f\n", c->period, codec, c->fragments, overlap,
               c->window, c->exchange_s * 1e3, c->bytes * 1e-6, c->share * 100);
}

static void print_head(const struct slow_options *o)
{
    const struct slow_link *l = &o->link;
    printf("%.0f floats, %u workers, a step of %.3f ms; link %.1f Mb/s up, %.1f Mb/s down, %.2f ms there and "
           "back\n",
           o->job.n_floats, o->job.workers, o->job.step_s * 1e3, 8e-6 / l->up_s, 8e-6 / l->down_s,
           l->delay_s * 1e3);
    for (size_t i = 0; o->job.machines.cores > 0 && i < o->n_codecs; i++) {
        char codec[PS_CODEC_TEXT];
        printf("  %s: %.2f ns of CPU a value in a worker's own thread, %.2f in its others, %.2f in psd for a "
               "worker\n",
               ps_codec_text(&o->codecs[i], codec), o->costs[i].own_s * 1e9, o->costs[i].others_s * 1e9,
               o->costs[i].server_s * 1e9);
    }
    printf("  %7s  %-10s %9s  %7s  %6s  %12s %10s %12s\n", "period", "codec", "fragments", "overlap",
           "window", "exchange ms", "MB", "not waiting %");
}

static void print_text(const struct slow_options *o, const struct slow_candidate *best)
{
    char yaml[SLOW_YAML];
    slow_yaml(&o->job, best, yaml);
    if (best->share < o->target)
        printf("No candidate reaches %.0f %%: a longer --period or a smaller --codec would.\n",
               o->target * 100);
    printf("best: %.1f %% of the time not waiting\n%s", best->share * 100, yaml);
}

static void print_json(const struct slow_options *o, const struct slow_candidate *best)
{
    char yaml[SLOW_YAML], codec[PS_CODEC_TEXT];
    slow_yaml(&o->job, best, yaml);
    printf("{\"bench\":\"plan-slow\",\"summary\":true,\"period\":%u,\"codec\":\"%s\",\"fragments\":%u,"
           "\"overlap\":%u,\"share\":%.6f,\"reached\":%s,\"yaml\":\"",
           best->period, ps_codec_text(best->codec, codec), best->fragments, best->overlap, best->share,
           best->share >= o->target ? "true" : "false");
    for (const char *at = yaml; *at != 0; at++)
        if (*at == '\n')
            fputs("\\n", stdout);
        else
            putchar(*at);
    puts("\"}");
}

static int plan(const struct slow_options *o, struct slow_candidate *all)
{
    size_t n = slow_candidates(o, all);
    const struct slow_candidate *best = slow_choose(all, n, o->target);
    if (best == NULL) {
        fputs("psbench plan: --fragments: none of them is at most the period and the number of chunks\n",
              stderr);
        return 2;
    }
    if (!o->json)
        print_head(o);
    for (size_t i = 0; i < n; i++)
        print_row(&all[i], o->json);
    if (o->json)
        print_json(o, best);
    else
        print_text(o, best);
    return 0;
}

static int measure_costs(struct slow_options *o)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < o->n_codecs && o->job.machines.cores > 0 && !o->costs_given; i++)
        rc = slow_measure_cost(&o->codecs[i], o->job.n_floats, o->job.chunk_floats, &o->costs[i]);
    return rc;
}

int bench_slow(int argc, char **argv)
{
    struct slow_options o;
    int rc = slow_parse(argc, argv, &o);
    if (rc != 0)
        return rc > 0 ? 0 : 2;
    if (measure_costs(&o) < 0)
        return 1;
    struct slow_candidate *all = calloc(3 * o.n_periods * o.n_codecs * o.n_fragments, sizeof *all);
    if (all == NULL) {
        fputs("psbench plan: no memory for the candidates\n", stderr);
        return 1;
    }
    rc = plan(&o, all);
    free(all);
    return rc;
}
