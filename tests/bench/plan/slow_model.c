#include <math.h>
#include <stdio.h>

#include "proto/wire/frame.h"
#include "tests/bench/plan/slow.h"

/* Of TCP on Linux: ten segments; and the shortest time after which it starts slowly again. */
static const double first_window = 14480, idle_s = 0.2;

static double bytes_per_float(const struct ps_codec *codec, double chunk_floats)
{
    return (double)codec->payload_bytes(codec, (size_t)chunk_floats) / chunk_floats;
}

/* What TCP's slow start takes beyond the bytes, one way. byte_s: of the link; bytes: of a lane. */
static double slow_start_s(double byte_s, double bytes, double delay_s, double lanes)
{
    double wanted = fmin(bytes, delay_s / (byte_s * lanes));
    double rounds = wanted > first_window ? ceil(log2(wanted / first_window)) : 0;
    return fmax(0, rounds * delay_s - lanes * first_window * (exp2(rounds) - 1) * byte_s);
}

/* Twice what keeps the link busy: where rounds wait for the chunks of others, those that are a little later
 * than usual hold nobody up. */
static uint32_t window_for(double delay_s, double lanes, double up_s, double down_s)
{
    double wanted = 2 * ceil((delay_s / lanes + up_s + down_s) / fmax(up_s, down_s) - 1e-9);
    return wanted <= SLOW_WINDOW      ? SLOW_WINDOW
           : wanted < SLOW_MAX_WINDOW ? (uint32_t)wanted
                                      : SLOW_MAX_WINDOW;
}

/* The least time of a chunk by the CPUs that handle it. */
static double cpu_of_chunk(const struct slow_job *job, const struct slow_cost *cost, double chunk,
                           double lanes)
{
    const struct slow_machines *m = &job->machines;
    double psd_s = job->workers * cost->server_s, psd_cores = m->together ? m->cores : m->server_cores;
    double in_lanes_s = psd_s / (psd_cores > 0 ? fmin(lanes, psd_cores) : lanes);
    if (m->cores <= 0)
        return 0;
    if (!m->together)
        return chunk * fmax(cost->others_s * fmax(1, m->per_machine / m->cores), in_lanes_s);
    return chunk *
           fmax(fmax(cost->others_s, in_lanes_s), (m->per_machine * cost->others_s + psd_s) / m->cores);
}

/* What the worker's own thread adds to a period. */
static double own_cpu_s(const struct slow_job *job, const struct slow_cost *cost)
{
    const struct slow_machines *m = &job->machines;
    return m->cores > 0 ? cost->own_s * job->n_floats * fmax(1, m->per_machine / m->cores) : 0;
}

/* The least time of a period by the cores of each machine. */
static double least_period_s(const struct slow_job *job, const struct slow_candidate *c)
{
    const struct slow_machines *m = &job->machines;
    double worker_s =
        (c->cost.own_s + c->cost.others_s) * job->n_floats + m->step_cores * c->period * job->step_s;
    double psd_s = job->workers * c->cost.server_s * job->n_floats;
    if (m->cores <= 0)
        return 0;
    if (m->together)
        return (m->per_machine * worker_s + psd_s) / m->cores;
    return fmax(m->per_machine * worker_s / m->cores, m->server_cores > 0 ? psd_s / m->server_cores : 0);
}

static void time_exchange(const struct slow_link *link, const struct slow_job *job,
                          struct slow_candidate *out)
{
    double part = job->n_floats / out->fragments, chunk = fmax(1, floor(fmin(job->chunk_floats, part)));
    double bytes = bytes_per_float(out->codec, chunk), k = part / chunk;
    double lanes = fmin(ceil((double)job->lanes / out->fragments), k);
    double shared_s = job->workers * link->server_byte_s;
    double up_s = fmax(link->up_s, shared_s), down_s = fmax(link->down_s, shared_s);
    double turn_s = link->delay_s + lanes * chunk * bytes * (up_s + down_s);
    out->window = job->window > 0
                      ? job->window
                      : window_for(link->delay_s, lanes, chunk * bytes * up_s, chunk * bytes * down_s);
    double cpu_s = cpu_of_chunk(job, &out->cost, chunk, lanes);
    double each_s = fmax(fmax(chunk * bytes * fmax(up_s, down_s), turn_s / (lanes * out->window)), cpu_s);

    out->exchange_s = fmax(turn_s + (k - lanes) * each_s, link->delay_s + k * cpu_s);
    out->busy_s = k * each_s;
    out->bytes = 2 * job->n_floats * bytes;
    if (out->period * job->step_s / out->fragments - out->busy_s > idle_s)
        out->exchange_s += slow_start_s(up_s, part * bytes / lanes, link->delay_s, lanes) +
                           slow_start_s(down_s, part * bytes / lanes, link->delay_s, lanes);
}

