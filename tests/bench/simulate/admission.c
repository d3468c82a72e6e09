/* admission.c: when an arrived exchange is applied and answered, as in server/admissions, and the time that
 * it takes a lane. Receiving costs the time of a chunk; applying costs the time of its bytes. */
#include <string.h>

#include "tests/bench/simulate/run.h"

static struct sim_place *place_of(const struct sim *s, const struct sim_piece *p)
{
    return &s->lanes[p->lane].places[p->k];
}

static double apply_s(const struct sim *s, const struct sim_cost *cost, uint32_t k)
{
    const struct sim_machine *m = s->machine;
    return s->piece_floats[k] * (cost->byte_s * sizeof(float) + m->message.decode_s + m->answer.encode_s);
}

/* A lane's time to apply a message. */
static double lane_s(const struct sim *s, const struct sim_cost *cost, uint32_t k)
{
    return s->piece_chunks[k] * cost->chunk_s + apply_s(s, cost, k);
}

/* Staleness as in psd: exchanges of other clients that were completed since the client's last answer. */
static void note_staleness(struct sim *s, const struct sim_piece *p)
{
    uint64_t stale = s->moves - p->client->seen_moves;
    if (p->k != 0 || p->lane != p->client->first_lane)
        return;
    if (s->admission->rounds)
        stale = 0;
    s->staleness[stale < s->n_bins ? stale : s->n_bins - 1]++;
    s->tally.staleness_sum += (double)stale;
    s->tally.n_stale++;
}

static void apply_alone(void *owner)
{
    struct sim_piece *p = owner;
    note_staleness(p->sim, p);
    sim_applied(p->sim, p);
    sim_answer(p->sim, p);
}

static void arrive_fcfs(struct sim *s, struct sim_piece *p)
{
    double seconds = lane_s(s, &s->machine->lane, p->k);
    sim_station_enter(&s->lanes[p->lane].work, &p->task, seconds, apply_alone, p);
}

static void take_in(struct sim *s, struct sim_piece *p, sim_handler then)
{
    double seconds = s->piece_chunks[p->k] * s->machine->lane.chunk_s;
    sim_station_enter(&s->lanes[p->lane].work, &p->task, seconds, then, p);
}

static void stage(struct sim_place *place, struct sim_piece *p)
{
    p->next = NULL;
    if (place->first == NULL)
        place->first = p;
    else
        place->last->next = p;
    place->last = p;
    place->n_staged++;
}

/* Rounds: sync, backup, quorum. Whether the piece is a member of its round, which may be partial. */
static bool is_member(const struct sim *s, const struct sim_place *place, const struct sim_piece *p)
{
    return !s->admission->partial_rounds || p->client->member_of == place->done + 1;
}

/* Under sync all clients; otherwise the members of the partial round, once it is decided. */
static bool is_round_whole(const struct sim *s, const struct sim_place *place)
{
    if (!s->admission->partial_rounds)
        return place->n_staged == s->n_clients;
    return s->cut.round > place->done && place->n_members == s->cut.n;
}

static void end_round(void *owner);

static void try_round(struct sim_place *place)
{
    struct sim *s = place->sim;
    struct sim_lane *lane = &s->lanes[place->lane];
    uint32_t n = s->admission->partial_rounds ? s->cut.n : s->n_clients;
    if (place->busy || !is_round_whole(s, place))
        return;
    place->busy = true;
    sim_station_enter(&lane->work, &place->merge, n * apply_s(s, &s->machine->merge, place->k), end_round,
                      place);
}

/* Answers all pieces of this round; those of non-members came too late. */
static void end_round(void *owner)
{
    struct sim_place *place = owner;
    struct sim *s = place->sim;
    struct sim_piece *p = place->first, *next;
    uint64_t done = place->done;
    for (struct sim_piece *q = p; q != NULL; q = q->next)
        q->applied = is_member(s, place, q);
    place->first = NULL;
    place->n_staged = place->n_members = 0;
    place->done = done + 1;
    place->busy = false;
    for (; p != NULL; p = next) {
        next = p->next;
        if (p->client->round > done) {
            stage(place, p);
            continue;
        }
        if (p->applied) {
            note_staleness(s, p);
            sim_applied(s, p);
        } else {
            s->total.pieces_dropped++;
        }
        sim_answer(s, p);
    }
    try_round(place);
}

static void cut_place(struct sim_place *place)
{
    place->n_members = 0;
    for (const struct sim_piece *p = place->first; p != NULL; p = p->next)
        place->n_members += is_member(place->sim, place, p);
    try_round(place);
}

static void cut_round(struct sim *s)
{
    struct sim_client *c = s->clients;
    s->cut.n = s->cut.n_begun = 0;
    for (uint32_t i = 0; i < s->n_clients; i++)
        if (c[i].round == s->cut.round && c[i].lanes_begun == s->n_lanes) {
            c[i].member_of = s->cut.round + 1;
            s->cut.n++;
        }
    s->cut.round++;
    s->cut.waits = false;
    for (uint32_t l = 0; l < s->n_lanes; l++)
        for (uint32_t k = 0; k < s->n_pieces; k++)
            cut_place(&s->lanes[l].places[k]);
}

static void grace_is_over(void *owner)
{
    struct sim *s = owner;
    if (s->cut.waits && s->cut.graced == s->cut.round)
        cut_round(s);
}

static uint32_t needed(const struct sim *s)
{
    const struct sim_method *m = s->method;
    uint32_t p = s->n_clients;
    if (strcmp(s->admission->name, "backup") == 0)
        return p > m->backup ? p - m->backup : 1;
    return m->quorum < p ? m->quorum : p;
}

