/* hostile_fixture.h: an honest worker at work while a test does its worst; afterwards the center holds what
 * that worker sent, bit for bit, and nothing else. */
#ifndef TEST_SYSTEM_HOSTILE_FIXTURE_H
#define TEST_SYSTEM_HOSTILE_FIXTURE_H

#include "tests/support/system/daemon.h"
#include "tests/support/system/exchange_workers.h"
#include "tests/support/system/raw_client.h"

/* A worker connects anew when psd has said nothing for four heartbeats: with SIEGE_CALM_MS on no machine that
 * is only slow. A test that kills psd wants a few, of SIEGE_BRISK_MS. */
enum { SIEGE_CALM_MS = 10000, SIEGE_BRISK_MS = 100 };
enum { SIEGE_FLOATS = 100003, SIEGE_CHUNK = 16384, SIEGE_LANES = 2, SIEGE_SALT = 1 };

struct siege {
    struct daemon d;
    const char *settings[24];
    struct crew_worker honest; /* rank 0 */
    uint32_t heartbeat_ms;     /* its; may be changed between siege_prepare and siege_begin */
    uint64_t rss_bytes;        /* of psd, when all had begun */
};

void siege_start(struct siege *s);
/* The same in parts. Prepares psd's folder: more settings, or NULL. */
void siege_prepare(struct siege *s, const char *const *more);
void siege_begin(struct siege *s);
/* psd lives, answers, and the honest worker goes on. */
void siege_holds(const struct siege *s);
/* That, and the center is right; ends everything. */
void siege_end(struct siege *s);

/* Joins as a worker made by hand. */
void siege_join(const struct siege *s, struct hand *h);
/* The ports: control, then the lanes'. */
void siege_ports(const struct siege *s, uint16_t ports[1 + SIEGE_LANES]);
/* A bare ZeroMQ socket at the URL; receives within TEST_HANG_S. */
void *siege_socket(void *context, const char *url);

/* A repeatable stream of bytes. */
uint64_t siege_random(uint64_t *state);

#endif
