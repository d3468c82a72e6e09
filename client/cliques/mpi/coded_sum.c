/* The ring's way (ring/schedule.c) with messages of MPI, for codecs, of which MPI knows nothing. The vector
 * is cut as the ring cuts it with segments of their usual size, and values are decoded, added and encoded in
 * the same order: so the bits are the ring's. Several stripes travel together, as one message at each hop. */
#include "client/cliques/mpi/coded_sum.h"

#include <stdlib.h>

#include "client/cliques/mpi/mpi.h"
#include "client/cliques/ring/blocks.h"

enum { MESSAGE_BYTES = 1 << 20, TAG = 1 };

/* Stripes that travel together. */
struct wave {
    const struct psc_coded_sum *s;
    size_t first, end;
    uint32_t blocks; /* of a stripe */
    size_t stripe;   /* floats; of a reduce-scatter, in the part of each member */
};

static struct psc_span block_of(const struct wave *w, size_t stripe, uint32_t k)
{
    size_t at = stripe * w->stripe, left = w->s->op->n - at;
    if (w->s->op->kind == PSC_REDUCE_SCATTER)
        return (struct psc_span){k * w->s->op->n + at, left < w->stripe ? left : w->stripe};
    return psc_block_cut((struct psc_span){at, left < w->stripe ? left : w->stripe}, k, w->blocks);
}

static size_t bytes_of(const struct wave *w, uint32_t k)
{
    const struct ps_codec *codec = w->s->op->codec;
    size_t bytes = 0;
    for (size_t i = w->first; i < w->end; i++)
        bytes += codec->payload_bytes(codec, block_of(w, i, k).count);
    return bytes;
}

static void encode(const struct wave *w, uint32_t k)
{
    const struct ps_codec *codec = w->s->op->codec;
    unsigned char *to = w->s->room->out;
    for (size_t i = w->first; i < w->end; i++) {
        struct psc_span b = block_of(w, i, k);
        codec->encode(codec, to, (const float *)w->s->op->data + b.begin, b.count);
        to += codec->payload_bytes(codec, b.count);
    }
}

/* By codec->decode or codec->add. */
static void land(const struct wave *w, uint32_t k, const unsigned char *from,
                 void (*by)(const struct ps_codec *, float *, const void *, size_t))
{
    const struct ps_codec *codec = w->s->op->codec;
    for (size_t i = w->first; i < w->end; i++) {
        struct psc_span b = block_of(w, i, k);
        by(codec, (float *)w->s->op->data + b.begin, from, b.count);
        from += codec->payload_bytes(codec, b.count);
    }
}

static void swap(struct psc_coded_room *room)
{
    unsigned char *out = room->out;
    room->out = room->in;
    room->in = out;
}

static int exchange(const struct wave *w, uint32_t out, uint32_t in, struct ps_error *err)
{
    const struct psc_coded_sum *s = w->s;
    int next = (int)(s->rank + 1 < s->members ? s->rank + 1 : 0);
    int previous = (int)(s->rank > 0 ? s->rank : s->members) - 1;
    int rc = MPI_Sendrecv(s->room->out, (int)bytes_of(w, out), MPI_BYTE, next, TAG, s->room->in,
                          (int)bytes_of(w, in), MPI_BYTE, previous, TAG, s->comm, MPI_STATUS_IGNORE);
    return rc == MPI_SUCCESS ? PSC_OK : psc_mpi_fail(err, "MPI_Sendrecv", rc);
}

/* At hop h a member sends block rank - 1 - h and receives block rank - 2 - h: the last one is its own. */
static int reduce_scatter(const struct wave *w, struct ps_error *err)
{
    uint32_t p = w->s->members, out = (w->s->rank + p - 1) % p;
    int rc = PSC_OK;
    for (uint32_t hop = 0; hop + 1 < p && rc == PSC_OK; hop++) {
        uint32_t in = (out > 0 ? out : p) - 1;
        encode(w, out);
        if ((rc = exchange(w, out, in, err)) == PSC_OK)
            land(w, in, w->s->room->in, w->s->op->codec->add);
        out = in;
    }
    return rc;
}

/* At hop h a member sends block rank - h and receives block rank - h - 1. From hop p - 1 on blocks are whole:
 * they replace what was there, and are forwarded as they came. */