/* The most exchanges of a worker that may be under way at a time. */
static double most_under_way(const struct slow_candidate *c)
{
    return c->fragments < PS_MAX_TRACKS ? c->fragments : PS_MAX_TRACKS;
}

/* How many exchanges begin while one may last. */
static double under_way(const struct slow_candidate *c)
{
    return fmax(1, fmin((double)c->overlap * c->fragments / c->period, most_under_way(c)));
}

/* The least time of a period by the link. In rounds a cycle begins when the one before has ended. */
static double least_link_s(const struct slow_job *job, const struct slow_candidate *c)
{
    double n = under_way(c), rest_s = job->in_rounds ? c->exchange_s - c->busy_s : 0;
    double one_by_one_s = c->fragments * c->exchange_s;
    return n > 1 ? fmin(one_by_one_s, fmax(one_by_one_s / n, c->fragments * c->busy_s + rest_s))
                 : one_by_one_s;
}

void slow_predict(const struct slow_link *link, const struct slow_job *job, struct slow_candidate *out)
{
    double own_s = out->period * job->step_s, all_s;

    time_exchange(link, job, out);
    double busy_s = own_s + own_cpu_s(job, &out->cost);
    double late_s = fmax(0, out->exchange_s - out->overlap * job->step_s);
    if (out->overlap == 0)
        all_s = busy_s + out->fragments * out->exchange_s;
    else
        all_s = fmax(busy_s + out->fragments * late_s / under_way(out), least_link_s(job, out));
    out->share = own_s / fmax(all_s, least_period_s(job, out));
}

uint32_t slow_hiding_overlap(const struct slow_job *job, const struct slow_candidate *c)
{
    bool fits = c->fragments * c->busy_s <= c->period * job->step_s + 1e-9;
    uint32_t most = (uint32_t)(c->period * (fits ? most_under_way(c) : 1) / c->fragments);
    double steps = ceil(c->exchange_s / job->step_s);
    return steps <= 1 || most <= 1 ? 1 : steps < most ? (uint32_t)steps : most;
}

static size_t with_overlaps(const struct slow_options *o, struct slow_candidate c, struct slow_candidate *all)
{
    size_t n = 0;
    for (c.overlap = 0; c.overlap <= 1; c.overlap++) {
        slow_predict(&o->link, &o->job, &c);
        all[n++] = c;
    }
    c.overlap = slow_hiding_overlap(&o->job, &c);
    if (c.overlap > 1) {
        slow_predict(&o->link, &o->job, &c);
        all[n++] = c;
    }
    return n;
}

size_t slow_candidates(const struct slow_options *o, struct slow_candidate *all)
{
    double chunks = ceil(o->job.n_floats / o->job.chunk_floats);
    size_t n = 0;
    for (size_t p = 0; p < o->n_periods; p++)
        for (size_t c = 0; c < o->n_codecs; c++)
            for (size_t f = 0; f < o->n_fragments; f++)
                if (o->fragments[f] <= chunks && o->fragments[f] <= o->periods[p])
                    n += with_overlaps(o,
                                       (struct slow_candidate){.period = o->periods[p],
                                                               .fragments = o->fragments[f],
                                                               .codec = &o->codecs[c],
                                                               .cost = o->costs[c]},
                                       all + n);
    return n;
}

const struct slow_candidate *slow_choose(const struct slow_candidate *all, size_t n, double target)
{
    const struct slow_candidate *best = NULL;
    for (size_t i = 0; i < n; i++) {
        if (all[i].share >= target)
            return &all[i];
        if (best == NULL || all[i].share > best->share)
            best = &all[i];
    }
    return best;
}

const char *slow_overlap_text(uint32_t overlap, char text[16])
{
    if (overlap > 1)
        snprintf(text, 16, "%u", overlap);
    else
        snprintf(text, 16, "%s", overlap == 1 ? "true" : "false");
    return text;
}

void slow_yaml(const struct slow_job *job, const struct slow_candidate *c, char text[SLOW_YAML])
{
    char codec[PS_CODEC_TEXT], overlap[16], workers[24] = "", window[32] = "";
    ps_codec_text(c->codec, codec);
    if (job->in_rounds || c->codec->for_moves)
        snprintf(workers, sizeof workers, "workers: %u\n", job->workers);
    if (c->window != SLOW_WINDOW)
        snprintf(window, sizeof window, "window_chunks: %u\n", c->window);
    snprintf(text, SLOW_YAML,
             "method: %s\n"
             "%s"
             "parameters: {period: %u, fragments: %u, overlap: %s}\n"
             "codec: {message: %s, answer: %s, error_feedback: %s}\n"
             "%s",
             job->method, workers, c->period, c->fragments, slow_overlap_text(c->overlap, overlap), codec,
             codec, c->codec->in_place ? "false" : "true", window);
}
