/* What members of a ring say to each other: the first byte chooses the message. What parses is within its
 * bounds and is packed into the same bytes again. */
#include <string.h>

#include "client/cliques/clique.h"
#include "client/cliques/wire.h"
#include "tests/fuzz/fuzz.h"

enum { FOUNDERS = 8 };

static void try_hello(const unsigned char *bytes)
{
    unsigned char again[PSC_HELLO_BYTES];
    struct ps_error err = {""};
    struct psc_hello h;
    if (psc_hello_parse(&h, bytes, &err) < 0) {
        promise(err.text[0] != 0);
        return;
    }
    promise(strlen(h.name) < PSC_NAME_BYTES && strlen(h.address) < PSC_ADDRESS_BYTES);
    promise(h.members >= 1 && h.members <= PSC_MAX_MEMBERS && h.rank >= -1 && h.rank < (int32_t)h.members);
    promise(h.links >= 1 && h.links <= PSC_MAX_LINKS && h.link < h.links);
    promise(h.kind == PSC_HELLO_JOIN || (h.kind <= PSC_HELLO_LEFT_OUT && h.rank >= 0));
    psc_hello_pack(&h, again);
    promise(memcmp(again, bytes, sizeof again) == 0);
}

static void try_reply(const unsigned char *bytes)
{
    unsigned char again[PSC_REPLY_BYTES];
    struct ps_error err = {""};
    struct psc_reply r;
    if (psc_reply_parse(&r, bytes, &err) < 0) {
        promise(err.text[0] != 0);
        return;
    }
    promise(strlen(r.next) < sizeof r.next && strlen(r.text) < sizeof r.text);
    promise(r.kind >= PSC_REPLY_WELCOME && r.kind <= PSC_REPLY_WAIT);
    promise(r.rank >= -1 && r.rank < PSC_MAX_MEMBERS);
    psc_reply_pack(&r, again);
    promise(memcmp(again, bytes, sizeof again) == 0);
}

static void try_head(const unsigned char *bytes)
{
    unsigned char again[PSC_HEAD_BYTES];
    struct ps_error err = {""};
    struct psc_head h;
    if (psc_head_parse(&h, bytes, &err) < 0) {
        promise(err.text[0] != 0);
        return;
    }
    promise(h.type >= PSC_HEAD_SEGMENT && h.type <= PSC_HEAD_NEWS && h.kind <= PSC_ALLGATHER);
    promise(h.rank >= 0 && h.rank < PSC_MAX_MEMBERS);
    promise(h.type != PSC_HEAD_ALIVE ||
            (h.bytes == 0 && h.n >= PSC_MIN_TIMEOUT_MS && h.n <= PSC_MAX_TIMEOUT_MS));
    promise(h.type != PSC_HEAD_NEWS || h.bytes == PSC_NEWS_BYTES);
    psc_head_pack(&h, again);
    promise(memcmp(again, bytes, sizeof again) == 0);
}

static void try_news(const unsigned char *bytes)
{
    struct ps_error err;
    psc_news_clean(bytes, &err);
    promise(strlen(err.text) < sizeof err.text);
    for (const char *p = err.text; *p != 0; p++)
        promise((unsigned char)*p >= ' ' && *p != 127);
}

static void try_roster(const unsigned char *bytes)
{
    unsigned char again[PSC_ROSTER_BYTES(FOUNDERS)];
    struct ps_error err = {""};
    struct psc_roster r;
    if (psc_roster_parse(&r, FOUNDERS, bytes, &err) < 0) {
        promise(err.text[0] != 0);
        return;
    }
    promise(r.members >= 1 && r.members <= FOUNDERS && r.source < r.members && r.behind < r.members);
    for (uint32_t i = 0; i < r.members; i++)
        promise(r.ids[i] < FOUNDERS && (i == 0 || r.ids[i] > r.ids[i - 1]));
    psc_roster_pack(&r, FOUNDERS, again);
    promise(memcmp(again, bytes, sizeof again) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    static const struct {
        size_t len;
        void (*run)(const unsigned char *bytes);
    } messages[] = {{PSC_HELLO_BYTES, try_hello},
                    {PSC_REPLY_BYTES, try_reply},
                    {PSC_HEAD_BYTES, try_head},
                    {PSC_NEWS_BYTES, try_news},
                    {PSC_ROSTER_BYTES(FOUNDERS), try_roster}};
    unsigned char whole[PSC_REPLY_BYTES] = {0};
    if (len < 1)
        return 0;
    size_t which = bytes[0] % (sizeof messages / sizeof *messages), room = messages[which].len;
    memcpy(whole, bytes + 1, len - 1 < room ? len - 1 : room); /* what is missing is zero */
    messages[which].run(whole);
    return 0;
}
