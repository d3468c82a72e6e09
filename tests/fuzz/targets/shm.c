/* What comes to a port of shm, and to a link: the first byte chooses hello, reply or an entry of the ring of
 * requests. What parses is within its bounds and is packed into the same bytes again; what the check of a
 * request lets through names memory that is there. */
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "proto/transports/shm/wire.h"
#include "tests/fuzz/fuzz.h"

static void try_hello(const unsigned char *bytes)
{
    unsigned char again[PS_SHM_HELLO_BYTES];
    struct ps_error err = {""};
    struct ps_shm_hello h;
    if (ps_shm_hello_parse(&h, bytes, &err) < 0) {
        promise(err.text[0] != 0);
        return;
    }
    promise(h.window >= 1 && h.window <= PS_SHM_MAX_WINDOW && h.n_buffers <= PS_MAX_BUFFERS);
    for (uint32_t i = 0; i < PS_MAX_BUFFERS; i++)
        promise((h.buffer_bytes[i] > 0) == (i < h.n_buffers));
    ps_shm_hello_pack(&h, again);
    promise(memcmp(again, bytes, sizeof again) == 0);
}

static void try_reply(const unsigned char *bytes)
{
    unsigned char again[PS_SHM_REPLY_BYTES];
    struct ps_error err = {""};
    struct ps_shm_reply r;
    if (ps_shm_reply_parse(&r, bytes, &err) < 0) {
        promise(err.text[0] != 0);
        return;
    }
    uint64_t all;
    promise(r.status != 0 || (r.n_slots > 0 && !__builtin_mul_overflow(r.slot_bytes, r.n_slots, &all)));
    ps_shm_reply_pack(&r, again);
    promise(memcmp(again, bytes, PS_SHM_REPLY_BYTES - 8) == 0); /* the rest is not looked at */
}

/* bytes: what the port knows, then the entry. */
static void try_request(const unsigned char *bytes)
{
    struct request {
        uint32_t n_slots, slot_pages, n_buffers, slot, buffer;
        uint64_t buffer_bytes[PS_MAX_BUFFERS], offset, bytes;
        unsigned char taken[16];
        bool copies;
    } in;
    struct ps_error err = {""};
    memcpy(&in, bytes, offsetof(struct request, copies));
    in.copies = bytes[offsetof(struct request, copies)] % 2 != 0;
    in.n_buffers %= PS_MAX_BUFFERS + 1;
    const struct ps_shm_shape shape = {in.n_slots % 16 + 1, (in.slot_pages % 4096 + 1) * UINT64_C(4096)};
    const struct ps_shm_note n = {
        .slot = in.slot, .buffer = in.buffer, .offset = in.offset, .bytes = in.bytes, .copies = in.copies};
    if (ps_shm_request_check(&n, &shape, in.taken, in.buffer_bytes, in.n_buffers, &err) < 0) {
        promise(err.text[0] != 0);
        return;
    }
    uint64_t end;
    promise(n.slot < shape.n_slots && !in.taken[n.slot]);
    promise(!__builtin_add_overflow(n.offset, n.bytes, &end) || n.buffer == PS_SHM_STAGED);
    if (n.buffer == PS_SHM_STAGED || n.copies)
        promise(n.bytes <= shape.slot_bytes);
    promise(n.buffer != PS_SHM_STAGED || !n.copies);
    if (n.buffer != PS_SHM_STAGED)
        promise(n.buffer < in.n_buffers && end <= in.buffer_bytes[n.buffer]);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static void (*const tries[])(const unsigned char *bytes) = {try_hello, try_reply, try_request};
    unsigned char whole[128] = {0};
    if (len < 1)
        return 0;
    memcpy(whole, bytes + 1, len - 1 < sizeof whole ? len - 1 : sizeof whole); /* what is missing is zero */
    tries[bytes[0] % (sizeof tries / sizeof *tries)](whole);
    return 0;
}
