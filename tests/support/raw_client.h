/* raw_client.h: a client made by hand, message by message, so that a test can lose, repeat and spoil them.
 *
 * Belongs to one thread. Starts threads of libzmq: fork workers before. */
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
    bool resumed; /* Welcome said so */
    uint64_t manifest_hash, center_version;
    struct ps_shard shard;
    uint64_t seq;
    char sentence[600]; /* of the last error, from either connection */
};

/* server: "tcp://…" or "@FILE". Only connects. */
void hand_open(struct hand *h, const char *server);
/* The same with this key file (NULL: none) and the public key of the endpoint file. */
void hand_open_as(struct hand *h, const char *server, const char *key_file);
void hand_close(struct hand *h);

void hand_tell(struct hand *h, int what, void *message); /* what: PS__TO_SERVER__WHAT_… */
/* The next control message but Alive and Parked, to be freed by ps_control_free_to_client; NULL after
 * `seconds`. */
Ps__ToClient *hand_hear(struct hand *h, double seconds);
/* The code of the Error that comes next; PS__CODE__OK for another message, -1 for none. */
int hand_hear_error(struct hand *h, double seconds);
/* Says Hello and takes the Welcome: 0, or the code of the Error. */
int hand_hello(struct hand *h, const Ps__Hello *hello);
/* Says Begin with one tensor "x": 0, or the code of the Error. *offer: the initial x is wanted. */
int hand_begin(struct hand *h, uint64_t floats, bool *offer);
/* All of it, as any rank, offering zeros. 0, or the code of the Error. */
int hand_join(struct hand *h, const char *server, uint64_t floats);
void hand_leave(struct hand *h);
/* Leaves, and returns when psd has ended the session: it refuses the heartbeat that comes behind. */
bool hand_left(struct hand *h);

/* The ports of a psd that advertises 127.0.0.2, for a proxy: control, then the lanes. False
 * unless there are so many. */
bool hand_survey(const char *advertised, uint16_t *ports, uint32_t n_ports);

/* Opens a lane's link anew; what was on its way is lost. */
void hand_relink(struct hand *h, uint32_t lane);
/* A frame that names chunk k of the lane, with this client's names and h->seq. */
struct ps_frame hand_frame(const struct hand *h, uint8_t kind, uint32_t lane, uint32_t k);
/* body: floats, copied by nobody: leave them until answered. bytes 0: no body. */
void hand_send(struct hand *h, uint32_t lane, const struct ps_frame *f, const float *body, size_t bytes);
/* The next answer of the lane, its floats to body (room for f->count). 0; the code of an error frame; -1 for
 * none within `seconds`. */
int hand_answer(struct hand *h, uint32_t lane, struct ps_frame *f, float *body, double seconds);
/* Every chunk of the vector, one after the other, with fresh seq. kind EXCHANGE, PULL, PUSH or OFFER; answer
 * may be NULL for the latter two. 0, or the code of the first error. */
int hand_pass(struct hand *h, uint8_t kind, const float *message, float *answer);

#endif
