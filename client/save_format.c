#include "client/save_format.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <string.h>
#include <xxhash.h>

#include "proto/bytes.h"
#include "proto/model/fragment.h"

#define MAX_FLOATS (UINT64_C(1) << 40)
#define MAX_EXTRA  (UINT64_C(1) << 40)

static const unsigned char magic[8] = {'P', 'S', 'D', 'S', 'T', 'A', 'T', 'E'};

enum {
    AT_VERSION = 8,
    AT_FLAGS = 12,
    AT_HASH = 16,
    AT_N_FLOATS = 24,
    AT_CLOCK = 32,
    AT_EXCHANGES = 40,
    AT_CENTER_VERSION = 48,
    AT_EXTRA_BYTES = 56,
    AT_RATE = 64,
    AT_METHOD = 72,
    AT_RULE = 104,
    AT_OPTIMIZER = 136,
    AT_SINCE = 168,
    AT_PERIOD = 176,
    AT_FRAGMENT = 180,
    AT_FRAGMENTS = 184,
    AT_MEANS = 188,
    AT_FIRST = 192,
    AT_ANSWER_VERSION = 200,
    AT_SAMPLES = 208,
    AT_UNDER_WAY = 212,
    AT_CHUNKS = 216,
    AT_RUN = 220,
    SHORT_EXCHANGE_BYTES = 28,
    CHECKSUM_BYTES = 8,
};

static void put_name(unsigned char *to, const char *name)
{
    memcpy(to, name, strnlen(name, 31));
}

/* Before version 4 there was one vector less, and the flag LANDED came after the others. */
enum { OLD_VECTORS = PSC_STATE_VECTORS - 1, OLD_LANDED = 1 << OLD_VECTORS };

static uint32_t flags_to(uint32_t version, uint32_t flags)
{
    bool landed = (flags & PSC_STATE_LANDED) != 0;
    return version == 0 || version >= 4 ? flags : (flags & (OLD_LANDED - 1)) | (landed ? OLD_LANDED : 0);
}

/* Flags that the old version did not have stay unknown. */
static uint32_t flags_from(uint32_t version, uint32_t flags)
{
    bool landed = (flags & OLD_LANDED) != 0;
    if (version >= 4)
        return flags;
    return (flags & (OLD_LANDED - 1)) | (landed ? PSC_STATE_LANDED : 0) |
           (flags & ~(2u * OLD_LANDED - 1)) << 1;
}

enum { BEFORE_MEANS = 4, WITH_MEANS = 5, WITH_MESSAGE = 6, WITH_MESSAGES = 7, WITH_KNOWN = 8, WITH_RUN = 9 };

static uint32_t version_of(const struct psc_state_head *h)
{
    if (h->version != 0)
        return h->version;
    if ((h->flags & PSC_STATE_MESSAGE) != 0)
        return WITH_RUN;
    if ((h->flags & PSC_STATE_KNOWN) != 0)
        return WITH_KNOWN;
    return h->means > 0 ? WITH_MEANS : BEFORE_MEANS;
}

size_t psc_state_head_bytes(uint32_t version)
{
    return version >= WITH_RUN       ? PSC_STATE_HEAD_BYTES
           : version >= WITH_KNOWN   ? AT_RUN
           : version >= WITH_MESSAGE ? AT_CHUNKS
                                     : PSC_STATE_SHORT_BYTES;
}

size_t psc_state_exchange_bytes(const struct psc_state_head *h)
{
    return version_of(h) >= WITH_RUN ? PSC_STATE_EXCHANGE_BYTES : SHORT_EXCHANGE_BYTES;
}

