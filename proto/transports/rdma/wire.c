#include "proto/transports/rdma/wire.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>

#include "proto/bytes.h"
#include "proto/clock.h"
#include "proto/resolve.h"
#include "proto/wire/frame.h"

/* n, rkey, slot_bytes, address: 24 bytes. */
static void put_slots(unsigned char *at, const struct ps_rdma_slots *s)
{
    ps_put32(at, s->n);
    ps_put32(at + 4, s->rkey);
    ps_put64(at + 8, s->slot_bytes);
    ps_put64(at + 16, s->address);
}

static int get_slots(const unsigned char *at, struct ps_rdma_slots *out, struct ps_error *err)
{
    struct ps_rdma_slots s = {.n = ps_get32(at),
                              .rkey = ps_get32(at + 4),
                              .slot_bytes = ps_get64(at + 8),
                              .address = ps_get64(at + 16)};
    if (s.n == 0 || s.n > PS_RDMA_MAX_SLOTS)
        return ps_fail(err, -EPROTO, "%u slots; allowed are 1 to %u", s.n, PS_RDMA_MAX_SLOTS);
    if (s.slot_bytes < PS_FRAME_BYTES || s.slot_bytes > UINT32_MAX ||
        s.address > UINT64_MAX - s.n * s.slot_bytes)
        return ps_fail(err, -EPROTO, "slots of %llu bytes; allowed are %d to %u",
                       (unsigned long long)s.slot_bytes, PS_FRAME_BYTES, UINT32_MAX);
    *out = s;
    return 0;
}

static int check_start(const unsigned char *data, size_t len_bytes, size_t least, struct ps_error *err)
{
    if (len_bytes < least || ps_get32(data) != PS_RDMA_MAGIC)
        return ps_fail(err, -EPROTO, "the other end is not psd");
    if (ps_get32(data + 4) != PS_RDMA_VERSION)
        return ps_fail(err, -EPROTO, "the other end speaks version %u of the rdma transport; this one %u",
                       ps_get32(data + 4), PS_RDMA_VERSION);
    return 0;
}

void ps_rdma_request_pack(const struct ps_rdma_request *r, unsigned char *data)
{
    ps_put32(data, PS_RDMA_MAGIC);
    ps_put32(data + 4, PS_RDMA_VERSION);
    ps_put32(data + 8, r->client);
    ps_put32(data + 12, r->incarnation);
    memcpy(data + 16, r->token, PS_PASS_TOKEN_BYTES);
    put_slots(data + 32, &r->answers);
}

int ps_rdma_request_parse(struct ps_rdma_request *r, const void *data, size_t len_bytes, struct ps_error *err)
{
    const unsigned char *at = data;
    int rc = check_start(at, len_bytes, PS_RDMA_REQUEST_BYTES, err);
    if (rc == 0)
        rc = get_slots(at + 32, &r->answers, err);
    if (rc < 0)
        return rc;
    r->client = ps_get32(at + 8);
    r->incarnation = ps_get32(at + 12);
    memcpy(r->token, at + 16, PS_PASS_TOKEN_BYTES);
    return 0;
}

void ps_rdma_accept_pack(const struct ps_rdma_slots *s, unsigned char *data)
{
    ps_put32(data, PS_RDMA_MAGIC);
    ps_put32(data + 4, PS_RDMA_VERSION);
    put_slots(data + 8, s);
}

int ps_rdma_accept_parse(struct ps_rdma_slots *s, const void *data, size_t len_bytes, struct ps_error *err)
{
    int rc = check_start(data, len_bytes, PS_RDMA_ACCEPT_BYTES, err);
    return rc < 0 ? rc : get_slots((const unsigned char *)data + 8, s, err);
}

size_t ps_rdma_reject_pack(int code, const char *sentence, unsigned char *data)
{
    memset(data, 0, PS_RDMA_REJECT_BYTES);
    ps_put32(data, PS_RDMA_MAGIC);
    ps_put32(data + 4, (uint32_t)-code);
    snprintf((char *)data + 8, PS_RDMA_REJECT_BYTES - 8, "%s", sentence);
    return PS_RDMA_REJECT_BYTES;
}

