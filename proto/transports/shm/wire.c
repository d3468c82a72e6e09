#include "proto/transports/shm/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

static void put(unsigned char *out, uint64_t v, size_t len)
{
    for (size_t i = 0; i < len; i++)
        out[i] = (unsigned char)(v >> 8 * i);
}

static uint64_t get(const unsigned char *in, size_t len)
{
    uint64_t v = 0;
    for (size_t i = 0; i < len; i++)
        v |= (uint64_t)in[i] << 8 * i;
    return v;
}

static void put_start(unsigned char *out)
{
    put(out, PS_SHM_MAGIC, 4);
    put(out + 4, PS_SHM_VERSION, 4);
}

static int check_start(const unsigned char *in, const char *what, struct ps_error *err)
{
    uint64_t magic = get(in, 4), version = get(in + 4, 4);
    if (magic != PS_SHM_MAGIC)
        return ps_fail(err, -EPROTO, "%s begins with %08" PRIx64 "; allowed is %08x", what, magic,
                       PS_SHM_MAGIC);
    if (version != PS_SHM_VERSION)
        return ps_fail(err, -EPROTONOSUPPORT, "%s has version %" PRIu64 "; this psd supports %d", what,
                       version, PS_SHM_VERSION);
    return 0;
}

void ps_shm_hello_pack(const struct ps_shm_hello *h, unsigned char *out)
{
    put_start(out);
    put(out + 8, h->client, 4);
    put(out + 12, h->incarnation, 4);
    memcpy(out + 16, h->token, PS_PASS_TOKEN_BYTES);
    put(out + 32, h->window, 4);
    put(out + 36, h->n_buffers, 4);
    for (size_t i = 0; i < PS_MAX_BUFFERS; i++)
        put(out + 40 + 8 * i, h->buffer_bytes[i], 8);
}

int ps_shm_hello_parse(struct ps_shm_hello *h, const unsigned char *in, struct ps_error *err)
{
    struct ps_shm_hello r;
    int rc = check_start(in, "a link's hello", err);
    if (rc < 0)
        return rc;
    r.client = (uint32_t)get(in + 8, 4);
    r.incarnation = (uint32_t)get(in + 12, 4);
    memcpy(r.token, in + 16, PS_PASS_TOKEN_BYTES);
    r.window = (uint32_t)get(in + 32, 4);
    r.n_buffers = (uint32_t)get(in + 36, 4);
    for (size_t i = 0; i < PS_MAX_BUFFERS; i++)
        r.buffer_bytes[i] = get(in + 40 + 8 * i, 8);
    if (r.window < 1 || r.window > PS_SHM_MAX_WINDOW)
        return ps_fail(err, -EPROTO, "a link's hello asks for a window of %u; allowed are 1 to %d", r.window,
                       PS_SHM_MAX_WINDOW);
    if (r.n_buffers > PS_MAX_BUFFERS)
        return ps_fail(err, -EPROTO, "a link's hello registers %u buffers; allowed are %d", r.n_buffers,
                       PS_MAX_BUFFERS);
    for (size_t i = 0; i < PS_MAX_BUFFERS; i++)
        if ((i < r.n_buffers) != (r.buffer_bytes[i] > 0) || r.buffer_bytes[i] > INT64_MAX)
            return ps_fail(err, -EPROTO,
                           "a link's hello registers %u buffers, and buffer %zu has %" PRIu64 " bytes",
                           r.n_buffers, i, r.buffer_bytes[i]);
    *h = r;
    return 0;
}

void ps_shm_reply_pack(const struct ps_shm_reply *r, unsigned char *out)
{
    memset(out, 0, PS_SHM_REPLY_BYTES);
    put_start(out);
    put(out + 8, r->status, 4);
    put(out + 12, r->n_slots, 4);
    put(out + 16, r->slot_bytes, 8);
}

int ps_shm_reply_parse(struct ps_shm_reply *out, const unsigned char *in, struct ps_error *err)
{
    struct ps_shm_reply r;
    int rc = check_start(in, "a port's reply", err);
    if (rc < 0)
        return rc;
    r.status = (uint32_t)get(in + 8, 4);
    r.n_slots = (uint32_t)get(in + 12, 4);
    r.slot_bytes = get(in + 16, 8);
    if (r.status > 4095)
        return ps_fail(err, -EPROTO, "a port's reply has status %u; allowed are 0 to 4095", r.status);
    if (r.status == 0 && (r.n_slots < 1 || r.n_slots > PS_SHM_MAX_WINDOW || r.slot_bytes < 1 ||
                          r.slot_bytes > INT64_MAX / (2 * PS_SHM_MAX_WINDOW)))
        return ps_fail(err, -EPROTO, "a port's reply has %u slots of %" PRIu64 " bytes", r.n_slots,
                       r.slot_bytes);
    *out = r;
    return 0;
}

int ps_shm_request_check(const struct ps_shm_note *n, const struct ps_shm_shape *shape,
                         const unsigned char *taken, const uint64_t *buffer_bytes, uint32_t n_buffers,
                         struct ps_error *err)
{
    if (n->slot >= shape->n_slots)
        return ps_fail(err, -EPROTO, "a request names slot %u; there are %u", n->slot, shape->n_slots);
    if (taken[n->slot])
        return ps_fail(err, -EPROTO, "a request names slot %u, which has not been answered yet", n->slot);
    if ((n->buffer == PS_SHM_STAGED || n->copies) && n->bytes > shape->slot_bytes)
        return ps_fail(err, -EPROTO, "a request has %" PRIu64 " bytes in a slot of %" PRIu64, n->bytes,
                       shape->slot_bytes);
    if (n->buffer == PS_SHM_STAGED)
        return n->copies ? ps_fail(err, -EPROTO, "a request asks to copy a body that is in its slot") : 0;
    if (n->buffer >= n_buffers)
        return ps_fail(err, -EPROTO, "a request names buffer %u; %u are registered", n->buffer, n_buffers);
    if (n->offset > buffer_bytes[n->buffer] || n->bytes > buffer_bytes[n->buffer] - n->offset)
        return ps_fail(err, -EPROTO,
                       "a request names %" PRIu64 " bytes at %" PRIu64 " of buffer %u, which has %" PRIu64,
                       n->bytes, n->offset, n->buffer, buffer_bytes[n->buffer]);
    return 0;
}