size_t psc_state_pack(const struct psc_state_head *h, void *bytes)
{
    uint32_t version = version_of(h);
    unsigned char *b = bytes;
    uint32_t rate;
    memset(b, 0, PSC_STATE_HEAD_BYTES);
    memcpy(b, magic, sizeof magic);
    memcpy(&rate, &h->rate, sizeof rate);
    ps_put32(b + AT_VERSION, version);
    ps_put32(b + AT_FLAGS, flags_to(h->version, h->flags));
    ps_put64(b + AT_HASH, h->manifest_hash);
    ps_put64(b + AT_N_FLOATS, h->n_floats);
    ps_put64(b + AT_CLOCK, h->clock);
    ps_put64(b + AT_EXCHANGES, h->exchanges);
    ps_put64(b + AT_CENTER_VERSION, h->center_version);
    ps_put64(b + AT_EXTRA_BYTES, h->extra_bytes);
    ps_put32(b + AT_RATE, rate);
    put_name(b + AT_METHOD, h->method);
    put_name(b + AT_RULE, h->rule);
    put_name(b + AT_OPTIMIZER, h->optimizer);
    if (h->version == PSC_STATE_OLDEST)
        return psc_state_head_bytes(version);
    ps_put64(b + AT_SINCE, h->since);
    ps_put32(b + AT_PERIOD, h->period);
    ps_put32(b + AT_FRAGMENT, h->fragment);
    ps_put32(b + AT_FRAGMENTS, h->fragments);
    if (version > BEFORE_MEANS)
        ps_put32(b + AT_MEANS, h->means);
    if (version >= WITH_MESSAGE) {
        ps_put64(b + AT_FIRST, h->first);
        ps_put64(b + AT_ANSWER_VERSION, h->answer_version);
        ps_put32(b + AT_SAMPLES, h->samples);
    }
    if (version >= WITH_MESSAGES)
        ps_put32(b + AT_UNDER_WAY, h->n_under_way);
    if (version >= WITH_KNOWN)
        ps_put32(b + AT_CHUNKS, h->chunks);
    if (version >= WITH_RUN)
        ps_put64(b + AT_RUN, h->run);
    return psc_state_head_bytes(version);
}

static bool get_name(char *name, const unsigned char *from)
{
    memcpy(name, from, 32);
    for (const char *p = name; p < name + 32; p++) {
        if (*p == 0)
            return p > name;
        if (*p < 0x21 || *p > 0x7e)
            return false;
    }
    return false;
}

static uint64_t n_vectors(uint32_t flags)
{
    uint64_t n = 1;
    for (uint32_t flag = 1; flag <= PSC_STATE_SENT_KNOWN; flag <<= 1)
        n += flag != PSC_STATE_LANDED && (flags & flag) != 0;
    return n;
}

/* A prefetched exchange has left a vector, and nothing else has. */
static bool flags_are_known(uint32_t flags)
{
    bool x = flags & PSC_STATE_X, landed = flags & PSC_STATE_LANDED, ahead = flags & PSC_STATE_AHEAD;
    return flags < PSC_STATE_SENT_KNOWN << 1 && (landed ? x || ahead : !ahead);
}

/* What the table has instead. */
static bool tells_none(const struct psc_state_head *h)
{
    return h->first == 0 && h->answer_version == 0 && h->samples == 0 && h->rate == 0 && h->run == 0;
}

/* Version 8 has what is known of the center, and messages or none; version 9 messages, and that or none. */
static bool fits_known(const struct psc_state_head *h)
{
    bool known = (h->flags & PSC_STATE_KNOWN) != 0, sent = (h->flags & PSC_STATE_SENT_KNOWN) != 0;
    if (h->version < WITH_KNOWN || (h->version >= WITH_RUN && !known))
        return !known && !sent && h->chunks == 0;
    return known && h->chunks > 0 && h->chunks <= h->n_floats && h->means == 0 &&
           (!sent || (h->flags & PSC_STATE_MESSAGE) != 0);
}

static bool has_message(const struct psc_state_head *h)
{
    return h->version == WITH_KNOWN ? (h->flags & PSC_STATE_MESSAGE) != 0 : h->version >= WITH_MESSAGE;
}

/* Version 7 has messages, version 6 has one, and neither has means; version 5 has means; those before have
 * neither. */
static bool fits_version(const struct psc_state_head *h)
{
    uint32_t more = h->flags & (PSC_STATE_MESSAGE | PSC_STATE_SENT_ERROR);
    bool ahead = (h->flags & PSC_STATE_AHEAD) != 0;
    bool many = h->version == WITH_MESSAGES || (h->version >= WITH_KNOWN && h->n_under_way > 0);
    if (!fits_known(h) || (many && (h->n_under_way == 0 || h->n_under_way > h->fragments || !tells_none(h))))
        return false;
    if (has_message(h))
        return (more & PSC_STATE_MESSAGE) != 0 && ahead && h->means == 0 && h->first <= h->clock;
    if (h->version == WITH_KNOWN)
        return more == 0 && h->first == 0 && h->answer_version == 0 && h->samples == 0 && h->n_under_way == 0;
    return more == 0 && (h->version == WITH_MEANS ? h->means > 0 && ahead : h->means == 0);
}

