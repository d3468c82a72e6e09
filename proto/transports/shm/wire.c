#include "proto/transports/shm/wire.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "proto/bytes.h"

static void put_start(unsigned char *out)
{
    ps_put32(out, PS_SHM_MAGIC);
    ps_put32(out + 4, PS_SHM_VERSION);
}

static int check_start(const unsigned char *in, const char *what, struct ps_error *err)
{
    uint32_t magic = ps_get32(in), version = ps_get32(in + 4);
    if (magic != PS_SHM_MAGIC)
        return ps_fail(err, -EPROTO, "%s begins with %08x; allowed is %08x", what, magic, PS_SHM_MAGIC);
    if (version != PS_SHM_VERSION)
        return ps_fail(err, -EPROTONOSUPPORT, "%s has version %u; this psd supports %d", what, version,
                       PS_SHM_VERSION);
    return 0;
}

void ps_shm_hello_pack(const struct ps_shm_hello *h, unsigned char *out)
{
    put_start(out);
    ps_put32(out + 8, h->client);
    ps_put32(out + 12, h->incarnation);
    memcpy(out + 16, h->token, PS_PASS_TOKEN_BYTES);
    ps_put32(out + 32, h->window);
    ps_put32(out + 36, h->n_buffers);
    for (size_t i = 0; i < PS_MAX_BUFFERS; i++)
        ps_put64(out + 40 + 8 * i, h->buffer_bytes[i]);
}

int ps_shm_hello_parse(struct ps_shm_hello *h, const unsigned char *in, struct ps_error *err)
{
    struct ps_shm_hello r;
    int rc = check_start(in, "a link's hello", err);
    if (rc < 0)
        return rc;
    r.client = ps_get32(in + 8);
    r.incarnation = ps_get32(in + 12);
    memcpy(r.token, in + 16, PS_PASS_TOKEN_BYTES);
    r.window = ps_get32(in + 32);
    r.n_buffers = ps_get32(in + 36);
    for (size_t i = 0; i < PS_MAX_BUFFERS; i++)
        r.buffer_bytes[i] = ps_get64(in + 40 + 8 * i);
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
    ps_put32(out + 8, r->status);
    ps_put32(out + 12, r->n_slots);
    ps_put64(out + 16, r->slot_bytes);
}

int ps_shm_reply_parse(struct ps_shm_reply *out, const unsigned char *in, struct ps_error *err)
{
    struct ps_shm_reply r;
    int rc = check_start(in, "a port's reply", err);
    if (rc < 0)
        return rc;
    r.status = ps_get32(in + 8);
    r.n_slots = ps_get32(in + 12);
    r.slot_bytes = ps_get64(in + 16);
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