int ps_rdma_reject_parse(const void *data, size_t len_bytes, struct ps_error *err)
{
    const unsigned char *at = data;
    if (len_bytes < PS_RDMA_REJECT_BYTES || ps_get32(at) != PS_RDMA_MAGIC || ps_get32(at + 4) == 0 ||
        ps_get32(at + 4) > 4095 || memchr(at + 8, 0, PS_RDMA_REJECT_BYTES - 8) == NULL)
        return ps_fail(err, -EPROTO, "the other end is not psd");
    return ps_fail(err, -(int)ps_get32(at + 4), "%s", (const char *)at + 8);
}

bool ps_rdma_token_is(const unsigned char *token, const unsigned char *other)
{
    volatile unsigned char differs = 0;
    for (size_t i = 0; i < PS_PASS_TOKEN_BYTES; i++)
        differs |= (unsigned char)(token[i] ^ other[i]);
    return differs == 0;
}

/* Splits the URL into HOST and PORT; false: it is not such a URL. */
static bool take_apart(const char *url, char *host, size_t size, const char **port)
{
    static const char scheme[] = "rdma://";
    const char *colon = strrchr(url, ':');
    if (strncmp(url, scheme, sizeof scheme - 1) != 0 || colon < url + sizeof scheme - 1)
        return false;
    const char *at = url + sizeof scheme - 1;
    size_t len = (size_t)(colon - at), digits = strspn(colon + 1, "0123456789");
    bool bracketed = len >= 2 && at[0] == '[' && at[len - 1] == ']';
    at += bracketed;
    len -= bracketed ? 2 : 0;
    if (len == 0 || len >= size || digits == 0 || digits > 5 || colon[1 + digits] != 0)
        return false;
    memcpy(host, at, len);
    host[len] = 0;
    *port = colon + 1;
    return true;
}

int ps_rdma_resolve(const char *url, bool passive, struct sockaddr_storage *at, socklen_t *len,
                    struct ps_error *err)
{
    struct addrinfo *found, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    char host[256];
    const char *port;

    if (!take_apart(url, host, sizeof host, &port) || (strcmp(host, "*") == 0 && !passive))
        return ps_fail(err, -EINVAL,
                       "'%.200s' is not an rdma address; allowed is rdma://HOST:PORT, HOST a name, an "
                       "IPv4 address or [IPv6]",
                       url);
    bool any = strcmp(host, "*") == 0;
    if (any) {
        hints.ai_flags |= AI_PASSIVE;
        hints.ai_family = AF_INET;
    }
    struct ps_error why;
    uint64_t until_ns = ps_ns_after(1e-3 * (passive ? PS_RESOLVE_MS : PS_ATTACH_MS));
    int rc = ps_resolve(any ? NULL : host, port, &hints, until_ns, &found, &why);
    if (rc != 0)
        return ps_fail(err, rc, "cannot find the host of %.200s: %s", url, why.text);
    memcpy(at, found->ai_addr, found->ai_addrlen);
    *len = found->ai_addrlen;
    freeaddrinfo(found);
    return 0;
}

void ps_rdma_lane_url(const char *control_url, uint32_t lane, char *url, size_t size)
{
    const char *host = strstr(control_url, "://"), *port = strrchr(control_url, ':');
    (void)lane;
    snprintf(url, size, "rdma%.*s:0", (int)(port - host), host);
}

void ps_rdma_address_text(const struct sockaddr *at, char *text, size_t size)
{
    char host[128], port[8];
    bool six = at->sa_family == AF_INET6;
    socklen_t len = six ? sizeof(struct sockaddr_in6) : sizeof(struct sockaddr_in);
    if (getnameinfo(at, len, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
        snprintf(text, size, "unknown address");
    else
        snprintf(text, size, six ? "[%s]:%s" : "%s:%s", host, port);
}
