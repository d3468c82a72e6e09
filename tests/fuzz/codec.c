/* A payload of any bytes under every codec: it decodes without reading or writing beyond its end, adding it
 * is decoding and then adding, and what it decodes to is encoded so that nothing that is not finite hides.
 * The first byte chooses the codec, the second how far the payload is out of line; the rest is the payload.
 */
#include <math.h>
#include <string.h>

#include "proto/codecs/codec.h"
#include "tests/fuzz/fuzz.h"

/* The most floats that fit into len bytes: payloads grow with them. */
static size_t floats_of(const struct ps_codec *c, size_t len)
{
    size_t n = 0;
    while (c->payload_bytes(c, n + 1) <= len)
        n++;
    return n;
}

static void check_values(const struct ps_codec *c, const void *payload, size_t n)
{
    float *y = malloc(n * sizeof *y + 1), *sum = malloc(n * sizeof *sum + 1);
    unsigned char *again = malloc(c->payload_bytes(c, n) + 1);

    c->decode(c, y, payload, n);
    for (size_t i = 0; i < n; i++)
        sum[i] = 0.25f;
    c->add(c, sum, payload, n);
    for (size_t i = 0; i < n; i++) {
        float want = 0.25f + y[i];
        promise(memcmp(&sum[i], &want, sizeof want) == 0 || (isnan(sum[i]) && isnan(want)));
    }
    c->encode(c, again, y, n);
    c->decode(c, sum, again, n);
    for (size_t i = 0; i < n; i++)
        promise(isfinite(y[i]) || !isfinite(sum[i]));
    free(y);
    free(sum);
    free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    size_t n_rows;
    const struct ps_codec *const *rows = ps_codec_rows(&n_rows);
    if (len < 2)
        return 0;
    const struct ps_codec *c = rows[bytes[0] % n_rows];
    size_t n = floats_of(c, len - 2), skew = bytes[1] % 16, exact = c->payload_bytes(c, n);
    /* Its end is the room's, where the address sanitizer watches. */
    unsigned char *room = malloc(skew + exact + (skew + exact == 0));
    memcpy(room + skew, bytes + 2, exact);
    check_values(c, room + skew, n);
    free(room);
    return 0;
}
