/* early.h: Hellos that come to the head while other servers are missing. They are answered when all are here:
 * a client that asked in vain would ask again ever later, and wait for seconds once it is let in. */
#ifndef PSD_CONTROL_EARLY_H
#define PSD_CONTROL_EARLY_H

#include <stdbool.h>
#include <stdint.h>
#include <zmq.h>

struct psd_early_hello {
    zmq_msg_t id, body; /* with what libzmq says of the connection */
    uint64_t token, came_ms;
};

/* All zero: none. One for each client, the newest; in the order in which clients first came. */
struct psd_early {
    struct psd_early_hello *first;
    uint32_t n;
};

/* Keeps a copy, of `most` clients at most, the same number each time. Who finds no room, or no memory, asks
 * again. */
void psd_early_keep(struct psd_early *e, zmq_msg_t *id, zmq_msg_t *body, uint64_t token, uint32_t most,
                    uint64_t now_ms);
/* All of them, to be given to psd_early_finish; none is left. */
struct psd_early psd_early_take(struct psd_early *e);
/* Whether its client may still wait on that connection for the answer. */
bool psd_early_is_fresh(const struct psd_early_hello *h, uint64_t now_ms);
void psd_early_finish(struct psd_early *e);

#endif
