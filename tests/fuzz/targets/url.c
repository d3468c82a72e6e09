/* Addresses: what parses, written anew from its parts, parses into the same parts. */
#include <string.h>

#include "server/config/endpoint.h"
#include "server/config/url.h"
#include "tests/fuzz/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t len)
{
    struct ps_error err = {""};
    struct psd_url url, again;
    char written[300], advertised[300], *text = strndup((const char *)bytes, len);

    psd_endpoint_advertised(text, "head-node", advertised, sizeof advertised);
    promise(memchr(advertised, 0, sizeof advertised) != NULL);
    if (psd_url_parse(text, &url, &err) < 0) {
        promise(err.text[0] != 0);
    } else {
        bool six = strchr(url.host, ':') != NULL;
        snprintf(written, sizeof written, six ? "tcp://[%s]:%u" : "tcp://%s:%u", url.host, url.port);
        promise(psd_url_parse(written, &again, &err) == 0);
        promise(strcmp(again.host, url.host) == 0 && again.port == url.port);
        promise(psd_url_is_loopback(&url) == psd_url_is_loopback(&again));
        promise(!psd_url_is_loopback(&url) || strcmp(url.host, "*") != 0);
    }
    free(text);
    return 0;
}
