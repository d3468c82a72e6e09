#include "client/cliques/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>

#include "client/cliques/clique.h"
#include "proto/text.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "fields are copied as they are in memory");

static const char *const algorithms[PSC_N_ALGORITHMS] = {"ring", "tree", "auto"};

const char *psc_algorithm_name(uint8_t algorithm)
{
    return algorithm < PSC_N_ALGORITHMS ? algorithms[algorithm] : "none";
}

int psc_algorithm_find(const char *name)
{
    for (int i = 0; i < PSC_N_ALGORITHMS; i++)
        if (strcmp(algorithms[i], name) == 0)
            return i;
    return -EINVAL;
}

static const unsigned char magic[4] = {'p', 's', 'd', 'R'};

/* Writes or reads the fields of a message in their order. */
struct cursor {
    unsigned char *to;
    const unsigned char *from;
};

static void put(struct cursor *c, const void *field, size_t len)
{
    memcpy(c->to, field, len);
    c->to += len;
}

static void get(struct cursor *c, void *field, size_t len)
{
    memcpy(field, c->from, len);
    c->from += len;
}

/* Magic, version, kind, a zero. */
static struct cursor begin(unsigned char *bytes, size_t len, uint8_t kind)
{
    struct cursor c = {.to = bytes};
    const uint16_t version = PSC_WIRE_VERSION;
    memset(bytes, 0, len);
    put(&c, magic, sizeof magic);
    put(&c, &version, sizeof version);
    put(&c, &kind, sizeof kind);
    c.to++;
    return c;
}

static int open_bytes(struct cursor *c, const unsigned char *bytes, uint8_t n_kinds, uint8_t *kind,
                      const char *what, struct ps_error *err)
{
    uint16_t version;
    uint8_t zero;
    *c = (struct cursor){.from = bytes + sizeof magic};
    if (memcmp(bytes, magic, sizeof magic) != 0)
        return ps_fail(err, -EPROTO, "bytes that are not a %s of a ring of psd", what);
    get(c, &version, sizeof version);
    if (version != PSC_WIRE_VERSION)
        return ps_fail(err, -EPROTO, "a %s of version %u of the ring's protocol; expected %d", what, version,
                       PSC_WIRE_VERSION);
    get(c, kind, sizeof *kind);
    get(c, &zero, sizeof zero);
    if (*kind < 1 || *kind > n_kinds || zero != 0)
        return ps_fail(err, -EPROTO, "a %s of kind %u; allowed are 1 to %u", what, *kind, n_kinds);
    return 0;
}

static bool is_zero(const unsigned char *from, const unsigned char *end)
{
    while (from < end)
        if (*from++ != 0)
            return false;
    return true;
}

/* Whether the text is printable, terminated, and followed by zeros only. */
static bool is_text(const char *text, size_t size)
{
    size_t len = strnlen(text, size);
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] < ' ' || text[i] == 127)
            return false;
    return len < size && is_zero((const unsigned char *)text + len, (const unsigned char *)text + size);
}

void psc_hello_pack(const struct psc_hello *h, unsigned char *bytes)
{
    struct cursor c = begin(bytes, PSC_HELLO_BYTES, h->kind);
    put(&c, &h->rank, sizeof h->rank);
    put(&c, &h->members, sizeof h->members);
    put(&c, &h->nonce, sizeof h->nonce);
    put(&c, &h->links, sizeof h->links);
    put(&c, &h->link, sizeof h->link);
    put(&c, &h->segment_bytes, sizeof h->segment_bytes);
    put(&c, h->name, sizeof h->name);
    put(&c, h->address, sizeof h->address);
    put(&c, &h->algorithm, sizeof h->algorithm);
    put(&c, &h->shrinks, sizeof h->shrinks);
    put(&c, &h->step, sizeof h->step);
    put(&c, &h->wait_ms, sizeof h->wait_ms);
    put(&c, &h->n_lost, sizeof h->n_lost);
    put(&c, h->lost, sizeof h->lost);
}

