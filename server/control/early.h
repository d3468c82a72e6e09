/* early.h: Hellos that arrive at the head while other servers are missing. They are answered when all servers
 * have joined. If they were refused, clients would back off and join seconds later than necessary. */
#ifndef PSD_CONTROL_EARLY_H
#define PSD_CONTROL_EARLY_H

#include <stdbool.h>
#include <stdint.h>
#include <zmq.h>

struct psd_early_hello {
    zmq_msg_t id, body; /* with libzmq's properties of the connection */
    uint64_t token, came_ms;
};

/* All zero: empty. The newest Hello of each client, in the order in which the clients first appeared. */
struct psd_early {
    struct psd_early_hello *first;
    uint32_t n;
};

/* Stores a copy, for at most `most` clients; `most` must be the same for each call. A client for which there
 * is no room, or no memory, will ask again. */
void psd_early_keep(struct psd_early *e, zmq_msg_t *id, zmq_msg_t *body, uint64_t token, uint32_t most,
                    uint64_t now_ms);
/* Removes and returns all of them; the caller passes the result to psd_early_finish. */
struct psd_early psd_early_take(struct psd_early *e);
/* Whether the client may still wait for the answer on that connection. */
bool psd_early_is_fresh(const struct psd_early_hello *h, uint64_t now_ms);
void psd_early_finish(struct psd_early *e);

#endif
