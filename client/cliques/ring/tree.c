/* Moves a collective along the tree. A call has up to two directions: towards its root, where values are
 * added, and from its root, where they are final. A segment is sent as soon as it is complete, so that a long
 * vector moves through several levels of the tree at once. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "client/cliques/ring/tree.h"

/* Hops, as in heads. */
enum { UP, DOWN };

static uint32_t low_bit(uint32_t rank)
{
    return rank & (0 - rank);
}

/* The neighbour on the way to the root. */
static uint32_t towards(const struct psc_ring *r, uint32_t root)
{
    const struct psc_tree *t = r->tree;
    if (root == r->rank)
        return t->n_peers;
    for (uint32_t i = 0; i < t->n_peers; i++)
        if (t->rank[i] > r->rank && root >= t->rank[i] && root < t->rank[i] + low_bit(t->rank[i]))
            return i;
    return t->n_peers - 1; /* not below: over the parent */
}

/* The first neighbour from i on that is not on the way to the root; n_peers: there is none. */
static uint32_t next_below(const struct psc_tree *t, uint32_t i)
{
    return i == t->towards ? i + 1 : i;
}

static bool is_root(const struct psc_tree *t)
{
    return t->towards == t->n_peers;
}

/* Whether segment s has passed through the flow. */
static bool is_past(const struct psc_flow *f, uint32_t s)
{
    return psc_flow_ended(f) || f->time > s;
}

static struct psc_flow flow_of(uint32_t hop, uint32_t segments)
{
    return (struct psc_flow){.hop = hop, .left = segments};
}

static int begin_link(struct psc_ring *r, struct psc_tree_link *l, size_t slot_bytes)
{
    const struct psc_tree *t = r->tree;
    bool has_below = next_below(t, 0) < t->n_peers;
    l->from = next_below(t, 0);
    l->encoded = 0;
    l->gather = flow_of(UP, t->up && has_below ? l->segments : 0);
    l->pass = flow_of(UP, t->up && !is_root(t) ? l->segments : 0);
    l->result = flow_of(DOWN, t->down && !is_root(t) ? l->segments : 0);
    for (uint32_t i = 0; i < t->n_peers; i++)
        l->spread[i] = flow_of(DOWN, t->down && i != t->towards ? l->segments : 0);
    if (r->plain || !t->down || slot_bytes <= l->slot_bytes)
        return PSC_OK;
    free(l->store);
    l->store = malloc(2 * slot_bytes);
    l->slot_bytes = l->store != NULL ? slot_bytes : 0;
    return l->store != NULL
               ? PSC_OK
               : ps_fail(r->err, PSC_ENOMEM, "no memory for %zu bytes of encoded segments of a tree",
                         2 * slot_bytes);
}

/* An allgather is a sum of bits: every member has zeros in the place of the others' values. */
static void clear_others(struct psc_ring *r)
{
    size_t part = r->op->n * r->unit_bytes, before = part * r->rank;
    unsigned char *all = r->op->data;
    if (part == 0 || r->n == 0)
        return;
    memset(all, 0, before);
    memset(all + before + part, 0, part * r->members - part - before);
}

static int begin(struct psc_ring *r)
{
    const struct psc_collective *op = r->op;
    struct psc_tree *t = r->tree;
    size_t units = psc_segment_units(r, op->type, 1), n = (r->n + units - 1) / units;
    bool to_all = op->compares || (op->kind != PSC_REDUCE && op->kind != PSC_BROADCAST);
    n += n == 0;
    r->segment_units = units;
    if (op->kind == PSC_ALLGATHER)
        clear_others(r);
    t->up = to_all || op->kind == PSC_REDUCE;
    t->down = to_all || op->kind == PSC_BROADCAST;
    t->towards = towards(r, to_all ? 0 : (uint32_t)op->root);
    t->active = n < r->links ? (uint32_t)n : r->links;
    for (uint32_t i = 0; i < t->active; i++) {
        struct psc_tree_link *l = &t->link[i];
        l->part = psc_part_of(r->n, units, n, i, t->active);
        l->segments = (uint32_t)((l->part.count + units - 1) / units);
        l->segments += l->segments == 0; /* every call shows that its sender has reached it */
        int rc = begin_link(r, l, psc_payload_bytes(r, units));
        if (rc != PSC_OK)
            return rc;
    }
    return PSC_OK;
}

static struct psc_span segment_at(const struct psc_ring *r, const struct psc_tree_link *l, uint32_t s)
{
    size_t at = s * r->segment_units, left = at < l->part.count ? l->part.count - at : 0;
    return (struct psc_span){l->part.begin + at, left < r->segment_units ? left : r->segment_units};
}

/* Two encoded segments of the result may be on their way. */
static unsigned char *slot_at(const struct psc_tree_link *l, uint32_t s)
{
    return l->store + (s % 2) * l->slot_bytes;
}

