#include "proto/codecs/piece.h"

#include <string.h>

/* for (struct ps_role_run p = first_run(c, m, r); p.range.count > 0; p = ps_role_run_next(p, r)) */
static struct ps_role_run first_run(const struct ps_codec *c, const struct ps_manifest *m, struct ps_range r)
{
    return c->for_moves ? ps_role_run_first(m, r) : (struct ps_role_run){{0, 0}, NULL};
}

static size_t count_buffers(const struct ps_codec *c, const struct ps_manifest *m, struct ps_range r)
{
    size_t n = 0;
    for (struct ps_role_run p = first_run(c, m, r); p.range.count > 0; p = ps_role_run_next(p, r))
        if (p.segment->role == PS_ROLE_BUFFER)
            n += p.range.count;
    return n;
}

/* Of the payload and, behind it, n_buffers floats. */
static size_t coded_bytes(const struct ps_codec *c, struct ps_range r, size_t n_buffers)
{
    return c->payload_bytes(c, r.count) + n_buffers * sizeof(float);
}

static bool is_coded(const struct ps_codec *c, struct ps_range r, size_t n_buffers)
{
    return n_buffers == 0 || coded_bytes(c, r, n_buffers) < r.count * sizeof(float);
}

size_t ps_piece_bytes(const struct ps_codec *c, const struct ps_manifest *m, struct ps_range r)
{
    size_t n_buffers = count_buffers(c, m, r);
    return is_coded(c, r, n_buffers) ? coded_bytes(c, r, n_buffers) : r.count * sizeof(float);
}

/* A payload as long as the floats is the floats, in every codec. */
bool ps_piece_is_coded(const struct ps_codec *c, const struct ps_manifest *m, struct ps_range r)
{
    return is_coded(c, r, count_buffers(c, m, r)) && c->payload_bytes(c, r.count) < r.count * sizeof(float);
}

bool ps_piece_has_buffers(const struct ps_codec *c, const struct ps_manifest *m, struct ps_range r)
{
    return count_buffers(c, m, r) > 0;
}

void ps_piece_encode(const struct ps_codec *c, const struct ps_manifest *m, struct ps_range r, void *payload,
                     float *x)
{
    if (!is_coded(c, r, count_buffers(c, m, r))) {
        memcpy(payload, x, r.count * sizeof *x);
        return;
    }
    unsigned char *end = (unsigned char *)payload + c->payload_bytes(c, r.count);
    for (struct ps_role_run p = first_run(c, m, r); p.range.count > 0; p = ps_role_run_next(p, r))
        if (p.segment->role == PS_ROLE_BUFFER) {
            const size_t bytes = p.range.count * sizeof *x;
            memcpy(end, x + (p.range.begin - r.begin), bytes);
            memset(x + (p.range.begin - r.begin), 0, bytes);
            end += bytes;
        }
    c->encode(c, payload, x, r.count);
}

void ps_piece_decode(const struct ps_codec *c, const struct ps_manifest *m, struct ps_range r, float *x,
                     const void *payload)
{
    if (!is_coded(c, r, count_buffers(c, m, r))) {
        memcpy(x, payload, r.count * sizeof *x);
        return;
    }
    const unsigned char *end = (const unsigned char *)payload + c->payload_bytes(c, r.count);
    c->decode(c, x, payload, r.count);
    for (struct ps_role_run p = first_run(c, m, r); p.range.count > 0; p = ps_role_run_next(p, r))
        if (p.segment->role == PS_ROLE_BUFFER) {
            memcpy(x + (p.range.begin - r.begin), end, p.range.count * sizeof *x);
            end += p.range.count * sizeof *x;
        }
}

const char *ps_piece_check(const struct ps_codec *c, const struct ps_manifest *m, struct ps_range r,
                           const void *payload)
{
    return c->check != NULL && is_coded(c, r, count_buffers(c, m, r)) ? c->check(c, payload, r.count) : NULL;
}

void ps_piece_leave(const struct ps_codec *c, const struct ps_manifest *m, struct ps_range r, float *x,
                    const float *known)
{
    for (struct ps_role_run p = first_run(c, m, r); p.range.count > 0; p = ps_role_run_next(p, r)) {
        const size_t at = p.range.begin - r.begin, end = at + p.range.count;
        if (p.segment->role == PS_ROLE_FROZEN)
            memset(x + at, 0, p.range.count * sizeof *x);
        for (size_t i = at; p.segment->role == PS_ROLE_PARAM && i < end; i++)
            x[i] -= known[i];
    }
}

void ps_piece_take(const struct ps_codec *c, const struct ps_manifest *m, struct ps_range r, float *known,
                   const float *decoded)
{
    for (struct ps_role_run p = first_run(c, m, r); p.range.count > 0; p = ps_role_run_next(p, r)) {
        const size_t at = p.range.begin - r.begin, end = at + p.range.count;
        if (p.segment->role == PS_ROLE_BUFFER)
            memcpy(known + at, decoded + at, p.range.count * sizeof *known);
        for (size_t i = at; p.segment->role == PS_ROLE_PARAM && i < end; i++)
            known[i] += decoded[i];
    }
}
