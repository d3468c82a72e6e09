/* rejected_peers.h: peers rejected during the handshake, before a message of theirs reached psd, by libzmq or
 * by psd's ZAP handler. They are logged here, because libzmq does not report them. The loop's thread. */
#ifndef PSD_AUTH_REJECTED_PEERS_H
#define PSD_AUTH_REJECTED_PEERS_H

#include <uv.h>

#include "proto/log.h"

struct psd_rejected_peers_watch;

enum { PSD_REJECTED_PEERS_SEEN = 64, PSD_REJECTED_PEERS_FDS = 1024 };

struct psd_rejected_peers {
    uint64_t *counter;                        /* counts rejected peers; set before psd listens */
    struct psd_rejected_peers_watch *watches; /* [n] */
    uint32_t n;
    uv_prepare_t prepare;
    char (*addresses)[64]; /* [PSD_REJECTED_PEERS_FDS]: of the connections, by descriptor */
    struct {
        uint64_t who, until_s;
    } seen[PSD_REJECTED_PEERS_SEEN]; /* already logged, by hash */
    struct ps_log_limit log_limit;
};

/* Polls the n watches of these sockets (proto/security/socket_monitor.h), some of which may be NULL.
 * -ENOMEM. */
int psd_rejected_peers_open(struct psd_rejected_peers *g, uv_loop_t *loop, void *const *watches, uint32_t n);
/* Call before the watches are closed. */
void psd_rejected_peers_close(struct psd_rejected_peers *g);
void psd_rejected_peers_finish(struct psd_rejected_peers *g);

/* Counts and logs a rejection: once a minute for the same peer and reason, and at most a few a second. */
void psd_rejected_peers_note(struct psd_rejected_peers *g, const char *address, const char *why);

#endif