static bool is_slot_free(const struct psc_ring *r, const struct psc_tree_link *l, uint32_t s)
{
    const struct psc_tree *t = r->tree;
    for (uint32_t i = 0; !r->plain && s >= 2 && i < t->n_peers; i++)
        if (!is_past(&l->spread[i], s - 2))
            return false;
    return true;
}

static bool may_pass(const struct psc_tree_link *l, uint32_t s)
{
    return is_past(&l->gather, s);
}

/* It is sent only after this member's own values. */
static bool may_take_result(const struct psc_ring *r, const struct psc_tree_link *l)
{
    return is_past(&l->pass, l->result.time) && is_slot_free(r, l, l->result.time);
}

static bool may_spread(const struct psc_ring *r, const struct psc_tree_link *l, uint32_t s)
{
    if (!is_root(r->tree))
        return is_past(&l->result, s);
    return is_past(&l->gather, s) && (r->plain || l->encoded > s || is_slot_free(r, l, s));
}

static bool wants(const struct psc_flow *f, bool may)
{
    return !psc_flow_ended(f) && (f->loaded || may);
}

static void load(struct psc_ring *r, const struct psc_tree_link *l, struct psc_flow *f)
{
    psc_flow_load(r, f, segment_at(r, l, f->time), f->time);
}

static void load_gather(struct psc_ring *r, struct psc_tree_link *l, uint32_t link)
{
    load(r, l, &l->gather);
    l->gather.payload = r->link[link].bounce;
}

static void load_pass(struct psc_ring *r, struct psc_tree_link *l, uint32_t link)
{
    struct psc_flow *f = &l->pass;
    load(r, l, f);
    f->payload = r->plain ? psc_bytes_at(r, f->span) : r->link[link].staging;
    if (!r->plain)
        r->op->codec->encode(r->op->codec, f->payload, psc_floats_at(r, f->span), f->span.count);
}

static void load_result(struct psc_ring *r, struct psc_tree_link *l)
{
    struct psc_flow *f = &l->result;
    load(r, l, f);
    f->payload = r->plain ? psc_bytes_at(r, f->span) : slot_at(l, f->time);
}

static void load_spread(struct psc_ring *r, struct psc_tree_link *l, struct psc_flow *f)
{
    load(r, l, f);
    f->payload = r->plain ? psc_bytes_at(r, f->span) : slot_at(l, f->time);
    if (r->plain || !is_root(r->tree) || l->encoded > f->time)
        return;
    r->op->codec->encode(r->op->codec, f->payload, psc_floats_at(r, f->span), f->span.count);
    r->op->codec->decode(r->op->codec, psc_floats_at(r, f->span), f->payload,
                         f->span.count); /* as all others will */
    l->encoded = f->time + 1;
}

static void advance(struct psc_flow *f)
{
    f->loaded = false;
    f->time++;
    f->left--;
}

/* A neighbour's values have arrived: they are added, and the next neighbour's turn comes. */
static void land_gather(struct psc_ring *r, struct psc_tree_link *l)
{
    struct psc_flow *f = &l->gather;
    if (f->span.count > 0)
        psc_fold_at(r, f->span, f->payload);
    f->loaded = false;
    l->from = next_below(r->tree, l->from + 1);
    if (l->from < r->tree->n_peers)
        return;
    l->from = next_below(r->tree, 0);
    advance(f);
}

static void land_result(struct psc_ring *r, struct psc_tree_link *l)
{
    struct psc_flow *f = &l->result;
    if (!r->plain && f->span.count > 0)
        r->op->codec->decode(r->op->codec, psc_floats_at(r, f->span), f->payload, f->span.count);
    advance(f);
}

/* The loaded segment of a flow to a neighbour, or from one. Positive: something moved. more: the next one can
 * be sent, too, if there is one. */
static int send_to(struct psc_ring *r, struct psc_tree_link *l, struct psc_flow *f, uint32_t peer, bool more)
{
    int rc = psc_flow_send(f, l->fd[peer], more && f->left > 1);
    if (rc < 0)
        return psc_ring_lost(r, r->tree->rank[peer], rc);
    if (psc_flow_is_whole(f))
        advance(f);
    r->moved[PSC_BEAT_TREE + peer] |= rc > 0;
    return rc;
}

static int receive_from(struct psc_ring *r, struct psc_tree_link *l, struct psc_flow *f, uint32_t peer,
                        unsigned char *arrived)
{
    int rc = psc_flow_receive(f, l->fd[peer], arrived);
    if (rc == -EPROTO)
        return psc_ring_odd_head(r, r->tree->rank[peer], l->fd[peer], f, arrived);
    if (rc < 0)
        return psc_ring_lost(r, r->tree->rank[peer], rc);
    r->moved[PSC_BEAT_TREE + peer] |= rc > 0;
    return rc;
}

