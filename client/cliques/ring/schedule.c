/* The order of segments, and their moves from and to the sockets. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "client/cliques/ring/ring.h"

enum { SHORT_BYTES = 16384 };

/* The stripe that the flow is at. */
static uint32_t stripe_of(const struct psc_flow *f)
{
    return f->time - f->hop;
}

/* The block at a hop, one segment at most. Empty ones are sent, too: they show that the sender has reached
 * the hop. */
static struct psc_span block_at(const struct psc_ring *r, const struct psc_ring_link *l, uint32_t stripe,
                                uint32_t hop)
{
    uint32_t blocks = r->schedule.blocks;
    uint32_t block = (r->rank + r->schedule.shift + 2 * blocks - hop % blocks) % blocks;
    size_t whole = r->schedule.apart > 0 ? r->segment_units : blocks * r->segment_units, at = stripe * whole;
    at = at < l->part.count ? at : l->part.count; /* the last link's part may be the shorter one */
    size_t left = l->part.count - at;
    struct psc_span s = {l->part.begin + at, left < whole ? left : whole};
    if (r->schedule.apart == 0)
        return psc_block_cut(s, block, blocks);
    s.begin += block * r->schedule.apart;
    return s;
}

size_t psc_payload_bytes(const struct psc_ring *r, size_t units)
{
    return r->plain ? units * r->unit_bytes : r->op->codec->payload_bytes(r->op->codec, units);
}

float *psc_floats_at(const struct psc_ring *r, struct psc_span s)
{
    return (float *)r->op->data + s.begin;
}

unsigned char *psc_bytes_at(const struct psc_ring *r, struct psc_span s)
{
    return (unsigned char *)r->op->data + s.begin * r->unit_bytes;
}

void psc_fold_at(const struct psc_ring *r, struct psc_span s, const unsigned char *payload)
{
    if (r->op->codec != NULL)
        r->op->codec->add(r->op->codec, psc_floats_at(r, s), payload, s.count);
    else if (r->op->kind == PSC_ALLGATHER)
        psc_fold_bits(psc_bytes_at(r, s), payload, s.count * r->unit_bytes);
    else
        psc_values_of(r->op->type)->fold[r->op->operation](psc_bytes_at(r, s), payload, s.count);
}

/* The place of the encoded segment that arrives at `hop` and is sent at the next: two stripes may be waiting.
 */
static unsigned char *slot_at(const struct psc_ring *r, const struct psc_ring_link *l, uint32_t stripe,
                              uint32_t hop)
{
    return l->store + ((hop - r->schedule.adopt_from) * 2 + stripe % 2) * l->slot_bytes;
}

static bool is_stored(const struct psc_ring *r, uint32_t in_hop)
{
    return !r->plain && in_hop >= r->schedule.adopt_from && in_hop + 1 < r->schedule.out_end;
}

/* Two members that add a short vector both send all of it, one hop instead of two: a + b is b + a. Neither
 * reads before it has sent everything, which the sockets hold. */
static bool is_swap(const struct psc_ring *r, const struct psc_collective *op)
{
    bool adds = op->operation == PSC_SUM || op->operation == PSC_MEAN;
    return r->members == 2 && adds && r->plain && r->n * r->unit_bytes <= SHORT_BYTES;
}

