/* Commands, events and counters as messages between servers. */
#include "server/cluster/cluster.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int pack_tensors(const struct ps_manifest *m, struct psd_packed_messages *p)
{
    p->tensors = calloc(m->n_tensors, sizeof *p->tensors);
    p->list = calloc(m->n_tensors, sizeof *p->list);
    if (p->tensors == NULL || p->list == NULL)
        return -ENOMEM;
    for (size_t i = 0; i < m->n_tensors; i++) {
        const struct ps_tensor *t = &m->tensors[i];
        ps__tensor__init(&p->tensors[i]);
        p->tensors[i].name = t->name;
        p->tensors[i].offset = t->offset;
        p->tensors[i].n_shape = t->n_dims;
        p->tensors[i].shape = (uint64_t *)(uintptr_t)t->shape;
        p->tensors[i].role = t->role;
        p->tensors[i].decay = t->decay;
        p->tensors[i].rate_ppm = t->rate_ppm;
        p->list[i] = &p->tensors[i];
    }
    p->msg.n_tensors = m->n_tensors;
    p->msg.tensors = p->list;
    return 0;
}

static void pack_members(const struct psd_members *m, struct psd_packed_messages *p)
{
    ps__note_members__init(&p->members);
    p->members.from = m->from;
    p->members.n_ranks = m->n;
    p->members.ranks = m->ranks;
    p->members.n_seqs = m->seqs != NULL ? m->n : 0;
    p->members.seqs = m->seqs;
    p->msg.members = &p->members;
}

int psd_lane_message_pack(const struct psd_lane_message *msg, uint32_t lane, struct psd_packed_messages *out)
{
    *out = (struct psd_packed_messages){.tensors = NULL};
    ps__note__init(&out->msg);
    out->msg.kind = msg->kind;
    out->msg.lane = lane;
    out->msg.client = msg->client;
    out->msg.incarnation = msg->incarnation;
    out->msg.a = msg->a;
    out->msg.b = msg->b;
    if (msg->kind == PSD_COMMAND_ADMIT) {
        out->msg.identity = msg->p;
        out->msg.pass.data = (uint8_t *)(uintptr_t)msg->pass;
        out->msg.pass.len = msg->attaches ? sizeof msg->pass : 0;
    }
    if (msg->kind == PSD_COMMAND_MEMBERS || msg->kind == PSD_COMMAND_CLOSE_ROUND)
        pack_members(msg->p, out);
    if (msg->kind == PSD_COMMAND_SLICE && msg->p != NULL)
        return pack_tensors(((const struct psd_center *)msg->p)->manifest, out);
    return 0;
}

void psd_packed_messages_empty(struct psd_packed_messages *p)
{
    free(p->tensors);
    free(p->list);
}

bool psd_lane_message_members(const Ps__NoteMembers *from, uint32_t n_slots, struct psd_members *m)
{
    if (from == NULL || from->n_ranks > n_slots || (from->n_seqs != 0 && from->n_seqs != from->n_ranks))
        return false;
    for (size_t i = 0; i < from->n_ranks; i++)
        if (from->ranks[i] >= n_slots || (i > 0 && from->ranks[i] <= from->ranks[i - 1]))
            return false;
    m->from = from->from;
    m->n = (uint32_t)from->n_ranks;
    memcpy(m->ranks, from->ranks, from->n_ranks * sizeof *m->ranks);
    if (from->n_seqs != 0)
        memcpy(m->seqs, from->seqs, from->n_seqs * sizeof *m->seqs);
    return true;
}

#define READ(at)     atomic_load_explicit(&(at), memory_order_relaxed)
#define WRITE(at, v) atomic_store_explicit(&(at), v, memory_order_relaxed)

/* For clients that have a session here. */
static void fill_clients(const struct psd_cluster *cluster, const struct psd_lane *lane, Ps__LaneNews *n,
                         Ps__ClientNews *rows, Ps__ClientNews **list)
{
    for (uint32_t i = 0; i < lane->shared->n_slots; i++) {
        const struct psd_lane_client *c = &lane->clients[i];
        if (READ(c->clock) == 0 && READ(c->waiting_seq) == 0 && READ(c->arrived) == 0 &&
            READ(c->bytes_out) == 0 && isnan(READ(c->last_squares)))
            continue;
        Ps__ClientNews *row = &rows[n->n_clients];
        ps__client_news__init(row);
        row->client = i;
        row->clock = READ(c->clock);
        row->staleness = READ(c->staleness);
        row->waiting_seq = READ(c->waiting_seq);
        row->waiting_chunks = READ(c->waiting_chunks);
        row->computes = READ(c->computes);
        row->arrived = READ(c->arrived);
        row->last_squares = READ(c->last_squares);
        row->last_rate = READ(c->last_rate);
        row->road = (char *)(uintptr_t)cluster->lanes->transports.row[READ(c->port)].transport->name;
        row->bytes_in = READ(c->bytes_in);
        row->bytes_out = READ(c->bytes_out);
        list[n->n_clients++] = row;
    }
    n->clients = list;
}

static void fill_counters(const struct psd_lane *lane, Ps__LaneNews *n, uint64_t *rejected,
                          uint64_t *staleness)
{
    const struct psd_lane_stats *s = &lane->stats;
    n->clock = READ(s->clock);
    n->chunks = READ(s->chunks);
    n->replays = READ(s->replays);
    n->pulled = READ(s->pulled);
    n->set = READ(s->set);
    n->moves = READ(s->moves);
    n->staleness_sum = READ(s->staleness_sum);
    n->center_squares = READ(s->center_squares);
    for (int k = 0; k < PSD_N_CODES; k++)
        rejected[k] = READ(s->rejected[k]);
    for (int k = 0; k < PSD_STALENESS_BUCKETS; k++)
        staleness[k] = READ(s->staleness[k]);
    n->rejected = rejected;
    n->n_rejected = PSD_N_CODES;
    n->staleness = staleness;
    n->n_staleness = PSD_STALENESS_BUCKETS;
}

