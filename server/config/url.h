/* url.h: the addresses that psd listens on: tcp://HOST:PORT, where HOST is a name, an IPv4 address or an IPv6
 * address in brackets. */
#ifndef PSD_CONFIG_URL_H
#define PSD_CONFIG_URL_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/error.h"

struct psd_url {
    char host[256]; /* without brackets; "*" or "0.0.0.0" or "::" : every interface */
    uint16_t port;  /* 0: any free one */
};

/* Parses the text; resolves nothing. -EINVAL with a sentence that has what was found and what is allowed. */
int psd_url_parse(const char *text, struct psd_url *out, struct ps_error *err);

/* True for 127.0.0.0/8, ::1 and "localhost": addresses that no other machine can reach. Other names are never
 * trusted to resolve to loopback. */
bool psd_url_is_loopback(const struct psd_url *url);

#endif
