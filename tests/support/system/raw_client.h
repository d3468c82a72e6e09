/* raw_client.h: a client that sends message by message, so that a test can lose, repeat and corrupt messages.
 *
 * For one thread. Starts threads of libzmq: fork workers first. */
#ifndef TEST_SUPPORT_RAW_CLIENT_H
#define TEST_SUPPORT_RAW_CLIENT_H

#include <stdbool.h>
#include <stdint.h>

#include "proto/model/shard.h"
#include "proto/transports/transport.h"
#include "proto/wire/control.h"
#include "proto/wire/frame.h"

struct hand {
    void *context, *control;
    struct ps_hub *hub;
    const struct ps_transport *transport;
    struct ps_link *links[PS_MAX_LANES];
    char urls[PS_MAX_LANES][320];
    uint32_t client, incarnation, n_lanes, n_parts, chunk_floats;
    bool resumed; /* from Welcome */
    uint64_t manifest_hash, center_version;
    uint64_t barrier; /* from Begun */
    struct ps_shard shard;
    uint64_t seq;
    char sentence[600]; /* of the last error, from either connection */
};

/* server: "tcp://…" or "@FILE". Connects without a handshake. */
void hand_open(struct hand *h, const char *server);
/* The same with a key file (NULL: none) and the public key in the endpoint file. */
void hand_open_as(struct hand *h, const char *server, const char *key_file);
/* The same, with the name that psd's socket is to give to the connection; NULL: any. */
void hand_open_called(struct hand *h, const char *server, const char *key_file, const char *name);
void hand_close(struct hand *h);

void hand_tell(struct hand *h, int what, void *message); /* what: PS__TO_SERVER__WHAT_… */
/* The next control message other than Alive and Parked, to be freed with ps_control_free_to_client; NULL
 * after `seconds`. */
Ps__ToClient *hand_hear(struct hand *h, double seconds);
/* The code of the next message if it is an Error; PS__CODE__OK for another message, -1 for none. */
int hand_hear_error(struct hand *h, double seconds);
/* Sends Hello and receives the Welcome: 0, or the code of the Error. */
int hand_hello(struct hand *h, const Ps__Hello *hello);
/* Sends Begin with one tensor "x": 0, or the code of the Error. *offer: psd wants the initial x. */
int hand_begin(struct hand *h, uint64_t floats, bool *offer);
/* All of these, with any rank, offering zeros. 0, or the code of the Error. */
int hand_join(struct hand *h, const char *server, uint64_t floats);
void hand_leave(struct hand *h);
/* Leaves, and returns when psd has ended the session: it then refuses the next heartbeat. */
bool hand_left(struct hand *h);

/* The ports of a psd that advertises 127.0.0.2, for a proxy: control, then the lanes. False if their number
 * is not n_ports. */
bool hand_survey(const char *advertised, uint16_t *ports, uint32_t n_ports);

/* Reopens a lane's link; messages in transit are lost. */
void hand_relink(struct hand *h, uint32_t lane);
/* A frame for chunk k of the lane, with this client's rank, incarnation and h->seq. */
struct ps_frame hand_frame(const struct hand *h, uint8_t kind, uint32_t lane, uint32_t k);
/* body: floats, not copied: unchanged until answered. bytes 0: no body. */
void hand_send(struct hand *h, uint32_t lane, const struct ps_frame *f, const float *body, size_t bytes);
/* The next answer of the lane; its floats are copied to body [f->count]. 0; the code of an error frame; -1
 * for none within `seconds`. */
int hand_answer(struct hand *h, uint32_t lane, struct ps_frame *f, float *body, double seconds);
/* Sends every chunk of the vector in order, with a new seq. kind: EXCHANGE, PULL, PUSH or OFFER; answer may
 * be NULL for the latter two. 0, or the code of the first error. */
int hand_pass(struct hand *h, uint8_t kind, const float *message, float *answer);

#endif
