/* proxy.h: stands between psd's TCP ports and who connects to them, in a process of its own, and cuts
 * connections or slows them down.
 *
 * psd listens on 127.0.0.1 and advertises 127.0.0.2; the proxy listens on the same ports of 127.0.0.2. A cut
 * loses whatever bytes are on their way, in both directions. */
#ifndef TEST_PROXY_H
#define TEST_PROXY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct proxy {
    pid_t pid;
    int command; /* a byte: cut, or how slow from now on */
};

/* 0 or -1 with a sentence on stderr. */
int proxy_start(struct proxy *p, const uint16_t *ports, size_t n);
/* Resets every connection there is now. */
void proxy_cut(struct proxy *p);
/* From now on what comes waits that long before it goes on; at most 255 tens of milliseconds. */
void proxy_slow(struct proxy *p, uint8_t tens_of_ms);
void proxy_stop(struct proxy *p);

/* The port of a tcp:// URL. */
uint16_t proxy_port(const char *url);

#endif