static struct psc_schedule schedule_of(const struct psc_ring *r, const struct psc_collective *op)
{
    uint32_t p = r->members, root = (uint32_t)op->root;
    uint32_t behind_root = (r->rank + p - root) % p;          /* hops from the root to here */
    uint32_t behind_first = (r->rank + 2 * p - root - 1) % p; /* the member after the root begins the sum */
    bool first = behind_first == 0, last = behind_first == p - 1;
    switch (op->compares ? PSC_BARRIER : op->kind) {
    case PSC_ALLREDUCE:
        if (is_swap(r, op))
            return (struct psc_schedule){1, 1, 0, 1, 0, 1, UINT32_MAX, 0, 0, .swaps = true};
        return (struct psc_schedule){p, 1, 0, 2 * p - 2, 0, 2 * p - 2, p - 1, 0, 0};
    case PSC_REDUCE_SCATTER: /* the block that arrives last is the member's own */
        return (struct psc_schedule){p, 1, 0, p - 1, 0, p - 1, UINT32_MAX, p - 1, op->n};
    case PSC_ALLGATHER:
        return (struct psc_schedule){p, 1, 0, p - 1, 0, p - 1, 0, 0, op->n};
    case PSC_REDUCE:
        return (struct psc_schedule){
            1, 1, behind_first, behind_first + !last, behind_first - !first, behind_first, UINT32_MAX, 0, 0};
    case PSC_BROADCAST:
        return (struct psc_schedule){1,
                                     1,
                                     behind_root,
                                     behind_root + (behind_root < p - 1),
                                     behind_root - (behind_root > 0),
                                     behind_root,
                                     0,
                                     0,
                                     0};
    default: /* after p - 1 hops all have arrived */
        return (struct psc_schedule){1, 1, 0, p - 1, 0, p - 1, 0, 0, 0};
    }
}

/* Room for encoded blocks that are forwarded; it only grows. */
static int make_store(struct psc_ring *r, struct psc_ring_link *l)
{
    uint32_t first = r->schedule.adopt_from;
    if (first == UINT32_MAX || !is_stored(r, first))
        return PSC_OK;
    l->slot_bytes = psc_payload_bytes(r, r->segment_units);
    size_t need = 2 * (size_t)(r->schedule.out_end - 1 - first) * l->slot_bytes;
    if (need <= l->store_bytes)
        return PSC_OK;
    free(l->store);
    l->store = malloc(need);
    l->store_bytes = l->store != NULL ? need : 0;
    return l->store != NULL
               ? PSC_OK
               : ps_fail(r->err, PSC_ENOMEM, "no memory for %zu bytes of encoded segments", need);
}

/* Units of a segment in a stripe of this many blocks; for floats whole blocks of a codec. */
size_t psc_segment_units(const struct psc_ring *r, uint8_t type, uint32_t blocks)
{
    return type == PSC_FLOAT32 ? psc_segment_floats(r->segment_bytes, blocks)
                               : psc_segment_values(r->segment_bytes, blocks, psc_values_of(type)->bytes);
}

size_t psc_ring_stripe(const struct psc_ring *r)
{
    return r->members * psc_segment_units(r, PSC_FLOAT32, r->members);
}

static struct psc_flow first_of(const struct psc_ring *r, uint32_t begin, uint32_t end)
{
    return (struct psc_flow){
        .time = begin, .hop = begin, .left = (uint64_t)r->schedule.stripes * (end - begin)};
}

/* A link's part consists of whole stripes, except at the end of the vector. So the member at which the sum of
 * a float begins, and with it the last bits of the sum, depends only on the float's place in the vector. It
 * does not depend on the number of links, nor on whether one call sums the vector or several calls that begin
 * at stripes. */
struct psc_span psc_part_of(size_t n, size_t stripe, size_t n_stripes, uint32_t link, uint32_t links)
{
    size_t begin = n_stripes * link / links * stripe, end = n_stripes * (link + 1) / links * stripe;
    begin = begin < n ? begin : n;
    return (struct psc_span){begin, (end < n ? end : n) - begin};
}

int psc_flow_begin(struct psc_ring *r)
{
    const struct psc_collective *op = r->op;
    struct psc_schedule *s = &r->schedule;
    *s = schedule_of(r, op);
    r->segment_units = psc_segment_units(r, op->type, s->blocks);
    size_t n = s->apart > 0 ? s->apart : r->n, stripe = (s->apart > 0 ? 1 : s->blocks) * r->segment_units;
    size_t n_stripes = (n + stripe - 1) / stripe;
    n_stripes += n_stripes == 0;
    r->active = n_stripes < r->links ? (uint32_t)n_stripes : r->links;
    s->stripes = (uint32_t)((n_stripes + r->active - 1) / r->active);
    for (uint32_t i = 0; i < r->active; i++) {
        struct psc_ring_link *l = &r->link[i];
        l->part = psc_part_of(n, stripe, n_stripes, i, r->active);
        l->out = first_of(r, s->out_begin, s->out_end);
        l->in = first_of(r, s->in_begin, s->in_end);
        l->next_quiet = false;
        int rc = make_store(r, l);
        if (rc != PSC_OK)
            return rc;
    }
    return PSC_OK;
}

