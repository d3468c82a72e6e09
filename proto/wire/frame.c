#include "proto/wire/frame.h"

#include <endian.h>
#include <errno.h>
#include <stdbool.h>
#include <string.h>

/* The layout on the wire. Every field is naturally aligned, so the struct has no padding. */
struct wire {
    uint32_t magic;
    uint16_t version;
    uint8_t kind, codec;
    uint32_t client, incarnation;
    uint64_t seq, begin;
    uint32_t count, generation;
    uint64_t clock, center_version;
    uint16_t code, flags;
    uint32_t samples_or_rate;
};
_Static_assert(sizeof(struct wire) == PS_FRAME_BYTES, "the data header is 64 bytes");

static bool is_answer(uint8_t kind)
{
    return kind == PS_FRAME_ANSWER || kind == PS_FRAME_ERROR;
}

void ps_frame_pack(const struct ps_frame *f, void *head)
{
    uint32_t last = f->samples;
    if (is_answer(f->kind))
        memcpy(&last, &f->rate, sizeof last);
    struct wire w = {
        .magic = htole32(PS_FRAME_MAGIC),
        .version = htole16(PS_PROTOCOL_VERSION),
        .kind = f->kind,
        .codec = f->codec,
        .client = htole32(f->client),
        .incarnation = htole32(f->incarnation),
        .seq = htole64(f->seq),
        .begin = htole64(f->begin),
        .count = htole32(f->count),
        .generation = htole32(f->generation),
        .clock = htole64(f->clock),
        .center_version = htole64(f->center_version),
        .code = htole16(f->code),
        .flags = htole16(f->flags),
        .samples_or_rate = htole32(last),
    };
    memcpy(head, &w, sizeof w);
}

static int check(const struct wire *w, struct ps_error *err)
{
    if (le32toh(w->magic) != PS_FRAME_MAGIC)
        return ps_fail(err, -EPROTO, "a data header starts with magic %08x; found %08x", PS_FRAME_MAGIC,
                       le32toh(w->magic));
    if (le16toh(w->version) != PS_PROTOCOL_VERSION)
        return ps_fail(err, -EPROTONOSUPPORT, "data protocol version %u; this end speaks %d",
                       le16toh(w->version), PS_PROTOCOL_VERSION);
    if (!(w->kind >= PS_FRAME_EXCHANGE && w->kind <= PS_FRAME_KNOWN) && !is_answer(w->kind))
        return ps_fail(err, -EPROTO, "frame kind %u; allowed are 1 to 8 and 16, 17", w->kind);
    if (w->count == 0 && w->kind != PS_FRAME_ERROR)
        return ps_fail(err, -EPROTO, "a piece of 0 floats; allowed is 1 or more");
    return 0;
}

int ps_frame_parse(struct ps_frame *f, const void *head, size_t len_bytes, struct ps_error *err)
{
    struct wire w;
    int rc;

    if (len_bytes != PS_FRAME_BYTES)
        return ps_fail(err, -EPROTO, "a data header has %d bytes; found %zu", PS_FRAME_BYTES, len_bytes);
    memcpy(&w, head, sizeof w);
    if ((rc = check(&w, err)) < 0)
        return rc;
    *f = (struct ps_frame){
        .kind = w.kind,
        .codec = w.codec,
        .client = le32toh(w.client),
        .incarnation = le32toh(w.incarnation),
        .seq = le64toh(w.seq),
        .begin = le64toh(w.begin),
        .count = le32toh(w.count),
        .generation = le32toh(w.generation),
        .clock = le64toh(w.clock),
        .center_version = le64toh(w.center_version),
        .code = le16toh(w.code),
        .flags = le16toh(w.flags),
    };
    uint32_t last = le32toh(w.samples_or_rate);
    if (is_answer(w.kind))
        memcpy(&f->rate, &last, sizeof f->rate);
    else
        f->samples = last;
    return 0;
}
