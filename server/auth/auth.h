/* auth.h: authentication and rights. Under CURVE (auth.key) every peer has a key that the allow-list names;
 * libzmq checks it at each connection and attaches its identity to every message (zap.h). A session belongs
 * to the identity whose Hello began it: its rank, its messages on both connections, and an operator's
 * decisions about it.
 *
 * Everything runs on the loop's thread. A lane learns the number of a session's identity by its ADMIT
 * command, and compares it. */
#ifndef PSD_AUTH_AUTH_H
#define PSD_AUTH_AUTH_H

#include <zmq.h>

#include "ps.pb-c.h"
#include "server/auth/allow_list.h"
#include "server/auth/munge.h"
#include "server/auth/rejected_peers.h"
#include "server/auth/zap.h"
#include "server/config/config.h"
#include "server/lanes/lanes.h"
#include "server/rights/rights.h"
#include "server/session/send.h"
#include "server/session/session.h"

struct psd;

/* Continue with a peer that has proved its identity. */
struct psd_auth_hooks {
    void (*proved)(struct psd *psd, const struct psd_peer *peer, const Ps__Hello *m);
    void (*proved_server)(struct psd *psd, const struct psd_peer *peer, const Ps__Enlist *m);
};

struct psd_auth {
    /* The parts that it uses. */
    const struct psd_config *cfg;
    uv_loop_t *loop;
    struct psd_sessions *sessions;
    struct psd_sender *sender;
    struct psd_auth_hooks hooks;
    struct psd *psd; /* for the hooks */

    bool curve;
    struct ps_curve_pair pair; /* psd's own */
    struct psd_grant own;      /* role server: psd processes that follow another one have the same pair */
    struct psd_allow list;
    uint64_t last_id;
    struct psd_zap control, data;
    char (*barred)[PS_CURVE_NAME_MAX + 1]; /* [n_barred]: identities whose sessions an operator has ended */
    size_t n_barred;
    struct psd_munge munge;
    struct psd_rejected_peers rejected;
};

/* Reads key and allow-list, before psd listens. A configuration error: -errno with a sentence. */
int psd_auth_set_up(struct psd_auth *a, struct ps_error *err);
/* Call before the control socket, and the lanes', listen. *watch: the control socket's ps_watch. */
int psd_auth_guard_control(struct psd_auth *a, void *context, void *socket, void **watch,
                           struct ps_error *err);
int psd_auth_guard_data(struct psd_auth *a, const struct psd_transports *transports, struct ps_error *err);
/* Call when they listen. control: the watch of the control socket. */
int psd_auth_watch(struct psd_auth *a, void *control, const struct psd_lanes *lanes, struct ps_error *err);
void psd_auth_finish(struct psd_auth *a);

/* "curve", "munge", "curve+munge" or "none". */
const char *psd_auth_name(const struct psd_auth *a);
/* psd's public key, or "". */
const char *psd_auth_public_key(const struct psd_auth *a);

/* The allow-list's grant with this number; NULL: none. */
const struct psd_grant *psd_auth_grant(const struct psd_auth *a, uint64_t id);
/* Fills in the sender of the control message. False: it was refused. */
bool psd_auth_peer(struct psd_auth *a, zmq_msg_t *message, struct psd_peer *peer);
/* Whether the peer's key allows the message; psd_auth_hello checks a Hello further. False: it was refused. */
bool psd_auth_may_send(struct psd_auth *a, const struct psd_peer *peer, enum psd_message m);
/* Whether this peer, whose identity is known, may send this Hello. False: it was refused. */
bool psd_auth_hello(struct psd_auth *a, const struct psd_peer *peer, const Ps__Hello *m);
/* Whether the session belongs to the peer. */
bool psd_auth_owns(const struct psd_peer *peer, const struct psd_session *s);
/* Binds the session to the peer. */
void psd_auth_bind(struct psd_session *s, const struct psd_peer *peer);
/* The ranks that the peer may have, as a bitmap; NULL: any. */
const uint64_t *psd_auth_ranks(const struct psd_peer *peer);

/* The number of an identity that another server names; UINT64_MAX: unknown here. 0 without CURVE. */
uint64_t psd_auth_id_of(const struct psd_auth *a, const char *name);
/* An operator has ended a session: its identity may begin no other until psd_auth_allow. */
void psd_auth_bar(struct psd_auth *a, const struct psd_session *s);
/* False: it was not barred. */
bool psd_auth_allow(struct psd_auth *a, const char *name);

/* On a reload: reads the list again, and later applies it. Returns whether it differs from the previous
 * one. */
int psd_auth_reread(const struct psd_auth *a, struct psd_allow *list, struct ps_error *err);
bool psd_auth_take(struct psd_auth *a, struct psd_allow *list);
/* Whether the list in force allows the session to continue. */
bool psd_auth_may_stay(const struct psd_auth *a, const struct psd_session *s);

#endif