/* Called when an exchange of the open round has begun in every lane. */
static void begun_everywhere(struct sim *s)
{
    bool quorum = strcmp(s->admission->name, "quorum") == 0;
    uint32_t n = ++s->cut.n_begun;
    if (n < needed(s))
        return;
    if (!quorum || n == s->n_clients || !(s->method->grace_s > 0)) {
        cut_round(s);
    } else if (!s->cut.waits) {
        s->cut.waits = true;
        s->cut.graced = s->cut.round;
        sim_at(&s->engine, s->engine.now_s + s->method->grace_s, grace_is_over, s);
    }
}

static void staged_round(void *owner)
{
    struct sim_piece *p = owner;
    struct sim *s = p->sim;
    struct sim_place *place = place_of(s, p);
    struct sim_client *c = p->client;
    if (s->admission->partial_rounds && c->round < place->done) {
        s->total.pieces_dropped++;
        sim_answer(s, p);
        return;
    }
    stage(place, p);
    place->n_members += s->admission->partial_rounds && s->cut.round > place->done && is_member(s, place, p);
    if (s->admission->partial_rounds && p->k == 0 && ++c->lanes_begun == s->n_lanes &&
        c->round == s->cut.round)
        begun_everywhere(s);
    try_round(place);
}

static void arrive_round(struct sim *s, struct sim_piece *p)
{
    take_in(s, p, staged_round);
}

/* Round-robin: by rank; the first round waits for all clients. With `serial` a lane's last answer waits for
 * the worker's next turn. */
static void end_turn(void *owner);

static void try_turn(struct sim_place *place)
{
    struct sim *s = place->sim;
    struct sim_piece *p = place->by_rank[place->turn];
    bool all_or_later = place->done > 0 || place->turn > 0 || place->n_staged == s->n_clients;
    if (place->busy || p == NULL || !all_or_later)
        return;
    if (p->applied) { /* its next turn */
        place->by_rank[place->turn] = NULL;
        place->n_staged--;
        sim_answer(s, p);
        return;
    }
    place->busy = true;
    sim_station_enter(&s->lanes[place->lane].work, &place->merge, apply_s(s, &s->machine->lane, place->k),
                      end_turn, place);
}

static void end_turn(void *owner)
{
    struct sim_place *place = owner;
    struct sim *s = place->sim;
    struct sim_piece *p = place->by_rank[place->turn];
    bool waits = s->method->serial && place->k + 1 == s->n_pieces;
    note_staleness(s, p);
    sim_applied(s, p);
    place->busy = false;
    if (!waits) {
        place->by_rank[place->turn] = NULL;
        place->n_staged--;
    }
    if (++place->turn == s->n_clients) {
        place->turn = 0;
        place->done++;
    }
    if (!waits)
        sim_answer(s, p);
    try_turn(place);
}

static void staged_turn(void *owner)
{
    struct sim_piece *p = owner;
    struct sim_place *place = place_of(p->sim, p);
    place->by_rank[p->client->id] = p;
    place->n_staged++;
    try_turn(place);
}

static void arrive_turn(struct sim *s, struct sim_piece *p)
{
    take_in(s, p, staged_turn);
}

/* SSP: message n of a client is applied when every client has sent its message n - slack. */
static uint32_t ring_of(const struct sim *s, uint64_t clock)
{
    return (uint32_t)(clock % (s->method->slack + 3));
}

static void apply_stale(struct sim *s, struct sim_piece *p)
{
    uint64_t apart = place_of(s, p)->clocks[p->client->id] - place_of(s, p)->slowest;
    s->total.most_apart = apart > s->total.most_apart ? apart : s->total.most_apart;
    sim_station_enter(&s->lanes[p->lane].work, &p->task, apply_s(s, &s->machine->lane, p->k), apply_alone, p);
}

/* The slowest client has advanced: all staged pieces, which were one clock too far ahead, may be applied. */
static void release(struct sim_place *place)
{
    struct sim_piece *p = place->first, *next;
    place->first = NULL;
    place->n_staged = 0;
    for (; p != NULL; p = next) {
        next = p->next;
        apply_stale(place->sim, p);
    }
}

static void staged_stale(void *owner)
{
    struct sim_piece *p = owner;
    struct sim *s = p->sim;
    struct sim_place *place = place_of(s, p);
    uint32_t clock = place->clocks[p->client->id]++;
    place->n_at[ring_of(s, clock)]--;
    place->n_at[ring_of(s, clock + 1)]++;
    if (clock + 1 <= place->slowest + s->method->slack)
        apply_stale(s, p);
    else
        stage(place, p);
    if (place->n_at[ring_of(s, place->slowest)] == 0) {
        place->slowest++;
        release(place);
    }
}

static void arrive_stale(struct sim *s, struct sim_piece *p)
{
    take_in(s, p, staged_stale);
}

static const struct sim_admission admissions[] = {
    {"fcfs", arrive_fcfs, .whole = false},
    {"hogwild", arrive_fcfs, .whole = true},
    {"round-robin", arrive_turn, .by_rank = true},
    {"sync", arrive_round, .rounds = true},
    {"backup", arrive_round, .rounds = true, .partial_rounds = true},
    {"quorum", arrive_round, .rounds = true, .partial_rounds = true},
    {"ssp", arrive_stale, .clocks = true},
};

const struct sim_admission *sim_admission_find(const char *name)
{
    for (size_t i = 0; i < sizeof admissions / sizeof *admissions; i++)
        if (strcmp(admissions[i].name, name) == 0)
            return &admissions[i];
    return NULL;
}
