/* munge.h: MUNGE on the control socket (auth.munge): who says Hello or Enlist is asked for a credential over
 * a nonce of psd's, and is then known by its user. munged is asked by a thread of the pool. The loop's
 * thread.
 */
#ifndef PSD_AUTH_MUNGE_H
#define PSD_AUTH_MUNGE_H

#include <sys/types.h>
#include <uv.h>

#include "proto/security/munge.h"
#include "ps.pb-c.h"

struct psd_auth;
struct psd_peer;

enum { PSD_MUNGE_USERS = 64 };

/* A nonce that was given out. */
struct psd_munge_nonce {
    unsigned char peer[256];
    size_t peer_bytes; /* 0: none */
    unsigned char nonce[PS_MUNGE_NONCE_BYTES];
    uint64_t given_ms;
};

struct psd_munge {
    bool on;
    uid_t users[PSD_MUNGE_USERS]; /* [n_users]: psd's own first */
    uint32_t n_users;
    /* Of limits.clients: all may come at one moment, and some of them on a line after the one that was given
     * up. */
    struct psd_munge_nonce *pending; /* [n_pending] */
    uint32_t n_pending, at_work, most_at_work;
};

/* Names or numbers of users, with commas; "none". -EINVAL names the one that is no user. */
int psd_munge_set_up(struct psd_auth *a, struct ps_error *err);
void psd_munge_finish(struct psd_auth *a);

/* A Hello of a peer whose user is not known. Asks for a credential, or has the one that came looked at: then
 * psd_auth_hooks.proved follows. */
void psd_munge_hello(struct psd_auth *a, const struct psd_peer *peer, const Ps__Hello *m);
/* An Enlist likewise: a server of the job runs as psd's own user. */
void psd_munge_enlist(struct psd_auth *a, const struct psd_peer *peer, const Ps__Enlist *m);

#endif
