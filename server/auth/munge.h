/* munge.h: MUNGE on the control socket (auth.munge): a peer that sends Hello or Enlist is asked for a
 * credential over a nonce from psd, which proves its user. A thread of the pool talks to munged. The loop's
 * thread. */
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
    size_t peer_bytes; /* 0: unused */
    unsigned char nonce[PS_MUNGE_NONCE_BYTES];
    uint64_t given_ms;
};

struct psd_munge {
    bool on;
    uid_t users[PSD_MUNGE_USERS]; /* [n_users]: psd's own first */
    uint32_t n_users;
    /* Sized for limits.clients: all may join at the same time, some of them on a new connection. */
    struct psd_munge_nonce *pending; /* [n_pending] */
    uint32_t n_pending, at_work, most_at_work;
};

/* Parses names or numbers of users, separated by commas, or "none". -EINVAL names an unknown one. */
int psd_munge_set_up(struct psd_auth *a, struct ps_error *err);
void psd_munge_finish(struct psd_auth *a);

/* Handles a Hello of a peer whose user is not known: asks for a credential, or queues the check of the one it
 * contains, after which psd_auth_hooks.proved is called. */
void psd_munge_hello(struct psd_auth *a, const struct psd_peer *peer, const Ps__Hello *m);
/* The same for an Enlist: servers of the job run as psd's own user. */
void psd_munge_enlist(struct psd_auth *a, const struct psd_peer *peer, const Ps__Enlist *m);

#endif
