/* codes.c: the codecs on the device: which pieces a launch has. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "client/memory/cuda/cuda.h"
#include "client/memory/cuda/launch.h"
#include "proto/codecs/kernels.h"
#include "proto/codecs/piece.h"

/* The codecs that codecs.cuh has, by their ids on the wire. */
static const struct ps_codec *const coded[] = {
    [0] = &ps_codec_raw,  [1] = &ps_codec_fp16, [2] = &ps_codec_bf16, [3] = &ps_codec_trunc16,
    [4] = &ps_codec_int8, [5] = &ps_codec_int4, [6] = &ps_codec_topk,
};

bool psc_cuda_codes(const struct ps_codec *codec)
{
    return codec->id < sizeof coded / sizeof *coded && coded[codec->id]->id == codec->id;
}

/* The manifest's segments as the device reads them, on the host. */
static struct psc_code_segment *describe(const struct ps_manifest *m)
{
    struct psc_code_segment *all = calloc(m->n_segments, sizeof *all);
    uint64_t buffers = 0;
    for (size_t i = 0; all != NULL && i < m->n_segments; i++) {
        const struct ps_segment *s = &m->segments[i];
        all[i] = (struct psc_code_segment){.begin = s->range.begin,
                                           .buffers = buffers,
                                           .is_frozen = s->role == PS_ROLE_FROZEN,
                                           .is_buffer = s->role == PS_ROLE_BUFFER};
        buffers += s->role == PS_ROLE_BUFFER ? s->range.count : 0;
    }
    return all;
}

/* Copies them, through memory that the device can read. */
static int upload(struct psc_device *d, const struct psc_code_segment *all, size_t bytes, void *to,
                  struct ps_error *err)
{
    void *pinned = NULL;
    struct psc_queue *q = &d->queues[PSC_UP];
    psc_cuda_enter(d);
    if (psc_cuda_failed(d, cudaHostAlloc(&pinned, bytes, cudaHostAllocDefault), "pinned memory"))
        return psc_cuda_check(d, err);
    memcpy(pinned, all, bytes);
    psc_cuda_failed(d, cudaMemcpyAsync(to, pinned, bytes, cudaMemcpyHostToDevice, q->stream),
                    "a copy to the device");
    int rc = psc_cuda_finish(q, err);
    if (rc == 0)
        cudaFreeHost(pinned); /* else the copy may still be under way */
    return rc;
}

int psc_cuda_learn(struct psc_device *d, const struct ps_manifest *m, struct ps_error *err)
{
    void *segments = NULL;
    size_t bytes = m->n_segments * sizeof *d->segments;
    struct psc_code_segment *all = describe(m);
    if (all == NULL)
        return ps_fail(err, -ENOMEM, "no memory for the roles of %zu tensors", m->n_tensors);
    int rc = psc_cuda_alloc(d, bytes, &segments, err);
    if (rc == 0) /* its zeros are there before */
        rc = psc_cuda_finish(&d->queues[PSC_COMPUTE], err);
    if (rc == 0)
        rc = upload(d, all, bytes, segments, err);
    free(all);
    d->segments = segments;
    d->n_segments = (uint32_t)m->n_segments;
    return rc;
}

static uint32_t form_of(const struct psc_coding *coding, const struct psc_coded *piece)
{
    return piece->as_floats ? ps_codec_raw.id : coding->codec->id;
}

/* What all launches for the message have in common. */
static struct psc_code code_of(const struct psc_queue *q, const struct psc_coding *coding, uint32_t form)
{
    return (struct psc_code){.message = coding->message,
                             .error = coding->error,
                             .segments = q->device->segments,
                             .room = coding->room,
                             .first = coding->searches ? q->first : NULL,
                             .n_segments = q->device->n_segments,
                             .form = form,
                             .has_tail = form != ps_codec_raw.id && coding->codec->for_moves};
}

static void add(struct psc_code *code, const struct psc_coding *coding, const struct psc_coded *piece)
{
    const struct ps_codec *c = coding->codec;
    const size_t n = piece->range.count;
    code->at[code->n++] =
        (struct psc_code_piece){.begin = piece->range.begin,
                                .from = piece->from,
                                .to = piece->to,
                                .count = (uint32_t)n,
                                .kept = code->form == ps_codec_topk.id ? (uint32_t)ps_topk_kept(c, n) : 0,
                                .tail = code->has_tail ? (uint32_t)c->payload_bytes(c, n) : 0,
                                .first_tile = code->n_tiles};
    code->n_tiles += (uint32_t)((n + PSC_CODE_TILE - 1) / PSC_CODE_TILE);
}

/* Launches for those of the pieces that have the form. */
static void run(struct psc_queue *q, const struct psc_coding *coding, const struct psc_coded *pieces,
                size_t n, uint32_t form, cudaError_t (*launch)(cudaStream_t s, const struct psc_code *code),
                const char *what)
{
    struct psc_code code = code_of(q, coding, form);
    for (size_t i = 0; i < n; i++) {
        if (form_of(coding, &pieces[i]) == form)
            add(&code, coding, &pieces[i]);
        if (code.n > 0 && (code.n == PSC_CODE_PIECES || i + 1 == n)) {
            psc_cuda_failed(q->device, launch(q->stream, &code), what);
            code.n = code.n_tiles = 0;
        }
    }
}

static void run_both(struct psc_queue *q, const struct psc_coding *coding, const struct psc_coded *pieces,
                     size_t n, cudaError_t (*launch)(cudaStream_t s, const struct psc_code *code),
                     const char *what)
{
    psc_cuda_enter(q->device);
    run(q, coding, pieces, n, coding->codec->id, launch, what);
    run(q, coding, pieces, n, ps_codec_raw.id, launch, what);
}

void psc_cuda_encode_pieces(struct psc_queue *q, const struct psc_coding *coding,
                            const struct psc_coded *pieces, size_t n)
{
    run_both(q, coding, pieces, n, psc_cuda_encode, "encoding");
}

void psc_cuda_feed_back_pieces(struct psc_queue *q, const struct psc_coding *coding,
                               const struct psc_coded *pieces, size_t n)
{
    run_both(q, coding, pieces, n, psc_cuda_feed_back, "error feedback");
}

void psc_cuda_decode_floats(struct psc_queue *q, const struct ps_codec *codec, float *x, const void *payload,
                            size_t n)
{
    psc_cuda_enter(q->device);
    psc_cuda_failed(q->device, psc_cuda_decode(q->stream, n, x, payload, codec->id), "decoding");
}

void psc_cuda_take_piece(struct psc_queue *q, const struct psc_coding *coding, const struct psc_coded *piece)
{
    run_both(q, coding, piece, 1, psc_cuda_take, "an answer");
}
