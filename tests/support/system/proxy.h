/* proxy.h: a process between psd's TCP ports and its clients that cuts connections or slows them down.
 *
 * psd listens on 127.0.0.1 and advertises 127.0.0.2; the proxy listens on the same ports of 127.0.0.2. A cut
 * loses all bytes in transit, in both directions. */
#ifndef TEST_PROXY_H
#define TEST_PROXY_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct proxy {
    pid_t pid;
    int command; /* a byte: cut, or the new delay */
};

/* 0, or -1 with a message on stderr. */
int proxy_start(struct proxy *p, const uint16_t *ports, size_t n);
/* Resets all current connections. */
void proxy_cut(struct proxy *p);
/* Delays all further bytes by tens_of_ms * 10 ms. */
void proxy_slow(struct proxy *p, uint8_t tens_of_ms);
void proxy_stop(struct proxy *p);

/* The port of a tcp:// URL. */
uint16_t proxy_port(const char *url);

#endif
