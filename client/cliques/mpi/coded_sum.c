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
    size_t stripe;   /* floats */
};

static struct psc_span block_of(const struct wave *w, size_t stripe, uint32_t k)
{
    size_t at = stripe * w->stripe, left = w->s->op->n - at;
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

/* At hop h a member sends block rank - h and receives block rank - h - 1. From hop p - 1 on blocks are whole:
 * they replace what was there, and are forwarded as they came. */
static int allreduce(const struct wave *w, struct ps_error *err)
{
    const struct psc_coded_sum *s = w->s;
    const struct ps_codec *codec = s->op->codec;
    uint32_t p = s->members, out = s->rank;
    int next = (int)(s->rank + 1 < p ? s->rank + 1 : 0), previous = (int)(s->rank > 0 ? s->rank : p) - 1;
    for (uint32_t hop = 0; hop + 2 < 2 * p; hop++) {
        uint32_t in = (out > 0 ? out : p) - 1;
        if (hop < p)
            encode(w, out);
        if (hop == p - 1) /* as all others will decode it */
            land(w, out, s->room->out, codec->decode);
        int rc = MPI_Sendrecv(s->room->out, (int)bytes_of(w, out), MPI_BYTE, next, TAG, s->room->in,
                              (int)bytes_of(w, in), MPI_BYTE, previous, TAG, s->comm, MPI_STATUS_IGNORE);
        if (rc != MPI_SUCCESS)
            return psc_mpi_fail(err, "MPI_Sendrecv", rc);
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

static int make_room(struct psc_coded_room *room, size_t bytes, struct ps_error *err)
{
    if (bytes <= room->bytes)
        return PSC_OK;
    psc_coded_room_free(room);
    room->out = malloc(bytes);
    room->in = malloc(bytes);
    if (room->out == NULL || room->in == NULL) {
        psc_coded_room_free(room);
        ps_fail(err, PSC_ENOMEM, "no memory for %zu bytes of messages", 2 * bytes);
        return PSC_ENOMEM;
    }
    room->bytes = bytes;
    return PSC_OK;
}

void psc_coded_room_free(struct psc_coded_room *room)
{
    free(room->out);
    free(room->in);
    *room = (struct psc_coded_room){0};
}

size_t psc_coded_stripe(uint32_t members)
{
    return members * psc_segment_floats(PSC_SEGMENT_BYTES, members);
}

int psc_coded_sum(const struct psc_coded_sum *s, struct ps_error *err)
{
    bool all = s->op->kind == PSC_ALLREDUCE;
    struct wave w = {.s = s, .blocks = all ? s->members : 1};
    size_t segment = psc_segment_floats(PSC_SEGMENT_BYTES, w.blocks);
    w.stripe = w.blocks * segment;
    size_t stripes = (s->op->n + w.stripe - 1) / w.stripe, each = MESSAGE_BYTES / (segment * sizeof(float));
    int rc = make_room(s->room, each * s->op->codec->payload_bytes(s->op->codec, segment), err);
    for (size_t i = 0; i < stripes && rc == PSC_OK; i += each) {
        w.first = i;
        w.end = i + each < stripes ? i + each : stripes;
        s->lives(s->arg, i, stripes);
        rc = (all ? allreduce : reduce)(&w, err);
    }
    return rc;
}
