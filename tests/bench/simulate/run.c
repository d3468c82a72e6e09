/* run.c: builds a job, runs it, and computes the result. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "proto/model/shard.h"
#include "tests/bench/simulate/run.h"

/* Bins of the staleness histogram: several times the number of workers. */
enum { BINS_EACH = 8, BINS_MORE = 64 };

/* Divides the vector as proto/model/shard.c, into equal slices; each piece has the same number of chunks. */
static int cut(struct sim *s)
{
    double slice = s->load->n_floats / (s->admission->whole ? 1 : s->n_lanes);
    double chunk = fmin(s->machine->chunk_floats, slice), chunks = ceil(slice / chunk);
    s->n_pieces = (uint32_t)fmin(chunks, s->load->pieces);
    s->piece_floats = calloc(s->n_pieces, sizeof *s->piece_floats);
    s->piece_chunks = calloc(s->n_pieces, sizeof *s->piece_chunks);
    if (s->piece_floats == NULL || s->piece_chunks == NULL)
        return -ENOMEM;
    for (uint32_t k = 0; k < s->n_pieces; k++) {
        bool alone = chunks <= s->load->pieces;
        s->piece_chunks[k] = chunks / s->n_pieces;
        s->piece_floats[k] = alone ? fmin(chunk, slice - k * chunk) : slice / s->n_pieces;
    }
    return 0;
}

static int make_place(struct sim *s, struct sim_place *place, uint32_t lane, uint32_t k)
{
    uint32_t slots = s->method->slack + 3;
    *place = (struct sim_place){.sim = s, .lane = lane, .k = k};
    if (s->admission->by_rank && (place->by_rank = calloc(s->n_clients, sizeof *place->by_rank)) == NULL)
        return -ENOMEM;
    if (!s->admission->clocks)
        return 0;
    place->clocks = calloc(s->n_clients, sizeof *place->clocks);
    place->n_at = calloc(slots, sizeof *place->n_at);
    if (place->clocks == NULL || place->n_at == NULL)
        return -ENOMEM;
    place->n_at[0] = s->n_clients;
    return 0;
}

static int make_servers(struct sim *s)
{
    struct sim_station *cores = s->machine->cores > 0 ? &s->cores : NULL;
    int rc = 0;
    s->servers = calloc(s->n_servers, sizeof *s->servers);
    s->lanes = calloc(s->n_lanes, sizeof *s->lanes);
    if (s->servers == NULL || s->lanes == NULL)
        return -ENOMEM;
    for (uint32_t i = 0; i < s->n_servers; i++) {
        sim_station_init(&s->servers[i].in, &s->engine, 1, NULL);
        sim_station_init(&s->servers[i].out, &s->engine, 1, NULL);
    }
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        struct sim_lane *lane = &s->lanes[i];
        lane->server = i % s->n_servers;
        sim_station_init(&lane->io, &s->engine, 1, cores);
        sim_station_init(&lane->work, &s->engine, 1, cores);
        if ((lane->places = calloc(s->n_pieces, sizeof *lane->places)) == NULL)
            return -ENOMEM;
        for (uint32_t k = 0; k < s->n_pieces && rc == 0; k++)
            rc = make_place(s, &lane->places[k], i, k);
    }
    return rc;
}

/* One window of pieces for each lane: the most in flight. */
static int make_client(struct sim *s, struct sim_client *c, uint32_t id)
{
    struct sim_station *cores = s->machine->cores > 0 ? &s->cores : NULL;
    size_t n = (size_t)s->n_lanes * s->machine->window;
    uint32_t members = s->method->members;

    *c = (struct sim_client){.sim = s, .id = id, .first_lane = s->admission->whole ? id % s->n_lanes : 0};
    c->dice.state = s->load->seed;
    c->dice.state = sim_dice_bits(&c->dice) ^ id;
    c->factors = calloc(members, sizeof *c->factors);
    c->windows = calloc(s->n_lanes, sizeof *c->windows);
    c->pieces = calloc(n, sizeof *c->pieces);
    if (c->factors == NULL || c->windows == NULL || c->pieces == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < n; i++) {
        c->pieces[i] = (struct sim_piece){.sim = s, .client = c, .next = c->free};
        c->free = &c->pieces[i];
    }
    for (uint32_t i = 0; i < members; i++) { /* slow workers are spread evenly, starting from the last */
        double rank = (double)id * members + i + 1, share = s->load->slow_share;
        c->factors[i] =
            floor(rank * share + 1e-9) > floor((rank - 1) * share + 1e-9) ? s->load->slow_factor : 1;
    }
    sim_station_init(&c->caller, &s->engine, 1, cores);
    sim_station_init(&c->up, &s->engine, 1, NULL);
    sim_station_init(&c->down, &s->engine, 1, NULL);
    for (uint32_t i = 0; i < s->n_lanes; i++)
        sim_station_init(&c->windows[i].io, &s->engine, 1, cores);
    return 0;
}