void psc_state_pack_exchange(const struct psc_state_head *h, const struct psc_state_exchange *e, void *bytes)
{
    unsigned char *b = bytes;
    uint32_t rate;
    memcpy(&rate, &e->rate, sizeof rate);
    ps_put64(b, e->first);
    ps_put64(b + 8, e->answer_version);
    ps_put32(b + 16, e->samples);
    ps_put32(b + 20, e->fragment);
    ps_put32(b + 24, rate);
    if (psc_state_exchange_bytes(h) > SHORT_EXCHANGE_BYTES)
        ps_put64(b + SHORT_EXCHANGE_BYTES, e->run);
}

int psc_state_parse_exchange(const struct psc_state_head *h, struct psc_state_exchange *e, const void *bytes,
                             struct ps_error *err)
{
    const unsigned char *b = bytes;
    uint32_t rate = ps_get32(b + 24);
    struct psc_state_exchange found = {.first = ps_get64(b),
                                       .answer_version = ps_get64(b + 8),
                                       .samples = ps_get32(b + 16),
                                       .fragment = ps_get32(b + 20)};
    memcpy(&found.rate, &rate, sizeof rate);
    if (psc_state_exchange_bytes(h) > SHORT_EXCHANGE_BYTES)
        found.run = ps_get64(b + SHORT_EXCHANGE_BYTES);
    if (found.first > h->clock || found.fragment >= h->fragments || !(found.rate >= 0 && found.rate < 1e30f))
        return ps_fail(err, -EINVAL, "corrupt: an exchange that is under way has impossible values");
    *e = found;
    return 0;
}

int psc_state_parse(struct psc_state_head *h, const void *bytes, size_t len_bytes, uint64_t file_bytes,
                    struct ps_error *err)
{
    const unsigned char *b = bytes;
    struct psc_state_head found;
    unsigned char same[PSC_STATE_HEAD_BYTES];
    uint32_t rate;
    if (len_bytes < sizeof magic || memcmp(b, magic, sizeof magic) != 0)
        return ps_fail(err, -EINVAL, "not a psc_save file: it does not start with 'PSDSTATE'");
    if (len_bytes < PSC_STATE_SHORT_BYTES)
        return ps_fail(err, -EINVAL, "truncated in its head, after %zu of %d bytes", len_bytes,
                       PSC_STATE_SHORT_BYTES);
    uint32_t version = ps_get32(b + AT_VERSION);
    if (version < PSC_STATE_OLDEST || version > PSC_STATE_VERSION)
        return ps_fail(err, -EINVAL, "format version %u; this library reads %d to %d", version,
                       PSC_STATE_OLDEST, PSC_STATE_VERSION);
    if (len_bytes < psc_state_head_bytes(version))
        return ps_fail(err, -EINVAL, "cut off within its head, after %zu of %zu bytes", len_bytes,
                       psc_state_head_bytes(version));
    found = (struct psc_state_head){.version = version,
                                    .flags = flags_from(version, ps_get32(b + AT_FLAGS)),
                                    .manifest_hash = ps_get64(b + AT_HASH),
                                    .n_floats = ps_get64(b + AT_N_FLOATS),
                                    .clock = ps_get64(b + AT_CLOCK),
                                    .exchanges = ps_get64(b + AT_EXCHANGES),
                                    .center_version = ps_get64(b + AT_CENTER_VERSION),
                                    .extra_bytes = ps_get64(b + AT_EXTRA_BYTES),
                                    .since = ps_get64(b + AT_SINCE),
                                    .period = ps_get32(b + AT_PERIOD),
                                    .fragment = ps_get32(b + AT_FRAGMENT),
                                    .fragments = ps_get32(b + AT_FRAGMENTS),
                                    .means = version > BEFORE_MEANS ? ps_get32(b + AT_MEANS) : 0};
    rate = ps_get32(b + AT_RATE);
    memcpy(&found.rate, &rate, sizeof rate);
    if (version >= WITH_MESSAGE) {
        found.first = ps_get64(b + AT_FIRST);
        found.answer_version = ps_get64(b + AT_ANSWER_VERSION);
        found.samples = ps_get32(b + AT_SAMPLES);
    }
    found.n_under_way = version >= WITH_MESSAGES ? ps_get32(b + AT_UNDER_WAY) : 0;
    found.chunks = version >= WITH_KNOWN ? ps_get32(b + AT_CHUNKS) : 0;
    found.run = version >= WITH_RUN ? ps_get64(b + AT_RUN) : 0;
    if (!flags_are_known(found.flags) || !fits_version(&found) || found.means > PSC_STATE_MAX_MEANS ||
        found.n_floats < 1 || found.n_floats > MAX_FLOATS || found.extra_bytes > MAX_EXTRA ||
        found.since > found.clock || (version > PSC_STATE_OLDEST && found.fragment >= found.fragments) ||
        found.fragments > PS_MAX_FRAGMENTS || !(found.rate >= 0 && found.rate < 1e30f) ||
        !get_name(found.method, b + AT_METHOD) || !get_name(found.rule, b + AT_RULE) ||
        !get_name(found.optimizer, b + AT_OPTIMIZER))
        return ps_fail(err, -EINVAL, "corrupt: its head has impossible values");
    size_t of_head = psc_state_pack(&found, same);
    if (memcmp(same, b, of_head) != 0)
        return ps_fail(err, -EINVAL, "corrupt: the padding of its head is not zero");
    uint64_t want = of_head + (n_vectors(found.flags) + found.means) * found.n_floats * sizeof(float) +
                    (uint64_t)found.n_under_way * psc_state_exchange_bytes(&found) + found.chunks +
                    found.extra_bytes + CHECKSUM_BYTES;
    if (file_bytes != want)
        return ps_fail(err, -EINVAL, "corrupt: the file has %" PRIu64 " bytes; by its head it has %" PRIu64,
                       file_bytes, want);
    *h = found;
    return 0;
}

