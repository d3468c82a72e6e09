/* control_socket.h: where the server is, and sockets to it that prove who both ends are. */
#ifndef PSC_SESSION_CONTROL_SOCKET_H
#define PSC_SESSION_CONTROL_SOCKET_H

#include <stdbool.h>

#include "proto/error.h"
#include "proto/security/curve.h"

struct psc_server_address {
    char url[512];
    char server_key[PS_CURVE_KEY_CHARS + 1]; /* the server's public key; "": the place does not say */
    unsigned open_mode; /* of the endpoint file, where others may write it; 0: they may not */
};

/* Whether both are of one server. */
/* -ENOENT: the place names a host of TCP that does not resolve. It asks the system's resolver, and waits. */
int psc_place_resolve(const struct psc_server_address *place, struct ps_error *err);
bool psc_place_is(const struct psc_server_address *a, const struct psc_server_address *b);
/* server: a URL, or "@FILE", an endpoint file, which is read at every call: a restarted server may have
 * another port. -errno with a sentence. */
int psc_place_find(const char *server, struct psc_server_address *place, struct ps_error *err);

/* What a client has to prove itself by. */
struct psc_proof {
    struct ps_curve_pair own;                /* its pair; public_key "": none */
    char server_key[PS_CURVE_KEY_CHARS + 1]; /* as its caller said; "": the place or the key file says */
};

/* Reads the key file. key_file and server_key may be NULL. PSC_EAUTH names the file; PSC_EINVAL. */
int psc_proof_read(const char *key_file, const char *server_key, struct psc_proof *proof,
                   struct ps_error *err);

/* A control socket to a place. */
struct psc_control_socket {
    void *socket, *watch; /* NULL: closed */
    struct psc_server_address place;
    char key[PS_CURVE_KEY_CHARS + 1]; /* the server's, on this line; "": it is plain */
    unsigned n_broken;                /* handshakes since one succeeded */
    unsigned n_shaken;                /* that succeeded: libzmq connects again by itself */
};

/* Connects, closing what was open. PSC_EAUTH: one end has a key and the other has none, or none is known;
 * PSC_EINVAL: the place cannot be connected to; PSC_EGONE: not now. Each with a sentence. */
int psc_control_socket_open(struct psc_control_socket *line, void *context,
                            const struct psc_server_address *place, const struct psc_proof *proof,
                            struct ps_error *err);
void psc_control_socket_close(struct psc_control_socket *line, int linger_ms);
/* What has become of its handshakes, which libzmq repeats by itself: PSC_OK: nothing that one need know;
 * PSC_EAUTH: the server does not let this client in, or is another; PSC_EGONE: one has failed and the next
 * may not. */
int psc_control_socket_poll(struct psc_control_socket *line, const struct psc_proof *proof,
                            struct ps_error *err);

#endif
