/* pending_peers.h: accepted connections with an incomplete hello: a limited number, each for a limited time.
 * They never block other peers. */
#ifndef PSC_CLIQUES_RENDEZVOUS_PENDING_PEERS_H
#define PSC_CLIQUES_RENDEZVOUS_PENDING_PEERS_H

#include "client/cliques/socket.h"

enum { PSC_PORCH_ROOM = 64 };

struct psc_pending_peers {
    int listen_fd, stop_fd;
    size_t n;
    struct {
        int fd;
        size_t got;
        double until_s;
        unsigned char bytes[PSC_HELLO_BYTES];
    } guests[PSC_PORCH_ROOM];
};

void psc_pending_peers_init(struct psc_pending_peers *p, int listen_fd, int stop_fd);
/* Waits for a complete hello, at most until the deadline. 0: *fd is the caller's. -EAGAIN: none arrived in
 * time; -ECANCELED: stop_fd; other -errno. A peer that sends none, or one that cannot be parsed, is told why
 * and dropped. */
int psc_pending_peers_wait(struct psc_pending_peers *p, double deadline_s, int *fd, struct psc_hello *hello);
void psc_pending_peers_finish(struct psc_pending_peers *p);

/* Sends the reply and closes. A peer that does not read it misses it. */
void psc_turn_away(int fd, uint8_t kind, const char *text);

#endif
