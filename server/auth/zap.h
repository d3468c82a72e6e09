/* zap.h: the handler that libzmq asks, of every handshake, whether the key may come in
 * (rfc.zeromq.org/spec/27): one for each ZeroMQ context that psd's sockets live in.
 *
 * What it answers names the peer in the properties of every message of that connection: User-Id is the name,
 * PS_CURVE_ID_PROPERTY the number. All of it runs on the loop. */
#ifndef PSD_AUTH_ZAP_H
#define PSD_AUTH_ZAP_H

#include <stdbool.h>
#include <uv.h>

#include "proto/error.h"

/* Decides: true with the name, which stays while this turn of the loop lasts, and the number. key: 32 bytes;
 * NULL: the peer showed none. */
typedef bool psd_zap_decide(void *arg, const char *address, const unsigned char *key, const char **name,
                            uint64_t *id);

struct psd_zap {
    void *socket;
    uv_poll_t poll;
    uv_prepare_t prepare;
    psd_zap_decide *decide;
    void *arg;
};

/* Before any socket of the context listens. Starts zeroed. */
int psd_zap_open(struct psd_zap *z, uv_loop_t *loop, void *zmq_context, psd_zap_decide *decide, void *arg,
                 struct ps_error *err);
/* Before the context ends, after its sockets have stopped listening. The handles' memory stays the caller's
 * until the loop has run once more. */
void psd_zap_close(struct psd_zap *z);

#endif