int psc_hello_parse(struct psc_hello *out, const unsigned char *bytes, struct ps_error *err)
{
    struct psc_hello h;
    struct cursor c;
    int rc = open_bytes(&c, bytes, PSC_HELLO_LEFT_OUT, &h.kind, "hello", err);
    if (rc < 0)
        return rc;
    get(&c, &h.rank, sizeof h.rank);
    get(&c, &h.members, sizeof h.members);
    get(&c, &h.nonce, sizeof h.nonce);
    get(&c, &h.links, sizeof h.links);
    get(&c, &h.link, sizeof h.link);
    get(&c, &h.segment_bytes, sizeof h.segment_bytes);
    get(&c, h.name, sizeof h.name);
    get(&c, h.address, sizeof h.address);
    get(&c, &h.algorithm, sizeof h.algorithm);
    get(&c, &h.shrinks, sizeof h.shrinks);
    get(&c, &h.step, sizeof h.step);
    get(&c, &h.wait_ms, sizeof h.wait_ms);
    get(&c, &h.n_lost, sizeof h.n_lost);
    get(&c, h.lost, sizeof h.lost);
    if (!is_text(h.name, sizeof h.name) || !is_text(h.address, sizeof h.address) ||
        !is_zero(c.from, bytes + PSC_HELLO_BYTES))
        return ps_fail(err, -EPROTO, "a hello whose name or address is not text");
    if (h.members < 1 || h.members > PSC_MAX_MEMBERS || h.rank < -1 || h.rank >= (int32_t)h.members ||
        (h.kind != PSC_HELLO_JOIN && h.rank < 0))
        return ps_fail(err, -EPROTO, "a hello of rank %d of %u members", h.rank, h.members);
    if (h.links < 1 || h.links > PSC_MAX_LINKS || h.link >= h.links)
        return ps_fail(err, -EPROTO, "a hello of link %u of %u", h.link, h.links);
    if (h.algorithm >= PSC_N_ALGORITHMS)
        return ps_fail(err, -EPROTO, "a hello with algorithm %u", h.algorithm);
    if (h.shrinks > 1 || h.n_lost > PSC_MAX_LOST_TOLD)
        return ps_fail(err, -EPROTO, "a hello with on_loss %u and %u lost members", h.shrinks, h.n_lost);
    for (uint32_t i = 0; i < h.n_lost; i++)
        if (h.lost[i] >= h.members)
            return ps_fail(err, -EPROTO, "a hello that lost member %u of %u", h.lost[i], h.members);
    *out = h;
    return 0;
}

void psc_reply_pack(const struct psc_reply *r, unsigned char *bytes)
{
    struct cursor c = begin(bytes, PSC_REPLY_BYTES, r->kind);
    put(&c, &r->rank, sizeof r->rank);
    put(&c, &r->job, sizeof r->job);
    put(&c, r->next, sizeof r->next);
    put(&c, r->text, sizeof r->text);
}

int psc_reply_parse(struct psc_reply *out, const unsigned char *bytes, struct ps_error *err)
{
    struct psc_reply r;
    struct cursor c;
    int rc = open_bytes(&c, bytes, PSC_REPLY_WAIT, &r.kind, "reply", err);
    if (rc < 0)
        return rc;
    get(&c, &r.rank, sizeof r.rank);
    get(&c, &r.job, sizeof r.job);
    get(&c, r.next, sizeof r.next);
    get(&c, r.text, sizeof r.text);
    if (!is_text(r.next, sizeof r.next) || !is_text(r.text, sizeof r.text) ||
        !is_zero(c.from, bytes + PSC_REPLY_BYTES))
        return ps_fail(err, -EPROTO, "a reply whose address or sentence is not text");
    if (r.rank < -1 || r.rank >= PSC_MAX_MEMBERS)
        return ps_fail(err, -EPROTO, "a reply to rank %d", r.rank);
    *out = r;
    return 0;
}

void psc_roster_pack(const struct psc_roster *r, uint32_t founders, unsigned char *bytes)
{
    struct cursor c = {.to = bytes};
    memset(bytes, 0, PSC_ROSTER_BYTES(founders));
    put(&c, &r->members, sizeof r->members);
    put(&c, &r->source, sizeof r->source);
    put(&c, &r->behind, sizeof r->behind);
    put(&c, &r->step, sizeof r->step);
    put(&c, r->ids, r->members * sizeof *r->ids);
}