/* Checks the table of exchanges, and the chunks' bytes. */
static int check_tables(const struct psc_state_head *h, const struct psc_state_parts *parts,
                        struct ps_error *err)
{
    struct psc_state_exchange e;
    for (uint32_t k = 0; k < h->n_under_way; k++) {
        int rc = psc_state_parse_exchange(h, &e, parts->under_way + k * psc_state_exchange_bytes(h), err);
        if (rc < 0)
            return rc;
    }
    for (uint32_t k = 0; k < h->chunks; k++)
        if (parts->chunks[k] > (PSC_STATE_IS_KNOWN | PSC_STATE_WAS_KNOWN))
            return ps_fail(err, -EINVAL, "corrupt: chunk %u has impossible bits", k);
    return 0;
}

int psc_state_decode(struct psc_state_head *h, struct psc_state_parts *parts, const void *bytes,
                     size_t len_bytes, struct ps_error *err)
{
    const unsigned char *b = bytes, *next;
    struct psc_state_head found = {.flags = 0};
    int rc = psc_state_parse(&found, bytes, len_bytes, len_bytes, err);
    if (rc < 0)
        return rc;
    if (ps_get64(b + len_bytes - CHECKSUM_BYTES) != XXH3_64bits(b, len_bytes - CHECKSUM_BYTES))
        return ps_fail(err, -EINVAL, "corrupt: its checksum is wrong");
    size_t vector_bytes = (size_t)found.n_floats * sizeof(float);
    next = b + psc_state_head_bytes(found.version);
    *parts = (struct psc_state_parts){.at = next};
    next += vector_bytes;
    for (int k = 0; k < PSC_STATE_VECTORS; k++)
        if ((found.flags >> k & 1) != 0) {
            parts->vectors[k] = next;
            next += vector_bytes;
        }
    parts->means = next;
    next += found.means * vector_bytes;
    const unsigned char **const behind[] = {&parts->message, &parts->sent_error, &parts->known,
                                            &parts->sent_known};
    for (size_t k = 0; k < sizeof behind / sizeof *behind; k++)
        if ((found.flags & (uint32_t)PSC_STATE_MESSAGE << k) != 0) {
            *behind[k] = next;
            next += vector_bytes;
        }
    parts->under_way = next;
    next += found.n_under_way * psc_state_exchange_bytes(&found);
    parts->chunks = next;
    next += found.chunks;
    parts->extra = next;
    if ((rc = check_tables(&found, parts, err)) < 0)
        return rc;
    *h = found;
    return 0;
}