static int make(struct sim *s)
{
    uint32_t clients = s->load->workers / s->method->members;
    int rc;
    s->n_clients = clients;
    s->n_servers = s->machine->servers;
    s->n_lanes = s->machine->link.lanes * s->n_servers;
    s->n_bins = BINS_EACH * clients + BINS_MORE;
    s->n_all = (uint64_t)clients * s->load->exchanges;
    s->n_warm = (uint64_t)clients * (s->load->exchanges / 4);
    sim_station_init(&s->cores, &s->engine, s->machine->cores, NULL);
    s->staleness = calloc(s->n_bins, sizeof *s->staleness);
    s->clients = calloc(clients, sizeof *s->clients);
    if (s->staleness == NULL || s->clients == NULL)
        return -ENOMEM;
    if ((rc = cut(s)) < 0 || (rc = make_servers(s)) < 0)
        return rc;
    for (uint32_t i = 0; i < clients; i++)
        if ((rc = make_client(s, &s->clients[i], i)) < 0)
            return rc;
    const struct sim_machine *m = s->machine;
    double n = s->load->n_floats, members = s->method->members;
    s->sum_s = s->method->sums_to_one ? sim_reduce_s(m, n, members) : sim_allreduce_s(m, n, members);
    s->broadcast_s = sim_broadcast_s(m, n, members);
    return 0;
}

static void unmake(struct sim *s)
{
    for (uint32_t i = 0; i < s->n_lanes && s->lanes != NULL; i++) {
        for (uint32_t k = 0; k < s->n_pieces && s->lanes[i].places != NULL; k++) {
            free(s->lanes[i].places[k].by_rank);
            free(s->lanes[i].places[k].clocks);
            free(s->lanes[i].places[k].n_at);
        }
        free(s->lanes[i].places);
    }
    for (uint32_t i = 0; i < s->n_clients && s->clients != NULL; i++) {
        free(s->clients[i].factors);
        free(s->clients[i].windows);
        free(s->clients[i].pieces);
    }
    free(s->lanes);
    free(s->servers);
    free(s->clients);
    free(s->staleness);
    free(s->piece_floats);
    free(s->piece_chunks);
    sim_engine_finish(&s->engine);
}

static double lanes_busy_s(const struct sim *s)
{
    double sum = 0;
    for (uint32_t i = 0; i < s->n_lanes; i++)
        sum += s->lanes[i].work.busy_s;
    return sum / s->n_lanes;
}

static double nic_busy_s(const struct sim *s)
{
    double most = 0;
    for (uint32_t i = 0; i < s->n_servers; i++)
        most = fmax(most, fmax(s->servers[i].in.busy_s, s->servers[i].out.busy_s));
    return most;
}

/* Resets the counts: the pipelines are full now. */
static void begin_tally(struct sim *s)
{
    memset(s->staleness, 0, s->n_bins * sizeof *s->staleness);
    s->tally = (struct sim_tally){.since_s = s->engine.now_s,
                                  .lanes_s = lanes_busy_s(s),
                                  .nic_s = nic_busy_s(s),
                                  .cores_s = s->cores.busy_s};
}

static double percentile(const struct sim *s, double share)
{
    uint64_t want = (uint64_t)ceil(share * (double)s->tally.n_stale), seen = 0;
    uint32_t i = 0;
    for (; i + 1 < s->n_bins && (seen += s->staleness[i]) < want; i++)
        continue;
    return s->tally.n_stale > 0 ? i : 0;
}

