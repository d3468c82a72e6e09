/* internal.h: what the files of cluster/ share. */
#ifndef PSD_CLUSTER_INTERNAL_H
#define PSD_CLUSTER_INTERNAL_H

#include "server/psd.h"

/* head.c */
uint32_t psd_team_index(const struct psd *d, const struct psd_server *s);
uint64_t psd_team_lanes(const struct psd *d, const struct psd_server *s); /* bits */
void psd_team_send(struct psd *d, const struct psd_server *s, const Ps__ToClient *m);
void psd_team_refuse(struct psd *d, const struct psd_server *s, uint32_t code, const char *why);
/* lane: of the server's own; UINT32_MAX: all of them. One that is not here is told nothing. */
void psd_team_order_note(struct psd *d, struct psd_server *s, const struct psd_note *note, uint32_t lane);
/* It is no longer here: nothing waits for what it has not taken. */
void psd_team_lose(struct psd *d, struct psd_server *s, const char *why);

/* Numbered, kept and said again until it is taken; not to one that is not here. */
void psd_team_order(struct psd *d, struct psd_server *s, Ps__Orders *o);

/* change.c, at the head: whether all have tried what is to change; an exchange of a server whose lanes close.
 */
void psd_team_weigh_change(struct psd *d);
void psd_team_take_exchange(struct psd *d, struct psd_server *s, const Ps__Note *n);
/* At another server: tries, drops or makes what is set at all; takes what is set at the head, which this one
 * has missed. And tells the head what has begun here, now that all lanes have closed: lane said it last. */
void psd_follow_take_change(struct psd *d, const Ps__Change *m);
void psd_follow_take_settings(struct psd *d, const Ps__Place *m);
void psd_follow_report_exchanges(struct psd *d, const struct psd_lane *lane);

/* follower.c. nonce: of the head that asks for a credential; NULL: it has not asked. */
void psd_follow_enlist(struct psd *d, const ProtobufCBinaryData *nonce);
void psd_follow_begin_again(struct psd *d, bool resume, uint64_t version);
/* The head hears of it, now or when the road is there again. */
void psd_follow_report(struct psd *d, const struct psd_lane *lane, const struct psd_note *note);

/* credential.c, at another server: says the Enlist with a MUNGE credential over it and the head's nonce, when
 * munged has made one. -ENOMEM; -EINVAL: that is no nonce. */
int psd_follow_prove(struct psd *d, const Ps__Enlist *m, const ProtobufCBinaryData *nonce);

#endif
