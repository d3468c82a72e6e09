/* zap.h: the handler that libzmq asks at every handshake whether the key is accepted
 * (rfc.zeromq.org/spec/27); one for each ZeroMQ context of psd's sockets.
 *
 * Its answers set the properties of every message of the connection: User-Id is the name,
 * PS_CURVE_ID_PROPERTY the number. Everything runs on the loop. */
#ifndef PSD_AUTH_ZAP_H
#define PSD_AUTH_ZAP_H

#include <stdbool.h>
#include <uv.h>

#include "proto/error.h"

/* Returns whether the key is accepted, with its name, which is valid during this iteration of the loop, and
 * its number. key: 32 bytes; NULL: the peer has none. */
typedef bool psd_zap_decide(void *arg, const char *address, const unsigned char *key, const char **name,
                            uint64_t *id);

struct psd_zap {
    void *socket;
    uv_poll_t poll;
    uv_prepare_t prepare;
    psd_zap_decide *decide;
    void *arg;
};

/* Call before any socket of the context listens. *z starts zeroed. */
int psd_zap_open(struct psd_zap *z, uv_loop_t *loop, void *zmq_context, psd_zap_decide *decide, void *arg,
                 struct ps_error *err);
/* Call before the context is terminated, after its sockets have stopped listening. The caller keeps the
 * handles' memory until the loop has run once more. */
void psd_zap_close(struct psd_zap *z);

#endif