static void fill_transports(const struct psd_cluster *cluster, const struct psd_lane_stats *s,
                            Ps__LaneNews *n, Ps__RoadNews *rows, Ps__RoadNews **list)
{
    for (uint32_t k = 0; k < cluster->lanes->transports.n; k++) {
        ps__road_news__init(&rows[k]);
        rows[k].transport = (char *)(uintptr_t)cluster->lanes->transports.row[k].transport->name;
        rows[k].bytes_in = READ(s->bytes_in[k]);
        rows[k].bytes_out = READ(s->bytes_out[k]);
        list[k] = &rows[k];
    }
    n->roads = list;
    n->n_roads = cluster->lanes->transports.n;
}

/* One block for each lane: the message and the arrays that it points to. */
struct lane_block {
    Ps__LaneNews news;
    Ps__RoadNews road[PSD_MAX_TRANSPORTS], *roads[PSD_MAX_TRANSPORTS];
    uint64_t rejected[PSD_N_CODES], staleness[PSD_STALENESS_BUCKETS];
    Ps__ClientNews **list;
    Ps__ClientNews rows[];
};

Ps__LaneNews **psd_news_of_lanes(const struct psd_cluster *cluster)
{
    uint32_t n_slots = cluster->sessions->n_slots;
    Ps__LaneNews **lanes = calloc(cluster->lanes->n_own, sizeof *lanes);
    for (uint32_t i = 0; lanes != NULL && i < cluster->lanes->n_own; i++) {
        struct lane_block *b =
            malloc(sizeof *b + n_slots * (sizeof(Ps__ClientNews) + sizeof(Ps__ClientNews *)));
        if (b == NULL) {
            psd_news_free(lanes, i);
            return NULL;
        }
        b->list = (Ps__ClientNews **)(void *)(b->rows + n_slots);
        ps__lane_news__init(&b->news);
        fill_counters(cluster->lanes->list[i], &b->news, b->rejected, b->staleness);
        fill_transports(cluster, &cluster->lanes->list[i]->stats, &b->news, b->road, b->roads);
        fill_clients(cluster, cluster->lanes->list[i], &b->news, b->rows, b->list);
        lanes[i] = &b->news;
    }
    return lanes;
}

void psd_news_free(Ps__LaneNews **lanes, uint32_t n_lanes)
{
    for (uint32_t i = 0; lanes != NULL && i < n_lanes; i++)
        free(lanes[i]); /* the first member of its block */
    free(lanes);
}

static void take_clients(const struct psd_cluster *cluster, struct psd_lane *lane, const Ps__LaneNews *n)
{
    for (size_t i = 0; i < n->n_clients; i++) {
        const Ps__ClientNews *row = n->clients[i];
        if (row->client >= lane->shared->n_slots)
            continue;
        struct psd_lane_client *c = &lane->clients[row->client];
        uint32_t road = psd_transports_find(&cluster->lanes->transports, row->road);
        WRITE(c->port, road < cluster->lanes->transports.n ? road : 0);
        WRITE(c->bytes_in, row->bytes_in);
        WRITE(c->bytes_out, row->bytes_out);
        WRITE(c->clock, row->clock);
        WRITE(c->staleness, row->staleness);
        WRITE(c->waiting_seq, row->waiting_seq);
        WRITE(c->waiting_chunks, row->waiting_chunks);
        WRITE(c->computes, row->computes != 0);
        WRITE(c->arrived, row->arrived);
        WRITE(c->last_squares, row->last_squares);
        WRITE(c->last_rate, row->last_rate);
    }
}

/* Another server's counters begin anew when it does; the sums here never fall. */
static void count(_Atomic uint64_t *sum, _Atomic uint64_t *told, uint64_t now)
{
    uint64_t last = READ(*told);
    WRITE(*sum, READ(*sum) + (now >= last ? now - last : now));
    WRITE(*told, now);
}

void psd_news_take(const struct psd_cluster *cluster, struct psd_lane *lane, const Ps__LaneNews *n)
{
    struct psd_lane_stats *s = &lane->stats, *told = &lane->told;
    WRITE(s->clock, n->clock);
    WRITE(s->moves, n->moves);
    WRITE(s->center_squares, n->center_squares);
    count(&s->chunks, &told->chunks, n->chunks);
    count(&s->replays, &told->replays, n->replays);
    count(&s->pulled, &told->pulled, n->pulled);
    count(&s->set, &told->set, n->set);
    count(&s->staleness_sum, &told->staleness_sum, n->staleness_sum);
    for (size_t k = 0; k < PSD_N_CODES && k < n->n_rejected; k++)
        count(&s->rejected[k], &told->rejected[k], n->rejected[k]);
    for (size_t k = 0; k < PSD_STALENESS_BUCKETS && k < n->n_staleness; k++)
        count(&s->staleness[k], &told->staleness[k], n->staleness[k]);
    for (size_t i = 0; i < n->n_roads; i++) {
        uint32_t k = psd_transports_find(&cluster->lanes->transports, n->roads[i]->transport);
        if (k < cluster->lanes->transports.n) { /* clients do not get transports that the head lacks */
            count(&s->bytes_in[k], &told->bytes_in[k], n->roads[i]->bytes_in);
            count(&s->bytes_out[k], &told->bytes_out[k], n->roads[i]->bytes_out);
        }
    }
    take_clients(cluster, lane, n);
}
