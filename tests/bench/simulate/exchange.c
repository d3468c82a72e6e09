/* exchange.c: the path of a piece: from the calling thread through the connection's threads and the links to
 * its lane, and back. */
#include <math.h>

#include "tests/bench/simulate/run.h"

enum stage {
    STAGE_CALL_OUT,
    STAGE_IO_OUT,
    STAGE_UP,
    STAGE_FLY_UP,
    STAGE_SERVER_IN,
    STAGE_SERVER_IO_IN,
    STAGE_LANE, /* until the admission answers */
    STAGE_SERVER_IO_OUT,
    STAGE_SERVER_OUT,
    STAGE_FLY_DOWN,
    STAGE_DOWN,
    STAGE_IO_IN,
    STAGE_CALL_IN,
    N_STAGES,
};

static void advance(void *owner);
static void fill(struct sim_client *c, uint32_t lane);

static double cost_of(const struct sim_cost *cost, double chunks, double bytes)
{
    return cost->chunk_s * chunks + cost->byte_s * bytes;
}

/* The station of a stage, and the time of the piece there. */
struct visit {
    struct sim_station *at; /* NULL: in transit, no station */
    double seconds;
};

static struct visit thread_visit(struct sim_piece *p, struct sim_station *at, const struct sim_cost *cost,
                                 const struct plan_codec *codec)
{
    double bytes = p->sim->piece_floats[p->k] * codec->bytes_per_float;
    return (struct visit){at, cost_of(cost, p->sim->piece_chunks[p->k], bytes)};
}

/* The caller's work on values, which does not depend on the codec's size. */
static struct visit caller_visit(struct sim_piece *p, double codec_s)
{
    const struct sim_cost *cost = &p->sim->machine->caller;
    double floats = p->sim->piece_floats[p->k];
    return (struct visit){&p->client->caller,
                          cost_of(cost, p->sim->piece_chunks[p->k], floats * sizeof(float)) +
                              codec_s * floats};
}

static struct visit link_visit(struct sim_piece *p, struct sim_station *at, const struct plan_codec *codec,
                               double beta_s)
{
    return (struct visit){at, p->sim->piece_floats[p->k] * codec->bytes_per_float * beta_s};
}

/* A half-duplex link is one station. */
static struct visit visit_of(struct sim_piece *p)
{
    const struct sim_machine *m = p->sim->machine;
    const struct plan_codec *up = &m->message, *down = &m->answer;
    struct sim_client *c = p->client;
    struct sim_lane *lane = &p->sim->lanes[p->lane];
    struct sim_server *server = &p->sim->servers[lane->server];
    bool half = m->link.half_duplex;

    switch (p->stage) {
    case STAGE_CALL_OUT:
        return caller_visit(p, up->encode_s);
    case STAGE_IO_OUT:
        return thread_visit(p, &c->windows[p->lane].io, &m->client_io, up);
    case STAGE_UP:
        return link_visit(p, &c->up, up, m->link.beta_s);
    case STAGE_SERVER_IN:
        return link_visit(p, &server->in, up, m->link.server_beta_s);
    case STAGE_SERVER_IO_IN:
        return thread_visit(p, &lane->io, &m->server_io, up);
    case STAGE_SERVER_IO_OUT:
        return thread_visit(p, &lane->io, &m->server_io, down);
    case STAGE_SERVER_OUT:
        return link_visit(p, half ? &server->in : &server->out, down, m->link.server_beta_s);
    case STAGE_DOWN:
        return link_visit(p, half ? &c->up : &c->down, down, m->link.beta_s);
    case STAGE_IO_IN:
        return thread_visit(p, &c->windows[p->lane].io, &m->client_io, down);
    case STAGE_CALL_IN:
        return caller_visit(p, down->decode_s);
    default:
        return (struct visit){NULL, m->link.alpha_s * p->sim->piece_chunks[p->k]};
    }
}

