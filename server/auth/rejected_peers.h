/* rejected_peers.h: who was turned away at the door: before a message of theirs could reach psd, by libzmq or
 * by what ZAP told it. Said in the log, because libzmq tells nobody. The loop's thread. */
#ifndef PSD_AUTH_REJECTED_PEERS_H
#define PSD_AUTH_REJECTED_PEERS_H

#include <uv.h>

#include "proto/log.h"

struct psd_rejected_peers_watch;

enum { PSD_REJECTED_PEERS_SEEN = 64, PSD_REJECTED_PEERS_FDS = 1024 };

struct psd_rejected_peers {
    uint64_t *counter; /* of those who were turned away; there before anything listens */
    struct psd_rejected_peers_watch *watches; /* [n] */
    uint32_t n;
    uv_prepare_t prepare;
    char (*addresses)[64]; /* [PSD_REJECTED_PEERS_FDS]: of the connections, by descriptor */
    struct {
        uint64_t who, until_s;
    } seen[PSD_REJECTED_PEERS_SEEN]; /* logged already, by hash */
    struct ps_log_limit log_limit;
};

/* Looks after these sockets' watches (proto/security/socket_monitor.h), n of them, some of which may be NULL.
 * -ENOMEM. */
int psd_rejected_peers_open(struct psd_rejected_peers *g, uv_loop_t *loop, void *const *watches, uint32_t n);
/* Before the watches are closed. */
void psd_rejected_peers_close(struct psd_rejected_peers *g);
void psd_rejected_peers_finish(struct psd_rejected_peers *g);

/* Counts and logs it: once a minute for the same peer and reason, and a few a second at most. */
void psd_rejected_peers_turned_away(struct psd_rejected_peers *g, const char *address, const char *why);

#endif
