/* transports.h: the transports of psd's own lanes: the listener's, and those that clients attach to (shm,
 * rdma) if this machine has them and `transport` allows them. Loop's thread. */
#ifndef PSD_LANES_TRANSPORTS_H
#define PSD_LANES_TRANSPORTS_H

#include "proto/transports/transport.h"
#include "ps.pb-c.h"
#include "server/lane/lane.h"

struct psd_config;
struct psd_lanes;

struct psd_transports {
    struct {
        const struct ps_transport *transport;
        struct ps_hub *hub;
    } row[PSD_MAX_TRANSPORTS]; /* the listener's own first */
    uint32_t n;
};

/* Opens the hubs. curve: peers must have keys; transports that cannot check keys (`exposed`) are then left
 * out. -errno with a sentence. */
int psd_transports_open(struct psd_transports *r, const struct psd_config *cfg, bool curve,
                        uint32_t io_threads, struct ps_error *err);
/* Opens the lane's ports; fills in limits.window_chunks. The first lane decides which transports exist: under
 * `transport: auto` one that cannot be opened is left out, with a line in the log. -errno with a sentence. */
int psd_transports_open_lane(struct psd_transports *r, const struct psd_config *cfg, const char *control_url,
                             struct psd_lane *lane, uint32_t index, struct ps_transport_limits limits,
                             struct ps_error *err);
/* After all lanes are gone. */
void psd_transports_close(struct psd_transports *r);

/* A new token for a session. False: there is no randomness, and the client may not attach. */
bool psd_transports_new_pass(unsigned char pass[PS_PASS_TOKEN_BYTES]);

/* Storage for the transports in a Welcome. */
struct psd_transports_told {
    Ps__Road road[PSD_MAX_TRANSPORTS], *list[PSD_MAX_TRANSPORTS];
    char *lanes[PSD_MAX_TRANSPORTS][PSD_MAX_LANES];
};
/* used: indices of the n_lanes lanes that the client uses. With several servers only transports that all of
 * them have are offered. pass: the token of the client's session; NULL: it may not attach. */
void psd_transports_publish(const struct psd_lanes *lanes, uint32_t window_chunks, const unsigned char *pass,
                            const uint32_t *used, uint32_t n_lanes, struct psd_transports_told *told,
                            Ps__Welcome *w);
/* Lists the transports of this psd's own lanes except the listener's, for the head. Returns how many. */
uint32_t psd_transports_list(const struct psd_lanes *lanes, uint32_t window_chunks,
                             struct psd_transports_told *told, Ps__Road **list[static 1]);
/* The index of the transport of this name; r->n: none. */
uint32_t psd_transports_find(const struct psd_transports *r, const char *transport);

#endif