static int allreduce(const struct wave *w, struct ps_error *err)
{
    const struct psc_coded_sum *s = w->s;
    const struct ps_codec *codec = s->op->codec;
    uint32_t p = s->members, out = s->rank;
    for (uint32_t hop = 0; hop + 2 < 2 * p; hop++) {
        uint32_t in = (out > 0 ? out : p) - 1;
        if (hop < p)
            encode(w, out);
        if (hop == p - 1) /* as all others will decode it */
            land(w, out, s->room->out, codec->decode);
        int rc = exchange(w, out, in, err);
        if (rc != PSC_OK)
            return rc;
        land(w, in, s->room->in, hop < p - 1 ? codec->add : codec->decode);
        if (hop >= p - 1)
            swap(s->room);
        out = in;
    }
    return PSC_OK;
}

/* Along a chain, which begins behind the root and ends there. */
static int reduce(const struct wave *w, struct ps_error *err)
{
    const struct psc_coded_sum *s = w->s;
    uint32_t p = s->members, root = (uint32_t)s->op->root;
    int rc = MPI_SUCCESS, bytes = (int)bytes_of(w, 0);
    if (s->rank != (root + 1) % p) {
        rc = MPI_Recv(s->room->in, bytes, MPI_BYTE, (int)((s->rank + p - 1) % p), TAG, s->comm,
                      MPI_STATUS_IGNORE);
        if (rc != MPI_SUCCESS)
            return psc_mpi_fail(err, "MPI_Recv", rc);
        land(w, 0, s->room->in, s->op->codec->add);
    }
    if (s->rank == root)
        return PSC_OK;
    encode(w, 0);
    rc = MPI_Send(s->room->out, bytes, MPI_BYTE, (int)((s->rank + 1) % p), TAG, s->comm);
    return rc == MPI_SUCCESS ? PSC_OK : psc_mpi_fail(err, "MPI_Send", rc);
}

void psc_coded_room_free(struct psc_coded_room *room)
{
    free(room->out);
    free(room->in);
    *room = (struct psc_coded_room){0};
}

size_t psc_coded_stripe(uint32_t members)
{
    return members * psc_segment_floats(psc_segment_default(members), members);
}

/* Blocks of a stripe of each member's part. */
static uint32_t blocks_of(const struct psc_collective *op, uint32_t members)
{
    return op->kind == PSC_REDUCE ? 1 : members;
}

static size_t segment_of(const struct psc_collective *op, uint32_t members)
{
    return psc_segment_floats(psc_segment_default(members), blocks_of(op, members));
}

/* Stripes of a wave. */
static size_t wave_of(size_t segment)
{
    return MESSAGE_BYTES / (segment * sizeof(float));
}

int psc_coded_room_make(struct psc_coded_room *room, uint32_t members, const struct psc_collective *op,
                        struct ps_error *err)
{
    size_t segment = segment_of(op, members);
    size_t bytes = wave_of(segment) * op->codec->payload_bytes(op->codec, segment);
    if (bytes <= room->bytes)
        return PSC_OK;
    psc_coded_room_free(room);
    room->out = malloc(bytes);
    room->in = malloc(bytes);
    if (room->out == NULL || room->in == NULL) {
        psc_coded_room_free(room);
        return ps_fail(err, PSC_ENOMEM, "no memory for %zu bytes of messages", 2 * bytes);
    }
    room->bytes = bytes;
    return PSC_OK;
}

int psc_coded_sum(const struct psc_coded_sum *s, struct ps_error *err)
{
    static int (*const by_kind[])(const struct wave *w, struct ps_error *err) = {
        [PSC_ALLREDUCE] = allreduce, [PSC_REDUCE] = reduce, [PSC_REDUCE_SCATTER] = reduce_scatter};
    struct wave w = {.s = s, .blocks = blocks_of(s->op, s->members)};
    size_t segment = segment_of(s->op, s->members);
    w.stripe = s->op->kind == PSC_ALLREDUCE ? w.blocks * segment : segment;
    size_t stripes = (s->op->n + w.stripe - 1) / w.stripe, each = wave_of(segment);
    int rc = PSC_OK;
    for (size_t i = 0; i < stripes && rc == PSC_OK; i += each) {
        w.first = i;
        w.end = i + each < stripes ? i + each : stripes;
        s->lives(s->arg, i, stripes);
        rc = by_kind[s->op->kind](&w, err);
    }
    return rc;
}