static void end_tally(struct sim *s)
{
    struct sim_result *r = &s->total;
    const struct sim_tally *t = &s->tally;
    double seconds = s->engine.now_s - t->since_s, each = (double)t->exchanges / s->n_clients;
    double per_s = t->exchanges / seconds, batch = (double)s->load->batch * s->method->members;
    bool cliques = s->method->is_clique;

    r->iteration_s = seconds / (each * s->method->period);
    r->exchanges_s = per_s;
    r->dropped = (double)t->dropped / (double)t->exchanges;
    r->samples_s = per_s * s->method->period * batch * (1 - r->dropped);
    r->waited = fmin(t->waited_s / (seconds * s->n_clients), 1);
    r->staleness_mean = t->n_stale > 0 ? t->staleness_sum / (double)t->n_stale : 0;
    r->staleness_p99 = percentile(s, 0.99);
    if (cliques)
        r->staleness_mean = r->staleness_p99 = s->method->pipeline - 1;
    r->lanes_busy = (lanes_busy_s(s) - t->lanes_s) / seconds;
    r->nic_busy = (nic_busy_s(s) - t->nic_s) / seconds;
    r->cores_busy = s->machine->cores > 0 ? (s->cores.busy_s - t->cores_s) / seconds / s->machine->cores : 0;
}

void sim_count(struct sim *s, struct sim_client *c, double waited_s)
{
    s->total.exchanges++;
    s->tally.exchanges++;
    s->tally.waited_s += waited_s;
    s->tally.dropped += c->was_dropped;
    c->was_dropped = false;
    if (s->total.exchanges == s->n_warm)
        begin_tally(s);
    s->over = s->over || s->total.exchanges >= s->n_all;
}

static int run_events(struct sim *s)
{
    if (s->method->is_clique)
        return sim_ring_run(s);
    for (uint32_t i = 0; i < s->n_clients; i++)
        sim_client_start(&s->clients[i]);
    while (!s->over && sim_next(&s->engine))
        continue;
    return s->engine.failed ? -ENOMEM : 0;
}

static int check(const struct sim_method *m, const struct sim_machine *machine, const struct sim_load *l,
                 struct ps_error *err)
{
    if (m->is_clique && machine->cores > 0 && m->members > SIM_MAX_RING)
        return ps_fail(err, -EINVAL, "%s: %u members on shared cores; allowed are %d", m->name, m->members,
                       SIM_MAX_RING);
    if (l->workers % m->members != 0)
        return ps_fail(err, -EINVAL, "%s: %u workers cannot form cliques of %u", m->name, l->workers,
                       m->members);
    if (strcmp(m->admission, "hogwild") == 0 && machine->servers > 1)
        return ps_fail(err, -EINVAL, "%s: hogwild is of one server, whose lanes share the whole center",
                       m->name);
    if (machine->cores > 0 && m->members > 1 && !m->is_clique)
        return ps_fail(err, -EINVAL, "%s: cliques that share cores with psd are not simulated", m->name);
    return 0;
}

int sim_run(const struct sim_method *method, const struct sim_machine *machine, const struct sim_load *load,
            struct sim_result *out, struct ps_error *err)
{
    struct sim s = {.method = method, .machine = machine, .load = load};
    int rc = check(method, machine, load, err);

    if (rc < 0)
        return rc;
    s.admission = sim_admission_find(method->admission);
    if ((rc = make(&s)) == 0)
        rc = run_events(&s);
    if (rc == 0) {
        end_tally(&s);
        s.total.workers = load->workers;
        s.total.clients = s.n_clients;
        s.total.alone_s = load->compute_s * (1 + load->slow_share * (load->slow_factor - 1)) +
                          sim_own_steps_s(&s) / method->period;
        s.total.n_events = s.engine.n_run;
        *out = s.total;
    } else {
        rc = ps_fail(err, rc, "no memory for %u workers under %s", load->workers, method->name);
    }
    unmake(&s);
    return rc;
}
