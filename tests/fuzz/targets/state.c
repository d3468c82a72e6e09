/* A worker's state file, as it is and with the checksum made right: what decodes has the length that its head
 * speaks of, its parts lie one behind the other, and the head packs into the same bytes. */
#include <stdbool.h>
#include <string.h>
#include <xxhash.h>

#include "client/save_format.h"
#include "proto/bytes.h"
#include "tests/fuzz/fuzz.h"

enum { CHECKSUM_BYTES = 8 };

static const unsigned char *expect(const unsigned char *part, bool there, const unsigned char *at,
                                   uint64_t len_bytes)
{
    promise(part == (there ? at : NULL));
    return there ? at + len_bytes : at;
}

static void check(const uint8_t *bytes, size_t len)
{
    unsigned char again[PSC_STATE_HEAD_BYTES];
    struct psc_state_head h;
    struct psc_state_parts parts;
    struct ps_error err = {""};

    if (psc_state_decode(&h, &parts, bytes, len, &err) < 0) {
        promise(err.text[0] != 0);
        return;
    }
    size_t of_head = psc_state_pack(&h, again);
    const unsigned char *at = bytes + of_head;
    const uint64_t vector_bytes = h.n_floats * sizeof(float);
    at = expect(parts.at, true, at, vector_bytes);
    for (int k = 0; k < PSC_STATE_VECTORS; k++)
        at = expect(parts.vectors[k], h.flags >> k & 1, at, vector_bytes);
    at = expect(parts.means, true, at, h.means * vector_bytes);
    at = expect(parts.message, h.flags & PSC_STATE_MESSAGE, at, vector_bytes);
    at = expect(parts.sent_error, h.flags & PSC_STATE_SENT_ERROR, at, vector_bytes);
    at = expect(parts.known, h.flags & PSC_STATE_KNOWN, at, vector_bytes);
    at = expect(parts.sent_known, h.flags & PSC_STATE_SENT_KNOWN, at, vector_bytes);
    at = expect(parts.under_way, true, at, h.n_under_way * psc_state_exchange_bytes(&h));
    for (uint32_t k = 0; k < h.n_under_way; k++) {
        const unsigned char *one = parts.under_way + k * psc_state_exchange_bytes(&h);
        unsigned char packed[PSC_STATE_EXCHANGE_BYTES];
        struct psc_state_exchange e;
        promise(psc_state_parse_exchange(&h, &e, one, &err) == 0);
        psc_state_pack_exchange(&h, &e, packed);
        promise(memcmp(packed, one, psc_state_exchange_bytes(&h)) == 0);
    }
    at = expect(parts.chunks, true, at, h.chunks);
    at = expect(parts.extra, true, at, h.extra_bytes);
    promise(at + CHECKSUM_BYTES == bytes + len);
    promise(memcmp(again, bytes, of_head) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    check(bytes, len);
    if (len < CHECKSUM_BYTES)
        return 0;
    uint8_t *sealed = malloc(len);
    uint64_t sum = XXH3_64bits(bytes, len - CHECKSUM_BYTES);
    promise(sealed != NULL);
    memcpy(sealed, bytes, len);
    ps_put64(sealed + len - CHECKSUM_BYTES, sum);
    check(sealed, len);
    free(sealed);
    return 0;
}