static double payload(const struct sim_piece *p, const struct plan_codec *codec)
{
    return p->sim->piece_floats[p->k] * codec->bytes_per_float;
}

static void note(struct sim_piece *p)
{
    struct sim_result *t = &p->sim->total;
    const struct sim_machine *m = p->sim->machine;
    if (p->stage == STAGE_LANE)
        t->bytes_in += payload(p, &m->message);
    if (p->stage == STAGE_DOWN)
        t->bytes_down += payload(p, &m->answer);
}

static void finish(struct sim_piece *p)
{
    struct sim_client *c = p->client;
    struct sim_window *w = &c->windows[p->lane];
    uint32_t lane = p->lane;
    p->sim->total.pieces_answered++;
    w->in_flight--;
    w->left--;
    p->next = c->free;
    c->free = p;
    if (w->left > 0)
        fill(c, lane);
    else if (--c->lanes_left == 0)
        sim_client_answered(c);
}

static void go(struct sim_piece *p)
{
    struct sim *s = p->sim;
    note(p);
    if (p->stage == STAGE_LANE) {
        s->admission->arrive(s, p);
        return;
    }
    if (p->stage == N_STAGES) {
        finish(p);
        return;
    }
    struct visit v = visit_of(p);
    if (v.at != NULL)
        sim_station_enter(v.at, &p->task, v.seconds, advance, p);
    else
        sim_at(&s->engine, s->engine.now_s + v.seconds, advance, p);
}

static void advance(void *owner)
{
    struct sim_piece *p = owner;
    p->stage++;
    go(p);
}

void sim_answer(struct sim *s, struct sim_piece *p)
{
    struct sim_place *place = &s->lanes[p->lane].places[p->k];
    struct sim_client *c = p->client;
    c->seen_round = place->done < c->seen_round ? place->done : c->seen_round;
    if (p->lane == c->first_lane) {
        c->seen_moves = s->moves;
        c->was_dropped = !p->applied;
    }
    s->total.bytes_out += payload(p, &s->machine->answer);
    advance(p);
}

void sim_applied(struct sim *s, struct sim_piece *p)
{
    p->applied = true;
    s->total.pieces_applied++;
    if (p->lane == p->client->first_lane && ++p->client->landed == s->n_pieces)
        s->moves++;
}

/* Where one worker computes at a time each lane's last piece ends its turn: it leaves when it has computed.
 */
static void fill(struct sim_client *c, uint32_t lane)
{
    struct sim *s = c->sim;
    struct sim_window *w = &c->windows[lane];
    uint32_t end = s->method->serial && c->computes ? s->n_pieces - 1 : s->n_pieces;
    while (w->next < end && w->in_flight < s->machine->window) {
        struct sim_piece *p = c->free;
        c->free = p->next;
        p->lane = lane;
        p->k = w->next++;
        p->stage = STAGE_CALL_OUT;
        p->counted = p->applied = false;
        w->in_flight++;
        s->total.pieces_sent++;
        s->total.bytes_up += payload(p, &s->machine->message);
        go(p);
    }
}

void sim_exchange_go_on(struct sim_client *c)
{
    for (uint32_t i = 0; i < c->sim->n_lanes; i++)
        if (c->windows[i].left > 0)
            fill(c, i);
}

void sim_exchange_start(struct sim_client *c)
{
    struct sim *s = c->sim;
    bool whole = s->admission->whole;
    c->lanes_left = whole ? 1 : s->n_lanes;
    c->lanes_begun = c->landed = 0;
    c->round = c->seen_round;
    c->seen_round = UINT64_MAX;
    for (uint32_t i = 0; i < s->n_lanes; i++) {
        struct sim_window *w = &c->windows[i];
        w->next = w->in_flight = 0;
        w->left = !whole || i == c->first_lane ? s->n_pieces : 0;
    }
    sim_exchange_go_on(c);
}
