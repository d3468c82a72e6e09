/* control_socket.h: finds the server, and opens sockets to it on which both ends are authenticated. */
#ifndef PSC_SESSION_CONTROL_SOCKET_H
#define PSC_SESSION_CONTROL_SOCKET_H

#include <stdbool.h>

#include "proto/error.h"
#include "proto/security/curve.h"

struct psc_server_address {
    char url[512];
    char server_key[PS_CURVE_KEY_CHARS + 1]; /* the public key; "": not known */
    unsigned open_mode; /* file mode of the endpoint file, if others may write it; 0: they may not */
};

/* Resolves the host name, and waits for that until ps_now_ns reaches until_ns. -ENOENT: a TCP host that does
 * not resolve, or not in time. */
int psc_place_resolve(const struct psc_server_address *place, uint64_t until_ns, struct ps_error *err);
/* Whether both addresses are of the same server. */
bool psc_place_is(const struct psc_server_address *a, const struct psc_server_address *b);
/* server: a URL, or "@FILE", an endpoint file. The file is read at every call, because a restarted server may
 * have another port. -errno with a sentence. */
int psc_place_find(const char *server, struct psc_server_address *place, struct ps_error *err);

/* The keys by which a client authenticates. */
struct psc_proof {
    struct ps_curve_pair own;                /* its key pair; public_key "": it has none */
    char server_key[PS_CURVE_KEY_CHARS + 1]; /* from the caller; "": from the address or the key file */
};

/* Reads the key file. key_file and server_key may be NULL. PSC_EAUTH names the file; PSC_EINVAL. */
int psc_proof_read(const char *key_file, const char *server_key, struct psc_proof *proof,
                   struct ps_error *err);

/* A control socket to one server. */
struct psc_control_socket {
    void *socket, *watch; /* NULL: closed */
    struct psc_server_address place;
    char key[PS_CURVE_KEY_CHARS + 1]; /* the server's key on this connection; "": not encrypted */
    unsigned n_broken;                /* failed handshakes since the last success */
    unsigned n_shaken;                /* successful handshakes: libzmq reconnects by itself */
};

/* Closes what was open and connects. PSC_EAUTH: only one end has a key, or no key is known; PSC_EINVAL: the
 * address is not valid; PSC_EGONE: it failed, and may succeed later. Each with a sentence. */
int psc_control_socket_open(struct psc_control_socket *line, void *context,
                            const struct psc_server_address *place, const struct psc_proof *proof,
                            struct ps_error *err);
void psc_control_socket_close(struct psc_control_socket *line, int linger_ms);
/* Reads the results of handshakes, which libzmq repeats by itself. PSC_OK: nothing to report; PSC_EAUTH: the
 * server refuses this client, or has another key; PSC_EGONE: a handshake failed, and the next may succeed. */
int psc_control_socket_poll(struct psc_control_socket *line, const struct psc_proof *proof,
                            struct ps_error *err);

#endif
