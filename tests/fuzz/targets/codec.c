/* A payload of any bytes under every codec: it decodes without reading or writing beyond its end, adding it
 * is decoding and then adding, what it decodes to is encoded so that nothing that is not finite hides, and a
 * check lets pass only what an encoder might write. The first byte chooses the codec, the second how far the
 * payload is out of line, and of topk how many values travel; the rest is the payload. */
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

static void check_sum(const struct ps_codec *c, const void *payload, const float *y, float *sum, size_t n)
{
    for (size_t i = 0; i < n; i++)
        sum[i] = 0.25f;
    c->add(c, sum, payload, n);
    for (size_t i = 0; i < n; i++) {
        float want = 0.25f + y[i];
        promise(memcmp(&sum[i], &want, sizeof want) == 0 || (isnan(sum[i]) && isnan(want)));
    }
}

/* What a codec's check lets pass is an encoder's: no more values than travel, and none that is NaN. */
static void check_passed(const struct ps_codec *c, const void *payload, const float *y, size_t n)
{
    size_t n_sent = 0;
    if (c->check == NULL || c->check(c, payload, n) != NULL)
        return;
    for (size_t i = 0; i < n; i++)
        n_sent += y[i] != 0;
    for (size_t i = 0; i < n && c->payload_bytes(c, n) < n * sizeof *y; i++)
        promise(!isnan(y[i]));
    promise(c->fraction_ppm == 0 || c->payload_bytes(c, n) == n * sizeof *y ||
            n_sent <= (n * c->fraction_ppm + 999999) / 1000000);
}

static void check_values(const struct ps_codec *c, const void *payload, size_t n)
{
    float *y = malloc(n * sizeof *y + 1), *sum = malloc(n * sizeof *sum + 1);
    unsigned char *again = malloc(c->payload_bytes(c, n) + 1);

    c->decode(c, y, payload, n);
    if (c->add != NULL)
        check_sum(c, payload, y, sum, n);
    check_passed(c, payload, y, n);
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
    static const uint32_t fractions[] = {1, 10000, 100000, 500000, 1000000};
    struct ps_codec chosen = *rows[bytes[0] % n_rows], *c = &chosen;
    if (c->fraction_ppm > 0)
        c->fraction_ppm = fractions[bytes[1] / 16 % 5];
    size_t n = floats_of(c, len - 2), skew = bytes[1] % 16, exact = c->payload_bytes(c, n);
    /* Its end is the room's, where the address sanitizer watches. */
    unsigned char *room = malloc(skew + exact + (skew + exact == 0));
    memcpy(room + skew, bytes + 2, exact);
    check_values(c, room + skew, n);
    free(room);
    return 0;
}
