/* pending_peers.h: who has connected but not been let in: connections whose hello is still on its way, at
 * most so many, each for so long. Strangers wait here without holding anybody up. */
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
/* Waits for a whole hello until the deadline, at most. 0: *fd is the caller's. -EAGAIN: none came in time;
 * -ECANCELED: stop_fd; other -errno. Who sends none, or one that cannot be parsed, is told why and dropped.
 */
int psc_pending_peers_wait(struct psc_pending_peers *p, double deadline_s, int *fd, struct psc_hello *hello);
void psc_pending_peers_finish(struct psc_pending_peers *p);

/* Sends the reply and closes; a peer that does not read it misses it. */
void psc_turn_away(int fd, uint8_t kind, const char *text);

#endif
