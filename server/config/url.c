#include "server/config/url.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define ALLOWED "allowed is tcp://HOST:PORT, HOST a name, an IPv4 address or [IPv6], PORT 0 to 65535"

static int parse_port(const char *text, uint16_t *port)
{
    char *end;
    if (text[0] < '0' || text[0] > '9' || strlen(text) > 5)
        return -EINVAL;
    unsigned long value = strtoul(text, &end, 10);
    if (*end != 0 || value > UINT16_MAX)
        return -EINVAL;
    *port = (uint16_t)value;
    return 0;
}

static bool host_is_plain(const char *host, bool bracketed)
{
    struct in6_addr six;
    if (bracketed)
        return inet_pton(AF_INET6, host, &six) == 1;
    return strcmp(host, "*") == 0 ||
           (host[0] != 0 && host[0] != '-' &&
            strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_") ==
                strlen(host));
}

int psd_url_parse(const char *text, struct psd_url *out, struct ps_error *err)
{
    static const char scheme[] = "tcp://";
    struct psd_url url = {.port = 0};

    if (strncmp(text, scheme, sizeof scheme - 1) != 0)
        return ps_fail(err, -EINVAL, "'%.100s' is not an address; " ALLOWED, text);
    const char *host = text + sizeof scheme - 1;
    const char *colon = strrchr(host, ':');
    if (colon == NULL || parse_port(colon + 1, &url.port) < 0)
        return ps_fail(err, -EINVAL, "'%.100s' has no port; " ALLOWED, text);
    size_t len = (size_t)(colon - host);
    bool bracketed = len >= 2 && host[0] == '[' && host[len - 1] == ']';
    if (bracketed) {
        host++;
        len -= 2;
    }
    if (len >= sizeof url.host)
        return ps_fail(err, -EINVAL, "'%.100s…' has a host of %zu bytes; allowed are at most %zu", text, len,
                       sizeof url.host - 1);
    memcpy(url.host, host, len);
    if (!host_is_plain(url.host, bracketed))
        return ps_fail(err, -EINVAL, "'%.100s' has no valid host; " ALLOWED, text);
    *out = url;
    return 0;
}

bool psd_url_is_loopback(const struct psd_url *url)
{
    struct in_addr four;
    struct in6_addr six;
    if (inet_pton(AF_INET, url->host, &four) == 1)
        return ntohl(four.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, url->host, &six) == 1)
        return IN6_IS_ADDR_LOOPBACK(&six);
    return strcasecmp(url->host, "localhost") == 0;
}