void psc_flow_load(const struct psc_ring *r, struct psc_flow *f, struct psc_span block, uint32_t index)
{
    f->span = block;
    f->bytes = psc_payload_bytes(r, f->span.count);
    f->done = 0;
    f->loaded = true;
    psc_head_pack(&(struct psc_head){.type = PSC_HEAD_SEGMENT,
                                     .kind = (uint8_t)r->op->kind,
                                     .codec = r->op->codec != NULL ? r->op->codec->id : 0,
                                     .values = r->op->type,
                                     .operation = r->op->operation,
                                     .compares = r->op->compares,
                                     .rank = r->op->root,
                                     .seq = r->seq,
                                     .n = r->op->n,
                                     .hop = f->hop,
                                     .index = index,
                                     .bytes = (uint32_t)f->bytes},
                  f->head);
}

/* Goes to the next segment: by time, then by hop, as long as there is such a stripe. */
static void advance(const struct psc_ring *r, struct psc_flow *f, uint32_t begin, uint32_t end)
{
    f->loaded = false;
    if (--f->left == 0)
        return;
    do {
        if (++f->hop == end) {
            f->hop = begin;
            f->time++;
        }
    } while (f->time < f->hop || stripe_of(f) >= r->schedule.stripes);
}

/* Whether flow f is past this segment. */
static bool is_past(const struct psc_flow *f, uint32_t stripe, uint32_t hop)
{
    uint32_t time = stripe + hop;
    return psc_flow_ended(f) || f->time > time || (f->time == time && f->hop > hop);
}

/* The block sent at hop h was received at hop h - 1, or is the member's own. f: of the link, or further on.
 */
static bool may_send(const struct psc_ring *r, const struct psc_ring_link *l, const struct psc_flow *f)
{
    bool own = f->hop == 0 || f->hop - 1 < r->schedule.in_begin;
    return own || is_past(&l->in, stripe_of(f), f->hop - 1);
}

/* A slot is free when the block of two stripes before has been sent. */
static bool may_receive(const struct psc_ring *r, const struct psc_ring_link *l)
{
    const struct psc_flow *f = &l->in;
    if (r->schedule.swaps)
        return psc_flow_ended(&l->out);
    if (!is_stored(r, f->hop) || stripe_of(f) < 2)
        return true;
    return is_past(&l->out, stripe_of(f) - 2, f->hop + 1);
}

bool psc_flow_wants_out(struct psc_ring *r, struct psc_ring_link *l)
{
    return !psc_flow_ended(&l->out) && (l->out.loaded || may_send(r, l, &l->out));
}

bool psc_flow_wants_in(struct psc_ring *r, struct psc_ring_link *l)
{
    return !psc_flow_ended(&l->in) && (l->in.loaded || may_receive(r, l));
}

static void load_out(struct psc_ring *r, struct psc_ring_link *l)
{
    struct psc_flow *f = &l->out;
    psc_flow_load(r, f, block_at(r, l, stripe_of(f), f->hop), stripe_of(f));
    if (r->plain) {
        f->payload = psc_bytes_at(r, f->span);
    } else if (f->hop > r->schedule.adopt_from) {
        f->payload = slot_at(r, l, stripe_of(f), f->hop - 1);
    } else {
        f->payload = l->staging;
        r->op->codec->encode(r->op->codec, f->payload, psc_floats_at(r, f->span), f->span.count);
        if (f->hop == r->schedule.adopt_from) /* the final values, as all others will decode them */
            r->op->codec->decode(r->op->codec, psc_floats_at(r, f->span), f->payload, f->span.count);
    }
}

static void load_in(struct psc_ring *r, struct psc_ring_link *l)
{
    struct psc_flow *f = &l->in;
    psc_flow_load(r, f, block_at(r, l, stripe_of(f), f->hop + 1), stripe_of(f));
    if (r->plain && f->hop >= r->schedule.adopt_from)
        f->payload = psc_bytes_at(r, f->span);
    else
        f->payload = is_stored(r, f->hop) ? slot_at(r, l, stripe_of(f), f->hop) : l->bounce;
}