int psc_roster_parse(struct psc_roster *r, uint32_t founders, const unsigned char *bytes,
                     struct ps_error *err)
{
    struct cursor c = {.from = bytes};
    get(&c, &r->members, sizeof r->members);
    get(&c, &r->source, sizeof r->source);
    get(&c, &r->behind, sizeof r->behind);
    get(&c, &r->step, sizeof r->step);
    if (founders > PSC_MAX_MEMBERS || r->members < 1 || r->members > founders || r->source >= r->members ||
        r->behind >= r->members)
        return ps_fail(err, -EPROTO, "a roster of %u members, step of member %u, %u behind", r->members,
                       r->source, r->behind);
    get(&c, r->ids, r->members * sizeof *r->ids);
    for (uint32_t i = 0; i < r->members; i++)
        if (r->ids[i] >= founders || (i > 0 && r->ids[i] <= r->ids[i - 1]))
            return ps_fail(err, -EPROTO, "a roster with member %u at rank %u", r->ids[i], i);
    return is_zero(c.from, bytes + PSC_ROSTER_BYTES(founders))
               ? 0
               : ps_fail(err, -EPROTO, "a roster with padding that is not zero");
}

void psc_head_pack(const struct psc_head *h, unsigned char *bytes)
{
    struct cursor c = begin(bytes, PSC_HEAD_BYTES, h->type);
    put(&c, &h->kind, sizeof h->kind);
    put(&c, &h->codec, sizeof h->codec);
    put(&c, &h->values, sizeof h->values);
    put(&c, &h->operation, sizeof h->operation);
    put(&c, &h->rank, sizeof h->rank);
    put(&c, &h->seq, sizeof h->seq);
    put(&c, &h->n, sizeof h->n);
    put(&c, &h->hop, sizeof h->hop);
    put(&c, &h->index, sizeof h->index);
    put(&c, &h->bytes, sizeof h->bytes);
    put(&c, &h->compares, sizeof h->compares);
}

int psc_head_parse(struct psc_head *out, const unsigned char *bytes, struct ps_error *err)
{
    struct psc_head h;
    struct cursor c;
    int rc = open_bytes(&c, bytes, PSC_HEAD_NEWS, &h.type, "segment", err);
    if (rc < 0)
        return rc;
    get(&c, &h.kind, sizeof h.kind);
    get(&c, &h.codec, sizeof h.codec);
    get(&c, &h.values, sizeof h.values);
    get(&c, &h.operation, sizeof h.operation);
    get(&c, &h.rank, sizeof h.rank);
    get(&c, &h.seq, sizeof h.seq);
    get(&c, &h.n, sizeof h.n);
    get(&c, &h.hop, sizeof h.hop);
    get(&c, &h.index, sizeof h.index);
    get(&c, &h.bytes, sizeof h.bytes);
    get(&c, &h.compares, sizeof h.compares);
    if (!is_zero(c.from, bytes + PSC_HEAD_BYTES))
        return ps_fail(err, -EPROTO, "a segment with padding that is not zero");
    if (h.values >= PSC_N_TYPES || h.operation >= PSC_N_OPERATIONS || h.compares > 1)
        return ps_fail(err, -EPROTO, "a segment of type %u and operation %u", h.values, h.operation);
    if (h.kind >= PSC_N_COLLECTIVES || h.rank < 0 || h.rank >= PSC_MAX_MEMBERS)
        return ps_fail(err, -EPROTO, "a segment of call %u and rank %d", h.kind, h.rank);
    if (h.type != PSC_HEAD_SEGMENT && h.bytes != (h.type == PSC_HEAD_NEWS ? PSC_NEWS_BYTES : 0))
        return ps_fail(err, -EPROTO, "a beat or error report with %u bytes of payload", h.bytes);
    if (h.type == PSC_HEAD_NEWS && h.n > PSC_MAX_MEMBERS)
        return ps_fail(err, -EPROTO, "an error report about rank %" PRIu64, h.n - 1);
    if (h.type == PSC_HEAD_ALIVE && (h.n < PSC_MIN_TIMEOUT_MS || h.n > PSC_MAX_TIMEOUT_MS))
        return ps_fail(err, -EPROTO, "a beat that tolerates %" PRIu64 " ms of silence", h.n);
    *out = h;
    return 0;
}

void psc_news_clean(const unsigned char *bytes, struct ps_error *out)
{
    _Static_assert(sizeof out->text == PSC_NEWS_BYTES, "the whole sentence is sent");
    char text[PSC_NEWS_BYTES];
    memcpy(text, bytes, sizeof text);
    text[sizeof text - 1] = 0;
    ps_text_copy(out->text, sizeof out->text, text);
}