static int move_up(struct psc_ring *r, struct psc_tree_link *l, uint32_t link)
{
    int in = 0, out = 0;
    if (!psc_flow_ended(&l->gather)) {
        if (!l->gather.loaded)
            load_gather(r, l, link);
        if ((in = receive_from(r, l, &l->gather, l->from, l->gathered)) < 0)
            return in;
        if (psc_flow_is_whole(&l->gather))
            land_gather(r, l);
    }
    if (wants(&l->pass, may_pass(l, l->pass.time))) {
        if (!l->pass.loaded)
            load_pass(r, l, link);
        if ((out = send_to(r, l, &l->pass, r->tree->towards, may_pass(l, l->pass.time + 1))) < 0)
            return out;
    }
    return in | out;
}

static int move_down(struct psc_ring *r, struct psc_tree_link *l)
{
    int rc, moved = 0;
    if (wants(&l->result, may_take_result(r, l))) {
        if (!l->result.loaded)
            load_result(r, l);
        if ((moved = receive_from(r, l, &l->result, r->tree->towards, l->resulted)) < 0)
            return moved;
        if (psc_flow_is_whole(&l->result))
            land_result(r, l);
    }
    for (uint32_t i = 0; i < r->tree->n_peers; i++) {
        struct psc_flow *f = &l->spread[i];
        if (!wants(f, may_spread(r, l, f->time)))
            continue;
        if (!f->loaded)
            load_spread(r, l, f);
        if ((rc = send_to(r, l, f, i, may_spread(r, l, f->time + 1))) < 0)
            return rc;
        moved |= rc;
    }
    return moved;
}

static bool has_ended(const struct psc_tree *t, const struct psc_tree_link *l)
{
    bool ended = psc_flow_ended(&l->gather) && psc_flow_ended(&l->pass) && psc_flow_ended(&l->result);
    for (uint32_t i = 0; i < t->n_peers && ended; i++)
        ended = psc_flow_ended(&l->spread[i]);
    return ended;
}

static int move(struct psc_ring *r, bool *ended)
{
    struct psc_tree *t = r->tree;
    int moved = 0;
    *ended = true;
    for (uint32_t i = 0; i < t->active; i++) {
        int up = move_up(r, &t->link[i], i), down = up < 0 ? up : move_down(r, &t->link[i]);
        if (down < 0)
            return down;
        moved |= up | down;
        *ended = *ended && has_ended(t, &t->link[i]);
    }
    return moved;
}

/* What a neighbour sends before its turn stays in its socket, and is not polled for. */
static void list_waits(struct psc_ring *r, struct psc_waits *w)
{
    const struct psc_tree *t = r->tree;
    for (uint32_t i = 0; i < t->active; i++) {
        const struct psc_tree_link *l = &t->link[i];
        short events[PSC_TREE_PEERS + 1] = {0};
        if (!psc_flow_ended(&l->gather))
            events[l->from] |= POLLIN;
        if (wants(&l->pass, may_pass(l, l->pass.time)))
            events[t->towards] |= POLLOUT;
        if (wants(&l->result, may_take_result(r, l)))
            events[t->towards] |= POLLIN;
        for (uint32_t k = 0; k < t->n_peers; k++)
            if (wants(&l->spread[k], may_spread(r, l, l->spread[k].time)))
                events[k] |= POLLOUT;
        for (uint32_t k = 0; k < t->n_peers; k++) {
            if (events[k] == 0)
                continue;
            w->fds[w->n++] = (struct pollfd){.fd = l->fd[k], .events = events[k]};
            w->on[PSC_BEAT_TREE + k] = true;
        }
    }
}

const struct psc_algorithm psc_algorithm_tree = {
    .kind = PSC_ALGORITHM_TREE, .begin = begin, .move = move, .list_waits = list_waits};

void psc_tree_send_error(struct psc_ring *r, const unsigned char *news, double deadline_s)
{
    struct psc_tree *t = r->tree;
    for (uint32_t i = 0; t != NULL && i < r->links; i++)
        for (uint32_t k = 0; k < t->n_peers; k++) {
            struct psc_tree_link *l = &t->link[i];
            if (l->fd[k] < 0)
                continue;
            psc_flow_finish(&l->spread[k], l->fd[k], deadline_s);
            if (k == t->towards)
                psc_flow_finish(&l->pass, l->fd[k], deadline_s);
            psc_send_all(l->fd[k], news, PSC_HEAD_BYTES + PSC_NEWS_BYTES, deadline_s, -1);
            shutdown(l->fd[k], SHUT_WR);
        }
}

int psc_tree_fd_at_head(const struct psc_tree *t, uint32_t i)
{
    const struct psc_tree_link *l = &t->link[i / t->n_peers];
    uint32_t k = i % t->n_peers;
    bool gathers = l->gather.loaded && l->gather.done > 0 && l->from == k;
    bool takes = l->result.loaded && l->result.done > 0 && t->towards == k;
    return gathers || takes ? -1 : l->fd[k];
}