/* The rest of head and payload. */
static int vectors_of(const struct psc_flow *f, unsigned char *head, struct iovec *v)
{
    size_t in_payload = f->done > PSC_HEAD_BYTES ? f->done - PSC_HEAD_BYTES : 0;
    int n = 0;
    if (f->done < PSC_HEAD_BYTES)
        v[n++] = (struct iovec){head + f->done, PSC_HEAD_BYTES - f->done};
    if (in_payload < f->bytes)
        v[n++] = (struct iovec){f->payload + in_payload, f->bytes - in_payload};
    return n;
}

int psc_flow_send(struct psc_flow *f, int fd, bool more)
{
    struct iovec v[2];
    struct msghdr m = {.msg_iov = v};
    m.msg_iovlen = (size_t)vectors_of(f, f->head, v);
    ssize_t k = sendmsg(fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT | (more ? MSG_MORE : 0));
    if (k < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : -errno;
    f->done += (size_t)k;
    return 1;
}

int psc_flow_receive(struct psc_flow *f, int fd, unsigned char arrived[PSC_HEAD_BYTES])
{
    struct iovec v[2];
    struct msghdr m = {.msg_iov = v};
    bool knows_head = f->done >= PSC_HEAD_BYTES;
    m.msg_iovlen = (size_t)vectors_of(f, arrived, v);
    ssize_t k = recvmsg(fd, &m, MSG_DONTWAIT);
    if (k < 0 && (errno == EAGAIN || errno == EINTR))
        return 0;
    if (k <= 0)
        return k < 0 ? -errno : -ECONNRESET;
    f->done += (size_t)k;
    if (!knows_head && f->done >= PSC_HEAD_BYTES && memcmp(arrived, f->head, PSC_HEAD_BYTES) != 0)
        return -EPROTO;
    return 1;
}

/* Whether the segment after the loaded one can be sent, too. */
static bool has_more(const struct psc_ring *r, const struct psc_ring_link *l)
{
    struct psc_flow next = {.time = l->out.time, .hop = l->out.hop, .left = l->out.left};
    advance(r, &next, r->schedule.out_begin, r->schedule.out_end);
    return !psc_flow_ended(&next) && may_send(r, l, &next);
}

int psc_flow_out(struct psc_ring *r, struct psc_ring_link *l)
{
    struct psc_flow *f = &l->out;
    if (psc_flow_ended(f) || (!f->loaded && !may_send(r, l, f)))
        return 0;
    if (!f->loaded)
        load_out(r, l);
    int rc = psc_flow_send(f, l->next, has_more(r, l));
    if (rc < 0)
        return psc_ring_lost(r, psc_ring_next(r), rc);
    if (psc_flow_is_whole(f))
        advance(r, f, r->schedule.out_begin, r->schedule.out_end);
    return rc;
}

static void land(struct psc_ring *r, struct psc_flow *f)
{
    bool final = f->hop >= r->schedule.adopt_from;
    if (f->span.count == 0 || (final && r->plain))
        return;
    if (final)
        r->op->codec->decode(r->op->codec, psc_floats_at(r, f->span), f->payload, f->span.count);
    else
        psc_fold_at(r, f->span, f->payload);
}

int psc_flow_in(struct psc_ring *r, struct psc_ring_link *l)
{
    struct psc_flow *f = &l->in;
    if (psc_flow_ended(f) || (!f->loaded && !may_receive(r, l)))
        return 0;
    if (!f->loaded)
        load_in(r, l);
    int rc = psc_flow_receive(f, l->prev, l->arrived);
    if (rc == -EPROTO)
        return psc_ring_odd_head(r, psc_ring_prev(r), l->prev, f, l->arrived);
    if (rc < 0)
        return psc_ring_lost(r, psc_ring_prev(r), rc);
    if (psc_flow_is_whole(f)) {
        land(r, f);
        advance(r, f, r->schedule.in_begin, r->schedule.in_end);
    }
    return rc;
}
